/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "python/_sonde/layer_table.h"

#include "guest/collect/collect.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Headers from 3.12 on count no references to None, which interpreters up to 3.11 do. */
#undef Py_RETURN_NONE
#define Py_RETURN_NONE return Py_INCREF(Py_None), Py_None

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

struct layer *layer_find(const void *object)
{
	return find_layer((uintptr_t)object);
}

void layer_send_text(struct layer *l)
{
	uint32_t epoch = collect_epoch();

	if (l->epoch == epoch && epoch && epoch != UINT32_MAX)
		return;
	collect_name(l->hash, l->text, strlen(l->text));
	l->epoch = collect_epoch();
}

PyObject *layer_add(PyObject *self, PyObject *args)
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
	*l = (struct layer){(uintptr_t)object, hash_text(copy), 0, 0, copy};
	Py_RETURN_NONE;
}

PyObject *layer_drop(PyObject *self, PyObject *args)
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

PyObject *layers_clear(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	for (size_t i = 0; i < table.nslots; i++)
		if (table.slots[i].object > GONE)
			drop_layer(&table.slots[i]);
	Py_RETURN_NONE;
}
