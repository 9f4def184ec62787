/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which rank a process is, as its launcher says in the environment: one list for both worlds, so
 * that every command names the same rank. Pure code, no heap.
 *
 * Where several variables are set, launchers are nested, and the innermost one is right: torchrun
 * (RANK) and msrun (RANK_ID) run below mpirun or srun, whose numbers then count launchers.
 */
#ifndef SONDE_WIRE_RANK_ENV_H
#define SONDE_WIRE_RANK_ENV_H

#include <stddef.h>
#include <stdint.h>

enum rank_env {
	RANK_ENV_RANK, /* within the job */
	RANK_ENV_LOCAL_RANK, /* within the host */
	RANK_ENV_WORLD_SIZE, /* ranks of the job */
	RANK_ENV_LOCAL_WORLD_SIZE, /* ranks of the host */
};

#define RANK_ENV_UNKNOWN (-1)

/* The variables that say so, the one that counts first; ended by NULL. */
const char *const *rank_env_names(enum rank_env what);

/* The number that a value spells: decimal digits alone, at most INT32_MAX; else unknown. */
int32_t rank_env_number(const char *value, size_t len);

/* From the bytes of /proc/PID/environ: NAME=value, each ended by NUL. */
int32_t rank_env_find(enum rank_env what, const char *environ_bytes, size_t len);

#endif
