/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/common/total.h"
#include "wire/record.h"

#define OWNER "CUDA@"
#define MAX_ASKERS 512 /* of a recording; what comes then is nobody's */
#define MAX_POOLS 4096
#define MAX_SHOWN 4

void gpu_use_release(struct gpu_use *g)
{
	free(g->askers);
	free(g->pools);
	free(g->totals);
	free(g->waiting);
	*g = (struct gpu_use){0};
}

static struct gpu_total *total_of(struct gpu_use *g, uint32_t device)
{
	for (size_t i = 0; i < g->ntotals; i++)
		if (g->totals[i].device == device)
			return &g->totals[i];
	LIST_ADD(g->totals, g->ntotals, g->cap_totals, (struct gpu_total){.device = device});
	return &g->totals[g->ntotals - 1];
}

/* "CUDA@NCCL@label": NCCL. */
static bool name_of(const struct row *row, char out[GPU_NAME_BYTES])
{
	const struct attr *a = row_attr(row, ATTR_OWNER);
	size_t skip = strlen(OWNER);

	if (!a || a->kind != ATTR_TEXT || a->text_len <= skip || memcmp(a->text, OWNER, skip) != 0)
		return false;
	const char *name = a->text + skip, *end = memchr(name, '@', a->text_len - skip);
	size_t len = end ? (size_t)(end - name) : a->text_len - skip;
	if (len >= GPU_NAME_BYTES)
		len = GPU_NAME_BYTES - 1;
	memcpy(out, name, len);
	out[len] = '\0';
	return len > 0;
}

static struct gpu_asker *asker_of(struct gpu_use *g, const struct row *row)
{
	char name[GPU_NAME_BYTES];

	if (!name_of(row, name))
		return NULL;
	for (size_t i = 0; i < g->naskers; i++)
		if (g->askers[i].device == row->device && !strcmp(g->askers[i].name, name))
			return &g->askers[i];
	if (g->naskers == MAX_ASKERS)
		return NULL;
	struct gpu_asker new = {.device = row->device};
	strcpy(new.name, name);
	LIST_ADD(g->askers, g->naskers, g->cap_askers, new);
	return &g->askers[g->naskers - 1];
}

static void apply_change(struct gpu_use *g, const struct gpu_change *c)
{
	struct gpu_total *t = &g->totals[c->total];
	struct gpu_asker *a = c->asker == UINT32_MAX ? NULL : &g->askers[c->asker];

	if (c->freed) {
		t->bytes -= c->bytes < t->bytes ? c->bytes : t->bytes;
		if (a && a->blocks) {
			a->bytes -= c->bytes < a->bytes ? c->bytes : a->bytes;
			a->blocks--;
		}
		return;
	}
	t->bytes += c->bytes;
	if (a) {
		a->bytes += c->bytes;
		a->blocks++;
	}
	if (t->bytes <= t->peak_bytes)
		return;
	t->peak_bytes = t->bytes;
	for (size_t i = 0; i < g->naskers; i++)
		if (g->askers[i].device == t->device) {
			g->askers[i].peak_bytes = g->askers[i].bytes;
			g->askers[i].peak_blocks = g->askers[i].blocks;
		}
}

/* Of one moment, what is freed goes first: blocks of two processes do not follow each other. */
static int older_first(const void *pa, const void *pb)
{
	const struct gpu_change *a = pa, *b = pb;

	return ORDER(a->time_ns, b->time_ns) ?: ORDER(b->freed, a->freed);
}

static void apply_oldest(struct gpu_use *g, size_t n)
{
	if (g->unsorted)
		SORT(g->waiting, g->nwaiting, older_first);
	g->unsorted = false;
	for (size_t i = 0; i < n; i++)
		apply_change(g, &g->waiting[i]);
	g->nwaiting -= n;
	if (g->nwaiting)
		memmove(g->waiting, g->waiting + n, g->nwaiting * sizeof(*g->waiting));
}

