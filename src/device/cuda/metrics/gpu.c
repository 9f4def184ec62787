/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The "gpu" source: one record per NVIDIA GPU, under the names that the reference daemon gives to
 * what it gets from DCGM, and some more. Without the library, the few that nvidia-smi reports.
 */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cuda/metrics/nvidia_smi.h"
#include "device/cuda/metrics/nvml.h"
#include "device/metrics.h"
#include "device/metrics_processes.h"

#define MAX_GPUS 64
#define MAX_PROCESSES 64

/* --- profiling ratios of one GPU between two rounds (GPM) --- */

/* They need the same hardware counters as profilers (Nsight, CUPTI): gpm_stop() releases them. */
struct gpm {
	bool supported;
	nvml_gpm_sample before, now; /* NULL until first wanted */
	uint64_t before_ns; /* 0: there is no sample before */
};

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

static void gpm_init(struct gpm *g, const struct nvml *n, nvml_device d)
{
	struct nvml_gpm_support s = {.version = NVML_GPM_VERSION};

	*g = (struct gpm){0};
	g->supported = n->gpm_support && n->gpm_support(d, &s) == NVML_SUCCESS && s.supported;
}

static void gpm_stop(struct gpm *g, const struct nvml *n)
{
	if (g->before)
		n->gpm_free(g->before);
	if (g->now)
		n->gpm_free(g->now);
	g->before = g->now = NULL;
	g->before_ns = 0;
}

static void gpm_release(struct gpm *g, const struct nvml *n)
{
	gpm_stop(g, n);
	g->supported = false;
}

static bool make_room(struct gpm *g, const struct nvml *n)
{
	if (!g->before && n->gpm_alloc(&g->before) != NVML_SUCCESS)
		g->before = NULL;
	if (!g->now && n->gpm_alloc(&g->now) != NVML_SUCCESS)
		g->now = NULL;
	return g->before && g->now;
}

/* Ratios as the reference daemon has them, 0 to 1; traffic in bytes a second. */
static void add_ratio(const struct nvml_gpm_metric *m, const char *name, struct metric_list *out)
{
	if (!isfinite(m->value) || m->value < 0 || m->value > 1e12)
		return;
	if (m->id < NVML_GPM_PCIE_TX)
		metric_list_float(out, name, NULL, m->value / 100);
	else
		metric_list_uint(out, name, NULL, (uint64_t)(m->value * 1048576));
}

static bool add_ratios(const struct nvml_gpm_query *q, struct metric_list *out)
{
	bool traffic = false;

	for (size_t i = 0; i < NWANTED; i++) {
		if (q->metrics[i].result != NVML_SUCCESS)
			continue;
		add_ratio(&q->metrics[i], wanted[i].name, out);
		traffic = traffic || wanted[i].id == NVML_GPM_PCIE_TX;
	}
	return traffic;
}

static bool gpm_read(struct gpm *g, const struct nvml *n, nvml_device d,
		     struct nvml_gpm_query *query, struct metric_list *out)
{
	uint64_t now_ns = clock_mono_ns();
	bool traffic = false;

	if (!g->supported || (g->before_ns && now_ns - g->before_ns < SHORTEST_NS) ||
	    !make_room(g, n) || n->gpm_take(d, g->now) != NVML_SUCCESS)
		return false;
	if (g->before_ns) {
		query->version = NVML_GPM_VERSION;
		query->n = NWANTED;
		query->from = g->before;
		query->to = g->now;
		for (size_t i = 0; i < NWANTED; i++)
			query->metrics[i] =
				(struct nvml_gpm_metric){.id = wanted[i].id, .result = -1};
		traffic = n->gpm_get(query) == NVML_SUCCESS && add_ratios(query, out);
	}
	nvml_gpm_sample older = g->before;
	g->before = g->now;
	g->now = older;
	g->before_ns = now_ns;
	return traffic;
}

/* --- the source --- */

struct gpu {
	nvml_device handle;
	unsigned index;
	char name[NVML_NAME_BYTES + 1], uuid[NVML_UUID_BYTES + 1];
	struct gpm gpm;
};

struct gpus {
	struct nvml nvml;
	struct gpu list[MAX_GPUS];
	unsigned n;
	/* Without the library: */
	bool by_program;
	unsigned timeout_ms;
	pid_t hanging;

	bool attribution, load_only;
	_Atomic bool paused; /* set by other threads than the one that reads */
	struct nvml_gpm_query *query;
	struct metric_list record;
};

static void gpu_close(void *self)
{
	struct gpus *g = self;

	for (unsigned i = 0; i < g->n; i++)
		gpm_release(&g->list[i].gpm, &g->nvml);
	if (!g->by_program)
		nvml_close(&g->nvml);
	free(g->query);
	metric_list_release(&g->record);
	free(g);
}

