/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Records of device memory as the driver hands it out, and samples of what devices and
 * processes have. */
#ifndef SONDE_WIRE_RECORD_DRIVER_H
#define SONDE_WIRE_RECORD_DRIVER_H

#include "wire/record.h"

/* --- the CUDA driver --- */

enum rec_vmm_op {
	VMM_RESERVE = 0, /* addresses, nothing behind them */
	VMM_UNRESERVE = 1, /* they are given back */
	VMM_MAP = 2, /* `offset` of the memory `handle` is at addr now */
	VMM_UNMAP = 3, /* nothing is there any more; one or several whole mappings */
	VMM_RETAIN = 4, /* one more reference to the handle: found by an address inside, addr */
	VMM_RELEASE = 5, /* one less */
	VMM_IMPORT = 6, /* the handle stands for memory of another process: no block of this one */
	VMM_OP_END,
};

/*
 * Virtual memory of a device. The memory itself is a block of ALLOC_CREATE, whose address is the
 * handle: made with one reference, it ends when it has no reference and no mapping any more. It has
 * no REC_FREE. Handles that were never made here belong to others. Of VMM_UNRESERVE, VMM_UNMAP and
 * VMM_RELEASE the time is before the call.
 */
struct rec_vmm {
	struct rec head;
	uint64_t addr;
	uint64_t bytes;
	uint64_t handle;
	uint64_t offset;
	uint8_t op; /* enum rec_vmm_op */
	uint8_t reserved[7];
};

enum rec_context_op { CONTEXT_BEGIN = 0, CONTEXT_END = 1, CONTEXT_OP_END };
enum rec_context_flags { CONTEXT_PRIMARY = 1 << 0 }; /* the one that CUDA's runtime uses */

/* Contexts are counted per process, from 1. CONTEXT_END has the time before the call. */
struct rec_context {
	struct rec head;
	uint64_t handle; /* as the driver calls it */
	uint16_t context;
	uint16_t device;
	uint8_t op; /* enum rec_context_op */
	uint8_t flags; /* enum rec_context_flags */
	uint16_t reserved;
};

enum rec_gpu_flags {
	GPU_MPS = 1 << 0, /* shared by way of the MPS server */
	GPU_MIG = 1 << 1, /* a part of a device */
	GPU_BLOCKS = 1 << 2, /* memory calls of the job come to our hooks */
	GPU_UNSEEN = 1 << 3, /* the driver was in the process, and no call of it was seen */
};

/*
 * What the driver said when the job initialised it: a record for each device, or one without a
 * device (DEV_NONE) where it has none or fails; one with a device and an error where no context could be
 * made there. Text: the device's name, a NUL, and what
 * CUDA_VISIBLE_DEVICES was, if it was set.
 */
struct rec_gpu {
	struct rec head;
	uint64_t total_bytes;
	uint8_t uuid[16]; /* of a part, that of the part */
	uint32_t driver; /* version: 13000 is CUDA 13.0 */
	uint32_t error; /* of cuInit(), or of making a context: 0, or CUresult */
	uint16_t device; /* number on this machine, as in all records */
	uint16_t index; /* number as the job counts */
	uint16_t count; /* devices that the job may use */
	uint16_t len;
	uint8_t flags; /* enum rec_gpu_flags */
	uint8_t reserved[7];
	char text[];
};

/*
 * A shared object, or the program, that asks the driver for memory: the innermost one that is
 * neither the driver nor CUDA's runtime. Counted per process, from 1; `number` comes before its
 * first use. Text: path.
 */
struct rec_library {
	struct rec head;
	uint16_t number; /* as `module` of rec_alloc: below MODULE_NONE */
	uint16_t len;
	uint32_t reserved;
	char text[];
};

#define DEVICE_UNKNOWN UINT64_MAX

/* A sample of a device's memory, as the vendor's management library reports it, for one process. */
struct rec_device {
	struct rec head; /* its time is that of the sample, not of an event */
	uint64_t total_bytes;
	uint64_t used_bytes; /* by everybody, the driver included */
	uint64_t process_bytes; /* by the process of the run that holds this; DEVICE_UNKNOWN */
	uint64_t others_bytes; /* by processes that are not of this job; DEVICE_UNKNOWN */
	uint16_t device; /* the driver's number */
	uint16_t others; /* how many they are */
	uint32_t job_kib; /* by other processes of this job, recorded or not */
};

#define USAGE_UNKNOWN UINT64_MAX

/*
 * What a process has in memory, as the kernel counts it; of recordings with host memory. The parts
 * of the second group come from a list of all its mappings, which is read less often. A number that
 * is not known is USAGE_UNKNOWN.
 */
struct rec_usage {
	struct rec head; /* its time is that of the sample */
	uint64_t rss_bytes, anon_bytes, file_bytes,
		shared_bytes; /* resident; the first is the sum */
	uint64_t swap_bytes;
	uint64_t peak_rss_bytes; /* so far */

	uint64_t pss_bytes; /* pages that several processes have, in equal parts */
	uint64_t heap_bytes; /* of anon: brk and the further arenas of glibc */
	uint64_t stack_bytes; /* of anon: of threads */
	uint64_t copied_bytes; /* of anon: pages of files that were written to, data of libraries */
	uint64_t sonde_bytes; /* of file or shared: our rings */

	uint64_t group_bytes, group_limit_bytes; /* of its control group with the closest limit */
};

enum rec_process_flags {
	PROCESS_ENDED = 1 << 0, /* with this status, as wait() gives it */
	PROCESS_GROUP_KILLED = 1 << 1, /* by SIGKILL, when its control group had no more memory */
};

struct rec_process {
	struct rec head;
	int32_t rank; /* -1: not known */
	uint32_t flags; /* enum rec_process_flags */
	uint32_t status;
	uint32_t reserved;
	uint64_t peak_rss_bytes; /* as it said itself at its exit; 0: it did not */
	uint64_t group_limit_bytes; /* of a control group that killed it */
};

_Static_assert(sizeof(struct rec_vmm) == 56, "rec_vmm changed size");
_Static_assert(sizeof(struct rec_context) == 32, "rec_context changed size");
_Static_assert(sizeof(struct rec_gpu) == 64, "rec_gpu changed size");
_Static_assert(sizeof(struct rec_library) == 24, "rec_library changed size");
_Static_assert(sizeof(struct rec_device) == 56, "rec_device changed size");
_Static_assert(sizeof(struct rec_usage) == 120, "rec_usage changed size");
_Static_assert(sizeof(struct rec_process) == 48, "rec_process changed size");

#endif
