/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Operators of torch and the tensors they use: the body of a dispatch mode. torch calls dispatch()
 * for every operator of a thread that has the mode on its stack; it reports the beginning, calls
 * the operator with what it was given, and reports the end. Whatever the operator returns or
 * raises is passed on as it is.
 *
 * Order of what is reported of one operator: its beginning, its inputs, its outputs, its end.
 *
 * A stack of modes belongs to its thread, so the mode stays where another thread has stopped the
 * recording. It does nothing then, and asks to be taken off at the next occasion.
 */
#include "python/_sonde/ops.h"

#include "guest/collect/collect.h"

#define DEPTH 4 /* lists of lists of tensors */
#define PLACES 16
#define WRITTEN 8
#define HOST (WANT_HOST | WANT_WATCH) /* either is a reason to report operators of the CPU */

static struct {
	bool live; /* operators are to be reported */
	bool retiring; /* somebody has been asked to take the mode off */
	PyObject *retire; /* () takes it off the stack of the thread; NULL: not that way */
	unsigned long main_thread; /* the one that can be asked to do something in between */
	PyObject *s_device;
} ops;

/* One call of an operator. */
struct call {
	const struct op_facts *facts;
	PyObject *args, *kwargs; /* a tuple; a dictionary or NULL */
	uint32_t want;
	int place;
	uint32_t outputs;
	uint32_t ntensors; /* seen while looking for the place */
	int places[PLACES]; /* theirs */
	uint32_t at; /* how many of those have been used again */
	uint32_t nwritten;
	uint64_t written[WRITTEN]; /* reported as written to already */
};

typedef void (*visit)(struct call *c, PyObject *tensor, enum op_type type, enum op_use use);

static void visit_value(struct call *c, PyObject *v, enum op_use use, visit fn, int depth)
{
	if (v == Py_None || PyLong_Check(v) || PyFloat_Check(v) || depth == DEPTH)
		return;
	if (PyTuple_Check(v)) {
		Py_ssize_t n = PyTuple_Size(v);
		for (Py_ssize_t i = 0; i < n; i++)
			visit_value(c, PyTuple_GetItem(v, i), use, fn, depth + 1);
		return;
	}
	if (PyList_Check(v)) {
		for (Py_ssize_t i = 0; i < PyList_Size(v); i++) {
			PyObject *item = PyList_GetItem(v, i);
			Py_INCREF(item);
			visit_value(c, item, use, fn, depth + 1);
			Py_DECREF(item);
		}
		return;
	}
	enum op_type type = op_type_of(v);
	if (type == TYPE_PLAIN || type == TYPE_DERIVED)
		fn(c, v, type, use);
}

static void visit_inputs(struct call *c, visit fn)
{
	const struct op_facts *f = c->facts;
	Py_ssize_t n = PyTuple_Size(c->args);

	if (!f->known)
		visit_value(c, c->args, USE_UNKNOWN, fn, 0);
	for (Py_ssize_t i = 0; f->known && i < f->nargs; i++) {
		PyObject *v = NULL;
		if (f->args[i].use == USE_NONE)
			continue;
		if (i < n)
			v = PyTuple_GetItem(c->args, i);
		else if (c->kwargs && f->args[i].name)
			v = PyDict_GetItem(c->kwargs, f->args[i].name);
		if (v)
			visit_value(c, v, f->args[i].use, fn, 0);
	}
}

static void visit_outputs(struct call *c, PyObject *result, visit fn)
{
	const struct op_facts *f = c->facts;

	if (!f->known) {
		visit_value(c, result, USE_UNKNOWN, fn, 0);
	} else if (f->nreturns == 1) {
		visit_value(c, result, f->returns[0].use, fn, 0);
	} else if (PyTuple_Check(result) && PyTuple_Size(result) == f->nreturns) {
		for (Py_ssize_t i = 0; i < f->nreturns; i++)
			visit_value(c, PyTuple_GetItem(result, i), f->returns[i].use, fn, 0);
	}
}

/* --- where an operator runs --- */

static bool is_accelerator(int place)
{
	return place >= 0 && OP_DEVICE(place) != DEV_HOST;
}

static void find_place(struct call *c, PyObject *tensor, enum op_type type, enum op_use use)
{
	(void)use;
	if (is_accelerator(c->place))
		return;
	PyObject *guard = type == TYPE_DERIVED ? op_inspect_guard() : NULL;
	int place = type == TYPE_PLAIN || guard ? op_place(tensor, type) : OP_NOWHERE;
	op_inspect_end(guard);
	if (c->ntensors < PLACES)
		c->places[c->ntensors++] = place;
	if (c->place < 0 || is_accelerator(place))
		c->place = place;
}

