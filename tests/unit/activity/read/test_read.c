/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <fcntl.h>
#include <sqlite3.h>

#include "activity/files/activity.h"
#include "activity/read/read.h"
#include "activity_samples.h"
#include "base/mem.h"

struct got {
	struct activity list[64];
	unsigned n;
};

static int keep(void *arg, const struct activity *a)
{
	struct got *g = arg;

	CHECK(g->n < 64);
	g->list[g->n++] = *a;
	return 0;
}

static char *write_with(const struct activity_writer_ops *ops, const char *dir,
			const struct activity *list, unsigned n)
{
	static char path[512];
	const struct activity_closing c = {
		.end_ns = T0 + 9, .groups = "{\"g\":[\"\\n\"]}", .lost = 7};
	struct activity_writer *w = ops->open(dir, &origin, NULL);
	struct err err = {0};

	for (unsigned i = 0; i < n; i++)
		CHECK_INT(ops->put(w, &list[i], &err), 0);
	snprintf(path, sizeof(path), "%s", ops->path(w));
	CHECK_INT(ops->close(w, &c, &err), 0);
	return path;
}

static void check_same(const struct activity *a, const struct activity *b)
{
	CHECK_STR(a->name, b->name);
	CHECK_STR(a->detail, b->detail);
	CHECK_STR(a->more, b->more);
	CHECK(a->start_ns == b->start_ns && a->end_ns == b->end_ns);
	CHECK(a->correlation == b->correlation);
	CHECK(a->amount == b->amount && a->number == b->number);
	CHECK_INT(a->pid, b->pid);
	CHECK_INT(a->tid, b->tid);
	CHECK_INT(a->device, b->device);
	CHECK_INT(a->stream, b->stream);
	CHECK_INT(a->kind, b->kind);
	CHECK_INT(a->place, b->place);
	CHECK_INT(a->flag, b->flag);
	CHECK_INT(a->async, b->async);
	CHECK_INT(a->data_type, b->data_type);
}

static const struct activity *find(const struct got *g, const struct activity *like)
{
	for (unsigned i = 0; i < g->n; i++) {
		const struct activity *a = &g->list[i];

		if (a->kind == like->kind && a->place == like->place &&
		    a->correlation == like->correlation && a->start_ns == like->start_ns)
			return a;
	}
	fprintf(stderr, "nothing like kind %d\n", like->kind);
	exit(1);
}

/* What a DB does not keep: streams of collectives, and which calls were API and which NodeAPI. */
static void as_db(struct activity *a)
{
	if (a->kind == ACTIVITY_COMMUNICATION)
		a->stream = ACTIVITY_NOWHERE;
	if (a->kind == ACTIVITY_NODE_API)
		a->kind = ACTIVITY_API;
}

static void check_comes_back(const struct activity_writer_ops *ops, bool db)
{
	char *dir = activity_dir();
	struct activity a[ALL_KINDS];
	struct activity_about about = {0};
	struct got got = {0};
	struct err err = {0};

	all_kinds(a);
	char *path = write_with(ops, dir, a, ALL_KINDS);
	CHECK_INT(activity_read(path, keep, &got, &about, &err), 0);
	CHECK_INT(got.n, ALL_KINDS);
	for (unsigned i = 0; i < ALL_KINDS; i++) {
		if (db)
			as_db(&a[i]);
		check_same(find(&got, &a[i]), &a[i]);
	}
	CHECK_INT(about.pid, 4711);
	CHECK_INT(about.rank, 3);
	CHECK_INT(about.lost, 7);
	CHECK_INT(about.activities, ALL_KINDS);
	CHECK_STR(about.groups, "{\"g\":[\"\\n\"]}");
	CHECK_STR(about.format, ops->name);
	CHECK(!about.torn && !about.nameless);
	activity_about_release(&about);
	activity_dir_remove(dir);
}

TEST(activity_read, db_comes_back)
{
	check_comes_back(&activity_db, true);
}

TEST(activity_read, jsonl_comes_back)
{
	check_comes_back(&activity_jsonl, false);
}

