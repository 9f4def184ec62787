/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Movement is looked for in three things, the cheap ones first: the frames and the instruction in
 * each of them; then, if these are the same, the words that hold the variables, because a loop that
 * spends nearly all its time in one call is found at the same instruction again and again while it
 * makes good progress. CPU time tells waiting from spinning, but is no movement.
 */
#include "sampler/hang/hang.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "sampler/discover/proc.h"
#include "sampler/hang/hang_impl.h"
#include "unwind/remote/objects/objects.h"

#define FRAMES_MAX 256 /* innermost ones whose variables are compared */
#define WORDS_MAX 4096
#define CODES_MAX 4096 /* remembered of one process */
#define GAP_NS 1000000000u /* between two rounds: for longer nobody has looked */

struct still *still_new(void)
{
	return xcalloc(1, sizeof(struct still));
}

void still_free(struct still *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n; i++)
		hmap_release(&s->list[i].words_of);
	free(s->list);
	free(s);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0xff51afd7ed558ccdu;
	return hash ^ hash >> 33;
}

/* The part of the stack that must move; bounded to the innermost frames. */
static const struct stack_frame *own_frames(const struct python_thread *t, unsigned *out_n)
{
	unsigned own = stack_own_part(t->frames, t->nframes);
	unsigned first = own > FRAMES_MAX ? own - FRAMES_MAX : 0;

	*out_n = own - first;
	return t->frames + first;
}

static uint64_t frames_stamp(const struct python_thread *t)
{
	unsigned n;
	const struct stack_frame *f = own_frames(t, &n);
	uint64_t hash = mix(t->serial, stack_own_part(t->frames, t->nframes));

	for (unsigned i = 0; i < n; i++)
		hash = mix(mix(mix(hash, f[i].address), f[i].code), f[i].lasti);
	return hash;
}

static unsigned words_of(struct still_one *one, struct python_process *p, uint64_t code)
{
	uint64_t known = hmap_get(&one->words_of, code);

	if (known == HMAP_NONE) {
		if (one->words_of.count >= CODES_MAX)
			hmap_release(&one->words_of);
		int n = remote_locals_words(&p->remote, &p->place, code);

		known = n > 0 ? (uint64_t)n : 0;
		hmap_put(&one->words_of, code, known);
	}
	return (unsigned)known;
}

/* All variables of all frames in one system call. */
static uint64_t locals_stamp(struct still_one *one, struct python_process *p,
			     const struct python_thread *t)
{
	static uint64_t words[WORDS_MAX]; /* one thread uses this module */
	struct remote_span spans[FRAMES_MAX];
	unsigned n, nspans = 0, used = 0;
	const struct stack_frame *f = own_frames(t, &n);
	uint64_t hash = 0;

	for (unsigned i = n; i-- > 0;) {
		unsigned count = f[i].kind == STACK_PYTHON ? words_of(one, p, f[i].code) : 0;

		if (!count || count > WORDS_MAX - used)
			continue;
		spans[nspans++] = (struct remote_span){
			.addr = f[i].address + p->place.layout.frame.locals,
			.out = words + used,
			.n = count * sizeof(*words),
		};
		used += count;
	}
	int got = nspans ? remote_readv(&p->remote, spans, nspans) : 0;
	for (int i = 0; i < got; i++)
		for (size_t k = 0; k < spans[i].n / sizeof(*words); k++)
			hash = mix(hash, ((const uint64_t *)spans[i].out)[k]);
	return mix(hash, (uint64_t)got);
}

/* CPU time of a thread; 0 if it is gone. */
static uint64_t thread_ticks(pid_t pid, pid_t tid)
{
	char name[40], text[1024];
	struct proc_stat stat;

	snprintf(name, sizeof(name), "task/%d/stat", tid);
	ssize_t n = proc_read(pid, name, text, sizeof(text));
	if (n < 0 || proc_stat_parse(text, (size_t)n, &stat) < 0)
		return 0;
	return stat.user_ticks + stat.system_ticks;
}

