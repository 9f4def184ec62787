/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/live/top_report.h"

#include "activity/live/busy.h"
#include "activity/live/histogram.h"
#include "activity/live/toplist.h"
#include "activity/owners/owners.h"
#include "activity/windows/names.h"
#include "base/compare.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "formats/json_value.h"
#include "wire/fabric.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull
#define MAX_NAME_BYTES REC_MAX_NAME /* a name that is cut may be another one's, too */
#define TAIL_BYTES 512 /* room for what comes behind the rows */
/* A source that has reported nothing for so long has nothing to report: nothing happens. */
#define SILENT_NS (3 * NS_PER_S)
#define MAX_WAITING 65536u /* calls of which the interval is not known yet */

enum busy_class { BUSY_ALL, BUSY_KERNEL, BUSY_COMM, BUSY_COPY, BUSY_CLASSES };
static const char *const class_names[BUSY_CLASSES] = {"busy", "kernel", "comm", "copy"};

struct top_device {
	int64_t number; /* -1: the host */
	struct busy busy[BUSY_CLASSES];
	uint64_t late_ns; /* of activities, before the interval in which they were reported */
	struct hmap rows; /* address of the name, and kind -> index */
};

struct top_row {
	const char *name;
	uint64_t calls, total_ns, min_ns, max_ns;
	uint64_t inside_ns; /* of all calls, what was in the interval, as of the devices */
	struct histogram durations;
	int64_t device;
	uint8_t kind;
};

/* One that may have ended behind the interval: the next report counts it then. */
struct top_call {
	const char *name;
	uint64_t start_ns, end_ns;
	int64_t device;
	const struct activity_owner *owner;
	uint8_t kind;
};

struct top {
	const struct window *w;
	uint64_t from_ns; /* wall clock, as all here */
	uint64_t newest_ns; /* when the last of what was reported ended */
	uint64_t seen_ns, seen_at_ns; /* the same at the last poll, and since when (monotonic) */
	bool any; /* something came in this interval */
	uint64_t unsent; /* reports that did not reach the daemon */
	struct top_device devices[TOP_MAX_DEVICES];
	unsigned ndevices;
	struct top_row *rows;
	size_t nrows, cap;
	struct top_call *waiting; /* at most MAX_WAITING */
	size_t nwaiting, waiting_cap;
	struct owner_times owners;
	uint64_t others, others_ns; /* that were not distinguished */
	uint64_t step_ns, steps,
		steps_ns; /* when the last began; those that ended, and their time */
	bool stepped; /* steps were reported */
	struct buf json, scratch;
	char host[256];
};

struct top *top_new(const struct window *w)
{
	struct top *t = xcalloc(1, sizeof(*t));

	t->w = w;
	t->from_ns = w->start_ns;
	gethostname(t->host, sizeof(t->host) - 1);
	return t;
}

static uint64_t interval_s(const struct top *t)
{
	uint32_t wanted = t->w->monitor.interval_s;

	return wanted && wanted < TOP_INTERVAL_S ? wanted : TOP_INTERVAL_S;
}

/* JSON has no larger numbers. */
static uint64_t add_saturated(uint64_t a, uint64_t b)
{
	return a > INT64_MAX - b ? INT64_MAX : a + b;
}

/* --- receiving --- */

static struct top_device *device_of(struct top *t, int64_t number)
{
	for (unsigned i = 0; i < t->ndevices; i++)
		if (t->devices[i].number == number)
			return &t->devices[i];
	if (t->ndevices == TOP_MAX_DEVICES)
		return NULL;
	struct top_device *d = &t->devices[t->ndevices++];
	d->number = number;
	for (unsigned k = 0; k < BUSY_CLASSES; k++)
		busy_begin(&d->busy[k], t->from_ns);
	return d;
}

static void add_busy(const struct top *t, struct top_device *d, const struct activity *a)
{
	static const uint8_t class[ACTIVITY_KIND_END] = {
		[ACTIVITY_KERNEL] = BUSY_KERNEL,      [ACTIVITY_HCCL] = BUSY_COMM,
		[ACTIVITY_COMMUNICATION] = BUSY_COMM, [ACTIVITY_MEMSET] = BUSY_COPY,
		[ACTIVITY_MEMCPY] = BUSY_COPY,
	};

	if (!class[a->kind] || d->number < 0)
		return;
	busy_add(&d->busy[BUSY_ALL], a->start_ns, a->end_ns);
	busy_add(&d->busy[class[a->kind]], a->start_ns, a->end_ns);
	if (a->start_ns < t->from_ns) {
		uint64_t until = a->end_ns < t->from_ns ? a->end_ns : t->from_ns;
		d->late_ns = add_saturated(d->late_ns, until - a->start_ns);
	}
}

