/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "metrics"

#include "daemon/sinks/sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/containers/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "daemon/metrics/metrics.h"
#include "daemon/metrics/names.h"

json_t *sink_string(const char *text)
{
	struct buf scratch = {0};
	size_t len = strlen(text);
	const char *clean = text_clean(text, &len, &scratch);
	json_t *s = json_stringn(clean, len);

	buf_release(&scratch);
	return s;
}

static json_t *plain_value(const struct metric *m)
{
	switch (m->type) {
	case METRIC_INT:
		return json_integer(m->i);
	case METRIC_UINT:
		return json_integer(m->u < INT64_MAX ? (json_int_t)m->u : INT64_MAX);
	case METRIC_FLOAT:
		return json_real(m->f);
	case METRIC_TEXT:
		break;
	}
	return sink_string(m->s);
}

static json_t *logged_value(const struct metric *m)
{
	char text[400]; /* the longest double has 309 digits before the point */

	if (m->type != METRIC_FLOAT)
		return plain_value(m);
	snprintf(text, sizeof(text), "%.3f", m->f);
	return json_string(text);
}

static json_t *values_of(const struct sample *s, json_t *(*value_of)(const struct metric *m))
{
	json_t *o = json_object();
	struct buf key = {0};

	for (size_t i = 0; i < s->n; i++) {
		buf_clear(&key);
		metric_add_key(&s->metrics[i], &key);
		json_object_set_new(o, buf_str(&key), value_of(&s->metrics[i]));
	}
	buf_release(&key);
	return o;
}

json_t *sink_record(const struct sample *s)
{
	json_t *o = values_of(s, logged_value);

	/* records of monitors have their own word for it */
	if (s->device != SAMPLE_NO_DEVICE && strcmp(s->source, "data"))
		json_object_set_new(o, "device", json_integer(s->device));
	return o;
}

json_t *sink_sample(const struct sample *s)
{
	json_t *o = json_pack("{s:s, s:I, s:o}", "source", s->source, "time_ns",
			      (json_int_t)s->time_ns, "metrics", values_of(s, plain_value));

	if (s->device != SAMPLE_NO_DEVICE)
		json_object_set_new(o, "device", json_integer(s->device));
	return o;
}

void sink_time(int64_t time_ns, char out[SINK_TIME_BYTES])
{
	time_t seconds = (time_t)(time_ns / 1000000000);
	struct tm tm = {0};

	gmtime_r(&seconds, &tm);
	size_t n = strftime(out, SINK_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, SINK_TIME_BYTES - n, ".%03dZ", (int)(time_ns / 1000000 % 1000));
}

struct sink *sink_start(struct sink *s, struct outbox_options o, struct err *err)
{
	o.delivered = &s->delivered;
	o.dropped = &s->dropped;
	o.arg = s;
	if (outbox_new(&o, &s->outbox, err) == 0)
		return s;
	o.end(s);
	return NULL;
}

void sink_close(struct sink *s)
{
	if (s->outbox)
		outbox_free(s->outbox);
	else
		s->ops->close(s);
}

/* --- --use-JSON: every record as two lines of the log --- */

static struct sink *json_open(struct daemon *d, bool *out_wanted, struct err *err)
{
	(void)err;
	*out_wanted = d->config->use_json;
	if (!*out_wanted)
		return NULL;
	struct sink *s = xcalloc(1, sizeof(*s));
	s->ops = &sink_json;
	return s;
}

static void json_sample(struct sink *s, const struct sample *sample)
{
	json_t *record = sink_record(sample);
	char *text = json_dumps(record, JSON_COMPACT | JSON_SORT_KEYS);
	char time[SINK_TIME_BYTES];

	sink_time(sample->time_ns, time);
	log_info("Logging : %zu values", json_object_size(record));
	log_info("time = %s data = %s", time, text ? text : "{}");
	s->delivered++;
	free(text);
	json_decref(record);
}

static void json_close(struct sink *s)
{
	free(s);
}

const struct sink_ops sink_json = {
	.name = "json",
	.open = json_open,
	.sample = json_sample,
	.close = json_close,
};
