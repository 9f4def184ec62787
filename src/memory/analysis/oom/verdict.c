/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which of the five it was, and the sentences that say so. */
#include "memory/analysis/oom/oom_impl.h"

#include <string.h>

#include "memory/analysis/common/memory_words.h"
#include "wire/record.h"

#define LEAK_SHARE 10 /* a leak counts from a tenth of the request on */
#define OTHERS_SHARE 8 /* others count from an eighth of the device on */
#define LIMIT_SHARE 16 /* less than the device by so much is a share of it */
#define SLACK_SHARE 32 /* free on the device, beyond what pages and samples blur */

const char *oom_verdict_name(enum oom_verdict v)
{
	static const char *const names[] = {
		[OOM_LEAK] = "leak",
		[OOM_FRAGMENTATION] = "fragmentation",
		[OOM_OTHER_PROCESS] = "other process",
		[OOM_EXHAUSTION] = "real exhaustion",
		[OOM_OVERSIZED] = "oversized request",
	};

	return names[v];
}

static bool is_leak(const struct oom_incident *i, const struct oom_answer *a)
{
	uint64_t bytes = i->leak.bytes;

	return bytes && bytes >= i->requested / LEAK_SHARE &&
	       oom_sum(bytes, a->has_free ? a->free_bytes : 0) >= i->requested;
}

/* The pool that had most room, in pieces. */
static const struct oom_pool *find_shattered_pool(const struct oom_incident *i)
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

/* Of what CUDA's driver alone says, a part is the process' own: context, kernels, pools that keep. A
 * process without a context has nothing. */
static bool knows_whose(const struct oom_incident *i)
{
	return !oom_is_cuda(i) || i->has_outside || oom_is_context(i);
}

static bool is_held_by_others(const struct oom_incident *i, const struct oom_answer *a)
{
	uint64_t whole = oom_sum(i->own_bytes, i->others_bytes);

	if (!i->has_others || !knows_whose(i))
		return false;
	if (a->has_total && a->total_bytes > whole)
		whole = a->total_bytes;
	return i->others_bytes >= whole / OTHERS_SHARE &&
	       oom_sum(i->others_bytes, a->has_free ? a->free_bytes : 0) >= i->requested;
}

bool oom_is_context(const struct oom_incident *i)
{
	return !strcmp(i->function, "cuDevicePrimaryCtxRetain");
}

/* What the process may use in all, 0: as much as there is. */
static uint64_t limit_of(const struct oom_incident *i, uint64_t total)
{
	bool share = i->driver_total && i->driver_total < total - total / LIMIT_SHARE;

	if (i->limit && i->limit < total && (!share || i->limit < i->driver_total))
		return i->limit;
	return share ? i->driver_total : 0;
}

struct oom_answer oom_answer(const struct oom *o, const struct oom_incident *i)
{
	uint64_t total = hmap_get(&o->totals, i->device);
	struct oom_answer a = {.verdict = OOM_EXHAUSTION};

	uint64_t of_process = oom_sum(
		i->own_bytes, oom_sum(i->outside_bytes, i->has_outside ? i->kept_bytes : 0));
	if (total == HMAP_NONE)
		total = o->any_total;
	if (!total)
		total = i->limit;
	a.has_total = total != 0;
	a.total_bytes = total;
	a.has_free = a.has_total && i->has_others && i->has_blocks;
	if (a.has_free)
		a.free_bytes = oom_less(total, oom_sum(of_process, i->others_bytes));
	if (limit_of(i, total)) {
		/* What others leave free is of no use to it. */
		a.limited = true;
		a.total_bytes = total = limit_of(i, total);
		if (a.has_free && a.free_bytes > oom_less(total, i->own_bytes))
			a.free_bytes = oom_less(total, i->own_bytes);
	}
	if (a.has_free && a.free_bytes > i->driver_free)
		a.free_bytes = i->driver_free;
	if (i->device == DEV_HOST) { /* of what others have nothing is known, nor of pieces */
		a.verdict = oom_host_is_oversized(i) ? OOM_OVERSIZED
			    : is_leak(i, &a)	     ? OOM_LEAK
						     : OOM_EXHAUSTION;
		return a;
	}
	if (oom_is_context(i)) { /* how much it needs, the driver does not say */
		if (is_held_by_others(i, &a))
			a.verdict = OOM_OTHER_PROCESS;
		return a;
	}
	a.pool = find_shattered_pool(i);
	if (a.has_total && i->requested > total) {
		a.verdict = a.limited ? OOM_EXHAUSTION : OOM_OVERSIZED;
		return a;
	}
	if (is_leak(i, &a))
		a.verdict = OOM_LEAK;
	else if (a.pool ||
		 (a.has_free && a.free_bytes >= oom_sum(i->requested, total / SLACK_SHARE)))
		a.verdict = OOM_FRAGMENTATION;
	else if (!a.limited && is_held_by_others(i, &a))
		a.verdict = OOM_OTHER_PROCESS;
	return a;
}