void gpu_use_settle(struct gpu_use *g)
{
	apply_oldest(g, g->nwaiting);
}

static void count_block(struct gpu_use *g, const struct row *row)
{
	struct gpu_change c = {.time_ns = row->time_ns, .freed = row->event == ROW_FREE};

	if (!row_number(row, ATTR_SIZE, &c.bytes) || row->device == DEV_HOST)
		return;
	const struct gpu_asker *a = asker_of(g, row);
	c.total = (uint32_t)(total_of(g, row->device) - g->totals);
	c.asker = a ? (uint32_t)(a - g->askers) : UINT32_MAX;
	if (g->nwaiting == TOTAL_WINDOW)
		apply_oldest(g, TOTAL_WINDOW / 2);
	g->unsorted |= g->nwaiting && c.time_ns <= g->waiting[g->nwaiting - 1].time_ns;
	LIST_ADD(g->waiting, g->nwaiting, g->cap_waiting, c);
}

static bool name_is(const struct row *row, const char *name)
{
	return row->name && row->name_len == strlen(name) &&
	       !memcmp(row->name, name, row->name_len);
}

static struct gpu_pool *pool_of(struct gpu_use *g, const struct row *row, const char *name)
{
	for (size_t i = 0; i < g->npools; i++) {
		struct gpu_pool *p = &g->pools[i];
		if (p->device == row->device && p->pid == row->pid && !strcmp(p->name, name))
			return p;
	}
	if (g->npools == MAX_POOLS)
		return NULL;
	struct gpu_pool new = {.device = row->device, .pid = row->pid};
	strcpy(new.name, name);
	LIST_ADD(g->pools, g->npools, g->cap_pools, new);
	return &g->pools[g->npools - 1];
}

static void take_snapshot(struct gpu_use *g, const struct row *row)
{
	static const char *const names[] = {"XLA", "CuPy"};
	uint64_t total, most;

	if (row_number(row, ATTR_TOTAL_MEM, &total) && total)
		total_of(g, row->device)->memory = total;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct gpu_pool *p = name_is(row, names[i]) ? pool_of(g, row, names[i]) : NULL;
		if (!p)
			continue;
		(void)row_number(row, ATTR_RESERVED, &p->reserved);
		(void)row_number(row, ATTR_ALLOCATED, &p->used);
		if (row_number(row, ATTR_PEAK_ALLOCATED, &most) && most > p->most_used)
			p->most_used = most;
		p->step = g->step;
	}
}

void gpu_use_row(struct gpu_use *g, const struct row *row)
{
	if (row->type == TYPE_CUDA && (row->event == ROW_MALLOC || row->event == ROW_FREE))
		count_block(g, row);
	else if (row->event == ROW_SNAPSHOT)
		take_snapshot(g, row);
	else if (row->event == ROW_SYSTEM && row->type == TYPE_STEP && row->name)
		g->step = strtoull(row->name, NULL, 10);
}

static int larger_first(const void *pa, const void *pb)
{
	const struct gpu_asker *a = *(struct gpu_asker *const *)pa,
			       *b = *(struct gpu_asker *const *)pb;

	return ORDER(b->peak_bytes, a->peak_bytes) ?: strcmp(a->name, b->name);
}

/* Those of a device that had something at its peak, the largest first; free() the list. */
static struct gpu_asker **askers_of(const struct gpu_use *g, uint32_t device, size_t *out_n)
{
	struct gpu_asker **list = xcalloc(g->naskers + 1, sizeof(*list));
	size_t n = 0;

	for (size_t i = 0; i < g->naskers; i++)
		if (g->askers[i].device == device && g->askers[i].peak_bytes)
			list[n++] = &g->askers[i];
	if (n > 1)
		qsort(list, n, sizeof(*list), larger_first);
	*out_n = n;
	return list;
}

