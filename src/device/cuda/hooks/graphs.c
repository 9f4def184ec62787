/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Memory of CUDA graphs. What a graph allocates has addresses from the beginning, and memory when it
 * is launched; the driver keeps it for the next launch, of any graph on the device, until it is
 * trimmed. So it is one block for each device, made anew when its size has changed.
 *
 *	a graph gets a node that allocates, or an allocation is captured --> its device is noted
 *	a launch, a trim --> the driver is asked what noted devices have
 */
#include "device/cuda/hooks/hooks.h"

#include <errno.h>
#include <stdatomic.h>

#define MAX_NOTED 64u
#define GRAPHS_OF(device) (0xffff000000000000ull | (device)) /* no handle of the driver */

static _Atomic uint64_t noted; /* a bit for each device, by the job's number */
static _Atomic uint64_t held[MAX_NOTED]; /* bytes, as they were reported */

void graphs_note(cu_device device)
{
	if (device < 0 || device >= (int)MAX_NOTED)
		return;
	uint64_t bit = 1ull << device;
	if (!(atomic_load_explicit(&noted, memory_order_relaxed) & bit))
		atomic_fetch_or(&noted, bit);
}

static void note_current(void)
{
	cu_device device;

	if (driver.ctx_get_device && driver.ctx_get_device(&device) == CU_SUCCESS)
		graphs_note(device);
}

static void report_change(cu_device device, const void *caller)
{
	uint64_t now = 0;

	if (!driver.graph_get_attribute ||
	    driver.graph_get_attribute(device, CU_GRAPH_RESERVED_NOW, &now) != CU_SUCCESS)
		return;
	uint64_t before = atomic_exchange(&held[device], now);
	if (before == now)
		return;
	struct collect_block b = {
		.addr = GRAPHS_OF((uint64_t)device),
		.size_bytes = now,
		.device = device_number(device),
		.pool = POOL_CUDA,
		.kind = ALLOC_GRAPH,
		.module = collect_library(caller),
	};
	if (before)
		collect_free(&b, caller);
	if (now)
		collect_alloc(&b, caller);
}

static void report_changes(const void *caller)
{
	uint64_t devices = atomic_load(&noted);
	int saved = errno;

	collect_see_driver();
	for (; devices && collect_wants_driver(); devices &= devices - 1)
		report_change(__builtin_ctzll(devices), caller);
	errno = saved;
}

int hook_graph_launch(graph_launch_fn real, const void *caller, void *exec, cu_stream stream)
{
	if (__builtin_expect(!atomic_load_explicit(&noted, memory_order_relaxed), 1))
		return real(exec, stream);
	INSIDE(real, exec, stream);
	int r = real(exec, stream);
	report_changes(caller);
	hook_leave();
	return r;
}

int hook_graph_trim(graph_trim_fn real, const void *caller, cu_device device)
{
	INSIDE(real, device);
	int r = real(device);
	report_changes(caller);
	hook_leave();
	return r;
}

int hook_graph_add_alloc(graph_add_alloc_fn real, const void *caller, void **out, void *graph,
			 const void *after, size_t n, struct cu_graph_alloc *params)
{
	(void)caller;
	int r = real(out, graph, after, n, params);
	if (r == CU_SUCCESS && params)
		graphs_note(params->pool.location.id);
	return r;
}

/* Both forms: the newer one has a parameter more, in the middle. So what was added is asked. */
int hook_graph_add_node(graph_add_node_fn real, const void *caller, void **out, void *graph,
			const void *a, const void *b, const void *c, const void *d)
{
	(void)caller;
	int r = real(out, graph, a, b, c, d), type = 0;
	if (r == CU_SUCCESS && out && driver.graph_node_get_type &&
	    driver.graph_node_get_type(*out, &type) == CU_SUCCESS && type == CU_NODE_ALLOC)
		note_current();
	return r;
}

/* What is allocated while a stream is captured is memory of a graph: there is none yet. The question
 * takes half a microsecond: it is asked in programs that have captured something. */
static _Atomic bool captures;

int hook_begin_capture(begin_capture_fn real, const void *caller, cu_stream stream, int mode)
{
	(void)caller;
	atomic_store_explicit(&captures, true, memory_order_relaxed);
	return real(stream, mode); /* the first version has no mode, and does not look at it */
}

int hook_capture_to_graph(capture_to_graph_fn real, const void *caller, cu_stream stream,
			  void *graph, const void *nodes, const void *edges, size_t n, int mode)
{
	(void)caller;
	atomic_store_explicit(&captures, true, memory_order_relaxed);
	return real(stream, graph, nodes, edges, n, mode);
}

bool graphs_capture(cu_stream stream)
{
	int state = 0;

	if (!atomic_load_explicit(&captures, memory_order_relaxed) || !driver.stream_is_capturing ||
	    driver.stream_is_capturing(stream, &state) != CU_SUCCESS || !state)
		return false;
	note_current();
	return true;
}
