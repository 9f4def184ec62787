/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>

#include "activity/read/read.h"
#include "activity_samples.h"
#include "base/fs.h"
#include "base/mem.h"

static const struct activity_closing closing = {.end_ns = T0 + 1000,
						.groups = "{\"group_name_0\":{}}"};

static const char *content(const char *path)
{
	static struct buf text;

	buf_clear(&text);
	CHECK_INT(fs_read_file(path, 64 << 20, &text, NULL), 0);
	return buf_str(&text);
}

static char *write_all(const char *dir, const struct activity *list, unsigned n,
		       const struct activity_closing *c)
{
	static char path[512];
	struct activity_writer *w = activity_jsonl.open(dir, &origin, NULL);
	struct err err = {0};

	for (unsigned i = 0; i < n; i++)
		CHECK_INT(activity_jsonl.put(w, &list[i], &err), 0);
	snprintf(path, sizeof(path), "%s", activity_jsonl.path(w));
	CHECK_INT(activity_jsonl.close(w, c, &err), 0);
	return path;
}

static int ignore(void *arg, const struct activity *a)
{
	(void)arg;
	(void)a;
	return 0;
}

TEST(activity_jsonl, lines_are_those_of_the_tool)
{
	char *dir = activity_dir();
	struct activity a[ALL_KINDS];

	all_kinds(a);
	struct activity known[] = {a[3], a[4], a[8], a[0], a[1]};
	CHECK_STR(content(write_all(dir, known, 5, &closing)),
		  "{\"correlationId\":103,\"deviceId\":1,\"endNs\":1794723775000000510,\"kind\":"
		  "\"Kernel\",\"name\":\"MatMul_1\",\"startNs\":1794723775000000010,\"streamId\":2,"
		  "\"type\":\"KERNEL_AICORE\"}\n"
		  "{\"correlationId\":103,\"endNs\":1794723775000000501,\"kind\":\"API\",\"name\":"
		  "\"aclnnMatmul\",\"processId\":4711,\"startNs\":1794723775000000001,"
		  "\"threadId\":88}\n"
		  "{\"algType\":\"RING\",\"commName\":\"group_name_0\",\"correlationId\":55,"
		  "\"count\":1024,\"dataType\":\"FP32\",\"deviceId\":1,\"endNs\":"
		  "1794723775000000500,\"kind\":\"Communication\",\"name\":\"hcom_allReduce_\","
		  "\"startNs\":1794723775000000000,\"streamId\":9}\n"
		  "{\"domain\":\"default\",\"endNs\":1794723775000000500,\"id\":10,\"kind\":"
		  "\"Marker\",\"name\":\"step 1\",\"processId\":4711,\"sourceKind\":\"Host\","
		  "\"startNs\":1794723775000000000,\"threadId\":88}\n"
		  "{\"deviceId\":1,\"domain\":\"default\",\"endNs\":1794723775000000500,\"id\":10,"
		  "\"kind\":\"Marker\",\"name\":\"step 1\",\"sourceKind\":\"Device\",\"startNs\":"
		  "1794723775000000000,\"streamId\":2}\n"
		  "{\"kind\":\"parallel_group_info\",\"value\":\"{\\\"group_name_0\\\":{}}\"}\n"
		  "{\"device\":[1],\"kind\":\"rank_device_map\",\"rank\":3}\n");
	CHECK_INT(activity_dir_remove(dir), 1);
}

/* Keys in the order of the alphabet, numbers exact, every line an object. */
TEST(activity_jsonl, every_kind_has_a_line)
{
	char *dir = activity_dir();
	struct activity a[ALL_KINDS];
	unsigned lines = 0;

	all_kinds(a);
	a[12].correlation = INT64_MAX;
	const char *text = content(write_all(dir, a, ALL_KINDS, NULL));
	for (const char *p = text; *p; lines++) {
		size_t n = strcspn(p, "\n");
		json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);
		json_t *value;
		const char *key, *before = "";

		CHECK(json_is_object(o));
		json_object_foreach(o, key, value)
		{
			CHECK(strcmp(before, key) < 0);
			before = key;
		}
		json_decref(o);
		p += n + 1;
	}
	CHECK_INT(lines, ALL_KINDS);
	CHECK(strstr(text, "{\"async\":false,\"bytes\":1048576,\"copyKind\":\"HtoD\","
			   "\"correlationId\":9223372036854775807,"));
	CHECK(strstr(text, "{\"address\":139637976731648,\"bytes\":4096,"));
	CHECK(strstr(text, "\"operation\":\"release\""));
	CHECK(strstr(text, "\"value\":255}"));
	activity_dir_remove(dir);
}