/* An accelerator that any of its tensors is on, or its result is to be on; otherwise the CPU. */
static void find_places(struct call *c)
{
	PyObject *device = c->kwargs ? PyDict_GetItem(c->kwargs, ops.s_device) : NULL;

	c->place = OP_NOWHERE;
	visit_inputs(c, find_place);
	if (device && device != Py_None) {
		int place = op_place_named(device);
		if (is_accelerator(place) || !c->ntensors)
			c->place = place;
	} else if (!c->ntensors) {
		c->place = OP_PLACE(DEV_HOST, POOL_HOST);
	}
}

/* --- what it does to its tensors --- */

static bool was_written(struct call *c, uint64_t addr)
{
	for (uint32_t i = 0; i < c->nwritten; i++)
		if (c->written[i] == addr)
			return true;
	if (c->nwritten < WRITTEN)
		c->written[c->nwritten++] = addr;
	return false;
}

static void emit_facts(struct call *c, const struct op_inspect *inspected, enum op_use use,
		       bool output)
{
	static const uint8_t kinds[] = {[USE_READ] = ACCESS_READ,
					[USE_WRITE] = ACCESS_WRITE,
					[USE_UNKNOWN] = ACCESS_UNKNOWN};
	struct collect_block b = {
		.addr = inspected->addr,
		.size_bytes = inspected->bytes,
		.device = inspected->device,
		.pool = inspected->pool,
	};

	if (c->want & WANT_ACCESS && !(use == USE_WRITE && was_written(c, inspected->addr)))
		collect_access(&b, kinds[use], c->facts->text, inspected->text);
	if (output && c->want & WANT_WATCH && use == USE_WRITE)
		collect_watch_output_on(c->facts->text, inspected->device, inspected->addr,
					inspected->bytes, c->outputs++);
}

static void emit_tensor(struct call *c, PyObject *tensor, enum op_type type, enum op_use use,
			bool output)
{
	int place = !output && c->at < c->ntensors ? c->places[c->at++] : op_place(tensor, type);
	struct op_inspect inspected;

	if (place < 0 || (OP_DEVICE(place) == DEV_HOST && !(c->want & HOST)))
		return;
	bool wanted = use >= USE_READ && c->want & (WANT_ACCESS | WANT_WATCH);
	bool block = OP_DEVICE(place) == DEV_HOST && op_storage_on();
	if ((!wanted && !block) || !op_where(tensor, type, place, &inspected))
		return;
	if (block)
		op_storage_seen(tensor, inspected.start);
	if (wanted && op_inspect(tensor, type, &inspected))
		emit_facts(c, &inspected, use, output);
}

/* Classes that override functions must not see that they are asked. */
static void emit_guarded(struct call *c, PyObject *tensor, enum op_type type, enum op_use use,
			 bool output)
{
	PyObject *guard = type == TYPE_DERIVED ? op_inspect_guard() : NULL;

	if (type == TYPE_PLAIN || guard)
		emit_tensor(c, tensor, type, use, output);
	op_inspect_end(guard);
}

static void emit_input(struct call *c, PyObject *tensor, enum op_type type, enum op_use use)
{
	emit_guarded(c, tensor, type, use, false);
}

static void emit_output(struct call *c, PyObject *tensor, enum op_type type, enum op_use use)
{
	emit_guarded(c, tensor, type, use, true);
}

static bool wants_tensors(const struct call *c)
{
	return c->want & (WANT_ACCESS | WANT_WATCH) || op_storage_on();
}

/* --- the call --- */

static bool begin_call(struct call *c)
{
	PyObject *guard;
	bool emitted = false;

	if (!op_inspect_begin(&guard))
		return false;
	find_places(c);
	if (is_accelerator(c->place) || (c->place >= 0 && c->want & HOST)) {
		emitted = true;
		if (c->want & (WANT_OP | WANT_OWNERS))
			collect_aten(true, OP_DEVICE(c->place), c->facts->text,
				     __builtin_return_address(0));
		if (c->want & WANT_WATCH)
			collect_watch_begin(c->facts->text);
		if (wants_tensors(c))
			visit_inputs(c, emit_input);
	}
	op_inspect_end(guard);
	return emitted;
}

/* result: NULL if it raised; that exception is not touched. */
static void end_call(struct call *c, PyObject *result)
{
	PyObject *guard;

	if (result && wants_tensors(c) && op_inspect_begin(&guard)) {
		visit_outputs(c, result, emit_output);
		op_inspect_end(guard);
	}
	if (c->want & WANT_WATCH)
		collect_watch_end(c->facts->text);
	if (c->want & (WANT_OP | WANT_OWNERS))
		collect_aten(false, OP_DEVICE(c->place), c->facts->text,
			     __builtin_return_address(0));
}

/* Runs in the main thread, as soon as the call is over that led here. */
static int retire_now(void *arg)
{
	(void)arg;
	ops.retiring = false;
	PyObject *r = ops.retire && !ops.live ? PyObject_CallObject(ops.retire, NULL) : NULL;
	PyErr_Clear();
	Py_XDECREF(r);
	return 0;
}

