/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The files of a snapshot: their events up to the moment, and what was alive at it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "formats/pickle.h"
#include "memory/export/torch_snapshot_impl.h"
#include "wire/record.h"

#define LARGE_SEGMENT (2u << 20) /* larger ones are "large" to torch */
#define COPY_BYTES (1u << 20)
#define MAX_DEVICES 64 /* with higher numbers devices are counted */

/* A file that is being written. */
struct snapshot_file {
	struct torch_snapshot *snapshot;
	struct block_process *process;
	struct device_trace **devices; /* by the index that they have in the file; NULL: none */
	size_t ndevices;
	int fd;
	struct buf out;
	struct export_sums *sums;
	int failed; /* errno */
};

static void flush_file(struct snapshot_file *f, size_t above)
{
	if (f->out.len <= above)
		return;
	if (!f->failed)
		f->failed = -fs_write_all(f->fd, f->out.data, f->out.len, FS_HERE, NULL);
	buf_clear(&f->out);
}

static void add_key(struct buf *out, const char *key)
{
	pickle_text(out, key, strlen(key));
}

static void add_number(struct buf *out, const char *key, uint64_t v)
{
	add_key(out, key);
	pickle_number(out, v);
}

static void add_word(struct buf *out, const char *key, const char *v)
{
	add_key(out, key);
	pickle_text(out, v, strlen(v));
}

/* Events up to the moment, from the file and from memory. */
static void copy_events(struct snapshot_file *f, struct device_trace *t)
{
	uint64_t at = 0, from_file = t->cut < t->written ? t->cut : t->written;

	while (at < from_file && !f->failed) {
		size_t n = from_file - at < COPY_BYTES ? (size_t)(from_file - at) : COPY_BYTES;
		ssize_t r = fs_read_at(t->fd, buf_room(&f->out, n), n, at);

		if (r != (ssize_t)n) {
			f->failed = r < 0 ? (int)-r : EIO;
			return;
		}
		f->out.len += n;
		at += n;
		flush_file(f, 0);
	}
	buf_add(&f->out, t->tail.data, (size_t)(t->cut - from_file));
	f->sums->events += t->cut_events;
}

/*
 * The last event: the state was taken. PyTorch's page fails on categories among which none is
 * `unknown`, so this event has that one.
 */
static void add_snapshot_event(struct snapshot_file *f, struct device_trace *t)
{
	struct breakdown *c = owners_breakdown(f->snapshot->owners);

	pickle_dict(&f->out);
	pickle_mark(&f->out);
	pickle_get(&f->out, NAME_ACTION);
	pickle_get(&f->out, NAME_SNAPSHOT);
	add_number(&f->out, "addr", 0);
	add_number(&f->out, "size", 0);
	add_number(&f->out, "stream", 0);
	add_number(&f->out, "time_us", breakdown_moment(c, t->device)->time_ns / 1000);
	add_key(&f->out, "frames");
	pickle_list(&f->out);
	pickle_get(&f->out, NAME_CATEGORY);
	pickle_text(&f->out, "unknown", strlen("unknown"));
	pickle_set_items(&f->out);
	pickle_append(&f->out);
}

static void add_traces(struct snapshot_file *f)
{
	add_key(&f->out, "device_traces");
	pickle_list(&f->out);
	for (size_t i = 0; i < f->ndevices; i++) {
		pickle_list(&f->out);
		if (f->devices[i])
			copy_events(f, f->devices[i]);
		if (f->devices[i] && f->devices[i]->category_of.count)
			add_snapshot_event(f, f->devices[i]);
		pickle_append(&f->out);
	}
}

/* --- segments --- */

static int by_address(const void *pa, const void *pb)
{
	const struct block *a = *(struct block *const *)pa, *b = *(struct block *const *)pb;

	return ORDER(a->ptr, b->ptr) ?: ORDER(b->bytes, a->bytes) ?: ORDER(a->seq, b->seq);
}

static void add_block(struct snapshot_file *f, struct device_trace *t, const struct block *b,
		      uint64_t bytes, bool active)
{
	struct buf *out = &f->out;
	size_t len;
	const char *category = active ? torch_category(f->snapshot->base.blocks, b, &len) : NULL;

	pickle_dict(out);
	pickle_mark(out);
	add_number(out, "address", b->ptr);
	add_number(out, "size", bytes);
	add_number(out, "requested_size", active ? b->bytes : 0);
	add_word(out, "state", active ? "active_allocated" : "inactive");
	pickle_get(out, NAME_FRAMES);
	torch_frames_add(f->snapshot, t, active ? b->stack : 0, out);
	if (category) {
		pickle_get(out, NAME_CATEGORY);
		pickle_text(out, category, len);
	}
	pickle_set_items(out);
	pickle_append(out);
	f->sums->blocks += active;
	f->sums->bytes += active ? bytes : 0;
}

