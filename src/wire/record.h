/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The records that a hook writes into its thread's ring, and that the recorder copies, as they
 * are, into the recording. Facts only: no text is formatted and nothing is derived here.
 *
 *	0        1       2        4            8                16
 *	+--------+-------+--------+------------+----------------+---------------- - -
 *	| type   | flags | size   | stack      | time_ns        | body of the type
 *	+--------+-------+--------+------------+----------------+---------------- - -
 *
 * `size` is the whole record in bytes, a multiple of 8. `time_ns` is CLOCK_MONOTONIC. `stack` is
 * the id of an interned call stack in the same arena (see ring.h), 0 for none.
 *
 * Text bodies hold `len` bytes without a terminator behind the fixed part, padded with zeros to 8:
 *
 *	+------------------------+--------------------------+------+
 *	| fixed part, with len   | len bytes: a \0 b        | 0 0  |	`b`: types with two texts
 *	+------------------------+--------------------------+------+
 *
 * Texts that repeat are sent once. A kernel's or an activity's name is a 64-bit hash in the record;
 * REC_NAME brings the text, in the ring of the thread that used it first. It may arrive after the
 * record that names it, if another thread was faster; a reader resolves hashes when it needs them.
 * A place in Python code (REC_PYTHON) and a mapped object (REC_MODULE) are sent in the same way.
 *
 * A reader treats every byte as foreign: rec_check() before anything else. Numbers are only ever
 * added, never changed; bump REC_VERSION when a layout changes.
 */
#ifndef SONDE_WIRE_RECORD_H
#define SONDE_WIRE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REC_VERSION 1
#define REC_MAX_TEXT 1024 /* longer text is cut by the hook */
#define REC_MAX_NAME 4096 /* of REC_NAME: names of templates differ at their end */
#define REC_MAX_SIZE (REC_MAX_NAME + 64) /* no record is larger */

#define DEV_NONE 9999u /* no device is known */
#define DEV_HOST 10000u /* host memory */

enum rec_type {
	REC_THREAD = 1, /* rec_thread: whose records follow in this ring */
	REC_ALLOC = 2, /* rec_alloc */
	REC_FREE = 3, /* rec_free */
	REC_HEAP = 4, /* rec_heap: bytes that a pool holds from the driver */
	REC_ACCESS = 5, /* rec_access + text: tensor attributes */
	REC_OP = 6, /* rec_op + text: operator begins or ends */
	REC_KERNEL = 7, /* rec_kernel: launch, or begin/end of the execution */
	REC_NAME = 8, /* rec_name + text: the text behind a 64-bit name hash */
	REC_MARK = 9, /* rec_mark + text: instant, range start, range end */
	REC_SYSTEM = 10, /* rec_system: what happened to the process as a whole */
	REC_LABEL = 11, /* rec_label + text: owner labels */
	REC_OOM = 12, /* rec_oom: the driver refused memory */
	REC_MODULE = 13, /* rec_module + text: a mapped object that stacks point into */
	REC_WATCH = 14, /* rec_watch + text: a sample of a watched block */
	REC_DEVICE = 15, /* rec_device: memory of a device; the recorder writes these itself */
	REC_PYTHON = 16, /* rec_python + text: a place in Python code that stacks name */
	REC_CONFIG = 17, /* rec_config + text: what this process is to record from now on */
	REC_SNAPSHOT = 18, /* rec_snapshot + text: what the framework says about a device */
	REC_CALL = 19, /* rec_call: a function begins or ends, as Python sees it */
	REC_ACTIVITY = 20, /* rec_activity: what a device or a thread did */
	REC_MONITOR = 21, /* rec_monitor + text: what the monitor was asked for, and does */
	REC_MAP = 22, /* rec_map: the job has changed its mappings */
	REC_USAGE = 23, /* rec_usage: memory of a process; the recorder writes these itself */
	REC_PROCESS = 24, /* rec_process: who a process is, how it ended; the recorder's, too */
	REC_BLOCK = 25, /* rec_block + labels: of a checkpoint, see recording.h */
	REC_STATE = 26, /* rec_state: of a checkpoint, too */
	REC_LAYER = 27, /* rec_layer: which module of a model memory belongs to */
	REC_VMM = 28, /* rec_vmm: addresses of a device, and the physical memory behind them */
	REC_CONTEXT = 29, /* rec_context: begins, or ends with all that was allocated in it */
	REC_GPU = 30, /* rec_gpu + text: a device that the job's driver has shown it */
	REC_LIBRARY = 31, /* rec_library + text: which asks the driver for memory */
	REC_WORK = 32, /* rec_work: whose work a thread launches from now on */
	REC_LAUNCH = 33, /* rec_launch: when and by which thread a device got its work */
	REC_FRAME = 34, /* rec_frame + text: a call that sampled stacks have; the recorder's, too */
	REC_SAMPLE = 35, /* rec_sample: which of them a thread is in; likewise */
	REC_SAMPLED = 36, /* rec_sampled + text: who is sampled; likewise */
	REC_COUNTER = 37, /* rec_counter + text: of a device, the host, a process; likewise */
	REC_TYPE_END,
};

