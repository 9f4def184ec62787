/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What processes hold on the simulated GPUs: a file that SIM_GPU_STATE names, mapped by the driver in
 * each job and by the management library. Without it each process has GPUs of its own.
 */
#ifndef SONDE_SIM_GPU_STATE_H
#define SONDE_SIM_GPU_STATE_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIM_GPUS 16
#define SIM_GPU_USERS 64

struct sim_gpu_user {
	_Atomic uint32_t pid; /* 0: free */
	uint32_t reserved;
	_Atomic uint64_t bytes; /* of a process that was killed: until its place is taken */
};

struct sim_gpu_state {
	struct sim_gpu_user users[SIM_GPUS][SIM_GPU_USERS];
};

/* NULL: there is no such file, or it cannot be mapped. */
static inline struct sim_gpu_state *sim_gpu_state_map(int create)
{
	const char *path = getenv("SIM_GPU_STATE");
	int fd = path && *path ? open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600) : -1;
	void *at = MAP_FAILED;

	if (fd < 0)
		return NULL;
	if (lseek(fd, 0, SEEK_END) >= (off_t)sizeof(struct sim_gpu_state) ||
	    (create && ftruncate(fd, sizeof(struct sim_gpu_state)) == 0))
		at = mmap(NULL, sizeof(struct sim_gpu_state), PROT_READ | PROT_WRITE, MAP_SHARED,
			  fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}

#endif
