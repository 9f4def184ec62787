/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside sonde._monitor. */
#ifndef SONDE_PYTHON__MONITOR_MODULE_H
#define SONDE_PYTHON__MONITOR_MODULE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000
#include <Python.h>

#include <stdbool.h>

/* gc.c; with the GIL. Never raises. */
void gc_begin(void);
/* Listens to the collector if that is wanted by now, or does not. in_step: the program has called
 * us, and nobody collects. */
void gc_settle(bool in_step);

extern PyMethodDef work_methods[]; /* attribution.c */

#endif
