/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/metrics_processes.h"

#include <stdlib.h>

#include "base/mem.h"

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
