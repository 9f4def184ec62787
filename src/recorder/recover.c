/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/recover.h"

#include "base/containers/hmap.h"
#include "base/containers/omap.h"
#include "base/mem.h"
#include "base/proc.h"
#include "recorder/consumers.h"
#include "recorder/drain.h"
#include "recorder/recording.h"
#include "recorder/recover_places.h"
#include "recorder/rotate/rotate.h"
#include "recorder/session.h"
#include "recorder/start.h"
#include "recorder/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DYING_TRIES 300 /* of 10 ms */

struct state {
	struct drain *drain;
	struct omap cursors; /* process and ring → the newest struct batch_cursor */
	struct hmap counts; /* records of each process so far */
	struct buf session; /* the last one of the recording */
	bool ended; /* the recorder left in order */
	int lock_fd;
	struct recording_writer *out;
	int result;
	uint64_t records;
	unsigned procs;
};

static void on_session(void *arg, const char *json, size_t len)
{
	struct state *s = arg;

	buf_clear(&s->session);
	buf_add(&s->session, json, len);
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	struct state *s = arg;

	s->ended = false;
	drain_know(s->drain, p);
}

static uint64_t cursor_key(uint32_t proc, uint32_t ring)
{
	return (uint64_t)proc << 32 | ring;
}

static void on_cursor(void *arg, const struct batch_cursor *c)
{
	struct state *s = arg;
	uint64_t key = cursor_key(c->head.proc, c->ring);

	if (c->ring >= ARENA_MAX_RINGS || !drain_knows(s->drain, c->head.proc))
		return;
	struct batch_cursor *mine = omap_get(&s->cursors, key);
	if (!mine) {
		mine = xmalloc(sizeof(*mine));
		omap_put(&s->cursors, key, mine);
	}
	*mine = *c;
}

static void on_count(void *arg, const struct batch_count *c)
{
	struct state *s = arg;

	if (drain_knows(s->drain, c->head.proc))
		hmap_put(&s->counts, c->head.proc, c->records);
}

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct state *s = arg;
	const uint64_t last = cursor_key(e->proc, UINT32_MAX);
	uint64_t key;

	drain_forget(s->drain, e->proc);
	while (omap_floor(&s->cursors, last, &key) && key >> 32 == e->proc)
		free(omap_remove(&s->cursors, key));
}

static void set_cursor(uint64_t key, void *value, void *arg)
{
	(void)key;
	drain_set_cursor(arg, value);
}

static void on_end(void *arg)
{
	struct state *s = arg;

	s->ended = true;
}

static void on_new_proc(void *arg, const struct frame_proc *p)
{
	struct state *s = arg;
	struct err err;

	if (recording_append(s->out, FRAME_PROC, p, sizeof(*p), &err) < 0)
		s->result = err.code;
}

/* What the rings of processes still hold, as batches behind the recording. */
static int append_batches(struct state *s, struct err *err)
{
	struct buf batch = {0};
	int r = 0;

	for (;;) {
		buf_clear(&batch);
		uint32_t n = drain_round(s->drain, &batch);
		if (!batch.len)
			break;
		r = recording_append(s->out, FRAME_BATCH, batch.data, batch.len, err);
		if (r < 0)
			break;
		drain_commit(s->drain);
		s->records += n;
	}
	buf_release(&batch);
	return r;
}

/* Until nobody is left: an image begins where its former one ended. */
static int append_rest(struct state *s, struct err *err)
{
	unsigned before;
	int r;

	do {
		before = s->procs;
		drain_check_alive(s->drain, true);
		r = append_batches(s, err);
		for (struct drain_proc *p; r == 0 && (p = drain_next_dead(s->drain)); s->procs++) {
			struct frame_proc_end end;
			drain_end_frame(s->drain, p, &end);
			r = recording_append(s->out, FRAME_PROC_END, &end, sizeof(end), err);
			if (r == 0)
				drain_finish(s->drain, p, true);
		}
		if (r == 0 && drain_scan(s->drain, on_new_proc, s, err) < 0)
			r = -EIO;
		if (r == 0)
			r = s->result;
	} while (r == 0 && s->procs != before);
	if (r == 0)
		r = recording_append(s->out, FRAME_END, NULL, 0, err);
	return r;
}

static bool is_dying(uint32_t pid)
{
	struct proc_stat s;

	return proc_stat_read((pid_t)pid, &s) < 0 || proc_stat_ended(&s);
}

/* From here on the session is ours alone. */
static int take_session(const char *dir, struct state *s, struct control_page **out,
			struct err *err)
{
	struct control_page *page;

