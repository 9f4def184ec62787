/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The rules of inefficient memory, and which blocks they hit; inefficient.h has them in words. */
#include "memory/analysis/inefficient/inefficient.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/inefficient/inefficient_impl.h"
#include "memory/options/asked.h"

_Static_assert(sizeof(struct use) == sizeof(((struct block *)0)->own), "one has to fit");

static const char *const kind_names[KINDS] = {
	[INEFFICIENT_EARLY] = "early_allocation",
	[INEFFICIENT_LATE] = "late_deallocation",
	[INEFFICIENT_IDLE] = "temporary_idleness",
};

const char *inefficient_kind_name(enum inefficient_kind kind)
{
	return kind_names[kind];
}

enum inefficient_kind inefficient_kind_find(const char *text, size_t len)
{
	static const char *const letters[KINDS] = {"early", "late", "idle"};
	int k = 0;

	while (k < KINDS && (strlen(kind_names[k]) != len || memcmp(text, kind_names[k], len)) &&
	       (strlen(letters[k]) != len || memcmp(text, letters[k], len)))
		k++;
	return (enum inefficient_kind)k;
}

static void use_set(struct block *block, const struct use *u)
{
	memcpy(block->own, u, sizeof(*u));
}

/* --- marks --- */

static uint32_t mark_new(struct inefficient *a)
{
	uint32_t n = a->unused_marks;

	if (n) {
		a->unused_marks = a->marks[n].next;
	} else {
		if (!a->nmarks)
			a->nmarks = 1;
		BUG_ON(a->nmarks >= UINT32_MAX);
		a->marks = xgrow(a->marks, &a->marks_cap, a->nmarks + 1, sizeof(*a->marks));
		n = (uint32_t)a->nmarks++;
	}
	a->marks[n] = (struct mark){0};
	return n;
}

static void mark_release(struct inefficient *a, uint32_t n)
{
	if (!n)
		return;
	a->marks[n].next = a->unused_marks;
	a->unused_marks = n;
}

/*
 * The tags of a block are six bits: two for each, the first in the lowest. Ids are mostly counted,
 * so ten blocks that follow each other share a place in the map.
 */
#define TAGS_BITS 6
#define TAGS_TOGETHER 10

static unsigned tags_shift(uint64_t allocation_id)
{
	return (unsigned)(allocation_id % TAGS_TOGETHER * TAGS_BITS);
}

static void add_tag(struct inefficient *a, const struct block *block, enum inefficient_kind kind)
{
	struct process_use *p = block->pool->process->own;
	uint64_t key = block->key / TAGS_TOGETHER, tag = (uint64_t)kind + 1;
	unsigned shift = tags_shift(block->key), end = shift + TAGS_BITS;

	if (block->key >> 63) /* has no allocation_id */
		return;
	uint64_t all = hmap_get(&p->tags, key);
	if (all == HMAP_NONE)
		all = 0;
	if (!(all >> shift & 3))
		a->marked++;
	for (; shift < end && all >> shift & 3; shift += 2)
		if ((all >> shift & 3) == tag)
			return;
	all |= tag << shift;
	hmap_put(&p->tags, key, all);
	if (a->marks_of)
		a->marks_of(a->marks_arg, block->pool->process->pid, block->key,
			    a->tags[all >> tags_shift(block->key) & 63]);
}

void inefficient_listen(struct analysis *base, inefficient_marks marks, void *arg)
{
	struct inefficient *a = (struct inefficient *)base;

	a->marks_of = marks;
	a->marks_arg = arg;
}

static void mark_block(struct inefficient *a, struct block *block, struct use *u,
		       enum inefficient_kind kind, struct wait wait)
{
	struct clock *c = block->pool->own;

	if (block->bytes < a->options.min_bytes || !(a->options.kinds >> kind & 1))
		return;
	if (!u->mark)
		u->mark = mark_new(a);
	a->marks[u->mark].wait[kind] = wait;
	c->marked_blocks[kind]++;
	c->marked_bytes[kind] += block->bytes;
	add_tag(a, block, kind);
}

static void name_tags(struct inefficient *a)
{
	for (unsigned i = 0; i < 64; i++) {
		struct buf text = {0};

		for (unsigned rest = i; rest & 3; rest >>= 2)
			buf_addf(&text, "%s%s", text.len ? "," : "", kind_names[(rest & 3) - 1]);
		snprintf(a->tags[i], sizeof(a->tags[i]), "%s", buf_str(&text));
		buf_release(&text);
	}
}

