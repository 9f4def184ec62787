/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside of jobs: the registry that jobs.c keeps, daemon/jobs/messages.c fills,
 * daemon/jobs/requests.c gives configs to and daemon/jobs/list.c tells of; daemon/jobs/peers.c
 * knows who lives, daemon/jobs/ancestry.c who is whose child, daemon/jobs/gate.c whether the NPU's
 * profiler is free, daemon/jobs/guest.c what libraries of ours can do, daemon/jobs/arbiter.c when
 * they step aside for PyTorch's profiler, daemon/jobs/effects.c what becomes of traces that wait,
 * daemon/jobs/stop.c ends them, daemon/jobs/lease.c whose a monitor is, daemon/jobs/top.c what
 * takes time. */
#ifndef SONDE_DAEMON_JOBS_JOBS_IMPL_H
#define SONDE_DAEMON_JOBS_JOBS_IMPL_H

#include <sys/queue.h>

#include "base/containers/hmap.h"
#include "daemon/jobs/config_text.h"
#include "daemon/jobs/jobs.h"
#include "daemon/jobs/proc.h"

/* A text that waits for processes, shared by all of them. */
struct jobs_config {
	uint64_t id; /* REQUEST_TRACE_ID; 0: an errand of ours */
	unsigned refs;
	bool is_monitor, starts, stops; /* it is about a monitor: starts one, stops one */
	bool is_npu_trace; /* of nputrace, for a framework or a guest */
	bool leaves_out; /* processes that would have taken it; guests are told so */
	bool renews; /* it only lets a monitor that was lent go on */
	uint64_t lease; /* of who lends it; 0: nobody */
	int64_t wait_ms; /* a trace by PyTorch's profiler has begun so long after delivery */
	int64_t monitor_ms; /* the monitor that it starts ends by itself after this time; 0: never
			     */
	size_t len;
	char text[];
};

/* A process as our kernel knows it: what it registered ends with it. */
struct jobs_peer {
	TAILQ_ENTRY(jobs_peer) place; /* among jobs.unwatched, without a pidfd */
	pid_t pid;
	int pidfd; /* -1: it could not be had; the process is looked at from time to time */
	unsigned nprocesses;
	bool asked; /* for its facts, and not answered yet */
	uint64_t id; /* no other peer ever has it */
	uint64_t start_ticks; /* without a pidfd: when it was started; 0: /proc does not tell */
	struct jobs_process *first; /* linked by peer_next */
	struct jobs_facts *facts; /* NULL: nobody asked of late */
};

enum jobs_heard {
	JOBS_HEARD_CONTEXT = 1 << 0,
	JOBS_HEARD_REQUEST = 1 << 1, /* it polls: only such a process can be given a config */
	JOBS_HEARD_TRACE = 1 << 2,
	JOBS_HEARD_MONITOR = 1 << 3,
	JOBS_FOR_ANOTHER = 1 << 4, /* who sends is not the process that is spoken of */
};

/* A monitor that steps aside for a trace by PyTorch's profiler in the same process. */
enum jobs_pause {
	JOBS_PAUSE_NONE,
	JOBS_PAUSE_ASKED, /* it was told to, and the trace is held back */
	JOBS_PAUSE_KEPT, /* the trace may go on, or does */
	JOBS_PAUSE_ENDING, /* it was told to resume */
};

/* What is known of a guest beyond what is known of every client. */
struct jobs_guest {
	TAILQ_ENTRY(jobs_guest) place; /* among jobs.pauses, unless it is JOBS_PAUSE_NONE */
	struct jobs_process *self;
	struct jobs_process *tracer; /* for whom it steps aside; NULL: he is gone */
	struct jobs_config *errand; /* of ours, goes before what is pending; NULL: none */
	struct jobs_config *stop; /* of a trace; the same, and may be while another errand is */
	struct jobs_address address;
	uint64_t can; /* bits of daemon/jobs/guest.c; 0: it did not tell */
	uint64_t asked_id, said_id; /* the last order that it was given, and that it answered */
	char *said; /* why it did not carry that out; NULL: it did */
	bool did; /* it did, and `said` is what became of it */
	uint8_t complaints; /* that were logged, about this order */
	int64_t since_ms, due_ms; /* of the pause: its beginning, when it is looked at again */
	int64_t begun_ms; /* the trace is busy by then, or never; 0: it was not delivered yet */
	uint8_t pause; /* enum jobs_pause */
	uint8_t tries;
	bool was_busy; /* the trace, since it was delivered */
	bool wanted; /* the monitor is to run again */
};

