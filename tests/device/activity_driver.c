/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The CUPTI source alone, inside a job, without a recorder: what it tells is added up here. Built
 * by hand:
 *
 *	gcc -shared -fPIC -O2 -std=gnu11 -D_GNU_SOURCE -Isrc -Iinclude -o libactivity_driver.so \
 *		tests/device/activity_driver.c src/device/cuda/activity*.c -ldl -lpthread
 *
 * A job loads it by CUDA_INJECTION64_PATH (and ctypes, to call the functions below).
 */
#include "device/cuda/activity.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NAMES 4096

struct total {
	char *name;
	uint32_t kind;
	uint64_t n, ns;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct total totals[NAMES];
static uint64_t counts[16], first_ns, last_ns, skew_ns, ranges;

static struct total *find(uint32_t kind, const char *name)
{
	uint64_t h = kind;

	for (const char *p = name; *p; p++)
		h = (h ^ (uint8_t)*p) * 1099511628211u;
	for (unsigned i = 0; i < NAMES; i++) {
		struct total *t = &totals[(h + i) % NAMES];
		if (!t->name) {
			t->name = strdup(name);
			t->kind = kind;
			return t;
		}
		if (t->kind == kind && !strcmp(t->name, name))
			return t;
	}
	return NULL;
}

static uint64_t wall(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void collect_activity(const struct collect_activity *a)
{
	pthread_mutex_lock(&lock);
	struct total *t = find(a->kind, a->name ? a->name : "");
	counts[a->kind & 15]++;
	if (!first_ns || a->start_ns < first_ns)
		first_ns = a->start_ns;
	if (a->end_ns > last_ns)
		last_ns = a->end_ns;
	uint64_t now = wall();
	if (a->end_ns > now && a->end_ns - now > skew_ns)
		skew_ns = a->end_ns - now;
	if (t) {
		t->n++;
		t->ns += a->end_ns - a->start_ns;
	}
	pthread_mutex_unlock(&lock);
}

uint64_t collect_range_id(void)
{
	return __atomic_add_fetch(&ranges, 1, __ATOMIC_RELAXED);
}

uint32_t collect_epoch(void)
{
	return 1;
}

/* --- a library that says what is called --- */

static const struct cupti *real;
static int log_fd = -1;

static void say(const char *what, uint64_t arg, int r)
{
	char line[160];

	if (log_fd < 0)
		return;
	int n = snprintf(line, sizeof(line), "%.6f %ld %s(%llu) = %d\n", (double)wall() / 1e9,
			 syscall(SYS_gettid), what, (unsigned long long)arg, r);
	if (write(log_fd, line, (size_t)n) < 0)
		log_fd = -1;
}

static int log_register(cupti_request_fn request, cupti_complete_fn complete)
{
	int r = real->register_callbacks(request, complete);
	say("RegisterCallbacks", (uint64_t)complete, r);
	return r;
}
static int log_enable(uint32_t kind)
{
	int r = real->enable(kind);
	say("Enable", kind, r);
	return r;
}
static int log_disable(uint32_t kind)
{
	int r = real->disable(kind);
	say("Disable", kind, r);
	return r;
}
static int log_flush(uint32_t flag)
{
	say("FlushAll…", flag, 0);
	int r = real->flush(flag);
	say("FlushAll", flag, r);
	return r;
}
static int log_finalize(void)
{
	int r = real->finalize();
	say("Finalize", 0, r);
	return r;
}
static int log_clock(cupti_clock_fn clock)
{
	int r = real->register_clock(clock);
	say("RegisterTimestamp", (uint64_t)clock, r);
	return r;
}
static int log_threads(int type)
{
	int r = real->set_thread_ids(type);
	say("SetThreadIdType", (uint64_t)type, r);
	return r;
}
static int log_dropped(void *context, uint32_t stream, size_t *out)
{
	int r = real->dropped(context, stream, out);
	if (r || *out)
		say("Dropped", *out, r);
	return r;
}

#pragma GCC visibility push(default)

int drv_log(const char *path)
{
	static struct cupti talks;
	const char *why;

	real = cupti_find(&why);
	if (!real) {
		fprintf(stderr, "driver: %s\n", why);
		return -1;
	}
	talks = *real;
	talks.register_callbacks = log_register;
	talks.enable = log_enable;
	talks.disable = log_disable;
	talks.flush = log_flush;
	talks.finalize = log_finalize;
	talks.register_clock = log_clock;
	talks.set_thread_ids = log_threads;
	talks.dropped = log_dropped;
	log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	cupti_use(&talks);
	return 0;
}

int drv_version(void)
{
	const char *why;
	uint32_t v = 0;
	const struct cupti *c = cupti_find(&why);

	return c && c->version(&v) == 0 ? (int)v : -1;
}

/* Seconds that looking through all objects takes. */
double drv_watch(void)
{
	uint64_t before = wall();
	int there = cupti_source.is_there();

	return there ? (double)(wall() - before) / 1e9 : -1;
}

int drv_start(uint32_t kinds)
{
	return cupti_source.start(kinds);
}
int drv_change(uint32_t kinds)
{
	return cupti_source.change(kinds);
}
void drv_flush(void)
{
	cupti_source.flush();
}
void drv_stop(void)
{
	cupti_source.stop();
}
uint64_t drv_lost(void)
{
	return cupti_source.lost();
}
int drv_aside(void)
{
	return cupti_source.is_aside();
}
unsigned drv_out(void)
{
	return cupti_buffers_out();
}
const char *drv_trouble(void)
{
	return cupti_trouble();
}
uint64_t drv_count(uint32_t kind)
{
	return counts[kind & 15];
}
uint64_t drv_skew(void)
{
	return skew_ns;
}
uint64_t drv_span(int last)
{
	return last ? last_ns : first_ns;
}

void drv_reset(void)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < NAMES; i++)
		totals[i].n = totals[i].ns = 0;
	memset(counts, 0, sizeof(counts));
	first_ns = last_ns = skew_ns = 0;
	pthread_mutex_unlock(&lock);
}

/* "kind<TAB>n<TAB>ns<TAB>name" a line; how many. */
int drv_write(const char *path)
{
	FILE *f = fopen(path, "w");
	int n = 0;

	if (!f)
		return -1;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < NAMES; i++) {
		if (!totals[i].n)
			continue;
		fprintf(f, "%u\t%llu\t%llu\t%s\n", totals[i].kind, (unsigned long long)totals[i].n,
			(unsigned long long)totals[i].ns, totals[i].name);
		n++;
	}
	pthread_mutex_unlock(&lock);
	fclose(f);
	return n;
}

int InitializeInjection(void)
{
	const char *path = getenv("DRIVER_LOG");

	if (path)
		(void)drv_log(path);
	(void)cupti_source.is_there();
	return 1;
}

#pragma GCC visibility pop
