/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What grows, by module of a model or by line: the blocks of all call sites that lose memory. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/groups/groups.h"
#include "memory/analysis/leaks/leaks_impl.h"
#include "memory/analysis/processes/processes.h"

#define MAX_SHOWN 3 /* devices in the first paragraph */
#define DEEPEST 64
#define GRAPH_PLACES 3 /* with fewer the program may well keep these very tensors */

const char *const leaks_by_names[] = {"site", "module", "line", NULL};

static void add_blocks(struct breakdown_shares *s, const struct leak_finding *f)
{
	for (uint64_t i = 0; i < f->blocks; i++) {
		struct block *b = f->list[i];

		LIST_ADD(s->list, s->n, s->cap, (struct breakdown_share){b, b->pool, b->bytes});
		s->bytes += b->bytes;
	}
}

static bool has_modules(const struct leak_finding *f)
{
	for (uint64_t i = 0; i < f->blocks; i++)
		if (f->list[i]->layer)
			return true;
	return false;
}

char *leak_module(const struct leaks *l, const struct leak_finding *f)
{
	const struct groups_options by_module = {.by = GROUPS_BY_MODULE, .depth = DEEPEST};
	struct breakdown_shares shares = {0};
	struct groups groups;

	if (!has_modules(f))
		return NULL;
	add_blocks(&shares, f);
	groups_build(&groups, &by_module, l->base.blocks, &shares);
	const struct group *module = groups_main_module(&groups);
	char *name = module ? xstrdup(module->name) : NULL;
	groups_release(&groups);
	breakdown_shares_release(&shares);
	return name;
}

bool leaks_keep_activations(const struct leaks *l, const struct leak_answer *a)
{
	struct breakdown_shares shares = {0};
	struct group all = {0};

	for (size_t i = 0; i < a->growing; i++)
		add_blocks(&shares, &a->findings[i]);
	for (size_t i = 0; i < shares.n; i++)
		group_add_share(&all, l->base.blocks, &shares.list[i]);
	breakdown_shares_release(&shares);
	return a->losing >= GRAPH_PLACES && all.sums.of.activation >= all.bytes - all.bytes / 4;
}

/* --- of a device of a process --- */

struct growing_device {
	const struct block_device *device;
	uint64_t bytes;
	uint64_t bytes_per_step;
	uint32_t first_step;
	struct breakdown_shares shares;
	struct groups groups;
};

struct growing_devices {
	struct growing_device *list; /* the largest first */
	size_t n, cap;
};

static struct growing_device *device_of(struct growing_devices *all, const struct block_device *d)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->list[i].device == d)
			return &all->list[i];
	LIST_ADD(all->list, all->n, all->cap,
		 (struct growing_device){.device = d, .first_step = UINT32_MAX});
	return &all->list[all->n - 1];
}

static int larger_first(const void *pa, const void *pb)
{
	const struct growing_device *a = pa, *b = pb;

	return ORDER(b->bytes, a->bytes)
		       ?: ORDER(a->device->process->pid, b->device->process->pid)
		       ?: ORDER(a->device->device, b->device->device);
}

static struct groups_options options_of(const struct leaks *l, bool lines)
{
	return (struct groups_options){
		.by = (unsigned)l->by,
		.depth = l->by == LEAKS_BY_MODULE ? DEEPEST : 0,
		.lines = lines,
	};
}

static void list_devices(const struct leaks *l, const struct leak_answer *a,
			 struct growing_devices *out)
{
	const struct groups_options options = options_of(l, true);

	*out = (struct growing_devices){0};
	for (size_t i = 0; i < a->growing; i++) {
		const struct leak_finding *f = &a->findings[i];
		struct growing_device *d = device_of(out, f->site->pool->device);

		add_blocks(&d->shares, f);
		d->bytes += f->bytes;
		d->first_step = f->first_step < d->first_step ? f->first_step : d->first_step;
		d->bytes_per_step += f->bytes_per_step;
	}
	SORT(out->list, out->n, larger_first);
	for (size_t i = 0; i < out->n; i++)
		groups_build(&out->list[i].groups, &options, l->base.blocks, &out->list[i].shares);
}

static void release_devices(struct growing_devices *all)
{
	for (size_t i = 0; i < all->n; i++) {
		groups_release(&all->list[i].groups);
		breakdown_shares_release(&all->list[i].shares);
	}
	free(all->list);
}

bool leaks_know_modules(const struct leak_answer *a)
{
	for (size_t i = 0; i < a->growing; i++)
		if (has_modules(&a->findings[i]))
			return true;
	return false;
}