	int r = session_map(dir, false, &page, err);
	if (r < 0)
		return r;
	*out = page;
	r = session_lock(dir, page, 0, NULL);
	/* One that was killed keeps its lock until the last of its threads is gone. */
	for (unsigned i = 0; r == -EBUSY && i < DYING_TRIES; i++) {
		const struct timespec step = {0, 10000000};

		if (!is_dying(atomic_load(&page->recorder_pid)))
			break;
		nanosleep(&step, NULL);
		r = session_lock(dir, page, 0, NULL);
	}
	if (r >= 0)
		s->lock_fd = r;
	if (r == -EBUSY)
		err_set(err, r,
			"the recorder of '%s' is still at work (pid %u): wait until the job has "
			"ended",
			dir, atomic_load(&page->recorder_pid));
	return r < 0 ? r : 0;
}

/* What a living process writes after us would be lost: its buffer is read once. */
static int check_all_dead(struct state *s, struct err *err)
{
	uint32_t pid = drain_living_pid(s->drain);

	if (!pid)
		return 0;
	return err_set(
		err, -EBUSY,
		"process %u of the job is still running, without a recorder: wait until it has "
		"ended, nothing is lost by that",
		pid);
}

/* Reads the recording, then the arenas, then puts the one behind the other. 1: nothing to do. */
static int restore_recording(struct state *s, const char *file, const struct control_page *page,
			     bool *torn, struct err *err)
{
	static const struct stream_ops ops = {
		.session = on_session,
		.proc = on_proc,
		.cursor = on_cursor,
		.count = on_count,
		.proc_end = on_proc_end,
		.end = on_end,
	};

	int r = stream_file(file, &ops, s, torn, err);
	if (r == 0)
		r = recording_create(&s->out, file, err);
	if (r == 0)
		r = drain_scan(s->drain, on_new_proc, s, err);
	if (r < 0 || s->result < 0)
		return r < 0 ? r : s->result;
	bool whole = !atomic_load(&page->rows_lost) && !atomic_load(&page->unamended);
	if (r == 0 && s->ended && !*torn && whole && atomic_load(&page->state) == SESSION_FINISHED)
		return 1;
	if (atomic_load(&page->state) == SESSION_COPIED)
		return 1;
	drain_check_alive(s->drain, false);
	r = check_all_dead(s, err);
	if (r < 0)
		return r;
	omap_each(&s->cursors, set_cursor, s->drain);
	drain_set_counts(s->drain, &s->counts);
	drain_skip_dropped(s->drain);
	return append_rest(s, err);
}

int recover_recording(const char *path, const struct recover_options *options, struct buf *report,
		      struct err *err)
{
	struct recover_places places = {0};
	struct control_page *page = NULL;
	struct buf file = {0};
	struct state s = {.lock_fd = -1};
	bool torn = false;

	int r = places_open(&places, path, options, report, err);
	const char *dir = buf_str(&places.dir);
	if (r == 0)
		r = take_session(dir, &s, &page, err);
	if (r == 0)
		r = places_choose_rings(&places, page, options, err);
	if (r < 0)
		goto out;
	s.drain = drain_new(buf_str(&places.rings), 0);
	r = recording_find(dir, &file, err);
	if (r == 0)
		rotate_clean(buf_str(&file));
	if (r == 0)
		r = restore_recording(&s, buf_str(&file), page, &torn, err);
	if (r > 0)
		buf_addf(report, "The recording is complete: there is nothing to recover.\n");
	if (r != 0)
		goto out;
	buf_addf(report, "Recovered %llu events of %u process%s from their buffers%s.\n",
		 (unsigned long long)s.records, s.procs, s.procs == 1 ? "" : "es",
		 torn ? "; the last, unfinished write to the recording was cut off first" : "");
	if (!options || !options->recording_alone)
		r = consumers_rewrite(buf_str(&file), &s.session, buf_str(&places.output), report,
				      err);
	if (r < 0)
		goto out;
	unsigned unreadable = drain_sweep(s.drain);
	if (unreadable)
		buf_addf(report, "%u buffer%s cannot be read; what was in %s is lost.\n",
			 unreadable, unreadable == 1 ? "" : "s", unreadable == 1 ? "it" : "them");
	atomic_fetch_add(&page->unrecorded, unreadable);
	if (places.rings_elsewhere)
		remove_ring_dir(buf_str(&places.rings));
	atomic_store(&page->rows_lost, 0);
	atomic_store(&page->unamended, 0);
	/* Last: until here a second run does everything that a first one left undone. */
	atomic_store(&page->state, SESSION_FINISHED);
out:
	recording_close(s.out);
	drain_free(s.drain);
	session_unmap(page);
	if (s.lock_fd >= 0)
		close(s.lock_fd);
	omap_release_values(&s.cursors, free);
	places_release(&places);
	hmap_release(&s.counts);
	buf_release(&s.session);
	buf_release(&file);
	return r < 0 ? r : 0;
}
