/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What we use of NVIDIA's tracing library, libcupti.so.12 and .13, and of NVTX: numbers, layouts
 * and calls, all of it looked up at run time.
 *
 * Records of activities have grown at their ends only: what is read here lies at the same place in
 * every version from CUDA 12.0 (cuptiGetVersion() 18) to 13.4 (130401), where the structs are
 *
 *	kind               12.0 – 12.x   later 12.x   13.0      13.4      bytes
 *	CONCURRENT_KERNEL  Kernel9       Kernel9      Kernel10  Kernel13  208, 208, 216, 248
 *	MEMCPY             Memcpy5       Memcpy6      Memcpy6   Memcpy7   88, 96, 96, 112
 *	MEMCPY2            MemcpyPtoP4   …                                96
 *	MEMSET             Memset4       Memset4      Memset4   Memset5   88, 88, 88, 104
 *	MEMORY2            Memory3       Memory4      Memory4   Memory4   120, 128, 128, 128
 *	RUNTIME, DRIVER    API           …                                40
 */
#ifndef SONDE_DEVICE_CUDA_ABI_CUPTI_H
#define SONDE_DEVICE_CUDA_ABI_CUPTI_H

#include <stddef.h>
#include <stdint.h>

typedef int cupti_result;

#define CUPTI_OK 0
#define CUPTI_NOT_INITIALIZED 15
#define CUPTI_INVALID_KIND 21
#define CUPTI_MULTIPLE_SUBSCRIBERS 39

#define CUPTI_VERSION_OLDEST 18 /* CUDA 12.0 */
#define CUPTI_VERSION_NEWEST 130499 /* whose layouts we have seen */

#define CUPTI_FLUSH_FORCED 1u

enum cupti_kind {
	CUPTI_MEMCPY = 1,
	CUPTI_MEMSET = 2,
	CUPTI_DRIVER = 4,
	CUPTI_RUNTIME = 5,
	CUPTI_KERNEL = 10, /* CONCURRENT_KERNEL: the job's kernels run beside each other as ever */
	CUPTI_MEMCPY2 = 22, /* between devices */
	CUPTI_MEMORY2 = 49,
	CUPTI_KIND_END = 64, /* none is as high yet */
};

enum cupti_domain { CUPTI_DOMAIN_DRIVER = 1, CUPTI_DOMAIN_RUNTIME = 2 };
enum cupti_thread_id { CUPTI_THREAD_ID_DEFAULT = 0, CUPTI_THREAD_ID_SYSTEM = 1 };

enum cupti_copy {
	CUPTI_COPY_HTOD = 1,
	CUPTI_COPY_DTOH = 2,
	CUPTI_COPY_HTOA = 3,
	CUPTI_COPY_ATOH = 4,
	CUPTI_COPY_ATOA = 5,
	CUPTI_COPY_ATOD = 6,
	CUPTI_COPY_DTOA = 7,
	CUPTI_COPY_DTOD = 8,
	CUPTI_COPY_HTOH = 9,
	CUPTI_COPY_PTOP = 10,
	CUPTI_COPY_END,
};

enum cupti_memory_op { CUPTI_MEMORY_ALLOCATED = 1, CUPTI_MEMORY_RELEASED = 2 };
enum cupti_memory_kind { CUPTI_MEMORY_PAGEABLE = 1, CUPTI_MEMORY_PINNED = 2 };
#define CUPTI_FLAG_ASYNC 1u /* of a copy and of a memset */

/* The beginnings of records, as far as they are read. */

struct cupti_kernel {
	uint32_t kind, cache_and_shared;
	uint64_t registers_and_more;
	uint64_t start, end, completed; /* 0: not known */
	uint32_t device, context, stream;
	uint32_t grid[3], block[3];
	uint32_t shared[2], local[2];
	uint32_t correlation;
	int64_t grid_id;
	const char *name;
};

struct cupti_copy_record {
	uint32_t kind;
	uint8_t copy_kind, from, to, flags;
	uint64_t bytes, start, end;
	uint32_t device, context, stream;
	uint32_t correlation; /* MEMCPY; of MEMCPY2 it is at CUPTI_MEMCPY2_CORRELATION */
};
#define CUPTI_MEMCPY2_CORRELATION 60

struct cupti_memset {
	uint32_t kind, value;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, correlation;
	uint16_t flags, memory_kind;
};

