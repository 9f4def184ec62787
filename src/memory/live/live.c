/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Follows the file: frames to rows, rows to blocks, and whether somebody still writes it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/proc.h"
#include "memory/live/live_impl.h"
#include "recorder/session.h"
#include "wire/control_page.h"

#define LOOK_AT_CLOCK 16 /* frames */

/* --- what the recording says --- */

static uint32_t pid_of(const struct live *l, uint32_t proc)
{
	return proc < l->cap_pids ? l->pids[proc] : UINT32_MAX;
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	struct live *l = arg;
	size_t had = l->cap_losses, len = sizeof(p->cmdline);
	struct buf command = {0};

	l->pids = xgrow(l->pids, &l->cap_pids, p->proc + 1u, sizeof(*l->pids));
	l->pids[p->proc] = p->pid;
	l->losses = xgrow(l->losses, &l->cap_losses, p->proc + 1u, sizeof(*l->losses));
	memset(l->losses + had, 0, (l->cap_losses - had) * sizeof(*l->losses));
	while (len && !p->cmdline[len - 1])
		len--;
	proc_add_printable(&command, p->cmdline, len);
	processes_add(&l->processes, p, buf_str(&command));
	blocks_process(l->blocks, p->pid, buf_str(&command));
	buf_release(&command);
}

static void on_row(void *arg, uint32_t proc, const struct row *row)
{
	struct live *l = arg;
	struct block_change c;

	(void)proc;
	if (row->time_ns > l->newest_ns)
		l->newest_ns = row->time_ns;
	blocks_add(l->blocks, row, &c);
	if (c.what == BLOCKS_OTHER || c.what == BLOCKS_ACCESS || !c.block)
		return;
	live_site_row(l, &c);
	live_course_row(l, &c, row->time_ns);
}

/* A label that has come after its block. The blocks learn it as from an access. */
static void on_relabel(void *arg, uint32_t proc, uint32_t pid, uint64_t allocation_id,
		       const char *owner)
{
	struct live *l = arg;
	struct row row = {.event = ROW_ACCESS, .type = TYPE_READ, .pid = pid, .device = DEV_NONE};
	struct block_change c;

	(void)proc;
	row.time_ns = l->blocks->last_ns;
	row_attr_number(&row, ATTR_ALLOCATION_ID, allocation_id);
	row_attr_text(&row, ATTR_OWNER, owner, strlen(owner));
	if (blocks_add(l->blocks, &row, &c) == BLOCKS_ACCESS && c.block)
		live_site_row(l, &c);
}

static void on_usage(void *arg, uint32_t proc, uint64_t time_ns, const struct rec_usage *u,
		     uint64_t fading_bytes)
{
	struct live *l = arg;
	struct process_blocks held = {0};
	uint32_t pid = pid_of(l, proc);

	if (blocks_of_host(l->blocks, pid, &held.bytes, &held.blocks, &held.steps, &held.torn_down))
		held.most_bytes = blocks_most_of_host(l->blocks, pid);
	held.bytes += fading_bytes;
	processes_sample(&l->processes, pid, time_ns, u, &held);
}

static void on_process(void *arg, uint32_t proc, const struct rec_process *r)
{
	struct live *l = arg;

	processes_note(&l->processes, pid_of(l, proc), r, NULL);
}

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct live *l = arg;

	processes_end(&l->processes, pid_of(l, e->proc), true);
	l->loss.events += e->lost_events;
	l->loss.stacks += e->lost_stacks;
	l->loss.damaged_bytes += e->damaged;
	if (e->proc < l->cap_losses)
		l->losses[e->proc] = (struct stream_losses){0}; /* is in the sum now */
}

/* --- frames --- */

static void hear_session(void *arg, const char *json, size_t len)
{
	track_stream.session(((struct live *)arg)->track, json, len);
}

static void hear_proc(void *arg, const struct frame_proc *p)
{
	struct live *l = arg;

	l->ended = false;
	track_stream.proc(l->track, p);
}

static void hear_stack(void *arg, uint32_t proc, uint32_t id, const uint64_t *pc, uint32_t depth)
{
	track_stream.stack(((struct live *)arg)->track, proc, id, pc, depth);
}

static void hear_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	track_stream.record(((struct live *)arg)->track, proc, tid, r);
}

static void hear_count(void *arg, const struct batch_count *c)
{
	struct live *l = arg;

	if (c->head.proc < l->cap_losses)
		stream_losses_count(&l->losses[c->head.proc], c);
	track_stream.count(l->track, c);
}

static void hear_batch(void *arg, const struct batch_count *c)
{
	track_stream.batch(((struct live *)arg)->track, c);
}

static void hear_proc_end(void *arg, const struct frame_proc_end *e)
{
	track_stream.proc_end(((struct live *)arg)->track, e);
}

static void hear_cut(void *arg, const struct frame_cut *c)
{
	struct live *l = arg;

	track_stream.cut(l->track, c);
	l->processes.dropped.yes = true;
	l->processes.dropped.cut = *c;
}

static void hear_end(void *arg)
{
	((struct live *)arg)->ended = true;
}

