/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/chrome_trace/chrome_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fs.h"
#include "test.h"
#include "tmpdir.h"

#define STRICT JSON_REJECT_DUPLICATES

static struct chrome_trace *open_trace(const struct chrome_trace_options *o)
{
	struct chrome_trace *t = NULL;
	struct err err = {0};

	if (chrome_trace_new(o, &t, &err) < 0)
		fprintf(stderr, "%s\n", err.text);
	CHECK(t);
	return t;
}

static struct buf content(const char *path)
{
	struct buf b = {0};

	CHECK_INT(fs_read_file(path, 1u << 30, &b, NULL), 0);
	return b;
}

/* The text with the one character that it may lack. */
static json_t *load_repaired(struct buf *b, bool *out_repaired)
{
	json_t *j = json_loadb(b->data, b->len, STRICT, NULL);

	*out_repaired = !j;
	if (!j) {
		buf_add_char(b, b->len && b->data[0] == '{' ? '}' : ']');
		j = json_loadb(b->data, b->len, STRICT, NULL);
	}
	return j;
}

static json_t *load(const char *path)
{
	json_error_t e;
	json_t *j = json_load_file(path, STRICT, &e);

	if (!j)
		fprintf(stderr, "%s: %s at %d\n", path, e.text, e.position);
	CHECK(j);
	return j;
}

static json_t *events_of(json_t *j)
{
	return json_is_array(j) ? j : json_object_get(j, "traceEvents");
}

static json_t *event_arg(json_t *event, const char *key)
{
	return json_object_get(json_object_get(event, "args"), key);
}

/* Some events of all lengths; the line counts up so that a hole would be seen. */
static void add_events(struct chrome_trace *t, unsigned from, unsigned n)
{
	char text[900];

	memset(text, 'x', sizeof(text));
	for (unsigned i = from; i < from + n; i++) {
		struct chrome_arg args[] = {
			{.key = "file", .type = CHROME_TEXT, .text = text + 900 - 1 - i * 7 % 450},
			{.key = "line", .type = CHROME_INT, .i = i},
		};

		text[899] = '\0';
		chrome_begin(t, i * 1000ll + 7, 41, 42, NULL, "step (app/train.py:7)", args, 2);
	}
}

static void check_count(json_t *list, unsigned n)
{
	CHECK_INT(json_array_size(list), n);
	for (unsigned i = 0; i < n; i++)
		CHECK_INT(json_integer_value(event_arg(json_array_get(list, i), "line")), i);
}

TEST(chrome_trace, is_an_array_while_it_grows_and_an_object_when_closed)
{
	const char *path = tmpfile_path("trace.json");
	struct chrome_trace *t = open_trace(&(struct chrome_trace_options){
		.path = path, .other_json = "\"sonde\":{\"clock\":\"monotonic\"}"});
	json_t *j = load(path);

	CHECK(json_is_array(j));
	CHECK_INT(json_array_size(j), 0);
	json_decref(j);
	for (unsigned i = 0; i < 200; i++) {
		add_events(t, i, 1);
		CHECK_INT(chrome_trace_flush(t, NULL), 0);
		j = load(path);
		check_count(j, i + 1);
		json_decref(j);
	}
	CHECK_INT(chrome_trace_events(t), 200);
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	j = load(path);
	check_count(events_of(j), 200);
	CHECK_STR(json_string_value(json_object_get(j, "displayTimeUnit")), "ms");
	CHECK(json_is_object(json_object_get(j, "sonde")));
	json_decref(j);
}

TEST(chrome_trace, one_writer_at_a_time)
{
	const char *path = tmpfile_path("trace.json");
	struct chrome_trace_options o = {.path = path};
	struct chrome_trace *t = open_trace(&o), *second = NULL;

	CHECK_INT(chrome_trace_new(&o, &second, NULL), -EBUSY);
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	CHECK_INT(chrome_trace_close(open_trace(&o), NULL), 0);
}

