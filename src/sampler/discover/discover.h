/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which processes are meant: pids, a name, a parent and its descendants, a cgroup or container,
 * users of a device. One call, one answer; targets.h follows them over time. One
 * search at a time in a process: drivers that hang are remembered.
 */
#ifndef SONDE_SAMPLER_DISCOVER_DISCOVER_H
#define SONDE_SAMPLER_DISCOVER_DISCOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "unwind/remote/python.h"
#include "unwind/remote/rank.h"

enum discover_devices {
	DISCOVER_NO_DEVICE, /* only what the other rules name */
	DISCOVER_AUTO, /* NPU if there is one, else GPU */
	DISCOVER_NPU,
	DISCOVER_GPU,
};

struct discover_rules {
	/* All that are given add up. */
	const pid_t *pids;
	unsigned npids;
	/* Part of the program's name or of its command line; also what those have started with
	 * multiprocessing, whose command lines name nothing. */
	const char *const *names;
	unsigned nnames;
	const pid_t *parents; /* and all their descendants */
	unsigned nparents;
	const char *const *cgroups; /* a path below /sys/fs/cgroup, or a container's id */
	unsigned ncgroups;
	bool children; /* also the descendants of everything else that was found */
	bool all_python; /* every process that runs Python */
	enum discover_devices devices;
	unsigned min_npu_mb; /* less than this on the NPU does not count; 0: everything counts */
	unsigned min_gpu_mb;
	unsigned timeout_ms; /* for npu-smi and nvidia-smi */
	unsigned refresh_ms; /* how often to search again; 0: once only */
	unsigned refresh_empty_ms; /* the same while nothing was found */
};

struct discovered {
	pid_t pid;
	int device; /* -1 */
	uint64_t device_mb; /* UINT64_MAX if unknown */
	bool named; /* by its pid: an error if it is no Python process */
};

struct discovery {
	struct discovered *list; /* in the order the rules give them, each pid once */
	unsigned n;
	char found_by[128]; /* for people: "npu-smi", "DCMI", "NVML", "12 pids" */
};

/* -ENOENT if devices were asked for (not AUTO) and there is no such library or program. */
int discover(const struct discover_rules *rules, struct discovery *out, struct err *err);
void discovery_release(struct discovery *d);

/* Facts of one process from /proc. Errors: -ESRCH. */
struct process_facts {
	uint64_t start_ticks;
	pid_t parent;
	char state;
	struct process_rank rank;
	char *cmdline; /* printable, words joined by blanks; the name in [] if it has none */
};
/* `python`: its interpreter, which knows more than /proc; NULL: not found. */
int process_facts(pid_t pid, struct python_process *python, struct process_facts *out,
		  struct err *err);
void process_facts_release(struct process_facts *f);
uint64_t process_start_ticks(pid_t pid); /* 0 if there is none */

#endif
