/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Answers from tables of fields: one table says which members of a struct an answer has, by which
 * key in JSON and, where it is a column of a text table too, by which title. Tables end with {0}.
 *
 *	static const struct field fields[] = {
 *		FIELDS(struct held, blocks, steps),
 *		COLUMN("bytes", "Held", FIELD_BYTES, struct held, bytes),
 *		{0},
 *	};
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_FIELDS_H
#define SONDE_MEMORY_ANALYSIS_COMMON_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/report.h"

enum field_kind {
	FIELD_U32, /* a count: 12,345 in tables */
	FIELD_U64,
	FIELD_ID, /* u32; 12345 in tables */
	FIELD_BYTES, /* u64; 1.50 GiB in tables */
	FIELD_BOOL,
	FIELD_REAL,
	FIELD_TEXT, /* char *, NULL is null */
	FIELD_NAME, /* struct frame_line: what a job called something */
	FIELD_ADDRESS, /* u64; text in JSON */
	FIELD_DEVICE, /* u32 */
	FIELD_POOL, /* enum row_type */
	FIELD_IN_POOL, /* struct block_pool *: the keys pid, device and pool; three titles */
	FIELD_WHERE, /* u32, a call stack: the key where */
	FIELD_STACK, /* u32: the keys where, stack, c_stack, python_stack */
	FIELD_SIGNED, /* i64: -1.50 GiB in tables */
	FIELD_DIFFERENCE, /* two i64 in a row: what the second has more than the first */
	FIELD_DURATION, /* u64 of ns: 3.2 s, a column only */
	FIELD_PAIR, /* two u64 in a row: 12/15, a column only */
	FIELD_OBJECT, /* a struct in the struct, with fields of its own */
};

struct field {
	const char *key; /* NULL: a column only */
	const char *title; /* NULL: no column */
	size_t offset;
	const struct field *of; /* FIELD_OBJECT */
	size_t known; /* offset of a bool, and 1: where it is false, null and "-"; 0: none */
	enum field_kind kind;
};

#define FIELD_AS(key_, kind_, type_, member_)                                                      \
	{                                                                                          \
		.key = key_, .kind = kind_, .offset = offsetof(type_, member_)                     \
	}
/* Its kind follows from the type of the member. */
#define FIELD(key_, type_, member_) FIELD_AS(key_, FIELD_KIND(type_, member_), type_, member_)
#define FIELD_KIND(type_, member_)                                                                 \
	_Generic(((type_ *)0)->member_, uint32_t                                                   \
		 : FIELD_U32, uint64_t                                                             \
		 : FIELD_U64, int64_t                                                              \
		 : FIELD_SIGNED, bool                                                              \
		 : FIELD_BOOL, double                                                              \
		 : FIELD_REAL, char *                                                              \
		 : FIELD_TEXT, const char *                                                        \
		 : FIELD_TEXT, struct block_pool *                                                 \
		 : FIELD_IN_POOL)
/* Up to 12 members whose names are their keys. */
#define FIELDS(type_, ...)                                                                         \
	FIELDS_PICK(__VA_ARGS__, FIELDS_12, FIELDS_11, FIELDS_10, FIELDS_9, FIELDS_8, FIELDS_7,    \
		    FIELDS_6, FIELDS_5, FIELDS_4, FIELDS_3, FIELDS_2, FIELDS_1)                    \
	(type_, __VA_ARGS__)
#define FIELDS_PICK(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, name_, ...) name_
#define FIELDS_1(t, m) FIELD(#m, t, m)
#define FIELDS_2(t, m, ...) FIELD(#m, t, m), FIELDS_1(t, __VA_ARGS__)
#define FIELDS_3(t, m, ...) FIELD(#m, t, m), FIELDS_2(t, __VA_ARGS__)
#define FIELDS_4(t, m, ...) FIELD(#m, t, m), FIELDS_3(t, __VA_ARGS__)
#define FIELDS_5(t, m, ...) FIELD(#m, t, m), FIELDS_4(t, __VA_ARGS__)
#define FIELDS_6(t, m, ...) FIELD(#m, t, m), FIELDS_5(t, __VA_ARGS__)
#define FIELDS_7(t, m, ...) FIELD(#m, t, m), FIELDS_6(t, __VA_ARGS__)
#define FIELDS_8(t, m, ...) FIELD(#m, t, m), FIELDS_7(t, __VA_ARGS__)
#define FIELDS_9(t, m, ...) FIELD(#m, t, m), FIELDS_8(t, __VA_ARGS__)
#define FIELDS_10(t, m, ...) FIELD(#m, t, m), FIELDS_9(t, __VA_ARGS__)
#define FIELDS_11(t, m, ...) FIELD(#m, t, m), FIELDS_10(t, __VA_ARGS__)
#define FIELDS_12(t, m, ...) FIELD(#m, t, m), FIELDS_11(t, __VA_ARGS__)

#define COLUMN(key_, title_, kind_, type_, member_)                                                \
	{                                                                                          \
		.key = key_, .title = title_, .kind = kind_, .offset = offsetof(type_, member_)    \
	}
#define KNOWN(key_, title_, kind_, type_, member_, known_)                                         \
	{                                                                                          \
		.key = key_, .title = title_, .kind = kind_, .offset = offsetof(type_, member_),   \
		.known = offsetof(type_, known_) + 1                                               \
	}
#define OBJECT(key_, fields_, type_, member_)                                                      \
	{                                                                                          \
		.key = key_, .kind = FIELD_OBJECT, .of = fields_,                                  \
		.offset = offsetof(type_, member_)                                                 \
	}

/* stacks may be NULL where no field is of a call stack. */
void fields_put(json_t *o, const struct field *fields, const void *from,
		const struct stacks *stacks);
json_t *fields_object(const struct field *fields, const void *from, const struct stacks *stacks);
/* A list of n structs of `size` bytes. */
json_t *fields_list(const struct field *fields, const void *list, size_t n, size_t size,
		    const struct stacks *stacks);

/* The same as a text table. */
struct field_table {
	const struct field *fields;
	unsigned text_columns, indent;
	const char *unknown; /* stands for what is not known; NULL: "-" */
};
void report_fields(const struct report *r, const struct field_table *table, const void *list,
		   size_t n, size_t size);

/* A list of n_ values; value_ has `i` from 0 on. */
#define PUT_LIST(o_, key_, n_, value_)                                                             \
	do {                                                                                       \
		json_t *list_ = json_array();                                                      \
		for (size_t i = 0; i < (n_); i++)                                                  \
			json_array_append_new(list_, value_);                                      \
		json_object_set_new(o_, key_, list_);                                              \
	} while (0)

/* --- members that many answers have --- */

void put_device(json_t *o, uint32_t device); /* "device": "0", "cpu" or "N/A" */
void put_pool(json_t *o, enum row_type type); /* "pool": "PTA", … */
void put_in_pool(json_t *o, const struct block_pool *pool); /* "pid", "device", "pool" */
/* "where": the function that names a call stack, or null. */
void put_where(json_t *o, const struct stacks *s, uint32_t stack);
/* The same; "stack", the frames worth showing in call order; "c_stack" and "python_stack", the lines
 * as recorded. */
void put_stack(json_t *o, const struct stacks *s, uint32_t stack);

#endif
