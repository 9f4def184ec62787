/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/sink_text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "export/text.h"

json_t *sink_string(const char *text)
{
	struct buf scratch = {0};
	size_t len = strlen(text);
	const char *clean = text_clean(text, &len, &scratch);
	json_t *s = json_stringn(clean, len);

	buf_release(&scratch);
	return s;
}

static json_t *value_of(const struct metric *m)
{
	char text[400]; /* the longest double has 309 digits before the point */

	switch (m->type) {
	case METRIC_INT:
		return json_integer(m->i);
	case METRIC_UINT:
		return json_integer((json_int_t)m->u);
	case METRIC_FLOAT:
		snprintf(text, sizeof(text), "%.3f", m->f);
		return json_string(text);
	case METRIC_TEXT:
		break;
	}
	return sink_string(m->s);
}

json_t *sink_record(const struct sample *s)
{
	json_t *o = json_object();
	char key[256];

	/* records of monitors have their own word for it */
	if (s->device != SAMPLE_NO_DEVICE && strcmp(s->source, "data"))
		json_object_set_new(o, "device", json_integer(s->device));
	for (size_t i = 0; i < s->n; i++) {
		const struct metric *m = &s->metrics[i];

		snprintf(key, sizeof(key), "%s%s%s", m->name, m->instance ? "." : "",
			 m->instance ? m->instance : "");
		json_object_set_new(o, key, value_of(m));
	}
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
