/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The report of a trace, behind a link of the page: `sonde report` is run as the user whose trace it is,
 * of the directories that the daemon was told of, and of nothing that a caller names.
 */
#include "daemon/inspect/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "daemon/inspect/inspect_impl.h"
#include "daemon/jobs/jobs.h"

#define MOST_PATHS 10
#define MOST_WORDS (1u << 20) /* in place of a page */
#define MOST_KEPT 4 /* of all users; of one there is one */

/* Those who could have read its files anyway. */
static bool may_see(const struct access_grant *who, uid_t uid)
{
	return !who || who->right == ACCESS_ALL || (who->right == ACCESS_OWN && who->uid == uid);
}

struct traced {
	struct jobs_owner owner;
	char *paths[MOST_PATHS];
	size_t n;
};

static void release_paths(struct traced *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->paths[i]);
}

/* Where its files lie: each rank has its own below that. */
static void add_path(struct traced *t, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash && slash > path ? (size_t)(slash - path) : 0;

	for (size_t i = 0; i < t->n; i++)
		if (strlen(t->paths[i]) == len && !memcmp(t->paths[i], path, len))
			return;
	if (*path == '/' && len && t->n < MOST_PATHS)
		t->paths[t->n++] = xstrndup(path, len);
}

/* What was written of a request, of processes of one user. */
static const char *find_paths(struct inspect *i, const struct access_grant *who,
			      const json_t *request, struct traced *out)
{
	json_t *replies = jobs_get_replies(i->d->jobs, who, request), *one;
	const char *why = NULL;
	size_t at;

	json_array_foreach(json_object_get(replies, "written"), at, one)
	{
		int32_t pid = (int32_t)json_integer_value(json_object_get(one, "pid"));
		struct jobs_owner o;

		if (!jobs_find_owner(i->d->jobs, who, pid, &o) || !may_see(who, o.uid))
			continue;
		if (out->n && o.uid != out->owner.uid)
			why = "it was traced in processes of several users";
		out->owner = o;
		add_path(out, json_string_value(json_object_get(one, "path")));
	}
	json_decref(replies);
	return why	? why
	       : out->n ? NULL
			: "no files of this request are known; they may have been deleted";
}

/* One of a user, and no more than some of all: the oldest goes. */
static void make_place(struct inspect *i, uid_t uid)
{
	struct run *oldest = NULL;
	size_t kept = 0;

	for (struct run *r = i->runs; r; r = r->next) { /* newest first */
		if (r->kind != INSPECT_REPORT || !r->id)
			continue;
		if (r->uid == uid) {
			inspect_drop(r);
			continue;
		}
		kept++;
		oldest = r->fd < 0 ? r : oldest;
	}
	if (kept >= MOST_KEPT && oldest)
		inspect_drop(oldest);
}

json_t *inspect_make_report(struct inspect *i, const struct access_grant *who,
			    const json_t *request)
{
	struct inspect_start s = {.words = {"report", "-o", "-"}};
	struct traced t = {0};
	struct err err = {0};
	json_t *not_here = inspect_not_here(i);

	if (not_here)
		return not_here;
	const char *why = find_paths(i, who, request, &t);
	if (why) {
		release_paths(&t);
		return inspect_refuse(why);
	}
	for (size_t k = 0; k < t.n; k++)
		s.words[3 + k] = t.paths[k];
	s.process = t.owner.host_pid;
	s.uid = t.owner.uid;
	struct run like = {.kind = INSPECT_REPORT, .uid = t.owner.uid, .process = t.owner.host_pid};
	make_place(i, t.owner.uid);
	struct run *r = inspect_run(i, &like, &s, &err);
	release_paths(&t);
	return r ? json_pack("{s:I}", "report", (json_int_t)r->id) : inspect_refuse(err.text);
}

static struct run *find_report(struct inspect *i, const struct access_grant *who, uint64_t number)
{
	for (struct run *r = i ? i->runs : NULL; r; r = r->next)
		if (r->kind == INSPECT_REPORT && r->id == number && may_see(who, r->uid)) {
			r->asked_ns = clock_mono_ns();
			return r;
		}
	return NULL;
}

static bool is_made(const struct run *r)
{
	return r->page || (r->fd < 0 && r->file >= 0 && !*r->why);
}

/* Nobody else sees it, and it is gone with us. */
static int open_unnamed(struct err *err)
{
	int fd = fs_open(P_tmpdir, O_TMPFILE | O_RDWR, 0600, NULL);

	if (fd < 0)
		fd = memfd_create("report", MFD_CLOEXEC);
	return fd < 0 ? err_sys(err, -errno, "there is no room for the page") : fd;
}

int inspect_save_page(struct run *r, struct err *err)
{
	const char *text = r->text.data, *begin = text;

	if (r->file < 0) {
		if (r->text.len && *text != '<') { /* behind a warning */
			begin = memmem(text, r->text.len, "\n<", 2);
			begin = begin ? begin + 1 : NULL;
		}
		if (!begin && r->text.len > MOST_WORDS)
			return err_set(err, -EFBIG, "what it prints is no page");
		if (!r->text.len || !begin)
			return 0;
		r->file = open_unnamed(err);
		if (r->file < 0)
			return r->file;
	}
	size_t len = r->text.len - (size_t)(begin - text);
	int status = fs_write_all(r->file, begin, len, (int64_t)r->file_bytes, NULL);
	if (status < 0)
		return err_sys(err, status, "there is no room for the page");
	r->file_bytes += len;
	buf_clear(&r->text);
	return 0;
}

json_t *inspect_get_report(struct inspect *i, const struct access_grant *who, const json_t *request)
{
	json_int_t number = json_integer_value(json_object_get(request, "report"));
	struct run *r = find_report(i, who, (uint64_t)number);

	if (!r)
		return inspect_refuse("no such report: it may have been deleted");
	json_t *path = is_made(r) ? json_sprintf("report/%lld", (long long)number) : json_null();
	return inspect_state(r, "path", path, true);
}

static void unmap_bytes(const void *data, size_t len, void *arg)
{
	(void)arg;
	munmap((void *)(uintptr_t)data, len);
}

struct evbuffer *inspect_report_page(struct inspect *i, const struct access_grant *who,
				     uint64_t number)
{
	struct run *r = find_report(i, who, number);

	if (!r || !is_made(r))
		return NULL;
	if (!r->page) {
		void *bytes = mmap(NULL, r->file_bytes, PROT_READ, MAP_SHARED, r->file, 0);

		if (bytes == MAP_FAILED)
			return NULL;
		r->page = evbuffer_new();
		evbuffer_add_reference(r->page, bytes, r->file_bytes, unmap_bytes, NULL);
	}
	return r->page;
}