TEST(activity_jsonl, nothing_is_written_without_an_activity)
{
	char *dir = activity_dir();
	struct activity_writer *w = activity_jsonl.open(dir, &origin, NULL);

	CHECK_STR(activity_jsonl.path(w), "");
	CHECK_INT(activity_jsonl.flush(w, NULL), 0);
	CHECK_INT(activity_jsonl.close(w, &closing, NULL), 0);
	CHECK_INT(activity_dir_remove(dir), 0);
}

TEST(activity_jsonl, ill_formed_texts)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("a\xff\"\\\n\x01", 0);

	CHECK(strstr(content(write_all(dir, &k, 1, NULL)),
		     "\"name\":\"a\xef\xbf\xbd\\\"\\\\\\n\\u0001\""));
	activity_dir_remove(dir);
}

TEST(activity_jsonl, loss_is_told)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("k", 0);
	const struct activity_closing lossy = {.end_ns = T0, .lost = 42};

	CHECK(strstr(content(write_all(dir, &k, 1, &lossy)), "{\"kind\":\"loss\",\"lost\":42}\n"));
	activity_dir_remove(dir);
}

/* Names in a directory, sorted. */
static int list(const char *dir, char names[][256], int max)
{
	struct dirent **found;
	int n = scandir(dir, &found, NULL, alphasort), out = 0;

	for (int i = 0; i < n; i++) {
		if (found[i]->d_name[0] != '.') {
			CHECK(out < max);
			snprintf(names[out++], 256, "%s", found[i]->d_name);
		}
		free(found[i]);
	}
	free(found);
	return out;
}

static void rotate(const char *dir, const struct activity_options *o, int lines)
{
	struct activity_writer *w = activity_jsonl.open(dir, &origin, o);
	struct activity k = kernel_of("k", 0);
	const struct activity_closing c = {.end_ns = T0};

	for (int i = 0; i < lines; i++) {
		k.correlation = (uint64_t)i;
		CHECK_INT(activity_jsonl.put(w, &k, NULL), 0);
	}
	CHECK_INT(activity_jsonl.close(w, &c, NULL), 0);
}

static int lines_of(const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	int n = 0;

	for (const char *p = content(path); (p = strchr(p, '\n')); p++)
		n++;
	free(path);
	return n;
}

TEST(activity_jsonl, rotates_by_lines)
{
	char *dir = activity_dir();
	const struct activity_options o = {.lines_per_file = 150};
	char names[16][256];

	rotate(dir, &o, 1000);
	CHECK_INT(list(dir, names, 16), 7); /* 1000 and the map of devices */
	for (int i = 0; i < 6; i++) {
		CHECK_INT(lines_of(dir, names[i]), 150);
		CHECK(strcmp(names[i], names[i + 1]) < 0);
	}
	CHECK_INT(lines_of(dir, names[6]), 101);
	activity_dir_remove(dir);
}

TEST(activity_jsonl, keeps_so_many_files)
{
	char *dir = activity_dir();
	const struct activity_options o = {.lines_per_file = 100, .files = 2};
	char names[16][256], path[512];

	snprintf(path, sizeof(path), "%s/msmonitor_1_20200101000000000_0.jsonl", dir);
	close(open(path, O_CREAT | O_WRONLY, 0600)); /* somebody else's stays */
	rotate(dir, &o, 950);
	CHECK_INT(list(dir, names, 16), 3);
	CHECK_STR(names[0], "msmonitor_1_20200101000000000_0.jsonl");
	CHECK_INT(lines_of(dir, names[1]), 100);
	CHECK_INT(lines_of(dir, names[2]), 52); /* with the map of devices and what was removed */
	snprintf(path, sizeof(path), "%s/%s", dir, names[1]);
	CHECK(strstr(content(path), "\"correlationId\":800,"));
	CHECK(!strstr(content(path), "rotatedFiles"));
	snprintf(path, sizeof(path), "%s/%s", dir, names[2]);
	CHECK(strstr(content(path), "{\"kind\":\"loss\",\"lost\":0,\"rotatedFiles\":8}\n"));
	activity_dir_remove(dir);
}

