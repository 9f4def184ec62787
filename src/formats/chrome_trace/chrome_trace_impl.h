/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the files of the Chrome trace writer share. */
#ifndef SONDE_FORMATS_CHROME_TRACE_CHROME_TRACE_IMPL_H
#define SONDE_FORMATS_CHROME_TRACE_CHROME_TRACE_IMPL_H

#include <zlib.h>

#include "base/containers/buf.h"
#include "formats/chrome_trace/chrome_trace.h"

#define CHROME_PAGE 4096u /* of a file, as far as an interrupted write is concerned */
#define CHROME_OTHER_MAX 4000u /* bytes of other_json that fit into one with the rest */
#define CHROME_EVENT_MAX (CHROME_PAGE - 8u) /* with what closes the file behind it, in a page */
#define CHROME_BATCH 65536u /* bytes of events that are written without being asked to */
#define CHROME_PENDING_MAX (1u << 20) /* and that are kept when they cannot be written */

/*
 * One file on its way: formats/chrome_trace/file.c. It is made under a temporary name, with all
 * that makes it a valid trace without events, and gets its own name by chrome_file_publish().
 */
struct chrome_file {
	int fd; /* -1: none */
	char *path;
	char *temporary; /* NULL once published */
	bool gzip;
	uint64_t end; /* everything before it is written; behind it is the closing */
	bool has_events; /* written or pending: the next one needs a comma */
	z_stream *z; /* gzip */
	struct buf packed; /* gzip */
};

/* With the mode and gzip of the options. `end` 0: a trace without events. Otherwise only the room
 * behind `end` is written: what is before it comes from elsewhere, and the file is not valid until
 * it is there. */
int chrome_file_open(struct chrome_file *f, const char *path, const struct chrome_trace_options *o,
		     uint64_t end, struct err *err);
int chrome_file_publish(struct chrome_file *f, struct err *err);
/* Writes events (of which none crosses a page) and the closing behind them. On failure the file is
 * what it was. */
int chrome_file_write(struct chrome_file *f, struct buf *events, struct err *err);
/* The rest of the object. Whoever is killed meanwhile leaves a file that lacks one character if
 * the rest fits into a page. */
int chrome_file_complete(struct chrome_file *f, const char *other_json, struct err *err);
/* Disks and servers report late that there was no room. */
int chrome_file_sync(struct chrome_file *f, struct err *err);
/* Removes the file if it was not published. */
void chrome_file_release(struct chrome_file *f);

/* Whether somebody writes a trace there at this moment. */
bool chrome_file_in_use(const char *path);
/* What others have done to a file under our hands. */
enum chrome_taken {
	CHROME_NOT_TAKEN,
	CHROME_MOVED, /* or removed: there is nothing under its path any more */
	CHROME_CUT, /* what was in it is gone */
};
enum chrome_taken chrome_file_taken(const struct chrome_file *f);

struct chrome_copy; /* formats/chrome_trace/copy.c */

struct chrome_trace {
	struct chrome_trace_options o; /* texts are our own */
	struct chrome_file file;
	struct buf pending; /* comes at file.end */
	struct buf scratch;
	uint64_t events;
	uint64_t lost;
	uint64_t begun_ns; /* the current file */
	uint64_t written_ns; /* the last write of it */
	uint64_t number; /* of the next file that is rotated */
	bool cut; /* somebody has: chrome_begin_anew() */
	bool failing; /* the last write failed: only an explicit flush tries again */
	struct chrome_copy *copies; /* on their way, or done and not asked about */
};

/* formats/chrome_trace/rotate.c */
uint64_t chrome_rotate_next_number(const char *path);
bool chrome_rotate_due(const struct chrome_trace *t);
int chrome_rotate(struct chrome_trace *t, struct err *err);
/* Begins a new file when somebody has taken the old one away; does nothing otherwise. */
int chrome_begin_anew(struct chrome_trace *t, struct err *err);

/* Completes the trace in a copy that takes its place: for a rest of the object that is too long to
 * be written in one step. */
int chrome_trace_replace(struct chrome_trace *t, struct err *err);

/* other_json and what add_members() adds to it. */
void chrome_trace_members(const struct chrome_trace *t, struct buf *out);

/* All events are written: makes the object whole. */
int chrome_trace_complete(struct chrome_trace *t, struct err *err);

/* Writes all that is pending. */
int chrome_trace_write(struct chrome_trace *t, struct err *err);

#endif
