/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What we use of the CUDA driver, libcuda.so.1: numbers, layouts and calls of its memory functions. */
#ifndef SONDE_DEVICE_CUDA_ABI_DRIVER_H
#define SONDE_DEVICE_CUDA_ABI_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#define CU_SUCCESS 0
#define CU_OUT_OF_MEMORY 2
#define CU_NOT_INITIALIZED 3
#define CU_INVALID_DEVICE 101
#define CU_SYMBOL_NOT_FOUND 500

#define CU_ATTRIBUTE_MPS_ENABLED 133
#define CU_POOL_RESERVED_NOW 5 /* attribute of a memory pool */
#define CU_GRAPH_RESERVED_NOW 2 /* of all graphs of a device */
#define CU_NODE_ALLOC 10 /* type of a graph's node */

/* The version from which a name stands for the functions with 64-bit sizes, and for the form of
 * cuGetProcAddress() that has a fifth argument. */
#define CU_VERSION_64_BIT 3020
#define CU_VERSION_PROC_ADDRESS_2 12000
#define CU_VERSION_KNOWN 13000 /* the newest whose functions are known here */

typedef uint64_t cu_address;
typedef uint64_t cu_handle; /* of physical memory */
typedef int cu_device;
typedef struct cu_context_opaque *cu_context;
typedef struct cu_stream_opaque *cu_stream;
typedef struct cu_pool_opaque *cu_pool;
typedef struct cu_array_opaque *cu_array;
typedef struct cu_mipmap_opaque *cu_mipmap;

enum cu_location_type { CU_LOCATION_DEVICE = 1, CU_LOCATION_HOST = 2 }; /* more: all of the host */

struct cu_location {
	int type;
	int id;
};

struct cu_allocation_prop {
	int type;
	int handle_types;
	struct cu_location location;
	void *windows;
	uint8_t flags[8];
};

struct cu_pool_props {
	int type;
	int handle_types;
	struct cu_location location;
	uint8_t rest[72];
};

struct cu_graph_alloc {
	struct cu_pool_props pool;
	const void *access;
	size_t naccess, bytes;
	cu_address addr;
};

struct cu_array_desc {
	size_t width, height;
	int format;
	unsigned int channels;
};

#define CU_ARRAY_SPARSE 0x40u
#define CU_ARRAY_DEFERRED 0x80u

struct cu_array3d_desc {
	size_t width, height, depth;
	int format;
	unsigned int channels;
	unsigned int flags;
};

_Static_assert(sizeof(struct cu_allocation_prop) == 32, "layout of libcuda.so");
_Static_assert(sizeof(struct cu_pool_props) == 88, "layout of libcuda.so");
_Static_assert(sizeof(struct cu_graph_alloc) == 120, "layout of libcuda.so");
_Static_assert(sizeof(struct cu_array_desc) == 24, "layout of libcuda.so");
_Static_assert(sizeof(struct cu_array3d_desc) == 40, "layout of libcuda.so");

#endif
