/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The parts of discover.c. */
#ifndef SONDE_SAMPLER_DISCOVER_DISCOVER_IMPL_H
#define SONDE_SAMPLER_DISCOVER_DISCOVER_IMPL_H

#include "base/containers/hmap.h"
#include "sampler/discover/discover.h"

struct pid_list {
	pid_t *v;
	size_t n, cap;
};

void pid_list_add(struct pid_list *l, pid_t pid);
void pid_list_release(struct pid_list *l);

/* One search while it runs. */
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
/* Adds ", words" to out->how. */
__attribute__((format(printf, 2, 3))) void finder_say(struct finder *f, const char *fmt, ...);
const struct pid_list *finder_all(struct finder *f);

/* Whether the process is meant by a part of its name; whether it runs Python, as far as that can be
 * said without a close look (sampler/discover/match.c). */
bool process_is_named(pid_t pid, const char *part);
bool process_looks_like_python(pid_t pid);

/* Adds all descendants of these (sampler/discover/tree.c). */
void find_descendants(struct finder *f, const struct pid_list *roots);

/* A path below /sys/fs/cgroup, of any version, or a directory with a cgroup.procs; else the id of a
 * container (sampler/discover/cgroup.c). */
void find_cgroup(struct finder *f, const char *name);
/* Whether the content of /proc/PID/cgroup names this container. */
bool cgroup_names_container(const char *text, const char *id);

/* Whoever has a file open whose path is `prefix` and a number, which is the device's
 * (sampler/discover/files.c). */
void find_by_open_file(struct finder *f, const char *prefix);

int find_on_devices(struct finder *f, struct err *err); /* sampler/discover/devices.c */

#endif
