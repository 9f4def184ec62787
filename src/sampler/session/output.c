/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/containers/intern.h"
#include "base/fs.h"
#include "base/mem.h"
#include "formats/chrome_trace/chrome_trace.h"
#include "formats/profile/profile.h"
#include "sampler/rounds/events.h"
#include "sampler/rounds/thread_filter.h"
#include "sampler/session/series.h"
#include "unwind/python/origin.h"

struct stack_output {
	const struct stack_options *o;
	struct chrome_trace *trace; /* a timeline, */
	struct events *events;
	struct series_set *series; /* counters of the current file */
	struct profile *profile; /* or a profile */
	uint64_t samples; /* in it */
	struct profile_frame *frames; /* of one thread, kept for the next */
	size_t frames_cap;
	char *other_json;
};

static void before_rotate(void *arg, struct chrome_trace *t)
{
	struct stack_output *out = arg;

	events_end_open(out->events, t, clock_mono_ns());
}

static void add_members(void *arg, struct buf *text)
{
	struct stack_output *out = arg;

	series_add_json(out->series, text);
}

static void on_rotate(void *arg, struct chrome_trace *t)
{
	struct stack_output *out = arg;

	series_clear(out->series);
	events_begin_again(out->events, t, clock_mono_ns());
}

/* When and how the file was made: what a reader needs to put it beside others. */
static char *describe_file(const struct stack_options *o, uint64_t start_ns)
{
	int64_t real = clock_real_ns() - (int64_t)(clock_mono_ns() - start_ns);
	json_t *about = json_pack("{s:s, s:s, s:I, s:I, s:f, s:b, s:b}", "program", "sonde stack",
				  "version", SONDE_VERSION, "start_realtime_ns", (json_int_t)real,
				  "start_monotonic_ns", (json_int_t)start_ns, "interval_s",
				  (double)o->interval_ns / 1e9, "all_threads", o->all_threads,
				  "native", o->native);
	char *text = about ? json_dumps(about, JSON_COMPACT) : NULL;
	char *member = xasprintf("\"otherData\":%s", text ? text : "{}");

	free(text);
	json_decref(about);
	return member;
}

static int open_timeline(struct stack_output *out, uint64_t start_ns, struct err *err)
{
	const struct stack_options *o = out->o;

	out->other_json = describe_file(o, start_ns);
	out->series = series_new(start_ns);
	struct chrome_trace_options to = {
		.path = o->output,
		.gzip = o->gzip,
		.rotate_bytes = o->rotate_bytes,
		.rotate_ns = o->rotate_ns,
		.keep = o->keep,
		.other_json = out->other_json,
		.add_members = add_members,
		.before_rotate = before_rotate,
		.on_rotate = on_rotate,
		.arg = out,
	};
	int r = chrome_trace_new(&to, &out->trace, err);
	if (r < 0)
		return r;
	out->events = events_new(&(struct events_options){.trace = out->trace,
							  .start_ns = start_ns,
							  .all_threads = o->all_threads,
							  .moments = o->moments,
							  .lines = o->lines});
	return chrome_trace_flush(out->trace, err);
}

