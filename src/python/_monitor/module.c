/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde._monitor: the monitor of this process, for the Python packages. One binary for every
 * CPython from 3.8 on, like sonde._sonde; apart from that one, so that a program that records
 * memory does not bring the monitor along.
 *
 * Whatever may wait for the daemon, for the recorder or for the vendor's library does so without
 * the GIL. Errors are values here; words are for the packages to say.
 */
#include "python/_monitor/module.h"

#include "guest/collect/collect.h"
#include "guest/monitor/monitor.h"
#include "python/_sonde/interpreter.h"
#include "wire/request.h"

#include <string.h>

/* Headers from 3.12 on count no references to None, which interpreters up to 3.11 do. */
#undef Py_RETURN_NONE
#define Py_RETURN_NONE return Py_INCREF(Py_None), Py_None

#define WHY_BYTES 512

static PyObject *do_register(PyObject *self, PyObject *args)
{
	int device, r;

	(void)self;
	if (!PyArg_ParseTuple(args, "i", &device))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = monitor_register(device);
	Py_END_ALLOW_THREADS
	return PyLong_FromLong(r);
}

/* Frameworks take texts: a byte that is none becomes a question mark, and no exception. */
static PyObject *as_text(const char *at, int len)
{
	return PyUnicode_DecodeUTF8(at, len, "replace");
}

static PyObject *poll(PyObject *self, PyObject *args)
{
	char order[REQUEST_MAX_BYTES];
	int n;

	(void)self;
	(void)args;
	Py_BEGIN_ALLOW_THREADS
	n = monitor_poll(order, sizeof(order));
	Py_END_ALLOW_THREADS
	return n < 0 ? PyLong_FromLong(n) : as_text(order, n);
}

static PyObject *report_trace(PyObject *self, PyObject *args)
{
	int state, current, start, stop;

	(void)self;
	if (!PyArg_ParseTuple(args, "iiii", &state, &current, &start, &stop))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	monitor_send_trace_status(state, current, start, stop);
	Py_END_ALLOW_THREADS
	Py_RETURN_NONE;
}

static PyObject *end(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	Py_BEGIN_ALLOW_THREADS
	monitor_end();
	Py_END_ALLOW_THREADS
	Py_RETURN_NONE;
}

static PyObject *order(PyObject *self, PyObject *args)
{
	char why[WHY_BYTES] = "";
	const char *text;
	Py_ssize_t len;
	int r;

	(void)self;
	if (!PyArg_ParseTuple(args, "s#", &text, &len))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = monitor_execute(text, (size_t)len, why, sizeof(why));
	Py_END_ALLOW_THREADS
	why[sizeof(why) - 1] = '\0';
	return Py_BuildValue("(iN)", r, as_text(why, (int)strlen(why)));
}

static PyObject *running(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyBool_FromLong(monitor_is_running());
}

static PyObject *set_groups(PyObject *self, PyObject *args)
{
	const char *text;
	Py_ssize_t len;

	(void)self;
	if (!PyArg_ParseTuple(args, "s#", &text, &len))
		return NULL;
	monitor_set_groups(text, (size_t)len);
	Py_RETURN_NONE;
}

static PyObject *set_rank(PyObject *self, PyObject *args)
{
	int rank;

	(void)self;
	if (!PyArg_ParseTuple(args, "i", &rank))
		return NULL;
	monitor_set_rank(rank);
	Py_RETURN_NONE;
}

static PyObject *source(PyObject *self, PyObject *args)
{
	const char *name = monitor_source();

	(void)self;
	(void)args;
	return PyUnicode_FromString(name ? name : "");
}

static PyObject *flush(PyObject *self, PyObject *args)
{
	unsigned timeout_ms;
	bool done;

	(void)self;
	if (!PyArg_ParseTuple(args, "I", &timeout_ms))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	done = collect_flush(timeout_ms);
	Py_END_ALLOW_THREADS
	return PyBool_FromLong(done);
}

static PyObject *step(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	Py_BEGIN_ALLOW_THREADS
	collect_step();
	Py_END_ALLOW_THREADS
	gc_settle(true);
	Py_RETURN_NONE;
}

static PyObject *detected_step(PyObject *self, PyObject *args)
{
	unsigned char source;
	const char *name;
	bool counted;
	int first;

	(void)self;
	if (!PyArg_ParseTuple(args, "bsp", &source, &name, &first))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	counted = collect_detected_step(source, name, first);
	Py_END_ALLOW_THREADS
	gc_settle(true);
	return PyBool_FromLong(counted);
}

static PyObject *steps(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyLong_FromUnsignedLongLong(collect_steps());
}

static PyMethodDef methods[] = {
	{"register", do_register, METH_VARARGS,
	 "register(device) -> 0, or a negative errno: there is no daemon"},
	{"poll", poll, METH_NOARGS, "poll() -> str: a request, '' if there is none; int: -errno"},
	{"tell_trace", report_trace, METH_VARARGS, "tell_trace(state, current, start, stop)"},
	{"end", end, METH_NOARGS, "end(): unregisters from the daemon, stops what runs"},
	{"order", order, METH_VARARGS,
	 "order(text) -> (0 or a negative errno, why): carries out a request of npu-monitor"},
	{"running", running, METH_NOARGS, "running() -> bool: are activities recorded?"},
	{"set_groups", set_groups, METH_VARARGS, "set_groups(JSON): the job's parallel groups"},
	{"set_rank", set_rank, METH_VARARGS, "set_rank(rank): -1 if it is not known"},
	{"source", source, METH_NOARGS,
	 "source() -> str: the library that reports activities, '' if there is none"},
	{"flush", flush, METH_VARARGS,
	 "flush(timeout_ms) -> bool: files hold what was recorded until now"},
	{"step", step, METH_NOARGS, "step(): ends a step"},
	{"detected_step", detected_step, METH_VARARGS,
	 "detected_step(source, name, first) -> bool: a step that the program did not report; "
	 "False: it reports them"},
	{"steps", steps, METH_NOARGS,
	 "steps() -> int: how many have ended, however they were reported"},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "sonde._monitor",
	.m_doc = "The monitor of this process, as the Python packages use it.",
	.m_size = -1,
	.m_methods = methods,
};

PyMODINIT_FUNC PyInit__monitor(void);

PyMODINIT_FUNC PyInit__monitor(void)
{
	PyObject *m = interpreter_fits() ? PyModule_Create(&definition) : NULL;

	if (m && PyModule_AddStringConstant(m, "__version__", SONDE_VERSION) < 0)
		Py_CLEAR(m);
	if (m && PyModule_AddFunctions(m, work_methods) < 0)
		Py_CLEAR(m);
	if (m)
		gc_begin();
	return m;
}
