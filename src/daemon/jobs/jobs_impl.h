/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Inside of jobs:
 *
 *	jobs.c           the registry: who is there, who may register
 *	messages.c       what processes send, and the configs they fetch
 *	peers.c          which processes live, and whether their pids are true
 *	requests.c       which processes a request of a user names, and which get its config
 *	gate.c           whether the NPU's profiler is free for it
 *	lease.c          whose a monitor is
 *	arbiter.c        when a monitor pauses for PyTorch's own profiler
 *	traces.c         traces that a request replaces or drops, and stopTrace
 *	guest.c          what libraries of ours can do, and their replies
 *	explain.c        why a request reaches whom it reaches
 *	list.c           listProcesses, getProcess; process_facts.c reads /proc for it
 *	top_reports.c    reports of what takes time; get_top.c is getTop
 */
#ifndef SONDE_DAEMON_JOBS_JOBS_IMPL_H
#define SONDE_DAEMON_JOBS_JOBS_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/containers/hmap.h"
#include "daemon/jobs/jobs.h"
#include "daemon/metrics/course.h"
#include "daemon/user_limit.h"

/* --- config text --- */

/*
 * The text of a config: lines of KEY=VALUE, blanks around both ignored. The daemon hands it on as
 * it is; it looks inside only to learn what the text is for.
 */

enum config_kind {
	CONFIG_KINETO, /* a trace by PyTorch's own profiler */
	CONFIG_NPU_TRACE,
	CONFIG_NPU_MONITOR,
};

enum config_kind config_kind(const char *text);

/* The value of the last line with this key, not ended by a NUL; NULL if there is none. */
const char *config_value(const char *text, const char *key, size_t *out_len);

bool config_is_true(const char *text, const char *key);

/* How long after its delivery PyTorch's profiler is busy with this text at the latest, or has been;
 * `now_ms` is since the epoch. */
int64_t config_trace_begins_ms(const char *text, int64_t now_ms);

/* How long the monitor runs that this text starts or renews, in milliseconds; 0: without end, or it
 * does neither. */
int64_t config_monitor_ms(const char *text);

/* --- proc --- */

/*
 * What is known of a process beyond numbers: its command line, and its rank as in
 * unwind/remote/rank.h. These are read from its memory, and the kernel lets a reader wait while that changes: for seconds
 * where a process with a hundred gigabytes forks, for as long as it likes where it means harm. So
 * threads read, and who asks waits for a moment at most.
 */

struct jobs_facts {
	int32_t rank, local_rank; /* RANK_ENV_UNKNOWN where it is unknown */
	int64_t read_ms; /* jobs_now_ms() when it was stored; for the owner */
	size_t command_len;
	char command[]; /* blanks between words; "": it may not be read */
};

/* From what its files hold: whatever the process likes. free() it. */
struct jobs_facts *jobs_facts_new(const char *command, size_t len, const char *env, size_t env_len);

struct jobs_proc;

struct jobs_proc *jobs_proc_new(void);
void jobs_proc_free(struct jobs_proc *p); /* p may be NULL; waits for no thread */

/* Asks for a process of this user. `id` comes back with the answer. */
void jobs_proc_ask(struct jobs_proc *p, pid_t pid, uid_t uid, uint64_t id);

/* Waits until everything that was asked since the last call is answered: not for long, and not at
 * all while all threads hang. */
void jobs_proc_wait(struct jobs_proc *p);

/* The next answer, which the caller frees; NULL: none. */
struct jobs_facts *jobs_proc_take(struct jobs_proc *p, pid_t *out_pid, uint64_t *out_id);

/* --- the registry --- */

#define JOBS_ANY_USER ((uid_t)-1)

/* A text that waits for processes, shared by all of them. */
struct jobs_config {
	uint64_t id; /* REQUEST_TRACE_ID; 0: an internal request */
	unsigned refs;
	uid_t asker; /* whose processes alone it is for; JOBS_ANY_USER: all */
	bool is_monitor, starts, stops; /* it is about a monitor: starts one, stops one */
	bool is_npu_trace; /* of nputrace, for a framework or a guest */
	bool leaves_out; /* processes that would have taken it; guests get to know */
	bool renews; /* it only renews the lease of a monitor */
	uint64_t lease; /* 0: none */
	int64_t wait_ms; /* a trace by PyTorch's profiler has begun so long after delivery */
	int64_t monitor_ms; /* the monitor that it starts ends by itself after this time; 0: never
			     */
	size_t len;
	char text[];
};

