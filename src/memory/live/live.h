/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A recording while another process writes it: what its processes hold now, what they held over time,
 * and from where. Reads what has been added since the last time, so that looking again costs what is
 * new. Memory grows with live blocks and distinct call sites, up to LIVE_MAX_SITES, not with time.
 *
 *	live_open(&l, path, err);
 *	while (live_read(l, until_ns, err) >= 0 && live_state(l) == LIVE_RUNNING)
 *		… live_groups(l, &view, &groups); …
 */
#ifndef SONDE_MEMORY_LIVE_LIVE_H
#define SONDE_MEMORY_LIVE_LIVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/numbers/bin_course.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/processes/loss.h"
#include "memory/analysis/processes/processes.h"

#define LIVE_BINS COURSE_BINS
#define LIVE_MAX_SITES (1u << 18) /* that are told apart */
#define LIVE_MAX_COURSES 1024

enum live_state {
	LIVE_RUNNING,
	LIVE_ENDED, /* the recorder has left in order */
	LIVE_KILLED, /* or has not: there may be more in the buffers */
};

/* What is held, and what was ever allocated. */
struct live_count {
	uint64_t bytes, blocks;
	uint64_t left_bytes, left_blocks; /* at the end of processes that have ended */
	uint64_t allocated_bytes, allocations;
};

/* Memory of a kind that has one course: of a process and device, or of all processes of a device. */
struct live_course {
	uint32_t device; /* DEV_HOST: host memory */
	const struct block_device *of; /* NULL: of all processes */
	uint64_t now, peak, peak_ns;
	uint64_t left; /* at the end of processes that have ended */
	struct bin_course over_time;
};

struct live;

int live_open(struct live **out, const char *path, struct err *err);
void live_free(struct live *l); /* l may be NULL */

/* Reads what there is, but no longer than that. 1: there is more now; 0: that was all. */
int live_read(struct live *l, uint64_t until_ns, struct err *err);
enum live_state live_state(const struct live *l);

const char *live_path(const struct live *l);
/* How much of the file has been read, of how much. */
void live_progress(const struct live *l, uint64_t *out_read, uint64_t *out_size);
const struct blocks *live_blocks(const struct live *l);
const struct processes *live_processes(const struct live *l);
struct loss live_loss(const struct live *l); /* so far */
uint64_t live_newest_ns(const struct live *l); /* of its records, since the epoch */

/* Courses; all of them have the same bins. */
size_t live_courses(const struct live *l, const struct live_course *const **out);
uint64_t live_bin_ns(const struct live *l, uint64_t *out_first_ns);
/* The bins of a course up to the newest of any; returns their number. */
size_t live_course_bins(const struct live *l, const struct live_course *c, uint64_t out[LIVE_BINS]);

/* --- groups --- */

enum live_by { LIVE_BY_LINE, LIVE_BY_OWNER, LIVE_BY_MODULE };
enum live_sort {
	LIVE_SORT_HELD,
	LIVE_SORT_BLOCKS,
	LIVE_SORT_ALLOCATED,
	LIVE_SORT_CALLS,
	LIVE_SORT_NAME
};
extern const char *const live_by_names[], *const live_sort_names[]; /* ended by NULL */

struct live_view {
	unsigned by, sort; /* enum live_by, live_sort */
	bool inverted;
	bool by_pid;
	uint32_t pid; /* with by_pid: of this process alone */
	const char *filter; /* a part of the name */
};

struct live_group {
	char *name; /* printable */
	enum row_type pool;
	struct live_count n;
	uint64_t held; /* what is shown: bytes, or those that were left if all have ended */
	uint64_t held_blocks;
};

struct live_groups {
	struct live_group *list; /* in the order that was asked for */
	size_t n, cap;
	uint64_t most; /* held by one of them */
};

void live_groups(struct live *l, const struct live_view *v, struct live_groups *out);
void live_groups_release(struct live_groups *g);

/* --- answers (answer.c) --- */

struct live_display {
	unsigned width; /* of the terminal; 0: there is none */
	unsigned rows; /* that there is room for; 0: for everything */
	unsigned top; /* groups, at most */
	size_t first; /* group that is shown first */
	bool colours;
};

/* Sentences, each a line: what is held, from where, what is missing. */
void live_describe(struct live *l, const struct live_view *v, struct buf *out);
/* Sentences, courses and groups. Returns how many of the `n` groups there was room for. */
void live_courses_text(struct live *l, const struct live_view *v,
		       const struct live_display *display, struct buf *out);
void live_groups_text(const struct live_groups *g, const struct live_view *v,
		      const struct live_display *display, struct buf *out);
/* An object with everything: docs/json.md. */
json_t *live_json(struct live *l, const struct live_view *v, unsigned top);

#endif
