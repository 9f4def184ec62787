/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What all commands of `sonde ctl` share: the options that say whom to ask and how, one round of
 * questions to all hosts at once, and what is said about hosts that failed. `dyno` is the same set
 * of commands under another name; see cmd_ctl.c.
 */
#ifndef SONDE_CLI_CTL_CTL_H
#define SONDE_CLI_CTL_CTL_H

#include <jansson.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>

#include "cli/command.h"
#include "cli/ctl/group.h"
#include "client/hosts.h"
#include "daemon/daemon.h"
#include "wire/rpc.h"

/* The first member of every target of a control command. */
struct ctl_common {
	const char *hostname, *hosts_file, *slurm_job, *k8s_selector, *k8s_namespace;
	unsigned port;
	const char *certs_dir;
	unsigned timeout_s;
	bool json, strict;
};

#define CTL_COMMON_DEFAULTS                                                                        \
	{                                                                                          \
		.port = RPC_PORT, .certs_dir = DAEMON_NO_CERTS, .timeout_s = 5                     \
	}

/* One run of a control command. Zero-initialise; ctl_end() releases. */
struct ctl {
	const struct command *cmd;
	const struct ctl_common *common;
	struct ctl_hosts hosts;
	SSL_CTX *tls;
	bool quiet; /* no progress on stderr */
	int64_t asked_ns; /* CLOCK_REALTIME when the last round began */
};

/* What one host said. */
struct ctl_answer {
	json_t *reply; /* an object; NULL: it failed */
	char *raw; /* the same as it came, in one line and fit for a terminal */
	size_t raw_bytes; /* as they came */
	struct err err; /* why it failed */
	double seconds;
};

/* Parses the command line. Negative: go on. Otherwise the exit status. */
int ctl_begin(struct ctl *c, const struct command *cmd, struct args *a, int argc, char **argv);

/* Finds the hosts and loads the certificates, and with `tell` says so as everyone is used to when
 * there is one host. Negative: go on. Otherwise the exit status. */
int ctl_open(struct ctl *c, bool tell);
void ctl_end(struct ctl *c);

/* Says why there is nothing to tell of any host. The exit status. */
int ctl_fail(const struct ctl *c, const struct err *err, int status);

/* Whether all that was printed has been written. EXIT_DONE, or EXIT_FAILED with a message. */
int ctl_written(const struct ctl *c);

/* For --version. The exit status. */
int ctl_print_version(const char *name);

/* Whether this was called as dyno: commands without an effect exit with 0. */
bool ctl_is_dyno(const struct ctl *c);

/* Asks every host at once: requests[i] is for host i, NULL for one that is left out. answers has
 * an element for every host, zeroed. Fails only if nobody could be asked. */
int ctl_ask(struct ctl *c, json_t *const *requests, struct ctl_answer *answers, struct err *err);
/* The same question for all; takes the reference. */
int ctl_ask_all(struct ctl *c, json_t *request, struct ctl_answer *answers, struct err *err);

/* The element of all hosts; freed with ctl_answers_free(). */
struct ctl_answer *ctl_answers_new(const struct ctl *c);
void ctl_answers_free(const struct ctl *c, struct ctl_answer *answers);

/* {"host":…,"address":…,"port":…,"ok":…,"reply":…,"error":…} */
json_t *ctl_answer_json(const struct ctl *c, size_t host, const struct ctl_answer *a);

/* Says which hosts failed, all of them in one line, and why if there is one host only. The exit
 * status: EXIT_DONE or EXIT_FAILED. */
int ctl_failures(const struct ctl *c, const struct ctl_answer *answers);

/* A line on stderr, after the name of the command. */
__attribute__((format(printf, 2, 3))) void ctl_say(const struct ctl *c, const char *fmt, ...);

