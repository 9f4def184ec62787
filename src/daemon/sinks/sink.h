/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What sinks share: how a sample is spelt in JSON (also for getMetrics and by `sonde metrics`), and
 * the outbox of those that may have to wait for a receiver.
 */
#ifndef SONDE_DAEMON_SINKS_SINK_H
#define SONDE_DAEMON_SINKS_SINK_H

#include <jansson.h>

#include "daemon/metrics/metrics.h"
#include "daemon/sinks/outbox.h"

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

/* Gives the sink an outbox; its functions get the sink as their argument. NULL: it failed, and
 * `end` has freed the sink. */
struct sink *sink_start(struct sink *s, struct outbox_options o, struct err *err);
void sink_close(struct sink *s); /* comes back at once */

#endif
