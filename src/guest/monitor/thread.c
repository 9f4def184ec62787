/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The thread: polls the daemon, runs what is due, sleeps. One per process image; a forked child has
 * none until it uses a device or reports a step itself. And the same for the Python modules, whose
 * framework does the asking.
 */
#include "guest/monitor/monitor_impl.h"

#include "guest/collect/collect.h"
#include "guest/runtime/env.h"
#include "wire/trace_capabilities.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define POLL_NS (2000 * MS_NS)
#define SEND_EVERY 5 /* times that we ask: a daemon that was started anew knows nothing of us */
#define STEP_SEND_NS (1000 * MS_NS)
#define STACK_BYTES (512u << 10)
#define SEAL_WAITS_NS (2500 * MS_NS) /* longer than the thread ever sleeps */
#define EXIT_WAITS_MS 1000 /* for our thread to be through with what it does */
#define EMPTY_NS (10 * MS_NS) /* between two polls of a framework that brought nothing */
#define REPEATED_NS (1000 * MS_NS) /* between two reports about a request that is repeated */

static struct {
	_Atomic uint32_t pid; /* of the process whose thread runs */
	_Atomic bool polls; /* the thread asks; else a framework does */
	_Atomic bool ended; /* exit() is under way: what is not done will not be */
	_Atomic uint32_t tid; /* of the thread; 0: it has not begun */
	bool found; /* the daemon has answered */
	bool exit_registered;
	char request[REQUEST_MAX_BYTES];
} self;

/* The config keys that we honour; the others are named in the answer to who asks. The first word is
 * for a process that `sonde record` records. */
static const char capabilities[] = FABRIC_RECORDED
	" NPU_MONITOR_START NPU_MONITOR_STOP REPORT_INTERVAL_S DURATION MSPTI_ACTIVITY_KIND "
	"NPU_MONITOR_LOG_FILE NPU_MONITOR_EXPORT_TYPE JSONL_ROTATE_LOG_LINES "
	"JSONL_ROTATE_LOG_FILES NPU_MONITOR_FILTER " TRACE_CAPABILITIES TRACE_CAPABILITIES_PYTHON;

/* False: the job ends, and the vendor's library with it. */
static bool lock_control(void)
{
	control_lock();
	if (!atomic_load(&self.ended))
		return true;
	control_unlock();
	return false;
}

void send_capabilities(bool recorded)
{
	size_t python = collect_has_python() ? 0 : sizeof(TRACE_CAPABILITIES_PYTHON) - 1;
	size_t skipped = recorded ? 0 : sizeof(FABRIC_RECORDED);

	link_send(FABRIC_CAN, capabilities + skipped, sizeof(capabilities) - 1 - python - skipped);
}

static void send_everything(void)
{
	send_capabilities(false);
	control_send_status();
}

void send_answer(const char *request, size_t len, bool done, const char *words)
{
	char line[320];
	struct text t = {line, line + sizeof(line)};
	struct request_text id;

	if (!request_find(request, len, "REQUEST_TRACE_ID", &id))
		return;
	text_add(&t, id.at, id.len);
	text_str(&t, done && words[0] ? " +" : " ");
	text_str(&t, words);
	if (t.at)
		link_send(FABRIC_SAID, line, (size_t)(t.at - line));
}

static void execute_request(size_t len)
{
	char why[256] = "";

	if (!lock_control())
		return;
	int r = control_execute(self.request, len, why, sizeof(why));
	control_send_status();
	control_unlock();
	if (r < 0)
		print_notice("the daemon's request was not carried out: ", why, NULL, NULL);
	send_answer(self.request, len, r >= 0, why);
}

/* A daemon that answers for the first time, or again after a while, knows nothing of this
 * process: capabilities and status are sent then, and every few polls in case it was restarted. */
static void poll_daemon(void)
{
	static unsigned polled;
	int n = link_poll(control_can_take(), self.request, sizeof(self.request));

	if (n < 0) {
		self.found = self.found && n == -ETIMEDOUT;
		return;
	}
	if (!self.found || ++polled % SEND_EVERY == 0) {
		if (!lock_control())
			return;
		send_everything();
		control_unlock();
	}
	self.found = true;
	if (n > 0)
		execute_request((size_t)n);
}

/* The step that the job is in, for who asks for the status. */
static void send_steps(uint64_t now_ns)
{
	static uint64_t due_ns;
	static int64_t sent = -1;
	int64_t step = steps_now();

	if (step == sent || now_ns < due_ns)
		return;
	sent = step;
	due_ns = now_ns + STEP_SEND_NS;
	struct fabric_status s = trace_status();
	link_send_status("npuTraceStatus", &s);
}

/*
 * A process ends with its last thread, which we must not be: main() may have left by pthread_exit()
 * and the others have returned. The list of robust futexes of a thread is gone when it is, and to
 * ask for that takes no descriptor.
 */
