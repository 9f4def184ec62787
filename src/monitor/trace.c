/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * nputrace: the activities of the steps [start, stop).
 *
 *	order -> READY -- one step before, or at once --> source on
 *	         -- step `start` begins --> RUNNING -- step `stop` begins --> the device finishes
 *	         -- source off, files written --> IDLE
 *
 * The boundaries are told by the job's own thread, at the moment; the recorder cuts there. Warming
 * up before the first step costs no accuracy, so it is done by our thread; should that be late, the
 * job's thread does it.
 */
#include "monitor/impl.h"

#include "collect/collect.h"

#include <errno.h>
#include <string.h>

#define NEVER UINT64_MAX
#define LOOK_NS (2 * MS_NS) /* while a trace is on its way */
#define FINISH_LEAST_NS (200 * MS_NS)
#define FINISH_MOST_NS (3000 * MS_NS)
#define JOB_WAITS_MS 500 /* at most, for the source to be on at the first step */

enum phase { TRACE_IDLE, TRACE_READY, TRACE_RUNNING, TRACE_FINISHING };

static struct {
	_Atomic int phase; /* enum phase */
	_Atomic bool warm; /* the source is on */
	struct turn warming;
	int64_t start, stop;
	bool by_time;
	uint64_t end_ns; /* of a trace by time */
	uint64_t window;
	uint32_t kinds;
	const struct activity_source *source;
	_Atomic uint64_t begun_ns, last_ns, ended_ns; /* of steps */
	char text[ORDER_MAX_BYTES];
	size_t len;
} t;

bool trace_is_on(void)
{
	return atomic_load(&t.phase) != TRACE_IDLE;
}

struct fabric_status trace_status(void)
{
	int phase = atomic_load(&t.phase);
	struct fabric_status s = {
		.state = phase == TRACE_IDLE	? FABRIC_IDLE
			 : phase == TRACE_READY ? FABRIC_READY
						: FABRIC_RUNNING,
		.current_step = (int32_t)steps_now(),
		.start_step = phase == TRACE_IDLE ? -1 : (int32_t)t.start,
		.stop_step = phase == TRACE_IDLE ? -1 : (int32_t)t.stop,
	};

	return s;
}

static int refuse(char *why, size_t cap, int code, const char *words)
{
	struct text out = {why, why + cap};

	if (cap)
		why[0] = '\0';
	text_str(&out, words);
	say("nputrace: ", words, NULL, NULL);
	return code;
}

/* Launches are always needed: they tell to which step a kernel belongs. */
static uint32_t kinds_of(const struct trace_order *o)
{
	uint32_t kinds = ACTIVITY_APIS;

	if (o->activities & ORDER_DEVICE)
		kinds |= ACTIVITY_BIT(ACTIVITY_KERNEL) | ACTIVITY_BIT(ACTIVITY_MEMCPY) |
			 ACTIVITY_BIT(ACTIVITY_MEMSET) | ACTIVITY_BIT(ACTIVITY_COMMUNICATION);
	if (o->memory)
		kinds |= ACTIVITY_BIT(ACTIVITY_MEMORY);
	if (o->marks)
		kinds |= ACTIVITY_BIT(ACTIVITY_MARKER);
	return kinds;
}

static bool is_meant(const struct trace_order *o)
{
	char rank[16];
	struct text out = {rank, rank + sizeof(rank)};

	text_number(&out, surroundings.rank);
	return !o->ranks.len || order_lists(&o->ranks, rank, strlen(rank));
}

/* By whoever comes first: our thread, or the job's at its first step. */
static void warm_up(uint32_t wait_ms)
{
	if (atomic_load(&t.warm) || !turn_try(&t.warming, wait_ms))
		return;
	if (!atomic_load(&t.warm) && trace_is_on()) {
		t.window = window_open(t.text, t.len);
		if (t.window && t.source->start(t.kinds) < 0)
			say("nputrace: ", t.source->name, ": ", t.source->trouble());
		atomic_store(&t.warm, true);
	}
	turn_give(&t.warming);
}

