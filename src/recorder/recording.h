/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Writing and reading the recording file (wire/recording.h says what is in it). */
#ifndef SONDE_RECORDER_RECORDING_H
#define SONDE_RECORDER_RECORDING_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "wire/recording.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* --- writing --- */

struct recording_writer;

/* Creates the file, or opens one that exists and goes on behind its last whole frame. */
int recording_create(struct recording_writer **out, const char *path, struct err *err);
/* -EEXIST: there is a file of that name. */
int recording_create_new(struct recording_writer **out, const char *path, mode_t mode,
			 struct err *err);

/*
 * Appends one frame with a single write. On failure (full disk) the file is cut back to its last
 * whole frame and the error returned; a later append may succeed again.
 */
int recording_append(struct recording_writer *w, enum frame_type type, const void *payload,
		     size_t bytes, struct err *err);
/* Has somebody deleted the file, or its directory? */
/*
 * For a file that lacks its oldest part: readers that do not know of such files refuse it. To be
 * called first. recording_copy() appends bytes of another one as they are, from a frame to a frame.
 */
int recording_set_cut(struct recording_writer *w, struct err *err);
int recording_copy(struct recording_writer *w, int from, uint64_t begin, uint64_t end,
		   struct err *err);
int recording_sync(struct recording_writer *w, struct err *err); /* to the disk */
/*
 * Goes on in the file `next`, which gets the name `path` in one step: it has everything that is to
 * stay of the first `done` bytes; what came after them is copied behind that. Nothing has changed
 * after an error.
 */
int recording_replace(struct recording_writer *w, const char *path, const char *next, uint64_t done,
		      struct err *err);
/* Takes disk space in smaller pieces, for a recording of so many bytes at most. */
void recording_expect(struct recording_writer *w, uint64_t max_bytes);
bool recording_is_removed(const struct recording_writer *w);
uint64_t recording_bytes(const struct recording_writer *w);
void recording_close(struct recording_writer *w);

/* --- reading --- */

/* The recording meant by a path: the file itself, or the one in a recording's directory. */
int recording_find(const char *path, struct buf *out_file, struct err *err);

struct recording_reader;

int recording_open(struct recording_reader **out, const char *path, struct err *err);

/*
 * The next frame: 1 and its payload (borrowed until the next call), 0 at the end, negative on a
 * read error. A damaged frame is passed over: recording_skipped() is the number of bytes between the
 * frame before and this one. If none follows, the file ends there: see recording_torn().
 */
int recording_next(struct recording_reader *r, uint32_t *out_type, const char **out_payload,
		   size_t *out_bytes, struct err *err);
uint64_t recording_skipped(const struct recording_reader *r);
/*
 * For a file that somebody writes meanwhile: recording_next() goes on with what has been added since.
 * From now on a frame that is half there at its end is no damage, it is not complete yet. 1: there is
 * more of it; 0: not; -ESTALE: `path` is another file now, or this one has become shorter.
 */
int recording_refresh(struct recording_reader *r, const char *path, struct err *err);
bool recording_torn(const struct recording_reader *r);
uint32_t recording_version(const struct recording_reader *r); /* of the file */
/* How far whole frames reach, and the size of the file. */
uint64_t recording_offset(const struct recording_reader *r);
uint64_t recording_size(const struct recording_reader *r);
void recording_reader_free(struct recording_reader *r);

#endif
