/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Calls in 3.8 to 3.11: each thread has one profile function. The interpreter sets only that of the
 * thread that asks (PyEval_SetProfile); in all others the same words are stored by hand, with the
 * GIL, so that none of them runs Python code meanwhile. Borrowing their thread states instead would
 * run the program's audit hooks in them, which may let the real owner go on in the middle.
 *
 * Where the words are follows from what PyEval_SetProfile changes in our own thread:
 *
 *	3.8, 3.9	… int use_tracing, 4 bytes | profile function | trace function | …
 *	3.10, 3.11	… cframe *                 | profile function | trace function | …
 *			  `-> use_tracing, of the innermost frame
 *
 * Behind both functions come their objects, in the same order.
 *
 * A thread that has the profile function of somebody else is left alone. New threads are seen by
 * the next event of any other, the newest being the first of the list.
 */
#include "python/_sonde/trace_impl.h"

#include <dlfcn.h>
#include <string.h>

#define SEARCH_WORDS 16 /* of a thread state; it is longer */

typedef int (*tracefunc)(PyObject *obj, PyObject *frame, int what, PyObject *arg);

enum { WHAT_CALL = 0, WHAT_RETURN = 3, WHAT_C_CALL = 4, WHAT_C_EXCEPTION = 5, WHAT_C_RETURN = 6 };

/* From the profile function on. */
struct hooks {
	tracefunc profile, trace;
	PyObject *profile_object, *trace_object;
};

static struct {
	void (*set_profile)(tracefunc fn, PyObject *obj);
	PyObject *(*frame_code)(PyObject *frame); /* NULL: 3.8 */
	PyInterpreterState *(*interpreter)(void);
	PyThreadState *(*first_thread)(PyInterpreterState *i);
	PyThreadState *(*next_thread)(PyThreadState *t);
	PyInterpreterState *interp;
	size_t hooks_at; /* in a thread state; 0: not known */
	int minor;
	PyThreadState *newest;
	bool on;
} api;

static int on_event(PyObject *obj, PyObject *frame, int what, PyObject *arg);

static struct hooks *hooks_of(PyThreadState *t)
{
	return (struct hooks *)((char *)t + api.hooks_at);
}

/* --- finding things --- */

static int version_minor(void)
{
	const char *text = Py_GetVersion();
	const char *dot = strchr(text, '.');
	int minor = 0;

	for (const char *p = dot ? dot + 1 : ""; *p >= '0' && *p <= '9'; p++)
		minor = minor * 10 + (*p - '0');
	return minor;
}

static int find_api(void)
{
	api.minor = version_minor();
	*(void **)&api.set_profile = dlsym(RTLD_DEFAULT, "PyEval_SetProfile");
	*(void **)&api.frame_code = dlsym(RTLD_DEFAULT, "PyFrame_GetCode");
	*(void **)&api.interpreter = dlsym(RTLD_DEFAULT, "PyInterpreterState_Get");
	if (!api.interpreter) /* 3.8 */
		*(void **)&api.interpreter = dlsym(RTLD_DEFAULT, "_PyInterpreterState_Get");
	*(void **)&api.first_thread = dlsym(RTLD_DEFAULT, "PyInterpreterState_ThreadHead");
	*(void **)&api.next_thread = dlsym(RTLD_DEFAULT, "PyThreadState_Next");
	if (api.set_profile && api.interpreter && api.first_thread && api.next_thread &&
	    api.minor >= 8 && api.minor <= 11 && (api.frame_code || api.minor == 8))
		return 0;
	api.set_profile = NULL;
	PyErr_SetString(PyExc_RuntimeError, "this interpreter has no profile functions");
	return -1;
}

/* The object of this thread's profile function, a reference; None: there is none, or it is ours. */
static PyObject *profile_object(void)
{
	PyObject *ask = PySys_GetObject("getprofile");
	PyObject *object = ask ? PyObject_CallFunctionObjArgs(ask, NULL) : NULL;

	PyErr_Clear();
	return object;
}

/* Where a profile function with that object is. */
static size_t find_hooks(PyThreadState *self, PyObject *object)
{
	for (size_t i = 4; i < SEARCH_WORDS; i++) {
		struct hooks h;

		memcpy(&h, (char *)self + i * 8, sizeof(h));
		if (h.profile_object == object &&
		    (object == Py_None ? h.profile == on_event : h.profile != NULL))
			return i * 8;
	}
	return 0;
}

/* Whether a thread has hooks at all: a word that ceval looks at before anything else. */
static void set_tracing(PyThreadState *t, bool on)
{
	char *before = (char *)hooks_of(t) - 8;
	char *cframe;

	memcpy(&cframe, before, 8);
	if (api.minor <= 9)
		*(int *)before = on;
	else if (cframe && api.minor == 10)
		*(int *)cframe = on;
	else if (cframe && !(on && *(int *)(before - 12))) /* 3.11: not inside a trace function */
		*(unsigned char *)cframe = on ? 255 : 0;
}

static bool is_tracing(PyThreadState *t)
{
	char *before = (char *)hooks_of(t) - 8;
	char *cframe;

	memcpy(&cframe, before, 8);
	if (api.minor <= 9)
		return *(int *)before == 1;
	return cframe && (api.minor == 10 ? *(int *)cframe == 1 : *(unsigned char *)cframe == 255);
}

/* --- threads --- */

/* The thread of the caller, by the interpreter's own means; true if it has our function then. */
static bool arm_self(PyThreadState *self)
{
	if (api.hooks_at) {
		if (!hooks_of(self)->profile)
			api.set_profile(on_event, Py_None);
		return hooks_of(self)->profile == on_event;
	}
	PyObject *object = profile_object();
	bool is_free = object == Py_None;
	if (is_free)
		api.set_profile(on_event, Py_None);
	if (object)
		api.hooks_at = find_hooks(self, object);
	if (api.hooks_at && !is_tracing(self))
		api.hooks_at = 0;
	Py_XDECREF(object);
	return is_free;
}

static bool arm_other(PyThreadState *t)
{
	struct hooks *h = hooks_of(t);

	if (h->profile)
		return h->profile == on_event;
	Py_INCREF(Py_None);
	h->profile_object = Py_None;
	h->profile = on_event;
	set_tracing(t, true);
	return true;
}

int trace_arm(void)
{
	int others = 0;

	if (!api.set_profile && find_api() < 0)
		return -1;
	PyThreadState *self = PyThreadState_Get();
	api.on = true;
	api.interp = api.interpreter();
	others += !arm_self(self);
	api.newest = api.first_thread(api.interp);
	if (!api.hooks_at)
		return others; /* this thread, at least */
	for (PyThreadState *t = api.newest; t; t = api.next_thread(t))
		others += t != self && !arm_other(t);
	return others;
}

void trace_disarm(void)
{
	api.on = false;
	if (!api.set_profile)
		return;
	PyThreadState *self = PyThreadState_Get();
	if (!api.hooks_at) {
		api.set_profile(NULL, NULL);
		return;
	}
	for (PyThreadState *t = api.first_thread(api.interp); t; t = api.next_thread(t)) {
		struct hooks *h = hooks_of(t);

		if (h->profile != on_event)
			continue;
		if (t == self) {
			api.set_profile(NULL, NULL);
			continue;
		}
		h->profile = NULL;
		h->profile_object = NULL;
		set_tracing(t, h->trace != NULL);
		Py_DECREF(Py_None);
	}
}

/* --- events --- */

static PyObject *code_of(PyObject *frame)
{
	PyObject *code;

	if (api.frame_code)
		return api.frame_code(frame);
	memcpy(&code, (char *)frame + 32, sizeof(code)); /* 3.8: f_code */
	Py_INCREF(code);
	return code;
}

static int on_event(PyObject *obj, PyObject *frame, int what, PyObject *arg)
{
	PyObject *code = code_of(frame);

	(void)obj;
	if (api.on && api.first_thread(api.interp) != api.newest && trace_arm() < 0)
		PyErr_Clear();
	switch (what) {
	case WHAT_CALL:
		trace_begin(code);
		break;
	case WHAT_RETURN:
		trace_end(code);
		break;
	case WHAT_C_CALL:
		trace_c_begin(code, arg, NULL);
		break;
	case WHAT_C_RETURN:
	case WHAT_C_EXCEPTION:
		trace_c_end(code, arg, NULL);
		break;
	}
	Py_DECREF(code);
	return 0;
}

/* Of a new thread of the module threading, by threading.setprofile(): the first event. */
PyObject *trace_on_thread(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	static const struct {
		const char *name;
		int what;
	} events[] = {{"call", WHAT_CALL},
		      {"return", WHAT_RETURN},
		      {"c_call", WHAT_C_CALL},
		      {"c_return", WHAT_C_RETURN},
		      {"c_exception", WHAT_C_EXCEPTION}};

	(void)self;
	if (nargs < 3 || !api.set_profile || Py_TYPE(args[0]) != trace_frame_type ||
	    !PyUnicode_Check(args[1]))
		Py_RETURN_NONE;
	api.set_profile(api.on ? on_event : NULL, api.on ? Py_None : NULL);
	for (size_t i = 0; api.on && i < sizeof(events) / sizeof(events[0]); i++)
		if (!PyUnicode_CompareWithASCIIString(args[1], events[i].name))
			on_event(NULL, args[0], events[i].what, args[2]);
	Py_RETURN_NONE;
}
