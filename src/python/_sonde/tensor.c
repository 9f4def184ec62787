/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What putils asks about a tensor in host memory. Tensors are given by address: the caller holds a
 * reference to the one that owns the memory, and has checked that the storage is as long as it says
 * (src/python/putils/_tensors.py). The GIL is released while numbers are read.
 */
#include "python/_sonde/module.h"

#include <errno.h>
#include <string.h>

#include "base/numbers/statistics.h"

/* In every CPython, in the headers of the stable ABI since 3.11. */
#ifndef PyBUF_READ
#	define PyBUF_READ 0x100
#endif

/* Indexed by enum number_kind; the names that torch has for them. */
static const char *const kind_names[NUMBER_KINDS] = {
	[NUMBER_F64] = "float64",     [NUMBER_F32] = "float32",	  [NUMBER_F16] = "float16",
	[NUMBER_BF16] = "bfloat16",   [NUMBER_I64] = "int64",	  [NUMBER_I32] = "int32",
	[NUMBER_I16] = "int16",	      [NUMBER_I8] = "int8",	  [NUMBER_U64] = "uint64",
	[NUMBER_U32] = "uint32",      [NUMBER_U16] = "uint16",	  [NUMBER_U8] = "uint8",
	[NUMBER_C128] = "complex128", [NUMBER_C64] = "complex64",
};

static int find_kind(const char *name, enum number_kind *out)
{
	for (int i = 0; i < NUMBER_KINDS; i++)
		if (!strcmp(name, kind_names[i])) {
			*out = (enum number_kind)i;
			return 0;
		}
	PyErr_Format(PyExc_ValueError, "no statistics of numbers of the kind '%s'", name);
	return -1;
}

static int read_quantiles(PyObject *list, double out[STATISTICS_MAX_QUANTILES])
{
	Py_ssize_t n = PyTuple_Size(list);

	if (n > STATISTICS_MAX_QUANTILES) {
		PyErr_SetString(PyExc_ValueError, "too many quantiles");
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		out[i] = PyFloat_AsDouble(PyTuple_GetItem(list, i));
		if (PyErr_Occurred())
			return -1;
	}
	return (int)n;
}

/* From its two halves: there is no function for this in the stable ABI. */
static PyObject *wide_integer(__int128 value)
{
	PyObject *high, *low, *shift, *shifted, *sum = NULL;

	if (value >= INT64_MIN && value <= INT64_MAX)
		return PyLong_FromLongLong((long long)value);
	high = PyLong_FromLongLong((long long)(value >> 64));
	low = PyLong_FromUnsignedLongLong((unsigned long long)value);
	shift = PyLong_FromLong(64);
	shifted = high && shift ? PyNumber_Lshift(high, shift) : NULL;
	if (shifted && low)
		sum = PyNumber_Add(shifted, low);
	Py_XDECREF(high);
	Py_XDECREF(low);
	Py_XDECREF(shift);
	Py_XDECREF(shifted);
	return sum;
}

static PyObject *float_list(const double *values, int n)
{
	PyObject *list = PyList_New(n);

	for (int i = 0; list && i < n; i++) {
		PyObject *value = PyFloat_FromDouble(values[i]);

		if (!value || PyList_SetItem(list, i, value) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *describe_statistics(enum number_kind kind, const struct statistics *s,
				     PyObject *quantiles)
{
	if (number_is_integer(kind))
		return Py_BuildValue("KKNNNNN", s->nans, s->infs, wide_integer(s->int_min),
				     wide_integer(s->int_max), wide_integer(s->int_sum),
				     wide_integer(s->int_l1), quantiles);
	if (number_is_complex(kind))
		return Py_BuildValue("KKOONdN", s->nans, s->infs, Py_None, Py_None,
				     PyComplex_FromDoubles(s->sum, s->imaginary), s->l1, quantiles);
	return Py_BuildValue("KKddddN", s->nans, s->infs, s->min, s->max, s->sum, s->l1, quantiles);
}

static PyObject *tensor_statistics(PyObject *self, PyObject *args)
{
	double q[STATISTICS_MAX_QUANTILES], found[STATISTICS_MAX_QUANTILES];
	struct statistics_input in = {0};
	unsigned long long addr, count;
	struct statistics s;
	PyObject *wanted, *quantiles;
	const char *name;
	int n, r;

	(void)self;
	if (!PyArg_ParseTuple(args, "KKsO!I", &addr, &count, &name, &PyTuple_Type, &wanted,
			      &in.threads) ||
	    find_kind(name, &in.kind) < 0)
		return NULL;
	n = read_quantiles(wanted, q);
	if (n < 0)
		return NULL;
	in.data = (const void *)(uintptr_t)addr;
	in.count = addr ? count : 0;
	Py_BEGIN_ALLOW_THREADS
	r = statistics_compute(&in, q, (size_t)n, &s, found);
	Py_END_ALLOW_THREADS
	if (r == -ENOMEM)
		return PyErr_NoMemory();
	if (r < 0) {
		PyErr_SetString(PyExc_ValueError, "no statistics: there are no numbers, or these "
						  "quantiles do not exist");
		return NULL;
	}
	quantiles = float_list(found, n);
	return quantiles ? describe_statistics(in.kind, &s, quantiles) : NULL;
}

/* For hashlib, which takes what has a buffer. */
static PyObject *tensor_memory(PyObject *self, PyObject *args)
{
	unsigned long long addr, bytes;

	(void)self;
	if (!PyArg_ParseTuple(args, "KK", &addr, &bytes))
		return NULL;
	if (!addr || bytes > PY_SSIZE_T_MAX) {
		PyErr_SetString(PyExc_ValueError, "there is no memory at this address");
		return NULL;
	}
	return PyMemoryView_FromMemory((char *)(uintptr_t)addr, (Py_ssize_t)bytes, PyBUF_READ);
}

static PyObject *tensor_widen(PyObject *self, PyObject *args)
{
	unsigned long long addr, count;
	PyObject *bytes;
	char *to;

	(void)self;
	if (!PyArg_ParseTuple(args, "KK", &addr, &count))
		return NULL;
	if (!addr || count > PY_SSIZE_T_MAX / sizeof(float)) {
		PyErr_SetString(PyExc_ValueError, "there is no memory at this address");
		return NULL;
	}
	bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(float)));
	to = bytes ? PyBytes_AsString(bytes) : NULL;
	if (!to)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	number_widen_bf16((const void *)(uintptr_t)addr, (size_t)count, (float *)(void *)to);
	Py_END_ALLOW_THREADS
	return bytes;
}

PyMethodDef tensor_methods[] = {
	{"tensor_statistics", tensor_statistics, METH_VARARGS,
	 "tensor_statistics(address, count, kind, quantiles, threads) -> (nans, infs, min, max, "
	 "sum, l1, [quantiles])"},
	{"tensor_memory", tensor_memory, METH_VARARGS,
	 "tensor_memory(address, bytes) -> a memoryview; valid as long as the tensor is"},
	{"tensor_widen", tensor_widen, METH_VARARGS,
	 "tensor_widen(address, count) -> the bytes of bfloat16 numbers as float32"},
	{NULL, NULL, 0, NULL},
};
