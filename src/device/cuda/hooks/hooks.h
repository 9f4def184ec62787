/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * libsonde_cuda_hook.so: every memory call of the CUDA driver.
 *
 *	the job's ways to a function of the driver        where it meets us
 *	dlsym, dlvsym (static and shared cudart, JAX, …)  dlsym.c hands out our function instead
 *	cuGetProcAddress, of any version                  itself handed out by dlsym.c; hand_out.c
 *	linked against libcuda.so.1                       hand_out.c exports the names
 *	the same in libraries loaded with RTLD_DEEPBIND   deep_binding.c writes it into their slots
 *
 * The files: dlsym.c comes before the C library's; hand_out.c has our functions and whose they stand
 * for; memory.c, vmm.c, arrays.c and graphs.c report; contexts.c and devices.c know where a block is.
 * CUPTI is not used, so no profiler is in the way.
 *
 * A call inside a call is not reported: another library that interposes the driver may call it
 * through us once more.
 */
#ifndef SONDE_DEVICE_CUDA_HOOKS_HOOKS_H
#define SONDE_DEVICE_CUDA_HOOKS_HOOKS_H

#include "device/cuda/hooks/calls.h"
#include "guest/collect/collect.h"

#include <stdatomic.h>
#include <stdbool.h>

/* --- dlsym.c: the C library's, or whoever comes after us --- */

void *next_dlsym(void *handle, const char *name);
void *function_behind(const char *name);
/* What the job calls by these names. */
const void *job_dlsym(void);
const void *job_dlvsym(void);

/* --- deep_binding.c --- */

/* Has something been loaded past us, and has it to be looked for still? */
extern _Atomic uint32_t deep_binding_looks __attribute__((visibility("hidden")));
static inline bool deep_binding_waits(void)
{
	return __builtin_expect(
		atomic_load_explicit(&deep_binding_looks, memory_order_relaxed) != 0, 0);
}
void deep_binding_look(void);

/* --- hand_out.c --- */

/* The function that the job gets instead of `real`; `real` if it is none of ours. `name` may have
 * the ending of a version or of the per-thread default stream. */
void *hand_out(const char *name, void *real);
/* The number of an exported name, -1: it is not one of ours. */
int find_export(const char *name);
const char *export_name(int export); /* NULL: there are no more */
/* Is there a driver in this process that has this one? */
bool has_real(int export);

/* --- devices.c: the driver's functions that we ask --- */

struct driver {
	int (*ctx_get_current)(cu_context *out);
	int (*ctx_get_device)(cu_device *out);
	int (*primary_get_state)(cu_device device, unsigned int *flags, int *active);
	int (*stream_get_ctx)(cu_stream stream, cu_context *out);
	int (*stream_is_capturing)(cu_stream stream, int *out);
	int (*ctx_push)(cu_context ctx);
	int (*ctx_pop)(cu_context *out);
	int (*mem_get_info)(size_t *free_bytes, size_t *total);
	int (*device_get_count)(int *out);
	int (*device_get)(cu_device *out, int index);
	int (*device_get_name)(char *out, int room, cu_device device);
	int (*device_total_mem)(size_t *out, cu_device device);
	int (*device_get_uuid)(uint8_t out[16], cu_device device);
	int (*device_get_attribute)(int *out, int attribute, cu_device device);
	int (*device_get_pool)(cu_pool *out, cu_device device);
	int (*pool_get_attribute)(cu_pool pool, int attribute, void *out);
	int (*driver_get_version)(int *out);
	int (*graph_get_attribute)(cu_device device, int attribute, void *out);
	int (*graph_node_get_type)(void *node, int *out);
};
extern struct driver driver;

/* Looks them up in the library that `real` lies in, once. */
void driver_find(void *real);
/* Number of a device on this machine, by how the job counts it; as the Python package has it. */
uint16_t device_number(cu_device device);
/* Says which devices there are, once in a process. */
void devices_report(int error);
/* No context could be made there. */
void devices_report_refused(cu_device device, int error, const void *caller);

/* --- contexts.c --- */

struct place {
	uint16_t device, context;
};
/* Of a block that the calling thread has just got; stream: in whose order, NULL: none. */
struct place place_now(cu_stream stream, const void *caller);
uint16_t device_of_pool(cu_pool pool, uint16_t otherwise);

/* --- graphs.c --- */

/* A graph allocates there. */
void graphs_note(cu_device device);
/* Is what is allocated in the order of this stream memory of a graph? */
bool graphs_capture(cu_stream stream);

/* --- one hook at a time --- */

bool hook_enter(void); /* true: this is the outermost; call hook_leave() */
void hook_leave(void);

/* What every hook does: reports nothing while inside another. */
#define INSIDE(fn, ...)                                                                            \
	if (__builtin_expect(!hook_enter(), 0))                                                    \
		return fn(__VA_ARGS__);

/* Refused memory. */
void report_refusal(struct collect_block *b, int error, const void *caller);

/* hook_<call>(real, caller, parameters of the call) */
#define UNPACK(...) __VA_ARGS__
#define CUDA_HOOK_DECLARED(call, params, ...)                                                      \
	int hook_##call(call##_fn real, const void *caller, UNPACK params);
CUDA_CALLS(CUDA_HOOK_DECLARED)

#endif
