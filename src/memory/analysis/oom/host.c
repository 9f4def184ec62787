/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Why host memory was refused: a limit of the process, of its control group, or of the machine. */
#include <string.h>

#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/oom/oom_impl.h"

#define TOO_MUCH (1ull << 47) /* no address space of a process has as much */
#define NO_GROUP UINT64_MAX

/* What its control group may have, as the samples say. */
static uint64_t group_limit(const struct oom *o, const struct oom_incident *i, uint64_t *used)
{
	const struct process_facts *p =
		o->base.processes ? processes_find(o->base.processes, i->process->pid) : NULL;

	if (!p || !p->samples || p->last.usage.group_limit_bytes == USAGE_UNKNOWN)
		return NO_GROUP;
	*used = p->last.usage.group_bytes;
	return p->last.usage.group_limit_bytes;
}

bool oom_host_is_oversized(const struct oom_incident *i)
{
	return i->requested >= TOO_MUCH || (i->machine_bytes && i->requested > i->machine_bytes);
}

static bool is_data_limit(const struct oom_incident *i)
{
	return strstr(i->function, "RLIMIT_DATA") != NULL;
}

void oom_host_reason(const struct oom *o, const struct oom_incident *i, struct buf *out)
{
	uint64_t used = 0, group = group_limit(o, i, &used);

	if (i->requested >= TOO_MUCH) {
		add_text(out, "no process can have that much: the size was computed wrongly.");
		return;
	}
	if (oom_host_is_oversized(i)) {
		add_text(out,
			 "{} were asked for, and the machine has {} in all, memory and swap: it "
			 "could "
			 "never have been given.",
			 BYTES(i->requested), BYTES(i->machine_bytes));
		return;
	}
	if (i->has_blocks)
		add_text(out, "recorded blocks of this process hold {}", BYTES(i->own_bytes));
	else
		add_text(out, "this process holds what is listed below");
	if (i->limit)
		add_text(out, ", and it may have {} {}", BYTES(i->limit),
			 TEXT(is_data_limit(i) ? "of data (RLIMIT_DATA, ulimit -d)"
					       : "of address space, libraries and reservations "
						 "included (RLIMIT_AS, ulimit -v)"));
	if (i->limit && i->space_bytes > i->limit) /* it was set when there was more */
		add_text(out, ", less than the {} that were in use", BYTES(i->space_bytes));
	else if (i->limit && i->space_bytes)
		add_text(out, ", of which {} were in use", BYTES(i->space_bytes));
	if (group != NO_GROUP) {
		add_text(out, "; its control group may have {}", BYTES(group));
		if (used != USAGE_UNKNOWN)
			add_text(out, " and had {} at the last sample", BYTES(used));
	}
	if (!i->limit && group == NO_GROUP)
		add_text(out,
			 ", and it has no limit of its own, so the machine had no more to give "
			 "(memory, swap, vm.overcommit_memory, vm.max_map_count)");
	add_text(out, "; {} more were asked for.", BYTES(i->requested));
}

void oom_host_advice(const struct oom *o, const struct oom_incident *i, struct buf *out)
{
	const struct oom_block *b = i->largest.n ? &i->largest.list[0] : NULL;

	if (oom_host_is_oversized(i)) {
		add_text(out,
			 "Look at how the size is computed; a negative number is a huge one here.");
		return;
	}
	if (i->limit)
		add_text(out,
			 "Raise the limit (ulimit, the scheduler's memory request), or hold less");
	else
		add_text(out, "Hold less, or give the job more memory");
	if (b)
		add_text(out, "; the largest block has {}", BYTES(b->bytes));
	if (b && b->stack)
		add_text(out, " and comes from {}", WHERE(oom_stacks(o), b->stack));
	add_text(out, ".");
}
