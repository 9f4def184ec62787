/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Requests of npu-monitor: on, off, another set of kinds, another interval; and their end.
 *
 *	         start                 pause                      until_ns, stop
 *	(idle) ---------> running ------------> running, paused -----------------> (idle)
 *	                     ^  \__ until_ns, stop __> (idle)   |
 *	                     |________ resume, resume_ns _______|
 *
 *	start     window_open(): the recorder knows the request before the first activity comes;
 *	          then the source is switched on
 *	change    another interval or set of kinds for the window that is open
 *	pause     another profiler gets the device: the source is off, the window stays
 *	stop      source off, MONITOR_STOP, and a wait until the recorder has written everything;
 *	          only then the daemon hears Idle
 *
 * A recorder that was killed is noticed once a second, and the window goes on in a new session with
 * a recorder of its own (renew.c). A lease is a window that ends unless it is renewed:
 * observers such as `sonde top` have one, and never touch what somebody else has requested.
 */
#include "guest/monitor/monitor_impl.h"

#include "guest/collect/collect.h"

#include <errno.h>
#include <string.h>

#define FLUSH_NS 1000000000ull /* what is older than this survives whatever happens to the job */
#define PAUSE_S 90
#define MAX_PAUSE_S 3600
#define RETRY_NS 2000000000ull
#define RECORDER_NS 1000000000ull /* between looks whether the recorder lives */
#define NEVER UINT64_MAX
#define RESIDENT                                                                                   \
	"sonde record is recording this process already: 'sonde record --dump PID' makes a copy "  \
	"of what it has now, 'sonde timeline DIR' shows it"

static struct fork_safe_lock lock;
/* What this process does. With the lock; `running` and `pid` are read without it where a moment
 * does not matter. */
static struct {
	uint32_t pid; /* whose this is: what a parent does goes on there, not in a forked child */
	bool running; /* as the daemon sees it */
	bool paused; /* another profiler has the device: the source is off, the window stays */
	bool attribute; /* to modules and lines */
	bool resident; /* of `sonde record`: no request changes or ends it */
	bool gap; /* of it: somebody else has the source's library */
	uint32_t kinds;
	uint64_t window;
	uint64_t until_ns, flush_ns, resume_ns, checked_ns;
	uint64_t lease; /* of who renews it; 0: it stays until somebody ends it, or its time */
	uint64_t lost; /* by sources that were stopped meanwhile */
	const struct activity_source *source;
} now;

/* The window whose steps are reported, 0: none. */
static _Atomic uint64_t steps_of;

/* A fork copies this state, but the parent's monitor goes on in the parent: the child starts
 * idle. */
static void forget_parents(void)
{
	uint32_t pid = (uint32_t)getpid();

	if (now.pid == pid)
		return;
	memset(&now, 0, sizeof(now));
	atomic_store(&steps_of, 0);
	now.until_ns = NEVER;
	now.pid = pid;
}

void control_step(uint64_t step)
{
	uint64_t window = atomic_load_explicit(&steps_of, memory_order_relaxed);

	if (window)
		window_step(window, step);
}

void control_lock(void)
{
	fork_safe_lock_take(&lock);
	forget_parents();
}

bool control_try_lock(uint32_t wait_ms)
{
	if (!fork_safe_lock_try(&lock, wait_ms))
		return false;
	forget_parents();
	return true;
}

void control_unlock(void)
{
	fork_safe_lock_release(&lock);
}

bool control_is_running(void)
{
	return now.running && now.pid == (uint32_t)getpid();
}

bool control_can_take(void)
{
	return !trace_has_begun();
}

void control_send_status(void)
{
	static bool announced; /* the daemon, that the monitor is that of `sonde record` */
	struct fabric_status trace = trace_status();
	struct fabric_status monitor = {
		.state = now.running && !now.paused ? FABRIC_RUNNING : FABRIC_IDLE,
		.current_step = -1,
		.start_step = -1,
		.stop_step = -1,
	};

	if (thread_polls())
		link_send_status("npuTraceStatus", &trace);
	link_send_status("npuMonitorStatus", &monitor);
	if (now.resident || announced)
		send_capabilities(now.resident);
	announced = now.resident;
}

