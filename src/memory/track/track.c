/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Processes and names, and who gets which record. What is alive is in memory/track/alive.c.
 */
#include "memory/track/track.h"

#include "base/mem.h"
#include "memory/track/track_impl.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void on_name(struct proc *p, const struct rec_name *r)
{
	size_t len;
	const char *text = rec_text(&r->head, &len);

	if (!omap_get(&p->names, r->hash))
		omap_put(&p->names, r->hash, xstrndup(text, len));
}

static struct proc *proc_of(struct track *t, uint32_t number)
{
	return number < t->nprocs ? t->procs[number] : NULL;
}

/* Records about other records: names, places, labels. */
static void note_context(struct proc *p, uint32_t tid, const struct rec *r)
{
	if (p->track->for_checkpoint)
		checkpoint_keep_text(p, r);
	switch (r->type) {
	case REC_NAME:
		on_name(p, (const struct rec_name *)r);
		break;
	case REC_THREAD:
		if (!((const struct rec_thread *)r)->level) {
			labels_thread_begins(p, tid);
			layers_thread_begins(p, tid);
			trace_thread_begins(p, tid);
		}
		break;
	case REC_LABEL:
		labels_record(p, tid, (const struct rec_label *)r);
		break;
	case REC_LAYER:
		layers_record(p, tid, (const struct rec_layer *)r);
		break;
	case REC_CONFIG:
		window_config(p, (const struct rec_config *)r);
		break;
	case REC_LIBRARY:
		cuda_library(p, (const struct rec_library *)r);
		break;
	case REC_GPU:
		cuda_gpu(p, (const struct rec_gpu *)r);
		if (p->track->sink.gpu)
			p->track->sink.gpu(p->track->sink.arg, p->info.proc,
					   (const struct rec_gpu *)r);
		break;
	case REC_MODULE:
		callstacks_module(p, (const struct rec_module *)r);
		break;
	case REC_PYTHON:
		callstacks_python(p, (const struct rec_python *)r);
		break;
	default:
		break;
	}
}

/* The recorder's own samples may come after the end of their process. */
static bool is_by_recorder(const struct rec *r)
{
	return r->type == REC_DEVICE || r->type == REC_USAGE || r->type == REC_PROCESS;
}

static void count_orphan(struct track *t, uint32_t number, const struct rec *r)
{
	bool unknown = !is_by_recorder(r) && hmap_get(&t->introduced, number) == HMAP_NONE;

	t->damage.orphans += unknown || t->damage.places > 0;
}

/* What is alive: blocks and pools. */
static bool take_memory(struct proc *p, uint32_t tid, const struct rec *r)
{
	switch (r->type) {
	case REC_ALLOC:
		alive_add(p, tid, (const struct rec_alloc *)r);
		return true;
	case REC_FREE:
		alive_remove(p, tid, (const struct rec_free *)r);
		return true;
	case REC_HEAP:
		alive_set_pool(p, (const struct rec_heap *)r);
		return true;
	case REC_VMM:
		cuda_vmm(p, tid, (const struct rec_vmm *)r);
		return true;
	case REC_CONTEXT:
		cuda_context(p, tid, (const struct rec_context *)r);
		return true;
	case REC_MAP:
		mappings_record(p, tid, (const struct rec_map *)r);
		return true;
	case REC_BLOCK:
	case REC_STATE:
		checkpoint_record(p, tid, r);
		return true;
	default:
		return false;
	}
}

/* What becomes a row as it comes. */
static bool take_rows(struct proc *p, uint32_t tid, const struct rec *r)
{
	switch (r->type) {
	case REC_ACCESS:
		if (p->window)
			rows_access(p, tid, (const struct rec_access *)r);
		return true;
	case REC_OP:
		rows_op(p, tid, (const struct rec_op *)r);
		return true;
	case REC_KERNEL:
		if (p->window)
			rows_kernel(p, tid, (const struct rec_kernel *)r);
		return true;
	case REC_MARK:
		window_mark(p, tid, (const struct rec_mark *)r);
		return true;
	case REC_SNAPSHOT:
		snapshot_record(p, tid, (const struct rec_snapshot *)r);
		return true;
	case REC_OOM:
		oom_record(p, tid, (const struct rec_oom *)r);
		return true;
	case REC_WATCH:
		watch_record(p, tid, (const struct rec_watch *)r);
		return true;
	case REC_CALL:
		trace_record(p, tid, (const struct rec_call *)r);
		return true;
	default:
		return false;
	}
}

/* Samples, and what later records refer to. */
static void take_facts(struct proc *p, uint32_t tid, const struct rec *r)
{
	switch (r->type) {
	case REC_SYSTEM:
		if (((const struct rec_system *)r)->kind == SYSTEM_HOST_MEMORY)
			p->host_memory = *(const struct rec_system *)r;
		else
			window_system(p, tid, (const struct rec_system *)r);
		break;
	case REC_DEVICE:
		device_record(p, (const struct rec_device *)r);
		break;
	case REC_USAGE:
		alive_emit_usage(p);
		if (p->track->sink.usage)
			p->sampled = *(const struct rec_usage *)r;
		break;
	case REC_PROCESS:
		p->who = *(const struct rec_process *)r;
		if (p->track->sink.process)
			p->track->sink.process(p->track->sink.arg, p->info.proc,
					       (const struct rec_process *)r);
		break;
	default:
		note_context(p, tid, r);
		break;
	}
}

