/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/printable.h"
#include "test.h"

static void check_printable(const char *text, size_t len, const char *want)
{
	struct buf out = {0};

	text_add_printable(&out, text, len);
	CHECK_INT(out.len, strlen(want));
	CHECK_STR(buf_str(&out), want);
	buf_release(&out);
}

#define PRINTABLE(text_, want_) check_printable(text_, sizeof(text_) - 1, want_)

TEST(frames, text_of_others_does_not_command_the_terminal)
{
	PRINTABLE("aten.mm", "aten.mm");
	PRINTABLE("\033]0;title\007\033[31m\177\r\n", "?]0;title??[31m???");
	/* U+009B begins a sequence as ESC [ does, in UTF-8 and as a byte of its own */
	PRINTABLE("a\xc2\x9b"
		  "31m",
		  "a?31m");
	PRINTABLE("a\x9b"
		  "31m",
		  "a\xef\xbf\xbd"
		  "31m");
	/* right-to-left override and isolates; a line separator */
	PRINTABLE("a\xe2\x80\xae"
		  "b\xe2\x81\xa6"
		  "c\xe2\x80\xa8",
		  "a?b?c?");
}

TEST(frames, text_of_others_stays_text)
{
	PRINTABLE("", "");
	PRINTABLE("\0", "");
	PRINTABLE("\xe5\xb1\x82/\xc3\xa9\xe2\x80\xa6\xf0\x9f\x98\x80\xc2\xa0",
		  "\xe5\xb1\x82/\xc3\xa9\xe2\x80\xa6\xf0\x9f\x98\x80\xc2\xa0");
	/* cut in the middle of a letter */
	PRINTABLE("\xe5\xb1", "\xef\xbf\xbd\xef\xbf\xbd");
}
