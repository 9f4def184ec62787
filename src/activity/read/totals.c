/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/read/totals.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/compare.h"
#include "base/mem.h"

#define TIDY_AT 65536 /* spans; and whenever there are twice as many as after the last time */

static struct sum_name *find_name(struct activity_sum *s, const struct activity *a)
{
	bool grouped = a->kind == ACTIVITY_COMMUNICATION || a->kind == ACTIVITY_HCCL;
	const char *name = activity_label(a);
	const char *group = grouped ? a->detail : "";
	const uint64_t key[3] = {(uintptr_t)name, grouped ? (uintptr_t)group : 0, a->kind};
	uint64_t hash = XXH3_64bits(key, sizeof(key));
	uint64_t i = hmap_get(&s->by_name, hash);

	if (i != HMAP_NONE)
		return &s->names[i];
	hmap_put(&s->by_name, hash, s->nnames);
	s->names = xgrow(s->names, &s->names_cap, s->nnames + 1, sizeof(*s->names));
	s->names[s->nnames] = (struct sum_name){.name = name, .group = group, .kind = a->kind};
	return &s->names[s->nnames++];
}

static struct sum_device *find_device(struct sum_rank *r, uint32_t device)
{
	for (size_t i = r->ndevices; i-- > 0;)
		if (r->devices[i].device == device)
			return &r->devices[i];
	if (r->ndevices >= SPLIT_MAX_DEVICES)
		return NULL;
	r->devices = xgrow(r->devices, &r->devices_cap, r->ndevices + 1, sizeof(*r->devices));
	r->devices[r->ndevices] = (struct sum_device){.device = device};
	return &r->devices[r->ndevices++];
}

/* Neighbours that touch become one, whenever there may be many of them. */
static void add_span(struct spans *s, const struct activity *a)
{
	spans_add(s, a->start_ns, a->end_ns);
	if (s->n >= TIDY_AT && (s->n & (s->n - 1)) == 0)
		spans_tidy(s);
}

static int on_activity(void *arg, const struct activity *a)
{
	struct activity_sum *s = arg;
	struct sum_rank *r = &s->ranks[s->current];
	uint64_t ns = a->end_ns > a->start_ns ? a->end_ns - a->start_ns : 0;
	struct sum_name *n = find_name(s, a);
	enum split_part part = split_part_of(a);

	owner_times_add(&s->owners, a);
	r->kinds |= UINT64_C(1) << a->kind;
	s->kind_count[a->kind]++;
	s->kind_ns[a->kind] += ns;
	n->calls++;
	n->total_ns += ns;
	n->amount += a->amount;
	n->max_ns = ns > n->max_ns ? ns : n->max_ns;
	histogram_add(&n->times, ns);
	if (!r->first_ns || a->start_ns < r->first_ns)
		r->first_ns = a->start_ns;
	if (a->end_ns > r->last_ns)
		r->last_ns = a->end_ns;
	struct sum_device *d = part == SPLIT_IDLE ? NULL : find_device(r, a->device);
	if (d)
		add_span(&d->work[part], a);
	return 0;
}

static struct sum_rank *find_same(struct activity_sum *s, const struct activity_about *about)
{
	for (size_t i = s->current; about->pid && i-- > 0;)
		if (s->ranks[i].pid == about->pid && s->ranks[i].rank == about->rank &&
		    !strcmp(s->ranks[i].format, about->format))
			return &s->ranks[i];
	return NULL;
}

static void move_devices(struct sum_rank *from, struct sum_rank *to)
{
	for (size_t i = 0; i < from->ndevices; i++) {
		struct sum_device *d = find_device(to, from->devices[i].device);

		for (unsigned p = 0; p < SPLIT_IDLE; p++) {
			struct spans *work = &from->devices[i].work[p];

			for (size_t k = 0; d && k < work->n; k++)
				spans_add(&d->work[p], work->at[k].start, work->at[k].end);
			spans_release(work);
		}
	}
	free(from->devices);
}

