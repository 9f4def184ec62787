/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/words.h"

unsigned words_learn(struct words *words, struct words_known *place, const char *text, size_t len)
{
	memset(place->text, 0, sizeof(place->text));
	for (size_t at = 0; at < len; at += 8)
		place->text[at / 8] = words_part(text + at, len - at);
	place->len = (uint32_t)len;
	place->answer = words->find(text, len);
	return place->answer;
}
