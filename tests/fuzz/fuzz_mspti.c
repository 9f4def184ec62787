/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A buffer of MSPTI, walked with a double of the library. First byte: how that behaves. 0: by the
 * sizes of kinds, and an error where there is none; 1: unknown kinds have eight bytes; 2: it says
 * where records are as the buffer's own bytes have it, inside or not, and knows no end.
 *
 * Nothing outside the buffer is read, and nothing but its activities is told.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/ascend/activity/mspti.h"
#include "guest/collect/collect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned behaviour;
static uint64_t told;

/* In place of the ring. Texts are not looked at: who has them is the library's word. */
void collect_activity(const struct collect_activity *a)
{
	BUG_ON(!a->kind || a->kind >= ACTIVITY_KIND_END || a->kind == ACTIVITY_EXTERNAL);
	BUG_ON(a->place > ACTIVITY_ON_DEVICE || a->async > 1);
	BUG_ON(a->more && a->more_text);
	BUG_ON(a->kind == ACTIVITY_HCCL && a->amount > 1000000000000000000ull);
	told++;
}

static size_t size_of(int32_t kind)
{
	static const size_t sizes[] = {0, 56, 56, 48, 56, 64, 56, 56, 24, 72, 48, 48, 48, 40};

	if (kind > 0 && kind < 14)
		return sizes[kind];
	return behaviour == 1 ? 8 : 0;
}

/* Anywhere from a bit before the buffer to a bit behind it. */
static int next_anywhere(uint8_t *buffer, size_t valid, void **record)
{
	static size_t calls;
	size_t at = valid ? calls++ % valid : 0;
	uintptr_t offset = valid ? buffer[at] * 3u : 0;

	*record = (void *)((uintptr_t)buffer + offset - 16);
	return MSPTI_OK;
}

static int next(uint8_t *buffer, size_t valid, void **record)
{
	static size_t at;
	int32_t kind;

	if (behaviour == 2)
		return next_anywhere(buffer, valid, record);
	if (at >= valid) {
		at = 0;
		return MSPTI_END;
	}
	if (valid - at < sizeof(kind))
		return MSPTI_INVALID;
	memcpy(&kind, buffer + at, sizeof(kind));
	if (!size_of(kind))
		return MSPTI_INVALID;
	*record = buffer + at;
	at += size_of(kind);
	return MSPTI_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct mspti fns = {.next = next};
	uint64_t records = 0;

	if (size < 2)
		return 0;
	behaviour = data[0] % 3;
	/* As long as it is, and not a byte longer. */
	uint8_t *buffer = malloc(size - 1);
	if (!buffer)
		return 0;
	memcpy(buffer, data + 1, size - 1);
	told = 0;
	bool whole = mspti_walk(&fns, buffer, size - 1, true, &records);
	BUG_ON(records != told);
	BUG_ON(told > size / 8 + 1);
	BUG_ON(whole && behaviour == 2);
	free(buffer);
	return 0;
}
