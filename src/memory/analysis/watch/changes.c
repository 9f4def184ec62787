/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Changes of watched blocks, and what they come to: PENDING while operators run that may still say
 * that the write is theirs.
 */
#include "memory/analysis/watch/watch_impl.h"

#include "base/mem.h"

#include <stdlib.h>

struct watch_edge watch_edge_copy(const struct watch_edge *e)
{
	struct watch_edge copy = *e;

	copy.op = e->op ? xstrdup(e->op) : NULL;
	return copy;
}

struct watch_target watch_target_copy(const struct watch_target *t)
{
	struct watch_target copy = *t;

	copy.name = xstrdup(t->name);
	return copy;
}

void watch_finding_release(struct watch_finding *f)
{
	free(f->target.name);
	free(f->from.op);
	free(f->to.op);
	free(f->inside);
	free(f->waits);
}

struct watch_finding *watch_change(struct watch *w, const struct watch_block *b,
				   const struct watch_edge *to)
{
	if (w->nfindings >= WATCH_MAX_FINDINGS) {
		w->too_many++;
		return NULL;
	}
	w->findings = xgrow(w->findings, &w->cap_findings, w->nfindings + 1, sizeof(*w->findings));
	struct watch_finding *f = &w->findings[w->nfindings++];
	*f = (struct watch_finding){
		.target = watch_target_copy(&b->target),
		.allocation = b->allocation,
		.stack = b->stack,
		.pool = b->pool,
		.before = b->checksum,
		.from = watch_edge_copy(&b->last),
		.to = watch_edge_copy(to),
	};
	return f;
}

/* The operator's write that lies closest to the block, and not further away than it is long. */
static void find_neighbour(struct watch_finding *f, const struct watch_op *op)
{
	uint64_t best = f->target.size_bytes > 4096 ? f->target.size_bytes : 4096;

	for (size_t i = 0; i < op->nwrites; i++) {
		const struct watch_range *r = &op->writes[i];
		uint64_t end = r->addr + r->size_bytes;
		uint64_t gap = end <= f->target.addr
				       ? f->target.addr - end
				       : r->addr - (f->target.addr + f->target.size_bytes);
		if (gap >= best)
			continue;
		best = gap;
		f->has_neighbour = true;
		f->neighbour = *r;
	}
}

enum watch_verdict watch_verdict_without(const struct watch_process *p,
					 const struct watch_finding *f)
{
	/* A kernel outside of any operator says nothing about its tensors. */
	bool nameless = !f->suspect && f->from.op && !f->from.after && f->to.after;

	return p->accesses && !nameless ? WATCH_CORRUPTED : WATCH_UNJUDGED;
}

static bool forget_wait(struct watch_finding *f, uint64_t serial)
{
	for (size_t i = 0; i < f->nwaits; i++)
		if (f->waits[i] == serial) {
			f->waits[i] = f->waits[--f->nwaits];
			return true;
		}
	return false;
}

void watch_remove_announced(struct watch *w)
{
	size_t n = 0;

	for (size_t i = 0; i < w->nfindings; i++) {
		if (w->findings[i].verdict == WATCH_ANNOUNCED) {
			w->announced++;
			watch_finding_release(&w->findings[i]);
		} else {
			w->findings[n++] = w->findings[i];
		}
	}
	w->nfindings = n;
}

void watch_op_ended(struct watch *w, const struct watch_process *p, const struct watch_op *op)
{
	for (size_t i = w->nfindings; i > 0; i--) {
		struct watch_finding *f = &w->findings[i - 1];
		if (f->target.pid != p->pid || f->verdict != WATCH_PENDING)
			continue;
		if (f->suspect == op->serial)
			find_neighbour(f, op);
		if (forget_wait(f, op->serial) && !f->nwaits)
			f->verdict = watch_verdict_without(p, f);
	}
}

enum watch_verdict watch_verdict_of(struct watch *w, const struct watch_finding *f)
{
	return f->verdict == WATCH_PENDING
		       ? watch_verdict_without(watch_process_of(w, f->target.pid), f)
		       : f->verdict;
}

size_t watch_count_of(struct watch *w, enum watch_verdict v)
{
	size_t n = 0;

	for (size_t i = 0; i < w->nfindings; i++)
		n += watch_verdict_of(w, &w->findings[i]) == v;
	return n;
}

void watch_withdraw(struct watch *w, struct watch_process *p, const struct watch_thread *t,
		    const struct watch_range *r)
{
	bool any = false;

	for (size_t i = w->nfindings; i > 0; i--) {
		struct watch_finding *f = &w->findings[i - 1];
		if (f->verdict != WATCH_PENDING || f->target.pid != p->pid ||
		    !watch_overlap(f->target.addr, f->target.size_bytes, r->addr, r->size_bytes))
			continue;
		for (size_t k = 0; k < t->n; k++)
			if (forget_wait(f, t->ops[k].serial)) {
				f->verdict = WATCH_ANNOUNCED;
				any = true;
				break;
			}
	}
	if (any)
		watch_remove_announced(w);
}
