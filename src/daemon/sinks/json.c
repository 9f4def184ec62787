/* SPDX-License-Identifier: MulanPSL-2.0 */
/* --use-JSON: every record as two lines of the log. */
#include <stdlib.h>

#include "base/mem.h"
#include "daemon/metrics/metrics.h"
#include "daemon/sinks/text.h"

#define LOG_AREA "metrics"
#include "base/log.h"

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
