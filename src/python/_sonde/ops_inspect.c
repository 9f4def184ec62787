/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a tensor is: where, how large, of what type. Asked through its Python attributes, with as
 * few calls as possible: devices, types of numbers and classes are looked up in small tables.
 *
 * Classes may override what an attribute or a function of torch does (`__torch_function__`), and so
 * may modes that are on. Nobody is to notice that we looked: such tensors are asked with that
 * switched off.
 */
#include "python/_sonde/ops.h"

#include "wire/record.h"

#include <string.h>

#define MAX_DTYPES 64
#define MAX_TYPES 256

static struct {
	PyObject *tensor; /* torch.Tensor */
	PyObject *base; /* the class behind it, of C */
	PyObject *no_function, *no_dispatch; /* what classes have that override nothing */
	PyObject *mode_enabled; /* () -> bool: do modes override functions? NULL: none do */
	PyObject *guard; /* switches overriding off */
	PyObject *address; /* (tensor) -> where it begins, or its storage */
	bool of_storage;
	PyObject *offset; /* (tensor) -> how many elements lie between those two */
	PyObject *get_device, *get_dtype, *get_shape; /* behind the back of a class */
	PyObject *element_size; /* (tensor) -> int */
	PyObject *devices; /* torch.device: where that is */
	PyObject *s_device, *s_dtype, *s_shape;
} torch;

static struct dtype {
	PyObject *dtype;
	uint64_t bytes;
	char text[48];
} dtypes[MAX_DTYPES];
static unsigned ndtypes;

static struct {
	PyObject *type;
	enum op_type is;
} types[MAX_TYPES];
static unsigned ntypes;

static PyObject *get_attribute(PyObject *object, const char *name)
{
	PyObject *value = object ? PyObject_GetAttrString(object, name) : NULL;

	PyErr_Clear();
	return value;
}

static PyObject *getter_of(const char *name)
{
	PyObject *descriptor = get_attribute(torch.base, name);
	PyObject *get = get_attribute(descriptor, "__get__");

	Py_XDECREF(descriptor);
	return get;
}

int op_inspect_setup(PyObject *module)
{
	PyObject *c = get_attribute(module, "_C");

	if (torch.tensor) {
		Py_XDECREF(c);
		return 0;
	}
	torch.base = get_attribute(c, "TensorBase");
	if (!torch.base)
		torch.base = get_attribute(c, "_TensorBase");
	torch.no_function = get_attribute(c, "_disabled_torch_function_impl");
	torch.no_dispatch = get_attribute(c, "_disabled_torch_dispatch_impl");
	torch.mode_enabled = get_attribute(c, "_is_torch_function_mode_enabled");
	torch.guard = get_attribute(c, "DisableTorchFunction");
	/* The first of these does not make a tensor that is copied when written to a copy. */
	torch.address = get_attribute(c, "_data_address");
	torch.of_storage = torch.address;
	torch.offset = get_attribute(torch.base, "storage_offset");
	if (!torch.address)
		torch.address = get_attribute(torch.base, "data_ptr");
	torch.element_size = get_attribute(torch.base, "element_size");
	torch.get_device = getter_of("device");
	torch.get_dtype = getter_of("dtype");
	torch.get_shape = getter_of("shape");
	torch.devices = PyDict_New();
	torch.s_device = PyUnicode_InternFromString("device");
	torch.s_dtype = PyUnicode_InternFromString("dtype");
	torch.s_shape = PyUnicode_InternFromString("shape");
	Py_XDECREF(c);
	if (!torch.base || !torch.address || !torch.offset || !torch.guard || !torch.element_size ||
	    !torch.get_device || !torch.get_dtype || !torch.get_shape || !torch.devices) {
		PyErr_SetString(PyExc_RuntimeError, "this torch has no tensors that we know");
		return -1;
	}
	torch.tensor = PyObject_GetAttrString(module, "Tensor");
	return torch.tensor ? 0 : -1;
}

/* --- classes --- */

static bool is_disabled(PyObject *type, const char *name, PyObject *disabled)
{
	PyObject *fn = get_attribute(type, name);
	bool is = fn && disabled && fn == disabled;

	Py_XDECREF(fn);
	return is;
}

static bool is_torchs_own(PyObject *type)
{
	PyObject *module = get_attribute(type, "__module__");
	PyObject *bytes = module ? PyUnicode_AsUTF8String(module) : NULL;
	bool is = bytes && !strncmp(PyBytes_AsString(bytes), "torch._subclasses.", 18);

	PyErr_Clear();
	Py_XDECREF(module);
	Py_XDECREF(bytes);
	return is;
}

