/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The analyses that a recording was asked for (--analysis, --watch), over its stream of rows: while
 * the job runs, and again when a recording is exported. They give a report for people, and findings
 * that belong into rows which are already written: those are amended when their file is closed.
 */
#ifndef SONDE_MEMORY_OUTPUTS_DIAGNOSE_H
#define SONDE_MEMORY_OUTPUTS_DIAGNOSE_H

#include "base/containers/buf.h"
#include "memory/dump/amend.h"
#include "memory/track/track.h"

struct diagnose;

/* Puts a finding into a row that is still in memory; false: its file has to be amended. */
typedef bool (*diagnose_marked)(void *arg, const struct amendment *finding);

/*
 * Findings in rows are spelled as `compat` says. aside: large files are amended beside us, see
 * amender.h.
 */
struct diagnose *diagnose_new(enum row_compat compat, bool aside, diagnose_marked marked,
			      void *arg);
void diagnose_free(struct diagnose *d); /* d may be NULL */

/* For struct track_sink. */
void diagnose_session(struct diagnose *d, const struct mem_config *cfg);
void diagnose_proc(struct diagnose *d, const struct frame_proc *p);
/* A process has chosen its own analyses. */
void diagnose_config(struct diagnose *d, uint32_t pid, const struct mem_config *cfg);
void diagnose_row(struct diagnose *d, const struct row *row);
/* What a process has in memory, and who it is. */
void diagnose_usage(struct diagnose *d, uint32_t pid, uint64_t time_ns, const struct rec_usage *u,
		    uint64_t fading_bytes);
void diagnose_process(struct diagnose *d, uint32_t pid, const struct rec_process *r);
void diagnose_watch(struct diagnose *d, uint32_t pid, const struct watch_sample *s);
void diagnose_relabel(struct diagnose *d, uint32_t pid, uint64_t allocation_id, const char *owner);
/* What is missing of a process; several calls add up. */
void diagnose_lost(struct diagnose *d, uint64_t events, uint64_t stacks, uint64_t damaged_bytes);
uint64_t diagnose_stacks_lost(const struct diagnose *d);
uint64_t diagnose_events_lost(const struct diagnose *d);
/* After its files were closed. */
void diagnose_proc_end(struct diagnose *d, uint32_t pid);

/* For dumps_setup.closed: brings findings into the rows of a finished file. */
void diagnose_file(void *d, uint32_t pid, const char *path);
bool diagnose_is_amending(struct diagnose *d); /* right now */
/* How far that is: bytes of the new files, and of the old ones. */
void diagnose_amended(const struct diagnose *d, uint64_t *out_done, uint64_t *out_all);
uint64_t diagnose_unamended(const struct diagnose *d); /* files where that failed */

/* Was something found that its user must hear of? */
bool diagnose_alarms(struct diagnose *d);

/* What the analyses have to say at the end of a job; of each, what fits on a few pages. */
void diagnose_text(struct diagnose *d, bool colour, struct buf *out);

#endif