enum rec_flags {
	REC_F_SHADOW = 1 << 0, /* written while not tracing: coarse time, no stack */
	REC_F_TEXT_CUT = 1 << 1, /* the text was longer than REC_MAX_TEXT or REC_MAX_NAME */
};

/* Who handed the memory out. */
enum rec_pool {
	POOL_HAL = 1, /* the device driver */
	POOL_HOST = 2, /* host memory: malloc, pinned registration, driver's host space */
	POOL_PTA = 3, /* torch_npu caching pool */
	POOL_PTA_WORKSPACE = 4,
	POOL_MINDSPORE = 5,
	POOL_ATB = 6,
	POOL_TORCH = 7, /* torch's caching pool on other devices */
	POOL_CUDA = 8, /* the CUDA driver */
	POOL_PYTHON = 9, /* objects of CPython; they lie in host memory of its allocator */
	POOL_END,
};

enum rec_page { PAGE_NORMAL = 0, PAGE_HUGE = 1, PAGE_GIANT = 2 };

/* How the block was made. */
enum rec_alloc_kind {
	ALLOC_PLAIN = 0, /* halMemAlloc, malloc */
	ALLOC_CREATE = 1, /* halMemCreate: physical memory behind a handle */
	ALLOC_PINNED = 2, /* host memory registered with the device */
	ALLOC_REGION = 3, /* sub-allocated by a pool */
	/* of rec_map, never of rec_alloc: */
	ALLOC_MAPPED = 4, /* private memory, writable: in use */
	ALLOC_SHARED = 5, /* shared with other processes: anonymous, or of a file in memory */
	ALLOC_FILE = 6, /* a file's pages */
	ALLOC_RESERVED = 7, /* addresses, no memory yet: not writable, or MAP_NORESERVE */
	/* of POOL_CUDA, whose other blocks are ALLOC_PLAIN, ALLOC_CREATE and ALLOC_PINNED: */
	ALLOC_ASYNC = 8, /* cut from a pool of the driver, in the order of a stream */
	ALLOC_MANAGED = 9, /* moves between the host and devices */
	ALLOC_ARRAY =
		10, /* behind a handle; its bytes are a lower bound, as its layout is secret */
	ALLOC_GRAPH = 11, /* of all CUDA graphs on a device: one block, made anew as it changes */
	ALLOC_CONTEXT = 12, /* of rec_oom alone: a context that could not be made; 0 bytes */
	ALLOC_KIND_END,
};

#define MODULE_NONE 255u /* no CANN module id */

struct rec {
	uint8_t type;
	uint8_t flags;
	uint16_t size;
	uint32_t stack;
	uint64_t time_ns;
};

struct rec_thread {
	struct rec head;
	uint32_t tid;
	uint32_t level; /* 0 ordinary, 1 the ring of this thread's signal handlers */
};

