/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Records of what devices execute, and of the monitor that collects it. */
#ifndef SONDE_WIRE_RECORD_ACTIVITY_H
#define SONDE_WIRE_RECORD_ACTIVITY_H

#include "wire/record.h"

/* Kinds of activities, and of their sources' marks; the numbers are MSPTI's. */
enum activity_kind {
	ACTIVITY_MARKER = 1,
	ACTIVITY_KERNEL = 2,
	ACTIVITY_API = 3,
	ACTIVITY_HCCL = 4,
	ACTIVITY_MEMORY = 5,
	ACTIVITY_MEMSET = 6,
	ACTIVITY_MEMCPY = 7,
	ACTIVITY_EXTERNAL = 8, /* never recorded */
	ACTIVITY_COMMUNICATION = 9,
	ACTIVITY_ACL_API = 10,
	ACTIVITY_NODE_API = 11,
	ACTIVITY_RUNTIME_API = 12,
	ACTIVITY_KIND_END,
};
#define ACTIVITY_BIT(kind) (1u << (kind))
#define ACTIVITY_APIS                                                                              \
	(ACTIVITY_BIT(ACTIVITY_API) | ACTIVITY_BIT(ACTIVITY_ACL_API) |                             \
	 ACTIVITY_BIT(ACTIVITY_NODE_API) | ACTIVITY_BIT(ACTIVITY_RUNTIME_API))

enum activity_place { ACTIVITY_ON_HOST = 0, ACTIVITY_ON_DEVICE = 1 };

enum activity_mark { /* flag of a marker: */
		     ACTIVITY_MARK_INSTANT = 1,
		     ACTIVITY_MARK_START = 2,
		     ACTIVITY_MARK_END = 4,
		     /* of a mark that a stream passes, too, there are records of the host and of
			the device */
		     ACTIVITY_MARK_INSTANT_DEVICE = 8,
		     ACTIVITY_MARK_START_DEVICE = 16,
		     ACTIVITY_MARK_END_DEVICE = 32,
};

#define ACTIVITY_NOWHERE UINT32_MAX

/* Keys of notes of a window of `sonde record`, with the time (CLOCK_MONOTONIC): nothing is reported
 * meanwhile, since another profiler has the vendor's library. */
#define WINDOW_GAP_BEGINS "GAP_BEGINS"
#define WINDOW_GAP_ENDS "GAP_ENDS"

/*
 * Written after it has ended: head.time_ns is when. Its own times may lie seconds before, and come
 * in no order. Texts are hashes; each comes as REC_NAME of the same process before its first use.
 * 0: none.
 *
 *	kind            name      detail      more       amount          flag
 *	marker          message   domain                                 activity_mark
 *	kernel          kernel    its type
 *	… api           function
 *	hccl            operator  group                  bytes per s
 *	memory                                address    bytes           0 allocated, 1 released
 *	memset                                value      bytes
 *	memcpy                                           bytes           MSPTI's copy kind
 *	communication   operator  group       algorithm  elements
 */
struct rec_activity {
	struct rec head;
	uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC; of a marker both are its time */
	uint64_t correlation; /* of a marker its id; a launch and its kernel have the same one */
	uint64_t name;
	uint64_t detail;
	uint64_t more;
	uint64_t amount;
	uint32_t where[2]; /* on the host: process and thread; else device and stream */
	uint8_t kind; /* enum activity_kind */
	uint8_t flag;
	uint8_t place; /* enum activity_place */
	uint8_t async;
	uint16_t data_type; /* of a communication, as MSPTI numbers them */
	uint16_t reserved;
};

enum rec_monitor_kind {
	MONITOR_REQUEST = 0, /* text: the next piece of a request (wire/request.h) */
	MONITOR_START = 1, /* a window begins; the pieces before this are its request; value: 0, or
			    * when it began in a session that was left */
	MONITOR_CHANGE = 2, /* the pieces before this are another request for it */
	MONITOR_STOP = 3, /* everything that it is to hold has been written */
	MONITOR_LOST =
		4, /* value: activities that the source could not deliver, more than before */
	MONITOR_STEP = 5, /* value: number of the step that begins now; while a trace runs */
	MONITOR_GROUPS =
		6, /* text: the next piece of what is known about the job's groups (JSON) */
	MONITOR_NOTE = 7, /* text: a key of the request, a blank, why it is not carried out */
	MONITOR_END = 8, /* by request the trace ends now, before its last step has ended */
};

/*
 * A window of the monitor: what one request of npu-monitor or nputrace records. Counted per
 * process, from 1. A request that is longer than a record comes in pieces; a process that moved to
 * another session opens the same window there once more.
 *
 *	REQUEST* START  [REQUEST* CHANGE]*  [STEP | LOST | NOTE | GROUPS]*  [END]  STOP
 */
struct rec_monitor {
	struct rec head;
	uint64_t window;
	uint64_t value;
	int32_t rank; /* -1: not known */
	uint8_t kind;
	uint8_t reserved;
	uint16_t len;
	char text[];
};

_Static_assert(sizeof(struct rec_activity) == 88, "rec_activity changed size");
_Static_assert(sizeof(struct rec_monitor) == 40, "rec_monitor changed size");

#endif