/* What is left of the old one is complete; the new one has what came after. */
TEST(chrome_trace, a_file_that_is_taken_away_is_begun_anew)
{
	const char *path = tmpfile_path("trace.json"), *away = tmpfile_path("away.json");
	struct chrome_trace *t = open_trace(&(struct chrome_trace_options){.path = path});

	add_events(t, 0, 3);
	CHECK_INT(chrome_trace_flush(t, NULL), 0);
	CHECK_INT(rename(path, away), 0);
	CHECK_INT(chrome_trace_flush(t, NULL), 0);
	json_t *j = load(away);
	CHECK(json_is_object(j));
	check_count(events_of(j), 3);
	json_decref(j);

	add_events(t, 0, 100);
	CHECK_INT(chrome_trace_flush(t, NULL), 0);
	CHECK_INT(truncate(path, 0), 0);
	CHECK_INT(chrome_trace_flush(t, NULL), 0);
	add_events(t, 0, 2);
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	j = load(path);
	check_count(events_of(j), 2);
	json_decref(j);
}

/* Somebody cuts it in the moment between our look at its size and our write. */
TEST(chrome_trace, a_file_that_is_cut_and_has_its_length_again)
{
	const char *path = tmpfile_path("trace.json");
	struct chrome_trace *t = open_trace(&(struct chrome_trace_options){.path = path});

	add_events(t, 0, 100);
	CHECK_INT(chrome_trace_flush(t, NULL), 0);
	CHECK_INT(truncate(path, 0), 0);
	CHECK_INT(truncate(path, 1 << 20), 0);
	CHECK_INT(chrome_trace_flush(t, NULL), 0);
	add_events(t, 0, 2);
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	json_t *j = load(path);
	check_count(events_of(j), 2);
	json_decref(j);
}

TEST(chrome_trace, no_event_crosses_a_page)
{
	const char *path = tmpfile_path("trace.json");
	struct chrome_trace *t = open_trace(&(struct chrome_trace_options){.path = path});
	bool repaired;

	add_events(t, 0, 800); /* flushes itself */
	CHECK_INT(chrome_trace_flush(t, NULL), 0);
	struct buf b = content(path);
	CHECK(b.len > 10 * 4096);
	for (size_t at = 4096; at < b.len; at += 4096) {
		struct buf part = {0};

		buf_add(&part, b.data, at);
		json_t *j = load_repaired(&part, &repaired);
		CHECK(j && repaired);
		json_decref(j);
		buf_release(&part);
	}
	buf_release(&b);
	CHECK_INT(chrome_trace_close(t, NULL), 0);
}

TEST(chrome_trace, every_kind_of_event)
{
	const char *path = tmpfile_path("trace.json");
	struct chrome_trace *t = open_trace(&(struct chrome_trace_options){.path = path});
	struct chrome_arg args[] = {
		{.key = "a", .type = CHROME_FLOAT, .f = 137438953472.0},
		{.key = "b", .type = CHROME_FLOAT, .f = -0.25},
		{.key = "c", .type = CHROME_FLOAT, .f = NAN},
		{.key = "d", .type = CHROME_FLOAT, .f = INFINITY},
		{.key = "e", .type = CHROME_INT, .i = INT64_MIN},
	};

	chrome_begin(t, 1234567, 1, 2, "c", "b", NULL, 0);
	chrome_end(t, -1500, 1, 2, "b", NULL, 0);
	chrome_complete(t, 0, 42, 1, 2, "kernel", "x", NULL, 0);
	chrome_instant(t, 1000, 1, 2, "i", NULL, 0);
	chrome_counter(t, 5, CHROME_PID_NPU, "npu_aicore_usage_rate", "3", args, 5);
	chrome_meta(t, 1, 2, "thread_name", args, 1);
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	struct buf b = content(path);
	const char *text = buf_str(&b);
	const char *const want[] = {
		"{\"name\":\"b\",\"ph\":\"B\",\"ts\":1234.567,\"cat\":\"c\",\"pid\":1,\"tid\":2}",
		"{\"name\":\"b\",\"ph\":\"E\",\"ts\":-1.500,\"pid\":1,\"tid\":2}",
		"{\"name\":\"x\",\"ph\":\"X\",\"ts\":0.000,\"dur\":0.042,\"cat\":\"kernel\",",
		"\"ph\":\"i\",\"ts\":1.000,\"s\":\"t\",\"cat\":\"cpu_instant_event\",",
		"{\"name\":\"npu_aicore_usage_rate\",\"ph\":\"C\",\"ts\":0.005,\"pid\":1000000000,",
		"\"tid\":0,\"id\":\"3\",\"args\":{\"a\":137438953472,\"b\":-0.25,\"e\":-92233720",
		"{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":2,\"args\":{\"a\":",
	};
	for (unsigned i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		if (!strstr(text, want[i]))
			fprintf(stderr, "not there: %s\n", want[i]);
		CHECK(strstr(text, want[i]));
	}
	buf_release(&b);
}

