/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Blocks of CPython's own allocator (--python-objects): a hook around that of each domain, as
 * PyMem_SetAllocator() is meant for. Put there before the interpreter starts, since it keeps what it
 * finds unless PYTHONMALLOC or -X dev name another one: then our hooks go, and so does this.
 *
 * Up to 512 bytes are pymalloc's, which cuts them from arenas that it maps. More goes to malloc and
 * is seen there. A free-threaded interpreter has mimalloc instead, for any size.
 *
 * The domain "raw" is malloc's. Not seen: what the interpreter takes from its own lists of freed
 * objects (numbers, tuples, frames), which it does not give back to the allocator in between.
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"
#include "guest/runtime/guest.h"

#include <string.h>

#define CALLER __builtin_return_address(0)
#define PYMALLOC_BYTES 512u

/* PyMemAllocatorEx */
struct allocator {
	void *ctx;
	void *(*malloc)(void *ctx, size_t size);
	void *(*calloc)(void *ctx, size_t n, size_t size);
	void *(*realloc)(void *ctx, void *old, size_t size);
	void (*free)(void *ctx, void *p);
};

enum { DOMAIN_MEM = 1, DOMAIN_OBJ = 2, DOMAINS = 3 }; /* PyMemAllocatorDomain */

extern void PyMem_GetAllocator(int domain, struct allocator *out) __attribute__((weak));
extern void PyMem_SetAllocator(int domain, struct allocator *a) __attribute__((weak));
extern const char *Py_GetVersion(void) __attribute__((weak));

static struct allocator below[DOMAINS];
static size_t most_bytes; /* larger ones are somebody else's */

static void report_alloc(const void *p, size_t size, const void *caller)
{
	struct collect_block b = {
		.addr = (uint64_t)p,
		.size_bytes = size,
		.device = DEV_HOST,
		.pool = POOL_PYTHON,
		.kind = ALLOC_PLAIN,
		.module = MODULE_NONE,
	};

	if (p && size <= most_bytes)
		collect_alloc(&b, caller);
}

static void report_free(const void *p, const void *caller)
{
	struct collect_block b = {
		.addr = (uint64_t)p, .device = DEV_HOST, .pool = POOL_PYTHON, .kind = ALLOC_PLAIN};

	if (p)
		collect_free(&b, caller);
}

/*
 * realloc: reported as freed before, not in between as realloc()'s: what malloc reports inside is
 * younger. If there was no memory the block is still there, of unknown size, and is not followed any
 * more.
 *
 * For each domain its own functions, which do not use ctx: without a GIL a thread may call a new
 * function with what was there before.
 */
#define HOOKS(domain, name)                                                                        \
	static void *name##_malloc(void *ctx, size_t size)                                         \
	{                                                                                          \
		void *p = below[domain].malloc(below[domain].ctx, size);                           \
                                                                                                   \
		(void)ctx;                                                                         \
		report_alloc(p, size, CALLER);                                                     \
		return p;                                                                          \
	}                                                                                          \
	static void *name##_calloc(void *ctx, size_t n, size_t size)                               \
	{                                                                                          \
		void *p = below[domain].calloc(below[domain].ctx, n, size);                        \
                                                                                                   \
		(void)ctx;                                                                         \
		report_alloc(p, n *size, CALLER); /* no overflow: there is a block */              \
		return p;                                                                          \
	}                                                                                          \
	static void *name##_realloc(void *ctx, void *old, size_t size)                             \
	{                                                                                          \
		(void)ctx;                                                                         \
		report_free(old, CALLER);                                                          \
		void *p = below[domain].realloc(below[domain].ctx, old, size);                     \
		report_alloc(p, size, CALLER);                                                     \
		return p;                                                                          \
	}                                                                                          \
	static void name##_free(void *ctx, void *p)                                                \
	{                                                                                          \
		(void)ctx;                                                                         \
		report_free(p, CALLER);                                                            \
		below[domain].free(below[domain].ctx, p);                                          \
	}                                                                                          \
	static const struct allocator name##_hooks = {NULL, name##_malloc, name##_calloc,          \
						      name##_realloc, name##_free};

HOOKS(DOMAIN_MEM, mem)
HOOKS(DOMAIN_OBJ, obj)

static void hook_domain(int domain, const struct allocator *hooks)
{
	struct allocator ours = *hooks, now;

	PyMem_GetAllocator(domain, &now);
	if (now.malloc == ours.malloc || below[domain].malloc)
		return; /* a second time would be round and round */
	below[domain] = now;
	atomic_signal_fence(memory_order_seq_cst);
	PyMem_SetAllocator(domain, &ours);
}

void collect_hook_objects(void)
{
	if (!PyMem_GetAllocator || !PyMem_SetAllocator || !Py_GetVersion ||
	    guest_mode() < GUEST_SHADOW ||
	    !(atomic_load_explicit(&guest.want, memory_order_relaxed) & WANT_OBJECTS))
		return;
	most_bytes = strstr(Py_GetVersion(), "free-threading") ? SIZE_MAX : PYMALLOC_BYTES;
	program_await_python_end();
	hook_domain(DOMAIN_MEM, &mem_hooks);
	hook_domain(DOMAIN_OBJ, &obj_hooks);
}
