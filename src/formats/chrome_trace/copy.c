/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A complete copy of a trace that is still being written. What lies before the end of the trace
 * never changes again, so the copy can be finished first, behind that end, and the rest be copied
 * below it by a thread, while the trace goes on.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "formats/chrome_trace/chrome_trace_impl.h"

#define OBJECT_HEAD_LEN 15 /* written when the copy was completed */
#define CHUNK (1u << 20)

struct chrome_copy {
	struct chrome_copy *next;
	char *asked; /* the path as it was given */
	pthread_t thread;
	atomic_bool done;
	int source;
	struct chrome_file file;
	uint64_t from, to;
	int result;
	struct err err;
};

static ssize_t copy_by_hand(int from, int to, off_t at, size_t n)
{
	static _Thread_local char page[65536];
	ssize_t got = pread(from, page, n < sizeof(page) ? n : sizeof(page), at);

	return got > 0 ? pwrite(to, page, (size_t)got, at) : got;
}

static int copy_range(struct chrome_copy *c)
{
	bool in_kernel = true;

	for (off_t at = (off_t)c->from; (uint64_t)at < c->to;) {
		off_t in = at, out = at;
		uint64_t left = c->to - (uint64_t)at;
		size_t n = left < CHUNK ? (size_t)left : CHUNK;
		ssize_t r = in_kernel ? copy_file_range(c->source, &in, c->file.fd, &out, n, 0)
				      : copy_by_hand(c->source, c->file.fd, at, n);

		if (r < 0 && errno == EINTR)
			continue;
		/* Other file systems, old kernels, files of which the kernel says 0. */
		if (r <= 0 && in_kernel) {
			in_kernel = false;
			continue;
		}
		if (r <= 0)
			return err_sys(&c->err, r < 0 ? -errno : -EIO, "cannot write '%s'",
				       c->file.path);
		at += r;
	}
	return chrome_file_sync(&c->file, &c->err);
}

static void *copy_main(void *arg)
{
	struct chrome_copy *c = arg;

	c->result = copy_range(c);
	if (c->result == 0)
		c->result = chrome_file_publish(&c->file, &c->err);
	atomic_store_explicit(&c->done, true, memory_order_release);
	return NULL;
}

static void copy_free(struct chrome_copy *c)
{
	chrome_file_release(&c->file);
	if (c->source >= 0)
		close(c->source);
	free(c->asked);
	free(c);
}

/* Takes away copies that are done, or waits for all. The first failure is the one that is reported.
 */
static int reap_child(struct chrome_trace *t, bool wait, struct err *err)
{
	int r = 0;

	for (struct chrome_copy **at = &t->copies; *at;) {
		struct chrome_copy *c = *at;

		if (!wait && !atomic_load_explicit(&c->done, memory_order_acquire)) {
			at = &c->next;
			continue;
		}
		pthread_join(c->thread, NULL);
		*at = c->next;
		if (r == 0 && c->result < 0) {
			r = c->result;
			if (err)
				*err = c->err;
		}
		copy_free(c);
	}
	return r;
}

int chrome_trace_copy_wait(struct chrome_trace *t, struct err *err)
{
	return reap_child(t, true, err);
}

/* Two to the same path would overtake each other. */
static bool is_on_its_way(const struct chrome_trace *t, const char *path)
{
	const struct chrome_copy *c = t->copies;

	while (c && strcmp(c->asked, path) != 0)
		c = c->next;
	return c != NULL;
}

/* Events that end what is open and the rest of the object, behind all that the trace has. */
static int finish_copy(struct chrome_trace *t, struct chrome_copy *c,
		       void (*end_open)(void *arg, struct chrome_trace *copy), void *arg,
		       struct err *err)
{
	struct chrome_trace ends = {.file = c->file};
	struct buf members = {0};
	int r;

	ends.file.has_events = t->file.has_events;
	if (end_open)
		end_open(arg, &ends);
	chrome_trace_members(t, &members);
	r = chrome_file_write(&ends.file, &ends.pending, err);
	if (r == 0)
		r = chrome_file_complete(&ends.file, buf_str(&members), err);
	buf_release(&members);
	c->file = ends.file;
	buf_release(&ends.pending);
	buf_release(&ends.scratch);
	return r;
}

/* No signal of the program is for this thread. */
static int start_thread(struct chrome_copy *c, struct err *err)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&c->thread, NULL, copy_main, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r ? err_sys(err, -r, "cannot start a thread that copies to '%s'", c->file.path) : 0;
}

/* Everything but what only a thread should do. */
static int prepare_copy(struct chrome_trace *t, const char *path,
			void (*end_open)(void *arg, struct chrome_trace *copy), void *arg,
			struct chrome_copy **out, struct err *err)
{
	struct chrome_copy *c = xcalloc(1, sizeof(*c));

	c->source = -1;
	c->asked = xstrdup(path);
	c->from = t->file.gzip ? 0 : OBJECT_HEAD_LEN;
	c->to = t->file.end;
	int r = chrome_file_open(&c->file, path, &t->o, t->file.end, err);
	if (r == 0) {
		c->source = dup(t->file.fd);
		if (c->source < 0)
			r = err_sys(err, -errno, "cannot copy '%s'", t->file.path);
	}
	if (r == 0)
		r = finish_copy(t, c, end_open, arg, err);
	if (r < 0) {
		copy_free(c);
		return r;
	}
	*out = c;
	return 0;
}

static bool is_the_file_itself(const struct chrome_trace *t, const char *path)
{
	struct stat own, other;

	return fstat(t->file.fd, &own) == 0 && stat(path, &other) == 0 &&
	       own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

int chrome_trace_copy(struct chrome_trace *t, const char *path,
		      void (*end_open)(void *arg, struct chrome_trace *copy), void *arg,
		      struct err *err)
{
	struct chrome_copy *c;
	int r = reap_child(t, false, err);

	if (r == 0 && is_on_its_way(t, path))
		r = err_set(err, -EBUSY, "the last copy to '%s' is still being written", path);
	if (r == 0)
		r = chrome_trace_write(t, err);
	if (r < 0 || is_the_file_itself(t, path))
		return r;
	r = prepare_copy(t, path, end_open, arg, &c, err);
	if (r < 0)
		return r;
	r = start_thread(c, err);
	if (r < 0) {
		copy_free(c);
		return r;
	}
	c->next = t->copies;
	t->copies = c;
	return 0;
}

int chrome_trace_replace(struct chrome_trace *t, struct err *err)
{
	struct chrome_copy *c;
	int r = prepare_copy(t, t->file.path, NULL, NULL, &c, err);

	if (r < 0)
		return r;
	copy_main(c);
	r = c->result;
	if (r < 0 && err)
		*err = c->err;
	copy_free(c);
	return r;
}
