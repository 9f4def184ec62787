/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Why a process may not be read: what is known about it, and the words for it. */
#ifndef SONDE_UNWIND_REMOTE_FIND_EPERM_H
#define SONDE_UNWIND_REMOTE_FIND_EPERM_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct eperm_facts {
	pid_t pid;
	char name[64]; /* of the process */
	char program[PATH_MAX]; /* ours */
	uid_t our_uid, uid;
	gid_t our_gid, gid;
	bool can_trace; /* we have CAP_SYS_PTRACE, in our user namespace */
	int yama; /* kernel.yama.ptrace_scope; -1: this kernel has none */
	bool other_user_namespace; /* for certain */
	bool not_dumpable; /* for certain: that of root's processes cannot be seen */
	bool more_capabilities; /* than we have */
	bool seccomp; /* our system calls are filtered */
	bool confined; /* by a security module such as AppArmor or SELinux */
	bool container; /* we are in one */
	bool kubernetes;
};

/* The most likely cause and the command that removes it. Returns -EPERM. */
int eperm_words(const struct eperm_facts *facts, struct err *err);

#endif
