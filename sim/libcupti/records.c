/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What records look like in each version, and the job's side, which makes them. */
#include "cupti/cupti.h"

#include "record.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LONGEST 256
#define CBID_COPY 41
#define CBID_SET 51
#define CBID_LAUNCH 211
#define CBID_DRIVER_LAUNCH 307

/* Where times and names are; 0: it has none. */
struct place {
	uint16_t start, end;
};

static uint32_t version(void)
{
	const char *text = getenv("SIM_CUPTI_VERSION");

	return text && *text ? (uint32_t)strtoul(text, NULL, 10) : 130001;
}

int cuptiGetVersion(uint32_t *out)
{
	*out = version();
	return CUPTI_SUCCESS;
}

static size_t size_of(uint32_t kind)
{
	uint32_t v = version();

	switch (kind) {
	case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
		return v >= 140000   ? (getenv("SIM_CUPTI_SHORT") ? 96 : 256)
		       : v >= 130400 ? 248
		       : v >= 130000 ? 216
				     : 208;
	case CUPTI_ACTIVITY_KIND_MEMCPY:
		return v >= 130400 ? 112 : v >= 28 ? 96 : 88;
	case CUPTI_ACTIVITY_KIND_MEMCPY2:
		return 96;
	case CUPTI_ACTIVITY_KIND_MEMSET:
		return v >= 130400 ? 104 : 88;
	case CUPTI_ACTIVITY_KIND_MEMORY2:
		return v >= 28 ? 128 : 120;
	case CUPTI_ACTIVITY_KIND_RUNTIME:
	case CUPTI_ACTIVITY_KIND_DRIVER:
		return 40;
	default:
		return 0;
	}
}

static struct place place_of(uint32_t kind)
{
	switch (kind) {
	case CUPTI_ACTIVITY_KIND_MEMORY2:
		return (struct place){32, 0};
	case CUPTI_ACTIVITY_KIND_RUNTIME:
	case CUPTI_ACTIVITY_KIND_DRIVER:
		return (struct place){8, 16};
	default:
		return (struct place){16, 24};
	}
}

/* The record after this one; NULL: there is none. */
static uint8_t *step(uint8_t *buffer, size_t valid, uint8_t *record)
{
	size_t at = record ? (size_t)(record - buffer) : 0;
	uint32_t kind;

	if (record) {
		memcpy(&kind, record, 4);
		at += size_of(kind);
	}
	if (at + 8 > valid)
		return NULL;
	memcpy(&kind, buffer + at, 4);
	return size_of(kind) ? buffer + at : NULL;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
	uint8_t *next = step(buffer, valid, *record);

	if (!next)
		return CUPTI_ERROR_MAX_LIMIT_REACHED;
	*record = next;
	return CUPTI_SUCCESS;
}

void sim_cut_unfinished(uint8_t *buffer, size_t used, uint64_t now)
{
	for (uint8_t *r = NULL; (r = step(buffer, used, r)) != NULL;) {
		uint32_t kind;
		uint64_t end, none = 0;
		memcpy(&kind, r, 4);
		struct place p = place_of(kind);
		if (!p.end)
			continue;
		memcpy(&end, r + p.end, 8);
		if (end > now)
			memcpy(r + p.end, &none, 8);
	}
}

static void convert_at(uint8_t *at, uint64_t offset)
{
	uint64_t t;

	memcpy(&t, at, 8);
	if (t)
		t += offset;
	memcpy(at, &t, 8);
}

void sim_convert(uint8_t *buffer, size_t used, uint64_t offset)
{
	for (uint8_t *r = NULL; (r = step(buffer, used, r)) != NULL;) {
		uint32_t kind;
		memcpy(&kind, r, 4);
		if (kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER)
			continue; /* have what the clock said */
		struct place p = place_of(kind);
		convert_at(r + p.start, offset);
		if (p.end)
			convert_at(r + p.end, offset);
	}
}

int cuptiGetCallbackName(int domain, uint32_t cbid, const char **name)
{
	if (domain == 2 && cbid == CBID_LAUNCH)
		*name = "cudaLaunchKernel_v7000";
	else if (domain == 2 && cbid == CBID_COPY)
		*name = "cudaMemcpyAsync_v3020";
	else if (domain == 2 && cbid == CBID_SET)
		*name = "cudaMemsetAsync_v3020";
	else if (domain == 1 && cbid == CBID_DRIVER_LAUNCH)
		*name = "cuLaunchKernel";
	else
		return CUPTI_ERROR_INVALID_PARAMETER;
	return CUPTI_SUCCESS;
}

