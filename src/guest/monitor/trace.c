/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * nputrace: the activities of the steps [start, stop).
 *
 *	request -> READY -- one step before, or at once --> source on
 *	         -- step `start` begins --> BEGINNING -- source on --> RUNNING
 *	         -- step `stop` begins --> FINISHING -- the device finishes
 *	         -- source off, files written --> IDLE
 *
 * Who sent the request may end it at any time (trace_stop()): steps of a job that hangs do not
 * come. What has begun goes on to FINISHING from where it is, what has not to IDLE.
 *
 * Two kinds of threads move it on. Threads of the job report steps (trace_step()); they only
 * compare numbers, change the phase by compare-and-swap and write one record, at the moment that
 * the step begins: the recorder cuts there. Our thread does everything that takes time, with the
 * control's lock (trace_run_due()): it switches the source on one step before, flushes it, waits
 * for launches that have not run, closes the window.
 *
 *	phase change            by
 *	READY -> BEGINNING      the job's thread whose step is the first
 *	BEGINNING -> RUNNING    the same thread, when the source is on; else back to READY, and a
 *	                        later step is the first: a job waits for us once, half a second
 *	RUNNING -> FINISHING    the job's thread whose step is behind the last; or our thread
 *	FINISHING -> IDLE       our thread
 *
 * Warming up before the first step costs no accuracy; it may take long, where a recorder has to be
 * started on a busy machine.
 */
#include "guest/monitor/monitor_impl.h"

#include "guest/collect/collect.h"

#include <errno.h>
#include <string.h>

#define NEVER UINT64_MAX
#define CHECK_NS (2 * MS_NS) /* while the first step is near */
#define CHECK_SELDOM_NS (20 * MS_NS)
#define STEP_LEAST_NS (MS_NS / 2) /* that a step takes, for how near that is */
#define FINISH_LEAST_NS (200 * MS_NS)
#define FINISH_MOST_NS (3000 * MS_NS)
#define PENDING_MOST_NS (60000 * MS_NS) /* that launches are waited for in all, */
#define PENDING_STILL_NS (15000 * MS_NS) /* and while none of them runs */
#define STOPPED_MOST_NS (10000 * MS_NS) /* the same for a caller that does not wait: */
#define STOPPED_STILL_NS (2000 * MS_NS) /* in a job that hangs they never run */
#define FLUSH_NS (1000 * MS_NS) /* what is older survives whatever happens to the job */
#define RECORDER_NS (1000 * MS_NS) /* between looks whether the recorder lives */
#define FINISH_FLUSH_NS (50 * MS_NS)
#define JOB_WAITS_MS 500 /* at most, for the source to be on at the first step */
#define MISSED "nothing was traced: that step had begun already"
#define LOST "the recorder of this process was killed, and the trace is lost with it"

enum phase { TRACE_IDLE, TRACE_READY, TRACE_BEGINNING, TRACE_RUNNING, TRACE_FINISHING };

static struct {
	_Atomic int phase; /* enum phase */
	_Atomic bool warm; /* the source is on */
	_Atomic bool waited; /* the job has, for that */
	int64_t start, stop;
	bool next; /* it begins with the next step, whichever that is */
	bool by_time;
	bool stopped; /* by request: what does not come soon is not waited for */
	uint64_t end_ns; /* of a trace by time */
	uint64_t window;
	uint32_t pid; /* whose trace it is: a forked child has none */
	uint32_t kinds;
	bool stacks; /* the recorder may look at them */
	bool attribute; /* to modules and lines */
	bool paused; /* another had the source, at some time */
	double gc_ms; /* < 0: not asked for */
	bool gc_subscribed; /* somebody listens */
	const struct activity_source *source;
	_Atomic uint64_t begun_ns, last_ns, ended_ns; /* of steps */
	uint64_t flush_ns;
	uint64_t pending, moved_ns; /* launches that have not run, and since when it is so many */
	char text[REQUEST_MAX_BYTES];
	size_t len;
} t;

static int phase_now(void)
{
	int phase = atomic_load(&t.phase);

	return phase != TRACE_IDLE && t.pid == (uint32_t)getpid() ? phase : TRACE_IDLE;
}

