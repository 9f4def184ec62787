/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Between the files of this folder. */
#ifndef SONDE_DAEMON_SANDBOX_IMPL_H
#define SONDE_DAEMON_SANDBOX_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/containers/buf.h"
#include "base/err.h"

/* --- rights.c: user and capabilities --- */

struct sandbox_user {
	uid_t uid;
	gid_t gid;
	char name[64]; /* empty: a number without an account */
};

/* A name of the password database, or a number. */
int rights_find_user(const char *name, struct sandbox_user *out, struct err *err);

/*
 * Becomes this user and keeps, of the capabilities that there are, those of the mask; gains no
 * other any more. `saved_root`: the saved user id stays 0, see sandbox.c.
 */
int rights_become(const struct sandbox_user *user, uint64_t capabilities, bool saved_root,
		  struct err *err);
int rights_forget_root(void); /* the saved user id, too */
uint64_t rights_now(void); /* the effective capabilities */

/* --- filter.c: system calls --- */

bool filter_available(void);
/* For this process and its threads; 0 or a negative errno. */
int filter_daemon(bool perf);
int filter_broker(void);

/* --- landlock.c: where files may be written --- */

enum landlock_use {
	LANDLOCK_FILES, /* files and directories, made and written, not removed */
	LANDLOCK_LOG, /* files made and written */
	LANDLOCK_SOCKETS, /* sockets made, renamed, removed */
	LANDLOCK_NEW_SOCKETS, /* sockets made */
	LANDLOCK_DEVICES, /* what is there is written */
};

struct landlock_place {
	const char *dir;
	enum landlock_use use;
};

/* The version of Landlock that is in force now, or a negative errno. */
int landlock_enter(const struct landlock_place *places, size_t n);

/* --- broker_process.c --- */

struct broker_process {
	pid_t pid;
	int fd;
	uint64_t capabilities; /* that it has */
	int filter; /* 0, or why it has none */
};

/* `certs_dir`, an absolute path or NULL: certificates that root keeps there are opened, too. */
int broker_start(const struct sandbox_user *user, const char *certs_dir, struct broker_process *out,
		 struct err *err);

/* Whether the broker opens this file of a process. */
bool broker_is_process_file(const char *path);

#endif
