/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde metrics: one sample of what the daemon would read on this machine. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/text/printable.h"
#include "cli/command.h"
#include "daemon/sinks/sink.h"
#include "device/metrics_reader.h"

struct options {
	bool json;
	unsigned watch_s; /* 0: once */
	unsigned wanted; /* bits of metrics_sources; 0: all that are there */
};

struct sampling {
	const struct command *cmd;
	const struct options *o;
	struct metrics_reader reader;
	unsigned samples_n; /* of this round */
	int status; /* of printing it */
	struct buf text;
	json_t *samples;
};

static bool is_wanted(const struct options *o, size_t i)
{
	return !o->wanted || o->wanted & 1u << i;
}

static void add_text(struct sampling *l, const struct sample *s)
{
	struct buf *out = &l->text;

	buf_addf(out, "%s%s", out->len ? "\n" : "", s->source);
	if (s->device != SAMPLE_NO_DEVICE)
		buf_addf(out, " %" PRId64, s->device);
	buf_add_char(out, '\n');
	for (size_t i = 0; i < s->n; i++) {
		const struct metric *m = &s->metrics[i];
		size_t from = out->len;

		buf_addf(out, "  %s", m->name);
		if (m->instance) {
			buf_add_char(out, '.');
			text_add_printable(out, m->instance, strlen(m->instance));
		}
		buf_addf(out, "%*s", out->len - from < 34 ? (int)(34 - (out->len - from)) : 1, "");
		if (m->type == METRIC_INT)
			buf_addf(out, "%" PRId64, m->i);
		else if (m->type == METRIC_UINT)
			buf_addf(out, "%" PRIu64, m->u);
		else if (m->type == METRIC_FLOAT)
			buf_addf(out, "%.3f", m->f);
		else
			text_add_printable(out, m->s, strlen(m->s));
		buf_add_char(out, '\n');
	}
}

static void on_sample(void *arg, const struct sample *s)
{
	struct sampling *l = arg;

	if (l->o->json)
		json_array_append_new(l->samples, sink_sample(s));
	else
		add_text(l, s);
}

/* What is missing matters if it was asked for by name, or if it is there and does not work. */
static bool report_missing(const struct sampling *l)
{
	bool bad = false;

	for (size_t i = 0; i < METRICS_SOURCES; i++) {
		const struct metrics_opened *p = &l->reader.sources[i];
		struct err named = {0};

		if (!is_wanted(l->o, i) || !p->err.text[0])
			continue;
		if (!l->o->wanted &&
		    (p->err.code == -ENOENT || metrics_sources[i] == &perf_metrics))
			continue;
		err_set(&named, p->err.code, "%s: %.400s", metrics_sources[i]->name, p->err.text);
		command_fail(l->cmd, &named, EXIT_FAILED);
		bad = true;
	}
	return bad;
}

static json_t *missing_json(const struct sampling *l)
{
	json_t *o = json_object();

	for (size_t i = 0; i < METRICS_SOURCES; i++) {
		const char *why = l->reader.sources[i].err.text;
		json_t *v = json_string(why);

		if (is_wanted(l->o, i) && *why)
			json_object_set_new(o, metrics_sources[i]->name, v ? v : json_string("?"));
		else
			json_decref(v);
	}
	return o;
}

static int print_json(struct sampling *l)
{
	json_t *round = json_pack("{s:O, s:o}", "samples", l->samples, "missing", missing_json(l));

	return l->o->watch_s ? command_print_json_line(l->cmd, round)
			     : command_print_json(l->cmd, round);
}

static int print_round(struct sampling *l)
{
	int status;

	if (l->o->json)
		return print_json(l);
	if (l->o->watch_s)
		buf_add_char(&l->text, '\n');
	status = command_print(l->cmd, &l->text);
	buf_clear(&l->text);
	return status;
}

static bool finish_round(void *arg, unsigned samples)
{
	struct sampling *l = arg;

	l->samples_n = samples;
	l->status = print_round(l);
	json_array_clear(l->samples);
	return l->status == EXIT_DONE;
}

/* Rates need two rounds: the first is not shown. */
static int print_rounds(struct sampling *l)
{
	struct metrics_rounds rounds = {.interval_s = l->o->watch_s ? l->o->watch_s : 1,
					.once = !l->o->watch_s,
					.sample = on_sample,
					.round_done = finish_round,
					.arg = l};

	if (!metrics_reader_has_any(&l->reader)) {
		if (l->o->json)
			print_round(l);
		report_missing(l);
		return EXIT_FAILED;
	}
	metrics_reader_run(&l->reader, &rounds);
	if (l->status == EXIT_DONE && (report_missing(l) || !l->samples_n))
		return EXIT_FAILED;
	return l->status;
}

static int metrics_run(const struct command *cmd, int argc, char **argv)
{
	struct options o = {0};
	struct args a = {.target = &o};
	struct sampling l = {.cmd = cmd, .o = &o};

	int status = command_parse(cmd, &a, argc, argv);
	if (status < 0) {
		l.samples = json_array();
		metrics_reader_open(&l.reader, o.wanted);
		status = print_rounds(&l);
		metrics_reader_close(&l.reader);
		json_decref(l.samples);
	}
	buf_release(&l.text);
	args_release(&a);
	return status;
}

static int parse_sources(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct options *o = a->target;

	for (const char *p = value; *p;) {
		size_t len = strcspn(p, ","), i = 0;

		while (i < METRICS_SOURCES && (strlen(metrics_sources[i]->name) != len ||
					       strncmp(metrics_sources[i]->name, p, len)))
			i++;
		if (i == METRICS_SOURCES)
			return err_set(err, -EINVAL,
				       "option '--%s': '%.*s' is not kernel, perf, npu or gpu",
				       opt->name, (int)len, p);
		o->wanted |= 1u << i;
		p += len + (p[len] == ',');
	}
	return o->wanted ? 0 : err_set(err, -EINVAL, "option '--%s' is empty", opt->name);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_FLAG("json", offsetof(struct options, json), "Print JSON instead of text."),
	OPTION_CALL("source", "NAME[,NAME]", parse_sources, 0, "what there is",
		    "Read these only: kernel, perf, npu, gpu. Fails if one of them is not there."),
	OPTION_UINT("watch", "SECONDS", offsetof(struct options, watch_s), 1, 86400, NULL,
		    "Print the metrics repeatedly, this many seconds apart, with rates over that "
		    "time."),
	OPT_END,
};

static const char *const usage[] = {"[--json] [--source NAME[,NAME]] [--watch SECONDS]", NULL};
static const struct args_example examples[] = {
	{"everything that can be measured here", "sonde metrics"},
	{"are the devices found, and why not", "sonde metrics --source npu,gpu"},
	{NULL, NULL},
};

const struct command cmd_metrics = {
	.name = "metrics",
	.spec = {.name = "sonde metrics",
		 .summary = "show what can be measured on this machine",
		 .description = "Prints one round of everything that the daemon samples: "
				"processors, memory, network and disks of this host, NPUs by DCMI "
				"or npu-smi, GPUs by NVML. Rates are over one second, or over the "
				"seconds of --watch. docs/metrics.md explains the metrics.",
		 .usage = usage,
		 .options = options,
		 .examples = examples},
	.run = metrics_run,
};
