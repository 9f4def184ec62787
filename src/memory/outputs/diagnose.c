/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "diagnose"
#include "memory/outputs/diagnose.h"

#include "base/containers/hmap.h"
#include "base/containers/names.h"
#include "base/log.h"
#include "base/mem.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/gaps/gaps.h"
#include "memory/analysis/inefficient/inefficient.h"
#include "memory/analysis/leaks/leaks.h"
#include "memory/analysis/oom/oom.h"
#include "memory/analysis/processes/processes.h"
#include "memory/analysis/watch/watch.h"
#include "memory/outputs/amender.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ANALYSES 8
#define TOP 10
#define MAX_TEXT (32u << 10) /* of one analysis in the report */
#define MAX_RELABELS (8u << 20) /* of one process: 32 bytes each */

/* Owners that became known after the MALLOC row was out, of one process. */
struct relabels {
	struct hmap owners; /* allocation_id: number of its text */
};

/* A process, and the analyses it is meant for (enum mem_analysis). */
struct known {
	uint32_t pid;
	uint32_t wants;
	char *exe;
};

struct diagnose {
	struct amender *amender;
	bool literal; /* the words of an earlier release, which scripts may wait for */
	bool configured;
	uint32_t wants; /* of the recording */
	bool differ; /* some process has its own wishes */
	struct hmap known; /* pid: struct known */
	struct analysis *list[MAX_ANALYSES];
	uint32_t bit[MAX_ANALYSES]; /* who wants it; 0: everybody */
	size_t n;
	struct analysis *leaks, *gap, *inefficient, *watch; /* those of the list */
	diagnose_marked marked;
	void *marked_arg;
	struct hmap late; /* pids with a row in a file that lacks what was found inefficient */
	struct hmap relabels; /* pid: struct relabels */
	struct names owners; /* texts, each kept once */
	uint64_t lost, lost_stacks,
		damaged; /* events; of events that are there; bytes of buffers */
	uint64_t unnoted; /* owners that came after MAX_RELABELS */
	struct amendment found; /* what find_amendment() gave last */
	struct processes processes;
};

struct diagnose *diagnose_new(enum row_compat compat, bool aside, diagnose_marked marked, void *arg)
{
	struct diagnose *d = xcalloc(1, sizeof(*d));

	d->amender = amender_new(compat, aside);
	d->literal = compat != ROW_SEED;
	d->marked = marked;
	d->marked_arg = arg;
	return d;
}

static void relabels_free(struct relabels *r)
{
	hmap_release(&r->owners);
	free(r);
}

void diagnose_free(struct diagnose *d)
{
	uint64_t key, value;
	size_t at = 0;

	if (!d)
		return;
	amender_free(d->amender);
	for (size_t i = 0; i < d->n; i++)
		analysis_free(d->list[i]);
	while (hmap_next(&d->relabels, &at, &key, &value))
		relabels_free((struct relabels *)(uintptr_t)value);
	hmap_release(&d->relabels);
	hmap_release(&d->late);
	names_release(&d->owners);
	at = 0;
	while (hmap_next(&d->known, &at, &key, &value)) {
		free(((struct known *)(uintptr_t)value)->exe);
		free((void *)(uintptr_t)value);
	}
	hmap_release(&d->known);
	processes_release(&d->processes);
	free(d);
}

static struct analysis *add_analysis(struct diagnose *d, struct analysis *a, uint32_t bit)
{
	uint64_t key, value;
	size_t at = 0;

	while (a->ops->process && hmap_next(&d->known, &at, &key, &value)) {
		const struct known *k = (const struct known *)(uintptr_t)value;
		a->ops->process(a, k->pid, k->exe);
	}
	a->processes = &d->processes;
	d->bit[d->n] = bit;
	d->list[d->n++] = a;
	return a;
}

static void on_inefficient(void *arg, uint32_t pid, uint64_t allocation_id, const char *kinds)
{
	struct diagnose *d = arg;
	struct amendment finding = {
		.pid = pid, .allocation_id = allocation_id, .inefficient = kinds};

	if (!d->marked(d->marked_arg, &finding))
		hmap_put(&d->late, pid, 1);
}

