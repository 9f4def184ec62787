/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde ctl, and dyno: finds the command behind the common options. `dyno` differs in the name that
 * messages begin with and in the exit status of a command without an effect (ctl_is_dyno()).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/ctl/ctl.h"

/* The command under the name of the group: "dyno status". The caller frees spec.name. */
static bool find(const struct command_group *group, const char *word, struct command *out)
{
	char *words[] = {(char *)group->name, (char *)word};
	int n = 0;
	const struct command *cmd = command_find(2, words, &n);

	if (!cmd || n != 2)
		return false;
	*out = *cmd;
	out->spec.name = xasprintf("%s %s", group->spec.name, word);
	return true;
}

static int help(const struct command_group *group, int argc, char **argv)
{
	struct buf text = {0};
	struct command cmd;

	if (!argc)
		return command_group_show(group, true);
	if (!find(group, argv[0], &cmd))
		return command_unknown(group, argv[0]);
	command_help(&cmd, args_width(1), &text);
	int status = command_print(&cmd, &text);
	buf_release(&text);
	free((char *)cmd.spec.name);
	return status;
}

/* Runs the command with the options that came before its name put behind it. */
static int run_command(const struct command_group *group, char **before, int nbefore, char **words,
		       int nwords)
{
	struct command cmd;

	if (!find(group, words[0], &cmd))
		return command_unknown(group, words[0]);
	char **argv = xcalloc((size_t)(nbefore + nwords + 1), sizeof(*argv));
	memcpy(argv, before, (size_t)nbefore * sizeof(*argv));
	memcpy(argv + nbefore, words + 1, (size_t)(nwords - 1) * sizeof(*argv));
	int status = cmd.run(&cmd, nbefore + nwords - 1, argv);
	free(argv);
	free((char *)cmd.spec.name);
	return status;
}

int ctl_run(const struct command_group *group, int argc, char **argv)
{
	struct ctl_common common = CTL_COMMON_DEFAULTS;
	struct command self = {.name = group->name, .spec = group->spec};
	struct args a = {.target = &common};
	struct err err = {0};
	int status;

	self.spec.flags = ARGS_GFLAGS | ARGS_STOP_AT_WORD;
	self.spec.max_words = -1;
	int r = args_parse(&a, &self.spec, argc, argv, &err);
	command_notices(&self, &a);
	int before = argc - a.nwords;
	if (before && !strcmp(argv[before - 1], "--"))
		before--;
	if (r < 0)
		status = command_fail(&self, &err, EXIT_USAGE);
	else if (a.stopped && !strcmp(a.stopped->name, "version"))
		status = ctl_print_version(group->spec.name);
	else if (a.stopped || !a.nwords)
		status = command_group_show(group, a.stopped != NULL);
	else if (!strcmp(a.words[0], "help"))
		status = help(group, a.nwords - 1, a.words + 1);
	else
		status = run_command(group, argv, before, a.words, a.nwords);
	args_release(&a);
	return status;
}

/* --- what the manual pages say about all of them --- */

#define STATES                                                                                     \
	"0 when the hosts were asked and answered, 1 when one of them could not be or refused, "   \
	"2 when the command line was wrong"

const char *const ctl_usage[] = {"[options] <command> [options]", "help [command]", NULL};

const struct args_section ctl_sections[] = {
	{"MANY HOSTS",
	 "All hosts are asked at once, and none waits for another. --hostname, --hosts-file, "
	 "--slurm-job and --k8s-selector may be given together. Results are a line for each host, "
	 "those that failed last. Traces start at the same moment on all hosts (--start-delay), or "
	 "at the same iteration (--profile-start-iteration-roundup); hosts whose clocks differ by "
	 "more than 100 ms are named."},
	{"EXIT STATUS", STATES ", 3 when a command had no effect on a host: no process matched, or "
			       "the daemon held it back. The reason is told on stderr."},
	{"SEE ALSO", "sonde(1), dyno(1), dynolog(1)"},
	{NULL, NULL},
};

const struct args_section dyno_sections[] = {
	{"EXIT STATUS",
	 STATES ". A command without effect, one that matched no process or that the daemon held "
		"back, exits with 0 and says why on stderr; with --strict it exits with 3."},
	{"SEE ALSO", "sonde-ctl(1), dynolog(1)"},
	{NULL, NULL},
};

const struct args_example ctl_examples[] = {
	{"which processes can be traced", "sonde ctl ps"},
	{"trace all nodes of a Slurm job at the same time",
	 "sonde ctl gputrace --slurm-job 4711 --log-file /tmp/trace.json --process-limit 8"},
	{"the states of eight hosts", "sonde ctl status --hostname node[1-8]"},
	{"ask the daemons of a Kubernetes cluster",
	 "sonde ctl status --k8s-selector app=sonde-daemon --k8s-namespace monitoring"},
	{NULL, NULL},
};

const struct args_example dyno_examples[] = {
	{"what a host is doing", "dyno --hostname node1 status"},
	{"start the monitor of operators, with certificates",
	 "dyno --certs-dir /etc/sonde/client_certs npu-monitor --npu-monitor-start "
	 "--report-interval-s "
	 "30 --mspti-activity-kind Kernel"},
	{"stop it", "dyno --certs-dir /etc/sonde/client_certs npu-monitor --npu-monitor-stop"},
	{"trace two steps from step 10 on",
	 "dyno --certs-dir /etc/sonde/client_certs nputrace --start-step 10 --iterations 2 "
	 "--activities "
	 "CPU,NPU --analyse --data-simplification false --log-file /tmp/profile_data"},
	{"trace PyTorch processes for half a second", "dyno gputrace --log-file /tmp/trace.json"},
	{NULL, NULL},
};
