/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/steps/step_split.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "activity/idle/host_work.h"
#include "base/compare.h"
#include "base/mem.h"

#define WORK_PARTS SPLIT_IDLE /* compute, communication, copy */

struct work {
	uint32_t device;
	struct spans spans[WORK_PARTS];
	struct spans own; /* launched in the steps, whatever it is */
};

/* One call; the name is compared by its pointer. */
struct call {
	const char *name;
	uint64_t ns;
	enum split_part part;
	uint8_t kind; /* a collective may be reported as several */
};

struct step_split {
	struct split_step *steps;
	size_t nsteps, cap_steps;
	struct work *works;
	size_t nworks, cap_works;
	struct call *calls;
	size_t ncalls, cap_calls;
	struct host_work *host; /* or NULL */
};

struct step_split *step_split_new(void)
{
	return xcalloc(1, sizeof(struct step_split));
}

void step_split_step(struct step_split *s, const struct split_step *step)
{
	if (s->nsteps >= SPLIT_MAX_STEPS || step->end_ns < step->start_ns)
		return;
	*XPUSH(s->steps, s->nsteps, s->cap_steps) = *step;
}

const char *split_part_name(enum split_part part)
{
	static const char *const names[SPLIT_PARTS] = {
		[SPLIT_COMPUTE] = "compute",
		[SPLIT_COMM] = "communication",
		[SPLIT_COPY] = "copy",
		[SPLIT_IDLE] = "idle",
	};

	return names[part];
}

/* Collectives that come as kernels: those of NCCL, RCCL and HCCL say so in their names. */
static bool is_collective(const char *name)
{
	return !strncasecmp(name, "nccl", 4) || !strncasecmp(name, "rccl", 4) ||
	       !strncasecmp(name, "hccl", 4) || !strncmp(name, "hcom_", 5);
}

enum split_part split_part_of_kernel(const char *name)
{
	return is_collective(name) ? SPLIT_COMM : SPLIT_COMPUTE;
}

enum split_part split_part_of(const struct activity *a)
{
	switch (a->kind) {
	case ACTIVITY_KERNEL:
		return split_part_of_kernel(a->name);
	case ACTIVITY_HCCL:
	case ACTIVITY_COMMUNICATION:
		return SPLIT_COMM;
	case ACTIVITY_MEMCPY:
	case ACTIVITY_MEMSET:
		return SPLIT_COPY;
	default:
		return SPLIT_IDLE;
	}
}

static struct work *work_of(struct step_split *s, uint32_t device)
{
	for (size_t i = s->nworks; i-- > 0;)
		if (s->works[i].device == device)
			return &s->works[i];
	if (s->nworks >= SPLIT_MAX_DEVICES)
		return NULL;
	s->works = xgrow(s->works, &s->cap_works, s->nworks + 1, sizeof(*s->works));
	s->works[s->nworks] = (struct work){.device = device};
	return &s->works[s->nworks++];
}

void step_split_add(struct step_split *s, const struct activity *a, bool own)
{
	enum split_part part = split_part_of(a);
	struct work *w = part == SPLIT_IDLE ? NULL : work_of(s, a->device);

	if (!w || a->end_ns < a->start_ns)
		return;
	spans_add(&w->spans[part], a->start_ns, a->end_ns);
	if (!own)
		return;
	spans_add(&w->own, a->start_ns, a->end_ns);
	*XPUSH(s->calls, s->ncalls, s->cap_calls) =
		(struct call){activity_label(a), a->end_ns - a->start_ns, part, a->kind};
}

/* --- the steps of a device --- */

void split_exclusive(struct spans work[SPLIT_IDLE], struct spans *out_comm)
{
	struct spans rest = {0}, both = {0};

	for (unsigned p = 0; p < WORK_PARTS; p++)
		spans_tidy(&work[p]);
	spans_union(&work[SPLIT_COMPUTE], &work[SPLIT_COMM], &both);
	spans_minus(&work[SPLIT_COPY], &both, &rest);
	spans_release(&work[SPLIT_COPY]);
	work[SPLIT_COPY] = rest;
	*out_comm = work[SPLIT_COMM];
	work[SPLIT_COMM] = (struct spans){0};
	spans_minus(out_comm, &work[SPLIT_COMPUTE], &work[SPLIT_COMM]);
	spans_release(&both);
}

void split_times_add(struct split_times *sum, const struct split_times *t)
{
	sum->step_ns += t->step_ns;
	sum->comm_ns += t->comm_ns;
	for (unsigned p = 0; p < SPLIT_PARTS; p++)
		sum->part_ns[p] += t->part_ns[p];
}

static void split_device(const struct step_split *s, struct work *w, struct split_device *out)
{
	struct spans comm = {0};
	size_t at[WORK_PARTS] = {0}, at_comm = 0;

	split_exclusive(w->spans, &comm);
	out->device = w->device;
	out->steps = xcalloc(s->nsteps + 1, sizeof(*out->steps));
	for (size_t i = 0; i < s->nsteps; i++) {
		uint64_t from = s->steps[i].start_ns, to = s->steps[i].end_ns;
		struct split_times *t = &out->steps[i];

		t->step_ns = t->part_ns[SPLIT_IDLE] = to - from;
		for (unsigned p = 0; p < WORK_PARTS; p++) {
			t->part_ns[p] = spans_within(&w->spans[p], from, to, &at[p]);
			t->part_ns[SPLIT_IDLE] -= t->part_ns[p];
		}
		t->comm_ns = spans_within(&comm, from, to, &at_comm);
		if (s->steps[i].whole)
			split_times_add(&out->all, t);
	}
	spans_release(&comm);
}

