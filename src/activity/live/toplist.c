/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What is kept of a process' reports. The usual time of a name is the lowest median of its mean
 * times in five intervals: what becomes faster lowers it, what becomes slower does not raise it,
 * and neither the first launches of a job nor one lucky interval decide. A name is slower when its
 * mean is above that by some percent, and by more than it is wont to vary, three times in a row.
 */
#include "activity/live/toplist.h"

#include "base/compare.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "wire/request.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define WINDOW 5 /* means of which the median is taken */
#define ENOUGH 3 /* of them to begin with; and intervals that make a regression, or end one */
#define MIN_CALLS 5 /* of an interval that counts */
#define MIN_PERMILLE 10 /* of the time */
#define NOISE 4 /* times the usual deviation is no noise any more */
#define UNSEEN                                                                                     \
	20 /* intervals without a name: what was reported of it is over, or it is forgotten */
#define MAX_SLOW 64
#define WAITS_ON 15 /* intervals after which longer waiting is the usual one */

struct known {
	uint64_t key;
	struct toplist_regression now; /* kind and name: of one that is slow, else NULL; owned */
	uint64_t recent[WINDOW];
	uint64_t seen; /* number of the last interval that counted */
	uint8_t n, next; /* of recent */
	uint8_t above, below; /* intervals in a row */
	uint8_t waits_on; /* and such in which one that is slow still was, if it waits */
	bool slow;
};

struct toplist {
	struct toplist_report *last, *before;
	struct hmap last_rows, before_rows; /* hash of a row to its index */
	struct hmap index; /* the same to its place in known */
	struct known *known;
	size_t nknown, cap, nslow, nwaits; /* of the slow ones, those that wait */
	uint64_t intervals;
};

static uint64_t key_of(const struct toplist_row *row)
{
	uint64_t h = XXH3_64bits_withSeed(row->kind, strlen(row->kind), (uint32_t)row->device);

	return XXH3_64bits_withSeed(row->name, strlen(row->name), h);
}

/* --- usual times --- */

COMPARE_VALUES(by_size, uint64_t)

static uint64_t median(const uint64_t *v, size_t n)
{
	uint64_t sorted[WINDOW];

	memcpy(sorted, v, n * sizeof(*v));
	qsort(sorted, n, sizeof(*sorted), by_size);
	return sorted[n / 2];
}

/* How far the mean is wont to be from its median. */
static uint64_t deviation(const struct known *k)
{
	uint64_t middle = median(k->recent, k->n), away[WINDOW];

	for (unsigned i = 0; i < k->n; i++)
		away[i] = k->recent[i] > middle ? k->recent[i] - middle : middle - k->recent[i];
	return median(away, k->n);
}

static void remember_mean(struct known *k, uint64_t mean)
{
	k->recent[k->next] = mean;
	k->next = (uint8_t)((k->next + 1) % WINDOW);
	bool learning = k->n < WINDOW;
	if (learning)
		k->n++;
	if (k->n < ENOUGH)
		return;
	uint64_t middle = median(k->recent, k->n);
	if (learning || middle < k->now.baseline_ns)
		k->now.baseline_ns = middle;
}

static double limit_of(const struct known *k, unsigned percent)
{
	double base = (double)k->now.baseline_ns;
	double usual = base * (1 + percent / 100.0);
	double noise = base + NOISE * (double)deviation(k);

	return usual > noise ? usual : noise;
}

/* --- what has become slower --- */

/* Where communication is not asked for by itself, it is among the kernels. */
bool toplist_waits(const char *kind, const char *name)
{
	return !strcmp(kind, "Communication") || !strcmp(kind, "Hccl") ||
	       !strncmp(name, "nccl", 4) || !strncmp(name, "hcom_", 5);
}

/* What it costs in an interval; 0: it is as usual again. */
static double cost_of(const struct toplist_regression *r)
{
	return r->mean_ns > r->baseline_ns
		       ? (double)(r->mean_ns - r->baseline_ns) * (double)r->calls
		       : 0;
}

