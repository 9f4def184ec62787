/* SPDX-License-Identifier: MulanPSL-2.0 */
/* One run of our own program as another user: start.c starts it, inspect.c listens to it. */
#ifndef SONDE_DAEMON_INSPECT_INSPECT_IMPL_H
#define SONDE_DAEMON_INSPECT_INSPECT_IMPL_H

#include <sys/types.h>

#include "base/err.h"

#define INSPECT_WORDS 16 /* of a command line, and NULL */

struct inspect_start {
	const char *words[INSPECT_WORDS]; /* behind "sonde"; ended by NULL */
	pid_t process; /* whose user it runs as … */
	uid_t uid; /* … which has to be this one */
};

/*
 * Starts it with that user's rights and no others: real, effective and saved ids, no further groups, no
 * new privileges, an environment of its own, limits of memory and files, the lowest priority. It ends
 * with us. *out_fd: what it prints. -EPERM with words: the daemon may not become that user.
 */
int inspect_start(const struct inspect_start *s, pid_t *out_pid, int *out_fd, struct err *err);

#endif
