/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Records of one process, and of none, into a recording: what comes is in order of time. */
#ifndef SONDE_ACTIVITY_TRACE_RECORD_WRITER_H
#define SONDE_ACTIVITY_TRACE_RECORD_WRITER_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "recorder/recording.h"
#include "wire/record.h"
#include "wire/request.h"

#define RECORD_PROC 0u /* the number of the process; of no process: PROC_NONE */

struct record_writer {
	struct recording_writer *to;
	struct buf batch;
	size_t run; /* where the one that is not closed begins */
	bool in_run;
	uint64_t records, in_batch;
	uint64_t lost; /* events that are not in it */
	int result; /* of the first frame that could not be written */
	struct err *err;
};

/* A new file. err, of which the last one is that of record_writer_close(), must live as long. */
int record_writer_open(struct record_writer *w, const char *path, uint64_t lost, struct err *err);
void record_frame(struct record_writer *w, enum frame_type type, const void *payload, size_t bytes);
/* A record of so many bytes, of which its size is filled in; with a text of two parts behind it. */
void record_put(struct record_writer *w, uint32_t proc, uint32_t tid, void *record, size_t bytes);
void record_put_text(struct record_writer *w, uint32_t proc, uint32_t tid, void *record,
		     size_t fixed, struct request_text a, struct request_text b);
/* The process ends, and the recording. */
int record_writer_close(struct record_writer *w, uint64_t time_ns);

#endif
