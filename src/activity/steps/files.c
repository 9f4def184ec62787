/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/steps/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activity/steps/from_recordings.h"
#include "base/fs.h"
#include "base/mem.h"

#define MAX_RANK_BYTES (256u << 20)
#define MAX_RANKS 65536u
#define MAX_TROUBLE_BYTES 4096
#define MAX_TROUBLES 8 /* that are reported */
#define NS_PER_S 1000000000u
#define FILE_MODE 0640
#define LOCK_TRIES 100 /* of 50 ms */

/* --- reading --- */

static int read_rank(struct split_job *j, const char *dir, struct err *err)
{
	char *path = xasprintf("%s/" SPLIT_RANK_FILE, dir);
	struct buf text = {0};
	struct err why = {0};
	struct split_rank *rank = NULL;
	int r = fs_read_file(path, MAX_RANK_BYTES, &text, err);

	if (r == 0) {
		rank = split_rank_read(text.data ? text.data : "", text.len, &why);
		if (!rank)
			r = err_set(err, why.code, "cannot read '%s': %s", path, why.text);
	}
	if (rank) {
		split_rank_set(&rank->dir, xstrdup(dir));
		split_job_add(j, rank);
	}
	buf_release(&text);
	free(path);
	return r;
}

static bool ends_with(const char *name, const char *suffix)
{
	size_t len = strlen(name), end = strlen(suffix);

	return len > end && !strcmp(name + len - end, suffix);
}

bool split_is_rank_dir(const char *name)
{
	return name[0] != '.' && ends_with(name, SPLIT_DIR_SUFFIX);
}

static int read_all(struct split_job *j, const char *dir, struct err *err)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d)
		return err_sys(err, -errno, "cannot open '%s'", dir);
	while ((e = readdir(d)) && j->nranks < MAX_RANKS) {
		struct err why = {0};

		if (!split_is_rank_dir(e->d_name))
			continue;
		char *path = xasprintf("%s/%s", dir, e->d_name);
		if (read_rank(j, path, &why) < 0)
			split_job_note(j, why.text);
		free(path);
	}
	closedir(d);
	return 0;
}

static uint64_t begin_of(const struct split_rank *r)
{
	return r->nsteps ? r->steps[0].start_ns : 0;
}

static uint64_t end_of(const struct split_rank *r)
{
	return r->nsteps ? r->steps[r->nsteps - 1].end_ns : 0;
}

/* The daemons of several hosts give one order their own numbers. */
static bool is_same_trace(const struct split_rank *a, const struct split_rank *b)
{
	if (!strcmp(a->request, b->request))
		return true;
	return a->nsteps && b->nsteps && strcmp(a->host, b->host) &&
	       a->steps[0].number == b->steps[0].number && begin_of(a) < end_of(b) &&
	       begin_of(b) < end_of(a);
}

static const struct split_rank *newest_rank(const struct split_job *j)
{
	const struct split_rank *r = NULL;

	for (size_t i = 0; i < j->nranks; i++)
		if (!r || begin_of(j->ranks[i]) > begin_of(r))
			r = j->ranks[i];
	return r;
}

static void keep_one_request(struct split_job *j, const char *request)
{
	const struct split_rank *like = request ? NULL : newest_rank(j);
	struct split_rank **kept = xcalloc(j->nranks + 1, sizeof(struct split_rank *));
	size_t n = 0, others = 0;

	for (size_t i = 0; i < j->nranks; i++) {
		struct split_rank *r = j->ranks[i];
		bool is_of_it = like ? is_same_trace(r, like) : !strcmp(r->request, request);

		if (is_of_it)
			kept[n++] = r;
		else
			j->ranks[others++] = r;
	}
	if (others && like) {
		char *line = xasprintf("%zu traces of other requests lie there, too: --request "
				       "takes one of them.",
				       others);
		split_job_note(j, line);
		free(line);
	}
	for (size_t i = 0; i < others; i++)
		split_rank_free(j->ranks[i]);
	free(j->ranks);
	j->ranks = kept;
	j->nranks = n;
	j->cap = n + 1;
}

/* --- what is not there, and why --- */

struct problems {
	const char *request; /* of which they must be; NULL: of any, but not older than */
	uint64_t since_ns;
	unsigned n, being_written;
};