static void track_record(void *arg, uint32_t number, uint32_t tid, const struct rec *r)
{
	struct track *t = arg;
	struct proc *p = proc_of(t, number);

	if (r->time_ns > t->heard_ns)
		t->heard_ns = r->time_ns;
	if (number == PROC_NONE)
		return; /* stacks and counters */
	if (r->time_ns > t->newest_ns)
		t->newest_ns = r->time_ns;
	t->in_checkpoint = false;
	if (!p) {
		count_orphan(t, number, r);
		return;
	}
	if (p->skipped_batch && p->skipped_batch == t->batch)
		return;
	bool by_recorder = is_by_recorder(r);
	if (r->time_ns > p->sampled.head.time_ns && !by_recorder)
		alive_emit_usage(p);
	if (r->time_ns > p->last_ns && !by_recorder && !rec_is_inside_event(r))
		p->last_ns = r->time_ns;
	if (!alive_has_room(p, r) || !budget_allows(p, r))
		return;
	if (!take_memory(p, tid, r) && !take_rows(p, tid, r))
		take_facts(p, tid, r);
}

static void track_stack(void *arg, uint32_t number, uint32_t id, const uint64_t *pc, uint32_t depth)
{
	struct proc *p = proc_of(arg, number);

	if (p)
		callstacks_add(p, id, pc, depth);
}

/* "0,2,3": entry i is the physical number of device i. Anything else: no mapping at all. */
static void parse_visible(struct proc *p)
{
	const char *s = p->info.visible_devices;

	for (int n = 0; *s && n < MAX_VISIBLE;) {
		char *end;
		if (*s == ',' || *s == ' ') {
			s++;
			continue;
		}
		long v = strtol(s, &end, 10);
		if (end == s || v < 0 || v >= (long)DEV_NONE ||
		    (*end && *end != ',' && *end != ' ')) {
			p->nvisible = 0;
			return;
		}
		p->visible[n++] = (int)v;
		p->nvisible = n;
		s = end;
	}
}

static void track_proc(void *arg, const struct frame_proc *info)
{
	struct track *t = arg;

	t->ended = false;
	if (info->proc >= TRACK_MAX_PROCS || proc_of(t, info->proc))
		return;
	hmap_put(&t->introduced, info->proc, 1);
	size_t had = t->cap_procs;
	t->procs = xgrow(t->procs, &t->cap_procs, info->proc + 1, sizeof(struct proc *));
	memset(t->procs + had, 0, (t->cap_procs - had) * sizeof(struct proc *));
	if (info->proc >= t->nprocs)
		t->nprocs = info->proc + 1;
	struct proc *p = xcalloc(1, sizeof(*p));
	p->track = t;
	if (!budget_take(p, PROC_COST)) {
		free(p);
		return;
	}
	p->info = *info;
	p->lacks_checkpoint = t->in_checkpoint;
	parse_visible(p);
	p->cfg = &t->cfg;
	p->tracing = t->cfg.mode == MEM_IMMEDIATE;
	p->window = p->tracing && !t->cfg.nsteps;
	t->procs[info->proc] = p;
	t->signs.processes++;
	if (t->sink.proc)
		t->sink.proc(t->sink.arg, info);
}

static void free_live(uint64_t key, void *value, void *arg)
{
	(void)key;
	block_free(arg, value);
}

static void proc_free(struct proc *p)
{
	budget_give_back(p->track, PROC_COST);
	for (unsigned m = 0; m < NMAPS; m++) {
		omap_each(&p->maps[m], free_live, p->track);
		omap_release(&p->maps[m]);
		omap_release_values(&p->early[m], free);
	}
	omap_release_values(&p->heaps, free);
	cuda_release(p);
	omap_release_values(&p->names, free);
	omap_release(&p->moving);
	omap_release(&p->reserved);
	callstacks_release(p);
	labels_release(p);
	layers_release(p);
	trace_release(p);
	checkpoint_release(p);
	buf_release(&p->texts);
	hmap_release(&p->texts_seen);
	free(p->own_cfg);
	free(p->usage);
	free(p);
}

/* Whatever is alive ends with its process: a FREE row with shadow:true for each. */
static void track_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct track *t = arg;
	struct proc *p = proc_of(t, e->proc);
	struct block_list live = {0};

	if (!p)
		return;
	alive_emit_usage(p);
	uint64_t end_ns = p->tracing && e->time_ns > p->last_ns ? e->time_ns : p->last_ns + 1;
	window_list(p, &live);
	for (size_t i = 0; i < live.n; i++)
		if (live.list[i]->written)
			rows_free(p, live.list[i], NULL, live.list[i]->tid, end_ns, true);
	free(live.list);
	trace_leave(p, 0);
	checkpoint_end(p);
	t->damage.checkpoints += p->lacks_checkpoint;
	struct frame_proc_end end = *e;
	stream_losses_end(&p->losses, &end);
	end.lost_events += p->refused;
	end.lost_stacks += p->refused_stacks + p->unknown_stacks;
	if (t->sink.proc_end)
		t->sink.proc_end(t->sink.arg, &end);
	proc_free(p);
	t->procs[e->proc] = NULL;
	t->signs.processes++;
}

