/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which shared object asks the driver for memory. CUDA's runtime stands between most callers and
 * the driver, so the stack is walked until something else comes: libc10_cuda, libcublas, libnccl.
 * A runtime that was linked into an object is that object.
 *
 *	caller --> cache: pc ^ epoch, number ---- a number: done
 *	             | it is the runtime            ^
 *	             v                              |
 *	        MAX_WALK frames; each pc by the same cache, on a miss by its object's name
 *
 * One word is one entry of the cache, so it is always whole: 48 bits of the address, 8 of the
 * epoch, 8 of the number. An object that was unloaded and replaced by another at the same address
 * keeps its name until its entry is overwritten.
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"
#include "guest/runtime/guest.h"
#include "unwind/native/modules.h"

#include <string.h>

#define CACHE 1024u
#define MAX_WALK 16u
#define MAX_LIBRARIES 253u
#define WALK_STACK 4096u /* gcc -fstack-usage: walking, and looking at an object */
#define PASSED_OVER 254u /* number of what is not who asks */
#define MISS 0u

static _Atomic uint64_t cache[CACHE];
/* hash of an object's name and the epoch << 8 | number; never removed */
static _Atomic uint64_t known[MAX_LIBRARIES];
static _Atomic uint32_t numbered;

static uint64_t key_of(uint64_t pc)
{
	return pc << 16 | (guest_epoch_now() & 255u) << 8;
}

static _Atomic uint64_t *cached(uint64_t pc)
{
	return &cache[pc * 0x9e3779b97f4a7c15ull >> 54];
}

static uint32_t find_cached(uint64_t pc)
{
	uint64_t v = atomic_load_explicit(cached(pc), memory_order_relaxed);

	return (v & ~255ull) == key_of(pc) ? (uint32_t)(v & 255u) : MISS;
}

static bool is_passed_over(const char *path)
{
	static const char *const names[] = {"libcuda.so",	  "libcudart.so", "libcudart-",
					    "libsonde_",	  "libffi.so",	  "libffi-",
					    "libffi_convenience", "_ctypes."};
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

static uint64_t hash_name(const char *name)
{
	uint64_t h = 14695981039346656037ull ^ guest_epoch_now();

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 1099511628211ull;
	return h >> 8 | 1;
}

struct naming {
	uint64_t hash;
	uint32_t number;
};

/* The number is reported before others can find it; of threads that race each reports one. */
static void name_object(const struct native_module *m, void *arg)
{
	struct naming *n = arg;
	size_t len = strnlen(m->path, REC_MAX_TEXT);
	uint32_t number = atomic_fetch_add(&numbered, 1) + 1;

	n->number = MODULE_NONE;
	if (number > MAX_LIBRARIES) {
		atomic_fetch_sub(&numbered, 1);
		return;
	}
	struct put p = put_begin(REC_LIBRARY, rec_size(sizeof(struct rec_library), len), NULL);
	struct rec_library *r = p.rec;
	if (r) {
		r->number = (uint16_t)number;
		r->len = (uint16_t)len;
		memcpy(r->text, m->path, len);
		n->number = number;
	}
	put_end(&p);
	if (n->number != MODULE_NONE)
		atomic_store_explicit(&known[number - 1], n->hash << 8 | number,
				      memory_order_release);
}

static uint32_t number_of(const struct native_object *o)
{
	struct naming n = {hash_name(o->name ? o->name : ""), MODULE_NONE};
	uint32_t have = atomic_load(&numbered);

	for (uint32_t i = 0; i < have && i < MAX_LIBRARIES; i++) {
		uint64_t v = atomic_load_explicit(&known[i], memory_order_acquire);
		if (v >> 8 == n.hash)
			return (uint32_t)(v & 255u);
	}
	native_object_name(o, name_object, &n);
	return n.number;
}

static uint32_t classify_library(uint64_t pc)
{
	struct native_object o;

	if (!native_object_find(pc, &o))
		return PASSED_OVER;
	uint32_t number = o.name && is_passed_over(o.name) ? PASSED_OVER : number_of(&o);
	if (number != MODULE_NONE)
		atomic_store_explicit(cached(pc), key_of(pc) | number, memory_order_relaxed);
	return number;
}

static uint32_t number_at(uint64_t pc)
{
	uint32_t number = find_cached(pc);

	return likely(number != MISS) ? number : classify_library(pc);
}

/* Beginning at the caller, which is the runtime. */
static __attribute__((noinline)) uint8_t walk_libraries(uint64_t caller)
{
	uint64_t pc[MAX_WALK];
	uint32_t n = guest_frames(pc, MAX_WALK, caller), number = PASSED_OVER;

	for (uint32_t i = 0; i < n && number == PASSED_OVER; i++)
		number = number_at(pc[i] - 1);
	return number == PASSED_OVER ? MODULE_NONE : (uint8_t)number;
}

/* The first blocks of a process, and now and then another one: it may have imported a framework since
 * it initialised CUDA, or could not be asked while it did. */
static bool is_occasion(void)
{
	static _Atomic uint32_t calls;
	uint32_t n = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);

	return n < 64 || !(n & 1023);
}

uint8_t collect_library(const void *caller)
{
	if (guest_mode() < GUEST_SHADOW || !guest.arena ||
	    !(atomic_load_explicit(&guest.want, memory_order_relaxed) & WANT_ALLOC))
		return MODULE_NONE;
	if (is_occasion())
		guest_bring_package(false);
	/* A return address may be the first byte of the function behind. */
	uint32_t number = find_cached((uint64_t)caller - 1);
	if (likely(number != MISS && number != PASSED_OVER))
		return (uint8_t)number;
	if (!guest_has_stack(WALK_STACK + MAX_WALK * 8))
		return MODULE_NONE;
	int saved = errno;
	number = number_at((uint64_t)caller - 1);
	if (number == PASSED_OVER)
		number = walk_libraries((uint64_t)caller);
	errno = saved;
	return (uint8_t)number;
}
