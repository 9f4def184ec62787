/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The first paragraph of a summary: what happened, in a few sentences. */
#include <stdlib.h>

#include "base/mem.h"
#include "memory/analysis/processes/processes.h"
#include "memory/analysis/processes/programs.h"
#include "memory/analysis/summary/summary_impl.h"

#define MAX_DEVICES 3 /* that are named */

/* Why there are no memory events, as far as the recording knows what it was asked for. */
static void describe_why_none(const struct summary *s, struct buf *out)
{
	struct mem_asked asked = s->asked;

	asked.deferred &= s->first_ns == UINT64_MAX; /* a row says that it has begun */
	if (asked.known)
		add_text(out, " ");
	mem_asked_why_empty(&asked, out);
}

/* "1,234 calls of Python functions were traced, of 2 threads: see …" */
void summary_describe_calls(const struct summary *s, struct buf *out)
{
	add_text(out,
		 "{} of Python functions {} traced, of {}: see the {} in "
		 "msmemscope_<pid>_<time>_ascend/device_*/dump.",
		 COUNT_OF(s->calls, "call"), TEXT(words_was(s->calls)),
		 COUNT_OF(s->call_threads, "thread"),
		 TEXT(s->calls_in_db ? "table python_trace_<pid> of the .db"
				     : "files python_trace_<thread>_<time>.csv"));
}

uint64_t summary_highest_pool(const struct summary_process *p)
{
	uint64_t highest = 0;

	for (size_t i = 0; i < p->npools; i++)
		if (p->pool_list[i]->bytes.peak_bytes > highest)
			highest = p->pool_list[i]->bytes.peak_bytes;
	return highest;
}

void summary_programs(const struct summary *s, struct programs *out)
{
	for (size_t i = 0; i < s->nprocesses; i++) {
		const struct summary_process *p = s->processes[i];

		if (p->seen.rows)
			programs_add(out, p, p->pid, summary_highest_pool(p));
	}
}

static void describe_size(const struct summary *s, const struct summary_counts *c, struct buf *out)
{
	uint64_t memory = c->mallocs + c->frees;
	struct programs busy = {0};

	summary_programs(s, &busy);
	size_t helpers = programs_helpers(&busy), n = busy.processes - helpers;
	add_text(out, "{} {}", NUMBER(n), TEXT(n == 1 ? "process" : "processes"));
	if (helpers)
		add_text(out, " and {}", COUNT_OF(helpers, "helper"));
	add_text(out, " made ");
	programs_release(&busy);
	if (memory)
		add_text(out, "{}", COUNT_OF(memory, "memory event"));
	else
		add_text(out, "no memory events");
	add_text(out, " in {}.", DURATION(s->last_ns - s->first_ns));
	if (!memory)
		describe_why_none(s, out);
}

static uint64_t memory_of_device(const struct summary *s, uint32_t device)
{
	const struct mem_gpu_device *g = mem_asked_device(&s->asked, device);

	return g ? g->total_bytes : s->asked.gpu.total_bytes;
}

/* The largest pool that lives on a device besides the driver's. */
static const struct summary_pool *largest_pool(const struct summary *s, uint32_t device)
{
	const struct summary_pool *best = NULL;

	for (size_t i = 0; i < s->nprocesses; i++)
		for (size_t k = 0; k < s->processes[i]->npools; k++) {
			const struct summary_pool *pool = s->processes[i]->pool_list[k];

			if (pool->device == device && !blocks_is_driver(pool->type) &&
			    (!best || pool->bytes.peak_bytes > best->bytes.peak_bytes))
				best = pool;
		}
	return best;
}

/* What is not the whole of a GPU, or not the job's alone. */
static void describe_sharing(const struct summary *s, uint32_t device, struct buf *out)
{
	const struct mem_gpu_device *g = mem_asked_device(&s->asked, device);

	if (!g || (!g->mig && !g->mps))
		return;
	add_text(out, " ");
	words_device(out, device, true);
	if (g->mig)
		add_text(out, " is {}, a part of a GPU (MIG), of {}{}", TEXT(g->name),
			 BYTES(g->total_bytes), TEXT(g->mps ? ", and" : "."));
	if (g->mps)
		add_text(out, " is shared by way of the MPS server: what its other clients hold is "
			      "not in "
			      "this recording.");
}

static void describe_device(const struct summary *s, const struct summary_device *d,
			    struct buf *out)
{
	struct summary_tally peak = *summary_device_peak(d);
	const struct summary_pool *pool = largest_pool(s, d->device);

