/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/owners/owners.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/json_value.h"
#include "memory/analysis/common/block_steps.h"
#include "memory/analysis/common/breakdown_text.h"
#include "memory/analysis/owners/tree.h"
#include "memory/analysis/processes/programs.h"
#include "memory/dump/cell.h"

/* How far a process is with the moment that was asked for; in its `own`. */
enum reached { NOT_YET, RUNNING, DONE };

struct owners {
	struct analysis base;
	struct owners_at at;
	struct groups_options groups;
	struct breakdown *breakdown;
	struct block_change change; /* of the newest row */
	uint64_t base_ns; /* OWNERS_AFTER counts from here */
	bool unordered; /* an earlier row came after base_ns was known */
	struct hmap passed; /* pids whose newest process is beyond the time */
};

/* --- what was asked for --- */

static const struct {
	const char *name;
	double ns;
} units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}};

/* "12.5s": digits, perhaps a point and more digits, a unit. */
static bool parse_span(const char *text, size_t len, uint64_t *out_ns)
{
	double v = 0, unit = 1;
	size_t i = 0;

	for (; i < len && text[i] >= '0' && text[i] <= '9'; i++)
		v = v * 10 + (text[i] - '0');
	if (!i)
		return false;
	if (i < len && text[i] == '.')
		for (i++; i < len && text[i] >= '0' && text[i] <= '9'; i++)
			v += (text[i] - '0') * (unit /= 10);
	for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
		if (strlen(units[u].name) != len - i || memcmp(units[u].name, text + i, len - i))
			continue;
		v *= units[u].ns;
		*out_ns = v < 9e18 ? (uint64_t)(v + 0.5) : UINT64_MAX / 2;
		return true;
	}
	return false;
}

static bool is_word(const char *text, size_t len, const char *word)
{
	return strlen(word) == len && !memcmp(text, word, len);
}

int owners_at_parse(const char *text, size_t len, struct owners_at *out, struct err *err)
{
	uint64_t n;

	*out = (struct owners_at){.when = OWNERS_PEAK};
	if (is_word(text, len, "peak"))
		return 0;
	if (is_word(text, len, "end")) {
		out->when = OWNERS_END;
		return 0;
	}
	if (len > 5 && !memcmp(text, "step:", 5)) {
		out->when = OWNERS_STEP;
		if (cell_read_u64(text + 5, len - 5, &n) && n > 0 && n < UINT32_MAX) {
			out->step = (uint32_t)n;
			return 0;
		}
	} else if (len > 1 && text[0] == '+') {
		out->when = OWNERS_AFTER;
		if (parse_span(text + 1, len - 1, &out->ns))
			return 0;
	} else if (cell_read_u64(text, len, &n)) {
		out->when = OWNERS_TIME;
		out->ns = n;
		return 0;
	}
	return err_set(
		err, -EINVAL,
		"'%.*s' is no moment; accepted are peak, end, step:3, +12.5s or +300ms after "
		"the first row, or a time in nanoseconds since the epoch",
		(int)(len < 80 ? len : 80), text);
}

/* --- rows --- */

static enum reached reached_of(const struct block_process *p)
{
	return (enum reached)(uintptr_t)p->own;
}

static void set_reached(struct block_process *p, enum reached r)
{
	p->own = (void *)(uintptr_t)r;
}

static void take_all(struct owners *o, struct block_process *p)
{
	for (size_t i = 0; i < p->ndevices; i++)
		breakdown_take(o->breakdown, p->devices[i]);
}

static void take_if_higher(struct owners *o, const struct block_change *c)
{
	struct block_device *d = c->pool->device;

	if (breakdown_is_higher(d, breakdown_moment(o->breakdown, d)))
		breakdown_take(o->breakdown, d);
}

/* Where a call ends each step, nothing marks that the first one begins: take it as begun. */
static void row_for_step(struct owners *o, const struct block_change *c)
{
	struct block_process *p = c->process;
	enum reached r = c->steps_anew ? NOT_YET : reached_of(p);

	if (c->steps_anew)
		set_reached(p, r);
	if (c->step_ended == o->at.step && r != DONE)
		set_reached(p, DONE);
	if (c->step_begun == o->at.step && r == NOT_YET) {
		for (size_t i = 0; i < p->ndevices; i++)
			breakdown_forget(o->breakdown, p->devices[i]);
		set_reached(p, RUNNING);
		take_all(o, p);
	}
	if (c->what == BLOCKS_ALLOC &&
	    (reached_of(p) == RUNNING || (r == NOT_YET && o->at.step == 1 && !p->step)))
		take_if_higher(o, c);
}

