/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * When rows are written: the process is tracing (start/stop) and, with --steps, inside a listed
 * step. Blocks are followed all the time. When a window opens, blocks that were allocated before it
 * get their MALLOC row then (shadow:true, time of the opening), so that every FREE row has its
 * MALLOC row.
 */
#define LOG_AREA "track"
#include "memory/track/track_impl.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define STEP_MESSAGE "step start"
#define SANITIZER_PREFIX "sanitizer-op:" /* for torch's sanitizer, not for people */

static void collect_block(uint64_t key, void *value, void *arg)
{
	struct block_list *pr = arg;

	(void)key;
	pr->list = xgrow(pr->list, &pr->cap, pr->n + 1, sizeof(*pr->list));
	pr->list[pr->n++] = value;
}

static int by_id(const void *a, const void *b)
{
	const struct block *x = *(struct block *const *)a, *y = *(struct block *const *)b;

	return (x->id > y->id) - (x->id < y->id);
}

/* All blocks of a process in the order of their allocation. */
void window_list(struct proc *p, struct block_list *out)
{
	for (unsigned m = 0; m < NMAPS; m++)
		omap_each(&p->maps[m], collect_block, out);
	if (out->n)
		qsort(out->list, out->n, sizeof(*out->list), by_id);
}

static void promote_blocks(struct proc *p, uint64_t time_ns)
{
	struct block_list pr = {0};

	window_list(p, &pr);
	for (size_t i = 0; i < pr.n; i++) {
		if (!pr.list[i]->written && block_is_memory(pr.list[i]) &&
		    rows_wanted(p, pr.list[i]->device))
			rows_malloc(p, pr.list[i], time_ns, true);
	}
	free(pr.list);
}

static bool step_is_listed(const struct proc *p)
{
	const struct mem_config *c = p->cfg;

	if (!c->nsteps)
		return true;
	for (uint32_t i = 0; i < c->nsteps; i++)
		if (c->steps[i] == p->step && (p->step_range || p->by_call))
			return true;
	return false;
}

static void update_window(struct proc *p, uint64_t time_ns)
{
	bool open = p->tracing && step_is_listed(p);

	if (open && !p->window) {
		p->window = true;
		promote_blocks(p, time_ns);
	}
	p->window = open;
}

/* The program has other settings from now on. What is alive and is to have a row now, gets it. */
void window_config(struct proc *p, const struct rec_config *r)
{
	const struct track_sink *sink = &p->track->sink;
	size_t len;
	const char *output = rec_text(&r->head, &len);
	struct mem_config *c = xmalloc(sizeof(*c));

	*c = *p->cfg;
	mem_config_set_settings(c, &r->settings);
	if (len && len < sizeof(c->output_dir) && output[0] == '/' && !memchr(output, 0, len)) {
		memcpy(c->output_dir, output, len);
		c->output_dir[len] = '\0';
	}
	free(p->own_cfg);
	p->cfg = p->own_cfg = c;
	if (sink->config)
		sink->config(sink->arg, p->info.proc, c);
	if (p->window)
		promote_blocks(p, r->head.time_ns);
}

/* The first kind that was seen counts. */
static void log_two_kinds_of_steps(struct proc *p)
{
	if (!p->two_kinds_logged && !p->track->for_checkpoint)
		log_err("process %u reports its steps by %s; those by %s are not counted",
			p->info.pid, p->by_call ? "step()" : "ranges",
			p->by_call ? "ranges" : "step()");
	p->two_kinds_logged = true;
}

static void note_step_end(struct proc *p, uint64_t step)
{
	p->track->steps++;
	if (step > p->track->last_step)
		p->track->last_step = step;
}

/* What counted as steps so far was none: everything was before the first one. */
static void forget_detected_steps(struct proc *p)
{
	struct block_list all = {0};

	if (!p->detected)
		return;
	window_list(p, &all);
	for (size_t i = 0; i < all.n; i++)
		all.list[i]->step = 0;
	free(all.list);
	p->detected = 0;
	p->step = p->first_step = 0;
	p->track->last_step = 0; /* other processes bring theirs again */
}

/* Never a row of a dump, and never a step of --steps: those are the program's own. */
static void detect_step(struct proc *p, uint32_t tid, const struct rec_system *s)
{
	if (p->by_call || p->by_range || p->cfg->nsteps || s->source == STEP_REPORTED ||
	    s->source >= STEP_SOURCE_END || !s->value || s->value >= UINT32_MAX)
		return;
	if (s->value == 1)
		forget_detected_steps(p);
	p->detected = s->source;
	if (!p->first_step)
		p->first_step = s->value;
	if (p->window)
		rows_detected_step(p, tid, s);
	note_step_end(p, s->value);
	p->step = s->value + 1;
}

void window_mark(struct proc *p, uint32_t tid, const struct rec_mark *m)
{
	size_t len;
	const char *text = rec_text(&m->head, &len);

	if (rows_aten(p, tid, m))
		return;
	if (len >= strlen(SANITIZER_PREFIX) &&
	    !memcmp(text, SANITIZER_PREFIX, strlen(SANITIZER_PREFIX)))
		return;
	bool begins = m->kind == MARK_RANGE_START && len == strlen(STEP_MESSAGE) &&
		      !memcmp(text, STEP_MESSAGE, len);
	if (begins && p->by_call)
		log_two_kinds_of_steps(p);
	if (begins && !p->by_call) {
		forget_detected_steps(p);
		p->by_range = true;
		p->step++;
		if (!p->first_step)
			p->first_step = p->step;
		p->step_range = m->range;
		update_window(p, m->head.time_ns);
	}
	if (p->window)
		rows_mark(p, tid, m);
	if (m->kind == MARK_RANGE_END && m->range && m->range == p->step_range) {
		p->step_range = 0;
		note_step_end(p, p->step);
		update_window(p, m->head.time_ns);
	}
}

void window_system(struct proc *p, uint32_t tid, const struct rec_system *s)
{
	if (s->kind == SYSTEM_STEP_NAME)
		p->step_name = s->value;
	if (s->kind == SYSTEM_DETECTED_STEP)
		detect_step(p, tid, s);
	if (s->kind > SYSTEM_EXIT)
		return;
	if (s->kind == SYSTEM_START_TRACE) {
		p->tracing = true;
		update_window(p, s->head.time_ns);
	}
	if (s->kind == SYSTEM_STEP && p->by_range) {
		log_two_kinds_of_steps(p);
		return;
	}
	/* Blocks that have rows may be freed after the end, whether that is recorded or not. */
	if (p->window || s->kind == SYSTEM_STOP_TRACE || (s->kind == SYSTEM_EXIT && p->next_row))
		rows_system(p, tid, s);
	if (s->kind == SYSTEM_STOP_TRACE) {
		trace_leave(p, s->head.time_ns);
		p->tracing = false;
		update_window(p, s->head.time_ns);
	}
	if (s->kind == SYSTEM_STEP) {
		/* The call ends step n; what follows is step n + 1. */
		forget_detected_steps(p);
		p->by_call = true;
		if (!p->first_step)
			p->first_step = s->value ? s->value : 1;
		note_step_end(p, s->value);
		p->step = s->value + 1;
		update_window(p, s->head.time_ns);
	}
}
