/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/memory/pictures.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "memory/analysis/common/breakdown.h"
#include "memory/analysis/groups/groups.h"
#include "wire/record.h"

#define MOST_ENTRIES (3u << 20) /* of all series: 32 bytes each */
#define MOST_SITES 100000u
#define MOST_MAPS 256u /* the largest of them are shown */
#define MOST_STEPS 100000u
#define MOST_OOMS 1000u
#define OWN_SITE 3 /* of struct block, which breakdown.c has the first three of */
#define OWN_SCOPE 1 /* of struct block_device */

static struct breakdown *breakdown_of(struct pictures *p)
{
	return owners_breakdown(p->owners);
}

/* --- room --- */

static void halve_levels(struct picture_scope *s)
{
	size_t n = (s->nlevels + 1) / 2;

	for (size_t i = 0; i < n; i++) {
		struct picture_level a = s->levels[2 * i], b = {0};

		if (2 * i + 1 < s->nlevels)
			b = s->levels[2 * i + 1];
		if (a.set && b.set) {
			a.least = a.least < b.least ? a.least : b.least;
			a.most = a.most > b.most ? a.most : b.most;
			a.last = b.last;
		}
		s->levels[i] = a.set ? a : b;
	}
	s->nlevels = n;
}

void pictures_halve(struct pictures *p)
{
	for (size_t i = 0; i < p->nsites; i++)
		series_halve(&p->sites[i].series, &p->grid);
	for (size_t i = 0; i < p->nmaps; i++)
		if (p->maps[i])
			address_map_halve(p->maps[i], &p->grid);
	for (size_t i = 0; i < p->nscopes; i++)
		halve_levels(&p->scopes[i]);
	grid_halved(&p->grid);
}

static uint32_t site_numbered(struct pictures *p, const struct picture_site *like)
{
	const uint64_t key[] = {(uint64_t)like->pool->number << 32 | like->stack,
				(uint64_t)like->owner << 32 | like->layer,
				like->created | (uint64_t)like->before << 1};
	uint64_t hash = XXH3_64bits(key, sizeof(key));
	uint64_t at = hmap_get(&p->site_of, hash);

	if (at == HMAP_NONE) {
		at = p->nsites;
		LIST_ADD(p->sites, p->nsites, p->cap_sites, *like);
		hmap_put(&p->site_of, hash, at);
	}
	return (uint32_t)at;
}

static void fold_site(struct pictures *p, uint32_t number)
{
	struct picture_site like = {.pool = p->sites[number].pool,
				    .scope = p->sites[number].scope,
				    .stack = PICTURES_NO_STACK_KEPT,
				    .type = offsetof(struct group_types, other) / sizeof(uint64_t)};
	uint32_t into = site_numbered(p, &like);
	struct picture_site *from = &p->sites[number], *to = &p->sites[into];

	series_merge(&to->series, &from->series, &p->grid);
	to->live_bytes += from->live_bytes;
	to->live_blocks += from->live_blocks;
	to->most_bytes += from->most_bytes;
	to->allocated_bytes += from->allocated_bytes;
	to->allocations += from->allocations;
	to->stands_for++;
	from->live_bytes = from->live_blocks = from->most_bytes = 0;
	from->allocated_bytes = from->allocations = 0;
	from->folded = into + 1;
	p->folded++;
}

static int by_most(const void *a, const void *b)
{
	const struct picture_site *x = *(const struct picture_site *const *)a;
	const struct picture_site *y = *(const struct picture_site *const *)b;

	return ORDER(x->most_bytes, y->most_bytes) ?: ORDER(x->allocated_bytes, y->allocated_bytes);
}

static bool is_folded(const struct picture_site *s)
{
	return s->folded || s->stack == PICTURES_NO_STACK_KEPT;
}

static size_t count_sites(const struct pictures *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->nsites; i++)
		n += !is_folded(&p->sites[i]);
	return n;
}