static const char *tags_in(const struct inefficient *a, const struct block_process *p,
			   uint64_t allocation_id)
{
	const struct process_use *u = p->own;
	uint64_t all = u ? hmap_get(&u->tags, allocation_id / TAGS_TOGETHER) : HMAP_NONE;
	uint64_t tags = all == HMAP_NONE ? 0 : all >> tags_shift(allocation_id) & 63;

	return tags ? a->tags[tags] : NULL;
}

const char *inefficient_of(struct analysis *base, uint32_t pid, uint64_t allocation_id)
{
	struct inefficient *a = (struct inefficient *)base;
	struct block_process *p = a->last_found;

	for (size_t i = a->base.blocks->nprocesses; (!p || p->pid != pid) && i; i--)
		p = a->base.blocks->processes[i - 1];
	if (!p || p->pid != pid)
		return NULL;
	a->last_found = p;
	return tags_in(a, p, allocation_id);
}

uint64_t inefficient_marked(const struct analysis *base)
{
	return ((const struct inefficient *)base)->marked;
}

/* --- call sites --- */

static struct site *site_of(struct sites *s, const struct block *block, enum inefficient_kind kind)
{
	uint64_t key = (uint64_t)block->stack << 32 | block->pool->number << 2 | kind;
	uint64_t found = hmap_get(&s->by_key, key);

	if (found != HMAP_NONE)
		return &s->list[found];
	s->list = xgrow(s->list, &s->cap, s->n + 1, sizeof(*s->list));
	s->list[s->n] = (struct site){.pool = block->pool, .stack = block->stack, .kind = kind};
	hmap_put(&s->by_key, key, s->n);
	return &s->list[s->n++];
}

static void site_add(struct site *s, const struct block *block, const struct wait *w)
{
	if (s->blocks < EXAMPLES)
		s->examples[s->blocks] =
			(struct example){block->key, block->ptr, block->bytes, block->time_ns, *w};
	s->blocks++;
	s->bytes += block->bytes;
	s->weight += (double)block->bytes * w->calls;
	if (w->calls > s->longest_calls)
		s->longest_calls = w->calls;
	if (!w->peak)
		return;
	if (s->at_peak != w->peak) {
		if (s->at_peak > w->peak)
			return;
		s->at_peak = w->peak;
		s->at_peak_bytes = 0;
	}
	s->at_peak_bytes += block->bytes;
}

struct waste inefficient_site_waste(const struct site *s)
{
	const struct clock *c = s->pool->own;

	return (struct waste){s->blocks, s->bytes, s->at_peak == c->peak ? s->at_peak_bytes : 0};
}

/* Is it worth reporting? */
static bool is_finding(const struct block *block, const struct use *u, enum inefficient_kind kind,
		       const struct wait *w, uint32_t end_call)
{
	uint32_t life = end_call - u->malloc_call;

	if (!w->calls || block->shadow || block->carried || w->calls <= life / 2)
		return false;
	if (kind == INEFFICIENT_LATE)
		return w->calls >= MIN_CALLS;
	if (u->flags & USE_SET_UP || (!block->step && block->pool->process->step))
		return false;
	if (kind == INEFFICIENT_IDLE)
		return true;
	return w->calls >= MIN_CALLS && !(u->flags & USE_COMPUTED);
}

static void settle_block(const struct inefficient *a, struct sites *s, const struct block *block,
			 uint32_t end_call)
{
	struct use u = inefficient_use(block);

	for (int k = 0; u.mark && k < KINDS; k++) {
		const struct wait *w = &a->marks[u.mark].wait[k];

		if (is_finding(block, &u, (enum inefficient_kind)k, w, end_call))
			site_add(site_of(s, block, (enum inefficient_kind)k), block, w);
	}
}

void inefficient_sites_list(struct inefficient *a, struct sites *out)
{
	struct block_walk w = {.blocks = a->base.blocks};
	uint64_t key, value;
	size_t at = 0;

	*out = (struct sites){.n = a->ended.n};
	out->list = xgrow(NULL, &out->cap, out->n + 1, sizeof(*out->list));
	if (out->n)
		memcpy(out->list, a->ended.list, out->n * sizeof(*out->list));
	while (hmap_next(&a->ended.by_key, &at, &key, &value))
		hmap_put(&out->by_key, key, value);
	for (struct block *b; (b = blocks_next(&w));)
		if (b->pool->own)
			settle_block(a, out, b, ((const struct clock *)b->pool->own)->calls);
}