static void track_session(void *arg, const char *json, size_t len)
{
	struct track *t = arg;
	json_error_t why;
	json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &why);
	struct mem_config cfg;

	t->damage.has_session = true;
	if (root && mem_config_parse(json, len, &cfg, NULL) == 0) {
		t->cfg = cfg;
		t->wall_minus_mono_ns = json_integer_value(json_object_get(root, "wallMinusMono"));
	}
	json_decref(root);
	if (t->sink.session)
		t->sink.session(t->sink.arg, &t->cfg);
}

static void track_count(void *arg, const struct batch_count *c)
{
	struct track *t = arg;
	struct proc *p = proc_of(t, c->head.proc);

	t->in_checkpoint = false;
	if (!p)
		return;
	stream_losses_count(&p->losses, c);
}

/* Records of a batch that is there twice, or not in its place, are passed over. */
static void track_batch(void *arg, const struct batch_count *c)
{
	struct track *t = arg;
	struct proc *p = c ? proc_of(t, c->head.proc) : NULL;

	if (!c) {
		t->batch++;
		t->batch_repeated = false;
	} else if (p && stream_is_repeated(&p->losses, c)) {
		p->skipped_batch = t->batch;
		t->damage.repeated += !t->batch_repeated;
		t->batch_repeated = true;
	}
}

static void track_was_cut(void *arg, const struct frame_cut *c)
{
	struct track *t = arg;

	t->was_cut = true;
	/* Without events of processes that lived then, there may be none with a checkpoint. */
	t->in_checkpoint = c->events > c->ended_events;
	t->cut = *c;
	t->last_step = c->last_step;
}

bool track_cut(const struct track *t, struct track_cut *out)
{
	uint64_t epoch_ns = (uint64_t)t->wall_minus_mono_ns;

	*out = (struct track_cut){t->cut, t->heard_ns + epoch_ns, t->last_step};
	if (out->cut.from_ns)
		out->cut.from_ns += epoch_ns;
	out->cut.until_ns += epoch_ns;
	return t->was_cut;
}

static void track_version(void *arg, uint32_t version)
{
	((struct track *)arg)->damage.version = version;
}

static void track_end(void *arg)
{
	((struct track *)arg)->ended = true;
}

const struct stream_ops track_stream = {
	.version = track_version,
	.session = track_session,
	.proc = track_proc,
	.stack = track_stack,
	.record = track_record,
	.count = track_count,
	.batch = track_batch,
	.proc_end = track_proc_end,
	.cut = track_was_cut,
	.end = track_end,
	.damage = damage_found,
};

void track_file_grows(struct track *t, const char *recording)
{
	struct stat st;

	if (stat(recording, &st) == 0)
		budget_set(t, &st);
}

int track_file(struct track *t, const char *recording, bool *out_torn, struct err *err)
{
	return track_file_beside(t, recording, NULL, out_torn, err);
}

int track_file_beside(struct track *t, const char *recording, const struct stream_listener *others,
		      bool *out_torn, struct err *err)
{
	const struct stream_listener all = {&track_stream, t, others};

	track_file_grows(t, recording);
	int r = stream_file_to(recording, &all, out_torn, err);

	t->whole = t->ended;
	for (uint32_t i = 0; i < t->nprocs; i++)
		t->whole = t->whole && !t->procs[i];
	if (t->sink.cut)
		t->sink.cut(t->sink.arg);
	for (uint32_t i = 0; i < t->nprocs; i++)
		track_proc_end(t, &(struct frame_proc_end){.proc = i, .time_ns = t->newest_ns + 1});
	return r;
}

bool track_is_whole(const struct track *t)
{
	return t->whole;
}

struct track *track_new(const struct track_sink *sink)
{
	struct track *t = xcalloc(1, sizeof(*t));

	t->sink = *sink;
	mem_config_init(&t->cfg, NULL);
	return t;
}

void track_free(struct track *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->nprocs; i++)
		if (t->procs[i])
			proc_free(t->procs[i]);
	while (t->free_blocks) {
		struct block *b = t->free_blocks;
		t->free_blocks = b->next_free;
		free(b);
	}
	hmap_release(&t->introduced);
	free(t->parts);
	free(t->procs);
	free(t);
}

void track_processes(const struct track *t, void (*fn)(void *arg, const struct track_process *p),
		     void *arg)
{
	for (size_t i = 0; i < t->nprocs; i++) {
		const struct proc *p = t->procs[i];

		if (p)
			fn(arg, &(struct track_process){p->info.proc, p->info.pid,
							p->info.shown_pid, p->cfg->cpu});
	}
}

const struct mem_config *track_config(const struct track *t)
{
	return &t->cfg;
}

int64_t track_wall_minus_mono(const struct track *t)
{
	return t->wall_minus_mono_ns;
}