static void add_gpu(struct gpus *g, unsigned index)
{
	const struct nvml *n = &g->nvml;
	struct gpu *p = &g->list[g->n];

	*p = (struct gpu){.index = index};
	if (n->handle(index, &p->handle) != NVML_SUCCESS)
		return; /* one that fell off the bus; the others go on */
	if (!n->name || n->name(p->handle, p->name, NVML_NAME_BYTES) != NVML_SUCCESS)
		p->name[0] = '\0';
	if (!n->uuid || n->uuid(p->handle, p->uuid, NVML_UUID_BYTES) != NVML_SUCCESS)
		p->uuid[0] = '\0';
	gpm_init(&p->gpm, n, p->handle);
	g->n++;
}

static int find_gpus(struct gpus *g, struct err *err)
{
	unsigned count = 0;
	nvml_result r = g->nvml.count(&count);

	if (r != NVML_SUCCESS)
		return err_set(err, -EIO, "cannot count the GPUs: %s", nvml_words(&g->nvml, r));
	for (unsigned i = 0; i < count && g->n < MAX_GPUS; i++)
		add_gpu(g, i);
	return g->n ? 0 : err_set(err, -ENOENT, "the driver knows of no GPU");
}

static int open_nvml(struct gpus *g, struct err *err)
{
	int r = nvml_open(&g->nvml, err);

	return r < 0 ? r : find_gpus(g, err);
}

static int open_program(struct gpus *g, struct err *err)
{
	struct nvidia_smi_gpu list[NVIDIA_SMI_GPUS];
	int n = nvidia_smi_gpus(g->timeout_ms, &g->hanging, list, NVIDIA_SMI_GPUS, err);

	if (n == 0)
		n = err_set(err, -ENOENT, "nvidia-smi shows no GPU");
	return n < 0 ? n : 0;
}

static int gpu_open(void **out, const struct metrics_options *o, struct err *err)
{
	struct gpus *g = xcalloc(1, sizeof(*g));
	struct err no_library = {0}, no_program = {0};

	g->attribution = o->env_attribution;
	g->load_only = o->load_only;
	g->timeout_ms = o->program_timeout_ms ? o->program_timeout_ms : METRICS_PROGRAM_MS;
	g->query = xcalloc(1, sizeof(*g->query));
	int r = open_nvml(g, &no_library);
	if (r < 0) {
		nvml_close(&g->nvml);
		g->by_program = true;
		r = open_program(g, &no_program);
	}
	if (r < 0) {
		gpu_close(g);
		return err_set(err, r, "no GPU: %.240s; %.240s", no_library.text, no_program.text);
	}
	*out = g;
	return 0;
}

static bool read_memory(const struct nvml *n, const struct gpu *p, struct nvml_memory *out)
{
	struct nvml_memory_v2 v2 = {.version = NVML_MEMORY_V2};

	if (n->memory_v2 && n->memory_v2(p->handle, &v2) == NVML_SUCCESS) {
		*out = (struct nvml_memory){v2.total, v2.free, v2.used};
		return true;
	}
	return n->memory && n->memory(p->handle, out) == NVML_SUCCESS;
}

/* What needs no counters. MIG and virtual GPUs refuse some of it: that is left out. False if not
 * even the memory is reported, which every sound GPU does. */
static bool add_state(struct gpus *g, struct gpu *p)
{
	const struct nvml *n = &g->nvml;
	struct metric_list *l = &g->record;
	struct nvml_utilization u;
	struct nvml_memory m;
	unsigned v;

	if (n->minor && n->minor(p->handle, &v) == NVML_SUCCESS)
		metric_list_int(l, "minor_id", NULL, v);
	if (n->utilization && n->utilization(p->handle, &u) == NVML_SUCCESS) {
		metric_list_int(l, "gpu_device_utilization", NULL, u.gpu);
		metric_list_int(l, "gpu_memory_utilization", NULL, u.memory);
	}
	if (n->power && n->power(p->handle, &v) == NVML_SUCCESS)
		metric_list_float(l, "gpu_power_draw", NULL, v / 1000.0);
	if (n->clock && n->clock(p->handle, NVML_CLOCK_SM, &v) == NVML_SUCCESS)
		metric_list_int(l, "gpu_frequency_mhz", NULL, v);
	if (n->temperature && n->temperature(p->handle, NVML_TEMPERATURE_GPU, &v) == NVML_SUCCESS)
		metric_list_int(l, "gpu_temperature_c", NULL, v);
	if (!read_memory(n, p, &m))
		return false;
	metric_list_uint(l, "gpu_memory_used_bytes", NULL, m.used);
	metric_list_uint(l, "gpu_memory_total_bytes", NULL, m.total);
	return true;
}

