/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/show/show.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "activity/files/activity.h"
#include "base/text/number_words.h"
#include "base/text/text.h"
#include "formats/json_value.h"
#include "unwind/symbols/demangle.h"
#include "wire/request.h"

#define NAME_MAX_BYTES 120 /* of a table; templates have no bound */

static uint64_t mean_ns(const struct sum_name *n)
{
	return n->calls ? n->total_ns / n->calls : 0;
}

static void add_name(struct buf *out, const char *name)
{
	demangle_add_name(out, *name ? name : "(no name)", NAME_MAX_BYTES);
}

static void add_moment(struct buf *out, uint64_t ns)
{
	time_t seconds = (time_t)(ns / 1000000000u);
	char text[32] = "?";
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	buf_add_str(out, text);
}

struct totals {
	uint64_t first_ns, last_ns, activities, lost, rotated_files, work_ns;
	uint64_t parts[SPLIT_PARTS], hidden_ns, time_ns; /* of all devices */
	size_t devices;
	bool torn, nameless, open; /* a file has no end */
};

static struct totals totals_of(const struct activity_sum *s)
{
	struct totals t = {0};

	for (size_t i = 0; i < s->nranks; i++) {
		const struct sum_rank *r = &s->ranks[i];

		if (r->first_ns && (!t.first_ns || r->first_ns < t.first_ns))
			t.first_ns = r->first_ns;
		t.last_ns = r->last_ns > t.last_ns ? r->last_ns : t.last_ns;
		t.activities += r->activities;
		t.lost += r->lost;
		t.rotated_files += r->rotated_files;
		t.torn |= r->torn;
		t.nameless |= r->nameless;
		t.open |= r->end == ACTIVITY_END_MISSING;
		t.devices += r->ndevices;
		for (size_t d = 0; d < r->ndevices; d++) {
			for (unsigned p = 0; p < SPLIT_PARTS; p++)
				t.parts[p] += r->devices[d].part_ns[p];
			t.hidden_ns += r->devices[d].hidden_ns;
		}
	}
	for (unsigned p = 0; p < SPLIT_PARTS; p++)
		t.time_ns += t.parts[p];
	for (size_t i = 0; i < s->nnames; i++)
		if (sum_is_work(&s->names[i]))
			t.work_ns += s->names[i].total_ns;
	return t;
}

/* --- the answer --- */

static void add_idlest(const struct activity_sum *s, const struct totals *t, struct buf *out)
{
	const struct sum_device *idlest = NULL;
	const struct sum_rank *whose = NULL;
	double least = 101;

	for (size_t i = 0; i < s->nranks; i++)
		for (size_t d = 0; d < s->ranks[i].ndevices; d++) {
			const struct sum_device *x = &s->ranks[i].devices[d];
			uint64_t all = s->ranks[i].last_ns - s->ranks[i].first_ns;
			double busy = 100 - percent_of(x->part_ns[SPLIT_IDLE], all);

			if (busy < least) {
				least = busy;
				idlest = x;
				whose = &s->ranks[i];
			}
		}
	if (t->devices < 2 || !idlest)
		return;
	buf_addf(out, " The least busy one is device %u", idlest->device);
	if (whose->rank >= 0 && s->nranks > 1)
		buf_addf(out, " of rank %d", whose->rank);
	buf_addf(out, ": %.1f %%.", least);
}

/* Whoever did not ask for them must not take their time for idleness. */
static void add_absent(const struct activity_sum *s, struct buf *out)
{
	static const struct {
		const char *name;
		uint8_t kinds[2];
	} parts[] = {{"kernels", {ACTIVITY_KERNEL, ACTIVITY_KERNEL}},
		     {"communication", {ACTIVITY_COMMUNICATION, ACTIVITY_HCCL}},
		     {"copies", {ACTIVITY_MEMCPY, ACTIVITY_MEMSET}}};
	const char *before = " There is nothing here of ";

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (s->kind_count[parts[i].kinds[0]] || s->kind_count[parts[i].kinds[1]])
			continue;
		buf_addf(out, "%s%s", before, parts[i].name);
		before = ", ";
	}
	if (*before == ',')
		buf_add_str(out, ": what was not collected counts as idle.");
}

