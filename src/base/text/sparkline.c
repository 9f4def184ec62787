/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/sparkline.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/printable.h"

#define STEPS 8

bool text_is_utf8_locale(void)
{
	static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
	}
	return true;
}

void text_add_ascii(struct buf *out, const char *text, size_t len)
{
	for (size_t i = 0; i < len;) {
		size_t n = (unsigned char)text[i] < 0x80 ? 1 : text_shown_len(text + i, len - i);

		if (n <= 1)
			buf_add_char(out, (unsigned char)text[i] < 0x80 ? text[i] : '?');
		else if (n == 3 && !memcmp(text + i, "…", 3))
			buf_add_char(out, '.');
		else if (n == 3 && (!memcmp(text + i, "–", 3) || !memcmp(text + i, "─", 3)))
			buf_add_char(out, '-');
		else
			buf_add_char(out, '?');
		i += n ? n : 1;
	}
}

static void add_step(struct buf *out, unsigned step, bool utf8)
{
	static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

	if (utf8)
		buf_add_str(out, blocks[step]);
	else
		buf_add_char(out, " ._-=+*#@"[step]);
}

void text_add_sparkline(struct buf *out, const uint64_t *values, size_t n, unsigned columns,
			uint64_t most)
{
	bool utf8 = text_is_utf8_locale();

	if (columns > n)
		columns = (unsigned)n;
	for (size_t i = 0, given = most != 0; !given && i < n; i++)
		most = values[i] > most ? values[i] : most;
	for (size_t i = 0; i < columns; i++) {
		size_t begin = i * n / columns, end = (i + 1) * n / columns;
		uint64_t high = 0;

		for (size_t k = begin; k < end; k++)
			high = values[k] > high ? values[k] : high;
		double share = most ? (double)high / (double)most : 0;
		unsigned step = share >= 1 ? STEPS : (unsigned)(share * STEPS);
		/* what is there is not drawn as nothing */
		add_step(out, high && !step ? 1 : step, utf8);
	}
}

void text_add_bar(struct buf *out, uint64_t part, uint64_t whole, unsigned columns)
{
	static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	double share = !whole ? 0 : part >= whole ? 1 : (double)part / (double)whole;
	unsigned filled = (unsigned)(share * columns * STEPS + 0.5), used = filled / STEPS;
	bool utf8 = text_is_utf8_locale();

	for (unsigned i = 0; i < used; i++)
		buf_add_str(out, utf8 ? "█" : "#");
	if (utf8 && filled % STEPS) {
		buf_add_str(out, eighths[filled % STEPS]);
		used++;
	}
	buf_addf(out, "%*s", (int)(columns - used), "");
}