/* Some kinds have no names. */
static const char *name_of(const struct activity *a)
{
	static const char *const copies[] = {"unknown", "HtoH", "HtoD", "DtoH", "DtoD", "default"};

	if (a->name[0])
		return a->name;
	if (a->kind == ACTIVITY_MEMCPY)
		return copies[a->flag < sizeof(copies) / sizeof(copies[0]) ? a->flag : 0];
	if (a->kind == ACTIVITY_MEMORY)
		return a->flag ? "release" : "allocate";
	return a->name;
}

static uint64_t row_key(const struct top_call *c)
{
	return (uint64_t)(uintptr_t)c->name << 4 | c->kind;
}

static struct top_row *row_of(struct top *t, struct top_device *d, const struct top_call *c)
{
	uint64_t key = row_key(c);
	uint64_t at = hmap_get(&d->rows, key);

	if (at != HMAP_NONE)
		return &t->rows[at];
	if (t->nrows == TOP_MAX_ROWS)
		return NULL;
	t->rows = xgrow(t->rows, &t->cap, t->nrows + 1, sizeof(*t->rows));
	hmap_put(&d->rows, key, t->nrows);
	struct top_row *r = &t->rows[t->nrows++];
	*r = (struct top_row){
		.name = c->name, .kind = c->kind, .device = d->number, .min_ns = UINT64_MAX};
	return r;
}

/* How long it ran in the interval until then. */
static uint64_t time_inside(const struct top *t, const struct top_call *c, uint64_t until_ns)
{
	uint64_t from = c->start_ns > t->from_ns ? c->start_ns : t->from_ns;
	uint64_t to = c->end_ns < until_ns ? c->end_ns : until_ns;

	return to > from ? to - from : 0;
}

static void count_call(struct top *t, const struct top_call *c)
{
	uint64_t ns = c->end_ns - c->start_ns;
	struct top_device *d = device_of(t, c->device);
	struct top_row *r = d ? row_of(t, d, c) : NULL;

	if (t->w->monitor.attribute && c->device >= 0 && owner_is_work(c->kind))
		owner_times_count(&t->owners, c->owner, ns);
	if (!r) {
		t->others++;
		t->others_ns = add_saturated(t->others_ns, ns);
		return;
	}
	r->calls++;
	r->total_ns = add_saturated(r->total_ns, ns);
	r->inside_ns = add_saturated(r->inside_ns, time_inside(t, c, UINT64_MAX));
	if (ns < r->min_ns)
		r->min_ns = ns;
	if (ns > r->max_ns)
		r->max_ns = ns;
	histogram_add(&r->durations, ns);
}

/* Counts those that ended until then; and those of a clock that runs ahead, which would wait. */
static void count_waiting(struct top *t, uint64_t until_ns, uint64_t now_wall)
{
	size_t kept = 0;

	for (size_t i = 0; i < t->nwaiting; i++) {
		struct top_call c = t->waiting[i];

		if (c.end_ns > until_ns && c.end_ns <= now_wall)
			t->waiting[kept++] = c;
		else
			count_call(t, &c);
	}
	t->nwaiting = kept;
}

/* Those that the next report counts took time of this interval, too. */
static void add_unfinished(struct top *t, uint64_t to_ns)
{
	for (size_t i = 0; i < t->nwaiting; i++) {
		const struct top_call *c = &t->waiting[i];
		struct top_device *d = device_of(t, c->device);
		uint64_t at = d ? hmap_get(&d->rows, row_key(c)) : HMAP_NONE;

		if (at != HMAP_NONE)
			t->rows[at].inside_ns =
				add_saturated(t->rows[at].inside_ns, time_inside(t, c, to_ns));
	}
}

/* The interval ends no earlier than this, see is_due(). */
static uint64_t earliest_end(const struct top *t)
{
	uint64_t period = interval_s(t) * NS_PER_S;
	uint64_t least = t->from_ns + period / 10 * 7;
	uint64_t known = t->newest_ns > period / 4 ? t->newest_ns - period / 4 : 0;

	return least > known ? least : known;
}

