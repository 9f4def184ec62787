/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The processes that are sampled: those that were named, and those that rules find, followed while
 * they come and go. A pid alone is no identity: a process is known by pid and start time.
 *
 * One thread uses it; searches run in a thread of their own (search.h). Targets belong to the list
 * and last until the refresh after they are gone.
 */
#ifndef SONDE_SAMPLER_ROUNDS_TARGETS_H
#define SONDE_SAMPLER_ROUNDS_TARGETS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sampler/discover/discover.h"
#include "unwind/remote/python.h"

enum target_state {
	TARGET_NEW, /* not opened yet */
	TARGET_WAITING, /* Python is not ready, or not to be read for the moment: tried again */
	TARGET_OPEN, /* python is there */
	TARGET_REFUSED, /* no Python process, or not ours to read: `err` says why. Not tried again
			 */
	TARGET_GONE, /* ended; reported once and dropped with the next refresh */
};

/* See roles.h. */
enum target_role { ROLE_OTHER, ROLE_RANK, ROLE_HELPER, ROLE_LAUNCHER };

struct target {
	pid_t pid;
	uint64_t start_ticks; /* field 22 of /proc/PID/stat */
	uint64_t serial; /* never used again */
	pid_t parent;
	struct process_rank own; /* what the process itself says */
	enum target_role role;
	bool counts; /* answers are about it */
	int rank; /* of a helper that of the process it helps; -1 if unknown */
	int local_rank; /* -1 */
	int device; /* card on which it was found; -1 */
	char *cmdline; /* words joined by blanks, printable */
	char *label; /* "rank 3: python train.py", "helper of rank 3: …", "python train.py" */
	enum target_state state;
	struct python_process *python; /* if TARGET_OPEN */
	struct err err; /* why it is refused or waits */
	uint64_t retry_ns; /* when to try again */
	void *user; /* of the user of this module; freed by on_gone */
};

struct targets {
	struct target **list; /* in order of pid, or of the command line */
	unsigned n;
	struct targets_inside *inside;
};

struct targets_options {
	const struct discover_rules *rules;
	struct python_options python;
	/* Called when the Python of a process is there, for the first time. May be NULL. */
	void (*on_new)(void *arg, struct target *t);
	/* Called for each of these when it turned out who it is: its label has changed. May be
	 * NULL. */
	void (*on_renamed)(void *arg, struct target *t);
	/* Called for each of these when it has ended, runs another program, or with targets_free().
	 * May be NULL. */
	void (*on_gone)(void *arg, struct target *t);
	void *arg;
};

struct targets *targets_new(const struct targets_options *o);
void targets_free(struct targets *s);

/*
 * Looks for new processes if it is time for it (discover_rules.refresh_ms; always when `now`),
 * drops dead ones, opens new ones. Cheap when nothing is due. Fails only if the rules cannot be
 * carried out at all.
 */
int targets_refresh(struct targets *s, bool now, struct err *err);

/* Which sources the last search used, for people, and what hindered it: "NVML (2 of 4 processes are
 * not of this pid namespace)"; "" before the first. */
const char *targets_found_by(const struct targets *s);

/* Reads anew which ranks the processes are, as far as that may have changed: a job joins its process
 * group some time after it was started. Refreshing does that, too, less and less often. */
void targets_identify(struct targets *s);

/* How many are open; how many may still be opened. */
unsigned targets_open(const struct targets *s);
unsigned targets_waiting(const struct targets *s);

/*
 * One round: the stacks of all open processes are copied, one directly after the other, then
 * resolved. A process that has ended turns TARGET_GONE (on_gone is called). Returns the number of
 * processes captured. *out_skew_ns: from the first copy to the beginning of the last.
 */
unsigned targets_round(struct targets *s, uint64_t *out_skew_ns);

#endif
