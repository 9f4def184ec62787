/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <jansson.h>
#include <math.h>

#include "activity_samples.h"
#include "base/fs.h"

/* Whole, or as a writer that was killed leaves it. */
static json_t *load(const char *path)
{
	struct buf text = {0};

	CHECK_INT(fs_read_file(path, 64 << 20, &text, NULL), 0);
	json_t *o = json_loadb(text.data, text.len, 0, NULL);
	buf_release(&text);
	CHECK(o);
	return o;
}

static json_t *write_all(const char *dir, const struct activity *list, unsigned n)
{
	struct activity_writer *w = activity_chrome.open(dir, &origin, NULL);
	const struct activity_closing c = {.end_ns = T0 + 1000, .lost = 5};
	struct err err = {0};
	char path[256];

	for (unsigned i = 0; i < n; i++)
		CHECK_INT(activity_chrome.put(w, &list[i], &err), 0);
	snprintf(path, sizeof(path), "%s", activity_chrome.path(w));
	CHECK_STR(strrchr(path, '/'), "/trace.json");
	CHECK_INT(activity_chrome.close(w, &c, &err), 0);
	return load(path);
}

/* The n-th event with this phase and name; NULL */
static json_t *event(json_t *trace, const char *phase, const char *name, unsigned n)
{
	json_t *e;
	size_t i;

	json_array_foreach(json_object_get(trace, "traceEvents"), i, e)
	{
		if (!strcmp(json_string_value(json_object_get(e, "ph")), phase) &&
		    (!name || !strcmp(json_string_value(json_object_get(e, "name")), name)) && !n--)
			return e;
	}
	return NULL;
}

static long long integer(json_t *e, const char *key)
{
	CHECK(json_is_integer(json_object_get(e, key)));
	return json_integer_value(json_object_get(e, key));
}

static double number(json_t *e, const char *key)
{
	CHECK(json_is_number(json_object_get(e, key)));
	return json_number_value(json_object_get(e, key));
}

static const char *arg(json_t *e, const char *key)
{
	return json_string_value(json_object_get(json_object_get(e, "args"), key));
}

/* ns since the base, as a reader with doubles gets it */
static long long ns(json_t *e, const char *key)
{
	return llround(number(e, key) * 1000);
}

TEST(activity_chrome, kernels_on_streams_of_devices)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("MatMul", 123456789);

	k.end_ns = k.start_ns + 1001;
	json_t *t = write_all(dir, &k, 1);
	json_t *e = event(t, "X", "MatMul", 0);
	CHECK(e);
	long long base = integer(t, "baseTimeNanoseconds");
	CHECK_INT(base % 86400000000000, 0);
	CHECK_INT(base + ns(e, "ts"), k.start_ns);
	CHECK_INT(ns(e, "dur"), 1001);
	CHECK_INT(integer(e, "tid"), 2);
	CHECK_STR(arg(e, "type"), "KERNEL_AICORE");
	json_t *name = event(t, "M", "process_name", 0);
	CHECK_STR(arg(name, "name"), "device 1, rank 3");
	CHECK_INT(integer(name, "pid"), integer(e, "pid"));
	CHECK_STR(arg(event(t, "M", "thread_name", 0), "name"), "stream 2");
	json_t *lost = event(t, "M", "lost activities", 0);
	CHECK_INT(json_integer_value(json_object_get(json_object_get(lost, "args"), "count")), 5);
	json_decref(t);
	CHECK_INT(activity_dir_remove(dir), 1);
}

/* An arrow begins in the call and ends in what it launched, whoever comes first. */
static void check_arrow(const struct activity *list, unsigned n, unsigned arrows)
{
	char *dir = activity_dir();
	json_t *t = write_all(dir, list, n);

	for (unsigned i = 0; i < arrows; i++) {
		json_t *from = event(t, "s", "launch", i), *to = event(t, "f", "launch", i);

		CHECK(from && to);
		CHECK_STR(json_string_value(json_object_get(from, "id")),
			  json_string_value(json_object_get(to, "id")));
		CHECK_INT(integer(from, "pid"), 4711);
		CHECK_INT(integer(from, "tid"), 88);
		CHECK_INT(integer(to, "tid"), 2);
		CHECK_STR(json_string_value(json_object_get(to, "bp")), "e");
		CHECK(number(from, "ts") == number(event(t, "X", "launch it", 0), "ts"));
	}
	CHECK(!event(t, "s", "launch", arrows));
	CHECK(!event(t, "f", "launch", arrows));
	json_decref(t);
	activity_dir_remove(dir);
}

TEST(activity_chrome, arrows)
{
	struct activity call = api_of(ACTIVITY_RUNTIME_API, "launch it", 0);
	struct activity k = kernel_of("k", 1000), other = kernel_of("other", 2000);
	struct activity none = kernel_of("none", 3000);

	other.correlation = 999;
	none.correlation = 0;
	check_arrow((struct activity[]){call, k, other, none}, 4, 1);
	check_arrow((struct activity[]){k, call, other}, 3, 1);
	check_arrow((struct activity[]){k, k, call, k}, 4, 3);
	check_arrow((struct activity[]){call, call, k}, 3, 1);
}

TEST(activity_chrome, marks_have_tracks_of_their_own)
{
	char *dir = activity_dir();
	struct activity a[ALL_KINDS];

	all_kinds(a);
	json_t *t = write_all(dir, a, ALL_KINDS);
	json_t *host = event(t, "X", "step 1", 0), *device = event(t, "X", "step 1", 1);
	CHECK(host && device);
	CHECK_INT(integer(host, "pid"), 4711);
	CHECK(integer(host, "tid") != 88);
	CHECK(integer(device, "pid") != 4711);
	CHECK_STR(arg(host, "domain"), "default");
	CHECK(event(t, "i", "here", 0));
	/* Readers take what has a stream for work of the device. */
	CHECK(!json_object_get(json_object_get(device, "args"), "stream"));
	CHECK(json_object_get(json_object_get(event(t, "X", "Memcpy HtoD", 0), "args"),
			      "memory bandwidth (GB/s)"));
	CHECK(event(t, "X", "Memset", 0));
	CHECK(event(t, "X", "hccl_op", 0));
	CHECK(event(t, "C", "allocated", 0));
	CHECK_STR(arg(event(t, "X", "hcom_allReduce_", 0), "algorithm"), "RING");
	json_decref(t);
	activity_dir_remove(dir);
}

TEST(activity_chrome, names_of_cxx)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("_Z3addPfS_i", 0);
	json_t *t = write_all(dir, &k, 1);

	CHECK(event(t, "X", "add(float*, float*, int)", 0) || event(t, "X", "_Z3addPfS_i", 0));
	json_decref(t);
	activity_dir_remove(dir);
}

TEST(activity_chrome, readable_before_the_end)
{
	char *dir = activity_dir();
	struct activity_writer *w = activity_chrome.open(dir, &origin, NULL);
	struct activity k = kernel_of("k", 0);

	CHECK_STR(activity_chrome.path(w), "");
	for (int i = 0; i < 1000; i++)
		CHECK_INT(activity_chrome.put(w, &k, NULL), 0);
	CHECK_INT(activity_chrome.flush(w, NULL), 0);
	json_t *t = load(activity_chrome.path(w));
	CHECK(json_is_array(t));
	CHECK_INT(json_array_size(t), 1003); /* with names and order of the tracks */
	json_decref(t);
	CHECK_INT(activity_chrome.close(w, NULL, NULL), 0);
	activity_dir_remove(dir);
}