static void explain_device(struct step_split *s, const struct work *w, struct split_rank *r)
{
	struct spans some = {0}, busy = {0};

	spans_union(&w->spans[SPLIT_COMPUTE], &w->spans[SPLIT_COMM], &some);
	spans_union(&some, &w->spans[SPLIT_COPY], &busy);
	host_work_explain(s->host, r, &busy, &r->idle);
	spans_release(&some);
	spans_release(&busy);
}

/* Of what the steps launched: how long did the device work on it after the last of them? */
static uint64_t work_after(const struct step_split *s, struct work *w)
{
	size_t at = 0;

	spans_tidy(&w->own);
	return s->nsteps ? spans_within(&w->own, s->steps[s->nsteps - 1].end_ns, UINT64_MAX, &at)
			 : 0;
}

COMPARE_BY(by_device, struct work, device)

/* --- kernels --- */

static int by_name_and_time(const void *a, const void *b)
{
	const struct call *x = a, *y = b;

	if (x->name != y->name)
		return (uintptr_t)x->name < (uintptr_t)y->name ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static int by_total(const void *a, const void *b)
{
	const struct split_kernel *x = a, *y = b;

	if (x->total_ns != y->total_ns)
		return x->total_ns > y->total_ns ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Calls of one kernel, the shortest first. */
static struct split_kernel kernel_of(const struct call *c, size_t n)
{
	struct split_kernel k = {.calls = n, .part = c->part, .max_ns = c[n - 1].ns};

	for (size_t i = 0; i < n; i++)
		k.total_ns += c[i].ns;
	/* The shortest time that 99 of 100 calls do not exceed. */
	k.p99_ns = c[(n * 99 + 99) / 100 - 1].ns;
	return k;
}

static void count_kernels(struct step_split *s, struct split_rank *r)
{
	struct split_kernel *list = NULL;
	size_t n = 0, cap = 0;

	qsort(s->calls, s->ncalls, sizeof(*s->calls), by_name_and_time);
	for (size_t i = 0, end; i < s->ncalls; i = end) {
		const struct call *c = &s->calls[i];

		for (end = i + 1; end < s->ncalls && s->calls[end].name == c->name &&
				  s->calls[end].kind == c->kind;)
			end++;
		list = xgrow(list, &cap, n + 1, sizeof(*list));
		list[n] = kernel_of(c, end - i);
		list[n++].name = (char *)(uintptr_t)c->name;
	}
	if (n)
		qsort(list, n, sizeof(*list), by_total);
	for (size_t i = 0; i < n; i++) {
		if (i < SPLIT_MAX_KERNELS) {
			list[i].name = xstrdup(list[i].name);
			r->nkernels++;
			continue;
		}
		r->other_names++;
		r->other_calls += list[i].calls;
		r->other_ns += list[i].total_ns;
	}
	r->kernels = list;
}

/* --- in all --- */

void step_split_free(struct step_split *s)
{
	for (size_t i = 0; i < s->nworks; i++) {
		for (unsigned p = 0; p < WORK_PARTS; p++)
			spans_release(&s->works[i].spans[p]);
		spans_release(&s->works[i].own);
	}
	free(s->works);
	free(s->steps);
	free(s->calls);
	free(s);
}

void step_split_host(struct step_split *s, struct host_work *h)
{
	s->host = h;
}

void step_split_finish(struct step_split *s, struct split_rank *r)
{
	r->steps = s->steps;
	r->nsteps = s->nsteps;
	for (size_t i = 0; i < s->nsteps; i++)
		r->whole_steps += s->steps[i].whole;
	if (s->nworks)
		qsort(s->works, s->nworks, sizeof(*s->works), by_device);
	r->devices = xcalloc(s->nworks + 1, sizeof(*r->devices));
	r->ndevices = s->nworks;
	for (size_t i = 0; i < s->nworks; i++) {
		split_device(s, &s->works[i], &r->devices[i]);
		if (s->host)
			explain_device(s, &s->works[i], r);
		r->after_ns += work_after(s, &s->works[i]);
	}
	if (s->ncalls)
		count_kernels(s, r);
	if (s->host)
		host_work_finish(s->host, &r->idle);
	s->steps = NULL;
	step_split_free(s);
}

bool split_rank_is_complete(const struct split_rank *r)
{
	return r->nsteps && r->whole_steps == r->nsteps;
}

#define RANK_TEXTS 7

static void find_texts(struct split_rank *r, char **out[RANK_TEXTS])
{
	char **texts[] = {&r->host, &r->request, &r->job,	 &r->parent,
			  &r->dir,  &r->note,	 &r->waiting_for};

	memcpy(out, texts, sizeof(texts));
}

struct split_rank *split_rank_new(void)
{
	struct split_rank *r = xcalloc(1, sizeof(*r));
	char **texts[RANK_TEXTS];

	r->rank = -1;
	find_texts(r, texts);
	for (unsigned i = 0; i < RANK_TEXTS; i++)
		*texts[i] = xstrdup("");
	return r;
}

void split_rank_set(char **text, char *now)
{
	free(*text);
	*text = now;
}

void split_rank_free(struct split_rank *r)
{
	char **texts[RANK_TEXTS];

	if (!r)
		return;
	find_texts(r, texts);
	for (unsigned i = 0; i < RANK_TEXTS; i++)
		free(*texts[i]);
	for (size_t i = 0; i < r->ndevices; i++)
		free(r->devices[i].steps);
	for (size_t i = 0; i < r->nkernels; i++)
		free(r->kernels[i].name);
	split_idle_release(&r->idle);
	free(r->devices);
	free(r->kernels);
	free(r->steps);
	free(r);
}
