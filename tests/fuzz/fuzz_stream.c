/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Frames of a recording that somebody sent us, into the whole of what makes rows. Input: a sequence
 * of type (1 byte), length (2 bytes, little endian), payload. A process is introduced first, so
 * that records have somebody to belong to. The same input is followed once more for a base, and
 * what that says is read like any other recording.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/watch/watch.h"
#include "memory/dump/calls.h"
#include "memory/track/track.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;
static uint64_t rows;

static void touch(const char *s, size_t n)
{
	for (size_t i = 0; s && i < n; i++)
		sink ^= (unsigned char)s[i];
}

static void on_row(void *arg, uint32_t proc, const struct row *row)
{
	struct analysis *watch = arg;

	(void)proc;
	watch->ops->row(watch, row);
	rows++;
	BUG_ON(row->event >= ROW_EVENT_END || row->type >= TYPE_END);
	BUG_ON(row->nattrs > ROW_MAX_ATTRS);
	touch(row->name, row->name_len);
	touch(row->c_stack, row->c_stack_len);
	touch(row->py_stack, row->py_stack_len);
	for (uint32_t i = 0; i < row->nparts; i++)
		touch(row->parts[i].layer, strlen(row->parts[i].layer));
	for (unsigned i = 0; i < row->nattrs; i++) {
		BUG_ON(row->attrs[i].key >= ATTR_KEY_END);
		if (row->attrs[i].kind == ATTR_TEXT)
			touch(row->attrs[i].text, row->attrs[i].text_len);
	}
}

static void on_watch(void *arg, uint32_t proc, const struct watch_sample *s)
{
	(void)proc;
	touch(s->op, s->op_len);
	touch(s->watched, s->watched_len);
	watch_add(arg, 1, s);
}

/* Whatever a process says, its configuration is one that somebody could have asked for. */
static void on_config(void *arg, uint32_t proc, const struct mem_config *cfg)
{
	(void)arg;
	(void)proc;
	BUG_ON(cfg->level & ~MEM_LEVEL_ALL || cfg->events & ~MEM_EVENTS_ALL);
	BUG_ON(cfg->dump_events & ~cfg->events || cfg->analysis & ~MEM_ANALYSIS_ALL);
	BUG_ON(cfg->c_depth > MEM_MAX_DEPTH || cfg->py_depth > MEM_MAX_DEPTH);
	BUG_ON(cfg->oom_top > MEM_MAX_OOM || cfg->format > MEM_DB);
	BUG_ON(!memchr(cfg->output_dir, 0, sizeof(cfg->output_dir)));
}

static void on_relabel(void *arg, uint32_t proc, uint32_t pid, uint64_t id, const char *owner)
{
	(void)arg;
	(void)proc;
	(void)pid;
	(void)id;
	touch(owner, strlen(owner));
}

static void on_call(void *arg, uint32_t proc, const struct trace_row *row)
{
	struct buf line = {0}, scratch = {0};

	(void)arg;
	(void)proc;
	if (!row)
		return;
	touch(row->text, row->text_len);
	trace_csv_add(&line, row, &scratch);
	BUG_ON(!line.len || line.data[line.len - 1] != '\n');
	buf_release(&line);
	buf_release(&scratch);
}

/* The base is ours: it is well formed, whatever it is made of. */
static int read_base(void *arg, const void *payload, size_t bytes)
{
	BUG_ON(stream_frame(&track_stream, arg, FRAME_BATCH, payload, bytes, NULL) < 0);
	return 0;
}

static void write_and_read_base(void *base, const struct track_sink *to)
{
	struct track *t = track_new(to);
	struct frame_proc p = {.pid = 1, .visible_devices = "3,2,1"};
	struct frame_cut cut = {.cuts = 1};

	track_checkpoint.describe(base, &cut);
	BUG_ON(stream_frame(&track_stream, t, FRAME_CUT, (char *)&cut, sizeof(cut), NULL) < 0);
	BUG_ON(stream_frame(&track_stream, t, FRAME_PROC, (char *)&p, sizeof(p), NULL) < 0);
	track_checkpoint.write(base, read_base, t);
	track_free(t);
}

/* A block of exactly its size, at a multiple of 8 as in the recorder. */
static void frame(struct track *t, uint32_t type, const uint8_t *payload, size_t n)
{
	void *copy = xmalloc(n);

	if (n)
		memcpy(copy, payload, n);
	struct err err = {0};
	int r = stream_frame(&track_stream, t, type, copy, n, &err);
	BUG_ON(r > 0 || (r < 0 && !err.text[0]));
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct analysis *watch = watch_new();
	struct track_sink to = {
		.row = on_row,
		.watch = on_watch,
		.config = on_config,
		.relabel = on_relabel,
		.call = on_call,
		.arg = watch,
	};
	struct track *t = track_new(&to), *base = track_checkpoint.open();
	struct frame_proc p = {.pid = 1, .visible_devices = "3,2,1"};

	frame(t, FRAME_PROC, (const uint8_t *)&p, sizeof(p));
	frame(base, FRAME_PROC, (const uint8_t *)&p, sizeof(p));
	while (size >= 3) {
		size_t n = data[1] | (size_t)data[2] << 8;
		uint32_t type = data[0];
		data += 3;
		size -= 3;
		if (n > size)
			n = size;
		frame(t, type, data, n);
		frame(base, type, data, n);
		data += n;
		size -= n;
	}
	write_and_read_base(base, &to);
	track_checkpoint.close(base);
	track_free(t);
	struct analysis_style style = {.top = 3};
	struct buf text = {0};
	watch->ops->text(watch, &style, &text);
	json_decref(watch->ops->json(watch, 3));
	buf_release(&text);
	analysis_free(watch);
	return 0;
}
