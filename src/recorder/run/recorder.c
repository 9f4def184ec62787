/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "recorder"
#include "recorder/recorder.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "recorder/run/recorder_impl.h"
#include "recorder/start.h"
#include "recorder/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SCAN_NS (5 * MS) /* between searches for new processes */
#define SCAN_SHARE 10 /* a search takes at most one part of so many */
#define CHECK_NS (1 * MS) /* between checks who is alive */
#define SWEEP_NS (1000 * MS)
#define IMAGES_NS (200 * MS)
#define FLUSH_WAIT_NS (500 * MS)
#define FLUSHING_WAIT_NS (8000 * MS) /* a guest that asked for a flush waits a little longer */
#define LOG_AGAIN_NS (60000 * MS) /* between two words of a disk that fails now and then */
#define MAX_CONFIG_BYTES (1u << 20)
#define START_SLACK_S 2 /* clocks are read in seconds */
#define LOCK_WAIT_MS 30000 /* for a former recorder that is about to leave */

/* --- setting up --- */

static void know_proc(void *arg, const struct frame_proc *p)
{
	struct recorder *rec = arg;

	/* Its arena is read by nobody but `sonde mem recover`, if it is there at all. */
	drain_know(rec->drain, p);
	drain_forget(rec->drain, p->proc);
}

/*
 * A disk that fails now and then costs nothing but time; one that fails for longer costs no more
 * than the first of its failures.
 */
static int write_frame(struct recorder *rec, enum frame_type type, const void *payload,
		       size_t bytes)
{
	static const long waits_ms[] = {0, 0, 1, 4, 16, 64};
	struct err err = {0};
	int r = recording_append(rec->out, type, payload, bytes, &err);

	if (r < 0 && rotate_cancel(rec->rotate)) /* which takes space, too */
		r = recording_append(rec->out, type, payload, bytes, &err);
	for (size_t i = 0; r < 0 && !rec->failing && i < sizeof(waits_ms) / sizeof(waits_ms[0]);
	     i++) {
		nanosleep(&(struct timespec){0, waits_ms[i] * 1000000}, NULL);
		r = recording_append(rec->out, type, payload, bytes, &err);
	}
	uint64_t now = clock_mono_ns();
	if (r < 0)
		atomic_store(&rec->page->write_errno, (uint32_t)-r);
	if (r < 0 && !rec->failing) {
		/* A disk on which now and then a frame fits would fill the log, too. */
		rec->logged = !rec->logged_ns || now - rec->logged_ns > LOG_AGAIN_NS;
		rec->logged_ns = rec->logged ? now : rec->logged_ns;
	}
	if (r < 0 && !rec->failing && rec->logged)
		log_err("%s: events are counted, and lost, until it is possible again", err.text);
	else if (r == 0 && rec->failing && rec->logged)
		log_warn("the recording can be written again; %llu events were lost so far",
			 (unsigned long long)rec->dropped);
	rec->failing = r < 0;
	return r;
}

/* The frames of rec->owed: the head of one, then its payload. */
struct owed_frame {
	enum frame_type type;
	size_t bytes;
};

static int write_owed(struct recorder *rec)
{
	size_t at = 0;
	int r = 0;

	while (r == 0 && at < rec->owed.len) {
		struct owed_frame f;
		memcpy(&f, rec->owed.data + at, sizeof(f));
		r = write_frame(rec, f.type, rec->owed.data + at + sizeof(f), f.bytes);
		if (r == 0)
			at += sizeof(f) + f.bytes;
	}
	rec->owed.len -= at;
	if (rec->owed.len)
		memmove(rec->owed.data, rec->owed.data + at, rec->owed.len);
	return r;
}

/* Without the session or a process nobody understands the batches behind it: these come first. */
int recorder_append_frame(struct recorder *rec, enum frame_type type, const void *payload,
			  size_t bytes)
{
	if (!rec->out)
		return 0;
	int r = write_owed(rec);
	if (r == 0)
		r = write_frame(rec, type, payload, bytes);
	if (r < 0 && (type == FRAME_SESSION || type == FRAME_PROC)) {
		buf_add(&rec->owed, &(struct owed_frame){type, bytes}, sizeof(struct owed_frame));
		buf_add(&rec->owed, payload, bytes);
	}
	return r;
}

