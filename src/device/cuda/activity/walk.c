/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The records of a buffer. The library moves from one to the next, because it alone knows how long
 * each is; how far it moves shows whether a record can hold what is read of it. Only the pointers
 * to names have to be believed.
 */
#include "device/cuda/activity/cupti.h"

#include <string.h>

/* Bytes of a record: at least those that are read, and those of the newest version that is known.
 */
struct extent {
	uint16_t read, newest;
};

static const struct extent extents[CUPTI_KIND_END] = {
	[CUPTI_KERNEL] = {sizeof(struct cupti_kernel), 248},
	[CUPTI_MEMCPY] = {sizeof(struct cupti_copy_record), 112},
	[CUPTI_MEMCPY2] = {CUPTI_MEMCPY2_CORRELATION + 4, 96},
	[CUPTI_MEMSET] = {offsetof(struct cupti_memset, memory_kind) + 2, 104},
	[CUPTI_MEMORY2] = {offsetof(struct cupti_memory, async) + 4, 128},
	[CUPTI_RUNTIME] = {sizeof(struct cupti_api), 40},
	[CUPTI_DRIVER] = {sizeof(struct cupti_api), 40},
};

#define SMALLEST 8 /* bytes of any record, of unknown kinds too */

/* As MSPTI numbers them: 1 HtoH, 2 HtoD, 3 DtoH, 4 DtoD. */
static const uint8_t copy_kinds[CUPTI_COPY_END] = {
	[CUPTI_COPY_HTOD] = 2, [CUPTI_COPY_DTOH] = 3, [CUPTI_COPY_HTOA] = 2, [CUPTI_COPY_ATOH] = 3,
	[CUPTI_COPY_ATOA] = 4, [CUPTI_COPY_ATOD] = 4, [CUPTI_COPY_DTOA] = 4, [CUPTI_COPY_DTOD] = 4,
	[CUPTI_COPY_HTOH] = 1, [CUPTI_COPY_PTOP] = 4,
};

static bool wants(const struct cupti_walk *w, uint8_t kind)
{
	return w->kinds & ACTIVITY_BIT(kind);
}

static void emit_activity(struct cupti_walk *w, const struct collect_activity *a)
{
	w->emitted++;
	w->emit(a);
}

static void on_device(struct collect_activity *a, uint32_t device, uint32_t stream)
{
	a->place = ACTIVITY_ON_DEVICE;
	a->where[0] = device;
	a->where[1] = stream;
}

/* What NCCL runs is communication, for who asks for that; else it is a kernel like others. */
static bool emit_communication(struct cupti_walk *w, const struct collect_activity *kernel)
{
	struct collect_activity a = *kernel;
	struct nccl_kernel n;

	if (!(w->kinds & (ACTIVITY_BIT(ACTIVITY_COMMUNICATION) | ACTIVITY_BIT(ACTIVITY_HCCL))) ||
	    !nccl_kernel_read(a.name, &n))
		return false;
	a.name = n.name;
	a.detail = ""; /* nobody says which group it is */
	if (wants(w, ACTIVITY_HCCL)) {
		a.kind = ACTIVITY_HCCL;
		emit_activity(w, &a);
	}
	if (wants(w, ACTIVITY_COMMUNICATION)) {
		a.kind = ACTIVITY_COMMUNICATION;
		a.more_text = n.algorithm;
		a.data_type = n.data_type;
		emit_activity(w, &a);
	}
	return true;
}

static void emit_kernel(struct cupti_walk *w, const struct cupti_kernel *r)
{
	struct collect_activity a = {
		.kind = ACTIVITY_KERNEL,
		.start_ns = r->start,
		.end_ns = r->end,
		.correlation = r->correlation,
		.name = r->name ? r->name : "",
		.detail = "KERNEL_CUDA",
	};

	if (!r->start || r->end < r->start) {
		w->untimed++;
		return;
	}
	on_device(&a, r->device, r->stream);
	if (!emit_communication(w, &a) && wants(w, ACTIVITY_KERNEL))
		emit_activity(w, &a);
}

static void emit_copy(struct cupti_walk *w, const struct cupti_copy_record *r)
{
	struct collect_activity a = {
		.kind = ACTIVITY_MEMCPY,
		.start_ns = r->start,
		.end_ns = r->end,
		.correlation = r->correlation,
		.amount = r->bytes,
		.flag = r->copy_kind < CUPTI_COPY_END ? copy_kinds[r->copy_kind] : 0,
		.async = (r->flags & CUPTI_FLAG_ASYNC) != 0,
	};

	if (r->kind == CUPTI_MEMCPY2) {
		uint32_t id;
		memcpy(&id, (const char *)r + CUPTI_MEMCPY2_CORRELATION, sizeof(id));
		a.correlation = id;
	}
	if (!r->start || r->end < r->start) {
		w->untimed++;
		return;
	}
	on_device(&a, r->device, r->stream);
	if (wants(w, ACTIVITY_MEMCPY))
		emit_activity(w, &a);
}

