/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which module runs, while the monitor attributes what devices execute (guest/collect/work.c): the
 * modules that are open in each thread, the operation of autograd that it computes the gradient of,
 * and whether anybody wants to know. sonde/_attribute.py has the hooks.
 */
#include "python/_monitor/module.h"

#include "guest/collect/collect.h"
#include "guest/monitor/monitor.h"
#include "python/_sonde/layer_table.h"
#include "unwind/python/origin.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#undef Py_RETURN_NONE
#define Py_RETURN_NONE return Py_INCREF(Py_None), Py_None

#define MAX_OPEN 128 /* modules inside one another */
#define MAX_WRAPPED 8
#define LAST_OFFSET 96 /* in a node of autograd, where its number is looked for */

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

static void tell_innermost(void)
{
	const struct open_module *m = open.n ? &open.at[open.n - 1] : NULL;

	collect_work(m ? m->layer : 0, m ? line_of(m) : 0);
}

/* The line that has called a module in which nothing is the user's: that of the module around it, if
 * that is such a module, too. */
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
		tell_innermost();
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

/* --- autograd --- */

/*
 * torch::autograd::get_current_node() returns a smart pointer, in memory, as it is longer than two
 * words here. It counts one reference more, and that goes back at once: the engine holds two while it
 * computes, in its task and for whoever asks, so none of ours is ever the last.
 *
 *	std::shared_ptr                 node, counts      the number of the node is at 24
 *	intrusive_ptr (2.12 and later)  node              it is at 16, and the count in the node, at 8
 */
struct node_pointer {
	char *node;
	char *counts;
	void *unused;
};

#define NUMBER_AT_SHARED 24
#define NUMBER_AT_INTRUSIVE 16
#define ENGINES_COUNTS 2

static struct node_pointer (*current_node)(void);

static void *shared_node_now(void)
{
	struct node_pointer n = current_node();

	if (n.node)
		__atomic_sub_fetch((int32_t *)(void *)(n.counts + 8), 1, __ATOMIC_ACQ_REL);
	return n.node;
}

static void *intrusive_node_now(void)
{
	struct node_pointer n = current_node();
	uint64_t *count = (uint64_t *)(void *)(n.node + 8);

	if (n.node && (uint32_t)__atomic_load_n(count, __ATOMIC_RELAXED) > ENGINES_COUNTS)
		__atomic_sub_fetch(count, 1, __ATOMIC_ACQ_REL);
	return n.node;
}

/* The object of a node holds a pointer to it behind its head. */
static const char *node_of(PyObject *object)
{
	void *node;

	memcpy(&node, (char *)object + 2 * sizeof(void *), sizeof(node));
	return node;
}

static uint64_t number_at(const char *node, uint32_t offset)
{
	uint64_t v;

	memcpy(&v, node + offset, sizeof(v));
	return v;
}

/* Where both nodes have their numbers, and behind it the thread that counts. */
static bool find_offsets(const char *a, uint64_t number_a, const char *b, uint64_t number_b,
			 struct collect_autograd *out)
{
	for (uint32_t at = NUMBER_AT_INTRUSIVE; at <= NUMBER_AT_SHARED; at += 8) {
		if (number_at(a, at) != number_a || number_at(b, at) != number_b)
			continue;
		uint64_t thread = out->thread();
		for (uint32_t next = at + 8; next <= LAST_OFFSET; next += 8) {
			if (number_at(a, next) != thread || number_at(b, next) != thread)
				continue;
			out->sequence_at = at;
			out->thread_at = next;
			out->node = at == NUMBER_AT_SHARED ? shared_node_now : intrusive_node_now;
			return true;
		}
	}
	return false;
}

/* work_autograd(path of libtorch_cpu, node, its number, another one, its number) */
static PyObject *work_autograd(PyObject *self, PyObject *args)
{
	static struct collect_autograd found;
	unsigned long long number[2];
	PyObject *node[2];
	const char *path;

	(void)self;
	if (!PyArg_ParseTuple(args, "sOKOK", &path, &node[0], &number[0], &node[1], &number[1]))
		return NULL;
	void *lib = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	if (!lib)
		return PyBool_FromLong(0);
	*(void **)&found.sequence = dlsym(lib, "_ZN2at15sequence_number4peekEv");
	*(void **)&found.thread = dlsym(lib, "_ZN2at14RecordFunction15currentThreadIdEv");
	*(void **)&current_node = dlsym(lib, "_ZN5torch8autograd16get_current_nodeEv");
	bool known = found.sequence && found.thread && current_node && number[0] != number[1] &&
		     found.sequence() > number[1] &&
		     find_offsets(node_of(node[0]), number[0], node_of(node[1]), number[1], &found);
	if (known)
		collect_work_switch(monitor_attributes(), &found);
	return PyBool_FromLong(known);
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
	collect_work_switch(monitor_attributes(), NULL);
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
	{"work_autograd", work_autograd, METH_VARARGS,
	 "work_autograd(library, node, number, node, number) -> can gradients be followed?"},
	{"work_hide", work_hide, METH_O, "work_hide(co_filename): its lines are nobody's"},
	{"work_listen", work_listen, METH_O, "work_listen(function of a bool): is it wanted?"},
	{NULL, NULL, 0, NULL},
};
