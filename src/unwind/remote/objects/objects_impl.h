/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the readers of Python objects share: bounded reads, types, dicts, attributes.
 *
 * An object begins with its type; the type's flags say what it is (TYPE_*), its name what it is
 * called. Everything that is read may change meanwhile or be garbage: a wrong pointer is an error,
 * a wrong number is bounded, a cycle uses up reads_left.
 */
#ifndef SONDE_UNWIND_REMOTE_OBJECTS_OBJECTS_IMPL_H
#define SONDE_UNWIND_REMOTE_OBJECTS_OBJECTS_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "unwind/python/layout.h"
#include "unwind/remote/memory.h"

/* Bits of tp_flags that are the same in every version. */
#define TYPE_INLINE_VALUES (1u << 2) /* from 3.13 */
#define TYPE_MANAGED_DICT (1u << 4) /* from 3.11 */
#define TYPE_HEAP (1u << 9)
#define TYPE_LONG (1u << 24)
#define TYPE_LIST (1u << 25)
#define TYPE_TUPLE (1u << 26)
#define TYPE_BYTES (1u << 27)
#define TYPE_STR (1u << 28)
#define TYPE_DICT (1u << 29)
#define TYPE_TYPE (1u << 31)

/* What is known of one type object. */
struct object_type {
	uint64_t addr; /* 0: nothing yet */
	uint64_t flags;
	uint64_t basicsize;
	int64_t dictoffset;
	char name[128]; /* tp_name: "module.Class" of static types, "Class" of others */
};

struct objects {
	struct remote *r;
	const struct python_layout *l;
	unsigned reads_left; /* every read takes one: whatever the bytes say, the work ends */
	struct object_type type; /* the last one that was looked at */
};

/* -E2BIG when there were too many, -EFAULT for an address that cannot be one. */
int objects_read(struct objects *o, uint64_t addr, void *out, size_t n);
int objects_word(struct objects *o, uint64_t addr, uint64_t *out);
/* A text that ends with NUL, or is cut at cap. */
int objects_c_string(struct objects *o, uint64_t addr, char *out, size_t cap);
/* The type of the object at addr, in o->type. */
int objects_type(struct objects *o, uint64_t object);
/* An int that fits into 64 bits; -ERANGE if it does not, *out_bits says how many it has. */
int objects_int(struct objects *o, uint64_t object, int64_t *out, uint64_t *out_bits);

/*
 * The entries of a dict, or of the values of an object that has no dict yet.
 *
 * Two shapes: entries that hold their values, or entries with keys alone and values in an array
 * beside them, in the same order.
 */
struct dict_view {
	uint64_t entries, count;
	uint64_t values; /* where they are apart from the entries; else 0 */
	unsigned entry_bytes, key_at, value_at;
};

int dict_view_open(struct objects *o, uint64_t dict, struct dict_view *out);

/* One entry; false ends the walk. */
typedef bool (*dict_fn)(void *arg, uint64_t key, uint64_t value);
int dict_each(struct objects *o, const struct dict_view *v, dict_fn fn, void *arg);

/* The value under an ASCII key of at most DICT_NAME_MAX bytes; -ENOENT. */
#define DICT_NAME_MAX 48
int dict_find(struct objects *o, const struct dict_view *v, const char *name, uint64_t *out_value);
/* Several names in one walk: how many were found; 0 in out_values for those that were not. */
int dict_find_names(struct objects *o, const struct dict_view *v, const char *const *names,
		    unsigned n, uint64_t *out_values);

/* The object's own __dict__; -ENOENT if it has none. */
int object_view(struct objects *o, uint64_t object, struct dict_view *out);
/* What it holds under the name; -ENOENT. */
int object_attribute(struct objects *o, uint64_t object, const char *name, uint64_t *out_value);
/* The dict of a class, tp_dict: its attributes and methods. */
int class_attribute(struct objects *o, uint64_t class, const char *name, uint64_t *out_value);

#endif