static void add_busy(const struct activity_sum *s, const struct totals *t, struct buf *out)
{
	if (!t->devices) {
		buf_add_str(out, "No work of a device is among them: ask for kinds like Kernel and "
				 "Communication to see how devices are used.\n");
		return;
	}
	buf_addf(out, "%s busy %.1f %% of the time: %.1f %% with compute",
		 t->devices == 1 ? "The device was" : "Devices were",
		 100 - percent_of(t->parts[SPLIT_IDLE], t->time_ns),
		 percent_of(t->parts[SPLIT_COMPUTE], t->time_ns));
	if (t->parts[SPLIT_COMM] + t->hidden_ns)
		buf_addf(out, ", %.1f %% with communication that nothing hides",
			 percent_of(t->parts[SPLIT_COMM], t->time_ns));
	if (t->parts[SPLIT_COPY])
		buf_addf(out, ", %.1f %% with copies alone",
			 percent_of(t->parts[SPLIT_COPY], t->time_ns));
	buf_add_char(out, '.');
	add_idlest(s, t, out);
	add_absent(s, out);
	buf_add_char(out, '\n');
}

static void add_first_name(const struct activity_sum *s, const struct totals *t, struct buf *out)
{
	for (size_t i = 0; i < s->nnames; i++) {
		const struct sum_name *n = &s->names[i];

		if (!sum_is_work(n))
			continue;
		buf_addf(out, "Most device time: ");
		add_name(out, n->name);
		buf_addf(out, ", %.1f %% of it in ", percent_of(n->total_ns, t->work_ns));
		words_of(out, n->calls, "call");
		buf_add_str(out, ", mean ");
		words_time(out, mean_ns(n));
		buf_add_str(out, ", p99 ");
		words_time(out, sum_p99_ns(n));
		buf_add_str(out, ".\n");
		return;
	}
}

static void add_loss(const struct totals *t, struct buf *out)
{
	if (t->lost) {
		words_count(out, t->lost);
		buf_add_str(out,
			    t->lost == 1 ? " activity was lost.\n" : " activities were lost.\n");
	} else if (!t->open && !t->torn && !t->nameless && !t->rotated_files) {
		buf_add_str(out, "As far as the files say nothing was lost.\n");
	}
	if (t->rotated_files) {
		words_of(out, t->rotated_files, "older file");
		buf_addf(out,
			 " %s removed to make room (--json-rotate-log-files): what %s held is not "
			 "in these numbers.\n",
			 words_was(t->rotated_files), t->rotated_files == 1 ? "it" : "they");
	}
	if (t->torn)
		buf_add_str(out, "A file ends inside of a line: its writer was killed, or is still "
				 "writing.\n");
	else if (t->open)
		buf_add_str(out, "A file was not closed: its writer was killed, or is still "
				 "writing. How much is missing at its end is not known.\n");
}

static void add_answer(const struct activity_sum *s, const struct totals *t, struct buf *out)
{
	if (!t->activities) {
		buf_add_str(out, "There are no activities.\n");
	} else {
		words_count(out, t->activities);
		buf_add_str(out, t->activities == 1 ? " activity of " : " activities of ");
		words_count(out, s->nranks);
		buf_add_str(out, s->nranks == 1 ? " process in " : " processes in ");
		words_time(out, t->last_ns - t->first_ns);
		buf_add_str(out, ", from ");
		add_moment(out, t->first_ns);
		buf_add_str(out, " on.\n");
		add_busy(s, t, out);
		add_first_name(s, t, out);
	}
	add_loss(t, out);
	if (t->nameless)
		buf_add_str(out,
			    "A DB has no texts, because its writer was killed: names are shown "
			    "as numbers.\n");
}

/* --- tables --- */

