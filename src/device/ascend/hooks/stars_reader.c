/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * State of a reader, one word: (epoch << 2 | phase). The epoch is that of the process: a word of
 * another epoch is a forked child's memory of its parent and counts as nothing, like 0.
 *
 *	0 --start()--> RUNNING --stop()--> STOPPING --thread--> 0
 *	                  '--could not, or the driver closed it--> OVER
 *
 * The driver is called by the reader alone once it runs: whatever hangs there, hangs our thread and
 * not the job.
 */
#include "device/ascend/hooks/stars_reader.h"

#include "guest/collect/collect.h"
#include "guest/runtime/guest.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_DEVICES 64u
#define BUF_BYTES (2u << 20)
#define STACK_BYTES (512u << 10) /* of which thread-local storage takes its share */
#define IDLE_NS 5000000ull /* between two reads that had nothing to wait for */
#define CLOCK_EVERY_NS 1000000000ull
#define AHEAD_NS 5000000ull /* a device's time further ahead than this is not a time */
#define MAX_ERRORS 100
#define DRAIN_NS 100000000ull

enum phase { PHASE_OVER = 0, PHASE_RUNNING = 1, PHASE_STOPPING = 2 };

struct reader {
	_Atomic uint64_t state;
	const struct prof_driver *driver;
	char *buf; /* kept for the next reader of this device */
	size_t have; /* bytes of an incomplete record at its beginning */
	uint32_t device;
	enum stars_format format;
	struct stars_clock clock;
	bool anchored; /* the clock has an anchor */
	uint64_t clock_ns; /* when it got it */
	uint64_t opened_ns;
	uint64_t now_ns; /* of the read whose records are being reported */
};

static struct reader readers[MAX_DEVICES];
static struct stars_tasks tasks;
static _Atomic uint32_t active; /* epoch of the process that has readers */
static _Atomic bool expanded_ids;

static uint64_t phase_word(uint32_t epoch, enum phase phase)
{
	return (uint64_t)epoch << 2 | phase;
}

static bool is_of(uint64_t state, uint32_t epoch)
{
	return state >> 2 == epoch;
}

void stars_reader_expanded(bool expanded)
{
	atomic_store(&expanded_ids, expanded);
}

void stars_reader_launched(const struct prof_task_track *t)
{
	struct stars_launch l = {
		.name_hash = t->name_hash,
		.device = t->device,
		.stream = t->stream,
		.task = (uint16_t)t->task,
	};

	if (atomic_load_explicit(&active, memory_order_relaxed) != collect_epoch())
		return;
	l.launch_ns = guest_now();
	stars_tasks_put(&tasks, &l);
}

/* --- in the reader's thread --- */

/* The counter between two looks at the clock; the narrowest of three tries. */
static void anchor_clock(struct reader *r)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; r->driver->info && i < 3; i++) {
		int64_t counter = 0;
		uint64_t before = guest_now();
		if (r->driver->info(r->device, 0, HAL_INFO_COUNTER, &counter) != 0 || counter <= 0)
			break;
		uint64_t after = guest_now();
		if (after - before >= best)
			continue;
		best = after - before;
		r->clock.counter0 = (uint64_t)counter;
		r->clock.mono0_ns = before + best / 2;
		r->anchored = true;
	}
	r->clock_ns = guest_now();
}

static void clock_open(struct reader *r)
{
	int64_t frequency = 0;

	if (r->driver->info)
		(void)r->driver->info(r->device, 0, HAL_INFO_FREQUENCY, &frequency);
	r->clock = (struct stars_clock){.khz = stars_khz(frequency)};
	r->anchored = false;
	anchor_clock(r);
}

/* The device's time, as long as it makes sense. */
static uint64_t time_of(struct reader *r, uint64_t counter)
{
	if (!r->anchored) {
		r->clock.counter0 = counter;
		r->clock.mono0_ns = r->now_ns;
		r->anchored = true;
	}
	uint64_t ns = stars_time(&r->clock, counter);
	if (ns > r->now_ns + AHEAD_NS)
		return r->now_ns;
	return ns < r->opened_ns ? r->opened_ns : ns;
}

static void emit_task(void *arg, const struct stars_event *e)
{
	struct reader *r = arg;
	uint64_t ns = time_of(r, e->counter);
	struct stars_launch l = {.stream = e->stream, .task = e->task};

	/* A kernel begins after its launch and ends after it began, whatever the clocks say. */
	if (stars_tasks_match(&tasks, (uint16_t)r->device, e, ns, &l)) {
		if (!e->ends || ns < l.start_ns)
			ns = l.start_ns;
		if (ns < l.launch_ns)
			ns = l.launch_ns;
	}
	collect_kernel(e->ends ? KERNEL_EXECUTE_END : KERNEL_EXECUTE_START, ns, l.name_hash,
		       (uint16_t)r->device, l.stream, l.task);
}

/* Reads once and reports; the driver's answer. */
static int read_some(struct reader *r)
{
	size_t room = BUF_BYTES - r->have;
	int n = r->driver->read(r->device, PROF_CHANNEL_STARS, r->buf + r->have, (unsigned)room);

	r->now_ns = guest_now();
	if (n <= 0 || (size_t)n > room)
		return n <= 0 ? n : -1;
	size_t len = r->have + (size_t)n;
	size_t done = stars_each(r->buf, len, r->format, atomic_load(&expanded_ids), emit_task, r);
	r->have = len - done;
	memmove(r->buf, r->buf + done, r->have);
	return n;
}

