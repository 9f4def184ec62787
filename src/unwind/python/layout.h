/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where CPython keeps what a stack walk needs: the offsets of one interpreter's structures. From
 * 3.13 on the interpreter carries them itself; those of 3.7 to 3.12 are in tables made from its
 * headers (tools/python_offsets). Works in both worlds: no heap, no system calls.
 *
 *	_PyRuntime
 *	  interpreters.head --> PyInterpreterState --next--> …
 *	                          threads.head --> PyThreadState --next--> …     newest first
 *	                                             |
 *	                                             v  the innermost frame
 *	  to 3.10       tstate.frame ----------------> PyFrameObject, f_back …        heap objects
 *	  3.11, 3.12    tstate.cframe --> _PyCFrame.current_frame --+                 on the C stack
 *	  from 3.13     tstate.current_frame -----------------------+-> _PyInterpreterFrame
 *
 * What a frame is, per version:
 *
 *	to 3.10    one PyFrameObject per call; f_lasti counts bytes (3.10: instructions); each
 *	           call runs the interpreter's loop anew, so every frame was called from C
 *	3.11       _PyInterpreterFrame, pushed onto chunks of the thread (datastack_chunk); a call
 *	           of Python from Python stays in one loop; is_entry marks where C called in. Frames
 *	           of generators live in the generator object
 *	3.12       is_entry is gone: a frame that C owns (PYTHON_OWNER_SHIM) marks the border. It
 *	           lies on the C stack and its code is not a function's
 *	3.13       f_code became f_executable; prev_instr became instr_ptr, the instruction that
 *	           comes next or runs
 *	3.14       references are tagged in their low bits (`tagged`); free-threaded interpreters
 *	           give each thread a copy of the instructions (tlbc_index)
 *	3.15       base_frame, the outermost shim, is part of the thread state; so is holds_gil
 *
 * A field that a version does not have is PYTHON_NONE; who uses one asks for that first.
 */
#ifndef SONDE_UNWIND_PYTHON_LAYOUT_H
#define SONDE_UNWIND_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PYTHON_NONE UINT32_MAX /* this version has no such field */
#define PYTHON_OLDEST 7 /* 3.x */
#define PYTHON_NEWEST 15

enum python_arch { PYTHON_X86_64, PYTHON_AARCH64 };

enum python_lines {
	PYTHON_LNOTAB, /* to 3.9 */
	PYTHON_LINETABLE, /* 3.10 */
	PYTHON_LOCATIONS, /* from 3.11 */
};

/* What owns a frame, as the version numbers it: from this value on it is no Python function. */
#define PYTHON_OWNER_SHIM 3
#define PYTHON_OWNER_GENERATOR 1

/* Offsets in bytes from the start of each structure. */
struct python_layout {
	uint32_t version; /* PY_VERSION_HEX */
	uint8_t minor; /* of 3.minor */
	bool free_threaded;
	uint8_t lines; /* enum python_lines */
	uint8_t tagged; /* bits of f_executable that are not address: 0 or 3 */

