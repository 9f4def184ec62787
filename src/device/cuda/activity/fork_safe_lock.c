/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Whose turn it is to use the library: one thread's at a time. */
#include "device/cuda/activity/cupti.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS 200000

static _Atomic uint64_t turn; /* process and thread; 0: nobody's */
static _Atomic uint32_t waiting; /* threads, for their turn */

/* Of another process: it was held when this one was forked. */
static bool take_now(uint64_t me)
{
	uint64_t owner = atomic_load(&turn);

	return (!owner || owner >> 32 != me >> 32) &&
	       atomic_compare_exchange_strong(&turn, &owner, me);
}

bool cupti_lock(uint32_t wait_ms)
{
	uint64_t me = (uint64_t)(uint32_t)syscall(SYS_getpid) << 32 | (uint32_t)syscall(SYS_gettid);
	struct timespec nap = {0, NAP_NS};
	bool mine = false;

	if (atomic_load(&turn) == me)
		return false;
	atomic_fetch_add(&waiting, 1);
	for (uint64_t left = (uint64_t)wait_ms * 1000000 / NAP_NS + 1; left; left--) {
		mine = take_now(me);
		if (mine)
			break;
		syscall(SYS_nanosleep, &nap, NULL);
	}
	atomic_fetch_sub(&waiting, 1);
	return mine;
}

void cupti_unlock(void)
{
	atomic_store(&turn, 0);
}

bool cupti_is_contended(void)
{
	return atomic_load(&waiting) != 0;
}