static struct block_process *newest_process(struct owners *o, uint32_t pid)
{
	for (size_t i = o->base.blocks->nprocesses; i-- > 0;)
		if (o->base.blocks->processes[i]->pid == pid)
			return o->base.blocks->processes[i];
	return NULL;
}

static uint64_t target_ns(const struct owners *o)
{
	if (o->at.when == OWNERS_TIME)
		return o->at.ns;
	return o->at.ns > UINT64_MAX - o->base_ns ? UINT64_MAX : o->base_ns + o->at.ns;
}

/* The last moment before a row that lies behind the time asked for. */
static void before_row(struct owners *o, const struct row *row)
{
	bool memory = row->event == ROW_MALLOC || row->event == ROW_FREE;

	if (!o->base.blocks->rows)
		o->base_ns = row->time_ns;
	else if (memory && o->at.when == OWNERS_AFTER && row->time_ns < o->base_ns)
		o->unordered = true;
	if (row->time_ns <= target_ns(o) || hmap_get(&o->passed, row->pid) != HMAP_NONE)
		return;
	struct block_process *p = newest_process(o, row->pid);
	if (!p)
		return;
	if (reached_of(p) == NOT_YET && p->first_ns <= target_ns(o)) {
		take_all(o, p);
		for (size_t i = 0; i < p->ndevices; i++)
			breakdown_moment(o->breakdown, p->devices[i])->time_ns = target_ns(o);
		set_reached(p, DONE);
	}
	hmap_put(&o->passed, row->pid, 1);
}

static void owners_row(struct analysis *a, const struct row *row)
{
	struct owners *o = (struct owners *)a;
	struct block_change *c = &o->change;

	if (o->at.when == OWNERS_TIME || o->at.when == OWNERS_AFTER)
		before_row(o, row);
	breakdown_row(o->breakdown, row, c);
	if (o->at.when == OWNERS_PEAK && c->what == BLOCKS_ALLOC)
		take_if_higher(o, c);
	else if (o->at.when == OWNERS_STEP)
		row_for_step(o, c);
}

static void owners_process(struct analysis *a, uint32_t pid, const char *command)
{
	struct owners *o = (struct owners *)a;

	hmap_remove(&o->passed, pid);
	blocks_process(o->base.blocks, pid, command);
}

static bool owners_unordered(const struct analysis *a)
{
	const struct owners *o = (const struct owners *)a;

	return o->unordered || o->base.blocks->unordered;
}

static size_t owners_findings(struct analysis *a)
{
	(void)a;
	return 0;
}

/* --- the answer --- */

/* Does the process have the moment? What only the end of the rows decides is decided here. */
static bool process_reached(struct owners *o, struct block_process *p)
{
	bool last = (o->at.when == OWNERS_TIME || o->at.when == OWNERS_AFTER) &&
		    reached_of(p) == NOT_YET && p->last_ns == target_ns(o);

	if (o->at.when == OWNERS_PEAK)
		return true;
	if (o->at.when != OWNERS_END && !last)
		return reached_of(p) != NOT_YET;
	for (size_t i = 0; i < p->ndevices; i++)
		breakdown_take_end(o->breakdown, p->devices[i]);
	return p->first_ns != UINT64_MAX;
}

struct counted {
	struct block_device *device;
	struct breakdown_shares shares;
	struct owner_tree tree;
	struct groups groups;
};

static int larger_first(const void *pa, const void *pb)
{
	const struct counted *a = pa, *b = pb;

	return ORDER(b->shares.bytes, a->shares.bytes)
		       ?: ORDER(a->device->process->pid, b->device->process->pid)
		       ?: ORDER(a->device->device, b->device->device);
}

