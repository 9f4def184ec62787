/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "monitor/impl.h"

#include "guest/env.h"

#include <string.h>
#include <sys/uio.h>
#include <time.h>

struct surroundings surroundings = {.rank = -1};

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

void say(const char *a, const char *b, const char *c, const char *d)
{
	const char *pieces[] = {a, b, c, d};
	char line[1024];
	struct text t = {line, line + sizeof(line) - 1};

	text_str(&t, "[msmonitor] ");
	for (int i = 0; i < 4 && pieces[i]; i++)
		text_str(&t, pieces[i]);
	if (!t.at)
		return;
	*t.at++ = '\n';
	(void)!write(STDERR_FILENO, line, (size_t)(t.at - line));
}

static bool is_one(const char *v)
{
	while (*v == ' ' || *v == '0')
		v++;
	return *v == '1' && (v[1] == '\0' || v[1] == ' ');
}

/* The first that is a number. */
static int32_t rank_of_environment(void)
{
	static const char *const names[] = {"RANK",	 "OMPI_COMM_WORLD_RANK", "PMI_RANK",
					    "PMIX_RANK", "SLURM_PROCID",	 "RANK_ID"};
	char v[16];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int32_t n = 0;
		size_t k = 0;

		guest_env_copy(names[i], v, sizeof(v));
		while (k < 9 && v[k] >= '0' && v[k] <= '9')
			n = n * 10 + (v[k++] - '0');
		if (k && !v[k])
			return n;
	}
	return -1;
}

void surroundings_look_again(void)
{
	if (!surroundings.rank_given)
		surroundings.rank = rank_of_environment();
}

/* As mkdtemp's users choose: a place of this user below the usual one. */
static void choose_work_dir(void)
{
	char base[256];
	struct text t = {surroundings.work_dir,
			 surroundings.work_dir + sizeof(surroundings.work_dir)};

	guest_env_copy("SONDE_MONITOR_DIR", base, sizeof(base));
	if (base[0] != '/') {
		guest_env_copy("TMPDIR", base, sizeof(base));
		text_str(&t, base[0] == '/' ? base : "/tmp");
		text_str(&t, "/sonde-monitor-");
		text_number(&t, (int64_t)getuid());
	} else {
		text_str(&t, base);
	}
	if (!t.at)
		surroundings.work_dir[0] = '\0';
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
	choose_work_dir();
}

void turn_take(struct turn *t)
{
	while (!turn_try(t, UINT32_MAX))
		;
}

bool turn_try(struct turn *t, uint32_t wait_ms)
{
	uint64_t pid = (uint64_t)getpid(), me = pid << 32 | (uint64_t)syscall(SYS_gettid);
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
