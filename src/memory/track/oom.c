/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What is written when the driver refuses memory: the request (OOM_TRIGGER), the state of the
 * device (a SNAPSHOT row named OOM_Snapshot, where the device's memory is known), and the blocks
 * that were alive: the K most recent and the K largest. The blocks are listed once in two seconds
 * and process, since a framework that runs dry asks again and again.
 */
#include "memory/track/track_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define SECOND_NS 1000000000ull
#define DETAIL_NS (2 * SECOND_NS)
#define MAX_LISTED (1ull << 28) /* blocks of a process, in all its lists */
#define SAMPLE_NS (5 * SECOND_NS) /* an older one says nothing about a row */
#define OOM_SNAPSHOT "OOM_Snapshot"

/* --- samples of device memory --- */

static bool has_sample(const struct usage *u)
{
	return u->memory.head.size != 0;
}

static bool sample_is_young(const struct usage *u, uint64_t time_ns)
{
	uint64_t at = u->memory.head.time_ns;

	return has_sample(u) && (time_ns > at ? time_ns - at : at - time_ns) <= SAMPLE_NS;
}

void rows_put_device(const struct usage *u, struct row *row, uint64_t time_ns)
{
	if (!sample_is_young(u, time_ns))
		return;
	if (u->memory.process_bytes != DEVICE_UNKNOWN)
		row_attr_number(row, ATTR_PROCESS_USED, u->memory.process_bytes);
	row_attr_number(row, ATTR_DEVICE_USED, u->memory.used_bytes);
	if (u->memory.job_kib)
		row_attr_number(row, ATTR_JOB_USED, (uint64_t)u->memory.job_kib << 10);
}

static uint64_t minus_or_zero(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

void rows_put_total(struct proc *p, struct row *row, uint64_t time_ns)
{
	const struct usage *first = NULL;

	for (size_t i = 0; i < p->nusage; i++) {
		const struct usage *u = &p->usage[i];
		if (sample_is_young(u, time_ns) && (!first || u->device < first->device))
			first = u;
	}
	if (!first)
		return;
	row_attr_number(row, ATTR_FREE,
			minus_or_zero(first->memory.total_bytes, first->memory.used_bytes));
	row_attr_number(row, ATTR_TOTAL, first->memory.total_bytes);
}

/* --- the snapshot --- */

/* The driver hands out whole pages. Sums may wrap with foreign sizes and come back the same way. */
uint64_t whole_pages(const struct block *b)
{
	static const uint64_t page_bytes[] = {4u << 10, 2u << 20, 1u << 30};
	uint64_t page = page_bytes[b->page <= PAGE_GIANT ? b->page : PAGE_NORMAL];

	return (b->size_bytes + page - 1) & ~(page - 1);
}

/* The pool that the framework of this process has; the driver's own blocks where there is none. */
static unsigned main_pool(const struct usage *u)
{
	static const uint8_t pools[] = {POOL_PTA, POOL_TORCH, POOL_MINDSPORE, POOL_ATB,
					POOL_PTA_WORKSPACE};
	const unsigned driver = u->gpu_bytes ? POOL_CUDA : POOL_HAL;
	unsigned best = driver;

	for (size_t i = 0; i < sizeof(pools); i++)
		if (u->peak_used[pools[i]] > (best == driver ? 0 : u->peak_used[best]))
			best = pools[i];
	return best;
}

/*
 * Now, from the newest sample: what others have changes slowly, what this process has is known to
 * the byte.
 */
static uint64_t free_bytes(const struct usage *u)
{
	const struct rec_device *m = &u->memory;
	uint64_t used = m->used_bytes;

	/* Of CUDA the process has more than its blocks: context, pools. */
	if (m->process_bytes != DEVICE_UNKNOWN && !u->gpu_bytes)
		used = minus_or_zero(used, m->process_bytes) + u->own_bytes;
	return minus_or_zero(m->total_bytes, used);
}

static double percent_of(uint64_t part, uint64_t whole)
{
	return whole ? (double)part * 100.0 / (double)whole : 0;
}

/* Bytes; `name` is borrowed. */
struct snapshot {
	uint64_t reserved, peak_reserved, allocated, peak_allocated, total, available;
	const char *name;
	size_t name_len;
};

static void emit_snapshot(struct proc *p, struct row *row, const struct snapshot *s, uint32_t stack)
{
	char device[32], framework[32];

	row->name = s->name;
	row->name_len = (uint32_t)s->name_len;
	row_attr_number(row, ATTR_RESERVED, s->reserved);
	row_attr_number(row, ATTR_PEAK_RESERVED, s->peak_reserved);
	row_attr_number(row, ATTR_ALLOCATED, s->allocated);
	row_attr_number(row, ATTR_PEAK_ALLOCATED, s->peak_allocated);
	row_attr_number(row, ATTR_TOTAL_MEM, s->total);
	row_attr_number(row, ATTR_FREE_MEM, s->available);
	snprintf(device, sizeof(device), "%f",
		 percent_of(minus_or_zero(s->total, s->available), s->total));
	row_attr_text(row, ATTR_DEVICE_UTILIZATION, device, strlen(device));
	snprintf(framework, sizeof(framework), "%f", percent_of(s->allocated, s->reserved));
	row_attr_text(row, ATTR_PT_UTILIZATION, framework, strlen(framework));
	rows_put_stack(p, row, stack);
	rows_emit(p, row);
}

static void put_snapshot(struct proc *p, uint32_t tid, const struct usage *u, uint32_t stack,
			 uint64_t time_ns)
{
	unsigned pool = main_pool(u);
	bool driver = pool == POOL_HAL || pool == POOL_CUDA;
	struct snapshot s = {
		.reserved = driver ? u->used[pool] : u->total[pool],
		.peak_reserved = driver ? u->peak_used[pool] : u->peak_total[pool],
		.allocated = u->used[pool],
		.peak_allocated = u->peak_used[pool],
		.total = u->memory.total_bytes,
		.available = free_bytes(u),
		.name = OOM_SNAPSHOT,
		.name_len = strlen(OOM_SNAPSHOT),
	};
	struct row row;

	rows_begin(p, &row, ROW_SNAPSHOT, TYPE_SNAPSHOT, tid, u->device, time_ns);
	row.hidden = !(p->cfg->analysis & MEM_OOM);
	if (u->gpu_bytes) /* who has it */
		rows_put_device(u, &row, time_ns);
	emit_snapshot(p, &row, &s, stack);
}

/* What the framework itself says: written at any time, whatever else is recorded. */
void snapshot_record(struct proc *p, uint32_t tid, const struct rec_snapshot *r)
{
	struct snapshot s = {
		.reserved = r->reserved_bytes,
		.peak_reserved = r->peak_reserved_bytes,
		.allocated = r->allocated_bytes,
		.peak_allocated = r->peak_allocated_bytes,
		.total = r->total_bytes,
		.available = r->free_bytes,
	};
	struct row row;

	s.name = rec_text(&r->head, &s.name_len);
	rows_begin(p, &row, ROW_SNAPSHOT, TYPE_SNAPSHOT, tid, physical_device(p, r->device),
		   r->head.time_ns);
	emit_snapshot(p, &row, &s, r->head.stack);
	/* The refusal that follows needs no snapshot of ours. */
	if (s.name_len == strlen(OOM_SNAPSHOT) && !memcmp(s.name, OOM_SNAPSHOT, s.name_len))
		usage_of(p, row.device)->oom_shown_ns = r->head.time_ns;
}

void device_record(struct proc *p, const struct rec_device *r)
{
	if (r->device >= DEV_NONE)
		return;
	struct usage *u = usage_of(p, r->device);
	u->memory = *r;
	if (!u->oom_waits)
		return;
	u->oom_waits = false;
	/* As far as rows have come: the sample is younger than events that are still to come. */
	if (p->window)
		put_snapshot(p, p->info.pid, u, 0, p->last_ns);
}

/* --- the blocks --- */

/* The `max` best blocks seen so far, the worst of them on top. */
struct best {
	const struct block **heap;
	size_t n, max;
	bool (*worse)(const struct block *a, const struct block *b);
};

static bool is_older(const struct block *a, const struct block *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->id < b->id;
}

static bool is_smaller(const struct block *a, const struct block *b)
{
	return a->size_bytes != b->size_bytes ? a->size_bytes < b->size_bytes : is_older(a, b);
}

static void sift_down(struct best *s, size_t i)
{
	const struct block *b = s->heap[i];

	for (size_t child; (child = 2 * i + 1) < s->n; i = child) {
		if (child + 1 < s->n && s->worse(s->heap[child + 1], s->heap[child]))
			child++;
		if (!s->worse(s->heap[child], b))
			break;
		s->heap[i] = s->heap[child];
	}
	s->heap[i] = b;
}

static void offer_block(struct best *s, const struct block *b)
{
	if (s->n == s->max) {
		if (!s->max || !s->worse(s->heap[0], b))
			return;
		s->heap[0] = b;
		sift_down(s, 0);
		return;
	}
	size_t i = s->n++;
	for (; i && s->worse(b, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = b;
}

/* Worst last: the heap is taken apart from its top. */
static void put_in_order(struct best *s)
{
	size_t n = s->n;

	while (s->n > 1) {
		const struct block *worst = s->heap[0];
		s->heap[0] = s->heap[--s->n];
		sift_down(s, 0);
		s->heap[s->n] = worst;
	}
	s->n = n;
}

struct choice {
	uint32_t device;
	struct best recent, largest;
};

static void choose_block(uint64_t key, void *value, void *arg)
{
	struct choice *c = arg;
	const struct block *b = value;

	(void)key;
	/* Of the driver every block: host memory that it pinned may be what is missing. */
	if (b->device != c->device && b->pool != POOL_HAL && b->pool != POOL_CUDA &&
	    b->kind != ALLOC_PINNED)
		return;
	offer_block(&c->recent, b);
	offer_block(&c->largest, b);
}

static void put_blocks(struct proc *p, uint32_t tid, const struct rec_oom *o, enum row_type type,
		       const struct best *s)
{
	const char *name = type == TYPE_OOM_RECENT_ALLOC ? "OOM_RecentAlloc" : "OOM_TopAlloc";
	struct row row;

	for (size_t i = 0; i < s->n; i++) {
		const struct block *b = s->heap[i];
		rows_begin(p, &row, ROW_OOM_DETAIL, type, tid, o->device, o->head.time_ns);
		rows_put_name(&row, name, strlen(name));
		row_attr_text(&row, ATTR_POOL, rows_pool_text(b), strlen(rows_pool_text(b)));
		row.attrs[row.nattrs++] =
			(struct attr){.key = ATTR_PTR, .kind = ATTR_HEX, .number = b->addr};
		row_attr_number(&row, ATTR_SIZE, b->size_bytes);
		row_attr_number(&row, ATTR_TIMESTAMP,
				b->time_ns + (uint64_t)p->track->wall_minus_mono_ns);
		rows_put_stack(p, &row, b->stack);
		rows_emit(p, &row);
	}
}

static bool is_host_map(unsigned map)
{
	return map == POOL_HOST || map == POOL_PYTHON || map == MAP_MAPPINGS;
}

static void list_blocks(struct proc *p, uint32_t tid, const struct rec_oom *o)
{
	size_t max = p->cfg->oom_top;
	struct choice c = {
		.device = o->device,
		.recent = {xcalloc(max, sizeof(struct block *)), 0, max, is_older},
		.largest = {xcalloc(max, sizeof(struct block *)), 0, max, is_smaller},
	};

	for (unsigned m = 0; m < NMAPS; m++)
		if (is_host_map(m) == (o->device == DEV_HOST) && m != POOL_PYTHON)
			omap_each(&p->maps[m], choose_block, &c);
	put_in_order(&c.recent);
	put_in_order(&c.largest);
	put_blocks(p, tid, o, TYPE_OOM_RECENT_ALLOC, &c.recent);
	put_blocks(p, tid, o, TYPE_OOM_TOP_ALLOC, &c.largest);
	free(c.recent.heap);
	free(c.largest.heap);
}

/* What asked, and the limit of the process that there is; analyses know these words. */
static const char *host_call(const struct rec_oom *o)
{
	return o->limit == OOM_LIMIT_SPACE  ? "malloc, RLIMIT_AS"
	       : o->limit == OOM_LIMIT_DATA ? "malloc, RLIMIT_DATA"
					    : "malloc";
}

/* In use of what is limited, and what the machine has; older recordings do not know it. */
static void put_host_memory(const struct proc *p, struct row *row)
{
	const struct rec_system *m = &p->host_memory;

	if (m->value)
		row_attr_number(row, ATTR_USED, m->value);
	if (m->machine_mib)
		row_attr_number(row, ATTR_TOTAL_MEM, (uint64_t)m->machine_mib << 20);
}

static const char *cuda_call(const struct rec_oom *o)
{
	static const char *const calls[ALLOC_KIND_END] = {
		[ALLOC_CREATE] = "cuMemCreate",	   [ALLOC_PINNED] = "cuMemHostAlloc",
		[ALLOC_ASYNC] = "cuMemAllocAsync", [ALLOC_MANAGED] = "cuMemAllocManaged",
		[ALLOC_ARRAY] = "cuArrayCreate",   [ALLOC_CONTEXT] = "cuDevicePrimaryCtxRetain",
	};

	return o->kind < ALLOC_KIND_END && calls[o->kind] ? calls[o->kind] : "cuMemAlloc";
}

static void put_trigger(struct proc *p, uint32_t tid, const struct rec_oom *o)
{
	bool cuda = o->pool == POOL_CUDA;
	const char *call = cuda			     ? cuda_call(o)
			   : o->device == DEV_HOST   ? host_call(o)
			   : o->kind == ALLOC_REGION ? "caching allocator"
			   : o->kind == ALLOC_CREATE ? "halMemCreate"
						     : "halMemAlloc";
	struct row row;

	rows_begin(p, &row, ROW_OOM_DETAIL, TYPE_OOM_TRIGGER, tid, o->device, o->head.time_ns);
	row.name = "OOM_Trigger";
	row.name_len = strlen(row.name);
	row.hidden = !(p->cfg->analysis & MEM_OOM);
	row_attr_text(&row, ATTR_FUNC, call, strlen(call));
	row_attr_number(&row, ATTR_REQ_SIZE, o->size_bytes);
	row_attr_number(&row, ATTR_FLAG, cuda ? 0 : o->flag);
	if (cuda && o->flag != OOM_UNKNOWN)
		row_attr_number(&row, ATTR_FREE_MEM, o->flag);
	uint64_t memory = cuda && o->device < DEV_NONE ? usage_of(p, o->device)->gpu_bytes : 0;
	if (memory)
		row_attr_number(&row, ATTR_TOTAL_MEM, memory);
	if (o->device == DEV_HOST && !cuda)
		put_host_memory(p, &row);
	rows_put_stack(p, &row, o->head.stack);
	rows_emit(p, &row);
}

/* Each list goes through all blocks. Nobody looks at that many, and a recording may have one for
 * each of its records. */
static bool may_list_blocks(struct proc *p)
{
	for (unsigned m = 0; m < NMAPS; m++)
		p->oom_listed += p->maps[m].count;
	return p->oom_listed <= MAX_LISTED;
}

void oom_record(struct proc *p, uint32_t tid, const struct rec_oom *o)
{
	uint64_t now_ns = o->head.time_ns;

	if (!p->window || !rows_wanted(p, o->device))
		return;
	p->track->signs.ooms++;
	bool details = p->cfg->analysis & MEM_OOM &&
		       (!p->oom_detail_ns || minus_or_zero(now_ns, p->oom_detail_ns) >= DETAIL_NS);
	struct usage *u = usage_of(p, o->device);
	bool shown = u->oom_shown_ns && minus_or_zero(now_ns, u->oom_shown_ns) < DETAIL_NS;
	bool cuda = o->pool == POOL_CUDA && o->device < DEV_NONE; /* is worth a look at all times */
	if ((details || cuda) && !shown && has_sample(u)) {
		put_snapshot(p, tid, u, o->head.stack, now_ns);
		if (!details)
			u->oom_shown_ns = now_ns;
	}
	u->oom_waits |= (details || cuda) && !shown && !has_sample(u) && o->device < DEV_NONE;
	u->context_refused |= cuda && o->kind == ALLOC_CONTEXT;
	put_trigger(p, tid, o);
	if (!details || !may_list_blocks(p))
		return;
	p->oom_detail_ns = now_ns;
	list_blocks(p, tid, o);
}

/* --- for device_memory.c --- */

struct track_signs track_signs(const struct track *t)
{
	return t->signs;
}

void track_devices(const struct track *t, void (*fn)(void *arg, const struct track_device *d),
		   void *arg)
{
	for (size_t i = 0; i < t->nprocs; i++) {
		const struct proc *p = t->procs[i];
		for (size_t k = 0; p && k < p->nusage; k++) {
			const struct usage *u = &p->usage[k];
			struct track_device d = {
				.proc = p->info.proc,
				.pid = p->info.pid,
				.device = u->device,
				.used_bytes = u->used[POOL_HAL] + u->used[POOL_CUDA],
				.cuda = u->peak_used[POOL_CUDA] > 0 || u->gpu_bytes,
				.part = u->gpu_part,
				.uuid = u->gpu_bytes ? u->gpu_uuid : NULL,
			};
			/* Not all that the job could have used. */
			bool unused = u->gpu_bytes && !u->peak_used[POOL_CUDA] &&
				      !u->peak_total[POOL_TORCH] && !u->context_refused;
			if (u->device < DEV_NONE && !unused)
				fn(arg, &d);
		}
	}
}

bool track_has_pid(const struct track *t, uint32_t pid)
{
	for (size_t i = 0; i < t->nprocs; i++)
		if (t->procs[i] && t->procs[i]->info.pid == pid)
			return true;
	return false;
}

bool track_waits_for_device(const struct track *t)
{
	for (size_t i = 0; i < t->nprocs; i++)
		for (size_t k = 0; t->procs[i] && k < t->procs[i]->nusage; k++)
			if (t->procs[i]->usage[k].oom_waits)
				return true;
	return false;
}
