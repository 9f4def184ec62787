/* SPDX-License-Identifier: MulanPSL-2.0 */
/* From what the interpreter reports to records. */
#include "python/_sonde/trace_impl.h"

#include "guest/collect/collect.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_FRAMES 1024 /* of a stack that is there already */
#define CLASS_BYTES 256

/*
 * Functions inside which nothing is reported, of this thread. How many threads have some is known
 * to all, so that hardly anybody has to look.
 */
static __thread struct {
	unsigned depth;
	unsigned session; /* what is of an earlier one does not count */
} muted;
static unsigned muted_threads, session;
static bool is_on;

static bool is_muted(void)
{
	return muted_threads && muted.session == session && muted.depth;
}

static void mute_thread(unsigned depth)
{
	if (muted.session != session)
		muted.depth = 0;
	muted.session = session;
	muted_threads += !muted.depth && depth;
	muted.depth += depth;
}

void trace_mute(void)
{
	if (is_on)
		mute_thread(1);
}

void trace_unmute(void)
{
	if (is_muted() && !--muted.depth)
		muted_threads--;
}

/* "nn.Module: Linear" */
static uint64_t module_name(uint32_t epoch)
{
	char text[CLASS_BYTES];
	const char *name = collect_first_class();
	const char *last = name ? strrchr(name, '.') : NULL;

	if (!name)
		return 0;
	int n = snprintf(text, sizeof(text), "nn.Module: %s", last ? last + 1 : name);
	return trace_text(text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1, epoch);
}

void trace_begin(PyObject *object)
{
	uint32_t epoch = collect_traces();

	if (!epoch)
		return;
	const struct code *c = trace_code(object, epoch);
	if (c->kind == CODE_MUTE)
		mute_thread(1);
	else if (c->kind != CODE_OURS && !is_muted())
		collect_call(CALL_PYTHON, c->kind == CODE_MODULE ? module_name(epoch) : 0,
			     c->place);
}

void trace_end(PyObject *object)
{
	uint32_t epoch = collect_traces();

	if (!epoch)
		return;
	const struct code *c = trace_code(object, epoch);
	if (c->kind == CODE_MUTE)
		trace_unmute();
	else if (c->kind != CODE_OURS && !is_muted())
		collect_call(CALL_RETURN, 0, c->place);
}

static void c_call(uint8_t kind, PyObject *object, PyObject *callable, PyObject *self)
{
	uint32_t epoch = collect_traces();

	if (!epoch)
		return;
	const struct code *c = trace_code(object, epoch);
	if (c->kind == CODE_MUTE || c->kind == CODE_OURS || is_muted())
		return;
	uint64_t name = trace_name(callable, self, epoch);
	if (name)
		collect_call(kind, name, c->place);
}

void trace_c_begin(PyObject *object, PyObject *callable, PyObject *self)
{
	c_call(CALL_C, object, callable, self);
}

void trace_c_end(PyObject *object, PyObject *callable, PyObject *self)
{
	c_call(CALL_C_RETURN, object, callable, self);
}

/* --- stacks that are there when tracing begins --- */

/* The codes of a stack, outermost last; references. */
static unsigned codes_of(PyObject *frame, PyObject *codes[MAX_FRAMES])
{
	unsigned n = 0;

	Py_INCREF(frame);
	while (frame && frame != Py_None && n < MAX_FRAMES) {
		PyObject *code = PyObject_GetAttrString(frame, "f_code");
		PyObject *back = code ? PyObject_GetAttrString(frame, "f_back") : NULL;

		if (code)
			codes[n++] = code;
		Py_DECREF(frame);
		frame = back;
	}
	Py_XDECREF(frame);
	PyErr_Clear();
	return n;
}

static void open_stack(PyObject *frame, uint32_t epoch, uint64_t tid, bool here)
{
	static PyObject *codes[MAX_FRAMES]; /* guarded by the GIL */
	unsigned n = codes_of(frame, codes), mutes = 0;

	for (unsigned i = n; i > 0; i--) {
		const struct code *c = trace_code(codes[i - 1], epoch);

		mutes += c->kind == CODE_MUTE;
		if (!mutes && c->kind != CODE_OURS)
			collect_call(CALL_OPEN, tid, c->place);
		Py_DECREF(codes[i - 1]);
	}
	if (here)
		mute_thread(mutes);
}

int trace_open_stacks(PyObject *tids)
{
	uint32_t epoch = collect_traces();
	PyObject *current = PySys_GetObject("_current_frames"), *ident, *frame;
	PyObject *frames = current ? PyObject_CallFunctionObjArgs(current, NULL) : NULL;
	long here = (long)syscall(SYS_gettid);
	Py_ssize_t at = 0;

	session++;
	muted_threads = 0;
	is_on = true;
	if (!frames)
		return -1;
	while (epoch && PyDict_Next(frames, &at, &ident, &frame)) {
		PyObject *tid = PyDict_GetItem(tids, ident);
		long number = tid ? PyLong_AsLong(tid) : -1;

		if (number > 0)
			open_stack(frame, epoch, (uint64_t)number, number == here);
		PyErr_Clear();
	}
	Py_DECREF(frames);
	return 0;
}

void trace_closed(void)
{
	is_on = false;
}

/* --- sys.monitoring: (code, instruction, …); what is something else came from elsewhere --- */

#define CALLBACK(name, nargs_wanted, action)                                                       \
	PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t nargs)                    \
	{                                                                                          \
		(void)self;                                                                        \
		if (nargs >= (nargs_wanted) && Py_TYPE(args[0]) == trace_code_type)                \
			action;                                                                    \
		Py_RETURN_NONE;                                                                    \
	}

CALLBACK(trace_on_begin, 1, trace_begin(args[0]))
CALLBACK(trace_on_end, 1, trace_end(args[0]))
CALLBACK(trace_on_call, 4, trace_c_begin(args[0], args[2], args[3]))
CALLBACK(trace_on_c_end, 4, trace_c_end(args[0], args[2], args[3]))
