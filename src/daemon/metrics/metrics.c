/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/loop.h"
#include "daemon/metrics/metrics_impl.h"
#include "daemon/sinks/sink.h"

#define LOG_AREA "metrics"
#include "base/log.h"

#define FIRST_INTERVAL_S 1 /* so that there is something to see soon after the start */
#define STALE_INTERVALS 5
#define RECORDS_PER_S 200 /* of one user's processes, for sinks: 16 ranks with 10 kinds each */

static const struct sink_ops *const all_sinks[METRICS_SINKS] = {&sink_json, &sink_tensorboard,
								&sink_otlp, &sink_fbrelay};

void metrics_sample(struct metrics *m, const struct sample *sample)
{
	struct sample s = *sample;

	if (!s.time_ns)
		s.time_ns = clock_real_ns();
	history_add(&m->history, &s);
	/* What is too much for the store would be too much for receivers and files as well. */
	if (!store_put(&m->store, &s, clock_mono_ns()))
		return;
	/* Sums are kept whatever a user sends; files and receivers get a part of it. */
	if (s.uid && m->nsinks && !user_limit_take(m->record_limit, s.uid))
		return;
	for (unsigned i = 0; i < m->nsinks; i++)
		m->sinks[i]->ops->sample(m->sinks[i], &s);
}

static void sample_arrived(void *arg, const struct sample *sample)
{
	metrics_sample(arg, sample);
}

/* --- sources on the loop --- */

static void read_once(struct metrics_loop *l)
{
	struct err err = {0};

	if (l->source->read(l->self, sample_arrived, l->hub, &err) >= 0)
		return;
	if (!l->failures++)
		log_warn("cannot read metrics of source '%s': %s", l->source->name, err.text);
	snprintf(l->why, sizeof(l->why), "%.255s", err.text);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct metrics_loop *l = arg;

	(void)fd, (void)what;
	event_add(l->timer, &(struct timeval){.tv_sec = l->interval_s});
	read_once(l);
}

static struct metrics_options source_options(const struct daemon_config *c)
{
	return (struct metrics_options){.filter_nics = c->filter_nics,
					.nic_prefixes = c->nic_prefixes,
					.env_attribution = c->env_attribution};
}

static void open_loop(struct metrics *m, struct metrics_loop *l,
		      const struct metrics_source *source, unsigned interval_s)
{
	struct metrics_options o = source_options(m->d->config);
	struct err err = {0};

	*l = (struct metrics_loop){.source = source, .interval_s = interval_s, .hub = m};
	if (source->open(&l->self, &o, &err) < 0) {
		log_warn("no metrics of source '%s': %s", source->name, err.text);
		snprintf(l->why, sizeof(l->why), "%.255s", err.text);
		return;
	}
	unsigned first = interval_s < FIRST_INTERVAL_S ? interval_s : FIRST_INTERVAL_S;
	l->timer = loop_event_new(m->d->base, -1, 0, DAEMON_PRIORITY_METRICS, on_timer, l);
	event_add(l->timer, &(struct timeval){.tv_sec = first});
	read_once(l);
}

static void close_loop(struct metrics_loop *l)
{
	if (!l->timer)
		return;
	event_free(l->timer);
	l->source->close(l->self);
}

/* --- start and end --- */

static int open_sinks(struct metrics *m, struct err *err)
{
	for (unsigned i = 0; i < METRICS_SINKS; i++) {
		struct err why = {0};
		bool wanted = false;
		struct sink *s = all_sinks[i]->open(m->d, &wanted, &why);

		if (s)
			m->sinks[m->nsinks++] = s;
		else if (wanted)
			return err_set(err, why.code ? why.code : -EIO,
				       "cannot write metrics to %s: %s", all_sinks[i]->name,
				       why.text);
	}
	return 0;
}

static int open_reader(struct metrics *m, const struct metrics_source *source, unsigned want,
		       struct err *err)
{
	const struct daemon_config *c = m->d->config;

	if (!c->device_interval_s)
		return 0;
	struct reader_options o = {
		.source = source,
		.options = source_options(c),
		.interval_s = c->device_interval_s,
		.requested = want == DAEMON_YES,
		.fn = sample_arrived,
		.arg = m,
	};
	int r = reader_new(m->d->base, &o, &m->readers[m->nreaders], err);
	if (r == 0)
		m->nreaders++;
	return r;
}

void metrics_open_found_devices(struct metrics *m)
{
	const struct daemon_config *c = m->d->config;
	struct err err = {0};

	if (m->found_opened)
		return;
	m->found_opened = true;
	if ((c->npu_monitor == DAEMON_AUTO &&
	     open_reader(m, &ascend_metrics, DAEMON_AUTO, &err) < 0) ||
	    (c->gpu_monitor == DAEMON_AUTO && open_reader(m, &cuda_metrics, DAEMON_AUTO, &err) < 0))
		log_warn("metrics of devices are not read: %s", err.text);
}

static int open_named_devices(struct metrics *m, struct err *err)
{
	const struct daemon_config *c = m->d->config;
	int r = 0;

	if (c->npu_monitor == DAEMON_YES)
		r = open_reader(m, &ascend_metrics, DAEMON_YES, err);
	if (r == 0 && c->gpu_monitor == DAEMON_YES)
		r = open_reader(m, &cuda_metrics, DAEMON_YES, err);
	return r;
}

