/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The environment is read once, at load or at the first event, whichever comes first: getenv() is
 * not safe while another thread of the job calls setenv(). One thread reads it (`captured`); others
 * wait for at most 10 ms, because the reader may be this very thread, interrupted by a signal
 * handler that hits a hook.
 *
 * How a session is named:
 *
 *	SONDE_SESSION set, absolute	by a launcher, or by an ancestor: joined, or made
 *	not set				<cwd>/memscopeDumpResults/recording_<pid>_<seconds>
 *	the monitor			<its directory>/monitor_<pid>_<seconds>
 *
 * The name of the current and the next session lie in two buffers used in turn: a thread that reads
 * the one is not disturbed while the other is written, and the pointer changes in one store.
 */
#include "guest/runtime/env.h"

#include "guest/runtime/guest.h"
#include "guest/runtime/text.h"
#include "wire/proc_stat.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_SAME_SECOND 60

#define NAME_BYTES 1024

/* Two, so that who reads one is not disturbed while the next is put together. */
static char names[2][NAME_BYTES];
static char *_Atomic session_dir = names[0];
static char program[1024];
static uint32_t root_pid;
static bool launched;
static bool given; /* the environment names the session */
static bool expected;
static _Atomic int begun;
static _Atomic uint32_t monitor_of;
static _Atomic int captured;
enum { CAPTURE_NOT, CAPTURE_NOW, CAPTURE_DONE };

static const char *env_find(const char *name)
{
	size_t n = strlen(name);

	for (char **e = environ; e && *e; e++)
		if (!strncmp(*e, name, n) && (*e)[n] == '=')
			return *e + n + 1;
	return "";
}

void guest_env_copy(const char *name, char *out, size_t size)
{
	size_t n = strnlen(env_find(name), size - 1);

	memcpy(out, env_find(name), n);
	out[n] = '\0';
}

/* One read() of a /proc file is one consistent text. */
size_t guest_read_file(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		n = 0;
	memset(out + n, 0, size - (size_t)n);
	return (size_t)n;
}

/* False: there is no such process, or it is hidden from us. */
static bool read_stat(uint32_t pid, struct proc_stat *out)
{
	char path[64], text[PROC_STAT_BYTES];
	struct text t = {path, path + sizeof(path)};

	text_str(&t, "/proc/");
	text_number(&t, (int64_t)pid);
	text_str(&t, "/stat");
	return proc_stat_parse(text, guest_read_file(path, text, sizeof(text)), out);
}

uint64_t guest_pid_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

/* By the calls that the loader itself has made by now: a filter allows these. */
uint32_t guest_filters(void)
{
	char text[4096];

	return proc_status_filters(text, guest_read_file("/proc/self/status", text, sizeof(text)));
}

/* Not what getrusage() says: that includes what the process had before exec(), and after vfork()
 * the memory of its parent. */
uint32_t guest_peak_kib(void)
{
	char text[4096];

	return proc_status_peak_kib(text, guest_read_file("/proc/self/status", text, sizeof(text)));
}

uint32_t guest_parent(uint32_t pid)
{
	struct proc_stat s;

	return read_stat(pid, &s) ? s.parent : 0;
}

/* By a pidfd, which is readable once the process has ended, whether its parent has waited for it or
 * not; where a filter forbids pidfd_open(), by signal 0, which a zombie still takes. */
bool guest_is_gone(uint32_t pid)
{
	struct timespec now = {0};
	struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};

	if (p.fd < 0)
		return syscall(SYS_kill, pid, 0) < 0 && errno == ESRCH;
	bool gone = syscall(SYS_ppoll, &p, 1, &now, NULL, 0) > 0;
	close(p.fd);
	return gone;
}

int guest_join_path(char *out, size_t size, const char *dir, const char *name)
{
	struct text t = {out, out + size};

	text_str(&t, dir);
	text_str(&t, "/");
	text_str(&t, name);
	return t.at ? 0 : -1;
}