static void reader_loop(struct reader *r, uint32_t epoch)
{
	unsigned errors = 0;

	while (atomic_load(&r->state) == phase_word(epoch, PHASE_RUNNING) && errors < MAX_ERRORS) {
		uint64_t begin = guest_now();
		int n = read_some(r);
		errors = n < 0 ? errors + 1 : 0;
		if (n <= 0 && r->now_ns - begin < IDLE_NS)
			guest_sleep(IDLE_NS);
		if (r->now_ns - r->clock_ns > CLOCK_EVERY_NS)
			anchor_clock(r);
	}
}

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	uint32_t epoch = collect_epoch();

	prctl(PR_SET_NAME, "sonde-stars", 0, 0, 0);
	clock_open(r);
	reader_loop(r, epoch);
	(void)r->driver->stop(r->device, PROF_CHANNEL_STARS);
	/* What the device had written before that. */
	for (uint64_t until = guest_now() + DRAIN_NS; guest_now() < until;)
		if (read_some(r) <= 0)
			break;
	/* Asked to end, the next launch opens the channel again; thrown out, it is left alone. */
	uint64_t running = phase_word(epoch, PHASE_RUNNING);
	if (!atomic_compare_exchange_strong(&r->state, &running, phase_word(epoch, PHASE_OVER)))
		atomic_store(&r->state, 0);
	return NULL;
}

/* --- in the job's threads --- */

static bool channel_open(const struct reader *r)
{
	uint32_t config[STARS_CONFIG_WORDS] = {
		[STARS_CONFIG_ACSQ] = 1,
		[STARS_CONFIG_FFTS] = 1,
	};
	unsigned words = r->format == STARS_SHORT ? STARS_CONFIG_WORDS : STARS_CONFIG_WORDS_OLD;
	struct prof_start_para para = {
		.period = 20,
		.real_time = 1,
		.config = config,
		.config_bytes = words * (uint32_t)sizeof(config[0]),
	};

	return r->driver->start(r->device, PROF_CHANNEL_STARS, &para) == 0;
}

/* No signal of the job is ever handled in our thread. */
static bool thread_start(struct reader *r)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;

	if (pthread_attr_init(&attr) != 0)
		return false;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int failed = pthread_create(&thread, &attr, reader_main, r);
	if (failed == EINVAL) {
		/* Too small for the thread-local storage of this job. */
		(void)pthread_attr_setstacksize(&attr, 16 * STACK_BYTES);
		failed = pthread_create(&thread, &attr, reader_main, r);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return !failed;
}

/*
 * Handlers run in the reverse order of their registration: ours before those of the vendor's
 * libraries, which must find nobody in their functions any more. A destructor would come too late.
 */
extern int __cxa_atexit(void (*fn)(void *arg), void *arg, void *dso);
extern void *__dso_handle __attribute__((visibility("hidden")));

static void at_exit(void *arg)
{
	(void)arg;
	stars_reader_stop();
}

static bool open_reader(struct reader *r)
{
	static atomic_flag registered = ATOMIC_FLAG_INIT;

	if (!r->buf) {
		/* Not mmap(): this is no mapping of the job, and not to be reported as one. */
		void *p = (void *)syscall(SYS_mmap, NULL, (size_t)BUF_BYTES, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
		r->buf = p == MAP_FAILED ? NULL : p;
	}
	r->have = 0;
	if (!r->buf || !channel_open(r))
		return false;
	r->opened_ns = guest_now();
	if (!thread_start(r)) {
		(void)r->driver->stop(r->device, PROF_CHANNEL_STARS);
		return false;
	}
	collect_on_seal(stars_reader_stop);
	if (!atomic_flag_test_and_set(&registered))
		(void)__cxa_atexit(at_exit, NULL, &__dso_handle);
	return true;
}

void stars_reader_start(const struct prof_driver *driver, uint32_t device, enum stars_format format)
{
	uint32_t epoch = collect_epoch();
	struct reader *r = &readers[device < MAX_DEVICES ? device : 0];
	uint64_t seen = atomic_load(&r->state);
	int saved = errno;

	if (collect_is_sealed() || device >= MAX_DEVICES || is_of(seen, epoch) ||
	    !atomic_compare_exchange_strong(&r->state, &seen, phase_word(epoch, PHASE_RUNNING)))
		return;
	r->driver = driver;
	r->device = device;
	r->format = format;
	tasks.by_task = format == STARS_SHORT;
	atomic_store(&active, epoch);
	if (!open_reader(r))
		atomic_store(&r->state, phase_word(epoch, PHASE_OVER));
	errno = saved;
}

static bool any_stopping(uint32_t epoch)
{
	for (uint32_t i = 0; i < MAX_DEVICES; i++)
		if (atomic_load(&readers[i].state) == phase_word(epoch, PHASE_STOPPING))
			return true;
	return false;
}

void stars_reader_stop(void)
{
	uint32_t epoch = collect_epoch();
	int saved = errno;

	if (collect_is_sealed() || atomic_load(&active) != epoch)
		return;
	for (uint32_t i = 0; i < MAX_DEVICES; i++) {
		uint64_t running = phase_word(epoch, PHASE_RUNNING);
		atomic_compare_exchange_strong(&readers[i].state, &running,
					       phase_word(epoch, PHASE_STOPPING));
	}
	for (uint64_t until = guest_now() + STARS_STOP_NS;
	     any_stopping(epoch) && guest_now() < until;)
		guest_sleep(200000);
	errno = saved;
}
