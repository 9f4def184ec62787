/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Marks, labels, snapshots, blocks of memory, watches: one function per kind of fact. */
#include "python/_sonde/module.h"

#include "guest/collect/collect.h"
#include "sonde/sonde.h"

static PyObject *mark(PyObject *self, PyObject *args)
{
	const char *text;

	(void)self;
	if (!PyArg_ParseTuple(args, "s", &text))
		return NULL;
	collect_mark(MARK_INSTANT, 0, text, NULL);
	Py_RETURN_NONE;
}

static PyObject *range_start(PyObject *self, PyObject *args)
{
	const char *text;

	(void)self;
	if (!PyArg_ParseTuple(args, "s", &text))
		return NULL;
	return PyLong_FromUnsignedLongLong(sonde_range_start(text));
}

static PyObject *range_end(PyObject *self, PyObject *args)
{
	unsigned long long range;

	(void)self;
	if (!PyArg_ParseTuple(args, "K", &range))
		return NULL;
	sonde_range_end(range);
	Py_RETURN_NONE;
}

static int check_level(int level)
{
	if (level >= 0 && level <= 7)
		return 0;
	PyErr_Format(PyExc_ValueError, "there is no label level %d: expected 0 to 7", level);
	return -1;
}

static PyObject *label_push(PyObject *self, PyObject *args)
{
	unsigned thread = 0;
	const char *text;
	int level;

	(void)self;
	if (!PyArg_ParseTuple(args, "is|I", &level, &text, &thread) || check_level(level) < 0)
		return NULL;
	collect_label(LABEL_PUSH, (uint8_t)level, thread, text);
	Py_RETURN_NONE;
}

static PyObject *label_pop(PyObject *self, PyObject *args)
{
	unsigned thread = 0;
	const char *text;
	int level = 0;

	(void)self;
	if (!PyArg_ParseTuple(args, "s|Ii", &text, &thread, &level) || check_level(level) < 0)
		return NULL;
	collect_label(LABEL_POP, (uint8_t)level, thread, text);
	Py_RETURN_NONE;
}

static PyObject *label_addr(PyObject *self, PyObject *args)
{
	unsigned long long addr;
	const char *text;
	int level;

	(void)self;
	if (!PyArg_ParseTuple(args, "iKs", &level, &addr, &text) || check_level(level) < 0)
		return NULL;
	collect_label(LABEL_ADDR, (uint8_t)level, addr, text);
	Py_RETURN_NONE;
}

/* One call for many: what an optimizer holds is labelled after each of its steps. */
static PyObject *label_addrs(PyObject *self, PyObject *args)
{
	PyObject *list;
	const char *text;
	int level;

	(void)self;
	if (!PyArg_ParseTuple(args, "isO!", &level, &text, &PyList_Type, &list) ||
	    check_level(level) < 0)
		return NULL;
	for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
		unsigned long long addr = PyLong_AsUnsignedLongLong(PyList_GetItem(list, i));

		if (PyErr_Occurred())
			return NULL;
		if (addr)
			collect_label(LABEL_ADDR, (uint8_t)level, addr, text);
	}
	Py_RETURN_NONE;
}

static PyObject *snapshot(PyObject *self, PyObject *args)
{
	unsigned long long reserved, peak_reserved, allocated, peak_allocated, total, available;
	unsigned device;
	const char *name;

	(void)self;
	if (!PyArg_ParseTuple(args, "IsKKKKKK", &device, &name, &reserved, &peak_reserved,
			      &allocated, &peak_allocated, &total, &available))
		return NULL;
	struct rec_snapshot r = {
		.reserved_bytes = reserved,
		.peak_reserved_bytes = peak_reserved,
		.allocated_bytes = allocated,
		.peak_allocated_bytes = peak_allocated,
		.total_bytes = total,
		.free_bytes = available,
		.device = device <= DEV_HOST ? (uint16_t)device : DEV_NONE,
	};
	collect_snapshot(&r, name, __builtin_return_address(0));
	Py_RETURN_NONE;
}

