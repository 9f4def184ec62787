/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Code objects that were met lately. Each is asked for its file and its name once; from then on
 * its address is enough, since a reference is kept as long as it is in the table.
 */
#include "base/text/text.h"
#include "python/_sonde/trace_impl.h"

#include "guest/collect/collect.h"

#include <string.h>

#define SLOTS 8192 /* a power of two */
#define MAX_DIRS 4
#define MAX_MUTE 16
#define DIR_BYTES 4096
#define NAME_BYTES 64

static struct code slots[SLOTS];
static char dirs[MAX_DIRS][DIR_BYTES];
static char mute[MAX_MUTE][NAME_BYTES];

static int copy_texts(PyObject *list, char *out, size_t bytes, size_t max)
{
	Py_ssize_t n = PyList_Size(list);

	if (n < 0)
		return -1;
	memset(out, 0, bytes * max);
	for (size_t i = 0; i < (size_t)n && i < max; i++) {
		PyObject *utf8 = PyUnicode_AsUTF8String(PyList_GetItem(list, (Py_ssize_t)i));
		if (!utf8)
			return -1;
		const char *text = PyBytes_AsString(utf8);
		if (strlen(text) < bytes)
			strcpy(out + i * bytes, text);
		Py_DECREF(utf8);
	}
	return 0;
}

int trace_set_packages(PyObject *directories, PyObject *mute_files)
{
	if (copy_texts(directories, dirs[0], DIR_BYTES, MAX_DIRS) < 0 ||
	    copy_texts(mute_files, mute[0], NAME_BYTES, MAX_MUTE) < 0)
		return -1;
	trace_forget_codes();
	return 0;
}

/* The file below one of our directories; NULL: it is somebody else's. */
static const char *own_file(const char *path)
{
	for (unsigned i = 0; i < MAX_DIRS; i++) {
		size_t n = strlen(dirs[i]);
		if (n && !strncmp(path, dirs[i], n) && path[n] == '/')
			return path + n + 1;
	}
	return NULL;
}

static bool is_not_traced(const char *file)
{
	for (unsigned i = 0; i < MAX_MUTE; i++)
		if (mute[i][0] && !strcmp(file, mute[i]))
			return true;
	return false;
}

/* The code of torch.nn.Module.__call__, borrowed; torch is not imported for it. */
static PyObject *module_call_code(void)
{
	PyObject *modules = PyImport_GetModuleDict();
	PyObject *at = PyDict_GetItemString(modules, "torch.nn.modules.module");
	static const char *const path[] = {"Module", "__call__", "__code__"};

	Py_XINCREF(at);
	for (unsigned i = 0; at && i < 3; i++) {
		PyObject *next = PyObject_GetAttrString(at, path[i]);
		Py_DECREF(at);
		at = next;
	}
	if (!at)
		PyErr_Clear();
	Py_XDECREF(at); /* its class has it */
	return at;
}

static PyObject *utf8_attr(PyObject *object, const char *attr)
{
	PyObject *text = PyObject_GetAttrString(object, attr);
	PyObject *utf8 = text ? PyUnicode_AsUTF8String(text) : NULL;

	Py_XDECREF(text);
	if (!utf8)
		PyErr_Clear();
	return utf8;
}

/* What torch runs on the way to a dispatch mode such as ours: in 1.x, and in 2.x. */
static bool is_dispatch(const char *path, const char *name)
{
	return (!strcmp(name, "__torch_dispatch__") &&
		text_ends_with(path, "/torch/utils/_python_dispatch.py")) ||
	       (!strcmp(name, "find_torch_dispatch_rule") &&
		text_ends_with(path, "/torch/_library/simple_registry.py"));
}

static uint8_t kind_of(PyObject *object)
{
	PyObject *file = utf8_attr(object, "co_filename"), *name = utf8_attr(object, "co_name");
	uint8_t kind = CODE_PLAIN;

	if (file && name) {
		const char *path = PyBytes_AsString(file);
		const char *own = own_file(path);

		if (own)
			kind = is_not_traced(own) ? CODE_MUTE : CODE_OURS;
		else if (is_dispatch(path, PyBytes_AsString(name)))
			kind = CODE_MUTE;
		else if (text_ends_with(path, "/nn/modules/module.py") &&
			 module_call_code() == object)
			kind = CODE_MODULE;
	}
	Py_XDECREF(file);
	Py_XDECREF(name);
	return kind;
}

static void learn_code(struct code *c, PyObject *object, uint32_t epoch)
{
	PyObject *type, *value, *traceback, *old = c->object;

	PyErr_Fetch(&type, &value, &traceback);
	if (old != object) {
		Py_INCREF(object);
		c->kind = kind_of(object);
		c->object = object;
		Py_XDECREF(old);
	}
	if (c->kind == CODE_PLAIN || c->kind == CODE_MODULE)
		c->place = collect_code(object);
	c->epoch = epoch;
	PyErr_Restore(type, value, traceback);
}

const struct code *trace_code(PyObject *object, uint32_t epoch)
{
	uintptr_t at = (uintptr_t)object >> 5;
	struct code *c = &slots[(at ^ at >> 13) & (SLOTS - 1)];

	if (c->object != object || c->epoch != epoch)
		learn_code(c, object, epoch);
	return c;
}

void trace_forget_codes(void)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		PyObject *old = slots[i].object;
		slots[i] = (struct code){0};
		Py_XDECREF(old);
	}
}
