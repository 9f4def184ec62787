/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The list of commands, and what they share. */
#include "cli/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text/printable.h"
#include "cli/ctl/ctl.h"

const struct command *const commands[] = {
	&cmd_msmemscope,
	&cmd_mem_record,
	&cmd_mem_show,
	&cmd_mem_live,
	&cmd_mem_leaks,
	&cmd_mem_gaps,
	&cmd_mem_inefficient,
	&cmd_mem_owners,
	&cmd_mem_peak,
	&cmd_mem_oom,
	&cmd_mem_watch,
	&cmd_mem_compare,
	&cmd_mem_export,
	&cmd_mem_recover,
	&cmd_stack_run,
	&cmd_stack_live,
	&cmd_stack,
	&cmd_snap,
	&cmd_py_stack_snap,
	&cmd_monitor,
	&cmd_top,
	&cmd_metrics,
	&cmd_ctl_status,
	&cmd_ctl_version,
	&cmd_ctl_ps,
	&cmd_ctl_watch,
	&cmd_ctl_clocks,
	&cmd_ctl_gputrace,
	&cmd_ctl_nputrace,
	&cmd_ctl_npu_monitor,
	&cmd_ctl_dcgm_pause,
	&cmd_ctl_dcgm_resume,
	&cmd_daemon,
	&cmd_certs,
	&cmd_activity_summary,
	&cmd_activity_show,
	&cmd_activity_export,
	&cmd_timeline,
	&cmd_record,
	&cmd_report,
	&cmd_flame,
	&cmd_recorder,
	&cmd_bugreport,
	&cmd_help,
	NULL,
};

static const char *const sonde_usage[] = {"<command> [options]", "help [command]", "help --json",
					  "--version", NULL};
static const struct args_section sonde_sections[] = {
	{"EXIT STATUS",
	 "0 when the work is done, 1 when it failed, 2 when the command line was "
	 "wrong, 3 when there is something that a script should notice: what "
	 "--fail-on names, a hang (snap --hang), a request without effect (ctl), "
	 "nothing to show (top). Launchers give the exit status of the program they ran; 127 if it "
	 "was not found and 126 if it could not be run."},
	{"ENVIRONMENT", "SONDE_LOG sets how much our own processes write to their log: debug, "
			"info, warning or error, also by area, as in SONDE_LOG=info,merge=debug."},
	{"SEE ALSO", "msmemscope(1), sonde-mem(1), sonde-activity(1), sonde-stack(1), "
		     "sonde-snap(1), sonde-timeline(1), sonde-ctl(1), dyno(1)"},
	{NULL, NULL},
};
static const struct args_example sonde_examples[] = {
	{"record a training script", "msmemscope -- python train.py"},
	{"show what was recorded", "sonde mem show memscopeDumpResults"},
	{"see all of it in one timeline", "sonde timeline memscopeDumpResults /tmp/monitor"},
	{"why devices idle", "sonde timeline --explain /tmp/trace"},
	{"see what all ranks do over time", "sonde stack -d 10 -o trace.json"},
	{"start the daemon of this node", "sonde daemon --enable-ipc-monitor"},
	{"see which jobs it knows", "sonde ctl ps"},
	{"describe this machine for a bug report", "sonde bugreport"},
	{NULL, NULL},
};
static const struct opt sonde_options[] = {
	COMMAND_HELP_OPTION,
	{.name = "version",
	 .letters = "vV",
	 .kind = OPT_STOP,
	 .help = "Show the version and exit."},
	OPT_END,
};

static const char *const mem_usage[] = {"<command> [options]", NULL};
static const struct args_section mem_sections[] = {
	{"FILES", "A recording is a directory recording_<pid>_<time> below the output path. "
		  "Wherever one is expected, the output path itself may be given too: then the "
		  "newest recording in it is meant.\n\n"
		  "  config.json      what was asked for\n"
		  "  events.sonde     the recording: every event, append-only\n"
		  "  report.txt       what the analyses found\n"
		  "  session          the control page shared with the job while it runs\n\n"
		  "The analyses also take dumps (csv or db, of any version of msmemscope) and "
		  "directories of them."},
	{"EXIT STATUS", "0 when the question was answered or the work is done, 1 when that failed, "
			"and with --fail-on when the input has too little data to tell, 2 when "
			"the command line was wrong, 3 when something was found that --fail-on "
			"names. 'record' gives the exit status of the program, as msmemscope(1) "
			"does."},
	{"SEE ALSO", "sonde(1), msmemscope(1)"},
	{NULL, NULL},
};
static const struct args_example mem_examples[] = {
	{"summarise the newest recording", "sonde mem show memscopeDumpResults"},
	{"does it leak? exit with status 3 if so",
	 "sonde mem leaks --fail-on=leak memscopeDumpResults"},
	{"what made up the peak", "sonde mem peak memscopeDumpResults"},
	{"feed the summary to another program",
	 "sonde mem show --json memscopeDumpResults | jq .devices"},
	{"make a database of a recording that was written as csv",
	 "sonde mem export --format=db -o /tmp/out memscopeDumpResults"},
	{"finish the files after job and recorder were killed together",
	 "sonde mem recover memscopeDumpResults/recording_4711_20260131120000"},
	{NULL, NULL},
};

