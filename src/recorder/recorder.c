/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "recorder"
#include "recorder/recorder.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "recorder/consumers.h"
#include "recorder/drain.h"
#include "recorder/recording.h"
#include "recorder/rotate/rotate.h"
#include "recorder/session.h"
#include "recorder/start.h"
#include "recorder/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define SCAN_NS (5 * MS) /* between searches for new processes */
#define SCAN_SHARE 10 /* a search takes at most one part of so many */
#define CHECK_NS (1 * MS) /* between checks who is alive */
#define IDLE_MIN_NS (1 * MS)
#define IDLE_MAX_NS (50 * MS)
#define MONITOR_IDLE_MAX_NS (250 * MS) /* its guest wakes us when something is to be written */
#define PACE_NS (4 * MS) /* between looks whether there is as much as this: */
#define PACE_BYTES (512u << 10) /* a larger batch takes less space, and less of our time */
#define PACE_LOOKS 8
#define URGENT_IDLE_MAX_NS (5 * MS)
#define SWEEP_NS (1000 * MS)
#define IMAGES_NS (200 * MS)
#define LINGER_NS (1000 * MS) /* that a recorder called by a process waits for the next one */
#define SLOW_NS (1000 * MS) /* that a process waits at its exit before its user is told why */
#define SHOW_NS (200 * MS) /* between two words about how far it is */
#define EXIT_NS (2000 * MS) /* that the launched process is kept at its exit at most */
#define FLUSH_WAIT_NS (500 * MS)
#define FLUSHING_WAIT_NS (8000 * MS) /* a guest that asked for a flush waits a little longer */
#define SAY_AGAIN_NS (60000 * MS) /* between two words of a disk that fails now and then */
#define MAX_CONFIG_BYTES (1u << 20)
#define START_SLACK_S 2 /* clocks are read in seconds */
#define LOCK_WAIT_MS 30000 /* for a former recorder that is about to leave */

struct recorder {
	char *dir;
	char *ring_dir;
	struct control_page *page;
	struct drain *drain;
	struct recording_writer *out; /* NULL: nothing is kept */
	struct rotate *rotate; /* NULL: it may have any size */
	struct consumers consumers;
	struct buf batch;
	size_t round_bytes; /* of the rings in the last round */
	int lock_fd; /* one recorder per session, however many are started */
	int root_fd; /* pidfd of the launched process, -1 without one */
	bool root_gone;
	uint64_t scanned_ns, scan_after_ns, checked_ns, busy_ns, idle_ns;
	uint64_t events; /* that were read */
	uint64_t dropped; /* of them: the recording could not take them */
	struct buf owed; /* frames that have to come before any other, see append_frame() */
	bool failing; /* the last attempt to write to the recording was in vain */
	bool said; /* … and the log has it */
	uint64_t said_ns; /* when it was last said */
	struct consumer_losses losses; /* that the page has */
	bool called; /* by a process of the job, not by a launcher */
	bool monitor; /* see session.h */
	uint64_t images_ns; /* when it was checked what programs its processes run */
	uint64_t sweep_ns;
	bool terminal; /* our stderr is one */
	bool reported; /* to the user, at the end of the first process */
	uint64_t shown_ns; /* when its user was last told why it waits */
	uint64_t most_unread; /* bytes, while it waits */
	bool left; /* nothing more to do, and everybody can see it */
};

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
		rec->said = !rec->said_ns || now - rec->said_ns > SAY_AGAIN_NS;
		rec->said_ns = rec->said ? now : rec->said_ns;
	}
	if (r < 0 && !rec->failing && rec->said)
		log_err("%s: events are counted, and lost, until it is possible again", err.text);
	else if (r == 0 && rec->failing && rec->said)
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
static int append_frame(struct recorder *rec, enum frame_type type, const void *payload,
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
	append_frame(rec, type, payload, bytes);
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
	for (size_t i = 0; r == 0 && rec->out && i < rec->consumers.n; i++)
		if (rec->consumers.list[i].max_bytes)
			rec->rotate = rotate_new(path, rec->out, &rec->consumers.list[i]);
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

static void on_new_proc(void *arg, const struct frame_proc *p)
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
static void ask_for_scan(struct recorder *rec)
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
		    append_frame(rec, FRAME_BATCH, rec->batch.data, rec->batch.len) == 0)
			consumers_dispatch(&rec->consumers, FRAME_BATCH, rec->batch.data,
					   rec->batch.len);
	}
}

static void scan_for_processes(struct recorder *rec)
{
	struct err err = {0};
	uint64_t now = clock_mono_ns();

	rec->scanned_ns = now;
	if (drain_scan(rec->drain, on_new_proc, rec, &err) < 0)
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
		int r = append_frame(rec, FRAME_PROC_END, &end, sizeof(end));
		drain_finish(rec->drain, p, r == 0);
		log_info("process %u ended", pid);
		rec->scanned_ns = 0; /* what it became by exec() comes next */
		consumers_dispatch(&rec->consumers, FRAME_PROC_END, &end, sizeof(end));
	}
}