static const struct stream_ops hear = {
	.session = hear_session,
	.proc = hear_proc,
	.stack = hear_stack,
	.record = hear_record,
	.count = hear_count,
	.batch = hear_batch,
	.proc_end = hear_proc_end,
	.cut = hear_cut,
	.end = hear_end,
};

static void forget_all(struct live *l)
{
	track_free(l->track);
	blocks_free(l->blocks);
	processes_release(&l->processes);
	recording_reader_free(l->reader);
	live_sites_release(l);
	live_courses_release(l);
	free(l->pids);
	free(l->losses);
	l->pids = NULL;
	l->losses = NULL;
	l->cap_pids = l->cap_losses = 0;
	l->track = NULL;
	l->blocks = NULL;
	l->reader = NULL;
}

/* From the beginning of the file that has the name now. */
static int begin_reading(struct live *l, struct err *err)
{
	const struct track_sink sink = {.proc = on_proc,
					.row = on_row,
					.relabel = on_relabel,
					.usage = on_usage,
					.process = on_process,
					.proc_end = on_proc_end,
					.arg = l};

	forget_all(l);
	l->processes = (struct processes){.recording = true};
	l->loss = (struct loss){0};
	l->ended = false;
	l->track = track_new(&sink);
	l->blocks = blocks_new();
	int r = recording_open(&l->reader, l->path, err);
	if (r == 0)
		r = recording_refresh(l->reader, l->path, err);
	if (r >= 0)
		track_file_grows(l->track, l->path);
	return r < 0 ? r : 0;
}

int live_open(struct live **out, const char *path, struct err *err)
{
	struct live *l = xcalloc(1, sizeof(*l));
	struct buf file = {0};
	int r = recording_find(path, &file, err);

	if (r == 0) {
		l->path = xstrdup(buf_str(&file));
		const char *slash = strrchr(l->path, '/');
		l->dir = slash ? xstrndup(l->path, (size_t)(slash - l->path)) : xstrdup(".");
		r = begin_reading(l, err);
	}
	buf_release(&file);
	if (r < 0) {
		live_free(l);
		return r;
	}
	*out = l;
	return 0;
}

void live_free(struct live *l)
{
	if (!l)
		return;
	forget_all(l);
	free(l->path);
	free(l->dir);
	free(l);
}

/* Does somebody write it? What is said of a recording that was copied is that it is cut off. */
static enum live_state find_state(const struct live *l)
{
	struct control_page page;

	if (session_read(l->dir, &page, NULL) < 0)
		return l->ended ? LIVE_ENDED : LIVE_KILLED;
	if (page.state == SESSION_NEW)
		return LIVE_RUNNING;
	if (page.state == SESSION_LIVE)
		return session_is_live(l->dir, &page) ? LIVE_RUNNING : LIVE_KILLED;
	return LIVE_ENDED;
}

/* 1: time is up; 0: there is no whole frame any more. */
static int read_frames(struct live *l, uint64_t until_ns, struct err *err)
{
	const char *payload;
	uint32_t type;
	size_t bytes;
	int r;

	for (unsigned i = 0; (r = recording_next(l->reader, &type, &payload, &bytes, err)) > 0;) {
		l->loss.unread_bytes += recording_skipped(l->reader);
		r = stream_frame(&hear, l, type, payload, bytes, err);
		if (r < 0)
			return r;
		if (++i % LOOK_AT_CLOCK == 0 && clock_mono_ns() >= until_ns)
			return 1;
	}
	return r;
}

int live_read(struct live *l, uint64_t until_ns, struct err *err)
{
	struct err gone = {0};
	/* first: what a recorder has written before it left is behind this */
	enum live_state state = find_state(l);
	int r = recording_refresh(l->reader, l->path, &gone);

	if (r == -ESTALE) { /* --max-size, or `recover` */
		r = begin_reading(l, err);
		if (r < 0)
			return r;
	} else if (r < 0) {
		l->state = LIVE_KILLED; /* somebody has deleted it */
		return 0;
	}
	if (r > 0)
		track_file_grows(l->track, l->path);
	r = read_frames(l, until_ns, err);
	if (r == 0)
		l->state = state;
	if (r == 0 && state != LIVE_RUNNING) {
		l->loss.cut_off = recording_torn(l->reader);
		l->loss.more = !l->ended;
	}
	return r;
}

enum live_state live_state(const struct live *l)
{
	return l->state;
}

const char *live_path(const struct live *l)
{
	return l->path;
}

void live_progress(const struct live *l, uint64_t *out_read, uint64_t *out_size)
{
	*out_read = recording_offset(l->reader);
	*out_size = recording_size(l->reader);
}

const struct blocks *live_blocks(const struct live *l)
{
	return l->blocks;
}

const struct processes *live_processes(const struct live *l)
{
	return &l->processes;
}

struct loss live_loss(const struct live *l)
{
	struct loss sum = l->loss;

	for (size_t i = 0; i < l->cap_losses; i++) {
		sum.events += l->losses[i].missing + l->losses[i].events;
		sum.stacks += l->losses[i].stacks;
		sum.damaged_bytes += l->losses[i].damaged;
	}
	return sum;
}

uint64_t live_newest_ns(const struct live *l)
{
	return l->newest_ns;
}
