/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "formats/json_value.h"
#include "memory/analysis/common/breakdown.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/processes/processes.h"
#include "report/memory/memory_impl.h"
#include "wire/record.h"

static uint64_t since_start(const struct pictures *p, uint64_t time_ns)
{
	return time_ns > p->grid.start_ns ? time_ns - p->grid.start_ns : 0;
}

static json_t *scope_json(struct memory_out *o, const struct picture_scope *s)
{
	struct pictures *p = o->p;
	struct block_device *d = s->device;
	struct breakdown_moment *m = breakdown_moment(owners_breakdown(p->owners), d);
	const struct process_facts *facts =
		p->base.processes ? processes_find(p->base.processes, d->process->pid) : NULL;
	struct buf label = {0};
	json_t *scope = json_object();
	char name[16];

	processes_describe(p->base.processes, d->process->pid, &label);
	put_number(scope, "pid", d->process->pid);
	put_text(scope, "device", blocks_device_name(d->device, name));
	json_object_set_new(scope, "rank",
			    facts && facts->rank >= 0 ? json_integer(facts->rank) : json_null());
	json_object_set_new(scope, "process",
			    pack_value(o->t->pack, REDACT_WORDS, buf_str(&label)));
	json_object_set_new(scope, "command",
			    pack_value(o->t->pack, REDACT_COMMAND, d->process->command));
	put_bool(scope, "has_driver", d->has_driver);
	put_bool(scope, "has_pool", s->has_pool && d->has_driver);
	put_number(scope, "peak_bytes", d->has_driver ? m->driver_bytes : m->pool_bytes);
	put_number(scope, "peak_ns", since_start(p, m->time_ns));
	put_number(scope, "peak_step", m->step);
	buf_release(&label);
	return scope;
}

