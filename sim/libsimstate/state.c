/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sim/state.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STATE_MAGIC 0x53494d31u /* "SIM1"; change it when a struct of state.h changes */
#define WINDOW_NS 100000000ull
#define WINDOW_STALE_NS 1000000000ull

static struct sim_state *state;
static struct sim_proc *_Atomic self;
static int state_fd = -1;
static char state_dir[480];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t self_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t env_number(const char *name, uint64_t fallback, uint64_t max)
{
	const char *text = getenv(name);
	if (!text || !*text)
		return fallback;
	char *end;
	unsigned long long v = strtoull(text, &end, 10);
	if (*end || v == 0)
		return fallback;
	return v > max ? max : v;
}

int sim_device_count(void)
{
	return (int)env_number("SIM_NPU_COUNT", 8, SIM_MAX_DEVICES);
}

uint64_t sim_hbm_bytes(void)
{
	return env_number("SIM_NPU_HBM_MB", 65536, 1u << 20) << 20;
}

const char *sim_soc_name(void)
{
	const char *soc = getenv("SIM_NPU_SOC");
	return soc && *soc ? soc : "Ascend910B3";
}

uint64_t sim_now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* Device memory does not follow a fork: the child claims its own slot when it first allocates. */
static void after_fork_in_child(void)
{
	atomic_store(&self, NULL);
	pthread_mutex_init(&self_lock, NULL);
}

static void name_state_dir(void)
{
	const char *dir = getenv("SIM_NPU_STATE");
	if (dir && *dir)
		snprintf(state_dir, sizeof(state_dir), "%s", dir);
	else
		snprintf(state_dir, sizeof(state_dir), "/tmp/sim-npu-%u", (unsigned)getuid());
	(void)mkdir(state_dir, 0700);
}

const char *sim_state_dir(void)
{
	static pthread_once_t named = PTHREAD_ONCE_INIT;
	pthread_once(&named, name_state_dir);
	return state_dir;
}

