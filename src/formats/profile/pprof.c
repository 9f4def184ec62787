/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * profile.proto, the format of `go tool pprof`, encoded by hand: tagged fields, of which we need
 * numbers (varint) and bytes with a length. Texts are numbers of a table, whose first is "".
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text/text.h"
#include "formats/profile/profile_impl.h"
#include "formats/protobuf.h"

enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_MAPPING = 3,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING = 6,
	PROFILE_TIME_NANOS = 9,
	PROFILE_DURATION_NANOS = 10,
	PROFILE_PERIOD_TYPE = 11,
	PROFILE_PERIOD = 12,
	PROFILE_DEFAULT_TYPE = 14,
};

struct encoder {
	const struct profile *p;
	struct buf *out;
	struct profile_stack stack;
	struct buf part; /* a message inside of the profile */
	struct buf inner; /* and one inside of that */
	struct buf scratch;
	struct hmap strings; /* address of an interned text to its number */
	struct buf table; /* the strings, encoded */
	uint64_t nstrings;
};

/* Moves what was put together in `part` to its place. */
static uint64_t intern_string(struct encoder *e, const char *text)
{
	uint64_t found;

	if (!text || !*text)
		return 0;
	found = hmap_get(&e->strings, (uintptr_t)text);
	if (found != HMAP_NONE)
		return found;
	size_t len = strlen(text);
	const char *s = text_clean(text, &len, &e->scratch);
	protobuf_add_bytes(&e->table, PROFILE_STRING, s, len);
	hmap_put(&e->strings, (uintptr_t)text, ++e->nstrings);
	return e->nstrings;
}

static void add_value_type(struct encoder *e, unsigned field, const char *type, const char *unit)
{
	protobuf_add_number(&e->part, 1, intern_string(e, type));
	protobuf_add_number(&e->part, 2, intern_string(e, unit));
	protobuf_add_part(e->out, field, &e->part);
}

static void add_text_label(struct encoder *e, const char *key, const char *text)
{
	if (!text)
		return;
	protobuf_add_number(&e->inner, 1, intern_string(e, key));
	protobuf_add_number(&e->inner, 2, intern_string(e, text));
	protobuf_add_part(&e->part, 3, &e->inner);
}

static void add_number_label(struct encoder *e, const char *key, int64_t number)
{
	protobuf_add_number(&e->inner, 1, intern_string(e, key));
	protobuf_add_number(&e->inner, 3, (uint64_t)number);
	protobuf_add_part(&e->part, 3, &e->inner);
}

static void add_sample(struct encoder *e, uint32_t node)
{
	const struct profile_node *at = &e->p->nodes[node];
	const struct profile_root *root = &e->p->roots[at->root];
	const struct profile_values *values = e->p->o.values;

	profile_stack_of(e->p, node, &e->stack);
	for (uint32_t n = e->stack.n; n > 0; n--) /* innermost first */
		protobuf_add_varint(&e->inner, e->stack.places[n - 1] + 1);
	protobuf_add_part(&e->part, 1, &e->inner);
	if (values) {
		for (unsigned i = 0; i < values->n; i++)
			protobuf_add_varint(&e->inner, e->p->values[node][i]);
	} else {
		protobuf_add_varint(&e->inner, at->count);
		protobuf_add_varint(&e->inner, at->count * e->p->o.period_ns);
	}
	protobuf_add_part(&e->part, 2, &e->inner);
	add_number_label(e, values ? values->ids[0] : "pid", root->pid);
	add_number_label(e, values ? values->ids[1] : "tid", root->tid);
	add_text_label(e, values ? values->names[0] : "process", root->process);
	add_text_label(e, values ? values->names[1] : "thread", root->thread);
	protobuf_add_part(e->out, PROFILE_SAMPLE, &e->part);
}

