/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where metrics come from: one const struct metrics_source for each kind of hardware, found at run
 * time. Calls may take milliseconds, or hang with a driver: the caller has a thread for it.
 */
#ifndef SONDE_DEVICE_METRICS_H
#define SONDE_DEVICE_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum metric_type { METRIC_INT, METRIC_UINT, METRIC_FLOAT, METRIC_TEXT };

/* One value under the name that the reference daemon gives it. */
struct metric {
	const char *name; /* "cpu_util", "rx_bytes" */
	const char *instance; /* "eth0": logged as rx_bytes.eth0, exported with a label; or NULL */
	enum metric_type type;
	union {
		int64_t i;
		uint64_t u;
		double f;
		const char *s;
	};
};

#define SAMPLE_NO_DEVICE INT64_MIN

/* One record. Names and texts are borrowed for the time of the call. */
struct sample {
	const char *source; /* "kernel", "perf", "gpu", "npu", "data" */
	int64_t time_ns; /* CLOCK_REALTIME; 0: the record has no time */
	int64_t device; /* SAMPLE_NO_DEVICE: none */
	uint32_t uid; /* the ordinary user who sent it; 0: none, it is ours or root's */
	const struct metric *metrics;
	size_t n;
};

typedef void (*sample_fn)(void *arg, const struct sample *sample);

struct metrics_options {
	bool filter_nics;
	const char *nic_prefixes; /* comma list */
	bool env_attribution; /* job, user and partition of the process on a device */
	/* Only how busy devices are and their memory: nothing that takes long, or that disturbs
	 * profilers. */
	bool load_only;
	unsigned program_timeout_ms; /* for npu-smi and nvidia-smi; 0: ten seconds */
};

#define METRICS_PROGRAM_MS 10000

struct metrics_source {
	const char *name; /* as sample.source */
	/* -ENOENT: there is no such hardware or library here. */
	int (*open)(void **out, const struct metrics_options *o, struct err *err);
	/* One round: calls fn once per record. */
	int (*read)(void *self, sample_fn fn, void *arg, struct err *err);
	/* Stops and resumes what disturbs profilers (hardware counters). NULL: nothing does. */
	int (*pause)(void *self, bool paused);
	void (*close)(void *self);
};

extern const struct metrics_source host_metrics; /* /proc: "kernel" */
extern const struct metrics_source perf_metrics; /* perf_event: "perf" */
extern const struct metrics_source ascend_metrics; /* DCMI, else npu-smi: "npu" */
extern const struct metrics_source cuda_metrics; /* NVML, else nvidia-smi: "gpu" */

/*
 * One record while a source puts it together. Zero-initialise, clear, add, report, release. Names,
 * instances and texts are borrowed until metric_list_emit() has returned.
 */

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
void metric_list_emit(const struct metric_list *l, const char *source, int64_t device, sample_fn fn,
		      void *arg);

#endif
