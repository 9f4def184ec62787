/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The events of a snapshot, as they come. */
#include "memory/export/torch_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "formats/pickle.h"
#include "memory/export/torch_snapshot_impl.h"

#define TAIL_BYTES (256u << 10)
#define OWN_EVENT 3 /* of struct block's own[]: where the action of its event stands, and one */

const char *const torch_names[NAME_END] = {
	[NAME_ACTION] = "action",
	[NAME_ADDR] = "addr",
	[NAME_SIZE] = "size",
	[NAME_STREAM] = "stream",
	[NAME_FRAMES] = "frames",
	[NAME_TIME] = "time_us",
	[NAME_CATEGORY] = "category",
	[NAME_FILENAME] = "filename",
	[NAME_LINE] = "line",
	[NAME_NAME] = "name",
	[NAME_DEVICE_FREE] = "device_free",
	[NAME_ALLOC] = "alloc",
	[NAME_FREE_REQUESTED] = "free_requested",
	[NAME_FREE_COMPLETED] = "free_completed",
	[NAME_SEGMENT_ALLOC] = "segment_alloc",
	[NAME_SEGMENT_FREE] = "segment_free",
	[NAME_OOM] = "oom",
	[NAME_SNAPSHOT] = "snapshot",
};

/* --- values --- */

/* A text that may come again. */
static void put_text(struct torch_snapshot *s, struct device_trace *t, const char *interned,
		     struct buf *out)
{
	uint64_t number = hmap_get(&t->text_of, (uintptr_t)interned);

	if (number != HMAP_NONE) {
		pickle_get(out, (uint32_t)number);
		return;
	}
	pickle_text(out, interned, strlen(interned));
	pickle_put(out, s->next_number);
	hmap_put(&t->text_of, (uintptr_t)interned, s->next_number++);
}

void torch_frames_add(struct torch_snapshot *s, struct device_trace *t, uint32_t stack,
		      struct buf *out)
{
	uint64_t number = hmap_get(&t->frames_of, stack);
	const struct stack_frames *frames;

	if (number != HMAP_NONE) {
		pickle_get(out, (uint32_t)number);
		return;
	}
	frames = block_frames_stack(&s->frames, &s->base.blocks->stacks, stack);
	pickle_list(out);
	for (unsigned i = 0; i < frames->n; i++) {
		pickle_dict(out);
		pickle_mark(out);
		pickle_get(out, NAME_FILENAME);
		put_text(s, t, frames->list[i].file, out);
		pickle_get(out, NAME_LINE);
		pickle_number(out, (uint64_t)(frames->list[i].line > 0 ? frames->list[i].line : 0));
		pickle_get(out, NAME_NAME);
		put_text(s, t, frames->list[i].name, out);
		pickle_set_items(out);
		pickle_append(out);
	}
	pickle_put(out, s->next_number);
	hmap_put(&t->frames_of, stack, s->next_number++);
}

/*
 * Which kind of memory it is, not whose: "weight" of PTA@model@weight, "ops" of PTA@ops@aten::mm. A
 * viewer has a colour for each.
 */
const char *torch_category(const struct blocks *blocks, const struct block *b, size_t *len)
{
	const char *owner = text_numbers_text(&blocks->owners, b->owner);
	const char *at = strchr(owner, '@');

	if (!at)
		return NULL;
	at++;
	if (!strncmp(at, "model@", 6))
		at += 6;
	*len = strcspn(at, "@");
	return *len ? at : NULL;
}

static void add_category(struct torch_snapshot *s, struct device_trace *t, const struct block *b,
			 struct buf *out)
{
	size_t len;
	uint64_t number = hmap_get(&t->category_of, b->owner);
	const char *text = torch_category(s->base.blocks, b, &len);

	if (!text)
		return;
	pickle_get(out, NAME_CATEGORY);
	if (number != HMAP_NONE) {
		pickle_get(out, (uint32_t)number);
		return;
	}
	pickle_text(out, text, len);
	pickle_put(out, s->next_number);
	hmap_put(&t->category_of, b->owner, s->next_number++);
}

/* --- events --- */

/* A file beside the output that nobody else sees: its name is gone at once. */
static int open_unnamed(const char *beside, struct err *err)
{
	static unsigned count;
	char *path = xasprintf("%s.%d.%u.tmp", beside, (int)getpid(), count++);
	int fd = fs_open(path, O_CREAT | O_EXCL | O_RDWR, 0600, err);

	if (fd >= 0)
		(void)fs_unlink(path, NULL);
	free(path);
	return fd;
}

