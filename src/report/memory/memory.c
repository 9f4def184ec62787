/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/memory/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/common/breakdown.h"
#include "memory/analysis/processes/processes.h"
#include "memory/export/block_frames.h"
#include "report/memory/memory_impl.h"
#include "wire/record.h"

#define MOST_SITES 30000u
#define MOST_ENTRIES 700000u
#define MOST_MAP_ENTRIES 240000u /* of all maps */
#define MOST_MAPS 24u

/* --- moments --- */

struct held {
	uint32_t site; /* UINT32_MAX: free inside the pool */
	const struct block_pool *pool;
	uint32_t scope;
	uint64_t bytes, blocks;
};

struct moment {
	struct held *list;
	size_t n, cap;
};

static void count_scope(struct memory_out *o, uint32_t scope, struct moment *m)
{
	struct breakdown *c = owners_breakdown(o->p->owners);
	struct block_device *d = o->p->scopes[scope].device;
	struct breakdown_shares shares = {0};
	struct hmap of_site = {0};

	if (!breakdown_moment(c, d)->taken)
		return;
	breakdown_count(c, d, &shares);
	for (size_t i = 0; i < shares.n; i++) {
		const struct breakdown_share *s = &shares.list[i];
		uint32_t site = s->block ? pictures_site(o->p, s->block) : UINT32_MAX;
		const struct block_pool *pool = s->block ? s->block->pool : s->pool;
		uint64_t key = site == UINT32_MAX ? 1ull << 40 | pool->number : site;
		uint64_t at = hmap_get(&of_site, key);

		if (!s->bytes && !s->block)
			continue;
		if (at == HMAP_NONE) {
			at = m->n;
			LIST_ADD(m->list, m->n, m->cap, (struct held){site, pool, scope, 0, 0});
			hmap_put(&of_site, key, at);
		}
		m->list[at].bytes += s->bytes;
		m->list[at].blocks += s->block != NULL;
	}
	hmap_release(&of_site);
	breakdown_shares_release(&shares);
}

static void put_moment(struct memory_out *o, const char *name, struct moment *m)
{
	struct column scope = {0}, site = {0}, pool = {0}, bytes = {0}, blocks = {0};
	char part[32];

	for (size_t i = 0; i < m->n; i++) {
		const struct held *h = &m->list[i];
		uint32_t at = h->site == UINT32_MAX ? UINT32_MAX : pictures_resolve(o->p, h->site);

		column_add(&scope, h->scope);
		column_add(&site, at == UINT32_MAX ? 0 : o->p->sites[at].out);
		column_add(&pool, h->pool->number);
		column_add(&bytes, h->bytes);
		column_add(&blocks, h->blocks);
	}
	struct column *all[] = {&scope, &site, &pool, &bytes, &blocks};
	const char *const names[] = {"scope", "site", "pool", "bytes", "blocks"};
	for (size_t i = 0; i < 5; i++) {
		snprintf(part, sizeof(part), "%s.%s", name, names[i]);
		pack_put(o->t->pack, o->in->prefix, part, all[i]);
	}
	free(m->list);
}

/* --- what there is room for --- */

static size_t site_entries(const struct pictures *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->nsites; i++)
		n += p->sites[i].series.n;
	return n;
}

static double area_of(const struct address_map *m)
{
	double area = 0;

	for (size_t i = 0; m && i < m->nblocks; i++)
		area += m->blocks[i].area;
	return area;
}

/* A job has many helpers, whose pools come first: maps are of those with the most memory for the longest
 * time. How many there are. */
static size_t keep_largest_maps(struct pictures *p, size_t most)
{
	double *areas = xcalloc(p->nmaps + 1, sizeof(*areas));
	size_t n = 0;

	for (size_t i = 0; i < p->nmaps; i++) {
		areas[i] = area_of(p->maps[i]);
		n += areas[i] > 0;
	}
	for (size_t least = 0; n > most; n--) {
		for (size_t i = 0; i < p->nmaps; i++)
			if (areas[i] > 0 && (!(areas[least] > 0) || areas[i] < areas[least]))
				least = i;
		address_map_free(p->maps[least]);
		p->maps[least] = NULL;
		areas[least] = 0;
	}
	free(areas);
	return n;
}

