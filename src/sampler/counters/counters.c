/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A thread for each kind: NPUs, GPUs, the host. Each puts what it reads into one queue, which the
 * sampler empties. Nobody waits for a thread: what they share is counted, and freed by whichever
 * leaves last.
 */
#include "sampler/counters/counters.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/mem.h"
#include "device/metrics.h"
#include "sampler/counters/host.h"

#define LOG_AREA "counters"
#include "base/log.h"

#define QUEUE 8192 /* records that wait to be taken */
#define MS 1000000ull
#define MB 1048576.0
#define SHORTEST_MS 10
#define USUAL_MS 1000
#define OPEN_MS 1500 /* how long drivers may take to answer, beyond what their programs may */
#define EXIT_MS 200
#define THREAD_NAME "reading of counters"

enum reader_kind { READ_NPU, READ_GPU, READ_HOST, READER_KINDS };

static const struct {
	const char *name;
	const struct metrics_source *source; /* NULL: /proc */
	enum counter_track track;
} kinds[READER_KINDS] = {
	[READ_NPU] = {"npu", &ascend_metrics, COUNTER_NPU},
	[READ_GPU] = {"gpu", &cuda_metrics, COUNTER_GPU},
	[READ_HOST] = {"host", NULL, COUNTER_HOST},
};

struct counters {
	pthread_mutex_t lock;
	pthread_cond_t woken; /* to stop */
	uint64_t patience_ns; /* until when answers are waited for */
	unsigned users; /* the sampler and the threads */
	bool stop;
	struct counters_options o;
	struct {
		bool wanted, answered;
		char missing[256]; /* why it is not there */
	} readers[READER_KINDS];
	struct counter *queue;
	size_t first, n;
	uint64_t lost;
	pid_t *pids;
	unsigned npids;
};

struct reader {
	struct counters *c;
	enum reader_kind kind;
	void *self; /* of the source */
	struct process_loads loads;
	bool warned;
};

/* --- the queue --- */

void counters_put(struct counters *c, const struct counter *one)
{
	pthread_mutex_lock(&c->lock);
	if (c->stop) {
		/* it would never be taken */
	} else if (c->n == QUEUE) {
		c->lost++;
	} else {
		struct counter *to = &c->queue[(c->first + c->n++) % QUEUE];

		*to = *one;
		to->time_ns = clock_mono_ns();
	}
	pthread_mutex_unlock(&c->lock);
}

uint64_t counters_take(struct counters *c, void (*fn)(void *arg, const struct counter *c),
		       void *arg)
{
	pthread_mutex_lock(&c->lock);
	uint64_t lost = c->lost;

	c->lost = 0;
	for (size_t left = c->n; left; left--) {
		struct counter one = c->queue[c->first];

		c->first = (c->first + 1) % QUEUE;
		c->n--;
		pthread_mutex_unlock(&c->lock);
		fn(arg, &one);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return lost;
}

void counters_processes(struct counters *c, const pid_t *pids, unsigned n)
{
	size_t bytes = n * sizeof(*pids);

	pthread_mutex_lock(&c->lock);
	if (n != c->npids || memcmp(pids, c->pids, bytes) != 0) {
		c->pids = xrealloc(c->pids, bytes + sizeof(*pids));
		memcpy(c->pids, pids, bytes);
		c->npids = n;
	}
	pthread_mutex_unlock(&c->lock);
}

/* --- from the metrics of a card to tracks of a timeline, under their documented names --- */

static bool find_metric(const struct sample *s, const char *name, double *out)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct metric *m = &s->metrics[i];

		if (m->instance || strcmp(m->name, name) != 0 || m->type == METRIC_TEXT)
			continue;
		*out = m->type == METRIC_FLOAT	? m->f
		       : m->type == METRIC_UINT ? (double)m->u
						: (double)m->i;
		return true;
	}
	return false;
}

static void put_value(struct counters *c, enum counter_track track, const struct sample *s,
		      const char *name, const char *key, double value)
{
	counters_put(c, &(struct counter){.track = track,
					  .card = (int)s->device,
					  .name = name,
					  .n = 1,
					  .values = {{key, value}}});
}

/* Never changes: no track. */
static void put_total(struct counters *c, enum counter_track track, const struct sample *s,
		      const char *name, double value)
{
	counters_put(c, &(struct counter){.track = track,
					  .card = (int)s->device,
					  .name = name,
					  .more = 1,
					  .values = {{"total_mb", value}}});
}

