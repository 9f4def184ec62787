/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What is known about metrics beyond their names: how they are to be read and in which unit. A name
 * that is not in the table is a gauge.
 */
#ifndef SONDE_DAEMON_METRICS_NAMES_H
#define SONDE_DAEMON_METRICS_NAMES_H

#include <stdbool.h>

#include "base/containers/buf.h"
#include "device/metrics.h"

enum metric_kind {
	METRIC_GAUGE, /* the value of a moment */
	METRIC_DELTA, /* what came in one interval: adds up */
};

struct metric_name {
	const char *name;
	enum metric_kind kind;
	const char *unit; /* UCUM, as OTLP has it: "By", "%", "ms", "1" … */
	const char *help;
};

/* Never NULL. */
const struct metric_name *metric_name_find(const char *name);

/* The label under which the instance of such a metric is exported: "net", "disk", "pid",
 * "instance". */
const char *metric_instance_label(const char *name);

/* Adds the name under which it is logged: "cpu_util", "rx_bytes.eth0". */
void metric_add_key(const struct metric *m, struct buf *out);

/* The text of that name in a sample; NULL: none. */
const char *metric_text(const struct sample *s, const char *name);

/* The value as a number; false: it is text. */
bool metric_number(const struct metric *m, double *out);

#endif
