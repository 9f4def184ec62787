/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The operation of autograd that a thread computes the gradient of, for the library in the job: to know
 * whose memory and whose device time a backward pass needs. A part of both extensions.
 */
#ifndef SONDE_PYTHON__SONDE_AUTOGRAD_H
#define SONDE_PYTHON__SONDE_AUTOGRAD_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000
#include <Python.h>

/* autograd_follow(path of libtorch_cpu, node, its number, another one, its number): the two show where
 * nodes have their numbers. False: this version of PyTorch is not known to. */
PyObject *autograd_follow(PyObject *self, PyObject *args);

#define AUTOGRAD_METHODS                                                                           \
	{                                                                                          \
		"autograd_follow", autograd_follow, METH_VARARGS,                                  \
			"autograd_follow(library, node, number, node, number) -> can gradients "   \
			"be followed?"                                                             \
	}

#endif
