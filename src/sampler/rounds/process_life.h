/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Whether a process is still the one it was, and whether it still runs the same program. */
#ifndef SONDE_SAMPLER_ROUNDS_PROCESS_LIFE_H
#define SONDE_SAMPLER_ROUNDS_PROCESS_LIFE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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
/* By its stat alone, for kernels without pidfds. */
bool life_stat_over(const struct life *l);

/* Which program it runs: changes with exec. 0 if that is not known. */
uint64_t life_program(pid_t pid);

/* How long a process of this start_ticks has been there. */
uint64_t life_age_ns(uint64_t start_ticks);

/* It runs in the memory of its parent, as between vfork and exec. False if that is not known. */
bool life_is_in_parent(pid_t pid, pid_t parent);

#endif
