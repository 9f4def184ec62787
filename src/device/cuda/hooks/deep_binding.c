/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Libraries that are loaded with RTLD_DEEPBIND find the functions of what they are linked with before
 * ours. What such a call has loaded, and nothing else, gets ours put into its slots: dlsym(), dlvsym()
 * and dlopen() in the place of the C library's, and the driver's.
 *
 *	job:  dlopen(…, RTLD_DEEPBIND) --> noted, then passed on by a jump
 *	      dlsym(…) ------------------> has it been loaded? slots, then as always
 *
 * The call itself is not touched, since the C library finds out who has asked by the return address, and
 * who loads a library looks for a function of it next. Other threads load, too, so some more of such
 * calls look.
 */
#include "device/cuda/hooks/hooks.h"
#include "device/cuda/hooks/job_entry.h"
#include "guest/interpose/got.h"
#include "guest/interpose/next.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

#define DRIVER "libcuda.so"
#define MAX_PATCHES 160
#define LOOKS 64

typedef void *(*dlopen_fn)(const char *path, int mode);

/* Read by the code below, which jumps there. */
__attribute__((visibility("hidden"))) _Atomic(dlopen_fn) sonde_next_dlopen;

extern const char dlopen_here[] __asm__("sonde_job_dlopen_later_here")
	__attribute__((visibility("hidden")));

_Atomic uint32_t deep_binding_looks;
static _Atomic uint64_t first_object, loads_seen;

/* Also by the first call, which may come before any constructor of ours. */
__attribute__((constructor)) static void find_next(void)
{
	struct loader_calls libc = loader_calls_find();

	if (!libc.dlsym)
		return;
	atomic_store(&sonde_next_dlopen, (dlopen_fn)libc.dlsym(RTLD_NEXT, "dlopen"));
	(void)dlerror();
}

/* What is linked with the driver has the driver's functions in its slots. */
static unsigned add_driver(struct got_patch *patches, unsigned n, dlsym_fn find)
{
	void *lib = atomic_load(&sonde_next_dlopen)("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	const char *name;

	for (int i = 0; lib && n < MAX_PATCHES && (name = export_name(i)); i++) {
		void *real = find(lib, name);

		if (real)
			patches[n++] = (struct got_patch){
				.name = name, .to = hand_out(name, real), .from = real};
	}
	return n;
}

static void redirect(void)
{
	struct loader_calls libc = loader_calls_find();
	struct got_objects in = {DRIVER, atomic_load(&first_object)};
	struct got_patch patches[MAX_PATCHES] = {
		{.name = "dlsym", .to = (void *)job_dlsym(), .from = (void *)libc.dlsym},
		{.name = "dlvsym", .to = (void *)job_dlvsym(), .from = (void *)libc.dlvsym},
		{.name = "dlopen",
		 .to = (void *)dlopen_here,
		 .from = (void *)atomic_load(&sonde_next_dlopen)},
	};

	if (libc.dlsym && libc.dlvsym)
		(void)got_redirect(patches, add_driver(patches, 3, libc.dlsym), &in);
	(void)dlerror(); /* of what we have looked for */
}

void deep_binding_look(void)
{
	uint64_t loads = got_loads();
	int saved = errno;

	if (atomic_exchange(&loads_seen, loads) == loads)
		return;
	atomic_fetch_sub(&deep_binding_looks, 1);
	redirect();
	errno = saved;
}

struct picked sonde_pick_open(const char *path, int mode)
	__attribute__((used, visibility("hidden")));
struct picked sonde_pick_open(const char *path, int mode)
{
	(void)path;
	if (__builtin_expect(!atomic_load(&sonde_next_dlopen), 0))
		find_next();
	if (deep_binding_waits())
		deep_binding_look();
	if (__builtin_expect(mode & RTLD_DEEPBIND, 0)) {
		if (!deep_binding_waits())
			atomic_store(&first_object, got_count());
		atomic_store(&loads_seen, got_loads());
		atomic_store(&deep_binding_looks, LOOKS);
	}
	return (struct picked){NULL, 0};
}

JOB_ENTRY("sonde_job_dlopen", "sonde_pick_open", "sonde_next_dlopen");
JOB_ENTRY("sonde_job_dlopen_later", "sonde_pick_open", "sonde_next_dlopen");
__asm__(".symver sonde_job_dlopen,dlopen@" LIBC_VERSION);
__asm__(".symver sonde_job_dlopen_later,dlopen@@" LATER_VERSION);
