/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What each disk read and wrote since the round before, and how much of the time it was busy, from
 * /proc/diskstats. Whole disks only: partitions would count everything twice.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/host/metrics/file.h"
#include "device/host/metrics/host.h"

#define NAME_BYTES 32
#define MAX_DISKS 1024
#define SECTOR_BYTES 512 /* of this file, whatever the disk's are */

struct disk {
	char name[NAME_BYTES];
	bool whole;
	uint64_t read_sectors, written_sectors, busy_ms;
};

struct disks {
	struct disk *list;
	size_t n, cap;
};

struct host_disk {
	char *root;
	struct kernel_file stats;
	struct disks before, now;
	uint64_t before_ns;
};

struct host_disk *host_disk_new(const char *root)
{
	struct host_disk *d = xcalloc(1, sizeof(*d));

	d->root = xstrdup(root);
	kernel_file_init(&d->stats, root, "/proc/diskstats");
	return d;
}

void host_disk_free(struct host_disk *d)
{
	if (!d)
		return;
	kernel_file_release(&d->stats);
	free(d->before.list);
	free(d->now.list);
	free(d->root);
	free(d);
}

/* /sys/block has the whole disks; without it (a bare container) all are taken for whole. */
static bool is_whole(const struct host_disk *d, const char *name)
{
	char *block = xasprintf("%s/sys/block", d->root);
	char *path = xasprintf("%s/%s", block, name);

	for (char *p = path + strlen(block) + 1; *p; p++)
		if (*p == '/') /* as "cciss/c0d0" is spelt there */
			*p = '!';
	bool whole = access(path, F_OK) == 0 || access(block, F_OK) < 0;
	free(path);
	free(block);
	return whole;
}

/* "major minor name reads merged sectors ms writes merged sectors ms flying busy_ms …" */
static bool parse_line(const char *line, struct disk *out)
{
	uint64_t v[10], number;

	if (!kernel_number(&line, &number) || !kernel_number(&line, &number))
		return false;
	line += strspn(line, " ");
	size_t len = strcspn(line, " \n");
	if (!len || len >= NAME_BYTES || *line == '.')
		return false;
	*out = (struct disk){0};
	memcpy(out->name, line, len);
	line += len;
	for (unsigned i = 0; i < 10; i++)
		if (!kernel_number(&line, &v[i]))
			return false;
	out->read_sectors = v[2];
	out->written_sectors = v[6];
	out->busy_ms = v[9];
	return true;
}

static const struct disk *find_disk(const struct disks *in, const char *name, size_t guess)
{
	if (guess < in->n && !strcmp(in->list[guess].name, name))
		return &in->list[guess];
	for (size_t i = 0; i < in->n; i++)
		if (!strcmp(in->list[i].name, name))
			return &in->list[i];
	return NULL;
}

static bool is_memory(const char *name)
{
	return !strncmp(name, "loop", 4) || !strncmp(name, "ram", 3);
}

static void parse(struct host_disk *d, const char *text)
{
	const char *line;
	struct disk one;
	size_t len;

	d->now.n = 0;
	while (d->now.n < MAX_DISKS && (line = kernel_line(&text, &len))) {
		if (!parse_line(line, &one) || is_memory(one.name))
			continue;
		const struct disk *was = find_disk(&d->before, one.name, d->now.n);
		one.whole = was ? was->whole : is_whole(d, one.name);
		d->now.list = xgrow(d->now.list, &d->now.cap, d->now.n + 1, sizeof(one));
		d->now.list[d->now.n++] = one;
	}
}

static void emit_disk(const struct disk *now, const struct disk *was, double elapsed_ms,
		      struct metric_list *out)
{
	double util = 100.0 * (double)kernel_counted(now->busy_ms, was->busy_ms) / elapsed_ms;

	metric_list_uint(out, "disk_read_bytes", now->name,
			 kernel_counted(now->read_sectors, was->read_sectors) * SECTOR_BYTES);
	metric_list_uint(out, "disk_write_bytes", now->name,
			 kernel_counted(now->written_sectors, was->written_sectors) * SECTOR_BYTES);
	metric_list_float(out, "disk_util", now->name, util < 100 ? util : 100);
}

void host_disk_read(struct host_disk *d, struct metric_list *out)
{
	const char *text = kernel_file_read(&d->stats);
	uint64_t now_ns = clock_mono_ns();

	if (!text)
		return;
	struct disks old = d->before;
	d->before = d->now;
	d->now = old;
	parse(d, text);
	for (size_t i = 0; d->before_ns && i < d->now.n; i++) {
		const struct disk *now = &d->now.list[i];
		const struct disk *was = find_disk(&d->before, now->name, i);

		if (now->whole)
			emit_disk(now, was ? was : now, (double)(now_ns - d->before_ns) / 1e6, out);
	}
	d->before_ns = now_ns;
}