static void add_devices(const struct activity_sum *s, struct buf *out)
{
	buf_add_str(out,
		    "\nDevices\n"
		    "    rank      pid  device    busy  compute  communication  (hidden)    copy"
		    "    idle\n");
	for (size_t i = 0; i < s->nranks; i++) {
		const struct sum_rank *r = &s->ranks[i];
		uint64_t all = r->last_ns - r->first_ns;

		for (size_t k = 0; k < r->ndevices; k++) {
			const struct sum_device *d = &r->devices[k];

			if (r->rank >= 0)
				buf_addf(out, "  %6d", r->rank);
			else
				buf_add_str(out, "       -");
			buf_addf(out,
				 " %8u  %6u  %5.1f%%  %6.1f%%  %12.1f%%  %7.1f%%  %5.1f%%  "
				 "%5.1f%%\n",
				 r->pid, d->device, 100 - percent_of(d->part_ns[SPLIT_IDLE], all),
				 percent_of(d->part_ns[SPLIT_COMPUTE], all),
				 percent_of(d->part_ns[SPLIT_COMM], all),
				 percent_of(d->hidden_ns, all),
				 percent_of(d->part_ns[SPLIT_COPY], all),
				 percent_of(d->part_ns[SPLIT_IDLE], all));
		}
	}
}

static bool is_kernel(const struct sum_name *n)
{
	return sum_is_work(n) && n->kind != ACTIVITY_COMMUNICATION && n->kind != ACTIVITY_HCCL;
}

static bool is_communication(const struct sum_name *n)
{
	return n->kind == ACTIVITY_COMMUNICATION || (n->kind == ACTIVITY_HCCL && !n->again);
}

static bool is_again(const struct sum_name *n)
{
	return n->again;
}

static bool is_host(const struct sum_name *n)
{
	return activity_is_api(n->kind);
}

static bool is_mark(const struct sum_name *n)
{
	return n->kind == ACTIVITY_MARKER;
}

typedef bool (*name_test)(const struct sum_name *n);

/* Shares are of all work of devices, or of what is in the section. */
static const struct {
	const char *title, *key;
	name_test test, all;
} sections[] = {
	{"Work of devices", "kernels", is_kernel, sum_is_work},
	{"Communication", "communication", is_communication, sum_is_work},
	{"The same collectives as Hccl reports them", "hccl", is_again, is_again},
	{"Calls on the host", "calls", is_host, is_host},
	{"Marks", "marks", is_mark, is_mark},
};
#define NSECTIONS (sizeof(sections) / sizeof(sections[0]))

static void add_row(const struct sum_name *n, uint64_t all, struct buf *out)
{
	buf_addf(out, "  %5.1f%%  %12.3f %10llu %12.1f %12.1f %12.1f  ",
		 percent_of(n->total_ns, all), (double)n->total_ns / 1e6,
		 (unsigned long long)n->calls, (double)mean_ns(n) / 1e3,
		 (double)sum_p99_ns(n) / 1e3, (double)n->max_ns / 1e3);
	add_name(out, n->name);
	if (*n->group) {
		buf_add_str(out, " in ");
		add_name(out, n->group);
	}
	buf_add_char(out, '\n');
}

static uint64_t section_ns(const struct activity_sum *s, name_test test)
{
	uint64_t all = 0;

	for (size_t i = 0; i < s->nnames; i++)
		all += test(&s->names[i]) ? s->names[i].total_ns : 0;
	return all;
}

static void add_section(const struct activity_sum *s, unsigned which, unsigned top, struct buf *out)
{
	uint64_t all = section_ns(s, sections[which].all);
	size_t shown = 0, names = 0;

	for (size_t i = 0; i < s->nnames; i++) {
		if (!sections[which].test(&s->names[i]))
			continue;
		if (!names++)
			buf_addf(out,
				 "\n%s\n   share      total ms      calls      mean us       p99 us"
				 "       max us  name\n",
				 sections[which].title);
		if (shown < top) {
			add_row(&s->names[i], all, out);
			shown++;
		}
	}
	if (names > shown)
		buf_addf(out, "  and %zu more: --top=%zu shows all\n", names - shown, names);
}

static void add_kinds(const struct activity_sum *s, struct buf *out)
{
	buf_add_str(out, "\nActivities\n");
	for (uint8_t k = 0; k < ACTIVITY_KIND_END; k++) {
		if (!s->kind_count[k])
			continue;
		buf_addf(out, "  %-14s", activity_kind_name(k));
		struct buf number = {0};
		words_count(&number, s->kind_count[k]);
		buf_addf(out, " %14s\n", buf_str(&number));
		buf_release(&number);
	}
}

