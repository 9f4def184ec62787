/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A buffer of CUPTI, walked with a double of the library, and names of kernels. First byte: 0 the
 * library moves by the sizes of kinds, 1 the same and is newer than what we know, 2 it moves by
 * what the buffer's own bytes say, inside or not. Second byte: sizes. Nothing outside the buffer is
 * read.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/cuda/activity/cupti.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned behaviour, extra;
static uint64_t told;

static void on_told(const struct collect_activity *a)
{
	BUG_ON(!a->kind || a->kind >= ACTIVITY_KIND_END || a->kind == ACTIVITY_EXTERNAL);
	BUG_ON(a->place > ACTIVITY_ON_DEVICE || a->async > 1);
	BUG_ON(a->end_ns < a->start_ns);
	BUG_ON(a->kind == ACTIVITY_COMMUNICATION && (!a->name || !a->more_text));
	told++;
}

static size_t size_of(uint32_t kind)
{
	switch (kind) {
	case CUPTI_KERNEL:
		return 104 + extra;
	case CUPTI_MEMCPY:
	case CUPTI_MEMSET:
		return 40 + extra;
	case CUPTI_MEMORY2:
		return 72 + extra;
	case CUPTI_RUNTIME:
	case CUPTI_DRIVER:
		return 40;
	case CUPTI_MEMCPY2:
		return 96;
	default:
		return kind < 60 ? 16 : 0;
	}
}

static cupti_result next(uint8_t *buffer, size_t valid, void **record)
{
	size_t at = *record ? (size_t)((uint8_t *)*record - buffer) : 0;
	uint32_t kind;

	if (*record && behaviour == 2) {
		*record = buffer + at + (int8_t)buffer[at] * 8;
		return buffer[at] == 0xff;
	}
	if (*record) {
		memcpy(&kind, *record, 4);
		at += size_of(kind);
	}
	if (at + 8 > valid)
		return 12;
	memcpy(&kind, buffer + at, 4);
	*record = buffer + at;
	return size_of(kind) ? CUPTI_OK : CUPTI_INVALID_KIND;
}

static cupti_result call_name(int domain, uint32_t cbid, const char **out)
{
	*out = domain == CUPTI_DOMAIN_RUNTIME ? "cudaX_v1" : NULL;
	return (cupti_result)(cbid & 1);
}

/* Names that the library would have put there. */
static void set_names(uint8_t *buffer, size_t valid, const char *name)
{
	for (void *r = NULL; next(buffer, valid, &r) == CUPTI_OK;) {
		uint32_t kind;
		memcpy(&kind, r, 4);
		if (kind == CUPTI_KERNEL && (size_t)((uint8_t *)r - buffer) + 112 <= valid)
			memcpy((uint8_t *)r + 104, &name, sizeof(name));
	}
}

static void check_name(const char *name)
{
	struct nccl_kernel n;

	if (!nccl_kernel_read(name, &n))
		return;
	BUG_ON(strlen(n.name) >= NCCL_NAME_BYTES || strlen(n.name) > strlen(name));
	BUG_ON(!n.algorithm || strpbrk(n.name, "(<. "));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct cupti fns = {.next = next, .callback_name = call_name};
	struct cupti_walk w = {.fns = &fns, .emit = on_told};

	if (size < 2)
		return 0;
	behaviour = data[0] % 3;
	extra = (data[1] & 31u) * 8;
	size -= 2;
	char *name = xmalloc(size + 1);
	memcpy(name, data + 2, size);
	name[size] = '\0';
	check_name(name);
	uint8_t *buffer = xmalloc(size ? size : 1);
	memcpy(buffer, data + 2, size);
	w.newer = behaviour == 1;
	/* Where it moves anywhere, what looks like a name is none: those are not followed then. */
	w.kinds = behaviour == 2
			  ? ~(ACTIVITY_BIT(ACTIVITY_COMMUNICATION) | ACTIVITY_BIT(ACTIVITY_HCCL))
			  : ~0u;
	if (behaviour != 2)
		set_names(buffer, size, name);
	told = 0;
	(void)cupti_walk_buffer(&w, buffer, size);
	BUG_ON(told != w.emitted || w.emitted > 2 * (size / 8 + 1));
	free(buffer);
	free(name);
	return 0;
}
