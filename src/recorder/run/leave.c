/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The end of a recorder: the launched process is let go, the files get their last form. */
#define LOG_AREA "recorder"
#include "base/clock.h"
#include "base/log.h"
#include "recorder/run/recorder_impl.h"

#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINGER_NS (1000 * MS) /* that a recorder called by a process waits for the next one */
#define SLOW_NS (1000 * MS) /* that a process waits at its exit before its user is told why */
#define SHOW_NS (200 * MS) /* between two words about how far it is */
#define EXIT_NS (2000 * MS) /* that the launched process is kept at its exit at most */

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
	recorder_append_frame(rec, FRAME_END, NULL, 0);
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
	if (drain_scan(rec->drain, recorder_add_process, rec, &err) <= 0) {
		close(rec->lock_fd);
		rec->lock_fd = -1;
		return true;
	}
	atomic_store(&rec->page->state, SESSION_LIVE);
	return false;
}

/* If the launched process has waited for us for a while. */
void recorder_show_if_slow(struct recorder *rec)
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
		if (!recorder_run_once(rec))
			nanosleep(&step, NULL);
		recorder_show_if_slow(rec);
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

void recorder_report(struct recorder *rec, bool running)
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
void recorder_answer_exit(struct recorder *rec, uint32_t asked)
{
	const struct timespec step = {0, 500000};

	recorder_ask_for_scan(rec);
	rec->checked_ns = 0;
	recorder_show_if_slow(rec);
	recorder_run_once(rec); /* its arena may be that young; it says that nothing more comes */
	uint64_t until_ns = clock_mono_ns() + EXIT_NS;
	read_dead(rec, until_ns);
	while (is_finishing(rec) && clock_mono_ns() < until_ns) {
		if (!recorder_run_once(rec))
			nanosleep(&step, NULL);
		recorder_show_if_slow(rec);
	}
	consumers_call(&rec->consumers, flush);
	bool alone = nobody_is_left(rec, until_ns);
	/* Before the session is left: from then on nobody waits for what we say. */
	recorder_report(rec, drain_check_alive(rec->drain, false) != 0);
	rec->left = alone && leave_session(rec);
	atomic_store(&rec->page->exit_done, asked);
	syscall(SYS_futex, &rec->page->exit_done, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

bool recorder_try_finish(struct recorder *rec)
{
	if (!recorder_root_is_gone(rec) || drain_check_alive(rec->drain, false))
		return false;
	if (rec->called && clock_mono_ns() - rec->busy_ns < LINGER_NS)
		return false;
	recorder_ask_for_scan(rec);
	recorder_run_once(rec);
	return nobody_is_left(rec, UINT64_MAX) && leave_session(rec);
}