void gpu_use_describe_askers(const struct gpu_use *g, uint32_t device, struct buf *out)
{
	size_t n, shown = 0;
	struct gpu_asker **list = askers_of(g, device, &n);

	for (; shown < n && shown < MAX_SHOWN; shown++)
		add_text(out, shown ? ", {} {}" : " Who asked for it: {} {}",
			 TEXT(list[shown]->name), BYTES(list[shown]->peak_bytes));
	if (n > shown)
		add_text(out, " and {} more", NUMBER(n - shown));
	add_text(out, n ? "." : "");
	free(list);
}

static const struct gpu_asker *asker_named(const struct gpu_use *g, const struct gpu_pool *p)
{
	for (size_t i = 0; i < g->naskers; i++)
		if (g->askers[i].device == p->device && !strcmp(g->askers[i].name, p->name))
			return &g->askers[i];
	return NULL;
}

/* "XLA holds 75 % of the device as one block of 105.00 GiB". */
static void describe_held(const struct gpu_use *g, const struct gpu_pool *p, struct buf *out)
{
	const struct gpu_asker *a = asker_named(g, p);
	uint64_t memory = 0, held = a && a->peak_bytes > p->reserved ? a->peak_bytes : p->reserved;

	for (size_t i = 0; i < g->ntotals; i++)
		if (g->totals[i].device == p->device)
			memory = g->totals[i].memory;
	add_text(out, " {} holds ", TEXT(p->name));
	if (memory && held <= memory)
		add_text(out, "{} % of ", NUMBER((held * 100 + memory / 2) / memory));
	else
		add_text(out, "{} of ", BYTES(held));
	words_device(out, p->device, false);
	if (a && a->peak_blocks == 1)
		add_text(out, " as one block of {}", BYTES(a->peak_bytes));
	else if (memory && held <= memory)
		add_text(out, ", {}", BYTES(held));
}

void gpu_use_describe_pools(const struct gpu_use *g, struct buf *out)
{
	for (size_t i = 0; i < g->npools && i < MAX_SHOWN; i++) {
		const struct gpu_pool *p = &g->pools[i];

		describe_held(g, p, out);
		add_text(out, "; live buffers inside: {}", BYTES(p->used));
		if (p->step)
			add_text(out, " at step {}", NUMBER(p->step));
		if (p->most_used > p->used)
			add_text(out, ", {} at most", BYTES(p->most_used));
		add_text(out, ".");
		if (!strcmp(p->name, "XLA") && p->most_used < p->reserved / 2)
			add_text(out,
				 " JAX takes that much when it begins, whatever it needs: with "
				 "XLA_PYTHON_CLIENT_PREALLOCATE=false it takes memory as it is "
				 "used, XLA_PYTHON_CLIENT_MEM_FRACTION sets the part.");
	}
}

void gpu_use_put_json(const struct gpu_use *g, uint32_t device, json_t *out)
{
	json_t *askers = json_array(), *pools = json_array();
	size_t n;
	struct gpu_asker **list = askers_of(g, device, &n);

	for (size_t i = 0; i < n; i++)
		json_array_append_new(askers,
				      json_pack("{s:s, s:I, s:I}", "name", list[i]->name, "bytes",
						(json_int_t)list[i]->peak_bytes, "blocks",
						(json_int_t)list[i]->peak_blocks));
	free(list);
	for (size_t i = 0; i < g->npools; i++) {
		const struct gpu_pool *p = &g->pools[i];
		if (p->device != device)
			continue;
		json_array_append_new(
			pools, json_pack("{s:s, s:i, s:I, s:I, s:I, s:I}", "name", p->name, "pid",
					 (int)p->pid, "reserved_bytes", (json_int_t)p->reserved,
					 "used_bytes", (json_int_t)p->used, "most_used_bytes",
					 (json_int_t)p->most_used, "step", (json_int_t)p->step));
	}
	json_object_set_new(out, "askers", askers);
	json_object_set_new(out, "pools_inside", pools);
}
