/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a variable holds, as a short text. Work and text are bounded three ways: a limit of bytes,
 * of reads, and of depth, so that a list that holds itself ends like any other.
 *
 * Nothing is called in the process: no __repr__, no property. Types are recognised by flags that
 * every subclass inherits (int, str, bytes, list, tuple, dict, type) or by their name (float, set,
 * None, numpy.ndarray). Everything else is its class and address. The process runs meanwhile, so a
 * text may be of two moments; it is for people who look at a hang.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/python/text.h"
#include "unwind/remote/objects/objects.h"
#include "unwind/remote/objects/objects_impl.h"

#define REPR_READS 400
#define REPR_DEPTH 4
#define REPR_ITEMS 16 /* of one container */
#define TEXT_BYTES 512
#define SET_SLOTS 4096
#define ARRAY_DIMENSIONS 32

struct repr {
	struct objects o;
	struct buf *out;
	size_t end; /* of out, where it is full */
	unsigned depth;
};

/* The order of the tests: bool is an int, an enum may be one, a namedtuple is a tuple. What is
 * not recognised by a flag is by its name, else shown as its class. */
static void add_object(struct repr *p, uint64_t object);

static bool is_full(const struct repr *p)
{
	return p->out->len >= p->end || !p->o.reads_left;
}

/*
 * A text in quotes, as much of it as there is room for.
 *
 * Text of another process: control characters as Python writes them, so that a line stays a line.
 */
static void add_quoted(struct repr *p, const uint8_t *text, size_t len, bool cut, bool bytes)
{
	buf_add_char(p->out, '\'');
	for (size_t i = 0; i < len; i++) {
		/* Whole characters only: a byte 10xxxxxx is not the first of one. */
		if (is_full(p) && (bytes || (text[i] & 0xc0) != 0x80)) {
			cut = true;
			break;
		}
		if (text[i] == '\n')
			buf_add_str(p->out, "\\n");
		else if (text[i] == '\t')
			buf_add_str(p->out, "\\t");
		else if (text[i] == '\\' || text[i] == '\'')
			buf_addf(p->out, "\\%c", text[i]);
		else if (text[i] < ' ' || text[i] == 0x7f || (bytes && text[i] >= 0x80))
			buf_addf(p->out, "\\x%02x", text[i]);
		else
			buf_add_char(p->out, (char)text[i]);
	}
	buf_add_str(p->out, cut ? "…'" : "'");
}

/* The length counts characters, the text bytes: whether something was cut is known only roughly,
 * and "…" may be missing by a few characters. */
static void add_str(struct repr *p, uint64_t object)
{
	char text[TEXT_BYTES];
	uint64_t length = 0;
	ssize_t n = python_text(&p->o.r->reader, p->o.l, object, text, sizeof(text));

	if (n < 0) {
		buf_add_str(p->out, "<str>");
		return;
	}
	objects_word(&p->o, object + p->o.l->text.length, &length);
	add_quoted(p, (const uint8_t *)text, (size_t)n,
		   n + 4 >= TEXT_BYTES && length > (size_t)n / 4, false);
}

static void add_bytes(struct repr *p, uint64_t object)
{
	uint8_t bytes[TEXT_BYTES];
	ssize_t n = python_bytes(&p->o.r->reader, p->o.l, object, bytes, sizeof(bytes));

	if (n < 0) {
		buf_add_str(p->out, "<bytes>");
		return;
	}
	buf_add_char(p->out, 'b');
	add_quoted(p, bytes, n > TEXT_BYTES ? TEXT_BYTES : (size_t)n, n > TEXT_BYTES, true);
}

static void add_int(struct repr *p, uint64_t object)
{
	bool is_bool = !strcmp(p->o.type.name, "bool");
	int64_t value;
	uint64_t bits = 0;
	int r = objects_int(&p->o, object, &value, &bits);

	if (r == -ERANGE)
		buf_addf(p->out, "<int of about %" PRIu64 " bits>", bits);
	else if (r < 0)
		buf_add_str(p->out, "<int>");
	else if (is_bool)
		buf_add_str(p->out, value ? "True" : "False");
	else
		buf_addf(p->out, "%" PRId64, value);
}

/*
 * The shortest text that is read back as the same number, written as Python writes it.
 *
 * Digits are added until the text reads back as the same number, then written without an exponent
 * where Python does so.
 */
static void float_text(double value, char *out, size_t cap)
{
	int digits = 1, exponent = 0;

	for (; digits <= 17; digits++) {
		snprintf(out, cap, "%.*e", digits - 1, value);
		if (strtod(out, NULL) == value)
			break;
	}
	const char *e = strchr(out, 'e');
	if (e)
		exponent = atoi(e + 1);
	if (!e || exponent < -4 || exponent >= 16)
		return;
	int decimals = digits - 1 - exponent;
	snprintf(out, cap, "%.*f", decimals > 0 ? decimals : 1, value);
}

