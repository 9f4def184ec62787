/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "stream.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hal/ascend_hal.h"
#include "runtime/rt.h"
#include "sim/feed.h"
#include "sim/state.h"

#define MAX_STREAMS 1024 /* ids stay below the bits that real records use as flags */
#define QUEUE 256
#define INLINE_ARGS 192
#define DEFAULT_SCALE 0.02
#define AHEAD_NS 1000000ull
#define SPIN_NS 100000ull

struct task {
	struct work work;
	size_t size;
	void *heap_args; /* when INLINE_ARGS is too small */
	_Alignas(16) unsigned char args[INLINE_ARGS];
};

struct stream {
	int used;
	int device;
	int stop;
	uint16_t next_task;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_cond_t done;
	uint64_t head; /* tasks finished */
	uint64_t tail; /* tasks submitted */
	uint64_t clock_ns; /* its thread's own */
	uint64_t done_ns; /* clock_ns when the last finished task was */
	_Atomic int error; /* of a task, for good */
	double scale;
	_Atomic double slow;
	struct task *queue;
};

static struct stream streams[MAX_STREAMS];
static struct stream *default_stream[SIM_MAX_DEVICES];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

static double read_time_scale(void)
{
	const char *text = getenv("SIM_NPU_TIME_SCALE");
	double v = text && *text ? strtod(text, NULL) : DEFAULT_SCALE;
	return v >= 0 && v <= 1000 ? v : DEFAULT_SCALE;
}

static void sleep_until(uint64_t mono_ns)
{
	struct timespec ts = {.tv_sec = (time_t)(mono_ns / 1000000000ull),
			      .tv_nsec = (long)(mono_ns % 1000000000ull)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL))
		;
}

/* When a task that begins at @begin has ended. */
static uint64_t execute(struct stream *s, struct task *t, uint64_t begin)
{
	const struct sim_kernel *k = t->work.kernel;
	const void *args = t->heap_args ? t->heap_args : t->args;
	if (k->timed) {
		struct sim_running at = {.begin_ns = begin,
					 .correlation = t->work.correlation,
					 .scale = s->scale,
					 .device = s->device,
					 .stream = stream_id(s)};
		uint64_t end = k->timed(&at, args, t->size);
		if (at.error)
			s->error = at.error;
		return end;
	}
	if (k->fn)
		k->fn(args, t->size);
	double slow = atomic_load_explicit(&s->slow, memory_order_relaxed);
	return begin + (uint64_t)((double)kernel_duration(k) * s->scale * slow);
}

static void run_task(struct stream *s, struct task *t)
{
	uint64_t now = sim_now_ns();
	uint64_t begin = s->clock_ns > now ? s->clock_ns : now;
	if (t->work.kind == WORK_MARK) {
		s->clock_ns = begin;
		feed_task(s, &t->work, begin, begin);
		return;
	}
	s->clock_ns = execute(s, t, begin);
	if (s->clock_ns > sim_now_ns() + AHEAD_NS)
		sleep_until(s->clock_ns);
	sim_state_busy(s->device, s->clock_ns - begin);
	sim_stars_task(s->device, stream_id(s), t->work.task, begin, s->clock_ns);
	if (!t->work.kernel->timed)
		feed_task(s, &t->work, begin, s->clock_ns);
	free(t->heap_args);
	t->heap_args = NULL;
}

