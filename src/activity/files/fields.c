/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/files/fields.h"

#include "activity/files/activity.h"

#define AT(member) offsetof(struct activity, member)
#define KIND                                                                                       \
	{                                                                                          \
		"kind", FIELD_KIND, AT(kind)                                                       \
	}
#define START                                                                                      \
	{                                                                                          \
		"startNs", FIELD_U64, AT(start_ns)                                                 \
	}
#define END                                                                                        \
	{                                                                                          \
		"endNs", FIELD_U64, AT(end_ns)                                                     \
	}
#define DEVICE                                                                                     \
	{                                                                                          \
		"deviceId", FIELD_U32, AT(device)                                                  \
	}
#define STREAM                                                                                     \
	{                                                                                          \
		"streamId", FIELD_U32, AT(stream)                                                  \
	}
#define NAME                                                                                       \
	{                                                                                          \
		"name", FIELD_TEXT, AT(name)                                                       \
	}
#define CORRELATION                                                                                \
	{                                                                                          \
		"correlationId", FIELD_U64, AT(correlation)                                        \
	}
#define BYTES                                                                                      \
	{                                                                                          \
		"bytes", FIELD_U64, AT(amount)                                                     \
	}
#define ASYNC                                                                                      \
	{                                                                                          \
		"async", FIELD_BOOL, AT(async)                                                     \
	}
#define LAST                                                                                       \
	{                                                                                          \
		NULL, FIELD_U64, 0                                                                 \
	}

static const struct activity_field api[] = {
	CORRELATION,
	END,
	KIND,
	NAME,
	{"processId", FIELD_U32, AT(pid)},
	START,
	{"threadId", FIELD_U32, AT(tid)},
	LAST,
};
static const struct activity_field kernel[] = {
	CORRELATION, DEVICE, END, KIND, NAME, START, STREAM, {"type", FIELD_TEXT, AT(detail)}, LAST,
};
static const struct activity_field communication[] = {
	{"algType", FIELD_TEXT, AT(more)},
	{"commName", FIELD_TEXT, AT(detail)},
	CORRELATION,
	{"count", FIELD_U64, AT(amount)},
	{"dataType", FIELD_DATA_TYPE, AT(data_type)},
	DEVICE,
	END,
	KIND,
	NAME,
	START,
	STREAM,
	LAST,
};
static const struct activity_field host_mark[] = {
	{"domain", FIELD_TEXT, AT(detail)},
	END,
	{"id", FIELD_U64, AT(correlation)},
	KIND,
	NAME,
	{"processId", FIELD_U32, AT(pid)},
	{"sourceKind", FIELD_SOURCE, AT(place)},
	START,
	{"threadId", FIELD_U32, AT(tid)},
	LAST,
};
static const struct activity_field device_mark[] = {
	DEVICE,
	{"domain", FIELD_TEXT, AT(detail)},
	END,
	{"id", FIELD_U64, AT(correlation)},
	KIND,
	NAME,
	{"sourceKind", FIELD_SOURCE, AT(place)},
	START,
	STREAM,
	LAST,
};
static const struct activity_field hccl[] = {
	{"bytesPerSecond", FIELD_U64, AT(amount)},
	{"commName", FIELD_TEXT, AT(detail)},
	DEVICE,
	END,
	KIND,
	NAME,
	START,
	STREAM,
	LAST,
};
static const struct activity_field memory[] = {
	{"address", FIELD_U64, AT(number)},	  BYTES, CORRELATION, DEVICE, END, KIND,
	{"operation", FIELD_OPERATION, AT(flag)}, START, STREAM,      LAST,
};
static const struct activity_field set[] = {
	ASYNC,	BYTES,	CORRELATION,
	DEVICE, END,	KIND,
	START,	STREAM, {"value", FIELD_U64, AT(number)},
	LAST,
};
static const struct activity_field copy[] = {
	ASYNC,	     BYTES,  {"copyKind", FIELD_COPY_KIND, AT(flag)},
	CORRELATION, DEVICE, END,
	KIND,	     START,  STREAM,
	LAST,
};

const struct activity_field *activity_fields(uint8_t kind, uint8_t place)
{
	switch (kind) {
	case ACTIVITY_MARKER:
		return place == ACTIVITY_ON_DEVICE ? device_mark : host_mark;
	case ACTIVITY_KERNEL:
		return kernel;
	case ACTIVITY_API:
	case ACTIVITY_ACL_API:
	case ACTIVITY_NODE_API:
	case ACTIVITY_RUNTIME_API:
		return api;
	case ACTIVITY_HCCL:
		return hccl;
	case ACTIVITY_MEMORY:
		return memory;
	case ACTIVITY_MEMSET:
		return set;
	case ACTIVITY_MEMCPY:
		return copy;
	case ACTIVITY_COMMUNICATION:
		return communication;
	default:
		return NULL;
	}
}