static void add_call(struct top *t, const struct top_call *c)
{
	if (c->end_ns <= earliest_end(t)) {
		count_call(t, c);
		return;
	}
	if (t->nwaiting == MAX_WAITING) {
		count_waiting(t, earliest_end(t), UINT64_MAX);
		if (t->nwaiting > MAX_WAITING / 2) /* too many to wait */
			count_waiting(t, UINT64_MAX, UINT64_MAX);
	}
	*XPUSH(t->waiting, t->nwaiting, t->waiting_cap) = *c;
}

void top_step(struct top *t, uint64_t wall_ns)
{
	t->stepped = true;
	if (t->step_ns && wall_ns > t->step_ns) {
		t->steps++;
		t->steps_ns += wall_ns - t->step_ns;
	}
	if (wall_ns > t->step_ns)
		t->step_ns = wall_ns;
	t->any = true;
}

static void add_mark(struct top *t, const struct activity *a)
{
	bool reported = t->stepped;

	if (reported || a->place != ACTIVITY_ON_HOST || strcmp(a->name, "step start") != 0)
		return;
	top_step(t, a->start_ns);
	t->stepped = false;
}

void top_add(struct top *t, const struct activity *a)
{
	if (a->end_ns > t->newest_ns)
		t->newest_ns = a->end_ns;
	if (a->kind == ACTIVITY_MARKER) {
		add_mark(t, a);
		return;
	}
	t->any = true;
	int64_t number = a->place == ACTIVITY_ON_HOST || a->device == ACTIVITY_NOWHERE
				 ? -1
				 : (int64_t)a->device;
	struct top_device *d = device_of(t, number);
	if (d)
		add_busy(t, d, a);
	struct top_call c = {.name = name_of(a),
			     .start_ns = a->start_ns,
			     .end_ns = a->end_ns,
			     .device = number,
			     .owner = a->owner,
			     .kind = (uint8_t)a->kind};
	add_call(t, &c);
}

/* --- reporting --- */

COMPARE_BY_MOST(by_time, struct top_row, total_ns)

