/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Our functions, and whose each of them stands for.
 *
 *	exports		one for each name of the driver; stands for the driver's function of that
 *			name, or for that of a library behind us that has the name, too
 *	others		up to SLOTS for each call: for functions that come from cuGetProcAddress() or
 *			dlsym() and are none of those, of other versions or of another interposer
 *
 * The same function always gets the same of ours, so pointers that were equal stay equal.
 */
#include "device/cuda/hooks/hooks.h"
#include "guest/interpose/next.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#define CALLER __builtin_return_address(0)
#define SLOTS 6

/* --- ours --- */

/* Whom each stands for. The first ones are of the exports: found when they are needed. */
static _Atomic(void *) reals[CUDA_NCALLS][SLOTS];

static void *find_real(enum cuda_call call, int i);

static inline void *real_of(enum cuda_call call, int i)
{
	void *fn = atomic_load_explicit(&reals[call][i], memory_order_acquire);

	return __builtin_expect(fn != NULL, 1) ? fn : find_real(call, i);
}

#define SLOT(call, i, params, ...)                                                                 \
	int sonde_##call##_##i params __attribute__((visibility("hidden"), used));                 \
	int sonde_##call##_##i params                                                              \
	{                                                                                          \
		void *real = real_of(CALL_##call, i);                                              \
		if (__builtin_expect(!real, 0))                                                    \
			return CU_SYMBOL_NOT_FOUND;                                                \
		return hook_##call((call##_fn)real, CALLER, __VA_ARGS__);                          \
	}
#define ALL_SLOTS(call, params, ...)                                                               \
	SLOT(call, 0, params, __VA_ARGS__)                                                         \
	SLOT(call, 1, params, __VA_ARGS__)                                                         \
	SLOT(call, 2, params, __VA_ARGS__)                                                         \
	SLOT(call, 3, params, __VA_ARGS__)                                                         \
	SLOT(call, 4, params, __VA_ARGS__)                                                         \
	SLOT(call, 5, params, __VA_ARGS__)
CUDA_CALLS(ALL_SLOTS)

#define SLOT_ROW(call, params, ...)                                                                \
	{(void *)sonde_##call##_0, (void *)sonde_##call##_1, (void *)sonde_##call##_2,             \
	 (void *)sonde_##call##_3, (void *)sonde_##call##_4, (void *)sonde_##call##_5},
static void *const ours[CUDA_NCALLS][SLOTS] = {CUDA_CALLS(SLOT_ROW)};

#define EXPORT_NAME(call, i, name)                                                                 \
	__asm__(".globl " #name "\n.type " #name ",%function\n.set " #name ",sonde_" #call "_" #i);
CUDA_NAMES(EXPORT_NAME)

#define EXPORT_ROW(call, i, name) {#name, CALL_##call, i},
static const struct {
	const char *name;
	enum cuda_call call;
	int slot;
} exports[] = {CUDA_NAMES(EXPORT_ROW)};
#define NEXPORTS (int)(sizeof(exports) / sizeof(exports[0]))

int find_export(const char *name)
{
	for (int i = 0; i < NEXPORTS; i++)
		if (!strcmp(exports[i].name, name))
			return i;
	return -1;
}

const char *export_name(int export)
{
	return export >= 0 && export < NEXPORTS ? exports[export].name : NULL;
}

bool has_real(int export)
{
	return real_of(exports[export].call, exports[export].slot) != NULL;
}

/* --- whom they stand for --- */

static void *driver_library(void)
{
	static _Atomic(void *) lib;
	void *found = atomic_load_explicit(&lib, memory_order_acquire);

	if (!found) {
		found = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
		atomic_store_explicit(&lib, found, memory_order_release);
	}
	return found;
}

/* Behind us in the global scope, where another interposer may be; else in the driver, which was
 * loaded for somebody alone. */
static void *find_real(enum cuda_call call, int slot)
{
	const char *name = NULL;
	void *fn, *lib;

	for (int i = 0; i < NEXPORTS && !name; i++)
		if (exports[i].call == call && exports[i].slot == slot)
			name = exports[i].name;
	if (!name)
		return NULL;
	fn = function_behind(name);
	if (!fn && (lib = driver_library()))
		fn = next_dlsym(lib, name);
	if (!fn || is_own_code(fn))
		return NULL;
	driver_find(fn);
	atomic_store_explicit(&reals[call][slot], fn, memory_order_release);
	return fn;
}

static int exports_of(enum cuda_call call)
{
	int n = 0;

	for (int i = 0; i < NEXPORTS; i++)
		n += exports[i].call == call;
	return n;
}

/* No room: the job gets the function itself, and what it does is not seen. */
static void *find_slot(enum cuda_call call, int first, void *real)
{
	for (int i = first; i < SLOTS; i++) {
		void *is = atomic_load(&reals[call][i]);

		if (!is && atomic_compare_exchange_strong(&reals[call][i], &is, real))
			return ours[call][i];
		if (is == real)
			return ours[call][i];
	}
	return real;
}

static void *stand_in(enum cuda_call call, void *real)
{
	int n = exports_of(call);

	if (is_own_code(real))
		return real;
	driver_find(real);
	for (int i = 0; i < n; i++)
		if (real_of(call, i) == real)
			return ours[call][i];
	return find_slot(call, n, real);
}

/* --- names --- */

/* Without _v2, _ptsz and the like. What is called _v3 has parameters that nobody knows here. */
static size_t base_length(const char *name)
{
	size_t n = strlen(name);

	if (n > 5 && (!strcmp(name + n - 5, "_ptsz") || !strcmp(name + n - 5, "_ptds")))
		n -= 5;
	if (n > 3 && name[n - 3] == '_' && name[n - 2] == 'v' &&
	    (name[n - 1] == '1' || name[n - 1] == '2'))
		n -= 3;
	return n;
}

static int call_of(const char *name, int *has_versions)
{
	size_t n = base_length(name);

	for (int i = 0; i < NEXPORTS; i++) {
		const char *other = exports[i].name;

		if (base_length(other) == n && !strncmp(other, name, n)) {
			*has_versions = strlen(other) > n && !strcmp(other + n, "_v2");
			return (int)exports[i].call;
		}
	}
	return -1;
}

void *hand_out(const char *name, void *real)
{
	int export = find_export(name);

	return export < 0 || !real ? real : stand_in(exports[export].call, real);
}

/* What cuGetProcAddress() has given for this version; the name is one of ours. */
static void replace(const char *name, void **out, int version)
{
	int old_form = 0, call = call_of(name, &old_form);

	if (!*out || (old_form && version < CU_VERSION_64_BIT))
		return;
	if (call == CALL_get_proc || call == CALL_get_proc2)
		call = version >= CU_VERSION_PROC_ADDRESS_2 || strstr(name, "_v2") ? CALL_get_proc2
										   : CALL_get_proc;
	*out = stand_in((enum cuda_call)call, *out);
}

static bool is_ours(const char *name)
{
	int versions;

	return name && name[0] == 'c' && name[1] == 'u' && call_of(name, &versions) >= 0;
}

/*
 * A program that was built with a newer CUDA than we know asks for that version, and may get functions
 * with other parameters. Those that the newest known version does not have are not ours.
 */
int hook_get_proc(get_proc_fn real, const void *caller, const char *name, void **out, int version,
		  uint64_t flags)
{
	int r = real(name, out, version, flags);
	void *known = NULL;

	(void)caller;
	if (r != CU_SUCCESS || !out || !is_ours(name))
		return r;
	if (version > CU_VERSION_KNOWN &&
	    (real(name, &known, CU_VERSION_KNOWN, flags) != CU_SUCCESS || known != *out))
		return r;
	replace(name, out, version);
	return r;
}

int hook_get_proc2(get_proc2_fn real, const void *caller, const char *name, void **out, int version,
		   uint64_t flags, void *status)
{
	int r = real(name, out, version, flags, status), other = 0;
	void *known = NULL;

	(void)caller;
	if (r != CU_SUCCESS || !out || !is_ours(name))
		return r;
	if (version > CU_VERSION_KNOWN &&
	    (real(name, &known, CU_VERSION_KNOWN, flags, &other) != CU_SUCCESS || known != *out))
		return r;
	replace(name, out, version);
	return r;
}
