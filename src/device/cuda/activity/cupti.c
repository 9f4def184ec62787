/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities from CUPTI, and from NVTX.
 *
 *	asked for                 of CUPTI            reported as
 *	Kernel                    CONCURRENT_KERNEL   Kernel
 *	Communication, Hccl       CONCURRENT_KERNEL   kernels of NCCL; not as Kernel then
 *	MemCpy                    MEMCPY, MEMCPY2     MemCpy
 *	MemSet                    MEMSET              MemSet
 *	Memory                    MEMORY2             Memory: what the driver gives out
 *	RuntimeAPI                RUNTIME             RuntimeAPI: cuda…()
 *	API, AclAPI, NodeAPI      DRIVER              cu…(), once, as the first of these asked for
 *	Marker                    – (NVTX)            Marker, of the host
 *
 * A flush returns the buffers in which everything has ended; what is behind a kernel that still
 * runs comes later. Forced, it returns all of them, and what still runs has no end in there: of a
 * job that is ahead of its device, nearly all is lost so (on an H200: 46,219 of 48,400 kernels,
 * with a forced flush every 20 ms). So it is forced only when nothing is on any more and what was
 * launched before has ended, which is waited for, within bounds; what has no end then is lost, and
 * counted.
 *
 * Nothing is registered before start, and after stop nothing is on. The library has no call to take
 * callbacks back; ours stay registered, where nobody else had any, and are never called while
 * nothing is on. It is not finalized either: that would throw out everybody, and crashes who
 * has a launch on its way in another thread (H200, CUDA 13.0; also at the end of a call, where
 * NVIDIA allows it).
 *
 * Times are CLOCK_REALTIME: we register that clock, and another's is put back when we pause.
 */
#include "device/cuda/activity/cupti.h"
#include "guest/runtime/guest.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOCK_MS 5000
#define POLL_NS 200000
#define FETCH_MS 1000
#define LAST_LEAST_MS 200 /* for what has ended: the library takes a moment to return it */
#define LAST_MOST_MS 3000 /* for what still runs, if nobody else waits for the library */
#define LAST_POLL_MS 2
#define SOON_MS                                                                                    \
	2500 /* longer than device/cuda/activity/other_profilers.c finds that others may not be    \
		done */
#define SOON_POLL_MS 10
#define WORKS_ENOUGH 200 /* of a device; some launch must have been reported then */
#define LAST_ASIDE_MS 1000 /* the same, while a thread of the job waits */

struct fork_safe_lock cupti_in_use;

static struct {
	const struct cupti *fns;
	bool newer;
	uint32_t held; /* kinds of ours that the library reports right now; 0: it is not ours */
	pid_t process; /* that holds them: a forked child does not */
	int thread_ids; /* what numbered threads before; -1: not known */
	_Atomic bool on;
	_Atomic uint32_t kinds;
	_Atomic bool paused;
	_Atomic bool attributes; /* launches are wanted */
	bool launches; /* and reported right now */
	_Atomic bool prepared; /* each alone, since before there was a context */
	_Atomic uint64_t works, launched; /* reported since they were switched on last */
	_Atomic uint64_t lost;
	_Atomic uint32_t walking; /* threads that are reporting */
	_Atomic bool hurry; /* the process ends */
	bool keeps; /* the library has kept buffers in which everything had ended */
	const char *problem;
} self = {.problem = ""};

void (*cupti_emit)(const struct collect_activity *a) = collect_activity;

/* --- what the library calls --- */

/* The library reads it at the beginning and the end of each call that it reports, in the thread that
 * calls: the one moment at which the launching thread is ours without a callback, of which a process
 * has only one for all profilers. */
static uint64_t wall_clock(void)
{
	uint64_t ns = guest_wall_now();

	if (atomic_load_explicit(&self.attributes, memory_order_relaxed))
		collect_work_launch(ns);
	return ns;
}

