/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sim/kernel.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "stream.h"

#define MAX_KERNELS 256
#define DEFAULT_NS 50000

static struct sim_kernel kernels[MAX_KERNELS];
static int kernel_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct sim_kernel unknown = {.name = "unknown_kernel", .duration_ns = DEFAULT_NS};

static void *add(const char *name, const struct sim_kernel *what)
{
	struct sim_kernel *k = NULL;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < kernel_count && !k; i++)
		if (!strcmp(kernels[i].name, name))
			k = &kernels[i];
	if (!k && kernel_count < MAX_KERNELS) {
		k = &kernels[kernel_count++];
		*k = *what;
		snprintf(k->name, sizeof(k->name), "%s", name);
	}
	pthread_mutex_unlock(&lock);
	return k;
}

void *sim_kernel_register(const char *name, uint64_t duration_ns, sim_kernel_fn fn)
{
	return add(name, &(struct sim_kernel){.duration_ns = duration_ns, .fn = fn});
}

void *sim_kernel_register_timed(const char *name, sim_timed_fn fn)
{
	return add(name, &(struct sim_kernel){.timed = fn});
}

void sim_kernel_slow(const char *name, double factor)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < kernel_count; i++)
		if (!strcmp(kernels[i].name, name))
			atomic_store(&kernels[i].permille, (uint32_t)(factor * 1000));
	pthread_mutex_unlock(&lock);
}

uint64_t kernel_duration(const struct sim_kernel *k)
{
	uint32_t permille = atomic_load_explicit(&k->permille, memory_order_relaxed);
	return permille ? k->duration_ns * permille / 1000 : k->duration_ns;
}

/* A handle that nobody registered still launches: tools must cope with kernels they cannot name. */
const struct sim_kernel *kernel_from_handle(const void *handle)
{
	uintptr_t at = (uintptr_t)handle;
	if (at < (uintptr_t)kernels || at >= (uintptr_t)(kernels + MAX_KERNELS))
		return &unknown;
	return &kernels[(at - (uintptr_t)kernels) / sizeof(kernels[0])];
}

const struct sim_kernel *kernel_from_name(const char *name)
{
	const struct sim_kernel *k = name ? sim_kernel_register(name, DEFAULT_NS, NULL) : NULL;
	return k ? k : &unknown;
}
