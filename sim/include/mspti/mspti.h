/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * MSPTI, the vendor's library that tells what device and host did. Numbers and layouts are those of
 * the real one: fields are packed, so most 64-bit members lie 4 bytes off, and the size of a record
 * is rounded up to 8.
 *
 * Names in records live until the complete callback returns, and may be NULL.
 */
#ifndef SONDE_SIM_MSPTI_H
#define SONDE_SIM_MSPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
	MSPTI_SUCCESS = 0,
	MSPTI_ERROR_INVALID_PARAMETER = 1,
	MSPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 2,
	MSPTI_ERROR_MAX_LIMIT_REACHED = 3,
	MSPTI_ERROR_DEVICE_OFFLINE = 4,
	MSPTI_ERROR_QUEUE_EMPTY = 5,
	MSPTI_ERROR_WITHOUT_LD_PRELOAD = 6,
	MSPTI_ERROR_INNER = 999,
} msptiResult;

typedef enum {
	MSPTI_ACTIVITY_KIND_INVALID = 0,
	MSPTI_ACTIVITY_KIND_MARKER = 1,
	MSPTI_ACTIVITY_KIND_KERNEL = 2,
	MSPTI_ACTIVITY_KIND_API = 3,
	MSPTI_ACTIVITY_KIND_HCCL = 4,
	MSPTI_ACTIVITY_KIND_MEMORY = 5,
	MSPTI_ACTIVITY_KIND_MEMSET = 6,
	MSPTI_ACTIVITY_KIND_MEMCPY = 7,
	MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION = 8,
	MSPTI_ACTIVITY_KIND_COMMUNICATION = 9,
	MSPTI_ACTIVITY_KIND_ACL_API = 10,
	MSPTI_ACTIVITY_KIND_NODE_API = 11,
	MSPTI_ACTIVITY_KIND_RUNTIME_API = 12,
	MSPTI_ACTIVITY_KIND_COUNT = 13,
} msptiActivityKind;

typedef enum {
	MSPTI_ACTIVITY_FLAG_NONE = 0,
	MSPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS = 1,
	MSPTI_ACTIVITY_FLAG_MARKER_START = 2,
	MSPTI_ACTIVITY_FLAG_MARKER_END = 4,
	MSPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS_WITH_DEVICE = 8,
	MSPTI_ACTIVITY_FLAG_MARKER_START_WITH_DEVICE = 16,
	MSPTI_ACTIVITY_FLAG_MARKER_END_WITH_DEVICE = 32,
} msptiActivityFlag;

typedef enum {
	MSPTI_ACTIVITY_SOURCE_KIND_HOST = 0,
	MSPTI_ACTIVITY_SOURCE_KIND_DEVICE = 1,
} msptiActivitySourceKind;

typedef enum {
	MSPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATE = 0,
	MSPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE = 1,
} msptiActivityMemoryOperationType;

typedef enum {
	MSPTI_ACTIVITY_MEMORY_KIND_UNKNOWN = 0,
	MSPTI_ACTIVITY_MEMORY_KIND_DEVICE = 1,
} msptiActivityMemoryKind;

typedef enum {
	MSPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN = 0,
	MSPTI_ACTIVITY_MEMCPY_KIND_HTOH = 1,
	MSPTI_ACTIVITY_MEMCPY_KIND_HTOD = 2,
	MSPTI_ACTIVITY_MEMCPY_KIND_DTOH = 3,
	MSPTI_ACTIVITY_MEMCPY_KIND_DTOD = 4,
	MSPTI_ACTIVITY_MEMCPY_KIND_DEFAULT = 5,
} msptiActivityMemcpyKind;

typedef enum {
	MSPTI_EXTERNAL_CORRELATION_KIND_INVALID = 0,
	MSPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN = 1,
	MSPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 = 2,
	MSPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1 = 3,
	MSPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2 = 4,
	MSPTI_EXTERNAL_CORRELATION_KIND_SIZE = 5,
} msptiExternalCorrelationKind;

typedef enum {
	MSPTI_ACTIVITY_COMMUNICATION_INT8 = 0,
	MSPTI_ACTIVITY_COMMUNICATION_INT32 = 2,
	MSPTI_ACTIVITY_COMMUNICATION_FP16 = 3,
	MSPTI_ACTIVITY_COMMUNICATION_FP32 = 4,
	MSPTI_ACTIVITY_COMMUNICATION_BFP16 = 11,
	MSPTI_ACTIVITY_COMMUNICATION_INVALID_TYPE = 65535,
} msptiCommunicationDataType;

#define MSPTI_INVALID_DEVICE_ID ((uint32_t)0xffffffffu)
#define MSPTI_INVALID_STREAM_ID ((uint32_t)0xffffffffu)
#define MSPTI_INVALID_CORRELATION_ID ((uint64_t)0)

#define MSPTI_PACKED __attribute__((packed, aligned(8)))