#define JOBS_STATE_UNKNOWN 3 /* any number that is no enum fabric_state */

/* Kept small: ten thousand of them fit in four megabytes. Times are CLOCK_MONOTONIC. */
struct jobs_process {
	struct jobs_process *hash_next;
	struct jobs_process *peer_next;
	struct jobs_peer *peer; /* NULL: not visible from our pid namespace */
	int32_t *pids; /* sorted; NULL until it asks for a config */
	struct jobs_config *pending;
	struct jobs_guest *guest; /* NULL: it is none of ours */
	struct toplist *top; /* NULL: it reported nothing */
	const char *endpoint;
	int64_t job_id;
	int64_t first_ms, last_ms;
	int64_t status_ms; /* when it last told its state */
	int64_t monitor_until_ms; /* 0: until it says so */
	uint64_t lease; /* of the monitor's last order; 0: nobody's, or not known */
	uint64_t left; /* the lease by which it was told to stop; 0: something else came since */
	int64_t lent_ms; /* when that was given or renewed */
	uint64_t claim; /* hash of the pids that it sent, when they were last looked into */
	int32_t pid; /* as it knows itself */
	int32_t device; /* -1: not told */
	int32_t current_step, start_step, stop_step;
	uint32_t uid;
	int8_t trace, monitor; /* enum fabric_state or JOBS_STATE_UNKNOWN */
	uint8_t npids;
	uint8_t heard; /* enum jobs_heard, and JOBS_FOR_ANOTHER */
	uint8_t mask; /* enum fabric_mask of its last request */
	bool ordered; /* the monitor was switched by an order that is known; ended: off */
	bool ended;
};

struct jobs {
	struct event_base *base;
	unsigned max_per_uid;
	uid_t own_uid;
	struct hmap processes; /* hash of the identity to the first jobs_process of a chain */
	struct hmap peers; /* pid to jobs_peer */
	struct hmap looks; /* uid to when and how often ancestors were looked for */
	struct hmap per_uid; /* uid to number of processes */
	struct hmap per_job; /* job id to number of processes */
	struct hmap per_device; /* hash of job and device to number of contexts */
	int watch_fd; /* epoll of all pidfds: one event of the loop for all of them */
	struct event *watch;
	unsigned nwatched, max_watched; /* pidfds: the files are for connections, too */
	TAILQ_HEAD(jobs_unwatched, jobs_peer) unwatched; /* looked at next: the first */
	struct event *look;
	uint64_t peer_ids;
	struct jobs_proc *proc; /* NULL: nobody has asked for a list yet */
	struct event *sweep; /* pending only while there is somebody to look after */
	struct jobs_process *delivering; /* of the last jobs_request() with a config */
	int64_t monitor_ms; /* of the last config handed out that starts a monitor */
	uint64_t orders; /* makes trace ids differ */
	jobs_poke_fn poke;
	void *poke_arg;
	jobs_gone_fn gone;
	void *gone_arg;
	TAILQ_HEAD(jobs_pauses, jobs_guest) pauses;
	struct event *pause_due;
	struct hmap top_bytes; /* uid to the memory that reports of its processes take */
	unsigned regression_percent;
	int64_t log_minute; /* in which `logged` lines were written about regressions */
	unsigned logged;
	struct jobs_counts counts;
};

