/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Who has not moved, in words: those that stand at the same place together. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "sampler/hang/hang_impl.h"

#define WHO_BYTES 200
#define ANSWER_WHO_BYTES 60
#define PLACES_MAX 4 /* named in the first line */
#define BUSY_PERCENT 50

/* Processor time since it moved last, in percent of one processor. */
static unsigned cpu_percent(const struct still_one *one, uint64_t now_ns)
{
	double seconds = (double)(now_ns - one->since_ns) / 1e9;
	double ticks = (double)(one->ticks - one->since_ticks);
	double percent = 100 * ticks / ((double)sysconf(_SC_CLK_TCK) * seconds);

	if (one->ticks < one->since_ticks || seconds <= 0)
		return 0;
	return percent > 100 ? 100 : (unsigned)(percent + 0.5);
}

/*
 * Spins, or computes: uses a processor, or would if it had one for itself. On a machine with more
 * work than processors the time alone says little.
 */
static bool is_busy(const struct still_one *one, uint64_t now_ns)
{
	return cpu_percent(one, now_ns) >= BUSY_PERCENT || one->running * 2 > one->looks;
}

static bool same_place(const struct still_one *a, const struct still_one *b)
{
	if (a->has_place != b->has_place)
		return false;
	return !a->has_place || (a->place.name == b->place.name && a->place.file == b->place.file &&
				 a->place.line == b->place.line);
}

/* How many of those that count stand still at the place of `one`, and how many count. */
static unsigned count_together(const struct still *s, const struct still_one *one, uint64_t ns,
			       uint64_t now_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++)
		n += still_is(&s->list[i], ns, now_ns) && same_place(&s->list[i], one);
	return n;
}

static unsigned count_all(const struct still *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++)
		n += s->list[i].counts;
	return n;
}

/* Most ranks are at its place, so it is more likely that they wait than that they are the cause. */
static bool waits(const struct still *s, const struct still_one *one, uint64_t ns, uint64_t now_ns)
{
	unsigned together = count_together(s, one, ns, now_ns), all = count_all(s);

	return all > 1 && together > 1 && together * 2 > all;
}

static void add_place(const struct still_one *one, struct buf *out)
{
	if (!one->has_place) {
		buf_add_str(out, "outside Python");
		return;
	}
	buf_add_str(out, "in ");
	words_printable(one->place.name, out);
	buf_add_str(out, " at ");
	frame_add_short(&one->place, out);
	if (one->has_inner) {
		buf_add_str(out, " > ");
		words_printable(one->inner.name, out);
		buf_add_str(out, " (");
		frame_add_short(&one->inner, out);
		buf_add_char(out, ')');
	}
}

static bool has_ranks(const struct still *s)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->list[i].counts && s->list[i].rank < 0)
			return false;
	return true;
}

static void add_who(const struct still_one *const *members, unsigned n, bool first_word,
		    unsigned max_bytes, struct buf *out)
{
	int64_t *numbers = xcalloc(n, sizeof(*numbers));
	bool ranks = true;

	for (unsigned i = 0; i < n; i++)
		ranks = ranks && members[i]->rank >= 0;
	for (unsigned i = 0; i < n; i++)
		numbers[i] = ranks ? members[i]->rank : members[i]->pid;
	const char *noun = first_word ? ranks ? "Rank" : "Pid" : ranks ? "rank" : "pid";
	words_numbers(noun, numbers, n, max_bytes, out);
	free(numbers);
}

/* The processes at one place: who, how long the last of them, where, and whether they spin. */
static void add_group(const struct still *s, const struct still_one *const *members, unsigned n,
		      uint64_t ns, uint64_t now_ns, struct buf *out)
{
	uint64_t since_ns = 0;
	unsigned busy = 0, percent = 0;

	for (unsigned i = 0; i < n; i++) {
		unsigned cpu = cpu_percent(members[i], now_ns);

		since_ns = members[i]->since_ns > since_ns ? members[i]->since_ns : since_ns;
		busy += is_busy(members[i], now_ns);
		percent = cpu > percent ? cpu : percent;
	}
	add_who(members, n, true, WHO_BYTES, out);
	buf_addf(out, " %s not moved for %.1f s: ", n == 1 ? "has" : "have",
		 (double)(now_ns - since_ns) / 1e9);
	add_place(members[0], out);
	if (busy == n)
		buf_addf(out, "; the same Python line, but busy (CPU %u %%)", percent);
	else if (busy)
		buf_addf(out, "; %u of them busy (CPU up to %u %%)", busy, percent);
	else
		buf_add_str(out, "; asleep");
	if (waits(s, members[0], ns, now_ns) && n < count_all(s))
		buf_add_str(out, ", as most ranks are: waiting, it seems");
	buf_add_char(out, '\n');
}

