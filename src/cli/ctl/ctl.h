/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What all commands of `sonde ctl` share: the options that say which hosts to ask, one round of
 * requests to all of them at once, tables of their answers, and messages about hosts that failed.
 * `dyno` is the same set of commands under another name; see cmd_ctl.c.
 */
#ifndef SONDE_CLI_CTL_CTL_H
#define SONDE_CLI_CTL_CTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/progress.h"
#include "base/text/table.h"
#include "cli/command.h"
#include "client/call_hosts.h"
#include "daemon/daemon.h"
#include "wire/rpc.h"

/* --- the groups `ctl` and `dyno`, for the list in commands.c --- */

extern const char *const ctl_usage[];
extern const struct opt ctl_options[]; /* the common ones alone */
extern const struct args_section ctl_sections[], dyno_sections[];
extern const struct args_example ctl_examples[], dyno_examples[];

/* Finds and runs the command of the group, whose common options may come before its name. */
int ctl_run(const struct command_group *group, int argc, char **argv);

/* --- one command --- */

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
	struct host_list hosts;
	struct client_group group; /* for the functions of client/; borrows from here */
	struct progress progress;
};

/* Parses the command line. Negative: go on. Otherwise the exit status. */
int ctl_begin(struct ctl *c, const struct command *cmd, struct args *a, int argc, char **argv);

/* Finds the hosts, loads the certificates, and makes the group; with `announce` it prints the mode
 * of connection, as scripts know it, if there is one host. Negative: go on. Otherwise the exit
 * status. */
int ctl_open(struct ctl *c, bool announce);
void ctl_end(struct ctl *c);

/* A whole command, from its command line to its exit status: for command.data. */
struct ctl_steps {
	const void *defaults; /* of its options, which begin with a struct ctl_common */
	size_t size;
	/* Refuses options that do not fit together; may be NULL. */
	int (*check)(const struct ctl *c, const struct args *a, void *options, struct err *err);
	bool announce; /* for ctl_open(): commands of msMonitor do, those of dynolog alone do not */
	int (*run)(struct ctl *c, void *options); /* the exit status */
};
int ctl_command(const struct command *cmd, int argc, char **argv); /* command.run */

extern const char *const ctl_command_usage[]; /* "[options]" */
/* The command `sonde ctl <word>`, which is also `dyno <word>`; the rest is .summary and
 * .description. */
#define CTL_COMMAND(word, usage_, options_, examples_, steps_, ...)                                \
	{                                                                                          \
		.name = "ctl " word, .alias = "dyno " word,                                        \
		.spec = {.name = "sonde ctl " word,                                                \
			 .usage = usage_,                                                          \
			 .options = options_,                                                      \
			 .examples = examples_,                                                    \
			 .flags = ARGS_GFLAGS,                                                     \
			 __VA_ARGS__},                                                             \
		.run = ctl_command, .data = steps_                                                 \
	}

/* The name of the command for hints: "dyno" or "sonde ctl". */
const char *ctl_name(const struct ctl *c);
/* Whether this was called as dyno. */
bool ctl_is_dyno(const struct ctl *c);
/* Whether a command without an effect exits with EXIT_FINDING: not as dyno, unless --strict. */
bool ctl_is_strict(const struct ctl *c);

/* nputrace --stop: ends traces that wait or run, now. pids: as on the command line; wait_s: how long
 * files are waited for, 0: not. The exit status. */
int ctl_stop_run(struct ctl *c, uint64_t job_id, const char *pids, unsigned wait_s);

/* --- what is printed --- */

/* A line on stderr, after the name of the command. */
__attribute__((format(printf, 2, 3))) void ctl_notice(const struct ctl *c, const char *fmt, ...);

/* Prints why there is nothing of any host. The exit status. */
int ctl_fail(struct ctl *c, const struct err *err, int status);

/* Prints which hosts failed, all of them in one line, and why if there is one host only. The exit
 * status: EXIT_DONE or EXIT_FAILED. */
int ctl_failures(const struct ctl *c, const struct client_answer *answers);

