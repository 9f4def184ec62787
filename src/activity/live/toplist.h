/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What takes the time of one process' devices, as its recorder reports it for each interval
 * (docs/top.md): the last two reports, and for every name how long it usually takes, so that one
 * that has become slower is noticed. No clock, no sockets; memory is bounded whatever is reported.
 */
#ifndef SONDE_ACTIVITY_LIVE_TOPLIST_H
#define SONDE_ACTIVITY_LIVE_TOPLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/record.h"

#define TOPLIST_MAX_ROWS 512
#define TOPLIST_MAX_DEVICES 64
#define TOPLIST_MAX_NAME (REC_MAX_NAME + 16) /* bytes: one that was cut says so */
#define TOPLIST_MAX_KIND 32
#define TOPLIST_MAX_KNOWN 1024 /* names whose usual time is known */
#define TOPLIST_MODULE "Module" /* kinds of rows that say whose work it was, not what */
#define TOPLIST_LINE "Line"
#define TOPLIST_DEPTH 6 /* objects and arrays inside one another */

struct toplist_row {
	const char *kind, *name; /* live as long as the report */
	int32_t device; /* -1: none */
	uint64_t calls, total_ns, min_ns, max_ns, p50_ns, p99_ns;
	uint64_t inside_ns; /* what of total_ns, and of calls that went on, was in the interval */
};

struct toplist_device {
	int32_t device;
	uint64_t busy_ns, kernel_ns, comm_ns, copy_ns; /* at most the interval */
	uint64_t late_ns; /* that was reported too late to be in them */
};

/* What is missing since the monitor was started. */
enum toplist_loss {
	TOPLIST_LOST, /* activities that were not recorded */
	TOPLIST_INCOMPLETE, /* marks without an end, or without a name */
	TOPLIST_CROWDED, /* activities in no sum: there are too many devices */
	TOPLIST_UNWRITTEN, /* activities that did not get into their file */
	TOPLIST_UNSENT, /* reports that did not reach the daemon */
	TOPLIST_LOSSES,
};

extern const char *const toplist_loss_names[TOPLIST_LOSSES]; /* "lost" … */

/* One interval, as it was sent. */
struct toplist_report {
	int32_t pid; /* as the process knows itself */
	int32_t rank; /* -1: not known */
	int64_t from_ns, to_ns; /* wall clock */
	uint64_t interval_ns;
	uint32_t kinds; /* that are collected, ACTIVITY_BIT() each; 0: not reported */
	bool filtered; /* by names: it reports only some */
	bool partial; /* much shorter than an interval should be: the end of a monitor */
	uint64_t losses[TOPLIST_LOSSES];
	uint64_t other_calls, other_ns; /* of names that are not in rows */
	uint64_t names; /* all of them */
	uint64_t steps, step_mean_ns; /* 0: not known */
	struct toplist_device *devices;
	struct toplist_row *rows; /* as sent: those that take most first */
	size_t ndevices, nrows;
	size_t bytes; /* of memory */
	int64_t taken_ms; /* when it was taken, for the caller */
	char *texts;
};

/* NULL: it is no such report. */
struct toplist_report *toplist_report_read(const char *text, size_t len);
void toplist_report_free(struct toplist_report *r); /* r may be NULL */

/* All that took time on devices: what shares are of. Calls of functions and marks are not of it. */
uint64_t toplist_report_total(const struct toplist_report *r);
bool toplist_on_device(const struct toplist_row *row);

/* What a device can be busy with, as a set of kinds. */
#define TOPLIST_KERNELS ACTIVITY_BIT(ACTIVITY_KERNEL)
#define TOPLIST_COMMUNICATION (ACTIVITY_BIT(ACTIVITY_COMMUNICATION) | ACTIVITY_BIT(ACTIVITY_HCCL))
#define TOPLIST_COPIES (ACTIVITY_BIT(ACTIVITY_MEMCPY) | ACTIVITY_BIT(ACTIVITY_MEMSET))
#define TOPLIST_BUSY (TOPLIST_KERNELS | TOPLIST_COMMUNICATION | TOPLIST_COPIES)
/* Whether any of these kinds is reported. */
bool toplist_collects(const struct toplist_report *r, uint32_t kinds);

struct toplist;

struct toplist *toplist_new(void);
void toplist_free(struct toplist *t); /* t may be NULL */
size_t toplist_bytes(const struct toplist *t);

/* A name that takes longer than it used to: a kernel that computes is a regression; a collective
 * waits, for all that can be known, longer for ranks that are late. */
struct toplist_regression {
	const char *kind, *name;
	int32_t device;
	bool waits;
	uint64_t mean_ns, baseline_ns;
	uint64_t calls; /* of the last interval in which there were enough */
	int64_t since_ns; /* wall clock: end of the first interval in which it did */
};

/* Whether it takes longer only, as far as one can know, because others are late. */
bool toplist_waits(const char *kind, const char *name);
/* The likely cause comes first: what costs most. */
int toplist_by_cause(const struct toplist_regression *a, const struct toplist_regression *b);

/* Called when one begins (over: false) and when it is over. */
typedef void (*toplist_regression_fn)(void *arg, const struct toplist_regression *r, bool over);

/* Takes the report over, in the place of the one before it; of a partial one only the losses, into
 * the one before it, if there is one. percent: how much more time is too much; 0: nothing is. */
void toplist_take(struct toplist *t, struct toplist_report *r, unsigned percent,
		  toplist_regression_fn fn, void *arg);

const struct toplist_report *toplist_last(const struct toplist *t); /* NULL: none */
/* The same row of the report before the last; NULL: there is none. */
const struct toplist_row *toplist_before(const struct toplist *t, const struct toplist_row *row);
/* Its usual mean time; 0: not known yet. */
uint64_t toplist_usual(const struct toplist *t, const struct toplist_row *row);

/* How many are going on. */
size_t toplist_regressions(const struct toplist *t);
size_t toplist_longer_waits(const struct toplist *t);
/* The next one of either, from *at on, which begins with 0; false: there is none. */
bool toplist_next_slower(const struct toplist *t, size_t *at, struct toplist_regression *out);

/* --- which rank the others wait for --- */

struct toplist_rank {
	int32_t rank, pid;
	uint64_t interval_ns; /* of its last report */
	uint64_t comm_ns, kernel_ns; /* in it, of its busiest device */
	uint64_t steps, step_mean_ns; /* 0: not known */
};

enum toplist_slow_by { TOPLIST_SLOW_NONE, TOPLIST_SLOW_STEPS, TOPLIST_SLOW_WAITING };

struct toplist_slowest {
	enum toplist_slow_by by; /* TOPLIST_SLOW_NONE: no rank is slower than the others */
	size_t at; /* index of the rank */
	double ratio; /* of its step, or of the time: what the others lose */
	uint64_t behind_ns; /* per step; 0: steps are not known */
};

/*
 * Ranks that step together take equally long for a step: the one that is late is waited for, by the
 * others, in communication. So where steps differ the longest are those of the slowest rank; where
 * they do not, it is the one that spends the least time communicating, and by as much as the others
 * spend more. Nobody is named for less than two percent, nor for less than twice what the others
 * differ by themselves.
 */
struct toplist_slowest toplist_slowest(const struct toplist_rank *ranks, size_t n);

#endif
