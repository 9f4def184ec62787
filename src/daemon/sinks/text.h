/* SPDX-License-Identifier: MulanPSL-2.0 */
/* How a sample is spelt in JSON: by sinks, for getMetrics and by `sonde metrics`. */
#ifndef SONDE_DAEMON_SINKS_TEXT_H
#define SONDE_DAEMON_SINKS_TEXT_H

#include <jansson.h>

#include "device/metrics.h"

#define SINK_TIME_BYTES 32

/* The record of the JSON log: "name" or "name.instance" to value; floats as text with three
 * decimals, as log readers expect them; "device" of a device. A new reference. */
json_t *sink_record(const struct sample *s);

/* {"source":…,"time_ns":N,"device":N,"metrics":{"name":value,…}}: "device" of a device, numbers as
 * numbers; one that is infinite or none at all is left out. A new reference. */
json_t *sink_sample(const struct sample *s);

/* YYYY-MM-DDTHH:MM:SS.mmmZ, in UTC. */
void sink_time(int64_t time_ns, char out[SINK_TIME_BYTES]);

/* Text that JSON can hold; a new reference. */
json_t *sink_string(const char *text);

#endif