bool trace_is_on(void)
{
	return phase_now() != TRACE_IDLE;
}

bool trace_has_begun(void)
{
	return phase_now() > TRACE_READY;
}

double trace_gc_ms(void)
{
	return phase_now() != TRACE_IDLE ? t.gc_ms : -1;
}

struct fabric_status trace_status(void)
{
	int phase = phase_now();
	struct fabric_status s = {
		.state = phase == TRACE_IDLE	 ? FABRIC_IDLE
			 : phase < TRACE_RUNNING ? FABRIC_READY
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
	return code;
}

/* Launches are always needed: they report to which step a kernel belongs. */
static uint32_t kinds_of(const struct trace_request *o)
{
	uint32_t kinds = ACTIVITY_APIS;

	if (o->activities & REQUEST_DEVICE)
		kinds |= ACTIVITY_BIT(ACTIVITY_KERNEL) | ACTIVITY_BIT(ACTIVITY_MEMCPY) |
			 ACTIVITY_BIT(ACTIVITY_MEMSET) | ACTIVITY_BIT(ACTIVITY_COMMUNICATION);
	if (o->memory)
		kinds |= ACTIVITY_BIT(ACTIVITY_MEMORY);
	if (o->marks)
		kinds |= ACTIVITY_BIT(ACTIVITY_MARKER);
	return kinds;
}

static bool is_rank_wanted(const struct trace_request *o)
{
	char rank[16];
	struct text out = {rank, rank + sizeof(rank)};

	text_number(&out, environment.rank);
	return !o->ranks.len || request_lists(&o->ranks, rank, strlen(rank));
}

static bool change_phase(int from, int to)
{
	return atomic_compare_exchange_strong(&t.phase, &from, to);
}

/*
 * By our thread, with the control's lock taken.
 *
 * The window and the source, in this order. Launches are counted from here on (pending_launches.c), but
 * count only from the first step on.
 */
static void warm_up(void)
{
	if (atomic_load(&t.warm))
		return;
	t.window = window_open(t.text, t.len, 0);
	if (!t.window) { /* which has been said */
		atomic_store(&t.last_ns, guest_now());
		atomic_store(&t.ended_ns, guest_now());
		atomic_store(&t.phase, TRACE_FINISHING);
		return;
	}
	pending_begin();
	attribute_switch(t.source, t.attribute);
	if (source_start(t.source, t.kinds) < 0) {
		print_notice("nputrace: ", t.source->name, ": ", t.source->problem());
		window_note(t.window, "PROFILE_ACTIVITIES", t.source->problem());
	}
	t.flush_ns = guest_now() + FLUSH_NS;
	atomic_store(&t.warm, true);
}

static void arm_trace(const struct trace_request *o, int64_t current)
{
	t.by_time = !o->steps;
	t.next = o->start_step < 0;
	t.start = t.next ? current + 1 : o->start_step;
	t.stop = t.start + (int64_t)o->steps;
	t.kinds = kinds_of(o);
	t.window = 0;
	t.pending = t.moved_ns = 0;
	t.paused = t.stopped = false;
	t.pid = (uint32_t)getpid();
	t.gc_ms = o->gc_ms;
	t.gc_subscribed = false;
	t.stacks = o->stack;
	t.attribute = o->attribute;
	atomic_store(&t.warm, false);
	atomic_store(&t.waited, false);
	atomic_store(&t.begun_ns, 0);
	atomic_store(&t.phase, TRACE_READY);
	if (t.gc_ms >= 0)
		gc_wanted_changed();
	if (t.by_time) {
		t.start = 0;
		t.stop = 1;
		t.end_ns = guest_now() + o->duration_ms * MS_NS;
		warm_up();
		if (t.window) {
			pending_from_now();
			window_step(t.window, 0);
		}
		(void)change_phase(TRACE_READY, TRACE_RUNNING);
	}
}

int trace_execute(const char *text, size_t len, char *why, size_t cap)
{
	struct trace_request o;
	const char *wrong = trace_request_read(text, len, &o);
	int64_t current = steps_now();

	if (wrong)
		return refuse(why, cap, -EINVAL, wrong);
	if (trace_has_begun())
		return refuse(why, cap, -EBUSY, "one is being taken already");
	if (!is_rank_wanted(&o))
		return refuse(why, cap, 0, "left out: its rank is not in --rank-list");
	if (o.steps && o.start_step >= 0 && o.start_step <= current)
		return refuse(why, cap, -ERANGE, "that step has begun already");
	int r = window_check_dir(&o.log_file, why, cap);
	if (r == 0)
		r = window_check_place(why, cap);
	if (r < 0)
		return r;
	t.source = source_find();
	if (!t.source)
		return refuse(why, cap, -ENODEV, SOURCE_NONE);
	if (len > sizeof(t.text))
		return refuse(why, cap, -E2BIG, "the request is too long");
	trace_end(WINDOW_WAIT_MS); /* one that has not begun gives way */
	memcpy(t.text, text, len);
	t.len = len;
	arm_trace(&o, current);
	return 0;
}

/*
 * --- by the job's threads; several may report steps ---
 *
 * Once per trace a thread of the job waits for our thread, half a second at most: without, the
 * first step of a trace that was requested a moment ago would always be missed.
 */
static bool wait_until_warm(void)
{
	uint64_t until = guest_now() + JOB_WAITS_MS * MS_NS;

	if (!atomic_load(&t.warm) && atomic_exchange(&t.waited, true))
		return false;
	while (!atomic_load(&t.warm) && atomic_load(&t.phase) == TRACE_BEGINNING &&
	       guest_now() < until)
		guest_sleep(200000);
	return atomic_load(&t.warm);
}

/* The loser of the compare-and-swap goes on with its step: several threads may report the same
 * one. */
static void begin_with(int64_t n)
{
	if (!change_phase(TRACE_READY, TRACE_BEGINNING))
		return;
	if (t.next) {
		t.stop += n - t.start;
		t.start = n;
	}
	uint64_t ns = guest_now();
	if (!wait_until_warm()) {
		(void)change_phase(TRACE_BEGINNING, TRACE_READY);
		return;
	}
	pending_from_now();
	window_step(t.window, (uint64_t)n);
	atomic_store(&t.begun_ns, ns);
	atomic_store(&t.last_ns, ns);
	(void)change_phase(TRACE_BEGINNING, TRACE_RUNNING);
}

/*
 * What is reported here has happened, in whichever order threads come.
 *
 * The time of the end is stored before the phase changes: our thread reads it after it has seen
 * FINISHING.
 */
static void end_at_step(int phase, uint64_t ns)
{
	atomic_store(&t.ended_ns, ns);
	if (change_phase(phase, TRACE_FINISHING) && phase == TRACE_RUNNING) {
		window_step(t.window, (uint64_t)t.stop);
		pending_until_now();
	}
}

/* By our thread: not where a step has ended. */
static void end_here(uint64_t now_ns)
{
	if (t.by_time) {
		atomic_store(&t.last_ns, now_ns);
		atomic_store(&t.begun_ns, now_ns);
	}
	atomic_store(&t.ended_ns, now_ns);
	pending_until_now();
}

void trace_step(uint64_t step)
{
	int phase = phase_now();

	if ((phase != TRACE_READY && phase != TRACE_RUNNING) || t.by_time)
		return;
	int64_t n = (int64_t)step;
	uint64_t ns = guest_now();
	if (phase == TRACE_READY && (t.next || (n >= t.start && n < t.stop))) {
		begin_with(n);
	} else if (n >= t.stop) {
		end_at_step(phase, ns);
	} else if (phase == TRACE_RUNNING) {
		window_step(t.window, step);
		atomic_store(&t.last_ns, ns);
	}
}

/* --- */

/*
 * What was launched in the last step is executed some time later.
 *
 * At least one step's time more, within bounds: kernels lag behind their launches by about that.
 */
static uint64_t finish_ns(void)
{
	uint64_t step = atomic_load(&t.ended_ns) - atomic_load(&t.last_ns);
	uint64_t more = FINISH_LEAST_NS + (t.by_time || t.stopped ? 0 : step);

	return atomic_load(&t.ended_ns) + (more < FINISH_MOST_NS ? more : FINISH_MOST_NS);
}

/*
 * Everything that the steps launched has run; or it does not come, and the trace says how much.
 *
 * Two limits: in all, and since the count of open launches last changed. A job that hangs never
 * runs what it has launched.
 */
static bool is_finished(uint64_t now_ns)
{
	uint64_t left = pending_launches(), ended = atomic_load(&t.ended_ns);
	uint64_t most = t.stopped ? STOPPED_MOST_NS : PENDING_MOST_NS;
	uint64_t still = t.stopped ? STOPPED_STILL_NS : PENDING_STILL_NS;

	if (now_ns < finish_ns())
		return false;
	if (left != t.pending || !t.moved_ns)
		t.moved_ns = now_ns;
	t.pending = left;
	return !left || now_ns >= ended + most || now_ns >= t.moved_ns + still;
}

static void note_pending(void)
{
	char words[128];
	struct text out = {words, words + sizeof(words)};

	if (!t.pending)
		return;
	text_number(&out, (int64_t)t.pending);
	text_str(&out, " launches of these steps had not run when the trace was closed");
	window_note(t.window, "PROFILE_ACTIVITIES", words);
}

static void note_others(void)
{
	if (t.paused)
		window_note(t.window, "PROFILE_ACTIVITIES",
			    "another profiler in this process had the device meanwhile: what ran "
			    "then is missing");
}

/* What the trace could not hold is said in the trace itself. */
static void close_window(uint32_t wait_ms)
{
	note_others();
	note_pending();
	if (t.gc_ms >= 0 && !t.gc_subscribed)
		window_note(t.window, "PROFILE_GC_DETECT_THRESHOLD",
			    collect_has_python()
				    ? "the package sonde is not in the Python of this process"
				    : "there is no Python in this process");
	(void)window_close(t.window, t.source->lost(), wait_ms);
}

void trace_end(uint32_t wait_ms)
{
	if (!trace_is_on())
		return;
	if (atomic_load(&t.warm)) {
		source_stop(t.source);
		attribute_switch(t.source, false);
		pending_end();
		t.pending = atomic_load(&t.begun_ns) ? pending_launches() : 0;
		close_window(wait_ms);
	}
	if (t.stacks)
		collect_set_ptrace_access(false);
	atomic_store(&t.phase, TRACE_IDLE);
	atomic_store(&t.warm, false);
	if (t.gc_ms >= 0)
		gc_wanted_changed();
}

void trace_cut(const char *why, uint32_t wait_ms)
{
	if (!trace_is_on() || !atomic_load(&t.warm))
		return;
	if (change_phase(TRACE_RUNNING, TRACE_FINISHING)) {
		window_end(t.window);
		end_here(guest_now());
	}
	window_note(t.window, "PROFILE_ACTIVITIES", why);
	trace_end(wait_ms);
	print_notice("nputrace: ", why, NULL, NULL);
	send_answer(t.text, t.len, false, why);
}

/* Without its recorder there is nobody who could write it. */
static bool is_lost(void)
{
	if (!trace_is_on() || !atomic_load(&t.warm) || !collect_recorder_is_gone())
		return false;
	trace_cut(LOST, 0);
	return true;
}

static void check_recorder(uint64_t now_ns)
{
	static uint64_t checked_ns;

	if (!atomic_load(&t.warm) || now_ns < checked_ns + RECORDER_NS)
		return;
	checked_ns = now_ns;
	(void)is_lost();
}

/* --- ended by request --- */

/*
 * A thread of the job may be about to begin it: with the source on that takes it moments; with the
 * source off it waits for us, in vain.
 */
static void wait_until_begun(void)
{
	uint64_t until = guest_now() + JOB_WAITS_MS * MS_NS;

	while (atomic_load(&t.warm) && phase_now() == TRACE_BEGINNING && guest_now() < until)
		guest_sleep(200000);
}

/* From here on no thread of the job begins it. */
static bool drop_waiting(void)
{
	if (!change_phase(TRACE_READY, TRACE_FINISHING) &&
	    !change_phase(TRACE_BEGINNING, TRACE_FINISHING))
		return false;
	trace_end(WINDOW_WAIT_MS);
	return true;
}

/* False: its last step has ended meanwhile. */
static bool end_early(uint64_t now_ns)
{
	if (!change_phase(TRACE_RUNNING, TRACE_FINISHING))
		return false;
	window_end(t.window);
	end_here(now_ns);
	return true;
}

static void describe_early_end(struct text *out, uint64_t now_ns)
{
	if (t.by_time) {
		text_str(out, "ended ");
		text_number(out, t.end_ns > now_ns ? (int64_t)((t.end_ns - now_ns) / MS_NS) : 0);
		text_str(out, " ms before its time was over");
		return;
	}
	text_str(out, "ended in step ");
	text_number(out, steps_now());
	if (t.stop - t.start == 1) {
		text_str(out, ", before its end");
		return;
	}
	text_str(out, "; steps ");
	text_number(out, t.start);
	text_str(out, " to ");
	text_number(out, t.stop - 1);
	text_str(out, " were asked for");
}

/* Every outcome has its words: the daemon shows them to who asked. */
void trace_stop(char *what, size_t cap)
{
	struct text out = {what, what + cap};

	wait_until_begun();
	if (!trace_is_on()) {
		text_str(&out, "none");
	} else if (is_lost()) {
		text_str(&out, LOST);
	} else if (drop_waiting()) {
		text_str(&out, "dropped before its first step");
	} else {
		uint64_t now = guest_now();
		bool again = t.stopped;

		t.stopped = true;
		if (end_early(now))
			describe_early_end(&out, now);
		else
			text_str(&out, again ? "ended already, and about to be written"
					     : "ended after its last step; what that launched is "
					       "not waited for any longer");
	}
}

/* --- */

static void check_python(void)
{
	if (t.stacks)
		collect_set_ptrace_access(true);
	if (!t.gc_subscribed && t.gc_ms >= 0 && phase_now() <= TRACE_RUNNING)
		t.gc_subscribed = gc_is_subscribed();
}

/*
 * A trace of a step that is far away costs nothing until then.
 *
 * Steps take half a millisecond at least; so far away from the first one, our thread can sleep.
 */
static uint64_t next_check_ns(int phase)
{
	int64_t left = t.start - 1 - steps_now();

	if (phase > TRACE_BEGINNING || left > (int64_t)(CHECK_SELDOM_NS / STEP_LEAST_NS))
		return CHECK_SELDOM_NS;
	return left * (int64_t)STEP_LEAST_NS > (int64_t)CHECK_NS ? (uint64_t)left * STEP_LEAST_NS
								 : CHECK_NS;
}

static void flush_source(uint64_t now_ns, uint64_t every_ns)
{
	if (t.flush_ns > now_ns + every_ns)
		t.flush_ns = now_ns + every_ns; /* it was less urgent before */
	if (now_ns < t.flush_ns)
		return;
	source_flush(t.source);
	t.flush_ns = now_ns + every_ns;
}

uint64_t trace_run_due(uint64_t now_ns)
{
	static int sent;

	check_recorder(now_ns);
	int phase = phase_now();
	if ((phase == TRACE_READY || phase == TRACE_BEGINNING) && steps_now() + 1 >= t.start)
		warm_up();
	if (phase != TRACE_IDLE)
		check_python();
	if (phase >= TRACE_RUNNING && atomic_load(&t.warm) && t.source->is_paused())
		t.paused = true;
	if (phase == TRACE_RUNNING && t.by_time && now_ns >= t.end_ns) {
		window_step(t.window, 1);
		end_here(now_ns);
		atomic_store(&t.phase, TRACE_FINISHING);
	}
	if (phase >= TRACE_RUNNING && atomic_load(&t.warm))
		flush_source(now_ns, phase == TRACE_FINISHING ? FINISH_FLUSH_NS : FLUSH_NS);
	if (phase == TRACE_FINISHING && is_finished(now_ns) && !is_lost()) {
		if (!atomic_load(&t.begun_ns) && !t.by_time) {
			print_notice("nputrace: ", MISSED, NULL, NULL);
			send_answer(t.text, t.len, false, MISSED);
		}
		trace_end(WINDOW_WAIT_MS);
	}
	phase = phase_now();
	if (phase != sent) {
		sent = phase;
		control_send_status();
	}
	return phase == TRACE_IDLE ? NEVER : now_ns + next_check_ns(phase);
}