typedef struct MSPTI_PACKED {
	int32_t kind;
} msptiActivity;

typedef struct __attribute__((packed)) {
	uint32_t processId;
	uint32_t threadId;
} msptiProcessThread;

typedef struct __attribute__((packed)) {
	uint32_t deviceId;
	uint32_t streamId;
} msptiDeviceStream;

typedef struct MSPTI_PACKED {
	int32_t kind;
	uint64_t start;
	uint64_t end;
	msptiProcessThread pt;
	uint64_t correlationId;
	const char *name;
} msptiActivityApi;

typedef struct MSPTI_PACKED {
	int32_t kind;
	uint64_t start;
	uint64_t end;
	msptiDeviceStream ds;
	uint64_t correlationId;
	const char *type;
	const char *name;
} msptiActivityKernel;

typedef struct MSPTI_PACKED {
	int32_t kind;
	int32_t flag;
	int32_t sourceKind;
	uint64_t timestamp;
	uint64_t id;
	union __attribute__((packed)) {
		msptiProcessThread pt;
		msptiDeviceStream ds;
	} objectId;
	const char *name;
	const char *domain;
} msptiActivityMarker;

typedef struct MSPTI_PACKED {
	int32_t kind;
	uint64_t start;
	uint64_t end;
	msptiDeviceStream ds;
	double bandWidth; /* GB/s */
	const char *name;
	const char *commName;
} msptiActivityHccl;

typedef struct MSPTI_PACKED {
	int32_t kind;
	int32_t memoryOperationType;
	int32_t memoryKind;
	uint64_t correlationId;
	uint64_t start;
	uint64_t end;
	uint64_t address;
	uint64_t bytes;
	uint32_t processId;
	uint32_t deviceId;
	uint32_t streamId;
} msptiActivityMemory;

typedef struct MSPTI_PACKED {
	int32_t kind;
	uint32_t value;
	uint64_t bytes;
	uint64_t start;
	uint64_t end;
	uint32_t deviceId;
	uint32_t streamId;
	uint64_t correlationId;
	uint8_t isAsync;
} msptiActivityMemset;

typedef struct MSPTI_PACKED {
	int32_t kind;
	int32_t copyKind;
	uint64_t bytes;
	uint64_t start;
	uint64_t end;
	uint32_t deviceId;
	uint32_t streamId;
	uint64_t correlationId;
	uint8_t isAsync;
} msptiActivityMemcpy;

typedef struct MSPTI_PACKED {
	int32_t kind;
	int32_t externalKind;
	uint64_t externalId;
	uint64_t correlationId;
} msptiActivityExternalCorrelation;

typedef struct MSPTI_PACKED {
	int32_t kind;
	int32_t dataType;
	uint64_t count;
	msptiDeviceStream ds;
	uint64_t start;
	uint64_t end;
	const char *algType;
	const char *name;
	const char *commName;
	uint64_t correlationId;
} msptiActivityCommunication;

#define MSPTI_LAYOUT(type, member, offset)                                                         \
	_Static_assert(offsetof(type, member) == (offset), "vendor layout")
_Static_assert(sizeof(msptiActivity) == 8, "vendor layout");
_Static_assert(sizeof(msptiActivityApi) == 48, "vendor layout");
_Static_assert(sizeof(msptiActivityKernel) == 56, "vendor layout");
_Static_assert(sizeof(msptiActivityMarker) == 56, "vendor layout");
_Static_assert(sizeof(msptiActivityHccl) == 56, "vendor layout");
_Static_assert(sizeof(msptiActivityMemory) == 64, "vendor layout");
_Static_assert(sizeof(msptiActivityMemset) == 56, "vendor layout");
_Static_assert(sizeof(msptiActivityMemcpy) == 56, "vendor layout");
_Static_assert(sizeof(msptiActivityExternalCorrelation) == 24, "vendor layout");
_Static_assert(sizeof(msptiActivityCommunication) == 72, "vendor layout");
MSPTI_LAYOUT(msptiActivityApi, name, 36);
MSPTI_LAYOUT(msptiActivityKernel, name, 44);
MSPTI_LAYOUT(msptiActivityMarker, timestamp, 12);
MSPTI_LAYOUT(msptiActivityMarker, domain, 44);
MSPTI_LAYOUT(msptiActivityHccl, commName, 44);
MSPTI_LAYOUT(msptiActivityMemory, streamId, 60);
MSPTI_LAYOUT(msptiActivityMemset, isAsync, 48);
MSPTI_LAYOUT(msptiActivityMemcpy, isAsync, 48);
MSPTI_LAYOUT(msptiActivityCommunication, correlationId, 64);

/* --- activities --- */

typedef void (*msptiBuffersCallbackRequestFunc)(uint8_t **buffer, size_t *size,
						size_t *maxNumRecords);
typedef void (*msptiBuffersCallbackCompleteFunc)(uint8_t *buffer, size_t size, size_t validSize);