static bool is_last_thread(void)
{
	const char *p, *word = "\nThreads:\t";
	char status[4096];
	void *head = &head;
	size_t len;

	if (syscall(SYS_get_robust_list, getpid(), &head, &len) < 0 || head)
		return false;
	size_t n = guest_read_file("/proc/self/status", status, sizeof(status) - 1);
	status[n] = '\0';
	p = strstr(status, word);
	/* Its first thread, which is kept until the end, and us. */
	return p && strstr(status, "\nState:\tZ") && !strncmp(p + strlen(word), "2\n", 2);
}

/* Everything has a time at which it is due; the sleep ends at the earliest, at a poke of the
 * daemon, or after a second, whichever comes first. */
static void *run_monitor(void *arg)
{
	uint64_t poll_ns = 0;

	(void)arg;
	atomic_store(&self.tid, (uint32_t)syscall(SYS_gettid));
	prctl(PR_SET_NAME, "sonde-monitor");
	if (resident_is_wanted() && lock_control()) {
		(void)resident_run_due(guest_now()); /* before the daemon is looked for */
		control_unlock();
	}
	while (!atomic_load(&self.ended) && !is_last_thread()) {
		uint64_t now = guest_now();

		if (atomic_load(&self.polls)) {
			if (now >= poll_ns) {
				(void)source_find(); /* it looks who else uses its library */
				poll_daemon();
				poll_ns = guest_now() + POLL_NS;
			}
			send_steps(now);
		}
		if (!lock_control())
			break;
		uint64_t next = control_run_due(guest_now());
		control_unlock();
		if (next > poll_ns || !atomic_load(&self.polls))
			next = atomic_load(&self.polls) ? poll_ns : next;
		now = guest_now();
		uint64_t wait = next <= now ? 0 : (next - now) / MS_NS + 1;
		if (link_wait(wait > 1000 ? 1000 : (uint32_t)wait))
			poll_ns = 0;
	}
	return NULL;
}

/* Runs before the vendor's library is torn down, so the source can still be switched off. If our
 * thread holds the lock for longer than a second the job ends without. */
static void end_monitor(void)
{
	cupti_hurry();
	bool ours = control_try_lock(EXIT_WAITS_MS);
	atomic_store(&self.ended, true);
	if (ours) {
		control_exit();
		control_unlock();
	}
	link_close(EXIT_WAITS_MS);
}

static void at_exit(void)
{
	if (!collect_is_sealed() && atomic_load(&self.pid) == (uint32_t)getpid())
		end_monitor();
}

/*
 * The job is about to limit its system calls, and the thread cannot do without. The filter may be
 * for all threads: it is waited for until the kernel does not know the thread any more.
 */
static void before_seal(void)
{
	uint32_t pid = (uint32_t)getpid(), tid = atomic_load(&self.tid);
	uint64_t until = guest_now() + SEAL_WAITS_NS;

	if (atomic_load(&self.pid) != pid || !tid)
		return;
	end_monitor();
	while (syscall(SYS_tgkill, pid, tid, 0) == 0 && guest_now() < until)
		guest_sleep(MS_NS);
	print_notice("the job limits its system calls (seccomp): it is not monitored any more",
		     NULL, NULL, NULL);
}

/*
 * No handler of the job runs in our thread.
 *
 * Detached: nobody joins it. It ends when exit() has begun, or when it is the last one.
 */
