/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where the cut is: behind the first end of a step that leaves no more than keep_bytes. Without one
 * in the first half of these, between two frames. A step ends inside a batch: of that batch the
 * rest is written anew; all frames behind it are copied, byte by byte.
 */
#include "recorder/rotate/drop_oldest.h"

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "base/containers/omap.h"
#include "base/fs.h"
#include "base/mem.h"
#include "recorder/recording.h"
#include "wire/record_samples.h"
#include "wire/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct dropped_proc {
	struct frame_proc info;
	struct stream_losses losses;
	uint64_t rest; /* records of the batch that is cut, behind the cut */
};

struct dropping {
	const struct drop_request *request;
	void *states[MAX_CHECKPOINTS];
	struct recording_writer *out;
	struct buf session;
	struct omap procs; /* number → struct dropped_proc, of those that have not ended */
	struct omap cursors; /* process and ring → struct batch_cursor, the newest */
	struct frame_cut cut;
	uint64_t checkpoint_bytes;
	bool looking; /* for the end of a step */
	bool found; /* and here it was */
	uint64_t steps; /* that had ended when looking began */
	struct buf rest; /* of the batch */
	size_t run; /* where its open BATCH_RUN begins; SIZE_MAX: none */
	uint32_t run_proc, run_tid;
};

/* --- the part that is dropped --- */

#define PASS_ON(f, function, ...)                                                                  \
	do {                                                                                       \
		for (unsigned b_ = 0; b_ < (f)->request->ncheckpoints; b_++)                       \
			if ((f)->request->checkpoints[b_]->stream->function)                       \
				(f)->request->checkpoints[b_]->stream->function((f)->states[b_],   \
										##__VA_ARGS__);    \
	} while (0)

static uint64_t count_steps(const struct dropping *f)
{
	return f->request->checkpoints[0]->steps(f->states[0]);
}

static void on_session(void *arg, const char *json, size_t len)
{
	struct dropping *f = arg;

	buf_clear(&f->session);
	buf_add(&f->session, json, len);
	PASS_ON(f, session, json, len);
}

static void on_cut(void *arg, const struct frame_cut *c)
{
	struct dropping *f = arg;

	f->cut = *c;
	PASS_ON(f, cut, c);
}

/* Of a job whose processes have not joined the recording, samples and counters say when it began. */
static void begin_at(struct dropping *f, uint64_t time_ns)
{
	if (time_ns && (!f->cut.from_ns || time_ns < f->cut.from_ns))
		f->cut.from_ns = time_ns;
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	struct dropping *f = arg;

	begin_at(f, p->time_ns);
	if (!omap_get(&f->procs, p->proc)) {
		struct dropped_proc *mine = xcalloc(1, sizeof(*mine));
		mine->info = *p;
		omap_put(&f->procs, p->proc, mine);
	}
	PASS_ON(f, proc, p);
}

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct dropping *f = arg;
	const uint64_t last = (uint64_t)e->proc << 32 | UINT32_MAX;
	struct dropped_proc *p = omap_remove(&f->procs, e->proc);
	uint64_t key;

	while (omap_floor(&f->cursors, last, &key) && key >> 32 == e->proc)
		free(omap_remove(&f->cursors, key));
	if (p) {
		f->cut.ended++;
		f->cut.ended_events += p->losses.records - p->losses.missing;
		free(p);
	}
	PASS_ON(f, proc_end, e);
}

static void end_run(struct dropping *f)
{
	if (f->run != SIZE_MAX)
		((struct batch_item *)(f->rest.data + f->run))->bytes =
			(uint32_t)(f->rest.len - f->run);
	f->run = SIZE_MAX;
}

static void on_stack(void *arg, uint32_t proc, uint32_t id, const uint64_t *pc, uint32_t depth)
{
	struct dropping *f = arg;
	struct batch_stack s = {
		.head = {.kind = BATCH_STACK, .proc = proc}, .id = id, .depth = depth};

	if (!f->found) {
		PASS_ON(f, stack, proc, id, pc, depth);
		return;
	}
	end_run(f);
	s.head.bytes = (uint32_t)(sizeof(s) + depth * sizeof(pc[0]));
	buf_add(&f->rest, &s, sizeof(s));
	buf_add(&f->rest, pc, depth * sizeof(pc[0]));
}