/* The file is there from the first moment, so that a path that cannot be written fails early. */
static int open_profile(struct stack_output *out, struct err *err)
{
	static const enum profile_format formats[] = {[STACK_COLLAPSED] = PROFILE_COLLAPSED,
						      [STACK_SPEEDSCOPE] = PROFILE_SPEEDSCOPE,
						      [STACK_PPROF] = PROFILE_PPROF,
						      [STACK_SVG] = PROFILE_FLAME};
	const struct stack_options *o = out->o;

	out->profile = profile_new(&(struct profile_options){.format = formats[o->format],
							     .period_ns = o->interval_ns,
							     .lines = o->lines,
							     .title = "Python stacks",
							     .start_real_ns = clock_real_ns()});
	struct stat st;
	/* A pipe gets it once, in the end. */
	if (stat(o->output, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return 0;
	return profile_write(out->profile, o->output, err);
}

static void release_output(struct stack_output *out)
{
	events_free(out->events);
	series_free(out->series);
	profile_free(out->profile);
	free(out->frames);
	free(out->other_json);
	free(out);
}

int stack_output_open(const struct stack_options *o, uint64_t start_ns, struct stack_output **out,
		      struct err *err)
{
	struct stack_output *made = xcalloc(1, sizeof(*made));

	made->o = o;
	int r = o->format == STACK_CHROME ? open_timeline(made, start_ns, err)
					  : open_profile(made, err);
	if (r < 0) {
		if (made->trace)
			chrome_trace_close(made->trace, NULL);
		release_output(made);
		return r;
	}
	*out = made;
	return 0;
}

int stack_output_close(struct stack_output *out, uint64_t end_ns, uint64_t *out_count,
		       struct err *err)
{
	int r;

	*out_count = out->samples;
	if (out->trace) {
		events_close_all(out->events, end_ns);
		*out_count = chrome_trace_events(out->trace);
		r = chrome_trace_close(out->trace, err);
	} else {
		r = profile_write(out->profile, out->o->output, err);
	}
	release_output(out);
	return r;
}

void stack_output_new(struct stack_output *out, struct target *t)
{
	if (out->events)
		events_process(out->events, t);
}

void stack_output_renamed(struct stack_output *out, struct target *t)
{
	if (out->events)
		events_renamed(out->events, t);
}

void stack_output_steps(struct stack_output *out, const struct target *t, int64_t ended,
			uint64_t time_ns)
{
	if (out->events)
		events_steps(out->events, t, ended, time_ns);
}

void stack_output_guessed_steps(struct stack_output *out, const struct target *t, int64_t ended,
				uint64_t time_ns)
{
	if (out->events)
		events_guessed_steps(out->events, t, ended, time_ns);
}

void stack_output_gone(struct stack_output *out, struct target *t, uint64_t time_ns)
{
	if (out->events)
		events_gone(out->events, t, time_ns);
}

void stack_output_counter(struct stack_output *out, const struct counter *c)
{
	if (out->events)
		events_counter(out->events, c);
	if (out->series)
		series_add(out->series, c);
}

static const char *intern_name(const char *what, int64_t id, const char *text)
{
	char *made = xasprintf("%s %" PRId64 " %s", what, id, text);
	const char *kept = intern(made, strlen(made));

	free(made);
	return kept;
}

/* Only where it is seen: the rule reads the whole path. */
static bool is_shown_as_users(const struct stack_output *out, const char *file)
{
	return out->o->format == STACK_SVG && python_origin(file, strlen(file)) == ORIGIN_USER;
}

static void count_thread(struct stack_output *out, const struct target *t,
			 const struct python_thread *th)
{
	unsigned n = th->nframes;

	if (!n)
		return;
	out->frames = xgrow(out->frames, &out->frames_cap, n, sizeof(*out->frames));
	for (unsigned i = 0; i < n; i++)
		out->frames[i] =
			(struct profile_frame){.name = th->frames[i].name,
					       .file = th->frames[i].file,
					       .line = th->frames[i].line,
					       .first_line = th->frames[i].first_line,
					       .users = is_shown_as_users(out, th->frames[i].file)};
	const char *process = intern_name("process", t->pid, t->label ? t->label : "");
	const char *thread = intern_name("thread", th->tid, th->name);
	profile_add(out->profile, process, thread, t->pid, th->tid, out->frames, n, 1);
	out->samples++;
}

void stack_output_sample(struct stack_output *out, struct target *t)
{
	const struct python_process *p = t->python;
	struct thread_filter wanted = thread_filter_of(p, out->o->all_threads);

	if (out->events) {
		events_sample(out->events, t);
		return;
	}
	for (unsigned i = 0; i < p->nthreads; i++)
		if (!p->threads[i].missed && thread_filter_wants(&wanted, &p->threads[i]) &&
		    thread_moment_counts(out->o->moments, &p->threads[i]))
			count_thread(out, t, &p->threads[i]);
}

int stack_output_flush(struct stack_output *out, struct err *err)
{
	return out->trace ? chrome_trace_flush(out->trace, err) : 0;
}

static void end_open(void *arg, struct chrome_trace *copy)
{
	struct stack_output *out = arg;

	events_end_open(out->events, copy, clock_mono_ns());
}

/* Has the kernel begin to write it to the disk. Waiting for that would cost samples. */
static int push_out(const char *path, struct err *err)
{
	int fd = fs_is_stream(path) ? 0 : fs_open(path, O_RDONLY, 0, err);

	if (fd <= 0)
		return fd;
	sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	close(fd);
	return 0;
}

int stack_output_save(struct stack_output *out, const char *path, struct err *err)
{
	if (!out->trace)
		return profile_write(out->profile, path, err);
	int r = chrome_trace_flush(out->trace, err);
	if (r < 0)
		return r;
	if (!strcmp(path, out->o->output))
		return push_out(path, err);
	return chrome_trace_copy(out->trace, path, end_open, out, err);
}

void stack_output_tagged(const char *path, int64_t real_ns, struct buf *out)
{
	time_t s = (time_t)(real_ns / 1000000000);
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t len = strlen(path), gz = 0;
	char when[32];
	struct tm tm;

	localtime_r(&s, &tm);
	strftime(when, sizeof(when), "%Y%m%d_%H%M%S", &tm);
	if (len > 3 && !strcmp(path + len - 3, ".gz"))
		gz = 3;
	const char *dot = memrchr(name, '.', (size_t)(path + len - gz - name));
	/* a name that only begins with a dot has no extension */
	size_t stem = dot && dot > name ? (size_t)(dot - path) : len - gz;
	buf_add(out, path, stem);
	buf_addf(out, ".%s_%03d%s", when, (int)(real_ns / 1000000 % 1000), path + stem);
}

int stack_output_snapshot(struct stack_output *out, struct buf *out_path, struct err *err)
{
	size_t from = out_path->len;

	stack_output_tagged(out->o->snapshot_output, clock_real_ns(), out_path);
	return stack_output_save(out, buf_str(out_path) + from, err);
}