/* --- sentences --- */

static void reason_leak(const struct oom *o, const struct oom_incident *i, struct buf *out)
{
	const struct oom_leak *l = &i->leak;

	add_text(out, "{} in {} were allocated in steps {} to {} at ", BYTES(l->bytes),
		 COUNT_OF(l->blocks, "block"), NUMBER(l->first_step), NUMBER(l->last_step));
	if (l->sites > 1)
		add_text(out, "{}, most of it at ", COUNT_OF(l->sites, "place"));
	if (!stacks_where(oom_stacks(o), l->stack, out))
		add_text(out, "a place without a recorded call stack");
	add_text(out, ", and not freed since; without them the {} would have fitted.",
		 BYTES(i->requested));
}

static void reason_fragmentation(const struct oom_incident *i, const struct oom_answer *a,
				 struct buf *out)
{
	const struct oom_pool *p = a->pool;

	if (!p)
		add_text(out,
			 "device {} still has {} free of {}, but the driver found no piece of {} "
			 "in it.",
			 DEVICE(i->device), BYTES(a->free_bytes), BYTES(a->total_bytes),
			 BYTES(i->requested));
	else
		add_text(out,
			 "the {} pool has {} free in all, but in {}, the largest of {}; {} were "
			 "asked "
			 "for.",
			 POOL(p->type), BYTES(p->free_bytes), COUNT_OF(p->pieces, "piece"),
			 BYTES(p->largest_free), BYTES(i->requested));
}

/* Also behind a number that has others of the job in it. */
static void add_others(const struct oom_incident *i, struct buf *out)
{
	add_text(out, "{}", BYTES(i->others_bytes));
	if (i->job_bytes)
		add_text(out, " ({} of it processes of this same job)", BYTES(i->job_bytes));
}

static void add_holders(const struct oom_incident *i, struct buf *out)
{
	if (i->job_bytes && i->job_bytes == i->others_bytes) {
		add_text(out, "other processes of this job hold {}", BYTES(i->job_bytes));
		return;
	}
	add_text(out, "other processes hold ");
	add_others(i, out);
}

static void reason_others(const struct oom_incident *i, const struct oom_answer *a, struct buf *out)
{
	add_holders(i, out);
	if (a->has_total)
		add_text(out, " of the {}", BYTES(a->total_bytes));
	add_text(out, " of device {}, this one {}; without them the {} would have fitted.",
		 DEVICE(i->device), BYTES(i->own_bytes), BYTES(i->requested));
}

static void reason_exhaustion(const struct oom_incident *i, const struct oom_answer *a,
			      struct buf *out)
{
	if (a->has_total && i->requested > a->total_bytes) {
		add_text(out, "{} were asked for, and this process may use of device {} {}.",
			 BYTES(i->requested), DEVICE(i->device), BYTES(a->total_bytes));
		return;
	}
	if (i->has_blocks)
		add_text(out, "this process holds {}", BYTES(i->own_bytes));
	else
		add_text(out, "this process holds what is listed below");
	if (a->has_total)
		add_text(out, " of the {}", BYTES(a->total_bytes));
	add_text(out, a->limited ? " that it may use of device {}" : " of device {}",
		 DEVICE(i->device));
	if (i->has_outside && i->kept_bytes)
		add_text(out, ", pools of the driver keep {} for it", BYTES(i->kept_bytes));
	if (i->has_outside)
		add_text(out, ", its context and libraries {}", BYTES(i->outside_bytes));
	if (i->has_others && !a->limited) {
		add_text(out, knows_whose(i) ? ", others and the driver "
					     : ", its context, pools of the driver and others ");
		add_others(i, out);
	}
	if (a->has_free)
		add_text(out, ", {} are free", BYTES(a->free_bytes));
	add_text(out, "; {} more were asked for.", BYTES(i->requested));
}

/* Its first megabytes: code, stacks of threads, the driver's own tables. */
static void reason_context(const struct oom_incident *i, const struct oom_answer *a,
			   struct buf *out)
{
	if (!i->has_others) {
		add_text(out,
			 "a context takes some hundred MiB, and device {} had not that much free. "
			 "What "
			 "others hold is not known.",
			 DEVICE(i->device));
		return;
	}
	add_text(out, "a context takes some hundred MiB, and ");
	add_holders(i, out);
	if (a->has_total)
		add_text(out, " of the {}", BYTES(a->total_bytes));
	add_text(out, " of device {}.", DEVICE(i->device));
}