/* As asked for; where owners say nothing ("100 % HOST"), lines of the program. */
static void build_groups(struct owners *o, struct counted *one)
{
	static const struct groups_options lines = {.by = GROUPS_BY_LINE};
	const struct groups_options *groups = &o->groups;

	if (groups->by == GROUPS_BY_OWNER) {
		if (!owner_tree_is_one_source(&one->tree))
			return;
		groups = &lines;
	}
	groups_build(&one->groups, groups, o->breakdown->blocks, &one->shares);
}

/* Every device that had its moment, those with the most bytes first. */
static struct counted *count_devices(struct owners *o, size_t *out_n)
{
	struct blocks *b = o->base.blocks;
	struct counted *list = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < b->nprocesses; i++) {
		struct block_process *p = b->processes[i];

		if (!process_reached(o, p))
			continue;
		for (size_t k = 0; k < p->ndevices; k++) {
			struct counted one = {.device = p->devices[k]};

			if (!breakdown_moment(o->breakdown, one.device)->taken)
				continue;
			breakdown_count(o->breakdown, one.device, &one.shares);
			owner_tree_build(&one.tree, o->breakdown, &one.shares);
			build_groups(o, &one);
			LIST_ADD(list, n, cap, one);
		}
	}
	SORT(list, n, larger_first);
	*out_n = n;
	return list;
}

/* Moves those that are listed to the front, in their order; returns how many they are. */
static size_t choose_listed(struct counted *list, size_t n, struct programs *programs)
{
	size_t listed = 0;

	for (size_t i = 0; i < n; i++)
		programs_add(programs, list[i].device->process, list[i].device->process->pid,
			     list[i].shares.bytes);
	for (size_t i = 0; i < n; i++) {
		struct counted one = list[i];

		if (programs_is_helper(programs, one.device->process))
			continue;
		list[i] = list[listed];
		list[listed++] = one;
	}
	return listed;
}

static void counted_free(struct counted *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		breakdown_shares_release(&list[i].shares);
		owner_tree_release(&list[i].tree);
		groups_release(&list[i].groups);
	}
	free(list);
}

int owners_reached(struct analysis *a, struct err *err)
{
	struct owners *o = (struct owners *)a;
	struct blocks *b = o->base.blocks;
	uint32_t last_step = 0;
	struct buf t = {0};

	if (!b->rows)
		return 0;
	for (size_t i = 0; i < b->nprocesses; i++) {
		struct block_process *p = b->processes[i];
		if (process_reached(o, p))
			return 0;
		/* Behind the last call there is what is no step any more. */
		uint32_t step = p->by_call ? p->step_ended : p->step;
		if (step > last_step)
			last_step = step;
	}
	if (o->at.when == OWNERS_STEP && !last_step)
		return err_set(err, -ENODATA, "there are no steps in these rows");
	if (o->at.when == OWNERS_STEP)
		return err_set(err, -ENODATA, "there is no step %u; the last one is %u", o->at.step,
			       last_step);
	add_text(&t, "{} to {}, that is from +0s to {} later", NUMBER(b->first_ns),
		 NUMBER(b->last_ns), DURATION(b->last_ns - b->first_ns));
	int r = err_set(err, -ENODATA,
			"no process has rows around that time; there are rows from %s",
			buf_str(&t));
	buf_release(&t);
	return r;
}

static void describe_device(struct owners *o, const struct counted *d, struct buf *out)
{
	if (o->groups.by != GROUPS_BY_OWNER) {
		groups_describe(&d->groups, o->breakdown, d->device,
				o->at.when == OWNERS_PEAK ? "the peak of" : "the", out);
		return;
	}
	breakdown_describe_device(o->breakdown, d->device, true, out);
	add_text(out, " held {}{}", BYTES(d->shares.bytes),
		 TEXT(o->at.when == OWNERS_PEAK ? " at its peak" : ""));
	breakdown_describe_when(o->breakdown, d->device, o->at.when == OWNERS_END, out);
	add_text(out, d->shares.bytes ? ": " : "");
	if (!groups_describe_shares(&d->groups, out))
		owner_tree_answer(&d->tree, out);
	add_text(out, ".");
}

static void print_device(struct owners *o, const struct counted *d, const struct report *r)
{
	struct buf heading = {0};

	breakdown_describe_device(o->breakdown, d->device, true, &heading);
	add_text(&heading, ": {}", BYTES(d->shares.bytes));
	report_heading(r, &heading);
	if (o->groups.by != GROUPS_BY_OWNER)
		groups_print(&d->groups, r);
	else
		owner_tree_text(&d->tree, r->style->top, r->out);
	breakdown_describe_outside(d->device, &d->shares, r);
}