static void fold_smallest(struct pictures *p, size_t n)
{
	struct picture_site **list = xcalloc(p->nsites + 1, sizeof(struct picture_site *));
	uint32_t *numbers = xcalloc(n + 1, sizeof(*numbers));
	size_t all = 0;

	for (size_t i = 0; i < p->nsites; i++)
		if (!is_folded(&p->sites[i]))
			list[all++] = &p->sites[i];
	SORT(list, all, by_most);
	for (size_t i = 0; i < n; i++) /* first, since the list of sites may move */
		numbers[i] = (uint32_t)(list[i] - p->sites);
	for (size_t i = 0; i < n; i++)
		fold_site(p, numbers[i]);
	free(numbers);
	free(list);
}

static size_t count_entries(const struct pictures *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->nsites; i++)
		n += p->sites[i].series.n;
	return n;
}

void pictures_limit(struct pictures *p, size_t sites, size_t entries)
{
	size_t n = count_sites(p);

	if (n > sites)
		fold_smallest(p, n - sites);
	while ((n = count_sites(p)) > 1 && count_entries(p) > entries)
		fold_smallest(p, (n + 3) / 4);
}

static void make_room(struct pictures *p, uint64_t time_ns)
{
	while (grid_bucket(&p->grid, time_ns) >= GRID_MOST_BUCKETS)
		pictures_halve(p);
	if (p->nsites - p->folded > MOST_SITES)
		pictures_limit(p, MOST_SITES / 2, SIZE_MAX);
	while (p->grid.entries > MOST_ENTRIES && p->grid.buckets > 2 * GRID_FEWEST_BUCKETS)
		pictures_halve(p);
	if (p->grid.entries > MOST_ENTRIES + p->map_entries)
		pictures_limit(p, SIZE_MAX, MOST_ENTRIES / 2);
}

/* --- sites --- */

uint32_t pictures_resolve(const struct pictures *p, uint32_t site)
{
	while (p->sites[site].folded)
		site = p->sites[site].folded - 1;
	return site;
}

static uint32_t scope_of(struct pictures *p, struct block_device *d)
{
	if (!d->own[OWN_SCOPE]) {
		LIST_ADD(p->scopes, p->nscopes, p->cap_scopes, (struct picture_scope){.device = d});
		d->own[OWN_SCOPE] = p->nscopes;
	}
	return (uint32_t)d->own[OWN_SCOPE] - 1;
}

static struct picture_scope *scope_at(struct pictures *p, struct block_device *d)
{
	uint32_t number = scope_of(p, d); /* the list may move */

	return &p->scopes[number];
}

static uint8_t type_of(struct pictures *p, const struct block *b)
{
	struct breakdown_share share = {(struct block *)(uintptr_t)b, b->pool, 1};
	struct group one = {0};

	group_add_share(&one, p->base.blocks, &share);
	for (size_t i = 0; i < GROUP_TYPES; i++)
		if (one.sums.each[i])
			return (uint8_t)i;
	return 0;
}

uint32_t pictures_site(struct pictures *p, const struct block *b)
{
	size_t before = p->nsites;
	struct picture_site like = {.pool = b->pool,
				    .scope = scope_of(p, b->pool->device),
				    .stack = b->stack,
				    .owner = b->owner,
				    .layer = b->layer,
				    .created = breakdown_is_created(b),
				    .before = b->shadow};
	uint32_t number = site_numbered(p, &like);

	if (p->nsites > before)
		p->sites[number].type = type_of(p, b);
	return pictures_resolve(p, number);
}

static uint32_t bucket_of(const struct pictures *p, uint64_t time_ns)
{
	uint64_t bucket = grid_bucket(&p->grid, time_ns);

	return bucket < GRID_MOST_BUCKETS ? (uint32_t)bucket : GRID_MOST_BUCKETS - 1;
}

static void site_gains(struct pictures *p, uint32_t number, const struct block *b)
{
	struct picture_site *s = &p->sites[number];
	struct series_entry *e = series_entry(&s->series, &p->grid, bucket_of(p, b->time_ns));

	e->plus += b->bytes;
	e->more++;
	s->live_bytes += b->bytes;
	s->live_blocks++;
	s->allocated_bytes += b->bytes;
	s->allocations++;
	if (s->live_bytes > s->most_bytes)
		s->most_bytes = s->live_bytes;
}

