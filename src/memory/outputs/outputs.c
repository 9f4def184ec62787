/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "dump"
#include "memory/outputs/outputs.h"

#include "base/log.h"
#include "base/mem.h"
#include "memory/analysis/processes/dropped.h"
#include "recorder/recording.h"
#include "wire/control_page.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>

static void on_session(void *arg, const struct mem_config *cfg)
{
	struct outputs *o = arg;

	diagnose_session(o->diagnose, cfg);
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	struct outputs *o = arg;

	dumps_proc(o->dumps, p);
	diagnose_proc(o->diagnose, p);
}

/* Without a launcher the file of the session has defaults until the job says what it wants. */
static void keep_config(struct outputs *o, uint32_t proc, const struct mem_config *cfg)
{
	struct mem_config said = *cfg;
	struct err err = {0};

	if (!o->config || (o->config_proc != UINT32_MAX && o->config_proc != proc))
		return;
	o->config_proc = proc;
	said.effective = true;
	if (mem_config_write(&said, o->config, &err) < 0)
		log_err("%s", err.text);
}

static void on_config(void *arg, uint32_t proc, const struct mem_config *cfg)
{
	struct outputs *o = arg;

	keep_config(o, proc, cfg);
	if (o->silent)
		return;
	dumps_config(o->dumps, proc, cfg);
	diagnose_config(o->diagnose, dumps_pid(o->dumps, proc), cfg);
}

static void on_row(void *arg, uint32_t proc, const struct row *row)
{
	struct outputs *o = arg;

	o->refusals += row->event == ROW_OOM_DETAIL && row->type == TYPE_OOM_TRIGGER;
	if (o->silent)
		return;
	o->rows++;
	o->row_proc = proc;
	dumps_row(o->dumps, proc, row);
	diagnose_row(o->diagnose, row);
}

static void on_watch(void *arg, uint32_t proc, const struct watch_sample *s)
{
	struct outputs *o = arg;

	watch_files_sample(o->watch, proc, s);
	diagnose_watch(o->diagnose, dumps_pid(o->dumps, proc), s);
}

static void on_usage(void *arg, uint32_t proc, uint64_t time_ns, const struct rec_usage *u,
		     uint64_t fading_bytes)
{
	struct outputs *o = arg;

	diagnose_usage(o->diagnose, dumps_pid(o->dumps, proc), time_ns, u, fading_bytes);
}

static void on_process(void *arg, uint32_t proc, const struct rec_process *r)
{
	struct outputs *o = arg;

	diagnose_process(o->diagnose, dumps_pid(o->dumps, proc), r);
}

static void on_gpu(void *arg, uint32_t proc, const struct rec_gpu *r)
{
	struct outputs *o = arg;

	(void)proc;
	o->gpus++;
	mem_asked_gpu(&o->asked, r);
}

static void on_relabel(void *arg, uint32_t proc, uint32_t pid, uint64_t allocation_id,
		       const char *owner)
{
	struct outputs *o = arg;

	if (!dumps_amend(o->dumps, proc,
			 (struct amendment){.allocation_id = allocation_id, .owner = owner}))
		diagnose_relabel(o->diagnose, pid, allocation_id, owner);
}

/* By the row that the analyses have just got: its process has written the other one, too. */
static bool on_marked(void *arg, const struct amendment *finding)
{
	struct outputs *o = arg;

	return dumps_amend(o->dumps, o->row_proc, *finding);
}

static void on_call(void *arg, uint32_t proc, const struct trace_row *row)
{
	struct outputs *o = arg;

	trace_files_row(o->trace, proc, row);
}

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct outputs *o = arg;
	uint32_t pid = dumps_pid(o->dumps, e->proc);

	watch_files_proc_end(o->watch, e->proc);
	trace_files_proc_end(o->trace, e->proc);
	dumps_proc_end(o->dumps, e);
	diagnose_lost(o->diagnose, e->lost_events, e->lost_stacks, e->damaged);
	diagnose_proc_end(o->diagnose, pid);
}

void outputs_open(struct outputs *o, const struct outputs_where *where,
		  const struct writer_ops *ops, enum row_compat compat)
{
	struct track_sink sink = {
		.session = on_session,
		.proc = on_proc,
		.config = on_config,
		.row = on_row,
		.watch = on_watch,
		.relabel = on_relabel,
		.call = on_call,
		.usage = on_usage,
		.process = on_process,
		.gpu = on_gpu,
		.proc_end = on_proc_end,
		.arg = o,
	};

	o->silent = where->silent;
	o->config_proc = UINT32_MAX;
	if (where->by_job)
		o->config = xasprintf("%s/" SESSION_CONFIG, where->recording_dir);
	o->diagnose = diagnose_new(compat, where->aside, on_marked, o);
	struct dumps_setup setup = {where->flags,  ops,		compat,
				    diagnose_file, o->diagnose, where->below};
	o->dumps = dumps_new(where->output_dir, &setup);
	o->track = track_new(&sink);
	dumps_set_track(o->dumps, o->track);
	o->watch = watch_files_new(o->dumps, where->recording_dir);
	o->trace = trace_files_new(o->dumps);
}

