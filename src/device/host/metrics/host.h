/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The parts of the "kernel" source, each with its file and what it remembers of the last round.
 * Each adds its metrics to the record; what is not there to be read is left out.
 */
#ifndef SONDE_DEVICE_HOST_METRICS_HOST_H
#define SONDE_DEVICE_HOST_METRICS_HOST_H

#include "device/metrics.h"

/* The source over files below `root` ("" is this machine), for tests. */
int host_metrics_open_at(const char *root, const struct metrics_options *o, void **out,
			 struct err *err);

struct host_cpu;
struct host_cpu *host_cpu_new(const char *root);
void host_cpu_free(struct host_cpu *c);
void host_cpu_read(struct host_cpu *c, struct metric_list *out);

struct host_net;
/* prefixes: a comma list, borrowed only for the call; NULL: every interface. */
struct host_net *host_net_new(const char *root, const char *prefixes);
void host_net_free(struct host_net *n);
void host_net_read(struct host_net *n, struct metric_list *out);

struct host_disk;
struct host_disk *host_disk_new(const char *root);
void host_disk_free(struct host_disk *d);
void host_disk_read(struct host_disk *d, struct metric_list *out);

struct host_memory;
struct host_memory *host_memory_new(const char *root);
void host_memory_free(struct host_memory *m);
void host_memory_read(struct host_memory *m, struct metric_list *out);

#endif
