/* SPDX-License-Identifier: MulanPSL-2.0 */
/* How the files of fs.h walk along a path by its rules: fs_safe.c. */
#ifndef SONDE_BASE_FS_IMPL_H
#define SONDE_BASE_FS_IMPL_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"

/* A directory on the way, and what is left of the path: "a/b/c", no leading slash. */
struct walk {
	int fd; /* O_PATH */
	bool foreign; /* its owner is neither root nor us */
	char rest[PATH_MAX];
	unsigned links;
	const char *path; /* for messages */
};

bool walk_is_trusted(uid_t owner);
/* Goes to the directory "/" or ".". */
int walk_begin_at(struct walk *w, const char *dir);
/* The next name of the rest, which it loses; false at its end, or with a negative errno in *code.
 */
bool walk_next_name(struct walk *w, char name[NAME_MAX + 1], int *code);
/* Into a directory, or by what a link says. */
int walk_enter(struct walk *w, const char *name, bool make, struct err *err);
/* Puts what the link says before the rest. */
int walk_follow_link(struct walk *w, int link_fd, const struct stat *st, struct err *err);
/* To the directory of the last name; *out_name points into path. */
int walk_to_parent(struct walk *w, const char *path, const char **out_name, struct err *err);
/* A file in the directory, by the rules of fs_open(), whoever may write the directory. */
int walk_open(const struct walk *w, const char *name, int flags, mode_t mode, struct err *err);
void walk_end(struct walk *w);

bool fs_is_own_descriptor(const char *path);

#endif