TEST(chrome_trace, texts_of_any_bytes)
{
	const char *path = tmpfile_path("trace.json");
	struct chrome_trace *t = open_trace(&(struct chrome_trace_options){.path = path});
	char bytes[256], longest[3000];

	for (unsigned i = 0; i < 255; i++)
		bytes[i] = (char)(i + 1);
	bytes[255] = '\0';
	/* many escapes, and many characters of three bytes: cut in the middle of one */
	for (unsigned i = 0; i + 1 < sizeof(longest); i++)
		longest[i] = i < 1500 ? '\x01' : "训"[i % 3];
	longest[sizeof(longest) - 1] = '\0';
	struct chrome_arg args[] = {
		{.key = "bytes", .type = CHROME_TEXT, .text = bytes},
		{.key = "long", .type = CHROME_TEXT, .text = longest + 1500},
		{.key = "escapes", .type = CHROME_TEXT, .text = longest},
		{.key = "four", .type = CHROME_TEXT, .text = longest},
		{.key = "five", .type = CHROME_TEXT, .text = longest},
		{.key = "six", .type = CHROME_TEXT, .text = longest},
		{.key = "seven", .type = CHROME_TEXT, .text = longest},
		{.key = "eight", .type = CHROME_TEXT, .text = longest},
		{.key = "nine", .type = CHROME_TEXT, .text = longest},
		{.key = "ten", .type = CHROME_TEXT, .text = longest},
	};
	unsigned n = sizeof(args) / sizeof(args[0]);
	chrome_begin(t, 0, 1, 1, NULL, "训练\"\\\n\t\x1f🚀", args, n);
	chrome_begin(t, 0, 1, 1, NULL, longest, args, n);
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	json_t *j = load(path);
	json_t *first = json_array_get(events_of(j), 0);
	CHECK_STR(json_string_value(json_object_get(first, "name")), "训练\"\\\n\t\x1f🚀");
	const char *got = json_string_value(event_arg(first, "bytes"));
	CHECK(!memcmp(got, bytes, 127));
	CHECK(!strncmp(got + 127, "\xef\xbf\xbd", 3));
	got = json_string_value(event_arg(first, "long"));
	CHECK(strlen(got) <= 410 && strlen(got) > 390);
	CHECK_STR(got + strlen(got) - 6, "训…");
	CHECK(event_arg(first, "eight"));
	CHECK(!event_arg(first, "ten"));
	got = json_string_value(json_object_get(json_array_get(events_of(j), 1), "name"));
	CHECK(strlen(got) > 300 && !strcmp(got + strlen(got) - 3, "…"));
	json_decref(j);
	struct buf b = content(path);
	CHECK(b.len <= 3 * 4096);
	buf_release(&b);
}

static struct buf unpacked(const char *path)
{
	gzFile z = gzopen(path, "rb");
	struct buf b = {0};
	int n;

	CHECK(z);
	while ((n = gzread(z, buf_room(&b, 65536), 65536)) > 0)
		b.len += (size_t)n;
	gzclose(z);
	return b;
}

TEST(chrome_trace, gzip_is_complete_between_writes)
{
	const char *path = tmpfile_path("trace.json.gz");
	struct chrome_trace *t = open_trace(&(struct chrome_trace_options){
		.path = path, .gzip = true, .other_json = "\"n\":1"});

	for (unsigned i = 0; i < 6; i++) {
		struct buf b = unpacked(path);
		json_t *j = json_loadb(b.data, b.len, STRICT, NULL);

		CHECK(j);
		/* What fills 64 KiB is written without a flush. */
		CHECK(json_array_size(events_of(j)) >= (i ? i * 1000 - 400 : 0));
		json_decref(j);
		buf_release(&b);
		add_events(t, i * 1000, 1000);
	}
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	struct buf b = unpacked(path);
	json_t *j = json_loadb(b.data, b.len, STRICT, NULL);
	check_count(events_of(j), 6000);
	CHECK_INT(json_integer_value(json_object_get(j, "n")), 1);
	json_decref(j);
	buf_release(&b);
}

