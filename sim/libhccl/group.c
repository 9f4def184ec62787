/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "group.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim/state.h"

#define LOOK_NS 20000000 /* how often a waiting rank looks whether the others live */
#define CONNECT_SECONDS 120
#define EXEC_SECONDS 1836

struct member {
	_Atomic int32_t pid; /* 0: not there yet; -1: has left */
	uint32_t pad;
	_Atomic uint64_t start_ticks;
};

struct meeting {
	_Atomic uint32_t arrived; /* over all meetings in this place */
	_Atomic uint32_t ended; /* how many meetings have */
	uint64_t end_ns;
	uint64_t begin_ns[SIM_HCCL_MAX_RANKS];
	group_parts parts[SIM_HCCL_MAX_RANKS];
};

struct shared {
	_Atomic uint32_t joined;
	_Atomic uint32_t broken;
	struct member member[SIM_HCCL_MAX_RANKS];
	struct meeting meeting[2];
};

struct group {
	struct shared *shared;
	uint32_t ranks;
	uint32_t rank;
	uint64_t exec_ns;
	char path[512];
};

static uint64_t seconds_from_env(const char *name, uint64_t fallback)
{
	const char *text = getenv(name);
	uint64_t v = text ? strtoull(text, NULL, 10) : 0;
	return (v && v < 1000000 ? v : fallback) * 1000000000ull;
}

static void wait_word(_Atomic uint32_t *word, uint32_t value)
{
	struct timespec ts = {.tv_nsec = LOOK_NS};
	(void)syscall(SYS_futex, word, FUTEX_WAIT, value, &ts, NULL, 0);
}

static void wake_word(_Atomic uint32_t *word)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Those that were there and are no more. */
static int somebody_is_gone(const struct group *g)
{
	for (uint32_t i = 0; i < g->ranks; i++) {
		const struct member *m = &g->shared->member[i];
		int32_t pid = atomic_load(&m->pid);
		if (pid < 0)
			return 1;
		if (pid && pid != getpid() &&
		    sim_process_start(pid) != atomic_load(&m->start_ticks))
			return 1;
	}
	return 0;
}

static void break_up(struct group *g)
{
	atomic_store(&g->shared->broken, 1);
	wake_word(&g->shared->joined);
	wake_word(&g->shared->meeting[0].ended);
	wake_word(&g->shared->meeting[1].ended);
}

/* Whether @word still has to change; breaks the group up when waiting makes no sense. */
static int keep_waiting(struct group *g, uint64_t until)
{
	if (atomic_load(&g->shared->broken))
		return 0;
	if (sim_now_ns() < until && !somebody_is_gone(g))
		return 1;
	break_up(g);
	return 0;
}

static struct shared *map_locked(int fd)
{
	void *mem = MAP_FAILED;
	if (!ftruncate(fd, sizeof(struct shared)))
		mem = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return mem == MAP_FAILED ? NULL : mem;
}

enum entry { ENTERED, FAILED, LEFT_OVER, REPLACED, TAKEN };

/* Takes its place in the file, with the file locked. LEFT_OVER: by a job that never got together.
 */
static enum entry enter(struct group *g, int fd)
{
	struct stat st;
	if (fstat(fd, &st) || !st.st_nlink)
		return REPLACED;
	g->shared = map_locked(fd);
	if (!g->shared)
		return FAILED;
	struct member *me = &g->shared->member[g->rank];
	enum entry e = ENTERED;
	if (atomic_load(&g->shared->broken) || somebody_is_gone(g))
		e = LEFT_OVER;
	else if (atomic_load(&me->pid))
		e = TAKEN;
	if (e == ENTERED) {
		atomic_store(&me->start_ticks, sim_process_start(getpid()));
		atomic_store(&me->pid, getpid());
	} else {
		(void)munmap(g->shared, sizeof(*g->shared));
		g->shared = NULL;
	}
	return e;
}

