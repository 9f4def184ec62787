/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * `sonde record --last`: the recording keeps its newest part alone (rotate.h), so what somebody will
 * want to see is copied before it is dropped: when memory runs out, when a process is killed by a signal,
 * when nothing moves any more, and whenever somebody asks (control_page.h, freeze_asked; SIGUSR1).
 *
 * A copy is <recording>/frozen_<n>_<why>/events.sonde, a recording like others, and beside it what
 * the control page said at that moment. A copy of the recorder makes it, so that the recorder goes
 * on; the file has its name when it is whole.
 */
#define LOG_AREA "recorder"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/subprocess.h"
#include "recorder/consumer.h"
#include "recorder/flight/step_count.h"
#include "recorder/session.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_FROZEN 8 /* by themselves; who asks gets more */
#define NS_PER_S 1000000000ull
#define PIECE (8u << 20)
#define MOST_NAMES 1000 /* that are tried for a copy */
#define SETTLE_NS 1200000000ull /* sources are flushed every second */

enum reason { REASON_NONE, REASON_ASKED, REASON_OOM, REASON_CRASH, REASON_HANG };

static const char *const reasons[] = {[REASON_ASKED] = "asked",
				      [REASON_OOM] = "oom",
				      [REASON_CRASH] = "crash",
				      [REASON_HANG] = "hang"};

struct flight {
	struct control_page *page;
	const char *dir;
	bool terminal;
	enum reason wanted; /* why a copy is wanted, if it is */
	uint64_t due_ns; /* when: what devices did until now is reported by then */
	enum reason making;
	uint32_t answers; /* freeze_asked when the copy that is being made was begun */
	pid_t pid; /* who makes it; 0: nobody */
	unsigned n; /* that were begun */
	uint64_t automatic_ns; /* when the last one was made by itself */
	struct step_count count;
	uint64_t moved_ns; /* when a step began, or a device did something */
	bool hangs;
	bool holds; /* nothing is to be dropped now */
	bool said;
};

static volatile sig_atomic_t asked_by_signal;

static void on_signal(int sig)
{
	(void)sig;
	asked_by_signal = 1;
}

static int open_flight(const struct recorder_session *session, struct consumer *out,
		       struct err *err)
{
	struct flight *f = xcalloc(1, sizeof(*f));

	(void)err;
	f->page = session->page;
	f->dir = session->dir;
	f->terminal = session->terminal;
	if (f->page->record.on)
		sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL);
	out->state = out->listener = f;
	return 0;
}

static void close_flight(void *state)
{
	struct flight *f = state;

	step_count_release(&f->count);
	free(f);
}

/* --- what happens --- */

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	const struct rec_process *ended = (const struct rec_process *)r;
	struct flight *f = arg;

	(void)tid;
	if (step_count_record(&f->count, proc, r))
		f->moved_ns = clock_mono_ns();
	switch (r->type) {
	case REC_OOM:
		f->wanted = REASON_OOM;
		break;
	case REC_PROCESS:
		if (ended->flags & PROCESS_ENDED && WIFSIGNALED(ended->status) && !f->wanted)
			f->wanted = REASON_CRASH;
		break;
	case REC_ACTIVITY:
		if (((const struct rec_activity *)r)->place == ACTIVITY_ON_DEVICE)
			f->moved_ns = clock_mono_ns();
		break;
	default:
		break;
	}
}

/* Has nothing moved for so long? */
static bool is_still(const struct flight *f, uint64_t now_ns, uint64_t ns)
{
	return f->page->record.hang_s && f->count.step > STEPS_OF_A_JOB && f->moved_ns &&
	       now_ns > f->moved_ns + ns;
}

static void check_hang(struct flight *f, uint64_t now_ns)
{
	uint64_t hang_ns = f->page->record.hang_s * NS_PER_S;
	bool hangs = is_still(f, now_ns, hang_ns);

	if (hangs && !f->hangs && !f->wanted)
		f->wanted = REASON_HANG;
	f->hangs = hangs;
	/* What came before the hang is still there when that is certain. */
	f->holds = f->wanted || (!hangs && is_still(f, now_ns, hang_ns / 4));
}

