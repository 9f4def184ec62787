/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Frames of a recording that somebody sent us, into the windows of monitors. Input: a sequence of
 * type (1 byte), length (2 bytes, little endian), payload. Some windows are open before: one that
 * sends metrics (nobody listens), one for a trace. Types from 16 on make a whole batch of one
 * record out of less: type - 16 is that of the record, the payload what comes behind its head, so
 * that a few bytes are enough for an activity that somebody wants. 255: time goes by.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "activity/windows/windows.h"
#include "base/log.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RECORD_TYPES 16
#define TIME_GOES_BY 255

static uint64_t now_ns;
static bool armed; /* what comes is of the input */

/* Nothing of an input may become a path that somebody could write to. */
static void disarm(uint32_t type, char *payload, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (payload[i] == '/')
			payload[i] = '_';
	if (type == FRAME_PROC && n == sizeof(struct frame_proc))
		((struct frame_proc *)payload)->pid = INT32_MAX; /* whose directory is nowhere */
}

/* A block of exactly its size, at a multiple of 8 as in the recorder. */
static void frame(struct activities *a, uint32_t type, const void *payload, size_t n)
{
	char *copy = xmalloc(n);

	if (n)
		memcpy(copy, payload, n);
	if (armed)
		disarm(type, copy, n);
	struct err err = {0};
	int r = stream_frame(&activities_stream, a, type, copy, n, &err);
	BUG_ON(r > 0 || (r < 0 && !err.text[0]));
	free(copy);
}

static void one_record(struct activities *a, uint8_t type, const uint8_t *body, size_t n)
{
	_Alignas(8) char bytes[sizeof(struct batch_item) + REC_MAX_SIZE] = {0};
	struct batch_item *it = (struct batch_item *)bytes;
	struct rec *r = (struct rec *)(it + 1);

	if (n > REC_MAX_SIZE - sizeof(*r))
		n = REC_MAX_SIZE - sizeof(*r);
	now_ns += 1000;
	*r = (struct rec){.type = type, .size = rec_size(sizeof(*r), n), .time_ns = now_ns};
	if (type == REC_ACTIVITY)
		r->size = sizeof(struct rec_activity);
	*it = (struct batch_item){BATCH_RUN, (uint32_t)sizeof(*it) + r->size, 0, 7};
	if (n)
		memcpy(r + 1, body, n);
	frame(a, FRAME_BATCH, bytes, it->bytes);
}

static void start(struct activities *a, uint64_t window, const char *order)
{
	struct rec_monitor m = {.window = window, .kind = MONITOR_START};
	char body[1024] = "";

	m.len = (uint16_t)strlen(order);
	memcpy(body, (const char *)&m + sizeof(struct rec), sizeof(m) - sizeof(struct rec));
	memcpy(body + sizeof(m) - sizeof(struct rec), order, m.len);
	one_record(a, REC_MONITOR, (const uint8_t *)body, sizeof(m) - sizeof(struct rec) + m.len);
}

#define ORDER                                                                                      \
	"NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false\nREPORT_INTERVAL_S=1\nDURATION=0\n"        \
	"MSPTI_ACTIVITY_KIND=Marker,Kernel,API,Hccl,Memory,MemSet,MemCpy,Communication\n"          \
	"NPU_MONITOR_EXPORT_TYPE=DB\nSONDE_DAEMON=@sonde-fuzz-nobody\n"

/* No file is written: those of these windows cannot be made. */
static void begin(struct activities *a)
{
	static const char session[] = "{\"wallMinusMono\":1700000000000000000}";
	struct frame_proc p = {.pid = INT32_MAX};

	now_ns = 1000;
	armed = false;
	frame(a, FRAME_SESSION, session, sizeof(session) - 1);
	frame(a, FRAME_PROC, &p, sizeof(p));
	start(a, 1, ORDER "NPU_MONITOR_LOG_FILE=\n");
	start(a, 2, ORDER "NPU_MONITOR_LOG_FILE=\nNPU_MONITOR_FILTER=Kernel:a;Marker:b,c\n");
	start(a, 3, ORDER "NPU_MONITOR_LOG_FILE=/proc/nobody/can/write\n");
	start(a, 4,
	      "ACTIVITIES_LOG_FILE=/proc/nobody/can\nACTIVITIES_ITERATIONS=1\n"
	      "PROFILE_WITH_STACK=true\nPROFILE_PROFILE_MEMORY=true\n"
	      "PROFILE_MSPROF_TX=true\nPROFILE_ANALYSE=true\n");
	armed = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct activities *a = activities_new();

	log_set_level(LOG_ERROR + 1);
	begin(a);
	while (size >= 3) {
		size_t n = data[1] | (size_t)data[2] << 8;
		uint8_t type = data[0];
		data += 3;
		size -= 3;
		if (n > size)
			n = size;
		if (type == TIME_GOES_BY)
			activities_tick(a, now_ns += 700000000);
		else if (type >= RECORD_TYPES)
			one_record(a, type - RECORD_TYPES, data, n);
		else
			frame(a, type, data, n);
		data += n;
		size -= n;
	}
	activities_flush(a);
	activities_free(a);
	return 0;
}
