/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/names.h"

#include <string.h>

/* Sorted by source, then as the source reports them. */
static const struct metric_name names[] = {
	{"uptime", METRIC_GAUGE, "s", "Time since the machine started, in seconds."},
	{"cpu_u", METRIC_GAUGE, "%", "CPU time in user mode, percent of the interval."},
	{"cpu_s", METRIC_GAUGE, "%", "CPU time in the kernel, percent of the interval."},
	{"cpu_i", METRIC_GAUGE, "%", "CPU time idle, percent of the interval."},
	{"cpu_util", METRIC_GAUGE, "%", "CPU time not idle, percent of the interval."},
	{"cpu_guest", METRIC_GAUGE, "%", "CPU time of virtual guests, percent of the interval."},
	{"cpu_guest_nice", METRIC_GAUGE, "%", "CPU time of niced guests, percent of the interval."},
	{"cpu_u_ms", METRIC_DELTA, "ms", "CPU time in user mode."},
	{"cpu_s_ms", METRIC_DELTA, "ms", "CPU time in the kernel."},
	{"cpu_w_ms", METRIC_DELTA, "ms", "CPU time waiting for I/O."},
	{"cpu_n_ms", METRIC_DELTA, "ms", "CPU time of niced processes."},
	{"cpu_x_ms", METRIC_DELTA, "ms", "CPU time in interrupts."},
	{"cpu_y_ms", METRIC_DELTA, "ms", "CPU time in soft interrupts."},
	{"cpu_z_ms", METRIC_DELTA, "ms", "CPU time taken by the hypervisor."},
	{"cpu_guest_ms", METRIC_DELTA, "ms", "CPU time of virtual guests."},
	{"cpu_guest_nice_ms", METRIC_DELTA, "ms", "CPU time of niced virtual guests."},
	{"rx_bytes", METRIC_DELTA, "By", "Bytes received."},
	{"rx_packets", METRIC_DELTA, "{packet}", "Packets received."},
	{"rx_errors", METRIC_DELTA, "{packet}", "Packets received with errors."},
	{"rx_drops", METRIC_DELTA, "{packet}", "Received packets dropped."},
	{"tx_bytes", METRIC_DELTA, "By", "Bytes sent."},
	{"tx_packets", METRIC_DELTA, "{packet}", "Packets sent."},
	{"tx_errors", METRIC_DELTA, "{packet}", "Packets not sent because of errors."},
	{"tx_drops", METRIC_DELTA, "{packet}", "Packets dropped instead of sent."},
	{"mem_total", METRIC_GAUGE, "By", "Memory of the machine, in bytes."},
	{"mem_available", METRIC_GAUGE, "By", "Memory that programs can still get, in bytes."},
	{"mem_used", METRIC_GAUGE, "By", "Memory in use, in bytes."},
	{"swap_total", METRIC_GAUGE, "By", "Swap space, in bytes."},
	{"swap_used", METRIC_GAUGE, "By", "Swap space in use, in bytes."},
	{"disk_read_bytes", METRIC_DELTA, "By", "Bytes read from the disk."},
	{"disk_write_bytes", METRIC_DELTA, "By", "Bytes written to the disk."},
	{"disk_util", METRIC_GAUGE, "%", "Time in which the disk was busy, percent."},
	{"load_1m", METRIC_GAUGE, "1", "Load average of the last minute."},
	{"load_5m", METRIC_GAUGE, "1", "Load average of the last 5 minutes."},
	{"load_15m", METRIC_GAUGE, "1", "Load average of the last 15 minutes."},
	{"mips", METRIC_GAUGE, "1", "Million instructions per second, all CPUs."},
	{"mega_cycles_per_second", METRIC_GAUGE, "1", "Million CPU cycles per second, all CPUs."},
	{"aicore_utilization", METRIC_GAUGE, "%", "Use of the AI cores, percent."},
	{"vector_core_utilization", METRIC_GAUGE, "%", "Use of the vector cores, percent."},
	{"npu_utilization", METRIC_GAUGE, "%", "Use of the NPU as a whole, percent."},
	{"hbm_bandwidth_utilization", METRIC_GAUGE, "%", "Use of memory bandwidth, percent."},
	{"npu_processes", METRIC_GAUGE, "{process}", "Processes on the NPU."},
	{"npu_process_bytes", METRIC_GAUGE, "By", "Device memory of a process, in bytes."},
	{"npu_id", METRIC_GAUGE, "1", "Number of the card."},
	{"npu_chip", METRIC_GAUGE, "1", "Number of the chip on its card."},
	{"hbm_used_bytes", METRIC_GAUGE, "By", "Device memory in use, in bytes."},
	{"hbm_total_bytes", METRIC_GAUGE, "By", "Device memory, in bytes."},
	{"hbm_utilization", METRIC_GAUGE, "%", "Device memory in use, percent."},
	{"npu_temperature_c", METRIC_GAUGE, "Cel", "Temperature of the NPU, in degrees Celsius."},
	{"npu_power_draw_w", METRIC_GAUGE, "W", "Power drawn by the NPU, in watts."},
	{"npu_health", METRIC_GAUGE, "1", "Health of the NPU as its driver says; 0 is good."},
	{"gpu_device_utilization", METRIC_GAUGE, "%", "Time in which a kernel ran, percent."},
	{"gpu_memory_utilization", METRIC_GAUGE, "%", "Time in which memory was used, percent."},
	{"gpu_processes", METRIC_GAUGE, "{process}", "Processes on the GPU."},
	{"minor_id", METRIC_GAUGE, "1", "Number of the device file of the GPU."},
	{"dcgm_error", METRIC_GAUGE, "1", "1: the driver could not report everything."},
	{"gpu_memory_used_bytes", METRIC_GAUGE, "By", "Device memory in use, in bytes."},
	{"gpu_memory_total_bytes", METRIC_GAUGE, "By", "Device memory, in bytes."},
	{"gpu_power_draw", METRIC_GAUGE, "W", "Power drawn by the GPU, in watts."},
	{"gpu_temperature_c", METRIC_GAUGE, "Cel", "Temperature of the GPU, in degrees Celsius."},
	{"gpu_frequency_mhz", METRIC_GAUGE, "MHz", "Clock of the multiprocessors, in MHz."},
	{"graphics_engine_active_ratio", METRIC_GAUGE, "1", "Time in which the engine was active."},
	{"sm_active_ratio", METRIC_GAUGE, "1", "Time in which multiprocessors had work."},
	{"sm_occupancy", METRIC_GAUGE, "1", "Warps on multiprocessors of the most there can be."},
	{"fp16_active", METRIC_GAUGE, "1", "Time in which the half precision pipe was active."},
	{"fp32_active", METRIC_GAUGE, "1", "Time in which the single precision pipe was active."},
	{"fp64_active", METRIC_GAUGE, "1", "Time in which the double precision pipe was active."},
	{"tensorcore_active", METRIC_GAUGE, "1", "Time in which the tensor cores were active."},
	{"hbm_mem_bw_util", METRIC_GAUGE, "1", "Time in which device memory moved data."},
	{"pcie_tx_bytes", METRIC_GAUGE, "By", "Bytes sent over PCIe, per second."},
	{"pcie_rx_bytes", METRIC_GAUGE, "By", "Bytes received over PCIe, per second."},
	{"nvlink_tx_bytes", METRIC_GAUGE, "By", "Bytes sent over NVLink, per second."},
	{"nvlink_rx_bytes", METRIC_GAUGE, "By", "Bytes received over NVLink, per second."},
	{"duration", METRIC_DELTA, "ns", "Length of activities of one kind, in nanoseconds."},
};

