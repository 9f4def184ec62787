/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/outputs/replay.h"

#include "base/mem.h"
#include "memory/outputs/outputs.h"
#include "recorder/recording.h"
#include "recorder/stream.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>

/* Remembers which processes are open, so that a cut-off recording still ends them. */
struct replay {
	struct track *track;
	uint8_t *open;
	size_t cap;
	uint64_t last_ns;
};

static void on_session(void *arg, const char *json, size_t len)
{
	struct replay *r = arg;

	track_stream.session(r->track, json, len);
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	struct replay *r = arg;
	size_t had = r->cap;

	if (p->proc >= TRACK_MAX_PROCS)
		return; /* a number of no recorder of ours */
	r->open = xgrow(r->open, &r->cap, p->proc + 1u, 1);
	for (size_t i = had; i < r->cap; i++)
		r->open[i] = 0;
	r->open[p->proc] = 1;
	track_stream.proc(r->track, p);
}

static void on_stack(void *arg, uint32_t proc, uint32_t id, const uint64_t *pc, uint32_t depth)
{
	struct replay *r = arg;

	track_stream.stack(r->track, proc, id, pc, depth);
}

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *rec)
{
	struct replay *r = arg;

	if (rec->time_ns > r->last_ns)
		r->last_ns = rec->time_ns;
	track_stream.record(r->track, proc, tid, rec);
}

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct replay *r = arg;

	if (e->proc < r->cap)
		r->open[e->proc] = 0;
	track_stream.proc_end(r->track, e);
}

static const struct stream_ops replay_stream = {
	.session = on_session,
	.proc = on_proc,
	.stack = on_stack,
	.record = on_record,
	.proc_end = on_proc_end,
};

int replay_recording(const char *file, struct track *t, bool *out_torn, struct err *err)
{
	struct replay r = {.track = t};
	int ret = stream_file(file, &replay_stream, &r, out_torn, err);

	for (size_t i = 0; i < r.cap; i++) {
		if (!r.open[i])
			continue;
		struct frame_proc_end e = {.proc = (uint32_t)i, .time_ns = r.last_ns + 1};
		track_stream.proc_end(t, &e);
	}
	free(r.open);
	return ret;
}

int export_recording(const char *path, const struct export_order *order, struct err *err)
{
	const struct writer_ops *ops = writer_find(order->format);
	struct buf file = {0};
	struct outputs o = {0};
	char *dir = NULL;

	if (!ops)
		return err_set(err, -EINVAL, "unknown format '%s' (csv or db)", order->format);
	int r = recording_find(path, &file, err);
	if (r < 0)
		goto out;
	dir = xstrdup(buf_str(&file));
	struct outputs_where where = {
		.output_dir = order->output_dir,
		.recording_dir = dirname(dir),
		.flags = DUMPS_REPLACE | (order->as_recorded ? DUMPS_AS_CONFIGURED : 0),
	};
	outputs_open(&o, &where, ops, order->compat);
	r = replay_recording(buf_str(&file), o.track, NULL, err);
	outputs_flush(&o);
	struct err why = {0};
	uint64_t lost = dumps_lost(o.dumps, &why);
	if (r == 0 && lost)
		r = err_set(err, -EIO, "%llu rows could not be written: %s",
			    (unsigned long long)lost, why.text);
out:
	if (o.track)
		outputs_close(&o);
	free(dir);
	buf_release(&file);
	return r;
}
