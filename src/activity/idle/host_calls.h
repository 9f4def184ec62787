/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the name of a slice of a host's thread says: whose code it is, and what kind of work. Names
 * are those of our traces and of PyTorch's profiler:
 *
 *	/srv/job/train.py(18): train			a function of Python; paths may be cut
 *	<built-in method acquire of _thread.lock object at 0x7f…>
 *	<garbage collection>
 *	cudaMalloc, aclrtMallocImpl			a call of a library
 *	aten::item, enumerate(DataLoader)#…__next__	an operator, a range
 */
#ifndef SONDE_ACTIVITY_IDLE_HOST_CALLS_H
#define SONDE_ACTIVITY_IDLE_HOST_CALLS_H

#include "activity/steps/idle.h"
#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "unwind/python/origin.h"

enum host_kind { HOST_PYTHON, HOST_CALL, HOST_RANGE };

struct host_call {
	const char *name; /* as it came */
	enum host_kind kind;
	enum idle_why why; /* IDLE_UNKNOWN: nothing special */
	bool broad; /* its kind of work is that of all that it calls */
	bool launches; /* work of a device */
	enum python_origin origin; /* of a function of Python with a file */
	const char *function; /* all three in `name`; function is the name if there is no file */
	const char *file;
	size_t file_len; /* 0: there is none */
	int32_t line; /* 0 */
	int32_t caller_line; /* where the function that made it has made it; 0: not known */
};

/* What stands for allocations of the driver whose calls are not known. */
#define HOST_ALLOCATIONS "driver allocations"

/* The calls of a job, each once. Zero-initialise and release. */
struct host_calls {
	struct hmap by_name;
};

/* Names are copied. */
const struct host_call *host_call_find(struct host_calls *h, enum host_kind kind, const char *name,
				       int32_t caller_line);
void host_calls_release(struct host_calls *h);

/* "train (train.py:18)", "cudaMalloc"; line 0: that at which the function begins. */
void host_call_add(const struct host_call *c, int32_t line, struct buf *out);

#endif
