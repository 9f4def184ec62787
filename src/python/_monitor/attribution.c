/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which module runs, while the monitor attributes what devices execute
 * (guest/collect/attribution.c): the modules that are open in each thread, the operation of
 * autograd that it computes the gradient of, and whether anybody wants to know. sonde/_attribute.py
 * has the hooks.
 */
#include "python/_monitor/module.h"

#include "guest/collect/collect.h"
#include "guest/monitor/monitor.h"
#include "python/_sonde/autograd.h"
#include "python/_sonde/layer_table.h"
#include "unwind/python/origin.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#undef Py_RETURN_NONE
#define Py_RETURN_NONE return Py_INCREF(Py_None), Py_None

#define MAX_OPEN 128 /* modules inside one another */
#define MAX_WRAPPED 8

enum { OF_UNKNOWN, OF_USER, OF_LIBRARY };

struct open_module {
	const void *object;
	uint64_t layer;
	uint32_t line, epoch;
};

static __thread struct {
	struct open_module at[MAX_OPEN];
	unsigned n;
} open;

/* --- the user's own code --- */

/* Of a function: ORIGIN_USER or another; -1: it has no file. */
static int origin_of(PyObject *function)
{
	PyObject *code = PyObject_GetAttrString(function, "__code__");
	PyObject *file = code ? PyObject_GetAttrString(code, "co_filename") : NULL;
	PyObject *text = file ? PyUnicode_AsUTF8String(file) : NULL;
	int origin =
		text ? (int)python_origin(PyBytes_AsString(text), (size_t)PyBytes_Size(text)) : -1;

	Py_XDECREF(code);
	Py_XDECREF(file);
	Py_XDECREF(text);
	PyErr_Clear();
	return origin;
}

/* Is what runs in this module's call, but for modules inside of it, of the user's program? */
static uint32_t whose_forward(PyObject *module)
{
	PyObject *function = PyObject_GetAttrString(module, "forward");
	uint32_t whose = OF_LIBRARY;

	for (int i = 0; function && i < MAX_WRAPPED; i++) {
		if (origin_of(function) == ORIGIN_USER)
			whose = OF_USER;
		PyObject *inner = PyObject_GetAttrString(function, "__wrapped__");
		Py_DECREF(function);
		function = inner;
	}
	Py_XDECREF(function);
	PyErr_Clear();
	return whose;
}

/* --- modules --- */

static uint32_t line_of(const struct open_module *m)
{
	return m->epoch == collect_epoch() ? m->line : 0;
}

static void send_innermost(void)
{
	const struct open_module *m = open.n ? &open.at[open.n - 1] : NULL;

	collect_work(m ? m->layer : 0, m ? line_of(m) : 0);
}

/* The line that has called a module in which nothing is the user's: that of the module around it,
 * if that is such a module, too. */
static uint32_t calling_line(void)
{
	uint32_t line = open.n ? line_of(&open.at[open.n - 1]) : 0;

	return line ? line : collect_users_line();
}

static PyObject *work_enter(PyObject *self, PyObject *module)
{
	struct layer *l = layer_find(module);

	(void)self;
	if (open.n && open.at[0].object == module)
		open.n = 0; /* an exception has ended it without a word */
	if (!l)
		return PyBool_FromLong(0);
	if (l->origin == OF_UNKNOWN)
		l->origin = whose_forward(module);
	layer_send_text(l);
	uint32_t line = l->origin == OF_LIBRARY ? calling_line() : 0;
	if (open.n < MAX_OPEN)
		open.at[open.n++] = (struct open_module){module, l->hash, line, collect_epoch()};
	collect_work(l->hash, line);
	return PyBool_FromLong(1);
}

/* With what has begun inside of it. One that was open before anybody asked is not there. */
static PyObject *work_leave(PyObject *self, PyObject *module)
{
	(void)self;
	for (unsigned i = open.n; i > 0; i--) {
		if (open.at[i - 1].object != module)
			continue;
		open.n = i - 1;
		send_innermost();
		break;
	}
	Py_RETURN_NONE;
}

static PyObject *work_clear(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	open.n = 0;
	collect_work(0, 0);
	Py_RETURN_NONE;
}

static PyObject *work_outermost(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyLong_FromVoidPtr(open.n ? (void *)(uintptr_t)open.at[0].object : NULL);
}

/* --- on and off --- */

static PyObject *listener;

static int call_listener(void *arg)
{
	PyObject *r = listener ? PyObject_CallFunction(listener, "i", monitor_attributes()) : NULL;

	(void)arg;
	Py_XDECREF(r);
	PyErr_Clear(); /* no exception of ours is the job's */
	return 0;
}

static void wanted_changed(void)
{
	collect_work_switch(monitor_attributes());
	if (Py_IsInitialized())
		(void)Py_AddPendingCall(call_listener, NULL);
}

/* work_listen(function(bool)): called when it is wanted, and when it is not any more. */
static PyObject *work_listen(PyObject *self, PyObject *function)
{
	(void)self;
	Py_INCREF(function);
	Py_XDECREF(listener);
	listener = function;
	monitor_on_attribute(wanted_changed);
	if (monitor_attributes())
		wanted_changed();
	Py_RETURN_NONE;
}

/* work_hide(co_filename): functions of this file are nobody's lines. */
static PyObject *work_hide(PyObject *self, PyObject *name)
{
	(void)self;
	collect_hide_file(name);
	Py_RETURN_NONE;
}

PyMethodDef work_methods[] = {
	LAYER_TABLE_METHODS,
	{"work_enter", work_enter, METH_O, "work_enter(module) -> is its path known?"},
	{"work_leave", work_leave, METH_O, "work_leave(module)"},
	{"work_clear", work_clear, METH_NOARGS, "work_clear(): no module runs in this thread"},
	{"work_outermost", work_outermost, METH_NOARGS, "work_outermost() -> id, or 0"},
	AUTOGRAD_METHODS,
	{"work_hide", work_hide, METH_O, "work_hide(co_filename): its lines are nobody's"},
	{"work_listen", work_listen, METH_O, "work_listen(function of a bool): is it wanted?"},
	{NULL, NULL, 0, NULL},
};
