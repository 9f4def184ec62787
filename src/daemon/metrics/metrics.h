/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Metrics: sources make samples on their intervals, every sink gets every sample. A sample is one
 * record of one source: the kernel, one device, one message of a monitor.
 */
#ifndef SONDE_DAEMON_METRICS_METRICS_H
#define SONDE_DAEMON_METRICS_METRICS_H

#include <event2/event.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "daemon/access.h"
#include "daemon/daemon.h"
#include "device/metrics.h"

/* A sink is one file of daemon/sinks with one const struct sink_ops and a line in metrics.c. */
struct sink;

struct sink_ops {
	const char *name;
	/* NULL with words in err: it cannot work; *out_wanted false: it is not asked for. */
	struct sink *(*open)(struct daemon *d, bool *out_wanted, struct err *err);
	void (*sample)(struct sink *s, const struct sample *sample);
	/* The loop is done with it: frees it. Not called where it has an outbox, whose thread
	 * delivers what is left and then frees the sink. */
	void (*close)(struct sink *s);
};

struct sink {
	const struct sink_ops *ops;
	struct outbox *outbox; /* NULL: none */
	_Atomic uint64_t delivered, dropped; /* records */
};

extern const struct sink_ops sink_json, sink_tensorboard, sink_otlp, sink_fbrelay;

struct metrics;

int metrics_new(struct daemon *d, struct metrics **out, struct err *err);
/* Comes back at once: receivers and drivers are left in the background. m may be NULL. */
void metrics_free(struct metrics *m);

/* Samples from outside the sources: the fabric's "data" messages, and who sent them. */
void metrics_data(struct metrics *m, uid_t uid, const json_t *record);
void metrics_sample(struct metrics *m, const struct sample *sample);

/* Stops what disturbs profilers (hardware counters of devices), for so many seconds at most, or
 * lets it go on. False: nothing to pause. */
bool metrics_pause(struct metrics *m, bool paused, unsigned seconds);

/* Somebody is about to ask for one of the two below. A vendor's library takes several times the
 * memory of the whole daemon, so devices that are read only because they are there are read from
 * now on. */
void metrics_open_found_devices(struct metrics *m);

/* The latest sample of every source, device and kind: the page and getMetrics. What processes sent
 * only as far as `who` may know of them; NULL: all. */
json_t *metrics_latest(const struct metrics *m, const struct access_grant *who);

/* An hour of devices and the host. */
struct history;
const struct history *metrics_history(const struct metrics *m);

/* Text of /metrics: the latest samples, and the daemon's own counters. */
void metrics_prometheus(const struct metrics *m, struct buf *out);

#endif
