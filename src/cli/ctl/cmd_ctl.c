/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde ctl, and dyno: finds the command behind the common options. `dyno` differs in the name that
 * messages begin with and in the exit status of a command without an effect (ctl_is_dyno()).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "cli/ctl/ctl.h"
#include "client/hosts.h"
#include "net/tls/tls.h"

#define FIND_TIMEOUT_S 30 /* squeue and kubectl may have to ask a busy server */

const struct opt ctl_options[] = {CTL_COMMON_ROWS};
const char *const ctl_command_usage[] = {"[options]", NULL};

/* --- messages --- */

const char *ctl_name(const struct ctl *c)
{
	return ctl_is_dyno(c) ? "dyno" : "sonde ctl";
}

bool ctl_is_dyno(const struct ctl *c)
{
	return !strncmp(c->cmd->spec.name, "dyno", 4);
}

bool ctl_is_strict(const struct ctl *c)
{
	return c->common->strict || !ctl_is_dyno(c);
}

void ctl_notice(const struct ctl *c, const char *fmt, ...)
{
	struct buf clean = {0};
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_add_printable(&clean, text, strlen(text));
	fprintf(stderr, "%s: %s\n", c->cmd->spec.name, buf_str(&clean));
	buf_release(&clean);
}

int ctl_fail(struct ctl *c, const struct err *err, int status)
{
	progress_done(&c->progress);
	/* A program that reads this gets a list in any case. */
	if (c->common->json && status == EXIT_FAILED)
		printf("[]\n");
	fflush(stdout);
	return command_fail(c->cmd, err, status);
}

/* --- a command from its beginning to its end --- */

static int print_version(const char *name)
{
	printf("%.*s %s\n", (int)strcspn(name, " "), name, SONDE_VERSION);
	return fflush(stdout) ? EXIT_FAILED : EXIT_DONE;
}

int ctl_begin(struct ctl *c, const struct command *cmd, struct args *a, int argc, char **argv)
{
	c->cmd = cmd;
	c->common = a->target;
	int status = command_parse(cmd, a, argc, argv);
	if (status >= 0)
		return status;
	command_notices(cmd, a);
	if (!a->stopped)
		return -1;
	return print_version(cmd->spec.name);
}

static void print_notice(void *arg, const char *line)
{
	if (*(bool *)arg)
		printf("%s\n", line);
}

static int open_tls(struct ctl *c, bool announce, struct err *err)
{
	const char *dir = c->common->certs_dir;
	struct stat st;

	if (!strcmp(dir, DAEMON_NO_CERTS)) {
		print_notice(&announce, "Running in no-certificate mode");
		return 0;
	}
	if (strlen(dir) > 4096 || stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
		return err_set(err, -ENOTDIR, "--certs-dir must be a valid directory: '%.200s' %s",
			       dir,
			       stat(dir, &st) < 0 ? "does not exist or is not accessible"
						  : "is not a directory");
	print_notice(&announce, "Running in certificate mode");
	return tls_client_new(dir, print_notice, &announce, &c->group.tls, err);
}

static void show_progress(void *arg, size_t done, size_t total)
{
	struct progress *p = arg;

	progress_show(p, "hosts answered", done, total);
	if (done < total)
		return;
	progress_done(p);
	*p = (struct progress){0};
}

int ctl_open(struct ctl *c, bool announce)
{
	const struct ctl_common *o = c->common;
	struct host_source f = {.hostname = o->hostname,
				.hosts_file = o->hosts_file,
				.slurm_job = o->slurm_job,
				.k8s_selector = o->k8s_selector,
				.k8s_namespace = o->k8s_namespace,
				.port = o->port,
				.timeout_s = FIND_TIMEOUT_S};
	struct err err = {0};

	if (host_list_find(&f, &c->hosts, &err) < 0)
		return ctl_fail(c, &err,
				err.code == -EINVAL || err.code == -E2BIG ? EXIT_USAGE
									  : EXIT_FAILED);
	if (open_tls(c, announce && !o->json && c->hosts.n == 1, &err) < 0)
		return ctl_fail(c, &err, EXIT_FAILED);
	c->group.hosts = &c->hosts;
	c->group.timeout_ms = o->timeout_s * 1000;
	c->group.progress = c->hosts.n > 1 ? show_progress : NULL;
	c->group.arg = &c->progress;
	fflush(stdout);
	return -1;
}

void ctl_end(struct ctl *c)
{
	host_list_release(&c->hosts);
	SSL_CTX_free(c->group.tls);
}

int ctl_command(const struct command *cmd, int argc, char **argv)
{
	const struct ctl_steps *steps = cmd->data;
	void *options = memcpy(xmalloc(steps->size), steps->defaults, steps->size);
	struct args a = {.target = options};
	struct ctl c = {0};
	struct err err = {0};

	int status = ctl_begin(&c, cmd, &a, argc, argv);
	if (status < 0 && steps->check && steps->check(&c, &a, options, &err) < 0)
		status = command_fail(cmd, &err, EXIT_USAGE);
	if (status < 0)
		status = ctl_open(&c, steps->announce);
	if (status < 0)
		status = steps->run(&c, options);
	ctl_end(&c);
	args_release(&a);
	free(options);
	return status;
}

/* --- answers --- */

json_t *ctl_answer_json(const struct ctl *c, size_t host, const struct client_answer *a)
{
	const struct host_entry *h = &c->hosts.v[host];
	struct buf error = {0};

	/* it may hold words of the daemon, cut off in the middle of a character */
	text_add_printable(&error, a->err.text, strlen(a->err.text));
	json_t *row = json_pack("{s:s, s:s, s:i, s:b, s:O?, s:s?}", "host", h->label, "address",
				h->name, "port", (int)h->port, "ok", a->reply != NULL, "reply",
				a->reply, "error", a->reply ? NULL : buf_str(&error));
	buf_release(&error);
	return row;
}

int ctl_failures(const struct ctl *c, const struct client_answer *answers)
{
	size_t failed = 0, one = 0;

	for (size_t i = 0; i < c->hosts.n; i++)
		if (!answers[i].reply) {
			failed++;
			one = i;
		}
	if (!failed)
		return EXIT_DONE;
	if (c->hosts.n > 1) {
		ctl_notice(c, "%zu of %zu hosts failed", failed, c->hosts.n);
		return EXIT_FAILED;
	}
	ctl_notice(c, "%s", answers[one].err.text);
	return EXIT_FAILED;
}

int ctl_print_json(const struct ctl *c, const struct client_answer *answers,
		   void (*add)(const void *arg, size_t host, json_t *row), const void *arg)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->hosts.n; i++) {
		json_t *row = ctl_answer_json(c, i, &answers[i]);

		if (add)
			add(arg, i, row);
		json_array_append_new(list, row);
	}
	return command_print_json(c->cmd, list);
}