static void make_small(struct pictures *p)
{
	size_t maps = keep_largest_maps(p, MOST_MAPS);

	pictures_limit(p, MOST_SITES, SIZE_MAX);
	while (site_entries(p) > MOST_ENTRIES && p->grid.buckets > 2 * GRID_FEWEST_BUCKETS)
		pictures_halve(p);
	pictures_limit(p, MOST_SITES, MOST_ENTRIES);
	for (size_t i = 0; i < p->nmaps; i++)
		if (p->maps[i])
			address_map_shrink(p->maps[i], &p->grid, MOST_MAP_ENTRIES / (maps + 1));
}

/* --- sites --- */

static uint32_t node_of_site(struct memory_out *o, const struct picture_site *s)
{
	struct block like = {.stack = s->stack, .owner = s->owner, .shadow = s->before};
	struct profile_frame others = {.name = "others, too small to be listed", .file = ""};
	const struct stack_frames *frames;
	uint32_t node = TREE_ROOT;

	if (s->stack == PICTURES_NO_STACK_KEPT)
		return tree_node(o->t, node, TREE_WORDS, &others);
	frames = block_frames_of(&o->frames, o->p->base.blocks, &like);
	for (unsigned i = frames->n; i-- > 0;) {
		const struct profile_frame *f = &frames->list[i];

		if (tree_is_import_system(f) && (i || node != TREE_ROOT))
			continue;
		enum tree_kind kind = !s->stack ? TREE_WORDS : f->users ? TREE_USERS : TREE_LIBRARY;
		node = tree_node(o->t, node, kind, f);
	}
	return node;
}

/* `model:path:class`: the path, or the model if it is the model itself. */
static uint32_t module_of_site(struct memory_out *o, const struct picture_site *s)
{
	const char *text = text_numbers_text(&o->p->base.blocks->layers, s->layer);
	size_t model = strcspn(text, ":");
	const char *path = text + model + (text[model] == ':');
	size_t len = strcspn(path, ":");

	if (!s->layer)
		return 0;
	return pack_text(o->t->pack, REDACT_MODULE, len ? path : text, len ? len : model);
}

/* add: stacks_place() for the user's own line, stacks_via() for what that called. */
static uint32_t line_of_site(struct memory_out *o, const struct picture_site *s,
			     bool add(const struct stacks *s, uint32_t number, struct buf *out))
{
	struct buf where = {0};
	uint32_t text = 0;

	if (s->stack != PICTURES_NO_STACK_KEPT && add(&o->p->base.blocks->stacks, s->stack, &where))
		text = pack_text(o->t->pack, REDACT_WORDS, where.data, where.len);
	buf_release(&where);
	return text;
}

static uint32_t owner_of_site(struct memory_out *o, const struct picture_site *s)
{
	const char *owner = text_numbers_text(&o->p->base.blocks->owners, s->owner);

	if (s->stack == PICTURES_NO_STACK_KEPT)
		owner = "others";
	else if (!*owner)
		owner = breakdown_source(s->pool->type);
	return pack_string(o->t->pack, REDACT_OWNER, owner);
}

enum site_column {
	SITE_SCOPE,
	SITE_POOL,
	SITE_NODE,
	SITE_OWNER,
	SITE_MODULE,
	SITE_LINE,
	SITE_VIA,
	SITE_TYPE,
	SITE_FLAGS,
	SITE_STANDS_FOR,
	SITE_ENTRIES,
	SITE_COLUMNS,
};
static const char *const site_names[SITE_COLUMNS] = {
	"site.scope", "site.pool", "site.node",	 "site.owner",	    "site.module", "site.line",
	"site.via",   "site.type", "site.flags", "site.stands_for", "site.entries"};

enum entry_column { ENTRY_BUCKET, ENTRY_PLUS, ENTRY_MINUS, ENTRY_MORE, ENTRY_LESS, ENTRY_COLUMNS };
static const char *const entry_names[ENTRY_COLUMNS] = {"entry.bucket", "entry.plus", "entry.minus",
						       "entry.more", "entry.less"};

static void put_series(struct column c[ENTRY_COLUMNS], const struct series *s)
{
	uint32_t before = 0;

	for (size_t i = 0; i < s->n; i++) {
		const struct series_entry *e = &s->at[i];

		column_add(&c[ENTRY_BUCKET], e->bucket - before);
		column_add(&c[ENTRY_PLUS], e->plus);
		column_add(&c[ENTRY_MINUS], e->minus);
		column_add(&c[ENTRY_MORE], e->more);
		column_add(&c[ENTRY_LESS], e->less);
		before = e->bucket;
	}
}

