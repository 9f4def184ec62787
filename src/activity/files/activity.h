/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities as files have them: texts resolved, times of the wall clock, marks put together to
 * ranges. One ops table per format; a file is readable at every moment, whoever is killed.
 */
#ifndef SONDE_ACTIVITY_FILES_ACTIVITY_H
#define SONDE_ACTIVITY_FILES_ACTIVITY_H

#include "base/err.h"
#include "wire/record.h"

#include <stdbool.h>
#include <stdint.h>

struct activity {
	uint64_t start_ns, end_ns; /* wall clock; an instantaneous mark: both the same */
	uint64_t correlation; /* of a marker its id */
	uint64_t amount; /* see struct rec_activity */
	uint64_t number; /* `more` where it is none of the texts: address, value */
	/* Never NULL, valid UTF-8, live as long as the process is followed: equal texts of a
	 * process have equal pointers. "" where there is none; of a marker without a domain
	 * "default". */
	const char *name, *detail, *more;
	uint32_t pid, tid; /* of what happened on the host, else 0 */
	uint32_t device, stream; /* of what happened on a device; ACTIVITY_NOWHERE */
	uint8_t kind; /* enum activity_kind */
	uint8_t place; /* enum activity_place */
	uint8_t flag, async;
	uint16_t data_type;
};

/* Whose activities these are. */
struct activity_origin {
	uint32_t pid;
	int32_t rank; /* -1: not known */
	uint64_t start_ns; /* wall clock, of the window: what ended before is not in it */
};

struct activity_options {
	uint32_t lines_per_file; /* of Jsonl: 0 the default */
	int32_t files; /* that are kept; 0 or -1: all */
};

/* What is known only at the end. */
struct activity_closing {
	uint64_t end_ns;
	const char *groups; /* parallel_group_info as JSON text; NULL: not known */
	uint64_t lost; /* activities that are missing */
};

struct activity_writer;

struct activity_writer_ops {
	const char *name; /* "DB", "Jsonl" */
	/* Makes dir if need be; the first file appears with the first activity. */
	struct activity_writer *(*open)(const char *dir, const struct activity_origin *who,
					const struct activity_options *options);
	/* -ENOTSUP: the format has no place for this kind. */
	int (*put)(struct activity_writer *w, const struct activity *a, struct err *err);
	/* All that was put is on disk, and readable with what it refers to. */
	int (*flush)(struct activity_writer *w, struct err *err);
	/* Frees w in any case. */
	int (*close)(struct activity_writer *w, const struct activity_closing *c, struct err *err);
	/* Path of the newest file; "" before the first. */
	const char *(*path)(const struct activity_writer *w);
	/* What follows is of this process. NULL: the file is of one, or does not tell them apart.
	 */
	void (*whose)(struct activity_writer *w, const struct activity_origin *who);
};

extern const struct activity_writer_ops activity_db; /* activity/files/db.c */
extern const struct activity_writer_ops activity_jsonl; /* activity/files/jsonl.c */
/* One trace.json for a window: activity/files/chrome.c. dir is that of the trace, the file's name
 * fixed.
 */
extern const struct activity_writer_ops activity_chrome;

/* As MSPTI names them: FP32 …; "INVALID_TYPE". */
const char *activity_data_type(uint16_t type);

#endif
