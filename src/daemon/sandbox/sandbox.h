/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * --user NAME: the daemon without root. It opens what needs root, then gives up everything that it
 * does not need afterwards:
 *
 *	user          that of NAME, and no capability (CAP_PERFMON with --enable-perf-monitor)
 *	new rights    none, by no_new_privs
 *	system calls  a list (seccomp): no other program, no other process, no other user
 *	files         written only below the directories that the options name (Landlock)
 *
 * Two things still need more: the environment of other users' processes (their ranks), and
 * certificates that only root can read. A second process, the broker, opens these files and no
 * others for it (base/broker.h); it has CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, talks to nobody
 * else, and can do nothing but open.
 *
 * What the kernel does not have is left out, and the log says so.
 */
#ifndef SONDE_DAEMON_SANDBOX_SANDBOX_H
#define SONDE_DAEMON_SANDBOX_SANDBOX_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/daemon.h"

struct sandbox;

/* First of all, before there are threads or files: finds the user, starts the broker. *out is NULL
 * without --user. */
int sandbox_prepare(const struct daemon_config *config, struct sandbox **out, struct err *err);

/* The user that the daemon goes on as; without a sandbox its own. */
uid_t sandbox_uid(const struct sandbox *s);

/* Opens the log file, so that the user can open it again. Also without --user. */
int sandbox_open_log(const struct daemon_config *config, struct err *err);

/* When everything that needs root is open, and before there are threads. NULL: does nothing. */
int sandbox_enter(struct sandbox *s, struct err *err);

/* Whether these options write only where the sandbox allows it; else the reason is in err. */
int sandbox_check_config(const struct sandbox *s, const struct daemon_config *next,
			 struct err *err);

/* For getDaemon: which parts are active. null without a sandbox. */
json_t *sandbox_describe(const struct sandbox *s);

void sandbox_free(struct sandbox *s);

#endif
