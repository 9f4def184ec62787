/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * mspti_source. What the library's behaviour asks for:
 *
 * - It calls `request` under the lock of its records, which threads of the job wait for: that maps
 *   memory at most. A flush calls `complete` under the same lock.
 * - It has one subscriber per process. Who comes second is paused.
 * - Refused a buffer, it goes on with none: it would ask again, and start a thread, for every
 * single record if the size were 0. With one byte it drops its records until the next flush.
 * - Kinds that need the library to be preloaded are refused one by one; the others go on.
 */
#include "device/ascend/activity/mspti.h"

#include "guest/runtime/guest.h"
#include "wire/request.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_NS 2000000000ull /* for what the library has still to give back */
#define POLL_NS 200000
/* Marks of the library itself, around collectives: those are reported as such. */
#define OWN_DOMAIN "communication"

#define KINDS                                                                                      \
	(ACTIVITY_APIS | ACTIVITY_BIT(ACTIVITY_MARKER) | ACTIVITY_BIT(ACTIVITY_KERNEL) |           \
	 ACTIVITY_BIT(ACTIVITY_HCCL) | ACTIVITY_BIT(ACTIVITY_MEMORY) |                             \
	 ACTIVITY_BIT(ACTIVITY_MEMSET) | ACTIVITY_BIT(ACTIVITY_MEMCPY) |                           \
	 ACTIVITY_BIT(ACTIVITY_COMMUNICATION))

static struct {
	const struct mspti *fns;
	void *subscriber;
	uint32_t enabled; /* ACTIVITY_BIT() each */
	uint32_t unpreloaded, refused;
	bool paused;
	bool unattributed; /* launches are wanted, and not told */
	char problem[512];
	_Atomic bool on;
	_Atomic uint32_t pid; /* of who is on */
	_Atomic uint32_t inside; /* callbacks under way */
	_Atomic uint64_t none; /* buffers that it did not get */
	_Atomic uint64_t dropped; /* records, as it says */
	_Atomic uint64_t late; /* records of buffers that came back after the end, or damaged */
} state;

static bool is_on(void)
{
	return atomic_load(&state.on) && atomic_load(&state.pid) == (uint32_t)getpid();
}

/* --- called by the library, in any thread --- */

static void on_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
	int saved = errno;
	bool on = is_on();
	uint8_t *b = on ? mspti_buffer_take() : NULL;

	if (on && !b)
		atomic_fetch_add(&state.none, 1);
	*buffer = b;
	*size = b ? MSPTI_BUFFER_BYTES : 1;
	*max_records = 0;
	errno = saved;
}

static void read_buffer(uint8_t *buffer, size_t valid)
{
	uint64_t records = 0;
	bool report = atomic_load(&state.on);

	if (valid > MSPTI_BUFFER_BYTES)
		valid = MSPTI_BUFFER_BYTES;
	if (valid && !mspti_walk(state.fns, buffer, valid, report, &records))
		atomic_fetch_add(&state.late, 1);
	if (!report)
		atomic_fetch_add(&state.late, records);
}

static void on_complete(uint8_t *buffer, size_t size, size_t valid)
{
	int saved = errno;

	(void)size;
	/* A forked child reports nothing: these are records of its parent. */
	if (!buffer || atomic_load(&state.pid) != (uint32_t)getpid())
		return;
	atomic_fetch_add(&state.inside, 1);
	if (mspti_buffer_claim(buffer)) {
		read_buffer(buffer, valid);
		mspti_buffer_return(buffer, atomic_load(&state.on));
	}
	atomic_fetch_sub(&state.inside, 1);
	errno = saved;
}

/* --- called by the monitor --- */

static void add_words(const char *words)
{
	size_t have = strlen(state.problem), room = sizeof(state.problem) - 1 - have;
	size_t n = strnlen(words, room);

	memcpy(state.problem + have, words, n);
	state.problem[have + n] = '\0';
}

static void add_kinds(uint32_t kinds)
{
	const char *between = "";

	for (uint32_t kind = 1; kind < ACTIVITY_KIND_END; kind++) {
		if (!(kinds & ACTIVITY_BIT(kind)))
			continue;
		add_words(between);
		add_words(activity_kind_name(kind));
		between = ", ";
	}
}

static void write_trouble(void)
{
	state.problem[0] = '\0';
	if (state.paused)
		add_words("another tool in this process uses libmspti.so: stop it, or send the "
			  "request again "
			  "when it is done");
	if (state.unpreloaded) {
		add_words("libmspti.so does not report ");
		add_kinds(state.unpreloaded);
		add_words(" here: start the job with LD_PRELOAD=libmspti.so");
	}
	if (state.refused) {
		add_words(state.unpreloaded ? "; " : "");
		add_words("this version of libmspti.so does not report ");
		add_kinds(state.refused);
	}
	if (state.unattributed) {
		add_words(state.unpreloaded || state.refused ? "; " : "");
		add_words("libmspti.so does not say here which thread launches what, so nothing is "
			  "attributed: start the job with LD_PRELOAD=libmspti.so");
	}
}

const char *mspti_problem(void)
{
	return state.problem;
}