static void arm(const struct trace_order *o, int64_t current)
{
	t.by_time = !o->steps;
	t.start = o->start_step >= 0 ? o->start_step : current + 1;
	t.stop = t.start + (int64_t)o->steps;
	t.kinds = kinds_of(o);
	t.window = 0;
	atomic_store(&t.warm, false);
	atomic_store(&t.begun_ns, 0);
	atomic_store(&t.phase, TRACE_READY);
	if (t.by_time) {
		t.start = 0;
		t.stop = 1;
		warm_up(0);
		window_step(t.window, 0);
		t.end_ns = guest_now() + o->duration_ms * MS_NS;
		atomic_store(&t.phase, TRACE_RUNNING);
	} else {
		steps_watch(true);
	}
}

int trace_order(const char *text, size_t len, char *why, size_t cap)
{
	struct trace_order o;
	const char *wrong = trace_order_read(text, len, &o);
	int64_t current = steps_now();

	if (wrong)
		return refuse(why, cap, -EINVAL, wrong);
	if (trace_is_on())
		return refuse(why, cap, -EBUSY, "one is being taken already");
	if (!is_meant(&o))
		return 0;
	if (o.steps && o.start_step >= 0 && o.start_step <= current)
		return refuse(why, cap, -ERANGE, "that step has begun already");
	if (window_check_dir(&o.log_file) < 0)
		return refuse(why, cap, -EACCES, "no files can be written below its --log-file");
	t.source = source_find();
	if (!t.source)
		return refuse(why, cap, -ENODEV, "there is neither libmspti.so nor libcupti here");
	if (len > sizeof(t.text))
		return refuse(why, cap, -E2BIG, "the order is too long");
	memcpy(t.text, text, len);
	t.len = len;
	arm(&o, current);
	return 0;
}

void trace_step(uint64_t step)
{
	int phase = atomic_load(&t.phase);
	int64_t n = (int64_t)step;
	uint64_t ns = guest_now();

	if (phase == TRACE_READY && n == t.start) {
		warm_up(JOB_WAITS_MS);
		window_step(t.window, step);
		atomic_store(&t.begun_ns, ns);
		atomic_store(&t.last_ns, ns);
		atomic_store(&t.phase, TRACE_RUNNING);
	} else if (phase == TRACE_READY && n > t.start) {
		/* Steps were not counted one by one: there is nothing to be had. */
		atomic_store(&t.ended_ns, ns);
		atomic_store(&t.phase, TRACE_FINISHING);
	} else if (phase == TRACE_RUNNING && n <= t.stop) {
		window_step(t.window, step);
		if (n == t.stop) {
			atomic_store(&t.ended_ns, ns);
			atomic_store(&t.phase, TRACE_FINISHING);
		} else {
			atomic_store(&t.last_ns, ns);
		}
	}
}

/* What was launched in the last step is executed some time later. */
static uint64_t finish_ns(void)
{
	uint64_t step = atomic_load(&t.ended_ns) - atomic_load(&t.last_ns);
	uint64_t more = FINISH_LEAST_NS + (t.by_time ? 0 : step);

	return atomic_load(&t.ended_ns) + (more < FINISH_MOST_NS ? more : FINISH_MOST_NS);
}

void trace_end(void)
{
	if (!trace_is_on())
		return;
	steps_watch(false);
	if (atomic_load(&t.warm)) {
		t.source->stop();
		if (t.window)
			window_close(t.window, t.source->lost());
	}
	atomic_store(&t.phase, TRACE_IDLE);
	atomic_store(&t.warm, false);
}

uint64_t trace_look(uint64_t now_ns)
{
	static int told;
	int phase = atomic_load(&t.phase);

	if (phase == TRACE_READY && steps_now() + 1 >= t.start)
		warm_up(0);
	if (phase == TRACE_RUNNING && t.by_time && now_ns >= t.end_ns) {
		window_step(t.window, 1);
		atomic_store(&t.last_ns, now_ns);
		atomic_store(&t.ended_ns, now_ns);
		atomic_store(&t.phase, TRACE_FINISHING);
	}
	if (phase == TRACE_FINISHING && now_ns >= finish_ns())
		trace_end();
	phase = atomic_load(&t.phase);
	if (phase != told) {
		told = phase;
		control_tell_status();
	}
	return phase == TRACE_IDLE ? NEVER : now_ns + LOOK_NS;
}