struct rec_alloc {
	struct rec head;
	uint64_t addr; /* or the handle of physical memory */
	uint64_t size_bytes;
	uint16_t device; /* number as the source gave it; DEV_* */
	uint8_t pool;
	uint8_t kind;
	uint8_t page;
	uint8_t module; /* CANN module id; of POOL_CUDA: rec_library; or MODULE_NONE */
	uint16_t context; /* of POOL_CUDA: rec_context, with which it ends; 0: it belongs to none */
};

struct rec_free {
	struct rec head;
	uint64_t addr;
	uint16_t device; /* DEV_NONE where the source does not say */
	uint8_t pool;
	uint8_t kind; /* ALLOC_PINNED: ends a registration, not the memory itself */
	uint32_t reserved;
};

enum rec_map_op {
	MAP_ADD = 0, /* a mapping of `kind`; what was there is replaced */
	MAP_DROP = 1, /* nothing is mapped there any more */
	MAP_COMMIT = 2, /* may be written from now on: what was reserved there is in use */
	MAP_LEAVE = 3, /* MAP_DROP by mremap(): the next MAP_ARRIVE of this thread is what it was */
	MAP_ARRIVE = 4, /* MAP_ADD of the kind that this thread has left */
	MAP_OP_END,
};

/*
 * Whole pages [addr, addr + bytes); 0 bytes: what was mapped there in one piece. Of MAP_DROP and
 * MAP_LEAVE the time is before the call.
 */
struct rec_map {
	struct rec head;
	uint64_t addr;
	uint64_t bytes;
	uint8_t op; /* enum rec_map_op */
	uint8_t kind; /* enum rec_alloc_kind; of MAP_ADD alone */
	uint16_t reserved;
	uint32_t reserved2;
};

struct rec_heap {
	struct rec head;
	uint64_t addr; /* of the heap, 0 where the source gives only a total */
	int64_t bytes; /* meaning by `mode` */
	uint16_t device;
	uint8_t pool;
	uint8_t mode; /* enum rec_heap_mode */
	uint32_t reserved;
};

enum rec_heap_mode {
	HEAP_SET =
		0, /* the pool now holds `bytes` in all; of POOL_CUDA: the driver's pool `addr` */
	HEAP_ADD = 1, /* it took `bytes` more, at addr */
	HEAP_DROP = 2, /* the heap at addr went away; the recorder knows its size */
};

enum rec_access_kind { ACCESS_UNKNOWN = 0, ACCESS_READ = 1, ACCESS_WRITE = 2 };

/* Text: operator name, a NUL, then attributes as `key:value,…`. */
struct rec_access {
	struct rec head;
	uint64_t addr;
	uint64_t size_bytes;
	uint16_t device;
	uint8_t pool; /* POOL_PTA or POOL_ATB */
	uint8_t kind;
	uint16_t len;
	uint16_t reserved;
	char text[];
};

enum rec_op_kind {
	OP_ATEN_START = 0,
	OP_ATEN_END = 1,
	OP_ATB_START = 2,
	OP_ATB_END = 3,
	OP_KERNEL_START = 4, /* ATB kernel, with its path */
	OP_KERNEL_END = 5,
};

/* Text: name, a NUL, then attributes as `key:value,…` (ATB) or nothing. */
struct rec_op {
	struct rec head;
	uint16_t device;
	uint8_t kind;
	uint8_t reserved;
	uint16_t len;
	uint16_t reserved2;
	char text[];
};

enum rec_kernel_kind { KERNEL_LAUNCH = 0, KERNEL_EXECUTE_START = 1, KERNEL_EXECUTE_END = 2 };

struct rec_kernel {
	struct rec head;
	uint64_t name_hash; /* text comes as REC_NAME, before or after */
	uint16_t device;
	uint16_t stream;
	uint16_t task;
	uint8_t kind;
	uint8_t reserved;
};

struct rec_name {
	struct rec head;
	uint64_t hash;
	uint16_t len;
	uint16_t reserved[3];
	char text[];
};

enum rec_mark_kind { MARK_INSTANT = 0, MARK_RANGE_START = 1, MARK_RANGE_END = 2 };

/* Text: message, then, for a mark of a named domain, a NUL and the domain's name. */
struct rec_mark {
	struct rec head;
	uint64_t range; /* id of the range, 0 for an instant */
	uint16_t device;
	uint8_t kind;
	uint8_t reserved;
	uint16_t len;
	uint16_t reserved2;
	char text[];
};