static void record_and_dispatch(struct recorder *rec, enum frame_type type, const void *payload,
				size_t bytes)
{
	recorder_append_frame(rec, type, payload, bytes);
	consumers_dispatch(&rec->consumers, type, payload, bytes);
}

/* The configuration and what else a reader of the recording needs to know, as JSON. */
static void record_session(struct recorder *rec)
{
	char *path = xasprintf("%s/" SESSION_CONFIG, rec->dir);
	char host[256] = "";
	struct buf given = {0};
	json_t *root = NULL;

	if (fs_read_file(path, MAX_CONFIG_BYTES, &given, NULL) == 0)
		root = json_loadb(buf_str(&given), given.len, 0, NULL);
	buf_release(&given);
	if (!root)
		root = json_object();
	gethostname(host, sizeof(host) - 1);
	json_object_set_new(root, "wallMinusMono", json_integer(rec->page->wall_minus_mono_ns));
	json_object_set_new(root, "rootPid", json_integer(rec->page->root_pid));
	json_object_set_new(root, "ringDir", json_string(rec->ring_dir));
	json_object_set_new(root, "host", json_string(host));
	json_object_set_new(root, "version", json_string(SONDE_VERSION));
	char *text = json_dumps(root, JSON_SORT_KEYS);
	if (text)
		record_and_dispatch(rec, FRAME_SESSION, text, strlen(text));
	free(text);
	json_decref(root);
	free(path);
}

static int open_recording(struct recorder *rec, struct err *err)
{
	static const struct stream_ops known = {.proc = know_proc};
	char *path = xasprintf("%s/" SESSION_RECORDING, rec->dir);

	rec->drain = drain_new(rec->ring_dir, 0);
	drain_watch_ends(rec->drain);
	if (!rec->called)
		drain_expect_below(rec->drain); /* a launcher's descendants cannot leave it */
	int r = 0;
	if (access(path, F_OK) == 0)
		stream_file(path, &known, rec, NULL, NULL);
	if (!rec->monitor)
		r = recording_create(&rec->out, path, err);
	if (r == 0 && rec->out)
		rec->rotate = rotate_new(path, rec->out, &rec->consumers);
	free(path);
	return r;
}

/*
 * The first process of the session. A recorder that a process of the job has called knows it by its
 * number alone, which may count in another namespace, or be somebody else's by now: who started
 * after the session was made is another. All clocks and start times here are those that we see.
 */
static void open_root(struct recorder *rec)
{
	const struct control_page *page = rec->page;
	struct timespec boot;
	struct proc_stat s;

	rec->root_fd = page->root_pid ? (int)syscall(SYS_pidfd_open, page->root_pid, 0) : -1;
	if (!rec->called || rec->root_fd < 0 || !page->made_s ||
	    proc_stat_read(proc_number(rec->root_fd), &s) < 0)
		return;
	clock_gettime(CLOCK_BOOTTIME, &boot);
	int64_t age_s = boot.tv_sec - (int64_t)s.start_ticks / sysconf(_SC_CLK_TCK);
	rec->root_gone = time(NULL) - age_s > page->made_s + START_SLACK_S;
}

static int open_session(struct recorder *rec, struct err *err)
{
	int r = session_map(rec->dir, true, &rec->page, err);

	if (r == 0)
		r = rec->lock_fd = session_lock(rec->dir, rec->page, LOCK_WAIT_MS, err);
	if (r < 0)
		return r;
	session_set_clock(rec->page);
	struct recorder_session session = {rec->dir, rec->page, rec->terminal};
	rec->ring_dir = xstrdup(rec->page->ring_dir[0] ? rec->page->ring_dir : rec->dir);
	r = consumers_open(&rec->consumers, &session, err);
	if (r == 0)
		r = open_recording(rec, err);
	if (r < 0)
		return r;
	open_root(rec);
	return 0;
}

/* --- the loop --- */

void recorder_add_process(void *arg, const struct frame_proc *p)
{
	struct recorder *rec = arg;

	log_info("process %u joined: %s", p->pid, p->exe);
	record_and_dispatch(rec, FRAME_PROC, p, sizeof(*p));
}

/*
 * A monitor's process that has become another program, or goes on in another session. The program
 * may have no monitor: then nothing ends the windows, and the process lives on.
 */
