/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Reads activities out of files: DB and Jsonl, ours and those of msmonitor. They may come from
 * anywhere: every byte is checked, and what is no such file is refused with words. Two things that
 * a killed writer leaves behind are no errors: a last line without an end, and a DB whose texts
 * were never written.
 */
#ifndef SONDE_ACTIVITY_READ_READ_H
#define SONDE_ACTIVITY_READ_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activity/files/activity.h"
#include "base/err.h"

/* Whether the file has its end: nobody knows what else a writer would have had to say. */
enum activity_end {
	ACTIVITY_END_UNKNOWN, /* a DB of msmonitor does not say */
	ACTIVITY_END_MISSING, /* its writer was killed, or is still writing */
	ACTIVITY_END_THERE,
};

/* What a file says besides. Zero-initialise and release. */
struct activity_about {
	const char *format; /* "DB", "Jsonl", "recording" */
	uint32_t pid; /* 0: not known */
	int32_t rank; /* -1: not known */
	char *host; /* its name; NULL: not known */
	uint64_t start_ns, end_ns; /* of the session; 0: not known */
	uint64_t lost; /* that the writer missed, as far as it says */
	uint64_t rotated_files; /* removed before the end to make room for newer ones */
	uint64_t activities;
	uint64_t skipped; /* lines or rows of a kind that is not known here */
	char *groups; /* parallel_group_info; NULL */
	enum activity_end end;
	bool torn; /* the last line has no end */
	bool nameless; /* there are no texts */
	bool has_marks; /* a recording: there are marks besides activities */
};

void activity_about_release(struct activity_about *a);

/* Texts of the activity live as long as the program, equal ones have equal pointers. Not 0 ends
 * reading, and is what activity_read() returns. */
typedef int (*activity_read_fn)(void *arg, const struct activity *a);

/* Activities come in the order of the file: of a DB table by table. */
int activity_read(const char *path, activity_read_fn fn, void *arg, struct activity_about *about,
		  struct err *err);

/* Whether a file of this name may be one: it ends with .db or .jsonl. */
bool activity_read_is_name(const char *name);

/* What it is not, why, and what is expected; -EINVAL. */
int activity_read_refuse(const char *path, const char *why, struct err *err);

/* One line without its end. 1: an activity, 0: something else, -EBADMSG: not well formed. */
int activity_read_line(const char *line, size_t len, struct activity *out,
		       struct activity_about *about, struct err *err);

/* activity/read/read_db.c, activity/read/read_jsonl.c */
int activity_read_db(const char *path, activity_read_fn fn, void *arg, struct activity_about *about,
		     struct err *err);
int activity_read_jsonl(const char *path, activity_read_fn fn, void *arg,
			struct activity_about *about, struct err *err);

/* Files of activities. Zero-initialise and release. */
struct activity_paths {
	char **list;
	size_t n, cap;
};

/* Adds the files that the words name. A directory stands for the files in it, or for those of the
 * traces and recordings below it; those of one process follow each other. A recording has one path
 * for each of its processes (recording.h). */
int activity_paths_find(struct activity_paths *p, char **words, int n, struct err *err);
void activity_paths_release(struct activity_paths *p);

#endif