	struct python_layout_runtime {
		uint32_t interpreters_head;
		uint32_t tstate_current; /* to 3.11: who has the GIL */
		uint32_t gil_locked, gil_last_holder; /* to 3.11 */
		uint32_t gc_collecting; /* 3.7, 3.8 */
	} runtime;
	struct {
		uint32_t next, id, threads_head, modules;
		uint32_t gc_collecting; /* from 3.9 */
		uint32_t gil; /* from 3.12: pointer to the GIL's own structure */
		uint32_t code_generation; /* from 3.14: changes when code objects are freed */
	} interp;
	struct {
		uint32_t locked, last_holder;
	} gil; /* from 3.12 */
	struct {
		uint32_t size; /* bytes that hold all fields below */
		uint32_t prev, next, interp, thread_id;
		uint32_t native_thread_id; /* from 3.11 */
		uint32_t frame; /* PyFrameObject *, to 3.10; _PyInterpreterFrame *, from 3.13 */
		uint32_t cframe; /* 3.11, 3.12: _PyCFrame * */
		uint32_t datastack_chunk; /* from 3.11 */
		uint32_t base_frame; /* from 3.15 */
		uint32_t holds_gil; /* from 3.15 */
	} tstate;
	uint32_t cframe_current; /* _PyCFrame.current_frame */
	struct {
		uint32_t size; /* bytes that hold all fields below; locals follow elsewhere */
		uint32_t back; /* f_back, previous */
		uint32_t code; /* f_code, f_executable */
		uint32_t lasti; /* f_lasti (i32) to 3.10; else the instruction pointer */
		uint32_t executing; /* u8, to 3.10: 1 if it is; i8 in 3.10: 0 if it is */
		uint32_t owner; /* u8, from 3.11 */
		uint32_t is_entry; /* u8, 3.11 */
		uint32_t tlbc_index; /* i32, free-threaded from 3.14 */
		uint32_t locals; /* first of the fast locals */
		uint32_t stackpointer; /* from 3.14, or PYTHON_NONE */
	} frame;
	struct {
		uint32_t size; /* bytes that hold all fields below */
		uint32_t filename, name, qualname, linetable, firstlineno;
		uint32_t argcount, kwonlyargcount, flags;
		uint32_t nlocals; /* to 3.10 */
		uint32_t varnames; /* to 3.10: tuple of the locals' names */
		uint32_t localsplusnames, localspluskinds; /* from 3.11 */
		uint32_t instructions; /* co_code_adaptive; co_code (an object) to 3.10 */
		uint32_t tlbc; /* free-threaded from 3.14 */
	} code;
	struct {
		uint32_t object_size, type; /* PyObject */
		uint32_t var_size; /* ob_size */
		uint32_t type_name, type_flags, type_dictoffset, type_basicsize;
		uint32_t bytes_data;
		uint32_t tuple_items, list_items;
		uint32_t float_value;
		uint32_t long_tag; /* lv_tag, from 3.12; ob_size before */
		uint32_t long_digits;
	} object;
	struct {
		uint32_t length, state;
		uint32_t ascii_data, compact_data; /* where the text begins */
		uint32_t data; /* pointer to it when it is not compact */
		uint8_t kind_shift, compact_bit, ascii_bit; /* in state */
	} text;
	struct {
		uint32_t used, keys, values; /* PyDictObject */
		uint32_t cached_keys; /* PyHeapTypeObject.ht_cached_keys */
	} dict;
};

/*
 * The layout of 3.7 to 3.12 (never free-threaded); -ENOENT for any other version. Patch releases
 * that differ (3.7.0 to 3.7.3) have rows of their own.
 */
int python_layout_table(uint32_t version, enum python_arch arch, struct python_layout *out);

/* No layout says more in tstate.size, frame.size and code.size. */
#define PYTHON_TSTATE_MAX 1024
#define PYTHON_FRAME_MAX 512
#define PYTHON_CODE_MAX 512

/* Most bytes that python_layout_read() may want. */
#define PYTHON_DEBUG_BYTES 2048

/*
 * The layout that the interpreter reports: `bytes` is the beginning of _PyRuntime, `n` how much of
 * it there is. Every number is checked: -ENOENT if there is no cookie, -EPROTO if it makes no
 * sense, -ENOTSUP for a version that is newer than PYTHON_NEWEST.
 */
int python_layout_read(const void *bytes, size_t n, struct python_layout *out);

/* --- the tables behind python_layout_table(), layout_tables.c --- */

#define PYTHON_TABLES 6 /* 3.7 to 3.12 */

/* One field of struct python_layout, and its value for each version on x86-64. */
struct python_layout_field {
	uint16_t at, width; /* in struct python_layout; width 0 ends the table */
	uint32_t value[PYTHON_TABLES];
};
extern const struct python_layout_field python_layout_fields[];

/* _PyRuntime of versions below `before` on `arch`, where it differs from the row. The first that
 * fits counts; .minor == 0 ends the list. */
struct python_runtime_exception {
	uint8_t minor;
	enum python_arch arch;
	uint32_t before;
	struct python_layout_runtime runtime;
};
extern const struct python_runtime_exception python_runtime_exceptions[];

#endif
