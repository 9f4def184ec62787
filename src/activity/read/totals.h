/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What files of activities hold, in numbers: how busy each device was and with what, which names
 * took how much time. Memory grows with distinct names and with the gaps between activities.
 */
#ifndef SONDE_ACTIVITY_READ_TOTALS_H
#define SONDE_ACTIVITY_READ_TOTALS_H

#include <stdbool.h>
#include <stdint.h>

#include "activity/live/histogram.h"
#include "activity/owners/owners.h"
#include "activity/read/read.h"
#include "activity/steps/step_split.h"
#include "base/containers/hmap.h"

/* All calls of one name, in all files. */
struct sum_name {
	const char *name; /* as the file has it */
	const char *group; /* of a communication, else "" */
	uint8_t kind;
	bool again; /* a collective that is reported as Communication, too: counts once */
	uint64_t calls, total_ns, max_ns, amount;
	struct histogram times;
};

/* Within a bucket of the histogram, but never more than the longest. */
uint64_t sum_p99_ns(const struct sum_name *n);

struct sum_device {
	uint32_t device;
	struct spans
		work[SPLIT_IDLE]; /* by part; after activity_sum_finish() without what is hidden */
	uint64_t part_ns[SPLIT_PARTS]; /* they add up to the time of the rank */
	uint64_t hidden_ns; /* of communication, behind compute */
};

/* Files of one process: those of Jsonl follow each other. */
struct sum_rank {
	const char *format;
	uint32_t pid;
	int32_t rank;
	unsigned files;
	uint64_t activities, lost, skipped;
	uint64_t rotated_files; /* that went to make room for newer ones */
	uint64_t kinds; /* that there are: a bit for each */
	uint64_t first_ns, last_ns; /* of activities */
	bool torn, nameless;
	enum activity_end end; /* of its last file */
	uint64_t end_of_ns; /* when that file begins */
	struct sum_device *devices;
	size_t ndevices, devices_cap;
};

struct activity_sum {
	struct sum_rank *ranks;
	size_t nranks, ranks_cap;
	size_t current; /* whose file is being read */
	struct sum_name *names; /* after activity_sum_finish() by total time, the most first */
	size_t nnames, names_cap;
	struct hmap by_name;
	struct owner_times owners;
	uint64_t kind_count[ACTIVITY_KIND_END], kind_ns[ACTIVITY_KIND_END];
};

/* Zero-initialise, add files, finish, release. */
int activity_sum_file(struct activity_sum *s, const char *path, struct err *err);
void activity_sum_finish(struct activity_sum *s);
void activity_sum_release(struct activity_sum *s);

/* Work of devices: what counts as theirs in kernels and communication. */
bool sum_is_work(const struct sum_name *n);

#endif
