/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A track with a sink that writes each row as one short line, for comparison with text. */
#ifndef SONDE_TESTS_UNIT_ROWTEXT_H
#define SONDE_TESTS_UNIT_ROWTEXT_H

#include "base/containers/buf.h"
#include "memory/track/track.h"
#include "records.h"
#include "test.h"

static struct buf rowtext;
static struct track *rowtext_track;

/* `MALLOC HAL - @5 t7 d0 allocation_id:1,…`, with `p1 ` before it for processes other than 0
 * and `hidden ` for rows that no dump gets. */
static inline void rowtext_row(void *arg, uint32_t proc, const struct row *r)
{
	(void)arg;
	if (proc)
		buf_addf(&rowtext, "p%u ", proc);
	if (r->hidden)
		buf_add_str(&rowtext, "hidden ");
	buf_addf(&rowtext, "%s %s %.*s @%llu t%u d%u ", row_event_text(r->event),
		 row_type_text(r->type, ROW_SEED), r->name ? (int)r->name_len : 1,
		 r->name ? r->name : "-", (unsigned long long)r->time_ns, r->tid, r->device);
	for (unsigned i = 0; i < r->nattrs; i++) {
		const struct attr *a = &r->attrs[i];
		buf_addf(&rowtext, "%s", i ? "," : "");
		if (a->key != ATTR_RAW)
			buf_addf(&rowtext, "%s:", attr_key_text(a->key, ROW_SEED));
		if (a->kind == ATTR_TEXT)
			buf_addf(&rowtext, "%.*s", (int)a->text_len, a->text);
		else
			buf_addf(&rowtext, a->kind == ATTR_HEX ? "%llx" : "%llu",
				 (unsigned long long)a->number);
	}
	if (r->c_stack_len)
		buf_addf(&rowtext, " |%.*s", (int)r->c_stack_len, r->c_stack);
	buf_add_char(&rowtext, '\n');
}

static inline void rowtext_end(void *arg, const struct frame_proc_end *e)
{
	(void)arg;
	buf_addf(&rowtext, "end %u\n", e->proc);
}

static inline void rowtext_frame(uint32_t type, const void *payload, size_t n)
{
	CHECK_INT(stream_frame(&track_stream, rowtext_track, type, payload, n, NULL), 0);
}

/* A new track with this configuration (JSON) and process 0, which sees `visible` devices. */
static inline void rowtext_begin(const char *config, const char *visible)
{
	struct track_sink sink = {.row = rowtext_row, .proc_end = rowtext_end};
	struct frame_proc p = {.pid = 100, .exe = "/bin/job"};

	track_free(rowtext_track);
	rowtext_track = track_new(&sink);
	rowtext_frame(FRAME_SESSION, config, strlen(config));
	snprintf(p.visible_devices, sizeof(p.visible_devices), "%s", visible);
	rowtext_frame(FRAME_PROC, &p, sizeof(p));
	buf_clear(&rowtext);
}

/* Feeds records of one thread and empties the buffer. */
static inline void rowtext_feed(uint32_t proc, uint32_t tid, struct buf *recs)
{
	struct buf batch = {0};

	add_run(&batch, proc, tid, recs);
	rowtext_frame(FRAME_BATCH, batch.data, batch.len);
	buf_release(&batch);
	buf_clear(recs);
}

/* The rows since the last look. */
static inline void rowtext_check_at(int line, const char *want)
{
	const char *got = buf_str(&rowtext);

	if (strcmp(got, want)) {
		fprintf(stderr, "line %d, got\n%swant\n%s", line, got, want);
		exit(1);
	}
	buf_clear(&rowtext);
}

#define ROWS(want) rowtext_check_at(__LINE__, want)

static inline void rowtext_done(void)
{
	track_free(rowtext_track);
	buf_release(&rowtext);
}

#endif
