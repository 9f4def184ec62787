/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which files a path stands for. */
#ifndef SONDE_TIMELINE_SOURCES_H
#define SONDE_TIMELINE_SOURCES_H

#include <stddef.h>

#include "base/err.h"
#include "recorder/stream.h"
#include "timeline/timeline.h"

struct processes;

enum source_kind { SOURCE_NONE, SOURCE_MEMORY, SOURCE_ACTIVITY, SOURCE_CHROME, SOURCE_CLOCKS };

struct source_file {
	char *path; /* owned */
	enum source_kind kind;
};

/* Zero-initialise and release. */
struct source_files {
	struct source_file *list;
	size_t n, cap;
};

/* A file is what its first bytes say. A directory stands for the files below it; if there are none,
 * it may have dumps of memory: then it is in the list itself. */
int source_files_find(struct source_files *f, const char *path, struct err *err);
void source_files_release(struct source_files *f);

/*
 * A recording is read twice, however much is in it: first who there is, then everything. Memory reads it;
 * who else wants something of it hears the frames.
 */
struct recording_hearers {
	struct processes *processes; /* memory fills it in, in the first reading */
	const struct stream_listener *names, *all; /* of the two readings; NULL: nobody */
};
/* Also dumps, which nobody else hears. */
int timeline_read_memory(struct timeline *t, const struct timeline_source *from,
			 const struct recording_hearers *others, struct buf *notes,
			 struct err *err);

/* The process, by what the first reading has found; else by the rank and the command that are given. */
struct timeline_process *timeline_process_of(struct timeline *t, const char *host,
					     struct processes *processes, uint32_t pid,
					     int32_t rank, const char *command);

struct recorded_activities;
struct recorded_activities *timeline_hear_activities(struct timeline *t, const char *host,
						     struct processes *processes, struct buf *notes,
						     struct stream_listener *out_all);
int timeline_end_activities(struct recorded_activities *r);

/* Stacks and counters. */
struct sample_source;
struct sample_source *timeline_hear_samples(struct timeline *t, const char *host,
					    struct processes *processes,
					    struct stream_listener *out_names,
					    struct stream_listener *out_all);
void timeline_end_samples(struct sample_source *s);

#endif