static bool is_of_request(const char *text, const char *request)
{
	size_t len = strlen(SPLIT_TROUBLE_REQUEST), id = strlen(request);

	for (const char *p = text; (p = strstr(p, SPLIT_TROUBLE_REQUEST)); p += len)
		if (!strncmp(p + len, request, id) && strchr(" ,:.\n", p[len + id]))
			return true;
	return false;
}

/* Its words, line by line; the name alone where there was no room for any. */
static void read_problem(struct split_job *j, const char *path, struct problems *t)
{
	struct stat st;
	struct buf text = {0};
	struct err err = {0};

	if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) ||
	    fs_read_file(path, MAX_TROUBLE_BYTES, &text, &err) < 0) {
		buf_release(&text);
		return;
	}
	uint64_t when = (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
	bool wanted = !t->request ? when >= t->since_ns
				  : !text.len || is_of_request(buf_str(&text), t->request);
	if (wanted && t->n++ < MAX_TROUBLES) {
		while (text.len && text.data[text.len - 1] == '\n')
			text.len--;
		char *line = text.len ? xasprintf("%.*s", (int)text.len, text.data)
				      : xasprintf("'%s' is empty: a trace could not be written, "
						  "most likely for want of room on the disk.",
						  path);
		split_job_note(j, line);
		free(line);
	}
	buf_release(&text);
}

static void read_problems(struct split_job *j, const char *dir, struct problems *t)
{
	size_t len = strlen(dir);
	DIR *d = opendir(dir);
	struct dirent *e;

	while (len > 1 && dir[len - 1] == '/')
		len--;
	char *beside = xasprintf("%.*s" SPLIT_TROUBLE_SUFFIX, (int)len, dir);
	read_problem(j, beside, t);
	free(beside);
	while (d && (e = readdir(d))) {
		t->being_written += e->d_name[0] == '.' &&
				    strstr(e->d_name, SPLIT_DIR_SUFFIX ".") &&
				    ends_with(e->d_name, ".tmp");
		if (e->d_name[0] == '.' ||
		    !ends_with(e->d_name, SPLIT_DIR_SUFFIX SPLIT_TROUBLE_SUFFIX))
			continue;
		char *path = xasprintf("%s/%s", dir, e->d_name);
		read_problem(j, path, t);
		free(path);
	}
	if (d)
		closedir(d);
	if (t->n > MAX_TROUBLES) {
		char *line = xasprintf("%u more could not be written.", t->n - MAX_TROUBLES);
		split_job_note(j, line);
		free(line);
	}
}

static int describe_none(const struct split_job *j, const char *dir, const struct problems *t,
			 struct err *err)
{
	const char *of = t->request ? " of request " : "", *id = t->request ? t->request : "";

	if (j->notes) {
		char more[64] = "";

		if (t->n > 1)
			snprintf(more, sizeof(more), " %u more could not be written.", t->n - 1);
		return err_set(err, -ENOENT, "no sonde trace%s%s was found in '%s'. %.*s%s", of, id,
			       dir, (int)strcspn(j->notes, "\n"), j->notes, more);
	}
	if (t->being_written)
		return err_set(
			err, -ENOENT,
			"no complete sonde trace%s%s was found in '%s': one is being written", of,
			id, dir);
	return err_set(
		err, -ENOENT,
		"no sonde trace%s%s was found in '%s', and no recording of `sonde record` in "
		"which a device worked: name the directory that -o of `sonde record` or "
		"--log-file of nputrace named. If it is the latter, either the last step of the "
		"trace "
		"has not ended yet, or its first step was over before the request came: see "
		"'dyno status' and the job's stderr",
		of, id, dir);
}

/* Those of other hosts may have the number of their own daemon. */
static bool is_of_several_hosts(const struct split_job *j)
{
	for (size_t i = 0; i < j->nranks; i++)
		if (j->ranks[i]->local_world && j->ranks[i]->local_world < j->ranks[i]->world)
			return true;
	return false;
}

int split_job_read(struct split_job *j, const char *dir, const char *request, struct err *err)
{
	char *own = xasprintf("%s/" SPLIT_RANK_FILE, dir);
	bool is_rank = access(own, F_OK) == 0;
	int r = is_rank ? read_rank(j, dir, err) : read_all(j, dir, err);

	free(own);
	if (r < 0 && (is_rank || r != -ENOENT))
		return r;
	if (is_rank)
		return 0;
	keep_one_request(j, request);
	j->gathered = !request || !is_of_several_hosts(j);
	const struct split_rank *last = newest_rank(j);
	struct problems t = {.request = request, .since_ns = last ? begin_of(last) : 0};
	read_problems(j, dir, &t);
	if (j->nranks)
		return 0;
	return r < 0 && !j->notes ? r : describe_none(j, dir, &t, err);
}

