/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The files of a trace: a directory of its own, which gets its name when all is in it. Whoever
 * kills the recorder meanwhile leaves nothing but a hidden directory, which the next trace there
 * removes.
 */
#define LOG_AREA "trace"
#include "activity/steps/files.h"
#include "activity/files/db_vfs.h"
#include "activity/live/daemon_queue.h"
#include "activity/trace/trace.h"
#include "base/compare.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/fabric.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_MODE 0640
#define NS_PER_S 1000000000u
#define NS_PER_MS 1000000u
#define RETRY_NS 100000000 /* and so often, when there is no descriptor left */
#define RETRIES 20

/* --- activities --- */

/* Of calls that begin together the outer one is the first, and the one that launched. */
static int by_start(const void *a, const void *b)
{
	const struct activity *x = a, *y = b;

	if (x->start_ns != y->start_ns)
		return x->start_ns < y->start_ns ? -1 : 1;
	return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

static bool is_in_file(const struct trace_state *t, const struct activity *a, bool record,
		       const struct activity_writer_ops *ops)
{
	if (!trace_wanted(t, a))
		return false;
	if (record)
		return trace_needs_mark(t, a);
	/* Memory is in the timeline as the sum of it. */
	return trace_belongs(t, a) == TRACE_IN &&
	       (a->kind != ACTIVITY_MEMORY || ops != &activity_chrome);
}

static int put_all(struct trace_state *t, const struct activity_writer_ops *ops,
		   struct activity_writer *w, struct err *err)
{
	for (size_t i = 0; i < t->nheld + t->nmarks; i++) {
		bool record = i >= t->nheld;
		const struct activity *a = record ? &t->marks[i - t->nheld] : &t->held[i];
		int r = is_in_file(t, a, record, ops) ? ops->put(w, a, err) : 0;

		if (r < 0 && r != -ENOTSUP)
			return r;
	}
	return 0;
}

static int write_activities(struct trace_state *t, const struct activity_writer_ops *ops,
			    const char *dir, const struct split_rank *rank, struct err *err)
{
	struct activity_origin who = {.pid = t->w->pid, .rank = t->w->rank, .start_ns = t->from_ns};
	struct activity_closing closing = {
		.end_ns = t->last_ns, .groups = t->w->groups, .lost = t->w->lost + t->left_out};
	struct activity_writer *w = ops->open(dir, &who, NULL);
	int r = 0;

	if (!w)
		return err_set(err, -ENOMEM, "no writer for '%s'", dir);
	if (ops == &activity_chrome)
		r = trace_timeline(t, w, rank, err);
	if (r == 0)
		r = put_all(t, ops, w, err);
	int closed = ops->close(w, &closing, r == 0 ? err : NULL);
	return r < 0 ? r : closed;
}

/* --- the summary --- */

/* Takes the rank. */
static int write_words(struct split_rank *rank, const char *dir, struct err *err)
{
	struct split_job job = {0};
	struct buf out = {0};

	split_job_add(&job, rank);
	split_job_judge(&job);
	split_job_text(&job, SPLIT_TOP, &out);
	split_job_release(&job);
	return split_file_write(dir, SPLIT_RANK_TEXT, &out, err);
}

static int write_memory(struct trace_state *t, const char *dir, struct err *err)
{
	struct buf out = {0};

	trace_memory_csv(t, &out);
	return split_file_write(dir, "memory.csv", &out, err);
}

/* The recording repeats what the other files have: without it the trace is what was asked for. Without a
 * descriptor all of them are written again. */
static int write_recording(struct trace_state *t, const char *dir, struct err *err)
{
	struct err why = {0};
	int r = trace_recording_write(t, dir, &why);

	if (r == -EMFILE || r == -ENFILE)
		return err_set(err, r, "%s", why.text);
	if (r == 0)
		return 0;
	char *path = xasprintf("%s/" SESSION_RECORDING, dir);
	char *beside = xasprintf("%s" SPLIT_TROUBLE_SUFFIX, path);
	struct buf text = {0};

	log_err("process %u: its trace has no recording: %s", t->w->pid, why.text);
	(void)fs_unlink(path, NULL);
	buf_addf(&text, "The recording of this trace was not written: %s.\n", why.text);
	(void)fs_leave_note(beside, &text, FILE_MODE, NULL);
	buf_release(&text);
	free(beside);
	free(path);
	return 0;
}

static int write_into(struct trace_state *t, const char *dir, struct err *err)
{
	trace_calls_end(t);
	trace_memory_finish(t);
	if (t->nheld)
		qsort(t->held, t->nheld, sizeof(*t->held), by_start);
	trace_python_finish(t);
	struct split_rank *rank = trace_split(t);
	int r = write_activities(t, &activity_chrome, dir, rank, err);
	if (r == 0)
		r = write_activities(t, &activity_db, dir, rank, err);
	if (r == 0 && t->w->trace.memory)
		r = write_memory(t, dir, err);
	if (r == 0)
		r = split_file_write_json(dir, SPLIT_RANK_FILE, split_rank_json(rank), err);
	if (r == 0)
		r = write_recording(t, dir, err);
	if (r == 0 && t->w->trace.analyse) {
		r = write_words(rank, dir, err);
		rank = NULL;
	}
	split_rank_free(rank);
	return r;
}

/* --- the directory --- */

/* <host>_<pid>_<YYYYmmddHHMMSSmmm>_sonde, in local time. */
static char *dir_name(const struct trace_state *t, uint64_t ns)
{
	char *host = trace_host_name(), when[32] = "";
	time_t s = (time_t)(ns / NS_PER_S);
	struct tm tm;

	if (localtime_r(&s, &tm))
		strftime(when, sizeof(when), "%Y%m%d%H%M%S", &tm);
	char *name = xasprintf("%s_%u_%s%03u" SPLIT_DIR_SUFFIX, host, t->w->pid, when,
			       (unsigned)(ns % NS_PER_S / NS_PER_MS));
	free(host);
	return name;
}

/* Gives the complete directory its name: a later one if that is taken. */
static int give_name(struct trace_state *t, const char *tmp, char **out, struct err *err)
{
	uint64_t ns = t->from_ns;
	int code = -EEXIST;
	struct err why = {0};

	for (unsigned i = 0; i < 1000 && (code == -EEXIST || code == -ENOTEMPTY); i++) {
		char *name = dir_name(t, ns + (uint64_t)i * NS_PER_MS);

		*out = xasprintf("%s/%s", t->parent, name);
		free(name);
		code = fs_rename(tmp, *out, &why);
		if (code == 0)
			return 0;
		free(*out);
		*out = NULL;
	}
	if (err)
		*err = why;
	return code;
}

/* ".<host>_<pid>_<time>_sonde.<pid of its recorder>.tmp": whose recorder is no more. */
static bool is_left_over(const char *name, const char *host)
{
	const char *at = strstr(name, SPLIT_DIR_SUFFIX ".");
	size_t len = strlen(host);
	char *end;

	if (name[0] != '.' || strncmp(name + 1, host, len) || name[1 + len] != '_' || !at)
		return false;
	long pid = strtol(at + strlen(SPLIT_DIR_SUFFIX "."), &end, 10);
	return !strcmp(end, ".tmp") && pid > 1 && pid != getpid() && kill((pid_t)pid, 0) < 0 &&
	       errno == ESRCH;
}

/* Takes the descriptor of the parent. */
static void remove_left_overs(const char *parent, int fd)
{
	DIR *d = fdopendir(fd);
	char *host = trace_host_name();
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (is_left_over(e->d_name, host)) {
			char *path = xasprintf("%s/%s", parent, e->d_name);

			(void)fs_remove_tree(path, NULL);
			free(path);
		}
	if (d)
		closedir(d);
	else
		close(fd);
	free(host);
}

/* The parent, made if need be and fit for writing to, and in it the directory. */
static int make_dir(const char *parent, const char *tmp, struct err *err)
{
	int r = fs_mkdirs(parent, err);
	int fd = r < 0 ? r : fs_open_dir(parent, err);

	if (fd < 0)
		return fd;
	remove_left_overs(parent, fd);
	(void)fs_remove_tree(tmp, NULL); /* of a process that had our number */
	return fs_mkdir(tmp, FS_DIR_MODE, err);
}

/* --- if it cannot be written --- */

/* The recorder's log goes with the job: someone who searches for the trace finds this instead. What
 * was half written is gone by now, so there is room for it. */
static void report_trouble(const struct trace_state *t, const char *name, const struct err *why)
{
	char *path = xasprintf("%s/%s" SPLIT_TROUBLE_SUFFIX, t->parent, name);
	char *beside = xasprintf("%s" SPLIT_TROUBLE_SUFFIX, t->parent);
	bool full = why->code == -ENOSPC || why->code == -EDQUOT;
	struct buf text = {0};

	buf_addf(&text, "The trace of " SPLIT_TROUBLE_REQUEST "%s, process %u", t->request,
		 t->w->pid);
	if (t->w->rank >= 0)
		buf_addf(&text, ", rank %d", t->w->rank);
	buf_addf(&text, ", was not written: %s. %s, and ask for it again.\n", why->text,
		 full ? "Make room there" : "Give --log-file a directory that the job can write");
	if (fs_leave_note(path, &text, FILE_MODE, NULL) < 0 &&
	    fs_leave_note(beside, &text, FILE_MODE, NULL) < 0)
		log_err("not even '%s' can be written", path);
	buf_release(&text);
	free(path);
	free(beside);
}

/* Into a directory of that name, which is there when it is complete. */
static int write_directory(struct trace_state *t, const char *name, char **final, struct err *err)
{
	char *tmp = xasprintf("%s/.%s.%d.tmp", t->parent, name, (int)getpid());
	int r = make_dir(t->parent, tmp, err);

	if (r == 0)
		r = write_into(t, tmp, err);
	if (r == 0)
		r = give_name(t, tmp, final, err);
	if (*final)
		log_info("process %u: the trace is in '%s'", t->w->pid, *final);
	else
		(void)fs_remove_tree(tmp, NULL);
	free(tmp);
	return r;
}

static int trace_files_write(struct trace_state *t, char **final, struct err *err)
{
	const struct timespec pause = {0, RETRY_NS};
	char *name = dir_name(t, t->from_ns);
	struct err late = {0};
	int r = write_directory(t, name, final, err);

	/* Without a descriptor the reason could not be left either. Others may give some back. */
	for (int i = 0; i < RETRIES && (r == -EMFILE || r == -ENFILE); i++) {
		nanosleep(&pause, NULL);
		r = write_directory(t, name, final, err);
	}
	if (r < 0)
		report_trouble(t, name, err);
	if (r == 0 && t->w->trace.analyse && split_files_write(t->parent, t->request, &late) < 0)
		log_err("the summary of request %s is not complete: %s", t->request, late.text);
	free(name);
	return r;
}

/*
 * Traces are written beside everything else: that of millions of activities takes seconds, in which
 * the rings of other ranks would fill up. One thread, while there is something to write; it has
 * each trace for itself.
 */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct trace_state *first, **end;
	bool runs;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void trace_report_to_daemon(const struct trace_state *t, const char *path, const char *why)
{
	struct request_text daemon;
	struct buf line = {0};

	buf_addf(&line, "%u %s %s%s", t->w->pid, t->request, path ? "+" : "", path ? path : why);
	if (request_find(t->w->text, t->w->text_len, "SONDE_DAEMON", &daemon))
		sender_send_one(&daemon, FABRIC_FILES, line.data, line.len);
	buf_release(&line);
}

static void write_one(struct trace_state *t)
{
	struct err err = {0};
	char *path = NULL;

	if (trace_files_write(t, &path, &err) < 0)
		log_err("process %u: the trace of request %s is not written: %s", t->w->pid,
			t->request, err.text);
	trace_report_to_daemon(t, path, err.text);
	free(path);
	trace_free(t);
}

static void *write_queued(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&queue.lock);
	while (queue.first) {
		struct trace_state *t = queue.first;

		queue.first = t->next;
		pthread_mutex_unlock(&queue.lock);
		write_one(t);
		pthread_mutex_lock(&queue.lock);
	}
	queue.runs = false;
	pthread_cond_broadcast(&queue.changed);
	pthread_mutex_unlock(&queue.lock);
	return NULL;
}

