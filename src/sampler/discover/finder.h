/* SPDX-License-Identifier: MulanPSL-2.0 */
/* One search while it runs: for discover.c and the rules that have a file of their own. */
#ifndef SONDE_SAMPLER_DISCOVER_FINDER_H
#define SONDE_SAMPLER_DISCOVER_FINDER_H

#include "base/containers/hmap.h"
#include "sampler/discover/discover.h"

struct pid_list {
	pid_t *v;
	size_t n, cap;
};

void pid_list_release(struct pid_list *l);

struct finder {
	const struct discover_rules *rules;
	struct discovery *out;
	size_t cap; /* of out->list */
	struct hmap seen; /* pid: its place in the list */
	pid_t own;
	struct pid_list all; /* every process, in order of pid; read when first wanted */
	bool have_all;
};

/* Adds it unless it is there, or is ourselves. */
void finder_add(struct finder *f, const struct discovered *d);
void finder_add_pid(struct finder *f, pid_t pid);
/* Adds ", words" to out->found_by. */
__attribute__((format(printf, 2, 3))) void finder_describe(struct finder *f, const char *fmt, ...);
const struct pid_list *finder_all(struct finder *f);

/* A path below /sys/fs/cgroup, of any version, or a directory with a cgroup.procs; else the id of a
 * container (sampler/discover/cgroup.c). */
void find_cgroup(struct finder *f, const char *name);
/* Whether the content of /proc/PID/cgroup names this container. */
bool cgroup_names_container(const char *text, const char *id);

/* Adds every process that has a file open whose path is `prefix` and the number of a device. */
void find_by_open_file(struct finder *f, const char *prefix);
int find_on_devices(struct finder *f, struct err *err); /* sampler/discover/devices.c */

#endif
