/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which module runs, and whose tensors lie where, for a recording of memory: a record for each. */
#include "python/_sonde/module.h"

#include "guest/collect/collect.h"
#include "python/_sonde/autograd.h"
#include "python/_sonde/layer_table.h"

static void send_layer(uint8_t kind, struct layer *l, uint64_t addr, uint64_t bytes)
{
	layer_send_text(l);
	collect_layer(kind, l->hash, addr, bytes);
}

/* False: nobody has told its path. */
static PyObject *send_call(uint8_t kind, PyObject *module)
{
	struct layer *l = layer_find(module);

	if (l)
		send_layer(kind, l, 0, 0);
	return PyBool_FromLong(l != NULL);
}

/* Whatever runs in this thread ends: what an exception left open, too. */
static PyObject *layers_leave(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	collect_layer(LAYER_LEAVE, 0, 0, 0);
	Py_RETURN_NONE;
}

static PyObject *layer_enter(PyObject *self, PyObject *module)
{
	(void)self;
	return send_call(LAYER_ENTER, module);
}

static PyObject *layer_leave(PyObject *self, PyObject *module)
{
	(void)self;
	return send_call(LAYER_LEAVE, module);
}

/* Of a parameter, its gradient or its state: a list of addresses, and one of bytes. */
static PyObject *layer_addrs(PyObject *self, PyObject *args)
{
	PyObject *object, *addrs, *sizes;

	(void)self;
	if (!PyArg_ParseTuple(args, "OO!O!", &object, &PyList_Type, &addrs, &PyList_Type, &sizes))
		return NULL;
	struct layer *l = layer_find(object);
	for (Py_ssize_t i = 0; l && i < PyList_Size(addrs) && i < PyList_Size(sizes); i++) {
		unsigned long long addr = PyLong_AsUnsignedLongLong(PyList_GetItem(addrs, i));
		unsigned long long bytes = PyLong_AsUnsignedLongLong(PyList_GetItem(sizes, i));

		if (PyErr_Occurred())
			return NULL;
		if (addr)
			send_layer(LAYER_ADDR, l, addr, bytes);
	}
	return PyBool_FromLong(l != NULL);
}

static PyObject *layers_gradients(PyObject *self, PyObject *on)
{
	(void)self;
	collect_follow_gradients(PyObject_IsTrue(on) == 1);
	Py_RETURN_NONE;
}

PyMethodDef layer_methods[] = {
	LAYER_TABLE_METHODS,
	AUTOGRAD_METHODS,
	{"layers_gradients", layers_gradients, METH_O,
	 "layers_gradients(bool): what a backward pass allocates belongs to modules"},
	{"layer_enter", layer_enter, METH_O, "layer_enter(module) -> is its path known?"},
	{"layer_leave", layer_leave, METH_O, "layer_leave(module) -> is its path known?"},
	{"layers_leave", layers_leave, METH_NOARGS, "layers_leave(): all of this thread"},
	{"layer_addrs", layer_addrs, METH_VARARGS,
	 "layer_addrs(object, list of addresses, list of bytes) -> is its path known?"},
	{NULL, NULL, 0, NULL},
};
