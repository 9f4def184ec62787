/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/record/samples.h"

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "wire/record.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define AGAIN_NS 500000000ull /* after so long a stack that has not changed comes again */

struct sampled_thread {
	uint32_t tid, frame;
	bool gc;
	uint64_t round; /* in which it was there last */
	uint64_t time_ns; /* of the last record */
	const char *name;
};

struct sampled_process {
	uint32_t pid;
	enum target_role role; /* that was said last */
	uint64_t round;
	struct hmap threads; /* serial to struct sampled_thread */
	struct sampled_process *next;
};

struct samples {
	struct hmap frames; /* hash of caller and function to its id */
	uint32_t next_frame;
	struct hmap processes; /* serial of the target to struct sampled_process */
	struct sampled_process *first;
	struct samples_counts counts;
};

struct samples *samples_new(void)
{
	struct samples *s = xcalloc(1, sizeof(*s));

	s->next_frame = 1;
	return s;
}

static void free_process(struct sampled_process *p)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&p->threads, &at, &key, &value);)
		free((void *)(uintptr_t)value);
	hmap_release(&p->threads);
	free(p);
}

void samples_free(struct samples *s)
{
	while (s && s->first) {
		struct sampled_process *next = s->first->next;

		free_process(s->first);
		s->first = next;
	}
	if (!s)
		return;
	hmap_release(&s->frames);
	hmap_release(&s->processes);
	free(s);
}

const struct samples_counts *samples_counts(const struct samples *s)
{
	return &s->counts;
}

/* --- records --- */

static void put_record(struct buf *out, void *rec, size_t fixed, const char *a, size_t na,
		       const char *b, size_t nb)
{
	static const char zeros[8];
	struct rec *head = rec;

	head->size = rec_size(fixed, na + nb);
	buf_add(out, rec, fixed);
	buf_add(out, a, na);
	buf_add(out, b, nb);
	buf_add(out, zeros, head->size - fixed - na - nb);
}

/* Texts are printable and end somewhere: whoever reads the recording checks that anyway. */
static size_t text_bytes(const char *text, size_t most)
{
	size_t n = strlen(text);

	return n < most ? n : most;
}

/* who: without its text. */
static void put_sampled(struct buf *out, uint64_t time_ns, struct rec_sampled who, const char *text)
{
	size_t n = text_bytes(text, REC_MAX_TEXT);

	who.head = (struct rec){.type = REC_SAMPLED, .time_ns = time_ns};
	who.len = (uint16_t)n;
	put_record(out, &who, sizeof(who), text, n, "", 0);
}

static void put_sample(struct buf *out, const struct sampled_process *p, struct sampled_thread *th,
		       uint64_t time_ns, uint32_t frame, unsigned kept, bool gc)
{
	struct rec_sample r = {
		.head = {.type = REC_SAMPLE, .size = sizeof(r), .time_ns = time_ns},
		.pid = p->pid,
		.tid = th->tid,
		.frame = frame,
		.flags = (gc ? SAMPLE_GC : 0) | kept << SAMPLE_KEPT_SHIFT,
	};

	buf_add(out, &r, sizeof(r));
	th->frame = frame;
	th->gc = gc;
	th->time_ns = time_ns;
}

void samples_put_name(struct buf *out, uint64_t time_ns, uint32_t pid, const char *command)
{
	put_sampled(out, time_ns, (struct rec_sampled){.pid = pid, .rank = -1}, command);
}

/* --- stacks --- */

/* Names and files are interned: equal ones have equal addresses. 0: there is no room. */
static uint32_t frame_id(struct samples *s, uint32_t caller, const struct stack_frame *f,
			 uint64_t time_ns, struct buf *out)
{
	const uint64_t key[4] = {caller, (uintptr_t)f->name, (uintptr_t)f->file,
				 (uint64_t)f->first_line};
	uint64_t hash = XXH3_64bits(key, sizeof(key)), known = hmap_get(&s->frames, hash);

	if (known != HMAP_NONE)
		return (uint32_t)known;
	if (s->next_frame > SAMPLES_MAX_FRAMES)
		return 0;
	size_t name = text_bytes(f->name, REC_MAX_TEXT / 2 - 1);
	size_t file = text_bytes(f->file, REC_MAX_TEXT / 2 - 1);
	struct rec_frame r = {.head = {.type = REC_FRAME, .time_ns = time_ns},
			      .id = s->next_frame++,
			      .caller = caller,
			      .line = f->first_line,
			      .len = (uint16_t)(name + 1 + file)};
	struct buf first = {0};
	buf_add(&first, f->name, name);
	buf_add(&first, "", 1);
	put_record(out, &r, sizeof(r), first.data, first.len, f->file, file);
	buf_release(&first);
	hmap_put(&s->frames, hash, r.id);
	return r.id;
}

static uint32_t stack_id(struct samples *s, const struct python_thread *th, struct buf *out)
{
	uint32_t id = 0;

	for (unsigned i = 0; i < th->nframes; i++) {
		uint32_t next = frame_id(s, id, &th->frames[i], th->time_ns, out);

		s->counts.cut += !next;
		if (!next)
			break;
		id = next;
	}
	return id;
}