static void add_float(struct repr *p, uint64_t object)
{
	double value;
	char text[64];

	if (objects_read(&p->o, object + p->o.l->object.float_value, &value, sizeof(value)) < 0) {
		buf_add_str(p->out, "<float>");
		return;
	}
	if (isfinite(value))
		float_text(value, text, sizeof(text));
	else
		snprintf(text, sizeof(text), "%s",
			 isnan(value) ? "nan"
			 : value > 0  ? "inf"
				      : "-inf");
	buf_add_str(p->out, text);
}

/* How many of n items are shown, after reading their addresses. */
static unsigned read_items(struct repr *p, uint64_t items, uint64_t n, uint64_t out[REPR_ITEMS])
{
	unsigned shown = n < REPR_ITEMS ? (unsigned)n : REPR_ITEMS;

	if (shown && objects_read(&p->o, items, out, shown * 8) < 0)
		return 0;
	return shown;
}

/* A tuple holds its items, a list points to them. Of a list that is being changed the length and
 * the array may be of different moments: an item that leads nowhere is shown as unreadable. */
static void add_sequence(struct repr *p, uint64_t object, bool list)
{
	const struct python_layout *l = p->o.l;
	uint64_t n = 0, items = object + l->object.tuple_items, list_of[REPR_ITEMS];
	unsigned i = 0;

	if (objects_word(&p->o, object + l->object.var_size, &n) < 0 ||
	    (list && n && objects_word(&p->o, object + l->object.list_items, &items) < 0))
		n = 0;
	unsigned shown = read_items(p, items, n, list_of);
	buf_add_char(p->out, list ? '[' : '(');
	for (; i < shown && !is_full(p); i++) {
		if (i)
			buf_add_str(p->out, ", ");
		add_object(p, list_of[i]);
	}
	if (i < n)
		buf_addf(p->out, "%s… %" PRIu64 " items", i ? ", " : "", n);
	else if (!list && n == 1)
		buf_add_char(p->out, ',');
	buf_add_char(p->out, list ? ']' : ')');
}

struct dict_walk {
	struct repr *p;
	unsigned shown;
};

/* False ends the walk: a dict of a million entries costs no more than one of twenty. */
static bool one_item(void *arg, uint64_t key, uint64_t value)
{
	struct dict_walk *w = arg;

	if (w->shown >= REPR_ITEMS || is_full(w->p))
		return false;
	if (w->shown++)
		buf_add_str(w->p->out, ", ");
	add_object(w->p, key);
	buf_add_str(w->p->out, ": ");
	add_object(w->p, value);
	return true;
}

static void add_dict(struct repr *p, uint64_t object)
{
	struct dict_walk walk = {.p = p};
	struct dict_view v;
	uint64_t used = 0;

	buf_add_char(p->out, '{');
	if (objects_word(&p->o, object + p->o.l->dict.used, &used) == 0 &&
	    dict_view_open(&p->o, object, &v) == 0)
		dict_each(&p->o, &v, one_item, &walk);
	if (walk.shown < used)
		buf_addf(p->out, "%s… %" PRIu64 " items", walk.shown ? ", " : "", used);
	buf_add_char(p->out, '}');
}

/* fill, used, mask and the table, each a word, right behind the head of the object. */
static void add_set(struct repr *p, uint64_t object)
{
	uint64_t head[4], slot[2];
	unsigned shown = 0;

	if (objects_read(&p->o, object + p->o.l->object.object_size, head, sizeof(head)) < 0)
		memset(head, 0, sizeof(head));
	buf_add_char(p->out, '{');
	for (uint64_t i = 0; i <= head[2] && i < SET_SLOTS && shown < REPR_ITEMS; i++) {
		if (shown == head[1] || is_full(p) ||
		    objects_read(&p->o, head[3] + i * sizeof(slot), slot, sizeof(slot)) < 0)
			break;
		if (!slot[0] || slot[1] == UINT64_MAX) /* empty, or taken out */
			continue;
		if (shown++)
			buf_add_str(p->out, ", ");
		add_object(p, slot[0]);
	}
	if (shown < head[1])
		buf_addf(p->out, "%s… %" PRIu64 " items", shown ? ", " : "", head[1]);
	buf_add_char(p->out, '}');
}

static const char *array_type_name(uint32_t number)
{
	static const char *const names[] = {
		"bool",	   "int8",	 "uint8",     "int16",	    "uint16",	   "int32",
		"uint32",  "int64",	 "uint64",    "int64",	    "uint64",	   "float32",
		"float64", "longdouble", "complex64", "complex128", "clongdouble", "object",
		"bytes",   "str",	 "void",      "datetime64", "timedelta64", "float16",
	};

	return number < sizeof(names) / sizeof(*names) ? names[number] : "?";
}

