/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which of the four it was, and the sentences that say so. */
#include "memory/analysis/oom/oom_impl.h"

#include "base/text/plain_words.h"
#include "memory/analysis/common/memory_words.h"

#define LEAK_SHARE 10 /* a leak counts from a tenth of the request on */
#define OTHERS_SHARE 8 /* others count from an eighth of the device on */
#define SLACK_SHARE 32 /* free on the device, beyond what pages and samples blur */

const char *oom_verdict_name(enum oom_verdict v)
{
	static const char *const names[] = {
		[OOM_LEAK] = "leak",
		[OOM_FRAGMENTATION] = "fragmentation",
		[OOM_OTHER_PROCESS] = "other process",
		[OOM_EXHAUSTION] = "real exhaustion",
	};

	return names[v];
}

bool oom_where(const struct oom *o, uint32_t stack, struct buf *out)
{
	return stacks_where(blocks_stacks(o->blocks), stack, out);
}

static bool leaked(const struct oom_incident *i, const struct oom_answer *a)
{
	uint64_t bytes = i->leak.bytes;

	return bytes && bytes >= i->requested / LEAK_SHARE &&
	       oom_sum(bytes, a->has_free ? a->free_bytes : 0) >= i->requested;
}

/* The pool that had most room, in pieces. */
static const struct oom_pool *shattered(const struct oom_incident *i)
{
	const struct oom_pool *most = NULL;

	for (unsigned k = 0; k < i->npools; k++) {
		const struct oom_pool *p = &i->pools[k];
		if (p->mapped && p->free_bytes >= i->requested && p->largest_free < i->requested &&
		    (!most || p->free_bytes > most->free_bytes))
			most = p;
	}
	return most;
}

static bool held_by_others(const struct oom_incident *i, const struct oom_answer *a)
{
	uint64_t whole = oom_sum(i->own_bytes, i->others_bytes);

	if (!i->has_others)
		return false;
	if (a->has_total && a->total_bytes > whole)
		whole = a->total_bytes;
	return i->others_bytes >= whole / OTHERS_SHARE &&
	       oom_sum(i->others_bytes, a->has_free ? a->free_bytes : 0) >= i->requested;
}

struct oom_answer oom_answer(const struct oom *o, const struct oom_incident *i)
{
	uint64_t total = hmap_get(&o->totals, i->device);
	struct oom_answer a = {.verdict = OOM_EXHAUSTION};

	if (total == HMAP_NONE)
		total = o->any_total;
	if (!total)
		total = i->limit;
	a.has_total = total != 0;
	a.total_bytes = total;
	a.has_free = a.has_total && i->has_others && i->has_blocks;
	if (a.has_free)
		a.free_bytes = oom_less(
			total, oom_sum(oom_sum(i->own_bytes, i->outside_bytes), i->others_bytes));
	if (i->limit && i->limit < total) {
		/* What others leave free is of no use to it. */
		a.limited = true;
		a.total_bytes = total = i->limit;
		if (a.has_free && a.free_bytes > oom_less(i->limit, i->own_bytes))
			a.free_bytes = oom_less(i->limit, i->own_bytes);
	}
	a.pool = shattered(i);
	if (a.has_total && i->requested > total)
		return a;
	if (leaked(i, &a))
		a.verdict = OOM_LEAK;
	else if (a.pool ||
		 (a.has_free && a.free_bytes >= oom_sum(i->requested, total / SLACK_SHARE)))
		a.verdict = OOM_FRAGMENTATION;
	else if (!a.limited && held_by_others(i, &a))
		a.verdict = OOM_OTHER_PROCESS;
	return a;
}

/* --- sentences --- */

static void add_bytes(struct buf *out, const char *before, uint64_t bytes, const char *after)
{
	buf_add_str(out, before);
	words_bytes(out, bytes);
	buf_add_str(out, after);
}

static void reason_leak(const struct oom *o, const struct oom_incident *i, struct buf *out)
{
	const struct oom_leak *l = &i->leak;

	add_bytes(out, "", l->bytes, " in ");
	words_of(out, l->blocks, "block");
	buf_addf(out, " were allocated in steps %u to %u", l->first_step, l->last_step);
	if (l->places > 1) {
		buf_add_str(out, " at ");
		words_of(out, l->places, "place");
		buf_add_str(out, ", most of it at ");
	} else {
		buf_add_str(out, " at ");
	}
	if (!oom_where(o, l->stack, out))
		buf_add_str(out, "a place without a recorded call stack");
	add_bytes(out, ", and not freed since; without them the ", i->requested,
		  " would have fitted.");
}

static void reason_fragmentation(const struct oom_incident *i, const struct oom_answer *a,
				 struct buf *out)
{
	char dev[16];

	if (!a->pool) {
		buf_addf(out, "device %s still has ", blocks_device_name(i->device, dev));
		add_bytes(out, "", a->free_bytes, " free");
		add_bytes(out, " of ", a->total_bytes, ", but the driver found no piece of ");
		add_bytes(out, "", i->requested, " in it.");
		return;
	}
	buf_addf(out, "the %s pool has ", words_pool(a->pool->type));
	add_bytes(out, "", a->pool->free_bytes, " free in all, but in ");
	words_of(out, a->pool->pieces, "piece");
	add_bytes(out, ", the largest of ", a->pool->largest_free, "; ");
	add_bytes(out, "", i->requested, " were asked for.");
}

