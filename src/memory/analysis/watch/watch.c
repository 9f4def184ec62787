/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A change is judged by what operators say they write. Some say it late: the outputs of an operator
 * of torch are announced when its kernels have long been launched, and an operator of another
 * thread may be in the middle of its work. So a change that nobody has announced waits until every
 * operator that was running has ended; if one of them announces the write before, all is well.
 */
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/watch/watch_impl.h"

#include "base/mem.h"
#include "base/text/printable.h"
#include "wire/record.h"

#include <stdlib.h>
#include <string.h>

#define TORCH "torch._ops."

struct watch_allocation {
	uint64_t id, size_bytes;
	uint32_t stack;
	enum row_type pool;
};

/* --- names --- */

/* As people write them: no module of Python in front, nothing that a terminal would obey. */
static char *readable_name(const char *s, size_t n)
{
	size_t skip = strlen(TORCH);

	if (n > skip && !memcmp(s, TORCH, skip)) {
		s += skip;
		n -= skip;
	}
	struct buf copy = {0};
	text_add_printable(&copy, s, s ? n : 0);
	buf_str(&copy);
	return copy.data;
}

/* In samples an operator of ATB has its place in the graph in front: "3_LinearOperation". */
static bool is_same_op(const char *in_row, const char *in_sample)
{
	const char *slash = strrchr(in_sample, '/');
	const char *last = slash ? slash + 1 : in_sample;
	size_t digits = strspn(last, "0123456789");

	return !strcmp(in_row, in_sample) || !strcmp(in_row, last) ||
	       (digits && last[digits] == '_' && !strcmp(in_row, last + digits + 1));
}

void watch_edge_set(struct watch_edge *e, const char *op, size_t len, uint32_t call, uint32_t tid,
		    bool after)
{
	free(e->op);
	*e = (struct watch_edge){
		.op = readable_name(op, len), .call = call, .tid = tid, .after = after};
}

/* --- what there is --- */

static struct watch_process *process_new(struct watch *w, uint32_t pid)
{
	w->processes = xgrow(w->processes, &w->cap_processes, w->nprocesses + 1,
			     sizeof(struct watch_process *));
	struct watch_process *p = xcalloc(1, sizeof(*p));
	p->pid = pid;
	w->processes[w->nprocesses++] = p;
	return p;
}

struct watch_process *watch_process_of(struct watch *w, uint32_t pid)
{
	for (size_t i = w->nprocesses; i > 0; i--)
		if (w->processes[i - 1]->pid == pid)
			return w->processes[i - 1];
	return process_new(w, pid);
}

static struct watch_thread *thread_of(struct watch_process *p, uint32_t tid)
{
	struct watch_thread *t = omap_get(&p->threads, tid);

	if (!t) {
		t = xcalloc(1, sizeof(*t));
		omap_put(&p->threads, tid, t);
	}
	return t;
}

struct watch_block *watch_block_new(const char *name, size_t len)
{
	struct watch_block *b = xcalloc(1, sizeof(*b));

	b->target.name = readable_name(name, len);
	b->pool = TYPE_END;
	return b;
}

void watch_block_free(struct watch_block *b)
{
	if (!b)
		return;
	free(b->target.name);
	free(b->last.op);
	free(b);
}

/* --- rows --- */

static void op_release(struct watch *w, const struct watch_process *p, struct watch_op *op)
{
	watch_op_ended(w, p, op);
	free(op->name);
	free(op->writes);
	*op = (struct watch_op){0};
}

static void op_begins(struct watch *w, struct watch_process *p, const struct row *row)
{
	struct watch_thread *t = thread_of(p, row->tid);

	if (t->n == WATCH_MAX_DEPTH) { /* ends that were lost */
		op_release(w, p, &t->ops[0]);
		memmove(t->ops, t->ops + 1, --t->n * sizeof(*t->ops));
	}
	LIST_ADD(t->ops, t->n, t->cap,
		 (struct watch_op){.serial = ++w->serials,
				   .stack = stacks_of(&w->stacks, row),
				   .name = readable_name(row->name, row->name_len)});
}