struct rotating {
	unsigned begun, ended;
};

static void end_all(void *arg, struct chrome_trace *t)
{
	((struct rotating *)arg)->ended++;
	chrome_end(t, 0, 1, 1, "end", NULL, 0);
}

static void begin_all(void *arg, struct chrome_trace *t)
{
	((struct rotating *)arg)->begun++;
	chrome_begin(t, 0, 1, 1, NULL, "begin", NULL, 0);
}

static const char *name_of(json_t *list, size_t i)
{
	return json_string_value(json_object_get(json_array_get(list, i), "name"));
}

TEST(chrome_trace, rotates_complete_files_and_keeps_some)
{
	char path[PATH_MAX];
	struct rotating r = {0};
	struct chrome_trace_options o = {.path = path,
					 .rotate_bytes = 20000,
					 .keep = 2,
					 .before_rotate = end_all,
					 .on_rotate = begin_all,
					 .arg = &r};

	snprintf(path, sizeof(path), "%s/trace.json", tmpdir());
	/* of an earlier run; and names that are not of this family */
	close(open(tmpfile_path("trace.7.json"), O_CREAT | O_WRONLY, 0600));
	close(open(tmpfile_path("trace.20.jsonl"), O_CREAT | O_WRONLY, 0600));
	close(open(tmpfile_path("trace.x9.json"), O_CREAT | O_WRONLY, 0600));
	struct chrome_trace *t = open_trace(&o);
	while (r.begun < 4) {
		add_events(t, 0, 5);
		CHECK_INT(chrome_trace_flush(t, NULL), 0);
		json_decref(load(path));
	}
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	CHECK_INT(r.ended, 4);
	CHECK(access(tmpfile_path("trace.8.json"), F_OK) < 0);
	CHECK(access(tmpfile_path("trace.9.json"), F_OK) < 0);
	json_t *j = load(tmpfile_path("trace.11.json"));
	json_t *list = events_of(j);
	CHECK_STR(name_of(list, 0), "begin");
	CHECK_STR(name_of(list, json_array_size(list) - 1), "end");
	json_decref(j);
	json_decref(load(tmpfile_path("trace.10.json")));
	j = load(path);
	CHECK_INT(json_array_size(events_of(j)), 1);
	json_decref(j);
}

static void end_open(void *arg, struct chrome_trace *copy)
{
	(void)arg;
	for (unsigned i = 0; i < 100; i++)
		chrome_end(copy, 0, 1, 1, "end", NULL, 0);
}

static void check_copy(bool gzip)
{
	const char *path = tmpfile_path("trace.json"), *copy = tmpfile_path("copy.json");
	struct chrome_trace *t = open_trace(&(struct chrome_trace_options){
		.path = path, .gzip = gzip, .other_json = "\"n\":1"});

	for (unsigned i = 0; i < 5; i++) {
		add_events(t, i * 3000, 3000);
		CHECK_INT(chrome_trace_copy(t, copy, end_open, NULL, NULL), 0);
		add_events(t, 0, 1); /* goes on meanwhile */
		CHECK_INT(chrome_trace_copy_wait(t, NULL), 0);
		struct buf b = gzip ? unpacked(copy) : content(copy);
		json_t *j = json_loadb(b.data, b.len, STRICT, NULL);
		CHECK(j);
		CHECK_INT(json_array_size(events_of(j)), (i + 1) * 3000 + i + 100);
		CHECK_STR(name_of(events_of(j), (i + 1) * 3000 + i), "end");
		CHECK_INT(json_integer_value(json_object_get(j, "n")), 1);
		json_decref(j);
		buf_release(&b);
	}
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	CHECK(access(copy, F_OK) == 0);
	struct buf b = gzip ? unpacked(path) : content(path);
	json_t *j = json_loadb(b.data, b.len, STRICT, NULL);
	CHECK_INT(json_array_size(events_of(j)), 15005);
	json_decref(j);
	buf_release(&b);
}

