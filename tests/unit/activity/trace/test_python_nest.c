/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Sampled calls among exact ones: slices of a thread are nested, whatever was seen. */
#include "activity/trace/trace.h"
#include "base/mem.h"
#include "test.h"

#define MANY 400
#define TO_WALL 1000000

static struct trace_state t;
static struct window w;
static struct seen s;

static void begin(uint64_t from_ns, uint64_t to_ns)
{
	w = (struct window){.pid = 77, .wall_minus_mono_ns = TO_WALL};
	w.trace.activities = REQUEST_CPU;
	w.trace.stack = true;
	t = (struct trace_state){.w = &w, .from_ns = from_ns + TO_WALL, .to_ns = to_ns + TO_WALL};
	s = (struct seen){.from_ns = from_ns, .first_ns = 1};
}

/* A library's call. */
static void exact(uint32_t tid, uint64_t start, uint64_t end)
{
	struct activity a = {.start_ns = start + TO_WALL,
			     .end_ns = end + TO_WALL,
			     .kind = ACTIVITY_RUNTIME_API,
			     .place = ACTIVITY_ON_HOST,
			     .name = "api",
			     .detail = "",
			     .more = "",
			     .tid = tid};

	trace_hold(&t, &a);
}

static void seen_between(uint32_t tid, const char *name, struct seen_moment start,
			 struct seen_moment end, uint32_t depth)
{
	s.calls = xgrow(s.calls, &s.cap, s.n + 1, sizeof(*s.calls));
	s.calls[s.n++] = (struct seen_call){start, end, name, "f.py", 3, tid, depth, 0};
}

static const struct trace_call *call(const char *text)
{
	for (size_t i = 0; i < t.calls.n; i++)
		if (!strcmp(t.calls.list[i].text, text))
			return &t.calls.list[i];
	return NULL;
}

static void check(const char *text, uint64_t start, uint64_t end)
{
	const struct trace_call *c = call(text);

	CHECK(c);
	CHECK_INT(c->start_ns - TO_WALL, start);
	CHECK_INT(c->end_ns - TO_WALL, end);
}

static void finish(void)
{
	free(s.calls);
	free(t.held);
	hmap_release(&t.known_texts);
	texts_release(&t.texts);
	trace_calls_release(&t.calls);
}

TEST(trace_python_nest, moments_move_to_where_no_call_is_in_progress)
{
	begin(1000, 2000);
	exact(7, 1150, 1250); /* at the look of 1200 */
	exact(7, 1380, 1410); /* at that of 1400 */
	exact(8, 1100, 1900); /* another thread's */
	seen_between(7, "a", (struct seen_moment){1200, 1100}, (struct seen_moment){1400, 1300}, 0);
	seen_nest(&t, &s);
	check("f.py(3): a", 1150, 1380);
	finish();
}

TEST(trace_python_nest, cut_to_the_steps)
{
	begin(1000, 2000);
	seen_between(7, "a", (struct seen_moment){500, 0}, (struct seen_moment){1300, 1200}, 0);
	seen_between(7, "b", (struct seen_moment){1900, 1800}, (struct seen_moment){2100, 2000}, 0);
	seen_between(7, "c", (struct seen_moment){700, 0}, (struct seen_moment){900, 800}, 1);
	seen_between(7, "d", (struct seen_moment){2050, 0}, (struct seen_moment){2100, 800}, 1);
	seen_nest(&t, &s);
	CHECK_INT(t.calls.n, 2);
	check("f.py(3): a", 1000, 1300);
	check("f.py(3): b", 1900, 2000);
	finish();
}

/* What is in progress at the end of the steps lasts as long as the library's call in it. */
TEST(trace_python_nest, a_call_over_the_end_of_the_steps)
{
	begin(1000, 2000);
	exact(7, 1900, 2500);
	seen_between(7, "a", (struct seen_moment){1200, 1100}, (struct seen_moment){2100, 2050}, 0);
	seen_nest(&t, &s);
	check("f.py(3): a", 1200, 2500);
	finish();
}

/* A library that calls Python: inside of it, even if its end was seen late. */
TEST(trace_python_nest, python_that_a_library_calls)
{
	begin(1000, 2000);
	exact(7, 1100, 1450);
	seen_between(7, "m", (struct seen_moment){1050, 0}, (struct seen_moment){1900, 1800}, 0);
	seen_between(7, "a", (struct seen_moment){1300, 1200}, (struct seen_moment){1500, 1400}, 1);
	seen_nest(&t, &s);
	check("f.py(3): m", 1050, 1900);
	check("f.py(3): a", 1300, 1450);
	finish();
}

/* --- whatever comes --- */

static uint64_t state = 1;

static uint64_t dice(uint64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % n;
}

struct shown_span {
	uint64_t start, end;
};

static int outer_first(const void *a, const void *b)
{
	const struct shown_span *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->end > y->end ? -1 : x->end < y->end;
}

static void check_nested(void)
{
	struct shown_span all[8 * MANY], open[8 * MANY];
	size_t n = 0, depth = 0;

	for (size_t i = 0; i < t.nheld; i++)
		all[n++] = (struct shown_span){t.held[i].start_ns, t.held[i].end_ns};
	for (size_t i = 0; i < t.calls.n; i++) {
		CHECK(t.calls.list[i].start_ns < t.calls.list[i].end_ns);
		CHECK(t.calls.list[i].start_ns >= t.from_ns);
		all[n++] = (struct shown_span){t.calls.list[i].start_ns, t.calls.list[i].end_ns};
	}
	qsort(all, n, sizeof(*all), outer_first);
	for (size_t i = 0; i < n; i++) {
		while (depth && open[depth - 1].end <= all[i].start)
			depth--;
		CHECK(!depth || all[i].end <= open[depth - 1].end);
		open[depth++] = all[i];
	}
}

/* A thread's stack goes up and down between looks that know nothing of the library's calls. */
static void random_stacks(void)
{
	struct seen_moment starts[6];
	uint64_t at = 900, before = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < MANY && at < 6000; i++) {
		unsigned stay = (unsigned)dice(n + 1), deep = stay + (unsigned)dice(3);

		while (n > stay) {
			n--;
			seen_between(7, "f", starts[n], (struct seen_moment){at, before}, n);
		}
		while (n < deep && n < 6)
			starts[n++] = (struct seen_moment){at, before};
		before = at;
		at += 1 + dice(60);
	}
	while (n--)
		seen_between(7, "f", starts[n], (struct seen_moment){at, at}, n);
}

static void random_exact(void)
{
	for (uint64_t at = 1000; at < 5000;) {
		uint64_t start = at + dice(40), end = start + 1 + dice(90);

		exact(7, start, end);
		for (uint64_t in = start + dice(20); in + 2 < end; in += 1 + dice(20)) {
			uint64_t stop = in + 1 + dice(end - in - 1);

			exact(7, in, stop);
			in = stop;
		}
		at = end;
	}
}

TEST(trace_python_nest, nested_whatever_comes)
{
	for (unsigned round = 0; round < 300; round++) {
		begin(1000, 5000);
		random_exact();
		random_stacks();
		seen_nest(&t, &s);
		check_nested();
		CHECK(t.calls.n > 0);
		finish();
	}
}