static void put_npu(struct counters *c, const struct sample *s)
{
	double v;

	if (find_metric(s, "aicore_utilization", &v))
		put_value(c, COUNTER_NPU, s, "npu_aicore_usage_rate", "aicore", v);
	if (find_metric(s, "hbm_utilization", &v))
		put_value(c, COUNTER_NPU, s, "npu_hbm_usage_rate", "hbm", v);
	if (find_metric(s, "hbm_used_bytes", &v))
		put_value(c, COUNTER_NPU, s, "npu_hbm_used_mb", "hbm_used_mb", v / MB);
	if (find_metric(s, "hbm_total_bytes", &v))
		put_total(c, COUNTER_NPU, s, "npu_hbm_total_mb", v / MB);
	if (c->o.power && find_metric(s, "npu_power_draw_w", &v))
		put_value(c, COUNTER_NPU, s, "npu_power_w", "power_w", v);
}

static void put_gpu(struct counters *c, const struct sample *s)
{
	double used, total, v;

	if (find_metric(s, "gpu_device_utilization", &v))
		put_value(c, COUNTER_GPU, s, "gpu_utilization_rate", "gpu", v);
	if (find_metric(s, "gpu_memory_utilization", &v))
		put_value(c, COUNTER_GPU, s, "gpu_memory_usage_rate", "memory", v);
	else if (find_metric(s, "gpu_memory_used_bytes", &used) &&
		 find_metric(s, "gpu_memory_total_bytes", &total) && total > 0)
		put_value(c, COUNTER_GPU, s, "gpu_memory_usage_rate", "memory", 100 * used / total);
	if (find_metric(s, "gpu_memory_used_bytes", &v))
		put_value(c, COUNTER_GPU, s, "gpu_memory_used_mb", "memory_used_mb", v / MB);
	if (find_metric(s, "gpu_memory_total_bytes", &v))
		put_total(c, COUNTER_GPU, s, "gpu_memory_total_mb", v / MB);
	if (c->o.power && find_metric(s, "gpu_power_draw", &v))
		put_value(c, COUNTER_GPU, s, "gpu_power_w", "power_w", v);
}

static void put_sample(struct counters *c, enum counter_track track, const struct sample *s)
{
	if (track == COUNTER_NPU)
		put_npu(c, s);
	else
		put_gpu(c, s);
}

/* --- threads --- */

/* With the lock held, which is gone afterwards. */
static void drop_user(struct counters *c)
{
	bool last = --c->users == 0;

	pthread_mutex_unlock(&c->lock);
	if (!last)
		return;
	pthread_cond_destroy(&c->woken);
	pthread_mutex_destroy(&c->lock);
	free(c->queue);
	free(c->pids);
	free(c);
}

static void on_sample(void *arg, const struct sample *s)
{
	struct reader *r = arg;

	if (s->device >= 0 && s->device <= INT16_MAX)
		put_sample(r->c, kinds[r->kind].track, s);
}

static void read_processes(struct reader *r)
{
	struct counters *c = r->c;

	pthread_mutex_lock(&c->lock);
	unsigned n = c->npids;
	pid_t *pids = xcalloc(n + 1, sizeof(*pids));
	memcpy(pids, c->pids, n * sizeof(*pids));
	pthread_mutex_unlock(&c->lock);
	counters_put_processes(c, &r->loads, pids, n);
	free(pids);
}

static void read_once(struct reader *r)
{
	const struct metrics_source *source = kinds[r->kind].source;
	struct err err = {0};

	if (source) {
		int e = source->read(r->self, on_sample, r, &err);

		if (e < 0 && !r->warned)
			log_warn("%s: %s", source->name, err.text);
		r->warned = e < 0;
		return;
	}
	if (r->c->o.host)
		counters_put_host(r->c);
	if (r->c->o.cpu)
		counters_put_cpu(r->c, &r->loads);
	if (r->c->o.processes)
		read_processes(r);
}

static int open_source(struct reader *r, struct err *err)
{
	const struct counters_options *o = &r->c->o;
	const struct metrics_options options = {
		.load_only = true,
		.program_timeout_ms = r->kind == READ_NPU ? o->npu_timeout_ms : o->gpu_timeout_ms,
	};

	if (!kinds[r->kind].source)
		return 0;
	return kinds[r->kind].source->open(&r->self, &options, err);
}

