/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/cuda/metrics/gpm.h"

#include <math.h>

#include "base/clock.h"

#define SHORTEST_NS 100000000ull /* the library wants a tenth of a second between two samples */

static const struct {
	enum nvml_gpm_metric_id id;
	const char *name;
} wanted[] = {
	{NVML_GPM_GRAPHICS_UTIL, "graphics_engine_active_ratio"},
	{NVML_GPM_SM_UTIL, "sm_active_ratio"},
	{NVML_GPM_SM_OCCUPANCY, "sm_occupancy"},
	{NVML_GPM_ANY_TENSOR_UTIL, "tensorcore_active"},
	{NVML_GPM_FP64_UTIL, "fp64_active"},
	{NVML_GPM_FP32_UTIL, "fp32_active"},
	{NVML_GPM_FP16_UTIL, "fp16_active"},
	{NVML_GPM_DRAM_BW_UTIL, "hbm_mem_bw_util"},
	{NVML_GPM_PCIE_TX, "pcie_tx_bytes"},
	{NVML_GPM_PCIE_RX, "pcie_rx_bytes"},
	{NVML_GPM_NVLINK_TX, "nvlink_tx_bytes"},
	{NVML_GPM_NVLINK_RX, "nvlink_rx_bytes"},
};
#define NWANTED (sizeof(wanted) / sizeof(wanted[0]))

void gpm_init(struct gpm *g, const struct nvml *n, nvml_device d)
{
	struct nvml_gpm_support s = {.version = NVML_GPM_VERSION};

	*g = (struct gpm){0};
	g->supported = n->gpm_support && n->gpm_support(d, &s) == NVML_SUCCESS && s.supported;
}

void gpm_stop(struct gpm *g, const struct nvml *n)
{
	if (g->before)
		n->gpm_free(g->before);
	if (g->now)
		n->gpm_free(g->now);
	g->before = g->now = NULL;
	g->before_ns = 0;
}

void gpm_release(struct gpm *g, const struct nvml *n)
{
	gpm_stop(g, n);
	g->supported = false;
}

static bool have_room(struct gpm *g, const struct nvml *n)
{
	if (!g->before && n->gpm_alloc(&g->before) != NVML_SUCCESS)
		g->before = NULL;
	if (!g->now && n->gpm_alloc(&g->now) != NVML_SUCCESS)
		g->now = NULL;
	return g->before && g->now;
}

/* Ratios as the reference daemon has them, 0 to 1; traffic in bytes a second. */
static void add(const struct nvml_gpm_metric *m, const char *name, struct metric_list *out)
{
	if (!isfinite(m->value) || m->value < 0 || m->value > 1e12)
		return;
	if (m->id < NVML_GPM_PCIE_TX)
		metric_list_float(out, name, NULL, m->value / 100);
	else
		metric_list_uint(out, name, NULL, (uint64_t)(m->value * 1048576));
}

static bool add_all(const struct nvml_gpm_query *q, struct metric_list *out)
{
	bool traffic = false;

	for (size_t i = 0; i < NWANTED; i++) {
		if (q->metrics[i].result != NVML_SUCCESS)
			continue;
		add(&q->metrics[i], wanted[i].name, out);
		traffic = traffic || wanted[i].id == NVML_GPM_PCIE_TX;
	}
	return traffic;
}

bool gpm_read(struct gpm *g, const struct nvml *n, nvml_device d, struct nvml_gpm_query *query,
	      struct metric_list *out)
{
	uint64_t now_ns = clock_mono_ns();
	bool traffic = false;

	if (!g->supported || (g->before_ns && now_ns - g->before_ns < SHORTEST_NS) ||
	    !have_room(g, n) || n->gpm_take(d, g->now) != NVML_SUCCESS)
		return false;
	if (g->before_ns) {
		query->version = NVML_GPM_VERSION;
		query->n = NWANTED;
		query->from = g->before;
		query->to = g->now;
		for (size_t i = 0; i < NWANTED; i++)
			query->metrics[i] =
				(struct nvml_gpm_metric){.id = wanted[i].id, .result = -1};
		traffic = n->gpm_get(query) == NVML_SUCCESS && add_all(query, out);
	}
	nvml_gpm_sample older = g->before;
	g->before = g->now;
	g->now = older;
	g->before_ns = now_ns;
	return traffic;
}
