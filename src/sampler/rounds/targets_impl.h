/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The parts of targets.c. */
#ifndef SONDE_SAMPLER_ROUNDS_TARGETS_IMPL_H
#define SONDE_SAMPLER_ROUNDS_TARGETS_IMPL_H

#include <poll.h>

#include "base/containers/hmap.h"
#include "sampler/rounds/targets.h"

/* --- whether it is still the same process (targets_life.c) --- */

/*
 * Something that belongs to the process and never to another one under its pid: a pidfd, or on
 * older kernels its open /proc/PID/stat.
 */
struct life {
	bool known; /* else there was no such process */
	int pidfd; /* -1 */
	int stat; /* -1 */
};

int life_open(struct life *l, pid_t pid); /* -ESRCH, -EMFILE */
void life_close(struct life *l);
bool life_over(const struct life *l);

/* Which program it runs: changes with exec. 0 if that is not known. */
uint64_t life_program(pid_t pid);

/* How long a process of this start_ticks has been there. */
uint64_t life_age_ns(uint64_t start_ticks);

/* It runs in the memory of its parent, as between vfork and exec. False if that is not known. */
bool life_is_in_parent(pid_t pid, pid_t parent);

/* --- a target and what only we need of it --- */

#define MS 1000000ull
#define WAIT_FIRST_NS (20 * MS) /* between two tries to open one that is not ready */
#define WAIT_LAST_NS (1000 * MS)
#define LOOK_FIRST_NS                                                                              \
	(500 * MS) /* the same for one that is no Python process: it may become one                \
		    */
#define LOOK_LAST_NS (30000 * MS)
#define YOUNG_NS (700 * MS) /* what runs for less may be about to run, or to load, its Python */
#define COPY_NS (15 * MS) /* how long what fork made may be about to exec */
#define PROGRAM_NS (200 * MS) /* between two looks at which program a refused one runs */
#define LOOK_EVERY_NS (10 * MS)
#define OPEN_BUDGET_NS (5 * MS)
#define MAX_FAILS 100 /* rounds in which nothing could be copied, until it is opened anew */
#define MAX_SENSELESS 5 /* times that one may make no sense: it may be between two programs */

struct tracked {
	struct target t; /* first: list points to it */
	bool named; /* by its pid */
	bool told; /* on_new */
	struct life life;
	uint64_t program;
	uint64_t program_ns; /* when to look at it again */
	uint64_t young_ns; /* until when it is */
	uint64_t back_off_ns, look_ns;
	unsigned tries, fails;
};

static inline struct tracked *tracked_of(struct target *t)
{
	return (struct tracked *)t;
}

/* Refused with -ESRCH if it is not there. */
struct tracked *tracked_new(const struct discovered *d);
/* Reads rank and command line anew. */
void tracked_describe(struct tracked *one);
void tracked_free(struct tracked *one);

/* --- searching beside the samples (targets_search.c) --- */

struct search;

struct search *search_new(const struct discover_rules *rules); /* copies them */
void search_free(struct search *s); /* does not wait */

/*
 * 1 and *out if there is an answer: always when `now`, which waits for it; else when one that was
 * due has come. 0 if there is none yet. `empty`: nothing is being looked at.
 */
int search_take(struct search *s, bool now, bool empty, struct discovery *out, struct err *err);

/* Where the rules want descendants: those of this process, too, even when whoever started it has
 * ended. Between search_take() and the next. */
void search_follow(struct search *s, pid_t pid, uint64_t start_ticks);

/* --- the whole --- */

struct captured {
	struct tracked *one;
	int result;
};

struct targets_inside {
	struct targets_options o;
	struct search *search;
	bool searched; /* once */
	char how[sizeof(((struct discovery *)0)->how)]; /* the last time */
	struct hmap by_pid; /* struct tracked, those that are not gone */
	size_t cap; /* of list */
	unsigned gone; /* in list */
	uint64_t serials;
	uint64_t look_ns; /* when to look after those that are not open */
	struct captured *round;
	size_t round_cap;
	struct pollfd *polls;
	size_t polls_cap;
};

/* Marks those of the first n of `round` that have ended with -ESRCH: whatever was copied may be
 * from another process. */
void lives_check(struct targets_inside *in, unsigned n);

#endif
