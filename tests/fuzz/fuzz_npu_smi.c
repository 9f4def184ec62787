/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What npu-smi prints, of whatever version and in whatever state. What is taken from it is within
 * bounds. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "device/ascend/metrics/npu_smi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct ascend_chip *c)
{
	const struct ascend_memory *m = &c->memory;

	BUG_ON(c->device > UINT16_MAX || c->card > UINT16_MAX || c->index > UINT16_MAX);
	BUG_ON(c->has & ASCEND_HAS_AICORE && c->aicore > 100);
	BUG_ON(c->has & ASCEND_HAS_POWER && !(c->power_w >= 0 && c->power_w < 1e13));
	BUG_ON(c->has & ASCEND_HAS_TEMPERATURE &&
	       (c->temperature_c < 0 || c->temperature_c > 1000));
	BUG_ON(c->has & ASCEND_HAS_MEMORY && (!m->total_bytes || m->used_bytes > m->total_bytes));
	BUG_ON(c->health > ASCEND_UNKNOWN || !memchr(c->name, 0, sizeof(c->name)));
	BUG_ON(m->nprocesses > ASCEND_DCMI_PROCESSES);
	for (unsigned i = 0; i < m->nprocesses; i++)
		BUG_ON(!m->processes[i].pid);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ascend_chip chips[4];
	unsigned n = npu_smi_parse((const char *)data, size, chips, 4);

	BUG_ON(n > 4);
	for (unsigned i = 0; i < n; i++)
		check(&chips[i]);
	return 0;
}