/* --- copies --- */

static char *copy_dir(const struct flight *f, unsigned n, enum reason why)
{
	return xasprintf("%s/" SESSION_FROZEN "%u_%s", f->dir, n, reasons[why]);
}

static bool copy_bytes(int from, int to, uint64_t bytes)
{
	while (bytes) {
		size_t want = bytes < PIECE ? (size_t)bytes : PIECE;
		ssize_t n = copy_file_range(from, NULL, to, NULL, want, 0);

		if (n < 0 &&
		    (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
			break;
		if (n < 0)
			return false;
		if (n == 0)
			return true; /* the recording is another one by now, and smaller */
		bytes -= (uint64_t)n;
	}
	static char piece[1 << 16];
	while (bytes) {
		ssize_t n = read(from, piece, bytes < sizeof(piece) ? bytes : sizeof(piece));

		if (n <= 0)
			return n == 0;
		if (write(to, piece, (size_t)n) != n)
			return false;
		bytes -= (uint64_t)n;
	}
	return true;
}

/* So that a reader knows what was lost until then, and that the job went on. */
static bool copy_page(const struct flight *f, const char *dir)
{
	char *path = xasprintf("%s/" SESSION_FILE, dir);
	struct control_page page;
	static char bytes[SESSION_BYTES];
	int fd = fs_open(path, O_WRONLY | O_CREAT | O_EXCL, 0600, NULL);

	memcpy(&page, f->page, sizeof(page));
	page.state = SESSION_COPIED;
	page.recorder_pid = 0;
	page.ring_dir[0] = '\0'; /* those are no buffers of the copy */
	memcpy(bytes, &page, sizeof(page));
	bool good = fd >= 0 && write(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes);
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && !good)
		(void)fs_unlink(path, NULL);
	free(path);
	return good;
}

/* In the copy of the recorder: `bytes` of the recording, which are whole frames. */
static bool make_copy(const struct flight *f, const char *dir, uint64_t bytes)
{
	char *from = xasprintf("%s/" SESSION_RECORDING, f->dir);
	char *to = xasprintf("%s/" SESSION_RECORDING, dir), *part = xasprintf("%s.part", to);
	int in = fs_open(from, O_RDONLY, 0, NULL);
	int out = in < 0 ? -1 : fs_open(part, O_WRONLY | O_CREAT | O_EXCL, 0600, NULL);

	bool good = out >= 0 && copy_bytes(in, out, bytes) && copy_page(f, dir) &&
		    fs_rename(part, to, NULL) == 0;
	if (!good && out >= 0)
		(void)fs_unlink(part, NULL);
	return good;
}

static void answer_request(struct flight *f)
{
	atomic_store(&f->page->record.freeze_done, f->answers);
	syscall(SYS_futex, &f->page->record.freeze_done, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void fail_copy(struct flight *f, const char *dir, const char *why)
{
	log_err("the newest part of the recording cannot be copied to %s%s%s", dir,
		*why ? ": " : "", why);
	answer_request(f);
}

/* A recorder before this one, or anybody in the job, may have made directories of such names. */
static char *make_dir(struct flight *f, struct err *err)
{
	char *dir;
	int r;

	do {
		dir = copy_dir(f, ++f->n, f->making);
		r = fs_mkdir(dir, FS_DIR_MODE, err);
		if (r == 0)
			return dir;
		free(dir);
	} while (r == -EEXIST && f->n % MOST_NAMES);
	return NULL;
}

/* While nobody writes to it. */
static uint64_t recording_size(const struct flight *f)
{
	char *path = xasprintf("%s/" SESSION_RECORDING, f->dir);
	struct stat st;
	bool known = stat(path, &st) == 0;

	free(path);
	return known ? (uint64_t)st.st_size : 0;
}

static void begin_copy(struct flight *f)
{
	struct err err = {0};
	uint64_t bytes = recording_size(f);

	f->making = f->wanted;
	f->wanted = REASON_NONE;
	f->due_ns = 0;
	f->answers = atomic_load(&f->page->record.freeze_asked);
	char *dir = make_dir(f, &err);
	if (!dir) {
		fail_copy(f, f->dir, err.text);
		return;
	}
	pid_t pid = fork_copy();
	if (pid == 0)
		_exit(!make_copy(f, dir, bytes));
	if (pid < 0) {
		(void)fs_rmdir(dir, NULL);
		fail_copy(f, dir, "");
	} else {
		f->pid = pid;
	}
	free(dir);
}

static void end_copy(struct flight *f, int status)
{
	char *dir = copy_dir(f, f->n, f->making);

	f->pid = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		atomic_fetch_add(&f->page->record.frozen, 1);
		log_info("the newest part of the recording was copied to %s", dir);
		answer_request(f);
	} else {
		(void)fs_rmdir(dir, NULL);
		fail_copy(f, dir, "");
	}
	free(dir);
}

/* By itself no more often than there can be something new, nor too many. */
static void drop_repeated(struct flight *f, uint64_t now_ns)
{
	uint64_t last_ns = f->page->record.last_s * NS_PER_S;

	if (!f->wanted || f->wanted == REASON_ASKED || f->due_ns)
		return;
	if (!last_ns || f->n >= MAX_FROZEN ||
	    (f->automatic_ns && now_ns < f->automatic_ns + last_ns))
		f->wanted = REASON_NONE;
	else
		f->automatic_ns = now_ns;
}

static bool is_ending(struct control_page *page)
{
	return atomic_load(&page->exit_asked) != atomic_load(&page->exit_done);
}

static void check_requests(void *state, uint64_t now_ns)
{
	struct flight *f = state;
	struct session_record *r = &f->page->record;
	int status = -1;

	if (!r->on)
		return;
	if (f->pid) {
		pid_t done = waitpid(f->pid, &status, WNOHANG);
		if (done > 0 || (done < 0 && errno != EINTR))
			end_copy(f, status);
		return;
	}
	check_hang(f, now_ns);
	drop_repeated(f, now_ns);
	if (asked_by_signal || atomic_load(&r->freeze_asked) != atomic_load(&r->freeze_done))
		f->wanted = REASON_ASKED;
	asked_by_signal = 0;
	/* A recording that ends stays as it is. */
	if (f->wanted && f->wanted != REASON_ASKED && is_ending(f->page))
		f->wanted = REASON_NONE;
	if (!f->wanted)
		f->due_ns = 0;
	else if (!f->due_ns)
		f->due_ns = now_ns + SETTLE_NS;
	else if (now_ns >= f->due_ns || is_ending(f->page))
		begin_copy(f);
}

static bool is_copying(void *state)
{
	return ((struct flight *)state)->pid != 0;
}

static bool is_holding(void *state)
{
	const struct flight *f = state;

	return f->holds || f->pid;
}

static void report_copies(void *state, const struct consumer_report *now)
{
	struct flight *f = state;
	unsigned n = atomic_load(&f->page->record.frozen);
	struct buf text = {0};

	if (!f->page->record.on || now->removed || f->said || !n)
		return;
	f->said = true;
	buf_addf(&text,
		 "sonde record: %u cop%s of what had just happened: %s/" SESSION_FROZEN "*\n", n,
		 n == 1 ? "y" : "ies", f->dir);
	session_add_line(f->page, f->terminal, &text, false);
	buf_release(&text);
}

static const struct stream_ops listener = {.record = on_record};

const struct consumer_ops flight_consumer = {
	.name = "flight",
	.stream = &listener,
	.open = open_flight,
	.close = close_flight,
	.tick = check_requests,
	.is_amending = is_copying,
	.is_holding = is_holding,
	.report = report_copies,
};
