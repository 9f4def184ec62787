/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Watched memory on disk, beside the dumps, as users of msmemscope know it:
 *
 *	<project>/device_<N>/watch_dump/watch_dump_data_check_sum_<time>.csv	every look
 *	<project>/device_<N>/watch_dump/<name>.bin		its bytes, with full-content
 *
 * The bytes were written by the job itself, into the recording's directory; they are moved.
 */
#ifndef SONDE_MEMORY_OUTPUTS_WATCH_FILES_H
#define SONDE_MEMORY_OUTPUTS_WATCH_FILES_H

#include "memory/analysis/watch/watch.h"
#include "memory/outputs/dumps.h"

struct watch_files;

/* recording_dir: where the job left the bytes. */
struct watch_files *watch_files_new(struct dumps *d, const char *recording_dir);
void watch_files_free(struct watch_files *f); /* writes what is left; f may be NULL */

/* For struct track_sink. proc must still be open in the dumps. */
void watch_files_sample(struct watch_files *f, uint32_t proc, const struct watch_sample *s);
void watch_files_proc_end(struct watch_files *f, uint32_t proc);

/* Brings all looks to their files. */
void watch_files_flush(struct watch_files *f);

/* "0_4711/aten.add.Tensor_2-aten.mm.default_0_before.bin", as in the file of checksums. */
void watch_files_name(const struct watch_sample *s, struct buf *out);

#endif
