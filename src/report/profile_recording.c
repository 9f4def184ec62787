/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The time that threads spent in each stack, of the Python stacks that `sonde record` has sampled
 * (wire/record.h, REC_SAMPLE). A sample counts until the next one of its thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "recorder/recording.h"
#include "recorder/stream.h"
#include "report/profiles.h"

#define MOST_DEPTH 512u

struct call {
	const char *name, *file; /* interned */
	int32_t line;
	uint32_t caller;
};

struct thread {
	uint32_t pid, tid, frame; /* 0: it is not sampled now */
	uint64_t since_ns;
	const char *name; /* interned; NULL: not known */
	struct hmap spent; /* frame to ns */
};

struct sampled {
	const struct input_choice *choice;
	struct call *frames; /* by their numbers, from 1 */
	size_t nframes, cap;
	struct thread **threads;
	size_t nthreads, cap_threads;
	struct hmap thread_of; /* process and thread to struct thread */
	struct hmap rank_of; /* process */
	uint64_t newest_ns; /* of all samples: what has not ended went on until then */
};

static struct thread *thread_of(struct sampled *s, uint32_t pid, uint32_t tid)
{
	uint64_t key = (uint64_t)pid << 32 | tid;
	struct thread *t = hmap_get_ptr(&s->thread_of, key);

	if (!t) {
		t = xcalloc(1, sizeof(*t));
		t->pid = pid;
		t->tid = tid;
		hmap_put_ptr(&s->thread_of, key, t);
		*XPUSH(s->threads, s->nthreads, s->cap_threads) = t;
	}
	return t;
}

static void on_frame(struct sampled *s, const struct rec_frame *r)
{
	size_t len;
	const char *text = rec_text(&r->head, &len), *zero = memchr(text, '\0', len);
	size_t name = zero ? (size_t)(zero - text) : len;

	/* In the order of their numbers; a recorder that was called back begins anew. */
	if (!r->id || r->id > s->nframes + 1 || r->caller >= r->id)
		return;
	if (r->id == s->nframes + 1)
		(void)XPUSH(s->frames, s->nframes, s->cap);
	s->frames[r->id - 1] = (struct call){
		.name = intern(text, name),
		.file = zero ? intern(zero + 1, len - name - 1) : "",
		.line = r->line,
		.caller = r->caller,
	};
}

/* A call that was seen at least once is there, however short. */
static void count_time(struct thread *t, uint64_t until_ns)
{
	uint64_t before = t->frame ? hmap_get(&t->spent, t->frame) : 0;
	uint64_t ns = until_ns > t->since_ns ? until_ns - t->since_ns : 1;

	if (t->frame)
		hmap_put(&t->spent, t->frame, (before == HMAP_NONE ? 0 : before) + ns);
}

static void on_sample(struct sampled *s, const struct rec_sample *r)
{
	struct thread *t = thread_of(s, r->pid, r->tid);
	uint64_t ns = r->head.time_ns;

	count_time(t, ns);
	s->newest_ns = ns > s->newest_ns ? ns : s->newest_ns;
	t->frame = r->frame;
	t->since_ns = ns;
}

static void on_sampled(struct sampled *s, const struct rec_sampled *r)
{
	size_t len;
	const char *text = rec_text(&r->head, &len);

	if (r->tid)
		thread_of(s, r->pid, r->tid)->name = intern(text, len);
	else if (r->rank >= 0)
		hmap_put(&s->rank_of, r->pid, (uint64_t)r->rank);
}

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct sampled *s = arg;

	(void)tid;
	if (proc != PROC_NONE)
		return;
	if (r->type == REC_SAMPLE)
		on_sample(s, (const struct rec_sample *)r);
	else if (r->type == REC_FRAME)
		on_frame(s, (const struct rec_frame *)r);
	else if (r->type == REC_SAMPLED)
		on_sampled(s, (const struct rec_sampled *)r);
}

static uint32_t add_root(struct stacks_read *out, const struct sampled *s, const struct thread *t)
{
	uint64_t rank = hmap_get(&s->rank_of, t->pid);
	char name[192];
	int n = snprintf(name, sizeof(name), "process %u", t->pid);

	if (rank != HMAP_NONE)
		snprintf(name + n, sizeof(name) - (size_t)n, " rank %u", (unsigned)rank);
	uint32_t node = tree_node(out->tree, TREE_ROOT, TREE_WORDS,
				  &(struct profile_frame){.name = name, .file = ""});
	snprintf(name, sizeof(name), "thread %u%s%.100s", t->tid, t->name ? " " : "",
		 t->name ? t->name : "");
	return tree_node(out->tree, node, TREE_WORDS,
			 &(struct profile_frame){.name = name, .file = ""});
}

static void add_thread(struct stacks_read *out, const struct sampled *s, struct thread *t)
{
	uint64_t key, ns;

	count_time(t, s->newest_ns);
	if (!t->spent.count || !input_is_chosen(s->choice, t->pid))
		return;
	uint32_t root = add_root(out, s, t);
	for (size_t at = 0; hmap_next(&t->spent, &at, &key, &ns);) {
		uint32_t path[MOST_DEPTH], node = root;
		unsigned n = 0;

		for (uint64_t id = key; id && id <= s->nframes && n < MOST_DEPTH;
		     id = s->frames[id - 1].caller)
			path[n++] = (uint32_t)id;
		while (n) {
			const struct call *f = &s->frames[path[--n] - 1];

			node = stacks_read_frame(out, node, f->name, f->file, f->line);
		}
		stacks_read_add(out, node, ns);
	}
}

int profile_read_recording(struct stacks_read *out, const char *path,
			   const struct input_choice *choice, struct err *err)
{
	static const struct stream_ops ops = {.record = on_record};
	struct sampled s = {.choice = choice};
	struct buf file = {0};
	int r = recording_find(path, &file, err);

	out->unit = "ns";
	if (r == 0)
		r = stream_file(buf_str(&file), &ops, &s, NULL, err);
	for (size_t i = 0; i < s.nthreads; i++) {
		if (r == 0)
			add_thread(out, &s, s.threads[i]);
		hmap_release(&s.threads[i]->spent);
		free(s.threads[i]);
	}
	free(s.threads);
	free(s.frames);
	hmap_release(&s.thread_of);
	hmap_release(&s.rank_of);
	buf_release(&file);
	if (r == 0 && !out->total)
		r = err_set(err, -ENOENT, "no Python stacks were recorded in '%s'", path);
	return r;
}
