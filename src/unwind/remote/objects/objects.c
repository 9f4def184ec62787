/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Names of threads, and the variables of a frame. */
#include "unwind/remote/objects/objects.h"

#include <errno.h>
#include <string.h>

#include "unwind/python/text.h"
#include "unwind/remote/objects/objects_impl.h"

#define NAMES_READS 200000
#define LOCALS_READS 4000
#define STAMP_READS 40
#define LOCALS_MAX 512
#define NAME_BYTES 256

/* Bits of co_localspluskinds. */
#define KIND_HIDDEN 0x10
#define KIND_CELL 0x40
#define KIND_FREE 0x80

/* Bits of co_flags. */
#define CODE_VARARGS 4
#define CODE_VARKEYWORDS 8

struct name_walk {
	struct objects *o;
	thread_name_fn fn;
	void *arg;
};

/* threading._active: {ident: Thread}; a thread's name is its attribute _name. */
static bool one_thread(void *arg, uint64_t key, uint64_t value)
{
	const struct name_walk *w = arg;
	struct objects *o = w->o;
	int64_t ident;
	uint64_t text, bits;
	char name[NAME_BYTES];

	if (objects_int(o, key, &ident, &bits) == 0 &&
	    object_attribute(o, value, "_name", &text) == 0 &&
	    python_text(&o->r->reader, o->l, text, name, sizeof(name)) > 0)
		w->fn(w->arg, (uint64_t)ident, name);
	return o->reads_left > 0;
}

int remote_thread_names(struct remote *r, const struct python_place *place, uint64_t interp,
			thread_name_fn fn, void *arg)
{
	struct objects o = {.r = r, .l = &place->layout, .reads_left = NAMES_READS};
	struct name_walk walk = {.o = &o, .fn = fn, .arg = arg};
	struct dict_view v;
	uint64_t modules, threading, active;

	int e = objects_word(&o, interp + place->layout.interp.modules, &modules);
	if (e == 0)
		e = modules ? dict_view_open(&o, modules, &v) : -ENOENT;
	if (e == 0)
		e = dict_find(&o, &v, "threading", &threading);
	if (e == 0)
		e = object_attribute(&o, threading, "_active", &active);
	if (e == 0)
		e = dict_view_open(&o, active, &v);
	return e < 0 ? e : dict_each(&o, &v, one_thread, &walk);
}

/* The variables of one frame: how many there are, their names, where their values lie. */
struct locals {
	struct objects o;
	uint64_t code;
	unsigned n; /* all of them */
	unsigned plain; /* of these, the first: neither cells nor free, to 3.10 */
	uint64_t names[LOCALS_MAX]; /* str objects */
	uint64_t values[LOCALS_MAX];
	uint8_t kinds[LOCALS_MAX];
};

static uint32_t code_int(struct locals *f, uint32_t offset)
{
	uint32_t n = 0;

	if (offset == PYTHON_NONE || objects_read(&f->o, f->code + offset, &n, sizeof(n)) < 0)
		return 0;
	return n;
}

/* Adds the items of a tuple of names; as many as there is room for. */
static int add_names(struct locals *f, uint32_t offset, uint8_t kind)
{
	const struct python_layout *l = f->o.l;
	uint64_t tuple, n;

	int r = objects_word(&f->o, f->code + offset, &tuple);
	if (r < 0 || (r = objects_word(&f->o, tuple + l->object.var_size, &n)) < 0)
		return r;
	if (n > LOCALS_MAX - f->n)
		n = LOCALS_MAX - f->n;
	if (n &&
	    (r = objects_read(&f->o, tuple + l->object.tuple_items, f->names + f->n, n * 8)) < 0)
		return r;
	memset(f->kinds + f->n, kind, n);
	f->n += (unsigned)n;
	return 0;
}

/* To 3.10 three tuples: variables, cells, free variables; the values in a frame are in another
 * order than the tuples in the code. From 3.11 on one tuple and a byte of kinds for each. */
static int read_names(struct locals *f)
{
	const struct python_layout *l = f->o.l;
	uint64_t kinds;
	int r;

	if (l->minor <= 10) {
		/* The tuples of names: variables, free ones, cells. Their values: variables, cells,
		 * free ones. */
		r = add_names(f, l->code.varnames, 0);
		f->plain = f->n;
		if (r == 0)
			r = add_names(f, l->code.varnames + 16, KIND_CELL);
		return r < 0 ? r : add_names(f, l->code.varnames + 8, KIND_FREE);
	}
	r = add_names(f, l->code.localsplusnames, 0);
	f->plain = f->n;
	if (r < 0 || (r = objects_word(&f->o, f->code + l->code.localspluskinds, &kinds)) < 0)
		return r;
	ssize_t got = python_bytes(&f->o.r->reader, l, kinds, f->kinds, f->n);
	return got < 0 ? (int)got : 0;
}

/* The frame may be left and used by another call between two reads. Its code is read last: while
 * that is the same, so were the values before. */
static int read_values(struct locals *f, uint64_t frame)
{
	const struct python_layout *l = f->o.l;
	uint64_t code;

	int r = f->n ? objects_read(&f->o, frame + l->frame.locals, f->values, f->n * 8) : 0;
	/* Looked at last: if it is still the frame of this code, so were the values. */
	if (r < 0 || (r = objects_word(&f->o, frame + l->frame.code, &code)) < 0)
		return r;
	return (code & ~(uint64_t)l->tagged) == f->code ? 0 : -EAGAIN;
}