char *guest_arena_name(char *out, size_t size, const char *dir, uint32_t pid, uint64_t pid_ns,
		       uint64_t image_ns)
{
	struct text t = {out, out + size};

	text_str(&t, dir);
	text_str(&t, "/");
	text_number(&t, (int64_t)pid);
	text_str(&t, "-");
	text_number(&t, (int64_t)pid_ns);
	text_str(&t, "-");
	text_number(&t, (int64_t)image_ns);
	text_str(&t, SESSION_RING_SUFFIX);
	return t.at;
}

/* As base/fs.h does: a link is followed only if it belongs to root or to us. */
static int enter_dir(int at, const char *name)
{
	struct stat st;

	if (mkdirat(at, name, 0750) < 0 && errno != EEXIST)
		return -1;
	int fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(st.st_mode))
		return fd;
	if (st.st_uid != 0 && st.st_uid != geteuid()) {
		errno = ELOOP;
		return -1;
	}
	return openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int guest_mkdirs(const char *path)
{
	int at = open(*path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[NAME_MAX + 1];

	while (at >= 0 && *(path += strspn(path, "/"))) {
		size_t n = strcspn(path, "/");
		int next = -1, error = ENAMETOOLONG;

		if (n < sizeof(name)) {
			memcpy(name, path, n);
			name[n] = '\0';
			next = enter_dir(at, name);
			error = errno;
		}
		close(at);
		at = next;
		errno = error;
		path += n;
	}
	if (at < 0)
		return -1;
	close(at);
	return 0;
}

/*
 * <libdir>/../bin/sonde
 *
 * dladdr() of our own address is the file that we were loaded from, whatever the job has done to
 * its environment.
 */
static void find_program(void)
{
	Dl_info info;
	struct text t = {program, program + sizeof(program)};

	if (!dladdr((void *)find_program, &info) || !info.dli_fname || info.dli_fname[0] != '/')
		return;
	const char *slash = strrchr(info.dli_fname, '/');
	text_add(&t, info.dli_fname, (size_t)(slash - info.dli_fname));
	text_str(&t, "/../bin/sonde");
	if (!t.at)
		program[0] = '\0';
}

static void name_in(char *out, const char *output, const char *prefix, uint64_t seconds)
{
	struct text t = {out, out + NAME_BYTES};

	text_str(&t, output);
	text_str(&t, "/");
	text_str(&t, prefix);
	text_number(&t, (int64_t)(uint64_t)getpid());
	text_str(&t, "_");
	text_number(&t, (int64_t)seconds);
	if (!t.at)
		out[0] = '\0';
}

static uint64_t seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec;
}

static void name_session_in(const char *output, const char *prefix)
{
	name_in(session_dir, output, prefix, seconds_now());
}

static bool default_output(char *out, size_t size)
{
	char cwd[768];

	return getcwd(cwd, sizeof(cwd)) && guest_join_path(out, size, cwd, SESSION_OUTPUT) == 0;
}

/* Without a launcher the first process of the tree names the recording; children inherit it. */
static void name_session(void)
{
	char output[800];

	if (default_output(output, sizeof(output)))
		name_session_in(output, SESSION_PREFIX);
}

/* The first process of a tree without a launcher has put its pid into the name; children inherit
 * the name and find theirs is another. */
static uint32_t pid_in_name(const char *dir)
{
	const char *slash = strrchr(dir, '/');
	uint32_t pid = 0;

	if (!slash || strncmp(slash + 1, SESSION_PREFIX, strlen(SESSION_PREFIX)) != 0)
		return 0;
	for (const char *p = slash + 1 + strlen(SESSION_PREFIX); *p >= '0' && *p <= '9'; p++)
		pid = pid * 10 + (uint32_t)(*p - '0');
	return pid;
}

/*
 * Once. Threads that come meanwhile wait for it; not forever, since it may be this thread's own
 * work that a signal handler has interrupted.
 */
