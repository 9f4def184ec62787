/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which collective of one rank is which of another.
 *
 * A run of them (WINDOW) is laid beside every place of the other rank. There, the differences of their
 * ends are all the same if it is the right place, but for microseconds; at a wrong one they vary as much
 * as steps do. The spread of these differences at the best place has to be far smaller than at any
 * other. The first place is searched everywhere that is possible, the next ones near to it. In a run,
 * those that do not fit (one is missing in between) are left out.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "timeline/collectives_impl.h"

#define WINDOW 32u
#define WINDOW_NEXT 16u /* where the place is known but for what is missing */
#define WINDOW_LEAST 4u /* where it is known about where to look */
#define WINDOW_ALONE 16u /* where it is not */
#define PROBES 16u
#define CLEAR 4 /* times smaller than that of the next best place */
#define USUAL_NS 2000000000
#define NEAR_NS 1000000 /* ranks end a collective together but for this */
#define JITTER_NS 5000
#define BUCKETS 2048u /* of the pairs of two hosts in a group the tightest are kept */
#define TABLE_MAX (1u << 22)
#define NOWHERE SIZE_MAX

/* Where the clock of a minus that of b may be. */
struct band {
	int64_t low, high;
	bool open; /* nothing is known */
};

struct place {
	size_t at;
	int64_t middle, spread; /* of the differences of the ends there */
};

/* --- one run at one place --- */

static void sort_small(int64_t *v, unsigned n)
{
	for (unsigned i = 1; i < n; i++)
		for (unsigned k = i; k && v[k] < v[k - 1]; k--) {
			int64_t x = v[k];

			v[k] = v[k - 1];
			v[k - 1] = x;
		}
}

static int64_t end_difference(const struct item *a, const struct item *b)
{
	return (int64_t)a->end_ns - (int64_t)b->end_ns;
}

/* The whole run takes about as long at both? Most places are dismissed by this. */
static bool is_alike(const struct item *a, const struct item *b, unsigned n)
{
	int64_t first = end_difference(&a[0], &b[0]), last = end_difference(&a[n - 1], &b[n - 1]);
	int64_t took = (int64_t)(b[n - 1].end_ns - b[0].end_ns);

	return llabs(last - first) <= NEAR_NS + llabs(took) / 20;
}

static bool try_place(const struct item *a, const struct item *b, unsigned n, struct place *out)
{
	int64_t d[WINDOW];
	unsigned same = 0;

	if (!n || !is_alike(a, b, n))
		return false;
	for (unsigned i = 0; i < n; i++)
		same += a[i].what == b[i].what;
	if (same * 10 < n * 9)
		return false;
	for (unsigned i = 0; i < n; i++)
		d[i] = end_difference(&a[i], &b[i]);
	sort_small(d, n);
	out->middle = d[n / 2];
	for (unsigned i = 0; i < n; i++)
		d[i] = llabs(d[i] - out->middle);
	sort_small(d, n);
	out->spread = d[n / 2];
	return true;
}

/* --- a run at all places --- */

/* The first that begins at this time or later. */
static size_t find_time(const struct series *s, int64_t ns)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if ((int64_t)s->list[middle].start_ns < ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int64_t longest(const struct series *s)
{
	uint64_t most = 0;

	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].end_ns - s->list[i].start_ns > most)
			most = s->list[i].end_ns - s->list[i].start_ns;
	return (int64_t)most;
}

/* What a place by chance would have, where there is no other to compare with: the times between
 * collectives vary by so much. INT64_MAX: what is known leaves room for one place alone. */
static int64_t spread_by_chance(const struct item *b, unsigned n, const struct band *band)
{
	int64_t d[WINDOW] = {0}, middle;

	for (unsigned i = 0; i + 1 < n; i++)
		d[i] = end_difference(&b[i + 1], &b[i]);
	sort_small(d, n - 1);
	if (!band->open && d[0] / 2 > band->high - band->low)
		return INT64_MAX;
	middle = d[(n - 1) / 2];
	for (unsigned i = 0; i + 1 < n; i++)
		d[i] = llabs(d[i] - middle);
	sort_small(d, n - 1);
	return d[(n - 1) / 2];
}

