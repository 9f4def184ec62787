/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde daemon, dynolog: the node daemon. The options are in daemon_options.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/daemon/daemon_options.h"
#include "daemon/daemon.h"
#include "daemon/sandbox/sandbox.h"

/* One reading of the command line. The daemon borrows texts of those before, so all are kept; a new
 * one comes only when somebody changed a file and sent SIGHUP. */
struct reading {
	struct args args;
	struct daemon_options options;
	struct reading *before;
};

struct readings {
	int argc;
	char **argv;
	struct reading *latest;
};

static void reading_free(struct reading *r)
{
	daemon_options_release(&r->options);
	args_release(&r->args);
	free(r);
}

static struct reading *reading_new(void)
{
	struct reading *r = xcalloc(1, sizeof(*r));

	daemon_options_init(&r->options);
	r->args.target = &r->options;
	return r;
}

static void readings_release(struct readings *all)
{
	while (all->latest) {
		struct reading *r = all->latest;

		all->latest = r->before;
		reading_free(r);
	}
}

static const struct daemon_config *read_again(void *arg, struct err *err)
{
	struct readings *all = arg;
	struct reading *r = reading_new();

	if (args_parse(&r->args, &cmd_daemon.spec, all->argc, all->argv, err) < 0 ||
	    daemon_options_check(&r->options, err) < 0) {
		reading_free(r);
		return NULL;
	}
	if (daemon_options_same(&r->options, &all->latest->options)) {
		reading_free(r);
		return &all->latest->options.config;
	}
	r->before = all->latest;
	all->latest = r;
	return &r->options.config;
}

static int set_levels(struct err *err)
{
	const char *levels = getenv("SONDE_LOG");

	log_set_level(LOG_INFO);
	return levels ? log_configure(levels, err) : 0;
}

static int run_parsed(const struct command *cmd, struct readings *all)
{
	struct daemon_options *o = &all->latest->options;
	struct err err = {0};

	if (daemon_options_check(o, &err) < 0 || set_levels(&err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	if (o->config.log_file && sandbox_open_log(&o->config, &err) < 0)
		return command_fail(cmd, &err, EXIT_FAILED);
	daemon_options_log(o);
	if (daemon_run(&o->config, read_again, all, &err) == 0)
		return EXIT_DONE;
	log_err("the daemon cannot run: %s", err.text);
	return o->config.log_file ? command_fail(cmd, &err, EXIT_FAILED) : EXIT_FAILED;
}

static int daemon_command_run(const struct command *cmd, int argc, char **argv)
{
	struct readings all = {.argc = argc, .argv = argv, .latest = reading_new()};
	struct args *a = &all.latest->args;
	struct command named = *cmd;

	/* By the name under which it was called: the page has the other. */
	if (strcmp(program_invocation_short_name, cmd->alias))
		named.spec.name = "sonde daemon";
	cmd = &named;
	int status = command_parse(cmd, a, argc, argv);
	if (status < 0 && a->stopped) {
		printf("sonde %s\n", SONDE_VERSION);
		status = fflush(stdout) ? EXIT_FAILED : EXIT_DONE;
	} else if (status < 0) {
		command_notices(cmd, a);
		status = run_parsed(cmd, &all);
	}
	readings_release(&all);
	return status;
}

static const char *const usage[] = {"[--enable-ipc-monitor] [options]", "--flagfile=FILE", NULL};

static const struct args_example examples[] = {
	{"on your own machine: jobs started with KINETO_USE_DAEMON=1 (or MSMONITOR_USE_DAEMON=1) "
	 "can be traced",
	 "dynolog --enable-ipc-monitor"},
	{"on a cluster: reachable from other hosts, only with a certificate",
	 "dynolog --enable-ipc-monitor --certs-dir /etc/sonde/certs"},
	{"in a container: sockets in a directory that the jobs' containers share",
	 "dynolog --enable-ipc-monitor --ipc-socket-dir /run/sonde"},
	{"metrics every ten seconds: a Prometheus port, and files for TensorBoard",
	 "dynolog --use-prometheus --kernel-monitor-reporting-interval-s 10 "
	 "--metric-log-dir /tmp/metrics"},
	{"options from a file; after a change of it: kill -HUP",
	 "dynolog --flagfile=/etc/dynolog.gflags"},
	{NULL, NULL},
};

static const struct args_section sections[] = {
	{"SIGNALS",
	 "SIGTERM and SIGINT end the daemon: what is being answered is answered, metrics are "
	 "written out, its sockets are removed. SIGHUP reads the command line and its files of "
	 "options again, reopens the log file and loads the certificates again. Options of "
	 "metrics and of the log are in force at once; the log names those that need a restart."},
	{"SYSTEMD",
	 "With Type=notify the daemon says when it is ready, when it reloads and when it ends, and "
	 "keeps a watchdog content. Sockets that are handed over are used instead of --port and "
	 "--bind; those with the name http instead of --http-port."},
	{"ENVIRONMENT",
	 "KINETO_IPC_SOCKET_DIR is the default of --ipc-socket-dir. SONDE_LOG sets how much is "
	 "logged: debug, info, warning or error, also by area, as in SONDE_LOG=info,fabric=debug."},
	{"EXIT STATUS", "0 after SIGTERM or SIGINT, 1 when it cannot start, 2 when the command "
			"line was wrong."},
	{"SEE ALSO", "sonde(1), dyno(1)"},
	{NULL, NULL},
};

const struct command cmd_daemon = {
	.name = "daemon",
	.alias = "dynolog",
	.spec = {.name = "dynolog",
		 .summary = "serve the jobs of this node: traces on demand, metrics",
		 .description =
			 "The node daemon, called `sonde daemon` or `dynolog`: one process for "
			 "each "
			 "node. Jobs of "
			 "PyTorch, torch_npu and MindSpore "
			 "register with it; `dyno` or `sonde ctl` ask it, here or from another "
			 "host, to have them traced or monitored. It also samples metrics of the "
			 "host and its devices.\n\n"
			 "Without certificates it listens on the loopback address only. Names may "
			 "be written with dashes or underscores, with one or two dashes before "
			 "them; --noNAME turns a flag off.",
		 .usage = usage,
		 .options = daemon_option_table,
		 .examples = examples,
		 .sections = sections,
		 .flags = ARGS_GFLAGS},
	.run = daemon_command_run,
};
