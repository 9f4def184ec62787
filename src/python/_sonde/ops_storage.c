/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Memory of tensors on the CPU, for processes whose malloc() is not hooked: a storage is reported
 * as allocated when it is first seen, and as freed when it ends.
 *
 * Newer versions of torch keep the Python object of a storage for as long as the storage itself; a
 * weak reference says when it ends. Older ones do not, but count weak references of their own;
 * those are asked whether their storage is gone, now and then and at every step.
 *
 * known: where a storage begins -> which it is, as torch numbers them
 * lives: which it is -> (where it begins, the weak reference)
 */
#include "python/_sonde/ops.h"

#include "guest/collect/collect.h"

#include <dlfcn.h>
#include <string.h>

#define SWEEP_AT_LEAST 64 /* tensors between two sweeps */

static struct {
	bool on;
	bool over; /* the interpreter ends */
	uint32_t epoch;
	PyObject *known, *lives;
	PyObject *storage_of; /* (tensor) -> storage */
	PyObject *weak, *expired,
		*drop; /* older: (storage) -> number; (number) -> bool; (number) */
	Py_ssize_t until_sweep;
} st;

bool op_storage_on(void)
{
	return st.on;
}

static unsigned long long number_of(PyObject *value)
{
	unsigned long long n = value ? PyLong_AsUnsignedLongLong(value) : 0;

	if (PyErr_Occurred()) {
		PyErr_Clear();
		n = 0;
	}
	Py_XDECREF(value);
	return n;
}

static struct collect_block block_at(uint64_t addr, uint64_t bytes)
{
	return (struct collect_block){
		.addr = addr,
		.size_bytes = bytes,
		.device = DEV_HOST,
		.pool = POOL_HOST,
		.kind = ALLOC_PLAIN,
		.module = MODULE_NONE,
	};
}

/* The storage with that number has ended. */
static void end_storage(PyObject *which)
{
	PyObject *entry = st.lives ? PyDict_GetItem(st.lives, which) : NULL;
	PyObject *start = entry ? PyTuple_GetItem(entry, 0) : NULL;

	if (!start)
		return;
	struct collect_block b = block_at(PyLong_AsUnsignedLongLong(start), 0);
	Py_INCREF(entry);
	if (st.drop)
		Py_XDECREF(PyObject_CallFunctionObjArgs(st.drop, which, NULL));
	if (PyDict_DelItem(st.known, start) < 0 || PyDict_DelItem(st.lives, which) < 0)
		PyErr_Clear();
	Py_DECREF(entry);
	PyErr_Clear();
	if (!st.over)
		collect_free(&b, __builtin_return_address(0));
}

/* Called by the weak reference; self is the number. */
static PyObject *on_storage_gone(PyObject *self, PyObject *reference)
{
	PyObject *type, *value, *trace;

	(void)reference;
	PyErr_Fetch(&type, &value, &trace);
	end_storage(self);
	PyErr_Restore(type, value, trace);
	Py_RETURN_NONE;
}

static PyMethodDef gone_method = {"storage_ended", on_storage_gone, METH_O, NULL};

static PyObject *watch_of(PyObject *storage, PyObject *which)
{
	if (st.weak) {
		Py_INCREF(which); /* what it gave us is counted already */
		return which;
	}
	PyObject *callback = PyCFunction_NewEx(&gone_method, which, NULL);
	PyObject *reference = callback ? PyWeakref_NewRef(storage, callback) : NULL;
	Py_XDECREF(callback);
	return reference;
}

static bool has_expired(PyObject *which)
{
	PyObject *r = PyObject_CallFunctionObjArgs(st.expired, which, NULL);
	bool is = r == Py_True;

	PyErr_Clear();
	Py_XDECREF(r);
	return is;
}

static void forget_all(void)
{
	PyObject *known = st.known, *lives = st.lives;

	st.known = PyDict_New();
	st.lives = PyDict_New();
	st.on = st.on && st.known && st.lives;
	Py_XDECREF(known);
	Py_XDECREF(lives);
}

/* A child of fork() has blocks of its own. */
static void follow_fork(void)
{
	uint32_t epoch = collect_epoch();

	if (epoch == st.epoch)
		return;
	st.epoch = epoch;
	forget_all();
}

/* Is what begins there known, and still that? */
static bool is_known(PyObject *start)
{
	PyObject *which = PyDict_GetItem(st.known, start);

	if (!which)
		return false;
	if (!st.expired || !has_expired(which))
		return true;
	Py_INCREF(which);
	end_storage(which);
	Py_DECREF(which);
	return false;
}