int toplist_by_cause(const struct toplist_regression *a, const struct toplist_regression *b)
{
	double x = cost_of(a), y = cost_of(b); /* what is not slow any more comes last: 0 */

	return x > y ? -1 : x < y;
}

static void end_slow(struct toplist *t, struct known *k, toplist_regression_fn fn, void *arg)
{
	if (!k->slow)
		return;
	if (fn)
		fn(arg, &k->now, true);
	free((char *)(uintptr_t)k->now.kind);
	free((char *)(uintptr_t)k->now.name);
	k->now.kind = k->now.name = NULL;
	k->slow = false;
	k->above = k->below = k->waits_on = 0;
	t->nslow--;
	t->nwaits -= k->now.waits;
}

static void begin_slow(struct toplist *t, struct known *k, const struct toplist_row *row,
		       toplist_regression_fn fn, void *arg)
{
	if (t->nslow >= MAX_SLOW)
		return;
	k->slow = true;
	k->below = 0;
	k->now.kind = xstrdup(row->kind);
	k->now.name = xstrdup(row->name);
	k->now.device = row->device;
	k->now.waits = toplist_waits(row->kind, row->name);
	t->nslow++;
	t->nwaits += k->now.waits;
	if (fn)
		fn(arg, &k->now, false);
}

/* How long one waits is no property of what waits: another balance of the ranks is as good. */
static void accept_as_usual(struct toplist *t, struct known *k, toplist_regression_fn fn, void *arg)
{
	end_slow(t, k, fn, arg);
	k->n = k->next = 0;
	remember_mean(k, k->now.mean_ns);
}

static void judge_name(struct toplist *t, struct known *k, const struct toplist_row *row,
		       unsigned percent, toplist_regression_fn fn, void *arg)
{
	bool learnt = k->n >= ENOUGH && percent;
	double mean = (double)k->now.mean_ns, limit = learnt ? limit_of(k, percent) : 0;

	if (!learnt || mean <= limit) {
		k->above = 0;
		/* half way back is not back */
		bool back = !learnt || mean <= ((double)k->now.baseline_ns + limit) / 2;
		k->below = (uint8_t)(back && k->slow ? k->below + 1 : 0);
		if (k->slow && k->below >= ENOUGH)
			end_slow(t, k, fn, arg);
		if (!k->slow)
			remember_mean(k, k->now.mean_ns);
		return;
	}
	k->below = 0;
	if (k->slow) {
		if (k->now.waits && ++k->waits_on >= WAITS_ON)
			accept_as_usual(t, k, fn, arg);
		return;
	}
	if (!k->above++)
		k->now.since_ns = t->last->to_ns;
	if (k->above >= ENOUGH)
		begin_slow(t, k, row, fn, arg);
}

/* --- names --- */

/* The place of one that was not seen for longest; NULL: all are in use. */
static struct known *find_oldest(struct toplist *t)
{
	struct known *found = NULL;

	for (size_t i = 0; i < t->nknown; i++) {
		struct known *k = &t->known[i];

		if (!k->slow && t->intervals - k->seen > UNSEEN &&
		    (!found || k->seen < found->seen))
			found = k;
	}
	return found;
}

static struct known *find_known(struct toplist *t, uint64_t key)
{
	uint64_t at = hmap_get(&t->index, key);
	struct known *k;

	if (at != HMAP_NONE)
		return &t->known[at];
	if (t->nknown < TOPLIST_MAX_KNOWN) {
		k = XPUSH(t->known, t->nknown, t->cap);
	} else {
		k = find_oldest(t);
		if (!k)
			return NULL;
		hmap_remove(&t->index, k->key);
	}
	*k = (struct known){.key = key};
	hmap_put(&t->index, key, (uint64_t)(k - t->known));
	return k;
}

static void index_rows(const struct toplist_report *r, struct hmap *out)
{
	hmap_release(out);
	*out = (struct hmap){0};
	for (size_t i = 0; i < r->nrows; i++)
		hmap_put(out, key_of(&r->rows[i]), i);
}

/* --- reports --- */

