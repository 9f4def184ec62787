/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/text/display_width.h"
#include "base/text/json_depth.h"
#include "base/text/printable.h"
#include "client/client.h"
#include "client/schedulers.h"
#include "net/tls/tls.h"

#define FIND_TIMEOUT_S 30 /* squeue and kubectl may have to ask a busy server */
#define REPLY_DEPTH_MAX                                                                            \
	64 /* more, and what reads our JSON may fail on all hosts because of one                   \
	    */

const struct opt ctl_options[] = {CTL_COMMON_ROWS};

bool ctl_is_dyno(const struct ctl *c)
{
	return !strncmp(c->cmd->spec.name, "dyno", 4);
}

void ctl_say(const struct ctl *c, const char *fmt, ...)
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

int ctl_print_version(const char *name)
{
	printf("%.*s %s\n", (int)strcspn(name, " "), name, SONDE_VERSION);
	return fflush(stdout) ? EXIT_FAILED : EXIT_DONE;
}

int ctl_fail(const struct ctl *c, const struct err *err, int status)
{
	/* A program that reads this gets a list in any case. */
	if (c->common->json && status == EXIT_FAILED)
		printf("[]\n");
	fflush(stdout);
	return command_fail(c->cmd, err, status);
}

int ctl_written(const struct ctl *c)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_DONE;
	ctl_say(c, "cannot write the output");
	return EXIT_FAILED;
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
	return ctl_print_version(cmd->spec.name);
}

static void notice(void *arg, const char *line)
{
	if (*(bool *)arg)
		printf("%s\n", line);
}