static void read_environment(void)
{
	int state = CAPTURE_NOT;

	if (atomic_load_explicit(&captured, memory_order_acquire) == CAPTURE_DONE)
		return;
	if (!atomic_compare_exchange_strong(&captured, &state, CAPTURE_NOW)) {
		for (int i = 0; i < 500 && atomic_load(&captured) != CAPTURE_DONE; i++)
			guest_sleep(20000);
		return;
	}
	guest_env_copy(SESSION_ENV, session_dir, NAME_BYTES);
	given = session_dir[0] == '/';
	/* One that was cut is not the one that was meant. */
	if (!given || strlen(env_find(SESSION_ENV)) >= NAME_BYTES)
		session_dir[0] = '\0';
	expected = given || strstr(env_find("LD_PRELOAD"), "_hook.so") ||
		   strstr(env_find("LD_PRELOAD"), "libsonde_guest");
	find_program();
	if (!given)
		name_session();
	root_pid = pid_in_name(session_dir);
	/* Only a launcher leaves the configuration in the session's own directory. */
	size_t n = strlen(session_dir);
	launched = n && !strncmp(env_find(SESSION_CONFIG_ENV), session_dir, n) &&
		   env_find(SESSION_CONFIG_ENV)[n] == '/';
	atomic_store_explicit(&captured, CAPTURE_DONE, memory_order_release);
}

const char *guest_session_dir(void)
{
	read_environment();
	return session_dir;
}

bool guest_move_session(const char *output)
{
	read_environment();
	if (given)
		return false;
	if (output)
		name_session_in(output, SESSION_PREFIX);
	else
		name_session();
	root_pid = pid_in_name(session_dir);
	return session_dir[0] != '\0';
}

void guest_name_monitor_session(const char *dir)
{
	read_environment();
	if (given)
		return;
	name_session_in(dir, SESSION_MONITOR_PREFIX);
	root_pid = (uint32_t)getpid();
	atomic_store(&monitor_of, root_pid);
}

uint32_t guest_monitor_pid(void)
{
	return atomic_load_explicit(&monitor_of, memory_order_relaxed);
}

bool guest_unname_monitor_session(uint32_t of)
{
	if (!of || !atomic_compare_exchange_strong(&monitor_of, &of, 0))
		return false;
	atomic_store(&begun, 0);
	return true;
}

static char *next_name(void)
{
	return session_dir == names[0] ? names[1] : names[0];
}

/* Names have seconds in them; a process that moves twice within one takes the next. */
const char *guest_name_next_session(const char *output, bool monitor)
{
	const char *prefix = monitor ? SESSION_MONITOR_PREFIX : SESSION_PREFIX;
	char usual[800] = "", *name = next_name();
	uint64_t seconds = seconds_now();

	if (!output && !default_output(usual, sizeof(usual))) {
		name[0] = '\0';
		return name;
	}
	/* That of this second may be there already. */
	for (int i = 0; i < MAX_SAME_SECOND; i++) {
		name_in(name, output ? output : usual, prefix, seconds + (uint64_t)i);
		if (access(name, F_OK) < 0)
			break;
	}
	return name;
}

const char *guest_next_session(void)
{
	return next_name();
}

void guest_take_next_session(bool monitor)
{
	session_dir = next_name();
	root_pid = (uint32_t)getpid();
	atomic_store(&monitor_of, monitor ? root_pid : 0);
}

bool guest_is_expected(void)
{
	read_environment();
	return expected;
}

/* A hook may run before our constructor, in that of another library: the environment decides
 * then. */
bool guest_has_begun(void)
{
	/* Events may come before our constructor. */
	return atomic_load_explicit(&begun, memory_order_relaxed) || guest_is_expected();
}

bool guest_note_begun(void)
{
	return atomic_exchange(&begun, 1);
}

uint32_t guest_root_pid(void)
{
	read_environment();
	return root_pid;
}

bool guest_is_launched(void)
{
	read_environment();
	return launched;
}

const char *guest_program(void)
{
	read_environment();
	return program;
}
