/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which job a process is of, for a trace that several jobs of a node were asked for: launchers give
 * all their ranks the address at which they meet, schedulers a number; else it is known who has
 * started it. And how many ranks the job has, so that one that leaves nothing is missed.
 */
#include "activity/trace/trace_impl.h"
#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/mem.h"

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

static uint32_t number_of(const struct buf *env, const char *const *names)
{
	for (; *names; names++) {
		const char *text = value_of(env, *names);
		char *end;
		unsigned long v = strtoul(text, &end, 10);

		if (*text >= '0' && *text <= '9' && !*end && v <= INT32_MAX)
			return (uint32_t)v;
	}
	return 0;
}

void trace_world_of(uint32_t pid, uint32_t *out_world, uint32_t *out_local)
{
	static const char *const world[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
					    "PMI_SIZE",	  "SLURM_NTASKS",
					    "RANK_SIZE",  NULL};
	static const char *const local[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
					    "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE", NULL};
	char path[64];
	struct buf env = {0};
	struct err err = {0};

	*out_world = *out_local = 0;
	snprintf(path, sizeof(path), "/proc/%u/environ", pid);
	if (fs_read_file(path, MAX_ENVIRONMENT, &env, &err) == 0 && env.len) {
		buf_add_char(&env, '\0');
		*out_world = number_of(&env, world);
		*out_local = number_of(&env, local);
	}
	buf_release(&env);
}

char *trace_parent_of(uint32_t pid)
{
	char path[64];
	struct buf text = {0};
	struct err err = {0};
	unsigned parent = 0;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	if (fs_read_file(path, MAX_ENVIRONMENT, &text, &err) == 0) {
		/* The name, in parentheses, may hold anything. */
		const char *p = strrchr(buf_str(&text), ')');

		if (!p || sscanf(p, ") %*c %u", &parent) != 1)
			parent = 0;
	}
	buf_release(&text);
	if (!parent)
		return xstrdup("");
	char *host = trace_host_name();
	char *who = xasprintf("process %u of %s", parent, host);
	free(host);
	return who;
}