TEST(activity_read, equal_texts_have_equal_pointers)
{
	char *dir = activity_dir();
	struct activity k[] = {kernel_of("same", 0), kernel_of("same", 1)};
	struct activity_about about = {0};
	struct got got = {0};

	CHECK_INT(activity_read(write_with(&activity_db, dir, k, 2), keep, &got, &about, NULL), 0);
	CHECK(got.list[0].name == got.list[1].name);
	activity_about_release(&about);
	activity_dir_remove(dir);
}

static void sql(const char *path, const char *text)
{
	char *why = NULL;
	sqlite3 *db;

	CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_exec(db, text, NULL, NULL, &why);
	CHECK_STR(why ? why : "", "");
	sqlite3_close(db);
}

/* As a killed msmonitor leaves it. */
TEST(activity_read, db_without_texts)
{
	char *dir = activity_dir();
	struct activity a[ALL_KINDS];
	struct activity_about about = {0};
	struct got got = {0};
	struct err err = {0};

	all_kinds(a);
	char *path = write_with(&activity_db, dir, a, ALL_KINDS);
	sql(path, "DROP TABLE STRING_IDS;DROP TABLE META_DATA;DROP TABLE SESSION_TIME_INFO;"
		  "DROP TABLE ACTIVITY_LOSS;DROP TABLE NPU_INFO;DROP TABLE HCCL");
	CHECK_INT(activity_read(path, keep, &got, &about, &err), 0);
	CHECK_INT(got.n, ALL_KINDS - 1);
	CHECK(about.nameless);
	CHECK(find(&got, &a[3])->name[0] == '#');
	CHECK_INT(find(&got, &a[1])->flag, ACTIVITY_MARK_START); /* still a mark */
	activity_about_release(&about);
	activity_dir_remove(dir);
}

/* Texts and infos in any order, as a hash table gave them. */
TEST(activity_read, db_in_disorder)
{
	char *dir = activity_dir();
	struct activity k[] = {kernel_of("first", 0), kernel_of("second", 1),
			       kernel_of("third", 2)};
	struct activity_about about = {0};
	struct got got = {0};
	struct err err = {0};
	char *path = write_with(&activity_db, dir, k, 3);

	sql(path, "CREATE TABLE s AS SELECT * FROM STRING_IDS ORDER BY value DESC;"
		  "DELETE FROM STRING_IDS;INSERT INTO STRING_IDS SELECT * FROM s;"
		  "CREATE TABLE c AS SELECT * FROM COMPUTE_TASK_INFO ORDER BY globalTaskId DESC;"
		  "DELETE FROM COMPUTE_TASK_INFO;INSERT INTO COMPUTE_TASK_INFO SELECT * FROM c");
	CHECK_INT(activity_read(path, keep, &got, &about, &err), 0);
	CHECK_INT(got.n, 3);
	for (unsigned i = 0; i < 3; i++)
		check_same(&got.list[i], &k[i]);
	activity_about_release(&about);
	activity_dir_remove(dir);
}

static void put_file(const char *path, const char *text, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0);
	CHECK_INT(write(fd, text, len), (ssize_t)len);
	close(fd);
}

#define KERNEL                                                                                     \
	"{\"correlationId\":1,\"deviceId\":0,\"endNs\":20,\"kind\":\"Kernel\",\"name\":\"k\","     \
	"\"startNs\":10,\"streamId\":2,\"type\":\"T\"}"

static int read_text(const char *text, struct got *got, struct activity_about *about,
		     struct err *err)
{
	char *dir = activity_dir();
	char *path = xasprintf("%s/x.jsonl", dir);

	*got = (struct got){0};
	*about = (struct activity_about){0};
	put_file(path, text, strlen(text));
	int r = activity_read(path, keep, got, about, err);
	free(path);
	activity_dir_remove(dir);
	return r;
}

TEST(activity_read, a_torn_last_line_is_no_error)
{
	struct activity_about about;
	struct got got;
	struct err err = {0};

	CHECK_INT(read_text(KERNEL "\n{\"correlationId\":1,\"dev", &got, &about, &err), 0);
	CHECK_INT(got.n, 1);
	CHECK(about.torn);
	CHECK_INT(read_text(KERNEL "\n" KERNEL, &got, &about, &err),
		  0); /* only its end is missing */
	CHECK_INT(got.n, 2);
	CHECK(!about.torn);
	CHECK_INT(read_text("", &got, &about, &err), 0);
	CHECK_INT(got.n, 0);
}