msptiResult msptiActivityRegisterCallbacks(msptiBuffersCallbackRequestFunc request,
					   msptiBuffersCallbackCompleteFunc complete);
msptiResult msptiActivityEnable(msptiActivityKind kind);
msptiResult msptiActivityDisable(msptiActivityKind kind);
bool msptiActivityIsEnabled(msptiActivityKind kind);
msptiResult msptiActivityGetNextRecord(uint8_t *buffer, size_t validBytes, msptiActivity **record);
msptiResult msptiActivityFlushAll(uint32_t flag);
msptiResult msptiActivityFlushPeriod(uint32_t ms); /* 0: none */
msptiResult msptiActivityEnableMarkerDomain(const char *name);
msptiResult msptiActivityDisableMarkerDomain(const char *name);
msptiResult msptiActivityPushExternalCorrelationId(msptiExternalCorrelationKind kind, uint64_t id);
msptiResult msptiActivityPopExternalCorrelationId(msptiExternalCorrelationKind kind,
						  uint64_t *lastId);

/* --- subscribers and callbacks --- */

typedef enum {
	MSPTI_CB_DOMAIN_INVALID = 0,
	MSPTI_CB_DOMAIN_RUNTIME = 1,
	MSPTI_CB_DOMAIN_HCCL = 2,
	MSPTI_CB_DOMAIN_SIZE = 3,
} msptiCallbackDomain;

typedef enum { MSPTI_API_ENTER = 0, MSPTI_API_EXIT = 1 } msptiApiCallbackSite;

/* Those that the simulated stack calls; the real list goes to 36 and 12. */
typedef enum {
	MSPTI_CBID_RUNTIME_DEVICE_SET = 1,
	MSPTI_CBID_RUNTIME_DEVICE_RESET = 2,
	MSPTI_CBID_RUNTIME_STREAM_CREATED = 7,
	MSPTI_CBID_RUNTIME_STREAM_DESTROY = 8,
	MSPTI_CBID_RUNTIME_STREAM_SYNCHRONIZED = 9,
	MSPTI_CBID_RUNTIME_LAUNCH = 10,
	MSPTI_CBID_RUNTIME_AICPU_LAUNCH = 12,
	MSPTI_CBID_RUNTIME_MALLOC = 15,
	MSPTI_CBID_RUNTIME_FREE = 16,
	MSPTI_CBID_RUNTIME_MALLOC_HOST = 17,
	MSPTI_CBID_RUNTIME_FREE_HOST = 18,
	MSPTI_CBID_RUNTIME_MEMCPY = 22,
	MSPTI_CBID_RUNTIME_MEMCPY_ASYNC = 24,
	MSPTI_CBID_RUNTIME_MEM_SET = 27,
	MSPTI_CBID_RUNTIME_MEM_GET_INFO = 29,
	MSPTI_CBID_RUNTIME_SIZE = 37,
} msptiCallbackIdRuntime;

typedef enum {
	MSPTI_CBID_HCCL_ALLREDUCE = 1,
	MSPTI_CBID_HCCL_BROADCAST = 2,
	MSPTI_CBID_HCCL_ALLGATHER = 3,
	MSPTI_CBID_HCCL_REDUCE_SCATTER = 4,
	MSPTI_CBID_HCCL_BARRIER = 8,
	MSPTI_CBID_HCCL_SIZE = 13,
} msptiCallbackIdHccl;

typedef struct {
	int32_t callbackSite;
	const char *functionName;
	const void *functionParams;
	const void *functionReturnValue;
	const char *symbolName;
	uint64_t correlationId;
	uint64_t reserved1;
	uint64_t reserved2;
	uint64_t *correlationData; /* one word per call, the same at enter and exit */
} msptiCallbackData;

_Static_assert(sizeof(msptiCallbackData) == 72, "vendor layout");
MSPTI_LAYOUT(msptiCallbackData, correlationData, 64);

typedef struct msptiSubscriber_st *msptiSubscriberHandle;
typedef void (*msptiCallbackFunc)(void *userdata, msptiCallbackDomain domain, uint32_t cbid,
				  const msptiCallbackData *data);

msptiResult msptiSubscribe(msptiSubscriberHandle *subscriber, msptiCallbackFunc callback,
			   void *userdata);
msptiResult msptiUnsubscribe(msptiSubscriberHandle subscriber);
msptiResult msptiEnableCallback(uint32_t enable, msptiSubscriberHandle subscriber,
				msptiCallbackDomain domain, uint32_t cbid);
msptiResult msptiEnableDomain(uint32_t enable, msptiSubscriberHandle subscriber,
			      msptiCallbackDomain domain);

/* --- only here --- */

/* Records that could not be noted for want of a buffer, since the library was loaded. */
uint64_t sim_mspti_dropped(void);
uint64_t sim_mspti_recorded(void);

#endif
