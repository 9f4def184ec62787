/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Finding the function behind a hook. It lives in each preload library and not in the shared
 * runtime, because RTLD_NEXT means "after the library that asks".
 *
 * Order: the driver's own inner name where there is one; the next object in the global scope; a
 * library that was loaded privately (dlopen without RTLD_GLOBAL, as Python does); last, the
 * library in $ASCEND_HOME_PATH, loaded as the vendor's tools do.
 */
#ifndef SONDE_DEVICE_ASCEND_HOOKS_REAL_H
#define SONDE_DEVICE_ASCEND_HOOKS_REAL_H

#include "guest/interpose/next.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static inline void *real_in_library(const char *lib, const char *name, int flags)
{
	void *h = dlopen(lib, flags);

	return h ? dlsym(h, name) : NULL;
}

static inline void *real_from_home(const char *lib, const char *name)
{
	static const char subdir[] = "/lib64/";
	const char *home = getenv("ASCEND_HOME_PATH");
	char path[1024];

	if (!home || strlen(home) + strlen(lib) + sizeof(subdir) > sizeof(path))
		return NULL;
	strcpy(path, home);
	strcat(path, subdir);
	strcat(path, lib);
	return real_in_library(path, name, RTLD_NOW | RTLD_GLOBAL);
}

/* inner may be NULL; libs ends with NULL. */
static inline void *real_find(const char *name, const char *inner, const char *const *libs)
{
	void *fn = inner ? dlsym(RTLD_DEFAULT, inner) : NULL;

	if (!fn)
		fn = dlsym(RTLD_NEXT, name);
	if (is_own_code(fn)) /* of a library that asks in our place, see guest/interpose/next.c */
		fn = NULL;
	for (size_t i = 0; !fn && libs[i]; i++) {
		fn = inner ? real_in_library(libs[i], inner, RTLD_LAZY | RTLD_NOLOAD) : NULL;
		if (!fn)
			fn = real_in_library(libs[i], name, RTLD_LAZY | RTLD_NOLOAD);
	}
	for (size_t i = 0; !fn && libs[i]; i++)
		fn = real_from_home(libs[i], name);
	return fn;
}

/* A function pointer of the hook's own type, looked up once. */
#define REAL(name, inner, libs)                                                                    \
	({                                                                                         \
		static __typeof__(&name) real_;                                                    \
		if (__builtin_expect(!real_, 0))                                                   \
			__atomic_store_n(&real_, (__typeof__(&name))real_find(#name, inner, libs), \
					 __ATOMIC_RELEASE);                                        \
		__atomic_load_n(&real_, __ATOMIC_ACQUIRE);                                         \
	})

#endif
