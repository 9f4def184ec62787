/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * libsonde_host_hook.so: the malloc family. Preloaded only when host memory is asked for.
 *
 * The functions behind are found once, without the heap: dlsym() may itself allocate in older
 * libcs, so until they are known requests are served from a small static arena that is never
 * given back. A job that brings its own malloc (jemalloc, tcmalloc) has it behind us; a job whose
 * executable defines malloc itself never reaches us, and is not disturbed.
 *
 * A free is reported before the memory goes back: another thread may get the address at once.
 *
 * A sanitizer's runtime (ASan, TSan, LSan …) is the allocator of its process. It writes the stacks
 * of its own reports, and cannot be called before it is ready. There we pass every call on, as a
 * jump that leaves no frame, and report nothing; 'mem show' says so.
 */
#include "guest/collect/collect.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

static char boot[65536] __attribute__((aligned(16)));
static _Atomic size_t boot_used;

static struct {
	void *(*malloc)(size_t);
	void (*free)(void *);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	void *(*reallocarray)(void *, size_t, size_t);
	int (*posix_memalign)(void **, size_t, size_t);
	void *(*aligned_alloc)(size_t, size_t);
	void *(*memalign)(size_t, size_t);
	void *(*valloc)(size_t);
	void *(*pvalloc)(size_t);
	size_t (*malloc_usable_size)(void *);
} real;

static _Atomic int found; /* 0 no, 1 being looked up, 2 yes */
static bool passed_on; /* a sanitizer's: nothing is reported */

/* Every block is preceded by its size, so that realloc can copy it out. */
static void *boot_alloc(size_t align, size_t size)
{
	if (align < 16)
		align = 16;
	if (size > sizeof(boot) / 2 || align > 4096)
		return NULL;
	size_t need = (size + align + 31) & ~(size_t)15;
	size_t at = atomic_fetch_add(&boot_used, need);
	if (at + need > sizeof(boot))
		return NULL;
	uintptr_t p = ((uintptr_t)boot + at + 16 + align - 1) & ~(uintptr_t)(align - 1);
	((size_t *)p)[-1] = size;
	return (void *)p;
}

static bool is_boot(const void *p)
{
	return (const char *)p >= boot && (const char *)p < boot + sizeof(boot);
}

