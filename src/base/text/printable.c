/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/printable.h"

#include "base/text/text.h"

#include <stdbool.h>

/*
 * Bytes at p that a terminal would act upon instead of showing them, 0 for none: control
 * characters (C0, DEL and, in UTF-8, C1), and those that turn the direction of the text.
 */
static size_t control_len(const unsigned char *p, size_t len)
{
	if (p[0] < ' ' || p[0] == 0x7f)
		return 1;
	if (len >= 2 && p[0] == 0xc2 && p[1] < 0xa0)
		return 2;
	if (len < 3 || p[0] != 0xe2)
		return 0;
	bool turns = (p[1] == 0x80 && p[2] >= 0xa8 && p[2] <= 0xae) || /* U+2028 to U+202E */
		     (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9); /* U+2066 to U+2069 */
	return turns ? 3 : 0;
}

size_t text_shown_len(const char *text, size_t len)
{
	size_t n = text_sequence_len(text, len);

	return n && !control_len((const unsigned char *)text, len) ? n : 0;
}

void text_add_printable(struct buf *out, const char *text, size_t len)
{
	struct buf scratch = {0};
	const char *clean = text_clean(text, &len, &scratch);
	char *to = buf_room(out, len + 1); /* never NULL */

	for (size_t i = 0; i < len;) {
		size_t n = control_len((const unsigned char *)clean + i, len - i);

		*to++ = n ? '?' : clean[i];
		i += n ? n : 1;
	}
	out->len = (size_t)(to - out->data);
	buf_release(&scratch);
}

void text_add_shortened(struct buf *out, const char *text, size_t len, size_t max)
{
	size_t shown = len;

	if (len > max) {
		shown = max - 3;
		while (shown && (text[shown] & 0xc0) == 0x80)
			shown--;
	}
	text_add_printable(out, text, shown);
	if (shown < len)
		buf_add_str(out, "...");
}
