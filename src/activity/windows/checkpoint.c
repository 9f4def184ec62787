/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the dropped part of a recording (struct checkpoint_ops) comes to in activities: the windows
 * that are open, as they were requested. Names are memory's to keep
 * (memory/track/checkpoint_write.c).
 */
#include "recorder/consumer.h"

#include <stdlib.h>
#include <string.h>

#include "activity/windows/windows.h"
#include "base/containers/buf.h"
#include "base/mem.h"

#define MAX_BYTES (1u << 20) /* of the records of a window */

struct kept_window {
	struct kept_window *next;
	uint64_t id;
	struct buf records;
};

struct kept_process {
	struct kept_process *next;
	uint32_t proc;
	struct buf pieces; /* of a request that is not whole yet */
	struct buf groups;
	struct kept_window *windows;
};

struct checkpoint {
	struct kept_process *first;
};

static void *open_checkpoint(void)
{
	return xcalloc(1, sizeof(struct checkpoint));
}

static void free_window(struct kept_window *w)
{
	buf_release(&w->records);
	free(w);
}

static void free_process(struct kept_process *p)
{
	while (p->windows) {
		struct kept_window *next = p->windows->next;

		free_window(p->windows);
		p->windows = next;
	}
	buf_release(&p->pieces);
	buf_release(&p->groups);
	free(p);
}

static void drop_process(struct checkpoint *b, uint32_t proc)
{
	struct kept_process **at = &b->first;

	while (*at && (*at)->proc != proc)
		at = &(*at)->next;
	if (*at) {
		struct kept_process *p = *at;

		*at = p->next;
		free_process(p);
	}
}

static void close_checkpoint(void *state)
{
	struct checkpoint *b = state;

	while (b->first)
		drop_process(b, b->first->proc);
	free(b);
}

static struct kept_process *process_of(struct checkpoint *b, uint32_t proc)
{
	struct kept_process *p = b->first;

	while (p && p->proc != proc)
		p = p->next;
	if (!p) {
		p = xcalloc(1, sizeof(*p));
		p->proc = proc;
		p->next = b->first;
		b->first = p;
	}
	return p;
}

static void keep_bytes(struct buf *to, const void *bytes, size_t n)
{
	if (to->len + n <= MAX_BYTES)
		buf_add(to, bytes, n);
}

static void drop_window(struct kept_process *p, uint64_t id)
{
	struct kept_window **at = &p->windows;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	if (*at) {
		struct kept_window *w = *at;

		*at = w->next;
		free_window(w);
	}
}

static struct kept_window *add_window(struct kept_process *p, uint64_t id)
{
	struct kept_window *w = xcalloc(1, sizeof(*w));

	drop_window(p, id);
	w->id = id;
	w->next = p->windows;
	p->windows = w;
	return w;
}

/* A request: its pieces, then what says what it is for. */
static void keep_request(struct kept_process *p, struct kept_window *w, const struct rec *r)
{
	if (w) {
		keep_bytes(&w->records, p->pieces.data, p->pieces.len);
		keep_bytes(&w->records, r, r->size);
	}
	buf_clear(&p->pieces);
}

static void on_monitor(struct kept_process *p, const struct rec_monitor *r)
{
	struct kept_window *w = p->windows;

	while (w && w->id != r->window)
		w = w->next;
	switch (r->kind) {
	case MONITOR_REQUEST:
		keep_bytes(&p->pieces, r, r->head.size);
		break;
	case MONITOR_GROUPS:
		keep_bytes(&p->groups, r, r->head.size);
		break;
	case MONITOR_START:
		keep_request(p, add_window(p, r->window), &r->head);
		break;
	case MONITOR_CHANGE:
		keep_request(p, w, &r->head);
		break;
	case MONITOR_STOP:
		drop_window(p, r->window);
		break;
	default:
		break;
	}
}

static void on_record(void *state, uint32_t proc, uint32_t tid, const struct rec *r)
{
	(void)tid;
	if (r->type == REC_MONITOR)
		on_monitor(process_of(state, proc), (const struct rec_monitor *)r);
}

static void on_proc_end(void *state, const struct frame_proc_end *e)
{
	drop_process(state, e->proc);
}

/* The oldest window first. */
static void add_windows(const struct kept_window *w, struct buf *out)
{
	if (!w)
		return;
	add_windows(w->next, out);
	buf_add(out, w->records.data, w->records.len);
}

static int write_checkpoint(void *state, int (*batch)(void *arg, const void *payload, size_t bytes),
			    void *arg)
{
	struct checkpoint *b = state;
	struct buf out = {0};
	int r = 0;

	for (struct kept_process *p = b->first; p && r == 0; p = p->next) {
		struct batch_item head = {.kind = BATCH_RUN, .proc = p->proc};

		buf_clear(&out);
		buf_add(&out, &head, sizeof(head));
		buf_add(&out, p->groups.data, p->groups.len);
		add_windows(p->windows, &out);
		buf_add(&out, p->pieces.data, p->pieces.len);
		head.bytes = (uint32_t)out.len;
		memcpy(out.data, &head, sizeof(head));
		if (out.len > sizeof(head))
			r = batch(arg, out.data, out.len);
	}
	buf_release(&out);
	return r;
}

static const struct stream_ops listener = {.record = on_record, .proc_end = on_proc_end};

const struct checkpoint_ops activities_checkpoint = {
	.open = open_checkpoint,
	.close = close_checkpoint,
	.stream = &listener,
	.write = write_checkpoint,
};