static bool start_writer(void)
{
	sigset_t all, was;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	bool ok = pthread_create(&thread, NULL, write_queued, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (ok)
		pthread_detach(thread);
	return ok;
}

/* What the window is about to take with it. */
static void detach_from_window(struct trace_state *t)
{
	t->own = *t->w;
	t->own.state = NULL;
	t->own.names = NULL;
	t->own.process = NULL;
	t->own.text = xstrndup(t->w->text, t->w->text_len);
	t->own.groups = t->w->groups ? xstrdup(t->w->groups) : NULL;
	t->w = &t->own;
	trace_request_read(t->own.text, t->own.text_len, &t->own.trace);
}

void trace_writer_add(struct trace_state *t)
{
	(void)activity_db_vfs(); /* made before two threads want it */
	detach_from_window(t);
	pthread_mutex_lock(&queue.lock);
	if (!queue.first)
		queue.end = &queue.first;
	*queue.end = t;
	queue.end = &t->next;
	if (!queue.runs)
		queue.runs = start_writer();
	bool alone = !queue.runs;
	if (alone)
		queue.first = NULL; /* there was nobody before it, or there would be a thread */
	pthread_mutex_unlock(&queue.lock);
	if (alone)
		write_one(t);
}

bool window_trace_writes(void)
{
	pthread_mutex_lock(&queue.lock);
	bool runs = queue.runs;
	pthread_mutex_unlock(&queue.lock);
	return runs;
}

void window_trace_wait(void)
{
	pthread_mutex_lock(&queue.lock);
	while (queue.runs)
		pthread_cond_wait(&queue.changed, &queue.lock);
	pthread_mutex_unlock(&queue.lock);
}