static void keep_record(struct dropping *f, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct batch_item head = {.kind = BATCH_RUN, .proc = proc, .tid = tid};
	struct dropped_proc *p = omap_get(&f->procs, proc);

	if (f->run == SIZE_MAX || f->run_proc != proc || f->run_tid != tid) {
		end_run(f);
		f->run = f->rest.len;
		f->run_proc = proc;
		f->run_tid = tid;
		buf_add(&f->rest, &head, sizeof(head));
	}
	buf_add(&f->rest, r, r->size);
	if (p && r->type != REC_THREAD) /* drain.c counts the others */
		p->rest++;
}

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct dropping *f = arg;
	uint64_t from_ns = f->request->keep_from_ns;

	if (from_ns && r->time_ns >= from_ns)
		f->found = true;
	if (f->found) {
		keep_record(f, proc, tid, r);
		return;
	}
	if (proc == PROC_NONE)
		begin_at(f, r->time_ns);
	if (r->time_ns > f->cut.until_ns)
		f->cut.until_ns = r->time_ns;
	PASS_ON(f, record, proc, tid, r);
	f->found = f->looking && count_steps(f) != f->steps;
}

static void on_cursor(void *arg, const struct batch_cursor *c)
{
	struct dropping *f = arg;
	uint64_t key = (uint64_t)c->head.proc << 32 | c->ring;

	if (f->found) {
		end_run(f);
		buf_add(&f->rest, c, sizeof(*c));
		return;
	}
	if (c->ring >= ARENA_MAX_RINGS || !omap_get(&f->procs, c->head.proc))
		return;
	struct batch_cursor *mine = omap_get(&f->cursors, key);
	if (!mine) {
		mine = xmalloc(sizeof(*mine));
		omap_put(&f->cursors, key, mine);
	}
	*mine = *c;
}

/* Of the batch that is cut, the checkpoint has what came before the cut. */
static void on_count(void *arg, const struct batch_count *c)
{
	struct dropping *f = arg;
	struct dropped_proc *p = omap_get(&f->procs, c->head.proc);
	struct batch_count before = *c, behind = *c;

	if (!p)
		return;
	uint64_t rest = p->rest < c->in_batch ? p->rest : c->in_batch;
	if (f->found) {
		end_run(f);
		behind.in_batch = rest;
		buf_add(&f->rest, &behind, sizeof(behind));
		p->rest -= rest;
	}
	before.records -= f->found ? rest : 0;
	before.in_batch -= f->found ? rest : 0;
	stream_losses_count(&p->losses, &before);
}

static void on_damage(void *arg, uint64_t bytes)
{
	PASS_ON((struct dropping *)arg, damage, bytes);
}

static const struct stream_ops fold_ops = {
	.session = on_session,
	.proc = on_proc,
	.stack = on_stack,
	.record = on_record,
	.cursor = on_cursor,
	.count = on_count,
	.proc_end = on_proc_end,
	.cut = on_cut,
	.damage = on_damage,
};

/* Reads up to the cut. *out_at: where the frames begin that stay as they are. */
static int read_oldest(struct dropping *f, const struct drop_request *o, uint64_t *out_at,
		       struct err *err)
{
	uint64_t from = o->end > o->keep_bytes ? o->end - o->keep_bytes : 0;
	uint64_t give_up = o->keep_from_ns ? o->end : from + (o->end - from) / 2;
	struct recording_reader *r;
	uint32_t type;
	const char *payload;
	size_t bytes;

	int ret = recording_open(&r, o->from, err);
	if (ret < 0)
		return ret;
	for (*out_at = recording_offset(r); *out_at < o->end && !f->found;
	     *out_at = recording_offset(r)) {
		if (*out_at >= give_up)
			break;
		if (*out_at >= from && !f->looking && !o->keep_from_ns) {
			f->looking = true;
			f->steps = count_steps(f);
		}
		ret = recording_next(r, &type, &payload, &bytes, err);
		if (ret <= 0)
			break;
		if (recording_skipped(r))
			on_damage(f, recording_skipped(r));
		ret = stream_frame(&fold_ops, f, type, payload, bytes, err);
		if (ret < 0)
			break;
	}
	recording_reader_free(r);
	return ret < 0 ? ret : 0;
}

/* --- the new file --- */

static int append_batch(void *arg, const void *payload, size_t bytes)
{
	struct dropping *f = arg;

	return recording_append(f->out, FRAME_BATCH, payload, bytes, NULL);
}

struct items {
	struct dropping *f;
	struct buf batch;
};