/* One round over everything; true if there was something to read. */
static bool run_once(struct recorder *rec)
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
		if (append_frame(rec, FRAME_BATCH, rec->batch.data, rec->batch.len) == 0) {
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
	rotate_tick(rec->rotate);
	consumers_call(&rec->consumers, tick, now);
	return n > 0;
}

static double seconds_of(const struct rusage *use)
{
	return (double)(use->ru_utime.tv_sec + use->ru_stime.tv_sec) +
	       (double)(use->ru_utime.tv_usec + use->ru_stime.tv_usec) / 1e6;
}

static void finish_files(struct recorder *rec)
{
	struct consumer_losses now = {0};

	atomic_fetch_add(&rec->page->unrecorded, drain_sweep(rec->drain));
	rotate_cancel(rec->rotate);
	append_frame(rec, FRAME_END, NULL, 0);
	consumers_call(&rec->consumers, flush);
	consumers_call(&rec->consumers, add_losses, &now);
	atomic_fetch_add(&rec->page->rows_lost, now.rows - rec->losses.rows);
	if (now.error)
		atomic_store(&rec->page->dump_errno, (uint32_t)now.error);
	atomic_fetch_add(&rec->page->unamended, now.unamended - rec->losses.unamended);
	rec->losses = now;
	struct rusage own, copies;
	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &copies);
	/* bench/recorder_rate reads this line. */
	log_info("%llu events in %.3f s of processor time, at most %ld KiB of memory",
		 (unsigned long long)(rec->events - rec->dropped),
		 seconds_of(&own) + seconds_of(&copies), own.ru_maxrss);
}

/*
 * Nobody is left: everything goes to disk, then the session is FINISHED, then one more scan. A
 * process that joins at this very moment is seen by it, or sees FINISHED and calls a recorder.
 */
static bool leave_session(struct recorder *rec)
{
	struct err err = {0};

	finish_files(rec);
	atomic_store(&rec->page->state, SESSION_FINISHED);
	if (drain_scan(rec->drain, on_new_proc, rec, &err) <= 0) {
		close(rec->lock_fd);
		rec->lock_fd = -1;
		return true;
	}
	atomic_store(&rec->page->state, SESSION_LIVE);
	return false;
}

/* If the launched process has waited for us for a while. */
static void show_if_slow(struct recorder *rec)
{
	uint64_t asked_ns = rec->page->exit_asked_ns, now_ns = clock_mono_ns();

	if (!rec->terminal || !asked_ns || rec->reported || now_ns < rec->shown_ns + SHOW_NS)
		return;
	uint64_t unread = drain_unread(rec->drain);
	if (unread > rec->most_unread)
		rec->most_unread = unread;
	rec->shown_ns = now_ns;
	if (now_ns >= asked_ns + SLOW_NS)
		consumers_call(&rec->consumers, show_slow, rec->most_unread - unread,
			       rec->most_unread);
}

/* Every process that ended is read to its last record. */
static void read_dead(struct recorder *rec, uint64_t until_ns)
{
	const struct timespec step = {0, 200000};

	while (drain_has_dead(rec->drain) && clock_mono_ns() < until_ns) {
		if (!run_once(rec))
			nanosleep(&step, NULL);
		show_if_slow(rec);
	}
}

/* Are files still being brought into their last form? */
static bool is_finishing(struct recorder *rec)
{
	return rotate_is_due(rec->rotate) || consumers_any(&rec->consumers, is_amending);
}

/*
 * Every process has ended and is read to its end, and the files are in their last form. Those found
 * dead only now are read first.
 */
static bool nobody_is_left(struct recorder *rec, uint64_t until_ns)
{
	while (!drain_check_alive(rec->drain, false)) {
		if (!drain_has_dead(rec->drain))
			return !is_finishing(rec);
		if (clock_mono_ns() >= until_ns)
			return false;
		read_dead(rec, until_ns);
	}
	return false;
}

static void report_to_user(struct recorder *rec, bool running)
{
	struct consumer_report r = {
		.events = rec->events - rec->dropped,
		.removed = rec->out && recording_is_removed(rec->out),
		.error = rec->dropped ? (int)atomic_load(&rec->page->write_errno) : 0,
		.running = running,
		.writing = drain_has_dead(rec->drain) || is_finishing(rec),
	};

	if (!rec->monitor)
		consumers_call(&rec->consumers, report, &r);
	rec->reported = true;
}

/*
 * The launched process is at its end and waits: read everything, write the rows of what it leaves
 * behind, and let it go. Its files are complete when its parent goes on. Processes that
 * live on may hold the last microseconds back for a moment (drain.c), hence the loop.
 */
