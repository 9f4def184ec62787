/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "wire/rank_env.h"

#include <string.h>

static const char *const ranks[] = {"RANK",	    "RANK_ID",	 "OMPI_COMM_WORLD_RANK",
				    "PMI_RANK",	    "PMIX_RANK", "MV2_COMM_WORLD_RANK",
				    "SLURM_PROCID", NULL};
static const char *const local_ranks[] = {"LOCAL_RANK",	     "OMPI_COMM_WORLD_LOCAL_RANK",
					  "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
					  "SLURM_LOCALID",   "ASCEND_DEVICE_ID",
					  "DEVICE_ID",	     NULL};
static const char *const world_sizes[] = {
	"WORLD_SIZE",	"RANK_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
	"SLURM_NTASKS", NULL};
static const char *const local_world_sizes[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
						"MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE", NULL};

const char *const *rank_env_names(enum rank_env what)
{
	switch (what) {
	case RANK_ENV_LOCAL_RANK:
		return local_ranks;
	case RANK_ENV_WORLD_SIZE:
		return world_sizes;
	case RANK_ENV_LOCAL_WORLD_SIZE:
		return local_world_sizes;
	default:
		return ranks;
	}
}

int32_t rank_env_number(const char *value, size_t len)
{
	int64_t v = 0;

	if (!len || len > 10)
		return RANK_ENV_UNKNOWN;
	for (size_t i = 0; i < len; i++) {
		if (value[i] < '0' || value[i] > '9')
			return RANK_ENV_UNKNOWN;
		v = v * 10 + (value[i] - '0');
	}
	return v <= INT32_MAX ? (int32_t)v : RANK_ENV_UNKNOWN;
}

static int32_t find_variable(const char *name, const char *bytes, size_t len)
{
	size_t name_len = strlen(name), word;

	for (const char *at = bytes, *end = bytes + len; at < end; at += word + 1) {
		word = strnlen(at, (size_t)(end - at));
		if (word <= name_len || at[name_len] != '=' || memcmp(at, name, name_len))
			continue;
		int32_t v = rank_env_number(at + name_len + 1, word - name_len - 1);
		if (v != RANK_ENV_UNKNOWN)
			return v;
	}
	return RANK_ENV_UNKNOWN;
}

int32_t rank_env_find(enum rank_env what, const char *environ_bytes, size_t len)
{
	int32_t v = RANK_ENV_UNKNOWN;

	for (const char *const *name = rank_env_names(what); *name && v == RANK_ENV_UNKNOWN; name++)
		v = find_variable(*name, environ_bytes, len);
	return v;
}
