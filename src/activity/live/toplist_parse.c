/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A report as it comes: JSON of anybody. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "activity/live/toplist.h"
#include "base/mem.h"
#include "base/text/json_depth.h"
#include "wire/fabric.h"
#include "wire/request.h"

#define NS_PER_S 1e9
#define LONGEST_S 1e6

const char *const toplist_loss_names[TOPLIST_LOSSES] = {"lost", "incomplete", "crowded",
							"unwritten", "unsent"};

static bool read_uint(const json_t *o, const char *key, bool needed, uint64_t *out)
{
	const json_t *v = json_object_get(o, key);

	*out = 0;
	if (!v || json_is_null(v))
		return !needed;
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*out = (uint64_t)json_integer_value(v);
	return true;
}

/* -1 if it is not there: a rank or a device that nobody knows, or the host. */
static bool read_number(const json_t *o, const char *key, int32_t *out)
{
	const json_t *v = json_object_get(o, key);

	*out = -1;
	if (!v || json_is_null(v))
		return true;
	if (!json_is_integer(v) || json_integer_value(v) < -1 || json_integer_value(v) > INT32_MAX)
		return json_is_integer(v) && json_integer_value(v) == UINT32_MAX;
	*out = (int32_t)json_integer_value(v);
	return true;
}

static bool read_text(const json_t *o, const char *key, size_t max, const char **out)
{
	const json_t *v = json_object_get(o, key);

	*out = json_string_value(v);
	return *out && json_string_length(v) <= max;
}

static bool read_row(const json_t *o, struct toplist_row *r)
{
	/* A recorder of before does not say it. */
	bool has_inside = json_object_get(o, "inside_ns") != NULL;

	return json_is_object(o) && read_text(o, "kind", TOPLIST_MAX_KIND, &r->kind) &&
	       read_text(o, "name", TOPLIST_MAX_NAME, &r->name) &&
	       read_number(o, "device", &r->device) && read_uint(o, "calls", true, &r->calls) &&
	       read_uint(o, "total_ns", true, &r->total_ns) &&
	       read_uint(o, has_inside ? "inside_ns" : "total_ns", false, &r->inside_ns) &&
	       read_uint(o, "min_ns", false, &r->min_ns) &&
	       read_uint(o, "max_ns", false, &r->max_ns) &&
	       read_uint(o, "p50_ns", false, &r->p50_ns) &&
	       read_uint(o, "p99_ns", false, &r->p99_ns) && r->calls > 0;
}

static bool read_device(const json_t *o, struct toplist_device *d, uint64_t interval_ns)
{
	static const char *const keys[] = {"busy_ns", "kernel_ns", "comm_ns", "copy_ns"};
	uint64_t *parts[] = {&d->busy_ns, &d->kernel_ns, &d->comm_ns, &d->copy_ns};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (!json_is_object(o) || !read_uint(o, keys[i], false, parts[i]))
			return false;
		/* whatever it says: nothing is busy for longer than the time is */
		if (*parts[i] > interval_ns)
			*parts[i] = interval_ns;
	}
	return read_number(o, "device", &d->device) && read_uint(o, "late_ns", false, &d->late_ns);
}

/* A list that is not there is empty. */
static bool list_size(const json_t *v, size_t max, size_t *out)
{
	*out = json_array_size(v);
	return (!v || json_is_null(v) || json_is_array(v)) && *out <= max;
}

static bool read_lists(const json_t *o, struct toplist_report *r)
{
	const json_t *rows = json_object_get(o, "rows"), *devices = json_object_get(o, "devices");

	if (!list_size(rows, TOPLIST_MAX_ROWS, &r->nrows) ||
	    !list_size(devices, TOPLIST_MAX_DEVICES, &r->ndevices))
		return false;
	r->rows = xcalloc(r->nrows + 1, sizeof(*r->rows));
	r->devices = xcalloc(r->ndevices + 1, sizeof(*r->devices));
	r->bytes += r->nrows * sizeof(*r->rows) + r->ndevices * sizeof(*r->devices);
	for (size_t i = 0; i < r->nrows; i++)
		if (!read_row(json_array_get(rows, i), &r->rows[i]))
			return false;
	for (size_t i = 0; i < r->ndevices; i++)
		if (!read_device(json_array_get(devices, i), &r->devices[i], r->interval_ns))
			return false;
	return true;
}

/* Kinds that are new to us are passed over. */
static bool read_kinds(const json_t *o, struct toplist_report *r)
{
	const json_t *kinds = json_object_get(o, "kinds"), *v;
	size_t i;

	if (!kinds || json_is_null(kinds))
		return true;
	json_array_foreach(kinds, i, v)
	{
		struct request_text name = {json_string_value(v), json_string_length(v)};
		uint32_t kind = name.at ? activity_kind_find(&name) : 0;

		if (!name.at)
			return false;
		r->kinds |= kind ? ACTIVITY_BIT(kind) : 0;
	}
	return json_is_array(kinds);
}

