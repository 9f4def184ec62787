/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The first lines of the text: what happened, in a few sentences. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text/plain_words.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/summary/query.h"

#define MAX_DEVICES 3

/* Why there are no memory events, as far as the recording knows what it was asked for. */
static void say_why_none(const struct summary *s, struct buf *out)
{
	if (!s->asked.known)
		return;
	if (!s->asked.memory)
		buf_add_str(out, " Allocations and frees were not asked for (--events).");
	else if (!s->asked.host)
		buf_add_str(out, " Tensors on the CPU are recorded with --device=cpu, in Python "
				 "msmemscope.config(device=\"cpu\"): see docs/python.md.");
}

void summary_say_calls(const struct summary *s, struct buf *out)
{
	words_of(out, s->calls, "call");
	buf_addf(out, " of Python functions %s traced, of ", words_was(s->calls));
	words_of(out, s->call_threads, "thread");
	buf_add_str(out, s->calls_in_db ? ": see the table python_trace_<pid> of the .db in "
					: ": see the files python_trace_<thread>_<time>.csv in ");
	buf_add_str(out, "msmemscope_<pid>_<time>_ascend/device_*/dump.");
}

static void say_size(const struct summary *s, const struct summary_counts *c, struct buf *out)
{
	uint64_t memory = c->mallocs + c->frees;
	size_t busy = 0;

	for (size_t i = 0; i < s->nprocesses; i++)
		busy += s->processes[i]->seen.rows != 0;
	if (busy == 1)
		buf_add_str(out, "1 process made ");
	else
		buf_addf(out, "%zu processes made ", busy);
	if (memory)
		words_of(out, memory, "memory event");
	else
		buf_add_str(out, "no memory events");
	buf_add_str(out, " in ");
	words_time(out, s->last_ns - s->first_ns);
	buf_add_char(out, '.');
	if (!memory)
		say_why_none(s, out);
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

static void say_device(const struct summary *s, const struct summary_device *d, struct buf *out)
{
	bool exact;
	struct summary_tally peak = summary_whole_peak(s, d, &exact);
	const struct summary_pool *pool = largest_pool(s, d->device);

	buf_add_char(out, ' ');
	words_device(out, d->device, true);
	buf_add_str(out, exact ? " peaked at " : " peaked at no less than ");
	words_bytes(out, peak.peak_bytes);
	if (pool && pool->bytes.peak_bytes && pool->bytes.peak_bytes != peak.peak_bytes) {
		buf_addf(out, " (%s pool ", words_pool(pool->type));
		if (d->users > 1)
			buf_addf(out, "of process %u ", pool->process->pid);
		words_bytes(out, pool->bytes.peak_bytes);
		buf_add_char(out, ')');
	}
	if (peak.peak_time_ns == s->first_ns) {
		buf_add_str(out, " at the start.");
		return;
	}
	buf_add_char(out, ' ');
	words_time(out, peak.peak_time_ns - s->first_ns);
	buf_add_str(out, " after the start.");
}

static int higher_first(const void *pa, const void *pb)
{
	const struct summary_device *a = *(struct summary_device *const *)pa;
	const struct summary_device *b = *(struct summary_device *const *)pb;
	uint64_t x = summary_device_peak(a)->peak_bytes, y = summary_device_peak(b)->peak_bytes;

	if (x != y)
		return x > y ? -1 : 1;
	return (a->device > b->device) - (a->device < b->device);
}

static void say_devices(struct summary *s, struct buf *out)
{
	size_t said = 0, held = 0;

	if (s->ndevices)
		qsort(s->devices, s->ndevices, sizeof(struct summary_device *), higher_first);
	for (size_t i = 0; i < s->ndevices; i++) {
		if (!summary_device_peak(s->devices[i])->peak_bytes)
			continue;
		held++;
		if (said == MAX_DEVICES)
			continue;
		say_device(s, s->devices[i], out);
		said++;
	}
	if (held == said + 1)
		buf_add_str(out, " One more device is in the table below.");
	else if (held > said)
		buf_addf(out, " %zu more devices are in the table below.", held - said);
}

/* What a process left behind, by type of pool; drivers are listed last. */
struct leftover {
	struct summary_held of[TYPE_END + 1];
	uint64_t bytes;
	uint64_t blocks;
	const struct summary_pool *largest; /* preferably not the driver's */
};

static void leftover_of(const struct summary_process *p, struct leftover *out)
{
	*out = (struct leftover){0};
	for (size_t i = 0; i < p->npools; i++) {
		const struct summary_pool *pool = p->pool_list[i];
		struct summary_held held = summary_alive(pool), best = {0};

		if (out->largest)
			best = summary_alive(out->largest);
		out->of[pool->type].blocks += held.blocks;
		out->of[pool->type].bytes += held.bytes;
		out->blocks += held.blocks;
		out->bytes += held.bytes;
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
static unsigned say_kinds(const struct leftover *left, struct buf *out)
{
	unsigned total = 0, said = 0;

	for (unsigned t = 0; t <= TYPE_END; t++)
		total += left->of[t].blocks != 0;
	for (unsigned pass = 0; pass < 2; pass++)
		for (unsigned t = 0; t <= TYPE_END; t++) {
			if (!left->of[t].blocks || blocks_is_driver(t) != (pass == 1))
				continue;
			if (said)
				buf_add_str(out, said + 1 == total ? " and " : ", ");
			words_of(out, left->of[t].blocks, "block");
			buf_add_str(out, " (");
			words_bytes(out, left->of[t].bytes);
			buf_addf(out, ") of %s", words_pool(t));
			said++;
		}
	return total;
}

static void say_origin(const struct summary *s, const struct leftover *left, unsigned kinds,
		       struct buf *out)
{
	struct buf where = {0};
	size_t n;
	struct summary_place *places = summary_places(s, left->largest, false, &n);
	uint64_t all = left->of[left->largest->type].bytes;

	if (n && stacks_where(&s->stacks, places[0].number, &where)) {
		bool only = places[0].held.bytes == all;
		bool most = places[0].held.bytes > all / 2;

		buf_add_str(out, only ? ", all" : most ? ", most" : ", the largest part");
		if (kinds > 1)
			buf_addf(out, " of the %s memory", words_pool(left->largest->type));
		else
			buf_add_str(out, " of it");
		buf_addf(out, " from %s", buf_str(&where));
	}
	buf_release(&where);
	free(places);
}

static void say_alive(const struct summary *s, const struct summary_counts *c, struct buf *out)
{
	const struct summary_process *worst = NULL;
	struct leftover left, most = {0};
	size_t others = 0;

	for (size_t i = 0; i < s->nprocesses; i++) {
		leftover_of(s->processes[i], &left);
		others += left.blocks != 0;
		if (left.blocks && (!worst || left.bytes > most.bytes)) {
			worst = s->processes[i];
			most = left;
		}
	}
	if (!worst) {
		if (c->mallocs)
			buf_add_str(out, " Everything that was allocated was freed again.");
		return;
	}
	buf_add_char(out, ' ');
	unsigned kinds = say_kinds(&most, out);
	buf_addf(out, " %s still allocated at the end of process %u", words_was(most.blocks),
		 worst->pid);
	say_origin(s, &most, kinds, out);
	buf_add_char(out, '.');
	if (others == 2)
		buf_add_str(out, " Another process left blocks behind, too.");
	else if (others > 2)
		buf_addf(out, " Another %zu processes left blocks behind, too.", others - 1);
}

static void say_ooms(const struct summary *s, const struct summary_counts *c, struct buf *out)
{
	char dev[16];

	if (!c->ooms || !s->nooms)
		return;
	buf_add_str(out, " Memory ran out ");
	if (c->ooms == 1)
		buf_add_str(out, "once, ");
	else
		words_of(out, c->ooms, "time");
	buf_add_str(out, c->ooms == 1 ? "" : ", first ");
	words_time(out, s->ooms[0].time_ns - s->first_ns);
	buf_add_str(out, " after the start, when ");
	words_bytes(out, s->ooms[0].requested_bytes);
	buf_addf(out, " were asked of device %s.", blocks_device_name(s->ooms[0].device, dev));
}

void summary_answer(struct summary *s, struct buf *out)
{
	struct summary_counts c;
	struct summary_loss lost;

	summary_count_all(s, &c);
	summary_loss_all(s, &lost);
	if (s->calls && !c.mallocs && !c.frees) {
		summary_say_calls(s, out);
		say_why_none(s, out);
		if (!lost.events)
			return;
	} else if (!c.rows && s->asked.known && !s->asked.memory) {
		buf_add_str(out, "There are no events in this recording.");
		say_why_none(s, out);
		return;
	} else if (!c.rows) {
		buf_add_str(out,
			    "There are no events in this recording. A job without NPU memory has "
			    "some with --device=npu,cpu, in Python "
			    "msmemscope.config(device=\"cpu\"), see docs/python.md; a deferred one "
			    "from sonde_start() on; a statically linked program never.");
		return;
	} else {
		say_size(s, &c, out);
	}
	say_devices(s, out);
	say_alive(s, &c, out);
	say_ooms(s, &c, out);
	if (!lost.events)
		return;
	buf_add_char(out, ' ');
	words_of(out, lost.events, "event");
	buf_addf(out, " %s lost, so all of this is incomplete.", words_was(lost.events));
}
