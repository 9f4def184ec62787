/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The environment of somebody's process. What is taken from it is short and printable. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "device/metrics_processes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char text[DEVICE_OWNER_TEXT])
{
	BUG_ON(!memchr(text, 0, DEVICE_OWNER_TEXT));
	for (; *text; text++)
		BUG_ON((unsigned char)*text < ' ');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct device_owner o;

	device_owner_parse((const char *)data, size, &o);
	check(o.job_id);
	check(o.username);
	check(o.slurm_account);
	check(o.slurm_partition);
	return 0;
}
