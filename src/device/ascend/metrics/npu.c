/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The "npu" source: one record per Ascend device, by the vendor's library, else by its program. */
#include "device/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "device/ascend/metrics/dcmi.h"
#include "device/ascend/metrics/npu_smi.h"
#include "device/metrics_processes.h"

struct npu {
	struct ascend_dcmi *dcmi; /* NULL: by npu-smi */
	struct npu_smi smi;
	unsigned timeout_ms; /* for it */
	bool attribution;
	struct ascend_chip *chips;
	struct metric_list record;
};

static void npu_close(void *self)
{
	struct npu *n = self;

	ascend_dcmi_close(n->dcmi);
	free(n->chips);
	metric_list_release(&n->record);
	free(n);
}

/* How many devices npu-smi shows. */
static int read_npu_smi(struct npu *n, struct err *err)
{
	struct buf text = {0};
	int r = npu_smi_run(&n->smi, n->timeout_ms, &text, err);

	if (r == 0)
		r = (int)npu_smi_parse(text.data, text.len, n->chips, NPU_SMI_CHIPS);
	buf_release(&text);
	return r;
}

static int open_npu_smi(struct npu *n, const struct err *no_library, struct err *err)
{
	struct err no_program = {0};

	n->chips = xcalloc(NPU_SMI_CHIPS, sizeof(*n->chips));
	int r = read_npu_smi(n, &no_program);
	if (r > 0)
		return 0;
	if (r == 0)
		r = err_set(&no_program, -ENOENT, "npu-smi shows no device");
	return err_set(err, r, "no NPU: %.240s; %.240s", no_library->text, no_program.text);
}

static int npu_open(void **out, const struct metrics_options *o, struct err *err)
{
	struct npu *n = xcalloc(1, sizeof(*n));
	struct err no_library = {0};
	int r = 0;

	n->attribution = o->env_attribution;
	n->timeout_ms = o->program_timeout_ms ? o->program_timeout_ms : METRICS_PROGRAM_MS;
	if (ascend_dcmi_open(&n->dcmi, &no_library) < 0)
		r = open_npu_smi(n, &no_library, err);
	else
		n->chips = xcalloc(1, sizeof(*n->chips));
	if (r < 0) {
		npu_close(n);
		return r;
	}
	*out = n;
	return 0;
}

static void add_load(const struct ascend_chip *c, struct metric_list *l)
{
	const struct {
		unsigned bit;
		const char *name;
		unsigned percent;
	} rates[] = {
		{ASCEND_HAS_AICORE, "aicore_utilization", c->aicore},
		{ASCEND_HAS_VECTOR, "vector_core_utilization", c->vector},
		{ASCEND_HAS_NPU, "npu_utilization", c->npu},
		{ASCEND_HAS_HBM_BANDWIDTH, "hbm_bandwidth_utilization", c->hbm_bandwidth},
	};

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		if (c->has & rates[i].bit)
			metric_list_uint(l, rates[i].name, NULL, rates[i].percent);
	if (!(c->has & ASCEND_HAS_MEMORY))
		return;
	metric_list_uint(l, "hbm_used_bytes", NULL, c->memory.used_bytes);
	metric_list_uint(l, "hbm_total_bytes", NULL, c->memory.total_bytes);
	metric_list_float(l, "hbm_utilization", NULL,
			  100.0 * (double)c->memory.used_bytes / (double)c->memory.total_bytes);
}

static void add_condition(const struct ascend_chip *c, struct metric_list *l)
{
	metric_list_text(l, "npu_name", c->name);
	metric_list_uint(l, "npu_id", NULL, c->card);
	metric_list_uint(l, "npu_chip", NULL, c->index);
	if (c->has & ASCEND_HAS_HEALTH)
		metric_list_uint(l, "npu_health", NULL, c->health);
	if (c->has & ASCEND_HAS_TEMPERATURE)
		metric_list_int(l, "npu_temperature_c", NULL, c->temperature_c);
	if (c->has & ASCEND_HAS_POWER)
		metric_list_float(l, "npu_power_draw_w", NULL, c->power_w);
}

static void emit_chip(struct npu *n, const struct ascend_chip *c, sample_fn fn, void *arg)
{
	uint32_t pids[ASCEND_DCMI_PROCESSES];
	char names[ASCEND_DCMI_PROCESSES][16];
	struct device_owner owner = {0};
	struct metric_list *l = &n->record;

	metric_list_clear(l);
	add_condition(c, l);
	add_load(c, l);
	if (c->memory.has_processes)
		metric_list_uint(l, "npu_processes", NULL, c->memory.nprocesses);
	for (unsigned i = 0; i < c->memory.nprocesses; i++) {
		pids[i] = c->memory.processes[i].pid;
		snprintf(names[i], sizeof(names[i]), "%u", pids[i]);
		if (c->memory.processes[i].bytes != ASCEND_NO_BYTES)
			metric_list_uint(l, "npu_process_bytes", names[i],
					 c->memory.processes[i].bytes);
	}
	if (n->attribution)
		device_owner_find(pids, c->memory.nprocesses, &owner);
	device_owner_add(&owner, l);
	metric_list_emit(l, ascend_metrics.name, c->device, fn, arg);
}

static int npu_read(void *self, sample_fn fn, void *arg, struct err *err)
{
	struct npu *n = self;

	for (unsigned i = 0; n->dcmi && i < ascend_dcmi_count(n->dcmi); i++) {
		ascend_dcmi_chip(n->dcmi, i, n->chips);
		emit_chip(n, n->chips, fn, arg);
	}
	if (n->dcmi)
		return 0;
	int found = read_npu_smi(n, err);
	for (int i = 0; i < found; i++)
		emit_chip(n, &n->chips[i], fn, arg);
	if (found == 0)
		return err_set(err, -EIO, "npu-smi shows no device any more");
	return found < 0 ? found : 0;
}

const struct metrics_source ascend_metrics = {
	.name = "npu",
	.open = npu_open,
	.read = npu_read,
	.close = npu_close,
};