static void op_ends(struct watch *w, struct watch_process *p, const struct row *row)
{
	struct watch_thread *t = thread_of(p, row->tid);
	char *name = readable_name(row->name, row->name_len);
	size_t at = t->n;

	while (at > 0 && strcmp(t->ops[at - 1].name, name) != 0)
		at--;
	free(name);
	if (!at)
		return; /* its beginning was not seen */
	while (t->n >= at)
		op_release(w, p, &t->ops[--t->n]);
}

static uint64_t attr_number(const struct row *row, enum attr_key key)
{
	uint64_t n = 0;

	row_number(row, key, &n);
	return n;
}

struct written {
	struct watch *w;
	uint64_t addr, size_bytes;
};

static void mark_written(uint64_t key, void *value, void *arg)
{
	struct watch_block *b = value;
	const struct written *r = arg;

	(void)key;
	if (watch_overlap(b->target.addr, b->target.size_bytes, r->addr, r->size_bytes))
		b->written = true;
}

static void on_access(struct watch *w, struct watch_process *p, const struct row *row)
{
	struct written r = {w, row->ptr, attr_number(row, ATTR_SIZE)};
	struct watch_thread *t = thread_of(p, row->tid);

	p->accesses++;
	if (row->type == TYPE_READ || !r.size_bytes)
		return;
	if (t->n) {
		struct watch_op *op = &t->ops[t->n - 1];
		if (op->nwrites < WATCH_MAX_RANGES) {
			LIST_ADD(op->writes, op->nwrites, op->cap_writes,
				 (struct watch_range){r.addr, r.size_bytes});
		}
	}
	omap_each(&p->blocks, mark_written, &r);
	watch_withdraw(w, p, t, &(struct watch_range){r.addr, r.size_bytes});
}

static void on_malloc(struct watch *w, struct watch_process *p, const struct row *row)
{
	struct watch_allocation *a = xcalloc(1, sizeof(*a));

	a->id = attr_number(row, ATTR_ALLOCATION_ID);
	a->size_bytes = attr_number(row, ATTR_SIZE);
	a->stack = stacks_of(&w->stacks, row);
	a->pool = row->type;
	/* Pools carve their blocks out of the driver's: at one address the smaller one counts. */
	struct watch_allocation *old = omap_get(&p->allocations, row->ptr);
	if (old && blocks_is_device(row->type) && !blocks_is_device(old->pool)) {
		free(a);
		return;
	}
	free(omap_put(&p->allocations, row->ptr, a));
}

/* Watches that are over: those of memory that was freed, and those that a new one follows. */
struct over {
	uint64_t addr, size_bytes;
	const struct watch_target *follower; /* or NULL */
	uint32_t *list;
	size_t n, cap;
};

static void collect_over(uint64_t number, void *value, void *arg)
{
	const struct watch_block *b = value;
	struct over *o = arg;
	const struct watch_target *t = &b->target, *f = o->follower;

	if (f ? t->output != f->output || t->device != f->device || strcmp(t->name, f->name)
	      : !watch_overlap(t->addr, t->size_bytes, o->addr, o->size_bytes))
		return;
	LIST_ADD(o->list, o->n, o->cap, (uint32_t)number);
}

static void drop_blocks(struct watch_process *p, struct over *o)
{
	omap_each(&p->blocks, collect_over, o);
	for (size_t i = 0; i < o->n; i++)
		watch_block_free(omap_remove(&p->blocks, o->list[i]));
	free(o->list);
}

static void on_free(struct watch_process *p, const struct row *row)
{
	struct watch_allocation *a = omap_get(&p->allocations, row->ptr);
	struct over o = {.addr = row->ptr, .size_bytes = attr_number(row, ATTR_SIZE)};

	if (o.size_bytes && p->blocks.count)
		drop_blocks(p, &o);
	if (a && a->pool == row->type)
		free(omap_remove(&p->allocations, row->ptr));
}

/* A second call for a pid: it became another program, or the number was used again. */
static void watch_process(struct analysis *a, uint32_t pid, const char *command)
{
	struct watch *w = (struct watch *)a;

	(void)command;
	for (size_t i = 0; i < w->nprocesses; i++)
		if (w->processes[i]->pid == pid) {
			process_new(w, pid);
			return;
		}
}