int metrics_new(struct daemon *d, struct metrics **out, struct err *err)
{
	const struct daemon_config *c = d->config;
	struct metrics *m = xcalloc(1, sizeof(*m));

	m->d = d;
	m->record_limit = user_limit_new(d->base, "metric records", RECORDS_PER_S, RECORDS_PER_S);
	int r = open_sinks(m, err);
	r = r ?: open_named_devices(m, err);
	if (r < 0) {
		metrics_free(m);
		return r;
	}
	if (m->nsinks || c->use_prometheus)
		metrics_open_found_devices(m);
	if (c->kernel_interval_s)
		open_loop(m, &m->loops[0], &host_metrics, c->kernel_interval_s);
	if (c->enable_perf_monitor && c->perf_interval_s)
		open_loop(m, &m->loops[1], &perf_metrics, c->perf_interval_s);
	*out = m;
	return 0;
}

void metrics_free(struct metrics *m)
{
	if (!m)
		return;
	loop_event_free(m->resume);
	for (unsigned i = 0; i < m->nreaders; i++)
		reader_free(m->readers[i]);
	close_loop(&m->loops[0]);
	close_loop(&m->loops[1]);
	for (unsigned i = 0; i < m->nsinks; i++)
		sink_close(m->sinks[i]);
	store_release(&m->store);
	history_release(&m->history);
	user_limit_free(m->record_limit);
	free(m);
}

/* --- pause --- */

static bool pause_readers(struct metrics *m, bool paused)
{
	bool any = false;

	for (unsigned i = 0; i < m->nreaders; i++)
		any |= reader_pause(m->readers[i], paused);
	return any;
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	pause_readers(arg, false);
	log_info("hardware counters of devices are read again");
}

bool metrics_pause(struct metrics *m, bool paused, unsigned seconds)
{
	if (!pause_readers(m, paused))
		return false;
	if (!m->resume)
		m->resume =
			loop_event_new(m->d->base, -1, 0, DAEMON_PRIORITY_METRICS, on_resume, m);
	event_del(m->resume);
	if (paused)
		event_add(m->resume, &(struct timeval){.tv_sec = seconds});
	log_info("hardware counters of devices are %s", paused ? "paused" : "read again");
	return true;
}

/* --- what there is now --- */

bool metrics_is_stale(const struct metrics *m, const struct stored *s, uint64_t now_ns)
{
	const struct daemon_config *c = m->d->config;
	unsigned interval = c->device_interval_s;

	if (!strcmp(s->sample.source, "kernel"))
		interval = c->kernel_interval_s;
	else if (!strcmp(s->sample.source, "perf"))
		interval = c->perf_interval_s;
	else if (!strcmp(s->sample.source, "data"))
		return false; /* sums stay true */
	return now_ns - s->heard_ns > (uint64_t)interval * STALE_INTERVALS * 1000000000u;
}

bool metrics_source_info(const struct metrics *m, unsigned i, struct reader_info *out)
{
	if (i >= 2) {
		if (i - 2 < m->nreaders)
			*out = reader_info(m->readers[i - 2]);
		return i - 2 < m->nreaders;
	}
	const struct metrics_loop *l = &m->loops[i];
	if (!l->source)
		return false;
	*out = (struct reader_info){.source = l->source->name,
				    .state = l->timer ? READER_WORKS : READER_FAILED,
				    .failures = l->failures};
	memcpy(out->why, l->why, sizeof(out->why));
	return true;
}

static json_t *list_sources(const struct metrics *m)
{
	json_t *sources = json_array();
	struct reader_info r;

	for (unsigned i = 0; i < METRICS_SOURCES; i++) {
		if (!metrics_source_info(m, i, &r))
			continue;
		json_t *o = json_pack("{s:s, s:s}", "name", r.source, "state",
				      r.round_s >= READER_HANGS_S ? "hangs"
								  : reader_state_text(r.state));
		if (*r.why)
			json_object_set_new(o, "why", json_string(r.why));
		json_array_append_new(sources, o);
	}
	return sources;
}

const struct history *metrics_history(const struct metrics *m)
{
	return &m->history;
}

json_t *metrics_latest(const struct metrics *m, const struct access_grant *who)
{
	uint64_t now = clock_mono_ns();
	json_t *samples = json_array();

	for (size_t i = 0; i < m->store.n; i++) {
		const struct stored *s = m->store.items[i];

		if (metrics_is_stale(m, s, now) ||
		    (!strcmp(s->sample.source, "data") && !access_covers(who, s->sample.uid)))
			continue;
		json_t *o = sink_sample(&s->sample);
		if (s->sample.uid)
			json_object_set_new(o, "uid", json_integer(s->sample.uid));
		json_object_set_new(o, "records", json_integer((json_int_t)s->records));
		json_object_set_new(o, "interval_s",
				    s->interval_ns ? json_real((double)s->interval_ns / 1e9)
						   : json_null());
		json_array_append_new(samples, o);
	}
	return json_pack("{s:o, s:o}", "samples", samples, "sources", list_sources(m));
}
