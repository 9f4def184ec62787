/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The records of a buffer. The library moves from one to the next, because it alone knows the sizes
 * of kinds that we have never heard of; where it says that a record is, is checked, and so is what
 * the record says of itself. Only the pointers to texts have to be believed.
 */
#include "device/ascend/activity/mspti.h"

#include "guest/collect/collect.h"

static const uint8_t sizes[ACTIVITY_KIND_END] = {
	[ACTIVITY_MARKER] = sizeof(struct mspti_marker),
	[ACTIVITY_KERNEL] = sizeof(struct mspti_kernel),
	[ACTIVITY_API] = sizeof(struct mspti_api),
	[ACTIVITY_HCCL] = sizeof(struct mspti_hccl),
	[ACTIVITY_MEMORY] = sizeof(struct mspti_memory),
	[ACTIVITY_MEMSET] = sizeof(struct mspti_transfer),
	[ACTIVITY_MEMCPY] = sizeof(struct mspti_transfer),
	[ACTIVITY_COMMUNICATION] = sizeof(struct mspti_communication),
	[ACTIVITY_ACL_API] = sizeof(struct mspti_api),
	[ACTIVITY_NODE_API] = sizeof(struct mspti_api),
	[ACTIVITY_RUNTIME_API] = sizeof(struct mspti_api),
};

#define SMALLEST 8 /* bytes of any record, of unknown kinds too */

static void on_device(struct collect_activity *a, uint32_t device, uint32_t stream)
{
	a->place = ACTIVITY_ON_DEVICE;
	a->where[0] = device;
	a->where[1] = stream;
}

static void read_api(struct collect_activity *a, const struct mspti_api *r)
{
	a->start_ns = r->start;
	a->end_ns = r->end;
	a->correlation = r->correlation;
	a->name = r->name;
	a->where[0] = r->process;
	a->where[1] = r->thread;
}

static void read_kernel(struct collect_activity *a, const struct mspti_kernel *r)
{
	a->start_ns = r->start;
	a->end_ns = r->end;
	a->correlation = r->correlation;
	a->name = r->name;
	a->detail = r->type;
	on_device(a, r->device, r->stream);
}

static uint8_t small(int32_t n)
{
	return n > 0 && n <= UINT8_MAX ? (uint8_t)n : 0;
}

static void read_marker(struct collect_activity *a, const struct mspti_marker *r)
{
	a->start_ns = a->end_ns = r->time;
	a->correlation = r->id;
	a->flag = small(r->flag);
	a->name = r->name;
	a->detail = r->domain;
	a->place = r->source == MSPTI_DEVICE ? ACTIVITY_ON_DEVICE : ACTIVITY_ON_HOST;
	a->where[0] = r->where[0];
	a->where[1] = r->where[1];
}

static uint64_t bytes_per_second(double gigabytes)
{
	if (!(gigabytes > 0))
		return 0;
	return gigabytes < 1e9 ? (uint64_t)(gigabytes * 1e9) : (uint64_t)1e18;
}

static void read_hccl(struct collect_activity *a, const struct mspti_hccl *r)
{
	a->start_ns = r->start;
	a->end_ns = r->end;
	a->amount = bytes_per_second(r->bandwidth);
	a->name = r->name;
	a->detail = r->group;
	on_device(a, r->device, r->stream);
}

static void read_memory(struct collect_activity *a, const struct mspti_memory *r)
{
	a->start_ns = r->start;
	a->end_ns = r->end;
	a->correlation = r->correlation;
	a->amount = r->bytes;
	a->more = r->address;
	a->flag = small(r->operation);
	on_device(a, r->device, r->stream);
}

static void read_transfer(struct collect_activity *a, const struct mspti_transfer *r)
{
	a->start_ns = r->start;
	a->end_ns = r->end;
	a->correlation = r->correlation;
	a->amount = r->bytes;
	a->async = r->async != 0;
	if (a->kind == ACTIVITY_MEMSET)
		a->more = r->what;
	else
		a->flag = small((int32_t)r->what);
	on_device(a, r->device, r->stream);
}

static void read_communication(struct collect_activity *a, const struct mspti_communication *r)
{
	a->start_ns = r->start;
	a->end_ns = r->end;
	a->correlation = r->correlation;
	a->amount = r->count;
	a->data_type = (uint16_t)r->data_type;
	a->name = r->name;
	a->detail = r->group;
	a->more_text = r->algorithm;
	on_device(a, r->device, r->stream);
}

static void emit_record(uint8_t kind, const void *record)
{
	struct collect_activity a = {.kind = kind};

	switch (kind) {
	case ACTIVITY_MARKER:
		read_marker(&a, record);
		break;
	case ACTIVITY_KERNEL:
		read_kernel(&a, record);
		break;
	case ACTIVITY_HCCL:
		read_hccl(&a, record);
		break;
	case ACTIVITY_MEMORY:
		read_memory(&a, record);
		break;
	case ACTIVITY_MEMSET:
	case ACTIVITY_MEMCPY:
		read_transfer(&a, record);
		break;
	case ACTIVITY_COMMUNICATION:
		read_communication(&a, record);
		break;
	default:
		read_api(&a, record);
		break;
	}
	collect_activity(&a);
}

/* The kind of a record that lies in the buffer whole; 0: it does not, or is of no use here. */
static uint8_t kind_at(const uint8_t *buffer, size_t valid, const void *record)
{
	/* Behind the end or before the beginning, the difference is larger than the buffer. */
	uintptr_t at = (uintptr_t)record - (uintptr_t)buffer;
	int32_t kind;

	if (at > valid || valid - at < sizeof(kind))
		return 0;
	__builtin_memcpy(&kind, record, sizeof(kind));
	if (kind <= 0 || kind >= ACTIVITY_KIND_END || !sizes[kind] || valid - at < sizes[kind])
		return 0;
	return (uint8_t)kind;
}

bool mspti_walk(const struct mspti *fns, uint8_t *buffer, size_t valid, bool emit,
		uint64_t *out_records)
{
	void *record = NULL;

	*out_records = 0;
	/* A buffer without records resets the cursor, wherever somebody has left it. */
	(void)fns->next(buffer, 0, &record);
	/* A library that never says END is believed for as many records as there can be. */
	for (size_t left = valid / SMALLEST + 1; left; left--) {
		record = NULL;
		int r = fns->next(buffer, valid, &record);
		if (r != MSPTI_OK || !record)
			return r == MSPTI_END;
		uint8_t kind = kind_at(buffer, valid, record);
		if (!kind)
			continue;
		++*out_records;
		if (emit)
			emit_record(kind, record);
	}
	return false;
}
