/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What functions of C's are called: as their repr() has it, without the address of an object, and
 * without calling it. The structures behind them are not in the stable ABI but the same in every
 * version (trace_check_names() looks).
 */
#include "python/_sonde/trace_impl.h"

#include "guest/collect/collect.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define SLOTS 4096 /* a power of two; pairs */
#define SENT 1024 /* a power of two */
#define NAME_BYTES 48
#define TEXT_BYTES 512

struct c_function { /* builtin_function_or_method */
	PyObject head;
	const PyMethodDef *method;
	PyObject *self;
};

struct c_descriptor { /* method_descriptor */
	PyObject head;
	PyTypeObject *type;
	PyObject *name, *qualname;
	const PyMethodDef *method;
};

struct c_type {
	PyVarObject head;
	const char *name;
};

/* Texts are compared as well: both may have gone away, and others have come to their addresses. */
struct slot {
	const PyMethodDef *method;
	const void *type;
	uint64_t hash;
	uint32_t epoch;
	char name[NAME_BYTES], type_name[NAME_BYTES];
};

static struct slot slots[SLOTS];
static struct {
	uint64_t hash;
	uint32_t epoch;
} sent[SENT];
static PyTypeObject *descriptor_type, *function_type, *method_type;
PyTypeObject *trace_code_type, *trace_frame_type;

static const char *type_name(const void *type)
{
	return type ? ((const struct c_type *)type)->name : "";
}

uint64_t trace_text(const char *text, size_t len, uint32_t epoch)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)text[i]) * 0x100000001b3ull;
	h |= 1; /* 0 is none */
	unsigned at = (unsigned)(h >> 32) & (SENT - 1);
	if (sent[at].hash != h || sent[at].epoch != epoch)
		collect_name(h, text, len);
	sent[at].hash = h;
	sent[at].epoch = epoch;
	return h;
}

static bool is_slot(const struct slot *s, const PyMethodDef *method, const void *type,
		    uint32_t epoch)
{
	return s->method == method && s->type == type && s->epoch == epoch &&
	       !strncmp(s->name, method->ml_name, NAME_BYTES - 1) &&
	       !strncmp(s->type_name, type_name(type), NAME_BYTES - 1);
}

static void learn_name(struct slot *s, const PyMethodDef *method, const void *type, uint32_t epoch)
{
	char text[TEXT_BYTES];
	int n = type ? snprintf(text, sizeof(text), "<built-in method %s of %s object>",
				method->ml_name, type_name(type))
		     : snprintf(text, sizeof(text), "<built-in function %s>", method->ml_name);

	*s = (struct slot){.method = method, .type = type, .epoch = epoch};
	strncpy(s->name, method->ml_name, NAME_BYTES - 1);
	strncpy(s->type_name, type_name(type), NAME_BYTES - 1);
	s->hash = trace_text(text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1, epoch);
}

static uint64_t name_of(const PyMethodDef *method, const void *type, uint32_t epoch)
{
	uintptr_t at = (uintptr_t)method / 32 ^ (uintptr_t)type / 16 * 31;
	struct slot *s = &slots[at & (SLOTS - 2)];

	if (!method || !method->ml_name)
		return 0;
	if (is_slot(&s[0], method, type, epoch))
		return s[0].hash;
	if (!is_slot(&s[1], method, type, epoch)) {
		s[1] = s[0]; /* the older one goes */
		learn_name(&s[0], method, type, epoch);
		return s[0].hash;
	}
	return s[1].hash;
}

uint64_t trace_name(PyObject *callable, PyObject *self, uint32_t epoch)
{
	const PyTypeObject *type = Py_TYPE(callable);

	if (type == function_type || type == method_type) {
		const struct c_function *f = (const struct c_function *)callable;
		bool is_method = f->self && !PyObject_TypeCheck(f->self, &PyModule_Type);

		return name_of(f->method, is_method ? (void *)Py_TYPE(f->self) : NULL, epoch);
	}
	if (type == descriptor_type && self)
		return name_of(((const struct c_descriptor *)callable)->method, Py_TYPE(self),
			       epoch);
	return 0;
}

/* Finds the types, and looks whether list.append is what it should be. */
int trace_check_names(void)
{
	PyObject *list = PyList_New(0);
	PyObject *bound = list ? PyObject_GetAttrString(list, "append") : NULL;
	PyObject *plain =
		bound ? PyObject_GetAttrString((PyObject *)Py_TYPE(list), "append") : NULL;
	bool same = false;

	method_type = dlsym(RTLD_DEFAULT, "PyCMethod_Type"); /* from 3.9 on */
	trace_code_type = dlsym(RTLD_DEFAULT, "PyCode_Type");
	trace_frame_type = dlsym(RTLD_DEFAULT, "PyFrame_Type");
	if (plain) {
		const struct c_function *f = (const struct c_function *)bound;
		const struct c_descriptor *d = (const struct c_descriptor *)plain;

		function_type = Py_TYPE(bound);
		descriptor_type = Py_TYPE(plain);
		same = f->self == list && f->method &&
		       f->method->ml_meth == PyCFunction_GetFunction(bound) &&
		       d->method == f->method && d->type == Py_TYPE(list) &&
		       !strcmp(f->method->ml_name, "append") &&
		       !strcmp(type_name(Py_TYPE(list)), "list");
	}
	Py_XDECREF(plain);
	Py_XDECREF(bound);
	Py_XDECREF(list);
	if (plain && !same)
		PyErr_SetString(PyExc_RuntimeError,
				"this interpreter keeps its functions elsewhere");
	return same ? 0 : -1;
}
