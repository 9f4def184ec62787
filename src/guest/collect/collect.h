/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What hooks call: one function per kind of fact. Each decides by itself whether the fact is
 * wanted; a hook just reports. Exported by libsonde_guest.so to the preload libraries.
 *
 * `caller` is __builtin_return_address(0) of the hook: stacks begin there.
 *
 * Order matters: an allocation is reported after the real call succeeded; a free is bracketed, so
 * that its time lies before the moment the address can be handed out again:
 *
 *	thread A                                thread B
 *	t1 = free_begin(p): hold, read clock
 *	real free(p)                            p = real alloc(), t2: the same address
 *	free_end(): record with t1              record with t2
 *
 * t1 < t2, so the recorder sees the free first, although B may have published before A: A's hold
 * (wire/ring.h) keeps the recorder from passing t1.
 *
 * What is recorded when, by mode (guest.h) and want (enum session_want):
 *
 *	GUEST_OFF      nothing
 *	GUEST_SHADOW   between stop and start: allocations, frees, heaps, labels, names, with coarse
 *	               times and no stacks, so that the blocks that live at the next start are known
 *	GUEST_RECORD   what is wanted
 *
 * Every function may be called by any thread at any time, by signal handlers too, and leaves errno
 * alone, unless its comment says otherwise.
 */
#ifndef SONDE_GUEST_COLLECT_COLLECT_H
#define SONDE_GUEST_COLLECT_COLLECT_H

#include "wire/control_page.h"
#include "wire/record.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * In the job's global namespace our names begin with sonde_, whatever they are called here: a job
 * may have a collect_free() of its own. Everything else of the library is hidden.
 */
#define EXPORTED(name) __asm__("sonde_" #name)

#pragma GCC visibility push(default)

struct collect_block {
	uint64_t addr;
	uint64_t size_bytes;
	uint16_t device;
	uint8_t pool; /* enum rec_pool */
	uint8_t kind; /* enum rec_alloc_kind */
	uint8_t page; /* enum rec_page */
	uint8_t module;
	uint16_t context; /* see rec_alloc */
};

/* Is any of these (enum session_want) being recorded right now? */
bool collect_wants(uint32_t want) EXPORTED(collect_wants);

/* Is this process being recorded at all right now? */
bool collect_tracing(void) EXPORTED(collect_tracing);

void collect_alloc(const struct collect_block *b, const void *caller) EXPORTED(collect_alloc);
/* One that was there before anybody looked: nobody knows since when. */
void collect_alloc_old(const struct collect_block *b) EXPORTED(collect_alloc_old);

/* A free that cannot fail, reported before the memory goes back. Uses addr, device, pool, kind. */
void collect_free(const struct collect_block *b, const void *caller) EXPORTED(collect_free);

/*
 * A free that can fail: begin, call the real one, then end(…, true) only if it succeeded. From the
 * beginning on the block is not read any more by the watch.
 */
struct collect_pending {
	uint64_t time_ns; /* 0: not recording */
	bool held;
};
struct collect_pending collect_free_begin(const struct collect_block *b)
	EXPORTED(collect_free_begin);
void collect_free_end(struct collect_pending p, const struct collect_block *b, bool happened,
		      const void *caller) EXPORTED(collect_free_end);

/*
 * Mappings (mappings.c), by whole pages. collect_sees_mappings(): are calls from there reported?
 * False in a process whose host memory nobody asked for, and for our own. Who takes memory away
 * says so before and after, as for collect_free_begin(). collect_see_mappings(): from now on.
 */
void collect_see_mappings(void) EXPORTED(collect_see_mappings);
bool collect_sees_mappings(const void *caller) EXPORTED(collect_sees_mappings);
void collect_map(uint8_t op, uint64_t addr, uint64_t bytes, uint8_t kind, const void *caller)
	EXPORTED(collect_map);
struct collect_pending collect_unmap_begin(void) EXPORTED(collect_unmap_begin);
void collect_unmap_end(struct collect_pending p, uint8_t op, uint64_t addr, uint64_t bytes,
		       bool happened, const void *caller) EXPORTED(collect_unmap_end);

