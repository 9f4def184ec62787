/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Loading and the orderly end. Loading only reads the environment. At the end of the launched
 * process (and only there) the recorder is asked to bring everything to disk and waited for, so
 * that who waits for the job finds complete files. A job that is killed or calls _exit() skips
 * this, and the recorder finishes a moment later by itself. Where stderr is no terminal, the
 * launched process also copies the recorder's report there.
 *
 *	job: exit()                              recorder
 *	  destructors, atexit() handlers
 *	  at_exit(): gate closed
 *	  exit_asked += 1, futex wake  --------->  drains the rings, finishes files,
 *	                                           writes the report
 *	  waits on exit_done           <---------  exit_done = exit_asked, futex wake
 *	  copies report.txt to stderr
 *	  gate open; stdio is flushed
 *
 * The wait ends early when the recorder is gone, when it makes no progress for 3 s, and after 60 s.
 *
 * This is not done by a destructor: those of the driver and of frameworks may run later and free
 * memory. on_exit() before main() comes before the loader's own registration, and so runs after
 * every destructor.
 *
 * Nothing in the other files of this folder needs this one: the unit tests link them without it,
 * and so without its constructor, which would read the environment before they have made theirs.
 */
#include "guest/runtime/guest.h"

#include "guest/runtime/env.h"
#include "guest/runtime/text.h"
#include "wire/rank_env.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STALLED_NS 3000000000ull
#define WAIT_AT_MOST_NS 60000000000ull
#define COPY_AT_MOST_NS 900000000ull /* below a second: it goes into tv_nsec */
#define COPY_BYTES 2048u /* less than what poll() finds room for in a pipe or socket */

/* Mapped early in the launched process: at its end it may have no descriptor left, or a filter that
 * forbids open(). */
static struct control_page *page_of_session(void)
{
	return guest.page ? guest.page : guest_session_map(guest_session_dir(), false);
}

/* Is the descriptor still the file that the launcher had there? Programs reuse numbers. */
static bool is_still(int fd, uint64_t dev, uint64_t ino)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

/*
 * Is there room? A file always has some; a pipe that nobody reads never gets any.
 *
 * ppoll() as a system call: the C library's is a cancellation point.
 */
static bool has_room(int fd, uint64_t until_ns)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	for (uint64_t now = guest_now(); now < until_ns; now = guest_now()) {
		struct timespec left = {0, (long)(until_ns - now)};
		long r = syscall(SYS_ppoll, &p, 1, &left, NULL, 0);
		if (r > 0)
			return true;
		if (r < 0 && errno != EINTR)
			return false;
	}
	return false;
}

/* In pieces that go at once where poll() finds room. */
static bool write_pieces(int fd, const char *text, size_t n, uint64_t until_ns)
{
	while (n && has_room(fd, until_ns)) {
		ssize_t r = write(fd, text, n < COPY_BYTES ? n : COPY_BYTES);
		if (r < 0 && errno != EINTR && errno != EAGAIN)
			return false;
		text += r > 0 ? r : 0;
		n -= r > 0 ? (size_t)r : 0;
	}
	return n == 0;
}

/*
 * Copies the report that the recorder has left. Nothing that can be wrong with the place where it
 * goes is a reason to die: not a reader that is gone, not a limit of file sizes. Nor to wait: a
 * reader that sleeps gets what fits.
 */
static void copy_report(const struct control_page *p)
{
	uint64_t until_ns = guest_now() + COPY_AT_MOST_NS;
	char path[1200], text[COPY_BYTES];
	struct quiet_write quiet;
	ssize_t n;

	if (!is_still((int)p->report_fd, p->report_dev, p->report_ino) ||
	    guest_join_path(path, sizeof(path), guest_session_dir(), SESSION_REPORT) < 0)
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	quiet_write_begin(&quiet);
	while ((n = read(fd, text, sizeof(text))) > 0)
		if (!write_pieces((int)p->report_fd, text, (size_t)n, until_ns))
			break;
	close(fd);
	quiet_write_end(&quiet);
}

/* The recorder's last line, which says where the recording is and what is missing from it. */
static void copy_closing(const struct control_page *p)
{
	size_t n = strnlen(p->closing, sizeof(p->closing));
	struct quiet_write quiet;

	if (!n || !is_still((int)p->report_fd, p->report_dev, p->report_ino))
		return;
	quiet_write_begin(&quiet);
	(void)write_pieces((int)p->report_fd, p->closing, n, guest_now() + COPY_AT_MOST_NS);
	quiet_write_end(&quiet);
}

