/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A Chrome Tracing file (chrome://tracing, Perfetto) that is written while things happen and can be
 * loaded at every moment.
 *
 * While it grows it is a JSON array with 15 blanks before it; a file that was closed is the object
 * {"traceEvents":[…],"displayTimeUnit":"ms",…}. No event crosses a page of 4096 bytes (blanks fill
 * the rest of a page), because that is where the kernel may cut a write of a process that is
 * killed. So whenever its writer is killed the file is strict JSON, or becomes it by one character
 * at its end: "]" if the file begins with a blank, "}" if it begins with a brace. Viewers need
 * neither.
 *
 * With gzip, what is flushed becomes members of a gzip file, behind which a last one closes the
 * JSON; the next flush writes over that. A writer killed between writes leaves a complete file.
 * Killed inside of one, it leaves a cut last member: `gzip -dc` gives all that was flushed before
 * and complains, and the text lacks its "]}".
 *
 * A file that somebody moves away while it is written is completed there, and begun anew under its
 * path; so is one that somebody removes or cuts.
 *
 * Not thread safe.
 */
#ifndef SONDE_FORMATS_CHROME_TRACE_CHROME_TRACE_H
#define SONDE_FORMATS_CHROME_TRACE_CHROME_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/err.h"

struct chrome_trace;

struct chrome_trace_options {
	const char *path; /* a file that is there is replaced in one step; -EBUSY if another
			     process writes a trace there */
	unsigned mode; /* of the files, less umask; 0: 0644 */
	bool gzip;
	/*
	 * Begin a new file after so many bytes, or so much time; 0: never. `path` is always the one
	 * that is being written. Complete ones get a number that grows and is never given again,
	 * before the extension so that viewers still know them: trace.json, trace.1.json,
	 * trace.2.json … Numbers of an earlier run go on.
	 */
	uint64_t rotate_bytes;
	uint64_t rotate_ns;
	unsigned keep; /* numbered files that are kept; 0: all */
	const char
		*other_json; /* members added to the object when it is closed: "\"a\":1", or NULL */
	/* Adds further members, when the file is closed or copied: "\"a\":1,\"b\":2". May be NULL. */
	void (*add_members)(void *arg, struct buf *out);
	/* Called before a file is completed to end what is open in it, and after the next was begun
	 * to write names and open frames again. Both only from chrome_trace_flush(). */
	void (*before_rotate)(void *arg, struct chrome_trace *t);
	void (*on_rotate)(void *arg, struct chrome_trace *t);
	void *arg;
};

/* A value in args of an event. */
enum chrome_arg_type { CHROME_TEXT, CHROME_INT, CHROME_FLOAT };
struct chrome_arg {
	const char *key; /* a plain word */
	enum chrome_arg_type type;
	union {
		const char *text; /* escaped when written; bytes that are no UTF-8 become U+FFFD */
		int64_t i;
		double f; /* left out if it is not finite */
	};
};

static inline struct chrome_arg chrome_text(const char *key, const char *text)
{
	return (struct chrome_arg){.key = key, .type = CHROME_TEXT, .text = text};
}

static inline struct chrome_arg chrome_int(const char *key, uint64_t v)
{
	return (struct chrome_arg){.key = key, .type = CHROME_INT, .i = (int64_t)v};
}

/* pid and tid are any numbers: those of synthetic tracks lie outside the pids of Linux (above
 * 2^22, below 2^31). */
#define CHROME_PID_NPU 1000000000
#define CHROME_PID_GPU 1000000001
#define CHROME_PID_HOST 1000000002

int chrome_trace_new(const struct chrome_trace_options *o, struct chrome_trace **out,
		     struct err *err);

/*
 * Events are kept until chrome_trace_flush(), or until there are 64 KiB of them. ts in µs with
 * three digits behind the point. Names and texts of more than some 400 bytes are cut, and arguments
 * that would make an event longer than 2 KiB are left out.
 */
void chrome_begin(struct chrome_trace *t, int64_t ts_ns, int64_t pid, int64_t tid,
		  const char *category, const char *name, const struct chrome_arg *args,
		  unsigned n);
void chrome_end(struct chrome_trace *t, int64_t ts_ns, int64_t pid, int64_t tid, const char *name,
		const struct chrome_arg *args, unsigned n);
/* ph "X"; `category` is a plain word, or NULL */
void chrome_complete(struct chrome_trace *t, int64_t ts_ns, int64_t dur_ns, int64_t pid,
		     int64_t tid, const char *category, const char *name,
		     const struct chrome_arg *args, unsigned n);
/* ph "i", scope thread */
void chrome_instant(struct chrome_trace *t, int64_t ts_ns, int64_t pid, int64_t tid,
		    const char *name, const struct chrome_arg *args, unsigned n);
/* ph "s" and "f": an arrow, from what surrounds the one to what surrounds the other. Both have the
 * same name and id. */
void chrome_flow(struct chrome_trace *t, bool end, int64_t ts_ns, int64_t pid, int64_t tid,
		 const char *name, uint64_t id);
/* ph "C": every arg is a series; id distinguishes tracks of the same name (NULL: none). */
void chrome_counter(struct chrome_trace *t, int64_t ts_ns, int64_t pid, const char *name,
		    const char *id, const struct chrome_arg *args, unsigned n);
/* ph "M": process_name, process_labels, process_sort_index, thread_name, thread_sort_index … */
void chrome_meta(struct chrome_trace *t, int64_t pid, int64_t tid, const char *what,
		 const struct chrome_arg *args, unsigned n);

/*
 * Writes what is kept and rotates if it is time for it: call it when a round is complete.
 * With gzip it waits until there are 64 KiB or a second has passed, or members would be tiny. When
 * the disk is full the file stays what it was, valid; events are kept (1 MiB of them, further ones
 * are lost) and written when there is room again. Errors are reported by every flush as long as
 * they last.
 */
int chrome_trace_flush(struct chrome_trace *t, struct err *err);
uint64_t chrome_trace_events(const struct chrome_trace *t); /* in all files */
uint64_t chrome_trace_bytes(const struct chrome_trace *t); /* of the current file */

/*
 * A complete copy of the file as it would be if it were closed now, in one step (rename).
 * `end_open` (may be NULL) is called at once to end what is still open: it may call chrome_end() on
 * the copy. The copying itself goes on in a thread, in the kernel, and the file is not touched.
 * -EBUSY, and nothing done, while the last copy to the same path is still on its way. A copy that
 * failed is reported by the next call (which then makes none), by chrome_trace_copy_wait() or by
 * chrome_trace_close(). A copy to the path of the trace itself only writes what is kept.
 */
int chrome_trace_copy(struct chrome_trace *t, const char *path,
		      void (*end_open)(void *arg, struct chrome_trace *copy), void *arg,
		      struct err *err);
int chrome_trace_copy_wait(struct chrome_trace *t, struct err *err);

/* Flushes and completes the file; waits for a copy. The trace is freed also on failure. */
int chrome_trace_close(struct chrome_trace *t, struct err *err);

#endif
