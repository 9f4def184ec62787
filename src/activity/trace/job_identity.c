/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which job a process is of, for a trace that several jobs of a node were asked for: launchers give
 * all their ranks the address at which they meet, schedulers a number; else it is known who has
 * started it. And how many ranks the job has, so that one that leaves nothing is missed.
 */
#include "activity/trace/trace.h"
#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/proc.h"
#include "unwind/remote/rank.h"
#include "wire/rank_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ENVIRONMENT (4u << 20)
#define MAX_VALUE 200

/* "": it is not set. The text is NUL after NUL. */
static const char *value_of(const struct buf *env, const char *name)
{
	size_t len = strlen(name);
	const char *end = env->data + env->len;

	for (const char *p = env->data; p < end; p += strlen(p) + 1)
		if (!strncmp(p, name, len) && p[len] == '=')
			return strlen(p + len + 1) <= MAX_VALUE ? p + len + 1 : "";
	return "";
}

static bool is_of_this_host(const char *address)
{
	return !*address || !strcmp(address, "localhost") || !strcmp(address, "::1") ||
	       !strncmp(address, "127.", 4);
}

static void add_word(struct buf *out, const char *word, const char *value)
{
	buf_addf(out, "%s%s%s", out->len ? ", " : "", word, value);
}

char *trace_job_of(uint32_t pid)
{
	char path[64];
	struct buf env = {0}, out = {0};
	struct err err = {0};

	snprintf(path, sizeof(path), "/proc/%u/environ", pid);
	if (fs_read_file(path, MAX_ENVIRONMENT, &env, &err) == 0 && env.len) {
		buf_add_char(&env, '\0');
		const char *slurm = value_of(&env, "SLURM_JOB_ID");
		const char *step = value_of(&env, "SLURM_STEP_ID");
		const char *port = value_of(&env, "MASTER_PORT");
		const char *address = value_of(&env, "MASTER_ADDR");
		char *host = is_of_this_host(address) ? trace_host_name() : xstrdup(address);

		if (*slurm)
			add_word(&out, "Slurm job ", slurm);
		if (*slurm && *step)
			add_word(&out, "step ", step);
		if (*port) {
			add_word(&out, "master ", host);
			buf_addf(&out, ":%s", port);
		}
		free(host);
	}
	char *job = xstrdup(buf_str(&out));
	buf_release(&env);
	buf_release(&out);
	return job;
}

/* 0: not known */
static uint32_t size_of(enum rank_env what, const struct buf *env)
{
	int32_t n = rank_env_find(what, env->data, env->len);

	return n == RANK_ENV_UNKNOWN ? 0 : (uint32_t)n;
}

void trace_world_of(uint32_t pid, uint32_t *out_world, uint32_t *out_local)
{
	char path[64];
	struct buf env = {0};
	struct err err = {0};
	struct process_rank now;

	*out_world = *out_local = 0;
	snprintf(path, sizeof(path), "/proc/%u/environ", pid);
	if (fs_read_file(path, MAX_ENVIRONMENT, &env, &err) == 0 && env.len) {
		*out_world = size_of(RANK_ENV_WORLD_SIZE, &env);
		*out_local = size_of(RANK_ENV_LOCAL_WORLD_SIZE, &env);
	}
	buf_release(&env);
	process_rank_find((pid_t)pid, &now);
	if (now.world_size > 0)
		*out_world = (uint32_t)now.world_size;
}

char *trace_parent_of(uint32_t pid)
{
	struct proc_stat s;

	if (proc_stat_read((pid_t)pid, &s) < 0 || !s.parent)
		return xstrdup("");
	char *host = trace_host_name();
	char *who = xasprintf("process %u of %s", s.parent, host);
	free(host);
	return who;
}
