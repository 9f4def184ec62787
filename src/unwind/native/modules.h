/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The objects that are mapped into the process: who owns a code address, where its unwind
 * information is, and which ones the recorder already knows.
 */
#ifndef SONDE_UNWIND_NATIVE_MODULES_H
#define SONDE_UNWIND_NATIVE_MODULES_H

#include <stdbool.h>
#include <stdint.h>

#include "unwind/native/cfi.h"
#include "unwind/native/native.h"

struct native_object {
	uint64_t start; /* mapping of the whole object */
	uint64_t end;
	uint64_t bias;
	uint64_t code; /* executable segment that holds the address asked for */
	uint64_t code_end;
	const char *name; /* as the loader knows it; borrowed */
	struct cfi_view cfi; /* size 0: no unwind information */
};

/* The object whose executable segment holds pc. Lock-free where glibc has _dl_find_object. */
bool native_object_find(uint64_t pc, struct native_object *out);

/*
 * Reports the object unless it was reported before. True if it took the place of another one, so
 * that what was learnt about these addresses is no longer true.
 */
bool native_object_report(const struct native_object *o, native_module_fn fn, void *arg);

/* Calls fn once with the object and a path that another process can open. */
void native_object_name(const struct native_object *o, native_module_fn fn, void *arg);

/* From now on every object counts as not reported. */
void native_objects_forget(void);

#endif