static bool has_sanitizer(void)
{
	static const char *const names[] = {"__asan_init", "__tsan_init", "__lsan_init",
					    "__msan_init", "__hwasan_init"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (dlsym(RTLD_DEFAULT, names[i]))
			return true;
	return false;
}

static void look_up(void)
{
	int none = 0;

	if (!atomic_compare_exchange_strong(&found, &none, 1))
		return; /* this very thread, inside dlsym, or another: the boot arena serves */
	*(void **)&real.free = dlsym(RTLD_NEXT, "free");
	*(void **)&real.calloc = dlsym(RTLD_NEXT, "calloc");
	*(void **)&real.realloc = dlsym(RTLD_NEXT, "realloc");
	*(void **)&real.reallocarray = dlsym(RTLD_NEXT, "reallocarray");
	*(void **)&real.posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
	*(void **)&real.aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
	*(void **)&real.memalign = dlsym(RTLD_NEXT, "memalign");
	*(void **)&real.valloc = dlsym(RTLD_NEXT, "valloc");
	*(void **)&real.pvalloc = dlsym(RTLD_NEXT, "pvalloc");
	*(void **)&real.malloc_usable_size = dlsym(RTLD_NEXT, "malloc_usable_size");
	*(void **)&real.malloc = dlsym(RTLD_NEXT, "malloc");
	passed_on = has_sanitizer();
	atomic_store_explicit(&found, 2, memory_order_release);
}

static inline bool ready(void)
{
	if (__builtin_expect(atomic_load_explicit(&found, memory_order_acquire) == 2, 1))
		return true;
	look_up();
	return atomic_load_explicit(&found, memory_order_acquire) == 2;
}

/*
 * Is malloc() somebody else's? The address of a function may also be an entry of a table in a
 * program that is not position independent; that defines nothing and leads to us.
 */
static bool is_elsewhere(void)
{
	const ElfW(Sym) *symbol = NULL;
	Dl_info heap, ours;

	if (!dladdr1(dlsym(RTLD_DEFAULT, "malloc"), &heap, (void **)&symbol, RTLD_DL_SYMENT) ||
	    !dladdr((void *)is_elsewhere, &ours))
		return false;
	return heap.dli_fbase != ours.dli_fbase && !(symbol && symbol->st_shndx == SHN_UNDEF);
}

/* The process' heap is not what comes by here: its program has one of its own, or a sanitizer. */
__attribute__((constructor)) static void check_heap(void)
{
	if (ready() && (passed_on || is_elsewhere())) {
		collect_note_unseen_heap();
		return;
	}
	collect_see_mappings();
	collect_hook_objects();
}

static inline void *allocated(void *p, size_t size, const void *caller)
{
	struct collect_block b = {
		.addr = (uint64_t)p,
		.size_bytes = size,
		.device = DEV_HOST,
		.pool = POOL_HOST,
		.kind = ALLOC_PLAIN,
		.module = MODULE_NONE,
	};

	if (__builtin_expect(p != NULL, 1))
		collect_alloc(&b, caller);
	else if (size && errno == ENOMEM)
		collect_host_refusal(size, caller);
	return p;
}

static inline void freeing(void *p, const void *caller)
{
	struct collect_block b = {
		.addr = (uint64_t)p, .device = DEV_HOST, .pool = POOL_HOST, .kind = ALLOC_PLAIN};

	collect_free(&b, caller);
}

EXPORT void *malloc(size_t size)
{
	if (!ready())
		return boot_alloc(16, size);
	if (__builtin_expect(passed_on, 0))
		return real.malloc(size);
	return allocated(real.malloc(size), size, CALLER);
}

EXPORT void free(void *p)
{
	if (!p || is_boot(p) || !ready())
		return;
	if (__builtin_expect(!passed_on, 1))
		freeing(p, CALLER);
	real.free(p);
}

EXPORT void *calloc(size_t n, size_t size)
{
	size_t bytes;
	bool fits = !__builtin_mul_overflow(n, size, &bytes);

	/* Static memory is zero and used once. */
	if (!ready())
		return fits ? boot_alloc(16, bytes) : NULL;
	if (__builtin_expect(passed_on, 0))
		return real.calloc(n, size);
	return allocated(real.calloc(n, size), fits ? bytes : SIZE_MAX, CALLER);
}

static void *reallocate(void *old, size_t size, const void *caller)
{
	if (!ready() || is_boot(old)) {
		void *p = ready() ? malloc(size) : boot_alloc(16, size);
		if (p && old)
			memcpy(p, old, ((size_t *)old)[-1] < size ? ((size_t *)old)[-1] : size);
		return p;
	}
	if (__builtin_expect(passed_on, 0))
		return real.realloc(old, size);
	/*
	 * Whether the old block goes away is known only afterwards, when its address may already
	 * be somebody else's: its free is held at a time before the call.
	 */
	struct collect_block b = {
		.addr = (uint64_t)old, .device = DEV_HOST, .pool = POOL_HOST, .kind = ALLOC_PLAIN};
	struct collect_pending p = collect_free_begin(&b);
	void *new = real.realloc(old, size);
	collect_free_end(p, &b, old && (new || size == 0), caller);
	return allocated(new, size, caller);
}

EXPORT void *realloc(void *old, size_t size)
{
	return reallocate(old, size, CALLER);
}

/* How it fails is the allocator's own; otherwise it is realloc(), as the C library does it. */
EXPORT void *reallocarray(void *old, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_expect(passed_on, 0) && real.reallocarray && !is_boot(old))
		return real.reallocarray(old, n, size);
	if (!__builtin_mul_overflow(n, size, &bytes))
		return reallocate(old, bytes, CALLER);
	if (ready() && real.reallocarray)
		return real.reallocarray(old, n, size);
	errno = ENOMEM;
	return NULL;
}

EXPORT int posix_memalign(void **out, size_t align, size_t size)
{
	if (!ready()) {
		void *p = boot_alloc(align, size);
		if (!p)
			return ENOMEM;
		*out = p;
		return 0;
	}
	if (__builtin_expect(passed_on, 0))
		return real.posix_memalign(out, align, size);
	int r = real.posix_memalign(out, align, size);
	if (r == 0)
		allocated(*out, size, CALLER);
	else if (r == ENOMEM)
		collect_host_refusal(size, CALLER);
	return r;
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
	if (!ready())
		return boot_alloc(align, size);
	if (__builtin_expect(passed_on, 0))
		return real.aligned_alloc(align, size);
	return allocated(real.aligned_alloc(align, size), size, CALLER);
}

EXPORT void *memalign(size_t align, size_t size)
{
	if (!ready())
		return boot_alloc(align, size);
	if (__builtin_expect(passed_on, 0))
		return real.memalign(align, size);
	return allocated(real.memalign(align, size), size, CALLER);
}

EXPORT void *valloc(size_t size)
{
	if (!ready())
		return boot_alloc(4096, size);
	if (__builtin_expect(passed_on, 0))
		return real.valloc(size);
	return allocated(real.valloc(size), size, CALLER);
}

EXPORT void *pvalloc(size_t size)
{
	if (!ready())
		return boot_alloc(4096, size);
	if (__builtin_expect(passed_on, 0))
		return real.pvalloc(size);
	return allocated(real.pvalloc(size), size, CALLER);
}

/* Blocks of the boot arena are not the allocator's: it must not be asked about them. */
EXPORT size_t malloc_usable_size(void *p)
{
	if (!p)
		return 0;
	if (is_boot(p) || !ready())
		return ((size_t *)p)[-1];
	return real.malloc_usable_size(p);
}