TEST(activity_read, lines_that_are_refused)
{
	static const char *const bad[] = {
		"{}",
		"[]",
		"x",
		"{\"kind\":\"Kernel\"}",
		"{\"kind\":7}",
		"{\"kind\":\"Kernel\",}",
		"{\"correlationId\":-1,\"deviceId\":0,\"endNs\":20,\"kind\":\"Kernel\",\"name\":"
		"\"k\",\"startNs\":10,\"streamId\":2,\"type\":\"T\"}",
		"{\"correlationId\":1,\"deviceId\":4294967296,\"endNs\":20,\"kind\":\"Kernel\","
		"\"name\":\"k\",\"startNs\":10,\"streamId\":2,\"type\":\"T\"}",
		"{\"correlationId\":18446744073709551616,\"deviceId\":0,\"endNs\":20,\"kind\":"
		"\"Kernel\",\"name\":\"k\",\"startNs\":10,\"streamId\":2,\"type\":\"T\"}",
		"{\"correlationId\":1.5,\"deviceId\":0,\"endNs\":20,\"kind\":\"Kernel\",\"name\":"
		"\"k\",\"startNs\":10,\"streamId\":2,\"type\":\"T\"}",
		KERNEL "x",
		KERNEL KERNEL,
		"{\"kind\":\"\\q\"}",
		"{\"kind\":\"\\u12g4\"}",
		"{\"kind\":\"a\tb\"}",
		"{\"kind\":\"x\",\"y\":01}",
		"{\"kind\":\"x\",\"y\":nul}",
		"{\"kind\":\"x\",\"y\":[1,2}",
		"{\"kind\":\"x\",\"y\":{\"a\"}}",
		"{\"kind\":\"x\",\"y\":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}",
	};
	struct activity_about about;
	struct got got;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *text = xasprintf(KERNEL "\n%s\n" KERNEL "\n", bad[i]);
		struct err err = {0};

		if (read_text(text, &got, &about, &err) != -EBADMSG)
			CHECK_STR(bad[i], "refused");
		CHECK(strstr(err.text, "line 2"));
		free(text);
	}
}

TEST(activity_read, lines_that_are_taken)
{
	struct activity_about about;
	struct got got;
	struct err err = {0};

	CHECK_INT(
		read_text("{ \"kind\" : \"Kernel\", \"new\": [1, {\"a\": null}, -2.5e3, true],"
			  "\"type\":\"\", \"streamId\":4294967295,\"startNs\":0,"
			  "\"name\":\"\\u00e4\\ud83d\\ude00\\ud800\\/\\n\","
			  "\"endNs\":18446744073709551615,\"deviceId\":0,\"correlationId\":0 }\r\n"
			  "\n"
			  "{\"kind\":\"of the future\",\"x\":1}\n"
			  "{\"kind\":\"rank_device_map\",\"rank\":5,\"device\":[0]}\n",
			  &got, &about, &err),
		0);
	CHECK_INT(got.n, 1);
	CHECK_STR(got.list[0].name, "\xc3\xa4\xf0\x9f\x98\x80\xef\xbf\xbd/\n");
	CHECK(got.list[0].end_ns == UINT64_MAX);
	CHECK_INT(got.list[0].stream, ACTIVITY_NOWHERE);
	CHECK_INT(about.skipped, 1);
	CHECK_INT(about.rank, 5);
}