json_t *memory_scopes(struct memory_out *o)
{
	json_t *list = json_array();

	for (size_t i = 0; i < o->p->nscopes; i++)
		json_array_append_new(list, scope_json(o, &o->p->scopes[i]));
	return list;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Of each bucket its last level, and how far the highest in it was above its edges. */
static void put_scope_levels(const struct pictures *p, const struct picture_scope *s,
			     struct column *last, struct column *above)
{
	uint64_t before = 0;

	for (size_t i = 0; i < p->grid.buckets; i++) {
		struct picture_level l = {0};

		if (i < s->nlevels)
			l = s->levels[i];
		if (!l.set)
			l = (struct picture_level){.last = before, .most = before};
		column_add_signed(last, (int64_t)(l.last - before));
		uint64_t edge = larger(before, l.last);
		column_add(above, l.most > edge ? l.most - edge : 0);
		before = l.last;
	}
}

void memory_put_levels(struct memory_out *o)
{
	struct column last = {0}, above = {0};

	for (size_t i = 0; i < o->p->nscopes; i++)
		put_scope_levels(o->p, &o->p->scopes[i], &last, &above);
	pack_put(o->t->pack, o->in->prefix, "level.last", &last);
	pack_put(o->t->pack, o->in->prefix, "level.above", &above);
}

void memory_put_steps(struct memory_out *o)
{
	struct column pid = {0}, number = {0}, start = {0}, length = {0};

	for (size_t i = 0; i < o->p->nsteps; i++) {
		const struct picture_step *s = &o->p->steps[i];
		uint64_t begin = since_start(o->p, s->start_ns);

		if (!s->end_ns) /* of the last one nobody knows whether it is one */
			continue;
		column_add(&pid, s->process->pid);
		column_add(&number, s->number);
		column_add(&start, begin);
		column_add(&length, since_start(o->p, s->end_ns) - begin);
	}
	pack_put(o->t->pack, o->in->prefix, "step.pid", &pid);
	pack_put(o->t->pack, o->in->prefix, "step.number", &number);
	pack_put(o->t->pack, o->in->prefix, "step.start", &start);
	pack_put(o->t->pack, o->in->prefix, "step.length", &length);
}

/* --- addresses --- */

static void put_map_rows(struct memory_out *o, const char *prefix, const struct address_map *m)
{
	struct column piece = {0}, n = {0}, bucket = {0}, change = {0};
	uint64_t last = 0;

	for (size_t i = 0; i < m->nrows; i++) {
		const struct map_row *r = &m->rows[i];
		uint32_t before = 0;

		column_add(&piece, r->piece - last);
		column_add(&n, r->series.n);
		last = r->piece;
		for (size_t k = 0; k < r->series.n; k++) {
			const struct series_entry *e = &r->series.at[k];

			column_add(&bucket, e->bucket - before);
			column_add_signed(&change, (int64_t)(e->plus - e->minus));
			before = e->bucket;
		}
	}
	pack_put(o->t->pack, prefix, "row.piece", &piece);
	pack_put(o->t->pack, prefix, "row.entries", &n);
	pack_put(o->t->pack, prefix, "change.bucket", &bucket);
	pack_put(o->t->pack, prefix, "change.bytes", &change);
}

static void put_map_blocks(struct memory_out *o, const char *prefix, const struct address_map *m)
{
	static const char *const names[] = {"block.ptr",    "block.bytes", "block.start",
					    "block.length", "block.site",  "block.left",
					    "block.row",    "block.key"};
	struct column c[8] = {0};

	for (size_t i = 0; i < m->nblocks; i++) {
		const struct map_block *b = &m->blocks[i];
		uint64_t start = since_start(o->p, b->start_ns);
		uint32_t site =
			b->site == UINT32_MAX ? UINT32_MAX : pictures_resolve(o->p, b->site);
		const uint64_t row[8] = {b->ptr,
					 b->bytes,
					 start,
					 since_start(o->p, b->end_ns) - start,
					 site == UINT32_MAX ? 0 : o->p->sites[site].out,
					 b->left,
					 b->row,
					 b->key};

		for (size_t k = 0; k < 8; k++)
			column_add(&c[k], row[k]);
	}
	for (size_t k = 0; k < 8; k++)
		pack_put(o->t->pack, prefix, names[k], &c[k]);
}

static json_t *pool_json(struct memory_out *o, const struct block_pool *pool,
			 const struct address_map *m)
{
	uint32_t scope = 0;
	json_t *one = json_object();

	while (scope + 1 < o->p->nscopes && o->p->scopes[scope].device != pool->device)
		scope++;
	put_number(one, "number", pool->number);
	put_text(one, "name", words_pool(pool->type));
	put_text(one, "words", blocks_pool_name(pool->type));
	put_number(one, "scope", scope);
	put_number(one, "reserved", pool->reserved);
	put_bool(one, "driver", blocks_is_driver(pool->type));
	json_object_set_new(one, "map", json_null());
	if (m) {
		char *prefix = xasprintf("%smap%u.", o->in->prefix, pool->number);

		put_map_rows(o, prefix, m);
		put_map_blocks(o, prefix, m);
		json_object_set_new(
			one, "map",
			json_pack("{s:s, s:I, s:I, s:I}", "prefix", prefix, "piece_bytes",
				  (json_int_t)(1ll << m->shift), "bucket_ns",
				  (json_int_t)(1ll << (o->p->grid.shift + m->time_shift)), "others",
				  (json_int_t)m->others));
		free(prefix);
	}
	return one;
}

json_t *memory_pools(struct memory_out *o)
{
	const struct blocks *b = o->p->base.blocks;
	json_t *list = json_array();

	for (size_t i = 0; i < b->nprocesses; i++) {
		for (size_t k = 0; k < b->processes[i]->npools; k++) {
			const struct block_pool *pool = b->processes[i]->pools[k];
			const struct address_map *m =
				pool->number < o->p->nmaps ? o->p->maps[pool->number] : NULL;

			json_array_append_new(list, pool_json(o, pool, m && m->nblocks ? m : NULL));
		}
	}
	return list;
}