static struct timespec time_of(uint64_t ns)
{
	return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

/* Sleeps until then; false if it is time to end. */
static bool sleep_until(struct counters *c, uint64_t until_ns)
{
	struct timespec until = time_of(until_ns);

	pthread_mutex_lock(&c->lock);
	while (!c->stop && clock_mono_ns() < until_ns)
		pthread_cond_timedwait(&c->woken, &c->lock, &until);
	bool go_on = !c->stop;
	pthread_mutex_unlock(&c->lock);
	return go_on;
}

/* What was missed is not made up for. */
static void read_until_stopped(struct reader *r)
{
	uint64_t period_ns = r->c->o.period_ms * MS, next_ns = clock_mono_ns();

	do {
		read_once(r);
		uint64_t now_ns = clock_mono_ns();
		next_ns += period_ns;
		if (next_ns <= now_ns)
			next_ns += (now_ns - next_ns) / period_ns * period_ns + period_ns;
	} while (sleep_until(r->c, next_ns));
}

static void reader_main(void *arg)
{
	struct reader *r = arg;
	struct counters *c = r->c;
	struct err err = {0};
	int e = open_source(r, &err);

	pthread_mutex_lock(&c->lock);
	c->readers[r->kind].answered = true;
	snprintf(c->readers[r->kind].missing, sizeof(c->readers[r->kind].missing), "%.255s",
		 e < 0 ? err.text : "");
	pthread_mutex_unlock(&c->lock);
	if (e == 0)
		read_until_stopped(r);
	if (e == 0 && kinds[r->kind].source)
		kinds[r->kind].source->close(r->self);
	process_loads_release(&r->loads);
	free(r);
	pthread_mutex_lock(&c->lock);
	drop_user(c);
}

static int start_reader(struct counters *c, enum reader_kind kind, struct err *err)
{
	struct reader *r = xcalloc(1, sizeof(*r));

	r->c = c;
	r->kind = kind;
	pthread_mutex_lock(&c->lock);
	c->readers[kind].wanted = true;
	c->users++;
	pthread_mutex_unlock(&c->lock);
	int e = background_run(THREAD_NAME, reader_main, r);
	if (e == 0)
		return 0;
	pthread_mutex_lock(&c->lock);
	c->readers[kind].wanted = false;
	c->users--;
	pthread_mutex_unlock(&c->lock);
	free(r);
	return err_sys(err, e, "cannot start a thread for counters");
}

/* --- start and end --- */

static bool all_answered(const struct counters *c)
{
	for (unsigned k = 0; k < READER_KINDS; k++)
		if (c->readers[k].wanted && !c->readers[k].answered)
			return false;
	return true;
}

/* A driver that hangs is given up on, for now: if it answers, its counters come. */
bool counters_missing(struct counters *c, char *out, size_t cap)
{
	size_t len = 0;

	out[0] = '\0';
	pthread_mutex_lock(&c->lock);
	bool known = all_answered(c) || clock_mono_ns() >= c->patience_ns;
	for (unsigned k = 0; known && k < READER_KINDS; k++) {
		const char *why =
			c->readers[k].answered ? c->readers[k].missing : "does not answer";

		if (!c->readers[k].wanted || !*why || len >= cap)
			continue;
		int n = snprintf(out + len, cap - len, "%s%s: %s", len ? "; " : "", kinds[k].name,
				 why);
		len += n > 0 ? (size_t)n : 0;
	}
	pthread_mutex_unlock(&c->lock);
	return known;
}

static struct counters *counters_new(const struct counters_options *o)
{
	struct counters *c = xcalloc(1, sizeof(*c));
	pthread_condattr_t attr;

	c->o = *o;
	c->o.period_ms = !o->period_ms		      ? USUAL_MS
			 : o->period_ms < SHORTEST_MS ? SHORTEST_MS
						      : o->period_ms;
	c->patience_ns =
		clock_mono_ns() +
		(OPEN_MS + (uint64_t)(o->npu_timeout_ms > o->gpu_timeout_ms ? o->npu_timeout_ms
									    : o->gpu_timeout_ms)) *
			MS;
	c->users = 1;
	c->queue = xcalloc(QUEUE, sizeof(*c->queue));
	c->pids = xcalloc(1, sizeof(*c->pids));
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->woken, &attr);
	pthread_condattr_destroy(&attr);
	return c;
}

int counters_start(const struct counters_options *o, struct counters **out, struct err *err)
{
	struct counters *c = counters_new(o);
	const bool wanted[READER_KINDS] = {o->npu, o->gpu, o->host || o->processes};
	int r = 0;

	for (unsigned k = 0; r == 0 && k < READER_KINDS; k++)
		if (wanted[k])
			r = start_reader(c, (enum reader_kind)k, err);
	if (r < 0) {
		counters_stop(c);
		return r;
	}
	*out = c;
	return 0;
}

void counters_stop(struct counters *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	bool alone = c->users == 1;
	pthread_cond_broadcast(&c->woken);
	drop_user(c);
	/* Time for threads that only slept; one that hangs is left behind. */
	if (!alone)
		background_wait(THREAD_NAME, EXIT_MS);
}