/* The program has ended by itself: what follows is its teardown. Once in a process; a process that
 * has had no event makes none now. */
void collect_program_end(void) EXPORTED(collect_program_end);

/* Blocks of CPython's allocator, if they were asked for and this is Python: from now on. At load, or
 * by a thread that has the GIL. Not in a signal handler. */
void collect_hook_objects(void) EXPORTED(collect_hook_objects);

/* What a pool holds from the driver; see enum rec_heap_mode. */
void collect_heap(uint8_t pool, uint16_t device, uint8_t mode, uint64_t addr, int64_t bytes)
	EXPORTED(collect_heap);

/* The driver had no memory left. */
/* Host memory that was refused; keeps errno. */
void collect_host_refusal(uint64_t size, const void *caller) EXPORTED(collect_host_refusal);
void collect_oom(uint16_t device, uint8_t kind, uint64_t size, uint64_t flag, const void *caller)
	EXPORTED(collect_oom);

/*
 * torch's caching allocator on a GPU (torch.c). `bytes` > 0: a block begins, < 0: it ends.
 * collect_torch_blocks(): how many events of this kind there were. collect_set_gpu_number(): which
 * number on this machine a GPU has that the job calls `index`.
 */
struct collect_torch {
	uint64_t addr;
	int64_t bytes;
	uint64_t reserved_bytes; /* that the allocator has from the driver, on this device */
	uint16_t index;
};
void collect_torch_block(const struct collect_torch *t, const void *caller)
	EXPORTED(collect_torch_block);
uint64_t collect_torch_blocks(void) EXPORTED(collect_torch_blocks);
void collect_set_gpu_number(uint16_t index, uint16_t number) EXPORTED(collect_set_gpu_number);

/*
 * The CUDA driver (driver.c). Also while not tracing, with exact times: all but blocks are few. What
 * takes something away is bracketed, as a free is: collect_driver_begin(), the real call, then the
 * function with what happened.
 */
struct collect_vmm {
	uint64_t addr, bytes, handle, offset;
	uint8_t op; /* enum rec_vmm_op */
};
bool collect_wants_driver(void) EXPORTED(collect_wants_driver);
struct collect_pending collect_driver_begin(void) EXPORTED(collect_driver_begin);
void collect_vmm(const struct collect_vmm *v, const void *caller) EXPORTED(collect_vmm);
void collect_vmm_end(struct collect_pending p, const struct collect_vmm *v, bool happened,
		     const void *caller) EXPORTED(collect_vmm_end);
struct collect_context {
	uint64_t handle;
	uint16_t context, device;
	uint8_t op, flags; /* enum rec_context_op, enum rec_context_flags */
};
void collect_context(const struct collect_context *c, const void *caller) EXPORTED(collect_context);
void collect_context_end(struct collect_pending p, const struct collect_context *c, bool happened,
			 const void *caller) EXPORTED(collect_context_end);
/* head and len are filled in here. */
void collect_gpu(const struct rec_gpu *r, const char *name, const char *visible)
	EXPORTED(collect_gpu);
/* Who asks: a number for `module`, of the innermost object on the stack that is not the driver, nor
 * CUDA's runtime, nor we. MODULE_NONE: nobody is found, or nothing is recorded. */
uint8_t collect_library(const void *caller) EXPORTED(collect_library);
void collect_driver_oom(const struct collect_block *b, uint64_t free_bytes, const void *caller)
	EXPORTED(collect_driver_oom);
/* Blocks of this driver's pool are reported by a hook in this process, so by nobody else. */
void collect_see_driver(void) EXPORTED(collect_see_driver);
bool collect_sees_driver(void) EXPORTED(collect_sees_driver);

/* Text longer than REC_MAX_TEXT is cut. extra (domain, attributes) may be NULL. */
void collect_mark(uint8_t kind, uint64_t range, const char *message, const char *domain)
	EXPORTED(collect_mark);
