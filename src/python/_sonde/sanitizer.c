/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The way of sanitizer marks into Python. They come in the thread that launches an operator, and
 * the sanitizer must see them in order, so that thread takes the GIL; that is what torch does for
 * its own sanitizer. What it finds is raised in the main thread, at the next place where Python
 * can take an exception.
 */
#include "python/_sonde/module.h"

#include "guest/collect/collect.h"

#include <dlfcn.h>
#include <string.h>

static PyObject *callback;
static __thread bool busy;

/* A thread that asks for the GIL of an interpreter that is ending never comes back. */
static bool is_ending(void)
{
	int (*ending)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsFinalizing");

	if (!ending)
		ending = (int (*)(void))dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
	return !Py_IsInitialized() || (ending && ending());
}

static int raise_now(void *error)
{
	PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)error), error);
	Py_DECREF((PyObject *)error);
	return -1;
}

static void ask_python(const char *message, uint64_t stream)
{
	PyObject *type, *value, *trace;
	PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");

	PyErr_Fetch(&type, &value, &trace);
	PyObject *error = text && callback ? PyObject_CallFunction(callback, "OK", text,
								   (unsigned long long)stream)
					   : NULL;
	if (!error && callback)
		PyErr_WriteUnraisable(callback);
	else if (error && error != Py_None && Py_AddPendingCall(raise_now, error) == 0)
		error = NULL; /* raise_now() has it */
	Py_XDECREF(error);
	Py_XDECREF(text);
	PyErr_Restore(type, value, trace);
}

static void on_operator(const char *message, uint64_t stream)
{
	if (busy || is_ending())
		return;
	busy = true;
	PyGILState_STATE state = PyGILState_Ensure();
	ask_python(message, stream);
	PyGILState_Release(state);
	busy = false;
}

static PyObject *set_sanitizer(PyObject *self, PyObject *fn)
{
	PyObject *old = callback;

	(void)self;
	collect_sanitizer_set(NULL);
	callback = fn == Py_None ? NULL : fn;
	Py_XINCREF(callback);
	Py_XDECREF(old);
	if (callback)
		collect_sanitizer_set(on_operator);
	Py_RETURN_NONE;
}

PyMethodDef sanitizer_methods[] = {
	{"set_sanitizer", set_sanitizer, METH_O,
	 "set_sanitizer(fn or None): fn(text, stream) of each mark, in the thread that launches; "
	 "an "
	 "exception that it returns is raised in the main thread"},
	{NULL, NULL, 0, NULL},
};
