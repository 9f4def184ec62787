/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What was configured about access: the file that maps names of certificates to rights, a line
 * for each, and the members of the group that may do everything.
 *
 *	# name of the certificate     what it may do
 *	alice                         user=alice
 *	night watch                   viewer
 *	ops                           operator
 *	*                             user=1000
 */
#ifndef SONDE_DAEMON_ACCESS_RULES_H
#define SONDE_DAEMON_ACCESS_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/access.h"

#define ACCESS_NO_GROUP ((gid_t)-1)

struct access_rule {
	char *name; /* of a certificate; "*": of all that have no line */
	enum access_right right;
	char *user; /* ACCESS_OWN: name or number, as it was written */
	uid_t uid; /* the same, looked up */
	unsigned line;
};

/* Zero-initialise and release. */
struct access_rules {
	struct access_rule *rules;
	size_t nrules, rules_cap;
	bool has_file; /* certificates without a line may do nothing */
	gid_t group; /* ACCESS_NO_GROUP: none */
	uid_t *members; /* sorted */
	size_t nmembers, members_cap;
};

/* `file` and `group` may be NULL. May take as long as a name service does. */
int access_rules_load(const char *file, const char *group, struct access_rules *out,
		      struct err *err);
/* The text of the file alone; users are not looked up. */
int access_rules_parse(struct access_rules *r, const char *text, size_t len, struct err *err);
void access_rules_release(struct access_rules *r);

/* NULL: none is for this name. */
const struct access_rule *access_rules_find(const struct access_rules *r, const char *name);
bool access_rules_is_member(const struct access_rules *r, uid_t uid);

#endif