/* Those that somebody wants and that are not there yet. */
static void add_wanted(struct diagnose *d, const struct mem_config *cfg)
{
	uint32_t had = 0;

	for (size_t i = 0; i < d->n; i++)
		had |= d->bit[i];
	uint32_t wants = cfg->analysis & ~had;
	/* Of a few steps alone nothing can be said about growth. */
	if ((wants & MEM_LEAKS) && !cfg->nsteps) {
		d->leaks = add_analysis(d, leaks_new(NULL), MEM_LEAKS);
		d->gap = add_analysis(d, gap_new(NULL), MEM_LEAKS);
	}
	if (wants & MEM_INEFFICIENT) {
		d->inefficient = add_analysis(d, inefficient_new(NULL), MEM_INEFFICIENT);
		inefficient_listen(d->inefficient, on_inefficient, d);
	}
	if (wants & MEM_OOM)
		add_analysis(d, oom_new(), MEM_OOM);
	if (cfg->watch.on && !d->watch)
		d->watch = add_analysis(d, watch_new(), 0);
}

void diagnose_session(struct diagnose *d, const struct mem_config *cfg)
{
	if (d->configured)
		return;
	d->configured = true;
	d->wants = cfg->analysis;
	add_wanted(d, cfg);
}

void diagnose_proc(struct diagnose *d, const struct frame_proc *p)
{
	struct known *k = hmap_get_ptr(&d->known, p->pid);

	if (!k) {
		k = xcalloc(1, sizeof(*k));
		hmap_put_ptr(&d->known, p->pid, k);
	}
	free(k->exe);
	*k = (struct known){p->pid, d->wants, xstrdup(p->exe)};
	processes_add(&d->processes, p, p->exe);
	for (size_t i = 0; i < d->n; i++)
		if (d->list[i]->ops->process)
			d->list[i]->ops->process(d->list[i], p->pid, p->exe);
}

void diagnose_config(struct diagnose *d, uint32_t pid, const struct mem_config *cfg)
{
	struct known *k = hmap_get_ptr(&d->known, pid);

	if (!k)
		return;
	k->wants = cfg->analysis;
	d->differ = true;
	add_wanted(d, cfg);
}

void diagnose_row(struct diagnose *d, const struct row *row)
{
	const struct known *k = d->differ ? hmap_get_ptr(&d->known, row->pid) : NULL;

	for (size_t i = 0; i < d->n; i++)
		if (!k || !d->bit[i] || k->wants & d->bit[i])
			d->list[i]->ops->row(d->list[i], row);
}

void diagnose_usage(struct diagnose *d, uint32_t pid, uint64_t time_ns, const struct rec_usage *u,
		    uint64_t fading_bytes)
{
	struct process_blocks held = {0};

	if (!d->leaks)
		return;
	d->processes.host |= blocks_of_host(d->leaks->blocks, pid, &held.bytes, &held.blocks,
					    &held.steps, &held.torn_down);
	held.most_bytes = blocks_most_of_host(d->leaks->blocks, pid);
	held.bytes += fading_bytes;
	processes_sample(&d->processes, pid, time_ns, u, &held);
}

void diagnose_process(struct diagnose *d, uint32_t pid, const struct rec_process *r)
{
	struct process_blocks held = {0};

	if (d->leaks)
		held.most_bytes = blocks_most_of_host(d->leaks->blocks, pid);
	processes_note(&d->processes, pid, r, &held);
}

void diagnose_watch(struct diagnose *d, uint32_t pid, const struct watch_sample *s)
{
	if (d->watch)
		watch_add(d->watch, pid, s);
}

void diagnose_relabel(struct diagnose *d, uint32_t pid, uint64_t allocation_id, const char *owner)
{
	struct relabels *r = hmap_get_ptr(&d->relabels, pid);

	if (!r) {
		r = xcalloc(1, sizeof(*r));
		hmap_put_ptr(&d->relabels, pid, r);
	}
	if (r->owners.count >= MAX_RELABELS && hmap_get(&r->owners, allocation_id) == HMAP_NONE) {
		d->unnoted++;
		return;
	}
	/* With their NULs, so that they come out as strings. */
	hmap_put(&r->owners, allocation_id, names_of(&d->owners, owner, strlen(owner) + 1));
}

