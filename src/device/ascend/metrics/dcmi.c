/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/ascend/metrics/dcmi.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define LIBRARY "libdcmi.so"
/* Where the driver's installer puts it; services have no LD_LIBRARY_PATH that says so. */
#define INSTALLED "/usr/local/dcmi/" LIBRARY
#define MAX_CARDS 32
#define MAX_CHIPS 128 /* of all cards */
#define MB_SHIFT 20

/* Layouts and calls of the library. Its answer 0 is success. */

struct hbm_info {
	unsigned long long size_mb;
	unsigned int freq;
	unsigned long long usage_mb;
	int temp;
	unsigned int bandwidth;
};

struct process_info {
	int pid;
	unsigned long bytes;
};

struct chip_info {
	unsigned char type[32];
	unsigned char name[32];
	unsigned char version[32];
	unsigned int aicores;
};

/* What dcmi_get_device_utilization_rate() is asked for. */
enum rate { RATE_AICORE = 2, RATE_HBM_BANDWIDTH = 10, RATE_VECTOR = 12, RATE_NPU = 13 };

_Static_assert(sizeof(struct chip_info) == 100, "layout of libdcmi.so");
_Static_assert(offsetof(struct hbm_info, usage_mb) == 16, "layout of libdcmi.so");
_Static_assert(sizeof(struct hbm_info) == 32, "layout of libdcmi.so");
_Static_assert(offsetof(struct process_info, bytes) == 8, "layout of libdcmi.so");

/* Handles are of one thread each, but what is behind them is one library. */
static pthread_mutex_t entered = PTHREAD_MUTEX_INITIALIZER;

struct chip {
	int card;
	int index; /* on its card */
	uint32_t device;
};

struct ascend_dcmi {
	void *library;
	int (*init)(void);
	int (*card_list)(int *num, int *list, int cap);
	int (*chips_of_card)(int card, int *num);
	int (*device_of_chip)(int *device, int card, int chip);
	int (*hbm)(int card, int chip, struct hbm_info *out);
	/* NULL where the library is too old to have them: */
	int (*processes)(int card, int chip, struct process_info *out, int *num);
	int (*rate)(int card, int chip, int what, unsigned int *percent);
	int (*health)(int card, int chip, unsigned int *out);
	int (*power)(int card, int chip, int *tenth_watts);
	int (*temperature)(int card, int chip, int *celsius);
	int (*info)(int card, int chip, struct chip_info *out);
	struct chip chips[MAX_CHIPS];
	unsigned nchips;
};

static int find_calls(struct ascend_dcmi *d, struct err *err)
{
	const struct {
		const char *name;
		void **to;
		bool needed;
	} calls[] = {
		{"dcmi_init", (void **)&d->init, true},
		{"dcmi_get_card_list", (void **)&d->card_list, true},
		{"dcmi_get_device_num_in_card", (void **)&d->chips_of_card, true},
		{"dcmi_get_device_logic_id", (void **)&d->device_of_chip, true},
		{"dcmi_get_device_hbm_info", (void **)&d->hbm, true},
		{"dcmi_get_npu_proc_mem_info", (void **)&d->processes, false},
		{"dcmi_get_device_utilization_rate", (void **)&d->rate, false},
		{"dcmi_get_device_health", (void **)&d->health, false},
		{"dcmi_get_device_power_info", (void **)&d->power, false},
		{"dcmi_get_device_temperature", (void **)&d->temperature, false},
		{"dcmi_get_device_chip_info", (void **)&d->info, false},
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		*calls[i].to = dlsym(d->library, calls[i].name);
		if (!*calls[i].to && calls[i].needed)
			return err_set(err, -ENOENT, "%s has no %s", LIBRARY, calls[i].name);
	}
	return 0;
}

static void list_chips(struct ascend_dcmi *d)
{
	int cards[MAX_CARDS] = {0}, ncards = 0;

	if (d->card_list(&ncards, cards, MAX_CARDS) != 0)
		return;
	for (int i = 0; i < ncards && i < MAX_CARDS; i++) {
		int nchips = 0, device = -1;
		if (d->chips_of_card(cards[i], &nchips) != 0)
			continue;
		for (int k = 0; k < nchips && d->nchips < MAX_CHIPS; k++)
			if (d->device_of_chip(&device, cards[i], k) == 0 && device >= 0)
				d->chips[d->nchips++] =
					(struct chip){cards[i], k, (uint32_t)device};
	}
}

int ascend_dcmi_open(struct ascend_dcmi **out, struct err *err)
{
	struct ascend_dcmi *d = xcalloc(1, sizeof(*d));
	int answer, r = 0;

	d->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!d->library)
		d->library = dlopen(INSTALLED, RTLD_NOW | RTLD_LOCAL);
	if (!d->library) {
		const char *why = dlerror();
		r = err_set(err, -ENOENT, "cannot load %s: %s", LIBRARY, why ? why : "?");
	}
	if (r == 0)
		r = find_calls(d, err);
	pthread_mutex_lock(&entered);
	if (r == 0 && (answer = d->init()) != 0)
		r = err_set(err, -EIO, "%s does not start: error %d", LIBRARY, answer);
	if (r == 0)
		list_chips(d);
	pthread_mutex_unlock(&entered);
	if (r == 0 && !d->nchips)
		r = err_set(err, -ENOENT, "%s knows of no device", LIBRARY);
	if (r < 0) {
		ascend_dcmi_close(d);
		return r;
	}
	*out = d;
	return 0;
}

