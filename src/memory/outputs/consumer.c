/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory as a consumer of the recorder: dumps, diagnosis, report, samples of device memory. */
#define LOG_AREA "recorder"
#include "recorder/consumer.h"

#include "base/log.h"
#include "base/mem.h"
#include "memory/options/config.h"
#include "memory/outputs/outputs.h"
#include "memory/outputs/replay.h"
#include "memory/outputs/report.h"
#include "memory/track/device_memory.h"
#include "memory/track/track.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLUSH_NS 200000000ull

struct state {
	struct mem_config cfg;
	struct outputs outputs;
	struct device_memory *devices;
	struct report report;
	uint64_t flushed_ns;
};

/* --- the configuration --- */

/* A job without a launcher: the file it was given, or the defaults, and then it starts silent. */
static int config_without_launcher(const char *dir, struct mem_config *cfg, struct err *err)
{
	const char *given = getenv(MEM_CONFIG_ENV);
	const char *compat = getenv(MEM_COMPAT_ENV);
	char *copy = xstrdup(dir);
	int r = 0;

	if (!given || given[0] != '/' || mem_config_read(given, cfg, NULL) < 0) {
		r = mem_config_init(cfg, err);
		cfg->mode = MEM_DEFERRED;
		if (compat && mem_compat_find(compat) >= 0)
			cfg->compat = (enum row_compat)mem_compat_find(compat);
	}
	snprintf(cfg->output_dir, sizeof(cfg->output_dir), "%s", dirname(copy));
	free(copy);
	return r;
}

static int load_config(const char *dir, struct mem_config *cfg, struct err *err)
{
	char *path = xasprintf("%s/" SESSION_CONFIG, dir);
	int r;

	if (access(path, F_OK) == 0) {
		r = mem_config_read(path, cfg, err);
	} else {
		r = config_without_launcher(dir, cfg, err);
		if (r == 0)
			r = mem_config_write(cfg, path, err);
	}
	free(path);
	return r;
}

static int open_memory(const struct recorder_session *session, struct consumer *out,
		       struct err *err)
{
	struct state *s = xcalloc(1, sizeof(*s));
	int r = load_config(session->dir, &s->cfg, err);

	if (r < 0) {
		free(s);
		return r;
	}
	log_set_level(s->cfg.log_level);
	mem_config_publish(&s->cfg, session->page);
	struct outputs_where where = {s->cfg.output_dir, session->dir, DUMPS_AS_CONFIGURED, true};
	outputs_open(&s->outputs, &where, s->cfg.format == MEM_DB ? &db_writer : &csv_writer,
		     s->cfg.compat);
	s->devices = device_memory_new();
	s->report = (struct report){
		.dir = session->dir,
		.page = session->page,
		.cfg = &s->cfg,
		.terminal = session->terminal,
	};
	out->state = s;
	out->listener = s->outputs.track;
	return 0;
}

static void close_memory(void *state)
{
	struct state *s = state;

	device_memory_free(s->devices);
	outputs_close(&s->outputs);
	free(s);
}

/* --- while the job runs --- */

/* Samples of device memory are part of the recording like everything else. */
static bool poll_devices(void *state, bool had_events, struct buf *batch)
{
	struct state *s = state;

	return device_memory_poll(s->devices, s->outputs.track, had_events, batch);
}

static void settle_devices(void *state)
{
	struct state *s = state;

	device_memory_settle(s->devices, s->outputs.track);
}

static void flush(void *state)
{
	outputs_flush(&((struct state *)state)->outputs);
}

static void flush_if_due(void *state, uint64_t now_ns)
{
	struct state *s = state;

	if (now_ns - s->flushed_ns >= FLUSH_NS) {
		s->flushed_ns = now_ns;
		flush(s);
	}
}

static bool is_amending(void *state)
{
	return diagnose_is_amending(((struct state *)state)->outputs.diagnose);
}

static void add_losses(void *state, struct consumer_losses *total)
{
	struct state *s = state;
	struct err why = {0};
	uint64_t lost = dumps_lost(s->outputs.dumps, &why);

	if (lost)
		log_warn("%llu rows could not be written: %s", (unsigned long long)lost, why.text);
	total->rows += lost;
	total->unamended += diagnose_unamended(s->outputs.diagnose);
}

/* --- at the end --- */

static void report(void *state)
{
	struct state *s = state;

	report_tell(&s->report, s->outputs.diagnose);
}

static void report_end(void *state, uint64_t events)
{
	struct state *s = state;
	char *text = xasprintf("[msmemscope] Info: %llu events recorded; read them with: sonde mem "
			       "show %s\n",
			       (unsigned long long)events, s->report.dir);

	report(s);
	report_say(&s->report, text, strlen(text));
	free(text);
}

static int rewrite_dumps(const char *recording, const struct buf *session, struct buf *report_text,
			 struct err *err)
{
	struct mem_config cfg;

	mem_config_init(&cfg, NULL);
	if (session->len)
		mem_config_parse(session->data, session->len, &cfg, NULL);
	struct export_order order = {
		.format = cfg.format == MEM_DB ? "db" : "csv",
		.output_dir = cfg.output_dir,
		.compat = cfg.compat,
		.as_recorded = true,
	};
	int r = export_recording(recording, &order, err);
	if (r == 0)
		buf_addf(report_text, "The dumps in '%s' have been written anew.\n",
			 cfg.output_dir);
	return r;
}

const struct consumer_ops memory_consumer = {
	.name = "memory",
	.stream = &track_stream,
	.open = open_memory,
	.close = close_memory,
	.tick = flush_if_due,
	.poll = poll_devices,
	.settle = settle_devices,
	.flush = flush,
	.is_amending = is_amending,
	.add_losses = add_losses,
	.report = report,
	.report_end = report_end,
	.rewrite = rewrite_dumps,
};