static void start_thread(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;

	if (pthread_attr_init(&attr) != 0)
		return;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = pthread_create(&thread, &attr, run_monitor, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (r != 0)
		print_notice("no thread can be made: this process cannot be monitored", NULL, NULL,
			     NULL);
	if (r == 0 && !self.exit_registered)
		self.exit_registered = atexit(at_exit) == 0;
}

/* Once per process; cheap afterwards. */
static void ensure_thread(void)
{
	if (collect_is_sealed())
		return;
	uint32_t pid = (uint32_t)getpid(), who = atomic_load(&self.pid);
	if (who == pid || !atomic_compare_exchange_strong(&self.pid, &who, pid))
		return;
	/* What a forked child finds here is its parent's. */
	self.found = false;
	atomic_store(&self.tid, 0);
	atomic_store(&self.ended, false);
	collect_on_seal(before_seal);
	source_watch_forks();
	start_thread();
}

/* --- who else asks --- */

static int is_framework(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = info->dlpi_name ? info->dlpi_name : "";

	(void)size;
	(void)arg;
	return strstr(name, "libtorch_npu.so") || strstr(name, "libmindspore") ? 1 : 0;
}

/* The process that is awake, in a page that the kernel empties in a forked child. */
static _Atomic uint32_t *_Atomic awake;

static void make_page(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	_Atomic uint32_t *none = NULL;

	if (p == MAP_FAILED)
		return;
	/* Another thread may be as far. */
	if (madvise(p, 4096, MADV_WIPEONFORK) < 0 ||
	    !atomic_compare_exchange_strong(&awake, &none, p))
		munmap(p, 4096);
}

/*
 * Every step asks, so it is not a system call. True: it is awake already.
 *
 * Called at every step of the job: one relaxed load in the usual case.
 */
static bool note_awake(void)
{
	static _Atomic uint32_t known; /* where there is no such page */

	if (!atomic_load_explicit(&awake, memory_order_relaxed))
		make_page();
	_Atomic uint32_t *who = atomic_load_explicit(&awake, memory_order_relaxed);
	if (who)
		return atomic_load_explicit(who, memory_order_relaxed) || atomic_exchange(who, 1);
	uint32_t pid = (uint32_t)getpid();
	return atomic_exchange(&known, pid) == pid;
}

/* Frameworks that poll the daemon by themselves are recognised by their libraries: two pollers
 * would take each other's requests. */
void monitor_wake(void)
{
	if (!(environment.wanted || resident_is_wanted()) || collect_is_sealed() || note_awake())
		return;
	/* torch_npu and MindSpore ask by themselves, through our Python module. */
	bool asks = environment.wanted && dl_iterate_phdr(is_framework, NULL) == 0;
	if (!asks && !resident_is_wanted())
		return;
	environment_read_rank();
	if (asks)
		atomic_store(&self.polls, true);
	ensure_thread();
	collect_bring_steps();
}

int monitor_register(int32_t device)
{
	atomic_store(&self.polls, false);
	link_be_framework();
	int r = link_register(device);
	if (r == 0) {
		struct fabric_status idle = {FABRIC_IDLE, -1, -1, -1, 0, 0, 0};

		link_send_status("npuTraceStatus", &idle);
		control_lock();
		control_send_status();
		control_unlock();
	}
	return r;
}

/*
 * Loops of frameworks rely on a poll that takes its time: MindSpore's asks again at once after an
 * empty answer. The poll that follows one at once waits, so that what it brings is not old.
 */
int monitor_poll(char *out, size_t cap)
{
	static _Atomic uint64_t empty_ns;
	uint64_t since = guest_now() - atomic_load(&empty_ns);

	if (since < EMPTY_NS)
		guest_sleep(EMPTY_NS - since);
	int n = link_poll(true, out, cap);
	atomic_store(&empty_ns, n > 0 ? 0 : guest_now());
	return n;
}

/* For a framework that does its own tracing: the daemon hears of it under the framework's kind
 * of client. */
void monitor_send_trace_status(int32_t state, int32_t current, int32_t start, int32_t stop)
{
	struct fabric_status s = {state, current, start, stop, 0, 0, 0};

	if (!atomic_load(&self.polls))
		link_be_framework(); /* the rank; a child of it has registered, and asks */
	link_send_status("npuTraceStatus", &s);
	if (state == FABRIC_UNINITIALIZED)
		link_send_status("npuMonitorStatus", &s);
}

/*
 * MindSpore hands over the same request at every step. It is carried out once: a monitor whose
 * duration is over does not begin again. The daemon may be another one meanwhile, so it hears of
 * us now and then. With the control's lock.
 */
static struct {
	uint32_t pid;
	size_t len; /* 0: there is none */
	char id[64];
	uint64_t sent_ns;
} last_request;

void monitor_end(void)
{
	struct fabric_status s = {FABRIC_UNINITIALIZED, -1, -1, -1, 0, 0, 0};

	control_lock();
	control_exit();
	last_request.len = 0;
	control_unlock();
	link_send_status("npuTraceStatus", &s);
	link_send_status("npuMonitorStatus", &s);
	link_close(UINT32_MAX);
}

static bool is_repeated(const struct request_text *id)
{
	uint64_t now = guest_now();

	if (last_request.pid != (uint32_t)getpid() || !id->len || last_request.len != id->len ||
	    memcmp(last_request.id, id->at, id->len) != 0)
		return false;
	if (now - last_request.sent_ns >= REPEATED_NS) {
		last_request.sent_ns = now;
		control_send_status();
	}
	return true;
}

static void note_request(const struct request_text *id)
{
	last_request.pid = (uint32_t)getpid();
	last_request.len = id->len <= sizeof(last_request.id) ? id->len : 0;
	memcpy(last_request.id, id->at, last_request.len);
	last_request.sent_ns = guest_now();
}

int monitor_execute(const char *text, size_t len, char *why, size_t cap)
{
	struct request_text id = {"", 0};
	int r = 0;

	if (cap)
		why[0] = '\0';
	(void)request_find(text, len, "REQUEST_TRACE_ID", &id);
	control_lock();
	if (!is_repeated(&id)) {
		if (!link_data_address()[0])
			control_send_status(); /* finds the daemon, which metrics go to */
		r = control_execute(text, len, why, cap);
		control_send_status();
		if (r >= 0)
			note_request(&id);
	}
	control_unlock();
	if (control_is_running() || trace_is_on())
		ensure_thread(); /* flushes, and the end of a duration */
	return r;
}

bool thread_polls(void)
{
	return atomic_load(&self.polls);
}

bool monitor_is_running(void)
{
	return control_is_running();
}

void monitor_set_groups(const char *json, size_t len)
{
	control_lock();
	control_set_groups(json, len);
	control_unlock();
}

void monitor_set_rank(int32_t rank)
{
	environment.rank = rank;
	environment.rank_given = true;
}