/* As if it had never been there: it belongs to another site, or is divided among blocks in it. */
static void site_forgets(struct pictures *p, uint32_t number, const struct block *b)
{
	struct picture_site *s = &p->sites[number];
	struct series_entry *e = series_entry(&s->series, &p->grid, bucket_of(p, b->time_ns));

	e->plus -= b->bytes;
	e->more--;
	s->live_bytes -= b->bytes;
	s->live_blocks--;
	s->allocated_bytes -= b->bytes;
	s->allocations--;
}

static void site_loses(struct pictures *p, uint32_t number, uint64_t bytes, uint32_t blocks,
		       uint64_t time_ns)
{
	struct picture_site *s = &p->sites[number];
	struct series_entry *e = series_entry(&s->series, &p->grid, bucket_of(p, time_ns));

	e->minus += bytes;
	e->less += blocks;
	s->live_bytes -= bytes;
	s->live_blocks -= blocks;
}

/* Its owner became known, or pools cut from it: then it is in no site. */
static void check_site(struct pictures *p, struct block *b)
{
	uint32_t was = b->own[OWN_SITE] ? (uint32_t)b->own[OWN_SITE] - 1 : UINT32_MAX;
	bool carved = blocks_is_driver(b->pool->type) && breakdown_is_carved(b);
	uint32_t is = carved ? UINT32_MAX : pictures_site(p, b);

	if (was != UINT32_MAX)
		was = pictures_resolve(p, was);
	if (is == was)
		return;
	if (was != UINT32_MAX)
		site_forgets(p, was, b);
	if (is != UINT32_MAX)
		site_gains(p, is, b);
	b->own[OWN_SITE] = is == UINT32_MAX ? 0 : is + 1u;
}

/* --- levels --- */

static uint64_t level_of(const struct picture_scope *s)
{
	return s->device->has_driver ? s->device->driver_bytes + s->left_driver
				     : s->device->pool_bytes + s->left_pool;
}

static void note_level(struct pictures *p, struct block_device *d, uint64_t time_ns)
{
	struct picture_scope *s = scope_at(p, d);
	uint32_t bucket = bucket_of(p, time_ns);
	uint64_t level = level_of(s);

	s->levels = xgrow(s->levels, &s->cap_levels, bucket + 1u, sizeof(*s->levels));
	if (bucket >= s->nlevels) {
		memset(s->levels + s->nlevels, 0, (bucket + 1 - s->nlevels) * sizeof(*s->levels));
		s->nlevels = bucket + 1u;
	}
	struct picture_level *l = &s->levels[bucket];
	if (!l->set || level < l->least)
		l->least = level;
	if (!l->set || level > l->most)
		l->most = level;
	l->last = level;
	l->set = true;
}

/* --- addresses --- */

static struct address_map *map_of(struct pictures *p, const struct block_pool *pool)
{
	if (pool->number >= p->nmaps) {
		p->maps = xgrow(p->maps, &p->cap_maps, pool->number + 1u, sizeof(*p->maps));
		memset(p->maps + p->nmaps, 0, (pool->number + 1 - p->nmaps) * sizeof(*p->maps));
		p->nmaps = pool->number + 1u;
	}
	if (!p->maps[pool->number] && p->maps_made < MOST_MAPS) {
		p->maps[pool->number] = address_map_new(pool);
		p->maps_made++;
	}
	return p->maps[pool->number];
}

static void map_block(struct pictures *p, const struct block *b, uint64_t time_ns, bool comes)
{
	struct address_map *m = map_of(p, b->pool);

	if (m && !breakdown_is_created(b))
		address_map_change(m, &p->grid, b, bucket_of(p, time_ns), comes);
}