/* Their clocks may differ; a trace of another day differs by more. */
static void note_other_time(struct split_job *j, const struct split_job *more, const char *dir)
{
	const struct split_rank *a = newest_rank(j), *b = newest_rank(more);

	if (!a || !b || !a->nsteps || !b->nsteps)
		return;
	if (begin_of(a) < end_of(b) && begin_of(b) < end_of(a))
		return;
	char *line = xasprintf("'%s' was traced at another time than the ranks before it: choose "
			       "traces of the same steps with --request.",
			       dir);
	split_job_note(j, line);
	free(line);
}

static void add_notes(struct split_job *j, const char *lines)
{
	while (lines && *lines) {
		size_t len = strcspn(lines, "\n");
		char *line = xstrndup(lines, len);

		split_job_note(j, line);
		free(line);
		lines += len + (lines[len] == '\n');
	}
}

/* Traces of steps; where there are none, recordings of `sonde record`. */
static int read_any(struct split_job *j, const char *dir, const char *request, struct err *err)
{
	struct err other = {0};
	int r = split_job_read(j, dir, request, err);

	if (r == -ENOENT && !request && split_job_read_recorded(j, dir, &other) == 0)
		return 0;
	return r;
}

int split_job_add_host(struct split_job *j, const char *host, const char *dir, const char *request,
		       struct err *err)
{
	struct split_job more = {0};
	int r = read_any(&more, dir, request, err);

	if (r == 0)
		note_other_time(j, &more, dir);
	j->gathered = j->nranks ? j->gathered && more.gathered : more.gathered;
	for (size_t i = 0; i < more.nranks && r == 0; i++) {
		if (host)
			split_rank_set(&more.ranks[i]->host, xstrdup(host));
		split_job_add(j, more.ranks[i]);
	}
	if (r == 0)
		more.nranks = 0; /* they are of j now */
	add_notes(j, more.notes);
	split_job_release(&more);
	return r;
}

/* --- writing --- */

int split_file_write(const char *dir, const char *name, struct buf *text, struct err *err)
{
	char *path = xasprintf("%s/%s", dir, name);
	int r = fs_write_atomic(path, text, FILE_MODE, err);

	buf_release(text);
	free(path);
	return r;
}

int split_file_write_json(const char *dir, const char *name, json_t *o, struct err *err)
{
	char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
	struct buf out = {0};

	json_decref(o);
	if (!text)
		return err_set(err, -ENOMEM, "out of memory");
	buf_addf(&out, "%s\n", text);
	free(text);
	return split_file_write(dir, name, &out, err);
}

/*
 * One rank at a time, so that the last one sees all. The file goes when it is given back; who had
 * waited for it then has one that is no more, and takes the next. Without it (a file system that
 * knows no locks) the summary is made all the same.
 */
static int take_lock(const char *path)
{
	for (unsigned i = 0; i < LOCK_TRIES; i++) {
		struct stat own, there;
		int fd = fs_open(path, O_RDWR | O_CREAT, FILE_MODE, NULL);

		if (fd < 0)
			return -1;
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &own) == 0 &&
		    stat(path, &there) == 0 && own.st_ino == there.st_ino &&
		    own.st_dev == there.st_dev)
			return fd;
		int code = errno;
		close(fd);
		if (code == ENOLCK || code == ENOSYS || code == EOPNOTSUPP)
			return -1;
		usleep(50000);
	}
	return -1;
}

int split_files_write(const char *dir, const char *request, struct err *err)
{
	char *lock = xasprintf("%s/.summary_%s.lock", dir, request);
	char *text_name = xasprintf("summary_%s.txt", request);
	char *json_name = xasprintf("summary_%s.json", request);
	struct split_job job = {0};
	struct buf text = {0};
	int fd = take_lock(lock);
	int r = split_job_read(&job, dir, request, err);

	if (r == 0) {
		split_job_judge(&job);
		split_job_text(&job, SPLIT_TOP, &text);
		r = split_file_write(dir, text_name, &text, err);
	}
	if (r == 0)
		r = split_file_write_json(dir, json_name, split_job_json(&job), err);
	split_job_release(&job);
	if (fd >= 0) {
		(void)fs_unlink(lock, NULL);
		close(fd);
	}
	free(lock);
	free(text_name);
	free(json_name);
	return r;
}
