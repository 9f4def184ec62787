/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Modules of models and their parameters, by their paths (struct rec_layer). Which object has which
 * path is told once; then a call of a module is one lookup by its address. Whoever tells also says
 * when an object is gone: sonde/_layers.py.
 *
 * A part of both extensions, each with a table of its own. Everything here is called with the GIL,
 * so nothing is locked.
 */
#ifndef SONDE_PYTHON__SONDE_LAYER_TABLE_H
#define SONDE_PYTHON__SONDE_LAYER_TABLE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000
#include <Python.h>

#include <stdint.h>

struct layer {
	uintptr_t object; /* 0: free; 1: was in use */
	uint64_t hash; /* of text */
	uint32_t epoch; /* in which its text was sent */
	uint32_t origin; /* for the extension; 0 at first */
	char *text;
};

/* NULL: nobody has told its path. */
struct layer *layer_find(const void *object);
/* Its text goes before the first record that names it, once in each process. */
void layer_send_text(struct layer *l);

PyObject *layer_add(PyObject *self, PyObject *args);
PyObject *layer_drop(PyObject *self, PyObject *args);
PyObject *layers_clear(PyObject *self, PyObject *args);

#define LAYER_TABLE_METHODS                                                                        \
	{"layer_add", layer_add, METH_VARARGS, "layer_add(id, text): the path of an object"},      \
		{"layer_drop", layer_drop, METH_VARARGS, "layer_drop(id): it is gone"},            \
	{                                                                                          \
		"layers_clear", layers_clear, METH_NOARGS, "layers_clear()"                        \
	}

#endif