static void enable_kinds(uint32_t kinds)
{
	for (uint32_t kind = 1; kind < ACTIVITY_KIND_END; kind++) {
		if (!(kinds & ACTIVITY_BIT(kind)))
			continue;
		int r = state.fns->enable((int)kind);
		if (r == MSPTI_OK)
			state.enabled |= ACTIVITY_BIT(kind);
		else if (r == MSPTI_NO_PRELOAD)
			state.unpreloaded |= ACTIVITY_BIT(kind);
		else
			state.refused |= ACTIVITY_BIT(kind);
	}
}

static void disable_kinds(uint32_t kinds)
{
	for (uint32_t kind = 1; kind < ACTIVITY_KIND_END; kind++)
		if (kinds & ACTIVITY_BIT(kind))
			(void)state.fns->disable((int)kind);
	state.enabled &= ~kinds;
}

/* Of those that are wanted, some must have been granted. */
static int switch_to(uint32_t kinds)
{
	kinds &= KINDS;
	state.unpreloaded &= kinds;
	state.refused &= kinds;
	disable_kinds(state.enabled & ~kinds);
	enable_kinds(kinds & ~state.enabled);
	state.unattributed = !mspti_launches_switch(state.fns, state.subscriber, true);
	write_trouble();
	return kinds && !state.enabled ? -EOPNOTSUPP : 0;
}

static int subscribe_once(void)
{
	int r = state.fns->subscribe(&state.subscriber, (void *)mspti_on_call, NULL);

	state.paused = r == MSPTI_OTHER_SUBSCRIBER;
	write_trouble();
	if (r != MSPTI_OK)
		return state.paused ? -EBUSY : -EIO;
	if (state.fns->register_callbacks(on_request, on_complete) == MSPTI_OK)
		return 0;
	(void)state.fns->unsubscribe(state.subscriber);
	return -EIO;
}

static void take_drops(void)
{
	size_t n = 0;

	if (state.fns->dropped && state.fns->dropped(NULL, 0, &n) == MSPTI_OK)
		atomic_fetch_add(&state.dropped, n);
}

static void count_from_zero(void)
{
	take_drops(); /* those of somebody before */
	atomic_store(&state.none, 0);
	atomic_store(&state.dropped, 0);
	atomic_store(&state.late, 0);
}

static bool is_there(void)
{
	return mspti_can_be_found();
}

static void flush_buffers(void)
{
	if (!is_on())
		return;
	uint64_t taken = mspti_buffers_taken(), until = guest_now() + WAIT_NS;
	(void)state.fns->flush(1);
	while (mspti_buffers_are_out(taken) && guest_now() < until)
		guest_sleep(POLL_NS);
	/* One that does not come is not waited for again. */
	mspti_buffers_abandon(taken);
}

static void stop_source(void)
{
	if (!is_on())
		return;
	disable_kinds(state.enabled);
	(void)mspti_launches_switch(state.fns, state.subscriber, false);
	if (state.fns->enable_domain)
		(void)state.fns->enable_domain(OWN_DOMAIN);
	flush_buffers();
	take_drops();
	(void)state.fns->unsubscribe(state.subscriber);
	atomic_store(&state.on, false);
	for (uint64_t until = guest_now() + WAIT_NS;
	     atomic_load(&state.inside) && guest_now() < until;)
		guest_sleep(POLL_NS);
	mspti_buffers_free();
}

static int start_source(uint32_t kinds)
{
	if (is_on())
		return -EALREADY;
	/* What a forked child finds here is its parent's. */
	if (atomic_exchange(&state.pid, (uint32_t)getpid()) != (uint32_t)getpid()) {
		atomic_store(&state.on, false);
		atomic_store(&state.inside, 0);
		mspti_buffers_forget();
	}
	state.enabled = state.unpreloaded = state.refused = 0;
	state.unattributed = false;
	state.fns = mspti_find();
	if (!state.fns)
		return -ENOENT;
	int r = subscribe_once();
	if (r < 0)
		return r;
	count_from_zero();
	atomic_store(&state.on, true);
	if (state.fns->disable_domain)
		(void)state.fns->disable_domain(OWN_DOMAIN);
	r = switch_to(kinds);
	if (r < 0)
		stop_source();
	return r;
}

static int change_kinds(uint32_t kinds)
{
	return is_on() ? switch_to(kinds) : -EINVAL;
}

static uint64_t count_lost(void)
{
	if (is_on())
		take_drops();
	/* What it was refused a buffer for is among what it has dropped, if it counts that. */
	uint64_t none = atomic_load(&state.none), dropped = atomic_load(&state.dropped);
	return (none > dropped ? none : dropped) + atomic_load(&state.late);
}

static bool is_paused(void)
{
	return state.paused;
}

const struct activity_source mspti_source = {
	.name = "MSPTI",
	.kinds = KINDS,
	.is_there = is_there,
	.start = start_source,
	.change = change_kinds,
	.flush = flush_buffers,
	.stop = stop_source,
	.lost = count_lost,
	.problem = mspti_problem,
	.attribute = mspti_launches_want,
	.is_paused = is_paused,
};
