/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The buffers that the library fills: mapped when it asks for one, a few kept for the next time.
 *
 *	EMPTY --take--> OUT --claim--> READ --give--> IDLE (mapped), or EMPTY
 *	                 ^------------take------------'
 *
 * Phases change by compare-and-swap; BUSY is somebody in the middle of mapping or unmapping. Asked
 * for by any thread, which never waits here. Their number and size stand in mspti.h.
 */
#include "device/ascend/activity/mspti.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define KEPT 4u /* mapped while nobody has them */

enum phase { EMPTY, IDLE, BUSY, OUT, READ };

static struct buffer {
	_Atomic uint32_t phase;
	_Atomic bool given_up;
	_Atomic uint64_t seq; /* of its last taking */
	uint8_t *_Atomic mem;
} buffers[MSPTI_BUFFERS];

static _Atomic uint64_t taken_so_far;

static bool move_phase(struct buffer *b, uint32_t from, uint32_t to)
{
	return atomic_compare_exchange_strong(&b->phase, &from, to);
}

static uint8_t *hand_out(struct buffer *b)
{
	atomic_store(&b->given_up, false);
	atomic_store(&b->seq, atomic_fetch_add(&taken_so_far, 1) + 1);
	atomic_store(&b->phase, OUT);
	return atomic_load(&b->mem);
}

static bool map_buffer(struct buffer *b)
{
	void *p = mmap(NULL, MSPTI_BUFFER_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	atomic_store(&b->mem, p == MAP_FAILED ? NULL : p);
	return p != MAP_FAILED;
}

static void unmap_buffer(struct buffer *b)
{
	munmap(atomic_exchange(&b->mem, NULL), MSPTI_BUFFER_BYTES);
}

uint8_t *mspti_buffer_take(void)
{
	for (uint32_t i = 0; i < MSPTI_BUFFERS; i++)
		if (move_phase(&buffers[i], IDLE, BUSY))
			return hand_out(&buffers[i]);
	for (uint32_t i = 0; i < MSPTI_BUFFERS; i++) {
		struct buffer *b = &buffers[i];
		if (!move_phase(b, EMPTY, BUSY))
			continue;
		if (map_buffer(b))
			return hand_out(b);
		atomic_store(&b->phase, EMPTY);
		return NULL;
	}
	return NULL;
}

static struct buffer *find_buffer(const uint8_t *mem, uint32_t phase)
{
	for (uint32_t i = 0; mem && i < MSPTI_BUFFERS; i++)
		if (atomic_load(&buffers[i].phase) == phase && atomic_load(&buffers[i].mem) == mem)
			return &buffers[i];
	return NULL;
}

bool mspti_buffer_claim(const uint8_t *buffer)
{
	struct buffer *b = find_buffer(buffer, OUT);

	return b && move_phase(b, OUT, READ);
}

static uint32_t idle_ones(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MSPTI_BUFFERS; i++)
		n += atomic_load(&buffers[i].phase) == IDLE;
	return n;
}

void mspti_buffer_return(const uint8_t *buffer, bool keep)
{
	struct buffer *b = find_buffer(buffer, READ);

	if (!b)
		return;
	if (keep && idle_ones() < KEPT) {
		atomic_store(&b->phase, IDLE);
		return;
	}
	unmap_buffer(b);
	atomic_store(&b->phase, EMPTY);
}

void mspti_buffers_free(void)
{
	for (uint32_t i = 0; i < MSPTI_BUFFERS; i++) {
		if (!move_phase(&buffers[i], IDLE, BUSY))
			continue;
		unmap_buffer(&buffers[i]);
		atomic_store(&buffers[i].phase, EMPTY);
	}
}

void mspti_buffers_forget(void)
{
	for (uint32_t i = 0; i < MSPTI_BUFFERS; i++) {
		atomic_store(&buffers[i].mem, NULL);
		atomic_store(&buffers[i].phase, EMPTY);
	}
}

uint64_t mspti_buffers_taken(void)
{
	return atomic_load(&taken_so_far);
}

static bool is_missing(const struct buffer *b, uint64_t taken)
{
	uint32_t phase = atomic_load(&b->phase);

	return (phase == OUT || phase == READ) && atomic_load(&b->seq) <= taken &&
	       !atomic_load(&b->given_up);
}

bool mspti_buffers_are_out(uint64_t taken)
{
	for (uint32_t i = 0; i < MSPTI_BUFFERS; i++)
		if (is_missing(&buffers[i], taken))
			return true;
	return false;
}

void mspti_buffers_abandon(uint64_t taken)
{
	for (uint32_t i = 0; i < MSPTI_BUFFERS; i++)
		if (is_missing(&buffers[i], taken))
			atomic_store(&buffers[i].given_up, true);
}