static void reason_others(const struct oom_incident *i, const struct oom_answer *a, struct buf *out)
{
	char dev[16];

	add_bytes(out, "other processes hold ", i->others_bytes, "");
	if (a->has_total)
		add_bytes(out, " of the ", a->total_bytes, "");
	buf_addf(out, " of device %s, this one ", blocks_device_name(i->device, dev));
	words_bytes(out, i->own_bytes);
	add_bytes(out, "; without them the ", i->requested, " would have fitted.");
}

static void reason_exhaustion(const struct oom_incident *i, const struct oom_answer *a,
			      struct buf *out)
{
	char dev[16];

	if (a->has_total && i->requested > a->total_bytes) {
		add_bytes(out, "", i->requested, " were asked for, and ");
		buf_addf(out, a->limited ? "this process may use of device %s " : "device %s has ",
			 blocks_device_name(i->device, dev));
		add_bytes(out, "", a->total_bytes, a->limited ? "." : " in all.");
		return;
	}
	if (i->has_blocks)
		add_bytes(out, "this process holds ", i->own_bytes, "");
	else
		buf_add_str(out, "this process holds what is listed below");
	if (a->has_total)
		add_bytes(out, " of the ", a->total_bytes, "");
	buf_addf(out, a->limited ? " that it may use of device %s" : " of device %s",
		 blocks_device_name(i->device, dev));
	if (i->has_outside)
		add_bytes(out, ", its context and libraries ", i->outside_bytes, "");
	if (i->has_others && !a->limited)
		add_bytes(out, ", others and the driver ", i->others_bytes, "");
	if (a->has_free)
		add_bytes(out, ", ", a->free_bytes, " are free");
	add_bytes(out, "; ", i->requested, " more were asked for.");
}

void oom_reason(const struct oom *o, const struct oom_incident *i, const struct oom_answer *a,
		struct buf *out)
{
	switch (a->verdict) {
	case OOM_LEAK:
		reason_leak(o, i, out);
		break;
	case OOM_FRAGMENTATION:
		reason_fragmentation(i, a, out);
		break;
	case OOM_OTHER_PROCESS:
		reason_others(i, a, out);
		break;
	case OOM_EXHAUSTION:
		reason_exhaustion(i, a, out);
		break;
	}
	if (!a->has_free)
		buf_add_str(out, a->has_total
					 ? " What others hold is not known, so this is from "
					   "this process' view only."
					 : " How much the device has, and what others hold, is "
					   "not known, so this is from this process' view "
					   "only.");
}

bool oom_is_cuda(const struct oom_incident *i)
{
	for (unsigned k = 0; k < i->npools; k++)
		if (i->pools[k].type == TYPE_TORCH)
			return true;
	return false;
}

static void advise_smaller(const struct oom *o, const struct oom_incident *i, struct buf *out)
{
	const struct oom_block *b = i->largest.n ? &i->largest.list[0] : NULL;
	struct buf where = {0};

	buf_add_str(out, "Make the job smaller (batch size, sequence length, more devices, "
			 "recomputation)");
	if (b) {
		add_bytes(out, "; the largest block has ", b->bytes, "");
		if (oom_where(o, b->stack, &where))
			buf_addf(out, " and comes from %s", buf_str(&where));
	}
	buf_add_char(out, '.');
	buf_release(&where);
}

void oom_advice(const struct oom *o, const struct oom_incident *i, const struct oom_answer *a,
		struct buf *out)
{
	switch (a->verdict) {
	case OOM_LEAK:
		buf_add_str(out, "Free in every step what that place allocates; `sonde mem leaks` "
				 "lists every such block.");
		break;
	case OOM_FRAGMENTATION:
		if (a->pool && a->pool->type == TYPE_PTA)
			buf_add_str(out, "Let the pool map its memory piece by piece "
					 "(PYTORCH_NPU_ALLOC_CONF=expandable_segments:True), or "
					 "allocate what lives long first.");
		else if (a->pool && a->pool->type == TYPE_TORCH)
			buf_add_str(out, "Let the pool map its memory piece by piece "
					 "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or "
					 "allocate what lives long first.");
		else
			buf_add_str(out, "Allocate what lives long first and the large blocks "
					 "before the small ones.");
		break;
	case OOM_OTHER_PROCESS:
		buf_addf(out,
			 "See who that is with `%s`, and wait for it, stop it, or take another "
			 "device.",
			 oom_is_cuda(i) ? "nvidia-smi" : "npu-smi info");
		break;
	case OOM_EXHAUSTION:
		if (a->limited)
			buf_add_str(out, "Let this process use more of the device "
					 "(torch.cuda.set_per_process_memory_fraction). ");
		advise_smaller(o, i, out);
		break;
	}
}