static void check_for_leavers(struct recorder *rec, uint64_t now)
{
	if (rec->monitor && now >= rec->sweep_ns) {
		/* A process whose recorder was killed leaves its old session when it is here. */
		if (rec->sweep_ns)
			monitor_session_sweep(rec->dir);
		rec->sweep_ns = now + SWEEP_NS * (rec->sweep_ns ? 60 : 1);
	}
	if (!rec->monitor)
		return;
	if (drain_has_left(rec->drain))
		rec->root_gone = true;
	if (now - rec->images_ns < IMAGES_NS)
		return;
	rec->images_ns = now;
	rec->root_gone |= drain_check_images(rec->drain);
}

static void update_heartbeat(struct recorder *rec, uint64_t now)
{
	atomic_store(&rec->page->heartbeat_ns, now);
	atomic_store(&rec->page->progress, rec->events);
}

/* The next round searches for new processes, however long that takes. */
void recorder_ask_for_scan(struct recorder *rec)
{
	rec->scanned_ns = rec->scan_after_ns = 0;
}

/* Records that consumers make themselves; they see what the recording has, and nothing else. */
static void poll_consumers(struct recorder *rec, bool had_events)
{
	for (struct consumer *c = rec->consumers.list; c < rec->consumers.list + rec->consumers.n;
	     c++) {
		buf_clear(&rec->batch);
		if (c->ops->poll && c->ops->poll(c->state, had_events, &rec->batch) &&
		    recorder_append_frame(rec, FRAME_BATCH, rec->batch.data, rec->batch.len) == 0)
			consumers_dispatch(&rec->consumers, FRAME_BATCH, rec->batch.data,
					   rec->batch.len);
	}
}

static void scan_for_processes(struct recorder *rec)
{
	struct err err = {0};
	uint64_t now = clock_mono_ns();

	rec->scanned_ns = now;
	if (drain_scan(rec->drain, recorder_add_process, rec, &err) < 0)
		log_debug("%s", err.text);
	/* Whatever lies in the directory, looking at it takes a small part of our time. */
	rec->scan_after_ns = now + SCAN_SHARE * (clock_mono_ns() - now);
}

/* Processes that are read to their end. */
static void end_processes(struct recorder *rec)
{
	/* What one became by exec() may be there already: it began when the other ended. */
	if (drain_next_dead(rec->drain))
		scan_for_processes(rec);
	for (struct drain_proc *p; (p = drain_next_dead(rec->drain));) {
		struct frame_proc_end end;
		uint32_t pid = p->pid;
		struct dead_process dead = drain_dead_process(rec->drain, p);
		consumers_call(&rec->consumers, settle, &dead);
		poll_consumers(rec, false);
		drain_end_frame(rec->drain, p, &end);
		/* Until this is written, the arena is what knows how much was lost. */
		int r = recorder_append_frame(rec, FRAME_PROC_END, &end, sizeof(end));
		drain_finish(rec->drain, p, r == 0);
		log_info("process %u ended", pid);
		rec->scanned_ns = 0; /* what it became by exec() comes next */
		consumers_dispatch(&rec->consumers, FRAME_PROC_END, &end, sizeof(end));
	}
}

/* One round over everything; true if there was something to read. */
bool recorder_run_once(struct recorder *rec)
{
	uint64_t now = clock_mono_ns();

	update_heartbeat(rec, now);
	if (now - rec->scanned_ns >= SCAN_NS && now >= rec->scan_after_ns)
		scan_for_processes(rec);
	/* Dead first, emptied after: what a process wrote before it died is there to be read. */
	if (now - rec->checked_ns >= CHECK_NS) {
		rec->checked_ns = now;
		drain_check_alive(rec->drain, false);
		check_for_leavers(rec, now);
	}
	buf_clear(&rec->batch);
	uint32_t n = drain_round(rec->drain, &rec->batch);
	rec->round_bytes = rec->batch.len;
	if (rec->batch.len) {
		if (recorder_append_frame(rec, FRAME_BATCH, rec->batch.data, rec->batch.len) == 0) {
			drain_commit(rec->drain);
		} else {
			rec->dropped += n;
			atomic_fetch_add(&rec->page->unwritten, n);
			drain_drop(rec->drain);
		}
		consumers_dispatch(&rec->consumers, FRAME_BATCH, rec->batch.data, rec->batch.len);
		rec->events += n;
	}
	poll_consumers(rec, n > 0);
	end_processes(rec);
	rotate_tick(rec->rotate, consumers_any(&rec->consumers, is_holding));
	consumers_call(&rec->consumers, tick, now);
	return n > 0;
}