static void map_ended(struct pictures *p, const struct block *b, uint64_t time_ns, bool left)
{
	struct address_map *m = map_of(p, b->pool);

	if (m && !breakdown_is_created(b))
		address_map_ended(m, b,
				  b->own[OWN_SITE] ? (uint32_t)b->own[OWN_SITE] - 1 : UINT32_MAX,
				  time_ns, left);
}

/* --- rows --- */

static void note_step(struct pictures *p, const struct block_change *c, uint64_t time_ns)
{
	size_t i = p->nsteps;

	if (c->steps_anew) {
		size_t n = 0;
		for (size_t k = 0; k < p->nsteps; k++)
			if (p->steps[k].process != c->process)
				p->steps[n++] = p->steps[k];
		i = p->nsteps = n;
	}
	while (c->step_ended && i &&
	       (p->steps[i - 1].process != c->process || p->steps[i - 1].end_ns))
		i--;
	if (c->step_ended && i)
		p->steps[i - 1].end_ns = time_ns;
	else if (c->step_ended && p->nsteps < MOST_STEPS) /* the first began before it was known */
		LIST_ADD(p->steps, p->nsteps, p->cap_steps,
			 (struct picture_step){c->process, c->step_ended, p->first_ns, time_ns});
	if (c->step_begun && p->nsteps < MOST_STEPS)
		LIST_ADD(p->steps, p->nsteps, p->cap_steps,
			 (struct picture_step){c->process, c->step_begun, time_ns, 0});
	else if (c->step_begun)
		p->more_steps++;
}

static void note_oom(struct pictures *p, const struct row *row, const struct block_change *c)
{
	uint64_t bytes = 0;

	if (row->type != TYPE_OOM_TRIGGER || p->nooms >= MOST_OOMS)
		return;
	if (!row_number(row, ATTR_SIZE, &bytes))
		row_number(row, ATTR_REQ_SIZE, &bytes);
	LIST_ADD(p->ooms, p->nooms, p->cap_ooms,
		 (struct picture_oom){c->process, row->device, row->time_ns, bytes});
}

static void on_alloc(struct pictures *p, struct block *b, uint64_t time_ns)
{
	struct block *driver = breakdown_of(p)->carved;

	if (!blocks_is_driver(b->pool->type))
		scope_at(p, b->pool->device)->has_pool = true;
	check_site(p, b);
	map_block(p, b, time_ns, true);
	if (driver)
		check_site(p, driver);
}

static void on_end(struct pictures *p, struct block *b, const struct row *row, bool left)
{
	struct picture_scope *s = scope_at(p, b->pool->device);

	check_site(p, b);
	map_ended(p, b, row->time_ns, left);
	if (left) {
		*(blocks_is_driver(b->pool->type) ? &s->left_driver : &s->left_pool) += b->bytes;
		return;
	}
	if (b->own[OWN_SITE])
		site_loses(p, pictures_resolve(p, (uint32_t)b->own[OWN_SITE] - 1), b->bytes, 1,
			   row->time_ns);
	map_block(p, b, row->time_ns, false);
}

static void pictures_row(struct analysis *a, const struct row *row)
{
	struct pictures *p = (struct pictures *)a;

	if (!p->grid.begun) {
		grid_begin(&p->grid, row->time_ns);
		p->first_ns = row->time_ns;
	}
	if (row->time_ns > p->last_ns)
		p->last_ns = row->time_ns;
	make_room(p, row->time_ns);
	p->owners->ops->row(p->owners, row);
	const struct block_change *c = owners_change(p->owners);
	if (c->step_ended || c->step_begun || c->steps_anew)
		note_step(p, c, row->time_ns);
	if (row->event == ROW_OOM_DETAIL && c->process)
		note_oom(p, row, c);
	if (c->what == BLOCKS_ALLOC)
		on_alloc(p, c->block, row->time_ns);
	else if ((c->what == BLOCKS_FREE || c->what == BLOCKS_LEFT) && c->block)
		on_end(p, c->block, row, c->what == BLOCKS_LEFT);
	else if (c->what == BLOCKS_ACCESS && c->block)
		check_site(p, c->block);
	if ((c->what == BLOCKS_ALLOC || c->what == BLOCKS_FREE || c->what == BLOCKS_LEFT) &&
	    c->pool)
		note_level(p, c->pool->device, row->time_ns);
}