struct cupti_memory {
	uint32_t kind, operation, memory_kind, correlation;
	uint64_t address, bytes, time, pc;
	uint32_t process, device, context, stream;
	const char *name;
	uint32_t async;
};

struct cupti_api {
	uint32_t kind, cbid;
	uint64_t start, end;
	uint32_t process, thread, correlation, result;
};

_Static_assert(offsetof(struct cupti_kernel, start) == 16, "layout of libcupti");
_Static_assert(offsetof(struct cupti_kernel, device) == 40, "layout of libcupti");
_Static_assert(offsetof(struct cupti_kernel, stream) == 48, "layout of libcupti");
_Static_assert(offsetof(struct cupti_kernel, correlation) == 92, "layout of libcupti");
_Static_assert(offsetof(struct cupti_kernel, name) == 104, "layout of libcupti");
_Static_assert(offsetof(struct cupti_copy_record, bytes) == 8, "layout of libcupti");
_Static_assert(offsetof(struct cupti_copy_record, device) == 32, "layout of libcupti");
_Static_assert(offsetof(struct cupti_copy_record, correlation) == 44, "layout of libcupti");
_Static_assert(offsetof(struct cupti_memset, correlation) == 44, "layout of libcupti");
_Static_assert(offsetof(struct cupti_memset, flags) == 48, "layout of libcupti");
_Static_assert(offsetof(struct cupti_memory, address) == 16, "layout of libcupti");
_Static_assert(offsetof(struct cupti_memory, process) == 48, "layout of libcupti");
_Static_assert(offsetof(struct cupti_memory, stream) == 60, "layout of libcupti");
_Static_assert(offsetof(struct cupti_memory, async) == 72, "layout of libcupti");
_Static_assert(offsetof(struct cupti_api, correlation) == 32, "layout of libcupti");
_Static_assert(sizeof(struct cupti_api) == 40, "layout of libcupti");

typedef void (*cupti_request_fn)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*cupti_complete_fn)(void *context, uint32_t stream, uint8_t *buffer, size_t size,
				  size_t valid);
typedef uint64_t (*cupti_clock_fn)(void);
typedef cupti_result (*cupti_next_fn)(uint8_t *buffer, size_t valid, void **record);

/* Its calls; those at the end may be missing. */
struct cupti {
	cupti_result (*version)(uint32_t *out);
	cupti_result (*register_callbacks)(cupti_request_fn request, cupti_complete_fn complete);
	cupti_result (*enable)(uint32_t kind);
	cupti_result (*disable)(uint32_t kind);
	cupti_result (*flush)(uint32_t flag);
	cupti_next_fn next;
	cupti_result (*dropped)(void *context, uint32_t stream, size_t *out);
	cupti_result (*callback_name)(int domain, uint32_t cbid, const char **out);
	cupti_result (*finalize)(void);
	cupti_result (*get_thread_ids)(int *out);
	cupti_result (*set_thread_ids)(int type);
	cupti_result (*register_clock)(cupti_clock_fn clock); /* 11.6 and later */
	/* One call alone is reported, beside what the kinds RUNTIME and DRIVER report. */
	cupti_result (*runtime_call)(uint32_t cbid, uint8_t on);
	cupti_result (*driver_call)(uint32_t cbid, uint8_t on);
};

/* --- NVTX: the table of functions that a tool fills --- */

typedef void (*nvtx_slot)(void);
/* 1: the module is there. Elements of the table point to the functions of the program's copy. */
typedef int (*nvtx_module_fn)(int module, nvtx_slot ***table, unsigned int *size);
struct nvtx_callbacks {
	size_t struct_size;
	nvtx_module_fn module;
};
typedef const void *(*nvtx_export_fn)(uint32_t table);
typedef int (*nvtx_init_fn)(nvtx_export_fn get);

#define NVTX_CALLBACKS 1
#define NVTX_CORE 1
#define NVTX_CORE2 5
#define NVTX_NOT_TRACKED -2 /* what push and pop return without a tool */

enum nvtx_message { NVTX_ASCII = 1, NVTX_UNICODE = 2, NVTX_REGISTERED = 3 };

struct nvtx_event {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	const void *message; /* ASCII: text, REGISTERED: what registering has returned */
};

_Static_assert(offsetof(struct nvtx_event, message_type) == 32, "layout of NVTX");
_Static_assert(sizeof(struct nvtx_event) == 48, "layout of NVTX");

#endif
