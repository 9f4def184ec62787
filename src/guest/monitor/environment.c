/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Lines for people on the job's stderr, and the environment, taken when the library is loaded: a
 * job may change or clear its environment from any thread later.
 */
#include "guest/monitor/monitor_impl.h"

#include "guest/runtime/env.h"
#include "wire/control_page.h"
#include "wire/rank_env.h"

#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

struct environment environment = {.rank = -1};
static struct {
	bool known;
	dev_t device;
	ino_t file;
} first_stderr;

/*
 * Programs reuse numbers; and a pipe that nobody reads has no room.
 *
 * Polled, not written blindly: a pipe whose reader sleeps would stop our thread, and with it the
 * monitor.
 */
static bool can_write(void)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
	struct stat st;

	return first_stderr.known && fstat(STDERR_FILENO, &st) == 0 &&
	       st.st_dev == first_stderr.device && st.st_ino == first_stderr.file &&
	       poll(&p, 1, 0) > 0 && p.revents & POLLOUT;
}

void print_notice(const char *a, const char *b, const char *c, const char *d)
{
	const char *pieces[] = {a, b, c, d};
	char line[1024];
	struct text t = {line, line + sizeof(line) - 1};

	text_str(&t, "[msmonitor] ");
	for (int i = 0; i < 4 && pieces[i]; i++)
		text_str(&t, pieces[i]);
	if (!t.at || !can_write())
		return;
	*t.at++ = '\n';
	struct quiet_write quiet;
	quiet_write_begin(&quiet);
	(void)!write(STDERR_FILENO, line, (size_t)(t.at - line));
	quiet_write_end(&quiet);
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

void environment_read_rank(void)
{
	if (!environment.rank_given)
		environment.rank = rank_of_environment();
}

static char given_dir[256], temp_dir[256];

/* Four bytes that nobody knows before, the same for the life of the process. */
static uint32_t secret_number(void)
{
	static _Atomic uint32_t number;
	uint32_t n = 0, before = 0;

	if (atomic_load(&number))
		return atomic_load(&number);
	if (getrandom(&n, sizeof(n), GRND_NONBLOCK) != (ssize_t)sizeof(n) || !n)
		n = (uint32_t)guest_now() | 1;
	return atomic_compare_exchange_strong(&number, &before, n) ? n : before;
}

/*
 * As mkdtemp's users choose: a place of this user below the usual one.
 *
 * The user's id is part of the name: the directory belongs to one user. Everybody can make one of
 * that name, so there is another, whose name nobody can know.
 */
const char *environment_work_dir(bool other)
{
	static char dirs[2][512];
	char *dir = dirs[other];
	struct text t = {dir, dir + sizeof(dirs[0])};

	if (given_dir[0] == '/') {
		text_str(&t, other ? "" : given_dir);
	} else {
		text_str(&t, temp_dir[0] == '/' ? temp_dir : "/tmp");
		text_str(&t, "/" SESSION_MONITOR_PLACE);
		text_number(&t, (int64_t)geteuid());
	}
	if (other && given_dir[0] != '/') {
		text_str(&t, ".");
		text_number(&t, secret_number());
	}
	if (!t.at)
		dir[0] = '\0';
	return dir;
}

static void remember_stderr(void)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st) < 0)
		return;
	first_stderr.known = true;
	first_stderr.device = st.st_dev;
	first_stderr.file = st.st_ino;
}

__attribute__((constructor)) static void read_environment(void)
{
	char v[16];

	guest_env_copy("MSMONITOR_USE_DAEMON", v, sizeof(v));
	environment.wanted = is_one(v);
	environment.rank = rank_of_environment();
	guest_env_copy("HOME", environment.home, sizeof(environment.home));
	guest_env_copy("KINETO_IPC_SOCKET_DIR", environment.socket_dir,
		       sizeof(environment.socket_dir));
	guest_env_copy("SONDE_DAEMON", environment.daemon, sizeof(environment.daemon));
	guest_env_copy("SONDE_MONITOR_DIR", given_dir, sizeof(given_dir));
	guest_env_copy("TMPDIR", temp_dir, sizeof(temp_dir));
	guest_env_copy(SESSION_ENV, v, sizeof(v)); /* sonde record? That is known later */
	if (environment.wanted || v[0])
		remember_stderr();
}
