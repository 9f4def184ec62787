/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Listens to Python's collector while a trace wants its pauses (src/guest/monitor/gc.c), and is not
 * in gc.callbacks at any other time. It comes and goes with a step of the program, or where the
 * interpreter lets others run (a pending call): none of our threads ever waits for the GIL.
 */
#include "guest/runtime/guest.h"
#include "python/_monitor/module.h"

#include "guest/monitor/monitor.h"

#include <stdint.h>

static PyObject *callbacks, *callback; /* gc.callbacks; ours */
static bool listens;
static __thread uint64_t begun_ns;

/* callback(phase, info) */
static PyObject *on_phase(PyObject *self, PyObject *args)
{
	PyObject *phase = PyTuple_GetItem(args, 0);
	uint64_t begun = begun_ns, now;

	(void)self;
	if (!phase || !PyUnicode_Check(phase)) {
		PyErr_Clear();
	} else if (PyUnicode_CompareWithASCIIString(phase, "start") == 0) {
		begun_ns = guest_wall_now();
	} else if (begun) {
		double ms = monitor_gc_ms();

		begun_ns = 0;
		now = guest_wall_now();
		if (ms >= 0 && now > begun && (double)(now - begun) >= ms * 1e6)
			monitor_gc_pause(begun, now);
	}
	Py_INCREF(Py_None);
	return Py_None;
}

static PyMethodDef definition = {"sonde_gc", on_phase, METH_VARARGS, "Tells pauses to a trace."};

static Py_ssize_t place(void)
{
	for (Py_ssize_t i = PyList_Size(callbacks) - 1; i >= 0; i--)
		if (PyList_GetItem(callbacks, i) == callback)
			return i;
	return -1;
}

/*
 * The collector walks over the list by index while it calls: what stands behind one that goes would
 * be left out. In a step nothing is being collected; else only the last one can go.
 */
static void remove_callback(bool in_step)
{
	Py_ssize_t at = place();

	if (at >= 0 && !in_step && at + 1 != PyList_Size(callbacks))
		return;
	if (at >= 0 && PyList_SetSlice(callbacks, at, at + 1, NULL) < 0)
		PyErr_Clear();
	listens = false;
	monitor_gc_subscribe(false);
}

void gc_settle(bool in_step)
{
	bool wanted = monitor_gc_ms() >= 0;

	if (wanted == listens || !callbacks)
		return;
	if (!wanted) {
		remove_callback(in_step);
	} else if (PyList_Append(callbacks, callback) == 0) {
		listens = true;
		monitor_gc_subscribe(true);
	} else {
		PyErr_Clear();
	}
}

static int on_pending_call(void *arg)
{
	(void)arg;
	gc_settle(false);
	return 0;
}

static void on_change(void)
{
	if (Py_IsInitialized())
		(void)Py_AddPendingCall(on_pending_call, NULL); /* else with the next step */
}

void gc_begin(void)
{
	PyObject *module = PyImport_ImportModule("gc");

	callbacks = module ? PyObject_GetAttrString(module, "callbacks") : NULL;
	callback = callbacks ? PyCFunction_NewEx(&definition, NULL, NULL) : NULL;
	Py_XDECREF(module);
	if (!callback || !PyList_Check(callbacks)) {
		Py_CLEAR(callbacks);
		PyErr_Clear();
		return;
	}
	monitor_on_gc(on_change);
	gc_settle(true);
}
