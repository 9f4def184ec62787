/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A rank with libkineto: a thread asks the daemon for a config every few seconds; the rank itself
 * starts and ends the trace at its steps. While a trace is wanted or running the thread asks with
 * the mask that leaves a waiting config with the daemon.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "link.h"
#include "trace.h"

#define REPLY_TRIES 9 /* of 10 ms */
#define PERIOD_MS 5000

enum order_state { ORDER_NONE, ORDER_WAITING, ORDER_RUNNING };

struct order {
	enum order_state state;
	int64_t iterations; /* 0: by duration */
	int64_t roundup; /* begin at a multiple */
	uint64_t begin_ns, end_ns; /* by duration; since the epoch */
	int stop_step; /* by iterations, when running */
	char file[PATH_MAX];
	char trace_id[32];
};

struct rank {
	const struct client_options *o;
	struct link link;
	pthread_mutex_t lock; /* of order */
	struct order order;
	int step;
	struct trace trace;
};

/* "<stem>_<pid>.json"; a path outside the directory for traces is not used. */
static void file_name(const char *asked, char *out, size_t size)
{
	const char *dir = getenv("KINETO_ONDEMAND_TRACE_DIR");
	if (!dir || !*dir)
		dir = "/tmp/";
	if (!asked || strncmp(asked, dir, strlen(dir)) || strstr(asked, "..")) {
		snprintf(out, size, "%s%slibkineto_activities_%d.json", dir,
			 dir[strlen(dir) - 1] == '/' ? "" : "/", (int)getpid());
		return;
	}
	const char *ending = strstr(asked, ".pt.trace.json");
	if (!ending)
		ending = strstr(asked, ".json");
	int stem = ending ? (int)(ending - asked) : (int)strlen(asked);
	snprintf(out, size, "%.*s_%d%s", stem, asked, (int)getpid(), ending ? ending : ".json");
}

/* What is wrong, or NULL. */
static const char *read_times(const struct config *c, const struct client_options *o,
			      struct order *out)
{
	int64_t start_ms, duration_ms, now_ms = (int64_t)(now_real_ns() / 1000000);
	if (config_number(c, "PROFILE_START_TIME", 0, INT64_MAX / 1000000, 0, &start_ms))
		return "PROFILE_START_TIME";
	if (config_number(c, "ACTIVITIES_DURATION_MSECS", 0, INT_MAX, 500, &duration_ms))
		return "ACTIVITIES_DURATION_MSECS";
	if (start_ms && start_ms < now_ms - 10000)
		return "PROFILE_START_TIME, which is over,";
	if (start_ms < now_ms + o->warmup_ms)
		start_ms = now_ms + o->warmup_ms;
	out->begin_ns = (uint64_t)start_ms * 1000000u;
	out->end_ns = out->begin_ns + (uint64_t)duration_ms * 1000000u;
	return NULL;
}

static const char *read_order(const struct config *c, const struct client_options *o,
			      struct order *out)
{
	const char *id = config_get(c, "REQUEST_TRACE_ID");
	if (config_number(c, "ACTIVITIES_ITERATIONS", 0, INT_MAX, 0, &out->iterations))
		return "ACTIVITIES_ITERATIONS";
	if (config_number(c, "PROFILE_START_ITERATION_ROUNDUP", 0, INT_MAX, 1, &out->roundup))
		return "PROFILE_START_ITERATION_ROUNDUP";
	file_name(config_get(c, "ACTIVITIES_LOG_FILE"), out->file, sizeof(out->file));
	if (id && strlen(id) < sizeof(out->trace_id) && strspn(id, "0123456789") == strlen(id))
		snprintf(out->trace_id, sizeof(out->trace_id), "%s", id);
	out->state = ORDER_WAITING;
	return out->iterations ? NULL : read_times(c, o, out);
}