void collect_op(uint8_t kind, const char *name, const char *attrs, const void *caller)
	EXPORTED(collect_op);
/* An operator of torch whose device is known; reported whatever collect_wants() says of operators.
 * Its end also while nothing is traced any more: it may have begun before. */
void collect_aten(bool begins, uint16_t device, const char *name, const void *caller)
	EXPORTED(collect_aten);
void collect_access(const struct collect_block *b, uint8_t access, const char *op,
		    const char *attrs) EXPORTED(collect_access);
void collect_system(uint8_t kind, uint64_t value) EXPORTED(collect_system);
void collect_label(uint8_t kind, uint8_t level, uint64_t addr, const char *label)
	EXPORTED(collect_label);
/* The text of a layer comes by collect_name(), before. addr and bytes: of LAYER_ADDR. */
void collect_layer(uint8_t kind, uint64_t layer, uint64_t addr, uint64_t bytes)
	EXPORTED(collect_layer);

/* What is allocated while gradients are computed is told with the operation that they are of; it does
 * something only if collect_autograd() was told how that is known. */
void collect_follow_gradients(bool on) EXPORTED(collect_follow_gradients);

/* --- attribution.c: which module and line the work belongs to that this thread launches --- */

/* Functions and places of libtorch, by which the operation is known whose gradient is computed. */
struct collect_autograd {
	uint64_t (*sequence)(void); /* the number of this thread's next operation */
	uint64_t (*thread)(void); /* who counts */
	void *(*node)(void); /* what this thread computes the gradient of; NULL: nothing */
	uint32_t sequence_at, thread_at; /* offsets in a node */
	uintptr_t loader_from, loader_to; /* the dynamic loader */
};

/* It stays; without it gradients are nobody's. */
void collect_autograd(const struct collect_autograd *found) EXPORTED(collect_autograd);
/* Nothing is told before it is on. */
void collect_work_switch(bool on) EXPORTED(collect_work_switch);
/* A module begins or goes on in this thread; 0: none does. line: where the user's program called it,
 * if nothing inside of it can be the user's own code; 0: that is found out at each launch. */
void collect_work(uint64_t layer, uint32_t line) EXPORTED(collect_work);
/* The innermost line of the user's own program in this thread, 0: there is none. For collect_work(),
 * as long as the epoch is the same. */
uint32_t collect_users_line(void) EXPORTED(collect_users_line);
/* This thread is about to launch something, now (CLOCK_REALTIME). */
void collect_work_launch(uint64_t wall_ns) EXPORTED(collect_work_launch);
/* A launch as the vendor's library reports it. */
void collect_launch(uint64_t correlation, uint32_t tid, uint64_t wall_ns) EXPORTED(collect_launch);

/* Kernels. Launches nest (acl calls rt): only the outermost is one launch. */
bool collect_launch_enter(void) EXPORTED(
	collect_launch_enter); /* true: this is the outermost; call collect_launch_leave() */
void collect_launch_leave(void) EXPORTED(collect_launch_leave);
void collect_kernel(uint8_t kind, uint64_t time_ns, uint64_t name_hash, uint16_t device,
		    uint16_t stream, uint16_t task) EXPORTED(collect_kernel);
void collect_name(uint64_t hash, const char *text, size_t len) EXPORTED(collect_name);

/*
 * Watched memory (watch.h): an operator begins, has an output, ends; all three in its own thread.
 * Names as the framework gives them. ACL and runtime launches have no name before they are through.
 * Only while collect_wants(WANT_WATCH).
 */
void collect_watch_begin(const char *op) EXPORTED(collect_watch_begin);
void collect_watch_output(const char *op, uint64_t addr, uint64_t bytes, uint32_t index)
	EXPORTED(collect_watch_output);
/* The same for memory that is not, or may not be, of the thread's device: DEV_HOST for the host. */
void collect_watch_output_on(const char *op, uint16_t device, uint64_t addr, uint64_t bytes,
			     uint32_t index) EXPORTED(collect_watch_output_on);
