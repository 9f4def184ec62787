/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Alignment against a second one that is written straight from the description of the algorithm:
 * every row kept, no bounds, no blocks. Both must agree in every element, not only in length.
 */
#include "memory/analysis/compare/align.h"

#include "base/mem.h"
#include "test.h"

#define MAX_LEN 4096

static uint64_t seed = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 16) % n;
}

struct script {
	size_t n;
	struct {
		enum align_kind kind;
		size_t x, y;
	} at[2 * MAX_LEN];
};

struct words {
	size_t n;
	uint32_t at[MAX_LEN];
};

/* x of every diagonal after every d; rows[d] points at k = 0. */
static int **rows;

static void free_rows(int d)
{
	for (int i = 0; i <= d; i++)
		free(rows[i] - i - 2);
	free(rows);
}

/* Returns D. */
static int slow_search(const struct words *a, const struct words *b)
{
	int n = (int)a->n, m = (int)b->n;
	const int *before = NULL;

	rows = xcalloc((size_t)(n + m) + 1, sizeof(*rows));
	for (int d = 0;; d++) {
		int *v = (int *)xcalloc((size_t)d * 2 + 5, sizeof(int)) + d + 2;

		rows[d] = v;
		for (int k = -d; k <= d; k += 2) {
			int x;

			if (!before)
				x = 0;
			else if (k == -d || (k != d && before[k - 1] < before[k + 1]))
				x = before[k + 1];
			else
				x = before[k - 1] + 1;
			int y = x - k;
			while (x < n && y < m && a->at[x] == b->at[y]) {
				x++;
				y++;
			}
			v[k] = x;
			if (x >= n && y >= m)
				return d;
		}
		before = v;
	}
}

static void add(struct script *s, enum align_kind kind, int x, int y)
{
	s->at[s->n].kind = kind;
	s->at[s->n].x = (size_t)x;
	s->at[s->n].y = (size_t)y;
	s->n++;
}

/* From the end to the start, then turned round. */
static void slow(const struct words *a, const struct words *b, struct script *out)
{
	int x = (int)a->n, y = (int)b->n;
	int last = slow_search(a, b);

	out->n = 0;
	for (int d = last; d > 0; d--) {
		const int *v = rows[d - 1];
		int k = x - y;
		bool insertion = k == -d || (k != d && v[k - 1] < v[k + 1]);
		int from_x = insertion ? v[k + 1] : v[k - 1];
		int from_y = from_x - (insertion ? k + 1 : k - 1);

		while (x > from_x + !insertion && y > from_y + insertion)
			add(out, ALIGN_BOTH, --x, --y);
		add(out, insertion ? ALIGN_COMPARE : ALIGN_BASE, from_x, from_y);
		x = from_x;
		y = from_y;
	}
	while (x > 0 && y > 0)
		add(out, ALIGN_BOTH, --x, --y);
	CHECK(x == 0 && y == 0);
	for (size_t i = 0; i < out->n / 2; i++) {
		struct script swap;

		swap.at[0] = out->at[i];
		out->at[i] = out->at[out->n - 1 - i];
		out->at[out->n - 1 - i] = swap.at[0];
	}
	free_rows(last);
}

static void show(const char *what, const struct words *w)
{
	fprintf(stderr, "%s:", what);
	for (size_t i = 0; i < w->n; i++)
		fprintf(stderr, " %u", w->at[i]);
	fprintf(stderr, "\n");
}

static void check_against(const struct words *a, const struct words *b, const struct script *want,
			  const struct align_options *options)
{
	struct align_pair pair = {a->at, b->at, a->n, b->n};
	struct align got;
	size_t i = 0;

	align_init(&got, &pair, options);
	struct align_walk w = {.align = &got};
	for (;; i++) {
		enum align_kind kind = align_next(&w);
		bool end = i == want->n;

		if (kind == (end ? ALIGN_END : want->at[i].kind) &&
		    (end || (w.x == want->at[i].x && w.y == want->at[i].y))) {
			if (end)
				break;
			continue;
		}
		fprintf(stderr,
			"element %zu differs: got %d, want %d (gap %u, words %zu, band %u, "
			"plain %d)\n",
			i, (int)kind, end ? (int)ALIGN_END : (int)want->at[i].kind,
			options->block_steps, options->max_words, options->band, options->plain);
		show("base", a);
		show("compare", b);
		exit(1);
	}
	align_release(&got);
}

static const struct align_options ways[] = {
	{0},
	{.plain = true},
	{.block_steps = 1, .band = 2},
	{.block_steps = 1, .plain = true},
	{.block_steps = 3, .max_words = 1, .band = 1},
	{.block_steps = 2, .max_words = 40, .plain = true, .band = 4},
	{.block_steps = 7, .band = 16},
};

static void check_pair(const struct words *a, const struct words *b)
{
	static struct script want;

	slow(a, b, &want);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		check_against(a, b, &want, &ways[i]);
}

static void fill(struct words *w, size_t n, uint32_t alphabet)
{
	w->n = n;
	for (size_t i = 0; i < n; i++)
		w->at[i] = random_below(alphabet);
}

/* A copy with some elements deleted, inserted, replaced. */
static void edit(const struct words *from, struct words *to, uint32_t per_mille, uint32_t alphabet)
{
	to->n = 0;
	for (size_t i = 0; i < from->n && to->n + 2 < MAX_LEN; i++) {
		uint32_t dice = random_below(1000) < per_mille ? random_below(3) : 3;

		if (dice == 0)
			continue;
		if (dice == 1)
			to->at[to->n++] = random_below(alphabet);
		to->at[to->n++] = dice == 2 ? random_below(alphabet) : from->at[i];
	}
}

static struct words a, b;