static void owners_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct owners *o = (struct owners *)a;
	struct report r = report_begin(style, out);
	struct programs programs = {0};
	struct buf answer = {0};
	size_t all;

	if (style->console) /* there is nothing to find */
		return;
	struct counted *list = count_devices(o, &all);
	size_t n = choose_listed(list, all, &programs);
	for (size_t i = 0; i < n && i < BREAKDOWN_MAX_ANSWERS; i++) {
		add_text(&answer, i ? " " : "");
		describe_device(o, &list[i], &answer);
	}
	breakdown_end_answer(n, &answer, &r);
	for (size_t i = 0; i < n && i < BREAKDOWN_MAX_DEVICES; i++)
		print_device(o, &list[i], &r);
	breakdown_remarks(o->breakdown, n, &programs, &r);
	programs_release(&programs);
	counted_free(list, all);
}

static json_t *owners_json(struct analysis *a, unsigned top)
{
	static const char *const names[] = {"peak", "end", "time", "after", "step"};
	struct owners *o = (struct owners *)a;
	json_t *answer = json_object(), *devices = json_array();
	size_t n;
	struct counted *list = count_devices(o, &n);

	put_text(answer, "at", names[o->at.when]);
	put_bool(answer, "has_owners", breakdown_has_owners(o->breakdown));
	for (size_t i = 0; i < n; i++) {
		json_t *d = breakdown_device_json(o->breakdown, list[i].device, &list[i].shares);

		put_number(d, "owners_total", list[i].tree.nodes[0].nchildren);
		json_object_set_new(d, "owners", owner_tree_json(&list[i].tree, top));
		if (o->groups.by != GROUPS_BY_OWNER)
			groups_put(d, &list[i].groups, &o->base.blocks->stacks, top);
		json_array_append_new(devices, d);
	}
	json_object_set_new(answer, "devices", devices);
	json_object_set_new(answer, "steps", steps_json(o->base.blocks));
	counted_free(list, n);
	return answer;
}

static void owners_free(struct analysis *a)
{
	struct owners *o = (struct owners *)a;

	hmap_release(&o->passed);
	breakdown_free(o->breakdown);
	free(o);
}

static const struct analysis_ops owners_ops = {
	.name = "decompose",
	.attrs = BREAKDOWN_ATTRS,
	.row = owners_row,
	.process = owners_process,
	.unordered = owners_unordered,
	.findings = owners_findings,
	.text = owners_text,
	.json = owners_json,
	.free = owners_free,
};

struct analysis *owners_new(const struct owners_at *at)
{
	struct owners *o = xcalloc(1, sizeof(*o));

	if (at)
		o->at = *at;
	o->breakdown = breakdown_new();
	o->base = (struct analysis){.ops = &owners_ops, .blocks = o->breakdown->blocks};
	return &o->base;
}

void owners_group(struct analysis *a, const struct groups_options *o)
{
	((struct owners *)a)->groups = *o;
}

void owners_each(struct analysis *a, void (*fn)(void *arg, uint32_t device, const struct groups *g),
		 void *arg)
{
	size_t n;
	struct counted *list = count_devices((struct owners *)a, &n);

	for (size_t i = 0; i < n; i++)
		fn(arg, list[i].device->device, &list[i].groups);
	counted_free(list, n);
}

const struct block_change *owners_change(const struct analysis *a)
{
	return &((const struct owners *)a)->change;
}

struct breakdown *owners_breakdown(struct analysis *a)
{
	return ((struct owners *)a)->breakdown;
}

void owners_each_device(struct analysis *a, void (*fn)(void *arg, struct block_device *d),
			void *arg)
{
	struct owners *o = (struct owners *)a;
	struct blocks *b = a->blocks;

	for (size_t i = 0; i < b->nprocesses; i++) {
		struct block_process *p = b->processes[i];

		if (!process_reached(o, p))
			continue;
		for (size_t k = 0; k < p->ndevices; k++)
			if (breakdown_moment(o->breakdown, p->devices[k])->taken)
				fn(arg, p->devices[k]);
	}
}
