/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where rows go on disk, as users of msmemscope know it:
 *
 *	<output>/msmemscope_<pid>_<YYYYmmddHHMMSS>_ascend/config.json
 *	<output>/msmemscope_<pid>_<time>_ascend/device_<N>/dump/memscope_dump_<time>.csv
 *
 * Names follow from the recording alone, so an export made later lands on the same names. Rows
 * without a device stand in the file of every device of their process.
 *
 * Files that are written anew (DUMPS_REPLACE) are made beside the old ones and take their places
 * when they are complete: who has an old one open keeps it, and who opens it later has all rows.
 */
#ifndef SONDE_MEMORY_OUTPUTS_DUMPS_H
#define SONDE_MEMORY_OUTPUTS_DUMPS_H

#include "base/containers/buf.h"
#include "base/fs.h"
#include "memory/dump/amend.h"
#include "memory/dump/writer.h"
#include "memory/track/track.h"

struct dumps;

enum dumps_flags {
	DUMPS_REPLACE = 1 << 0, /* files of an unfinished run are written anew */
	DUMPS_AS_CONFIGURED = 1 << 1, /* a process may choose its format and place by itself */
	DUMPS_SPARE_ROOM = 1 << 2, /* they end where the disk is nearly full: others need it more */
};

struct dumps_setup {
	enum dumps_flags flags;
	const struct writer_ops *ops;
	enum row_compat compat;
	/* Called with every file that is complete, after it was closed. */
	void (*closed)(void *arg, uint32_t pid, const char *path);
	void *closed_arg;
	/* Not NULL: nothing is written anywhere else, whatever the stream says, and no link is
	 * followed there. A path as fs_resolve() gives it. */
	const char *below;
};
struct dumps *dumps_new(const char *output_dir, const struct dumps_setup *setup);
void dumps_free(struct dumps *d); /* closes what is open */
void dumps_set_track(struct dumps *d, const struct track *t);

/* For struct track_sink. */
void dumps_proc(void *arg, const struct frame_proc *p);
void dumps_config(void *arg, uint32_t proc, const struct mem_config *cfg);
void dumps_row(void *arg, uint32_t proc, const struct row *row);
void dumps_proc_end(void *arg, const struct frame_proc_end *e);

/* The process behind a number, 0 if it is not open. */
uint32_t dumps_pid(const struct dumps *d, uint32_t proc);

/* Makes <project>/device_<N>/<folder> of a process, for files beside its dumps; out_time is the
 * time in their names. */
int dumps_make_dir(struct dumps *d, uint32_t proc, uint32_t device, const char *folder,
		   struct buf *out_dir, char out_time[FS_TIMESTAMP_BYTES], struct err *err);
bool dumps_replaces(const struct dumps *d); /* DUMPS_REPLACE */
/* Where a file is made that takes the place of another; to be freed. */
char *dumps_name_new(const char *path);
/* The first directory that the stream has named and `below` forbids; NULL: none. */
const char *dumps_refused(const struct dumps *d);

/* The first device that a process has a file of, DEV_NONE if there is none yet. */
uint32_t dumps_first_device(const struct dumps *d, uint32_t proc);
/* Whether its files are databases; then the file of its first device, NULL for none, with all rows
 * in it: another connection may write to it now. */
bool dumps_is_db(const struct dumps *d, uint32_t proc);
const char *dumps_settle(struct dumps *d, uint32_t proc);
/* Rows of files beside the dumps that could not be written; counted with the others. */
void dumps_lose(struct dumps *d, uint64_t rows, const struct err *why);

/* Brings all rows to their files; or those that were there at the call before, if findings
 * about blocks may still come. */
void dumps_flush(struct dumps *d);
void dumps_flush_old(struct dumps *d);
/* Something became known about a block after its MALLOC row. False: the row is in its file. */
bool dumps_amend(struct dumps *d, uint32_t proc, struct amendment finding);

/* Rows that could not be written, and the first reason. */
uint64_t dumps_lost(const struct dumps *d, struct err *out_why);

#endif