static int refuse(char *why, size_t cap, int code, const char *a, const char *b, const char *c)
{
	struct text t = {why, why + cap};

	if (cap)
		why[0] = '\0';
	text_str(&t, a);
	if (b)
		text_str(&t, b);
	if (c)
		text_str(&t, c);
	return code;
}

static void source_off(void)
{
	if (!now.source)
		return;
	source_stop(now.source);
	attribute_switch(now.source, false);
	now.lost += now.source->lost();
	now.source = NULL;
}

static int source_on(char *why, size_t cap)
{
	now.source = source_find();
	if (!now.source)
		return refuse(why, cap, -ENODEV, SOURCE_NONE, NULL, NULL);
	attribute_switch(now.source, now.attribute);
	int r = source_start(now.source, now.kinds);
	const char *problem = now.source->problem();
	if (r < 0) {
		const char *name = now.source->name;
		attribute_switch(now.source, false);
		now.source = NULL;
		return refuse(why, cap, r, name, " cannot be used: ",
			      problem[0] ? problem
					 : "another profiler has it, or the device is not "
					   "ready");
	}
	if (problem[0])
		print_notice(now.source->name, ": ", problem, NULL);
	now.flush_ns = guest_now() + FLUSH_NS;
	return 0;
}

static bool stop_window(uint32_t wait_ms)
{
	if (!now.running)
		return true;
	atomic_store(&steps_of, 0);
	source_off();
	bool written = window_close(now.window, now.lost, wait_ms);
	now.running = now.paused = now.resident = now.gap = false;
	now.until_ns = NEVER;
	now.lease = 0;
	return written;
}

static bool reopen_window(void)
{
	uint64_t window = renew_again();

	if (window) {
		now.window = window;
		atomic_store(&steps_of, window);
	}
	return window != 0;
}

/* What the vendor's library has reported and will report now is of the old one: it is counted
 * there. */
static void flush_source(void)
{
	if (now.source)
		source_flush(now.source);
}

/* One that was killed while it wrote the end. */
static void report_lost_with_recorder(void)
{
	uint64_t window = renew_again();

	if (!window)
		return;
	renew_report_lost(window, false);
	(void)window_close(window, 0, WINDOW_WAIT_MS);
}

/* By a request, or in time. Of a recorder that was killed since the last look it is still to be
 * reported what was lost with it, which is known when there is another one. */
static void end_window(void)
{
	bool ours = now.running && collect_is_monitors();

	if (ours && collect_recorder_is_gone()) {
		flush_source();
		if (reopen_window())
			renew_report_lost(now.window, false);
	}
	if (stop_window(WINDOW_WAIT_MS) || !ours)
		return;
	if (collect_recorder_is_gone())
		report_lost_with_recorder();
	else
		print_notice("the recorder of this process has not written the end of its files "
			     "yet: they are complete when it has, unless it is killed",
			     NULL, NULL, NULL);
}

/* More than any machine lives is for ever. */
static uint64_t end_of(uint64_t duration_ms)
{
	if (!duration_ms || duration_ms > NEVER / 4 / MS_NS)
		return NEVER;
	return guest_now() + duration_ms * MS_NS;
}

/* The window is opened before the source: an activity without a window would belong nowhere. If
 * the source refuses, the window is closed again, and the request is refused with its words. */
static int start_window(const struct monitor_request *o, const char *text, size_t len, char *why,
			size_t cap)
{
	if (trace_has_begun())
		return refuse(why, cap, -EBUSY, "a trace is being taken", NULL, NULL);
	trace_end(WINDOW_WAIT_MS); /* one that only waits for its step gives way */
	int r = o->log_file.len ? window_check_dir(&o->log_file, why, cap) : 0;
	if (r < 0)
		return r;
	now.kinds = o->kinds;
	now.attribute = o->attribute;
	now.lost = 0;
	/* The window is there before the first activity is. */
	now.window = renew_first(text, len);
	if (!now.window)
		return refuse(why, cap, -EIO, window_why_not(), NULL, NULL);
	r = source_on(why, cap);
	if (r < 0) {
		(void)window_close(now.window, 0, WINDOW_WAIT_MS);
		return r;
	}
	now.until_ns = end_of(o->duration_ms);
	now.lease = o->lease;
	now.running = true;
	atomic_store(&steps_of, now.window);
	return 0;
}

