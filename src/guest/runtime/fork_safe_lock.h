/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A lock for threads of ours that may hold it for seconds: in a vendor's library, in a wait for the
 * daemon. Never on a path that the job waits on: taking it sleeps.
 *
 * fork() copies the memory and only the thread that called it. A lock that another thread held at
 * that moment would stay taken for ever in the child. Here the owner's process is part of the word:
 *
 *	63            32 31             0
 *	+---------------+---------------+
 *	| pid of owner  | tid of owner  |	0: free
 *	+---------------+---------------+
 *
 * A word whose pid is not ours was copied by fork() together with whatever its owner was doing, and
 * may be taken over. What it protects must be able to start over in the child. (A vfork child has
 * its parent's memory and another pid; it must not come here.)
 *
 * Not recursive, not fair, no priority. Release stores and acquire loads are sequentially
 * consistent: these locks are taken a few times a second.
 */
#ifndef SONDE_GUEST_RUNTIME_FORK_SAFE_LOCK_H
#define SONDE_GUEST_RUNTIME_FORK_SAFE_LOCK_H

#include "guest/runtime/guest.h"

#include <sys/syscall.h>
#include <unistd.h>

struct fork_safe_lock {
	_Atomic uint64_t owner; /* process and thread; 0: nobody */
	_Atomic uint32_t waiting; /* threads that want it now */
};

static inline uint64_t fork_safe_lock_self(void)
{
	return (uint64_t)(uint32_t)syscall(SYS_getpid) << 32 | (uint32_t)syscall(SYS_gettid);
}

static inline bool fork_safe_lock_is_mine(const struct fork_safe_lock *l)
{
	return atomic_load(&l->owner) == fork_safe_lock_self();
}

/* Does somebody wait for it? A holder that takes long may let go early. */
static inline bool fork_safe_lock_is_contended(const struct fork_safe_lock *l)
{
	return atomic_load(&l->waiting) != 0;
}

static inline bool fork_safe_lock_try(struct fork_safe_lock *l, uint32_t wait_ms)
{
	uint64_t me = fork_safe_lock_self(), until = guest_now() + wait_ms * 1000000ull;
	bool mine = false;

	atomic_fetch_add(&l->waiting, 1);
	for (;;) {
		uint64_t owner = atomic_load(&l->owner);

		mine = (!owner || owner >> 32 != me >> 32) &&
		       atomic_compare_exchange_strong(&l->owner, &owner, me);
		if (mine || guest_now() >= until)
			break;
		guest_sleep(200000);
	}
	atomic_fetch_sub(&l->waiting, 1);
	return mine;
}

static inline void fork_safe_lock_take(struct fork_safe_lock *l)
{
	while (!fork_safe_lock_try(l, UINT32_MAX))
		;
}

static inline void fork_safe_lock_release(struct fork_safe_lock *l)
{
	atomic_store(&l->owner, 0);
}

#endif
