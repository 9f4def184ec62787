/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What an operator does to its tensors, by its schema: an argument that it writes to is marked in
 * it, and so is one that the result is a view of; the rest is read. Results are written, unless
 * they are views. Operators that make a tensor of another's kind read nothing of it, and those that
 * hand out memory as it is write nothing.
 *
 * Worked out once per operator and found again by the address of its object.
 */
#include "base/text/text.h"
#include "python/_sonde/ops.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OPERATORS 65536 /* torch has some thousand; more than this are not remembered */
#define MAX_VALUES 512

static struct {
	struct op_facts **slots;
	size_t count, room; /* room: a power of two, or 0 */
} table;

static size_t slot_of(const PyObject *func)
{
	return (size_t)(((uintptr_t)func >> 4) * 0x9e3779b97f4a7c15ull >> 20);
}

static struct op_facts **find_slot(struct op_facts **slots, size_t room, const PyObject *func)
{
	size_t i = slot_of(func);

	while (slots[i & (room - 1)] && slots[i & (room - 1)]->func != func)
		i++;
	return &slots[i & (room - 1)];
}

static int grow_table(void)
{
	size_t room = table.room ? table.room * 2 : 1024;
	struct op_facts **slots = calloc(room, sizeof(struct op_facts *));

	if (!slots)
		return -1;
	for (size_t i = 0; i < table.room; i++)
		if (table.slots[i])
			*find_slot(slots, room, table.slots[i]->func) = table.slots[i];
	free(table.slots);
	table.slots = slots;
	table.room = room;
	return 0;
}

/* An attribute as UTF-8 bytes, NULL without an exception. */
static PyObject *text_of(PyObject *object, const char *attribute)
{
	PyObject *value = attribute ? PyObject_GetAttrString(object, attribute) : NULL;
	PyObject *text = NULL, *bytes = NULL;

	if (attribute ? value != NULL : true)
		text = PyObject_Str(attribute ? value : object);
	if (text)
		bytes = PyUnicode_AsUTF8String(text);
	PyErr_Clear();
	Py_XDECREF(value);
	Py_XDECREF(text);
	return bytes;
}

/* "torch._ops.aten.mm.default"; what has no such parts is reported as Python writes it. */
static PyObject *name_of(PyObject *func)
{
	PyObject *module = text_of(func, "__module__"), *name = text_of(func, "__name__");
	PyObject *full = NULL;

	if (module && name && !strncmp(PyBytes_AsString(module), "torch.", 6))
		full = PyBytes_FromFormat("%s.%s", PyBytes_AsString(module),
					  PyBytes_AsString(name));
	else
		full = text_of(func, NULL);
	PyErr_Clear();
	Py_XDECREF(module);
	Py_XDECREF(name);
	return full;
}

/* Does the type of a value leave room for a tensor? Unknown types do. */
static bool may_hold(PyObject *value)
{
	static const char *const plain[] = {"int",    "float",	"bool",	   "str",
					    "number", "Device", "complex", "Generator"};
	PyObject *bytes = text_of(value, "type");
	const char *type = bytes ? PyBytes_AsString(bytes) : "";
	bool holds = true;

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		size_t n = strlen(plain[i]);
		const char *at = strrchr(type, '['); /* List[int], Optional[int] */
		at = at ? at + 1 : type;
		if (!strncmp(at, plain[i], n) && (!at[n] || at[n] == ']') && !strchr(type, ','))
			holds = false;
	}
	Py_XDECREF(bytes);
	return holds;
}

/* 1: it is written to, 0: a view, -1: neither. */
static int alias_of(PyObject *value)
{
	PyObject *alias = PyObject_GetAttrString(value, "alias_info");
	PyObject *write = NULL;
	int is = -1;

	if (alias && alias != Py_None)
		write = PyObject_GetAttrString(alias, "is_write");
	if (write)
		is = PyObject_IsTrue(write) == 1;
	PyErr_Clear();
	Py_XDECREF(alias);
	Py_XDECREF(write);
	return is;
}