static void set(struct words *w, const char *text)
{
	w->n = strlen(text);
	for (size_t i = 0; i < w->n; i++)
		w->at[i] = (unsigned char)text[i];
}

/* The script as text: = both, - base only, + compare only. */
static const char *script_of(const char *base, const char *compare)
{
	static char text[64];
	struct align got;
	size_t n = 0;

	set(&a, base);
	set(&b, compare);
	struct align_pair pair = {a.at, b.at, a.n, b.n};
	align_init(&got, &pair, &ways[0]);
	struct align_walk w = {.align = &got};
	for (enum align_kind kind; (kind = align_next(&w)) != ALIGN_END && n < sizeof(text) - 1;)
		text[n++] = " =-+"[kind];
	text[n] = '\0';
	align_release(&got);
	return text;
}

TEST(align, choices_known_by_hand)
{
	CHECK_STR(script_of("", ""), "");
	CHECK_STR(script_of("a", ""), "-");
	CHECK_STR(script_of("", "ab"), "++");
	CHECK_STR(script_of("abc", "abc"), "===");
	CHECK_STR(script_of("a", "b"), "-+"); /* of equally short ones the base-only one is first */
	CHECK_STR(script_of("x", "xx"), "=+");
	CHECK_STR(script_of("xx", "x"), "=-");
	CHECK_STR(script_of("abcabba", "cbabac"), "--=+==-=+");
}

TEST(align, every_short_pair_of_two_letters)
{
	for (unsigned la = 0; la <= 6; la++)
		for (unsigned lb = 0; lb <= 6; lb++)
			for (unsigned va = 0; va < 1u << la; va++)
				for (unsigned vb = 0; vb < 1u << lb; vb++) {
					a.n = la;
					b.n = lb;
					for (unsigned i = 0; i < la; i++)
						a.at[i] = va >> i & 1;
					for (unsigned i = 0; i < lb; i++)
						b.at[i] = vb >> i & 1;
					check_pair(&a, &b);
				}
}

TEST(align, random_pairs)
{
	static const uint32_t alphabets[] = {1, 2, 3, 5, 20, 1000};

	for (int i = 0; i < 12000; i++) {
		uint32_t alphabet = alphabets[i % 6];

		fill(&a, random_below(61), alphabet);
		fill(&b, random_below(61), alphabet);
		check_pair(&a, &b);
	}
}

TEST(align, edited_copies)
{
	static const uint32_t alphabets[] = {2, 4, 30, 200};

	for (int i = 0; i < 400; i++) {
		uint32_t alphabet = alphabets[i % 4];

		fill(&a, random_below(1200), alphabet);
		edit(&a, &b, random_below(200), alphabet);
		check_pair(&a, &b);
	}
}

/* A program that repeats itself: many diagonals are as good as the right one, or nearly. */
TEST(align, layers_that_repeat)
{
	for (int i = 0; i < 150; i++) {
		uint32_t period = 2 + random_below(40);

		a.n = random_below(2000);
		for (size_t k = 0; k < a.n; k++)
			a.at[k] = (uint32_t)k % period;
		edit(&a, &b, random_below(60), period);
		if (i % 3 == 0) { /* some layers more */
			size_t more = random_below(800);

			for (size_t k = 0; k < more && b.n < MAX_LEN; k++)
				b.at[b.n++] = (uint32_t)k % period;
		}
		check_pair(&a, &b);
	}
}

TEST(align, one_is_much_longer)
{
	for (int i = 0; i < 60; i++) {
		fill(&a, random_below(20), 3);
		fill(&b, random_below(1500), 3);
		check_pair(&a, &b);
		check_pair(&b, &a);
	}
}

TEST(align, long_runs_of_one_name)
{
	for (int i = 0; i < 200; i++) {
		a.n = b.n = 0;
		for (struct words *w = &a; w; w = w == &a ? &b : NULL)
			for (int runs = (int)random_below(12); runs; runs--) {
				uint32_t name = random_below(3);

				for (uint32_t n = random_below(60); n; n--)
					w->at[w->n++] = name;
			}
		check_pair(&a, &b);
	}
}

TEST(align, nothing_in_common)
{
	for (int i = 0; i < 30; i++) {
		fill(&a, random_below(300), 50);
		fill(&b, random_below(300), 50);
		for (size_t k = 0; k < b.n; k++)
			b.at[k] += 50;
		check_pair(&a, &b);
	}
}

/* Vector and plain steps give the same bits where the slow one would take too long. */
TEST(align, vector_and_plain_agree_on_long_ones)
{
	enum { LEN = 60000 };
	uint32_t *x = xmalloc(LEN * sizeof(*x)), *y = xmalloc(LEN * 2 * sizeof(*y));

	for (int round = 0; round < 4; round++) {
		size_t n = 0;

		for (size_t i = 0; i < LEN; i++)
			x[i] = round < 2 ? random_below(200) : (uint32_t)(i % 50 * 7 % 40);
		for (size_t i = 0; i < LEN; i++) {
			uint32_t dice = random_below(round % 2 ? 20 : 200);

			if (dice == 1)
				y[n++] = random_below(200);
			if (dice != 0)
				y[n++] = x[i];
		}
		struct align_pair pair = {x, y, LEN, n};
		struct align fast, plain;
		align_init(&fast, &pair, &(struct align_options){0});
		align_init(&plain, &pair,
			   &(struct align_options){.plain = true, .max_words = 20000, .band = 3});
		CHECK_INT(fast.edits, plain.edits);
		CHECK(!memcmp(fast.moves, plain.moves, (fast.edits / 64 + 1) * sizeof(uint64_t)));
		align_release(&fast);
		align_release(&plain);
	}
	free(x);
	free(y);
}