TEST(chrome_trace, copies_that_are_complete)
{
	check_copy(false);
}

TEST(chrome_trace, copies_that_are_complete_gzip)
{
	check_copy(true);
}

TEST(chrome_trace, a_copy_to_its_own_path_is_a_flush)
{
	const char *path = tmpfile_path("trace.json");
	struct chrome_trace *t = open_trace(&(struct chrome_trace_options){.path = path});

	add_events(t, 0, 10);
	CHECK_INT(chrome_trace_copy(t, path, end_open, NULL, NULL), 0);
	json_t *j = load(path);
	check_count(j, 10);
	json_decref(j);
	add_events(t, 10, 10);
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	j = load(path);
	check_count(events_of(j), 20);
	json_decref(j);
}

TEST(chrome_trace, several_copies_at_once)
{
	struct chrome_trace *t =
		open_trace(&(struct chrome_trace_options){.path = tmpfile_path("trace.json")});
	struct err err = {0};
	char path[PATH_MAX];
	int again = 0;

	add_events(t, 0, 20000);
	for (unsigned i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/copy%u.json", tmpdir(), i);
		CHECK_INT(chrome_trace_copy(t, path, NULL, NULL, &err), 0);
		again = chrome_trace_copy(t, path, NULL, NULL, &err);
		CHECK(again == 0 || again == -EBUSY);
	}
	CHECK_INT(chrome_trace_close(t, &err), 0);
	for (unsigned i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/copy%u.json", tmpdir(), i);
		json_t *j = load(path);
		check_count(events_of(j), 20000);
		json_decref(j);
	}
}

TEST(chrome_trace, errors_of_a_copy_are_told)
{
	struct chrome_trace *t =
		open_trace(&(struct chrome_trace_options){.path = tmpfile_path("trace.json")});
	struct err err = {0};

	CHECK_INT(chrome_trace_copy(t, tmpfile_path("no/where.json"), NULL, NULL, &err), -ENOENT);
	CHECK(strstr(err.text, "where.json"));
	CHECK_INT(chrome_trace_close(t, NULL), 0);
}

/* A limit of the size of files is the full disk that every machine has. */
static void limit_file(rlim_t bytes)
{
	struct rlimit l = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};

	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &l), 0);
}

static void check_full(bool gzip)
{
	const char *path = tmpfile_path("trace.json");
	struct chrome_trace *t =
		open_trace(&(struct chrome_trace_options){.path = path, .gzip = gzip});
	struct err err = {0};
	unsigned n = 0;

	limit_file(gzip ? 9000 : 30000);
	while (chrome_trace_flush(t, &err) == 0 && n < 100000) {
		add_events(t, n, 37);
		n += 37;
	}
	CHECK_INT(err.code, -EFBIG);
	CHECK(strstr(err.text, path));
	struct buf b = gzip ? unpacked(path) : content(path);
	json_t *j = json_loadb(b.data, b.len, STRICT, NULL);
	CHECK(j);
	CHECK(json_array_size(events_of(j)) < n);
	json_decref(j);
	buf_release(&b);
	CHECK_INT(chrome_trace_flush(t, &err), -EFBIG);
	/* Room again: nothing was lost. */
	limit_file(RLIM_INFINITY);
	CHECK_INT(chrome_trace_flush(t, &err), 0);
	CHECK_INT(chrome_trace_close(t, &err), 0);
	b = gzip ? unpacked(path) : content(path);
	j = json_loadb(b.data, b.len, STRICT, NULL);
	check_count(events_of(j), n);
	json_decref(j);
	buf_release(&b);
}

TEST(chrome_trace, a_full_disk_leaves_a_valid_file)
{
	check_full(false);
}

TEST(chrome_trace, a_full_disk_leaves_a_valid_file_gzip)
{
	check_full(true);
}

TEST(chrome_trace, a_disk_that_stays_full_costs_events_not_memory)
{
	const char *path = tmpfile_path("trace.json");
	struct chrome_trace *t = open_trace(&(struct chrome_trace_options){.path = path});
	struct err err = {0};

	add_events(t, 0, 60);
	CHECK_INT(chrome_trace_flush(t, &err), 0);
	limit_file(50000);
	add_events(t, 0, 20000);
	CHECK_INT(chrome_trace_flush(t, &err), -EFBIG);
	CHECK(chrome_trace_bytes(t) < (2u << 20));
	CHECK_INT(chrome_trace_close(t, &err), -EFBIG);
	limit_file(RLIM_INFINITY);
	json_t *j = load(path);
	check_count(events_of(j), 60);
	json_decref(j);
}

