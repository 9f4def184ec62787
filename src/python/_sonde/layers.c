/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Modules of models and their parameters, by their paths (struct rec_layer). Which object has which
 * path is told once; then a call of a module is one lookup by its address and one record. Whoever
 * tells also says when an object is gone: sonde/_layers.py.
 *
 * Everything here is called with the GIL, so nothing is locked.
 */
#include "python/_sonde/module.h"

#include "guest/collect/collect.h"

#include <stdlib.h>
#include <string.h>

struct layer {
	uintptr_t object; /* 0: free; GONE: was in use */
	uint64_t hash; /* of text */
	uint32_t epoch; /* in which its text was sent */
	char *text;
};

#define GONE 1
#define FIRST_SLOTS 1024

static struct {
	struct layer *slots;
	size_t nslots; /* a power of two, more than half of them free */
	size_t used; /* with those that are gone */
} table;

static size_t slot_of(uintptr_t object)
{
	return (size_t)((object >> 4) * 0x9e3779b97f4a7c15ull >> 20) & (table.nslots - 1);
}

static struct layer *find_layer(uintptr_t object)
{
	if (!table.nslots)
		return NULL;
	for (size_t i = slot_of(object);; i = (i + 1) & (table.nslots - 1)) {
		struct layer *l = &table.slots[i];
		if (l->object == object)
			return l;
		if (!l->object)
			return NULL;
	}
}

/* The free slot for an object that is not there. */
static struct layer *free_slot(uintptr_t object)
{
	size_t i = slot_of(object);

	while (table.slots[i].object)
		i = (i + 1) & (table.nslots - 1);
	table.used++;
	return &table.slots[i];
}

/* Room for one more; objects that are gone leave theirs. */
static bool make_room(void)
{
	struct layer *old = table.slots;
	size_t nold = table.nslots, alive = 0;

	if (table.used * 2 < table.nslots)
		return true;
	for (size_t i = 0; i < nold; i++)
		alive += old[i].object > GONE;
	size_t want = nold ? nold : FIRST_SLOTS;
	while (alive * 4 >= want)
		want *= 2;
	struct layer *slots = calloc(want, sizeof(*slots));
	if (!slots)
		return false;
	table.slots = slots;
	table.nslots = want;
	table.used = 0;
	for (size_t i = 0; i < nold; i++)
		if (old[i].object > GONE)
			*free_slot(old[i].object) = old[i];
	free(old);
	return true;
}

static void drop_layer(struct layer *l)
{
	free(l->text);
	*l = (struct layer){.object = GONE};
}

/* FNV-1a; never 0, which is no layer. */
static uint64_t hash_text(const char *text)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
	return h ? h : 1;
}

/* Its text goes before the first record that names it, once in each process. */
static void send_layer(uint8_t kind, struct layer *l, uint64_t addr, uint64_t bytes)
{
	uint32_t epoch = collect_epoch();

	if (l->epoch != epoch || !epoch || epoch == UINT32_MAX) {
		collect_name(l->hash, l->text, strlen(l->text));
		l->epoch = collect_epoch();
	}
	collect_layer(kind, l->hash, addr, bytes);
}

static PyObject *layer_add(PyObject *self, PyObject *args)
{
	unsigned long long object;
	const char *text;

	(void)self;
	if (!PyArg_ParseTuple(args, "Ks", &object, &text))
		return NULL;
	struct layer *l = find_layer((uintptr_t)object);
	if (l && !strcmp(l->text, text))
		Py_RETURN_NONE;
	char *copy = strdup(text);
	if (!copy || object <= GONE || !make_room()) {
		free(copy);
		return PyErr_NoMemory();
	}
	l = find_layer((uintptr_t)object); /* there may be other slots now */
	if (l)
		free(l->text);
	else
		l = free_slot((uintptr_t)object);
	*l = (struct layer){(uintptr_t)object, hash_text(copy), 0, copy};
	Py_RETURN_NONE;
}

static PyObject *layer_drop(PyObject *self, PyObject *args)
{
	unsigned long long object;

	(void)self;
	if (!PyArg_ParseTuple(args, "K", &object))
		return NULL;
	struct layer *l = object > GONE ? find_layer((uintptr_t)object) : NULL;
	if (l)
		drop_layer(l);
	Py_RETURN_NONE;
}

static PyObject *layers_clear(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	for (size_t i = 0; i < table.nslots; i++)
		if (table.slots[i].object > GONE)
			drop_layer(&table.slots[i]);
	Py_RETURN_NONE;
}

/* False: nobody has told its path. */
static PyObject *tell(uint8_t kind, PyObject *module)
{
	struct layer *l = find_layer((uintptr_t)module);

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
	return tell(LAYER_ENTER, module);
}

static PyObject *layer_leave(PyObject *self, PyObject *module)
{
	(void)self;
	return tell(LAYER_LEAVE, module);
}

/* Of a parameter, its gradient or its state: a list of addresses, and one of bytes. */
static PyObject *layer_addrs(PyObject *self, PyObject *args)
{
	PyObject *object, *addrs, *sizes;

	(void)self;
	if (!PyArg_ParseTuple(args, "OO!O!", &object, &PyList_Type, &addrs, &PyList_Type, &sizes))
		return NULL;
	struct layer *l = find_layer((uintptr_t)object);
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

PyMethodDef layer_methods[] = {
	{"layer_add", layer_add, METH_VARARGS, "layer_add(id, text): the path of an object"},
	{"layer_drop", layer_drop, METH_VARARGS, "layer_drop(id): it is gone"},
	{"layers_clear", layers_clear, METH_NOARGS, "layers_clear()"},
	{"layer_enter", layer_enter, METH_O, "layer_enter(module) -> is its path known?"},
	{"layer_leave", layer_leave, METH_O, "layer_leave(module) -> is its path known?"},
	{"layers_leave", layers_leave, METH_NOARGS, "layers_leave(): all of this thread"},
	{"layer_addrs", layer_addrs, METH_VARARGS,
	 "layer_addrs(object, list of addresses, list of bytes) -> is its path known?"},
	{NULL, NULL, 0, NULL},
};
