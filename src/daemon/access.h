/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who calls the daemon, and what the caller may do.
 *
 * A connection belongs to somebody: to a user of this machine, as the kernel says
 * (net/socket_owner.h), or to whom a certificate names. This is found out once, when the connection
 * is accepted. What the caller may do is asked for each request, because a reload can change it:
 *
 *	root, the daemon's own user, members of --admin-group          everything
 *	another user of this machine                                   their own processes
 *	a certificate                 everything, or what --access-file has for its name
 *	a caller that is not known                                     nothing
 *
 * With --trust-local-users all who need no certificate may do everything.
 */
#ifndef SONDE_DAEMON_ACCESS_H
#define SONDE_DAEMON_ACCESS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/containers/hmap.h"
#include "base/err.h"
#include "daemon/daemon.h"

enum caller_kind {
	CALLER_UNKNOWN,
	CALLER_USER, /* of this machine */
	CALLER_CERTIFIED, /* shows a certificate: the connection is TLS */
};

struct caller {
	enum caller_kind kind;
	uid_t uid; /* of a user of this machine, whatever else they show; (uid_t)-1: not known */
	bool in_group; /* the user's process is in --admin-group, as the kernel says */
	uint64_t source; /* for shares: the same for all connections of a user of this machine, or
			    of an address elsewhere (IPv6: of a network of 64 bits) */
	int error; /* of CALLER_UNKNOWN, why: a negative errno */
};

enum access_right {
	ACCESS_NONE,
	ACCESS_OWN, /* to the processes of one user */
	ACCESS_VIEW, /* to everything, but changes nothing */
	ACCESS_ALL,
};

struct access_grant {
	enum access_right right;
	uid_t uid; /* whose processes are the caller's own; (uid_t)-1: nobody's */
	bool command_lines; /* those of other users' processes, too */
	const char *why; /* ACCESS_NONE: in words */
	uid_t self; /* the user of this machine who asks; (uid_t)-1: not known */
};

struct access;

/* Reads --access-file and looks up --admin-group, which may take as long as a name service does. */
int access_new(const struct daemon_config *config, struct access **out, struct err *err);
void access_free(struct access *a); /* a may be NULL */

/* Both again, by a thread; what was there stays in force until then, and on failure. */
void access_reload(struct access *a, const struct daemon_config *config);

/* Of an accepted socket. Takes microseconds. */
struct caller access_identify(const struct access *a, int fd);

/* `ssl` is for a certificate that was found good; NULL: there is none. */
struct access_grant access_find(struct access *a, const struct caller *c, const SSL *ssl);

/* Whether the caller may know of processes of this user; `who` NULL is the daemon itself. */
static inline bool access_covers(const struct access_grant *who, uid_t uid)
{
	return !who || who->right >= ACCESS_VIEW || (who->right == ACCESS_OWN && who->uid == uid);
}

/* --- shares: how many connections each source has --- */

/* The number afterwards; 0 takes no memory. */
uint64_t source_count(struct hmap *per_source, uint64_t source, int by);
/* Which one has most; the map is not empty. */
uint64_t source_with_most(const struct hmap *per_source);

#endif
