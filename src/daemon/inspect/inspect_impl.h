/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One run of our own program as another user: start.c starts it, inspect.c listens to it and has the
 * questions about processes, reports.c, hosts.c and order.c have the others.
 */
#ifndef SONDE_DAEMON_INSPECT_INSPECT_IMPL_H
#define SONDE_DAEMON_INSPECT_INSPECT_IMPL_H

#include <event2/buffer.h>
#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "daemon/access.h"
#include "daemon/daemon.h"

#define INSPECT_WORDS 24 /* of a command line, and NULL */

struct inspect_start {
	const char *words[INSPECT_WORDS]; /* behind "sonde"; ended by NULL */
	pid_t process; /* whose user it runs as; 0: that of who asks … */
	uid_t uid; /* … which has to be this one */
	uint32_t file_bytes; /* that a file may have which it writes; most write none */
};

/*
 * Starts it with that user's rights and no others: real, effective and saved ids, no further groups, no
 * new privileges, an environment of its own, limits of memory and files, the lowest priority. It ends
 * with us. *out_fd: what it prints. -EPERM with words: the daemon may not become that user.
 */
int inspect_start(const struct inspect_start *s, pid_t *out_pid, int *out_fd, struct err *err);

enum inspect_kind {
	INSPECT_MEMORY,
	INSPECT_SNAPSHOT,
	INSPECT_REPORT,
	INSPECT_HOSTS,
	INSPECT_ORDER
};

struct run {
	struct inspect *owner;
	enum inspect_kind kind;
	uint64_t id;
	uid_t uid;
	bool commands; /* the command lines in it may be shown to who started it */
	const char *by; /* of a memory, a literal */
	char *about; /* of hosts: which; owned, or NULL */
	pid_t process; /* that it is about; of a snapshot the first of them */
	pid_t pid; /* of the program; 0: it has ended */
	int fd;
	struct event *readable;
	struct buf text; /* what has come; of what goes on, behind its last whole line */
	struct buf
		line; /* the last whole answer: read, it can be fifty times as large; of no report */
	int file; /* a report, megabytes, as it comes: a file without a name; -1: none */
	uint64_t file_bytes;
	struct evbuffer *page; /* of it, once somebody has read it; or NULL */
	uint64_t bytes; /* that have come */
	char why[256]; /* it failed: in words */
	uint64_t started_ns, asked_ns;
	struct run *next;
};

struct inspect {
	struct daemon *d;
	struct run *runs; /* newest first */
	struct event *sweep; /* pending while there are some */
	uint64_t ids;
};

/* Whose it is and what it is about is in `r`, of which a copy is kept. NULL with words: it could not be
 * started, or there are too many at once. */
struct run *inspect_run(struct inspect *i, const struct run *r, const struct inspect_start *s,
			struct err *err);
/* Ends it, and forgets what it has said. */
void inspect_drop(struct run *r);
/* {"state":…,"why":…,KEY:…}. Takes `answer`. */
json_t *inspect_state(const struct run *r, const char *key, json_t *answer, bool reasons);
json_t *inspect_answer(const struct run *r); /* the last one that is whole; null: none */
json_t *inspect_refuse(const char *why);
/* An answer in words where the daemon starts no programs; NULL: it does. */
json_t *inspect_not_here(const struct inspect *i);
/* hosts.c: why the hosts that a request names cannot be called for who asks; NULL: they can. */
const char *inspect_hosts_fault(const struct access_grant *who, const json_t *request);
#define HOSTS_WORDS 3
struct hosts_words {
	char *list[HOSTS_WORDS]; /* owned by the caller; the last may be NULL */
};
void inspect_hosts_words(const json_t *request, struct hosts_words *out);
/* reports.c: moves what has come from `text` into `file`, if it is a page; an error has words. */
int inspect_save_page(struct run *r, struct err *err);
/* It has failed, but not just now. */
bool inspect_may_try_again(const struct run *r);

#endif