static void emit_memset(struct cupti_walk *w, const struct cupti_memset *r)
{
	struct collect_activity a = {
		.kind = ACTIVITY_MEMSET,
		.start_ns = r->start,
		.end_ns = r->end,
		.correlation = r->correlation,
		.amount = r->bytes,
		.more = r->value,
		.async = (r->flags & CUPTI_FLAG_ASYNC) != 0,
	};

	if (!r->start || r->end < r->start) {
		w->untimed++;
		return;
	}
	on_device(&a, r->device, r->stream);
	if (wants(w, ACTIVITY_MEMSET))
		emit_activity(w, &a);
}

/* Memory of the host that the driver gave out (pinned) is the process' and no device's. */
static void emit_memory(struct cupti_walk *w, const struct cupti_memory *r)
{
	struct collect_activity a = {
		.kind = ACTIVITY_MEMORY,
		.start_ns = r->time,
		.end_ns = r->time,
		.correlation = r->correlation,
		.amount = r->bytes,
		.more = r->address,
		.flag = r->operation == CUPTI_MEMORY_RELEASED,
		.async = r->async != 0,
	};

	if (r->memory_kind == CUPTI_MEMORY_PAGEABLE || r->memory_kind == CUPTI_MEMORY_PINNED) {
		a.place = ACTIVITY_ON_HOST;
		a.where[0] = r->process;
	} else {
		on_device(&a, r->device, r->stream);
	}
	if (wants(w, ACTIVITY_MEMORY))
		emit_activity(w, &a);
}

/* Calls of the driver: under the first name of these that was asked for, once. */
static uint8_t driver_kind(uint32_t kinds)
{
	static const uint8_t order[] = {ACTIVITY_API, ACTIVITY_ACL_API, ACTIVITY_NODE_API};

	for (size_t i = 0; i < sizeof(order); i++)
		if (kinds & ACTIVITY_BIT(order[i]))
			return order[i];
	return 0;
}

static void emit_api(struct cupti_walk *w, const struct cupti_api *r)
{
	bool runtime = r->kind == CUPTI_RUNTIME;
	struct collect_activity a = {
		.kind = runtime ? ACTIVITY_RUNTIME_API : driver_kind(w->kinds),
		.start_ns = r->start,
		.end_ns = r->end < r->start ? r->start : r->end,
		.correlation = r->correlation,
		.place = ACTIVITY_ON_HOST,
		.where = {r->process, r->thread},
	};

	if (w->launches &&
	    cupti_is_launch(runtime ? CUPTI_DOMAIN_RUNTIME : CUPTI_DOMAIN_DRIVER, r->cbid)) {
		w->launched++;
		collect_launch(r->correlation, r->thread, r->start);
	}
	if (!a.kind || !wants(w, a.kind))
		return;
	a.name = cupti_call_name(w->fns, runtime ? CUPTI_DOMAIN_RUNTIME : CUPTI_DOMAIN_DRIVER,
				 r->cbid);
	emit_activity(w, &a);
}

static void emit_record(struct cupti_walk *w, uint32_t kind, const void *record)
{
	switch (kind) {
	case CUPTI_KERNEL:
		emit_kernel(w, record);
		break;
	case CUPTI_MEMCPY:
	case CUPTI_MEMCPY2:
		emit_copy(w, record);
		break;
	case CUPTI_MEMSET:
		emit_memset(w, record);
		break;
	case CUPTI_MEMORY2:
		emit_memory(w, record);
		break;
	default:
		emit_api(w, record);
		break;
	}
}

static void read_record(struct cupti_walk *w, const uint8_t *record, size_t bytes)
{
	uint32_t kind;

	memcpy(&kind, record, sizeof(kind));
	if (kind >= CUPTI_KIND_END || !extents[kind].read)
		return; /* somebody else has asked for these */
	if (bytes < (w->newer ? extents[kind].newest : extents[kind].read))
		w->strange++;
	else
		emit_record(w, kind, record);
}

/* Where the library says that the record after this one is; NULL: there is none. */
static uint8_t *next_of(const struct cupti_walk *w, uint8_t *buffer, size_t valid, uint8_t *record)
{
	void *next = record;

	return w->fns->next(buffer, valid, &next) == CUPTI_OK ? next : NULL;
}

bool cupti_walk_buffer(struct cupti_walk *w, uint8_t *buffer, size_t valid)
{
	uint8_t *end = buffer + valid;
	uint8_t *record = valid >= SMALLEST ? next_of(w, buffer, valid, NULL) : NULL;

	if (record && record != buffer)
		return false;
	while (record) {
		uint8_t *next = next_of(w, buffer, valid, record);
		if (next && (next < record + SMALLEST || next > end - SMALLEST ||
			     ((uintptr_t)next & 7) != 0))
			return false;
		read_record(w, record, (size_t)((next ? next : end) - record));
		record = next;
	}
	return true;
}