enum rec_system_kind {
	SYSTEM_ACL_INIT = 0,
	SYSTEM_ACL_FINI = 1,
	SYSTEM_START_TRACE = 2,
	SYSTEM_STOP_TRACE = 3,
	SYSTEM_STEP = 4, /* value = number of the step that ends */
	SYSTEM_EXIT = 5, /* the program has ended by itself; its teardown follows */
	SYSTEM_HOST_MEMORY = 6, /* with a refusal of host memory: value = bytes in use of what is
				 * limited, or of address space; machine_mib */
	SYSTEM_DETECTED_STEP = 7, /* a step that the program did not report: value as SYSTEM_STEP,
				   * source; with 1 counting begins anew: those before were none */
	SYSTEM_STEP_NAME = 8, /* before such a 1: value = hash of the name of what steps */
};

/* What a detected step is: a step of an optimizer; in inference, a call of the model. */
enum rec_step_source { STEP_REPORTED = 0, STEP_OPTIMIZER = 1, STEP_FORWARD = 2, STEP_SOURCE_END };

struct rec_system {
	struct rec head;
	uint64_t value;
	uint16_t device;
	uint8_t kind;
	uint8_t source; /* of detected steps: enum rec_step_source */
	uint32_t machine_mib; /* SYSTEM_HOST_MEMORY: memory and swap of the machine; 0: unknown */
};

enum rec_label_kind {
	LABEL_PUSH = 0, /* the thread's next allocations belong to text */
	LABEL_POP = 1, /* ends the innermost push of the same text; the same level goes first */
	LABEL_ADDR = 2, /* the block that contains addr belongs to text */
};

struct rec_label {
	struct rec head;
	uint64_t addr; /* of a push or a pop: the thread that it is for, 0: the one that writes */
	uint8_t kind;
	uint8_t level; /* 0 framework … 3 detail_1, 4 detail_2, 5-7 user */
	uint16_t len;
	uint16_t device;
	uint16_t reserved;
	char text[];
};

enum rec_layer_kind {
	LAYER_ENTER = 0, /* its forward begins: what the thread allocates next belongs to it */
	LAYER_LEAVE = 1, /* that ends, and so does whatever began inside of it; layer 0: all */
	LAYER_ADDR = 2, /* a tensor of it lies at addr: the block there belongs to it */
	LAYER_GRADIENT =
		3, /* the thread computes that of another operation; layer: in a checkpoint alone */
	LAYER_OPERATION = 4, /* in a checkpoint: operations from addr on are the layer's */
	LAYER_KIND_END,
};

/*
 * A module of a model, or one of its parameters. Called layer, as modules are mapped objects here.
 * Its text comes as REC_NAME: `model:path:class`, such as `GPT:h.3.mlp:MLP`. Of a parameter the
 * class is empty, and the model of a module that has no parameters and belongs to no other.
 */
struct rec_layer {
	struct rec head;
	uint64_t layer; /* hash of its text */
	/* Else one more than the number of an operation of autograd, as in rec_work; 0: not known,
	 * or LAYER_GRADIENT: none any more. ENTER, LEAVE: operations from it on belong to what runs
	 * now. */
	uint64_t addr;
	uint64_t bytes; /* of the tensor; 0: not known */
	uint8_t kind;
	uint8_t reserved[7];
};

enum rec_work_kind {
	WORK_FORWARD = 0, /* of a module, or of none; `sequence`: operations from this number on */
	WORK_BACKWARD = 1, /* the gradient of the operation with this number */
};

/* Of `sequence`: the thread that counts, above the number itself. */
#define WORK_THREAD_SHIFT 48
#define WORK_NO_SEQUENCE UINT64_MAX

/*
 * Which module and which line of the user's program the work belongs to that this thread launches
 * from now on, until the next such record. Autograd numbers the operations of each thread; the
 * gradient of one is computed later, by any thread, and belongs to the module and line of the
 * operation.
 */