TEST(chrome_trace, an_existing_file_is_replaced_in_one_step)
{
	const char *path = tmpfile_path("trace.json"), *link = tmpfile_path("link.json");
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	struct err err = {0};
	struct chrome_trace *t = NULL;
	struct stat st;

	CHECK(write(fd, "old", 3) == 3);
	close(fd);
	CHECK_INT(symlink(path, link), 0);
	t = open_trace(&(struct chrome_trace_options){.path = link});
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	CHECK(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
	json_decref(load(path));
	CHECK_INT(chrome_trace_new(&(struct chrome_trace_options){.path = tmpdir()}, &t, &err),
		  -EISDIR);
	CHECK_INT(chrome_trace_new(&(struct chrome_trace_options){.path = "/no/where"}, &t, &err),
		  -ENOENT);
	t = open_trace(&(struct chrome_trace_options){.path = "/dev/null"});
	add_events(t, 0, 10000);
	CHECK_INT(chrome_trace_close(t, NULL), 0);
}

TEST(chrome_trace, much_other_data_is_never_half_there)
{
	const char *path = tmpfile_path("trace.json");
	struct buf other = {0};

	buf_add_str(&other, "\"big\":[0");
	for (unsigned i = 0; i < 9000; i++)
		buf_addf(&other, ",%u", i);
	buf_add_char(&other, ']');
	struct chrome_trace *t = open_trace(
		&(struct chrome_trace_options){.path = path, .other_json = buf_str(&other)});
	add_events(t, 0, 100);
	CHECK_INT(chrome_trace_close(t, NULL), 0);
	json_t *j = load(path);
	check_count(events_of(j), 100);
	CHECK_INT(json_array_size(json_object_get(j, "big")), 9001);
	json_decref(j);
	buf_release(&other);
}

/* A writer that never stops: flushes now and then, closes and begins again. */
static void write_for_ever(const char *path)
{
	char other[3000];

	memset(other, ' ', sizeof(other));
	memcpy(other, "\"n\":1", 5);
	for (unsigned round = 0;; round++) {
		other[5 + round * 97 % 2900] = '\0';
		struct chrome_trace_options o = {.path = path, .other_json = other};
		struct chrome_trace *t = open_trace(&o);

		for (unsigned i = 0; i < 40 + round % 300; i++) {
			add_events(t, i * 20, 20);
			if (i % 3)
				chrome_trace_flush(t, NULL);
		}
		chrome_trace_close(t, NULL);
		memset(other + 5, ' ', sizeof(other) - 5);
	}
}

TEST(chrome_trace, killed_at_any_moment)
{
	unsigned kills = getenv("SOAK") ? 400 : 40, repaired = 0, arrays = 0;
	const char *path = tmpfile_path("trace.json");

	srand(7);
	for (unsigned i = 0; i < kills; i++) {
		int go[2], status;
		bool needed;
		char c;

		CHECK_INT(pipe(go), 0);
		pid_t pid = fork();
		if (pid == 0) {
			struct chrome_trace_options o = {.path = path};

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			chrome_trace_close(open_trace(&o), NULL);
			CHECK(write(go[1], "", 1) == 1);
			write_for_ever(path);
		}
		close(go[1]);
		CHECK(read(go[0], &c, 1) == 1);
		usleep((useconds_t)(rand() % 15000));
		CHECK_INT(kill(pid, SIGKILL), 0);
		CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
		close(go[0]);
		struct buf b = content(path);
		json_t *j = load_repaired(&b, &needed);
		CHECK(j);
		json_t *list = events_of(j);
		check_count(list, (unsigned)json_array_size(list));
		repaired += needed;
		arrays += json_is_array(j);
		json_decref(j);
		buf_release(&b);
	}
	CHECK(arrays > 0);
	printf("%u kills: %u arrays, %u files lacked one character\n", kills, arrays, repaired);
}
