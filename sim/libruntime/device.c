/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Devices as a process sees them: logical ids, each thread with a current one. */
#include <pthread.h>
#include <stdlib.h>

#include "runtime/rt.h"
#include "sim/state.h"

static int visible[SIM_MAX_DEVICES];
static int visible_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread int current = -1;

/* A list with a bad entry hides everything behind it, as the vendor's runtime does. */
static void read_visible(void)
{
	const char *list = getenv("ASCEND_RT_VISIBLE_DEVICES");
	int count = sim_device_count();
	if (!list || !*list) {
		for (int i = 0; i < count; i++)
			visible[visible_count++] = i;
		return;
	}
	while (*list && visible_count < SIM_MAX_DEVICES) {
		char *end;
		long id = strtol(list, &end, 10);
		if (end == list || id < 0 || id >= count)
			return;
		visible[visible_count++] = (int)id;
		while (*end == ' ')
			end++;
		if (*end != ',')
			return;
		list = end + 1;
	}
}

int rtGetDeviceCount(int32_t *out_count)
{
	pthread_once(&once, read_visible);
	if (!out_count)
		return RT_ERROR_PARAM_INVALID;
	*out_count = visible_count;
	return RT_ERROR_NONE;
}

int rtSetDevice(int32_t device)
{
	pthread_once(&once, read_visible);
	if (device < 0 || device >= visible_count)
		return RT_ERROR_INVALID_DEVICE;
	current = device;
	return RT_ERROR_NONE;
}

int rtGetDevice(int32_t *out_device)
{
	if (!out_device)
		return RT_ERROR_PARAM_INVALID;
	if (current < 0)
		return RT_ERROR_CONTEXT_NULL;
	*out_device = current;
	return RT_ERROR_NONE;
}

int rtGetPhyId(int32_t device, uint32_t *out_phy)
{
	pthread_once(&once, read_visible);
	if (device < 0 || device >= visible_count || !out_phy)
		return RT_ERROR_INVALID_DEVICE;
	*out_phy = (uint32_t)visible[device];
	return RT_ERROR_NONE;
}
