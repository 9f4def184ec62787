/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/chrome_trace/chrome_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "formats/chrome_trace/chrome_trace_impl.h"

#define GZIP_WAIT_NS 1000000000u /* between members that are smaller than a batch */

int chrome_trace_new(const struct chrome_trace_options *o, struct chrome_trace **out,
		     struct err *err)
{
	if (chrome_file_in_use(o->path))
		return err_set(err, -EBUSY,
			       "'%s' is being written by another process; choose another file",
			       o->path);
	struct chrome_trace *t = xcalloc(1, sizeof(*t));
	int r = chrome_file_open(&t->file, o->path, o->gzip, 0, err);

	if (r == 0)
		r = chrome_file_publish(&t->file, err);
	if (r < 0) {
		chrome_file_release(&t->file);
		free(t);
		return r;
	}
	t->o = *o;
	t->o.path = NULL; /* the file knows it */
	t->o.other_json = o->other_json ? xstrdup(o->other_json) : NULL;
	t->begun_ns = t->written_ns = clock_mono_ns();
	if (o->rotate_bytes || o->rotate_ns)
		t->number = chrome_rotate_next_number(t->file.path);
	*out = t;
	return 0;
}

int chrome_trace_write(struct chrome_trace *t, struct err *err)
{
	/* A file that was cut is not written to: it would get a hole. The next flush begins anew.
	 */
	t->cut = t->cut || chrome_file_taken(&t->file) == CHROME_CUT;
	if (t->cut) {
		buf_clear(&t->pending);
		return 0;
	}
	int r = t->pending.len ? chrome_file_write(&t->file, &t->pending, err) : 0;

	t->failing = r < 0;
	if (r < 0)
		return r;
	buf_clear(&t->pending);
	t->written_ns = clock_mono_ns();
	return 0;
}

static bool is_worth_a_member(const struct chrome_trace *t)
{
	return t->pending.len >= CHROME_BATCH || clock_mono_ns() - t->written_ns >= GZIP_WAIT_NS;
}

int chrome_trace_flush(struct chrome_trace *t, struct err *err)
{
	int r = chrome_file_publish(&t->file, err); /* a rotation may have failed to */

	if (r == 0)
		r = chrome_begin_anew(t, err);
	if (r < 0)
		return r;
	if (!t->file.gzip || t->failing || is_worth_a_member(t))
		r = chrome_trace_write(t, err);
	if (r == 0 && chrome_rotate_due(t))
		r = chrome_rotate(t, err);
	return r;
}

uint64_t chrome_trace_events(const struct chrome_trace *t)
{
	return t->events;
}

uint64_t chrome_trace_bytes(const struct chrome_trace *t)
{
	return t->file.end + t->pending.len;
}

/* The first failure is the one that is told. */
static void note(int *r, int more, struct err *err, const struct err *words)
{
	if (more < 0 && *r == 0) {
		*r = more;
		if (err)
			*err = *words;
	}
}

int chrome_trace_complete(struct chrome_trace *t, struct err *err)
{
	const char *other = t->o.other_json;
	int r = 0;

	if (!t->file.gzip && other && strlen(other) > CHROME_OTHER_MAX) {
		r = chrome_trace_replace(t, err);
		if (r == 0)
			return 0;
		other = NULL; /* no room for two: better without it than not at all */
	}
	int more = chrome_file_complete(&t->file, other, r < 0 ? NULL : err);
	return r < 0 ? r : more;
}

int chrome_trace_close(struct chrome_trace *t, struct err *err)
{
	struct err words;
	int r = 0;

	if (!t)
		return 0;
	note(&r, chrome_file_publish(&t->file, &words), err, &words);
	note(&r, chrome_begin_anew(t, &words), err, &words);
	note(&r, chrome_trace_write(t, &words), err, &words);
	note(&r, chrome_trace_complete(t, &words), err, &words);
	note(&r, chrome_file_sync(&t->file, &words), err, &words);
	note(&r, chrome_trace_copy_wait(t, &words), err, &words);
	if (r == 0 && t->lost)
		r = err_set(err, -ENOSPC, "%llu events could not be written to '%s'",
			    (unsigned long long)t->lost, t->file.path);
	chrome_file_release(&t->file);
	buf_release(&t->pending);
	buf_release(&t->scratch);
	free((char *)(uintptr_t)t->o.other_json);
	free(t);
	return r;
}