static void watch_row(struct analysis *a, const struct row *row)
{
	struct watch *w = (struct watch *)a;
	struct watch_process *p = watch_process_of(w, row->pid);

	switch (row->type) {
	case TYPE_ATEN_START:
	case TYPE_ATB_START:
	case TYPE_KERNEL_START:
		op_begins(w, p, row);
		return;
	case TYPE_ATEN_END:
	case TYPE_ATB_END:
	case TYPE_KERNEL_END:
		op_ends(w, p, row);
		return;
	default:
		break;
	}
	if (row->event == ROW_ACCESS)
		on_access(w, p, row);
	else if (row->event == ROW_MALLOC)
		on_malloc(w, p, row);
	else if (row->event == ROW_FREE)
		on_free(p, row);
}

/* --- samples --- */

static void find_allocation(struct watch_process *p, struct watch_block *b)
{
	uint64_t start;
	const struct watch_allocation *a = omap_floor(&p->allocations, b->target.addr, &start);

	if (a && b->target.addr - start < a->size_bytes) {
		b->allocation = a->id;
		b->stack = a->stack;
		b->pool = a->pool;
	}
}

static struct watch_block *block_of(struct watch *w, struct watch_process *p,
				    const struct watch_sample *s)
{
	struct watch_block *b = omap_get(&p->blocks, s->watch);

	if (b && b->target.addr == s->addr)
		return b;
	b = watch_block_new(s->watched, s->watched_len);
	b->target =
		(struct watch_target){p->pid,	     s->device,	     0,		s->addr,
				      s->size_bytes, b->target.name, s->output, s->watched_call};
	find_allocation(p, b);
	if (b->target.output != WATCH_NO_OUTPUT)
		drop_blocks(p, &(struct over){.follower = &b->target});
	w->blocks++;
	watch_block_free(omap_put(&p->blocks, s->watch, b));
	return b;
}

struct speakers {
	struct watch_finding *f;
	bool writes; /* one has said already that it writes the block */
};

static void ask_thread(uint64_t tid, void *value, void *arg)
{
	const struct watch_thread *t = value;
	struct speakers *s = arg;
	struct watch_finding *f = s->f;

	(void)tid;
	for (size_t i = 0; i < t->n; i++) {
		const struct watch_op *op = &t->ops[i];
		for (size_t k = 0; k < op->nwrites; k++)
			s->writes |= watch_overlap(op->writes[k].addr, op->writes[k].size_bytes,
						   f->target.addr, f->target.size_bytes);
		LIST_ADD(f->waits, f->nwaits, f->cap_waits, op->serial);
	}
}

/* Where the operator of this edge was called; at its beginning it may not be there yet. */
static uint32_t find_call(struct watch_process *p, const struct watch_edge *e)
{
	const struct watch_thread *t = thread_of(p, e->tid);

	return t->n && is_same_op(t->ops[t->n - 1].name, e->op) ? t->ops[t->n - 1].stack : 0;
}

/* Who ran when it happened: the operator of this edge, or the one around it. */
static void find_suspect(struct watch_process *p, struct watch_finding *f, uint32_t tid)
{
	const struct watch_thread *t = thread_of(p, tid);
	const struct watch_op *top = t->n ? &t->ops[t->n - 1] : NULL;
	bool itself = top && is_same_op(top->name, f->to.op);

	/* At its beginning an operator has done nothing yet: what is around it has. */
	const struct watch_op *around = itself ? (t->n > 1 ? top - 1 : NULL) : top;
	if (around)
		f->inside = xstrdup(around->name);
	if (itself && f->to.after)
		f->suspect = top->serial;
	else if (around)
		f->suspect = around->serial;
}

static void on_change(struct watch *w, struct watch_process *p, struct watch_block *b,
		      const struct watch_sample *s, const struct watch_edge *to)
{
	struct watch_finding *f = b->written ? NULL : watch_change(w, b, to);

	if (b->written)
		w->announced++;
	if (!f)
		return;
	struct speakers speakers = {f, false};
	f->target.pid = p->pid;
	f->target.time_ns = s->time_ns;
	f->after = s->checksum;
	f->missed = s->seq > b->seq ? s->seq - b->seq - 1 : 0; /* looks of two threads may swap */
	omap_each(&p->threads, ask_thread, &speakers);
	find_suspect(p, f, s->tid);
	if (speakers.writes) {
		f->verdict = WATCH_ANNOUNCED;
		watch_remove_announced(w);
	} else if (!f->nwaits) {
		f->verdict = watch_verdict_without(p, f);
	}
}