static void add_gap(struct snapshot_file *f, struct device_trace *t, uint64_t from, uint64_t to)
{
	struct block gap = {.ptr = from};

	if (to > from)
		add_block(f, t, &gap, to - from, false);
}

/* The blocks of a segment; inner[0 .. n) are sorted, and what lies in another block is its. */
static uint64_t add_blocks(struct snapshot_file *f, struct device_trace *t, uint64_t from,
			   uint64_t to, struct block **inner, size_t n)
{
	uint64_t at = from, active = 0;

	for (size_t i = 0; i < n; i++) {
		const struct block *b = inner[i];
		uint64_t bytes = b->bytes < to - b->ptr ? b->bytes : to - b->ptr;

		if (b->ptr < at)
			continue;
		add_gap(f, t, at, b->ptr);
		add_block(f, t, b, bytes, true);
		active += bytes;
		at = b->ptr + bytes;
	}
	add_gap(f, t, at, to);
	return active;
}

static void add_segment(struct snapshot_file *f, size_t index, struct device_trace *t,
			const struct block *segment, struct block **inner, size_t n)
{
	uint64_t from = segment->ptr, to = from + segment->bytes, active;
	struct buf *out = &f->out;
	struct block *whole = (struct block *)(uintptr_t)segment;

	if (!n && !breakdown_is_carved(segment)) {
		inner = &whole;
		n = 1;
	}
	pickle_dict(out);
	pickle_mark(out);
	add_number(out, "device", index);
	add_number(out, "address", from);
	add_number(out, "total_size", segment->bytes);
	add_number(out, "stream", 0);
	add_word(out, "segment_type", segment->bytes > LARGE_SEGMENT ? "large" : "small");
	add_key(out, "segment_pool_id");
	pickle_number(out, 0);
	pickle_number(out, 0);
	pickle_pair(out);
	add_key(out, "is_expandable");
	pickle_bool(out, false);
	pickle_get(out, NAME_FRAMES);
	torch_frames_add(f->snapshot, t, segment->stack, out);
	add_key(out, "blocks");
	pickle_list(out);
	active = add_blocks(f, t, from, to, inner, n);
	add_number(out, "allocated_size", active);
	add_number(out, "active_size", active);
	add_number(out, "requested_size", active);
	pickle_set_items(out);
	pickle_append(out);
	flush_file(f, COPY_BYTES);
}

/* What no driver block contains: pools that map their memory, or were there before. */
static void add_outside(struct snapshot_file *f, size_t index, struct device_trace *t,
			struct block_list *pools, size_t *at, uint64_t up_to)
{
	for (; *at < pools->n && pools->at[*at]->ptr < up_to; ++*at)
		add_segment(f, index, t, pools->at[*at], &pools->at[*at], 1);
}

static void add_device(struct snapshot_file *f, size_t index)
{
	struct device_trace *t = f->devices[index];
	struct block_list all = {0}, drivers = {0}, pools = {0};
	size_t next = 0;

	/* Numbers of the memo that were given behind the moment are in no file. */
	hmap_release(&t->frames_of);
	hmap_release(&t->text_of);
	t->frames_of = t->text_of = (struct hmap){0};
	breakdown_alive(owners_breakdown(f->snapshot->owners), t->device, &all);
	for (size_t i = 0; i < all.n; i++)
		block_list_add(blocks_is_driver(all.at[i]->pool->type) ? &drivers : &pools,
			       all.at[i]);
	SORT(drivers.at, drivers.n, by_address);
	SORT(pools.at, pools.n, by_address);
	for (size_t i = 0; i < drivers.n; i++) {
		const struct block *d = drivers.at[i];
		size_t first;

		add_outside(f, index, t, &pools, &next, d->ptr);
		for (first = next; next < pools.n && pools.at[next]->ptr < d->ptr + d->bytes;)
			next++;
		add_segment(f, index, t, d, pools.at + first, next - first);
	}
	add_outside(f, index, t, &pools, &next, UINT64_MAX);
	f->sums->devices++;
	free(all.at);
	free(drivers.at);
	free(pools.at);
}

/* --- files --- */

/* Names that come often, each with its number. */
static void add_names(struct buf *out)
{
	add_key(out, "exported_by");
	pickle_list(out);
	add_key(out, "sonde " SONDE_VERSION);
	pickle_append(out);
	for (unsigned i = 0; i < NAME_END; i++) {
		add_key(out, torch_names[i]);
		pickle_put(out, i);
		pickle_append(out);
	}
}