static void answer_exit(struct recorder *rec, uint32_t asked)
{
	const struct timespec step = {0, 500000};

	ask_for_scan(rec);
	rec->checked_ns = 0;
	show_if_slow(rec);
	run_once(rec); /* its arena may be that young; it says that nothing more comes */
	uint64_t until_ns = clock_mono_ns() + EXIT_NS;
	read_dead(rec, until_ns);
	while (is_finishing(rec) && clock_mono_ns() < until_ns) {
		if (!run_once(rec))
			nanosleep(&step, NULL);
		show_if_slow(rec);
	}
	consumers_call(&rec->consumers, flush);
	bool alone = nobody_is_left(rec, until_ns);
	/* Before the session is left: from then on nobody waits for what we say. */
	report_to_user(rec, drain_check_alive(rec->drain, false) != 0);
	rec->left = alone && leave_session(rec);
	atomic_store(&rec->page->exit_done, asked);
	syscall(SYS_futex, &rec->page->exit_done, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* A process wants to read the files: what had happened when it asked is in them. */
static void answer_flush(struct recorder *rec, uint32_t asked)
{
	const struct timespec step = {0, 200000};
	uint64_t until_ns = clock_mono_ns() + FLUSH_WAIT_NS;

	ask_for_scan(rec);
	for (unsigned quiet = 0; quiet < 2 && clock_mono_ns() < until_ns;) {
		quiet = run_once(rec) ? 0 : quiet + 1;
		if (quiet == 1)
			nanosleep(&step, NULL);
	}
	consumers_call(&rec->consumers, flush);
	until_ns = clock_mono_ns() + FLUSHING_WAIT_NS;
	while (consumers_any(&rec->consumers, is_flushing) && clock_mono_ns() < until_ns)
		if (!run_once(rec))
			nanosleep(&step, NULL);
	atomic_store(&rec->page->flush_done, asked);
	syscall(SYS_futex, &rec->page->flush_done, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static bool root_is_gone(struct recorder *rec)
{
	struct pollfd p = {.fd = rec->root_fd, .events = POLLIN};

	if (rec->root_gone || !rec->page->root_pid)
		return true;
	if (rec->root_fd >= 0)
		rec->root_gone = poll(&p, 1, 0) > 0;
	else
		rec->root_gone = kill((pid_t)rec->page->root_pid, 0) < 0 && errno == ESRCH;
	return rec->root_gone;
}

/* Sleeps until the next round; the end of the launched process wakes us at once. */
static void idle_wait(struct recorder *rec, uint32_t asked)
{
	uint64_t max_ns = rec->monitor ? MONITOR_IDLE_MAX_NS : IDLE_MAX_NS;

	if (consumers_any(&rec->consumers, is_urgent))
		max_ns = URGENT_IDLE_MAX_NS;
	if (rec->idle_ns > max_ns)
		rec->idle_ns = max_ns;
	struct timespec t = {0, (long)rec->idle_ns};
	long r = syscall(SYS_futex, &rec->page->exit_asked, FUTEX_WAIT, asked, &t, NULL, 0);
	/* What we were woken for may be too young to be read right now. */
	rec->idle_ns = r == 0 ? IDLE_MIN_NS : rec->idle_ns * 2;
}

/* Waits until the next round is worth it, somebody asks for it, the launched process has ended, or
 * for a while. */
static void pace_rounds(struct recorder *rec, uint32_t asked)
{
	struct timespec t = {0, PACE_NS};
	bool gone = root_is_gone(rec);

	if (rec->round_bytes >= PACE_BYTES || rec->monitor)
		return;
	for (unsigned i = 0; i < PACE_LOOKS; i++) {
		long r = syscall(SYS_futex, &rec->page->exit_asked, FUTEX_WAIT, asked, &t, NULL, 0);
		if (r == 0 || errno == EAGAIN || consumers_any(&rec->consumers, is_urgent) ||
		    atomic_load(&rec->page->flush_asked) != atomic_load(&rec->page->flush_done) ||
		    root_is_gone(rec) != gone || drain_has_much(rec->drain, PACE_BYTES))
			return;
	}
}

static bool try_finish(struct recorder *rec)
{
	if (!root_is_gone(rec) || drain_check_alive(rec->drain, false))
		return false;
	if (rec->called && clock_mono_ns() - rec->busy_ns < LINGER_NS)
		return false;
	ask_for_scan(rec);
	run_once(rec);
	return nobody_is_left(rec, UINT64_MAX) && leave_session(rec);
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
		if (run_once(rec)) {
			rec->idle_ns = IDLE_MIN_NS;
			rec->busy_ns = clock_mono_ns();
			show_if_slow(rec);
			pace_rounds(rec, asked);
			continue;
		}
		if (asked != atomic_load(&rec->page->exit_done)) {
			answer_exit(rec, asked);
			if (rec->left)
				return;
			rec->idle_ns = IDLE_MIN_NS;
			continue;
		}
		if (try_finish(rec))
			return;
		/* Others may go on for hours: the job's report is due now. */
		if (!rec->reported && !rec->called && root_is_gone(rec))
			report_to_user(rec, drain_check_alive(rec->drain, false) != 0);
		idle_wait(rec, asked);
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
		report_to_user(&rec, false);
	}
	close_recorder(&rec, r == 0);
	return r;
}
