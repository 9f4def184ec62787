/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "recorder"
#include "recorder/rotate/rotate.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/subprocess.h"
#include "recorder/rotate/drop_oldest.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEXT_SUFFIX ".next"

/* What comes of it, in memory that we share with the copy. */
struct outcome {
	uint64_t checkpoint_bytes;
	int result;
	struct err err;
};

struct rotate {
	struct recording_writer *out;
	char *path, *next;
	uint64_t limit; /* bytes; 0: none */
	uint64_t keep_ns; /* 0: no time was asked for */
	uint64_t kept_from_ns; /* what the file begins with, in time */
	uint64_t again_ns; /* when it is cut again by time */
	const struct checkpoint_ops *checkpoints[MAX_CHECKPOINTS];
	unsigned ncheckpoints;
	uint64_t start_at; /* bytes of the recording */
	uint64_t done; /* bytes of it that the copy looks at */
	uint64_t cut_ns; /* the time from which it keeps; 0: it goes by bytes */
	uint64_t checkpoint_bytes; /* of the newest checkpoint */
	pid_t pid; /* of the copy, 0: there is none */
	struct outcome *outcome;
	bool logged_failure, logged_large;
};

void rotate_clean(const char *recording)
{
	char *next = xasprintf("%s" NEXT_SUFFIX, recording);

	fs_unlink(next, NULL);
	free(next);
}

/* Where work begins; half of it may be left. */
static uint64_t full_bytes(const struct rotate *r)
{
	return r->limit ? r->limit / 8 * 5 : UINT64_MAX / 8;
}

static void set_time(struct rotate *r, uint64_t kept_from_ns)
{
	r->kept_from_ns = kept_from_ns;
	r->again_ns = kept_from_ns + r->keep_ns + r->keep_ns / 2;
}

struct rotate *rotate_new(const char *path, struct recording_writer *out,
			  const struct consumers *all)
{
	struct rotate want = {.out = out}, *r;

	for (const struct consumer *c = all->list; c < all->list + all->n; c++) {
		want.limit = c->max_bytes ? c->max_bytes : want.limit;
		want.keep_ns = c->keep_ns ? c->keep_ns : want.keep_ns;
		if (c->checkpoint && want.ncheckpoints < MAX_CHECKPOINTS)
			want.checkpoints[want.ncheckpoints++] = c->checkpoint;
	}
	if (!want.limit && !want.keep_ns)
		return NULL;
	r = xcalloc(1, sizeof(*r));
	*r = want;
	r->path = xstrdup(path);
	r->next = xasprintf("%s" NEXT_SUFFIX, path);
	r->start_at = full_bytes(r);
	set_time(r, clock_mono_ns());
	rotate_clean(path);
	if (r->limit)
		recording_expect(out, r->limit);
	return r;
}

/* What is alive needs its share. */
static uint64_t keep_bytes(const struct rotate *r)
{
	uint64_t full = full_bytes(r), least = full / 8;

	return full / 2 > r->checkpoint_bytes + least ? full / 2 - r->checkpoint_bytes : least;
}

static void begin_copy(struct rotate *r, uint64_t keep_from_ns)
{
	struct drop_request request = {
		.from = r->path,
		.to = r->next,
		.end = recording_bytes(r->out),
		.keep_bytes = keep_bytes(r),
		.keep_from_ns = keep_from_ns,
		.limit_bytes = keep_from_ns ? 0 : r->limit,
		.ncheckpoints = r->ncheckpoints,
	};

	memcpy(request.checkpoints, r->checkpoints, sizeof(request.checkpoints));
	r->done = request.end;
	r->cut_ns = keep_from_ns;
	r->start_at = request.end + full_bytes(r) / 4; /* should this fail */
	r->again_ns += r->keep_ns / 2; /* likewise */
	rotate_clean(r->path); /* the new file is nobody else's */
	r->outcome = mmap(NULL, sizeof(*r->outcome), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r->outcome == MAP_FAILED)
		return;
	r->pid = fork_copy();
	if (r->pid == 0) {
		r->outcome->result =
			drop_oldest(&request, &r->outcome->checkpoint_bytes, &r->outcome->err);
		_exit(0);
	}
	if (r->pid < 0) {
		munmap(r->outcome, sizeof(*r->outcome));
		r->pid = 0;
	}
}

static void log_failure(struct rotate *r, const struct err *err)
{
	if (!r->logged_failure)
		log_err("the oldest part of the recording cannot be dropped, so it grows past its "
			"limit: %s",
			err->text);
	r->logged_failure = true;
}

static void log_dropped(struct rotate *r, uint64_t before)
{
	uint64_t now = recording_bytes(r->out);

	log_info("the oldest part of the recording was dropped: %llu of %llu bytes are left",
		 (unsigned long long)now, (unsigned long long)before);
	r->logged_failure = false;
	bool large = r->limit && r->checkpoint_bytes > full_bytes(r) / 2;
	if (large && !r->logged_large)
		log_warn("what is alive in the job takes %llu bytes of the recording: it grows "
			 "past its limit of %llu",
			 (unsigned long long)r->checkpoint_bytes, (unsigned long long)r->limit);
	r->logged_large |= large;
}

/* The copy is done: its file becomes the recording. */
static void end_copy(struct rotate *r, int status)
{
	struct outcome o = *r->outcome;
	uint64_t before = recording_bytes(r->out), full = full_bytes(r);

	munmap(r->outcome, sizeof(*r->outcome));
	r->pid = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		o.result = err_set(&o.err, -EINTR, "it was interrupted");
	else if (o.result == 0 && recording_is_removed(r->out))
		o.result = err_set(&o.err, -ENOENT, "somebody has deleted it");
	if (o.result == 0)
		o.result = recording_replace(r->out, r->path, r->next, r->done, &o.err);
	if (o.result < 0) {
		rotate_clean(r->path);
		log_failure(r, &o.err);
		return;
	}
	r->checkpoint_bytes = o.checkpoint_bytes;
	if (r->cut_ns)
		set_time(r, r->cut_ns);
	log_dropped(r, before);
	uint64_t least = r->checkpoint_bytes + full / 2; /* so that it is worth the work */
	r->start_at = least > full ? least : full;
}

void rotate_tick(struct rotate *r, bool hold)
{
	int status = -1;

	if (!r)
		return;
	if (r->pid) {
		pid_t done = waitpid(r->pid, &status, WNOHANG);
		if (done > 0 || (done < 0 && errno != EINTR))
			end_copy(r, status);
	} else if (recording_bytes(r->out) >= r->start_at) {
		begin_copy(r, 0);
	} else if (r->keep_ns && !hold && clock_mono_ns() >= r->again_ns) {
		begin_copy(r, clock_mono_ns() - r->keep_ns);
	}
}

bool rotate_is_due(const struct rotate *r)
{
	return r && (r->pid || recording_bytes(r->out) >= r->start_at); /* a time is not due */
}

bool rotate_cancel(struct rotate *r)
{
	if (!r || !r->pid)
		return false;
	kill(r->pid, SIGKILL);
	while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
		;
	munmap(r->outcome, sizeof(*r->outcome));
	r->pid = 0;
	rotate_clean(r->path);
	return true;
}

void rotate_free(struct rotate *r)
{
	if (!r)
		return;
	rotate_cancel(r);
	free(r->path);
	free(r->next);
	free(r);
}