void collect_watch_end(const char *op) EXPORTED(collect_watch_end);
void collect_watch_launch(void) EXPORTED(collect_watch_launch);
void collect_watch_launched(void) EXPORTED(collect_watch_launched);

/* What is to be watched in this process, instead of what its recording was started with. */
void collect_watch_configure(const char *start, uint32_t output, const char *end, bool content)
	EXPORTED(collect_watch_configure);
/*
 * A block that the program names; device DEV_HOST: memory of the host, DEV_NONE: of whatever device
 * the thread has that looks at it. dumps < 0: no limit. False: no room, or nothing is recorded.
 */
bool collect_watch_named(uint16_t device, uint64_t addr, uint64_t bytes, const char *name,
			 int32_t dumps) EXPORTED(collect_watch_named);
void collect_watch_unnamed(uint64_t addr) EXPORTED(collect_watch_unnamed);
/* Is any block watched that the program named? */
bool collect_watch_any(void) EXPORTED(collect_watch_any);
/* Is any memory of the host watched? */
bool collect_watch_host(void) EXPORTED(collect_watch_host);

/*
 * Tells a process from those it was forked from: what was noted under another value was noted in
 * another process. 0 or UINT32_MAX before the first event.
 */
uint32_t collect_epoch(void) EXPORTED(collect_epoch);

/* The device that the calling thread works on, DEV_NONE if nobody knows. */
uint16_t collect_device(void) EXPORTED(collect_device);
/* What the framework says, for processes without the runtime that would know; DEV_NONE: nothing. */
void collect_set_device(uint16_t device) EXPORTED(collect_set_device);

/* A new id for a range, counted per process from 1. */
uint64_t collect_range_id(void) EXPORTED(collect_range_id);

/* start/stop of tracing in this process (deferred collection). */
void collect_set_tracing(bool on) EXPORTED(collect_set_tracing);

/* Steps of the step API: n = 1, 2, … per process. */
void collect_step(void) EXPORTED(collect_step);
/*
 * A step that the program did not report: enum rec_step_source, and the name of what stepped.
 * `first`: counting begins anew, what was detected before was no step. False: the program reports
 * its steps, so nobody asks for others any more.
 */
bool collect_detected_step(uint8_t source, const char *name, bool first)
	EXPORTED(collect_detected_step);
bool collect_steps_reported(void) EXPORTED(collect_steps_reported);

/* --- for the Python package --- */

/*
 * For a library that was not preloaded: joins the recording that the environment names, or makes
 * one below `output_dir` (absolute; NULL: the current directory's). Nothing happens if this process
 * has one already. True: events of this process are or will be recorded.
 */
bool collect_begin(const char *output_dir) EXPORTED(collect_begin);
/* Was it configured by a launcher? Then the program has no say in where its files are. */
bool collect_is_launched(void) EXPORTED(collect_is_launched);
/* Has this process joined its recording? Before that nothing has been decided. */
bool collect_has_joined(void) EXPORTED(collect_has_joined);
/* Where the recording is; "" if there is none. */
const char *collect_session_dir(void) EXPORTED(collect_session_dir);
/* What the recording was asked for; false before this process has joined. */
bool collect_settings(struct rec_settings *out) EXPORTED(collect_settings);
/* What `sonde record` asks for, before it has joined, too; NULL: this is no such recording. */
struct session_record;
const struct session_record *collect_record(void) EXPORTED(collect_record);
/* What the recorder has counted in a pool of this process, as of its last flush; false: nothing. */
struct collect_usage {
	uint64_t used_bytes, peak_bytes, peak_heap_bytes;
};
bool collect_usage(uint16_t device, uint8_t pool, struct collect_usage *out)
	EXPORTED(collect_usage);
/* What is wanted right now (enum session_want), whether tracing or not. */
uint32_t collect_want(void) EXPORTED(collect_want);

/* From now on this process records something else; `want` is what follows from the settings.
 * output_dir NULL: files stay where they are. */
void collect_configure(const struct rec_settings *s, uint32_t want, const char *output_dir)
	EXPORTED(collect_configure);