/* A process as our kernel knows it: what it registered ends with it. */
struct jobs_peer {
	TAILQ_ENTRY(jobs_peer) link; /* among jobs.unwatched, without a pidfd */
	pid_t pid;
	int pidfd; /* -1: unavailable; the process is polled from time to time */
	unsigned nprocesses;
	bool asked; /* for its facts, and not answered yet */
	uint64_t id; /* no other peer ever has it */
	uint64_t start_ticks; /* without a pidfd: when it was started; 0: /proc does not say */
	struct jobs_process *first; /* linked by peer_next */
	struct jobs_facts *facts; /* NULL: nobody asked of late */
};

enum jobs_received {
	JOBS_RECEIVED_CONTEXT = 1 << 0,
	JOBS_RECEIVED_REQUEST = 1 << 1, /* it polls: only such a process can be given a config */
	JOBS_RECEIVED_TRACE = 1 << 2,
	JOBS_RECEIVED_MONITOR = 1 << 3,
	JOBS_FOR_ANOTHER = 1 << 4, /* the sender is not the process that the message is about */
};

/* A monitor that is paused for a trace by PyTorch's profiler in the same process. */
enum jobs_pause {
	JOBS_PAUSE_NONE,
	JOBS_PAUSE_ASKED, /* the guest was asked to, and the trace is held back */
	JOBS_PAUSE_KEPT, /* the trace may go on, or does */
	JOBS_PAUSE_ENDING, /* the guest was asked to resume */
};

/* What is known of a guest beyond what is known of every client. */
struct jobs_guest {
	TAILQ_ENTRY(jobs_guest) link; /* among jobs.pauses, unless it is JOBS_PAUSE_NONE */
	struct jobs_process *self;
	struct jobs_process *tracer; /* for whom it pauses; NULL: it is gone */
	/* Both go before what is pending; NULL: none. */
	struct jobs_config *internal_request; /* pause or resume */
	struct jobs_config *stop; /* of a trace */
	struct jobs_address address;
	uint64_t can; /* bits of daemon/jobs/guest.c; 0: it did not report them */
	uint64_t request_id, replied_id; /* the last request that it got, and that it replied to */
	char *reply; /* the outcome, or why it failed; NULL: it succeeded */
	bool succeeded, is_written;
	bool ends_trace; /* it has replied that its trace ends by request, and still reports it */
	uint8_t logged_failures; /* of this request */
	uint64_t trace_id; /* the last trace that it was asked for */
	uint64_t stop_id; /* the request that ends it; 0: none does */
	char *files; /* of it: where they are, or why there are none; NULL: not known yet */
	int64_t since_ms, due_ms; /* of the pause: its beginning, when it is checked again */
	int64_t begun_ms; /* the trace is busy by then, or never; 0: it was not delivered yet */
	uint8_t pause; /* enum jobs_pause */
	uint8_t tries;
	bool was_busy; /* the trace, since it was delivered */
	bool wanted; /* the monitor is to run again */
};

#define JOBS_STATE_UNKNOWN 3 /* any number that is no enum fabric_state */

/* Kept small: ten thousand of them fit in four megabytes. Times are CLOCK_MONOTONIC. */
/* The last hour of a process that is monitored. */
struct jobs_courses {
	struct course step_ns,
		busy; /* mean of a step; part of the time that its devices are busy */
};

