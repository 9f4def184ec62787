/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/stream.h"

#include "base/progress.h"
#include "recorder/recording.h"
#include "wire/ring.h"

#include <errno.h>
#include <string.h>

#define MAX_UNKNOWN (1u << 20) /* bytes of a batch */

static int err_damaged(struct err *err, const char *what)
{
	return err_set(err, -EINVAL, "damaged recording: %s", what);
}

static int run_item(const struct stream_ops *ops, void *arg, const struct batch_item *it,
		    struct err *err)
{
	const char *at = (const char *)(it + 1), *end = (const char *)it + it->bytes;

	while (at < end) {
		const struct rec *r = (const struct rec *)at;
		if (!rec_check(r, (size_t)(end - at)))
			return err_damaged(err, "a record is malformed");
		if (ops->record)
			ops->record(arg, it->proc, it->tid, r);
		at += r->size;
	}
	return 0;
}

static int stack_item(const struct stream_ops *ops, void *arg, const struct batch_item *it,
		      struct err *err)
{
	const struct batch_stack *s = (const struct batch_stack *)it;

	if (it->bytes < sizeof(*s) || s->depth > ARENA_MAX_DEPTH ||
	    it->bytes != sizeof(*s) + s->depth * sizeof(s->pc[0]))
		return err_damaged(err, "a stack has the wrong size");
	if (ops->stack)
		ops->stack(arg, it->proc, s->id, s->pc, s->depth);
	return 0;
}

static int cursor_item(const struct stream_ops *ops, void *arg, const struct batch_item *it,
		       struct err *err)
{
	if (it->bytes != sizeof(struct batch_cursor))
		return err_damaged(err, "a cursor has the wrong size");
	if (ops->cursor)
		ops->cursor(arg, (const struct batch_cursor *)it);
	return 0;
}

static int count_item(const struct stream_ops *ops, void *arg, const struct batch_item *it,
		      struct err *err)
{
	const struct batch_count *c = (const struct batch_count *)it;

	if (it->bytes != sizeof(*c) || c->in_batch > c->records)
		return err_damaged(err, "a count is malformed");
	if (ops->count)
		ops->count(arg, c);
	return 0;
}

void stream_losses_count(struct stream_losses *l, const struct batch_count *c)
{
	uint64_t before = c->records - c->in_batch;

	if (before > l->records)
		l->missing += before - l->records;
	else if (stream_is_repeated(l, c) && c->records > l->records) /* was passed over */
		l->missing += c->records - l->records;
	if (c->records > l->records)
		l->records = c->records;
	l->events = c->lost_events;
	l->stacks = c->lost_stacks;
	l->damaged = c->damaged;
}

void stream_losses_end(const struct stream_losses *l, struct frame_proc_end *e)
{
	uint32_t behind = e->records ? e->records - (uint32_t)l->records : 0;
	uint64_t events = l->missing + behind + l->events;

	/* The end of a process has all of it, what its recording lacks included. */
	if (e->lost_events < events)
		e->lost_events = events;
	if (e->lost_stacks < l->stacks)
		e->lost_stacks = l->stacks;
	if (e->damaged < l->damaged)
		e->damaged = l->damaged;
}

/* Before a batch: who has its counts knows whether it has its records already. */
static void announce_batch(const struct stream_ops *ops, void *arg, const char *at, size_t bytes)
{
	const struct batch_item *it = (const struct batch_item *)at;

	if (!ops->batch)
		return;
	ops->batch(arg, NULL);
	for (; bytes >= sizeof(*it) && it->bytes >= sizeof(*it) && it->bytes <= bytes &&
	       it->bytes % 8 == 0;
	     bytes -= it->bytes, it = (const void *)((const char *)it + it->bytes)) {
		const struct batch_count *c = (const struct batch_count *)it;

		if (it->kind == BATCH_COUNT && it->bytes == sizeof(*c) && c->in_batch <= c->records)
			ops->batch(arg, c);
	}
}

static int run_batch(const struct stream_ops *ops, void *arg, const char *at, size_t bytes,
		     struct err *err)
{
	const char *end = bytes ? at + bytes : at;
	size_t unknown = 0;

