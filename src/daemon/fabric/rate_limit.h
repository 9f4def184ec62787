/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How much may be sent to the fabric. Each user has a token bucket for control messages and one for
 * data, so that telemetry does not cost a process its config; root and the daemon's own user have
 * more. One process may use a part of its user's control messages, so that one that runs wild does
 * not silence the other ranks of its job. What is sent in excess is dropped before any work. The
 * memory for it is bounded whatever the number of users and processes.
 */
#ifndef SONDE_DAEMON_FABRIC_RATE_LIMIT_H
#define SONDE_DAEMON_FABRIC_RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/containers/hmap.h"

#define FABRIC_LIMIT_RATE 10000u /* datagrams of a user per second, and as many at once */
#define FABRIC_LIMIT_TRUSTED_RATE 50000u
#define FABRIC_LIMIT_PROCESS_PART 4u /* a process may use this part of it */
#define FABRIC_LIMIT_USERS 4096u /* with buckets of their own; the others share */

enum fabric_limit_class { FABRIC_LIMIT_CONTROL, FABRIC_LIMIT_DATA, FABRIC_LIMIT_CLASSES };

/* Zero-initialise and release. */
struct fabric_limit {
	struct hmap users;
	struct fabric_user *others; /* shared by those beyond FABRIC_LIMIT_USERS */
	struct fabric_process *processes; /* a table by pid; few pids fall on one place */
	uint64_t swept_ns; /* when idle users were last looked for */
};

/* Takes a token for one datagram; false if there is none. pid 0: not known. */
bool fabric_limit_take(struct fabric_limit *l, uid_t uid, pid_t pid, enum fabric_limit_class class,
		       uint64_t now_ns);

void fabric_limit_release(struct fabric_limit *l);

#endif
