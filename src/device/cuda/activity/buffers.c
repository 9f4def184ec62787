/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Buffers for the library: mapped when it asks for the first time, used again afterwards, unmapped
 * when we stop. One that it never gives back stays its own. Any thread, no locks.
 */
#include "device/cuda/activity/cupti.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SLOT_EMPTY, SLOT_FREE, SLOT_BUSY, SLOT_OUT };

static struct {
	_Atomic uint32_t state;
	uint8_t *_Atomic at; /* set while the state is FREE or OUT */
} slots[CUPTI_BUFFERS];

static bool move_phase(unsigned i, uint32_t from, uint32_t to)
{
	return atomic_load_explicit(&slots[i].state, memory_order_relaxed) == from &&
	       atomic_compare_exchange_strong(&slots[i].state, &from, to);
}

static uint8_t *take_new(unsigned i)
{
	uint8_t *p = mmap(NULL, CUPTI_BUFFER_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		atomic_store(&slots[i].state, SLOT_EMPTY);
		return NULL;
	}
	atomic_store(&slots[i].at, p);
	atomic_store(&slots[i].state, SLOT_OUT);
	return p;
}

static uint8_t *take_again(unsigned i)
{
	uint8_t *p = atomic_load(&slots[i].at);

	memset(p, 0, sizeof(uint32_t)); /* no record has the kind 0 */
	atomic_store(&slots[i].state, SLOT_OUT);
	return p;
}

uint8_t *cupti_buffer_take(void)
{
	for (unsigned i = 0; i < CUPTI_BUFFERS; i++)
		if (move_phase(i, SLOT_FREE, SLOT_BUSY))
			return take_again(i);
	for (unsigned i = 0; i < CUPTI_BUFFERS; i++)
		if (move_phase(i, SLOT_EMPTY, SLOT_BUSY))
			return take_new(i);
	return NULL;
}

static int slot_of(const uint8_t *buffer)
{
	for (unsigned i = 0; i < CUPTI_BUFFERS; i++)
		if (atomic_load(&slots[i].at) == buffer && atomic_load(&slots[i].state) == SLOT_OUT)
			return (int)i;
	return -1;
}

bool cupti_buffer_is_ours(const uint8_t *buffer)
{
	return buffer && slot_of(buffer) >= 0;
}

static void unmap_buffer(unsigned i)
{
	uint8_t *p = atomic_exchange(&slots[i].at, NULL);

	munmap(p, CUPTI_BUFFER_BYTES);
	atomic_store(&slots[i].state, SLOT_EMPTY);
}

void cupti_buffer_return(uint8_t *buffer, bool keep)
{
	int i = slot_of(buffer);

	if (i < 0)
		return;
	if (keep)
		(void)move_phase((unsigned)i, SLOT_OUT, SLOT_FREE);
	else if (move_phase((unsigned)i, SLOT_OUT, SLOT_BUSY))
		unmap_buffer((unsigned)i);
}

void cupti_buffers_free(void)
{
	for (unsigned i = 0; i < CUPTI_BUFFERS; i++)
		if (move_phase(i, SLOT_FREE, SLOT_BUSY))
			unmap_buffer(i);
}

/* By the kernel, since a buffer may come back and be unmapped this very moment. */
static bool has_record(unsigned i)
{
	uint32_t kind = 1;
	struct iovec from = {atomic_load(&slots[i].at), sizeof(kind)}, to = {&kind, sizeof(kind)};

	(void)syscall(SYS_process_vm_readv, syscall(SYS_getpid), &to, 1ul, &from, 1ul, 0ul);
	return kind != 0;
}

unsigned cupti_buffers_in_use(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < CUPTI_BUFFERS; i++)
		n += atomic_load(&slots[i].state) == SLOT_OUT && has_record(i);
	return n;
}

unsigned cupti_buffers_out(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < CUPTI_BUFFERS; i++)
		n += atomic_load(&slots[i].state) == SLOT_OUT;
	return n;
}
