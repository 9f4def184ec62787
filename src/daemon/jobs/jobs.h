/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The processes of this node that talk to the daemon, by job; the configs waiting for them; and
 * what their profilers and monitors report. No sockets: fabric.c brings messages, api.c requests.
 * Everything runs on the loop; a struct jobs owns its processes.
 *
 * A process is known by its job and the set of pids it sends (itself first, then its ancestors), as
 * its own pid namespace numbers them. The kernel's credentials of a datagram say who it is in
 * ours: by them a process is forgotten the moment it dies (pidfd), whatever it last sent.
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
#include "daemon/access.h"
#include "wire/fabric.h"

#define JOBS_SILENT_S 120 /* no message for so long: gets no requests, is forgotten if unseen */

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
	const void *listener; /* of the fabric */
	struct sockaddr_un address;
	socklen_t len;
};

struct jobs;

/* max_per_uid: how many processes one user may register; further ones get empty replies and are
 * counted. */
struct jobs *jobs_new(struct event_base *base, unsigned max_per_uid);
void jobs_free(struct jobs *j); /* j may be NULL */

/* "ctxt": returns the number of processes registered for its job and device, or a negative errno
 * when it is refused (no reply is sent then). */
int jobs_context(struct jobs *j, const struct jobs_sender *from, const struct fabric_context *c);

/* "req": a process polls. Adds the text of the config that is due to `out` (nothing if there is
 * none). The caller reports with jobs_delivered() whether it could be sent: what could not is kept.
 * Negative errno: it is refused; an empty reply is sent all the same. */
int jobs_poll(struct jobs *j, const struct jobs_sender *from, const struct fabric_request *r,
	      unsigned npids, struct buf *out);
void jobs_delivered(struct jobs *j, bool sent);

/* Notifies a guest that something waits for it; NULL: not at all. It may get lost. */
typedef void (*jobs_notify_fn)(void *arg, uid_t uid, const struct jobs_address *to);
void jobs_on_notify(struct jobs *j, jobs_notify_fn fn, void *arg);

/* Called when a guest has died, or was silent for long: it may have left its socket's file. */
typedef void (*jobs_gone_fn)(void *arg, uid_t uid, const struct jobs_address *at);
void jobs_on_gone(struct jobs *j, jobs_gone_fn fn, void *arg);

/* "sondeCan": the keys of configs that a guest honours. False: nobody knows who that is. */
bool jobs_can(struct jobs *j, const struct jobs_sender *from, const char *keys, size_t len);

/* "sondeTop": what took the time of an interval. Negative errno: no such report (-EINVAL), of an
 * unknown process (-ESRCH, counted), or for which the sender may not speak (-EPERM), no room for it
 * (-EDQUOT). */
int jobs_top(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len);

/* A kernel counts as slower when it takes so many percent more than before; 0: never. */
void jobs_set_regression(struct jobs *j, unsigned percent);

/* "npuTraceStatus", "npuMonitorStatus" */
void jobs_status(struct jobs *j, const struct jobs_sender *from, enum fabric_kind kind,
		 const struct fabric_status *s);

/* "sondeSaid": the reply of a guest to a request. False: it is none of ours, or no such text. */
bool jobs_replied(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len);
/* A recorder tells what became of the files of a trace. */
bool jobs_files(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len);

/* --- functions of the RPC ---
 *
 * All return a new reference. `request` is a checked JSON object. The caller `who` may change what
 * the request changes, but sees and reaches only processes that access_covers() (NULL: all of
 * them), as if there were no others. "notYours" says how many others were asked for, too. */

/* The aggregate of all processes: Running > Ready > Idle > Uninitialized. */
json_t *jobs_get_status(struct jobs *j, const struct access_grant *who, const json_t *unused);

/* setKinetOnDemandRequest: gate, match, install; the reply of the spec. */
json_t *jobs_set_request(struct jobs *j, const struct access_grant *who, const json_t *request);

/* stopTrace: ends the traces of nputrace that wait or run in the processes that job_id and pids
 * name: {"processesMatched":[pids],"activityProfilersTriggered":[guests that get it],
 * "tracesDropped":[pids whose request had not been fetched],"notStopped":[{"pid":…,"why":"…"}],
 * "requestTraceId":"for getAnswers, if a guest gets it"}. */
json_t *jobs_stop_trace(struct jobs *j, const struct access_grant *who, const json_t *request);

/* getAnswers: replies of guests to the request {"request":"its id"}, which the reply to it names:
 * {"done":N,"failed":[{"pid":…,"why":"…"}],"told":[{"pid":…,"what":"…"}],"waiting":[pids]}; "told"
 * has the outcomes where it was done, as far as they reply with one. */
json_t *jobs_get_replies(struct jobs *j, const struct access_grant *who, const json_t *request);

/* Why such a request would match what it matches: {"matched":[…],"reason":"plain words",
 * "processes":[{"pid":…,"matched":bool,"reason":"…"}]}. Changes nothing. */
json_t *jobs_explain(struct jobs *j, const struct access_grant *who, const json_t *request);

/* {"processes":[…],"total":N,"next":offset or null}; keys offset, limit (1 to 256), job_id, pids of
 * the request narrow it. What /proc knows (cmdline, rank) is read here and not before. */
json_t *jobs_list(struct jobs *j, const struct access_grant *who, const json_t *request);

/* What takes the time of devices: docs/top.md. Keys pids, job_id, limit (rows of a process), lease.
 */
json_t *jobs_get_top(struct jobs *j, const struct access_grant *who, const json_t *request);

/* The last hour of processes that are monitored: pid, job_id, rank, step_ns[], busy[]. *out_bytes:
 * the memory that takes. */
json_t *jobs_history(const struct jobs *j, const struct access_grant *who, int64_t from_bin,
		     int64_t now_ns, uint64_t *out_bytes);

/* The same as lines of /metrics: how busy devices are, and what has become slower. */
struct prom_text;
void jobs_add_top_metrics(const struct jobs *j, struct prom_text *out);

/* One process: everything known about {"pid":N}; {"status":"failed: …"} if there is none. */
json_t *jobs_get_process(struct jobs *j, const struct access_grant *who, const json_t *request);

/* The process behind a number of listProcesses, for who may know of it. False: there is none, or the
 * daemon does not see it. */
struct jobs_owner {
	pid_t host_pid; /* as the daemon sees it */
	uid_t uid;
	bool command_line; /* may be shown to the caller */
};
bool jobs_find_owner(const struct jobs *j, const struct access_grant *who, int32_t pid,
		     struct jobs_owner *out);

struct jobs_counts {
	uint64_t processes, jobs;
	uint64_t delivered; /* configs handed out */
	uint64_t refused; /* by the limit per user */
	uint64_t ended; /* forgotten because they died */
	uint64_t silent; /* forgotten because they sent nothing */
	uint64_t pauses; /* of monitors, for a trace by PyTorch's own profiler */
	uint64_t unpaused; /* of them such that did not pause in time */
	uint64_t reports; /* of what takes time, that were accepted */
	uint64_t late_reports; /* of processes that are not known: the last one comes after its end
				*/
	uint64_t regressions; /* that are going on */
	uint64_t longer_waits; /* the same, of collectives */
};
struct jobs_counts jobs_counts(const struct jobs *j);

#endif