static void on_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
	/* Launches that were prepared go on where nothing is on. */
	bool wanted = atomic_load(&self.on) || !atomic_load(&self.prepared);

	*buffer = wanted ? cupti_buffer_take() : NULL;
	*size = *buffer ? CUPTI_BUFFER_BYTES : 0;
	*max_records = 0;
}

static void count_dropped(const struct cupti *fns, void *context, uint32_t stream)
{
	size_t dropped = 0;

	if (fns->dropped(context, stream, &dropped) == CUPTI_OK && dropped)
		atomic_fetch_add(&self.lost, dropped);
}

static void emit_buffer(uint8_t *buffer, size_t valid)
{
	struct cupti_walk w = {
		.fns = self.fns,
		.kinds = atomic_load(&self.kinds),
		.launches = atomic_load(&self.attributes),
		.newer = self.newer,
		.emit = cupti_emit,
	};

	if (!cupti_walk_buffer(&w, buffer, valid))
		w.strange++;
	if (w.strange && w.newer)
		self.problem = "this libcupti is newer than what the monitor knows";
	atomic_fetch_add(&self.lost, w.strange + w.untimed);
	if (w.launches) {
		atomic_fetch_add(&self.works, w.emitted);
		atomic_fetch_add(&self.launched, w.launched);
	}
}

static void on_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	if (!buffer)
		return;
	if (!cupti_buffer_is_ours(buffer)) {
		cupti_watch_complete(context, stream, buffer, size, valid);
		return;
	}
	atomic_fetch_add(&self.walking, 1);
	emit_buffer(buffer, valid <= CUPTI_BUFFER_BYTES ? valid : 0);
	count_dropped(self.fns, context, stream);
	cupti_buffer_return(buffer, atomic_load(&self.on));
	atomic_fetch_sub(&self.walking, 1);
}

static void wait_for_walkers(void)
{
	for (unsigned left = FETCH_MS * 1000000ull / POLL_NS; left; left--) {
		if (!atomic_load(&self.walking))
			break;
		guest_sleep(POLL_NS);
	}
	count_dropped(self.fns, NULL, 0);
}

/* Not forced: buffers with kernels that still run would come too, and these without their ends. */
static void fetch_buffers(void)
{
	(void)self.fns->flush(0);
	wait_for_walkers();
}

void cupti_hurry(void)
{
	atomic_store(&self.hurry, true);
}

/* How long what still runs is waited for, as things are. */
static uint32_t patience_ms(uint32_t most)
{
	if (self.keeps || atomic_load(&self.hurry) || fork_safe_lock_is_contended(&cupti_in_use))
		return LAST_LEAST_MS;
	/* Buffers without a record in them were only asked for. */
	return cupti_buffers_in_use() ? most : LAST_LEAST_MS;
}

/*
 * When nothing is on any more. A buffer comes back when everything in it has ended: as long as one
 * is out something runs. If that was waited for in vain, and then nothing lacks its end, this
 * library keeps buffers for other reasons, and is not waited for so long again.
 */
static void fetch_last(uint32_t most_ms)
{
	uint32_t waited = 0;
	bool out;

	for (;;) {
		(void)self.fns->flush(0);
		out = cupti_buffers_out() != 0;
		if (!out || waited >= patience_ms(most_ms))
			break;
		guest_sleep(LAST_POLL_MS * 1000000);
		waited += LAST_POLL_MS;
	}
	wait_for_walkers();
	uint64_t lost = atomic_load(&self.lost);
	(void)self.fns->flush(CUPTI_FLUSH_FORCED);
	wait_for_walkers();
	if (out && waited >= LAST_ASIDE_MS && atomic_load(&self.lost) == lost)
		self.keeps = true;
}

/* --- having the library, and not --- */

#define HAS(kinds, kind) ((kinds)&ACTIVITY_BIT(kind))