static const char *const activity_usage[] = {"<command> [options]", NULL};
static const struct args_section activity_sections[] = {
	{"FILES", "A monitor with a directory (--log-file of npu-monitor) leaves one file per "
		  "process and session there, or with Jsonl several:\n\n"
		  "  msmonitor_<pid>_<time>_<rank>.db       SQLite: readable at every moment\n"
		  "  msmonitor_<pid>_<time>_<rank>.jsonl    one activity per line"},
	{"EXIT STATUS",
	 "0 when the work is done, 1 when it failed, 2 when the command line was wrong."},
	{"SEE ALSO", "sonde(1), sonde-ctl(1), dyno(1)"},
	{NULL, NULL},
};
static const struct args_example activity_examples[] = {
	{"where the time of devices went", "sonde activity show /tmp/monitor"},
	{"where the time of traced steps went, and why devices idle",
	 "sonde activity summary /tmp/trace"},
	{"a timeline for ui.perfetto.dev", "sonde activity export -o trace.json /tmp/monitor"},
	{NULL, NULL},
};

const struct command_group command_groups[] = {
	{.name = "",
	 .page = "sonde",
	 .spec = {.name = "sonde",
		  .summary = "look inside running AI jobs",
		  .description = "Sonde shows what AI jobs do: what holds their memory, what their "
				 "devices "
				 "spend time on, where their Python code is. It records a job, or "
				 "looks at "
				 "one that runs; a daemon on each node has jobs traced on demand "
				 "and feeds "
				 "metrics to others. The job needs no change and no rebuild.",
		  .usage = sonde_usage,
		  .options = sonde_options,
		  .examples = sonde_examples,
		  .sections = sonde_sections}},
	{.name = "mem",
	 .page = "sonde-mem",
	 .spec = {.name = "sonde mem",
		  .summary = "record the memory of a job, ask what held it, what leaks",
		  .description = "Records every allocation and free of a job, answers questions "
				 "about recordings and dumps, converts and repairs them. Begin "
				 "with 'record' and 'show'; the others answer one question each, "
				 "and say so if the recording lacks what they need.",
		  .usage = mem_usage,
		  .examples = mem_examples,
		  .sections = mem_sections}},
	{.name = "activity",
	 .page = "sonde-activity",
	 .spec = {.name = "sonde activity",
		  .summary = "ask where the time of devices went: kernels, steps, ranks",
		  .description = "Shows where the time of devices went, and writes what was "
				 "recorded in other forms. 'summary' reads the traces of 'dyno "
				 "nputrace', the others the files of 'dyno npu-monitor'.",
		  .usage = activity_usage,
		  .examples = activity_examples,
		  .sections = activity_sections}},
	{.name = "ctl",
	 .page = "sonde-ctl",
	 .run = ctl_run,
	 .spec = {.name = "sonde ctl",
		  .summary = "ask and direct the daemons of one host or many",
		  .description = "Asks the daemons of hosts what their AI jobs are doing, and has "
				 "the jobs traced and monitored while they run. A daemon is "
				 "started with 'sonde daemon'.",
		  .usage = ctl_usage,
		  .options = ctl_options,
		  .examples = ctl_examples,
		  .sections = ctl_sections}},
	{.name = "dyno",
	 .page = "dyno",
	 .run = ctl_run,
	 .spec = {.name = "dyno",
		  .summary = "ask and direct daemons: ctl under its other name",
		  .description = "Asks the dynolog daemons of hosts what their AI jobs are doing, "
				 "and has the jobs traced and monitored while they run.",
		  .usage = ctl_usage,
		  .options = ctl_options,
		  .examples = dyno_examples,
		  .sections = dyno_sections}},
	{.name = NULL},
};

const struct command_group *command_group_find(const char *name)
{
	for (const struct command_group *g = command_groups; g->name; g++)
		if (!strcmp(g->name, name))
			return g;
	return NULL;
}

static bool name_in_group(const char *name, const struct command_group *group)
{
	size_t len = strlen(group->name);

	if (!name)
		return false;
	if (!len)
		return !strchr(name, ' ');
	return !strncmp(name, group->name, len) && name[len] == ' ';
}