/* The recorder works on, but nobody waits any more: its words come too late for this process. */
static void print_unfinished(const struct control_page *p)
{
	static const char memory[] =
		"[msmemscope] Info: the files are still being written; then read "
		"them with: sonde mem show ";
	static const char everything[] = "sonde record: the files are still being written; then "
					 "look at them: sonde report ";
	const char *before = p->record.on ? everything : memory;
	const char *dir = guest_session_dir();
	uint64_t until_ns = guest_now() + COPY_AT_MOST_NS;
	struct quiet_write quiet;
	int fd = (int)p->report_fd;

	if (!fd || !is_still(fd, p->report_dev, p->report_ino))
		return;
	quiet_write_begin(&quiet);
	if (write_pieces(fd, before, strlen(before), until_ns) &&
	    write_pieces(fd, dir, strlen(dir), until_ns))
		(void)write_pieces(fd, "\n", 1, until_ns);
	quiet_write_end(&quiet);
}

/* Is there anything to wait for but the files of those who had events? */
static bool has_words(const struct control_page *p)
{
	return p->terminal || (p->report_fd && (p->closing_asked || atomic_load(&p->unrecorded)));
}

/*
 * Whose end is waited for: that of the launched process, and that of the first process of a pid
 * namespace with which its recorder is killed.
 */
static bool is_waited_for(const struct control_page *p)
{
	if (guest_root_pid() == guest_noted_owner())
		return true;
	uint64_t ns = guest.arena ? guest.arena->pid_ns : guest_pid_namespace();
	return guest_noted_owner() == 1 && ns && ns == atomic_load(&p->recorder_ns);
}

