/* SPDX-License-Identifier: MulanPSL-2.0 */
/* From the metrics of a card to the tracks of a timeline, under their documented names. */
#include <string.h>

#include "sampler/counters/counters_impl.h"

#define MB 1048576.0

static bool find(const struct sample *s, const char *name, double *out)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct metric *m = &s->metrics[i];

		if (m->instance || strcmp(m->name, name) != 0 || m->type == METRIC_TEXT)
			continue;
		*out = m->type == METRIC_FLOAT	? m->f
		       : m->type == METRIC_UINT ? (double)m->u
						: (double)m->i;
		return true;
	}
	return false;
}

static void put(struct counters *c, enum counter_track track, const struct sample *s,
		const char *name, const char *key, double value)
{
	counters_put(c, &(struct counter){.track = track,
					  .card = (int)s->device,
					  .name = name,
					  .n = 1,
					  .values = {{key, value}}});
}

static void put_npu(struct counters *c, const struct sample *s)
{
	double v;

	if (find(s, "aicore_utilization", &v))
		put(c, COUNTER_NPU, s, "npu_aicore_usage_rate", "aicore", v);
	if (find(s, "hbm_utilization", &v))
		put(c, COUNTER_NPU, s, "npu_hbm_usage_rate", "hbm", v);
	if (find(s, "hbm_used_bytes", &v))
		put(c, COUNTER_NPU, s, "npu_hbm_used_mb", "hbm_used_mb", v / MB);
}

static void put_gpu(struct counters *c, const struct sample *s)
{
	double used, total, v;

	if (find(s, "gpu_device_utilization", &v))
		put(c, COUNTER_GPU, s, "gpu_utilization_rate", "gpu", v);
	if (find(s, "gpu_memory_utilization", &v))
		put(c, COUNTER_GPU, s, "gpu_memory_usage_rate", "memory", v);
	else if (find(s, "gpu_memory_used_bytes", &used) &&
		 find(s, "gpu_memory_total_bytes", &total) && total > 0)
		put(c, COUNTER_GPU, s, "gpu_memory_usage_rate", "memory", 100 * used / total);
	if (find(s, "gpu_memory_used_bytes", &v))
		put(c, COUNTER_GPU, s, "gpu_memory_used_mb", "memory_used_mb", v / MB);
}

void counters_put_sample(struct counters *c, enum counter_track track, const struct sample *s)
{
	if (track == COUNTER_NPU)
		put_npu(c, s);
	else
		put_gpu(c, s);
}