static void pictures_process(struct analysis *a, uint32_t pid, const char *command)
{
	struct pictures *p = (struct pictures *)a;

	p->owners->ops->process(p->owners, pid, command);
}

static bool pictures_unordered(const struct analysis *a)
{
	const struct pictures *p = (const struct pictures *)a;

	return p->owners->ops->unordered(p->owners);
}

static size_t pictures_findings(struct analysis *a)
{
	(void)a;
	return 0;
}

static void pictures_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct pictures *p = (struct pictures *)a;

	p->owners->processes = a->processes;
	p->owners->ops->text(p->owners, style, out);
}

static json_t *pictures_json(struct analysis *a, unsigned top)
{
	struct pictures *p = (struct pictures *)a;

	p->owners->processes = a->processes;
	return p->owners->ops->json(p->owners, top);
}

static void pictures_free(struct analysis *a)
{
	struct pictures *p = (struct pictures *)a;

	for (size_t i = 0; i < p->nsites; i++)
		series_release(&p->sites[i].series);
	for (size_t i = 0; i < p->nscopes; i++)
		free(p->scopes[i].levels);
	for (size_t i = 0; i < p->nmaps; i++)
		address_map_free(p->maps[i]);
	hmap_release(&p->site_of);
	free(p->sites);
	free(p->scopes);
	free(p->maps);
	free(p->steps);
	free(p->ooms);
	analysis_free(p->owners);
	free(p);
}

/* --- the end --- */

/* Blocks that are gone without a word, since their frees were lost, go at the end. */
static void drop_vanished(struct pictures *p)
{
	struct block_walk w = {.blocks = p->base.blocks};
	struct {
		uint64_t bytes, blocks;
	} *alive = xcalloc(p->nsites + 1, sizeof(*alive));

	for (struct block *b; (b = blocks_next(&w));) {
		if (!b->own[OWN_SITE])
			continue;
		uint32_t site = pictures_resolve(p, (uint32_t)b->own[OWN_SITE] - 1);
		alive[site].bytes += b->bytes;
		alive[site].blocks++;
	}
	for (uint32_t i = 0; i < p->nsites; i++) {
		const struct picture_site *s = &p->sites[i];

		if (s->live_bytes > alive[i].bytes || s->live_blocks > alive[i].blocks)
			site_loses(p, i, s->live_bytes - alive[i].bytes,
				   (uint32_t)(s->live_blocks - alive[i].blocks), p->last_ns);
	}
	free(alive);
}

void pictures_finish(struct pictures *p)
{
	struct block_walk w = {.blocks = p->base.blocks};

	if (p->finished || !p->grid.begun)
		return;
	p->finished = true;
	for (struct block *b; (b = blocks_next(&w));)
		if (b->state == BLOCK_ALIVE)
			map_ended(p, b, p->last_ns, true);
	drop_vanished(p);
	uint32_t last = bucket_of(p, p->last_ns);
	if (last >= p->grid.buckets)
		p->grid.buckets = last + 1;
	for (size_t i = 0; i < p->nmaps; i++)
		if (p->maps[i])
			address_map_sort(p->maps[i]);
}

static const struct analysis_ops ops = {
	.name = "report",
	.attrs = BREAKDOWN_ATTRS | 1ull << ATTR_REQ_SIZE,
	.row = pictures_row,
	.process = pictures_process,
	.unordered = pictures_unordered,
	.findings = pictures_findings,
	.text = pictures_text,
	.json = pictures_json,
	.free = pictures_free,
};

struct pictures *pictures_new(void)
{
	struct pictures *p = xcalloc(1, sizeof(*p));

	p->owners = owners_new(NULL);
	p->base = (struct analysis){.ops = &ops, .blocks = p->owners->blocks};
	return p;
}
