/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The "kernel" source: what /proc reports about this machine. Rates are of the time since the round
 * before; the first round therefore has only what is true at one moment.
 */
#include "device/metrics.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "device/host/metrics/file.h"
#include "device/host/metrics/host.h"

struct host {
	struct kernel_file uptime;
	struct host_cpu *cpu;
	struct host_net *net;
	struct host_disk *disk;
	struct host_memory *memory;
	struct metric_list record;
};

static void host_close(void *self)
{
	struct host *h = self;

	kernel_file_release(&h->uptime);
	host_cpu_free(h->cpu);
	host_net_free(h->net);
	host_disk_free(h->disk);
	host_memory_free(h->memory);
	metric_list_release(&h->record);
	free(h);
}

int host_metrics_open_at(const char *root, const struct metrics_options *o, void **out,
			 struct err *err)
{
	struct host *h = xcalloc(1, sizeof(*h));

	kernel_file_init(&h->uptime, root, "/proc/uptime");
	h->cpu = host_cpu_new(root);
	h->net = host_net_new(root, o->filter_nics ? o->nic_prefixes : NULL);
	h->disk = host_disk_new(root);
	h->memory = host_memory_new(root);
	if (!kernel_file_read(&h->uptime)) {
		host_close(h);
		return err_set(err, -ENOENT, "cannot read '%s/proc/uptime': is /proc mounted?",
			       root);
	}
	*out = h;
	return 0;
}

static int host_open(void **out, const struct metrics_options *o, struct err *err)
{
	return host_metrics_open_at("", o, out, err);
}

static int host_read(void *self, sample_fn fn, void *arg, struct err *err)
{
	struct host *h = self;
	const char *text = kernel_file_read(&h->uptime);
	uint64_t seconds;

	metric_list_clear(&h->record);
	if (text && kernel_number(&text, &seconds))
		metric_list_int(&h->record, "uptime", NULL, (int64_t)(seconds & INT64_MAX));
	host_memory_read(h->memory, &h->record);
	host_cpu_read(h->cpu, &h->record);
	host_net_read(h->net, &h->record);
	host_disk_read(h->disk, &h->record);
	if (!h->record.n)
		return err_set(err, -EIO, "nothing can be read from /proc");
	metric_list_emit(&h->record, host_metrics.name, SAMPLE_NO_DEVICE, fn, arg);
	return 0;
}

const struct metrics_source host_metrics = {
	.name = "kernel",
	.open = host_open,
	.read = host_read,
	.close = host_close,
};