struct rec_work {
	struct rec head;
	uint64_t wall_ns; /* CLOCK_REALTIME, as launches have it */
	uint64_t layer; /* as in rec_layer; 0: no module */
	uint64_t sequence; /* WORK_NO_SEQUENCE: not known */
	uint32_t line; /* id of a rec_python; 0: not known */
	uint8_t kind; /* enum rec_work_kind */
	uint8_t reserved[3];
};

/* A call that gives work to a device; that work has the same correlation. */
struct rec_launch {
	struct rec head;
	uint64_t wall_ns;
	uint64_t correlation;
	uint32_t tid;
	uint32_t reserved;
};

enum rec_oom_limit { OOM_NO_LIMIT = 0, OOM_LIMIT_SPACE = 1, OOM_LIMIT_DATA = 2 }; /* RLIMIT_… */

struct rec_oom {
	struct rec head;
	uint64_t size_bytes; /* what was asked for */
	uint64_t flag; /* flag word of the driver call; of a pool: bytes that it may have in all; of
			* the host: the limit, 0: none */
	uint16_t device;
	uint8_t kind; /* ALLOC_PLAIN: halMemAlloc, ALLOC_CREATE: halMemCreate, ALLOC_REGION: pool */
	uint8_t limit; /* of the host: enum rec_oom_limit */
	uint8_t pool; /* POOL_CUDA: flag is what was free on the device, OOM_UNKNOWN; else 0 */
	uint8_t module; /* of POOL_CUDA: rec_library */
	uint16_t reserved2;
};

#define OOM_UNKNOWN UINT64_MAX

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
	uint64_t others_bytes; /* by processes that are not of this recording; DEVICE_UNKNOWN */
	uint16_t device; /* the driver's number */
	uint16_t others; /* how many they are */
	uint32_t reserved;
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

enum rec_block_flags {
	BLOCK_WRITTEN = 1 << 0, /* it has a MALLOC row */
	BLOCK_SHADOW = 1 << 1, /* which says that nobody knows when it was allocated */
	BLOCK_ARENA = 1 << 2, /* a mapping that objects of Python were cut from */
	BLOCK_ALONE = 1 << 3, /* an object of Python that is host memory itself */
	BLOCK_LABELLED_LATE = 1 << 4, /* after that row */
};

#define BLOCK_LEVELS 8 /* of labels */

/*
 * A block that is alive where a recording begins, since what came before was dropped. head has the
 * time and the call stack of its allocation. Text: the lengths of its labels, a byte for each
 * level, then the labels; or nothing.
 */
struct rec_block {
	struct rec head;
	uint64_t addr;
	uint64_t size_bytes;
	uint64_t id; /* allocation_id */
	uint32_t step; /* in which it was allocated */
	uint16_t device; /* the driver's number */
	uint16_t len;
	uint8_t pool;
	uint8_t kind; /* enum rec_alloc_kind, BLOCK_OF_MALLOC */
	uint8_t page;
	uint8_t module;
	uint16_t flags; /* enum rec_block_flags */
	uint8_t cut_by; /* the pool that has cut blocks from it first; 0: none */
	uint8_t context; /* as in rec_alloc */
	char text[];
};

#define BLOCK_OF_MALLOC 64 /* a mapping that malloc has served blocks from */

enum rec_state_kind {
	STATE_BEGIN = 0, /* the checkpoint of a process; flags: STATE_TRACING, STATE_WINDOW */
	/* device, pool; value: bytes of the pool, most bytes of blocks, most of the pool, when */
	STATE_USAGE = 1,
	STATE_OWED = 2, /* pool; value: address, time, frees that are to come, thread */
	STATE_MOVING = 3, /* value: thread that is inside mremap(), kind of the mapping and one */
	STATE_THREAD = 4, /* value: thread, operators of torch that run in it */
	/* device; value: when the framework showed a refusal, whether one waits for a sample; of
	 * the process: when blocks were listed for one, how many of them so far */
	STATE_REFUSED = 5,
	STATE_END = 6, /* value: rows and blocks so far, step, id of its range, first step */
	/* of the block that follows; value: layer, address and bytes of its tensors, forward pass
	 * */
	STATE_LAYER = 7,
	STATE_FORWARDS = 8, /* value: thread, forward passes that have begun in it */
	STATE_KIND_END,
};

