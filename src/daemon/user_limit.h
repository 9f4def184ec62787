/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How much one user may cause of something that costs all of them: lines of the log, records for
 * files and receivers. Each user has a token bucket, so that one who floods leaves others theirs.
 * What is too much is counted; the log says so when it begins, and how much it was once a minute.
 */
#ifndef SONDE_DAEMON_USER_LIMIT_H
#define SONDE_DAEMON_USER_LIMIT_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct user_limit;

/* what: "lines", for the log. */
struct user_limit *user_limit_new(struct event_base *base, const char *what, unsigned per_second,
				  unsigned at_once);
void user_limit_free(struct user_limit *l); /* logs what was not logged so far; l may be NULL */

/* Takes one; false: it is too much for this user. l NULL: never. */
bool user_limit_take(struct user_limit *l, uid_t uid);
uint64_t user_limit_suppressed(const struct user_limit *l); /* in all; l may be NULL */

#endif