/* The kinds of CUPTI that report these, as bits below 64. */
static uint64_t cupti_kinds(uint32_t kinds)
{
	uint64_t out = 0;

	if (HAS(kinds, ACTIVITY_KERNEL) || HAS(kinds, ACTIVITY_COMMUNICATION) ||
	    HAS(kinds, ACTIVITY_HCCL))
		out |= 1ull << CUPTI_KERNEL;
	if (HAS(kinds, ACTIVITY_MEMCPY))
		out |= 1ull << CUPTI_MEMCPY | 1ull << CUPTI_MEMCPY2;
	if (HAS(kinds, ACTIVITY_MEMSET))
		out |= 1ull << CUPTI_MEMSET;
	if (HAS(kinds, ACTIVITY_MEMORY))
		out |= 1ull << CUPTI_MEMORY2;
	if (HAS(kinds, ACTIVITY_RUNTIME_API))
		out |= 1ull << CUPTI_RUNTIME;
	if (kinds & (ACTIVITY_APIS & ~ACTIVITY_BIT(ACTIVITY_RUNTIME_API)))
		out |= 1ull << CUPTI_DRIVER;
	return out;
}

bool cupti_is_held(void)
{
	return self.held && self.process == getpid();
}

bool cupti_uses(uint32_t kind)
{
	return cupti_is_held() && kind < CUPTI_KIND_END && (cupti_kinds(self.held) >> kind & 1);
}

static void explain_refusal(cupti_result r)
{
	if (r == CUPTI_MULTIPLE_SUBSCRIBERS)
		self.problem = "another profiler (Nsight?) has CUPTI in this process";
	else if (r == CUPTI_NOT_INITIALIZED)
		self.problem = "CUPTI cannot be used here: does the driver allow profiling?";
	else
		self.problem = "CUPTI refuses some kinds of activities on this device";
}

/* How many are on afterwards of those that are to be. */
static unsigned switch_kinds(uint64_t from, uint64_t to)
{
	unsigned on = 0;

	for (uint32_t k = 0; k < CUPTI_KIND_END; k++) {
		bool was = from >> k & 1, is = to >> k & 1;
		if (was && !is)
			(void)self.fns->disable(k);
		if (is && !was) {
			cupti_result r = self.fns->enable(k);
			if (r != CUPTI_OK) {
				explain_refusal(r);
				continue;
			}
		}
		on += is;
	}
	return on;
}

/* A kind that somebody wants whole reports them anyway. */
static void switch_launches(bool on)
{
	uint64_t kinds = cupti_kinds(self.held);

	if (on == self.launches)
		return;
	self.launches = on;
	atomic_store(&self.works, 0);
	atomic_store(&self.launched, 0);
	if (atomic_load(&self.prepared) && cupti_launches_switch_each(self.fns, on))
		return;
	cupti_launches_switch(self.fns, !(kinds >> CUPTI_RUNTIME & 1), !(kinds >> CUPTI_DRIVER & 1),
			      on);
}

/* This library does not report launches that are on alone, though devices work: their kinds, then. */
static void check_launches(void)
{
	if (!self.launches || !atomic_load(&self.prepared) || atomic_load(&self.launched) ||
	    atomic_load(&self.works) < WORKS_ENOUGH)
		return;
	switch_launches(false);
	atomic_store(&self.prepared, false);
	switch_launches(true);
}

static void number_threads(bool ours)
{
	if (!self.fns->set_thread_ids || !self.fns->get_thread_ids)
		return;
	if (ours) {
		if (self.fns->get_thread_ids(&self.thread_ids) != CUPTI_OK)
			self.thread_ids = -1;
		(void)self.fns->set_thread_ids(CUPTI_THREAD_ID_SYSTEM);
	} else if (self.thread_ids >= 0) {
		(void)self.fns->set_thread_ids(self.thread_ids);
	}
}