/* Not from inside an operator: torch has taken the mode off for so long, and puts it back. */
static void retire_soon(void)
{
	if (ops.retire && !ops.retiring && PyThread_get_thread_ident() == ops.main_thread &&
	    Py_AddPendingCall(retire_now, NULL) == 0)
		ops.retiring = true;
}

static PyObject *call_emitted(struct call *c, PyObject *func)
{
	bool emitted = begin_call(c);
	PyObject *result = PyObject_Call(func, c->args, c->kwargs);

	if (emitted)
		end_call(c, result);
	return result;
}

/*
 * Of the classes of its arguments, those that could dispatch by themselves: FAKE if any is a
 * stand-in, WRAPPER if any does, otherwise PLAIN.
 */
static enum op_type judge_types(PyObject *types)
{
	Py_ssize_t n = PyTuple_Check(types) ? PyTuple_Size(types) : 0;
	enum op_type worst = TYPE_PLAIN;

	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *type = PyTuple_GetItem(types, i);
		enum op_type is = PyType_Check(type) ? op_type_known(type) : TYPE_OTHER;
		if (is > worst)
			worst = is;
	}
	return worst;
}

static PyObject *dispatch(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	struct call c;
	PyObject *result;

	(void)self;
	if (nargs < 3 || !PyTuple_Check(args[2])) {
		PyErr_SetString(PyExc_TypeError, "expected func, types, args, kwargs");
		return NULL;
	}
	c.args = args[2];
	c.kwargs = nargs > 3 && PyDict_Check(args[3]) ? args[3] : NULL;
	c.want = ops.live && collect_tracing() ? collect_want() : 0;
	if (c.want & WANT_WATCH && collect_watch_host())
		c.want |= WANT_HOST;
	c.facts = c.want ? op_facts_of(args[0]) : NULL;
	enum op_type types = judge_types(args[1]);
	trace_mute();
	if (!c.facts || types == TYPE_FAKE) {
		result = PyObject_Call(args[0], c.args, c.kwargs);
	} else if (types == TYPE_WRAPPER) {
		Py_INCREF(Py_NotImplemented);
		result = Py_NotImplemented;
	} else {
		c.outputs = c.ntensors = c.at = c.nwritten = 0;
		result = call_emitted(&c, args[0]);
	}
	trace_unmute();
	if (!ops.live)
		retire_soon();
	return result;
}

/* torch wants the function to be bound to the mode. */
static PyObject *bound(PyObject *self, PyObject *mode)
{
	static PyMethodDef method = {"__torch_dispatch__", FASTCALL(dispatch), METH_FASTCALL, NULL};

	(void)self;
	return PyCFunction_NewEx(&method, mode, NULL);
}

static PyObject *setup(PyObject *self, PyObject *args)
{
	PyObject *torch, *retire;

	(void)self;
	if (!PyArg_ParseTuple(args, "OOk", &torch, &retire, &ops.main_thread))
		return NULL;
	if (!ops.s_device)
		ops.s_device = PyUnicode_InternFromString("device");
	if (!ops.s_device || op_inspect_setup(torch) < 0)
		return NULL;
	Py_INCREF(retire);
	Py_XDECREF(ops.retire);
	ops.retire = retire == Py_None ? NULL : retire;
	Py_RETURN_NONE;
}

static PyObject *set_live(PyObject *self, PyObject *live)
{
	(void)self;
	ops.live = PyObject_IsTrue(live) == 1;
	Py_RETURN_NONE;
}

static PyObject *set_device(PyObject *self, PyObject *args)
{
	unsigned device;

	(void)self;
	if (!PyArg_ParseTuple(args, "I", &device))
		return NULL;
	collect_set_device(device <= DEV_HOST ? (uint16_t)device : DEV_NONE);
	Py_RETURN_NONE;
}

PyMethodDef op_methods[] = {
	{"op_setup", setup, METH_VARARGS,
	 "op_setup(torch, retire, main_thread): retire() takes the mode off the stack of the "
	 "thread that calls it; None"},
	{"op_bound", bound, METH_O, "op_bound(mode) -> __torch_dispatch__ of the mode"},
	{"op_live", set_live, METH_O, "op_live(bool): are operators to be reported?"},
	{"set_device", set_device, METH_VARARGS,
	 "set_device(number): of what belongs to no device of its own; DEV_NONE, DEV_HOST"},
	{"storage_setup", op_storage_setup, METH_VARARGS,
	 "storage_setup(storage_of, weak, expired, drop)"},
	{"storage_set", op_storage_set, METH_O, "storage_set(bool): are storages to be reported?"},
	{"storage_scan", op_storage_scan, METH_O,
	 "storage_scan(list): tensors among these objects were there before"},
	{"storage_sweep", op_storage_sweep, METH_NOARGS, "storage_sweep(): which have ended?"},
	{"storage_over", op_storage_over, METH_NOARGS, "storage_over(): the interpreter ends"},
	{"storage_hooked", op_storage_hooked, METH_NOARGS,
	 "storage_hooked() -> bool: malloc() reports them already"},
	{NULL, NULL, 0, NULL},
};