/* A process wants to read the files: what had happened when it asked is in them. */
static void answer_flush(struct recorder *rec, uint32_t asked)
{
	const struct timespec step = {0, 200000};
	uint64_t until_ns = clock_mono_ns() + FLUSH_WAIT_NS;

	recorder_ask_for_scan(rec);
	for (unsigned quiet = 0; quiet < 2 && clock_mono_ns() < until_ns;) {
		quiet = recorder_run_once(rec) ? 0 : quiet + 1;
		if (quiet == 1)
			nanosleep(&step, NULL);
	}
	consumers_call(&rec->consumers, flush);
	until_ns = clock_mono_ns() + FLUSHING_WAIT_NS;
	while (consumers_any(&rec->consumers, is_flushing) && clock_mono_ns() < until_ns)
		if (!recorder_run_once(rec))
			nanosleep(&step, NULL);
	atomic_store(&rec->page->flush_done, asked);
	syscall(SYS_futex, &rec->page->flush_done, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void run_loop(struct recorder *rec)
{
	rec->idle_ns = IDLE_MIN_NS;
	rec->busy_ns = clock_mono_ns();
	for (;;) {
		uint32_t asked = atomic_load(&rec->page->exit_asked);
		uint32_t flush = atomic_load(&rec->page->flush_asked);
		if (flush != atomic_load(&rec->page->flush_done))
			answer_flush(rec, flush);
		if (recorder_run_once(rec)) {
			rec->idle_ns = IDLE_MIN_NS;
			rec->busy_ns = clock_mono_ns();
			recorder_show_if_slow(rec);
			recorder_pace_rounds(rec, asked);
			continue;
		}
		if (asked != atomic_load(&rec->page->exit_done)) {
			recorder_answer_exit(rec, asked);
			if (rec->left)
				return;
			rec->idle_ns = IDLE_MIN_NS;
			continue;
		}
		if (recorder_try_finish(rec))
			return;
		/* Others may go on for hours: the job's report is due now. */
		if (!rec->reported && !rec->called && recorder_root_is_gone(rec))
			recorder_report(rec, drain_check_alive(rec->drain, false) != 0);
		recorder_wait_idle(rec, asked);
	}
}

static void open_log(const struct recorder *rec)
{
	char *log = xasprintf("%s/" SESSION_LOG, rec->dir);

	log_open(log, NULL);
	free(log);
}

static void close_recorder(struct recorder *rec, bool was_open)
{
	rotate_free(rec->rotate);
	consumers_close(&rec->consumers);
	recording_close(rec->out);
	drain_free(rec->drain);
	session_unmap(rec->page);
	buf_release(&rec->batch);
	buf_release(&rec->owed);
	if (was_open && rec->monitor)
		monitor_session_remove(rec->dir);
	if (was_open && strcmp(rec->ring_dir, rec->dir) != 0)
		remove_ring_dir(rec->ring_dir);
	free(rec->ring_dir);
	free(rec->dir);
}

int recorder_main(const char *session_dir)
{
	struct recorder rec = {.dir = xstrdup(session_dir), .root_fd = -1};
	int ready = recorder_ready_fd();
	struct err err = {0};

	rec.called = ready < 0;
	rec.monitor = is_monitor_session(rec.dir);
	recorder_leave_job(ready, &rec.terminal);
	int r = open_session(&rec, &err);
	if (r == 0) {
		open_log(&rec);
		record_session(&rec);
		rec.page->terminal = rec.terminal;
		atomic_store(&rec.page->recorder_ns, proc_pid_namespace("self"));
		atomic_store(&rec.page->recorder_pid, (uint32_t)getpid());
		update_heartbeat(&rec, clock_mono_ns());
		atomic_store(&rec.page->state, SESSION_LIVE);
	}
	/* A guest that called us must not wait for what will not come. */
	uint32_t called = SESSION_NEW;
	if (r < 0 && rec.page)
		atomic_compare_exchange_strong(&rec.page->state, &called, SESSION_FINISHED);
	recorder_ready(ready, r, &err);
	if (r == 0) {
		run_loop(&rec);
		recorder_report(&rec, false);
	}
	close_recorder(&rec, r == 0);
	return r;
}
