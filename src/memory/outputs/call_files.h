/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Calls of functions on disk, beside the dumps, as users of msmemscope know it:
 *
 *	<project>/device_<N>/dump/python_trace_<tid>_<time>.csv		one file per thread
 *	<project>/device_<N>/dump/memscope_dump_<time>.db		table python_trace_<pid>
 *
 * N is the first device that the process uses, `cpu` if it has used none when its calls must be
 * written: when it stops tracing, when it ends, or when there are very many. With --format=db and
 * no dump of a device the table is in python_trace_<time>.db.
 */
#ifndef SONDE_MEMORY_OUTPUTS_CALL_FILES_H
#define SONDE_MEMORY_OUTPUTS_CALL_FILES_H

#include "memory/dump/calls.h"
#include "memory/outputs/dumps.h"

struct trace_files;

struct trace_files *trace_files_new(struct dumps *d);
void trace_files_free(struct trace_files *f); /* writes what is left; f may be NULL */

/* For struct track_sink. proc must still be open in the dumps. */
void trace_files_row(struct trace_files *f, uint32_t proc, const struct trace_row *row);
void trace_files_proc_end(struct trace_files *f, uint32_t proc);

/* Brings all rows to their files, except those of a process whose place is not decided. */
void trace_files_flush(struct trace_files *f);

#endif