/* Our own functions are not reported in Python stacks: `name` is the object co_filename of a file,
 * which must live as long as the process. */
void collect_hide_file(const void *name) EXPORTED(collect_hide_file);

/* Waits, at most so long, until the files hold what has happened. False: they do not yet. */
bool collect_flush(uint32_t timeout_ms) EXPORTED(collect_flush);

/* Also while not tracing. head and len are filled in here; caller may be NULL: no stack. */
void collect_snapshot(const struct rec_snapshot *r, const char *name, const void *caller)
	EXPORTED(collect_snapshot);

/*
 * Calls, as the interpreter sees them; who asks has the GIL. collect_traces(): not 0 while they
 * are recorded, and then another value in each process of a tree; ids and names are reported anew
 * under each. collect_code(): the id of a function by its code object; 0 where there is no room.
 */
uint32_t collect_traces(void) EXPORTED(collect_traces);
uint32_t collect_code(const void *code) EXPORTED(collect_code);
/* name: a hash that collect_name() has reported; see enum rec_call_kind. */
void collect_call(uint8_t kind, uint64_t name, uint32_t place) EXPORTED(collect_call);
/* The name of the class of the first argument of the function that this thread has just entered;
 * valid as long as the class. NULL where it is unknown. */
const char *collect_first_class(void) EXPORTED(collect_first_class);

/*
 * History: what somebody else has noted down and reports afterwards, with times and stacks of his
 * own (history.c). It has a ring of its own, and its times must not go back; the recorder puts it
 * between the events of all threads. One thread at a time.
 */
struct collect_frame {
	const char *file, *function; /* not terminated */
	uint32_t file_len, function_len;
	uint32_t line;
};
/* A place in code, and a stack of them, innermost first; 0: no room, or nothing records. */
#define COLLECT_MAX_PLACES 1000u
#define COLLECT_PLACE_CUT 0u /* stands for places that were left out */
uint32_t collect_frame_place(const struct collect_frame *f) EXPORTED(collect_frame_place);
uint32_t collect_places(const uint32_t *places, uint32_t n) EXPORTED(collect_places);
/* time_ns 0: it happened before now, nobody knows when. */
void collect_alloc_at(const struct collect_block *b, uint64_t time_ns, uint32_t stack)
	EXPORTED(collect_alloc_at);
void collect_free_at(const struct collect_block *b, uint64_t time_ns, uint32_t stack)
	EXPORTED(collect_free_at);
void collect_heap_at(const struct collect_block *b, uint8_t mode, uint64_t time_ns)
	EXPORTED(collect_heap_at);
/* What comes next is not older than this: younger events wait for it, one second at most. 0: they
 * need not wait any more. */
void collect_history_until(uint64_t time_ns) EXPORTED(collect_history_until);

/* The stack that an event has that happens here and now, at least as deep as one of refused memory;
 * and such an event with a stack. */
uint32_t collect_oom_stack(const void *caller) EXPORTED(collect_oom_stack);
void collect_oom_with(uint16_t device, uint8_t kind, uint64_t size, uint64_t flag, uint32_t stack)
	EXPORTED(collect_oom_with);

/*
 * Activities (activity.c): what the vendor's library reports afterwards. Times are of the wall
 * clock, as that library has them; texts may be NULL and are not needed after the call. Also while
 * not tracing. Any thread.
 */
struct collect_activity {
	uint64_t start_ns, end_ns;
	uint64_t correlation;
	uint64_t amount;
	uint64_t more; /* where the kind has a number there, and no text */
	const char *name, *detail, *more_text;
	uint32_t where[2];
	uint8_t kind; /* enum activity_kind */
	uint8_t flag;
	uint8_t place; /* enum activity_place */
	uint8_t async;
	uint16_t data_type;
};
void collect_activity(const struct collect_activity *a) EXPORTED(collect_activity);
/* Who wants to see each of them as it is reported; NULL: nobody. */
typedef void (*collect_activity_fn)(const struct collect_activity *a);
void collect_on_activity(collect_activity_fn fn) EXPORTED(collect_on_activity);
/* text may be longer than a record: it goes in pieces of MONITOR_REQUEST (or _GROUPS) before. */
void collect_monitor(uint8_t kind, uint64_t window, uint64_t value, int32_t rank, const char *text,
		     size_t len) EXPORTED(collect_monitor);