static HcclResult open_place(struct group *g)
{
	for (int tries = 0; tries < 100; tries++) {
		int fd = open(g->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return HCCL_E_SYSCALL;
		(void)flock(fd, LOCK_EX);
		enum entry e = enter(g, fd);
		if (e == LEFT_OVER)
			(void)unlink(g->path);
		(void)flock(fd, LOCK_UN); /* closing does not where it is mapped */
		close(fd);
		if (e == ENTERED)
			return HCCL_SUCCESS;
		if (e == FAILED || e == TAKEN)
			return e == TAKEN ? HCCL_E_PARA : HCCL_E_MEMORY;
	}
	return HCCL_E_INTERNAL;
}

static HcclResult wait_for_all(struct group *g)
{
	struct shared *s = g->shared;
	uint64_t until = sim_now_ns() + seconds_from_env("HCCL_CONNECT_TIMEOUT", CONNECT_SECONDS);
	uint32_t n = atomic_fetch_add(&s->joined, 1) + 1;
	if (n >= g->ranks) {
		(void)unlink(g->path); /* all have it: nothing stays behind */
		wake_word(&s->joined);
	}
	while ((n = atomic_load(&s->joined)) < g->ranks) {
		wait_word(&s->joined, n);
		if (atomic_load(&s->joined) < g->ranks && !keep_waiting(g, until)) {
			(void)unlink(g->path);
			return sim_now_ns() < until ? HCCL_E_REMOTE : HCCL_E_TIMEOUT;
		}
	}
	return HCCL_SUCCESS;
}

HcclResult group_join(const char *name, uint32_t ranks, uint32_t rank, struct group **out)
{
	if (!ranks || ranks > SIM_HCCL_MAX_RANKS || rank >= ranks)
		return HCCL_E_PARA;
	struct group *g = calloc(1, sizeof(*g));
	if (!g)
		return HCCL_E_MEMORY;
	snprintf(g->path, sizeof(g->path), "%s/hccl-%s", sim_state_dir(), name);
	g->ranks = ranks;
	g->rank = rank;
	g->exec_ns = seconds_from_env("HCCL_EXEC_TIMEOUT", EXEC_SECONDS);
	HcclResult r = open_place(g);
	if (r) {
		free(g);
		return r;
	}
	r = wait_for_all(g);
	if (r)
		group_leave(g);
	else
		*out = g;
	return r;
}

void group_leave(struct group *g)
{
	atomic_store(&g->shared->member[g->rank].pid, -1);
	(void)munmap(g->shared, sizeof(*g->shared));
	free(g);
}

uint32_t group_ranks(const struct group *g)
{
	return g->ranks;
}

uint32_t group_rank(const struct group *g)
{
	return g->rank;
}

group_parts *group_parts_of(struct group *g, uint64_t meeting, uint32_t rank)
{
	return &g->shared->meeting[meeting % 2].parts[rank];
}

/* The last to come says for all when it ends. */
static void end_meeting(struct meeting *m, uint32_t ranks, uint64_t cost_ns)
{
	uint64_t latest = 0;
	for (uint32_t i = 0; i < ranks; i++)
		if (m->begin_ns[i] > latest)
			latest = m->begin_ns[i];
	m->end_ns = latest + cost_ns;
	atomic_fetch_add(&m->ended, 1);
	wake_word(&m->ended);
}

uint64_t group_meet(struct group *g, uint64_t meeting, uint64_t begin_ns, uint64_t cost_ns)
{
	struct meeting *m = &g->shared->meeting[meeting % 2];
	uint32_t number = (uint32_t)(meeting / 2 + 1); /* of those in this place, from 1 */
	uint64_t until = sim_now_ns() + g->exec_ns;
	uint32_t ended;
	if (atomic_load(&g->shared->broken))
		return 0;
	m->begin_ns[g->rank] = begin_ns;
	if (atomic_fetch_add(&m->arrived, 1) + 1 == number * g->ranks)
		end_meeting(m, g->ranks, cost_ns);
	while ((int32_t)((ended = atomic_load(&m->ended)) - number) < 0) {
		wait_word(&m->ended, ended);
		if ((int32_t)(atomic_load(&m->ended) - number) < 0 && !keep_waiting(g, until))
			return 0;
	}
	return m->end_ns;
}
