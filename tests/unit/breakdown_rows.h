/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Rows for the tests of owners and peaks, and their answers taken apart. */
#ifndef SONDE_TESTS_UNIT_BREAKDOWN_ROWS_H
#define SONDE_TESTS_UNIT_BREAKDOWN_ROWS_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "memory/analysis/common/analysis.h"
#include "test.h"
#include "wire/record.h"

#define T0 1767225600000000000u
#define MS 1000000u

/* A block as a row has it; pid 10 and device 0 unless said. */
struct blk {
	enum row_type type;
	uint64_t id, ptr, bytes;
	const char *owner;
	uint64_t reserved; /* of its pool */
	const char *c_stack;
	uint32_t pid, device;
	bool shadow, created;
};

#define BLK_INIT(type_, id_, ptr_, bytes_, owner_, ...)                                            \
	{                                                                                          \
		.type = (type_), .id = (id_), .ptr = (ptr_), .bytes = (bytes_), .owner = (owner_), \
		__VA_ARGS__                                                                        \
	}
#define BLK(...) ((struct blk)BLK_INIT(__VA_ARGS__))

static inline struct row base_row(enum row_event event, enum row_type type, uint32_t pid,
				  uint64_t ms)
{
	return (struct row){.event = event,
			    .type = type,
			    .pid = pid ? pid : 10,
			    .tid = 1,
			    .device = DEV_NONE,
			    .time_ns = T0 + ms * MS};
}

static inline void put_row(struct analysis *a, enum row_event event, uint64_t ms, struct blk b)
{
	struct row r = base_row(event, b.type, b.pid, ms);

	r.device = b.device;
	r.has_ptr = true;
	r.ptr = b.ptr;
	row_attr_number(&r, ATTR_ALLOCATION_ID, b.id);
	row_attr_number(&r, ATTR_SIZE, b.bytes);
	if (b.reserved)
		row_attr_number(&r, ATTR_TOTAL, b.reserved);
	if (b.shadow)
		row_attr_text(&r, ATTR_SHADOW, "true", 4);
	if (b.owner)
		row_attr_text(&r, ATTR_OWNER, b.owner, strlen(b.owner));
	if (b.created)
		row_attr_text(&r, ATTR_ALLOC_TYPE, "create", 6);
	if (event == ROW_MALLOC && b.c_stack) {
		r.c_stack = b.c_stack;
		r.c_stack_len = strlen(b.c_stack);
	}
	a->ops->row(a, &r);
}

static inline void take(struct analysis *a, uint64_t ms, struct blk b)
{
	put_row(a, ROW_MALLOC, ms, b);
}

/* owner: as the FREE row has it. */
static inline void give(struct analysis *a, uint64_t ms, struct blk b, const char *owner)
{
	b.owner = owner;
	put_row(a, ROW_FREE, ms, b);
}

static inline void left(struct analysis *a, uint64_t ms, struct blk b)
{
	b.owner = NULL;
	b.shadow = true;
	put_row(a, ROW_FREE, ms, b);
}

static inline void step_begins(struct analysis *a, uint64_t ms, uint64_t range)
{
	struct row r = base_row(ROW_MSTX, TYPE_RANGE_START, 0, ms);

	r.name = "step start";
	r.name_len = strlen(r.name);
	r.range = range;
	a->ops->row(a, &r);
}

static inline void step_ends(struct analysis *a, uint64_t ms, uint64_t range)
{
	struct row r = base_row(ROW_MSTX, TYPE_RANGE_END, 0, ms);

	r.range = range;
	a->ops->row(a, &r);
}

static inline void step_call(struct analysis *a, uint64_t ms, const char *number)
{
	struct row r = base_row(ROW_SYSTEM, TYPE_STEP, 0, ms);

	r.name = number;
	r.name_len = strlen(number);
	a->ops->row(a, &r);
}

/* The first paragraph in one line, and the whole text. */
static inline const char *text_of(struct analysis *a)
{
	static struct buf b;
	struct analysis_style style = {.top = 10};

	buf_clear(&b);
	a->ops->text(a, &style, &b);
	return buf_str(&b);
}

static inline const char *answer_of(struct analysis *a)
{
	static char line[4096];
	const char *text = text_of(a), *end = strstr(text, "\n\n");
	size_t len = end ? (size_t)(end - text) : strlen(text);

	CHECK(len < sizeof(line));
	for (size_t i = 0; i < len; i++)
		line[i] = text[i] == '\n' ? ' ' : text[i];
	line[len] = '\0';
	return line;
}

/* The value at a path of keys and indexes: "devices.0.pid". */
static inline json_t *at(json_t *o, const char *path)
{
	char copy[256], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *k = strtok_r(copy, ".", &save); k; k = strtok_r(NULL, ".", &save)) {
		o = json_is_array(o) ? json_array_get(o, (size_t)atoi(k)) : json_object_get(o, k);
		if (!o) {
			fprintf(stderr, "no '%s' of '%s'\n", k, path);
			exit(1);
		}
	}
	return o;
}

#define NUM(o, path) json_integer_value(at(o, path))
#define STR(o, path) json_string_value(at(o, path))

static inline void flatten(json_t *list, struct buf *out)
{
	size_t i;
	json_t *n;

	json_array_foreach(list, i, n)
	{
		long long own = json_integer_value(json_object_get(n, "own_bytes"));
		if (own)
			buf_addf(out, "%s%s%s %lld", out->len ? ", " : "",
				 json_string_value(json_object_get(n, "owner")),
				 json_is_true(json_object_get(n, "free")) ? " free" : "", own);
		flatten(json_object_get(n, "below"), out);
	}
}

/* "PTA@weight 300, PTA free 900": bytes of their own, in the order of the tree. */
static inline const char *owners_of(struct analysis *a, size_t device)
{
	static struct buf b;
	json_t *o = a->ops->json(a, 1000);
	json_t *d = json_array_get(json_object_get(o, "devices"), device);

	CHECK(d);
	buf_clear(&b);
	flatten(json_object_get(d, "owners"), &b);
	json_decref(o);
	return buf_str(&b);
}

#define CHECK_HAS(text, part)                                                                      \
	do {                                                                                       \
		if (!strstr(text, part)) {                                                         \
			fprintf(stderr, "%s:%d: no \"%s\" in:\n%s\n", __FILE__, __LINE__, part,    \
				text);                                                             \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define CHECK_LACKS(text, part) CHECK(!strstr(text, part))

#endif
