/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What `sonde top` knows at a moment: the answers of all hosts to getTop, put together. Numbers of
 * daemons are somebody else's: whatever they are, there is something to show.
 */
#ifndef SONDE_CLIENT_TOP_MODEL_H
#define SONDE_CLIENT_TOP_MODEL_H

#include "activity/live/toplist.h"
#include "client/call_hosts.h"

/* A kernel, or whatever else took time, of all processes together. */
struct top_line {
	const char *kind; /* borrowed from the answers, as all texts here */
	char *name; /* as people write it; owned */
	double calls, total_ns;
	double inside_ns; /* what of it was in the interval: shares are of this */
	double before_calls, before_total_ns; /* of processes that had it before; 0: none */
	double comparable_calls, comparable_ns; /* of the same processes now */
	double p99_ns; /* the highest of any process */
	unsigned processes;
	bool on_device;
};

struct top_process {
	size_t host;
	int64_t pid, rank, device; /* -1: not known */
	int64_t from_ns, to_ns; /* wall clock of its host */
	double interval_s, age_s;
	double busy, kernel, comm, copy; /* parts of the interval, of its busiest device */
	bool has_kernel, has_comm, has_copy; /* whether that is collected */
	double reported_late; /* such a part that was reported too late to be among them */
	double step_ns, steps; /* 0: not known */
	double losses[TOPLIST_LOSSES]; /* since its monitor was started */
	bool late; /* reports no more */
	bool filtered; /* what it reports is what a filter lets through */
	char *top_name; /* what took most of its time; owned, or NULL */
	double top_share;
};

struct top_model {
	struct top_line *lines; /* those that take most first */
	size_t nlines, lines_cap;
	struct top_process *processes; /* by rank */
	size_t nprocesses, processes_cap;
	/* arrays; each with "host"; the likely cause is the first */
	json_t *regressions; /* kernels that compute */
	json_t *waits; /* collectives */
	/* What devices were busy with: of those whose processes report it, the time that they had. */
	struct top_part {
		double busy_s, time_s;
	} busy, kernel, comm, copy;
	double total_ns; /* that devices worked */
	double time_ns; /* that devices had: what shares are of, as all other parts */
	double others_ns;
	double losses[TOPLIST_LOSSES]; /* of all processes */
	struct toplist_slowest slowest; /* at: index in processes */
	unsigned known, running, paused; /* processes that can be monitored, and are */
	unsigned
		not_reporting; /* whose monitor is on, and is none of ours: it may report to nobody here */
	bool reports_nothing; /* for so long, and all of them, that no report will come */
	unsigned tracing; /* in which a trace is on, or waits */
	unsigned registered; /* processes that can be monitored, whether asked for or not */
	unsigned others; /* processes of other users, which are not shown */
	unsigned failed; /* hosts */
	const char *why_failed; /* the error of the first of them */
	unsigned ended, stopped; /* hosts whose monitor is off after a request; to stop it */
	bool starting; /* it is started from here, and not on yet */
	const json_t *refused; /* "pid" and "why" of one that does not start it; NULL: none */
	bool lost_monitor; /* the one that was started here has become another's */
	bool was_known; /* there were processes that can be monitored */
	bool several_jobs; /* ranks come twice: the slowest is not known */
};

/* kinds: a comma list of those to show, "" for all. Borrows the answers until the release. */
void top_model_make(struct top_model *m, const struct client_group *g,
		    const struct client_answer *answers, const char *kinds);
void top_model_release(struct top_model *m);

/* The part of the devices' time that it took; those that run at the same time both count. */
double top_line_share(const struct top_model *m, const struct top_line *l);
/* How much more time a call takes than in the interval before; false: not known. */
bool top_line_change(const struct top_line *l, double *out_ratio);

/*
 * When `sonde top` has something new to show. Processes report one after the other, each for its
 * own interval; a table of which half is of the interval before says wrong things about ranks. So
 * it is shown when all of them have reported anew, or when the others do not come.
 */

struct top_news {
	struct top_host_news {
		int64_t since_ns; /* wall clock of the host when it was first asked; 0: not reported
				   */
		int64_t shown_ns; /* end of the newest interval that was shown */
	} * hosts;
	uint64_t some_ns; /* monotonic: some have reported anew since then; 0: none has */
};

void top_news_begin(struct top_news *n, const struct client_group *g);
void top_news_release(struct top_news *n);

/* The answers to a poll. */
void top_news_note(struct top_news *n, const struct client_group *g,
		   const struct client_answer *answers);

/*
 * Whether there is something to show. `begun`: intervals that have begun since the command did, and
 * no others. patience_ns: how long the last of them are waited for.
 */
bool top_news_is(struct top_news *n, const struct top_model *m, bool begun, uint64_t patience_ns);
void top_news_shown(struct top_news *n, const struct top_model *m);

#endif
