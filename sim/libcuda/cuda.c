/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The driver: how it starts, brings a tool into the job, and what devices there are. */
#include "driver.h"

#include "sim/gpu_state.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
bool sim_ready;
static int visible[SIM_GPUS], nvisible;
static uint64_t own[SIM_GPUS]; /* bytes of this process */
static struct sim_gpu_state *state;

long sim_env(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtol(text, NULL, 0) : otherwise;
}

bool sim_is_odd(void)
{
	return sim_env("SIM_CUDA_ODD", 0) != 0;
}

/* Numbers or UUIDs; the first one that is none ends the list. */
static void read_visible(int have)
{
	const char *s = getenv("CUDA_VISIBLE_DEVICES");

	nvisible = 0;
	for (int i = 0; !s && i < have; i++)
		visible[nvisible++] = i;
	while (s && *s && nvisible < SIM_GPUS) {
		const char *last = strncmp(s, "GPU-", 4) == 0 ? strrchr(s, '-') + 1 : s;
		char *end;
		long v = strtol(last, &end, 10);

		if (end == last || v < 0 || v >= have)
			break;
		visible[nvisible++] = (int)v;
		s = *end ? end + 1 : end;
	}
}

/* What ended without a word has given back everything. */
static void forget_dead(int gpu)
{
	for (int i = 0; i < SIM_GPU_USERS; i++) {
		uint32_t pid = state->users[gpu][i].pid;
		if (pid && kill((pid_t)pid, 0) < 0) {
			state->users[gpu][i].bytes = 0;
			state->users[gpu][i].pid = 0;
		}
	}
}

static int inject(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");

	if (!path || !*path)
		return 0;
	void *lib = dlopen(path, RTLD_LAZY);
	int (*init)(void) = lib ? (int (*)(void))dlsym(lib, "InitializeInjection") : NULL;
	return init && !init() ? 999 : 0;
}

CUresult cuInit(unsigned int flags)
{
	long error = sim_env("SIM_CUDA_INIT_ERROR", 0), have = sim_env("SIM_GPU_COUNT", 1);

	(void)flags;
	if (error)
		return (CUresult)error;
	pthread_mutex_lock(&sim_lock);
	bool first = !sim_ready;
	if (first) {
		read_visible((int)(have < SIM_GPUS ? have : SIM_GPUS));
		state = sim_gpu_state_map(1);
		for (int i = 0; state && i < SIM_GPUS; i++)
			forget_dead(i);
		sim_ready = true;
	}
	pthread_mutex_unlock(&sim_lock);
	if (!nvisible)
		return CUDA_ERROR_NO_DEVICE;
	return first ? inject() : 0;
}

CUresult cuDriverGetVersion(int *out)
{
	*out = (int)sim_env("SIM_CUDA_VERSION", 13000);
	return CUDA_SUCCESS;
}

int sim_cuda_device_count(void)
{
	return nvisible;
}

int sim_physical(CUdevice device)
{
	return visible[device];
}

static CUresult check(CUdevice device)
{
	if (!sim_ready)
		return CUDA_ERROR_NOT_INITIALIZED;
	return device >= 0 && device < nvisible ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *out)
{
	*out = sim_is_odd() ? INT32_MAX : nvisible;
	return sim_ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice *out, int index)
{
	*out = index;
	return check(index);
}

CUresult cuDeviceGetName(char *out, int room, CUdevice device)
{
	if (sim_is_odd()) {
		memset(out, 0xff, (size_t)room); /* not even an end */
		memcpy(out, "\033]0;a\n,\"", 9);
		return CUDA_SUCCESS;
	}
	if (check(device) == CUDA_SUCCESS)
		snprintf(out, (size_t)room, "NVIDIA SIM 80GB HBM3%s",
			 sim_env("SIM_CUDA_MIG", 0) ? " MIG 1g.10gb" : "");
	return check(device);
}

uint64_t sim_total_bytes(void)
{
	long mib = sim_env("SIM_GPU_MEMORY_MIB", sim_env("SIM_CUDA_MIG", 0) ? 10240 : 81920);

	return (uint64_t)mib * MIB;
}

CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice device)
{
	*out = sim_is_odd() ? SIZE_MAX : sim_total_bytes();
	return sim_is_odd() ? CUDA_SUCCESS : check(device);
}

CUresult cuDeviceGetUuid_v2(unsigned char out[16], CUdevice device)
{
	if (check(device) != CUDA_SUCCESS && !sim_is_odd())
		return check(device);
	memset(out, sim_is_odd() ? 0xff : 0, 16);
	if (sim_is_odd())
		return CUDA_SUCCESS;
	out[15] = (unsigned char)visible[device];
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice device)
{
	if (sim_is_odd())
		*out = -1;
	else
		*out = attribute == 133 ? (int)sim_env("SIM_CUDA_MPS", 0) : 0;
	return check(device);
}

/* --- bytes --- */

static struct sim_gpu_user *find_user(int gpu)
{
	uint32_t pid = (uint32_t)getpid();

	for (int i = 0; i < SIM_GPU_USERS; i++)
		if (state->users[gpu][i].pid == pid)
			return &state->users[gpu][i];
	for (int i = 0; i < SIM_GPU_USERS; i++) {
		uint32_t none = 0;
		if (atomic_compare_exchange_strong(&state->users[gpu][i].pid, &none, pid))
			return &state->users[gpu][i];
	}
	return NULL;
}

static uint64_t all_bytes(int gpu)
{
	uint64_t sum = 0;

	for (int i = 0; state && i < SIM_GPU_USERS; i++)
		sum += state->users[gpu][i].bytes;
	return state ? sum : own[gpu];
}

static void publish(int gpu)
{
	struct sim_gpu_user *u = state ? find_user(gpu) : NULL;

	if (u)
		u->bytes = own[gpu];
}

uint64_t sim_free_bytes(CUdevice device)
{
	uint64_t total = sim_total_bytes(), used = all_bytes(visible[device]);

	return used < total ? total - used : 0;
}

bool sim_take(CUdevice device, uint64_t bytes)
{
	uint64_t refuse = (uint64_t)sim_env("SIM_CUDA_REFUSE_BYTES", 0);

	if (device == SIM_HOST)
		return true;
	if ((refuse && bytes >= refuse) || bytes > sim_free_bytes(device))
		return false;
	own[visible[device]] += bytes;
	publish(visible[device]);
	return true;
}

void sim_give(CUdevice device, uint64_t bytes)
{
	if (device == SIM_HOST)
		return;
	own[visible[device]] -= bytes;
	publish(visible[device]);
}