/* One for all, which says that functions, files and lines are known and need no symbols. */
static void add_mapping(struct encoder *e)
{
	protobuf_add_number(&e->part, 1, 1);
	protobuf_add_number(&e->part, 5, intern_string(e, e->p->o.values ? "job" : "python"));
	for (unsigned known = 7; known <= 9; known++)
		protobuf_add_number(&e->part, known, 1);
	protobuf_add_part(e->out, PROFILE_MAPPING, &e->part);
}

static void add_locations(struct encoder *e)
{
	for (uint32_t i = 0; i < e->p->nplaces; i++) {
		const struct profile_place *place = &e->p->places[i];

		protobuf_add_number(&e->inner, 1, place->function + 1);
		protobuf_add_number(&e->inner, 2, place->line > 0 ? (uint64_t)place->line : 0);
		protobuf_add_number(&e->part, 1, i + 1);
		protobuf_add_number(&e->part, 2, 1);
		protobuf_add_part(&e->part, 4, &e->inner);
		protobuf_add_part(e->out, PROFILE_LOCATION, &e->part);
	}
}

static void add_functions(struct encoder *e)
{
	for (uint32_t i = 0; i < e->p->nfunctions; i++) {
		const struct profile_function *f = &e->p->functions[i];

		protobuf_add_number(&e->part, 1, i + 1);
		/* No system_name (3): one that equals the name is taken for a C++ symbol, and
		 * "<module>" for its template arguments. */
		protobuf_add_number(&e->part, 2, intern_string(e, f->name));
		protobuf_add_number(&e->part, 4, intern_string(e, f->file));
		protobuf_add_number(&e->part, 5, f->first_line > 0 ? (uint64_t)f->first_line : 0);
		protobuf_add_part(e->out, PROFILE_FUNCTION, &e->part);
	}
}

static void add_value_types(struct encoder *e)
{
	const struct profile_values *values = e->p->o.values;

	if (!values) {
		add_value_type(e, PROFILE_SAMPLE_TYPE, "samples", "count");
		add_value_type(e, PROFILE_SAMPLE_TYPE, "wall", "nanoseconds");
		return;
	}
	for (unsigned i = 0; i < values->n; i++)
		add_value_type(e, PROFILE_SAMPLE_TYPE, values->list[i].name, values->list[i].unit);
}

static bool has_values(const struct profile *p, uint32_t node)
{
	uint64_t any = p->nodes[node].count;

	for (unsigned i = 0; p->o.values && i < p->o.values->n; i++)
		any |= p->values[node][i];
	return any != 0;
}

static void add_period(struct encoder *e)
{
	const struct profile_values *values = e->p->o.values;

	if (!values) {
		add_value_type(e, PROFILE_PERIOD_TYPE, "wall", "nanoseconds");
		protobuf_add_number(e->out, PROFILE_PERIOD, e->p->o.period_ns);
	}
	protobuf_add_number(e->out, PROFILE_DEFAULT_TYPE,
			    intern_string(e, values ? values->list[values->main].name : "wall"));
}

void profile_pprof(const struct profile *p, struct buf *out)
{
	struct encoder e = {.p = p, .out = out};

	protobuf_add_bytes(&e.table, PROFILE_STRING, "", 0);
	add_value_types(&e);
	for (uint32_t i = 0; i < p->nnodes; i++)
		if (has_values(p, i))
			add_sample(&e, i);
	add_mapping(&e);
	add_locations(&e);
	add_functions(&e);
	protobuf_add_number(out, PROFILE_TIME_NANOS, (uint64_t)p->o.start_real_ns);
	if (p->o.start_real_ns && !p->o.values)
		protobuf_add_number(out, PROFILE_DURATION_NANOS,
				    (uint64_t)(clock_real_ns() - p->o.start_real_ns));
	add_period(&e);
	buf_add(out, e.table.data, e.table.len);
	free(e.stack.places);
	buf_release(&e.part);
	buf_release(&e.inner);
	buf_release(&e.scratch);
	buf_release(&e.table);
	hmap_release(&e.strings);
}
