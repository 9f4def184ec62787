/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/trace/record_writer.h"

#include "wire/record_samples.h"

#define FILE_MODE 0640 /* as of the files beside it */
#define BATCH_BYTES (1u << 20)

int record_writer_open(struct record_writer *w, const char *path, uint64_t lost, struct err *err)
{
	*w = (struct record_writer){.lost = lost, .err = err};
	int r = recording_create_new(&w->to, path, FILE_MODE, err);

	if (r == 0)
		recording_expect(w->to, 0); /* it is small, and is written at once */
	return r;
}

void record_frame(struct record_writer *w, enum frame_type type, const void *payload, size_t bytes)
{
	if (w->result == 0)
		w->result = recording_append(w->to, type, payload, bytes, w->err);
}

static void close_run(struct record_writer *w)
{
	if (w->in_run)
		((struct batch_item *)(void *)(w->batch.data + w->run))->bytes =
			(uint32_t)(w->batch.len - w->run);
	w->in_run = false;
}

static void open_run(struct record_writer *w, uint32_t proc, uint32_t tid)
{
	const struct batch_item head = {.kind = BATCH_RUN, .proc = proc, .tid = tid};

	if (w->in_run) {
		const struct batch_item *now = (const void *)(w->batch.data + w->run);
		if (now->proc == proc && now->tid == tid)
			return;
	}
	close_run(w);
	w->run = w->batch.len;
	w->in_run = true;
	buf_add(&w->batch, &head, sizeof(head));
}

static void write_batch(struct record_writer *w)
{
	const struct batch_count count = {
		.head = {BATCH_COUNT, sizeof(count), RECORD_PROC, 0},
		.records = w->records,
		.in_batch = w->in_batch,
		.lost_events = w->lost,
	};

	close_run(w);
	if (w->in_batch)
		buf_add(&w->batch, &count, sizeof(count));
	if (w->batch.len)
		record_frame(w, FRAME_BATCH, w->batch.data, w->batch.len);
	buf_clear(&w->batch);
	w->in_batch = 0;
}

void record_put_text(struct record_writer *w, uint32_t proc, uint32_t tid, void *record,
		     size_t fixed, struct request_text a, struct request_text b)
{
	static const char zeros[8];
	struct rec *head = record;

	if (w->batch.len >= BATCH_BYTES)
		write_batch(w);
	head->size = rec_size(fixed, a.len + b.len);
	open_run(w, proc, tid);
	buf_add(&w->batch, record, fixed);
	buf_add(&w->batch, a.at, a.len);
	buf_add(&w->batch, b.at, b.len);
	buf_add(&w->batch, zeros, head->size - fixed - a.len - b.len);
	if (proc != PROC_NONE) {
		w->records++;
		w->in_batch++;
	}
}

void record_put(struct record_writer *w, uint32_t proc, uint32_t tid, void *record, size_t bytes)
{
	const struct request_text none = {"", 0};

	record_put_text(w, proc, tid, record, bytes, none, none);
}

int record_writer_close(struct record_writer *w, uint64_t time_ns)
{
	const struct frame_proc_end end = {.proc = RECORD_PROC,
					   .records = (uint32_t)w->records,
					   .time_ns = time_ns,
					   .lost_events = w->lost};

	write_batch(w);
	record_frame(w, FRAME_PROC_END, &end, sizeof(end));
	record_frame(w, FRAME_END, NULL, 0);
	recording_close(w->to);
	buf_release(&w->batch);
	return w->result;
}