static void add_cursor(uint64_t key, void *value, void *arg)
{
	(void)key;
	buf_add(&((struct items *)arg)->batch, value, sizeof(struct batch_cursor));
}

/* Two of them: a reader that adds up gaps comes to what was missing before the cut. */
static void add_counts(uint64_t key, void *value, void *arg)
{
	struct items *items = arg;
	const struct dropped_proc *p = value;
	const struct stream_losses *l = &p->losses;
	struct batch_count c = {.head = {BATCH_COUNT, sizeof(c), (uint32_t)key, 0},
				.records = l->missing,
				.lost_events = l->events,
				.lost_stacks = l->stacks,
				.damaged = l->damaged};

	if (l->missing)
		buf_add(&items->batch, &c, sizeof(c));
	c.records = l->records;
	c.in_batch = l->records - l->missing;
	buf_add(&items->batch, &c, sizeof(c));
	items->f->cut.events += c.in_batch;
}

struct procs_writing {
	struct dropping *f;
	int result;
	struct err *err;
};

static void append_proc(uint64_t key, void *value, void *arg)
{
	struct procs_writing *w = arg;
	const struct dropped_proc *p = value;

	(void)key;
	if (w->result == 0)
		w->result =
			recording_append(w->f->out, FRAME_PROC, &p->info, sizeof(p->info), w->err);
}

static int write_checkpoint(struct dropping *f, const struct drop_request *o, struct err *err)
{
	struct items items = {.f = f};
	struct procs_writing procs = {f, 0, err};

	f->cut.events = f->cut.ended_events;
	omap_each(&f->cursors, add_cursor, &items);
	omap_each(&f->procs, add_counts, &items);
	o->checkpoints[0]->describe(f->states[0], &f->cut);
	f->cut.limit_bytes = o->limit_bytes;
	f->cut.cuts++;
	int r = f->session.len ? recording_append(f->out, FRAME_SESSION, f->session.data,
						  f->session.len, err)
			       : 0;
	if (r == 0)
		r = recording_append(f->out, FRAME_CUT, &f->cut, sizeof(f->cut), err);
	if (r == 0)
		omap_each(&f->procs, append_proc, &procs);
	if (r == 0)
		r = procs.result;
	for (unsigned i = 0; r == 0 && i < o->ncheckpoints; i++)
		r = o->checkpoints[i]->write(f->states[i], append_batch, f);
	if (r == 0 && items.batch.len)
		r = append_batch(f, items.batch.data, items.batch.len);
	buf_release(&items.batch);
	f->checkpoint_bytes = recording_bytes(f->out);
	if (r < 0 && err && !err->code)
		err_sys(err, r, "cannot write '%s'", o->to);
	return r;
}

static int write_new(struct dropping *f, const struct drop_request *o, uint64_t at, struct err *err)
{
	int from = fs_open(o->from, O_RDONLY, 0, err);
	int r = from < 0 ? from : recording_create_new(&f->out, o->to, 0600, err);

	if (r == 0)
		recording_expect(f->out, o->limit_bytes);
	if (r == 0)
		r = recording_set_cut(f->out, err);
	if (r == 0)
		r = write_checkpoint(f, o, err);
	end_run(f);
	if (r == 0 && f->rest.len)
		r = recording_append(f->out, FRAME_BATCH, f->rest.data, f->rest.len, err);
	if (r == 0)
		r = recording_copy(f->out, from, at, o->end, err);
	if (r == 0)
		r = recording_sync(f->out, err);
	recording_close(f->out);
	if (from >= 0)
		close(from);
	return r;
}

int drop_oldest(const struct drop_request *o, uint64_t *out_checkpoint_bytes, struct err *err)
{
	struct dropping f = {.request = o, .run = SIZE_MAX};
	uint64_t at = 0;

	for (unsigned i = 0; i < o->ncheckpoints; i++)
		f.states[i] = o->checkpoints[i]->open();
	int r = read_oldest(&f, o, &at, err);
	if (r == 0 && at > o->end) /* a damaged part reaches beyond it */
		r = err_set(err, -EAGAIN, "the recording is damaged where it was to be cut");
	if (r == 0)
		r = write_new(&f, o, at, err);
	*out_checkpoint_bytes = f.checkpoint_bytes;
	for (unsigned i = 0; i < o->ncheckpoints; i++)
		o->checkpoints[i]->close(f.states[i]);
	omap_release_values(&f.procs, free);
	omap_release_values(&f.cursors, free);
	buf_release(&f.session);
	buf_release(&f.rest);
	return r;
}