struct toplist *toplist_new(void)
{
	return xcalloc(1, sizeof(struct toplist));
}

void toplist_free(struct toplist *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->nknown; i++)
		end_slow(t, &t->known[i], NULL, NULL);
	toplist_report_free(t->last);
	toplist_report_free(t->before);
	hmap_release(&t->last_rows);
	hmap_release(&t->before_rows);
	hmap_release(&t->index);
	free(t->known);
	free(t);
}

size_t toplist_bytes(const struct toplist *t)
{
	size_t rows = 0, bytes = sizeof(*t) + t->cap * sizeof(*t->known);

	bytes += (t->last_rows.cap + t->before_rows.cap + t->index.cap) * 16;
	rows += t->last ? t->last->bytes : 0;
	rows += t->before ? t->before->bytes : 0;
	return bytes + rows + t->nslow * 2 * TOPLIST_MAX_NAME;
}

/* What is not collected any more is not slow any more, as far as anybody knows. */
static bool is_collected(const struct toplist_report *r, const struct known *k)
{
	struct request_text name = {k->now.kind, k->now.kind ? strlen(k->now.kind) : 0};
	uint32_t kind = name.at ? activity_kind_find(&name) : 0;

	return !kind || toplist_collects(r, ACTIVITY_BIT(kind));
}

void toplist_take(struct toplist *t, struct toplist_report *r, unsigned percent,
		  toplist_regression_fn fn, void *arg)
{
	struct hmap rows = t->before_rows;
	uint64_t total = toplist_report_total(r);

	if (r->partial) {
		if (t->last)
			memcpy(t->last->losses, r->losses, sizeof(r->losses));
		toplist_report_free(r);
		return;
	}
	toplist_report_free(t->before);
	t->before = t->last;
	t->before_rows = t->last_rows;
	t->last = r;
	t->last_rows = rows;
	index_rows(r, &t->last_rows);
	t->intervals++;
	for (size_t i = 0; i < r->nrows; i++) {
		const struct toplist_row *row = &r->rows[i];
		bool counts = row->calls >= MIN_CALLS && toplist_on_device(row) &&
			      row->total_ns / MIN_PERMILLE >= total / 1000;
		struct known *k = counts ? find_known(t, key_of(row)) : NULL;

		if (!k || k->seen == t->intervals) /* a row that comes twice counts once */
			continue;
		k->seen = t->intervals;
		k->now.mean_ns = row->total_ns / row->calls;
		k->now.calls = row->calls;
		judge_name(t, k, row, percent, fn, arg);
	}
	for (size_t i = 0; t->nslow && i < t->nknown; i++)
		if (!percent || t->intervals - t->known[i].seen > UNSEEN ||
		    !is_collected(r, &t->known[i]))
			end_slow(t, &t->known[i], fn, arg);
}

const struct toplist_report *toplist_last(const struct toplist *t)
{
	return t->last;
}

const struct toplist_row *toplist_before(const struct toplist *t, const struct toplist_row *row)
{
	uint64_t at = t->before ? hmap_get(&t->before_rows, key_of(row)) : HMAP_NONE;

	return at == HMAP_NONE ? NULL : &t->before->rows[at];
}

uint64_t toplist_usual(const struct toplist *t, const struct toplist_row *row)
{
	uint64_t at = hmap_get(&t->index, key_of(row));

	return at == HMAP_NONE ? 0 : t->known[at].now.baseline_ns;
}

size_t toplist_regressions(const struct toplist *t)
{
	return t->nslow - t->nwaits;
}

size_t toplist_longer_waits(const struct toplist *t)
{
	return t->nwaits;
}

bool toplist_next_slower(const struct toplist *t, size_t *at, struct toplist_regression *out)
{
	while (t->nslow && *at < t->nknown) {
		const struct known *k = &t->known[(*at)++];

		if (k->slow) {
			*out = k->now;
			return true;
		}
	}
	return false;
}

/* The rank that the others wait for; see top_report.h. */