/* --- the job's side --- */

#define PUT(at, value) memcpy(r + (at), &(value), sizeof(value))

static void note(uint8_t *r, uint32_t kind, uint64_t start, uint64_t end)
{
	struct place p = place_of(kind);

	PUT(0, kind);
	PUT(p.start, start);
	if (p.end)
		PUT(p.end, end);
	if (size_of(kind))
		sim_note((int)kind, r, size_of(kind), end);
}

/* A call that is under way. */
struct call {
	uint32_t kind, cbid;
	uint64_t start; /* as the registered clock has it; 0: not reported */
};

static struct call begin_call(uint32_t kind, uint32_t cbid)
{
	uint64_t start = sim_call_is_on((int)kind, cbid) ? sim_call_clock() : 0;

	return (struct call){kind, cbid, start};
}

/* At least. */
static uint64_t call_ns(void)
{
	const char *text = getenv("SIM_CUDA_CALL_US");

	return text ? strtoull(text, NULL, 10) * 1000 : 0;
}

static void end_call(const struct call *c, uint32_t correlation)
{
	uint8_t r[LONGEST] = {0};
	uint32_t pid = (uint32_t)getpid();
	uint32_t tid = sim_thread_ids() ? (uint32_t)syscall(SYS_gettid) : (uint32_t)pthread_self();

	if (!c->start)
		return;
	for (uint64_t least = call_ns(); sim_call_clock() - c->start < least;)
		;
	PUT(4, c->cbid);
	PUT(24, pid);
	PUT(28, tid);
	PUT(32, correlation);
	note(r, c->kind, c->start, sim_call_clock());
}

static uint32_t next_correlation(void)
{
	static _Atomic uint32_t n;

	return atomic_fetch_add(&n, 1) + 1;
}

uint32_t simCudaKernel(const char *name, uint32_t device, uint32_t stream, uint64_t ns)
{
	struct call runtime = begin_call(CUPTI_ACTIVITY_KIND_RUNTIME, CBID_LAUNCH);
	struct call driver = begin_call(CUPTI_ACTIVITY_KIND_DRIVER, CBID_DRIVER_LAUNCH);
	uint8_t r[LONGEST] = {0};
	uint32_t id = next_correlation();
	uint64_t now = sim_now();

	PUT(40, device);
	PUT(48, stream);
	PUT(92, id);
	PUT(104, name);
	note(r, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, now, now + ns);
	end_call(&driver, id);
	end_call(&runtime, id);
	return id;
}

void simCudaMemcpy(uint32_t device, uint32_t stream, uint8_t kind, uint64_t bytes, uint64_t ns)
{
	struct call runtime = begin_call(CUPTI_ACTIVITY_KIND_RUNTIME, CBID_COPY);
	uint8_t r[LONGEST] = {0}, async = 1;
	uint32_t id = next_correlation();
	uint64_t now = sim_now();
	int peer = kind == 10;

	PUT(4, kind);
	PUT(7, async);
	PUT(8, bytes);
	PUT(32, device);
	PUT(40, stream);
	PUT(peer ? 60 : 44, id);
	note(r, peer ? CUPTI_ACTIVITY_KIND_MEMCPY2 : CUPTI_ACTIVITY_KIND_MEMCPY, now, now + ns);
	end_call(&runtime, id);
}

void simCudaMemset(uint32_t device, uint32_t stream, uint32_t value, uint64_t bytes)
{
	struct call runtime = begin_call(CUPTI_ACTIVITY_KIND_RUNTIME, CBID_SET);
	uint8_t r[LONGEST] = {0};
	uint32_t id = next_correlation();
	uint64_t now = sim_now();

	PUT(4, value);
	PUT(8, bytes);
	PUT(32, device);
	PUT(40, stream);
	PUT(44, id);
	note(r, CUPTI_ACTIVITY_KIND_MEMSET, now, now + 100);
	end_call(&runtime, id);
}

void simCudaMemory(uint32_t device, int released, uint32_t kind, uint64_t address, uint64_t bytes)
{
	uint8_t r[LONGEST] = {0};
	uint32_t op = released ? 2 : 1, id = next_correlation(), pid = (uint32_t)getpid();

	PUT(4, op);
	PUT(8, kind);
	PUT(12, id);
	PUT(16, address);
	PUT(24, bytes);
	PUT(48, pid);
	PUT(52, device);
	note(r, CUPTI_ACTIVITY_KIND_MEMORY2, sim_now(), 0);
}