/* Where a run of b fits in a. *out_clear: how many times better than anywhere else; 0: nowhere. */
static struct place find_place(const struct series *a, int64_t a_longest, const struct item *b,
			       unsigned n, const struct band *band, int64_t *out_clear)
{
	struct place best = {.at = NOWHERE}, next = {.at = NOWHERE}, p;
	size_t i = 0, end = a->n;

	*out_clear = 0;
	if (!band->open) {
		i = find_time(a, (int64_t)b->end_ns + band->low - a_longest);
		end = find_time(a, (int64_t)b->end_ns + band->high + 1);
	}
	for (; n > 1 && i < end && i + n <= a->n; i++) {
		p.at = i;
		if (!try_place(&a->list[i], b, n, &p) ||
		    (!band->open && (p.middle < band->low || p.middle > band->high)))
			continue;
		if (best.at == NOWHERE || p.spread < best.spread) {
			next = best;
			best = p;
		} else if (next.at == NOWHERE || p.spread < next.spread) {
			next = p;
		}
	}
	if (best.at != NOWHERE)
		*out_clear = (next.at == NOWHERE ? spread_by_chance(b, n, band) : next.spread) /
			     (best.spread + 1);
	return best;
}

/* --- two ranks --- */

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

/* Steps that both have counted say about where to look. */
static bool band_of_steps(const struct rank *a, const struct rank *b, struct band *out)
{
	int64_t *apart = xcalloc(a->nsteps + 1, sizeof(*apart)), longest_ns = 0;
	struct hmap of_b = {0};
	size_t n = 0;

	for (size_t i = 0; i < b->nsteps; i++)
		hmap_put(&of_b, b->steps[i].number, i);
	for (size_t i = 0; i < a->nsteps; i++) {
		uint64_t at = hmap_get(&of_b, a->steps[i].number);
		int64_t took = (int64_t)(a->steps[i].end_ns - a->steps[i].start_ns);

		if (at == HMAP_NONE)
			continue;
		apart[n++] = (int64_t)a->steps[i].start_ns - (int64_t)b->steps[at].start_ns;
		longest_ns = took > longest_ns ? took : longest_ns;
	}
	qsort(apart, n, sizeof(*apart), by_value);
	if (n)
		*out = (struct band){apart[n / 2] - longest_ns / 10 * 9,
				     apart[n / 2] + longest_ns / 10 * 9, false};
	free(apart);
	hmap_release(&of_b);
	return n > 0;
}

static struct band band_around(int64_t middle, int64_t by)
{
	return (struct band){middle - by, middle + by, false};
}

/* How far two clocks may drift apart between two times. */
static int64_t drift_between(uint64_t a_ns, uint64_t b_ns)
{
	return llabs((int64_t)a_ns - (int64_t)b_ns) / 4000;
}

/* Of some runs the one that fits best: none is missing inside of it. Most others have to agree. */
static bool find_first(const struct series *a, int64_t a_longest, const struct series *b,
		       const struct band *band, struct place *out, uint64_t *out_ns)
{
	const unsigned least = band->open ? WINDOW_ALONE : WINDOW_LEAST;
	const size_t half = b->n / 2; /* either may have some that the other has not */
	const unsigned n = half > WINDOW ? WINDOW : half < least ? least : (unsigned)half;
	const struct band usual = {-USUAL_NS, USUAL_NS, false};
	struct place found[PROBES];
	uint64_t at[PROBES];
	int64_t clear;
	unsigned probes = 0, best = 0, agree = 0;

	if (b->n < n)
		return false;
	/* most clocks agree about as well as this: everywhere is a long way */
	if (band->open && n == WINDOW && find_first(a, a_longest, b, &usual, out, out_ns))
		return true;
	for (unsigned i = 0; i < PROBES; i++) {
		const struct item *run = &b->list[(b->n - n) * i / PROBES];
		struct place p = find_place(a, a_longest, run, n, band, &clear);

		if (clear < CLEAR || p.spread > NEAR_NS / 10)
			continue;
		found[probes] = p;
		at[probes] = run->start_ns;
		best = p.spread < found[best].spread ? probes : best;
		probes++;
	}
	for (unsigned i = 0; i < probes; i++)
		agree += llabs(found[i].middle - found[best].middle) <=
			 NEAR_NS + drift_between(at[i], at[best]);
	if (!probes || agree * 2 <= probes)
		return false;
	*out = found[best];
	*out_ns = at[best];
	return true;
}

/* places[i] becomes the place in a of item i of b, NOWHERE where it has none. */
static size_t follow_runs(const struct series *a, int64_t a_longest, const struct series *b,
			  struct place near, uint64_t near_ns, size_t *places)
{
	const int64_t usual = 6 * near.spread + JITTER_NS;
	size_t matched = 0;
	int64_t clear;

