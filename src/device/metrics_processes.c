/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/metrics_processes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/broker.h"
#include "base/containers/buf.h"
#include "base/mem.h"
#include "device/metrics.h"

void device_processes_add(struct device_processes *d, const struct device_process *p)
{
	d->list = xgrow(d->list, &d->cap, d->n + 1, sizeof(*d->list));
	d->list[d->n++] = *p;
}

void device_processes_release(struct device_processes *d)
{
	free(d->list);
	*d = (struct device_processes){.hanging = d->hanging};
}

#define PIECE 16384
#define MAX_ENVIRON (256u << 10) /* what lies behind it is not looked at */

/* A value that could upset a log is as good as none. */
static void take_value(char out[DEVICE_OWNER_TEXT], const char *value, size_t len)
{
	if (len >= DEVICE_OWNER_TEXT)
		return;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)value[i] < ' ' || value[i] == 0x7f)
			return;
	memcpy(out, value, len);
	out[len] = '\0';
}

void device_owner_parse(const char *text, size_t size, struct device_owner *out)
{
	const struct {
		const char *name;
		char *to;
	} wanted[] = {{"SLURM_JOB_ID=", out->job_id},
		      {"USER=", out->username},
		      {"SLURM_JOB_ACCOUNT=", out->slurm_account},
		      {"SLURM_JOB_PARTITION=", out->slurm_partition}};

	*out = (struct device_owner){0};
	while (size) {
		size_t len = strnlen(text, size);

		for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
			size_t n = strlen(wanted[i].name);

			if (len > n && !memcmp(text, wanted[i].name, n))
				take_value(wanted[i].to, text + n, len - n);
		}
		if (len == size) /* cut off, or the last without its NUL */
			return;
		text += len + 1;
		size -= len + 1;
	}
}

static bool read_environ(uint32_t pid, struct buf *out)
{
	char path[32];
	ssize_t n = 0;

	snprintf(path, sizeof(path), "/proc/%u/environ", pid);
	int fd = broker_open(path);
	if (fd < 0)
		return false;
	while (out->len < MAX_ENVIRON && (n = read(fd, buf_room(out, PIECE), PIECE)) > 0)
		out->len += (size_t)n;
	close(fd);
	return n >= 0;
}

void device_owner_find(const uint32_t *pids, size_t n, struct device_owner *out)
{
	struct device_owner one;
	struct buf text = {0};

	*out = (struct device_owner){0};
	for (size_t i = 0; i < n && !out->job_id[0]; i++) {
		buf_clear(&text);
		if (!read_environ(pids[i], &text))
			continue;
		device_owner_parse(text.data, text.len, &one);
		if (one.job_id[0] || !out->username[0])
			*out = one;
	}
	buf_release(&text);
}

void device_owner_add(const struct device_owner *o, struct metric_list *to)
{
	metric_list_text(to, "job_id", o->job_id);
	metric_list_text(to, "username", o->username);
	metric_list_text(to, "slurm_account", o->slurm_account);
	metric_list_text(to, "slurm_partition", o->slurm_partition);
}