struct jobs_process {
	struct jobs_process *hash_next;
	struct jobs_process *peer_next;
	struct jobs_peer *peer; /* NULL: not visible from our pid namespace */
	int32_t *pids; /* sorted; NULL until it asks for a config */
	struct jobs_config *pending;
	struct jobs_config *after; /* a trace that follows the stop that is pending; NULL: none */
	struct jobs_guest *guest; /* NULL: it is none of ours */
	struct toplist *top; /* NULL: it reported nothing */
	struct jobs_courses *courses; /* of its reports; NULL: none came */
	int64_t step_ms; /* when a step was last seen to end; 0: never */
	const char *endpoint;
	int64_t job_id;
	int64_t first_ms, last_ms;
	int64_t status_ms; /* when it last reported its state */
	int64_t monitor_until_ms; /* 0: until it reports its end */
	uint64_t lease; /* of the monitor's last request; 0: none, or not known */
	uint64_t stopped_lease; /* by which it was stopped; 0: something else came since */
	int64_t leased_ms; /* when the lease was assigned or renewed */
	int64_t stopped_ms; /* when it has fetched a request to stop its monitor; 0: never */
	uint64_t claim; /* hash of the pids that it sent, when they were last verified */
	int32_t pid; /* as it knows itself */
	int32_t device; /* -1: unknown */
	int32_t current_step, start_step, stop_step;
	uint32_t uid;
	int8_t trace, monitor; /* enum fabric_state or JOBS_STATE_UNKNOWN */
	uint8_t npids;
	uint8_t received; /* enum jobs_received, and JOBS_FOR_ANOTHER */
	uint8_t mask; /* enum fabric_mask of its last request */
	bool switched; /* the monitor, by a request that is known */
	bool switched_off; /* by a request without a lease */
	uint16_t traces_ended; /* how often its trace has become idle */
};

struct jobs {
	struct event_base *base;
	unsigned max_per_uid;
	struct user_limit *log_limit; /* lines that a user's processes cause */
	struct hmap processes; /* hash of the identity to the first jobs_process of a chain */
	struct hmap peers; /* pid to jobs_peer */
	struct hmap lookups; /* uid to when and how often ancestors were looked up */
	struct hmap per_uid; /* uid to number of processes */
	struct hmap per_job; /* job id to number of processes */
	struct hmap per_device; /* hash of job and device to number of contexts */
	int watch_fd; /* epoll of all pidfds: one event of the loop for all of them */
	struct event *watch;
	unsigned nwatched, max_watched; /* pidfds: the files are for connections, too */
	TAILQ_HEAD(jobs_unwatched, jobs_peer) unwatched; /* polled next: the first */
	struct event *poll;
	uint64_t peer_ids;
	struct jobs_proc *proc; /* NULL: nobody has asked for a list yet */
	struct event *sweep; /* pending only while there are processes */
	struct jobs_process *delivering; /* of the last jobs_poll() with a config */
	int64_t monitor_ms; /* of the last config handed out that starts a monitor */
	uint64_t requests; /* makes trace ids differ */
	jobs_notify_fn notify;
	void *notify_arg;
	jobs_gone_fn gone;
	void *gone_arg;
	TAILQ_HEAD(jobs_pauses, jobs_guest) pauses;
	struct event *pause_due;
	struct hmap top_bytes; /* uid to the memory that reports of its processes take */
	unsigned regression_percent;
	struct jobs_counts counts;
};

/* The process, made at its first message. NULL, and *out_code says why, if it is refused. */
struct jobs_process *jobs_register(struct jobs *j, const struct jobs_sender *from, int64_t job_id,
				   int32_t pid, int *out_code);

/* The process that calls itself so, as a guest or not; NULL: none. sender is 0 if not visible. */
struct jobs_process *jobs_find(const struct jobs *j, pid_t sender, uid_t uid, int64_t job_id,
			       int32_t pid, bool guest);

/* Root and the daemon's own user, who may speak for others, as a launcher does. */
bool jobs_is_trusted(const struct jobs *j, uid_t uid);

/* --- daemon/jobs/peers.c --- */

void jobs_peers_init(struct jobs *j);
void jobs_peers_release(struct jobs *j); /* when all processes are forgotten */
/* Found or made. NULL: it is gone already. */
struct jobs_peer *jobs_peer_get(struct jobs *j, pid_t pid);
/* Whether its pid still is that of the same process. */
bool jobs_peer_lives(const struct jobs_peer *peer);
/* With its processes. */
void jobs_peer_forget(struct jobs *j, struct jobs_peer *peer);
/* jobs.c: forgets one process; leaves the peer's list alone. */
void jobs_process_forget(struct jobs *j, struct jobs_process *p);

