/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The processes of this node that talk to the daemon, by job; the configs waiting for them; and
 * what their profilers and monitors say they do. No sockets: fabric.c brings messages, api.c asks.
 *
 * A process is known by its job and the set of pids it sends (itself first, then its ancestors), as
 * its own pid namespace numbers them. The kernel's credentials of a datagram tell who it is in
 * ours: by them a process is forgotten the moment it dies (pidfd), whatever it last said.
 */
#ifndef SONDE_DAEMON_JOBS_JOBS_H
#define SONDE_DAEMON_JOBS_JOBS_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "wire/fabric.h"

#define JOBS_SILENT_S 120 /* heard nothing for so long: not asked any more, forgotten if unseen */

/* Who sent a datagram, as the kernel says. */
struct jobs_sender {
	pid_t pid; /* in our pid namespace; 0: not visible from here */
	uid_t uid;
	gid_t gid;
	const char *endpoint; /* by which it came: "abstract", "home", "dir"; a literal */
	/* Of a guest library of ours (FABRIC_GUEST_NAME): where it can be reached. NULL: it is
	 * another client, such as the framework in the same process. */
	const struct jobs_address *guest;
};

/* Where a datagram came from and by which socket. */
struct jobs_address {
	const void *place; /* of the fabric */
	struct sockaddr_un address;
	socklen_t len;
};

struct jobs;

/* max_per_uid: how many processes one user may register; further ones get empty answers and are
 * counted. */
struct jobs *jobs_new(struct event_base *base, unsigned max_per_uid);
void jobs_free(struct jobs *j); /* j may be NULL */

/* "ctxt": gives the number of processes registered for its job and device, or a negative errno when
 * it is refused (no answer is sent then). */
int jobs_context(struct jobs *j, const struct jobs_sender *from, const struct fabric_context *c);

/* "req": adds the text of the configs that are due to `out` (nothing if there are none). The caller
 * tells with jobs_delivered() whether it could be sent: what could not is kept. Negative errno: it
 * is refused; an empty answer is sent all the same. */
int jobs_request(struct jobs *j, const struct jobs_sender *from, const struct fabric_request *r,
		 unsigned npids, struct buf *out);
void jobs_delivered(struct jobs *j, bool sent);

/* How guests are told that there is something to ask for; NULL: not at all. It may get lost. */
typedef void (*jobs_poke_fn)(void *arg, uid_t uid, const struct jobs_address *to);
void jobs_on_poke(struct jobs *j, jobs_poke_fn fn, void *arg);

/* Called when a guest has died, or was not heard of for long: it may have left its socket's file.
 */
typedef void (*jobs_gone_fn)(void *arg, uid_t uid, const struct jobs_address *at);
void jobs_on_gone(struct jobs *j, jobs_gone_fn fn, void *arg);

/* "sondeCan": the keys of configs that a guest honours. False: nobody knows who that is. */
bool jobs_can(struct jobs *j, const struct jobs_sender *from, const char *keys, size_t len);

/* "sondeTop": what took the time of an interval. Negative errno: no such report (-EINVAL), of a
 * process that nobody knows (-ESRCH, counted), or for which the sender may not speak (-EPERM), no
 * room for it (-EDQUOT). */
int jobs_top(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len);

/* A kernel counts as slower when it takes so many percent more than before; 0: never. */
void jobs_set_regression(struct jobs *j, unsigned percent);

/* "npuTraceStatus", "npuMonitorStatus" */
void jobs_status(struct jobs *j, const struct jobs_sender *from, enum fabric_kind kind,
		 const struct fabric_status *s);

/* "sondeSaid": what a guest says to an order. False: it is none of ours, or no such text. */
bool jobs_said(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len);

/* --- questions and orders, as JSON of the RPC ---
 *
 * All give a new reference. `request` is a checked JSON object. */

/* The aggregate of all processes: Running > Ready > Idle > Uninitialized. */
json_t *jobs_get_status(const struct jobs *j);

/* setKinetOnDemandRequest: gate, match, install; the reply of the spec. */
json_t *jobs_set_request(struct jobs *j, const json_t *request);

/* stopTrace: ends the traces of nputrace that wait or run in the processes that job_id and pids
 * name: {"processesMatched":[pids],"activityProfilersTriggered":[guests that are told],
 * "tracesDropped":[pids whose order had not been fetched],"notStopped":[{"pid":…,"why":"…"}],
 * "requestTraceId":"for getAnswers, if somebody was told"}. */
json_t *jobs_stop_trace(struct jobs *j, const json_t *request);

/* getAnswers: what guests have said to the order {"request":"its id"}, which the reply to it names:
 * {"done":N,"failed":[{"pid":…,"why":"…"}],"told":[{"pid":…,"what":"…"}],"waiting":[pids]}; "told"
 * is what became of it where it was done, if they say so. */
json_t *jobs_answers(const struct jobs *j, const json_t *request);

/* Why such a request would match what it matches: {"matched":[…],"reason":"plain words",
 * "processes":[{"pid":…,"matched":bool,"reason":"…"}]}. Changes nothing. */
json_t *jobs_explain(const struct jobs *j, const json_t *request);

/* {"processes":[…],"total":N,"next":offset or null}; keys offset, limit (1 to 256), job_id, pids of
 * the request narrow it. What /proc knows (cmdline, rank) is read here and not before. */
json_t *jobs_list(struct jobs *j, const json_t *request);

/* What takes the time of devices: docs/top.md. Keys pids, job_id, limit (rows of a process). */
json_t *jobs_get_top(struct jobs *j, const json_t *request);

/* The same as lines of /metrics: how busy devices are, and what has become slower. */
struct expo;
void jobs_expose_top(const struct jobs *j, struct expo *e);

/* One process: everything known about {"pid":N}; {"status":"failed: …"} if there is none. */
json_t *jobs_get_process(struct jobs *j, const json_t *request);

struct jobs_counts {
	uint64_t processes, jobs;
	uint64_t delivered; /* configs handed out */
	uint64_t refused; /* by the limit per user */
	uint64_t ended; /* forgotten because they died */
	uint64_t silent; /* forgotten because they were not heard of */
	uint64_t pauses; /* of monitors, for a trace by PyTorch's own profiler */
	uint64_t unpaused; /* of them such that did not step aside in time */
	uint64_t reports; /* of what takes time, that were taken */
	uint64_t late_reports; /* of processes that are not known: the last one comes after its end
				*/
	uint64_t regressions; /* that are going on */
};
struct jobs_counts jobs_counts(const struct jobs *j);

#endif
