/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde._sonde: what the Python packages cannot do in Python. One binary for every CPython from 3.8
 * on: only the stable ABI is used, and what is not part of it is looked up at run time.
 *
 * Each file of this folder adds a table of functions. Everything here may be called from any thread
 * that holds the GIL, and does nothing, cheaply, while nothing records.
 */
#ifndef SONDE_PYTHON__SONDE_MODULE_H
#define SONDE_PYTHON__SONDE_MODULE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* Headers from 3.12 on count no references to None, which interpreters up to 3.11 do. */
#undef Py_RETURN_NONE
#define Py_RETURN_NONE return Py_INCREF(Py_None), Py_None

/* In every CPython since 3.7, in the stable ABI since 3.10. */
#ifndef METH_FASTCALL
#	define METH_FASTCALL 0x0080
#endif
typedef PyObject *(*fastcall)(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
#define FASTCALL(fn) (PyCFunction)(void (*)(void))(fastcall)(fn)

extern PyMethodDef control_methods[]; /* control.c: configuration, start, stop, step, state */
extern PyMethodDef event_methods[]; /* events.c: marks, labels, snapshots, blocks, watches */
extern PyMethodDef layer_methods[]; /* layers.c: modules of models, by their paths */
extern PyMethodDef op_methods[]; /* ops.c: operators of torch and the tensors they use */
extern PyMethodDef history_methods[]; /* history.c: notes of torch's caching allocator */
extern PyMethodDef sanitizer_methods[]; /* sanitizer.c: marks for torch_npu's sanitizer */
extern PyMethodDef tensor_methods[]; /* tensor.c: statistics of a tensor in host memory */
extern PyMethodDef trace_methods[]; /* trace.c: calls of Python functions */

/* Between these two no calls of this thread are traced: what we do in its place. They nest. */
void trace_mute(void);
void trace_unmute(void);

#endif
