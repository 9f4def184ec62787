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

#define MAX_DISKS 1024
#define SECTOR_BYTES 512 /* of this file, whatever the disk's are */

enum { READ_SECTORS, WRITTEN_SECTORS, BUSY_MS };

struct host_disk {
	char *root;
	struct kernel_file stats;
	struct kernel_rounds rounds; /* `skip`: it is no whole disk */
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
	kernel_rounds_release(&d->rounds);
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
static bool parse_line(const char *line, struct kernel_row *out)
{
	uint64_t v[10], number;

	if (!kernel_number(&line, &number) || !kernel_number(&line, &number))
		return false;
	line += strspn(line, " ");
	size_t len = strcspn(line, " \n");
	if (!len || len >= sizeof(out->name) || *line == '.')
		return false;
	*out = (struct kernel_row){0};
	memcpy(out->name, line, len);
	line += len;
	for (unsigned i = 0; i < 10; i++)
		if (!kernel_number(&line, &v[i]))
			return false;
	out->counts[READ_SECTORS] = v[2];
	out->counts[WRITTEN_SECTORS] = v[6];
	out->counts[BUSY_MS] = v[9];
	return true;
}

static bool is_memory(const char *name)
{
	return !strncmp(name, "loop", 4) || !strncmp(name, "ram", 3);
}

static void parse_disks(struct host_disk *d, const char *text)
{
	const struct kernel_rows *now = &d->rounds.now;
	struct kernel_row one;
	const char *line;
	size_t len;

	while (now->n < MAX_DISKS && (line = kernel_line(&text, &len))) {
		if (!parse_line(line, &one) || is_memory(one.name))
			continue;
		const struct kernel_row *was = kernel_rounds_before(&d->rounds, one.name, now->n);
		one.skip = was ? was->skip : !is_whole(d, one.name);
		kernel_rounds_add(&d->rounds, &one);
	}
}

static uint64_t count_added(const struct kernel_row *now, const struct kernel_row *was,
			    unsigned which)
{
	return kernel_counted(now->counts[which], was->counts[which]);
}

static void emit_disk(const struct kernel_row *now, const struct kernel_row *was, double elapsed_ms,
		      struct metric_list *out)
{
	double util = 100.0 * (double)count_added(now, was, BUSY_MS) / elapsed_ms;

	metric_list_uint(out, "disk_read_bytes", now->name,
			 count_added(now, was, READ_SECTORS) * SECTOR_BYTES);
	metric_list_uint(out, "disk_write_bytes", now->name,
			 count_added(now, was, WRITTEN_SECTORS) * SECTOR_BYTES);
	metric_list_float(out, "disk_util", now->name, util < 100 ? util : 100);
}

void host_disk_read(struct host_disk *d, struct metric_list *out)
{
	const char *text = kernel_file_read(&d->stats);
	uint64_t now_ns = clock_mono_ns();

	if (!text)
		return;
	kernel_rounds_begin(&d->rounds);
	parse_disks(d, text);
	for (size_t i = 0; d->before_ns && i < d->rounds.now.n; i++) {
		const struct kernel_row *now = &d->rounds.now.list[i];
		const struct kernel_row *was = kernel_rounds_before(&d->rounds, now->name, i);

		if (!now->skip)
			emit_disk(now, was ? was : now, (double)(now_ns - d->before_ns) / 1e6, out);
	}
	d->before_ns = now_ns;
}
