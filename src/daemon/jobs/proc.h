/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What /proc knows of a process beyond numbers: its command line and the rank in its environment.
 * These are read from its memory, and the kernel lets a reader wait while that changes: for seconds
 * where a process with a hundred gigabytes forks, for as long as it likes where it means harm. So
 * threads read, and who asks waits for a moment at most.
 */
#ifndef SONDE_DAEMON_JOBS_PROC_H
#define SONDE_DAEMON_JOBS_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* Asks for a process. `id` comes back with the answer. */
void jobs_proc_ask(struct jobs_proc *p, pid_t pid, uint64_t id);

/* Waits until everything that was asked since the last call is answered: not for long, and not at
 * all while all threads hang. */
void jobs_proc_wait(struct jobs_proc *p);

/* The next answer, which the caller frees; NULL: none. */
struct jobs_facts *jobs_proc_take(struct jobs_proc *p, pid_t *out_pid, uint64_t *out_id);

#endif