static int open_tls(struct ctl *c, bool tell, struct err *err)
{
	const char *dir = c->common->certs_dir;
	struct stat st;

	if (!strcmp(dir, DAEMON_NO_CERTS)) {
		notice(&tell, "Running in no-certificate mode");
		return 0;
	}
	if (strlen(dir) > 4096 || stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
		return err_set(err, -ENOTDIR, "--certs-dir must be a valid directory: '%.200s'",
			       dir);
	notice(&tell, "Running in certificate mode");
	return tls_client_new(dir, notice, &tell, &c->tls, err);
}

int ctl_open(struct ctl *c, bool tell)
{
	const struct ctl_common *o = c->common;
	struct ctl_find f = {.hostname = o->hostname,
			     .hosts_file = o->hosts_file,
			     .slurm_job = o->slurm_job,
			     .k8s_selector = o->k8s_selector,
			     .k8s_namespace = o->k8s_namespace,
			     .port = o->port,
			     .timeout_s = FIND_TIMEOUT_S};
	struct err err = {0};

	if (ctl_find_hosts(&f, &c->hosts, &err) < 0)
		return ctl_fail(c, &err,
				err.code == -EINVAL || err.code == -E2BIG ? EXIT_USAGE
									  : EXIT_FAILED);
	if (open_tls(c, tell && !o->json && c->hosts.n == 1, &err) < 0)
		return ctl_fail(c, &err, EXIT_FAILED);
	fflush(stdout);
	return -1;
}

void ctl_end(struct ctl *c)
{
	ctl_hosts_release(&c->hosts);
	SSL_CTX_free(c->tls);
}

/* --- questions --- */

struct round {
	struct progress progress;
	size_t done, total;
};

static void one_done(void *arg, struct client_call *call)
{
	struct round *r = arg;

	(void)call;
	progress_show(&r->progress, "hosts answered", ++r->done, r->total);
}

static void take_answer(struct ctl_answer *a, struct client_call *call)
{
	json_error_t why;

	a->seconds = call->seconds;
	a->err = call->err;
	if (!call->reply)
		return;
	a->reply = json_loadb(call->reply, call->reply_bytes, 0, &why);
	bool deep = a->reply && json_depth(call->reply, call->reply_bytes) > REPLY_DEPTH_MAX;
	if (json_is_object(a->reply) && !deep) {
		struct buf raw = {0};

		text_add_terminal_json(&raw, call->reply, call->reply_bytes);
		a->raw = xstrdup(buf_str(&raw));
		a->raw_bytes = call->reply_bytes;
		buf_release(&raw);
		return;
	}
	json_decref(a->reply);
	a->reply = NULL;
	err_set(&a->err, -EBADMSG, "the answer is %s: is this port a daemon's?",
		deep ? "nested too deep" : "not a JSON object");
}

static int check_size(const json_t *request, struct err *err)
{
	size_t n = json_dumpb(request, NULL, 0, JSON_COMPACT);

	if (n > RPC_REQUEST_MAX)
		return err_set(err, -E2BIG,
			       "the request has %zu bytes, and a daemon takes %d: shorten names "
			       "or lists",
			       n, RPC_REQUEST_MAX);
	return 0;
}

int ctl_ask(struct ctl *c, json_t *const *requests, struct ctl_answer *answers, struct err *err)
{
	struct client_call *calls = xcalloc(c->hosts.n, sizeof(*calls));
	size_t *host_of = xcalloc(c->hosts.n, sizeof(*host_of));
	struct round round = {0};
	struct client_options o = {.tls = c->tls,
				   .timeout_ms = c->common->timeout_s * 1000,
				   .done = c->hosts.n > 1 && !c->quiet ? one_done : NULL,
				   .arg = &round};
	int r = 0;

	for (size_t i = 0; i < c->hosts.n && r == 0; i++) {
		if (!requests[i])
			continue;
		host_of[round.total] = i;
		calls[round.total++] = (struct client_call){.host = c->hosts.v[i].name,
							    .port = c->hosts.v[i].port,
							    .request = requests[i]};
		r = check_size(requests[i], err);
	}
	c->asked_ns = clock_real_ns();
	if (r == 0 && round.total)
		r = client_run(calls, round.total, &o, err);
	progress_done(&round.progress);
	for (size_t i = 0; i < round.total; i++) {
		if (r == 0)
			take_answer(&answers[host_of[i]], &calls[i]);
		client_call_release(&calls[i]);
	}
	free(host_of);
	free(calls);
	return r;
}

int ctl_ask_all(struct ctl *c, json_t *request, struct ctl_answer *answers, struct err *err)
{
	json_t **requests = xcalloc(c->hosts.n, sizeof(*requests));

	for (size_t i = 0; i < c->hosts.n; i++)
		requests[i] = request;
	int r = ctl_ask(c, requests, answers, err);
	free(requests);
	json_decref(request);
	return r;
}

struct ctl_answer *ctl_answers_new(const struct ctl *c)
{
	return xcalloc(c->hosts.n, sizeof(struct ctl_answer));
}

void ctl_answers_free(const struct ctl *c, struct ctl_answer *answers)
{
	for (size_t i = 0; answers && i < c->hosts.n; i++) {
		json_decref(answers[i].reply);
		free(answers[i].raw);
	}
	free(answers);
}

/* --- what is said --- */

json_t *ctl_answer_json(const struct ctl *c, size_t host, const struct ctl_answer *a)
{
	const struct ctl_host *h = &c->hosts.v[host];
	struct buf error = {0};

	/* it may hold words of the daemon, cut off in the middle of a character */
	text_add_printable(&error, a->err.text, strlen(a->err.text));
	json_t *row = json_pack("{s:s, s:s, s:i, s:b, s:O?, s:s?}", "host", h->label, "address",
				h->name, "port", (int)h->port, "ok", a->reply != NULL, "reply",
				a->reply, "error", a->reply ? NULL : buf_str(&error));
	buf_release(&error);
	return row;
}

int ctl_failures(const struct ctl *c, const struct ctl_answer *answers)
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
		ctl_say(c, "%zu of %zu hosts failed", failed, c->hosts.n);
		return EXIT_FAILED;
	}
	ctl_say(c, "%s", answers[one].err.text);
	return EXIT_FAILED;
}
