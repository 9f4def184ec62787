/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities of CUPTI and NVTX: what the files activity*.c of this folder share, and what tests
 * use. */
#ifndef SONDE_DEVICE_CUDA_ACTIVITY_CUPTI_H
#define SONDE_DEVICE_CUDA_ACTIVITY_CUPTI_H

#include "device/activity.h"
#include "device/cuda/abi_cupti.h"
#include "guest/collect/collect.h"
#include "guest/runtime/fork_safe_lock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- activity.c --- */

/* What has gone wrong since start, in words for people; "" if nothing has. For the thread that
 * calls start. */
const char *cupti_problem(void);
/* With the lock: who comes finds the library as if we were not there. */
void cupti_pause(void);
bool cupti_is_held(void);
/* Is this kind of CUPTI's on for us? With the lock. */
bool cupti_uses(uint32_t kind);

/* What is called; collect_activity() but in tests. */
extern void (*cupti_emit)(const struct collect_activity *a);

/*
 * One thread at a time uses the library: those of ours that switch it on and off, and those of the
 * job that call it for another profiler. False: this very thread has the lock already, or it was
 * not released in time.
 */
extern struct fork_safe_lock cupti_in_use;
static inline bool cupti_lock(uint32_t wait_ms)
{
	return !fork_safe_lock_is_mine(&cupti_in_use) && fork_safe_lock_try(&cupti_in_use, wait_ms);
}

static inline void cupti_unlock(void)
{
	fork_safe_lock_release(&cupti_in_use);
}

/* --- device/cuda/activity/library.c: the library --- */

/* Is the driver in this process, and a libcupti too or where it would be found? Loads nothing. */
bool cupti_can_be_found(void);
/* Is one loaded? */
bool cupti_is_loaded(void);
/* The one that is in this process, else one that is loaded now. NULL: there is none, and why. */
const struct cupti *cupti_find(const char **why);
/* Instead of a library, for tests. NULL: as before. */
void cupti_use(const struct cupti *fns);
/* The name of a call of the runtime or the driver, for ever valid; "" if there is none. */
const char *cupti_call_name(const struct cupti *fns, int domain, uint32_t cbid);

/* --- device/cuda/activity/launches.c: calls that give work to a device --- */

/* Of which domains. With the lock. */
void cupti_launches_switch(const struct cupti *fns, bool runtime, bool driver, bool on);
/* One by one, without their kinds. False: this library has no such call. */
bool cupti_launches_switch_each(const struct cupti *fns, bool on);
bool cupti_is_launch(int domain, uint32_t cbid);

/* --- activity_buffers.c: what records are written into --- */

/*
 * Small ones: the library returns a buffer when everything in it has ended, and in a busy job that
 * is not before it is full.
 */
#define CUPTI_BUFFER_BYTES (256u << 10)
#define CUPTI_BUFFERS 256u

uint8_t *cupti_buffer_take(void); /* NULL: the library has them all */
bool cupti_buffer_is_ours(const uint8_t *buffer);
void cupti_buffer_return(uint8_t *buffer, bool keep);
void cupti_buffers_free(void); /* those that the library does not have */
unsigned cupti_buffers_out(void);
unsigned cupti_buffers_in_use(void); /* of these, with something in them */

/* --- activity_walk.c: records --- */

struct cupti_walk {
	const struct cupti *fns;
	uint32_t kinds; /* ACTIVITY_BIT() of those that are reported */
	bool launches; /* are reported */
	bool newer; /* than what we know: records must be at least as long as the last known ones */
	void (*emit)(const struct collect_activity *a);
	uint64_t emitted;
	uint64_t launched; /* launches that were reported */
	uint64_t untimed; /* kernels and copies without times: the library had no room to note them
			   */
	uint64_t strange; /* shorter than what is read of them; nothing is reported of these */
};
/* False: the buffer does not hold together, the rest of it was not read. */
bool cupti_walk_buffer(struct cupti_walk *w, uint8_t *buffer, size_t valid);

#define NCCL_NAME_BYTES 128
struct nccl_kernel {
	char name[NCCL_NAME_BYTES]; /* of the function, without parameters */
	const char *algorithm; /* "" if the name does not say */
	uint16_t data_type; /* as MSPTI numbers them */
};
/* Is this, mangled or not, the name of a kernel of NCCL? */
bool nccl_kernel_read(const char *name, struct nccl_kernel *out);

/* --- device/cuda/activity/other_profilers.c: others in this process who use the library --- */

/*
 * From now on their calls come to us first. Cheap if nothing was loaded since. What they have done
 * before is not known.
 */
void cupti_watch(const struct cupti *fns);
/* Do they have it, or have had it so recently that they may not have fetched everything? */
bool cupti_watch_busy(void);
/* Is anything of theirs on? */
bool cupti_watch_goes_on(void);
/* With the lock: the library is as they left it, as far as they have reported. */
void cupti_watch_restore(const struct cupti *fns);
/* A buffer that is none of ours is theirs. */
void cupti_watch_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size,
			  size_t valid);

/* --- device/cuda/activity/nvtx.c --- */

int InitializeInjectionNvtx2(nvtx_export_fn get) __attribute__((visibility("default")));

void nvtx_switch(bool on);

#endif
