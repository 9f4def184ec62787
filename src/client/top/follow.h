/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What takes the time of devices, followed on a group of hosts: their daemons are polled, a monitor
 * that is off is started (client/top/monitor.h), and the caller shows what there is.
 */
#ifndef SONDE_CLIENT_TOP_FOLLOW_H
#define SONDE_CLIENT_TOP_FOLLOW_H

#include "client/top/monitor.h"

struct top_follow_options {
	json_t *pids; /* an array; NULL: all */
	int64_t job_id; /* -1: any */
	unsigned interval_s;
	unsigned lines; /* kernels that are shown */
	unsigned count; /* reports after which it ends; 0: until the user does */
	bool once; /* one report, of an interval that begins after the start */
	const char *kinds; /* to show; "": all */
	bool attribute; /* to modules and lines */
	const char *start_kinds; /* that a monitor is started with */
	bool no_start;
	bool live; /* every poll is shown, not only new reports */
};

/* Called with `arg`. */
struct top_follow_ops {
	/* Shows the model. False: it cannot be written. */
	bool (*show)(void *arg, const struct top_model *m, const struct client_answer *answers);
	/* Reports why there is nothing to show. */
	void (*report_nothing)(void *arg, const struct top_model *m);
	void (*say)(void *arg, const char *text); /* a message, see top_monitor */
	void (*reached)(void *arg); /* the first host has answered; may be NULL */
	/* Waits until then (monotonic), or for a reason to poll again. False: the user ends it. */
	bool (*wait)(void *arg, uint64_t until_ns);
	bool (*must_end)(void);
};

enum top_end {
	TOP_GO_ON, /* not an end */
	TOP_DONE,
	TOP_NOTHING, /* nothing was reported, or less than `count` */
	TOP_BROKEN, /* show() failed */
	TOP_UNREACHABLE, /* no host answers */
};

struct top_follow {
	/* set by the caller */
	struct client_group *g;
	struct top_follow_options o;
	const struct top_follow_ops *ops;
	void *arg;
	/* the rest zeroed */
	struct client_answer *answers; /* of the last poll; NULL: none */
	struct top_model model; /* the same, until the next poll: show() may keep a pointer to it */
	struct top_monitor monitor;
	struct top_news news;
	bool empty; /* nothing is there to show yet: it is polled more often */
	uint64_t over_ns; /* since then there has been nothing to show; 0: there is */
	bool over_reported;
	uint64_t reports_nothing_since_ns; /* only clients that may send no reports; 0: not so */
	unsigned shown;
	uint64_t patience_ns; /* until then a first report is waited for */
};

/* Polls until it is over. err->code is set if hosts could not be asked at all; there are no answers
 * then. */
enum top_end top_follow_run(struct top_follow *f, struct err *err);
bool top_follow_anybody_answers(const struct top_follow *f);
/* Stops a monitor that was started here, and releases everything. */
void top_follow_end(struct top_follow *f);

#endif