/* What has nearly all, else what has most; NULL: nothing is known, or nearly all is of no group. */
static const struct group *group_to_report(const struct groups *g)
{
	const struct group *most = groups_main_module(g);

	for (size_t i = 0; i < g->n && !most; i++)
		if (g->list[i].is_rest && group_is_nearly_all(g->list[i].bytes, g->bytes))
			return NULL;
	for (size_t i = 0; i < g->n && !most; i++)
		if (!g->list[i].is_rest)
			most = &g->list[i]; /* the largest stands first */
	return most;
}

/* Of a group, per step: each call site has steps of its own that count. */
static uint64_t rate_of(const struct leaks *l, const struct leak_answer *a,
			const struct growing_device *d, const struct group *of)
{
	const struct groups_options options = options_of(l, false);
	uint64_t rate = 0, bytes = 0;

	for (size_t i = 0; i < a->growing; i++) {
		const struct leak_finding *f = &a->findings[i];
		struct breakdown_shares shares = {0};
		struct groups groups;

		if (f->site->pool->device != d->device)
			continue;
		add_blocks(&shares, f);
		groups_build(&groups, &options, l->base.blocks, &shares);
		for (size_t k = 0; k < groups.n; k++) {
			if (strcmp(groups.list[k].name, of->name) != 0)
				continue;
			bytes += groups.list[k].bytes;
			rate += groups.list[k].bytes / f->span_steps;
		}
		groups_release(&groups);
		breakdown_shares_release(&shares);
	}
	/* Alone, a call site may have a part of the modules that are one group together. */
	return bytes == of->bytes ? rate
				  : (uint64_t)((double)d->bytes_per_step * (double)of->bytes /
					       (double)d->bytes);
}

static void describe_device(const struct leaks *l, const struct leak_answer *a,
			    const struct growing_device *d, const struct group *reported,
			    struct buf *out)
{
	const char *line = groups_main_line(&d->groups, reported);
	struct buf each = {0};

	add_text(out, "{} holds {} of ", PRINTABLE(reported->name), BYTES(reported->bytes));
	words_device(out, d->device->device, false);
	add_text(out, " more than before step {}, {} per step on average", NUMBER(d->first_step),
		 BYTES(rate_of(l, a, d, reported)));
	group_describe_each(reported, &each);
	if (each.len)
		add_text(out, ", {}", TEXT(buf_str(&each)));
	if (line)
		add_text(out, ", from {}", PRINTABLE(line));
	add_text(out, " (");
	processes_describe(l->base.processes, d->device->process->pid, out);
	add_text(out, ").");
	if (reported->bytes < d->bytes)
		add_text(out, " {} more are lost elsewhere.", BYTES(d->bytes - reported->bytes));
	buf_release(&each);
}

bool leaks_describe_groups(const struct leaks *l, const struct leak_answer *a, struct buf *out)
{
	struct growing_devices all;
	size_t shown = 0, more = 0;

	list_devices(l, a, &all);
	for (size_t i = 0; i < all.n; i++) {
		const struct group *reported = group_to_report(&all.list[i].groups);

		if (!reported || shown == MAX_SHOWN) {
			more += reported != NULL;
			continue;
		}
		add_text(out, shown++ ? " " : "");
		describe_device(l, a, &all.list[i], reported, out);
	}
	if (more)
		add_text(out, " {} of processes {} memory, too.", COUNT_OF(more, "more device"),
			 TEXT(more == 1 ? "loses" : "lose"));
	release_devices(&all);
	return shown;
}

void leaks_print_groups(const struct leaks *l, const struct leak_answer *a, const struct report *r)
{
	struct growing_devices all;

	list_devices(l, a, &all);
	for (size_t i = 0; i < all.n && i < r->style->top; i++) {
		const struct growing_device *d = &all.list[i];
		struct buf title = {0};

		add_text(&title, "Lost memory of process {}, device {}, by {}",
			 NUMBER(d->device->process->pid), DEVICE(d->device->device),
			 TEXT(leaks_by_names[l->by]));
		report_title(r, buf_str(&title));
		groups_print(&d->groups, r);
		buf_release(&title);
	}
	release_devices(&all);
}

json_t *leaks_groups_json(const struct leaks *l, const struct leak_answer *a, unsigned top)
{
	struct growing_devices all;
	json_t *list = json_array();

	list_devices(l, a, &all);
	for (size_t i = 0; i < all.n; i++) {
		const struct growing_device *d = &all.list[i];
		json_t *o = json_object();

		put_number(o, "pid", d->device->process->pid);
		put_device(o, d->device->device);
		put_number(o, "bytes", d->bytes);
		put_number(o, "bytes_per_step", d->bytes_per_step);
		put_number(o, "first_step", d->first_step);
		groups_put(o, &d->groups, leaks_stacks(l), top);
		json_array_append_new(list, o);
	}
	release_devices(&all);
	return list;
}