static void put_sites(struct memory_out *o)
{
	struct column c[SITE_COLUMNS] = {0}, e[ENTRY_COLUMNS] = {0};
	uint32_t out = 0;

	for (size_t i = 0; i < o->p->nsites; i++) {
		struct picture_site *s = &o->p->sites[i];

		if (s->folded)
			continue;
		s->out = ++out;
		const uint64_t row[SITE_COLUMNS] = {
			[SITE_SCOPE] = s->scope,
			[SITE_POOL] = s->pool->number,
			[SITE_NODE] = node_of_site(o, s),
			[SITE_OWNER] = owner_of_site(o, s),
			[SITE_MODULE] = module_of_site(o, s),
			[SITE_LINE] = line_of_site(o, s, stacks_place),
			[SITE_VIA] = line_of_site(o, s, stacks_via),
			[SITE_TYPE] = s->type,
			[SITE_FLAGS] = s->created,
			[SITE_STANDS_FOR] = s->stands_for,
			[SITE_ENTRIES] = s->series.n,
		};
		for (size_t k = 0; k < SITE_COLUMNS; k++)
			column_add(&c[k], row[k]);
		put_series(e, &s->series);
	}
	for (size_t k = 0; k < SITE_COLUMNS; k++)
		pack_put(o->t->pack, o->in->prefix, site_names[k], &c[k]);
	for (size_t k = 0; k < ENTRY_COLUMNS; k++)
		pack_put(o->t->pack, o->in->prefix, entry_names[k], &e[k]);
}

/* --- all of it --- */

static json_t *ooms_json(const struct pictures *p)
{
	json_t *list = json_array();

	for (size_t i = 0; i < p->nooms; i++) {
		char name[16];

		json_array_append_new(
			list, json_pack("{s:I, s:s, s:I, s:I}", "pid",
					(json_int_t)p->ooms[i].process->pid, "device",
					blocks_device_name(p->ooms[i].device, name), "at_ns",
					(json_int_t)(p->ooms[i].time_ns - p->grid.start_ns),
					"bytes", (json_int_t)p->ooms[i].bytes));
	}
	return list;
}

json_t *memory_json(struct pictures *p, struct tree *t, const struct memory_input *in)
{
	struct memory_out o = {.p = p, .t = t, .in = in};
	struct moment peak = {0}, end = {0};
	json_t *types = json_array();

	pictures_finish(p);
	for (uint32_t i = 0; i < p->nscopes; i++)
		count_scope(&o, i, &peak);
	json_t *scopes = memory_scopes(&o);
	for (uint32_t i = 0; i < p->nscopes; i++) {
		breakdown_take_end(owners_breakdown(p->owners), p->scopes[i].device);
		count_scope(&o, i, &end);
	}
	make_small(p);
	put_sites(&o);
	put_moment(&o, "peak", &peak);
	put_moment(&o, "end", &end);
	memory_put_levels(&o);
	memory_put_steps(&o);
	json_t *pools = memory_pools(&o);
	block_frames_release(&o.frames);
	for (size_t i = 0; i < GROUP_TYPES; i++)
		json_array_append_new(types, json_string(group_type_words(i)));
	char start[32];
	snprintf(start, sizeof(start), "%llu", (unsigned long long)p->grid.start_ns);
	return json_pack("{s:s, s:o, s:s, s:f, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:I, s:I}",
			 "prefix", in->prefix, "title", pack_value(t->pack, REDACT_PATH, in->title),
			 "start_ns", start, "start_ms", (double)p->grid.start_ns / 1e6, "bucket_ns",
			 (json_int_t)(1ll << p->grid.shift), "buckets", (json_int_t)p->grid.buckets,
			 "length_ns", (json_int_t)(p->last_ns - p->grid.start_ns), "scopes", scopes,
			 "pools", pools, "types", types, "ooms", ooms_json(p), "folded",
			 (json_int_t)p->folded, "more_steps", (json_int_t)p->more_steps, "rows",
			 (json_int_t)p->base.blocks->rows);
}