	add_text(out, " ");
	words_device(out, d->device, true);
	add_text(out, " peaked at {}{}", TEXT(d->late ? "no less than " : ""),
		 BYTES(peak.peak_bytes));
	if (pool && pool->bytes.peak_bytes && pool->bytes.peak_bytes != peak.peak_bytes) {
		add_text(out, " ({} pool ", POOL(pool->type));
		if (d->users > 1)
			add_text(out, "of process {} ", NUMBER(pool->process->pid));
		add_text(out, "{})", BYTES(pool->bytes.peak_bytes));
	}
	if (peak.peak_time_ns == s->first_ns)
		add_text(out, " at the start.");
	else
		add_text(out, " {} after the start.", DURATION(peak.peak_time_ns - s->first_ns));
	gpu_use_describe_askers(&s->gpu, d->device, out);
	describe_sharing(s, d->device, out);
}

static int higher_device_first(const void *pa, const void *pb)
{
	const struct summary_device *a = *(struct summary_device *const *)pa;
	const struct summary_device *b = *(struct summary_device *const *)pb;

	return ORDER(summary_device_peak(b)->peak_bytes, summary_device_peak(a)->peak_bytes)
		       ?: ORDER(a->device, b->device);
}

static void describe_devices(struct summary *s, struct buf *out)
{
	size_t said = 0, held = 0;

	SORT(s->devices, s->ndevices, higher_device_first);
	for (size_t i = 0; i < s->ndevices; i++) {
		if (!summary_device_peak(s->devices[i])->peak_bytes)
			continue;
		held++;
		if (said == MAX_DEVICES)
			continue;
		describe_device(s, s->devices[i], out);
		said++;
	}
	if (held == said + 1)
		add_text(out, " One more device is in the table below.");
	else if (held > said)
		add_text(out, " {} more devices are in the table below.", NUMBER(held - said));
}

/* What a process left behind, by type of pool; drivers are listed last. */
struct leftover {
	struct summary_held of[TYPE_END + 1];
	struct summary_held all;
	const struct summary_pool *largest; /* preferably not the driver's */
};

static void count_leftover(const struct summary_process *p, struct leftover *out)
{
	*out = (struct leftover){0};
	for (size_t i = 0; i < p->npools; i++) {
		const struct summary_pool *pool = p->pool_list[i];
		struct summary_held held = summary_alive(pool), best = {0};

		if (out->largest)
			best = summary_alive(out->largest);
		summary_held_add(&out->of[pool->type], &held);
		summary_held_add(&out->all, &held);
		if (!held.blocks)
			continue;
		bool driver = blocks_is_driver(pool->type);
		bool was_driver = out->largest && blocks_is_driver(out->largest->type);
		if (!out->largest || (was_driver && !driver) ||
		    (was_driver == driver && held.bytes > best.bytes))
			out->largest = pool;
	}
}

/* "3 blocks (768.00 KiB) of PTA and 2 blocks (40.00 MiB) of HAL"; returns how many kinds. */
static unsigned describe_kinds(const struct leftover *left, struct buf *out)
{
	unsigned total = 0, said = 0;

	for (unsigned t = 0; t <= TYPE_END; t++)
		total += left->of[t].blocks != 0;
	for (unsigned pass = 0; pass < 2; pass++)
		for (unsigned t = 0; t <= TYPE_END; t++) {
			if (!left->of[t].blocks || blocks_is_driver(t) != (pass == 1))
				continue;
			add_text(out, "{}{} ({}) of {}",
				 TEXT(!said		  ? ""
				      : said + 1 == total ? " and "
							  : ", "),
				 COUNT_OF(left->of[t].blocks, "block"), BYTES(left->of[t].bytes),
				 POOL(t));
			said++;
		}
	return total;
}

static void describe_origin(const struct summary *s, const struct leftover *left, unsigned kinds,
			    struct buf *out)
{
	uint64_t all = left->of[left->largest->type].bytes;
	size_t n;
	struct call_site *sites = summary_sites(s, left->largest, false, &n);

	n = call_sites_merge(sites, n, &s->stacks);
	if (n && sites[0].stack) {
		add_text(out, sites[0].bytes == all	 ? ", all of "
			      : sites[0].bytes > all / 2 ? ", most of "
							 : ", the largest part of ");
		if (kinds > 1)
			add_text(out, "the {} memory", POOL(left->largest->type));
		else
			add_text(out, "it");
		add_text(out, " from {}", WHERE_SITE(&s->stacks, &sites[0]));
	}
	free(sites);
}