/* Rows of the common options, for the end of a table; the heading comes first. */
#define CTL_COMMON_ROWS CTL_ROWS_JSON("Print JSON: an array with one object for each host.")
/* The same for a command whose JSON is another. */
#define CTL_ROWS_JSON(json_help)                                                                   \
	{.group = "Hosts",                                                                         \
	 .name = "hostname",                                                                       \
	 .kind = OPT_TEXT,                                                                         \
	 .arg = "HOSTS",                                                                           \
	 .offset = offsetof(struct ctl_common, hostname),                                          \
	 .default_text = "localhost",                                                              \
	 .help = "Hosts to ask, all at once: a name or address, several with commas, ranges such " \
		 "as node[1-8], each with a port behind a colon if it has another."},              \
		{.name = "port",                                                                   \
		 .kind = OPT_UINT,                                                                 \
		 .arg = "PORT",                                                                    \
		 .min = 1,                                                                         \
		 .max = 65535,                                                                     \
		 .offset = offsetof(struct ctl_common, port),                                      \
		 .default_text = "1778",                                                           \
		 .help = "The port of daemons whose host names none."},                            \
		{.name = "hosts-file",                                                             \
		 .kind = OPT_TEXT,                                                                 \
		 .arg = "FILE",                                                                    \
		 .offset = offsetof(struct ctl_common, hosts_file),                                \
		 .help = "Ask the hosts in this file: a host or a list of them on each line; '-' " \
			 "is the standard input."},                                                \
		{.name = "slurm-job",                                                              \
		 .kind = OPT_TEXT,                                                                 \
		 .arg = "ID",                                                                      \
		 .offset = offsetof(struct ctl_common, slurm_job),                                 \
		 .help = "Ask the nodes of this Slurm job, as squeue or scontrol tell them."},     \
		{.name = "k8s-selector",                                                           \
		 .kind = OPT_TEXT,                                                                 \
		 .arg = "SELECTOR",                                                                \
		 .offset = offsetof(struct ctl_common, k8s_selector),                              \
		 .help = "Ask the daemons in the running pods with these labels, as kubectl "      \
			 "tells them."},                                                           \
		{.name = "k8s-namespace",                                                          \
		 .kind = OPT_TEXT,                                                                 \
		 .arg = "NAME",                                                                    \
		 .offset = offsetof(struct ctl_common, k8s_namespace),                             \
		 .help = "The namespace of those pods, if it is not the current one."},            \
		{.group = "Connection and output",                                                 \
		 .name = "certs-dir",                                                              \
		 .kind = OPT_TEXT,                                                                 \
		 .arg = "DIR",                                                                     \
		 .offset = offsetof(struct ctl_common, certs_dir),                                 \
		 .default_text = DAEMON_NO_CERTS,                                                  \
		 .help = "Directory with ca.crt, client.crt and client.key, for daemons that "     \
			 "have certificates; NO_CERTS for those that have none."},                 \
		{.name = "timeout",                                                                \
		 .kind = OPT_UINT,                                                                 \
		 .arg = "SECONDS",                                                                 \
		 .min = 1,                                                                         \
		 .max = 3600,                                                                      \
		 .offset = offsetof(struct ctl_common, timeout_s),                                 \
		 .default_text = "5",                                                              \
		 .help = "How long a host may take to answer."},                                   \
		{.name = "json",                                                                   \
		 .kind = OPT_FLAG,                                                                 \
		 .offset = offsetof(struct ctl_common, json),                                      \
		 .help = json_help},                                                               \
		{.name = "strict",                                                                 \
		 .kind = OPT_FLAG,                                                                 \
		 .offset = offsetof(struct ctl_common, strict),                                    \
		 .help = "Exit with status 3 when the command had no effect. Always so for "       \
			 "'sonde ctl'."},                                                          \
		COMMAND_HELP_OPTION,                                                               \
		{.name = "version",                                                                \
		 .letters = "V",                                                                   \
		 .kind = OPT_STOP,                                                                 \
		 .help = "Show the version and exit."},                                            \
		OPT_END

#endif