	for (size_t from = 0; from < b->n; from += WINDOW_NEXT) {
		unsigned n = b->n - from < WINDOW_NEXT ? (unsigned)(b->n - from) : WINDOW_NEXT;
		const struct item *run = &b->list[from];
		struct band band =
			band_around(near.middle, usual + drift_between(run->start_ns, near_ns));
		struct place p = find_place(a, a_longest, run, n, &band, &clear);

		for (unsigned i = 0; i < n; i++)
			places[from + i] = NOWHERE;
		if (clear < CLEAR || n < WINDOW_LEAST || p.spread > usual)
			continue; /* it is cut in the middle, or another one */
		for (unsigned i = 0; i < n; i++) {
			const struct item *x = &a->list[p.at + i];

			if (x->what != run[i].what ||
			    llabs(end_difference(x, &run[i]) - p.middle) > usual)
				continue;
			places[from + i] = p.at + i;
			matched++;
		}
		near = p;
		near_ns = run->start_ns;
	}
	return matched;
}

/* --- a group --- */

/* What the ranks of a host say of one collective. */
struct meeting {
	uint64_t last_start_ns, first_end_ns; /* 0: nothing */
};

struct group_table {
	const struct series *base; /* whose collectives the rows are */
	struct meeting *meetings; /* a row for each host */
	unsigned *hosts;
	size_t nhosts, rows;
};

static struct meeting *row_of(struct group_table *t, unsigned host)
{
	for (size_t i = 0; i < t->nhosts; i++)
		if (t->hosts[i] == host)
			return &t->meetings[i * t->rows];
	t->hosts = xrealloc(t->hosts, (t->nhosts + 1) * sizeof(*t->hosts));
	t->meetings = xrealloc(t->meetings, (t->nhosts + 1) * t->rows * sizeof(*t->meetings));
	memset(&t->meetings[t->nhosts * t->rows], 0, t->rows * sizeof(*t->meetings));
	t->hosts[t->nhosts] = host;
	return &t->meetings[t->nhosts++ * t->rows];
}

static void add_meeting(struct meeting *m, const struct item *x)
{
	if (x->start_ns > m->last_start_ns)
		m->last_start_ns = x->start_ns;
	if (!m->first_end_ns || x->end_ns < m->first_end_ns)
		m->first_end_ns = x->end_ns;
}

static struct collective_pair start_pair(unsigned a, unsigned b)
{
	return (struct collective_pair){
		.a = a, .b = b, .low_ns = CLOCK_OPEN_LOW, .high_ns = CLOCK_OPEN_HIGH};
}

/* Of each part of the time the tightest limit on either side. */
static void put_pairs(const struct group_table *t, size_t host, struct collective_pairs *out)
{
	const struct meeting *a = t->meetings, *b = &t->meetings[host * t->rows];
	size_t step = t->rows / BUCKETS + 1;

	for (size_t from = 0; from < t->rows; from += step) {
		struct collective_pair low = start_pair(t->hosts[0], t->hosts[host]), high = low;

		for (size_t i = from; i < from + step && i < t->rows; i++) {
			int64_t least = (int64_t)a[i].last_start_ns - (int64_t)b[i].first_end_ns;
			int64_t most = (int64_t)a[i].first_end_ns - (int64_t)b[i].last_start_ns;

			if (!a[i].first_end_ns || !b[i].first_end_ns)
				continue;
			if (least > low.low_ns) {
				low.low_ns = least;
				low.at_a_ns = (int64_t)a[i].last_start_ns;
				low.at_b_ns = (int64_t)b[i].first_end_ns;
			}
			if (most < high.high_ns) {
				high.high_ns = most;
				high.at_a_ns = (int64_t)a[i].first_end_ns;
				high.at_b_ns = (int64_t)b[i].last_start_ns;
			}
		}
		if (low.low_ns == CLOCK_OPEN_LOW)
			continue;
		*XPUSH(out->list, out->n, out->cap) = low;
		*XPUSH(out->list, out->n, out->cap) = high;
	}
}

struct matching {
	struct collectives *c;
	collectives_known_fn known;
	void *arg;
	struct hmap found; /* pair of hosts to the middle of their difference + 2^62 */
	struct collective_pairs *out;
};

/* No two times of collectives are farther apart; beyond, sums would not fit. */
static int64_t limit_time(int64_t ns)
{
	const int64_t most = (int64_t)TIME_MAX;

	return ns > most ? most : ns < -most ? -most : ns;
}

