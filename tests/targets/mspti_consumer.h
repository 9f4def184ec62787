/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A user of MSPTI as a tool would be: loads the library at run time, hands out buffers, walks those
 * that come back and prints every record as a line of JSON. For programs of one file.
 */
#ifndef TESTS_MSPTI_CONSUMER_H
#define TESTS_MSPTI_CONSUMER_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mspti/mspti.h"

#define MSPTI_FUNCTIONS(X)                                                                         \
	X(msptiSubscribe)                                                                          \
	X(msptiUnsubscribe)                                                                        \
	X(msptiActivityRegisterCallbacks)                                                          \
	X(msptiActivityEnable)                                                                     \
	X(msptiActivityDisable)                                                                    \
	X(msptiActivityIsEnabled)                                                                  \
	X(msptiActivityGetNextRecord)                                                              \
	X(msptiActivityFlushAll)                                                                   \
	X(msptiActivityFlushPeriod)                                                                \
	X(msptiActivityEnableMarkerDomain)                                                         \
	X(msptiActivityDisableMarkerDomain)                                                        \
	X(msptiActivityPushExternalCorrelationId)                                                  \
	X(msptiActivityPopExternalCorrelationId)                                                   \
	X(msptiEnableCallback)                                                                     \
	X(msptiEnableDomain)                                                                       \
	X(sim_mspti_dropped)                                                                       \
	X(sim_mspti_recorded)

static struct {
#define X(name) __typeof__(name) *name;
	MSPTI_FUNCTIONS(X)
#undef X
} mspti;

static size_t buffer_bytes = 4u << 20;
static _Atomic int buffers_out;
static int buffers_allowed = 1 << 30;
static _Atomic uint64_t buffers_completed;
static _Atomic uint64_t buffers_null;
static _Atomic uint64_t records_seen;
static _Atomic uint64_t bytes_seen;
static int print_records = 1;
static FILE *records_to;
static pthread_mutex_t print_lock = PTHREAD_MUTEX_INITIALIZER;

static int mspti_load(void)
{
	void *lib = dlopen("libmspti.so", RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "no libmspti.so: %s\n", dlerror());
		return -1;
	}
#define X(name)                                                                                    \
	*(void **)&mspti.name = dlsym(lib, #name);                                                 \
	if (!mspti.name)                                                                           \
		return -1;
	MSPTI_FUNCTIONS(X)
#undef X
	return 0;
}

static void print_text(FILE *f, const char *key, const char *text)
{
	if (!text) {
		fprintf(f, ",\"%s\":null", key);
		return;
	}
	fprintf(f, ",\"%s\":\"", key);
	for (const unsigned char *at = (const unsigned char *)text; *at; at++)
		if (*at < 0x20 || *at >= 0x7f || *at == '"' || *at == '\\')
			fprintf(f, "\\u%04x", *at);
		else
			putc(*at, f);
	putc('"', f);
}

#define NUMBER(key, value) fprintf(f, ",\"" key "\":%llu", (unsigned long long)(value))

static void print_span(FILE *f, uint64_t start, uint64_t end)
{
	NUMBER("start", start);
	NUMBER("end", end);
}

static void print_device(FILE *f, uint32_t device, uint32_t stream)
{
	NUMBER("device", device);
	NUMBER("stream", stream);
}

static void print_marker(FILE *f, const msptiActivityMarker *m)
{
	NUMBER("flag", m->flag);
	NUMBER("source", m->sourceKind);
	NUMBER("time", m->timestamp);
	NUMBER("id", m->id);
	if (m->sourceKind == MSPTI_ACTIVITY_SOURCE_KIND_DEVICE) {
		print_device(f, m->objectId.ds.deviceId, m->objectId.ds.streamId);
	} else {
		NUMBER("pid", m->objectId.pt.processId);
		NUMBER("tid", m->objectId.pt.threadId);
	}
	print_text(f, "name", m->name);
	print_text(f, "domain", m->domain);
}

static void print_memory(FILE *f, const msptiActivityMemory *m)
{
	NUMBER("operation", m->memoryOperationType);
	NUMBER("memory", m->memoryKind);
	NUMBER("correlation", m->correlationId);
	print_span(f, m->start, m->end);
	NUMBER("address", m->address);
	NUMBER("bytes", m->bytes);
	NUMBER("pid", m->processId);
	print_device(f, m->deviceId, m->streamId);
}

static void print_communication(FILE *f, const msptiActivityCommunication *c)
{
	NUMBER("type", c->dataType);
	NUMBER("count", c->count);
	print_device(f, c->ds.deviceId, c->ds.streamId);
	print_span(f, c->start, c->end);
	print_text(f, "algorithm", c->algType);
	print_text(f, "name", c->name);
	print_text(f, "comm", c->commName);
	NUMBER("correlation", c->correlationId);
}

