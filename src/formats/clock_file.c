/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/clock_file.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/containers/intern.h"
#include "base/fs.h"
#include "base/mem.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define VERSION 1
#define NAME_BYTES 300
#define BEGINNING "{\"sonde_clocks\":"

void clock_trips_add(struct clock_trips *t, const struct clock_trip *trip)
{
	*XPUSH(t->list, t->n, t->cap) = *trip;
}

void clock_trips_release(struct clock_trips *t)
{
	free(t->list);
	*t = (struct clock_trips){0};
}

const char *clock_file_own_name(void)
{
	struct buf id = {0};
	const char *name = "unknown";

	if (fs_read_file(BOOT_ID, 100, &id, NULL) == 0 && id.len > 1)
		name = intern(id.data, strcspn(buf_str(&id), "\n"));
	buf_release(&id);
	return name;
}

bool clock_file_begins(const char *text, size_t len)
{
	return len >= sizeof(BEGINNING) - 1 && !memcmp(text, BEGINNING, sizeof(BEGINNING) - 1);
}

/* --- reading --- */

static const char *read_name(const json_t *row, const char *key)
{
	const json_t *v = json_object_get(row, key);
	size_t n = json_string_length(v);

	return n && n <= NAME_BYTES ? intern(json_string_value(v), n) : NULL;
}

static bool read_time(const json_t *row, const char *key, int64_t *out)
{
	const json_t *v = json_object_get(row, key);

	*out = json_integer_value(v);
	return json_is_integer(v) && *out > 0 && *out < CLOCK_FILE_TIME_MAX;
}

static bool read_trip(const json_t *row, struct clock_trip *t)
{
	t->by = read_name(row, "by");
	t->host = read_name(row, "host");
	t->label = read_name(row, "label");
	return t->by && t->host && t->label && read_time(row, "asked_ns", &t->asked_ns) &&
	       read_time(row, "answered_ns", &t->answered_ns) &&
	       read_time(row, "time_ns", &t->time_ns) && t->answered_ns >= t->asked_ns;
}

int clock_file_parse(const char *text, size_t len, struct clock_trips *out, struct err *err)
{
	json_t *root = json_loadb(text, len, 0, NULL), *row;
	const json_t *list = json_object_get(root, "trips");
	json_int_t version = json_integer_value(json_object_get(root, "sonde_clocks"));
	int r = 0;
	size_t i;

	if (version < 1 || !json_is_array(list))
		r = err_set(err, -EINVAL, "this is no file of `sonde ctl clocks`");
	else if (version > VERSION)
		r = err_set(err, -EINVAL, "a newer sonde wrote it (version %lld)",
			    (long long)version);
	json_array_foreach(r == 0 ? list : NULL, i, row)
	{
		struct clock_trip t;

		if (!read_trip(row, &t)) {
			r = err_set(err, -EINVAL, "trip %zu has an unexpected value", i + 1);
			break;
		}
		clock_trips_add(out, &t);
	}
	json_decref(root);
	return r;
}

int clock_file_read(const char *path, struct clock_trips *out, struct err *err)
{
	struct buf text = {0};
	struct err why = {0};
	int r = fs_read_file(path, CLOCK_FILE_BYTES, &text, err);

	if (r == 0 && (r = clock_file_parse(text.data, text.len, out, &why)) < 0)
		err_set(err, r, "cannot read the clocks of hosts in '%s': %s", path, why.text);
	buf_release(&text);
	return r;
}

/* --- writing --- */

static json_t *trip_json(const struct clock_trip *t)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "by", t->by, "host", t->host, "label",
			 t->label, "asked_ns", (json_int_t)t->asked_ns, "answered_ns",
			 (json_int_t)t->answered_ns, "time_ns", (json_int_t)t->time_ns);
}

int clock_file_add(const char *path, const struct clock_trips *t, struct err *err)
{
	struct clock_trips all = {0};
	struct buf text = {0};
	int r = access(path, F_OK) == 0 ? clock_file_read(path, &all, err) : 0;

	for (size_t i = 0; i < t->n && r == 0; i++)
		clock_trips_add(&all, &t->list[i]);
	buf_addf(&text, BEGINNING "%d,\"trips\":[", VERSION);
	for (size_t i = all.n > CLOCK_FILE_TRIPS ? all.n - CLOCK_FILE_TRIPS : 0, first = i;
	     i < all.n; i++) {
		json_t *row = trip_json(&all.list[i]);
		char *line = row ? json_dumps(row, JSON_COMPACT) : NULL;

		if (line)
			buf_addf(&text, "%s\n%s", i == first ? "" : ",", line);
		free(line);
		json_decref(row);
	}
	buf_add_str(&text, "]}\n");
	if (r == 0)
		r = fs_write_atomic(path, &text, 0644, err);
	buf_release(&text);
	clock_trips_release(&all);
	return r;
}
