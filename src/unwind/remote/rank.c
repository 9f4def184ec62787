/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/remote/rank.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/proc.h"
#include "unwind/remote/objects/objects.h"
#include "wire/rank_env.h"

#define ENVIRON_BYTES (256u << 10)

static void take_environ(const char *bytes, size_t len, enum rank_source source,
			 struct process_rank *out)
{
	out->rank = rank_env_find(RANK_ENV_RANK, bytes, len);
	out->local_rank = rank_env_find(RANK_ENV_LOCAL_RANK, bytes, len);
	out->world_size = rank_env_find(RANK_ENV_WORLD_SIZE, bytes, len);
	out->source = out->rank == RANK_ENV_UNKNOWN ? RANK_FROM_NOTHING : source;
}

/* Of another user's process the environment is not ours to read: then nothing is known. */
static bool read_start(pid_t pid, struct process_rank *out)
{
	char *env = xmalloc(ENVIRON_BYTES);
	ssize_t n = proc_read(pid, "environ", env, ENVIRON_BYTES);

	take_environ(env, n < 0 ? 0 : (size_t)n, RANK_FROM_START, out);
	free(env);
	return n != 0;
}

/* A job that has taken RANK out of its environment has none: what it was started with does not
 * count any more. */
static void read_live(struct remote *r, const struct python_place *place, struct process_rank *out)
{
	struct remote_job job;

	if (remote_job(r, place, &job) < 0)
		return;
	if (job.environ_known)
		take_environ(buf_str(&job.environ), job.environ.len, RANK_FROM_ENVIRON, out);
	if (job.rank != RANK_ENV_UNKNOWN) {
		out->rank = job.rank;
		out->world_size = job.world_size;
		out->source = RANK_FROM_GROUP;
	}
	if (out->local_rank == RANK_ENV_UNKNOWN)
		out->local_rank = job.spawn_index;
	out->child = job.child;
	_Static_assert(sizeof(out->target) == sizeof(job.target), "the same name");
	memcpy(out->target, job.target, sizeof(out->target));
	out->spawned = job.spawn_index != RANK_ENV_UNKNOWN;
	out->loader = job.loader;
	buf_release(&job.environ);
}

bool process_rank_read(pid_t pid, struct remote *r, const struct python_place *place,
		       struct process_rank *out)
{
	*out = (struct process_rank){0};
	bool known = read_start(pid, out);

	if (place)
		read_live(r, place, out);
	return known;
}

void process_rank_find(pid_t pid, struct process_rank *out)
{
	struct python_place place;
	struct remote remote;

	remote_init(&remote, pid);
	bool found = python_find(&remote, &place, NULL) == 0;
	process_rank_read(pid, &remote, found ? &place : NULL, out);
}