void oom_reason(const struct oom *o, const struct oom_incident *i, const struct oom_answer *a,
		struct buf *out)
{
	if (oom_is_context(i)) {
		reason_context(i, a, out);
		return;
	}
	if (i->device == DEV_HOST && a->verdict != OOM_LEAK) {
		oom_host_reason(o, i, out);
		return;
	}
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
	default:
		add_text(out,
			 "{} were asked for, and device {} has {} in all: it could never have been "
			 "given.",
			 BYTES(i->requested), DEVICE(i->device), BYTES(a->total_bytes));
		return;
	}
	if (!a->has_free && i->device != DEV_HOST)
		add_text(out, a->has_total
				      ? " What others hold is not known, so this is from this "
					"process' view only."
				      : " How much the device has, and what others hold, is not "
					"known, so this is from this process' view only.");
}

bool oom_is_cuda(const struct oom_incident *i)
{
	for (unsigned k = 0; k < i->npools; k++)
		if (i->pools[k].type == TYPE_TORCH)
			return true;
	return !strncmp(i->function, "cu", 2);
}

static void advise_smaller(const struct oom *o, const struct oom_incident *i, struct buf *out)
{
	const struct oom_block *b = i->largest.n ? &i->largest.list[0] : NULL;

	add_text(out,
		 "Make the job smaller (batch size, sequence length, more devices, recomputation)");
	if (b)
		add_text(out, "; the largest block has {}", BYTES(b->bytes));
	if (b && b->stack)
		add_text(out, " and comes from {}", WHERE(oom_stacks(o), b->stack));
	add_text(out, ".");
}

static void advise_others(const struct oom_incident *i, struct buf *out)
{
	bool cuda = oom_is_cuda(i);

	if (i->job_bytes >= i->others_bytes / 2 && i->job_bytes)
		add_text(
			out,
			"Let the processes of this job use a device each ({}, or the rank's number "
			"as the device), and keep helpers, such as data loaders, off it; `{}` "
			"lists them.",
			TEXT(cuda ? "CUDA_VISIBLE_DEVICES" : "ASCEND_RT_VISIBLE_DEVICES"),
			TEXT(cuda ? "nvidia-smi" : "npu-smi info"));
	else
		add_text(out,
			 "See who that is with `{}`, and wait for it, stop it, or take another "
			 "device{}.",
			 TEXT(cuda ? "nvidia-smi" : "npu-smi info"),
			 TEXT(oom_is_context(i) ? " (CUDA_VISIBLE_DEVICES)" : ""));
}

void oom_advice(const struct oom *o, const struct oom_incident *i, const struct oom_answer *a,
		struct buf *out)
{
	enum row_type pool = a->pool ? a->pool->type : TYPE_END;

	if (oom_is_context(i)) {
		advise_others(i, out);
		return;
	}
	if (i->device == DEV_HOST && a->verdict != OOM_LEAK) {
		oom_host_advice(o, i, out);
		return;
	}
	switch (a->verdict) {
	case OOM_LEAK:
		add_text(out,
			 "Free in every step what that place allocates; `sonde mem leaks` lists "
			 "every such block.");
		break;
	case OOM_FRAGMENTATION:
		if (pool == TYPE_PTA || pool == TYPE_TORCH)
			add_text(
				out,
				"Let the pool map its memory piece by piece (PYTORCH_{}_ALLOC_CONF="
				"expandable_segments:True), or allocate what lives long first.",
				TEXT(pool == TYPE_PTA ? "NPU" : "CUDA"));
		else
			add_text(out,
				 "Allocate what lives long first and the large blocks before the "
				 "small ones.");
		break;
	case OOM_OTHER_PROCESS:
		advise_others(i, out);
		break;
	case OOM_EXHAUSTION:
		if (a->limited && a->total_bytes == i->limit)
			add_text(out, "Let this process use more of the device "
				      "(torch.cuda.set_per_process_memory_fraction). ");
		else if (a->limited)
			add_text(out,
				 "Ask for a larger share of the device: the limit is set by who "
				 "shares it (vGPU, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT). ");
		if (i->kept_bytes >= i->requested)
			add_text(out,
				 "The pools of cudaMallocAsync() keep {} that is not in use: "
				 "cudaMemPoolTrimTo() gives it back, a lower release threshold "
				 "sooner. ",
				 BYTES(i->kept_bytes));
		advise_smaller(o, i, out);
		break;
	default:
		add_text(
			out,
			"Look at how the size is computed; else ask for it in parts, or on several "
			"devices.");
	}
}
