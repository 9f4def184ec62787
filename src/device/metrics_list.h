/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One record while a source puts it together. Zero-initialise, clear, add, tell, release. Names,
 * instances and texts are borrowed until metric_list_tell() has returned.
 */
#ifndef SONDE_DEVICE_METRICS_LIST_H
#define SONDE_DEVICE_METRICS_LIST_H

#include "device/metrics.h"

struct metric_list {
	struct metric *metrics;
	size_t n, cap;
};

void metric_list_clear(struct metric_list *l); /* empty, keeps the memory */
void metric_list_release(struct metric_list *l);

/* instance: NULL, or what tells the same metric of several things apart. */
void metric_list_int(struct metric_list *l, const char *name, const char *instance, int64_t v);
void metric_list_uint(struct metric_list *l, const char *name, const char *instance, uint64_t v);
void metric_list_float(struct metric_list *l, const char *name, const char *instance, double v);
/* Nothing is added for an empty text. */
void metric_list_text(struct metric_list *l, const char *name, const char *text);

/* Hands the record over with the time of day; an empty one is not worth a call. */
void metric_list_tell(const struct metric_list *l, const char *source, int64_t device, sample_fn fn,
		      void *arg);

#endif
