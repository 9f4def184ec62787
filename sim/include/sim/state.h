/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What every process of the simulated machine can see: memory in use and busy time per device.
 *
 * The state is one file below $SIM_NPU_STATE (default /tmp/sim-npu-<uid>), mapped shared by every
 * process that allocates and by those that only look (npu-smi, libdcmi). Writers use plain atomic
 * stores, never a system call, so a process killed at any instant leaves its numbers behind;
 * readers ask /proc which owners are still alive and ignore the others.
 *
 * A cell has one writer at a time: the heap shard whose lock is held.
 */
#ifndef SONDE_SIM_STATE_H
#define SONDE_SIM_STATE_H

#include <stdatomic.h>
#include <stdint.h>

#define SIM_MAX_DEVICES 16
#define SIM_HOST_HEAP SIM_MAX_DEVICES /* index of the pinned host memory heap */
#define SIM_MAX_PROCS 128
#define SIM_SHARDS 8

struct sim_cell {
	_Atomic uint64_t bytes;
	uint8_t pad[56];
};

struct sim_proc {
	_Atomic int32_t pid; /* 0: free slot */
	uint32_t pad0;
	uint64_t start_ticks; /* tells a reused pid from its predecessor */
	char name[32];
	uint8_t pad1[16];
	struct sim_cell cell[SIM_MAX_DEVICES + 1][SIM_SHARDS];
};

struct sim_device {
	_Atomic uint64_t used_bytes; /* for the capacity check; may count the dead until reaped */
	_Atomic uint64_t window_start_ns;
	_Atomic uint64_t window_busy_ns;
	_Atomic uint32_t util_percent; /* of the last full window */
	uint8_t pad[36];
};

struct sim_state {
	_Atomic uint32_t magic;
	uint32_t version;
	uint8_t pad[56];
	struct sim_device device[SIM_MAX_DEVICES + 1];
	struct sim_proc proc[SIM_MAX_PROCS];
};

struct sim_proc_usage {
	int pid;
	uint64_t bytes;
	char name[32];
};

_Static_assert(sizeof(struct sim_cell) == 64, "one cache line");
_Static_assert(sizeof(struct sim_device) == 64, "one cache line");
_Static_assert(sizeof(struct sim_proc) % 64 == 0, "cells stay aligned");

/* From SIM_NPU_COUNT (default 8) and SIM_NPU_HBM_MB (default 65536). */
int sim_device_count(void);
uint64_t sim_hbm_bytes(void);
/* From SIM_NPU_SOC (default Ascend910B3). */
const char *sim_soc_name(void);
uint64_t sim_now_ns(void);
/* The directory that processes of one machine share; made if it is missing. */
const char *sim_state_dir(void);
/* The start time of a live process, 0 when there is none; a zombie is none. */
uint64_t sim_process_start(int pid);

/* Never NULL: without a writable directory the state is private to the process. */
struct sim_state *sim_state_get(void);
/* The calling process's own slot, claimed at the first call; never NULL. */
struct sim_proc *sim_state_self(void);
/* Gives back what dead processes still hold. */
void sim_state_reap(void);

uint64_t sim_state_used(int device);
/* Fills at most @cap rows, ordered by slot; returns how many. */
int sim_state_procs(int device, struct sim_proc_usage *out_rows, int cap);
void sim_state_busy(int device, uint64_t busy_ns);
unsigned sim_state_util(int device);

#endif