static void *stream_main(void *arg)
{
	struct stream *s = arg;
	char name[16];
	snprintf(name, sizeof(name), "sim-stream-%d", stream_id(s) % 1000);
	pthread_setname_np(pthread_self(), name);
	pthread_mutex_lock(&s->lock);
	for (;;) {
		while (s->head == s->tail && !s->stop)
			pthread_cond_wait(&s->work, &s->lock);
		if (s->head == s->tail)
			break;
		struct task *t = &s->queue[s->head % QUEUE];
		pthread_mutex_unlock(&s->lock);
		run_task(s, t);
		pthread_mutex_lock(&s->lock);
		s->head++;
		s->done_ns = s->clock_ns;
		if (s->head == s->tail || s->tail - s->head == QUEUE / 2)
			pthread_cond_broadcast(&s->done);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* The threads stayed with the parent: a child has no streams until it makes its own. */
static void after_fork_in_child(void)
{
	pthread_mutex_init(&table_lock, NULL);
	for (int i = 0; i < MAX_STREAMS; i++)
		streams[i].used = 0;
	memset(default_stream, 0, sizeof(default_stream));
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* Called with the table locked. */
static struct stream *stream_start(int device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, watch_forks);
	struct stream *s = NULL;
	for (int i = 0; i < MAX_STREAMS && !s; i++)
		if (!streams[i].used)
			s = &streams[i];
	if (!s)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->queue = calloc(QUEUE, sizeof(*s->queue));
	if (!s->queue)
		return NULL;
	s->device = device;
	s->scale = read_time_scale();
	atomic_store(&s->slow, 1.0);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->done, NULL);
	if (pthread_create(&s->thread, NULL, stream_main, s)) {
		free(s->queue);
		return NULL;
	}
	s->used = 1;
	return s;
}

static int current_device(void)
{
	int32_t logical;
	uint32_t phy;
	if (rtGetDevice(&logical) || rtGetPhyId(logical, &phy))
		return -1;
	return (int)phy;
}

struct stream *stream_resolve(void *handle)
{
	if (handle) {
		struct stream *s = handle;
		int inside = s >= streams && s < streams + MAX_STREAMS;
		return inside && s->used ? s : NULL;
	}
	int device = current_device();
	if (device < 0)
		return NULL;
	pthread_mutex_lock(&table_lock);
	if (!default_stream[device])
		default_stream[device] = stream_start(device);
	struct stream *s = default_stream[device];
	pthread_mutex_unlock(&table_lock);
	return s;
}

int stream_id(const struct stream *s)
{
	return (int)(s - streams);
}

int stream_device(const struct stream *s)
{
	return s->device;
}

uint16_t stream_next_task(struct stream *s)
{
	return __atomic_fetch_add(&s->next_task, 1, __ATOMIC_RELAXED);
}

int stream_submit(struct stream *s, const struct work *w, const void *args, size_t size)
{
	void *heap_args = NULL;
	if (!args)
		size = 0;
	if (size > INLINE_ARGS) {
		heap_args = malloc(size);
		if (!heap_args)
			return RT_ERROR_RESOURCE_ALLOC_FAIL;
		memcpy(heap_args, args, size);
	}
	pthread_mutex_lock(&s->lock);
	while (s->tail - s->head >= QUEUE)
		pthread_cond_wait(&s->done, &s->lock);
	struct task *t = &s->queue[s->tail % QUEUE];
	t->work = *w;
	t->size = size;
	t->heap_args = heap_args;
	if (!heap_args && size)
		memcpy(t->args, args, size);
	if (s->tail++ == s->head)
		pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
	return RT_ERROR_NONE;
}

/* Until the device's clock says so, too; short waits are not worth a timer. */
static void wait_for_clock(uint64_t when)
{
	uint64_t now = sim_now_ns();
	if (when > now + SPIN_NS)
		sleep_until(when);
	while (now < when) {
		sched_yield();
		now = sim_now_ns();
	}
}

static int stream_drain(struct stream *s)
{
	pthread_mutex_lock(&s->lock);
	uint64_t until = s->tail;
	while (s->head < until)
		pthread_cond_wait(&s->done, &s->lock);
	uint64_t when = s->done_ns;
	int error = s->error;
	pthread_mutex_unlock(&s->lock);
	wait_for_clock(when);
	return error;
}

static int stream_create(void **out_stream)
{
	int device = current_device();
	if (!out_stream)
		return RT_ERROR_PARAM_INVALID;
	if (device < 0)
		return RT_ERROR_CONTEXT_NULL;
	pthread_mutex_lock(&table_lock);
	struct stream *s = stream_start(device);
	pthread_mutex_unlock(&table_lock);
	if (!s)
		return RT_ERROR_RESOURCE_ALLOC_FAIL;
	*out_stream = s;
	return RT_ERROR_NONE;
}

static int stream_destroy(void *stream)
{
	struct stream *s = stream ? stream_resolve(stream) : NULL;
	if (!s)
		return RT_ERROR_STREAM_INVALID;
	pthread_mutex_lock(&s->lock);
	s->stop = 1;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	wait_for_clock(s->done_ns); /* the next one with this number comes after it */
	pthread_mutex_lock(&table_lock);
	free(s->queue);
	s->queue = NULL;
	s->used = 0;
	pthread_mutex_unlock(&table_lock);
	return RT_ERROR_NONE;
}

static int stream_synchronize(void *stream)
{
	struct stream *s = stream_resolve(stream);
	return s ? stream_drain(s) : RT_ERROR_STREAM_INVALID;
}

static int device_synchronize(void)
{
	int device = current_device();
	int error = RT_ERROR_NONE;
	if (device < 0)
		return RT_ERROR_CONTEXT_NULL;
	for (int i = 0; i < MAX_STREAMS; i++)
		if (streams[i].used && streams[i].device == device) {
			int r = stream_drain(&streams[i]);
			error = error ? error : r;
		}
	return error;
}

int rtStreamCreate(void **out_stream, int32_t priority)
{
	(void)priority;
	RT_CALL(stream_create(out_stream));
}

int rtStreamDestroy(void *stream)
{
	RT_CALL(stream_destroy(stream));
}

int rtStreamSynchronize(void *stream)
{
	RT_CALL(stream_synchronize(stream));
}

int rtDeviceSynchronize(void)
{
	RT_CALL(device_synchronize());
}

int rtGetStreamId(void *stream, int32_t *out_id)
{
	struct stream *s = stream_resolve(stream);
	if (!s || !out_id)
		return RT_ERROR_STREAM_INVALID;
	*out_id = stream_id(s);
	return RT_ERROR_NONE;
}

void sim_stream_slow(void *stream, double factor)
{
	struct stream *s = stream_resolve(stream);
	if (s)
		atomic_store(&s->slow, factor);
}
