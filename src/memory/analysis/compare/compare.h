/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Two recordings side by side: which calls of operators (or kernels) stand in both, and what the
 * memory next to each of them is.
 *
 *	c = compare_new(COMPARE_OPERATORS);
 *	compare_add(c, COMPARE_BASE, row);  … compare_add(c, COMPARE_OTHER, row);
 *	if (compare_unordered(c, side)) { compare_restart(c, side); the rows of that side again }
 *	r = compare_finish(c, err);
 *	compare_csv(), compare_text(), compare_json(), compare_differences()
 *
 * Each device is compared by itself. Its calls, in order of (time, id), form a sequence of names;
 * align.h says which belong together. The memory of a call is the size of the first MALLOC or FREE
 * row of the framework's pool at or behind it, 0 where there is none. The framework is PTA (with
 * its workspace) or MindSpore, the same for both sides; ATB counts where neither has rows.
 *
 * What is kept are some 13 bytes for each call, and every name once. Rows that go back in time are
 * noticed; after compare_restart() a side is sorted, for which 40 bytes are kept for each row that
 * matters. Not thread safe.
 *
 * The JSON object (bytes and counts are integers; a call is known by its place in the sequence of
 * its device, counted from 1):
 *
 *	identical      no call stands in one side only, and none has other memory
 *	what           "operator", "kernel" or "call" (both)
 *	framework      "PTA", "MindSpore", "ATB" or null
 *	calls          base, compare, both, only_base, only_compare, other_memory (of both)
 *	memory         base_bytes, compare_bytes, diff_bytes: sums over all calls; both_diff_bytes
 *	devices[]      device, calls, memory
 *	names_total, names[]        the `top` names with the largest differences: name, calls,
 *	               memory
 *	differences_total, differences[]   the `top` largest: event, name, device, base_call,
 *	               compare_call, base_bytes, compare_bytes (null: not there), diff_bytes
 *	notes[]
 *	incomplete     a sentence (memory/analysis/processes/loss.h), or null
 *	lost           base, compare
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMPARE_COMPARE_H
#define SONDE_MEMORY_ANALYSIS_COMPARE_COMPARE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "memory/dump/row.h"

struct compare;
struct input_choice;

enum compare_side { COMPARE_BASE, COMPARE_OTHER };
enum compare_level {
	COMPARE_OPERATORS = 1 << 0,
	COMPARE_KERNELS = 1 << 1,
	COMPARE_SITES = 1 << 2, /* by itself: call sites instead of calls, see sites.h */
};

struct compare *compare_new(unsigned level);
void compare_free(struct compare *c); /* c may be NULL */

void compare_add(struct compare *c, enum compare_side side, const struct row *row);

/* Rows of that side went back in time; never after compare_restart(). */
bool compare_unordered(const struct compare *c, enum compare_side side);
/* Forgets the rows of that side; those that come now are sorted. */
void compare_restart(struct compare *c, enum compare_side side);

/*
 * The rows of a file, a recording or a directory, again if they are not in order. A directory stands
 * for its newest dump, with those of the other devices of its process, or its newest recording; for
 * call sites, and for chosen processes, the recording comes first, which has all processes. A recorder that is still finishing
 * its files is waited for.
 */
struct compare_input_options {
	unsigned wait_s; /* for a recorder that is still finishing its files */
	struct input_choice *choice; /* of processes; NULL: all */
};
int compare_read(struct compare *c, enum compare_side side, const char *path,
		 const struct compare_input_options *options, struct err *err);

/* A sentence for the reader. */
void compare_note(struct compare *c, const char *text);

/*
 * When all rows are in: pairs the calls. -ENODATA if there is not a single call, -ENOTSUP for
 * operators of MindSpore, -EBADMSG where both frameworks are met.
 */
int compare_finish(struct compare *c, struct err *err);

/* Calls that stand in one side only, or in both with other memory; call sites that differ. */
uint64_t compare_differences(const struct compare *c);
bool compare_is_complete(const struct compare *c); /* nothing is missing from either input */

/*
 * Writes memory_compare_<time>.csv below dir, which is made if need be, and adds its path to
 * out_path. Nothing is left on failure.
 */
int compare_csv(const struct compare *c, const char *dir, struct buf *out_path, struct err *err);

/*
 * Which recording or dump each side was, a line each; in JSON, inputs: base, compare, each with kind
 * ("recording" or "dump"), files[], newer_recording (that was not read, or null).
 */
void compare_sources_text(const struct compare *c, struct buf *out);
void compare_sources_json(const struct compare *c, json_t *answer);

/* The answer first, then the `top` largest differences, by name and one by one, then the notes. */
void compare_text(const struct compare *c, unsigned top, bool colour, struct buf *out);

/* A new object; NULL: out of memory. */
json_t *compare_json(const struct compare *c, unsigned top);

#endif
