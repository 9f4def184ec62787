/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/ascend/dcmi.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define LIBRARY "libdcmi.so"
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

_Static_assert(offsetof(struct hbm_info, usage_mb) == 16, "layout of libdcmi.so");
_Static_assert(sizeof(struct hbm_info) == 32, "layout of libdcmi.so");
_Static_assert(offsetof(struct process_info, bytes) == 8, "layout of libdcmi.so");

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
	int (*processes)(int card, int chip, struct process_info *out, int *num);
	struct chip chips[MAX_CHIPS];
	unsigned nchips;
};

static int find_calls(struct ascend_dcmi *d, struct err *err)
{
	const struct {
		const char *name;
		void **to;
	} calls[] = {
		{"dcmi_init", (void **)&d->init},
		{"dcmi_get_card_list", (void **)&d->card_list},
		{"dcmi_get_device_num_in_card", (void **)&d->chips_of_card},
		{"dcmi_get_device_logic_id", (void **)&d->device_of_chip},
		{"dcmi_get_device_hbm_info", (void **)&d->hbm},
		{"dcmi_get_npu_proc_mem_info", (void **)&d->processes},
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		*calls[i].to = dlsym(d->library, calls[i].name);
		/* Who uses a device can be done without. */
		if (!*calls[i].to && calls[i].to != (void **)&d->processes)
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
	if (!d->library) {
		const char *why = dlerror();
		r = err_set(err, -ENOENT, "cannot load %s: %s", LIBRARY, why ? why : "?");
	}
	if (r == 0)
		r = find_calls(d, err);
	if (r == 0 && (answer = d->init()) != 0)
		r = err_set(err, -EIO, "%s does not start: error %d", LIBRARY, answer);
	if (r == 0)
		list_chips(d);
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

int ascend_dcmi_memory(const struct ascend_dcmi *d, uint32_t device, struct ascend_memory *out,
		       struct err *err)
{
	const struct chip *chip = NULL;
	struct hbm_info info = {0};

	for (unsigned i = 0; i < d->nchips && !chip; i++)
		if (d->chips[i].device == device)
			chip = &d->chips[i];
	if (!chip)
		return err_set(err, -ENODEV, "%s does not know device %u", LIBRARY, device);
	int answer = d->hbm(chip->card, chip->index, &info);
	if (answer != 0)
		return err_set(err, -EIO, "%s does not tell the memory of device %u: error %d",
			       LIBRARY, device, answer);
	if (!info.size_mb || info.size_mb > UINT64_MAX >> MB_SHIFT || info.usage_mb > info.size_mb)
		return err_set(err, -ERANGE,
			       "%s says that %llu MB of %llu MB of device %u are used", LIBRARY,
			       info.usage_mb, info.size_mb, device);
	*out = (struct ascend_memory){.total_bytes = info.size_mb << MB_SHIFT,
				      .used_bytes = info.usage_mb << MB_SHIFT};
	read_processes(d, chip, out);
	return 0;
}