/*
 * Joins the recording of this process, or begins one below `dir` (absolute; NULL: there is no such
 * place) that lasts as long as the process and keeps nothing but what windows of the monitor write:
 * another one if the recorder of that was killed. The environment stays as it is. True: activities
 * are recorded.
 */
bool collect_begin_monitor(const char *dir) EXPORTED(collect_begin_monitor);
/*
 * That, or collect_begin(), has failed only because recorders were killed so often in a short time:
 * what they left takes the room, for half a minute if collect_release_formers() is called now and
 * then.
 */
bool collect_must_wait(void) EXPORTED(collect_must_wait);
void collect_release_formers(void) EXPORTED(collect_release_formers);
/* How many activities went with recorders that were killed; each is reported once. */
uint64_t collect_lost_with_recorder(void) EXPORTED(collect_lost_with_recorder);
/* Was it killed, or has it left? Every second or so: makes a few system calls. */
bool collect_recorder_is_gone(void) EXPORTED(collect_recorder_is_gone);
/* Is the session one that collect_begin_monitor() began? */
bool collect_is_monitors(void) EXPORTED(collect_is_monitors);
/* Who wants to know when collect_begin() takes the process out of that one, before and after. */
struct guest_mover;
void collect_on_move(const struct guest_mover *m) EXPORTED(collect_on_move);
/* How many steps have ended, by collect_step(); and who wants to know at once. NULL: nobody. */
uint64_t collect_steps(void) EXPORTED(collect_steps);
/* So many have ended: for who looks at the arena from outside, as `sonde snap` does. */
void collect_show_steps(uint64_t ended) EXPORTED(collect_show_steps);
/* In a Python program: sees to it that the steps of its optimizers are counted. */
void collect_bring_steps(void) EXPORTED(collect_bring_steps);
/* The recorder may look at this process' stacks, from outside, if it asks for that; or no longer.
 * Now and then, by one thread of ours. */
void collect_set_ptrace_access(bool on) EXPORTED(collect_set_ptrace_access);
/* Is this a Python program? */
bool collect_has_python(void) EXPORTED(collect_has_python);
typedef void (*collect_step_fn)(uint64_t ended);
void collect_on_step(collect_step_fn fn) EXPORTED(collect_on_step);

/* For the job's calls that change mappings: guest_find_own(), guest_detach(). */
bool collect_find_own(uint64_t lo, uint64_t hi, uint64_t *out_lo, uint64_t *out_hi)
	EXPORTED(collect_find_own);
void collect_detach(void) EXPORTED(collect_detach);
/* Host memory was asked for, and this process' is not seen: counted, at load. */
void collect_note_unseen_heap(void) EXPORTED(collect_note_unseen_heap);
/*
 * Around a call of the job that limits its system calls (guest_seal()); and who has threads, which
 * end before it.
 */
bool collect_seal(bool all_threads, bool no_clock) EXPORTED(collect_seal);
void collect_unseal(void) EXPORTED(collect_unseal);
bool collect_is_sealed(void) EXPORTED(collect_is_sealed);
typedef void (*collect_seal_fn)(void);
void collect_on_seal(collect_seal_fn fn) EXPORTED(collect_on_seal);

/* Marks for torch_npu's sanitizer, whether tracing or not; the stream is a handle. NULL: none. */
typedef void (*collect_sanitizer_fn)(const char *message, uint64_t stream);
void collect_sanitizer_set(collect_sanitizer_fn fn) EXPORTED(collect_sanitizer_set);
void collect_sanitizer(const char *message, const void *stream) EXPORTED(collect_sanitizer);

#pragma GCC visibility pop

#endif
