/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * --use-otlp: metrics to a collector of OpenTelemetry, as JSON over HTTP. Names stay as they are,
 * percentages become ratios, what adds up becomes a sum of deltas. Samples that wait together leave
 * in one request.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "daemon/metrics/metrics.h"
#include "daemon/metrics/names.h"
#include "daemon/sinks/receiver.h"
#include "daemon/sinks/sink.h"

#define METRICS_PATH "/v1/metrics"
#define MAX_SERIES 4096 /* whose last time is known */
#define DELTA 1 /* aggregationTemporality */

struct otlp {
	struct sink sink;
	/* of the thread */
	struct post *post;
	struct buf head; /* of a request: who sends it */
	/* of the loop */
	struct hmap last_ns; /* hash of source, device and texts -> time of the last sample */
	int64_t started_ns;
};

/* --- the thread --- */

static int deliver_samples(void *arg, const struct outbox_item *items, struct err *err)
{
	struct otlp *o = arg;
	struct buf body = {0};

	buf_add(&body, o->head.data, o->head.len);
	for (const struct outbox_item *i = items; i; i = i->next) {
		buf_add(&body, i->data, i->bytes);
		if (i->next)
			buf_add_char(&body, ',');
	}
	buf_add_str(&body, "]}]}]}");
	int r = post_send(o->post, &body, outbox_end_fd(o->sink.outbox), err);
	buf_release(&body);
	return r;
}

static void end_otlp(void *arg)
{
	struct otlp *o = arg;

	post_free(o->post);
	buf_release(&o->head);
	hmap_release(&o->last_ns);
	free(o);
}

/* --- the loop --- */

static json_t *attribute_json(const char *key, json_t *value)
{
	return json_pack("{s:s, s:{s:o}}", "key", key, "value", "stringValue", value);
}

/* Integers of 64 bits are text in this encoding. */
static json_t *nanoseconds_json(int64_t ns)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)ns);
	return json_string(text);
}

/* The name of a marker is no attribute: a job makes a new one at every step if it likes. */
static bool is_identity(const struct metric *t)
{
	return t->type == METRIC_TEXT && strcmp(t->name, "name") && strcmp(t->name, "deviceId");
}

/* What distinguishes this series from others: device, interface, and the texts of a monitor's
 * record. */
static json_t *attributes_of(const struct sample *s, const struct metric *m)
{
	json_t *all = json_array();
	char device[24];

	if (s->device != SAMPLE_NO_DEVICE) {
		snprintf(device, sizeof(device), "%lld", (long long)s->device);
		json_array_append_new(all, attribute_json("device", json_string(device)));
	}
	if (m->instance)
		json_array_append_new(all, attribute_json(metric_instance_label(m->name),
							  sink_string(m->instance)));
	for (size_t i = 0; i < s->n; i++) {
		const struct metric *t = &s->metrics[i];

		if (is_identity(t))
			json_array_append_new(all, attribute_json(t->name, sink_string(t->s)));
	}
	return all;
}

/* NULL: not a number that could be sent. */
static json_t *metric_json(const struct sample *s, const struct metric *m, int64_t since_ns)
{
	const struct metric_name *known = metric_name_find(m->name);
	bool percent = !strcmp(known->unit, "%"), delta = known->kind == METRIC_DELTA;
	double value;

	if (!metric_number(m, &value) || !isfinite(value))
		return NULL;
	json_t *point = json_pack("{s:o, s:o, s:f}", "timeUnixNano", nanoseconds_json(s->time_ns),
				  "attributes", attributes_of(s, m), "asDouble",
				  percent ? value / 100 : value);
	json_t *data = json_pack("{s:[o]}", "dataPoints", point);
	if (delta) {
		json_object_set_new(point, "startTimeUnixNano", nanoseconds_json(since_ns));
		json_object_set_new(data, "aggregationTemporality", json_integer(DELTA));
		json_object_set_new(data, "isMonotonic", json_true());
	}
	return json_pack("{s:s, s:s, s:s, s:o}", "name", m->name, "unit",
			 percent ? "1" : known->unit, "description", known->help,
			 delta ? "sum" : "gauge", data);
}