static int files_of(int lines, const char *env_lines, const char *env_files,
		    const struct activity_options *o)
{
	char *dir = activity_dir();

	setenv("MSMONITOR_JSONL_ROTATE_LOG_LINES", env_lines, 1);
	setenv("MSMONITOR_JSONL_ROTATE_LOG_FILES", env_files, 1);
	rotate(dir, o, lines - 1); /* and one at the end */
	return activity_dir_remove(dir);
}

TEST(activity_jsonl, settings_of_the_environment)
{
	const struct activity_options small = {.lines_per_file = 50};
	const struct activity_options three = {.lines_per_file = 100, .files = 3};
	const struct activity_options everything = {.lines_per_file = 100, .files = -1};

	CHECK_INT(files_of(1000, "200", "-1", NULL), 5);
	CHECK_INT(files_of(1000, "200", "3", NULL), 3);
	CHECK_INT(files_of(1000, "7", "-1", NULL), 10); /* clamped to 100 */
	CHECK_INT(files_of(1000, "no number", "1", NULL), 1); /* the defaults */
	CHECK_INT(files_of(1000, "200", "-1", &small), 10);
	CHECK_INT(files_of(1000, "200", "2", &three), 3);
	CHECK_INT(files_of(1000, "200", "2", &everything), 10);
}

TEST(activity_jsonl, lines_do_not_wait_long)
{
	char *dir = activity_dir();
	struct activity_writer *w = activity_jsonl.open(dir, &origin, NULL);
	struct activity k = kernel_of("k", 0);

	CHECK_INT(activity_jsonl.put(w, &k, NULL), 0);
	usleep(300000);
	CHECK_INT(activity_jsonl.put(w, &k, NULL), 0);
	CHECK(strlen(content(activity_jsonl.path(w))) > 200);
	CHECK_INT(activity_jsonl.close(w, NULL, NULL), 0);
	activity_dir_remove(dir);
}

/* No file can be made while there are activities: one at the end states the loss. */
TEST(activity_jsonl, a_file_that_comes_too_late_tells_the_loss)
{
	char *dir = activity_dir(), names[2][256];
	struct activity k = kernel_of("k", 0);
	struct activity_writer *w = activity_jsonl.open(dir, &origin, NULL);
	const struct activity_closing bare = {.end_ns = T0};
	struct rlimit limit, none;
	struct err err = {0};

	CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){3, limit.rlim_max};
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	CHECK_INT(activity_jsonl.put(w, &k, &err), -EMFILE);
	activity_jsonl.put(w, &k, &err);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
	CHECK_INT(activity_jsonl.close(w, &bare, &err), 0);
	CHECK_INT(list(dir, names, 2), 1);
	char *path = xasprintf("%s/%s", dir, names[0]);
	CHECK_STR(content(path), "{\"kind\":\"loss\",\"lost\":2}\n");
	free(path);
	activity_dir_remove(dir);
}

TEST(activity_jsonl, full_disk_leaves_whole_lines)
{
	char *dir = activity_dir();
	struct activity_writer *w = activity_jsonl.open(
		dir, &origin, &(struct activity_options){.lines_per_file = 500000});
	struct activity k = kernel_of("k", 0);
	struct rlimit limit, small = {100000, 0};
	struct err err = {0};
	int failures = 0;

	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small.rlim_max = limit.rlim_max;
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 100000; i++)
		failures += activity_jsonl.put(w, &k, &err) < 0;
	CHECK_INT(failures, 1);
	const char *text = content(activity_jsonl.path(w));
	CHECK(strlen(text) <= 100000 && strlen(text) > 99000);
	CHECK(text[strlen(text) - 1] == '\n');
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
	char path[512];
	snprintf(path, sizeof(path), "%s", activity_jsonl.path(w));
	CHECK_INT(activity_jsonl.close(w, &closing, &err), 0);
	text = content(path);
	long lost = 0, lines = 0;
	const char *told = strstr(text, "{\"kind\":\"loss\",\"lost\":");
	CHECK(told);
	CHECK_INT(sscanf(told, "{\"kind\":\"loss\",\"lost\":%ld}", &lost), 1);
	for (const char *p = text, *next; (next = strchr(p, '\n')); p = next + 1)
		lines += !strncmp(p, "{\"correlationId\"", 16);
	CHECK_INT(lines + lost, 100000);
	activity_dir_remove(dir);
}

