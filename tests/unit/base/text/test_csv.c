/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/csv.h"

#include "test.h"

TEST(csv_fields, what_a_spreadsheet_would_calculate)
{
	static const struct {
		const char *text, *want;
	} fields[] = {
		{"", ""},	   {"plain", "plain"},
		{"=1+1", "'=1+1"}, {"+1", "'+1"},
		{"-1", "'-1"},	   {"@x", "'@x"},
		{"\tx", "'\tx"},   {"\r=x", "\"'\r=x\""},
		{"a=b", "a=b"},	   {"=cmd(\"x\"),1", "\"'=cmd(\"\"x\"\"),1\""},
	};
	struct buf out = {0};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		buf_clear(&out);
		csv_add_harmless_field(&out, fields[i].text, strlen(fields[i].text));
		CHECK_STR(buf_str(&out), fields[i].want);
	}
	buf_release(&out);
}
