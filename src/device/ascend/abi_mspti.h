/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The part of libmspti.so's interface that is used here, declared by its layout: records are
 * packed, most of their 64-bit fields lie on odd multiples of four, and each record's size is
 * rounded up to a multiple of eight.
 */
#ifndef SONDE_DEVICE_ASCEND_ABI_MSPTI_H
#define SONDE_DEVICE_ASCEND_ABI_MSPTI_H

#include <stddef.h>
#include <stdint.h>

enum mspti_result {
	MSPTI_OK = 0,
	MSPTI_INVALID = 1,
	MSPTI_OTHER_SUBSCRIBER = 2, /* there can be one per process */
	MSPTI_END = 3, /* of the records in a buffer */
	MSPTI_NO_PRELOAD = 6, /* this kind only where the library was preloaded */
};

enum mspti_source { MSPTI_HOST = 0, MSPTI_DEVICE = 1 };

/* Kinds are numbered as enum activity_kind in wire/record.h. */

#define MSPTI_RECORD struct __attribute__((packed))

MSPTI_RECORD mspti_api
{
	int32_t kind;
	uint64_t start, end;
	uint32_t process, thread;
	uint64_t correlation;
	const char *name;
	uint32_t pad;
};

MSPTI_RECORD mspti_kernel
{
	int32_t kind;
	uint64_t start, end;
	uint32_t device, stream;
	uint64_t correlation;
	const char *type, *name;
	uint32_t pad;
};

MSPTI_RECORD mspti_marker
{
	int32_t kind;
	int32_t flag;
	int32_t source;
	uint64_t time;
	uint64_t id;
	uint32_t where[2]; /* process and thread, or device and stream */
	const char *name, *domain;
	uint32_t pad;
};

MSPTI_RECORD mspti_hccl
{
	int32_t kind;
	uint64_t start, end;
	uint32_t device, stream;
	double bandwidth; /* GB/s */
	const char *name, *group;
	uint32_t pad;
};

MSPTI_RECORD mspti_memory
{
	int32_t kind;
	int32_t operation;
	int32_t memory;
	uint64_t correlation;
	uint64_t start, end;
	uint64_t address, bytes;
	uint32_t process, device, stream;
};

/* Of a set and of a copy alike: `what` is the value, or the kind of the copy. */
MSPTI_RECORD mspti_transfer
{
	int32_t kind;
	uint32_t what;
	uint64_t bytes;
	uint64_t start, end;
	uint32_t device, stream;
	uint64_t correlation;
	uint8_t async;
	uint8_t pad[7];
};

MSPTI_RECORD mspti_external
{
	int32_t kind;
	int32_t external_kind;
	uint64_t external, correlation;
};

MSPTI_RECORD mspti_communication
{
	int32_t kind;
	int32_t data_type;
	uint64_t count;
	uint32_t device, stream;
	uint64_t start, end;
	const char *algorithm, *name, *group;
	uint64_t correlation;
};

#define MSPTI_AT(type, field, at)                                                                  \
	_Static_assert(offsetof(struct type, field) == (at), #type "." #field " is elsewhere")
#define MSPTI_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type " changed size")
MSPTI_AT(mspti_api, start, 4);
MSPTI_AT(mspti_api, correlation, 28);
MSPTI_AT(mspti_api, name, 36);
MSPTI_SIZE(mspti_api, 48);
MSPTI_AT(mspti_kernel, type, 36);
MSPTI_AT(mspti_kernel, name, 44);
MSPTI_SIZE(mspti_kernel, 56);
MSPTI_AT(mspti_marker, time, 12);
MSPTI_AT(mspti_marker, where, 28);
MSPTI_AT(mspti_marker, domain, 44);
MSPTI_SIZE(mspti_marker, 56);
MSPTI_AT(mspti_hccl, bandwidth, 28);
MSPTI_AT(mspti_hccl, group, 44);
MSPTI_SIZE(mspti_hccl, 56);
MSPTI_AT(mspti_memory, start, 20);
MSPTI_AT(mspti_memory, bytes, 44);
MSPTI_AT(mspti_memory, stream, 60);
MSPTI_SIZE(mspti_memory, 64);
MSPTI_AT(mspti_transfer, start, 16);
MSPTI_AT(mspti_transfer, correlation, 40);
MSPTI_AT(mspti_transfer, async, 48);
MSPTI_SIZE(mspti_transfer, 56);
MSPTI_SIZE(mspti_external, 24);
MSPTI_AT(mspti_communication, start, 24);
MSPTI_AT(mspti_communication, group, 56);
MSPTI_AT(mspti_communication, correlation, 64);
MSPTI_SIZE(mspti_communication, 72);

typedef void (*mspti_request_fn)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*mspti_complete_fn)(uint8_t *buffer, size_t size, size_t valid);

/* Calls of the job that the library calls back for. */
enum mspti_calls { MSPTI_CALLS_RUNTIME = 1 };
enum mspti_runtime_call {
	MSPTI_CALL_LAUNCH = 10,
	MSPTI_CALL_AICPU_LAUNCH = 12,
	MSPTI_CALL_MEMCPY = 22,
	MSPTI_CALL_MEMCPY_ASYNC = 24,
	MSPTI_CALL_MEMSET = 27,
};
enum mspti_call_site { MSPTI_CALL_BEGINS = 0 };

struct mspti_call {
	int32_t site;
	const char *function;
	const void *params, *result;
	const char *symbol;
	uint64_t correlation; /* as in the record of what it launches */
	uint64_t reserved[2];
	uint64_t *user;
};
MSPTI_AT(mspti_call, correlation, 40);
MSPTI_SIZE(mspti_call, 72);

/* Its functions; every one returns enum mspti_result. */
struct mspti {
	int (*subscribe)(void **out, void *callback, void *arg);
	int (*unsubscribe)(void *subscriber);
	int (*register_callbacks)(mspti_request_fn request, mspti_complete_fn complete);
	int (*enable)(int kind);
	int (*disable)(int kind);
	/*
	 * The cursor is the thread's own, whatever the buffer. It goes back to the beginning where
	 * the records end, and nowhere else: not where a record is of no known kind.
	 */
	int (*next)(uint8_t *buffer, size_t valid, void **record);
	int (*flush)(uint32_t flag);
	/* Not in every version: */
	int (*enable_domain)(const char *name);
	int (*disable_domain)(const char *name);
	int (*dropped)(void *context, uint32_t stream, size_t *out); /* since it was asked last */
	int (*enable_call)(uint32_t on, void *subscriber, int domain, uint32_t call);
};

#endif