/*
 * Without dumps and analyses nobody needs the blocks of the host, of which there are millions, nor
 * stacks and names. Those of devices stay: their memory is sampled when somebody uses it.
 */
static void record_of_device(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	bool host = false;

	switch (r->type) {
	case REC_ALLOC:
		host = ((const struct rec_alloc *)r)->pool == POOL_HOST;
		break;
	case REC_FREE:
		host = ((const struct rec_free *)r)->pool == POOL_HOST;
		break;
	case REC_HEAP:
	case REC_VMM:
	case REC_CONTEXT:
	case REC_GPU:
	case REC_OOM:
	case REC_DEVICE:
	case REC_SYSTEM:
		break;
	default:
		return;
	}
	if (!host)
		track_stream.record(arg, proc, tid, r);
}

const struct stream_ops *outputs_stream(const struct outputs *o)
{
	static struct stream_ops devices;

	devices = track_stream;
	devices.record = record_of_device;
	devices.stack = NULL;
	return o->silent ? &devices : &track_stream;
}

void outputs_flush(struct outputs *o, bool all)
{
	if (all)
		dumps_flush(o->dumps);
	else
		dumps_flush_old(o->dumps);
	watch_files_flush(o->watch);
	trace_files_flush(o->trace);
}

void outputs_close(struct outputs *o)
{
	track_free(o->track);
	watch_files_free(o->watch);
	trace_files_free(o->trace);
	dumps_free(o->dumps);
	diagnose_free(o->diagnose);
	free(o->config);
}

/* After the last process has ended: all files are closed. */
static int check_written(const struct outputs *o, struct err *err)
{
	struct err why = {0};
	uint64_t lost = dumps_lost(o->dumps, &why), unamended = diagnose_unamended(o->diagnose);

	if (lost)
		return err_set(err, -EIO,
			       "%llu rows could not be written, so dumps that were there stay as "
			       "they are: %s",
			       (unsigned long long)lost, why.text);
	if (why.code)
		return err_set(err, why.code, "not all dumps are written: %s", why.text);
	if (unamended)
		return err_set(err, -EIO,
			       "findings could not be written into %llu dumps, which are complete "
			       "otherwise: is there room for a second copy of the largest?",
			       (unsigned long long)unamended);
	uint64_t room, refused = track_refused(o->track, &room);
	if (refused)
		return err_set(err, -EFBIG,
			       "the dumps are written, but %llu records of the recording are not "
			       "in them: what they say takes more than the %llu MiB of memory that "
			       "a recording of this size may need. It is damaged, or was made to "
			       "fill memory",
			       (unsigned long long)refused, (unsigned long long)(room >> 20));
	return 0;
}

static void add_line(void *arg, const char *text)
{
	buf_addf(arg, "%s\n", text);
}

/* Steps are numbered by their rows in a dump, and the first of them are not there. */
static void note_dropped(const struct track *t, struct buf *out)
{
	struct track_cut c;
	struct dropped d = {.yes = track_cut(t, &c)};

	d.cut = c.cut;
	d.newest_ns = c.newest_ns;
	d.last_step = c.last_step;
	dropped_text(&d, out);
}

int outputs_export(const char *path, const struct outputs_export *options, struct err *err)
{
	const struct writer_ops *ops = writer_find(options->format);
	struct buf file = {0};
	struct outputs o = {0};
	char *dir = NULL;

	if (!ops)
		return err_set(err, -EINVAL, "unknown format '%s' (csv or db)", options->format);
	int r = recording_find(path, &file, err);
	if (r < 0)
		goto out;
	dir = xstrdup(buf_str(&file));
	struct outputs_where where = {
		.output_dir = options->output_dir,
		.recording_dir = dirname(dir),
		.flags = DUMPS_REPLACE | (options->as_recorded ? DUMPS_AS_CONFIGURED : 0),
		.below = options->below,
	};
	outputs_open(&o, &where, ops, options->compat);
	r = track_file(o.track, buf_str(&file), NULL, err);
	outputs_flush(&o, true);
	if (r == 0)
		r = check_written(&o, err);
	if (r == 0 && options->out_notes)
		note_dropped(o.track, options->out_notes);
	if (r == 0 && options->out_notes)
		track_damage_words(o.track, add_line, options->out_notes);
	if (options->out_refused && dumps_refused(o.dumps))
		buf_add_str(options->out_refused, dumps_refused(o.dumps));
out:
	if (o.track)
		outputs_close(&o);
	free(dir);
	buf_release(&file);
	return r;
}
