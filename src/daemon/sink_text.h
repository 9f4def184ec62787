/* SPDX-License-Identifier: MulanPSL-2.0 */
/* How sinks that write JSON spell a sample. */
#ifndef SONDE_DAEMON_SINK_TEXT_H
#define SONDE_DAEMON_SINK_TEXT_H

#include <jansson.h>

#include "device/metrics.h"

#define SINK_TIME_BYTES 32

/* The record of the JSON log: "name" or "name.instance" to value; floats as text with three
 * decimals, as log readers expect them; "device" of a device. A new reference. */
json_t *sink_record(const struct sample *s);

/* YYYY-MM-DDTHH:MM:SS.mmmZ, in UTC. */
void sink_time(int64_t time_ns, char out[SINK_TIME_BYTES]);

/* Text that JSON can hold; a new reference. */
json_t *sink_string(const char *text);

#endif