static enum op_type judge_type(PyObject *type)
{
	if (type == torch.tensor)
		return TYPE_PLAIN;
	if (!PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)torch.base))
		return TYPE_OTHER;
	if (is_torchs_own(type))
		return TYPE_FAKE;
	if (torch.no_dispatch && !is_disabled(type, "__torch_dispatch__", torch.no_dispatch))
		return TYPE_WRAPPER;
	return is_disabled(type, "__torch_function__", torch.no_function) ? TYPE_PLAIN
									  : TYPE_DERIVED;
}

enum op_type op_type_known(PyObject *type)
{
	for (unsigned i = 0; i < ntypes; i++)
		if (types[i].type == type)
			return types[i].is;
	enum op_type is = judge_type(type);
	if (ntypes < MAX_TYPES) {
		Py_INCREF(type);
		types[ntypes].is = is;
		types[ntypes++].type = type;
	}
	return is;
}

enum op_type op_type_of(PyObject *value)
{
	PyObject *type = (PyObject *)Py_TYPE(value);

	return type == torch.tensor ? TYPE_PLAIN : op_type_known(type);
}

enum op_type op_type_maybe(PyObject *value)
{
	if (!torch.base || !PyObject_TypeCheck(value, (PyTypeObject *)torch.base))
		return TYPE_OTHER;
	return op_type_of(value);
}

/* --- asking behind the back --- */

PyObject *op_inspect_guard(void)
{
	PyObject *guard = PyObject_CallObject(torch.guard, NULL);
	PyObject *r = guard ? PyObject_CallMethod(guard, "__enter__", NULL) : NULL;

	if (!r)
		Py_CLEAR(guard);
	PyErr_Clear();
	Py_XDECREF(r);
	return guard;
}

/* Enters a guard around everything only where a mode is on: that is rare. */
bool op_inspect_begin(PyObject **out_guard)
{
	PyObject *r = torch.mode_enabled ? PyObject_CallObject(torch.mode_enabled, NULL) : NULL;
	bool overridden = r == Py_True;

	PyErr_Clear();
	Py_XDECREF(r);
	*out_guard = overridden ? op_inspect_guard() : NULL;
	return !overridden || *out_guard;
}

void op_inspect_end(PyObject *guard)
{
	PyObject *r =
		guard ? PyObject_CallMethod(guard, "__exit__", "OOO", Py_None, Py_None, Py_None)
		      : NULL;

	if (guard && !r)
		PyErr_Clear();
	Py_XDECREF(r);
	Py_XDECREF(guard);
}

static PyObject *ask_tensor(PyObject *tensor, enum op_type type, PyObject *name, PyObject *get)
{
	return type == TYPE_PLAIN ? PyObject_GetAttr(tensor, name)
				  : PyObject_CallFunctionObjArgs(get, tensor, NULL);
}

/* --- devices --- */

static int place_made(PyObject *device)
{
	PyObject *type = get_attribute(device, "type"), *index = get_attribute(device, "index");
	PyObject *bytes = type ? PyUnicode_AsUTF8String(type) : NULL;
	const char *text = bytes ? PyBytes_AsString(bytes) : "";
	long at = index && index != Py_None ? PyLong_AsLong(index) : 0;
	int place = OP_NOWHERE;

	if (!strcmp(text, "cpu"))
		place = OP_PLACE(DEV_HOST, POOL_HOST);
	else if (at >= 0 && at < (long)DEV_NONE && !strcmp(text, "cuda"))
		place = OP_PLACE((int)at, POOL_TORCH);
	else if (at >= 0 && at < (long)DEV_NONE &&
		 (!strcmp(text, "npu") || !strcmp(text, "privateuseone")))
		place = OP_PLACE((int)at, POOL_PTA);
	PyErr_Clear();
	Py_XDECREF(type);
	Py_XDECREF(index);
	Py_XDECREF(bytes);
	return place;
}

int op_place_named(PyObject *device)
{
	PyObject *known = PyDict_GetItem(torch.devices, device);

	if (known)
		return (int)PyLong_AsLong(known);
	int place = place_made(device);
	known = PyLong_FromLong(place);
	if (!known || PyDict_SetItem(torch.devices, device, known) < 0)
		PyErr_Clear();
	Py_XDECREF(known);
	return place;
}

