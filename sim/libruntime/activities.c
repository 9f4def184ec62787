/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the runtime reports to libmspti besides its calls. */
#include <unistd.h>

#include "runtime/rt.h"
#include "sim/feed.h"
#include "sim/state.h"
#include "stream.h"

static void feed_kernel(const struct stream *s, const struct work *w, uint64_t begin, uint64_t end)
{
	msptiActivityKernel r = {.kind = MSPTI_ACTIVITY_KIND_KERNEL,
				 .start = sim_wall_ns(begin),
				 .end = sim_wall_ns(end),
				 .correlationId = w->correlation,
				 .type = w->type,
				 .name = w->kernel->name};
	r.ds.deviceId = (uint32_t)stream_device(s);
	r.ds.streamId = (uint32_t)stream_id(s);
	sim_feed_take(&r, sizeof(r));
}

static void feed_copy(const struct stream *s, const struct work *w, uint64_t begin, uint64_t end)
{
	msptiActivityMemcpy r = {.kind = MSPTI_ACTIVITY_KIND_MEMCPY,
				 .copyKind = w->detail + 1, /* MSPTI counts from 1 */
				 .bytes = w->number,
				 .start = sim_wall_ns(begin),
				 .end = sim_wall_ns(end),
				 .deviceId = (uint32_t)stream_device(s),
				 .streamId = (uint32_t)stream_id(s),
				 .correlationId = w->correlation,
				 .isAsync = 1};
	sim_feed_take(&r, sizeof(r));
}

/* The device half of a mark has no name: the host half with the same id has it. */
static void feed_mark(const struct stream *s, const struct work *w, uint64_t begin)
{
	msptiActivityMarker r = {.kind = MSPTI_ACTIVITY_KIND_MARKER,
				 .flag = w->detail,
				 .sourceKind = MSPTI_ACTIVITY_SOURCE_KIND_DEVICE,
				 .timestamp = sim_wall_ns(begin),
				 .id = w->number};
	r.objectId.ds.deviceId = (uint32_t)stream_device(s);
	r.objectId.ds.streamId = (uint32_t)stream_id(s);
	sim_feed_take(&r, sizeof(r));
}

void feed_task(const struct stream *s, const struct work *w, uint64_t begin, uint64_t end)
{
	if (!sim_feed_wanted())
		return;
	switch (w->kind) {
	case WORK_KERNEL:
		feed_kernel(s, w, begin, end);
		break;
	case WORK_COPY:
		feed_copy(s, w, begin, end);
		break;
	case WORK_MARK:
		feed_mark(s, w, begin);
		break;
	}
}

uint64_t feed_begin(int32_t kind)
{
	return sim_feed_wants(kind) ? sim_now_ns() : 0;
}

static uint32_t device(void)
{
	int32_t logical;
	uint32_t phy;
	return rtGetDevice(&logical) || rtGetPhyId(logical, &phy) ? MSPTI_INVALID_DEVICE_ID : phy;
}

void feed_memory(int32_t operation, const void *ptr, uint64_t bytes, uint64_t begin)
{
	msptiActivityMemory r = {.kind = MSPTI_ACTIVITY_KIND_MEMORY,
				 .memoryOperationType = operation,
				 .memoryKind = MSPTI_ACTIVITY_MEMORY_KIND_DEVICE,
				 .correlationId = sim_call_correlation(),
				 .start = sim_wall_ns(begin),
				 .end = sim_wall_ns(sim_now_ns()),
				 .address = (uintptr_t)ptr,
				 .bytes = bytes,
				 .processId = (uint32_t)getpid(),
				 .deviceId = device(),
				 .streamId = MSPTI_INVALID_STREAM_ID};
	sim_feed_take(&r, sizeof(r));
}

void feed_memcpy(int32_t kind, uint64_t bytes, uint64_t begin)
{
	msptiActivityMemcpy r = {.kind = MSPTI_ACTIVITY_KIND_MEMCPY,
				 .copyKind = kind + 1,
				 .bytes = bytes,
				 .start = sim_wall_ns(begin),
				 .end = sim_wall_ns(sim_now_ns()),
				 .deviceId = device(),
				 .streamId = MSPTI_INVALID_STREAM_ID,
				 .correlationId = sim_call_correlation()};
	sim_feed_take(&r, sizeof(r));
}

void tell_memset(uint32_t value, uint64_t bytes, uint64_t begin)
{
	msptiActivityMemset r = {.kind = MSPTI_ACTIVITY_KIND_MEMSET,
				 .value = value,
				 .bytes = bytes,
				 .start = sim_wall_ns(begin),
				 .end = sim_wall_ns(sim_now_ns()),
				 .deviceId = device(),
				 .streamId = MSPTI_INVALID_STREAM_ID,
				 .correlationId = sim_call_correlation()};
	sim_feed_take(&r, sizeof(r));
}

static int mark_stream(void *handle, uint64_t id, int32_t flag)
{
	struct stream *s = stream_resolve(handle);
	struct work w = {.kind = WORK_MARK, .detail = flag, .number = id};
	return s && stream_submit(s, &w, NULL, 0) == RT_ERROR_NONE ? 0 : -1;
}

static __attribute__((constructor)) void offer_marks(void)
{
	atomic_store_explicit(&sim_feed.mark_stream, mark_stream, memory_order_release);
}