static int parse_block(PyObject *args, struct collect_block *out)
{
	unsigned long long addr, size;
	unsigned device, pool;

	if (!PyArg_ParseTuple(args, "KKII", &addr, &size, &device, &pool))
		return -1;
	*out = (struct collect_block){
		.addr = addr,
		.size_bytes = size,
		.device = device <= DEV_HOST ? (uint16_t)device : DEV_NONE,
		.pool = pool < POOL_END ? (uint8_t)pool : POOL_HOST,
		.kind = ALLOC_REGION,
		.module = MODULE_NONE,
	};
	return 0;
}

static PyObject *block_alloc(PyObject *self, PyObject *args)
{
	struct collect_block b;

	(void)self;
	if (parse_block(args, &b) < 0)
		return NULL;
	collect_alloc(&b, __builtin_return_address(0));
	Py_RETURN_NONE;
}

static PyObject *block_free(PyObject *self, PyObject *args)
{
	struct collect_block b;

	(void)self;
	if (parse_block(args, &b) < 0)
		return NULL;
	collect_free(&b, __builtin_return_address(0));
	Py_RETURN_NONE;
}

static PyObject *oom(PyObject *self, PyObject *args)
{
	unsigned long long size;
	unsigned device;

	(void)self;
	if (!PyArg_ParseTuple(args, "IK", &device, &size))
		return NULL;
	collect_oom(device <= DEV_HOST ? (uint16_t)device : DEV_NONE, ALLOC_REGION, size, 0,
		    __builtin_return_address(0));
	Py_RETURN_NONE;
}

static PyObject *watch(PyObject *self, PyObject *args)
{
	unsigned long long addr, length;
	const char *name;
	unsigned device;
	int dumps;

	(void)self;
	if (!PyArg_ParseTuple(args, "IKKsi", &device, &addr, &length, &name, &dumps))
		return NULL;
	return PyBool_FromLong(collect_watch_named(device <= DEV_HOST ? (uint16_t)device : DEV_NONE,
						   addr, length, name, dumps));
}

static PyObject *unwatch(PyObject *self, PyObject *args)
{
	unsigned long long addr;

	(void)self;
	if (!PyArg_ParseTuple(args, "K", &addr))
		return NULL;
	collect_watch_unnamed(addr);
	Py_RETURN_NONE;
}

static PyObject *device(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyLong_FromLong(collect_device());
}

PyMethodDef event_methods[] = {
	{"mark", mark, METH_VARARGS, "mark(text): an instant on the timeline"},
	{"range_start", range_start, METH_VARARGS, "range_start(text) -> id, 0: nothing records"},
	{"range_end", range_end, METH_VARARGS, "range_end(id)"},
	{"label_push", label_push, METH_VARARGS,
	 "label_push(level, text, thread=0): of this thread or another, by its native id"},
	{"label_pop", label_pop, METH_VARARGS,
	 "label_pop(text, thread=0, level=0): of that level first"},
	{"label_addr", label_addr, METH_VARARGS, "label_addr(level, address, text)"},
	{"label_addrs", label_addrs, METH_VARARGS, "label_addrs(level, text, list of addresses)"},
	{"snapshot", snapshot, METH_VARARGS,
	 "snapshot(device, name, reserved, peak_reserved, allocated, peak_allocated, total, free)"},
	{"block_alloc", block_alloc, METH_VARARGS, "block_alloc(address, size, device, pool)"},
	{"block_free", block_free, METH_VARARGS, "block_free(address, size, device, pool)"},
	{"oom", oom, METH_VARARGS, "oom(device, size): memory was refused"},
	{"watch", watch, METH_VARARGS, "watch(device, address, length, name, samples) -> bool"},
	{"unwatch", unwatch, METH_VARARGS, "unwatch(address)"},
	{"device", device, METH_NOARGS, "device() -> the NPU of this thread, DEV_NONE if none"},
	{NULL, NULL, 0, NULL},
};