static void flush_tail(struct torch_snapshot *s, struct device_trace *t)
{
	int r;

	if (s->err.code)
		return;
	if (t->fd < 0)
		t->fd = open_unnamed(s->options.path, &s->err);
	if (t->fd < 0)
		return;
	r = fs_write_all(t->fd, t->tail.data, t->tail.len, (int64_t)t->written, NULL);
	if (r < 0) {
		err_sys(&s->err, r, "cannot write a temporary file beside '%s'", s->options.path);
		return;
	}
	t->written += t->tail.len;
	buf_clear(&t->tail);
}

static struct device_trace *trace_of(struct torch_snapshot *s, struct block_device *d)
{
	struct device_trace *t = torch_trace(d);

	if (t)
		return t;
	t = xcalloc(1, sizeof(*t));
	t->device = d;
	t->fd = -1;
	LIST_ADD(s->traces, s->ntraces, s->cap_traces, t);
	d->own[2] = (uintptr_t)t;
	return t;
}

/* Returns where the action stands. */
static uint64_t add_event(struct torch_snapshot *s, struct device_trace *t, enum torch_name action,
			  const struct block *b, uint64_t time_ns)
{
	struct buf *out = &t->tail;

	if (out->len > TAIL_BYTES)
		flush_tail(s, t);
	pickle_dict(out);
	pickle_mark(out);
	pickle_get(out, NAME_ACTION);
	uint64_t at = trace_bytes(t);
	pickle_get(out, action);
	pickle_get(out, NAME_ADDR);
	pickle_number(out, b->ptr);
	pickle_get(out, NAME_SIZE);
	pickle_number(out, b->bytes);
	pickle_get(out, NAME_STREAM);
	pickle_number(out, 0);
	pickle_get(out, NAME_TIME);
	pickle_number(out, time_ns / 1000);
	pickle_get(out, NAME_FRAMES);
	torch_frames_add(s, t, b->stack, out);
	if (action == NAME_ALLOC)
		add_category(s, t, b, out);
	pickle_set_items(out);
	pickle_append(out);
	t->events++;
	return at;
}

void torch_mark_segment(struct torch_snapshot *s, struct device_trace *t, const struct block *b)
{
	struct buf action = {0};
	uint64_t at = b->own[OWN_EVENT] - 1;

	if (!b->own[OWN_EVENT] || s->err.code)
		return;
	pickle_get(&action, NAME_SEGMENT_ALLOC);
	if (at >= t->written)
		memcpy(t->tail.data + (at - t->written), action.data, action.len);
	else if (fs_write_all(t->fd, action.data, action.len, (int64_t)at, NULL) < 0)
		err_sys(&s->err, -errno, "cannot write a temporary file beside '%s'",
			s->options.path);
	buf_release(&action);
}

static void add_free(struct torch_snapshot *s, struct device_trace *t, const struct block *b,
		     uint64_t time_ns)
{
	if (blocks_is_driver(b->pool->type) && breakdown_is_carved(b)) {
		torch_mark_segment(s, t, b);
		add_event(s, t, NAME_SEGMENT_FREE, b, time_ns);
		return;
	}
	add_event(s, t, NAME_FREE_REQUESTED, b, time_ns);
	add_event(s, t, NAME_FREE_COMPLETED, b, time_ns);
}

/* out of memory: the newest words of the allocator about it. */
static void add_oom(struct torch_snapshot *s, struct device_trace *t, const struct row *row)
{
	struct buf *out = &t->tail;
	uint64_t size = 0, free_bytes = 0;

	(void)(row_number(row, ATTR_REQ_SIZE, &size) || row_number(row, ATTR_SIZE, &size));
	(void)(row_number(row, ATTR_FREE_MEM, &free_bytes) ||
	       row_number(row, ATTR_FREE, &free_bytes));
	pickle_dict(out);
	pickle_mark(out);
	pickle_get(out, NAME_ACTION);
	pickle_get(out, NAME_OOM);
	pickle_get(out, NAME_DEVICE_FREE);
	pickle_number(out, free_bytes);
	pickle_get(out, NAME_SIZE);
	pickle_number(out, size);
	pickle_get(out, NAME_STREAM);
	pickle_number(out, 0);
	pickle_get(out, NAME_TIME);
	pickle_number(out, row->time_ns / 1000);
	pickle_get(out, NAME_FRAMES);
	torch_frames_add(s, t, 0, out);
	pickle_set_items(out);
	pickle_append(out);
	t->events++;
}

