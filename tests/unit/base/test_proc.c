/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/proc.h"

#include "test.h"

static const char *printable(const char *text, size_t len)
{
	static struct buf b;

	buf_clear(&b);
	proc_add_printable(&b, text, len);
	return buf_str(&b);
}

TEST(proc, printable)
{
	CHECK_STR(printable("python\0train.py\0--x\0", 20), "python train.py --x");
	CHECK_STR(printable("a\nb\x1b[31m\x7f", 9), "a?b?[31m?");
	CHECK_STR(printable("h\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80", 12),
		  "h\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80");
	/* cut, overlong, surrogates, too high, C1 */
	CHECK_STR(printable("\xc3", 1), "?");
	CHECK_STR(printable("\xc0\xaf", 2), "??");
	CHECK_STR(printable("\xed\xa0\x80", 3), "???");
	CHECK_STR(printable("\xf5\x80\x80\x80", 4), "????");
	CHECK_STR(printable("\xc2\x9b", 2), "??");
	CHECK_STR(printable("\0\0\0", 3), "");
}