/* Where GPM does not report it. The library measures for 20 ms, each. */
static void add_pcie(struct gpus *g, struct gpu *p)
{
	unsigned kb_s;

	if (!g->nvml.pcie)
		return;
	if (g->nvml.pcie(p->handle, NVML_PCIE_TX, &kb_s) == NVML_SUCCESS)
		metric_list_uint(&g->record, "pcie_tx_bytes", NULL, kb_s * UINT64_C(1000));
	if (g->nvml.pcie(p->handle, NVML_PCIE_RX, &kb_s) == NVML_SUCCESS)
		metric_list_uint(&g->record, "pcie_rx_bytes", NULL, kb_s * UINT64_C(1000));
}

static unsigned list_processes(struct gpus *g, const struct gpu *p, uint32_t *pids)
{
	/* Some versions of the driver fill larger elements: room for them, too. */
	struct nvml_process list[MAX_PROCESSES * 2];
	unsigned n = MAX_PROCESSES;

	memset(list, 0, sizeof(list));
	nvml_result r = g->nvml.processes ? g->nvml.processes(p->handle, &n, list) : -1;
	if (r != NVML_SUCCESS && r != NVML_ERROR_INSUFFICIENT_SIZE)
		return 0;
	metric_list_uint(&g->record, "gpu_processes", NULL, n);
	if (r != NVML_SUCCESS || n > MAX_PROCESSES) /* it only reports how many there are */
		return 0;
	for (unsigned i = 0; i < n; i++)
		pids[i] = list[i].pid;
	return n;
}

/* What profilers count, too, and the traffic on the bus. */
static void add_counters(struct gpus *g, struct gpu *p)
{
	if (atomic_load(&g->paused))
		gpm_stop(&p->gpm, &g->nvml);
	if (atomic_load(&g->paused) ||
	    !gpm_read(&p->gpm, &g->nvml, p->handle, g->query, &g->record))
		add_pcie(g, p);
}

static void add_users(struct gpus *g, struct gpu *p, struct device_owner *owner)
{
	uint32_t pids[MAX_PROCESSES];
	unsigned n = list_processes(g, p, pids);

	if (g->attribution)
		device_owner_find(pids, n, owner);
	device_owner_add(owner, &g->record);
}

static void emit_gpu(struct gpus *g, struct gpu *p, sample_fn fn, void *arg)
{
	struct metric_list *l = &g->record;
	struct device_owner owner = {0};

	metric_list_clear(l);
	metric_list_text(l, "gpu_name", p->name);
	metric_list_text(l, "gpu_uuid", p->uuid);
	/* As the reference daemon calls it; there it is DCGM that could not report. */
	metric_list_int(l, "dcgm_error", NULL, !add_state(g, p));
	if (!g->load_only) {
		add_counters(g, p);
		add_users(g, p, &owner);
	}
	metric_list_emit(l, cuda_metrics.name, p->index, fn, arg);
}

static void add_rate(struct metric_list *l, const char *name, int64_t v)
{
	if (v >= 0)
		metric_list_int(l, name, NULL, v);
}

static int read_program(struct gpus *g, sample_fn fn, void *arg, struct err *err)
{
	struct nvidia_smi_gpu list[NVIDIA_SMI_GPUS];
	struct metric_list *l = &g->record;
	int n = nvidia_smi_gpus(g->timeout_ms, &g->hanging, list, NVIDIA_SMI_GPUS, err);

	for (int i = 0; i < n; i++) {
		metric_list_clear(l);
		add_rate(l, "gpu_device_utilization", list[i].utilization);
		add_rate(l, "gpu_memory_utilization", list[i].memory_utilization);
		if (list[i].memory_used_mb >= 0) {
			metric_list_uint(l, "gpu_memory_used_bytes", NULL,
					 (uint64_t)list[i].memory_used_mb << 20);
			metric_list_uint(l, "gpu_memory_total_bytes", NULL,
					 (uint64_t)list[i].memory_total_mb << 20);
		}
		metric_list_emit(l, cuda_metrics.name, list[i].index, fn, arg);
	}
	if (n == 0)
		return err_set(err, -EIO, "nvidia-smi shows no GPU any more");
	return n < 0 ? n : 0;
}

static int gpu_read(void *self, sample_fn fn, void *arg, struct err *err)
{
	struct gpus *g = self;

	if (g->by_program)
		return read_program(g, fn, arg, err);
	for (unsigned i = 0; i < g->n; i++)
		emit_gpu(g, &g->list[i], fn, arg);
	return 0;
}

static int gpu_pause(void *self, bool paused)
{
	struct gpus *g = self;

	atomic_store(&g->paused, paused);
	return 0;
}

const struct metrics_source cuda_metrics = {
	.name = "gpu",
	.open = gpu_open,
	.read = gpu_read,
	.pause = gpu_pause,
	.close = gpu_close,
};
