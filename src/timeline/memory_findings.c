/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "timeline/memory_findings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "base/text/number_words.h"
#include "base/text/printable.h"
#include "memory/analysis/inefficient/inefficient.h"
#include "memory/analysis/leaks/leaks.h"
#include "wire/record.h"

#define SHOWN 20u /* of each kind the largest */

struct memory_findings {
	struct analysis *leaks;
	struct analysis *inefficient; /* NULL: nothing can be found */
};

struct memory_findings *memory_findings_new(bool accesses)
{
	struct memory_findings *f = xcalloc(1, sizeof(*f));

	f->leaks = leaks_new(NULL);
	f->inefficient = accesses ? inefficient_new(NULL) : NULL;
	return f;
}

void memory_findings_free(struct memory_findings *f)
{
	analysis_free(f->leaks);
	if (f->inefficient)
		analysis_free(f->inefficient);
	free(f);
}

uint64_t memory_findings_attrs(void)
{
	struct memory_findings *f = memory_findings_new(true);
	uint64_t attrs = f->leaks->ops->attrs | f->inefficient->ops->attrs;

	memory_findings_free(f);
	return attrs;
}

void memory_findings_row(struct memory_findings *f, const struct row *row)
{
	f->leaks->ops->row(f->leaks, row);
	if (f->inefficient)
		f->inefficient->ops->row(f->inefficient, row);
}

void memory_findings_process(struct memory_findings *f, uint32_t pid, const char *command)
{
	f->leaks->ops->process(f->leaks, pid, command);
	if (f->inefficient)
		f->inefficient->ops->process(f->inefficient, pid, command);
}

/* --- instants --- */

struct finding {
	struct buf name;
	struct chrome_arg args[TIMELINE_MAX_ARGS];
	unsigned nargs;
};

static const char *intern_text(const char *text)
{
	return intern(text, strlen(text));
}

static void put_finding(struct timeline_process *p, uint64_t time_ns, const struct finding *f)
{
	struct timeline_place where = {.group = GROUP_MEMORY, .order = -1};
	struct timeline_event e = {
		.name = intern(f->name.data, f->name.len), .args = f->args, .nargs = f->nargs};

	if (p && time_ns)
		timeline_instant(timeline_track(p, &where, "findings"), time_ns, &e);
}

static uint64_t number_of(const json_t *o, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(o, key));

	return v > 0 ? (uint64_t)v : 0;
}

static void add_text(struct finding *f, const char *key, const char *text)
{
	struct buf clean = {0};

	if (!text)
		return;
	text_add_printable(&clean, text, strlen(text));
	f->args[f->nargs++] = (struct chrome_arg){
		intern_text(key), CHROME_TEXT, {.text = intern(clean.data, clean.len)}};
	buf_release(&clean);
}

static void add_number(struct finding *f, const char *key, uint64_t v)
{
	f->args[f->nargs++] = (struct chrome_arg){intern_text(key), CHROME_INT, {.i = (int64_t)v}};
}

/* Where it is: the device and the pool, and the line of the program. */
static void add_place(struct finding *f, const json_t *o)
{
	add_text(f, "where", json_string_value(json_object_get(o, "where")));
	add_text(f, "device", json_string_value(json_object_get(o, "device")));
	add_text(f, "pool", json_string_value(json_object_get(o, "pool")));
}

static void name_finding(struct finding *f, const char *what, uint64_t bytes, const json_t *o)
{
	const char *where = json_string_value(json_object_get(o, "where"));

	buf_addf(&f->name, "%s: ", what);
	words_bytes(&f->name, bytes);
	if (where) {
		buf_add_str(&f->name, ", ");
		text_add_printable(&f->name, where, strlen(where));
	}
}

/* Where the first block was allocated that is never freed. */
static void put_leaks(struct memory_findings *f, memory_findings_process_fn process, void *arg)
{
	json_t *all = f->leaks->ops->json(f->leaks, SHOWN), *o;
	size_t i;

	json_array_foreach(json_object_get(all, "leaks"), i, o)
	{
		struct finding x = {0};
		const json_t *first = json_array_get(json_object_get(o, "allocations"), 0);

		if (i >= SHOWN)
			break;
		name_finding(&x, "leak begins", number_of(o, "bytes"), o);
		add_place(&x, o);
		add_number(&x, "bytes", number_of(o, "bytes"));
		add_number(&x, "blocks", number_of(o, "blocks"));
		add_number(&x, "bytes per step", number_of(o, "bytes_per_step"));
		add_number(&x, "first step", number_of(o, "first_step"));
		put_finding(process(arg, (uint32_t)number_of(o, "pid")),
			    number_of(first, "time_ns"), &x);
		buf_release(&x.name);
	}
	json_decref(all);
}

static const char *kind_words(const char *kind)
{
	if (kind && !strcmp(kind, "early_allocation"))
		return "allocated too early";
	if (kind && !strcmp(kind, "late_deallocation"))
		return "freed too late";
	return "left idle";
}

/* Where a block was allocated that is held longer than it is used. */
static void put_inefficient(struct memory_findings *f, memory_findings_process_fn process,
			    void *arg)
{
	json_t *all = f->inefficient->ops->json(f->inefficient, SHOWN), *o;
	size_t i;

	json_array_foreach(json_object_get(all, "places"), i, o)
	{
		struct finding x = {0};
		const json_t *first = json_array_get(json_object_get(o, "examples"), 0);

		if (i >= SHOWN)
			break;
		name_finding(&x, kind_words(json_string_value(json_object_get(o, "kind"))),
			     number_of(o, "bytes"), o);
		add_place(&x, o);
		add_number(&x, "bytes", number_of(o, "bytes"));
		add_number(&x, "blocks", number_of(o, "blocks"));
		add_number(&x, "bytes at the peak", number_of(o, "at_peak_bytes"));
		add_text(&x, "before", json_string_value(json_object_get(first, "before")));
		add_text(&x, "after", json_string_value(json_object_get(first, "after")));
		put_finding(process(arg, (uint32_t)number_of(o, "pid")),
			    number_of(first, "time_ns"), &x);
		buf_release(&x.name);
	}
	json_decref(all);
}

static void put_peak(const struct block_device *d, struct timeline_process *p)
{
	struct finding x = {0};

	buf_add_str(&x.name, d->device == DEV_HOST ? "peak of host memory: " : "peak of device ");
	if (d->device != DEV_HOST)
		buf_addf(&x.name, "%u: ", d->device);
	words_bytes(&x.name, d->own[0]);
	add_number(&x, "bytes", d->own[0]);
	put_finding(p, d->own[1], &x);
	buf_release(&x.name);
}

void memory_findings_put(struct memory_findings *f, const struct blocks *blocks,
			 memory_findings_process_fn process, void *arg)
{
	for (size_t i = 0; i < blocks->nprocesses; i++) {
		const struct block_process *p = blocks->processes[i];

		for (size_t k = 0; k < p->ndevices; k++)
			if (p->devices[k]->own[1])
				put_peak(p->devices[k], process(arg, p->pid));
	}
	/* rows of a dump that went back in time would need a second reading */
	if (!f->leaks->ops->unordered(f->leaks))
		put_leaks(f, process, arg);
	if (f->inefficient && !f->inefficient->ops->unordered(f->inefficient))
		put_inefficient(f, process, arg);
}