bool command_in_group(const struct command *cmd, const struct command_group *group)
{
	return !cmd->hidden &&
	       (name_in_group(cmd->name, group) || name_in_group(cmd->alias, group));
}

/* How many of the words spell `name`; 0 if they do not. */
static int count_words(const char *name, int argc, char **argv)
{
	int n = 0;

	while (name && *name) {
		size_t len = strcspn(name, " ");

		if (n == argc || strlen(argv[n]) != len || strncmp(argv[n], name, len))
			return 0;
		n++;
		name += len + (name[len] == ' ');
	}
	return n;
}

const struct command *command_find(int argc, char **argv, int *out_words)
{
	for (int i = 0; commands[i]; i++) {
		int n = count_words(commands[i]->name, argc, argv);

		if (!n)
			n = count_words(commands[i]->alias, argc, argv);
		if (n) {
			*out_words = n;
			return commands[i];
		}
	}
	return NULL;
}

const char *command_name_within(const struct command *cmd, const struct command_group *group)
{
	const char *name = name_in_group(cmd->name, group) ? cmd->name : cmd->alias;
	const char *space = strrchr(name, ' ');

	return space ? space + 1 : name;
}

int command_unknown(const struct command_group *group, const char *word)
{
	const char *names[32];
	int n = 0;

	for (int i = 0; commands[i] && n < 30; i++)
		if (command_in_group(commands[i], group))
			names[n++] = command_name_within(commands[i], group);
	if (!*group->name)
		for (const struct command_group *g = command_groups + 1; g->name && n < 31; g++)
			names[n++] = g->name;
	names[n] = NULL;
	const char *near = args_nearest(word, strlen(word), names);
	fprintf(stderr, "%s: unknown command '%s'", group->spec.name, word);
	if (near)
		fprintf(stderr, "; did you mean '%s'?", near);
	fprintf(stderr, "\nTry '%s --help'.\n", group->spec.name);
	return EXIT_USAGE;
}

/* Names of files may hold any character. */
static void print_message(const struct command *cmd, const char *kind, const char *text, size_t len)
{
	struct buf clean = {0};

	text_add_printable(&clean, text, len);
	if (cmd->tag)
		fprintf(stderr, "[%s] %s%s\n", cmd->tag, kind, buf_str(&clean));
	else
		fprintf(stderr, "%s: %s\n", cmd->spec.name, buf_str(&clean));
	buf_release(&clean);
}

int command_fail(const struct command *cmd, const struct err *err, int status)
{
	print_message(cmd, "Error: ", err->text, strlen(err->text));
	if (status == EXIT_USAGE)
		fprintf(stderr, "Try '%s --help'.\n", cmd->spec.name);
	return status;
}

void command_notices(const struct command *cmd, struct args *a)
{
	const char *line = buf_str(&a->notices);

	while (*line) {
		size_t len = strcspn(line, "\n");

		print_message(cmd, "", line, len);
		line += len + (line[len] == '\n');
	}
	buf_clear(&a->notices);
}

int command_print(const struct command *cmd, struct buf *text)
{
	struct err err = {0};

	if (fwrite(text->data, 1, text->len, stdout) == text->len && fflush(stdout) == 0)
		return EXIT_DONE;
	if (errno == EPIPE)
		return EXIT_FAILED; /* the reader has closed the pipe on purpose */
	err_sys(&err, -errno, "cannot write the output");
	return command_fail(cmd, &err, EXIT_FAILED);
}

static int print_json(const struct command *cmd, json_t *o, size_t flags)
{
	/* jansson escapes what programs must not see, but not all that a terminal obeys. */
	flags |= isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0;
	char *made = o ? json_dumps(o, flags) : NULL;
	struct buf text = {0};
	struct err err = {0};

	json_decref(o);
	if (!made) {
		err_set(&err, -ENOMEM, "out of memory");
		return command_fail(cmd, &err, EXIT_FAILED);
	}
	buf_addf(&text, "%s\n", made);
	free(made);
	int status = command_print(cmd, &text);
	buf_release(&text);
	return status;
}

int command_print_json(const struct command *cmd, json_t *o)
{
	return print_json(cmd, o, JSON_INDENT(2));
}

int command_print_json_line(const struct command *cmd, json_t *o)
{
	return print_json(cmd, o, JSON_COMPACT);
}

int command_parse(const struct command *cmd, struct args *a, int argc, char **argv)
{
	struct err err = {0};
	struct buf text = {0};

	if (args_parse(a, &cmd->spec, argc, argv, &err) < 0) {
		command_notices(cmd, a);
		return command_fail(cmd, &err, EXIT_USAGE);
	}
	if (!a->stopped || strcmp(a->stopped->name, "help"))
		return -1;
	command_help(cmd, args_width(STDOUT_FILENO), &text);
	int status = command_print(cmd, &text);
	buf_release(&text);
	return status;
}