void inefficient_sites_release(struct sites *s)
{
	free(s->list);
	hmap_release(&s->by_key);
}

/* --- rules --- */

/* The time from a call, when `peak` was the newest one, until now. */
static struct wait wait_until(const struct clock *c, uint32_t call, uint32_t since, uint32_t peak)
{
	return (struct wait){.calls = call - since, .peak = c->peak != peak ? c->peak : 0};
}

static void on_alloc(struct block_process *p, const struct row *row, struct block *block)
{
	struct clock *c = inefficient_clock(block->pool);
	struct use u = {.flags = USE_FOLLOWED};

	if (!c)
		return;
	/* One that was there before was not allocated now. */
	u.malloc_call = block->shadow || block->carried ? c->calls
							: inefficient_call(p, row, c, &u.malloc_op);
	if (!c->has_ops)
		u.flags |= USE_SET_UP;
	u.last_call = u.malloc_call;
	u.malloc_peak = u.last_peak = c->peak;
	use_set(block, &u);
	if (block->pool->live_bytes < c->peak_bytes)
		return;
	/* The last of several equal ones counts: the first steps are not like the others. */
	c->peak_bytes = block->pool->live_bytes;
	c->peak_ns = row->time_ns;
	if (c->peak < UINT32_MAX)
		c->peak++;
}

static void judge_idle(struct inefficient *a, struct block *block, struct use *u, uint32_t call,
		       uint32_t name)
{
	struct clock *c = block->pool->own;

	if (!(u->flags & USE_ACCESSED) || call <= u->last_call ||
	    call - u->last_call <= a->options.idle_calls ||
	    (u->mark && a->marks[u->mark].wait[INEFFICIENT_IDLE].calls))
		return;
	struct wait w = wait_until(c, call, u->last_call, u->last_peak);
	w.before = u->last_op;
	w.after = name;
	mark_block(a, block, u, INEFFICIENT_IDLE, w);
}

/* At the first ACCESS in another call than the MALLOC. */
static void judge_early(struct inefficient *a, struct block *block, struct use *u, uint32_t call,
			uint32_t name)
{
	struct clock *c = block->pool->own;

	if (!c->last_free || u->malloc_call >= c->last_free || c->last_free >= call)
		return;
	struct wait w = wait_until(c, call, u->malloc_call, u->malloc_peak);
	w.before = u->malloc_op;
	w.after = name;
	mark_block(a, block, u, INEFFICIENT_EARLY, w);
	/* If the same time counts as idle, too, its bytes are counted once. */
	if (u->mark && a->marks[u->mark].wait[INEFFICIENT_EARLY].calls &&
	    !(u->flags & USE_COMPUTED))
		a->marks[u->mark].wait[INEFFICIENT_IDLE].peak = 0;
}

static void judge_access(struct inefficient *a, struct block *block, uint32_t call, uint32_t name)
{
	const struct clock *c = block->pool->own;
	struct use u = inefficient_use(block);

	judge_idle(a, block, &u, call, name);
	if (call != u.malloc_call) {
		if (!(u.flags & USE_LEFT_CALL))
			judge_early(a, block, &u, call, name);
		u.flags |= USE_LEFT_CALL;
	} else if (!inefficient_makes_only(a, name)) {
		u.flags |= USE_COMPUTED;
	}
	u.flags |= USE_ACCESSED;
	u.last_peak = c->peak;
	u.last_call = call;
	u.last_op = name;
	use_set(block, &u);
}

/* -1: of another kind of memory. */
static int family_of(const struct row *row, const struct block *block)
{
	const struct attr *type = row_attr(row, ATTR_TYPE);

	if (type && type->kind == ATTR_TEXT)
		return inefficient_family(row_type_find(type->text, type->text_len));
	return block ? inefficient_family(block->pool->type) : -1;
}

static void on_access(struct inefficient *a, struct block_process *p, const struct row *row,
		      struct block *block)
{
	int family = family_of(row, block);
	struct clock *own = block ? block->pool->own : NULL, *c = own;
	uint32_t op;

	if (family < 0)
		return;
	if (!own || inefficient_family(own->pool->type) != family)
		c = inefficient_clock_find(p, family,
					   block ? block->pool->device->device : row->device);
	if (!c)
		return;
	c->accesses++;
	uint32_t call = inefficient_call(p, row, c, &op);
	/* A block of ATB that ATen announces is not one of ATen's pool: no rule is for it. */
	if (own && own == c)
		judge_access(a, block, call, inefficient_name(a, row->name, row->name_len));
}