/* Whether the process that our kernel calls `sender` has this pid in any pid namespace. */
bool jobs_has_pid(pid_t sender, int32_t pid);
/* The first of the pids and those of the others that its ancestors have; returns their number. */
unsigned jobs_verify_ancestors(pid_t sender, const int32_t *pids, unsigned n, int32_t *out);

/* --- counting --- */

/* Adds to the number of the key and returns the new one; 0 is not kept. */
uint64_t jobs_count(struct hmap *m, uint64_t key, int64_t by);
uint64_t jobs_device_key(const struct jobs_process *p);

/* Of any bytes, text; null if there is none, or f is NULL. */
json_t *jobs_command_line(const struct jobs_facts *f);

int64_t jobs_now_ms(void);
bool jobs_is_silent(const struct jobs_process *p, int64_t now_ms);
/* What the process does, with a monitor that has run its time taken for idle. */
int jobs_monitor_state(const struct jobs_process *p, int64_t now_ms);
const char *jobs_state_name(int state);

/* All processes that `who` covers, one after another; NULL at the end. Meanwhile none may come or
 * go. */
struct jobs_cursor {
	const struct access_grant *who; /* NULL: all */
	size_t at;
	struct jobs_process *next;
};
struct jobs_process *jobs_next(const struct jobs *j, struct jobs_cursor *c);

/* All processes that `who` covers (NULL: all) and for which want() is true (NULL: all), sorted as
 * asked. The caller frees it. */
typedef bool (*jobs_want_fn)(const struct jobs_process *p, const void *arg);
typedef int (*jobs_compare_fn)(const void *a, const void *b);
struct jobs_process **jobs_collect(const struct jobs *j, const struct access_grant *who,
				   jobs_want_fn want, const void *arg, jobs_compare_fn compare,
				   size_t *out_n);
/* How many there are that the caller does not cover, and sets the key of the reply if there are any. */
size_t jobs_count_others(const struct jobs *j, const struct access_grant *who, jobs_want_fn want,
			 const void *arg);
void jobs_set_others(json_t *reply, size_t n);
int jobs_compare_pids(const void *a, const void *b); /* int32_t */

struct jobs_config *jobs_config_new(const char *text);
void jobs_config_release(struct jobs_config *c); /* c may be NULL */

/* --- daemon/jobs/guest.c --- */

struct jobs_guest *jobs_guest_new(struct jobs_process *self, const struct jobs_address *from);
void jobs_guest_free(struct jobs_guest *g); /* g may be NULL */
void jobs_expect_reply(struct jobs_process *p, const struct jobs_config *c); /* it gets this */
/* It has sent from there now. */
void jobs_guest_polled(struct jobs_guest *g, const struct jobs_address *from);
/* Something waits for it. p may be no guest. */
void jobs_notify(const struct jobs *j, const struct jobs_process *p);
/* The guest in the same process; the other client in the same process as a guest, the one that
 * asks for traces by PyTorch's profiler. NULL: none. */
struct jobs_process *jobs_guest_of(const struct jobs *j, const struct jobs_process *p);
struct jobs_process *jobs_tracer_of(const struct jobs *j, const struct jobs_process *p);
/* Is its monitor that of `sonde record`, which nobody else ends? g may be NULL. */
bool jobs_guest_is_recorded(const struct jobs_guest *g);
/* Adds to the set the bits of options of a config that the guest does not honour. */
void jobs_guest_unsupported(const struct jobs_guest *g, const char *config, uint64_t *set);
/* As people type them: ["--l2-cache"]. */
json_t *jobs_unsupported_options(uint64_t set);
/* Its socket may have left a file. p may be no guest. */
void jobs_guest_gone(const struct jobs *j, const struct jobs_process *p);

struct jobs_request;

/* --- daemon/jobs/traces.c --- */