/* {"host":…,"address":…,"port":…,"ok":…,"reply":…,"error":…} */
json_t *ctl_answer_json(const struct ctl *c, size_t host, const struct client_answer *a);
/* Prints an array of these; `add` may change each; NULL: it does not. The exit status. */
int ctl_print_json(const struct ctl *c, const struct client_answer *answers,
		   void (*add)(const void *arg, size_t host, json_t *row), const void *arg);

/* A column of a table: the title, and the key of the reply that it shows. */
struct ctl_column {
	const char *title; /* as of struct table; NULL ends a list */
	const char *key;
	enum { CTL_TEXT, CTL_COUNT, CTL_SECONDS, CTL_EFFECT } kind; /* CTL_EFFECT: of a bool */
};
/* Adds the cells of an object; "-" for what it does not have. */
void ctl_add_cells(const struct ctl_column *columns, const json_t *o, struct table *t);
/* Puts HOST (if `host`), the titles of the columns and NOTE (if `note`) into `out`, which is ended
 * by NULL. */
void ctl_set_titles(const struct ctl_column *columns, bool host, bool note,
		    const char *out[TABLE_COLUMNS + 1]);

/* The processes that listProcesses describes, with a column of hosts if there are several. */
extern const struct ctl_column ctl_process_columns[];
void ctl_add_process(const struct ctl *c, size_t host, const json_t *process, struct table *t);

/* --- rows of the common options, for the end of a table; the heading comes first --- */

#define CTL_COMMON_ROWS CTL_ROWS_JSON("Print JSON: an array with one object for each host.")
/* The same for a command whose JSON is another. */
#define CTL_AT(member) offsetof(struct ctl_common, member)
#define CTL_ROWS_JSON(json_help)                                                                   \
	OPTION_TEXT("hostname", "HOSTS", CTL_AT(hostname), "localhost",                            \
		    "Hosts to ask, all at once: a name or address, several with commas, ranges "   \
		    "such as node[1-8]. A host with another port than --port is written as "       \
		    "HOST:PORT, the daemon's --control-socket as unix:PATH.",                      \
		    .group = "Hosts"),                                                             \
		OPTION_UINT("port", "PORT", CTL_AT(port), 1, 65535, "1778",                        \
			    "Port of the daemons, for hosts that are written without a port."),    \
		OPTION_TEXT("hosts-file", "FILE", CTL_AT(hosts_file), NULL,                        \
			    "Ask the hosts in this file: a host or a list of them on each line; "  \
			    "'-' is the standard input."),                                         \
		OPTION_TEXT("slurm-job", "ID", CTL_AT(slurm_job), NULL,                            \
			    "Ask the nodes of this Slurm job, as squeue or scontrol list them."),  \
		OPTION_TEXT("k8s-selector", "SELECTOR", CTL_AT(k8s_selector), NULL,                \
			    "Ask the daemons in the running pods with these labels, as kubectl "   \
			    "lists them."),                                                        \
		OPTION_TEXT("k8s-namespace", "NAME", CTL_AT(k8s_namespace), NULL,                  \
			    "The namespace of those pods, if it is not the current one."),         \
		OPTION_TEXT("certs-dir", "DIR", CTL_AT(certs_dir), DAEMON_NO_CERTS,                \
			    "Directory with ca.crt, client.crt and client.key, for daemons that "  \
			    "have certificates; NO_CERTS for those that have none.",               \
			    .group = "Connection and output"),                                     \
		OPTION_UINT("timeout", "SECONDS", CTL_AT(timeout_s), 1, 3600, "5",                 \
			    "How long a host may take to answer."),                                \
		OPTION_FLAG("json", CTL_AT(json), json_help),                                      \
		OPTION_FLAG("strict", CTL_AT(strict),                                              \
			    "Exit with status 3 when the command had no effect. Always so for "    \
			    "'sonde ctl'."),                                                       \
		COMMAND_HELP_OPTION,                                                               \
		{.name = "version",                                                                \
		 .letters = "V",                                                                   \
		 .kind = OPT_STOP,                                                                 \
		 .help = "Show the version and exit."},                                            \
		OPT_END

#endif