/* Batch norms write their statistics while training, which their schemas do not say. */
static bool is_statistic(PyObject *arg)
{
	PyObject *bytes = text_of(arg, "name");
	const char *name = bytes ? PyBytes_AsString(bytes) : "";
	bool is = !strcmp(name, "running_mean") || !strcmp(name, "running_var");

	Py_XDECREF(bytes);
	return is;
}

static enum op_use use_of_arg(PyObject *arg, bool factory)
{
	int alias = alias_of(arg);

	if (!may_hold(arg))
		return USE_NONE;
	if (alias == 1)
		return USE_WRITE;
	if (alias < 0 && is_statistic(arg))
		return USE_UNKNOWN;
	return alias == 0 || factory ? USE_SILENT : USE_READ;
}

static enum op_use use_of_return(PyObject *ret, bool empty)
{
	if (!may_hold(ret))
		return USE_NONE;
	return alias_of(ret) == 0 || empty ? USE_SILENT : USE_WRITE;
}

/* The values of `schema.<attribute>`; -1: it has none. */
static int read_values(PyObject *schema, bool args, bool special, struct op_facts *f)
{
	PyObject *list = PyObject_GetAttrString(schema, args ? "arguments" : "returns");
	PyObject *fast = list ? PySequence_List(list) : NULL;
	Py_ssize_t n = fast ? PyList_Size(fast) : -1;
	struct op_value *values = NULL;

	if (n >= 0 && n <= MAX_VALUES)
		values = calloc((size_t)n + 1, sizeof(*values));
	for (Py_ssize_t i = 0; values && i < n; i++) {
		PyObject *v = PyList_GetItem(fast, i);
		values[i].use = args ? use_of_arg(v, special) : use_of_return(v, special);
		values[i].name = args ? PyObject_GetAttrString(v, "name") : NULL;
	}
	PyErr_Clear();
	Py_XDECREF(list);
	Py_XDECREF(fast);
	if (!values)
		return -1;
	*(args ? &f->args : &f->returns) = values;
	*(args ? &f->nargs : &f->nreturns) = (uint16_t)n;
	return 0;
}

/* The schema's name, without its namespace, says what kind of operator it is. */
static void read_schema(PyObject *func, struct op_facts *f)
{
	PyObject *schema = PyObject_GetAttrString(func, "_schema");
	PyObject *bytes = schema ? text_of(schema, "name") : NULL;

	if (bytes) {
		const char *name = PyBytes_AsString(bytes), *colon = strrchr(name, ':');
		name = colon ? colon + 1 : name;
		bool made_new = !strncmp(name, "new_", 4) || text_ends_with(name, "_like");
		bool empty = !strcmp(name, "empty") || !strncmp(name, "empty_", 6) ||
			     !strncmp(name, "new_empty", 9);
		f->known = read_values(schema, true, made_new, f) == 0 &&
			   read_values(schema, false, empty, f) == 0;
	}
	PyErr_Clear();
	Py_XDECREF(bytes);
	Py_XDECREF(schema);
}

static void facts_free(struct op_facts *f)
{
	for (unsigned i = 0; f->args && i < f->nargs; i++)
		Py_XDECREF(f->args[i].name);
	free(f->args);
	free(f->returns);
	Py_XDECREF(f->name);
	Py_XDECREF(f->func);
	free(f);
}

static struct op_facts *facts_make(PyObject *func)
{
	struct op_facts *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	Py_INCREF(func);
	f->func = func;
	f->name = name_of(func);
	if (!f->name) {
		facts_free(f);
		return NULL;
	}
	f->text = PyBytes_AsString(f->name);
	read_schema(func, f);
	return f;
}

const struct op_facts *op_facts_of(PyObject *func)
{
	if (table.room) {
		struct op_facts *f = *find_slot(table.slots, table.room, func);
		if (f)
			return f;
	}
	if (table.count >= MAX_OPERATORS)
		return NULL;
	struct op_facts *f = facts_make(func);
	if (!f)
		return NULL;
	/* Attributes may have run code that came here for the same operator. */
	if ((table.count * 2 >= table.room && grow_table() < 0) ||
	    *find_slot(table.slots, table.room, func)) {
		facts_free(f);
		return table.room ? *find_slot(table.slots, table.room, func) : NULL;
	}
	*find_slot(table.slots, table.room, func) = f;
	table.count++;
	return f;
}