enum rec_state_flags {
	STATE_TRACING = 1 << 0,
	STATE_WINDOW = 1 << 1, /* rows are being written */
	STATE_BY_RANGE = 1 << 2, /* steps are ranges … */
	STATE_BY_CALL = 1 << 3, /* … or calls … */
	STATE_BY_OPTIMIZER =
		1 << 4, /* … or were detected; STATE_BEGIN's value[3]: SYSTEM_STEP_NAME */
	STATE_BY_FORWARD = 1 << 5,
};

struct rec_state {
	struct rec head;
	uint64_t value[5]; /* meaning by `kind` */
	uint16_t device;
	uint8_t kind;
	uint8_t pool;
	uint32_t flags; /* enum rec_state_flags */
};

#define WATCH_NO_OUTPUT UINT32_MAX /* the program named the block: no output of an operator */

/*
 * What a watched block held when an operator began or ended. Text: the operator, a NUL, and the
 * name of what is watched: the operator whose output it is, or the name that the program gave.
 */
struct rec_watch {
	struct rec head;
	uint64_t addr;
	uint64_t size_bytes;
	uint64_t checksum;
	uint64_t content; /* its bytes are in the file <pid>-<content> of the recording; 0: no */
	uint32_t watch; /* counts the watches of the process, from 1 */
	uint32_t seq; /* counts the samples of the watch, from 1 */
	uint32_t call; /* of the operator, per thread, from 1; 0 where it is not known */
	uint32_t watched_call; /* of the operator whose output it is */
	uint32_t output;
	uint32_t error; /* of the device's library or errno; not 0: there is no checksum */
	uint16_t device;
	uint16_t len;
	uint8_t after; /* 0 at the beginning of the operator, 1 at its end */
	uint8_t content_errno; /* why the bytes are in no file, though they were asked for */
	uint8_t last; /* 1: the watch was begun for so many samples, and ends with this one */
	uint8_t reserved;
	char text[];
};

/* An executable object: [start, end) is where it is mapped, bias what is added to its symbols. */
struct rec_module {
	struct rec head;
	uint64_t start;
	uint64_t end;
	uint64_t bias;
	uint16_t len;
	uint16_t reserved[3];
	char text[]; /* path */
};

/* Words of a stack with these bits are no addresses: the rest is the id of a rec_python. */
#define STACK_PYTHON 0xffff000000000000ull
/* Neither: frames that were left out, those between the depth asked for and the innermost of the user's
 * own program, which follow: one of Python, up to four addresses of C. */
#define STACK_CUT STACK_PYTHON
#define STACK_CUT_WORDS 7u /* of a stack beyond its depth: these, and one like this before each */

/* Text: the function, a NUL, and the file. */
struct rec_python {
	struct rec head;
	uint64_t id;
	uint32_t line; /* 0: none */
	uint16_t len;
	uint16_t reserved;
	char text[];
};

/* What is recorded of a process: values as in struct mem_config of the recorder. */
struct rec_settings {
	uint32_t level;
	uint32_t dump_events;
	uint32_t analysis;
	uint32_t oom_top;
	uint32_t npu_slots;
	uint32_t c_depth;
	uint32_t py_depth;
	uint8_t npu_all;
	uint8_t cpu;
	uint8_t traceback;
	uint8_t format;
	uint8_t c_stack;
	uint8_t py_stack;
	uint8_t watch; /* SETTINGS_WATCH… */
	uint8_t python_objects;
};

#define SETTINGS_WATCH 1 /* memory is watched */
#define SETTINGS_WATCH_HOST 2 /* some of it the host's, even if that is not recorded */
#define SETTINGS_EVENTS_ASKED 4 /* --events was given: dump_events is no default */

/* The program itself has changed them. Text: where its dumps go, empty where they went before. */
struct rec_config {
	struct rec head;
	struct rec_settings settings;
	uint16_t len;
	uint16_t reserved;
	char text[];
};