static struct band find_band(struct matching *m, const struct rank *a, const struct rank *b)
{
	struct band band = {.open = true};
	uint64_t found = hmap_get(&m->found, (uint64_t)a->host << 32 | b->host);

	if (a->host == b->host)
		return band_around(0, NEAR_NS);
	if (m->known && m->known(m->arg, a->host, b->host, &band.low, &band.high))
		return (struct band){band.low - NEAR_NS, band.high + NEAR_NS, false};
	if (found != HMAP_NONE) /* drift is small against what else there is */
		return band_around((int64_t)(found - (1ull << 62)), 20 * NEAR_NS);
	(void)band_of_steps(a, b, &band);
	return band;
}

static struct band choose_band(struct matching *m, const struct rank *a, const struct rank *b)
{
	struct band band = find_band(m, a, b);

	band.low = limit_time(band.low);
	band.high = limit_time(band.high);
	return band;
}

static void match_rank(struct matching *m, struct group_table *t, const struct series *b)
{
	const struct series *a = t->base;
	const struct rank *ra = &m->c->ranks[a->rank], *rb = &m->c->ranks[b->rank];
	struct band band = choose_band(m, ra, rb);
	size_t *places = xcalloc(b->n + 1, sizeof(*places));
	int64_t a_longest = longest(a);
	struct place first;
	uint64_t first_ns;

	if (find_first(a, a_longest, b, &band, &first, &first_ns) &&
	    follow_runs(a, a_longest, b, first, first_ns, places)) {
		struct meeting *row = row_of(t, rb->host);

		for (size_t i = 0; i < b->n; i++)
			if (places[i] < t->rows)
				add_meeting(&row[places[i]], &b->list[i]);
		hmap_put(&m->found, (uint64_t)ra->host << 32 | rb->host,
			 (uint64_t)first.middle + (1ull << 62));
	} else if (ra->host != rb->host) {
		m->out->unclear++;
	}
	free(places);
}

static void match_group(struct matching *m, struct series *const *list, size_t n, size_t base)
{
	struct group_table t = {.base = list[base], .rows = list[base]->n};
	unsigned host = m->c->ranks[t.base->rank].host;
	struct meeting *row;

	if (t.rows > TABLE_MAX / n)
		t.rows = TABLE_MAX / n;
	row = row_of(&t, host);
	for (size_t i = 0; i < t.rows; i++)
		add_meeting(&row[i], &t.base->list[i]);
	for (size_t i = 0; i < n; i++)
		if (i != base)
			match_rank(m, &t, list[i]);
	for (size_t i = 1; i < t.nhosts; i++)
		put_pairs(&t, i, m->out);
	free(t.meetings);
	free(t.hosts);
}

/* --- all of them --- */

static int by_group(const void *pa, const void *pb)
{
	const struct series *a = *(struct series *const *)pa, *b = *(struct series *const *)pb;
	int r = strcmp(a->group, b->group);

	return r ? r : a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int by_start(const void *pa, const void *pb)
{
	const struct item *a = pa, *b = pb;

	return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

/* The rank of the first host that has the most. */
static size_t choose_base(const struct collectives *c, struct series *const *list, size_t n,
			  bool *out_several)
{
	size_t base = 0;

	*out_several = false;
	for (size_t i = 1; i < n; i++) {
		unsigned host = c->ranks[list[i]->rank].host;
		unsigned first = c->ranks[list[base]->rank].host;

		*out_several |= host != first;
		if (host < first || (host == first && list[i]->n > list[base]->n))
			base = i;
	}
	return base;
}

void collectives_match(struct collectives *c, collectives_known_fn known, void *arg,
		       struct collective_pairs *out)
{
	struct matching m = {.c = c, .known = known, .arg = arg, .out = out};
	struct series **all = xcalloc(c->nseries + 1, sizeof(struct series *));
	bool several;

	for (size_t i = 0; i < c->nseries; i++) {
		all[i] = &c->series[i];
		if (all[i]->n)
			qsort(all[i]->list, all[i]->n, sizeof(struct item), by_start);
	}
	qsort(all, c->nseries, sizeof(struct series *), by_group);
	for (size_t i = 0, end; i < c->nseries; i = end) {
		for (end = i + 1; end < c->nseries && all[end]->group == all[i]->group;)
			end++;
		size_t base = choose_base(c, all + i, end - i, &several);

		if (several && all[i + base]->n)
			match_group(&m, all + i, end - i, base);
	}
	hmap_release(&m.found);
	free(all);
}