/* With the turn, as everything below. */
static int take_library(uint32_t kinds)
{
	uint64_t wanted = cupti_kinds(kinds);

	if (!wanted)
		return 0; /* marks need no library */
	/* What others left in it goes to them, before it is ours. Nobody had it: it refuses. */
	(void)self.fns->flush(CUPTI_FLUSH_FORCED);
	number_threads(true);
	if (self.fns->register_clock)
		(void)self.fns->register_clock(wall_clock);
	cupti_result r = self.fns->register_callbacks(on_request, on_complete);
	if (r != CUPTI_OK) {
		explain_refusal(r);
		return -EBUSY;
	}
	self.held = kinds;
	self.process = getpid();
	if (atomic_load(&self.prepared)) {
		size_t before; /* launches while nothing was on */
		(void)self.fns->dropped(NULL, 0, &before);
	}
	if (switch_kinds(0, wanted)) {
		switch_launches(atomic_load(&self.attributes));
		return 0;
	}
	self.held = 0;
	number_threads(false);
	cupti_watch_restore(self.fns);
	return -EIO;
}

static void let_go(uint32_t wait_ms)
{
	if (!cupti_is_held())
		return;
	switch_launches(false);
	switch_kinds(cupti_kinds(self.held), 0);
	fetch_last(wait_ms);
	self.held = 0;
	number_threads(false);
	cupti_watch_restore(self.fns);
}

void cupti_pause(void)
{
	if (!cupti_is_held())
		return;
	let_go(LAST_ASIDE_MS);
	atomic_store(&self.paused, true);
}

/* As soon as the others are done. */
static int resume_kinds(void)
{
	uint32_t kinds = atomic_load(&self.kinds);

	if (!atomic_load(&self.on) || cupti_is_held() || !cupti_kinds(kinds))
		return 0;
	bool busy = cupti_watch_busy();
	atomic_store(&self.paused, busy);
	return busy ? 0 : take_library(kinds);
}

/*
 * Without the turn. A profile that has ended a moment ago has not been fetched, perhaps: that is
 * waited for, so that from now on everything is reported. One that goes on is not.
 */
static int resume_soon(void)
{
	int r = 0;

	for (unsigned left = SOON_MS / SOON_POLL_MS; left && r == 0; left--) {
		if (!atomic_load(&self.paused) || !cupti_lock(LOCK_MS))
			break;
		bool goes_on = cupti_watch_goes_on();
		if (!goes_on)
			r = resume_kinds();
		cupti_unlock();
		if (goes_on)
			break;
		guest_sleep(SOON_POLL_MS * 1000000);
	}
	return r;
}

/* --- the source --- */

static bool source_is_there(void)
{
	const char *why;

	/* From the moment that it is there: who used it before is not known. */
	if (cupti_is_loaded() && cupti_lock(LOCK_MS)) {
		const struct cupti *fns = cupti_find(&why);
		if (fns)
			cupti_watch(fns);
		cupti_unlock();
	}
	return cupti_can_be_found();
}

static int find_library(void)
{
	const char *why;
	uint32_t version = 0;
	const struct cupti *fns = cupti_find(&why);

	self.problem = why;
	if (!fns)
		return -ENOENT;
	if (fns->version(&version) != CUPTI_OK || version < CUPTI_VERSION_OLDEST) {
		self.problem = "libcupti is older than CUDA 12.0";
		return -ENOTSUP;
	}
	self.newer = version > CUPTI_VERSION_NEWEST;
	self.fns = fns;
	return 0;
}

#define CUPTI_SOURCE_KINDS                                                                         \
	(ACTIVITY_APIS | ACTIVITY_BIT(ACTIVITY_MARKER) | ACTIVITY_BIT(ACTIVITY_KERNEL) |           \
	 ACTIVITY_BIT(ACTIVITY_HCCL) | ACTIVITY_BIT(ACTIVITY_MEMORY) |                             \
	 ACTIVITY_BIT(ACTIVITY_MEMSET) | ACTIVITY_BIT(ACTIVITY_MEMCPY) |                           \
	 ACTIVITY_BIT(ACTIVITY_COMMUNICATION))