/*
 * Adds the pid to the effects that the request has there, before it is assigned: "stepsUnknown", a
 * trace of steps that nobody reports; "tracesReplaced", "tracesDropped", one that has not begun.
 */
void jobs_add_trace_effects(const struct jobs_request *o, const struct jobs_config *c,
			    const struct jobs_process *p, json_t *out);
/* The same in words, for a guest; NULL: nothing of the kind. */
const char *jobs_trace_effect(const struct jobs_request *o, const struct jobs_process *p);

/* --- daemon/jobs/arbiter.c --- */

void jobs_arbiter_init(struct jobs *j);
void jobs_arbiter_release(struct jobs *j);
/* A trace by PyTorch's profiler was requested: the guest in that process pauses. */
void jobs_arbiter_trace_requested(struct jobs *j, struct jobs_process *p);
/* Whether what is pending may be handed out now. */
bool jobs_arbiter_allows(struct jobs *j, struct jobs_process *p);
/* p has polled; its pending config has been delivered; it has reported the state of its monitor. */
void jobs_arbiter_polled(struct jobs *j, struct jobs_process *p);
void jobs_arbiter_delivered(struct jobs *j, struct jobs_process *p, const struct jobs_config *c);
void jobs_arbiter_status(struct jobs *j, struct jobs_process *p);
/* PyTorch's own profiler is at work, as far as one can know. */
bool jobs_tracer_is_busy(const struct jobs_process *tracer, int64_t now_ms);
/* p is being forgotten. */
void jobs_arbiter_forget(struct jobs *j, struct jobs_process *p);
/* Why what is pending would be held back, in plain words; NULL: it would not. */
const char *jobs_arbiter_reason(const struct jobs *j, const struct jobs_process *p,
				enum config_kind kind);

/* --- daemon/jobs/lease.c --- */

uint64_t jobs_lease_of(const char *config); /* 0: none */
/* Whether a request with a lease would be heeded, and disturbs nobody. */
bool jobs_lease_allows(const struct jobs_process *p, const struct jobs_config *c);
/* It gets this request, with a lease or without; it has fetched it. */
void jobs_lease_assigned(struct jobs_process *p, const struct jobs_config *c);
void jobs_lease_delivered(struct jobs_process *p, const struct jobs_config *c);

/* Numbers of processes, as the holder of this lease sees them. */
struct jobs_leases {
	size_t own, others; /* on, by a request of the holder; of somebody else */
	size_t lapsed; /* off, and the holder's was the last request: not on yet, or not any more */
	size_t ended, stopped; /* off after somebody else's request; the part that was to stop it */
	size_t free; /* off, and nobody has requested anything */
};
void jobs_lease_count(const struct jobs_process *p, uint64_t lease, int64_t now_ms,
		      struct jobs_leases *out);
json_t *jobs_leases_json(const struct jobs_leases *l);
/* Whether the holder of this lease has stopped it, and it still runs. */
bool jobs_lease_stop_pending(const struct jobs_process *p, uint64_t lease, int64_t now_ms);

/* --- daemon/jobs/top_reports.c --- */

void jobs_top_forget(struct jobs *j, struct jobs_process *p);
/* The process that a recorder speaks of, by the pid that it knows itself by; NULL: none. is_known:
 * there is one, of whomever. */
struct jobs_process *jobs_find_reported(const struct jobs *j, const struct jobs_sender *from,
					int32_t pid, bool *is_known);

/* --- daemon/jobs/slowest.c --- */

/* It has not reported for so long that its numbers say nothing about now. */
struct toplist_report;
bool jobs_report_is_late(const struct toplist_report *r, int64_t now_ms);

struct jobs_slowest {
	int32_t rank, pid;
	const char *by; /* "steps" or "waiting" */
	double ratio;
	uint64_t behind_ns; /* per step; 0: steps are not known */
};
/* The rank that the others wait for. False: nobody is, or they are several jobs. */
bool jobs_find_slowest(struct jobs_process *const *all, size_t n, int64_t now_ms,
		       struct jobs_slowest *out);

/* --- daemon/jobs/gate.c: an NPU has one profiling resource for trace and monitor --- */

