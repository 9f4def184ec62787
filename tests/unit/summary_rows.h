/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Rows for the tests of summaries, and their text and JSON taken apart. */
#ifndef SONDE_TESTS_UNIT_SUMMARY_ROWS_H
#define SONDE_TESTS_UNIT_SUMMARY_ROWS_H

#include <jansson.h>

#include "memory/analysis/summary/summary.h"
#include "test.h"
#include "wire/record.h"

#define T0 1767225600000000000u
#define MS 1000000u
#define KIB 1024u
#define MIB (1024u * 1024u)

#define LEAK_STACK                                                                                 \
	"/opt/lib/libleaks_ascend_hal_hook.so(hook_halMemAlloc+0x41) [0x7f01]\n"                   \
	"/opt/lib/libascendcl.so(aclrtMalloc+0x12) [0x7f02]\n"                                     \
	"/opt/job/train(leak_one_buffer+0x20) [0x55aa] /opt/job/src/train.c:120\n"                 \
	"/opt/job/train(train_step+0x33) [0x55ab]\n"                                               \
	"/opt/job/train(main+0x33) [0x55ac]\n"                                                     \
	"/lib/x86_64-linux-gnu/libc.so.6(__libc_start_main+0x85) [0x7f03]\n"
#define OTHER_STACK "/opt/job/train(make_model+0x10) [0x55ad]\n"
#define PY_STACK                                                                                   \
	"/usr/lib/python3/dist-packages/torch/nn/module.py(50): __call__\n"                        \
	"/opt/job/train.py(17): forward\n/opt/job/train.py(90): main\n"

/* A block as the rows of a test name it. */
struct blk {
	uint32_t pid;
	uint32_t device;
	enum row_type type;
	uint64_t id;
	uint64_t bytes;
	const char *c_stack;
	const char *py_stack;
};

static inline struct row base_row(enum row_event event, enum row_type type, uint32_t pid,
				  uint64_t ms)
{
	return (struct row){
		.event = event, .type = type, .pid = pid, .tid = pid, .time_ns = T0 + ms * MS};
}

static inline void add(struct summary *s, enum row_event event, uint64_t ms, struct blk b,
		       bool shadow)
{
	struct row r = base_row(event, b.type, b.pid, ms);

	r.device = b.device;
	r.has_ptr = true;
	r.ptr = 0x1000 * b.id;
	row_attr_number(&r, ATTR_ALLOCATION_ID, b.id);
	row_attr_number(&r, ATTR_ADDR, r.ptr);
	row_attr_number(&r, ATTR_SIZE, b.bytes);
	if (shadow)
		row_attr_text(&r, ATTR_SHADOW, "true", 4);
	r.c_stack = b.c_stack;
	r.c_stack_len = b.c_stack ? strlen(b.c_stack) : 0;
	r.py_stack = b.py_stack;
	r.py_stack_len = b.py_stack ? strlen(b.py_stack) : 0;
	summary_add(s, &r);
}

static inline void take(struct summary *s, uint64_t ms, struct blk b)
{
	add(s, ROW_MALLOC, ms, b, false);
}

static inline void give(struct summary *s, uint64_t ms, struct blk b)
{
	b.c_stack = b.py_stack = NULL;
	add(s, ROW_FREE, ms, b, false);
}

static inline void end(struct summary *s, uint64_t ms, struct blk b)
{
	b.c_stack = b.py_stack = NULL;
	add(s, ROW_FREE, ms, b, true);
}

static inline void event(struct summary *s, enum row_event ev, enum row_type type, const char *name)
{
	struct row r = base_row(ev, type, 10, 5);

	r.name = name;
	r.name_len = name ? strlen(name) : 0;
	summary_add(s, &r);
}

static inline struct blk hal(uint64_t id, uint64_t bytes)
{
	return (struct blk){10, 0, TYPE_HAL, id, bytes, NULL, NULL};
}

static inline struct blk pta(uint64_t id, uint64_t bytes, const char *c_stack)
{
	return (struct blk){10, 0, TYPE_PTA, id, bytes, c_stack, NULL};
}

/* The text and the JSON of a summary; both live until the test ends. */
static inline const char *text_of(struct summary *s)
{
	static struct buf b;

	buf_clear(&b);
	summary_text(s, 10, false, &b);
	return buf_str(&b);
}

/* The first paragraph in one line. */
static inline const char *answer_of(struct summary *s)
{
	static char line[4096];
	const char *text = text_of(s);
	size_t len = (size_t)(strstr(text, "\n\n") - text);

	CHECK(len < sizeof(line));
	for (size_t i = 0; i < len; i++)
		line[i] = text[i] == '\n' ? ' ' : text[i];
	line[len] = '\0';
	return line;
}

static inline json_t *json_of(struct summary *s, unsigned top)
{
	struct buf b = {0};

	CHECK_INT(summary_json(s, top, &b), 0);
	json_t *o = json_loadb(b.data, b.len, 0, NULL);
	CHECK(o);
	buf_release(&b);
	return o;
}

/* The value at a path of keys and indexes: "processes.0.pid". */
static inline json_t *at(json_t *o, const char *path)
{
	char copy[128], *save = NULL;

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
#define POOL "processes.0.pools.0."

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