static json_t *one_json(const struct still *s, const struct still_one *one, uint64_t ns,
			uint64_t now_ns)
{
	unsigned cpu = cpu_percent(one, now_ns);
	json_t *frame = json_null();

	if (one->has_place)
		frame = json_pack("{s:s, s:s, s:i}", "name", one->place.name, "file",
				  one->place.file, "line", (int)one->place.line);
	return json_pack("{s:i, s:o, s:f, s:i, s:b, s:b, s:o}", "pid", one->pid, "rank",
			 one->rank >= 0 ? json_integer(one->rank) : json_null(), "still_s",
			 (double)(now_ns - one->since_ns) / 1e9, "cpu_percent", (int)cpu, "busy",
			 is_busy(one, now_ns), "with_most", waits(s, one, ns, now_ns), "frame",
			 frame ? frame : json_null());
}

/* All that stand still, in groups by place. */
struct groups {
	struct still_group {
		const struct still_one **members;
		unsigned n;
	} * list;
	unsigned n;
};

static void make_groups(const struct still *s, uint64_t ns, uint64_t now_ns, struct groups *g)
{
	g->list = xcalloc(s->n ? s->n : 1, sizeof(*g->list));
	for (unsigned i = 0; i < s->n; i++) {
		const struct still_one *one = &s->list[i];
		unsigned k = 0;

		if (!still_is(one, ns, now_ns))
			continue;
		while (k < g->n && !same_place(g->list[k].members[0], one))
			k++;
		if (k == g->n) {
			g->list[k].members = xcalloc(s->n, sizeof(*g->list[k].members));
			g->n++;
		}
		g->list[k].members[g->list[k].n++] = one;
	}
}

static void groups_release(struct groups *g)
{
	for (unsigned i = 0; i < g->n; i++)
		free(g->list[i].members);
	free(g->list);
}

/* A place that few are at comes first: there is the cause. */
static int by_company(const void *a, const void *b)
{
	const struct still_group *x = a, *y = b;

	if (x->n != y->n)
		return x->n > y->n ? 1 : -1;
	return x->members[0]->pid < y->members[0]->pid ? -1 : 1;
}

/* "8 of 8 ranks have not moved for 30.0 s: 1 in load_batch at data.py:41 (rank 5), 7 in …" */
static void add_answer(const struct still *s, const struct groups *g, unsigned n, uint64_t ns,
		       struct buf *out)
{
	unsigned shown = g->n <= PLACES_MAX + 1 ? g->n : PLACES_MAX, rest = n;

	buf_addf(out, "%u of %u %s %s not moved for %.1f s: ", n, count_all(s),
		 has_ranks(s) ? "ranks" : "processes", n == 1 ? "has" : "have", (double)ns / 1e9);
	for (unsigned i = 0; i < shown; i++) {
		const struct still_group *at = &g->list[i];

		if (g->n == 1)
			buf_add_str(out, n > 1 ? "all " : "");
		else
			buf_addf(out, "%s%u ", i ? ", " : "", at->n);
		add_place(at->members[0], out);
		if (n < count_all(s) || at->n * 2 <= n) {
			buf_add_str(out, " (");
			add_who(at->members, at->n, false, ANSWER_WHO_BYTES, out);
			buf_add_char(out, ')');
		}
		rest -= at->n;
	}
	if (rest)
		buf_addf(out, ", %u in %u other places", rest, g->n - shown);
	buf_add_char(out, '\n');
}

unsigned still_report(const struct still *s, uint64_t ns, uint64_t now_ns, struct buf *out,
		      json_t *json)
{
	unsigned n = still_count(s, ns, now_ns), all = count_all(s);
	struct groups g = {0};

	if (!n)
		return 0;
	make_groups(s, ns, now_ns, &g);
	qsort(g.list, g.n, sizeof(*g.list), by_company);
	if (out && all > 1)
		add_answer(s, &g, n, ns, out);
	for (unsigned i = 0; i < g.n; i++) {
		if (out)
			add_group(s, g.list[i].members, g.list[i].n, ns, now_ns, out);
		for (unsigned k = 0; json && k < g.list[i].n; k++)
			json_array_append_new(json, one_json(s, g.list[i].members[k], ns, now_ns));
	}
	if (out && all > 1 && g.n == 1 && n == all)
		buf_add_str(out,
			    "All of them are at the same place: what they wait for is not among "
			    "the processes looked at.\n");
	groups_release(&g);
	return n;
}
