/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Everything that comes out of a stream of rows: dump files, watch files, calls, and the diagnosis.
 * The recorder feeds it while a job runs; an export feeds it from a recording.
 */
#ifndef SONDE_MEMORY_OUTPUTS_OUTPUTS_H
#define SONDE_MEMORY_OUTPUTS_OUTPUTS_H

#include "memory/options/asked.h"
#include "memory/outputs/call_files.h"
#include "memory/outputs/diagnose.h"
#include "memory/outputs/dumps.h"
#include "memory/outputs/watch_files.h"
#include "memory/track/track.h"

struct outputs {
	struct track *track; /* feed it with the stream */
	struct dumps *dumps;
	struct diagnose *diagnose;
	struct watch_files *watch;
	struct trace_files *trace;
	struct mem_asked asked; /* what is known of the job's GPUs */
	uint64_t rows; /* that were made */
	uint64_t gpus; /* records of devices that the job has found, which make none */
	uint64_t refusals; /* requests for memory that were refused */
	uint32_t row_proc; /* of the last one */
	bool silent; /* nothing is written, and no analysis runs: see outputs_stream() */
	char *config; /* file that says what the first process with settings of its own wants */
	uint32_t config_proc; /* it; UINT32_MAX: none so far */
};

struct outputs_where {
	const char *output_dir;
	const char *recording_dir; /* where the job left what it wrote itself */
	enum dumps_flags flags;
	bool aside; /* amend large dumps beside us, since there is other work to do */
	const char *below; /* of struct dumps_setup */
	bool silent;
	bool by_job; /* the job itself says what to record: its settings go to recording_dir */
};
void outputs_open(struct outputs *o, const struct outputs_where *where,
		  const struct writer_ops *ops, enum row_compat compat);
/* What the recorder passes on: everything, or only what counts losses and devices. */
const struct stream_ops *outputs_stream(const struct outputs *o);
void outputs_flush(struct outputs *o, bool all); /* see dumps_flush_old() */
void outputs_close(struct outputs *o);

/* Writes the dumps of a recording: a file, or the directory that holds it. */
struct outputs_export {
	const char *format; /* csv, db */
	const char *output_dir;
	enum row_compat compat;
	bool as_recorded; /* processes that chose another format or directory have it … */
	const char *below; /* … if the directory is not outside of this one; NULL: anywhere */
	struct buf *out_notes; /* lines about what they lack; may be NULL */
	struct buf *out_refused; /* one that is; empty: none. May be NULL */
};
/* -EFBIG: they are written, but not all of the recording is in them. */
int outputs_export(const char *path, const struct outputs_export *options, struct err *err);

#endif
