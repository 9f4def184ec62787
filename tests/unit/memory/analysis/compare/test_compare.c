/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Comparing two runs: which rows count, what their memory is, what is written and said. */
#include "memory/analysis/compare/compare.h"

#include <errno.h>
#include <jansson.h>

#include "base/fs.h"
#include "test.h"
#include "tmpdir.h"
#include "wire/record.h"

#define HEAD                                                                                       \
	",,,Base,Compare\n"                                                                        \
	"Event,Name,Device Id,Allocated Memory(byte),Allocated Memory(byte),Diff Memory(byte)\n"

static uint64_t clock_ns;

static struct row row_of(enum row_event event, enum row_type type, uint32_t device)
{
	struct row r = {.event = event, .type = type, .device = device};

	r.time_ns = ++clock_ns;
	r.id = clock_ns;
	return r;
}

static void op(struct compare *c, enum compare_side side, const char *name)
{
	struct row r = row_of(ROW_OP_LAUNCH, TYPE_ATEN_END, 0);

	r.name = name;
	r.name_len = strlen(name);
	compare_add(c, side, &r);
}

static void pool(struct compare *c, enum compare_side side, enum row_type type, uint64_t size)
{
	struct row r = row_of(ROW_MALLOC, type, 0);

	row_attr_number(&r, ATTR_ALLOCATION_ID, 7);
	row_attr_number(&r, ATTR_SIZE, size);
	compare_add(c, side, &r);
}