int op_place(PyObject *tensor, enum op_type type)
{
	PyObject *device = ask_tensor(tensor, type, torch.s_device, torch.get_device);
	int place = device ? op_place_named(device) : OP_NOWHERE;

	if (!device)
		PyErr_Clear();
	Py_XDECREF(device);
	return place;
}

/* --- kinds of numbers --- */

static const struct dtype *dtype_made(PyObject *tensor, PyObject *dtype)
{
	PyObject *text = PyObject_Str(dtype);
	PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
	PyObject *size = PyObject_CallFunctionObjArgs(torch.element_size, tensor, NULL);
	struct dtype *d = NULL;

	if (bytes && size && ndtypes < MAX_DTYPES) {
		d = &dtypes[ndtypes++];
		Py_INCREF(dtype);
		d->dtype = dtype;
		d->bytes = PyLong_AsUnsignedLong(size);
		strncpy(d->text, PyBytes_AsString(bytes), sizeof(d->text) - 1);
	}
	PyErr_Clear();
	Py_XDECREF(text);
	Py_XDECREF(bytes);
	Py_XDECREF(size);
	return d;
}

static const struct dtype *dtype_of(PyObject *tensor, enum op_type type)
{
	PyObject *dtype = ask_tensor(tensor, type, torch.s_dtype, torch.get_dtype);
	const struct dtype *d = NULL;

	for (unsigned i = 0; dtype && !d && i < ndtypes; i++)
		if (dtypes[i].dtype == dtype)
			d = &dtypes[i];
	if (dtype && !d)
		d = dtype_made(tensor, dtype);
	Py_XDECREF(dtype);
	return d;
}

/* --- text --- */

struct text {
	char *at, *end;
};

static void add_text(struct text *t, const char *s)
{
	while (*s && t->at < t->end)
		*t->at++ = *s++;
}

static void add_number(struct text *t, uint64_t n)
{
	char digits[24], *at = digits + sizeof(digits) - 1;

	*at = '\0';
	do
		*--at = (char)('0' + n % 10);
	while (n /= 10);
	add_text(t, at);
}

/* The number of elements; the shape as torch writes it, where it is wanted. -1: not known yet. */
static long long read_shape(PyObject *shape, struct text *t)
{
	Py_ssize_t n = PyTuple_Size(shape);
	uint64_t elements = 1;

	if (n < 0)
		return -1;
	add_text(t, ",shape:torch.Size([");
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PyTuple_GetItem(shape, i);
		long long one = item && PyLong_Check(item) ? PyLong_AsLongLong(item) : -1;
		if (one < 0)
			return -1;
		if (i)
			add_text(t, ", ");
		add_number(t, (uint64_t)one);
		elements *= (uint64_t)one;
	}
	add_text(t, "])");
	return (long long)elements;
}

static bool look_shape(PyObject *tensor, enum op_type type, const struct dtype *d,
		       struct op_inspect *out)
{
	PyObject *shape = ask_tensor(tensor, type, torch.s_shape, torch.get_shape);
	struct text t = {out->text, out->text + sizeof(out->text) - 1};

	add_text(&t, "dtype:");
	add_text(&t, d->text);
	long long n = shape ? read_shape(shape, &t) : -1;
	*t.at = '\0';
	Py_XDECREF(shape);
	if (n < 0)
		return false;
	out->bytes = (uint64_t)n * d->bytes;
	return true;
}

static uint64_t number_by(PyObject *fn, PyObject *tensor)
{
	PyObject *r = PyObject_CallFunctionObjArgs(fn, tensor, NULL);
	uint64_t n = r ? PyLong_AsUnsignedLongLong(r) : 0;

	if (PyErr_Occurred()) {
		PyErr_Clear(); /* of a kind without addresses, or it has no memory yet */
		n = 0;
	}
	Py_XDECREF(r);
	return n;
}

bool op_where(PyObject *tensor, enum op_type type, int place, struct op_inspect *out)
{
	const struct dtype *d = dtype_of(tensor, type);
	uint64_t at = d ? number_by(torch.address, tensor) : 0;

	if (!at) {
		PyErr_Clear();
		return false;
	}
	uint64_t offset = number_by(torch.offset, tensor) * d->bytes;
	out->device = OP_DEVICE(place);
	out->pool = OP_POOL(place);
	out->dtype = d;
	out->start = torch.of_storage ? at : at - offset;
	out->addr = out->start + offset;
	return true;
}

bool op_inspect(PyObject *tensor, enum op_type type, struct op_inspect *out)
{
	bool ok = look_shape(tensor, type, out->dtype, out);

	if (!ok)
		PyErr_Clear();
	return ok;
}