bool command_next_item(const char **text, const char **item, size_t *len)
{
	const char *at = *text;

	if (!at)
		return false;
	*len = strcspn(at, ",");
	*text = at[*len] ? at + *len + 1 : NULL;
	while (*len && (*at == ' ' || *at == '\t')) {
		at++;
		--*len;
	}
	while (*len && (at[*len - 1] == ' ' || at[*len - 1] == '\t'))
		--*len;
	*item = at;
	return true;
}

void command_help(const struct command *cmd, unsigned width, struct buf *out)
{
	args_help(&cmd->spec, width, out);
}

/*
 * The commands of sonde by what a person wants: the first ones are enough to begin with. Names without a
 * command are not shown; commands that are not named here follow at the end.
 */
static const struct topic {
	const char *title;
	const char *names[8];
} topics[] = {
	{"Look at a job (enough to begin with)",
	 {"record", "top", "snap", "timeline", "report", NULL}},
	{"Look closer: memory, devices, Python", {"mem", "activity", "stack", NULL}},
	{"Serve a node, direct many", {"daemon", "monitor", "ctl", "certs", "metrics", NULL}},
	{"Names that other tools have", {"msmemscope", "dyno", NULL}},
};

/* Programs that are this one under another name. */
static const char other_names[] = "dynolog is 'sonde daemon', python_stack_sniffer 'sonde stack', "
				  "py_stack_snap 'sonde snap'.";

static bool is_in_topic(const struct topic *topic, const char *name)
{
	for (size_t i = 0; topic->names[i]; i++)
		if (!strcmp(topic->names[i], name))
			return true;
	return false;
}

static void add_summary(const char *name, const char *summary, unsigned width, struct buf *out)
{
	buf_addf(out, "  %-14s", name);
	args_wrap(out, summary, 16, 16, width);
}

/* What a word at the first place stands for; NULL: nothing, or it is not shown. */
static const char *first_word_summary(const char *name)
{
	const struct command_group *g = command_group_find(name);

	if (g && *name)
		return g->spec.summary;
	for (int i = 0; commands[i]; i++)
		if (!strcmp(commands[i]->name, name) && !commands[i]->hidden)
			return commands[i]->spec.summary;
	return NULL;
}

static void list_topics(const struct command_group *group, unsigned width, struct buf *out)
{
	size_t ntopics = sizeof(topics) / sizeof(topics[0]);

	for (size_t i = 0; i < ntopics; i++) {
		buf_addf(out, "\n%s:\n", topics[i].title);
		for (size_t k = 0; topics[i].names[k]; k++)
			if (first_word_summary(topics[i].names[k]))
				add_summary(topics[i].names[k],
					    first_word_summary(topics[i].names[k]), width, out);
	}
	buf_add_str(out, "  ");
	args_wrap(out, other_names, 2, 2, width);
	buf_add_str(out, "\nMore:\n");
	for (int i = 0; commands[i]; i++) {
		size_t in = 0;

		while (in < ntopics && !is_in_topic(&topics[in], commands[i]->name))
			in++;
		if (in == ntopics && command_in_group(commands[i], group))
			add_summary(command_name_within(commands[i], group),
				    commands[i]->spec.summary, width, out);
	}
}

static void list_commands(const struct command_group *group, unsigned width, struct buf *out)
{
	buf_add_str(out, "\nCommands:\n");
	for (int i = 0; commands[i]; i++)
		if (command_in_group(commands[i], group))
			add_summary(command_name_within(commands[i], group),
				    commands[i]->spec.summary, width, out);
}

void command_group_help(const struct command_group *group, unsigned width, struct buf *out)
{
	struct args_spec head = group->spec;

	/* What can be asked first, then how. */
	head.options = NULL;
	head.examples = NULL;
	args_help(&head, width, out);
	if (*group->name)
		list_commands(group, width, out);
	else
		list_topics(group, width, out);
	if (group->run)
		args_help_options(&group->spec, width, out);
	if (*group->name)
		args_help_examples(&group->spec, out);
	if (group->run)
		buf_addf(out, "\nMore about one of them: %s help <command>\n", group->spec.name);
	else
		buf_addf(out, "\nMore about one of them: sonde help %s%s<command>\n", group->name,
			 *group->name ? " " : "");
}

int command_group_show(const struct command_group *group, bool asked)
{
	struct buf text = {0};
	FILE *to = asked ? stdout : stderr;

	command_group_help(group, args_width(fileno(to)), &text);
	bool bad = fwrite(text.data, 1, text.len, to) != text.len || fflush(to);
	buf_release(&text);
	if (!asked)
		return EXIT_USAGE;
	return bad ? EXIT_FAILED : EXIT_DONE;
}