void activity_show_text(const struct activity_sum *s, unsigned top, struct buf *out)
{
	struct totals t = totals_of(s);

	add_answer(s, &t, out);
	if (!t.activities)
		return;
	if (t.devices)
		add_devices(s, out);
	for (unsigned i = 0; i < NSECTIONS && top; i++)
		add_section(s, i, top, out);
	add_kinds(s, out);
}

/* --- JSON --- */

static json_t *new_text(const char *text)
{
	return text_value(text, strlen(text));
}

static json_t *name_json(const struct sum_name *n, uint64_t all)
{
	char *plain = demangle(n->name);
	json_t *o = json_pack(
		"{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "name", new_text(n->name), "shown",
		new_text(plain ? plain : n->name), "kind", activity_kind_name(n->kind), "calls",
		(json_int_t)n->calls, "total_ns", (json_int_t)n->total_ns, "mean_ns",
		(json_int_t)mean_ns(n), "p99_ns", (json_int_t)sum_p99_ns(n), "max_ns",
		(json_int_t)n->max_ns, "share", all ? (double)n->total_ns / (double)all : 0.0);

	free(plain);
	if (o && *n->group)
		json_object_set_new(o, "group", new_text(n->group));
	return o;
}

static json_t *section_json(const struct activity_sum *s, unsigned which, unsigned top)
{
	uint64_t all = section_ns(s, sections[which].all);
	name_test test = sections[which].test;
	json_t *list = json_array();

	for (size_t i = 0; i < s->nnames && json_array_size(list) < top; i++)
		if (test(&s->names[i]))
			json_array_append_new(list, name_json(&s->names[i], all));
	return list;
}

static json_t *device_json(const struct sum_device *d)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "device", (json_int_t)d->device,
			 "compute_ns", (json_int_t)d->part_ns[SPLIT_COMPUTE], "communication_ns",
			 (json_int_t)d->part_ns[SPLIT_COMM], "hidden_communication_ns",
			 (json_int_t)d->hidden_ns, "copy_ns", (json_int_t)d->part_ns[SPLIT_COPY],
			 "idle_ns", (json_int_t)d->part_ns[SPLIT_IDLE]);
}

static json_t *rank_json(const struct sum_rank *r)
{
	json_t *devices = json_array();
	json_t *closed = r->end == ACTIVITY_END_UNKNOWN
				 ? json_null()
				 : json_boolean(r->end == ACTIVITY_END_THERE);

	for (size_t i = 0; i < r->ndevices; i++)
		json_array_append_new(devices, device_json(&r->devices[i]));
	return json_pack("{s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:o, s:o}",
			 "pid", (json_int_t)r->pid, "rank", (json_int_t)r->rank, "format",
			 r->format, "files", (json_int_t)r->files, "activities",
			 (json_int_t)r->activities, "skipped", (json_int_t)r->skipped, "lost",
			 (json_int_t)r->lost, "rotated_files", (json_int_t)r->rotated_files,
			 "first_ns", (json_int_t)r->first_ns, "last_ns", (json_int_t)r->last_ns,
			 "torn", r->torn, "nameless", r->nameless, "closed", closed, "devices",
			 devices);
}

json_t *activity_show_json(const struct activity_sum *s, unsigned top)
{
	struct totals t = totals_of(s);
	json_t *o = json_pack("{s:I, s:I, s:I, s:I}", "activities", (json_int_t)t.activities,
			      "lost", (json_int_t)t.lost, "first_ns", (json_int_t)t.first_ns,
			      "last_ns", (json_int_t)t.last_ns);
	json_t *processes = json_array(), *kinds = json_object();

	if (t.time_ns)
		json_object_set_new(
			o, "busy_share",
			json_real(1.0 - (double)t.parts[SPLIT_IDLE] / (double)t.time_ns));
	for (size_t i = 0; i < s->nranks; i++)
		json_array_append_new(processes, rank_json(&s->ranks[i]));
	json_object_set_new(o, "processes", processes);
	for (unsigned i = 0; i < NSECTIONS; i++)
		json_object_set_new(o, sections[i].key, section_json(s, i, top));
	for (uint8_t k = 0; k < ACTIVITY_KIND_END; k++)
		if (s->kind_count[k])
			json_object_set_new(kinds, activity_kind_name(k),
					    json_integer((json_int_t)s->kind_count[k]));
	json_object_set_new(o, "kinds", kinds);
	return o;
}
