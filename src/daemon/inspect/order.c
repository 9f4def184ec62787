/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Orders for other hosts: a trace, the monitor. They are given by our own program as the user who asks
 * here, with that user's certificate (hosts.c has the reason), and each host decides.
 */
#include "daemon/inspect/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/inspect/inspect_impl.h"

#define PATH_BYTES 1024
#define KINDS_BYTES 200
#define CLOCKS_BYTES (8u << 20) /* of PATH.clocks.json, which a trace of several hosts has */
#define WAIT "--wait-timeout=100"

/* The words of a command, which own what they are. */
struct command {
	char *list[INSPECT_WORDS];
	size_t n;
};

static void add_word(struct command *c, char *word)
{
	if (word && c->n + 1 < INSPECT_WORDS)
		c->list[c->n++] = word;
	else
		free(word);
}

static void add_flag(struct command *c, const json_t *request, const char *key, const char *flag)
{
	if (json_is_true(json_object_get(request, key)))
		add_word(c, xstrdup(flag));
}

/* Nothing if the request has no such number. */
static void add_number(struct command *c, const json_t *request, const char *key,
		       const char *option)
{
	const json_t *v = json_object_get(request, key);

	if (json_is_integer(v))
		add_word(c, xasprintf("%s=%lld", option, (long long)json_integer_value(v)));
}

static const char *add_trace(struct command *c, const json_t *request, bool npu)
{
	const char *path = json_string_value(json_object_get(request, "path"));
	const char *level = json_string_value(json_object_get(request, "level"));

	if (!path || *path != '/' || strlen(path) > PATH_BYTES || strpbrk(path, "=#\n\r"))
		return "the path must be absolute, without '=' or '#'";
	add_word(c, xasprintf("--log-file=%s", path));
	add_number(c, request, "iterations", "--iterations");
	add_number(c, request, "duration_ms", "--duration-ms");
	if (npu)
		add_number(c, request, "start_step", "--start-step");
	if (npu && level)
		add_word(c, xasprintf("--profiler-level=%.40s", level));
	add_flag(c, request, "record_shapes", "--record-shapes");
	add_flag(c, request, "profile_memory", "--profile-memory");
	add_flag(c, request, "with_stack", npu ? "--with-stack" : "--with-stacks");
	return NULL;
}

static const char *add_monitor(struct command *c, const json_t *request)
{
	const char *kinds = json_string_value(json_object_get(request, "kinds"));

	if (kinds && strlen(kinds) > KINDS_BYTES)
		return "too many kinds of activities";
	add_word(c, xstrdup("--npu-monitor-start"));
	add_number(c, request, "interval_s", "--report-interval-s");
	add_number(c, request, "duration_s", "--duration");
	if (kinds && *kinds)
		add_word(c, xasprintf("--mspti-activity-kind=%s", kinds));
	return NULL;
}

static const char *add_order(struct command *c, const json_t *request)
{
	static const char unknown[] = "the order is nputrace, gputrace, monitor or monitor-stop";
	const char *order = json_string_value(json_object_get(request, "order"));
	bool npu = order && !strcmp(order, "nputrace"), gpu = order && !strcmp(order, "gputrace");
	bool start = order && !strcmp(order, "monitor");

	if (!npu && !gpu && !start && (!order || strcmp(order, "monitor-stop")))
		return unknown;
	add_word(c, xstrdup("ctl"));
	add_word(c, xstrdup(npu ? "nputrace" : gpu ? "gputrace" : "npu-monitor"));
	add_word(c, xstrdup("--json"));
	/* a monitor with a duration would be waited for until it is off */
	if (npu || gpu) {
		add_word(c, xstrdup("--wait"));
		add_word(c, xstrdup(WAIT));
	}
	if (npu || gpu)
		return add_trace(c, request, npu);
	if (start)
		return add_monitor(c, request);
	add_word(c, xstrdup("--npu-monitor-stop"));
	return NULL;
}

json_t *inspect_order_hosts(struct inspect *i, const struct access_grant *who,
			    const json_t *request)
{
	const char *fault = inspect_hosts_fault(who, request);
	json_t *reply = inspect_not_here(i);
	struct inspect_start s = {.uid = who->self, .file_bytes = CLOCKS_BYTES};
	struct run like = {.kind = INSPECT_ORDER, .uid = who->self};
	struct hosts_words hosts;
	struct command c = {0};
	struct err err = {0};

	if (!reply && !fault)
		fault = add_order(&c, request);
	if (!reply && fault)
		reply = inspect_refuse(fault);
	if (!reply) {
		inspect_hosts_words(request, &hosts);
		for (size_t k = 0; k < HOSTS_WORDS; k++)
			add_word(&c, hosts.list[k]);
		for (size_t k = 0; k < c.n; k++)
			s.words[k] = c.list[k];
		struct run *r = inspect_run(i, &like, &s, &err);
		reply = r ? json_pack("{s:I}", "order", (json_int_t)r->id)
			  : inspect_refuse(err.text);
	}
	for (size_t k = 0; k < c.n; k++)
		free(c.list[k]);
	return reply;
}

json_t *inspect_get_order(struct inspect *i, const struct access_grant *who, const json_t *request)
{
	json_int_t id = json_integer_value(json_object_get(request, "order"));

	for (struct run *r = i ? i->runs : NULL; r; r = r->next)
		if (r->kind == INSPECT_ORDER && r->id == (uint64_t)id && r->uid == who->self)
			return inspect_state(r, "hosts", inspect_answer(r), true);
	return inspect_refuse("no such order: it may have been deleted");
}