static const char *csv_of(const struct compare *c)
{
	static struct buf path, text;
	struct err err = {0};

	buf_clear(&path);
	buf_clear(&text);
	if (compare_csv(c, tmpfile_path("compare"), &path, &err) < 0 ||
	    fs_read_file(buf_str(&path), 1 << 20, &text, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	return buf_str(&text);
}

static const char *text_of(const struct compare *c)
{
	static struct buf text;

	buf_clear(&text);
	compare_text(c, 10, false, &text);
	return buf_str(&text);
}

/* The first paragraph as one line. */
static const char *answer_of(const struct compare *c)
{
	static char line[1024];

	snprintf(line, sizeof(line), "%s", text_of(c));
	char *end = strstr(line, "\n\n");
	if (end)
		*end = '\0';
	for (char *p = line; (p = strchr(p, '\n'));)
		*p = ' ';
	return line;
}

static void finish(struct compare *c)
{
	struct err err = {0};

	if (compare_finish(c, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
}

#define CHECK_HAS(text_, part_)                                                                    \
	do {                                                                                       \
		const char *t_ = (text_);                                                          \
		if (!strstr(t_, part_)) {                                                          \
			fprintf(stderr, "%s:%d: no \"%s\" in\n%s\n", __FILE__, __LINE__, part_,    \
				t_);                                                               \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

TEST(compare, memory_is_the_next_row_of_the_pool)
{
	struct compare *c = compare_new(COMPARE_OPERATORS);

	for (int side = 0; side < 2; side++) {
		pool(c, side, TYPE_PTA, 999); /* before every call */
		op(c, side, "add");
		op(c, side, "mul"); /* shares the row behind it */
		pool(c, side, TYPE_HAL, 111); /* not of the framework */
		pool(c, side, TYPE_ATB, 222);
		pool(c, side, TYPE_PTA, side ? 40 : 100);
		pool(c, side, TYPE_PTA, 5);
		op(c, side, "relu");
		pool(c, side, TYPE_PTA_WORKSPACE, side ? 70 : 7);
		op(c, side, "last"); /* nothing comes any more */
	}
	CHECK(!compare_unordered(c, COMPARE_BASE) && !compare_unordered(c, COMPARE_OTHER));
	finish(c);
	CHECK_STR(csv_of(c), HEAD "OP_LAUNCH,add,0,100,40,-60\n"
				  "OP_LAUNCH,mul,0,100,40,-60\n"
				  "OP_LAUNCH,relu,0,7,70,63\n"
				  "OP_LAUNCH,last,0,0,0,0\n");
	CHECK_INT(compare_differences(c), 3);
	CHECK_STR(answer_of(c), "The sequences are the same (4 operator calls), the memory is not. "
				"Of the calls in both, 3 use a different amount of memory (3 "
				"different names): compare has 57 B less in them.");
	compare_free(c);
}

TEST(compare, calls_of_one_side)
{
	struct compare *c = compare_new(COMPARE_OPERATORS);

	op(c, COMPARE_BASE, "a");
	pool(c, COMPARE_BASE, TYPE_PTA, 8);
	op(c, COMPARE_BASE, "b");
	op(c, COMPARE_BASE, "c");
	pool(c, COMPARE_BASE, TYPE_PTA, 16);
	op(c, COMPARE_OTHER, "a");
	pool(c, COMPARE_OTHER, TYPE_PTA, 8);
	op(c, COMPARE_OTHER, "c");
	pool(c, COMPARE_OTHER, TYPE_PTA, 16);
	op(c, COMPARE_OTHER, "d");
	pool(c, COMPARE_OTHER, TYPE_PTA, 32);
	finish(c);
	CHECK_STR(csv_of(c), HEAD "OP_LAUNCH,a,0,8,8,0\n"
				  "OP_LAUNCH,b,0,16,N/A,-16\n"
				  "OP_LAUNCH,c,0,16,16,0\n"
				  "OP_LAUNCH,d,0,N/A,32,32\n");
	CHECK_STR(answer_of(c),
		  "The sequences differ: 1 operator call only in base, 1 only in "
		  "compare, 2 in both. The calls in both use the same amount of memory.");
	CHECK_HAS(text_of(c), "Largest differences (2 of 2):");
	compare_free(c);
}

static struct row *at_device(struct row *r, uint32_t device)
{
	r->device = device;
	return r;
}

TEST(compare, devices_apart_and_in_order)
{
	static const uint32_t devices[] = {7, DEV_NONE, 0, DEV_HOST, 12};
	struct compare *c = compare_new(COMPARE_OPERATORS);

	for (int side = 0; side < 2; side++)
		for (int i = 0; i < 5; i++) {
			struct row r = row_of(ROW_OP_LAUNCH, TYPE_ATB_END, 0);

			r.name = "x";
			r.name_len = 1;
			if (side || devices[i] != 12)
				compare_add(c, side, at_device(&r, devices[i]));
		}
	finish(c);
	CHECK_STR(csv_of(c), HEAD "OP_LAUNCH,x,0,0,0,0\n"
				  "OP_LAUNCH,x,7,0,0,0\n"
				  "OP_LAUNCH,x,12,N/A,0,0\n");
	CHECK_HAS(text_of(c), "no rows of a framework's pool");
	compare_free(c);
}

static void kernel(struct compare *c, enum compare_side side, enum row_type type)
{
	struct row r = row_of(ROW_KERNEL_LAUNCH, type, 0);

	r.name = "k";
	r.name_len = 1;
	compare_add(c, side, &r);
}

TEST(compare, levels)
{
	for (unsigned level = 1; level <= 3; level++) {
		struct compare *c = compare_new(level);

		for (int side = 0; side < 2; side++) {
			op(c, side, "o");
			kernel(c, side, TYPE_KERNEL_LAUNCH);
			kernel(c, side, TYPE_KERNEL_EXECUTE_START);
			kernel(c, side, TYPE_KERNEL_START);
			kernel(c, side, TYPE_KERNEL_END);
			pool(c, side, TYPE_PTA, 3);
		}
		finish(c);
		const char *csv = csv_of(c);
		CHECK(!strstr(csv, "OP_LAUNCH,o,0,3,3,0\n") == !(level & COMPARE_OPERATORS));
		CHECK(!strstr(csv, "KERNEL_LAUNCH,k,0,3,3,0\n") == !(level & COMPARE_KERNELS));
		CHECK_INT(strlen(csv), strlen(HEAD) + (level & 1 ? 20 : 0) + (level & 2 ? 24 : 0));
		CHECK_INT(compare_differences(c), 0);
		CHECK_HAS(text_of(c), "Both are the same: ");
		compare_free(c);
	}
}

TEST(compare, names_that_need_care)
{
	static const char *const names[] = {"a,b", "say \"x\"", "two\nlines", "=1+1",	"-x,y",
					    "+",   "@SUM",	"",	      "bad\xff"};
	struct compare *c = compare_new(COMPARE_OPERATORS);

	for (int side = 0; side < 2; side++)
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			op(c, side, names[i]);
	finish(c);
	CHECK_STR(csv_of(c), HEAD "OP_LAUNCH,\"a,b\",0,0,0,0\n"
				  "OP_LAUNCH,\"say \"\"x\"\"\",0,0,0,0\n"
				  "OP_LAUNCH,\"two\nlines\",0,0,0,0\n"
				  "OP_LAUNCH,'=1+1,0,0,0,0\n"
				  "OP_LAUNCH,\"'-x,y\",0,0,0,0\n"
				  "OP_LAUNCH,'+,0,0,0,0\n"
				  "OP_LAUNCH,'@SUM,0,0,0,0\n"
				  "OP_LAUNCH,,0,0,0,0\n"
				  "OP_LAUNCH,bad\xef\xbf\xbd,0,0,0,0\n");
	compare_free(c);
}

TEST(compare, rows_that_go_back_in_time_are_sorted)
{
	struct compare *c = compare_new(COMPARE_OPERATORS);

	for (int pass = 0; pass < 2; pass++) {
		clock_ns = 100;
		op(c, COMPARE_BASE, "b");
		clock_ns = 103;
		pool(c, COMPARE_BASE, TYPE_PTA, 2); /* 104 */
		clock_ns = 50;
		op(c, COMPARE_BASE, "a");
		pool(c, COMPARE_BASE, TYPE_PTA, 1); /* 52 */
		if (pass)
			break;
		CHECK(compare_unordered(c, COMPARE_BASE));
		CHECK(!compare_unordered(c, COMPARE_OTHER));
		compare_restart(c, COMPARE_BASE);
	}
	CHECK(!compare_unordered(c, COMPARE_BASE));
	op(c, COMPARE_OTHER, "a");
	finish(c);
	CHECK_STR(csv_of(c), HEAD "OP_LAUNCH,a,0,1,0,-1\n"
				  "OP_LAUNCH,b,0,2,N/A,-2\n");
	CHECK_HAS(text_of(c), "The compare input has no rows of the PTA pool");
	compare_free(c);
}

/* Same time: the id decides; same id too: as they came. */
TEST(compare, order_of_equal_times)
{
	struct compare *c = compare_new(COMPARE_OPERATORS);
	static const struct {
		const char *name;
		uint64_t id;
	} rows[] = {{"c", 9}, {"a", 2}, {"b", 2}};

	compare_restart(c, COMPARE_BASE);
	for (int i = 0; i < 3; i++) {
		struct row r = row_of(ROW_OP_LAUNCH, TYPE_ATEN_END, 0);

		r.name = rows[i].name;
		r.name_len = 1;
		r.time_ns = 1000;
		r.id = rows[i].id;
		compare_add(c, COMPARE_BASE, &r);
	}
	finish(c);
	CHECK_STR(csv_of(c), HEAD "OP_LAUNCH,a,0,0,N/A,0\nOP_LAUNCH,b,0,0,N/A,0\n"
				  "OP_LAUNCH,c,0,0,N/A,0\n");
	CHECK_HAS(text_of(c), "The compare input has no operator rows at all.");
	compare_free(c);
}

static int fails(unsigned level, enum row_type base, enum row_type other, const char *say)
{
	struct compare *c = compare_new(level);
	struct err err = {0};

	op(c, COMPARE_BASE, "a");
	kernel(c, COMPARE_BASE, TYPE_KERNEL_LAUNCH);
	pool(c, COMPARE_BASE, base, 1);
	pool(c, COMPARE_OTHER, other, 1);
	int r = compare_finish(c, &err);
	CHECK_INT(r, err.code);
	CHECK_HAS(err.text, say);
	compare_free(c);
	return r;
}

TEST(compare, frameworks)
{
	CHECK_INT(fails(1, TYPE_PTA, TYPE_MINDSPORE, "both PTA and MindSpore"), -EBADMSG);
	CHECK_INT(fails(1, TYPE_MINDSPORE, TYPE_MINDSPORE, "compare with --level=kernel"),
		  -ENOTSUP);
	CHECK_INT(fails(2, TYPE_MINDSPORE, TYPE_MINDSPORE, ""), 0);
	CHECK_INT(fails(3, TYPE_MINDSPORE, TYPE_ATB, ""), 0);
	CHECK_INT(fails(1, TYPE_PTA, TYPE_ATB, ""), 0);
}

TEST(compare, atb_counts_where_it_is_alone)
{
	for (int with_pta = 0; with_pta < 2; with_pta++) {
		struct compare *c = compare_new(COMPARE_OPERATORS);

		for (int side = 0; side < 2; side++) {
			op(c, side, "a");
			pool(c, side, TYPE_ATB, 64);
			op(c, side, "b");
		}
		if (with_pta)
			pool(c, COMPARE_OTHER, TYPE_PTA, 5);
		finish(c);
		CHECK_STR(csv_of(c), with_pta ? HEAD "OP_LAUNCH,a,0,0,5,5\nOP_LAUNCH,b,0,0,5,5\n"
					      : HEAD
					     "OP_LAUNCH,a,0,64,64,0\nOP_LAUNCH,b,0,0,0,0\n");
		compare_free(c);
	}
}

TEST(compare, nothing_to_compare)
{
	struct compare *c = compare_new(COMPARE_OPERATORS);
	struct err err = {0};

	pool(c, COMPARE_BASE, TYPE_PTA, 5);
	CHECK_INT(compare_finish(c, &err), -ENODATA);
	CHECK_HAS(err.text, "neither input has an operator row");
	compare_free(c);
}

TEST(compare, sizes_at_the_edge_of_numbers)
{
	struct compare *c = compare_new(COMPARE_OPERATORS);

	for (int i = 0; i < 3; i++) {
		op(c, COMPARE_BASE, "a");
		pool(c, COMPARE_BASE, TYPE_PTA, UINT64_MAX);
		op(c, COMPARE_OTHER, "a");
		pool(c, COMPARE_OTHER, TYPE_PTA, 0);
	}
	finish(c);
	CHECK_HAS(csv_of(c), "OP_LAUNCH,a,0,9223372036854775807,0,-9223372036854775807\n");
	json_t *o = compare_json(c, 1);
	CHECK_INT(json_integer_value(json_object_get(json_object_get(o, "memory"), "diff_bytes")),
		  -INT64_MAX);
	json_decref(o);
	compare_free(c);
}

/* JSON with single quotes. */
static json_t *json_of(const char *text)
{
	char *copy = strdup(text);
	json_error_t e;

	for (char *p = copy; (p = strchr(p, '\'')); p++)
		*p = '"';
	json_t *o = json_loads(copy, 0, &e);
	if (!o)
		fprintf(stderr, "%s at %d\n", e.text, e.position);
	CHECK(o);
	free(copy);
	return o;
}

TEST(compare, json)
{
	struct compare *c = compare_new(COMPARE_OPERATORS);

	for (int i = 0; i < 100; i++) {
		char name[8];

		snprintf(name, sizeof(name), "op%d", i % 10);
		op(c, COMPARE_BASE, name);
		pool(c, COMPARE_BASE, TYPE_PTA, 10);
		op(c, COMPARE_OTHER, name);
		pool(c, COMPARE_OTHER, TYPE_PTA, i == 42 ? 1000 : i == 43 ? 1 : 10);
	}
	op(c, COMPARE_OTHER, "new");
	finish(c);
	json_t *o = compare_json(c, 2);
	json_t *want = json_of(
		"{'incomplete': null, 'lost': {"
		" 'base': {'events': 0, 'stacks': 0, 'damaged_bytes': 0, 'exact': true},"
		" 'compare': {'events': 0, 'stacks': 0, 'damaged_bytes': 0, 'exact': true}},"
		" 'identical': false, 'what': 'operator', 'framework': 'PTA',"
		" 'calls': {'base': 100, 'compare': 101, 'both': 100, 'only_base': 0,"
		"  'only_compare': 1, 'other_memory': 2},"
		" 'memory': {'base_bytes': 1000, 'compare_bytes': 1981, 'diff_bytes': 981,"
		"  'both_diff_bytes': 981},"
		" 'devices': [{'device': '0',"
		"  'calls': {'base': 100, 'compare': 101, 'both': 100, 'only_base': 0,"
		"   'only_compare': 1, 'other_memory': 2},"
		"  'memory': {'base_bytes': 1000, 'compare_bytes': 1981, 'diff_bytes': 981,"
		"   'both_diff_bytes': 981}}],"
		" 'names_total': 3, 'names': ["
		"  {'name': 'op2', 'calls': {'base': 10, 'compare': 10, 'both': 10,"
		"    'only_base': 0, 'only_compare': 0, 'other_memory': 1},"
		"   'memory': {'base_bytes': 100, 'compare_bytes': 1090, 'diff_bytes': 990,"
		"    'both_diff_bytes': 990}},"
		"  {'name': 'op3', 'calls': {'base': 10, 'compare': 10, 'both': 10,"
		"    'only_base': 0, 'only_compare': 0, 'other_memory': 1},"
		"   'memory': {'base_bytes': 100, 'compare_bytes': 91, 'diff_bytes': -9,"
		"    'both_diff_bytes': -9}}],"
		" 'differences_total': 3, 'differences': ["
		"  {'event': 'OP_LAUNCH', 'name': 'op2', 'device': '0', 'base_call': 43,"
		"   'compare_call': 43, 'base_bytes': 10, 'compare_bytes': 1000,"
		"   'diff_bytes': 990},"
		"  {'event': 'OP_LAUNCH', 'name': 'op3', 'device': '0', 'base_call': 44,"
		"   'compare_call': 44, 'base_bytes': 10, 'compare_bytes': 1,"
		"   'diff_bytes': -9}],"
		" 'notes': []}");
	if (!json_equal(o, want)) {
		fprintf(stderr, "got %s\nwant %s\n", json_dumps(o, 0), json_dumps(want, 0));
		exit(1);
	}
	json_decref(o);
	json_decref(want);
	compare_free(c);
}