TEST(activity_read, what_is_no_such_file)
{
	char *dir = activity_dir();
	char *path = xasprintf("%s/x.db", dir);
	struct activity_about about = {0};
	struct got got = {0};
	struct err err = {0};

	CHECK_INT(activity_read("/no/such/file", keep, &got, &about, &err), -ENOENT);
	CHECK_INT(activity_read(dir, keep, &got, &about, &err), -EISDIR);
	sql(path, "CREATE TABLE other(a)");
	CHECK_INT(activity_read(path, keep, &got, &about, &err), -EINVAL);
	CHECK(strstr(err.text, "none of their tables"));
	/* a view is no table */
	sql(path, "DROP TABLE other;CREATE VIEW TASK AS SELECT 1 AS startNs");
	CHECK_INT(activity_read(path, keep, &got, &about, &err), -EINVAL);
	sql(path, "DROP VIEW TASK;CREATE TABLE TASK(startNs INTEGER)");
	CHECK(activity_read(path, keep, &got, &about, &err) < 0);
	CHECK(strstr(err.text, "no such column"));
	char junk[8192];
	memset(junk, 'x', sizeof(junk));
	memcpy(junk, "SQLite format 3", 16);
	put_file(path, junk, sizeof(junk));
	CHECK(activity_read(path, keep, &got, &about, &err) < 0);
	free(path);
	activity_dir_remove(dir);
}

TEST(activity_read, what_is_of_another_kind_is_named_and_what_is_expected_too)
{
	static const struct {
		const char *name, *text;
		size_t len;
		const char *why;
	} cases[] = {
		{"x.db", "\x7f\xff\0\x01 bytes that nobody knows", 28, "begins like neither"},
		{"x.jsonl", "\x7f\xff\0\x01 and lines\n\n", 16, "begins like neither"},
		{"x.db", "hello", 5, "begins like neither"},
		{"x.jsonl", "hello", 5, "begins like neither"},
		{"x.txt", "some words\nand more of them\n", 28, "begins like neither"},
		{"x.json", "[1, 2]\n", 7, "begins like neither"},
		{"x.json", "{\n  \"a\": 1\n}\n", 13, "first line is no JSON object"},
		{"x.jsonl", "{\"a\": 1}\n{\"a\": 2}\n", 18, "with a \"kind\""},
		{"x.db", "", 0, "it is empty"},
		{"x", "", 0, "it is empty"},
	};
	char *dir = activity_dir();

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *path = xasprintf("%s/%s", dir, cases[i].name);
		char *says = xasprintf("'%s' is neither a DB nor Jsonl of activities: ", path);
		struct activity_about about = {0};
		struct got got = {0};
		struct err err = {0};

		put_file(path, cases[i].text, cases[i].len);
		CHECK_INT(activity_read(path, keep, &got, &about, &err), -EINVAL);
		if (strstr(err.text, says) != err.text || !strstr(err.text, cases[i].why))
			CHECK_STR(err.text, cases[i].why);
		CHECK(strstr(err.text, "*.db and *.jsonl, with --log-file"));
		activity_about_release(&about);
		unlink(path);
		free(says);
		free(path);
	}
	activity_dir_remove(dir);
}

static int stop(void *arg, const struct activity *a)
{
	(void)a;
	return ++*(int *)arg == 2 ? 42 : 0;
}

TEST(activity_read, the_reader_may_stop)
{
	char *dir = activity_dir();
	struct activity k[] = {kernel_of("a", 0), kernel_of("b", 1), kernel_of("c", 2)};
	struct activity_about about = {0};
	int n = 0;

	CHECK_INT(activity_read(write_with(&activity_db, dir, k, 3), stop, &n, &about, NULL), 42);
	CHECK_INT(n, 2);
	activity_about_release(&about);
	n = 0;
	CHECK_INT(activity_read(write_with(&activity_jsonl, dir, k, 3), stop, &n, &about, NULL),
		  42);
	CHECK_INT(n, 2);
	activity_about_release(&about);
	activity_dir_remove(dir);
}

TEST(activity_read, times_as_python_prints_them)
{
	static const struct {
		uint64_t ns;
		const char *text;
	} cases[] = {{0, "0.0"},
		     {1, "0.001"},
		     {1000, "1.0"},
		     {1234567, "1234.567"},
		     {1794723775692027470ull, "1794723775692027.5"},
		     {1794723775692000000ull, "1794723775692000.0"}};
	char text[32];

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		activity_us_text(cases[i].ns, text);
		CHECK_STR(text, cases[i].text);
	}
}
