/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Calls, and spans that the program names. From 3.12 on the interpreter reports them to who has a
 * tool id (sys.monitoring), before that to a profile function of each thread (trace_profile.c).
 */
#include "python/_sonde/trace_impl.h"

#include "guest/collect/collect.h"

#include <string.h>

#define NOTE_HASH 0xf000000000000000ull /* names of single spans: apart from those of functions */

static PyObject *packages(PyObject *self, PyObject *args)
{
	PyObject *dirs, *mute;

	(void)self;
	if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &dirs, &PyList_Type, &mute) ||
	    trace_set_packages(dirs, mute) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* In one piece: no other thread runs between the first event and the stacks that it belongs to. */
static PyObject *start(PyObject *self, PyObject *args)
{
	PyObject *tids, *set_events, *event_args, *done = NULL;
	int others = 0;

	(void)self;
	if (!PyArg_ParseTuple(args, "O!OO", &PyDict_Type, &tids, &set_events, &event_args) ||
	    trace_check_names() < 0)
		return NULL;
	if (set_events == Py_None)
		others = trace_arm();
	else
		done = PyObject_CallObject(set_events, event_args);
	if (others < 0 || (set_events != Py_None && !done))
		return NULL;
	Py_XDECREF(done);
	if (trace_open_stacks(tids) < 0)
		return NULL;
	return PyLong_FromLong(others);
}

static PyObject *stop(PyObject *self, PyObject *args)
{
	PyObject *set_events, *event_args, *done = NULL;

	(void)self;
	if (!PyArg_ParseTuple(args, "OO", &set_events, &event_args))
		return NULL;
	if (set_events == Py_None)
		trace_disarm();
	else
		done = PyObject_CallObject(set_events, event_args);
	trace_closed();
	collect_call(CALL_STOP, 0, 0);
	trace_forget_codes();
	if (set_events != Py_None && !done)
		return NULL;
	Py_XDECREF(done);
	Py_RETURN_NONE;
}

static PyObject *open_again(PyObject *self, PyObject *args)
{
	PyObject *tids;

	(void)self;
	if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &tids) || trace_open_stacks(tids) < 0)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *rearm(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	int others = trace_arm();
	return others < 0 ? NULL : PyLong_FromLong(others);
}

static PyObject *note_begin(PyObject *self, PyObject *args)
{
	static uint64_t last;
	const char *text;
	Py_ssize_t len;

	(void)self;
	if (!PyArg_ParseTuple(args, "s#", &text, &len))
		return NULL;
	if (!collect_has_joined() || !collect_tracing())
		return PyLong_FromLong(0);
	uint64_t id = ++last;
	collect_name(NOTE_HASH | id, text, (size_t)len);
	collect_call(CALL_NOTE, NOTE_HASH | id, 0);
	return PyLong_FromUnsignedLongLong(id);
}

static PyObject *note_end(PyObject *self, PyObject *args)
{
	unsigned long long id;

	(void)self;
	if (!PyArg_ParseTuple(args, "K", &id))
		return NULL;
	if (id && collect_has_joined())
		collect_call(CALL_NOTE_END, NOTE_HASH | id, 0);
	Py_RETURN_NONE;
}

PyMethodDef trace_methods[] = {
	{"trace_packages", packages, METH_VARARGS,
	 "trace_packages(directories, mute files): what of ours is left out"},
	{"trace_start", start, METH_VARARGS,
	 "trace_start({ident: tid}, set_events or None, args) -> threads of another profiler"},
	{"trace_stop", stop, METH_VARARGS, "trace_stop(set_events or None, args)"},
	{"trace_open", open_again, METH_VARARGS, "trace_open({ident: tid}): stacks of now"},
	{"trace_arm", rearm, METH_NOARGS, "trace_arm() -> threads of another profiler"},
	{"note_begin", note_begin, METH_VARARGS, "note_begin(text) -> id, 0: nothing records"},
	{"note_end", note_end, METH_VARARGS, "note_end(id)"},
	{"trace_on_begin", FASTCALL(trace_on_begin), METH_FASTCALL, "a function begins or goes on"},
	{"trace_on_end", FASTCALL(trace_on_end), METH_FASTCALL, "a function ends or waits"},
	{"trace_on_call", FASTCALL(trace_on_call), METH_FASTCALL, "something is called"},
	{"trace_on_c_end", FASTCALL(trace_on_c_end), METH_FASTCALL, "a function of C's has ended"},
	{"trace_on_thread", FASTCALL(trace_on_thread), METH_FASTCALL, "for threading.setprofile()"},
	{NULL, NULL, 0, NULL},
};