static void ended_release(struct watch_ended *e)
{
	free(e->target.name);
	free(e->last.op);
}

/* Two threads may both report a last sample: the later one counts. */
static void on_last(struct watch *w, uint32_t pid, const struct watch_block *b,
		    const struct watch_sample *s)
{
	size_t i = w->nended;

	while (i > 0 && (w->ended[i - 1].watch != s->watch || w->ended[i - 1].target.pid != pid))
		i--;
	if (!i && w->nended >= WATCH_MAX_FINDINGS)
		return;
	if (!i) {
		w->ended = xgrow(w->ended, &w->cap_ended, w->nended + 1, sizeof(*w->ended));
		i = ++w->nended;
	} else {
		ended_release(&w->ended[i - 1]);
	}
	struct watch_ended *e = &w->ended[i - 1];
	*e = (struct watch_ended){watch_target_copy(&b->target), s->watch, s->seq,
				  watch_edge_copy(&b->last)};
	e->target.time_ns = s->time_ns;
}

void watch_add(struct analysis *a, uint32_t pid, const struct watch_sample *s)
{
	struct watch *w = (struct watch *)a;
	struct watch_process *p = watch_process_of(w, pid);
	struct watch_block *b = block_of(w, p, s);
	struct watch_edge to = {0};

	w->samples++;
	if (s->content_errno && !w->unwritten++)
		w->unwritten_errno = s->content_errno;
	if (s->error && !w->failed++)
		w->error = s->error;
	if (s->error) {
		b->seq = s->seq;
		return;
	}
	watch_edge_set(&to, s->op, s->op_len, s->call, s->tid, s->after);
	to.stack = find_call(p, &to);
	if (b->last.op && s->seq > b->seq + 1)
		w->missed += s->seq - b->seq - 1;
	if (b->last.op && s->checksum != b->checksum)
		on_change(w, p, b, s, &to);
	free(b->last.op);
	b->last = to;
	b->checksum = s->checksum;
	b->seq = s->seq;
	b->written = false;
	if (s->last)
		on_last(w, pid, b, s);
}

/* --- the analysis --- */

static void free_thread(uint64_t key, void *value, void *arg)
{
	struct watch_thread *t = value;

	(void)key;
	(void)arg;
	for (size_t i = 0; i < t->n; i++) {
		free(t->ops[i].name);
		free(t->ops[i].writes);
	}
	free(t->ops);
	free(t);
}

static void free_block(uint64_t key, void *value, void *arg)
{
	(void)key;
	(void)arg;
	watch_block_free(value);
}

static void free_allocation(uint64_t key, void *value, void *arg)
{
	(void)key;
	(void)arg;
	free(value);
}

static void watch_free(struct analysis *a)
{
	struct watch *w = (struct watch *)a;

	for (size_t i = 0; i < w->nprocesses; i++) {
		struct watch_process *p = w->processes[i];
		omap_each(&p->threads, free_thread, NULL);
		omap_each(&p->blocks, free_block, NULL);
		omap_each(&p->allocations, free_allocation, NULL);
		omap_release(&p->threads);
		omap_release(&p->blocks);
		omap_release(&p->allocations);
		free(p);
	}
	for (size_t i = 0; i < w->nfindings; i++)
		watch_finding_release(&w->findings[i]);
	for (size_t i = 0; i < w->nended; i++)
		ended_release(&w->ended[i]);
	stacks_release(&w->stacks);
	free(w->ended);
	free(w->processes);
	free(w->findings);
	free(w);
}

static size_t watch_findings(struct analysis *a)
{
	struct watch *w = (struct watch *)a;

	return watch_count_of(w, WATCH_CORRUPTED);
}

/* Checksums alone say that memory changed, not whether it should have. */
static bool watch_judged(struct analysis *a)
{
	return !((struct watch *)a)->from_csv;
}

static const struct analysis_ops watch_ops = {
	.name = "watch",
	.row = watch_row,
	.process = watch_process,
	.judged = watch_judged,
	.findings = watch_findings,
	.text = watch_text,
	.json = watch_json,
	.free = watch_free,
};

struct analysis *watch_new(void)
{
	struct watch *w = xcalloc(1, sizeof(*w));

	w->base.ops = &watch_ops;
	return &w->base;
}
