/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The trace of calls, inside: from an event of the interpreter to a record. Everything here runs
 * with the GIL, inside somebody's function call: it makes no objects on the usual path, runs no
 * Python code, and leaves exceptions and errno as they were.
 */
#ifndef SONDE_PYTHON__SONDE_TRACE_IMPL_H
#define SONDE_PYTHON__SONDE_TRACE_IMPL_H

#include "python/_sonde/module.h"

/* What a function of Python's is to us. */
enum code_kind {
	CODE_PLAIN = 0,
	CODE_OURS, /* is not reported, nor what it calls of C; other functions that it calls are */
	CODE_MUTE, /* is not reported, nor anything that happens inside it */
	CODE_MODULE, /* torch.nn.Module.__call__: reported with the class of its object */
};

struct code {
	PyObject *object; /* a reference: no other can have its address meanwhile */
	uint32_t epoch; /* the place counts under this value of collect_traces() */
	uint32_t place;
	uint8_t kind;
};

/* trace_code.c: what is known of a code object; never NULL. */
const struct code *trace_code(PyObject *object, uint32_t epoch);
/* Where our own packages lie, and which files of them are mute. Exceptions as usual. */
int trace_set_packages(PyObject *directories, PyObject *mute);
void trace_forget_codes(void);

/* trace_names.c: the hash of what a function of C's is called, reported when it is new; 0: it is
 * none. self: its first argument, which counts for methods that are not bound yet; may be NULL. */
uint64_t trace_name(PyObject *callable, PyObject *self, uint32_t epoch);
/* The same for a text. */
uint64_t trace_text(const char *text, size_t len, uint32_t epoch);
/* Are functions of C's laid out as expected? Says so with an exception if not. */
int trace_check_names(void);
extern PyTypeObject *trace_code_type, *trace_frame_type; /* by trace_check_names() */

/* trace_events.c. `object` is the code of the function, or of the one that calls a function of C's.
 */
void trace_begin(PyObject *object);
void trace_end(PyObject *object);
void trace_c_begin(PyObject *object, PyObject *callable, PyObject *self);
void trace_c_end(PyObject *object, PyObject *callable, PyObject *self);
/* The functions that run in all threads; tids: {thread ident: number of the kernel's}. */
int trace_open_stacks(PyObject *tids);
void trace_closed(void); /* no more events */
/* For sys.monitoring, and for threading.setprofile(). */
PyObject *trace_on_begin(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *trace_on_end(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *trace_on_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *trace_on_c_end(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *trace_on_thread(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

/* trace_profile.c: up to 3.11 the profile function of each thread. trace_arm() looks for threads
 * that have none; returns how many have one of somebody else, or -1 with an exception. */
int trace_arm(void);
void trace_disarm(void);

#endif