/* What the file that was just read says, into its process: r, or one that is there already. */
static void add_about(struct activity_sum *s, struct sum_rank *r,
		      const struct activity_about *about)
{
	struct sum_rank *same = find_same(s, about), *to = same ? same : r;

	to->format = about->format;
	to->pid = about->pid;
	to->rank = about->rank;
	to->files++;
	to->activities += about->activities;
	to->lost += about->lost;
	to->rotated_files += about->rotated_files;
	to->skipped += about->skipped;
	to->torn |= about->torn;
	to->nameless |= about->nameless;
	to->kinds |= r->kinds;
	/* Files of one session follow each other, and only the last has an end. That one may hold
	 * nothing else. */
	if (!same ||
	    (r->first_ns ? r->first_ns >= same->end_of_ns : about->end == ACTIVITY_END_THERE)) {
		to->end = about->end;
		to->end_of_ns = r->first_ns || !same ? r->first_ns : same->end_of_ns;
	}
	if (!same)
		return;
	if (r->first_ns && (!same->first_ns || r->first_ns < same->first_ns))
		same->first_ns = r->first_ns;
	if (r->last_ns > same->last_ns)
		same->last_ns = r->last_ns;
	move_devices(r, same);
	s->nranks--;
}

int activity_sum_file(struct activity_sum *s, const char *path, struct err *err)
{
	struct activity_about about = {.rank = -1};

	s->ranks = xgrow(s->ranks, &s->ranks_cap, s->nranks + 1, sizeof(*s->ranks));
	s->current = s->nranks++;
	s->ranks[s->current] = (struct sum_rank){.rank = -1, .format = ""};
	int r = activity_read(path, on_activity, s, &about, err);
	if (r == 0)
		add_about(s, &s->ranks[s->current], &about);
	activity_about_release(&about);
	return r;
}

static void split_device(const struct sum_rank *r, struct sum_device *d)
{
	uint64_t idle = r->last_ns - r->first_ns;
	struct spans comm;

	split_exclusive(d->work, &comm);
	for (unsigned p = 0; p < SPLIT_IDLE; p++) {
		d->part_ns[p] = spans_length(&d->work[p]);
		idle -= d->part_ns[p] < idle ? d->part_ns[p] : idle;
	}
	d->hidden_ns = spans_length(&comm) - d->part_ns[SPLIT_COMM];
	d->part_ns[SPLIT_IDLE] = idle;
	spans_release(&comm);
}

static int by_total(const void *a, const void *b)
{
	const struct sum_name *x = a, *y = b;

	if (x->total_ns != y->total_ns)
		return x->total_ns > y->total_ns ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int by_rank(const void *a, const void *b)
{
	const struct sum_rank *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

COMPARE_BY(by_device, struct sum_device, device)

/* Both kinds report the same collectives where both were asked for. */
static void mark_again(struct activity_sum *s)
{
	const uint64_t hccl = UINT64_C(1) << ACTIVITY_HCCL;
	const uint64_t both = hccl | UINT64_C(1) << ACTIVITY_COMMUNICATION;

	for (size_t i = 0; i < s->nranks; i++)
		if ((s->ranks[i].kinds & both) == hccl)
			return; /* of this process nothing else reports them */
	for (size_t i = 0; i < s->nnames; i++)
		s->names[i].again =
			s->names[i].kind == ACTIVITY_HCCL && s->kind_count[ACTIVITY_COMMUNICATION];
}

void activity_sum_finish(struct activity_sum *s)
{
	mark_again(s);
	if (s->nnames)
		qsort(s->names, s->nnames, sizeof(*s->names), by_total);
	if (s->nranks)
		qsort(s->ranks, s->nranks, sizeof(*s->ranks), by_rank);
	for (size_t i = 0; i < s->nranks; i++) {
		struct sum_rank *r = &s->ranks[i];

		for (size_t d = 0; d < r->ndevices; d++)
			split_device(r, &r->devices[d]);
		if (r->ndevices)
			qsort(r->devices, r->ndevices, sizeof(*r->devices), by_device);
	}
}

uint64_t sum_p99_ns(const struct sum_name *n)
{
	uint64_t p99 = histogram_quantile(&n->times, 0.99);

	return p99 < n->max_ns ? p99 : n->max_ns;
}

bool sum_is_work(const struct sum_name *n)
{
	struct activity a = {.kind = n->kind, .name = n->name};

	return !n->again && split_part_of(&a) != SPLIT_IDLE;
}

void activity_sum_release(struct activity_sum *s)
{
	owner_times_release(&s->owners);
	for (size_t i = 0; i < s->nnames; i++)
		histogram_release(&s->names[i].times);
	for (size_t i = 0; i < s->nranks; i++) {
		struct sum_rank *r = &s->ranks[i];

		for (size_t d = 0; d < r->ndevices; d++)
			for (unsigned p = 0; p < SPLIT_IDLE; p++)
				spans_release(&r->devices[d].work[p]);
		free(r->devices);
	}
	free(s->names);
	free(s->ranks);
	hmap_release(&s->by_name);
	*s = (struct activity_sum){0};
}
