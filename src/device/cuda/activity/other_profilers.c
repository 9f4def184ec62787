/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Peace with others in this process who use CUPTI: PyTorch's profiler above all. The library has
 * one pair of buffer callbacks and one clock for all, so only one can have it at a time, and that
 * is never we if somebody else wants it.
 *
 * Their calls come here first (device/cuda/activity/got.c). Before one that takes the library, we
 * pause: kinds off, what we had is fetched, their callbacks are in place again. They are done
 * when every kind that they switched on is off; they may still fetch what was recorded, and who
 * fetches it for them takes it away from them: so a moment is waited after their last fetch, or
 * longer if there was none.
 */
#include "device/cuda/activity/cupti.h"
#include "guest/interpose/got.h"
#include "guest/runtime/guest.h"

#include <errno.h>
#include <stdatomic.h>

#define LOCK_MS 2000
#define AFTER_FETCH_NS 300000000ull
#define AFTER_CALL_NS 2000000000ull

/* All but the last two with the turn. */
static struct {
	const struct cupti *fns;
	uint64_t kinds; /* that they have on, a bit each */
	cupti_request_fn request; /* what they registered, if they did */
	cupti_complete_fn _Atomic complete;
	cupti_clock_fn clock;
	bool fetched; /* since the last kind went off */
	_Atomic uint64_t last_ns; /* their last call; 0: there was none */
} other;

static uint64_t bit_of(uint32_t kind)
{
	return kind < CUPTI_KIND_END ? 1ull << kind : 0;
}

/* A call of theirs that takes the library. The turn is ours afterwards if true. */
static bool they_come(void)
{
	bool mine = cupti_lock(LOCK_MS);

	if (mine)
		cupti_pause();
	atomic_store(&other.last_ns, guest_now());
	return mine;
}

static cupti_result they_leave(bool mine, cupti_result r)
{
	atomic_store(&other.last_ns, guest_now());
	if (mine)
		cupti_unlock();
	return r;
}

static cupti_result on_register(cupti_request_fn request, cupti_complete_fn complete)
{
	bool mine = they_come();
	cupti_result r = other.fns->register_callbacks(request, complete);

	if (r == CUPTI_OK) {
		other.request = request;
		atomic_store(&other.complete, complete);
		other.fetched = false;
	}
	return they_leave(mine, r);
}

static cupti_result on_clock(cupti_clock_fn clock)
{
	bool mine = they_come();
	cupti_result r = other.fns->register_clock(clock);

	if (r == CUPTI_OK)
		other.clock = clock;
	return they_leave(mine, r);
}

static cupti_result on_enable(uint32_t kind)
{
	bool mine = they_come();
	cupti_result r = other.fns->enable(kind);

	if (r == CUPTI_OK)
		other.kinds |= bit_of(kind);
	return they_leave(mine, r);
}

/* Also of kinds that they never switched on; those may be ours. */
static cupti_result on_disable(uint32_t kind)
{
	bool mine = cupti_lock(LOCK_MS);
	cupti_result r = CUPTI_OK;

	if (!(mine && cupti_uses(kind)))
		r = other.fns->disable(kind);
	if (other.kinds & bit_of(kind)) {
		other.kinds &= ~bit_of(kind);
		other.fetched = false;
	}
	return they_leave(mine, r);
}

/* Without the turn: their callback may take a while, and wait for whom it likes. */
static cupti_result on_flush(uint32_t flag)
{
	cupti_result r = other.fns->flush(flag);
	bool mine = cupti_lock(LOCK_MS);

	if (!other.kinds)
		other.fetched = true;
	return they_leave(mine, r);
}

/* Everybody is thrown out, and everything that was registered is gone. */
static cupti_result on_finalize(void)
{
	bool mine = they_come();
	cupti_result r = other.fns->finalize();

	other.kinds = 0;
	other.request = NULL;
	atomic_store(&other.complete, NULL);
	other.clock = NULL;
	other.fetched = true;
	return they_leave(mine, r);
}

void cupti_watch(const struct cupti *fns)
{
	static uint64_t loads;
	const struct got_patch patches[] = {
		{.name = "cuptiActivityRegisterCallbacks", .to = (void *)on_register},
		{.name = "cuptiActivityEnable", .to = (void *)on_enable},
		{.name = "cuptiActivityEnableAndDump", .to = (void *)on_enable},
		{.name = "cuptiActivityDisable", .to = (void *)on_disable},
		{.name = "cuptiActivityFlushAll", .to = (void *)on_flush},
		{.name = "cuptiFinalize", .to = (void *)on_finalize},
		{.name = "cuptiActivityRegisterTimestampCallback", .to = (void *)on_clock},
		/* copies of NVTX that have not looked for a tool yet */
		{.name = "InitializeInjectionNvtx2_fnptr",
		 .to = (void *)InitializeInjectionNvtx2,
		 .variable = true},
	};
	unsigned n = sizeof(patches) / sizeof(patches[0]);
	uint64_t now = got_loads();

	if (now == loads || !fns->register_clock || !fns->finalize)
		return;
	loads = now;
	other.fns = fns;
	(void)got_redirect(patches, n, &(struct got_objects){.except = "libcupti.so"});
}

bool cupti_watch_busy(void)
{
	uint64_t last = atomic_load(&other.last_ns), now = guest_now();

	if (other.kinds)
		return true;
	return last && now - last < (other.fetched ? AFTER_FETCH_NS : AFTER_CALL_NS);
}

bool cupti_watch_goes_on(void)
{
	return other.kinds != 0;
}

void cupti_watch_restore(const struct cupti *fns)
{
	cupti_complete_fn complete = atomic_load(&other.complete);

	if (other.request && complete)
		(void)fns->register_callbacks(other.request, complete);
	if (other.clock && fns->register_clock)
		(void)fns->register_clock(other.clock);
}

void cupti_watch_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size,
			  size_t valid)
{
	cupti_complete_fn complete = atomic_load(&other.complete);

	if (complete)
		complete(context, stream, buffer, size, valid);
}