/* --- rows --- */

/* The moment may have been chosen by this row, or by one of another device before it. */
static bool moment_is_new(struct torch_snapshot *s, struct device_trace *t)
{
	struct breakdown *c = owners_breakdown(s->owners);
	const struct breakdown_moment *m = breakdown_moment(c, t->device);

	return m->taken && m->rows != t->moment_rows;
}

static void note_moment(struct torch_snapshot *s, struct device_trace *t)
{
	t->moment_rows = breakdown_moment(owners_breakdown(s->owners), t->device)->rows;
	t->cut = trace_bytes(t);
	t->cut_events = t->events;
}

static void add_change(struct torch_snapshot *s, struct device_trace *t,
		       const struct block_change *c, const struct row *row)
{
	if (c->what == BLOCKS_ALLOC) {
		uint64_t at = add_event(s, t, NAME_ALLOC, c->block, row->time_ns);

		if (blocks_is_driver(c->pool->type))
			c->block->own[OWN_EVENT] = at + 1;
	} else if (c->what == BLOCKS_FREE && c->block) {
		add_free(s, t, c->block, row->time_ns);
	}
}

static struct block_device *find_device(const struct block_process *p, uint32_t device)
{
	for (size_t i = 0; i < p->ndevices; i++)
		if (p->devices[i]->device == device)
			return p->devices[i];
	return NULL;
}

static void snapshot_row(struct analysis *a, const struct row *row)
{
	struct torch_snapshot *s = (struct torch_snapshot *)a;
	const struct block_change *c;
	struct block_device *d = NULL;

	s->owners->ops->row(s->owners, row);
	c = owners_change(s->owners);
	if (c->what == BLOCKS_ALLOC || c->what == BLOCKS_FREE)
		d = c->pool->device;
	else if (row->type == TYPE_OOM_TRIGGER && c->process)
		d = find_device(c->process, row->device);
	if (!d)
		return;
	struct device_trace *t = trace_of(s, d);
	bool before =
		moment_is_new(s, t) && breakdown_moment(owners_breakdown(s->owners), d)->rows <
					       owners_breakdown(s->owners)->rows;
	if (before)
		note_moment(s, t);
	if (row->type == TYPE_OOM_TRIGGER)
		add_oom(s, t, row);
	else
		add_change(s, t, c, row);
	if (moment_is_new(s, t))
		note_moment(s, t);
}

static void snapshot_process(struct analysis *a, uint32_t pid, const char *command)
{
	struct torch_snapshot *s = (struct torch_snapshot *)a;

	s->owners->ops->process(s->owners, pid, command);
}

static bool snapshot_unordered(const struct analysis *a)
{
	const struct torch_snapshot *s = (const struct torch_snapshot *)a;

	return s->owners->ops->unordered(s->owners);
}

static void snapshot_free(struct analysis *a)
{
	struct torch_snapshot *s = (struct torch_snapshot *)a;

	for (size_t i = 0; i < s->ntraces; i++) {
		struct device_trace *t = s->traces[i];

		if (t->fd >= 0)
			close(t->fd);
		buf_release(&t->tail);
		hmap_release(&t->frames_of);
		hmap_release(&t->category_of);
		hmap_release(&t->text_of);
		free(t);
	}
	free(s->traces);
	block_frames_release(&s->frames);
	analysis_free(s->owners);
	free(s);
}

static const struct analysis_ops ops = {
	.name = "torch",
	.attrs =
		BREAKDOWN_ATTRS | 1ull << ATTR_REQ_SIZE | 1ull << ATTR_FREE_MEM | 1ull << ATTR_FREE,
	.row = snapshot_row,
	.process = snapshot_process,
	.unordered = snapshot_unordered,
	.free = snapshot_free,
};

struct analysis *torch_snapshot_new(const struct torch_snapshot_options *o)
{
	struct torch_snapshot *s = xcalloc(1, sizeof(*s));

	s->options = *o;
	s->owners = owners_new(&o->at);
	s->next_number = NAME_END;
	s->base = (struct analysis){.ops = &ops, .blocks = s->owners->blocks};
	return &s->base;
}