/* Bytes as the framework's allocator and the device report them. Text: its name. */
struct rec_snapshot {
	struct rec head;
	uint64_t reserved_bytes;
	uint64_t peak_reserved_bytes;
	uint64_t allocated_bytes;
	uint64_t peak_allocated_bytes;
	uint64_t total_bytes;
	uint64_t free_bytes;
	uint16_t device;
	uint16_t len;
	uint32_t reserved;
	char text[];
};

/* A call is known by `name` (functions of C) or by `place` (functions of Python). */
enum rec_call_kind {
	CALL_PYTHON = 0, /* begins; name, if not 0: what it is called instead */
	CALL_C = 1, /* begins; place: of the function that calls it, 0 where it is not known */
	CALL_RETURN = 2, /* place: which ends */
	CALL_C_RETURN = 3, /* name: which ends */
	CALL_OPEN = 4, /* place: ran before tracing began; name: in which thread, 0: this one */
	CALL_STOP = 5, /* tracing ends in all threads, whatever has not ended */
	CALL_NOTE = 6, /* begins; name: hash of this one span, whose REC_NAME came before */
	CALL_NOTE_END = 7, /* name: which ends */
	CALL_KIND_END,
};

struct rec_call {
	struct rec head;
	uint64_t name; /* hash; its text comes as REC_NAME */
	uint32_t place; /* id of a rec_python; 0: none */
	uint8_t kind;
	uint8_t reserved[3];
};

/*
 * Python stacks as the recorder samples them from outside, and counters: of no process of the
 * recording (PROC_NONE), since processes that have not joined it are sampled, too. A stack is its
 * innermost call, each of which knows its caller:
 *
 *	REC_FRAME   1: main (t.py), of 0      REC_FRAME   2: train (t.py), of 1
 *	REC_SAMPLE  thread 7 of process 5: 2  ->  main, train
 *
 * A thread's sample counts until its next one; frame 0: it is not sampled any more. One whose stack
 * has not changed comes again after a while, so that what a recorder that was killed has seen is
 * known.
 */
#define PROC_NONE UINT32_MAX

struct rec_frame {
	struct rec head;
	uint32_t id; /* counted from 1, of this recorder */
	uint32_t caller; /* 0: nothing called it */
	int32_t line; /* the first one of the function; 0: not known */
	uint16_t len;
	uint16_t reserved;
	char text[]; /* name \0 file */
};

enum rec_sample_flags {
	SAMPLE_GC = 1 << 0, /* the collector runs, called by the frame */
	SAMPLE_KEPT_SHIFT = 8, /* above: how many calls, the outermost first, go on since the
				* sample before; the others are new, even where they are alike */
};

struct rec_sample {
	struct rec head;
	uint32_t pid, tid; /* as the process knows them, where that is known */
	uint32_t frame;
	uint32_t flags; /* enum rec_sample_flags */
};

/* What a process is among the others of its job, as far as whoever looks at all of them can see. */
enum sampled_role { SAMPLED_UNKNOWN, SAMPLED_RANK, SAMPLED_HELPER, SAMPLED_LAUNCHER };

/* Before its first sample, and again when more is known. */
struct rec_sampled {
	struct rec head;
	uint32_t pid;
	uint32_t tid; /* 0: the process, and the text is its command; else the thread's name */
	int32_t rank; /* of the process, or of the one that it helps; -1: not known */
	uint16_t len;
	uint8_t role; /* enum sampled_role, of a process */
	uint8_t reserved;
	char text[];
};

enum rec_counter_track { COUNTER_OF_NPU, COUNTER_OF_GPU, COUNTER_OF_HOST, COUNTER_OF_PROCESS };

struct rec_counter {
	struct rec head;
	double value;
	uint32_t pid; /* of COUNTER_OF_PROCESS */
	int32_t card; /* -1 */
	uint8_t track; /* enum rec_counter_track */
	uint8_t reserved[5];
	uint16_t len;
	char text[];
};

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