	while (at < end) {
		const struct batch_item *it = (const struct batch_item *)at;
		size_t left = (size_t)(end - at);
		int r = 0;
		if (left < sizeof(*it) || it->bytes < sizeof(*it) || it->bytes > left ||
		    it->bytes % 8)
			return err_damaged(err, "an item of a batch has the wrong size");
		if (it->kind == BATCH_RUN)
			r = run_item(ops, arg, it, err);
		else if (it->kind == BATCH_STACK)
			r = stack_item(ops, arg, it, err);
		else if (it->kind == BATCH_CURSOR)
			r = cursor_item(ops, arg, it, err);
		else if (it->kind == BATCH_COUNT)
			r = count_item(ops, arg, it, err);
		else if ((unknown += it->bytes) > MAX_UNKNOWN) /* of a later version are few */
			return err_damaged(err, "a batch holds items of no known kind");
		if (r < 0)
			return r;
		at += it->bytes;
	}
	return 0;
}

static bool proc_is_sane(const struct frame_proc *p, size_t bytes)
{
	return bytes == sizeof(*p) && memchr(p->exe, 0, sizeof(p->exe)) &&
	       memchr(p->visible_devices, 0, sizeof(p->visible_devices));
}

int stream_frame(const struct stream_ops *ops, void *arg, uint32_t type, const char *payload,
		 size_t bytes, struct err *err)
{
	switch (type) {
	case FRAME_SESSION:
		if (ops->session)
			ops->session(arg, payload, bytes);
		return 0;
	case FRAME_PROC:
		if (!proc_is_sane((const struct frame_proc *)payload, bytes))
			return err_damaged(err, "a process is malformed");
		if (ops->proc)
			ops->proc(arg, (const struct frame_proc *)payload);
		return 0;
	case FRAME_BATCH:
		announce_batch(ops, arg, payload, bytes);
		return run_batch(ops, arg, payload, bytes, err);
	case FRAME_PROC_END:
		if (bytes != sizeof(struct frame_proc_end))
			return err_damaged(err, "the end of a process is malformed");
		if (ops->proc_end)
			ops->proc_end(arg, (const struct frame_proc_end *)payload);
		return 0;
	case FRAME_CUT:
		if (bytes != sizeof(struct frame_cut))
			return err_damaged(err, "the cut is malformed");
		if (ops->cut)
			ops->cut(arg, (const struct frame_cut *)payload);
		return 0;
	case FRAME_END:
		if (ops->end)
			ops->end(arg);
		return 0;
	default:
		return 0; /* of a later version: not for us */
	}
}

static int tell_all(const struct stream_listener *to, uint32_t type, const char *payload,
		    size_t bytes, uint64_t skipped, struct err *err)
{
	int r = 0;

	for (; to && r == 0; to = to->next) {
		if (skipped && to->ops->damage)
			to->ops->damage(to->arg, skipped);
		r = stream_frame(to->ops, to->arg, type, payload, bytes, err);
	}
	return r;
}

int stream_file_to(const char *path, const struct stream_listener *to, bool *out_torn,
		   struct err *err)
{
	struct recording_reader *r;
	struct progress progress = {0};
	uint32_t type;
	const char *payload;
	size_t bytes;

	int ret = recording_open(&r, path, err);
	if (ret < 0)
		return ret;
	for (const struct stream_listener *l = to; l; l = l->next)
		if (l->ops->version)
			l->ops->version(l->arg, recording_version(r));
	while ((ret = recording_next(r, &type, &payload, &bytes, err)) > 0) {
		ret = tell_all(to, type, payload, bytes, recording_skipped(r), err);
		if (ret < 0)
			break;
		progress_show(&progress, "reading", recording_offset(r), recording_size(r));
	}
	progress_done(&progress);
	if (out_torn)
		*out_torn = recording_torn(r);
	recording_reader_free(r);
	return ret;
}

int stream_file(const char *path, const struct stream_ops *ops, void *arg, bool *out_torn,
		struct err *err)
{
	return stream_file_to(path, &(struct stream_listener){ops, arg, NULL}, out_torn, err);
}
