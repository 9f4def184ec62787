/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * torch's caching allocator on GPUs. It reports each block to torch's profiler, by a function that a
 * preload library stands before (device/cuda/hooks/torch_hooks.c): in the thread that asks for the
 * memory, under the allocator's lock of that device. So blocks need neither the GIL nor the notes
 * that the allocator can take itself.
 *
 * With each block come the bytes that the allocator has from the driver; they are recorded when
 * they change.
 */
#include "guest/collect/collect.h"

#include "guest/runtime/guest.h"

#define MAX_GPUS 64

static _Atomic uint64_t blocks; /* reported in this process, or a parent before it was forked */
static _Atomic uint64_t reserved_before[MAX_GPUS]; /* one more than the bytes; 0: none reported */
static _Atomic uint16_t numbers[MAX_GPUS]; /* on this machine, by the job's number; and one */
static _Atomic uint32_t epoch; /* of the process that has written reserved_before */

uint64_t collect_torch_blocks(void)
{
	return atomic_load_explicit(&blocks, memory_order_relaxed);
}

void collect_set_gpu_number(uint16_t index, uint16_t number)
{
	if (index < MAX_GPUS)
		atomic_store_explicit(&numbers[index], (uint16_t)(number + 1),
				      memory_order_relaxed);
}

static uint16_t number_of_gpu(uint16_t index)
{
	uint16_t number = atomic_load_explicit(&numbers[index], memory_order_relaxed);

	return number ? (uint16_t)(number - 1) : index;
}

/* A forked child has a recording of its own, which does not know its parent's sums. */
static void report_reserved(uint16_t index, uint64_t bytes)
{
	uint32_t now = collect_epoch();

	if (atomic_load_explicit(&epoch, memory_order_relaxed) != now) {
		for (unsigned i = 0; i < MAX_GPUS; i++)
			atomic_store_explicit(&reserved_before[i], 0, memory_order_relaxed);
		atomic_store_explicit(&epoch, now, memory_order_relaxed);
	}
	if (atomic_exchange_explicit(&reserved_before[index], bytes + 1, memory_order_relaxed) !=
	    bytes + 1)
		collect_heap(POOL_TORCH, number_of_gpu(index), HEAP_SET, 0, (int64_t)bytes);
}

void collect_torch_block(const struct collect_torch *t, const void *caller)
{
	if (t->index >= MAX_GPUS || guest_mode() < GUEST_SHADOW)
		return;
	struct collect_block b = {
		.addr = t->addr,
		.size_bytes = (uint64_t)(t->bytes < 0 ? -t->bytes : t->bytes),
		.device = number_of_gpu(t->index),
		.pool = POOL_TORCH,
		.kind = ALLOC_REGION,
		.module = MODULE_NONE,
	};

	atomic_fetch_add_explicit(&blocks, 1, memory_order_relaxed);
	report_reserved(t->index, t->reserved_bytes);
	if (t->bytes > 0)
		collect_alloc(&b, caller);
	else if (t->bytes < 0)
		collect_free(&b, caller);
}
