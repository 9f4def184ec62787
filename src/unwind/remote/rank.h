/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which rank a process is: the one place that every command asks. What counts first:
 *
 *	the default group of torch.distributed   a job that was given its rank by init_process_group()
 *	os.environ of the interpreter            a job that sets RANK itself
 *	/proc/PID/environ                        as a launcher started it; wire/rank_env.h
 *
 * A process that fork made of a rank has all of that, too: whether it is the rank or its helper
 * shows only beside its parent (sampler/rounds/roles.h).
 */
#ifndef SONDE_UNWIND_REMOTE_RANK_H
#define SONDE_UNWIND_REMOTE_RANK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "unwind/remote/find/find.h"

enum rank_source {
	RANK_FROM_NOTHING,
	RANK_FROM_START, /* the environment it was started with */
	RANK_FROM_ENVIRON, /* the environment it has now */
	RANK_FROM_GROUP, /* torch.distributed */
};

struct process_rank {
	int32_t rank, local_rank, world_size; /* RANK_ENV_UNKNOWN */
	enum rank_source source; /* of the rank */
	bool child; /* multiprocessing has started it, */
	char target[64]; /* to run the function of this name; "" if it is not known */
	bool spawned; /* torch.multiprocessing.spawn, */
	bool loader; /* or a DataLoader of PyTorch */
};

/* Of a process that is no Python process, or not open (place NULL): what /proc says. False if its
 * environment is empty, as between fork and exec. */
bool process_rank_read(pid_t pid, struct remote *r, const struct python_place *place,
		       struct process_rank *out);

/* The same of a process that nobody has open: finds its interpreter first, some milliseconds. */
void process_rank_find(pid_t pid, struct process_rank *out);

#endif