static const struct process_facts *facts_of(const struct summary *s, uint32_t pid)
{
	return s->facts ? processes_find(s->facts, pid) : NULL;
}

/* " were still allocated at the end of process 12", which it may not have come to. */
static void describe_when_left(const struct summary *s, uint32_t pid, uint64_t blocks,
			       struct buf *out)
{
	const struct process_facts *f = facts_of(s, pid);

	if (f && f->state == PROCESS_RUNNING) {
		add_text(out, " {} allocated now by ", TEXT(blocks == 1 ? "is" : "are"));
		processes_describe(s->facts, pid, out);
		add_text(out, ", which is still running");
		return;
	}
	add_text(out, " {} still allocated ", TEXT(words_was(blocks)));
	add_text(out, f && process_signal(f) ? "when " : "at the end of ");
	if (f)
		processes_describe(s->facts, pid, out);
	else
		add_text(out, "process {}", NUMBER(pid));
	if (f && process_signal(f))
		add_text(out, " was killed by SIG{}", TEXT(process_signal(f)));
}

/* A peak of what was seen is not the peak where much was not. */
static void describe_uncovered(const struct summary *s, struct buf *out)
{
	if (s->facts && processes_coverage(s->facts) == COVERAGE_PARTIAL)
		add_text(out,
			 " That is what was recorded: host memory that is not covered comes on "
			 "top, see below.");
}

static void describe_alive(const struct summary *s, const struct summary_counts *c, struct buf *out)
{
	const struct summary_process *worst = NULL;
	struct leftover left, most = {0};
	struct programs holders = {0};

	for (size_t i = 0; i < s->nprocesses; i++) {
		count_leftover(s->processes[i], &left);
		if (left.all.blocks)
			programs_add(&holders, s->processes[i], s->processes[i]->pid,
				     left.all.bytes);
		if (left.all.blocks && (!worst || left.all.bytes > most.all.bytes)) {
			worst = s->processes[i];
			most = left;
		}
	}
	size_t others = holders.processes - programs_helpers(&holders);
	programs_release(&holders);
	if (!worst) {
		add_text(out, c->mallocs && !s->nameless
				      ? " Everything that was allocated was freed again."
				      : "");
		return;
	}
	add_text(out, " ");
	unsigned kinds = describe_kinds(&most, out);
	describe_when_left(s, worst->pid, most.all.blocks, out);
	describe_origin(s, &most, kinds, out);
	add_text(out, ".");
	if (others == 2)
		add_text(out, " Another process left blocks behind, too.");
	else if (others > 2)
		add_text(out, " Another {} processes left blocks behind, too.", NUMBER(others - 1));
}

static void describe_ooms(const struct summary *s, const struct summary_counts *c, struct buf *out)
{
	const struct summary_oom *first = &s->ooms[0];

	if (!c->ooms || !s->nooms)
		return;
	if (c->ooms == 1)
		add_text(out, " Memory was refused once, ");
	else
		add_text(out, " Memory was refused {}, first ", COUNT_OF(c->ooms, "time"));
	add_text(out, "{} after the start, when ", DURATION(first->time_ns - s->first_ns));
	if (first->requested_bytes)
		add_text(out, "{} were asked of ", BYTES(first->requested_bytes));
	else
		add_text(out, "a CUDA context was asked for on ");
	words_device(out, first->device, false);
	add_text(out, ".");
}

void summary_describe_answer(struct summary *s, struct buf *out)
{
	struct summary_counts c;
	struct loss lost;

	summary_count_all(s, &c);
	summary_loss_all(s, &lost);
	loss_describe(&lost, NULL, out);
	bool incomplete = out->len;
	add_text(out, incomplete ? " " : "");
	if (s->calls && !c.mallocs && !c.frees) {
		summary_describe_calls(s, out);
		describe_why_none(s, out);
		if (!incomplete)
			return;
	} else if (!c.rows && incomplete) { /* what the job did is not known */
		add_text(out, "There are no events in it.");
		return;
	} else if (!c.rows) {
		add_text(out, "There are no events in this recording.");
		describe_why_none(s, out);
		return;
	} else {
		describe_size(s, &c, out);
	}
	describe_devices(s, out);
	for (size_t i = 0; i < s->gpu.ntotals; i++)
		if (!s->gpu.totals[i].memory)
			s->gpu.totals[i].memory = memory_of_device(s, s->gpu.totals[i].device);
	gpu_use_describe_pools(&s->gpu, out);
	describe_uncovered(s, out);
	describe_alive(s, &c, out);
	describe_ooms(s, &c, out);
}
