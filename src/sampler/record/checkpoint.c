/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the dropped part of a recording (struct checkpoint_ops) comes to in samples: the calls that
 * later samples name, who is sampled, and where each thread was.
 */
#include "recorder/consumer.h"

#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "sampler/record/samples.h"

#define BATCH_BYTES (4u << 20)

struct checkpoint {
	struct buf frames; /* records, as they came */
	struct hmap names; /* process and thread to a copy of its newest rec_sampled */
	struct hmap samples; /* likewise: the newest rec_sample */
};

static void *open_checkpoint(void)
{
	return xcalloc(1, sizeof(struct checkpoint));
}

static void release_records(struct hmap *m)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(m, &at, &key, &value);)
		free((void *)(uintptr_t)value);
	hmap_release(m);
}

static void close_checkpoint(void *state)
{
	struct checkpoint *b = state;

	buf_release(&b->frames);
	release_records(&b->names);
	release_records(&b->samples);
	free(b);
}

static void keep_newest(struct hmap *m, uint32_t pid, uint32_t tid, const struct rec *r)
{
	struct rec *copy = xmalloc(r->size);

	memcpy(copy, r, r->size);
	free(hmap_put_ptr(m, (uint64_t)pid << 32 | tid, copy));
}

static void drop_thread(struct hmap *m, uint32_t pid, uint32_t tid)
{
	uint64_t was = hmap_remove(m, (uint64_t)pid << 32 | tid);

	if (was != HMAP_NONE)
		free((void *)(uintptr_t)was);
}

/* A recorder that was called back counts its frames anew. */
static void keep_frame(struct checkpoint *b, const struct rec_frame *r)
{
	if (r->id == 1)
		buf_clear(&b->frames);
	buf_add(&b->frames, r, r->head.size);
}

static void on_record(void *state, uint32_t proc, uint32_t tid, const struct rec *r)
{
	const struct rec_sampled *who = (const struct rec_sampled *)r;
	const struct rec_sample *sample = (const struct rec_sample *)r;
	struct checkpoint *b = state;

	(void)tid;
	if (proc != PROC_NONE)
		return;
	if (r->type == REC_FRAME) {
		keep_frame(b, (const struct rec_frame *)r);
	} else if (r->type == REC_SAMPLED) {
		keep_newest(&b->names, who->pid, who->tid, r);
	} else if (r->type == REC_SAMPLE && sample->frame) {
		keep_newest(&b->samples, sample->pid, sample->tid, r);
	} else if (r->type == REC_SAMPLE) {
		drop_thread(&b->samples, sample->pid, sample->tid);
		drop_thread(&b->names, sample->pid, sample->tid);
	}
}

/* --- writing --- */

struct writing {
	struct buf out;
	int (*batch)(void *arg, const void *payload, size_t bytes);
	void *arg;
	int result;
};

static void begin_batch(struct writing *w)
{
	const struct batch_item head = {.kind = BATCH_RUN, .proc = PROC_NONE};

	buf_clear(&w->out);
	buf_add(&w->out, &head, sizeof(head));
}

static void end_batch(struct writing *w)
{
	struct batch_item *head = (struct batch_item *)w->out.data;

	head->bytes = (uint32_t)w->out.len;
	if (w->result == 0 && w->out.len > sizeof(*head))
		w->result = w->batch(w->arg, w->out.data, w->out.len);
	begin_batch(w);
}

static void put_record(struct writing *w, const struct rec *r)
{
	buf_add(&w->out, r, r->size);
	if (w->out.len >= BATCH_BYTES)
		end_batch(w);
}

static void put_all(struct writing *w, const struct hmap *m)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(m, &at, &key, &value);)
		put_record(w, (const struct rec *)(uintptr_t)value);
}

static int write_checkpoint(void *state, int (*batch)(void *arg, const void *payload, size_t bytes),
			    void *arg)
{
	struct writing w = {.batch = batch, .arg = arg};
	struct checkpoint *b = state;

	begin_batch(&w);
	for (size_t at = 0; at < b->frames.len;) {
		const struct rec *r = (const struct rec *)(b->frames.data + at);

		put_record(&w, r);
		at += r->size;
	}
	put_all(&w, &b->names);
	put_all(&w, &b->samples);
	end_batch(&w);
	buf_release(&w.out);
	return w.result;
}

static const struct stream_ops listener = {.record = on_record};

const struct checkpoint_ops samples_checkpoint = {
	.open = open_checkpoint,
	.close = close_checkpoint,
	.stream = &listener,
	.write = write_checkpoint,
};