/* --- processes and threads --- */

static struct sampled_process *process_of(const struct samples *s, const struct target *t)
{
	return hmap_get_ptr(&s->processes, t->serial);
}

void samples_renamed(struct samples *s, const struct target *t, struct buf *out)
{
	static const uint8_t roles[] = {[ROLE_RANK] = SAMPLED_RANK,
					[ROLE_HELPER] = SAMPLED_HELPER,
					[ROLE_LAUNCHER] = SAMPLED_LAUNCHER,
					[ROLE_OTHER] = SAMPLED_UNKNOWN};
	struct sampled_process *p = process_of(s, t);

	/* One whose children have ended remains what it was. */
	if (!p || p->role == ROLE_LAUNCHER)
		return;
	p->role = t->role;
	put_sampled(out, t->python ? t->python->time_ns : 0,
		    (struct rec_sampled){.pid = p->pid, .rank = t->rank, .role = roles[t->role]},
		    t->cmdline ? t->cmdline : "");
}

/* Its first thread has the number that it has for itself. */
uint32_t samples_own_pid(const struct target *t)
{
	for (unsigned i = 0; i < t->python->nthreads; i++)
		if (t->python->threads[i].main && t->python->threads[i].inner_tid > 0)
			return (uint32_t)t->python->threads[i].inner_tid;
	return (uint32_t)t->pid;
}

static struct sampled_process *begin_process(struct samples *s, const struct target *t,
					     struct buf *out)
{
	struct sampled_process *p = xcalloc(1, sizeof(*p));

	p->pid = samples_own_pid(t);
	p->next = s->first;
	s->first = p;
	s->counts.processes++;
	hmap_put_ptr(&s->processes, t->serial, p);
	samples_renamed(s, t, out);
	return p;
}

/* The number that the process itself has for it: as activities and memory have it. */
static struct sampled_thread *thread_of(struct sampled_process *p, const struct python_thread *is)
{
	struct sampled_thread *th = hmap_get_ptr(&p->threads, is->serial);

	if (!th) {
		th = xcalloc(1, sizeof(*th));
		hmap_put_ptr(&p->threads, is->serial, th);
	}
	if (!th->tid)
		th->tid = (uint32_t)(is->inner_tid > 0 ? is->inner_tid : is->tid > 0 ? is->tid : 0);
	return th;
}

static void add_thread(struct samples *s, struct sampled_process *p, const struct python_thread *is,
		       struct buf *out)
{
	struct sampled_thread *th = thread_of(p, is);

	th->round = p->round;
	if (is->missed || !th->tid)
		return;
	s->counts.samples++;
	if (is->name && *is->name && is->name != th->name) {
		th->name = is->name;
		put_sampled(out, is->time_ns,
			    (struct rec_sampled){.pid = p->pid, .tid = th->tid, .rank = -1},
			    is->name);
	}
	uint32_t frame = stack_id(s, is, out);
	bool same = frame == th->frame && is->gc == th->gc && is->kept >= is->nframes;
	if (!same || is->time_ns >= th->time_ns + AGAIN_NS)
		put_sample(out, p, th, is->time_ns, frame, is->kept, is->gc);
}

/* Those that were not in this round have ended. */
static void drop_ended(struct sampled_process *p, uint64_t time_ns, struct buf *out)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&p->threads, &at, &key, &value);) {
		struct sampled_thread *th = (void *)(uintptr_t)value;

		if (th->round == p->round)
			continue;
		if (th->frame)
			put_sample(out, p, th, time_ns, 0, 0, false);
		hmap_remove(&p->threads, key);
		free(th);
		at = 0; /* places have moved */
	}
}

void samples_add(struct samples *s, struct target *t, struct buf *out)
{
	struct sampled_process *p = process_of(s, t);

	if (!p)
		p = begin_process(s, t, out);
	else if (p->role != t->role)
		samples_renamed(s, t, out); /* which changes no label of a launcher */
	p->round++;
	for (unsigned i = 0; i < t->python->nthreads; i++)
		add_thread(s, p, &t->python->threads[i], out);
	if (p->threads.count != t->python->nthreads)
		drop_ended(p, t->python->time_ns, out);
}

static void end_process(struct sampled_process *p, uint64_t time_ns, struct buf *out)
{
	p->round++;
	drop_ended(p, time_ns, out);
}

void samples_gone(struct samples *s, struct target *t, uint64_t time_ns, struct buf *out)
{
	struct sampled_process *p = process_of(s, t), **at = &s->first;

	if (!p)
		return;
	end_process(p, time_ns, out);
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	hmap_remove(&s->processes, t->serial);
	free_process(p);
}

void samples_end_all(struct samples *s, uint64_t time_ns, struct buf *out)
{
	for (struct sampled_process *p = s->first; p; p = p->next)
		end_process(p, time_ns, out);
}