/* The process, made at its first word. NULL, and *out_code says why, if it is refused. */
struct jobs_process *jobs_hear(struct jobs *j, const struct jobs_sender *from, int64_t job_id,
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

/* --- daemon/jobs/ancestry.c --- */

/* Whether the process that our kernel calls `sender` calls itself `pid`, in whatever pid namespace.
 */
bool jobs_is_called(pid_t sender, int32_t pid);
/* The first of the pids and those of the others that its ancestors go by; gives their number. */
unsigned jobs_true_ancestors(pid_t sender, const int32_t *pids, unsigned n, int32_t *out);

/* --- counting --- */

uint64_t jobs_count_up(struct hmap *m, uint64_t key); /* gives the new number */
void jobs_count_down(struct hmap *m, uint64_t key);
uint64_t jobs_device_key(int64_t job_id, int32_t device);

/* Of any bytes, text; null if there is none, or f is NULL. */
json_t *jobs_command_line(const struct jobs_facts *f);

int64_t jobs_now_ms(void);
bool jobs_is_silent(const struct jobs_process *p, int64_t now_ms);
/* What the process does, with a monitor that has run its time taken for idle. */
int jobs_monitor_state(const struct jobs_process *p, int64_t now_ms);
const char *jobs_state_name(int state);

/* All processes for which want() is true (NULL: all), ordered as asked. The caller frees it. */
typedef bool (*jobs_want_fn)(const struct jobs_process *p, const void *arg);
typedef int (*jobs_order_fn)(const void *a, const void *b);
struct jobs_process **jobs_collect(const struct jobs *j, jobs_want_fn want, const void *arg,
				   jobs_order_fn order, size_t *out_n);

struct jobs_config *jobs_config_new(const char *text);
void jobs_config_release(struct jobs_config *c); /* c may be NULL */

/* --- daemon/jobs/guest.c --- */

struct jobs_guest *jobs_guest_new(struct jobs_process *self, const struct jobs_address *from);
void jobs_guest_free(struct jobs *j, struct jobs_guest *g); /* g may be NULL */
void jobs_asked(struct jobs_process *p, uint64_t id); /* it is given this order */
/* It has come from there now. */
void jobs_guest_heard(struct jobs_guest *g, const struct jobs_address *from);
/* Something waits for it. p may be no guest. */
void jobs_poke(const struct jobs *j, const struct jobs_process *p);
/* The guest in the same process; the other client in the same process as a guest, the one that
 * asks for traces by PyTorch's profiler. NULL: none. */
struct jobs_process *jobs_guest_of(const struct jobs *j, const struct jobs_process *p);
struct jobs_process *jobs_tracer_of(const struct jobs *j, const struct jobs_process *p);
/* Adds to the set the bits of options of a config that the guest does not honour. */
void jobs_guest_lacks(const struct jobs_guest *g, const char *config, uint64_t *set);
/* As people type them: ["--l2-cache"]. */
json_t *jobs_lacking(uint64_t set);
/* Its socket may have left a file. p may be no guest. */
void jobs_guest_gone(const struct jobs *j, const struct jobs_process *p);

struct jobs_order;

/* --- daemon/jobs/effects.c --- */

/*
 * Adds the pid to what the order means there, before it is given: "stepsUnknown", a trace of steps
 * that nobody tells; "tracesReplaced", "tracesDropped", one that has not begun gives way.
 */
void jobs_trace_effects(const struct jobs_order *o, const struct jobs_config *c,
			const struct jobs_process *p, json_t *out);
/* The same in words, for a guest; NULL: nothing of the kind. */
const char *jobs_trace_effect(const struct jobs_order *o, const struct jobs_process *p);

/* --- daemon/jobs/arbiter.c: the monitor and PyTorch's profiler exclude each other in a process ---
 */

void jobs_arbiter_init(struct jobs *j);
void jobs_arbiter_release(struct jobs *j);
/* A trace by PyTorch's profiler was ordered: the guest in that process steps aside. */
void jobs_arbiter_order(struct jobs *j, struct jobs_process *p);
/* Whether what is pending may be handed out now. */
bool jobs_arbiter_lets(struct jobs *j, struct jobs_process *p);
/* p has asked; its pending config has been delivered; it has told the state of its monitor. */
void jobs_arbiter_asked(struct jobs *j, struct jobs_process *p);
void jobs_arbiter_delivered(struct jobs *j, struct jobs_process *p, const struct jobs_config *c);
void jobs_arbiter_told(struct jobs *j, struct jobs_process *p);
/* PyTorch's own profiler is at work, as far as one can know. */
bool jobs_tracer_is_busy(const struct jobs_process *tracer, int64_t now_ms);
/* p is being forgotten. */
void jobs_arbiter_forget(struct jobs *j, struct jobs_process *p);
/* Why what is pending would be held back, in plain words; NULL: it would not. */
const char *jobs_arbiter_reason(const struct jobs *j, const struct jobs_process *p,
				enum config_kind kind);

/* --- daemon/jobs/lease.c: monitors that are lent to who looks on --- */

uint64_t jobs_lease_of(const char *config); /* 0: none */
/* Whether an order with a lease would be heeded, and disturbs nobody. */
bool jobs_lease_lets(const struct jobs_process *p, const struct jobs_config *c);
/* It is given this order, with a lease or without; it has fetched it. */
void jobs_lease_given(struct jobs_process *p, const struct jobs_config *c);
void jobs_lease_delivered(struct jobs_process *p, const struct jobs_config *c);

/* Numbers of processes, as who has this lease sees them. */
struct jobs_leases {
	size_t own, others; /* on, by an order of his; of somebody else's */
	size_t lapsed; /* off, and his was the last order: not on yet, or not any more */
	size_t ended, stopped; /* off after somebody else's order; the part that was to stop it */
	size_t free; /* off, and nobody has said anything about it */
};
void jobs_lease_count(const struct jobs_process *p, uint64_t lease, int64_t now_ms,
		      struct jobs_leases *out);
json_t *jobs_leases_json(const struct jobs_leases *l);
/* Whether who has this lease has told it to stop, and it has not yet. */
bool jobs_lease_lingers(const struct jobs_process *p, uint64_t lease, int64_t now_ms);

/* --- daemon/jobs/top.c --- */

void jobs_top_forget(struct jobs *j, struct jobs_process *p);

/* --- daemon/jobs/gate.c: an NPU has one profiling resource for trace and monitor --- */

/* What processes together do: Running > Ready > Idle > anything else > Uninitialized. */
struct jobs_aggregate {
	int trace, monitor;
	bool monitor_told; /* by any of them, since the daemon began */
	const struct jobs_process *leader; /* whose steps are told; NULL: nobody told any */
};
struct jobs_aggregate jobs_aggregate(const struct jobs *j);

/* The same for each user, whose orders wait for his own processes alone. No leader. */
void jobs_by_user(const struct jobs *j, struct hmap *out); /* hmap_release() it */
struct jobs_aggregate jobs_of_user(const struct hmap *by_user, uid_t uid);

/* "effective" if an order of this kind may go out now, else "ineffective" or "unknown". */
const char *jobs_gate(enum config_kind kind, struct jobs_aggregate a);
bool jobs_gate_open(enum config_kind kind, struct jobs_aggregate a);
/* In plain words, for one that may not. */
const char *jobs_gate_reason(enum config_kind kind, struct jobs_aggregate a);

/* Which processes a request is for. */
struct jobs_target {
	int64_t job_id;
	bool all; /* of the job */
	int32_t *pids; /* sorted */
	size_t npids;
};

/* Reads job_id and pids; false with the reply that says what was wrong with them. */
bool jobs_target_read(const json_t *request, bool need_pids, struct jobs_target *out,
		      json_t **out_fault);
bool jobs_target_matches(const struct jobs_target *t, const struct jobs_process *p);
/* Whether it is one of them by the number that it calls itself by. */
bool jobs_target_names(const struct jobs_target *t, int32_t pid);
/* Whether it is one of them by the number that our own pid namespace has for it. */
bool jobs_target_names_here(const struct jobs_target *t, const struct jobs_process *p);
void jobs_target_release(struct jobs_target *t);

/* A number of any JSON kind, as today's daemons convert it; NULL reply on success. */
json_t *jobs_read_int(const json_t *value, int64_t *out);
json_t *jobs_type_fault(const char *wanted, const json_t *got);

/* --- daemon/jobs/requests.c --- */

struct jobs_order {
	struct jobs_target target;
	const char *config;
	int64_t limit;
	int64_t now_ms;
	enum config_kind kind;
	bool each_guest; /* the limit is not for guests */
	bool leaves_out; /* by its pids or its limit: some who would have taken it */
	bool with_reason; /* who gives it wants to know why nobody gets it */
	struct hmap reporters; /* processes of frameworks that told a state: user and pid */
	struct hmap frameworks; /* the same and those that may be of one */
};

/* False with the reply that says what is wrong with the request. */
bool jobs_order_read(const struct jobs *j, const json_t *request, struct jobs_order *out,
		     json_t **out_fault);
void jobs_order_release(struct jobs_order *o);
/* The part of it that says for whom it is; o->kind and o->now_ms are set. */
bool jobs_order_aim(const struct jobs *j, const json_t *request, struct jobs_order *o,
		    json_t **out_fault);
uint64_t jobs_trace_id(struct jobs *j); /* a new REQUEST_TRACE_ID */
/* Whether the process is a client for such an order, and whether it would be given to it. */
bool jobs_order_understood(const struct jobs_order *o, const struct jobs_process *p);
bool jobs_order_wants(const struct jobs_process *p, const void *order);
/* daemon/jobs/explain.c: why nobody gets it now, in plain words. */
const char *jobs_order_refused(const struct jobs *j, const struct jobs_order *o);
/* The order in which a limit is used up: that of the sets of pids. */
int jobs_by_pids(const void *a, const void *b);

#endif