static void source_stop(void)
{
	nvtx_switch(false);
	bool mine = cupti_lock(LOCK_MS);
	let_go(LAST_MOST_MS);
	atomic_store(&self.on, false);
	atomic_store(&self.kinds, 0);
	atomic_store(&self.paused, false);
	if (mine)
		cupti_unlock();
	cupti_buffers_free();
}

/* For more than one name under which calls of the driver are reported. */
static bool needs_two_flushes(uint32_t kinds)
{
	uint32_t names = kinds & (ACTIVITY_APIS & ~ACTIVITY_BIT(ACTIVITY_RUNTIME_API));

	return (names & (names - 1)) != 0;
}

static int source_start(uint32_t kinds)
{
	kinds &= CUPTI_SOURCE_KINDS;
	if (!kinds)
		return -ENOTSUP;
	if (!cupti_lock(LOCK_MS))
		return -EBUSY;
	int r = find_library();
	if (r < 0) {
		cupti_unlock();
		return r;
	}
	cupti_watch(self.fns);
	atomic_store(&self.lost, 0);
	atomic_store(&self.kinds, kinds);
	atomic_store(&self.on, true);
	r = resume_kinds();
	cupti_unlock();
	if (r == 0)
		r = resume_soon();
	if (r < 0) {
		source_stop();
		return r;
	}
	nvtx_switch(HAS(kinds, ACTIVITY_MARKER));
	if (!self.problem[0] && needs_two_flushes(kinds))
		self.problem =
			"calls of the driver are reported once, under the first of API, AclAPI "
			"and NodeAPI that was asked for: the others stay empty";
	return 0;
}

static int source_change(uint32_t kinds)
{
	kinds &= CUPTI_SOURCE_KINDS;
	if (!kinds || !atomic_load(&self.on))
		return -ENOTSUP;
	if (!cupti_lock(LOCK_MS))
		return -EBUSY;
	int r = 0;
	if (!cupti_kinds(kinds)) {
		let_go(LAST_MOST_MS);
	} else if (cupti_is_held()) {
		fetch_buffers(); /* of a kind that is not reported any more, too */
		switch_launches(false);
		switch_kinds(cupti_kinds(self.held), cupti_kinds(kinds));
		self.held = kinds;
		switch_launches(atomic_load(&self.attributes));
	}
	atomic_store(&self.kinds, kinds);
	atomic_store(&self.paused, false);
	r = resume_kinds();
	cupti_unlock();
	nvtx_switch(HAS(kinds, ACTIVITY_MARKER));
	return r;
}

static void source_flush(void)
{
	if (!atomic_load(&self.on))
		return;
	if (!cupti_lock(LOCK_MS))
		return;
	cupti_watch(self.fns);
	if (cupti_is_held()) {
		fetch_buffers();
		check_launches();
	} else {
		(void)resume_kinds();
	}
	cupti_unlock();
}

static uint64_t source_lost(void)
{
	return atomic_load(&self.lost);
}

static void source_prepare(void)
{
	if (!cupti_lock(LOCK_MS))
		return;
	if (find_library() == 0)
		atomic_store(&self.prepared, cupti_launches_switch_each(self.fns, true));
	cupti_unlock();
}

static void source_attribute(bool on)
{
	atomic_store(&self.attributes, on);
}

static bool source_is_paused(void)
{
	return atomic_load(&self.paused);
}

const char *cupti_problem(void)
{
	return self.problem;
}

const struct activity_source cupti_source = {
	.name = "CUPTI",
	.kinds = CUPTI_SOURCE_KINDS,
	.is_there = source_is_there,
	.start = source_start,
	.change = source_change,
	.flush = source_flush,
	.stop = source_stop,
	.lost = source_lost,
	.problem = cupti_problem,
	.attribute = source_attribute,
	.prepare = source_prepare,
	.is_paused = source_is_paused,
};