#define WORTH 0.02 /* of the time: less is noise */
#define SIMPLER 1.5 /* times as much must others wait for a rank whose own steps are long */
#define SPREADS 2 /* times the usual deviation of the others: less is noise, too */

COMPARE_VALUES(by_value, double)

/* Of all but one. */
static double median_without(const double *v, size_t n, size_t left_out, double *scratch)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (i != left_out)
			scratch[kept++] = v[i];
	qsort(scratch, kept, sizeof(*scratch), by_value);
	/* the lower of the two in the middle: no rank is named for what one other does */
	return scratch[(kept - 1) / 2];
}

/* How far the others are from each other: what is no more than usual names nobody. */
static double spread_without(const double *v, size_t n, size_t left_out, double middle,
			     double *scratch)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (i != left_out)
			scratch[kept++] = v[i] > middle ? v[i] - middle : middle - v[i];
	qsort(scratch, kept, sizeof(*scratch), by_value);
	return scratch[kept / 2];
}

static struct toplist_slowest by_steps(const struct toplist_rank *ranks, size_t n, double *v,
				       double *scratch)
{
	struct toplist_slowest none = {0}, found = {.by = TOPLIST_SLOW_STEPS};

	for (size_t i = 0; i < n; i++) {
		v[i] = (double)ranks[i].step_mean_ns;
		if (!ranks[i].step_mean_ns)
			return none;
		if (v[i] > v[found.at])
			found.at = i;
	}
	double usual = median_without(v, n, found.at, scratch);
	found.ratio = (v[found.at] - usual) / usual;
	found.behind_ns = (uint64_t)(v[found.at] - usual);
	double spread = spread_without(v, n, found.at, usual, scratch) / usual;
	return found.ratio >= WORTH && found.ratio >= SPREADS * spread ? found : none;
}

/* How long a step takes, of those that say so; 0: nobody does. */
static double step_of(const struct toplist_rank *ranks, size_t n)
{
	double sum = 0;
	size_t known = 0;

	for (size_t i = 0; i < n; i++)
		if (ranks[i].step_mean_ns) {
			sum += (double)ranks[i].step_mean_ns;
			known++;
		}
	return known ? sum / (double)known : 0;
}

static struct toplist_slowest by_waiting(const struct toplist_rank *ranks, size_t n, double *v,
					 double *scratch)
{
	struct toplist_slowest none = {0}, found = {.by = TOPLIST_SLOW_WAITING};
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		if (!ranks[i].interval_ns)
			return none;
		v[i] = (double)ranks[i].comm_ns / (double)ranks[i].interval_ns;
		any = any || ranks[i].comm_ns;
		if (v[i] < v[found.at])
			found.at = i;
	}
	if (!any)
		return none; /* they do not communicate, or it is not collected */
	double waits = median_without(v, n, found.at, scratch);
	found.ratio = waits - v[found.at];
	found.behind_ns = (uint64_t)(found.ratio * step_of(ranks, n));
	double spread = spread_without(v, n, found.at, waits, scratch);
	return found.ratio >= WORTH && found.ratio >= SPREADS * spread ? found : none;
}

/* Both are shares of the time: what explains more of it is the reason. Long steps of a rank that
 * does not wait are the simpler one. */
static struct toplist_slowest larger_cause(struct toplist_slowest longer,
					   struct toplist_slowest waited)
{
	if (longer.by == TOPLIST_SLOW_NONE || waited.by == TOPLIST_SLOW_NONE)
		return longer.by == TOPLIST_SLOW_NONE ? waited : longer;
	double needed = longer.ratio * (longer.at == waited.at ? SIMPLER : 1);
	return waited.ratio > needed ? waited : longer;
}

struct toplist_slowest toplist_slowest(const struct toplist_rank *ranks, size_t n)
{
	struct toplist_slowest none = {0};

	if (n < 2)
		return none;
	double *v = xcalloc(2 * n, sizeof(*v));
	struct toplist_slowest found =
		larger_cause(by_steps(ranks, n, v, v + n), by_waiting(ranks, n, v, v + n));
	free(v);
	return found;
}
