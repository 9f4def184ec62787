/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside of jobs: the registry that jobs.c keeps, jobs_messages.c fills, jobs_order.c gives
 * configs to and jobs_list.c tells of. */
#ifndef SONDE_DAEMON_JOBS_IMPL_H
#define SONDE_DAEMON_JOBS_IMPL_H

#include "base/hmap.h"
#include "daemon/jobs.h"

/* A text that waits for processes, shared by all of them. */
struct jobs_config {
	unsigned refs;
	bool is_monitor;
	int64_t monitor_ms; /* the monitor that it starts ends by itself after this time; 0: never
			     */
	size_t len;
	char text[];
};

/* A process as our kernel knows it: what it registered ends with it. */
struct jobs_peer {
	pid_t pid;
	int pidfd; /* -1: it could not be had; asked by kill() from time to time */
	struct jobs_process *first; /* linked by peer_next */
};

enum jobs_heard {
	JOBS_HEARD_CONTEXT = 1 << 0,
	JOBS_HEARD_REQUEST = 1 << 1, /* it polls: only such a process can be given a config */
	JOBS_HEARD_TRACE = 1 << 2,
	JOBS_HEARD_MONITOR = 1 << 3,
};

#define JOBS_STATE_UNKNOWN 3 /* any number that is no enum fabric_state */

/* Kept small: ten thousand of them fit in four megabytes. Times are CLOCK_MONOTONIC. */
struct jobs_process {
	struct jobs_process *hash_next;
	struct jobs_process *peer_next;
	struct jobs_peer *peer; /* NULL: not visible from our pid namespace */
	int32_t *pids; /* sorted; NULL until it asks for a config */
	struct jobs_config *pending;
	const char *endpoint;
	int64_t job_id;
	int64_t first_ms, last_ms;
	int64_t status_ms; /* when it last told its state */
	int64_t monitor_until_ms; /* 0: until it says so */
	int32_t pid; /* as it knows itself */
	int32_t device; /* -1: not told */
	int32_t current_step, start_step, stop_step;
	uint32_t uid;
	int8_t trace, monitor; /* enum fabric_state or JOBS_STATE_UNKNOWN */
	uint8_t npids;
	uint8_t heard; /* enum jobs_heard */
	uint8_t mask; /* enum fabric_mask of its last request */
};

struct jobs {
	struct event_base *base;
	unsigned max_per_uid;
	uid_t own_uid;
	struct hmap processes; /* hash of the identity to the first jobs_process of a chain */
	struct hmap peers; /* pid to jobs_peer */
	struct hmap per_uid; /* uid to number of processes */
	struct hmap per_job; /* job id to number of processes */
	struct hmap per_device; /* hash of job and device to number of contexts */
	int watch_fd; /* epoll of all pidfds: one event of the loop for all of them */
	struct event *watch;
	struct event *sweep; /* pending only while there is somebody to look after */
	struct jobs_process *delivering; /* of the last jobs_request() with a config */
	int64_t monitor_ms; /* of the last config handed out that starts a monitor */
	uint64_t orders; /* makes trace ids differ */
	struct jobs_counts counts;
};

/* The process, made at its first word. NULL, and *out_code says why, if it is refused. */
struct jobs_process *jobs_hear(struct jobs *j, const struct jobs_sender *from, int64_t job_id,
			       int32_t pid, int *out_code);

uint64_t jobs_count_up(struct hmap *m, uint64_t key); /* gives the new number */
void jobs_count_down(struct hmap *m, uint64_t key);
uint64_t jobs_device_key(int64_t job_id, int32_t device);

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

void jobs_config_release(struct jobs_config *c); /* c may be NULL */

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
void jobs_target_release(struct jobs_target *t);

/* A number of any JSON kind, as today's daemons convert it; NULL reply on success. */
json_t *jobs_read_int(const json_t *value, int64_t *out);
json_t *jobs_type_fault(const char *wanted, const json_t *got);

#endif