static void block_ends(struct inefficient *a, struct block *block, uint32_t call)
{
	struct clock *c = block->pool->own;
	struct use u = inefficient_use(block);

	settle_block(a, &a->ended, block, call);
	if (!(u.flags & USE_ACCESSED)) {
		c->unseen.blocks++;
		c->unseen.bytes += block->bytes;
	}
	mark_release(a, u.mark);
	memset(block->own, 0, sizeof(block->own));
}

static void on_free(struct inefficient *a, struct block_process *p, const struct row *row,
		    const struct block_change *change)
{
	struct clock *c = inefficient_clock(change->pool);
	struct block *block = change->block;
	uint32_t op;

	if (!c)
		return;
	uint32_t call = inefficient_call(p, row, c, &op);
	if (!block || !(inefficient_use(block).flags & USE_FOLLOWED))
		return;
	struct use u = inefficient_use(block);
	if (u.flags & USE_ACCESSED && c->last_malloc && u.last_call < c->last_malloc &&
	    c->last_malloc < call) {
		struct wait w = wait_until(c, call, u.last_call, u.last_peak);
		w.before = u.last_op;
		w.after = op;
		mark_block(a, block, &u, INEFFICIENT_LATE, w);
		use_set(block, &u);
	}
	block_ends(a, block, call);
}

static void inefficient_row(struct analysis *base, const struct row *row)
{
	struct inefficient *a = (struct inefficient *)base;
	struct block_change c;

	switch (blocks_add(a->base.blocks, row, &c)) {
	case BLOCKS_ALLOC:
		on_alloc(c.process, row, c.block);
		break;
	case BLOCKS_FREE:
		on_free(a, c.process, row, &c);
		break;
	case BLOCKS_LEFT:
		if (c.block && inefficient_use(c.block).flags & USE_FOLLOWED)
			block_ends(a, c.block, ((struct clock *)c.pool->own)->calls);
		break;
	case BLOCKS_ACCESS:
		on_access(a, c.process, row, c.block);
		break;
	default:
		if (row->event == ROW_OP_LAUNCH)
			inefficient_op(a, c.process, row);
		else if (c.step_begun || c.step_ended)
			inefficient_no_op(c.process, row->tid);
		break;
	}
}

/* --- what every analysis has --- */

static void inefficient_process(struct analysis *base, uint32_t pid, const char *command)
{
	struct inefficient *a = (struct inefficient *)base;

	blocks_process(a->base.blocks, pid, command);
	a->last_found = NULL; /* the pid may be another process now */
}

static size_t inefficient_findings(struct analysis *base)
{
	struct sites s;

	inefficient_sites_list((struct inefficient *)base, &s);
	size_t n = s.n;
	inefficient_sites_release(&s);
	return n;
}

static void inefficient_free(struct analysis *base)
{
	struct inefficient *a = (struct inefficient *)base;

	inefficient_calls_release(a);
	blocks_free(a->base.blocks);
	inefficient_sites_release(&a->ended);
	free(a->marks);
	free(a);
}

static bool inefficient_judged(struct analysis *a)
{
	struct verdict v;

	inefficient_verdict((struct inefficient *)a, &v);
	bool judged = v.accesses > 0;
	inefficient_verdict_release(&v);
	return judged;
}

static void inefficient_asked(struct analysis *base, const struct mem_asked *asked)
{
	((struct inefficient *)base)->accesses_asked = asked->known && asked->accesses;
	((struct inefficient *)base)->operators_asked = asked->known && asked->operators;
}

static const struct analysis_ops ops = {
	.name = "inefficient",
	.attrs = BLOCKS_ATTRS | 1ull << ATTR_TYPE,
	.row = inefficient_row,
	.process = inefficient_process,
	.unordered = analysis_blocks_unordered,
	.asked = inefficient_asked,
	.judged = inefficient_judged,
	.findings = inefficient_findings,
	.text = inefficient_text,
	.json = inefficient_json,
	.free = inefficient_free,
};

struct analysis *inefficient_new(const struct inefficient_options *o)
{
	struct inefficient *a = xcalloc(1, sizeof(*a));

	a->base = (struct analysis){.ops = &ops, .blocks = blocks_new()};
	if (o)
		a->options = *o;
	if (!a->options.kinds)
		a->options.kinds = INEFFICIENT_ALL;
	if (!a->options.idle_calls)
		a->options.idle_calls = INEFFICIENT_IDLE_CALLS;
	name_tags(a);
	return &a->base;
}
