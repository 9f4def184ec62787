/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "guest/monitor/impl.h"

#include "guest/runtime/env.h"
#include "wire/rank_env.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct surroundings surroundings = {.rank = -1};
static struct {
	bool known;
	dev_t device;
	ino_t file;
} first_stderr;

void text_add(struct text *t, const char *s, size_t n)
{
	if (!t->at || n >= (size_t)(t->end - t->at)) {
		t->at = NULL;
		return;
	}
	memcpy(t->at, s, n);
	t->at += n;
	*t->at = '\0';
}

void text_str(struct text *t, const char *s)
{
	text_add(t, s, strlen(s));
}

void text_number(struct text *t, int64_t v)
{
	char tmp[24];
	size_t i = sizeof(tmp);
	uint64_t left = v < 0 ? -(uint64_t)v : (uint64_t)v;

	do {
		tmp[--i] = (char)('0' + left % 10);
		left /= 10;
	} while (left);
	if (v < 0)
		tmp[--i] = '-';
	text_add(t, tmp + i, sizeof(tmp) - i);
}

/* Programs reuse numbers; and a pipe that nobody reads has no room. */
static bool can_say(void)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
	struct stat st;

	return first_stderr.known && fstat(STDERR_FILENO, &st) == 0 &&
	       st.st_dev == first_stderr.device && st.st_ino == first_stderr.file &&
	       poll(&p, 1, 0) > 0 && p.revents & POLLOUT;
}

void say(const char *a, const char *b, const char *c, const char *d)
{
	const char *pieces[] = {a, b, c, d};
	char line[1024];
	struct text t = {line, line + sizeof(line) - 1};

	text_str(&t, "[msmonitor] ");
	for (int i = 0; i < 4 && pieces[i]; i++)
		text_str(&t, pieces[i]);
	if (!t.at || !can_say())
		return;
	*t.at++ = '\n';
	/* A reader that is gone, a limit of file sizes: no reason to die. */
	const struct timespec none = {0};
	sigset_t ours, before, pending;
	sigemptyset(&ours);
	sigaddset(&ours, SIGPIPE);
	sigaddset(&ours, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &ours, &before);
	sigpending(&pending);
	(void)!write(STDERR_FILENO, line, (size_t)(t.at - line));
	/* What was pending before stays. */
	if (sigismember(&pending, SIGPIPE))
		sigdelset(&ours, SIGPIPE);
	if (sigismember(&pending, SIGXFSZ))
		sigdelset(&ours, SIGXFSZ);
	(void)sigtimedwait(&ours, NULL, &none);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool is_one(const char *v)
{
	while (*v == ' ' || *v == '0')
		v++;
	return *v == '1' && (v[1] == '\0' || v[1] == ' ');
}

/* The first variable that holds a number. */
static int32_t rank_of_environment(void)
{
	char v[16];
	int32_t rank = RANK_ENV_UNKNOWN;

	for (const char *const *name = rank_env_names(RANK_ENV_RANK);
	     *name && rank == RANK_ENV_UNKNOWN; name++) {
		guest_env_copy(*name, v, sizeof(v));
		rank = rank_env_number(v, strlen(v));
	}
	return rank;
}

void surroundings_look_again(void)
{
	if (!surroundings.rank_given)
		surroundings.rank = rank_of_environment();
}

static char given_dir[256], temp_dir[256];

/* As mkdtemp's users choose: a place of this user below the usual one. */
const char *surroundings_work_dir(void)
{
	static char dir[512];
	struct text t = {dir, dir + sizeof(dir)};

	if (given_dir[0] == '/') {
		text_str(&t, given_dir);
	} else {
		text_str(&t, temp_dir[0] == '/' ? temp_dir : "/tmp");
		text_str(&t, "/sonde-monitor-");
		text_number(&t, (int64_t)geteuid());
	}
	if (!t.at)
		dir[0] = '\0';
	return dir;
}

static void look_at_stderr(void)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st) < 0)
		return;
	first_stderr.known = true;
	first_stderr.device = st.st_dev;
	first_stderr.file = st.st_ino;
}

__attribute__((constructor)) static void look_around(void)
{
	char v[16];

	guest_env_copy("MSMONITOR_USE_DAEMON", v, sizeof(v));
	surroundings.wanted = is_one(v);
	surroundings.rank = rank_of_environment();
	guest_env_copy("HOME", surroundings.home, sizeof(surroundings.home));
	guest_env_copy("KINETO_IPC_SOCKET_DIR", surroundings.socket_dir,
		       sizeof(surroundings.socket_dir));
	guest_env_copy("SONDE_DAEMON", surroundings.daemon, sizeof(surroundings.daemon));
	guest_env_copy("SONDE_MONITOR_DIR", given_dir, sizeof(given_dir));
	guest_env_copy("TMPDIR", temp_dir, sizeof(temp_dir));
	if (surroundings.wanted)
		look_at_stderr();
}

static uint64_t self_word(void)
{
	return (uint64_t)getpid() << 32 | (uint64_t)syscall(SYS_gettid);
}

void turn_take(struct turn *t)
{
	while (!turn_try(t, UINT32_MAX))
		;
}

bool turn_try(struct turn *t, uint32_t wait_ms)
{
	uint64_t me = self_word(), pid = me >> 32;
	uint64_t until = guest_now() + wait_ms * MS_NS;
	const struct timespec moment = {0, 200000};

	for (;;) {
		uint64_t who = 0;

		if (atomic_compare_exchange_strong(&t->owner, &who, me))
			return true;
		if (who >> 32 != pid && atomic_compare_exchange_strong(&t->owner, &who, me))
			return true;
		if (guest_now() >= until)
			return false;
		syscall(SYS_nanosleep, &moment, NULL);
	}
}

void turn_give(struct turn *t)
{
	atomic_store(&t->owner, 0);
}

bool turn_is_mine(const struct turn *t)
{
	return atomic_load(&t->owner) == self_word();
}