static int by_number(const void *a, const void *b)
{
	const struct top_device *const *x = a, *const *y = b;

	return ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

/* Times of a clock that runs ahead must not make more of it than there was. */
static unsigned long long busy_of(const struct top *t, struct busy *b, uint64_t to_ns)
{
	uint64_t ns = busy_take(b, to_ns);

	return ns < to_ns - t->from_ns ? ns : to_ns - t->from_ns;
}

static void put_devices(struct top *t, uint64_t to_ns, struct buf *out)
{
	struct top_device *sorted[TOP_MAX_DEVICES];
	const char *comma = "";

	for (unsigned i = 0; i < t->ndevices; i++)
		sorted[i] = &t->devices[i];
	qsort(sorted, t->ndevices, sizeof(sorted[0]), by_number);
	buf_add_str(out, "\"devices\":[");
	for (unsigned i = 0; i < t->ndevices; i++) {
		struct busy *b = sorted[i]->busy;
		if (sorted[i]->number < 0)
			continue;
		buf_addf(out, "%s{\"device\":%lld", comma, (long long)sorted[i]->number);
		for (unsigned k = 0; k < BUSY_CLASSES; k++)
			buf_addf(out, ",\"%s_ns\":%llu", class_names[k], busy_of(t, &b[k], to_ns));
		buf_addf(out, ",\"late_ns\":%llu}", (unsigned long long)sorted[i]->late_ns);
		sorted[i]->late_ns = 0;
		comma = ",";
	}
	buf_add_str(out, "],");
}

static uint64_t quantile(const struct top_row *r, double part)
{
	uint64_t ns = histogram_quantile(&r->durations, part);

	return ns < r->min_ns ? r->min_ns : ns > r->max_ns ? r->max_ns : ns;
}

static void put_row_of(const struct top_row *r, const char *kind, struct buf *out,
		       struct buf *scratch)
{
	buf_addf(out, "{\"kind\":\"%s\",\"device\":%lld,\"name\":", kind, (long long)r->device);
	json_text_add_cut(out, r->name, MAX_NAME_BYTES, scratch);
	buf_addf(out, ",\"calls\":%llu,\"total_ns\":%llu,\"inside_ns\":%llu",
		 (unsigned long long)r->calls, (unsigned long long)r->total_ns,
		 (unsigned long long)r->inside_ns);
	buf_addf(out, ",\"min_ns\":%llu,\"max_ns\":%llu", (unsigned long long)r->min_ns,
		 (unsigned long long)r->max_ns);
	buf_addf(out, ",\"p50_ns\":%llu,\"p99_ns\":%llu}", (unsigned long long)quantile(r, 0.5),
		 (unsigned long long)quantile(r, 0.99));
}

/* Whose work it was: rows of kinds that no activity has, which no sum counts. */
static void put_owners(struct top *t, enum owners_by by, const char *kind, struct buf *out)
{
	struct owner_groups g = {0};

	owner_groups_build(&g, &t->owners, by, 0);
	for (size_t i = 0; i < g.n; i++) {
		const struct owner_group *o = &g.list[i];
		struct top_row row = {.name = o->name,
				      .calls = o->calls,
				      .total_ns = o->total_ns,
				      .min_ns = o->total_ns / o->calls,
				      .max_ns = o->total_ns / o->calls,
				      .device = -1};
		size_t before = out->len;

		if (i >= TOP_OWNER_ROWS && !o->is_nobody)
			continue;
		if (out->data[out->len - 1] != '[')
			buf_add_char(out, ',');
		put_row_of(&row, kind, out, &t->scratch);
		if (out->len + TAIL_BYTES > TOP_MAX_BYTES)
			out->len = before;
	}
	owner_groups_release(&g);
}

/* Rows with the most time; what has no place is among the others. */
static void put_rows(struct top *t, struct buf *out)
{
	unsigned rows = 0, host = 0;

	if (t->nrows)
		qsort(t->rows, t->nrows, sizeof(*t->rows), by_time);
	buf_add_str(out, "\"rows\":[");
	for (size_t i = 0; i < t->nrows; i++) {
		const struct top_row *r = &t->rows[i];
		size_t before = out->len;
		bool fits = rows < TOP_ROWS && (r->device >= 0 || host < TOP_HOST_ROWS);

		if (fits) {
			if (rows)
				buf_add_char(out, ',');
			put_row_of(r, activity_kind_name(r->kind), out, &t->scratch);
			fits = out->len + TAIL_BYTES <= TOP_MAX_BYTES;
		}
		if (!fits) {
			out->len = before;
			t->others += r->calls;
			t->others_ns = add_saturated(t->others_ns, r->total_ns);
			continue;
		}
		rows++;
		host += r->device < 0;
	}
	if (t->w->monitor.attribute) {
		put_owners(t, OWNERS_BY_MODULE, TOPLIST_MODULE, out);
		put_owners(t, OWNERS_BY_LINE, TOPLIST_LINE, out);
	}
	buf_add_str(out, "],");
}

void top_drop_owners(struct top *t)
{
	owner_times_clear(&t->owners);
	for (size_t i = 0; i < t->nwaiting; i++)
		t->waiting[i].owner = NULL;
}

static void clear_interval(struct top *t, uint64_t to_ns)
{
	owner_times_clear(&t->owners);
	for (size_t i = 0; i < t->nrows; i++)
		histogram_release(&t->rows[i].durations);
	for (unsigned i = 0; i < t->ndevices; i++)
		hmap_release(&t->devices[i].rows);
	t->nrows = 0;
	t->others = t->others_ns = 0;
	t->steps = t->steps_ns = 0;
	t->from_ns = to_ns;
	t->any = t->nwaiting > 0;
}

/* What is not collected is not there, which is not the same as taking no time. */
static void put_kinds(const struct top *t, struct buf *out)
{
	const char *comma = "";

	buf_add_str(out, "\"kinds\":[");
	for (uint32_t kind = 0; kind < ACTIVITY_KIND_END; kind++) {
		if (!activity_kind_name(kind) || !(t->w->monitor.kinds & ACTIVITY_BIT(kind)))
			continue;
		buf_addf(out, "%s\"%s\"", comma, activity_kind_name(kind));
		comma = ",";
	}
	buf_add_str(out, "],");
	if (t->w->monitor.filter.len)
		buf_add_str(out, "\"filter\":true,");
}

/* What is missing since the window began. */
static void put_losses(const struct top *t, struct buf *out)
{
	const struct window *w = t->w;

	buf_addf(out, "\"lost\":%llu,\"incomplete\":%llu,\"crowded\":%llu,",
		 (unsigned long long)w->lost, (unsigned long long)w->incomplete,
		 (unsigned long long)w->crowded);
	buf_addf(out, "\"unwritten\":%llu,\"unsent\":%llu,", (unsigned long long)w->unwritten,
		 (unsigned long long)t->unsent);
}

/* The report up to this moment (wall clock) as JSON; then everything is empty again. */
static void write_report(struct top *t, uint64_t to_ns, uint64_t now_wall, struct buf *out)
{
	if (to_ns < t->from_ns)
		to_ns = t->from_ns;
	count_waiting(t, to_ns, now_wall);
	add_unfinished(t, to_ns);
	size_t names = t->nrows;
	buf_addf(out, "{\"pid\":%u,\"rank\":%d,\"host\":", t->w->pid, t->w->rank);
	json_text_add(out, t->host, &t->scratch);
	buf_addf(out, ",\"from\":%llu,\"to\":%llu,\"interval_s\":%llu,",
		 (unsigned long long)t->from_ns, (unsigned long long)to_ns,
		 (unsigned long long)interval_s(t));
	put_losses(t, out);
	put_kinds(t, out);
	put_devices(t, to_ns, out);
	put_rows(t, out);
	buf_addf(out, "\"others\":{\"calls\":%llu,\"total_ns\":%llu},\"names\":%zu",
		 (unsigned long long)t->others, (unsigned long long)t->others_ns, names);
	if (t->step_ns)
		buf_addf(out, ",\"steps\":{\"count\":%llu,\"mean_ns\":%llu}",
			 (unsigned long long)t->steps,
			 (unsigned long long)(t->steps ? t->steps_ns / t->steps : 0));
	buf_add_char(out, '}');
	clear_interval(t, to_ns);
}

static uint64_t wall_time(const struct top *t, uint64_t now_ns)
{
	return now_ns + (uint64_t)t->w->wall_minus_mono_ns;
}

static void send_report(struct top *t, uint64_t to_ns, uint64_t now_wall, struct sender *to)
{
	t->unsent = to ? sender_lost(to) : 0;
	buf_clear(&t->json);
	write_report(t, to_ns, now_wall, &t->json);
	if (to)
		sender_put(to, FABRIC_TOP, t->json.data, t->json.len);
}

/* Up to when everything has been reported that is not much longer than a quarter of an interval. */
static uint64_t known_until(const struct top *t, uint64_t now_wall, uint64_t period)
{
	uint64_t known = t->newest_ns < now_wall ? t->newest_ns : now_wall;

	return known > period / 4 ? known - period / 4 : 0;
}

/* The source reports in pieces: behind one, what is nearly an interval is one. */
static bool is_due(struct top *t, uint64_t now_ns, uint64_t known, uint64_t period)
{
	if (t->newest_ns != t->seen_ns) {
		t->seen_ns = t->newest_ns;
		t->seen_at_ns = now_ns;
	}
	if (known < t->from_ns)
		return false;
	bool pauses = now_ns - t->seen_at_ns >= period / 8;
	return known - t->from_ns >= (pauses ? period / 10 * 7 : period);
}

void top_tick(struct top *t, uint64_t now_ns, struct sender *to)
{
	uint64_t period = interval_s(t) * NS_PER_S, now_wall = wall_time(t, now_ns);
	uint64_t known = known_until(t, now_wall, period);
	uint64_t silent = now_wall > SILENT_NS ? now_wall - SILENT_NS : 0;
	bool due = is_due(t, now_ns, known, period);

	if (silent > known) {
		known = silent;
		due = known > t->from_ns && known - t->from_ns >= period;
	}
	if (!due)
		return;
	send_report(t, known, now_wall, to);
	t->newest_ns = t->seen_ns = known; /* a time that cannot be does not hold for ever */
}

void top_end(struct top *t, uint64_t now_ns, struct sender *to)
{
	if (t->any)
		send_report(t, wall_time(t, now_ns), wall_time(t, now_ns), to);
}

void top_hold(struct top *t)
{
	for (size_t i = 0; i < t->nrows; i++)
		texts_put(t->w->names, t->rows[i].name, strlen(t->rows[i].name));
	for (size_t i = 0; i < t->nwaiting; i++)
		texts_put(t->w->names, t->waiting[i].name, strlen(t->waiting[i].name));
}

void top_free(struct top *t)
{
	if (!t)
		return;
	clear_interval(t, 0);
	for (unsigned i = 0; i < t->ndevices; i++)
		for (unsigned k = 0; k < BUSY_CLASSES; k++)
			busy_release(&t->devices[i].busy[k]);
	free(t->rows);
	free(t->waiting);
	owner_times_release(&t->owners);
	buf_release(&t->json);
	buf_release(&t->scratch);
	free(t);
}