static void take_config(struct rank *r, const char *text, size_t len)
{
	static struct config c; /* of the one thread that reads */
	struct order order = {0};
	const char *wrong = config_read_kineto(&c, text, len);
	if (!wrong)
		wrong = read_order(&c, r->o, &order);
	if (wrong) {
		say("config refused: %s is not understood", wrong);
		return;
	}
	if (order.iterations)
		say("got a config: %d iterations, to %s", (int)order.iterations, order.file);
	else
		say("got a config: %d ms, to %s", (int)((order.end_ns - order.begin_ns) / 1000000),
		    order.file);
	pthread_mutex_lock(&r->lock);
	r->order = order;
	pthread_mutex_unlock(&r->lock);
}

static bool is_busy(struct rank *r)
{
	pthread_mutex_lock(&r->lock);
	bool busy = r->order.state != ORDER_NONE;
	pthread_mutex_unlock(&r->lock);
	return busy;
}

static void *ask_daemon(void *arg)
{
	static char text[CONFIG_TEXT_MAX];
	struct rank *r = arg;
	bool told = false;
	while (!stop_asked()) {
		int err = link_request(&r->link, is_busy(r) ? 1 : 3);
		ssize_t n = err ? err : link_receive(&r->link, REPLY_TRIES, text, sizeof(text));
		if (n > 0)
			take_config(r, text, (size_t)n);
		if (n >= 0 && !told)
			say("registered");
		else if (n == -EAGAIN)
			say("no answer within %d ms", REPLY_TRIES * 10);
		told = told || n >= 0;
		nap_ms(r->o->poll_ms ? r->o->poll_ms : PERIOD_MS);
	}
	return NULL;
}

static void finish(struct rank *r)
{
	struct order o = r->order;
	int err = trace_write(&r->trace, o.file, false, o.trace_id);
	if (err)
		say("trace not written: '%s': %s", o.file, strerror(-err));
	else
		say("trace of %d steps written to %s", r->trace.n, o.file);
	trace_clear(&r->trace);
	pthread_mutex_lock(&r->lock);
	r->order.state = ORDER_NONE;
	pthread_mutex_unlock(&r->lock);
}

/* Whether the step that begins now is the first of the trace. */
static bool begins(const struct order *o, int step)
{
	if (!o->iterations)
		return now_real_ns() >= o->begin_ns;
	return o->roundup <= 1 || step % o->roundup == 0;
}

static void advance(struct rank *r)
{
	pthread_mutex_lock(&r->lock);
	struct order *o = &r->order;
	if (o->state == ORDER_WAITING && begins(o, r->step)) {
		o->state = ORDER_RUNNING;
		o->stop_step = r->step + (int)o->iterations;
		say("trace running at step %d", r->step);
	}
	bool over = o->state == ORDER_RUNNING &&
		    (o->iterations ? r->step >= o->stop_step : now_real_ns() >= o->end_ns);
	pthread_mutex_unlock(&r->lock);
	if (over)
		finish(r);
}

static void one_step(struct rank *r)
{
	uint64_t start = now_real_ns();
	advance(r);
	nap_ms(r->o->step_ms);
	pthread_mutex_lock(&r->lock);
	bool running = r->order.state == ORDER_RUNNING;
	pthread_mutex_unlock(&r->lock);
	if (running)
		trace_step(&r->trace, r->step, start, now_real_ns());
}

int kineto_run(const struct client_options *o)
{
	static struct rank r = {.lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_t asker;
	r.o = o;
	if (link_open(&r.link, o))
		return 1;
	if (pthread_create(&asker, NULL, ask_daemon, &r)) {
		say("no thread: %s", strerror(errno));
		return 1;
	}
	for (; (!o->steps || r.step < o->steps) && !stop_asked(); r.step++)
		one_step(&r);
	say("done after %d steps", r.step);
	/* the thread may be asleep for long and ends with the process; its socket stays as a real
	 * one's does, but for the file */
	if (*r.link.own_path)
		unlink(r.link.own_path);
	return 0;
}