void ctl_add_cells(const struct ctl_column *columns, const json_t *o, struct table *t)
{
	for (; columns->title; columns++) {
		const json_t *v = json_object_get(o, columns->key);
		double n = json_number_value(v);

		if (columns->kind == CTL_SECONDS)
			table_textf(t, "%.0f s", n >= 0 ? n : 0);
		else if (columns->kind == CTL_EFFECT)
			table_text(t, json_is_true(v) ? "done" : "no effect");
		else if (columns->kind == CTL_TEXT && json_is_string(v))
			table_text(t, json_string_value(v));
		else if (columns->kind == CTL_COUNT && json_is_integer(v) && n >= 0)
			table_textf(t, "%lld", (long long)json_integer_value(v));
		else
			table_text(t, "-");
	}
}

void ctl_set_titles(const struct ctl_column *columns, bool host, bool note,
		    const char *out[TABLE_COLUMNS + 1])
{
	if (host)
		*out++ = "HOST";
	for (; columns->title; columns++)
		*out++ = columns->title;
	if (note)
		*out++ = "NOTE";
	*out = NULL;
}

/* --- finding the command --- */

/* The command under the name of the group: "dyno status". The caller frees spec.name. */
static bool find_command(const struct command_group *group, const char *word, struct command *out)
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

static int print_help(const struct command_group *group, int argc, char **argv)
{
	struct buf text = {0};
	struct command cmd;

	if (!argc)
		return command_group_show(group, true);
	if (!find_command(group, argv[0], &cmd))
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

	if (!find_command(group, words[0], &cmd))
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
		status = print_version(group->spec.name);
	else if (a.stopped || !a.nwords)
		status = command_group_show(group, a.stopped != NULL);
	else if (!strcmp(a.words[0], "help"))
		status = print_help(group, a.nwords - 1, a.words + 1);
	else
		status = run_command(group, argv, before, a.words, a.nwords);
	args_release(&a);
	return status;
}

/* --- manual pages --- */

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
	{"EXIT STATUS",
	 STATES ", 3 when a command had no effect on a host: no process matched, or "
		"the daemon held it back; with --wait also when a process refused or "
		"was not done in time. The reason is printed on stderr."},
	{"SEE ALSO", "sonde(1), dyno(1), dynolog(1)"},
	{NULL, NULL},
};

const struct args_section dyno_sections[] = {
	{"EXIT STATUS",
	 STATES ". A command without effect, one that matched no process or that the daemon held "
		"back, exits with 0 and prints why on stderr; with --strict it exits with 3. With "
		"--wait 3 means that not every process has done it."},
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
	 "--report-interval-s 30 --mspti-activity-kind Kernel"},
	{"stop it", "dyno --certs-dir /etc/sonde/client_certs npu-monitor --npu-monitor-stop"},
	{"trace two steps from step 10 on",
	 "dyno --certs-dir /etc/sonde/client_certs nputrace --start-step 10 --iterations 2 "
	 "--activities CPU,NPU --analyse --data-simplification false --log-file /tmp/profile_data"},
	{"trace PyTorch processes for half a second", "dyno gputrace --log-file /tmp/trace.json"},
	{NULL, NULL},
};
