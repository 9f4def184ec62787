/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <inttypes.h>

#include "memory/dump/cell.h"
#include "memory/dump/csv_lex.h"
#include "memory/dump/scan.h"
#include "test.h"

static uint64_t random_word(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

TEST(scan, either)
{
	static const char bytes[] = ",:\"\n\0a\x80\xff\xac\x2d";
	char text[64];

	for (int round = 0; round < 2000; round++) {
		uint64_t want = 0;

		for (int i = 0; i < 64; i++) {
			text[i] = bytes[random_word() % (sizeof(bytes) - 1)];
			want |= (uint64_t)(text[i] == ',' || text[i] == '\n') << i;
		}
		CHECK(scan_either(text, ',', '\n') == want);
		CHECK(scan_either_plain(text, ',', '\n') == want);
	}
}

/* Against the slow functions, on numbers of every length with and without a byte that is wrong. */
TEST(scan, numbers)
{
	char text[64];

	for (int round = 0; round < 200000; round++) {
		uint64_t value = random_word() >> random_word() % 64, got = 0, want = 0;
		int n = snprintf(text, sizeof(text), "%" PRIu64 "%c", value, '0' + round % 10);

		n -= round % 3 != 0; /* sometimes one digit more: overflow */
		if (round % 2)
			text[random_word() % (unsigned)n] = (char)random_word();
		bool is = cell_read_u64(text, (size_t)n, &want);
		CHECK(scan_u64(text, (size_t)n, &got) == is);
		CHECK(!is || got == want);
	}
	uint64_t v;
	CHECK(!scan_u64(text, 0, &v) && !scan_u64("123456789012345678901", 21, &v));
}

TEST(scan, addresses)
{
	char text[32];

	for (int round = 0; round < 100000; round++) {
		uint64_t value = random_word(), one = 0, two = 0;

		snprintf(text, sizeof(text), round % 2 ? "%016" PRIx64 : "%016" PRIX64, value);
		CHECK(scan_hex16(text, &one) && one == value);
		CHECK(scan_hex16_plain(text, &two) && two == value);
		text[random_word() % 16] = (char)random_word();
		CHECK(scan_hex16(text, &one) == scan_hex16_plain(text, &two));
	}
}

/* A record cut in two at every byte is the same record; found in one call it has its fields. */
TEST(csv_lex, pieces)
{
	static const char text[] = "1,\"a,\"\"b\"\"\n\n\",,plain \"q\" of more than sixty-four "
				   "bytes, which is what the "
				   "lexer looks at in one go,\"x\"\r\n2,\n";
	const size_t n = strlen(text);

	for (size_t cut = 0; cut < n; cut++) {
		struct csv_lex lex = {0};
		char copy[256];
		int r;

		memcpy(copy, text, n);
		r = csv_lex_next(&lex, copy, cut);
		if (r == 0)
			r = csv_lex_next(&lex, copy, n);
		CHECK_INT(r, 1);
		CHECK_INT(lex.at, n - 3);
		CHECK_INT(lex.lines, 3);
		CHECK_INT(lex.nfields, 6);
		CHECK_INT(lex.doubled, 2);
	}
	struct csv_lex lex = {0};
	CHECK_INT(csv_lex_next(&lex, text, n), 1);
	CHECK(lex.fields[1].len == 9 && !memcmp(lex.fields[1].text, "a,\"\"b\"\"\n\n", 9));
	CHECK(lex.fields[2].len == 0 && lex.fields[5].len == 1 && *lex.fields[5].text == 'x');
	CHECK_INT(csv_lex_next(&lex, text, n), 1);
	CHECK(lex.nfields == 2 && lex.at == n && lex.fields[0].len == 1 && !lex.fields[1].len);
}

TEST(csv_lex, more_fields_than_places)
{
	char text[200];

	memset(text, ',', sizeof(text));
	text[199] = '\n';
	struct csv_lex lex = {0};
	CHECK_INT(csv_lex_next(&lex, text, sizeof(text)), 1);
	CHECK_INT(lex.nfields, 200);
}

TEST(csv_lex, ends)
{
	struct {
		const char *text;
		int fields; /* -1: inside quotes, -2: damaged */
		size_t last;
	} cases[] = {{"a", 1, 1},	 {"a,", 2, 0},	    {"a,b\r", 2, 1},
		     {"\"a\"", 1, 1},	 {"\"a\"\r", 1, 1}, {"\"a", -1, 0},
		     {"\"a\"\"", -1, 0}, {"\"a\"b", -2, 0}, {"\"a\"\rb", -2, 0}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct csv_lex lex = {0};
		const char *text = cases[i].text;
		int r = csv_lex_next(&lex, text, strlen(text));

		CHECK_INT(r, cases[i].fields == -2 ? -EBADMSG : 0);
		if (r < 0)
			continue;
		CHECK_INT(csv_lex_end(&lex, text, strlen(text)), cases[i].fields > 0);
		if (cases[i].fields < 0)
			continue;
		CHECK_INT(lex.nfields, cases[i].fields);
		CHECK_INT(lex.fields[lex.nfields - 1].len, cases[i].last);
	}
}