static void change_window(const struct monitor_request *o, const char *text, size_t len)
{
	renew_change(now.window, text, len);
	bool same = now.kinds == o->kinds && now.attribute == o->attribute;
	if (now.attribute != o->attribute)
		attribute_switch(now.source, o->attribute);
	if (!same && now.source)
		(void)source_change(now.source, o->kinds);
	now.kinds = o->kinds;
	now.attribute = o->attribute;
}

/*
 * By an observer with a lease, as `sonde top` is one, which may be gone at any moment: what it starts
 * ends unless it renews the lease. What others have requested is left as it is. That is decided
 * here, because the observer only knows how it was a moment ago.
 *
 * The three cases: its own window is renewed or ended; nobody's is there, so one is begun; somebody
 * else's is there, and is left alone without an error.
 */
static int execute_leased(const struct monitor_request *o, const char *text, size_t len, char *why,
			  size_t cap)
{
	bool own = now.running && now.lease == o->lease;

	if (own && o->stop)
		end_window();
	else if (own)
		now.until_ns = end_of(o->duration_ms);
	else if (!now.running && o->start && !o->stop)
		return trace_is_on() ? refuse(why, cap, -EBUSY, "a trace is on", NULL, NULL)
				     : start_window(o, text, len, why, cap);
	return 0;
}

/* A request of its own where one was only leased: all of it counts. */
static int take_over(const struct monitor_request *o, const char *text, size_t len, char *why,
		     size_t cap)
{
	int r = o->log_file.len ? window_check_dir(&o->log_file, why, cap) : 0;

	if (r < 0)
		return r;
	end_window();
	return start_window(o, text, len, why, cap);
}

static int execute_monitor(const char *text, size_t len, char *why, size_t cap)
{
	struct monitor_request o;
	const char *wrong = monitor_request_read(text, len, &o);

	if (wrong)
		return refuse(why, cap, -EINVAL, wrong, " is missing or wrong", NULL);
	if (o.lease)
		return execute_leased(&o, text, len, why, cap);
	if (now.resident)
		return refuse(why, cap, -EBUSY, RESIDENT, NULL, NULL);
	if (o.stop && !trace_has_begun())
		trace_end(WINDOW_WAIT_MS);
	if (o.stop)
		end_window();
	else if (now.running && now.lease && o.start)
		return take_over(&o, text, len, why, cap);
	else if (now.running)
		change_window(&o, text, len);
	else if (o.start)
		return start_window(&o, text, len, why, cap);
	return 0;
}

int control_start_resident(const char *text, size_t len)
{
	struct monitor_request o;
	char why[256] = "";
	static _Atomic bool printed;

	if (now.running || trace_is_on())
		return -EBUSY;
	if (!source_find())
		return -ENODEV;
	int r = monitor_request_read(text, len, &o) ? -EINVAL
						    : start_window(&o, text, len, why, sizeof(why));
	now.resident = r == 0;
	if (r < 0 && why[0] && !atomic_exchange(&printed, true))
		print_notice("kernels are not recorded: ", why, NULL, NULL);
	return r;
}

void control_change_resident(const char *text, size_t len)
{
	if (now.resident)
		renew_change(now.window, text, len);
}

void control_end_resident(void)
{
	if (now.resident)
		(void)stop_window(WINDOW_WAIT_MS);
	control_send_status();
}

/* While the job's own profiler has the library nothing is reported: the recording says from when to
 * when. By our thread, so a moment later. */
static void note_gap(uint64_t now_ns)
{
	bool gap = now.paused || (now.source && now.source->is_paused());
	char since[24];
	struct text t = {since, since + sizeof(since)};

	if (!now.resident || gap == now.gap)
		return;
	now.gap = gap;
	text_number(&t, (int64_t)now_ns);
	window_note(now.window, gap ? WINDOW_GAP_BEGINS : WINDOW_GAP_ENDS, since);
}

static void resume_source(uint64_t now_ns)
{
	char why[1];

	if (source_on(why, 0) == 0)
		now.paused = false;
	else
		now.resume_ns = now_ns + RETRY_NS;
}