static bool read_optional(const json_t *o, struct toplist_report *r)
{
	const json_t *others = json_object_get(o, "others"), *steps = json_object_get(o, "steps");

	if ((others && !json_is_null(others) && !json_is_object(others)) ||
	    (steps && !json_is_null(steps) && !json_is_object(steps)))
		return false;
	r->filtered = json_is_true(json_object_get(o, "filter"));
	for (unsigned i = 0; i < TOPLIST_LOSSES; i++)
		if (!read_uint(o, toplist_loss_names[i], false, &r->losses[i]))
			return false;
	return read_uint(o, "names", false, &r->names) &&
	       read_uint(others, "calls", false, &r->other_calls) &&
	       read_uint(others, "total_ns", false, &r->other_ns) &&
	       read_uint(steps, "count", false, &r->steps) &&
	       read_uint(steps, "mean_ns", false, &r->step_mean_ns);
}

static bool read_times(const json_t *o, struct toplist_report *r)
{
	uint64_t from, to;
	double s = json_number_value(json_object_get(o, "interval_s"));

	if (!read_uint(o, "from", true, &from) || !read_uint(o, "to", true, &to) || to < from)
		return false;
	r->from_ns = (int64_t)from;
	r->to_ns = (int64_t)to;
	/* what was measured, rather than what was asked for; a daemon must not divide by 0 */
	r->interval_ns = to - from;
	double wanted_ns = s > 0 && s < LONGEST_S ? s * NS_PER_S : 0;
	r->partial = (double)r->interval_ns * 2 < wanted_ns;
	if (!r->interval_ns)
		r->interval_ns = (uint64_t)wanted_ns;
	return r->interval_ns > 0 && (double)r->interval_ns < LONGEST_S * NS_PER_S;
}

static bool read_report(const json_t *o, struct toplist_report *r)
{
	return json_is_object(o) && read_number(o, "pid", &r->pid) && r->pid > 0 &&
	       read_number(o, "rank", &r->rank) && read_times(o, r) && read_optional(o, r) &&
	       read_kinds(o, r) && read_lists(o, r);
}

static const char *copy_text(char **at, const char *text)
{
	const char *kept = *at;

	*at = stpcpy(*at, text) + 1;
	return kept;
}

/* The JSON library's own form of a report is ten times as large. */
static void keep_texts(struct toplist_report *r)
{
	size_t bytes = 1;

	for (size_t i = 0; i < r->nrows; i++)
		bytes += strlen(r->rows[i].kind) + strlen(r->rows[i].name) + 2;
	r->texts = xmalloc(bytes);
	r->bytes += bytes;
	char *at = r->texts;
	for (size_t i = 0; i < r->nrows; i++) {
		struct toplist_row *row = &r->rows[i];
		bool same = i && !strcmp(row->kind, r->rows[i - 1].kind);

		row->kind = same ? r->rows[i - 1].kind : copy_text(&at, row->kind);
		row->name = copy_text(&at, row->name);
	}
}

struct toplist_report *toplist_report_read(const char *text, size_t len)
{
	json_error_t why;

	if (len > FABRIC_MAX_BYTES || json_depth(text, len) > TOPLIST_DEPTH)
		return NULL;
	json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (!o)
		return NULL;
	struct toplist_report *r = xcalloc(1, sizeof(*r));
	r->bytes = sizeof(*r);
	bool good = read_report(o, r);
	if (good)
		keep_texts(r);
	json_decref(o);
	if (good)
		return r;
	toplist_report_free(r);
	return NULL;
}

void toplist_report_free(struct toplist_report *r)
{
	if (!r)
		return;
	free(r->rows);
	free(r->devices);
	free(r->texts);
	free(r);
}

bool toplist_on_device(const struct toplist_row *row)
{
	static const char *const kinds[] = {"Kernel", "Communication", "Hccl", "MemCpy", "MemSet"};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(row->kind, kinds[i]))
			return true;
	return false;
}

bool toplist_collects(const struct toplist_report *r, uint32_t kinds)
{
	return !r->kinds || r->kinds & kinds;
}

uint64_t toplist_report_total(const struct toplist_report *r)
{
	uint64_t sum = r->other_ns;

	for (size_t i = 0; i < r->nrows; i++)
		if (toplist_on_device(&r->rows[i]) && sum + r->rows[i].total_ns >= sum)
			sum += r->rows[i].total_ns;
	return sum;
}