static const struct python_thread *main_thread(const struct python_process *p)
{
	for (unsigned i = 0; i < p->nthreads; i++)
		if (p->threads[i].main)
			return &p->threads[i];
	return p->nthreads ? &p->threads[0] : NULL;
}

static struct still_one *find(struct still *s, uint64_t serial)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->list[i].serial == serial)
			return &s->list[i];
	s->list = xgrow(s->list, &s->cap, s->n + 1, sizeof(*s->list));
	s->list[s->n] = (struct still_one){.serial = serial};
	return &s->list[s->n++];
}

static void remember_place(struct still_one *one, const struct python_thread *t)
{
	int place = stack_place(t->frames, t->nframes);
	int inner = stack_inner(t->frames, t->nframes);

	one->has_place = place >= 0;
	one->has_inner = inner >= 0;
	if (place >= 0)
		one->place = t->frames[place];
	if (inner >= 0)
		one->inner = t->frames[inner];
}

/* With the same frames and variables: whether it has changed anything else. */
static bool has_changed_state(struct still_one *one, const struct target *target,
			      const struct python_thread *t)
{
	uint64_t run_ns = still_run_ns(target->pid, t->tid ? t->tid : target->pid);
	uint64_t state = still_state(one, target->python, t);
	bool ran = run_ns == UINT64_MAX || run_ns != one->run_ns;
	bool changed = one->state_known && ran && state != one->state;

	one->state = state;
	one->state_known = true;
	one->run_ns = run_ns;
	return changed;
}

static void look_at(struct still *s, const struct targets *targets, const struct target *target,
		    uint64_t now_ns)
{
	const struct python_thread *t = main_thread(target->python);
	struct still_one *one = find(s, target->serial);

	if (!t)
		return;
	uint64_t frames = frames_stamp(t), locals = 0;
	uint64_t ticks = thread_ticks(target->pid, t->tid ? t->tid : target->pid);
	bool same = one->since_ns && !t->missed && frames == one->frames;
	if (same)
		locals = locals_stamp(one, target->python, t);
	/* The first round that finds the same frames takes the variables down. */
	bool moved = !same || (one->locals_known && locals != one->locals) ||
		     has_changed_state(one, target, t);
	if (moved) {
		one->since_ns = now_ns;
		one->since_ticks = ticks;
		one->looks = one->running = 0;
		one->state_known = one->state_known && same;
		remember_place(one, t);
	}
	one->frames = frames;
	one->locals = locals;
	one->locals_known = same;
	one->ticks = ticks;
	one->looks++;
	one->running += t->state == THREAD_RUNNING;
	one->pid = target->pid;
	one->rank = target->rank;
	one->counts = target_is_rank(targets, target);
	one->round = s->round;
}

/* Time in which nobody looked (we were stopped, or the machine was) is no time of standing still.
 */
static void skip_gap(struct still *s, uint64_t now_ns)
{
	uint64_t gap_ns = s->round_ns ? now_ns - s->round_ns : 0;

	for (unsigned i = 0; gap_ns > GAP_NS && i < s->n; i++)
		if (s->list[i].since_ns)
			s->list[i].since_ns += gap_ns;
	s->round_ns = now_ns;
}

void still_round(struct still *s, const struct targets *t, uint64_t now_ns)
{
	unsigned kept = 0;

	skip_gap(s, now_ns);
	s->round++;
	for (unsigned i = 0; i < t->n; i++)
		if (t->list[i]->state == TARGET_OPEN && t->list[i]->python)
			look_at(s, t, t->list[i], now_ns);
	for (unsigned i = 0; i < s->n; i++) {
		if (s->list[i].round == s->round)
			s->list[kept++] = s->list[i];
		else
			hmap_release(&s->list[i].words_of);
	}
	s->n = kept;
}

bool still_is(const struct still_one *one, uint64_t ns, uint64_t now_ns)
{
	return one->counts && one->since_ns && now_ns - one->since_ns >= ns;
}

unsigned still_count(const struct still *s, uint64_t ns, uint64_t now_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++)
		n += still_is(&s->list[i], ns, now_ns);
	return n;
}
