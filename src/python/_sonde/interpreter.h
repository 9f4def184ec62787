/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Whether this interpreter's objects are those that the extensions were built for. */
#ifndef SONDE_PYTHON_INTERPRETER_H
#define SONDE_PYTHON_INTERPRETER_H

#include <Python.h>

#include <stdbool.h>
#include <string.h>

/*
 * False with an ImportError set: a free-threaded CPython 3.13 or 3.14 loads files of the stable ABI,
 * although its objects begin with other words, and would crash with the first of ours.
 */
static inline bool interpreter_fits(void)
{
	if (!strstr(Py_GetVersion(), "free-threading build"))
		return true;
	PyErr_SetString(PyExc_ImportError, "this CPython is free-threaded, and sonde's extensions "
					   "are for those with a GIL (the stable ABI)");
	return false;
}

#endif