/*
 * The daemon lets another profiler have the device, for so long or until it says otherwise: one
 * that ends meanwhile does not leave us waiting.
 */
static void execute_pause(const char *text, size_t len)
{
	struct request_text t;
	bool on = request_find(text, len, "SONDE_PAUSE", &t) && request_is(&t, "true");
	uint64_t now_ns = guest_now(), seconds = PAUSE_S;

	if (!now.running || (!on && !now.paused))
		return;
	if (!on) {
		resume_source(now_ns);
		return;
	}
	if (request_find(text, len, "SONDE_PAUSE_S", &t))
		(void)request_number(&t, MAX_PAUSE_S, &seconds);
	source_off();
	now.paused = true;
	now.resume_ns = now_ns + seconds * 1000 * MS_NS;
}

int control_execute(const char *text, size_t len, char *why, size_t cap)
{
	int r = 0;

	switch (request_kind(text, len)) {
	case REQUEST_MONITOR:
		r = execute_monitor(text, len, why, cap);
		break;
	case REQUEST_TRACE:
		r = now.running
			    ? refuse(why, cap, -EBUSY,
				     now.resident ? RESIDENT : "npu-monitor is running", NULL, NULL)
			    : trace_execute(text, len, why, cap);
		break;
	case REQUEST_PAUSE:
		execute_pause(text, len);
		break;
	case REQUEST_TRACE_STOP:
		trace_stop(why, cap);
		break;
	default:
		r = refuse(why, cap, -EINVAL, "neither npu-monitor nor nputrace", NULL, NULL);
	}
	return r;
}

/*
 * --- going on in another session ---
 *
 * Once a second, with a few system calls. A recorder that merely stands still is not replaced.
 */
static void check_recorder(uint64_t now_ns)
{
	if (now_ns < now.checked_ns + RECORDER_NS)
		return;
	now.checked_ns = now_ns;
	collect_release_formers(); /* of windows that have ended, too */
	if (!now.running || !collect_recorder_is_gone())
		return;
	/* Its buffers go on, and `recover` reads them. */
	if (now.resident && !collect_is_monitors())
		return;
	enum renewal when = renew_when(now_ns);
	if (when == RENEW_NOW) {
		flush_source();
		if (reopen_window())
			renew_report_lost(now.window, true);
	} else if (when == RENEW_NEVER) {
		renew_give_up();
		(void)stop_window(0);
		control_send_status();
	}
}

/* The lock is taken here and released in after_move(): no request comes in between. */
static void before_move(void)
{
	control_lock();
	trace_cut("the program has begun to record memory (msmemscope): the trace ends here",
		  WINDOW_WAIT_EXIT_MS);
	if (!now.running)
		return;
	flush_source();
	window_leave(now.window, now.lost);
	now.lost = 0;
}

static void after_move(bool moved)
{
	if (moved && now.running && !reopen_window())
		(void)stop_window(0);
	control_send_status();
	control_unlock();
}

const struct guest_mover control_mover = {before_move, after_move};

/*
 * ---
 *
 * Returns when to come again: the earliest of flush, resume, end, and what the trace wants.
 */
uint64_t control_run_due(uint64_t now_ns)
{
	uint64_t next = trace_run_due(now_ns), resident_ns = resident_run_due(now_ns);

	next = resident_ns < next ? resident_ns : next;
	check_recorder(now_ns);
	note_gap(now_ns);
	if (!now.running)
		return next;
	if (now_ns >= now.until_ns) {
		end_window();
		control_send_status();
		return next;
	}
	if (now.paused && now_ns >= now.resume_ns) {
		resume_source(now_ns);
		control_send_status();
	}
	if (now.source && now_ns >= now.flush_ns) {
		source_flush(now.source);
		now.flush_ns = now_ns + FLUSH_NS;
	}
	uint64_t due = now.paused ? now.resume_ns : now.flush_ns;
	if (now.until_ns < due)
		due = now.until_ns;
	return due < next ? due : next;
}

void control_exit(void)
{
	(void)stop_window(WINDOW_WAIT_EXIT_MS);
	trace_end(WINDOW_WAIT_EXIT_MS);
}
