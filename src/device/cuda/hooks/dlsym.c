/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * dlsym() and dlvsym() of the job. All but the names of the driver are passed on by a jump: the C
 * library finds out who has asked by the return address, which RTLD_NEXT and RTLD_DEFAULT need.
 *
 *	job:  call dlsym --> pick(handle, name) ---- not ours: jump to the next dlsym
 *	                        |
 *	                        names of the driver: next_dlsym(), and what stands for the result
 *
 * The next one is the C library's, or that of another library that does the same. To find it without
 * being found itself, the C library's own is looked up in its symbol table.
 */
#include "device/cuda/hooks/hooks.h"
#include "device/cuda/hooks/job_entry.h"
#include "guest/interpose/next.h"

#include <dlfcn.h>
#include <stdatomic.h>

/* --- the next --- */

/* Read by the code below, which jumps there. */
__attribute__((visibility("hidden"))) _Atomic(dlsym_fn) sonde_next_dlsym;
__attribute__((visibility("hidden"))) _Atomic(dlvsym_fn) sonde_next_dlvsym;

static _Atomic(dlsym_fn) libc_dlsym;

/* Also by the first call, which may come before any constructor of ours. */
__attribute__((constructor)) static void find_next(void)
{
	struct loader_calls libc = loader_calls_find();

	if (!libc.dlsym || !libc.dlvsym)
		return;
	dlsym_fn next = (dlsym_fn)libc.dlsym(RTLD_NEXT, "dlsym");
	dlvsym_fn nextv = (dlvsym_fn)libc.dlsym(RTLD_NEXT, "dlvsym");
	(void)dlerror();
	atomic_store(&libc_dlsym, libc.dlsym);
	atomic_store(&sonde_next_dlvsym, nextv && !is_own_code(nextv) ? nextv : libc.dlvsym);
	atomic_store(&sonde_next_dlsym, next && !is_own_code(next) ? next : libc.dlsym);
}

void *next_dlsym(void *handle, const char *name)
{
	dlsym_fn next = atomic_load_explicit(&sonde_next_dlsym, memory_order_acquire);

	return next ? next(handle, name) : NULL;
}

/* Another interposer would look behind itself, and miss its own function, which is the one that the
 * job would have without us: the C library is asked. */
void *function_behind(const char *name)
{
	dlsym_fn ask = atomic_load_explicit(&libc_dlsym, memory_order_acquire);

	return ask ? ask(RTLD_NEXT, name) : NULL;
}

/* --- names of the driver --- */

/*
 * RTLD_NEXT and RTLD_DEFAULT are passed on: who asks for what comes behind it, or first, gets ours if
 * that is we. But our exports are there also where there is no driver, and then the answer is that
 * there is none. What the program itself calls so is its own.
 */
static struct picked pick_special(void *handle, const char *name, int export)
{
	static const struct picked pass_on = {NULL, 0};

	if (has_real(export))
		return pass_on;
	if (handle == RTLD_DEFAULT && !is_own_code(next_dlsym(RTLD_DEFAULT, name)))
		return pass_on;
	void *behind = function_behind(name);
	if (handle == RTLD_NEXT && behind)
		return pass_on;
	return (struct picked){behind, 1};
}

static struct picked pick(void *handle, const char *name, void *result)
{
	int export = find_export(name);

	if (export < 0)
		return (struct picked){NULL, 0};
	if (handle == RTLD_NEXT || handle == RTLD_DEFAULT)
		return pick_special(handle, name, export);
	if (result && is_own_code(result) && !has_real(export)) /* a handle of the whole program */
		return (struct picked){function_behind(name), 1};
	void *ours = hand_out(name, result);
	if (result)
		(void)dlerror(); /* of what we have looked for meanwhile */
	return (struct picked){ours, result != NULL};
}

static bool is_drivers(const char *name)
{
	return name && name[0] == 'c' && name[1] == 'u' && find_export(name) >= 0;
}

struct picked sonde_pick(void *handle, const char *name)
	__attribute__((used, visibility("hidden")));
struct picked sonde_pick(void *handle, const char *name)
{
	if (__builtin_expect(!atomic_load_explicit(&sonde_next_dlsym, memory_order_acquire), 0))
		find_next();
	if (deep_binding_waits())
		deep_binding_look();
	if (__builtin_expect(!is_drivers(name), 1))
		return (struct picked){NULL, 0};
	bool special = handle == RTLD_NEXT || handle == RTLD_DEFAULT;
	return pick(handle, name, special ? NULL : next_dlsym(handle, name));
}

struct picked sonde_pick_version(void *handle, const char *name, const char *version)
	__attribute__((used, visibility("hidden")));
struct picked sonde_pick_version(void *handle, const char *name, const char *version)
{
	if (__builtin_expect(!atomic_load_explicit(&sonde_next_dlvsym, memory_order_acquire), 0))
		find_next();
	if (deep_binding_waits())
		deep_binding_look();
	dlvsym_fn next = atomic_load_explicit(&sonde_next_dlvsym, memory_order_acquire);
	if (__builtin_expect(!is_drivers(name) || !next, 1))
		return (struct picked){NULL, 0};
	bool special = handle == RTLD_NEXT || handle == RTLD_DEFAULT;
	return pick(handle, name, special ? NULL : next(handle, name, version));
}

/* --- the functions that the job calls --- */

/* Programs that were linked before glibc 2.34 ask for the older version of the name. */
JOB_ENTRY("sonde_job_dlsym", "sonde_pick", "sonde_next_dlsym");
JOB_ENTRY("sonde_job_dlsym_later", "sonde_pick", "sonde_next_dlsym");
JOB_ENTRY("sonde_job_dlvsym", "sonde_pick_version", "sonde_next_dlvsym");
JOB_ENTRY("sonde_job_dlvsym_later", "sonde_pick_version", "sonde_next_dlvsym");
__asm__(".symver sonde_job_dlsym,dlsym@" LIBC_VERSION);
__asm__(".symver sonde_job_dlsym_later,dlsym@@" LATER_VERSION);
__asm__(".symver sonde_job_dlvsym,dlvsym@" LIBC_VERSION);
__asm__(".symver sonde_job_dlvsym_later,dlvsym@@" LATER_VERSION);

extern const char dlsym_here[] __asm__("sonde_job_dlsym_later_here")
	__attribute__((visibility("hidden")));
extern const char dlvsym_here[] __asm__("sonde_job_dlvsym_later_here")
	__attribute__((visibility("hidden")));

const void *job_dlsym(void)
{
	return dlsym_here;
}

const void *job_dlvsym(void)
{
	return dlvsym_here;
}
