/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The control page of a session (wire/control_page.h, with its states), and the recorder behind it.
 *
 * Without a launcher the first process that has an event makes the directory and the page, and
 * starts the recorder. O_EXCL decides between processes that do so at once; the loser opens what
 * the winner made, which is a whole page of zeros and a magic number by then (a page that is not
 * is refused, and that process is not recorded).
 */
#include "guest/runtime/guest.h"

#include "guest/runtime/env.h"
#include "guest/runtime/text.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POLL_NS 500000
#define LIVE_WAIT_NS 2000000000ull
#define START_NS 10000000000ull /* a recorder that has not begun by then will not */
#define SILENT_NS 3000000000ull /* without a sign of life it is looked at more closely */

/* Without a launcher: the page of a new session, and a recorder to fill it in. */
static int session_make(const char *dir)
{
	char path[1200];
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	struct control_page init = {
		.magic = SESSION_MAGIC,
		.version = SESSION_VERSION,
		.root_pid = guest_root_pid(),
		.root_ns = guest_root_pid() == guest_owner_pid() ? guest_pid_namespace() : 0,
		.made_s = now.tv_sec,
	};

	init.filters = guest_filters();
	if (guest_mkdirs(dir) < 0 || guest_join_path(path, sizeof(path), dir, SESSION_FILE) < 0)
		return -1;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		(void)!fchmod(fd, 0600);
	if (fd < 0)
		return errno == EEXIST ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
				       : -1;
	if (fallocate(fd, 0, 0, SESSION_BYTES) < 0 ||
	    pwrite(fd, &init, sizeof(init), 0) != (ssize_t)sizeof(init)) {
		close(fd);
		return -1;
	}
	if (guest_spawn_recorder(dir) < 0) {
		unlink(path);
		close(fd);
		return -1;
	}
	return fd;
}

/* One line, once in a process, which is not recorded then. */
static void print_refusal(const char *path, const char *why)
{
	static atomic_flag printed = ATOMIC_FLAG_INIT;
	char line[1500];
	struct text t = {line, line + sizeof(line)};

	if (atomic_flag_test_and_set(&printed))
		return;
	text_str(&t, "[msmemscope] process ");
	text_number(&t, getpid());
	text_str(&t, " is not recorded: '");
	text_str(&t, path);
	text_str(&t, "' ");
	text_str(&t, why);
	text_str(&t, "\n");
	if (t.at)
		(void)!write(STDERR_FILENO, line, (size_t)(t.at - line));
}

/*
 * The page says where files go and how long we wait, and a page that is cut off kills who reads it.
 * So it is believed only if nobody but our own user can have written it: other users may be able to
 * rename directories on the way, and to put their own there.
 */
static bool is_own_page(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < SESSION_BYTES)
		return false;
	if (st.st_uid == geteuid() && st.st_nlink == 1 && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return true;
	print_refusal(path, "belongs to another user, or others can write to it");
	return false;
}

static int open_page(const char *dir, const char *path, bool make)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd >= 0)
		return fd;
	if (errno == ENOENT)
		return make ? session_make(dir) : -1;
	if (errno == EACCES)
		print_refusal(path, "may not be opened by the user of this process");
	return -1;
}

struct control_page *guest_session_map(const char *dir, bool make)
{
	char path[1200];

	if (guest_join_path(path, sizeof(path), dir, SESSION_FILE) < 0)
		return NULL;
	int fd = open_page(dir, path, make);
	if (fd < 0)
		return NULL;
	void *p = MAP_FAILED;
	if (is_own_page(fd, path))
		p = mmap(NULL, SESSION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return NULL;
	struct control_page *page = p;
	if (page->magic != SESSION_MAGIC || page->version != SESSION_VERSION) {
		munmap(p, SESSION_BYTES);
		return NULL;
	}
	guest_own_range(p, SESSION_BYTES);
	return page;
}

/* Of several that find it FINISHED one wins and starts a recorder; if that fails it is put back,
 * so that the others do not wait for nothing. */
bool guest_session_wait(struct control_page *page, const char *dir)
{
	uint32_t finished = SESSION_FINISHED, called = SESSION_NEW;

	if (atomic_compare_exchange_strong(&page->state, &finished, SESSION_NEW) &&
	    guest_spawn_recorder(dir) < 0)
		atomic_compare_exchange_strong(&page->state, &called, SESSION_FINISHED);
	uint64_t until = guest_now() + LIVE_WAIT_NS;
	while (atomic_load(&page->state) == SESSION_NEW && guest_now() < until)
		guest_sleep(POLL_NS);
	return atomic_load(&page->state) != SESSION_FINISHED;
}

/*
 * Whether a recorder is at work on the session: by the lock that it has on the page's file, which
 * every namespace sees alike. Where that cannot be asked it counts as being there.
 */
static bool session_is_locked(const char *dir)
{
	char path[1200];

	if (guest_is_sealed() || guest_join_path(path, sizeof(path), dir, SESSION_FILE) < 0)
		return true;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return true;
	bool locked = flock(fd, LOCK_SH | LOCK_NB) < 0;
	close(fd);
	return locked;
}

/* Its number means something in its own pid namespace only. */
bool guest_recorder_has_ended(const struct control_page *page)
{
	uint64_t ns = atomic_load(&page->recorder_ns);

	if (guest.arena && ns && guest.arena->pid_ns && ns != guest.arena->pid_ns)
		return !session_is_locked(guest_session_dir());
	return guest_is_gone(atomic_load(&page->recorder_pid));
}

/* A recorder that was killed leaves LIVE behind. Only when its process is gone is that taken for
 * FINISHED, and called again. */
bool guest_revive(void)
{
	uint32_t live = SESSION_LIVE;
	struct control_page *page = guest.page;

	if (!page || !guest_has_joined() || guest_is_sealed())
		return false;
	if (atomic_load(&page->state) == SESSION_LIVE && guest_recorder_has_ended(page))
		atomic_compare_exchange_strong(&page->state, &live, SESSION_FINISHED);
	return guest_session_wait(page, guest_session_dir());
}

/* It sleeps on this word, which stays as it is. */
void guest_wake_recorder(void)
{
	int saved = errno;

	if (guest_has_joined())
		guest_syscall(SYS_futex, &guest.page->exit_asked, FUTEX_WAKE, INT32_MAX, NULL, NULL,
			      0);
	errno = saved;
}

/*
 * One that stands still (a debugger, a disk that hangs) has not gone. Its number may be somebody
 * else's by now, or belong to a zombie where nobody waits for orphans.
 */
bool guest_recorder_is_gone(void)
{
	const struct control_page *page = guest.page;
	uint64_t now = guest_now();

	if (!guest_has_joined())
		return false;
	uint32_t state = atomic_load(&page->state);
	if (state == SESSION_NEW)
		return now - guest.arena->image_ns > START_NS;
	if (state == SESSION_FINISHED || guest_recorder_has_ended(page))
		return true;
	/* Its clock may be another: then this is huge, and the lock is asked. */
	return now - atomic_load(&page->heartbeat_ns) > SILENT_NS &&
	       !session_is_locked(guest_session_dir());
}