void ascend_dcmi_close(struct ascend_dcmi *d)
{
	if (!d)
		return;
	if (d->library)
		dlclose(d->library);
	free(d);
}

static void read_processes(const struct ascend_dcmi *d, const struct chip *c,
			   struct ascend_memory *out)
{
	struct process_info list[ASCEND_DCMI_PROCESSES];
	int n = 0;

	memset(list, 0, sizeof(list));
	if (!d->processes || d->processes(c->card, c->index, list, &n) != 0 || n < 0)
		return;
	out->has_processes = true;
	for (int i = 0; i < n && i < ASCEND_DCMI_PROCESSES; i++) {
		if (list[i].pid <= 0)
			continue;
		out->processes[out->nprocesses].pid = (uint32_t)list[i].pid;
		out->processes[out->nprocesses++].bytes = list[i].bytes;
	}
}

static int read_memory(const struct ascend_dcmi *d, const struct chip *chip,
		       struct ascend_memory *out, struct err *err)
{
	uint32_t device = chip->device;
	struct hbm_info info = {0};

	int answer = d->hbm(chip->card, chip->index, &info);
	if (answer != 0)
		return err_set(err, -EIO, "%s does not report memory for device %u: error %d",
			       LIBRARY, device, answer);
	if (!info.size_mb || info.size_mb > UINT64_MAX >> MB_SHIFT || info.usage_mb > info.size_mb)
		return err_set(err, -ERANGE, "%s reports %llu MB of %llu MB of device %u in use",
			       LIBRARY, info.usage_mb, info.size_mb, device);
	*out = (struct ascend_memory){.total_bytes = info.size_mb << MB_SHIFT,
				      .used_bytes = info.usage_mb << MB_SHIFT};
	read_processes(d, chip, out);
	return 0;
}

int ascend_dcmi_memory(const struct ascend_dcmi *d, uint32_t device, struct ascend_memory *out,
		       struct err *err)
{
	for (unsigned i = 0; i < d->nchips; i++) {
		if (d->chips[i].device != device)
			continue;
		pthread_mutex_lock(&entered);
		int r = read_memory(d, &d->chips[i], out, err);
		pthread_mutex_unlock(&entered);
		return r;
	}
	return err_set(err, -ENODEV, "%s does not know device %u", LIBRARY, device);
}

unsigned ascend_dcmi_count(const struct ascend_dcmi *d)
{
	return d->nchips;
}

int ascend_dcmi_processes(const struct ascend_dcmi *d, unsigned n, struct ascend_chip *out)
{
	const struct chip *c = &d->chips[n];

	*out = (struct ascend_chip){
		.device = c->device, .card = (uint32_t)c->card, .index = (uint32_t)c->index};
	pthread_mutex_lock(&entered);
	read_processes(d, c, &out->memory);
	pthread_mutex_unlock(&entered);
	return out->memory.has_processes ? 0 : -ENOTSUP;
}

static void read_rate(const struct ascend_dcmi *d, const struct chip *c, enum rate what,
		      unsigned bit, unsigned *to, struct ascend_chip *out)
{
	unsigned percent = 0;

	if (!d->rate || d->rate(c->card, c->index, what, &percent) != 0 || percent > 100)
		return;
	*to = percent;
	out->has |= bit;
}

/* The library counts from healthy to worse; 0xffffffff is a chip that does not answer. */
static void read_condition(const struct ascend_dcmi *d, const struct chip *c,
			   struct ascend_chip *out)
{
	unsigned health;
	int v;

	if (d->health && d->health(c->card, c->index, &health) == 0) {
		out->health = health <= ASCEND_CRITICAL ? health : ASCEND_UNKNOWN;
		out->has |= ASCEND_HAS_HEALTH;
	}
	if (d->power && d->power(c->card, c->index, &v) == 0 && v >= 0) {
		out->power_w = v / 10.0;
		out->has |= ASCEND_HAS_POWER;
	}
	if (d->temperature && d->temperature(c->card, c->index, &v) == 0) {
		out->temperature_c = v;
		out->has |= ASCEND_HAS_TEMPERATURE;
	}
}

void ascend_dcmi_chip(const struct ascend_dcmi *d, unsigned n, struct ascend_chip *out)
{
	const struct chip *c = &d->chips[n];
	struct chip_info info = {0};

	*out = (struct ascend_chip){
		.device = c->device, .card = (uint32_t)c->card, .index = (uint32_t)c->index};
	pthread_mutex_lock(&entered);
	if (read_memory(d, c, &out->memory, NULL) == 0)
		out->has |= ASCEND_HAS_MEMORY;
	read_rate(d, c, RATE_AICORE, ASCEND_HAS_AICORE, &out->aicore, out);
	read_rate(d, c, RATE_VECTOR, ASCEND_HAS_VECTOR, &out->vector, out);
	read_rate(d, c, RATE_NPU, ASCEND_HAS_NPU, &out->npu, out);
	read_rate(d, c, RATE_HBM_BANDWIDTH, ASCEND_HAS_HBM_BANDWIDTH, &out->hbm_bandwidth, out);
	read_condition(d, c, out);
	if (d->info && d->info(c->card, c->index, &info) == 0)
		memcpy(out->name, info.name, sizeof(out->name) - 1);
	pthread_mutex_unlock(&entered);
}