/* By number, the host behind the others. */
static void order_devices(struct snapshot_file *f)
{
	const struct block_process *p = f->process;
	size_t last = 0, n = 0;
	bool high = false;

	for (size_t i = 0; i < p->ndevices; i++) {
		uint32_t d = p->devices[i]->device;

		if (d == DEV_HOST || !torch_trace(p->devices[i]))
			continue;
		high |= d >= MAX_DEVICES;
		last = d + 1 > last ? d + 1 : last;
	}
	f->devices = xcalloc(MAX_DEVICES + p->ndevices + 1, sizeof(struct device_trace *));
	n = high ? 0 : last;
	for (size_t i = 0; i < p->ndevices; i++) {
		uint32_t d = p->devices[i]->device;
		struct device_trace *t = torch_trace(p->devices[i]);

		if (t && d != DEV_HOST)
			f->devices[high ? n++ : d] = t;
	}
	for (size_t i = 0; i < p->ndevices; i++)
		if (p->devices[i]->device == DEV_HOST && torch_trace(p->devices[i]))
			f->devices[n++] = torch_trace(p->devices[i]);
	f->ndevices = n;
}

static void write_file(struct snapshot_file *f)
{
	struct buf *out = &f->out;

	pickle_begin(out);
	pickle_dict(out);
	pickle_mark(out);
	add_names(out);
	add_traces(f);
	add_key(out, "segments");
	pickle_list(out);
	for (size_t i = 0; i < f->ndevices; i++)
		if (f->devices[i] && f->devices[i]->cut)
			add_device(f, i);
	pickle_set_items(out);
	pickle_end(out);
	flush_file(f, 0);
}

/* "snapshot.pickle", or "snapshot_4711.pickle" if there are several. */
static void name_file(const char *path, uint32_t pid, bool several, struct buf *out)
{
	const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
	const char *end = dot && dot > (slash ? slash + 1 : path) ? dot : path + strlen(path);

	if (!several) {
		buf_add_str(out, path);
		return;
	}
	buf_add(out, path, (size_t)(end - path));
	buf_addf(out, "_%u%s", pid, end);
}

static int write_process(struct torch_snapshot *s, struct block_process *p, bool several,
			 struct export_sums *sums, struct buf *out_files, struct err *err)
{
	struct snapshot_file f = {.snapshot = s, .process = p, .sums = sums};
	struct buf path = {0};
	int r = 0;

	name_file(s->options.path, p->pid, several, &path);
	order_devices(&f);
	f.fd = fs_open_output(buf_str(&path), O_CREAT | O_TRUNC, 0644, err);
	if (f.fd < 0) {
		r = f.fd;
	} else {
		write_file(&f);
		if (close(f.fd) < 0 && !f.failed)
			f.failed = EIO;
		r = f.failed ? err_sys(err, -f.failed, "cannot write '%s'", buf_str(&path)) : 0;
	}
	if (r == 0)
		buf_addf(out_files, "%s\n", buf_str(&path));
	free(f.devices);
	buf_release(&f.out);
	buf_release(&path);
	return r;
}

struct finish {
	struct torch_snapshot *s;
	struct block_process **list; /* with something to write */
	size_t n, cap;
};

/* The end of the rows decides the rest: what is a segment, and where the moment is. */
static void finish_device(void *arg, struct block_device *d)
{
	struct finish *x = arg;
	struct device_trace *t = torch_trace(d);
	const struct breakdown_moment *m = breakdown_moment(owners_breakdown(x->s->owners), d);
	struct block_walk w = {.blocks = x->s->base.blocks, .process = d->process};

	if (!t)
		return;
	if (m->at_end || m->rows != t->moment_rows) {
		t->cut = trace_bytes(t);
		t->cut_events = t->events;
	}
	for (struct block *b; (b = blocks_next(&w));)
		if (b->pool->device == d && blocks_is_driver(b->pool->type) &&
		    breakdown_is_carved(b))
			torch_mark_segment(x->s, t, b);
	if (!x->n || x->list[x->n - 1] != d->process)
		LIST_ADD(x->list, x->n, x->cap, d->process);
}

int torch_snapshot_write(struct analysis *a, struct export_sums *out, struct buf *out_files,
			 struct err *err)
{
	struct torch_snapshot *s = (struct torch_snapshot *)a;
	struct finish x = {.s = s};
	int r = owners_reached(s->owners, err);

	*out = (struct export_sums){0};
	if (r < 0)
		return r;
	owners_each_device(s->owners, finish_device, &x);
	if (s->err.code) {
		*err = s->err;
		r = s->err.code;
	} else if (!x.n) {
		r = err_set(err, -ENODATA, "there are no allocations in these rows");
	}
	for (size_t i = 0; i < x.n && r == 0; i++)
		r = write_process(s, x.list[i], x.n > 1, out, out_files, err);
	free(x.list);
	return r;
}
