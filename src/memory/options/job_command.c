/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/text/printable.h"
#include "memory/options/config.h"

static bool is_printable(const char *word, size_t len)
{
	struct buf shown = {0};

	text_add_printable(&shown, word, len);
	bool same = shown.len == len && !memcmp(shown.data, word, len);
	buf_release(&shown);
	return same;
}

void mem_config_keep_command(struct mem_config *c, char *const argv[])
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "./_-=:,+@%";
	struct buf text = {0};

	for (char *const *word = argv; *word; word++) {
		size_t len = strlen(*word);
		bool bare = len && strspn(*word, plain) == len;
		bool shown = bare || (!strchr(*word, '\'') && is_printable(*word, len));

		if (!shown || text.len + len + 8 > MEM_COMMAND_BYTES) {
			buf_add_str(&text, text.len ? " …" : "…");
			break;
		}
		buf_addf(&text, "%s%s%s%s", text.len ? " " : "", bare ? "" : "'", *word,
			 bare ? "" : "'");
	}
	snprintf(c->command, MEM_COMMAND_BYTES, "%s", buf_str(&text));
	buf_release(&text);
}