static int open_state_file(void)
{
	char path[sizeof(state_dir) + 8];
	snprintf(path, sizeof(path), "%s/usage", sim_state_dir());
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static void map_state(void)
{
	size_t size = sizeof(struct sim_state);
	void *mem = MAP_FAILED;

	state_fd = open_state_file();
	if (state_fd >= 0) {
		(void)flock(state_fd, LOCK_EX);
		if (ftruncate(state_fd, (off_t)size) == 0)
			mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
		if (mem != MAP_FAILED) {
			struct sim_state *s = mem;
			if (atomic_load(&s->magic) != STATE_MAGIC) {
				memset(s, 0, size);
				atomic_store(&s->magic, STATE_MAGIC);
			}
		}
		(void)flock(state_fd, LOCK_UN);
	}
	if (mem == MAP_FAILED)
		mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		abort();
	state = mem;
	pthread_atfork(NULL, NULL, after_fork_in_child);
}

struct sim_state *sim_state_get(void)
{
	pthread_once(&once, map_state);
	return state;
}

/* A zombie holds no device memory. */
uint64_t sim_process_start(int pid)
{
	char path[64];
	char text[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	char *at = strrchr(text, ')'); /* the name before it may hold anything */
	if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
		return 0;
	at += 2;
	for (int field = 3; field < 22; field++) {
		at = strchr(at, ' ');
		if (!at)
			return 0;
		at++;
	}
	return strtoull(at, NULL, 10);
}

static int slot_alive(const struct sim_proc *p)
{
	int pid = atomic_load(&p->pid);
	return pid > 0 && sim_process_start(pid) == p->start_ticks;
}

static uint64_t slot_bytes(const struct sim_proc *p, int device)
{
	uint64_t sum = 0;
	for (int i = 0; i < SIM_SHARDS; i++)
		sum += atomic_load_explicit(&p->cell[device][i].bytes, memory_order_relaxed);
	return sum;
}

/* Called with the file locked. */
static void reap_slot(struct sim_state *s, struct sim_proc *p)
{
	for (int d = 0; d <= SIM_MAX_DEVICES; d++) {
		uint64_t bytes = slot_bytes(p, d);
		if (bytes)
			atomic_fetch_sub(&s->device[d].used_bytes, bytes);
	}
	memset(p->cell, 0, sizeof(p->cell));
	atomic_store(&p->pid, 0);
}

static void reap_locked(struct sim_state *s)
{
	int alive = 0;
	for (int i = 0; i < SIM_MAX_PROCS; i++) {
		struct sim_proc *p = &s->proc[i];
		if (!atomic_load(&p->pid))
			continue;
		if (slot_alive(p))
			alive++;
		else
			reap_slot(s, p);
	}
	/* A kill between a device counter and its cell leaves the counter one block too high. */
	if (!alive)
		for (int d = 0; d <= SIM_MAX_DEVICES; d++)
			atomic_store(&s->device[d].used_bytes, 0);
}

void sim_state_reap(void)
{
	struct sim_state *s = sim_state_get();
	if (state_fd < 0)
		return;
	(void)flock(state_fd, LOCK_EX);
	reap_locked(s);
	(void)flock(state_fd, LOCK_UN);
}

static struct sim_proc *claim_slot(struct sim_state *s)
{
	for (int i = 0; i < SIM_MAX_PROCS; i++) {
		struct sim_proc *p = &s->proc[i];
		if (atomic_load(&p->pid))
			continue;
		memset(p->cell, 0, sizeof(p->cell));
		memset(p->name, 0, sizeof(p->name));
		p->start_ticks = sim_process_start(getpid());
		int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
		if (fd >= 0) {
			ssize_t n = read(fd, p->name, sizeof(p->name) - 1);
			if (n > 0 && p->name[n - 1] == '\n')
				p->name[n - 1] = 0;
			close(fd);
		}
		atomic_store(&p->pid, getpid());
		return p;
	}
	return NULL;
}

struct sim_proc *sim_state_self(void)
{
	static struct sim_proc overflow; /* more processes than slots: works, but is not shown */
	struct sim_proc *p = atomic_load_explicit(&self, memory_order_acquire);
	if (p)
		return p;

	struct sim_state *s = sim_state_get();
	pthread_mutex_lock(&self_lock);
	p = atomic_load(&self);
	if (!p) {
		if (state_fd >= 0)
			(void)flock(state_fd, LOCK_EX);
		reap_locked(s);
		p = claim_slot(s);
		if (state_fd >= 0)
			(void)flock(state_fd, LOCK_UN);
		if (!p)
			p = &overflow;
		atomic_store_explicit(&self, p, memory_order_release);
	}
	pthread_mutex_unlock(&self_lock);
	return p;
}

int sim_state_procs(int device, struct sim_proc_usage *out_rows, int cap)
{
	struct sim_state *s = sim_state_get();
	int n = 0;
	for (int i = 0; i < SIM_MAX_PROCS && n < cap; i++) {
		struct sim_proc *p = &s->proc[i];
		uint64_t bytes = atomic_load(&p->pid) ? slot_bytes(p, device) : 0;
		if (!bytes || !slot_alive(p))
			continue;
		out_rows[n].pid = atomic_load(&p->pid);
		out_rows[n].bytes = bytes;
		memcpy(out_rows[n].name, p->name, sizeof(p->name));
		out_rows[n].name[sizeof(p->name) - 1] = 0;
		n++;
	}
	return n;
}

uint64_t sim_state_used(int device)
{
	struct sim_proc_usage rows[SIM_MAX_PROCS];
	int n = sim_state_procs(device, rows, SIM_MAX_PROCS);
	uint64_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += rows[i].bytes;
	return sum;
}

void sim_state_busy(int device, uint64_t busy_ns)
{
	struct sim_device *d = &sim_state_get()->device[device];
	uint64_t now = sim_now_ns();
	uint64_t start = atomic_load_explicit(&d->window_start_ns, memory_order_relaxed);
	uint64_t busy = atomic_fetch_add(&d->window_busy_ns, busy_ns) + busy_ns;
	if (now - start < WINDOW_NS)
		return;
	/* One of the racing streams closes the window; the others already belong to the next. */
	if (!atomic_compare_exchange_strong(&d->window_start_ns, &start, now))
		return;
	atomic_store(&d->window_busy_ns, 0);
	uint64_t percent = now - start > WINDOW_STALE_NS ? 0 : busy * 100 / (now - start);
	atomic_store(&d->util_percent, percent > 100 ? 100 : (uint32_t)percent);
}

unsigned sim_state_util(int device)
{
	struct sim_device *d = &sim_state_get()->device[device];
	if (sim_now_ns() - atomic_load(&d->window_start_ns) > WINDOW_STALE_NS)
		return 0;
	return atomic_load(&d->util_percent);
}