const struct metric_name *metric_name_find(const char *name)
{
	static const struct metric_name other = {"", METRIC_GAUGE, "1",
						 "As its source reports it."};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i].name, name))
			return &names[i];
	return &other;
}

const char *metric_instance_label(const char *name)
{
	if (!strncmp(name, "rx_", 3) || !strncmp(name, "tx_", 3))
		return "net";
	if (!strncmp(name, "disk_", 5))
		return "disk";
	if (!strcmp(name, "npu_process_bytes"))
		return "pid";
	return "instance";
}

void metric_add_key(const struct metric *m, struct buf *out)
{
	buf_add_str(out, m->name);
	if (m->instance) {
		buf_add_char(out, '.');
		buf_add_str(out, m->instance);
	}
}

const char *metric_text(const struct sample *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->metrics[i].type == METRIC_TEXT && !strcmp(s->metrics[i].name, name))
			return s->metrics[i].s;
	return NULL;
}

bool metric_number(const struct metric *m, double *out)
{
	switch (m->type) {
	case METRIC_INT:
		*out = (double)m->i;
		return true;
	case METRIC_UINT:
		*out = (double)m->u;
		return true;
	case METRIC_FLOAT:
		*out = m->f;
		return true;
	case METRIC_TEXT:
		break;
	}
	return false;
}