void diagnose_lost(struct diagnose *d, uint64_t events, uint64_t stacks, uint64_t damaged_bytes)
{
	d->lost += events;
	d->lost_stacks += stacks;
	d->damaged += damaged_bytes;
}

uint64_t diagnose_events_lost(const struct diagnose *d)
{
	return d->lost;
}

uint64_t diagnose_stacks_lost(const struct diagnose *d)
{
	return d->lost_stacks;
}

void diagnose_proc_end(struct diagnose *d, uint32_t pid)
{
	struct relabels *r = hmap_get_ptr(&d->relabels, pid);

	hmap_remove(&d->late, pid);
	if (!r)
		return;
	hmap_remove(&d->relabels, pid);
	relabels_free(r);
}

static const struct amendment *find_amendment(void *arg, uint32_t pid, uint64_t allocation_id)
{
	struct diagnose *d = arg;
	const struct relabels *r = hmap_get_ptr(&d->relabels, pid);

	uint64_t owner = r ? hmap_get(&r->owners, allocation_id) : HMAP_NONE;
	size_t len;

	d->found = (struct amendment){.pid = pid, .allocation_id = allocation_id};
	if (owner != HMAP_NONE)
		d->found.owner = names_get(&d->owners, (uint32_t)owner, &len);
	if (d->inefficient)
		d->found.inefficient = inefficient_of(d->inefficient, pid, allocation_id);
	return d->found.owner || d->found.inefficient ? &d->found : NULL;
}

void diagnose_file(void *arg, uint32_t pid, const char *path)
{
	struct diagnose *d = arg;

	if (!hmap_get_ptr(&d->relabels, pid) && hmap_get(&d->late, pid) == HMAP_NONE)
		return;
	amender_file(d->amender, path, find_amendment, d);
	if (d->unnoted)
		log_warn(
			"%llu owners became known after their MALLOC rows and are in the FREE rows "
			"alone",
			(unsigned long long)d->unnoted);
}

bool diagnose_is_amending(struct diagnose *d)
{
	return amender_busy(d->amender);
}

void diagnose_amended(const struct diagnose *d, uint64_t *out_done, uint64_t *out_all)
{
	amender_progress(d->amender, out_done, out_all);
}

uint64_t diagnose_unamended(const struct diagnose *d)
{
	return amender_failed(d->amender);
}

static bool is_finding(const struct diagnose *d, struct analysis *a)
{
	return a != d->gap && a->ops->findings(a);
}

bool diagnose_alarms(struct diagnose *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (is_finding(d, d->list[i]))
			return true;
	return d->leaks && leaks_kept_after_end(d->leaks);
}

/* A job of a thousand processes has a thousand things to say; its user's screen has not. */
static void cut_text(struct buf *out, size_t from, const struct analysis *a, bool colour)
{
	size_t end = from + MAX_TEXT, lines = 0;

	if (out->len <= end)
		return;
	while (end > from && out->data[end - 1] != '\n')
		end--;
	for (size_t i = end; i < out->len; i++)
		lines += out->data[i] == '\n';
	out->len = end;
	buf_addf(out, "%s… %zu more lines, see `sonde mem %s`.\n", colour ? "\033[0m" : "", lines,
		 a->ops->name);
}

static void add_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	size_t before = out->len;

	if (before)
		buf_add_char(out, '\n');
	a->ops->text(a, style, out);
	cut_text(out, before, a, style->colour);
	if (before && out->len == before + 1)
		out->len = before;
}

/* What a leak adds from step to step makes steps uneven, too: that is no second piece of news. */
static bool leaks_explain(const struct diagnose *d, const struct analysis *a)
{
	return a == d->gap && !d->literal && d->leaks && is_finding(d, d->leaks);
}

void diagnose_text(struct diagnose *d, bool colour, struct buf *out)
{
	struct analysis_style style = {
		.colour = colour, .top = TOP, .console = true, .literal = true};

	if (d->lost || d->damaged)
		buf_addf(out, "%llu events%s were lost, so this report is incomplete.\n",
			 (unsigned long long)d->lost,
			 d->damaged ? ", and those in damaged buffers," : "");
	/* What was found comes first, then what else there is to say. */
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < d->n; i++)
			if (is_finding(d, d->list[i]) == !pass && !leaks_explain(d, d->list[i]))
				add_text(d->list[i], &style, out);
}