/* numpy.ndarray: data, nd, dimensions, strides, base, descr behind the head of the object. */
static bool add_array(struct repr *p, uint64_t object)
{
	uint64_t head[6], dimensions[ARRAY_DIMENSIONS];
	uint32_t nd, number, head_bytes = p->o.l->object.object_size;

	if (objects_read(&p->o, object + head_bytes, head, sizeof(head)) < 0)
		return false;
	nd = (uint32_t)head[1];
	if (nd > ARRAY_DIMENSIONS || (nd && objects_read(&p->o, head[2], dimensions, nd * 8) < 0) ||
	    objects_read(&p->o, head[5] + head_bytes + 12, &number, sizeof(number)) < 0)
		return false;
	buf_add_str(p->out, "array(shape=(");
	for (uint32_t i = 0; i < nd; i++)
		buf_addf(p->out, "%s%" PRIu64, i ? ", " : "", dimensions[i]);
	buf_addf(p->out, "%s), dtype=%s)", nd == 1 ? "," : "", array_type_name(number));
	return true;
}

/*
 * The name of the type in o->type, with its module where that is easy to know.
 *
 * A static type has its module in its name; a class of Python has it in its dict.
 */
static void add_type_name(struct repr *p, const struct object_type *t)
{
	uint64_t module;
	char text[128];

	if (t->flags & TYPE_HEAP && !strchr(t->name, '.') &&
	    class_attribute(&p->o, t->addr, "__module__", &module) == 0 &&
	    python_text(&p->o.r->reader, p->o.l, module, text, sizeof(text)) > 0 &&
	    strcmp(text, "builtins") != 0)
		buf_addf(p->out, "%s.", text);
	buf_add_str(p->out, t->name);
}

static void add_other(struct repr *p, uint64_t object)
{
	struct object_type t = p->o.type;

	if (!strcmp(t.name, "numpy.ndarray") && add_array(p, object))
		return;
	buf_add_char(p->out, '<');
	add_type_name(p, &t);
	buf_addf(p->out, " at 0x%" PRIx64 ">", object);
}

/* A class is an object whose type is a type: its own fields are read, not those of its type. */
static void add_class(struct repr *p, uint64_t object)
{
	struct objects *o = &p->o;
	struct object_type t = {.addr = object};
	uint64_t name;

	buf_add_str(p->out, "<class ");
	if (objects_word(o, object + o->l->object.type_flags, &t.flags) == 0 &&
	    objects_word(o, object + o->l->object.type_name, &name) == 0 &&
	    objects_c_string(o, name, t.name, sizeof(t.name)) == 0)
		add_type_name(p, &t);
	buf_add_char(p->out, '>');
}

static void add_container(struct repr *p, uint64_t object)
{
	uint64_t flags = p->o.type.flags;

	if (p->depth >= REPR_DEPTH) {
		buf_add_str(p->out, "…");
		return;
	}
	p->depth++;
	if (flags & TYPE_DICT)
		add_dict(p, object);
	else if (flags & (TYPE_LIST | TYPE_TUPLE))
		add_sequence(p, object, flags & TYPE_LIST);
	else
		add_set(p, object);
	p->depth--;
}

static void add_object(struct repr *p, uint64_t object)
{
	if (p->o.l->tagged && (object & 3) == 3) {
		buf_addf(p->out, "%" PRId64, (int64_t)object >> 2);
		return;
	}
	if (objects_type(&p->o, object) < 0) {
		buf_add_str(p->out, "<unreadable>");
		return;
	}
	uint64_t flags = p->o.type.flags;
	const char *name = p->o.type.name;
	if (!strcmp(name, "NoneType"))
		buf_add_str(p->out, "None");
	else if (flags & TYPE_LONG)
		add_int(p, object);
	else if (flags & TYPE_STR)
		add_str(p, object);
	else if (flags & TYPE_BYTES)
		add_bytes(p, object);
	else if (!strcmp(name, "float"))
		add_float(p, object);
	else if (flags & (TYPE_DICT | TYPE_LIST | TYPE_TUPLE) || !strcmp(name, "set") ||
		 !strcmp(name, "frozenset"))
		add_container(p, object);
	else if (flags & TYPE_TYPE)
		add_class(p, object);
	else
		add_other(p, object);
}

void remote_repr(struct remote *r, const struct python_place *place, uint64_t object, size_t limit,
		 struct buf *out)
{
	struct repr p = {.o = {.r = r, .l = &place->layout, .reads_left = REPR_READS},
			 .out = out,
			 .end = out->len + limit};

	add_object(&p, object);
}
