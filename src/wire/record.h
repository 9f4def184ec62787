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
	LAYER_TENSOR = 5, /* in a checkpoint: LAYER_ADDR of one of several in a block */
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
_Static_assert(sizeof(struct rec_module) == 48, "rec_module changed size");
_Static_assert(sizeof(struct rec_python) == 32, "rec_python changed size");
_Static_assert(sizeof(struct rec_settings) == 36, "rec_settings changed size");
_Static_assert(sizeof(struct rec_config) == 56, "rec_config changed size");
_Static_assert(sizeof(struct rec_snapshot) == 72, "rec_snapshot changed size");
_Static_assert(sizeof(struct rec_call) == 32, "rec_call changed size");
_Static_assert(sizeof(struct rec_map) == 40, "rec_map changed size");
_Static_assert(sizeof(struct rec_layer) == 48, "rec_layer changed size");
_Static_assert(sizeof(struct rec_work) == 48, "rec_work changed size");
_Static_assert(sizeof(struct rec_launch) == 40, "rec_launch changed size");

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

#include "wire/record_activity.h"
#include "wire/record_checkpoint.h"
#include "wire/record_driver.h"
#include "wire/record_samples.h"

#endif