/* What processes together do: Running > Ready > Idle > anything else > Uninitialized. */
struct jobs_aggregate {
	int trace, monitor;
	bool monitor_reported; /* by any of them, since the daemon began */
	bool recorded; /* a monitor that runs is that of `sonde record` */
	const struct jobs_process *leader; /* whose steps are reported; NULL: nobody's */
};
struct jobs_aggregate jobs_aggregate(const struct jobs *j, const struct access_grant *who);

/* The same for each user, whose requests wait for that user's processes alone. No leader. */
void jobs_by_user(const struct jobs *j, struct hmap *out); /* hmap_release() it */
struct jobs_aggregate jobs_of_user(const struct hmap *by_user, uid_t uid);

/* "effective" if a request of this kind may go out now, else "ineffective" or "unknown". */
const char *jobs_gate(enum config_kind kind, struct jobs_aggregate a);
bool jobs_gate_open(enum config_kind kind, struct jobs_aggregate a);
/* In plain words, for one that may not. */
const char *jobs_gate_reason(enum config_kind kind, struct jobs_aggregate a);

/* --- daemon/jobs/requests.c --- */

/* Which processes a request is for. */
struct jobs_target {
	int64_t job_id;
	bool any_job; /* none was named, and none was needed */
	bool all; /* of the job */
	int32_t *pids; /* sorted */
	size_t npids;
};

/* Reads job_id and pids; false with the reply that says what was wrong with them. */
bool jobs_target_read(const json_t *request, bool need_pids, struct jobs_target *out,
		      json_t **out_fault);
/* Whether it is of the job; whether it is one of the pids, or a descendant. */
bool jobs_target_has_job(const struct jobs_target *t, const struct jobs_process *p);
bool jobs_target_matches(const struct jobs_target *t, const struct jobs_process *p);
/* Whether it is one of them by the number that it calls itself by. */
bool jobs_target_names(const struct jobs_target *t, int32_t pid);
void jobs_target_release(struct jobs_target *t);

/* A number of any JSON kind, as today's daemons convert it; NULL reply on success. */
json_t *jobs_read_int(const json_t *value, int64_t *out);

/* A request to trace or monitor processes. */
struct jobs_request {
	const struct access_grant *who;
	struct jobs_target target;
	const char *config;
	int64_t limit;
	int64_t now_ms;
	enum config_kind kind;
	bool each_guest; /* the limit is not for guests */
	bool by_time; /* a trace of no steps, which only guests make */
	bool leaves_out; /* by its pids or its limit: some who would have taken it */
	bool with_reason; /* the reply is to say why nobody gets it */
	struct hmap reporters; /* processes of frameworks that reported a state: user and pid */
	struct hmap frameworks; /* the same and those that may be of one */
};

/* False with the reply that says what is wrong with the request. */
bool jobs_request_read(const struct jobs *j, const struct access_grant *who, const json_t *request,
		       struct jobs_request *out, json_t **out_fault);
void jobs_request_release(struct jobs_request *o);
/* The part of it that says for whom it is; o->kind and o->now_ms are set. */
bool jobs_request_read_target(const struct jobs *j, const json_t *request, struct jobs_request *o,
			      json_t **out_fault);
uint64_t jobs_trace_id(struct jobs *j); /* a new REQUEST_TRACE_ID */
uid_t jobs_asker(const struct access_grant *who); /* for jobs_config.asker */
/* Whether the process is a client for such a request, and whether it would get it. */
bool jobs_request_understood(const struct jobs_request *o, const struct jobs_process *p);
bool jobs_request_wants(const struct jobs_process *p, const void *request);
/* daemon/jobs/explain.c: why nobody gets it now, in plain words. */
const char *jobs_request_refusal(const struct jobs *j, const struct jobs_request *o);
/* In which sequence a limit is used up: that of the sets of pids. */
int jobs_by_pids(const void *a, const void *b);
/* Changes that sequence where there are several users: the first of each, the second of each, and
 * so on. Nobody's processes use up what is limited before those of others. */
void jobs_take_turns(struct jobs_process **all, size_t n);

#endif
