/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the kernel says of a process' memory: /proc/PID/status, /proc/PID/smaps, and the limits of
 * its control group (both versions). `dir` is a descriptor of /proc/PID, so that a number which was
 * handed out again is never taken for the process.
 */
#ifndef SONDE_MEMORY_TRACK_PROCESS_MEMORY_H
#define SONDE_MEMORY_TRACK_PROCESS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/record.h"

/* The first group of the record, everything else USAGE_UNKNOWN. Cheap: the kernel keeps these. */
int process_memory_read(int dir, struct rec_usage *out);
bool process_memory_parse(const char *status, struct rec_usage *out); /* the text of the file */

/*
 * The second group, from a list of all mappings. The kernel walks the pages of the process for it,
 * some milliseconds for each GiB.
 */
int process_memory_read_detail(int dir, struct rec_usage *out);

/* The same from lines, one by one: zero-initialise, then smaps_end(). */
struct smaps {
	uint64_t from, to, anon; /* of the mapping at hand */
	bool is_file, is_heap, is_stack, is_arena, is_ring, is_guard;
	uint64_t guard_end; /* of the mapping before it, if that was a guard */
	uint64_t pss, heap, stacks, copied, rings;
};
void smaps_line(struct smaps *s, const char *line);
void smaps_end(struct smaps *s, struct rec_usage *out);

/* A control group whose memory is limited; "" where there is none. */
struct memory_group {
	char path[512];
	bool old; /* version 1 */
};
/* The closest one around the process that has a limit. */
void memory_group_find(int dir, struct memory_group *out);
/*
 * The path of the process from the text of /proc/PID/cgroup, lines like "4:cpu,memory:/a/b": in the
 * hierarchy of version 1 with that controller, "" in that of version 2 ("0::/a/b"). False: none, or
 * one that leads out of the hierarchy.
 */
bool memory_group_parse(const char *cgroup, const char *controller, char *out, size_t size);
struct memory_group_state {
	uint64_t bytes, limit_bytes; /* USAGE_UNKNOWN */
	uint64_t kills; /* of processes in it, for lack of memory */
};
void memory_group_read(const struct memory_group *g, struct memory_group_state *out);

#endif