/*
 * The object a slot stands for; 0 if it has none.
 *
 * From 3.14 on a slot may hold a small int in its bits instead of an address. A variable that an
 * inner function uses is a cell that holds the value.
 */
static uint64_t slot_value(struct locals *f, unsigned i)
{
	const struct python_layout *l = f->o.l;
	uint64_t word = f->values[i];

	if (l->tagged && (word & 3) == 3)
		return word; /* a small number, not an address: remote_repr() knows */
	word &= ~(uint64_t)l->tagged;
	if (!word || !(f->kinds[i] & (KIND_CELL | KIND_FREE)))
		return word;
	/* An argument lies there bare until the function has made a cell of it. */
	if (objects_type(&f->o, word) < 0)
		return 0;
	if (!strcmp(f->o.type.name, "cell") &&
	    objects_word(&f->o, word + l->object.object_size, &word) < 0)
		return 0;
	return word;
}

/* Positional, keyword-only, *args and **kwargs come first among the variables, in this order. */
static unsigned count_arguments(struct locals *f)
{
	const struct python_layout *l = f->o.l;
	uint32_t flags = code_int(f, l->code.flags);
	uint64_t n = (uint64_t)code_int(f, l->code.argcount) + code_int(f, l->code.kwonlyargcount);

	n += !!(flags & CODE_VARARGS) + !!(flags & CODE_VARKEYWORDS);
	return n > f->plain ? f->plain : (unsigned)n;
}

/*
 * The slot of an argument: to 3.10 one that inner functions use is a cell behind the variables,
 * known by its name only.
 */
static unsigned argument_slot(const struct locals *f, unsigned i)
{
	for (unsigned k = f->plain; !f->values[i] && k < f->n; k++)
		if (f->names[k] == f->names[i])
			return k;
	return i;
}

static void emit_object(struct locals *f, unsigned slot, bool is_argument, local_fn fn, void *arg)
{
	char name[NAME_BYTES];
	uint64_t value = f->kinds[slot] & KIND_HIDDEN ? 0 : slot_value(f, slot);

	if (value && python_text(&f->o.r->reader, f->o.l, f->names[slot], name, sizeof(name)) > 0)
		fn(arg, name, is_argument, value);
	f->values[slot] = 0; /* reported once */
}

/* Arguments first, as they stand in the function's head. */
int remote_locals(struct remote *r, const struct python_place *place, uint64_t frame, uint64_t code,
		  local_fn fn, void *arg)
{
	struct locals f = {.o = {.r = r, .l = &place->layout, .reads_left = LOCALS_READS},
			   .code = code};

	int e = read_names(&f);
	if (e == 0)
		e = read_values(&f, frame);
	if (e < 0)
		return e;
	unsigned arguments = count_arguments(&f);
	for (unsigned i = 0; i < arguments; i++)
		emit_object(&f, argument_slot(&f, i), true, fn, arg);
	for (unsigned i = arguments; i < f.n; i++)
		emit_object(&f, i, false, fn, arg);
	return 0;
}

int remote_locals_words(struct remote *r, const struct python_place *place, uint64_t code)
{
	const struct python_layout *l = &place->layout;
	struct objects o = {.r = r, .l = l, .reads_left = 2};
	uint64_t tuple, n;

	int e = objects_word(
		&o, code + (l->minor <= 10 ? l->code.varnames : l->code.localsplusnames), &tuple);
	if (e == 0)
		e = objects_word(&o, tuple + l->object.var_size, &n);
	if (e < 0)
		return e;
	return n > LOCALS_MAX ? LOCALS_MAX : (int)n;
}

int remote_main_module(struct remote *r, const struct python_place *place, uint64_t tstate,
		       uint64_t *out)
{
	const struct python_layout *l = &place->layout;
	struct objects o = {.r = r, .l = l, .reads_left = NAMES_READS};
	struct dict_view v;
	uint64_t interp, modules;

	int e = objects_word(&o, tstate + l->tstate.interp, &interp);
	if (e == 0)
		e = objects_word(&o, interp + l->interp.modules, &modules);
	if (e == 0)
		e = modules ? dict_view_open(&o, modules, &v) : -ENOENT;
	return e < 0 ? e : dict_find(&o, &v, "__main__", out);
}

static bool add_to_stamp(void *arg, uint64_t key, uint64_t value)
{
	uint64_t *stamp = arg;

	*stamp = (*stamp ^ key ^ value * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
	*stamp ^= *stamp >> 33;
	return true;
}

/* For a watcher that wants to know whether anything changed, without looking at what. */
uint64_t remote_attributes_stamp(struct remote *r, const struct python_place *place,
				 uint64_t object)
{
	struct objects o = {.r = r, .l = &place->layout, .reads_left = STAMP_READS};
	uint64_t stamp = 1;
	struct dict_view v;

	if (object_view(&o, object, &v) < 0 || dict_each(&o, &v, add_to_stamp, &stamp) == -EFAULT)
		return 0;
	return stamp;
}