/* Memset and Memcpy differ in one word. */
static void print_transfer(FILE *f, const msptiActivityMemcpy *m)
{
	NUMBER("value", m->copyKind);
	NUMBER("bytes", m->bytes);
	print_span(f, m->start, m->end);
	print_device(f, m->deviceId, m->streamId);
	NUMBER("correlation", m->correlationId);
	NUMBER("async", m->isAsync);
}

static void print_api(FILE *f, const msptiActivityApi *a)
{
	print_span(f, a->start, a->end);
	NUMBER("pid", a->pt.processId);
	NUMBER("tid", a->pt.threadId);
	NUMBER("correlation", a->correlationId);
	print_text(f, "name", a->name);
}

static void print_kernel(FILE *f, const msptiActivityKernel *k)
{
	print_span(f, k->start, k->end);
	print_device(f, k->ds.deviceId, k->ds.streamId);
	NUMBER("correlation", k->correlationId);
	print_text(f, "type", k->type);
	print_text(f, "name", k->name);
}

static void print_hccl(FILE *f, const msptiActivityHccl *h)
{
	print_span(f, h->start, h->end);
	print_device(f, h->ds.deviceId, h->ds.streamId);
	fprintf(f, ",\"bandwidth\":%g", h->bandWidth);
	print_text(f, "name", h->name);
	print_text(f, "comm", h->commName);
}

static void print_record(FILE *f, const msptiActivity *r)
{
	const void *at = r;
	fprintf(f, "{\"kind\":%d", r->kind);
	switch (r->kind) {
	case MSPTI_ACTIVITY_KIND_MARKER:
		print_marker(f, at);
		break;
	case MSPTI_ACTIVITY_KIND_KERNEL:
		print_kernel(f, at);
		break;
	case MSPTI_ACTIVITY_KIND_HCCL:
		print_hccl(f, at);
		break;
	case MSPTI_ACTIVITY_KIND_MEMORY:
		print_memory(f, at);
		break;
	case MSPTI_ACTIVITY_KIND_MEMSET:
	case MSPTI_ACTIVITY_KIND_MEMCPY:
		print_transfer(f, at);
		break;
	case MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
		const msptiActivityExternalCorrelation *e = at;
		NUMBER("external_kind", e->externalKind);
		NUMBER("external", e->externalId);
		NUMBER("correlation", e->correlationId);
		break;
	}
	case MSPTI_ACTIVITY_KIND_COMMUNICATION:
		print_communication(f, at);
		break;
	default:
		print_api(f, at);
	}
	fputs("}\n", f);
}

static void consumer_request(uint8_t **buffer, size_t *size, size_t *maxNumRecords)
{
	*maxNumRecords = 0;
	*buffer = NULL;
	*size = 0;
	if (atomic_load(&buffers_out) >= buffers_allowed)
		return;
	*buffer = aligned_alloc(8, buffer_bytes);
	if (*buffer) {
		*size = buffer_bytes;
		atomic_fetch_add(&buffers_out, 1);
	}
}

static void consumer_complete(uint8_t *buffer, size_t size, size_t valid)
{
	msptiActivity *r;
	(void)size;
	if (!buffer) {
		atomic_fetch_add(&buffers_null, 1);
		return;
	}
	if (print_records)
		pthread_mutex_lock(&print_lock);
	uint64_t n = 0;
	while (mspti.msptiActivityGetNextRecord(buffer, valid, &r) == MSPTI_SUCCESS) {
		n++;
		if (print_records)
			print_record(records_to ? records_to : stdout, r);
	}
	if (print_records)
		pthread_mutex_unlock(&print_lock);
	atomic_fetch_add(&records_seen, n);
	atomic_fetch_add(&bytes_seen, valid);
	atomic_fetch_add(&buffers_completed, 1);
	atomic_fetch_sub(&buffers_out, 1);
	free(buffer);
}

/* "2,9": numbers of kinds. The first refusal, or 0. */
static inline int consumer_start(const char *kinds)
{
	if (mspti_load() ||
	    mspti.msptiActivityRegisterCallbacks(consumer_request, consumer_complete))
		return -1;
	while (*kinds) {
		char *end;
		int kind = (int)strtol(kinds, &end, 10);
		int r = (int)mspti.msptiActivityEnable((msptiActivityKind)kind);
		if (r)
			return r;
		kinds = *end ? end + 1 : end;
	}
	return 0;
}

#endif