/* What cannot be added takes the place of something. */
TEST(activity_jsonl, a_disk_that_stays_full_tells_the_loss)
{
	char *dir = activity_dir(), path[512];
	struct activity_writer *w = activity_jsonl.open(
		dir, &origin, &(struct activity_options){.lines_per_file = 500000});
	struct activity k = kernel_of("k", 0);
	struct rlimit limit, small = {100000, 0};
	long lost = 0, lines = 0;

	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small.rlim_max = limit.rlim_max;
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 2000; i++)
		activity_jsonl.put(w, &k, NULL);
	snprintf(path, sizeof(path), "%s", activity_jsonl.path(w));
	CHECK(activity_jsonl.close(w, &closing, NULL) < 0);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
	const char *text = content(path), *next;
	for (const char *p = text; (next = strchr(p, '\n')); p = next + 1) {
		json_t *o = json_loadb(p, (size_t)(next - p), 0, NULL);

		CHECK(json_is_object(o));
		lines += json_object_get(o, "correlationId") != NULL;
		if (json_object_get(o, "lost"))
			lost = (long)json_integer_value(json_object_get(o, "lost"));
		json_decref(o);
	}
	CHECK(lines > 100);
	CHECK_INT(lines + lost, 2000);
	struct activity_about about = {.rank = -1};
	CHECK_INT(activity_read(path, ignore, NULL, &about, NULL), 0);
	CHECK_INT(about.lost, lost);
	CHECK_INT(about.end, ACTIVITY_END_THERE);
	activity_about_release(&about);
	activity_dir_remove(dir);
}

static enum activity_end end_of(const char *path)
{
	struct activity_about about = {.rank = -1};

	CHECK_INT(activity_read(path, ignore, NULL, &about, NULL), 0);
	enum activity_end end = about.end;
	activity_about_release(&about);
	return end;
}

TEST(activity_jsonl, its_end_can_be_known)
{
	char *dir = activity_dir(), path[512];
	struct activity a[ALL_KINDS];
	struct activity_writer *w = activity_jsonl.open(dir, &origin, NULL);
	const struct activity_closing bare = {.end_ns = T0};

	all_kinds(a);
	CHECK_INT(activity_jsonl.put(w, &a[3], NULL), 0);
	CHECK_INT(activity_jsonl.flush(w, NULL), 0);
	snprintf(path, sizeof(path), "%s", activity_jsonl.path(w));
	CHECK_INT(end_of(path), ACTIVITY_END_MISSING);
	CHECK_INT(activity_jsonl.close(w, &bare, NULL), 0);
	CHECK_INT(end_of(path), ACTIVITY_END_THERE);
	/* Calls alone: there is no map of devices. */
	CHECK_INT(end_of(write_all(dir, &a[4], 1, NULL)), ACTIVITY_END_UNKNOWN);
	CHECK_INT(end_of(write_all(dir, &a[4], 1, &bare)), ACTIVITY_END_THERE);
	activity_dir_remove(dir);
}

TEST(activity_jsonl, unwritable_place)
{
	struct activity k = kernel_of("k", 0);
	struct activity_writer *w = activity_jsonl.open("/proc/no/such/place", &origin, NULL);
	struct err err = {0};

	CHECK(activity_jsonl.put(w, &k, &err) < 0);
	CHECK(err.text[0]);
	CHECK_INT(activity_jsonl.put(w, &k, &err), 0);
	CHECK_INT(activity_jsonl.close(w, &closing, &err), 0);
}