_Static_assert(sizeof(struct rec) == 16, "rec changed size");
_Static_assert(sizeof(struct rec_thread) == 24, "rec_thread changed size");
_Static_assert(sizeof(struct rec_alloc) == 40, "rec_alloc changed size");
_Static_assert(sizeof(struct rec_free) == 32, "rec_free changed size");
_Static_assert(sizeof(struct rec_heap) == 40, "rec_heap changed size");
_Static_assert(sizeof(struct rec_access) == 40, "rec_access changed size");
_Static_assert(sizeof(struct rec_op) == 24, "rec_op changed size");
_Static_assert(sizeof(struct rec_kernel) == 32, "rec_kernel changed size");
_Static_assert(sizeof(struct rec_name) == 32, "rec_name changed size");
_Static_assert(sizeof(struct rec_mark) == 32, "rec_mark changed size");
_Static_assert(sizeof(struct rec_system) == 32, "rec_system changed size");
_Static_assert(sizeof(struct rec_label) == 32, "rec_label changed size");
_Static_assert(sizeof(struct rec_oom) == 40, "rec_oom changed size");
_Static_assert(sizeof(struct rec_watch) == 80, "rec_watch changed size");
_Static_assert(sizeof(struct rec_device) == 56, "rec_device changed size");
_Static_assert(sizeof(struct rec_usage) == 120, "rec_usage changed size");
_Static_assert(sizeof(struct rec_process) == 48, "rec_process changed size");
_Static_assert(sizeof(struct rec_module) == 48, "rec_module changed size");
_Static_assert(sizeof(struct rec_python) == 32, "rec_python changed size");
_Static_assert(sizeof(struct rec_settings) == 36, "rec_settings changed size");
_Static_assert(sizeof(struct rec_config) == 56, "rec_config changed size");
_Static_assert(sizeof(struct rec_snapshot) == 72, "rec_snapshot changed size");
_Static_assert(sizeof(struct rec_call) == 32, "rec_call changed size");
_Static_assert(sizeof(struct rec_activity) == 88, "rec_activity changed size");
_Static_assert(sizeof(struct rec_monitor) == 40, "rec_monitor changed size");
_Static_assert(sizeof(struct rec_map) == 40, "rec_map changed size");
_Static_assert(sizeof(struct rec_block) == 56, "rec_block changed size");
_Static_assert(sizeof(struct rec_state) == 64, "rec_state changed size");
_Static_assert(sizeof(struct rec_layer) == 48, "rec_layer changed size");
_Static_assert(sizeof(struct rec_vmm) == 56, "rec_vmm changed size");
_Static_assert(sizeof(struct rec_context) == 32, "rec_context changed size");
_Static_assert(sizeof(struct rec_gpu) == 64, "rec_gpu changed size");
_Static_assert(sizeof(struct rec_library) == 24, "rec_library changed size");
_Static_assert(sizeof(struct rec_work) == 48, "rec_work changed size");
_Static_assert(sizeof(struct rec_launch) == 40, "rec_launch changed size");
_Static_assert(sizeof(struct rec_frame) == 32, "rec_frame changed size");
_Static_assert(sizeof(struct rec_sample) == 32, "rec_sample changed size");
_Static_assert(sizeof(struct rec_sampled) == 32, "rec_sampled changed size");
_Static_assert(sizeof(struct rec_counter) == 40, "rec_counter changed size");

/* Bytes of a record with `len` bytes of text behind `fixed` bytes. */
static inline uint16_t rec_size(size_t fixed, size_t len)
{
	return (uint16_t)((fixed + len + 7) & ~(size_t)7);
}

/*
 * Is the record that starts at `r`, with `avail` bytes behind it, well formed? Checks the type,
 * the size against the type, and the text length against the size. Nothing else of a record may
 * be touched before this said yes.
 */
bool rec_check(const struct rec *r, size_t avail);

/* The text of a checked record and its length; NULL and 0 for types without text. */
const char *rec_text(const struct rec *r, size_t *out_len);

/* What a call stack refers to is reported inside the event that met it first. That event follows,
 * and is older: the time of such a record says nothing about those behind it. */
static inline bool rec_is_inside_event(const struct rec *r)
{
	return r->type == REC_MODULE || r->type == REC_PYTHON;
}

#endif