/* Since when this sample counts: since the one before it. */
static int64_t since(struct otlp *o, const struct sample *s)
{
	uint64_t key = XXH3_64bits_withSeed(s->source, strlen(s->source), (uint64_t)s->device);

	for (size_t i = 0; i < s->n; i++) /* the kind and domain of an activity */
		if (is_identity(&s->metrics[i]))
			key = XXH3_64bits_withSeed(s->metrics[i].s, strlen(s->metrics[i].s), key);
	uint64_t last = hmap_get(&o->last_ns, key);

	if (last != HMAP_NONE || o->last_ns.count < MAX_SERIES)
		hmap_put(&o->last_ns, key, (uint64_t)s->time_ns);
	int64_t start = last == HMAP_NONE ? o->started_ns : (int64_t)last;
	return start < s->time_ns ? start : s->time_ns;
}

static void otlp_sample(struct sink *sink, const struct sample *s)
{
	struct otlp *o = (struct otlp *)sink;
	int64_t since_ns = since(o, s);
	struct buf text = {0};

	for (size_t i = 0; i < s->n; i++) {
		json_t *m = metric_json(s, &s->metrics[i], since_ns);
		char *one = m ? json_dumps(m, JSON_COMPACT) : NULL;

		if (one) {
			if (text.len)
				buf_add_char(&text, ',');
			buf_add_str(&text, one);
		}
		free(one);
		json_decref(m);
	}
	if (text.len)
		outbox_put(o->sink.outbox, text.data, text.len);
	buf_release(&text);
}

/* Everything up to the list of metrics. */
static void make_head(struct buf *out, const char *service)
{
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	json_t *who = json_pack("{s:[o,o]}", "attributes",
				attribute_json("service.name", sink_string(service)),
				attribute_json("host.name", sink_string(host)));
	json_t *scope = json_pack("{s:s, s:s}", "name", "sonde", "version", SONDE_VERSION);
	char *resource_text = json_dumps(who, JSON_COMPACT);
	char *scope_text = json_dumps(scope, JSON_COMPACT);

	buf_addf(out,
		 "{\"resourceMetrics\":[{\"resource\":%s,\"scopeMetrics\":[{\"scope\":%s,"
		 "\"metrics\":[",
		 resource_text, scope_text);
	free(resource_text);
	free(scope_text);
	json_decref(who);
	json_decref(scope);
}

static struct sink *otlp_open(struct daemon *d, bool *out_wanted, struct err *err)
{
	const struct daemon_config *c = d->config;
	struct post_options p = {
		.endpoint = c->otlp_endpoint && *c->otlp_endpoint ? c->otlp_endpoint
								  : DAEMON_OTLP_ENDPOINT,
		.path = METRICS_PATH,
		.headers = c->otlp_headers,
		.ca = c->otlp_ca,
		.cert = c->otlp_cert,
		.key = c->otlp_key,
		.timeout_ms = c->otlp_timeout_ms,
	};
	struct post *post;

	*out_wanted = c->use_otlp;
	if (!*out_wanted || post_new(&p, &post, err) < 0)
		return NULL;
	struct otlp *o = xcalloc(1, sizeof(*o));
	o->sink.ops = &sink_otlp;
	o->started_ns = d->started_ns;
	o->post = post;
	make_head(&o->head, c->otlp_service_name ? c->otlp_service_name : "dynolog");
	struct outbox_options box = {.name = "the OTLP collector",
				     .max_items = c->otlp_max_queue,
				     .deliver = deliver_samples,
				     .end = end_otlp};
	return sink_start(&o->sink, box, err);
}

const struct sink_ops sink_otlp = {
	.name = "otlp",
	.open = otlp_open,
	.sample = otlp_sample,
};
