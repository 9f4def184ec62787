/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Operators of torch, between the files that report them. torch is used through its Python objects
 * only: no header of its, one binary for every version. Everything here holds the GIL.
 */
#ifndef SONDE_PYTHON__SONDE_OPS_H
#define SONDE_PYTHON__SONDE_OPS_H

#include "python/_sonde/module.h"

/* --- ops_facts.c: what an operator's schema says --- */

enum op_use {
	USE_NONE, /* holds no tensor */
	USE_SILENT, /* a view, or only its shape counts */
	USE_READ,
	USE_WRITE,
	USE_UNKNOWN, /* nobody says */
};

struct op_value {
	PyObject *name; /* of an argument, NULL for a return */
	enum op_use use;
};

struct op_facts {
	PyObject *func; /* whose they are; kept, so that its address is nobody else's */
	PyObject *name; /* bytes */
	const char *text; /* inside name */
	bool known; /* there is a schema; otherwise no values */
	uint16_t nargs, nreturns;
	struct op_value *args, *returns;
};

/* Those of an operator, made at its first call; NULL with an exception cleared: no memory. */
const struct op_facts *op_facts_of(PyObject *func);

/* --- ops_inspect.c: what a tensor is --- */

enum op_type {
	TYPE_OTHER, /* no tensor */
	TYPE_PLAIN, /* torch.Tensor, Parameter: asked directly */
	TYPE_DERIVED, /* a class of the program's that overrides functions: asked behind its back */
	TYPE_WRAPPER, /* dispatches by itself: its operators come to us once more, unwrapped */
	TYPE_FAKE, /* torch's own stand-ins for tensors that do not exist */
};

#define LOOK_TEXT 512

struct op_inspect {
	uint64_t addr, bytes;
	uint64_t start; /* of its storage */
	const struct dtype *dtype;
	uint16_t device; /* DEV_HOST, or a number */
	uint8_t pool;
	char text[LOOK_TEXT]; /* dtype:…,shape:… */
};

/* Remembers what is needed of torch; an exception says what is missing. */
int op_inspect_setup(PyObject *torch);

enum op_type op_type_of(PyObject *value); /* of few classes: what operators are given */
enum op_type op_type_maybe(PyObject *value); /* anything */
enum op_type op_type_known(PyObject *type);

/* Between these two, tensors are asked without a mode of the program's noticing; false: impossible
 * right now. op_inspect_guard() is for a tensor of a class that would notice; NULL: impossible. */
bool op_inspect_begin(PyObject **out_guard);
PyObject *op_inspect_guard(void);
void op_inspect_end(PyObject *guard);

/* Where a tensor is: device and pool in one number; negative: on no device that holds memory. */
#define OP_NOWHERE (-1)
#define OP_PLACE(device, pool) ((int)((pool) << 16 | (device)))
#define OP_DEVICE(place) ((uint16_t)((place)&0xffff))
#define OP_POOL(place) ((uint8_t)((place) >> 16))
int op_place(PyObject *tensor, enum op_type type);
/* The same of a torch.device. */
int op_place_named(PyObject *device);
/* Its address and that of its storage; false: it has no memory. */
bool op_where(PyObject *tensor, enum op_type type, int place, struct op_inspect *out);
/* The rest of what was begun there; false: there is nothing to report. */
bool op_inspect(PyObject *tensor, enum op_type type, struct op_inspect *out);

/* --- ops_storage.c: storages of the CPU that nobody else reports --- */

bool op_storage_on(void);
/* A tensor of the CPU, and where its storage begins; reported at first sight. */
void op_storage_seen(PyObject *tensor, uint64_t start);

/* For Python; see the table in ops.c. */
PyObject *op_storage_setup(PyObject *self, PyObject *args);
PyObject *op_storage_set(PyObject *self, PyObject *on);
PyObject *op_storage_scan(PyObject *self, PyObject *list);
PyObject *op_storage_sweep(PyObject *self, PyObject *args);
PyObject *op_storage_over(PyObject *self, PyObject *args);
PyObject *op_storage_hooked(PyObject *self, PyObject *args);

#endif