static void enter_storage(PyObject *storage, PyObject *start, PyObject *which, bool old)
{
	unsigned long long bytes = number_of(PyObject_CallMethod(storage, "nbytes", NULL));
	PyObject *watch = bytes ? watch_of(storage, which) : NULL;
	PyObject *entry = watch ? PyTuple_Pack(2, start, watch) : NULL;
	struct collect_block b = block_at(PyLong_AsUnsignedLongLong(start), bytes);

	/* It was resized: its memory is another now. */
	if (PyDict_GetItem(st.lives, which))
		end_storage(which);
	if (entry && PyDict_SetItem(st.lives, which, entry) == 0 &&
	    PyDict_SetItem(st.known, start, which) == 0) {
		if (old)
			collect_alloc_old(&b);
		else
			collect_alloc(&b, __builtin_return_address(0));
	}
	PyErr_Clear();
	Py_XDECREF(watch);
	Py_XDECREF(entry);
}

static void note_storage(PyObject *tensor, uint64_t addr, bool old)
{
	PyObject *start = PyLong_FromUnsignedLongLong(addr);
	PyObject *storage = NULL, *which = NULL;

	if (start && !is_known(start))
		storage = PyObject_CallFunctionObjArgs(st.storage_of, tensor, NULL);
	if (storage)
		which = st.weak ? PyObject_CallFunctionObjArgs(st.weak, storage, NULL)
				: PyObject_GetAttrString(storage, "_cdata");
	if (which)
		enter_storage(storage, start, which, old);
	PyErr_Clear();
	Py_XDECREF(start);
	Py_XDECREF(storage);
	Py_XDECREF(which);
}

/* Older versions: which have ended? */
static void sweep_storages(void)
{
	PyObject *list = st.on && st.expired ? PyDict_Keys(st.lives) : NULL;
	Py_ssize_t n = list ? PyList_Size(list) : 0;

	for (Py_ssize_t i = 0; i < n; i++)
		if (has_expired(PyList_GetItem(list, i)))
			end_storage(PyList_GetItem(list, i));
	st.until_sweep = n < SWEEP_AT_LEAST ? SWEEP_AT_LEAST : n;
	PyErr_Clear();
	Py_XDECREF(list);
}

void op_storage_seen(PyObject *tensor, uint64_t start)
{
	follow_fork();
	if (st.expired && --st.until_sweep < 0)
		sweep_storages();
	note_storage(tensor, start, false);
}

/* --- from Python --- */

static void set_slot(PyObject **slot, PyObject *value)
{
	PyObject *had = *slot;

	if (value == Py_None)
		value = NULL;
	Py_XINCREF(value);
	*slot = value;
	Py_XDECREF(had);
}

PyObject *op_storage_setup(PyObject *self, PyObject *args)
{
	PyObject *of, *weak, *expired, *drop;

	(void)self;
	if (!PyArg_ParseTuple(args, "OOOO", &of, &weak, &expired, &drop))
		return NULL;
	set_slot(&st.storage_of, of);
	set_slot(&st.weak, weak);
	set_slot(&st.expired, expired);
	set_slot(&st.drop, drop);
	if (!st.known)
		forget_all();
	Py_RETURN_NONE;
}

PyObject *op_storage_set(PyObject *self, PyObject *on)
{
	(void)self;
	st.on = PyObject_IsTrue(on) == 1 && st.known && st.lives && st.storage_of && !st.over;
	Py_RETURN_NONE;
}

PyObject *op_storage_scan(PyObject *self, PyObject *list)
{
	(void)self;
	follow_fork();
	for (Py_ssize_t i = 0; st.on && PyList_Check(list) && i < PyList_Size(list); i++) {
		PyObject *tensor = PyList_GetItem(list, i);
		enum op_type type = op_type_maybe(tensor);
		if (type != TYPE_PLAIN && type != TYPE_DERIVED)
			continue;
		PyObject *guard = op_inspect_guard();
		int place = guard ? op_place(tensor, type) : OP_NOWHERE;
		struct op_inspect look;
		if (place >= 0 && OP_DEVICE(place) == DEV_HOST &&
		    op_where(tensor, type, place, &look))
			note_storage(tensor, look.start, true);
		op_inspect_end(guard);
	}
	Py_RETURN_NONE;
}

PyObject *op_storage_sweep(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	sweep_storages();
	Py_RETURN_NONE;
}

PyObject *op_storage_over(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	st.over = true;
	st.on = false;
	Py_RETURN_NONE;
}

/* Who hands out aligned memory hands out that of tensors. */
PyObject *op_storage_hooked(PyObject *self, PyObject *args)
{
	void *fn = dlsym(RTLD_DEFAULT, "posix_memalign");
	Dl_info info;

	(void)self;
	(void)args;
	return PyBool_FromLong(fn && dladdr(fn, &info) && info.dli_fname &&
			       strstr(info.dli_fname, "libsonde_host_hook"));
}