static void wait_for_files(void)
{
	struct timespec step = {0, 100000000};
	struct control_page *p = page_of_session();
	if (!p || p->magic != SESSION_MAGIC || atomic_load(&p->state) != SESSION_LIVE)
		return;
	/* Nobody has had an event: nothing to wait for but words, and no system call that a filter
	 * forbids. */
	if ((!atomic_load(&p->joined) && !has_words(p)) || !is_waited_for(p))
		return;
	guest_close_gate();
	p->exit_asked_ns = guest_now();
	uint32_t asked = atomic_fetch_add(&p->exit_asked, 1) + 1;
	syscall(SYS_futex, &p->exit_asked, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	uint64_t begin = guest_now(), moved = begin, seen = 0;
	for (;;) {
		uint32_t done = atomic_load(&p->exit_done);
		uint64_t now = guest_now(), progress = atomic_load(&p->progress);
		if (done >= asked || atomic_load(&p->state) != SESSION_LIVE)
			break;
		if (progress != seen)
			moved = now;
		seen = progress;
		if (now - moved > STALLED_NS || now - begin > WAIT_AT_MOST_NS) {
			print_unfinished(p);
			return;
		}
		if (guest_recorder_has_ended(p))
			break;
		syscall(SYS_futex, &p->exit_done, FUTEX_WAIT, done, &step, NULL, 0);
	}
	if (p->report_fd && atomic_load(&p->report_ready))
		copy_report(p);
	if (p->report_fd)
		copy_closing(p);
}

/* Called when everything else of an exit() is done: waits for the files. */
static void finish_recording(void)
{
	if ((guest_root_pid() != guest_noted_owner() && guest_noted_owner() != 1) ||
	    guest_is_sealed())
		return;
	wait_for_files();
	guest_open_gate();
}

/* What nobody else can see as late as this: the rank that the program gave itself, its peak. */
static void note_end(void)
{
	const char *const *name = rank_env_names(RANK_ENV_RANK);
	int32_t rank = RANK_ENV_UNKNOWN;
	char text[16];

	if (!guest_has_joined() || guest_is_sealed())
		return;
	for (; *name && rank == RANK_ENV_UNKNOWN; name++) {
		guest_env_copy(*name, text, sizeof(text));
		rank = rank_env_number(text, strnlen(text, sizeof(text)));
	}
	atomic_store(&guest.arena->rank_plus_1, (uint32_t)rank + 1);
	atomic_store(&guest.arena->peak_rss_kib, guest_peak_kib());
}

static void at_exit(int status, void *arg)
{
	int saved = errno;

	(void)status;
	(void)arg;
	note_end();
	finish_recording();
	errno = saved;
}

void guest_report_here(void)
{
	struct control_page *p = guest.page;
	struct stat st;

	/* The recorder has the terminal, if there is one. */
	if (!p || p->report_fd || guest_root_pid() != guest_noted_owner() ||
	    isatty(STDERR_FILENO) || fstat(STDERR_FILENO, &st) < 0)
		return;
	p->report_dev = st.st_dev;
	p->report_ino = st.st_ino;
	p->report_fd = STDERR_FILENO;
}

/* The answer counts up like the question; the difference is compared as a signed number, so that
 * it may wrap. The recorder is woken in every round: a wake that came before it slept is lost. */
bool guest_flush(uint32_t timeout_ms)
{
	struct timespec step = {0, 20000000};
	struct control_page *p = guest.page;
	uint64_t until = guest_now() + (uint64_t)timeout_ms * 1000000u;

	if (!guest_has_joined() || guest_is_sealed() || atomic_load(&p->state) != SESSION_LIVE)
		return false;
	uint32_t asked = atomic_fetch_add(&p->flush_asked, 1) + 1;
	for (;;) {
		uint32_t done = atomic_load(&p->flush_done);
		if ((int32_t)(done - asked) >= 0)
			return true;
		guest_wake_recorder();
		if (guest_now() > until || guest_recorder_has_ended(p))
			return false;
		syscall(SYS_futex, &p->flush_done, FUTEX_WAIT, done, &step, NULL, 0);
	}
}

/* Children of this process belong to the same recording, and its end is waited for. */
static void announce_recording(const char *dir, int replace)
{
	uint32_t pid = (uint32_t)getpid();

	setenv(SESSION_ENV, dir, replace);
	if (pid != guest_root_pid() && pid != 1)
		return;
	/* The page now: at its end the job may have no descriptor left, or a system call filter. */
	guest.page = page_of_session();
	/* In a container of the job another process may have the number of the launched one. */
	if (pid == guest_root_pid() && guest.page && guest.page->root_ns &&
	    guest.page->root_ns != guest_pid_namespace())
		return;
	on_exit(at_exit, NULL);
}

/* Names the recording in the environment and sees to an orderly end; once. */
static void begin_once(void)
{
	const char *dir = guest_session_dir();

	if (guest_note_begun())
		return;
	if (dir[0])
		announce_recording(dir, 0);
}

static const struct guest_mover *_Atomic mover;

void guest_on_move(const struct guest_mover *m)
{
	atomic_store(&mover, m);
}

/*
 * The monitor was here first, whose session keeps nothing: it comes along into a recording.
 *
 * The monitor is told before and after: it flushes what its source has into the session that is
 * left, and opens its window again in the new one.
 */
static void move_into_recording(const char *output)
{
	const struct guest_mover *m = atomic_load(&mover);

	if (m)
		m->before();
	bool moved = guest_move(output, false);
	if (moved)
		announce_recording(guest_session_dir(), 1);
	if (m)
		m->after(moved);
}

void guest_begin_in(const char *output)
{
	(void)guest_leave_monitor(); /* a parent's */
	if (guest_monitor_pid()) {
		move_into_recording(output);
		return;
	}
	bool named = guest_has_begun();
	/* Only until it has been made; a forked child belongs to its parent's. */
	if (!guest.page && (output || !named) && guest_move_session(output) && named)
		setenv(SESSION_ENV, guest_session_dir(), 1);
	begin_once();
}

void guest_begin_monitor(const char *dir)
{
	(void)guest_leave_monitor();
	if (!dir || guest_has_begun() || guest.page)
		return;
	guest_name_monitor_session(dir);
	(void)guest_note_begun();
}

struct control_page *guest_page_of_session(void)
{
	static _Atomic bool tried; /* a launcher makes it before the program begins */

	if (!guest.page && guest_is_launched() && !guest_is_sealed() &&
	    !atomic_exchange(&tried, true))
		guest.page = page_of_session();
	return guest.page;
}

void guest_note_unseen_heap(void)
{
	if (!guest.page && !guest_is_sealed())
		guest.page = page_of_session();
	if (guest.page && atomic_load(&guest.page->want) & WANT_HOST)
		atomic_fetch_add(&guest.page->unseen_heaps, 1);
}

/*
 * A filter that came with exec() is known to be there, but not what it allows. One that the job
 * had from the start, a container's or a service's, allows what the launcher did. More than that
 * is of the job's own making: nothing of ours is started then.
 */
static bool is_sealed_already(void)
{
	uint32_t filters = guest_is_expected() ? guest_filters() : 0;

	if (!filters)
		return false;
	if (!guest.page)
		guest.page = page_of_session();
	if (!guest.page || filters <= guest.page->filters)
		return false;
	atomic_store(&guest_sealed, 1);
	return true;
}

/* Before main(), with one thread only, unless the Python package brings us: then it begins. */
__attribute__((constructor)) static void loaded(void)
{
	if (is_sealed_already())
		return;
	guest_note_owner();
	if (guest_is_expected())
		begin_once();
	if (guest_is_launched() && guest_has_python()) {
		if (!guest.page)
			guest.page = page_of_session();
		if (guest.page) {
			guest_let_sampler_in(guest.page);
			guest_await_python(atomic_load(&guest.page->want));
		}
	}
}
