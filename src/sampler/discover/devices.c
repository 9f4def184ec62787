/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Processes that use a device. The driver counts processes as the host does; in a container their
 * numbers mean nothing, unless those inside are reported, too. Then the processes that have the
 * device's file open are meant, however much memory that may be.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/metrics_processes.h"
#include "sampler/discover/finder.h"

#define HOST_NAMESPACE "pid:[4026531836]" /* the kernel's own number for the first one */
#define MAX_FILES 4096 /* of a process; a device is opened early */

/* The number behind the prefix, -1 if it is another file. */
static int number_of(const char *path, const char *prefix)
{
	size_t n = strlen(prefix);
	char *end;

	if (strncmp(path, prefix, n) != 0 || !isdigit((unsigned char)path[n]))
		return -1;
	long v = strtol(path + n, &end, 10);
	return *end || v > INT16_MAX ? -1 : (int)v;
}

static int open_device(pid_t pid, const char *prefix)
{
	char path[64], link[256];
	int device = -1, left = MAX_FILES;
	struct dirent *e;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *d = opendir(path);
	while (d && device < 0 && left-- && (e = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof(link) - 1);

		if (n <= 0)
			continue;
		link[n] = '\0';
		device = number_of(link, prefix);
	}
	if (d)
		closedir(d);
	return device;
}

void find_by_open_file(struct finder *f, const char *prefix)
{
	const struct pid_list *all = finder_all(f);

	for (size_t i = 0; i < all->n; i++) {
		int device = open_device(all->v[i], prefix);

		if (device >= 0)
			finder_add(f, &(struct discovered){all->v[i], device, UINT64_MAX, false});
	}
}

static bool in_container(void)
{
	char link[64] = "";

	return readlink("/proc/self/ns/pid", link, sizeof(link) - 1) > 0 &&
	       strcmp(link, HOST_NAMESPACE) != 0;
}

struct kind {
	int (*ask)(unsigned timeout_ms, struct device_processes *out, struct err *err);
	const char *files; /* the number of the device follows */
	unsigned min_mb;
	pid_t *hanging; /* a program that was killed and does not end */
};

/* How many of them are of another pid namespace. */
static unsigned add_reported(struct finder *f, const struct device_processes *d, bool inside,
			     unsigned min_mb)
{
	unsigned unseen = 0;

	for (size_t i = 0; i < d->n; i++) {
		const struct device_process *p = &d->list[i];
		uint64_t mb = p->bytes == UINT64_MAX ? UINT64_MAX : p->bytes >> 20;
		pid_t pid = inside && p->inner_pid ? p->inner_pid : p->pid;

		if (mb < min_mb)
			continue;
		if (process_start_ticks(pid))
			finder_add(f, &(struct discovered){pid, p->device, mb, false});
		else
			unseen++;
	}
	return unseen;
}

static int find_on(struct finder *f, const struct kind *k, struct err *err)
{
	struct device_processes d = {.hanging = *k->hanging};
	bool inside = in_container();
	int r = k->ask(f->rules->timeout_ms, &d, err);

	*k->hanging = d.hanging;
	unsigned unseen = r == 0 ? add_reported(f, &d, inside, k->min_mb) : 0;
	if (r == 0 && unseen)
		finder_describe(f, "%s (%u of %zu processes are not of this pid namespace)", d.how,
				unseen, d.n);
	else if (r == 0)
		finder_describe(f, "%s", d.how);
	if (r == 0 && inside && (unseen || !d.n)) {
		find_by_open_file(f, k->files);
		finder_describe(f, "who has %s* open", k->files);
	}
	device_processes_release(&d);
	return r;
}

int find_on_devices(struct finder *f, struct err *err)
{
	static pid_t npu_hanging, gpu_hanging; /* one search runs at a time */
	const struct discover_rules *rules = f->rules;
	const struct kind npu = {ascend_processes, "/dev/davinci", rules->min_npu_mb, &npu_hanging};
	const struct kind gpu = {cuda_processes, "/dev/nvidia", rules->min_gpu_mb, &gpu_hanging};
	bool automatic = rules->devices == DISCOVER_AUTO;
	int r = 0;

	if (rules->devices == DISCOVER_NPU || automatic)
		r = find_on(f, &npu, err);
	if (rules->devices == DISCOVER_GPU || (automatic && r == -ENOENT))
		r = find_on(f, &gpu, err);
	if (automatic && r == -ENOENT) {
		finder_describe(f, "no NPU and no GPU");
		return 0;
	}
	return r;
}
