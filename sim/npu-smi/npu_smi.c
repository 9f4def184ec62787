/* SPDX-License-Identifier: MulanPSL-2.0 */
/* npu-smi: the tables that people and their scripts read, over the simulated machine. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcmi/dcmi.h"
#include "sim/state.h"

#define TOP                                                                                        \
	"+---------------------------+---------------+-------------------------------------------" \
	"---------+"
#define BAR                                                                                        \
	"+===========================+===============+===========================================" \
	"=========+"
#define WIDE                                                                                       \
	"+---------------------------------------------------------------------------------------" \
	"---------+"

static const char *chip_name(void)
{
	const char *soc = sim_soc_name();
	return strncmp(soc, "Ascend", 6) ? soc : soc + 6;
}

static void print_bus_id(char *out, size_t n, int card)
{
	static const unsigned char bus[] = {0xc1, 0x01, 0xc2, 0x02, 0x81, 0x41, 0x82, 0x42};
	snprintf(out, n, "0000:%02X:00.%d", bus[card % 8], card / 8);
}

/* Both halves of a `used / total` cell are padded on the right, like the original's. */
static void print_pair(char *out, size_t n, unsigned long long used, unsigned long long total)
{
	snprintf(out, n, "%-5llu/ %-6llu", used, total);
}

static void print_chip(int card)
{
	struct dcmi_hbm_info hbm = {0};
	unsigned load = 0;
	int power = 0;
	int temp = 0;
	char cell[64];
	char pair[64];
	char bus[32];
	(void)dcmi_get_device_hbm_info(card, 0, &hbm);
	(void)dcmi_get_device_utilization_rate(card, 0, DCMI_UTIL_AICORE, &load);
	(void)dcmi_get_device_power_info(card, 0, &power);
	(void)dcmi_get_device_temperature(card, 0, &temp);
	print_bus_id(bus, sizeof(bus), card);
	snprintf(cell, sizeof(cell), "%d.%d", power / 10, power % 10);
	printf("| %-5d %-20s| %-14s| %-12s%-18d%-21s|\n", card, chip_name(), "OK", cell, temp,
	       "0    / 0");
	print_pair(pair, sizeof(pair), hbm.memory_usage, hbm.memory_size);
	printf("| %-26d| %-14s| %-12u%-18s%-21s|\n", 0, bus, load, "0    / 0", pair);
	puts(BAR);
}

static void print_processes(int card)
{
	struct sim_proc_usage rows[SIM_MAX_PROCS];
	int n = sim_state_procs(card, rows, SIM_MAX_PROCS);
	for (int i = 0; i < n; i++)
		printf("| %-8d%-18d| %-14d| %-25s| %-24llu|\n", card, 0, rows[i].pid, rows[i].name,
		       (unsigned long long)(rows[i].bytes >> 20));
	if (!n) {
		char text[64];
		snprintf(text, sizeof(text), "No running processes found in NPU %d", card);
		printf("| %-95s|\n", text);
	}
	puts(BAR);
}

static int info_all(void)
{
	int n = sim_device_count();
	puts(WIDE);
	printf("| %-95s|\n", "npu-smi sim-1.0                  Version: sim-1.0");
	puts(TOP);
	puts("| NPU   Name                | Health        | Power(W)    Temp(C)           "
	     "Hugepages-Usage(page)|");
	puts("| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  "
	     "HBM-Usage(MB)        |");
	puts(BAR);
	for (int i = 0; i < n; i++)
		print_chip(i);
	puts(TOP);
	puts("| NPU     Chip              | Process id    | Process name             | Process "
	     "memory(MB)      |");
	puts(BAR);
	for (int i = 0; i < n; i++)
		print_processes(i);
	return 0;
}

static void line(const char *key, unsigned long long value)
{
	printf("\t%-31s: %llu\n", key, value);
}

static int info_usages(int card)
{
	struct dcmi_hbm_info hbm = {0};
	unsigned load = 0;
	unsigned bandwidth = 0;
	(void)dcmi_get_device_hbm_info(card, 0, &hbm);
	(void)dcmi_get_device_utilization_rate(card, 0, DCMI_UTIL_AICORE, &load);
	(void)dcmi_get_device_utilization_rate(card, 0, DCMI_UTIL_HBM_BANDWIDTH, &bandwidth);
	line("NPU ID", (unsigned)card);
	line("Chip Count", 1);
	puts("");
	line("DDR Capacity(MB)", 0);
	line("DDR Usage Rate(%)", 0);
	line("DDR Hugepages Total(page)", 0);
	line("DDR Hugepages Usage Rate(%)", 0);
	line("HBM Capacity(MB)", hbm.memory_size);
	line("HBM Usage Rate(%)", hbm.memory_size ? hbm.memory_usage * 100 / hbm.memory_size : 0);
	line("Aicore Usage Rate(%)", load);
	line("Aivector Usage Rate(%)", load);
	line("Aicpu Usage Rate(%)", 0);
	line("Ctrlcpu Usage Rate(%)", 0);
	line("DDR Bandwidth Usage Rate(%)", 0);
	line("HBM Bandwidth Usage Rate(%)", bandwidth);
	line("NPU Utilization(%)", load);
	line("Chip ID", 0);
	return 0;
}

static int info_memory(int card)
{
	struct dcmi_hbm_info hbm = {0};
	(void)dcmi_get_device_hbm_info(card, 0, &hbm);
	line("NPU ID", (unsigned)card);
	line("Chip Count", 1);
	puts("");
	line("DDR Capacity(MB)", 0);
	line("DDR Clock Speed(MHz)", 0);
	line("HBM Capacity(MB)", hbm.memory_size);
	line("HBM Clock Speed(MHz)", hbm.freq);
	line("HBM Temperature(C)", (unsigned)hbm.temp);
	line("Chip ID", 0);
	return 0;
}

static int info_proc_mem(int card)
{
	struct sim_proc_usage rows[SIM_MAX_PROCS];
	int n = sim_state_procs(card, rows, SIM_MAX_PROCS);
	line("NPU ID", (unsigned)card);
	line("Chip Count", 1);
	puts("");
	for (int i = 0; i < n; i++)
		printf("\tProcess id:%d Process name:%s Process memory(MB):%llu\n", rows[i].pid,
		       rows[i].name, (unsigned long long)(rows[i].bytes >> 20));
	if (!n)
		puts("\tNo process in device");
	line("Chip ID", 0);
	return 0;
}

static int info_list(void)
{
	int n = sim_device_count();
	line("Total Count", (unsigned)n);
	for (int i = 0; i < n; i++) {
		puts("");
		line("NPU ID", (unsigned)i);
		printf("\t%-31s: Ascend%s\n", "Product Name", chip_name());
		printf("\t%-31s: SIM%08d\n", "Serial Number", i);
		line("Chip Count", 1);
	}
	return 0;
}

static int info_map(void)
{
	printf("\t%-31s%-31s%-31s%s\n", "NPU ID", "Chip ID", "Chip Logic ID", "Chip Name");
	for (int i = 0; i < sim_device_count(); i++)
		printf("\t%-31d%-31d%-31d%s %s\n", i, 0, i, "Ascend", chip_name());
	return 0;
}

static int usage(FILE *to)
{
	fputs("Usage: npu-smi info                       all chips and the processes on them\n"
	      "       npu-smi info -l | -m               list of NPUs, mapping of ids\n"
	      "       npu-smi info -t TYPE -i NPU        TYPE: usages, memory, proc-mem\n"
	      "       npu-smi -v | -h\n"
	      "The simulated machine; SIM_NPU_COUNT, SIM_NPU_HBM_MB and SIM_NPU_STATE say which.\n",
	      to);
	return to == stdout ? 0 : 1;
}

static int info_type(const char *type, int card)
{
	if (card < 0 || card >= sim_device_count()) {
		fprintf(stderr, "npu-smi: -i must name an NPU from 0 to %d\n",
			sim_device_count() - 1);
		return 1;
	}
	if (!strcmp(type, "usages"))
		return info_usages(card);
	if (!strcmp(type, "memory"))
		return info_memory(card);
	if (!strcmp(type, "proc-mem"))
		return info_proc_mem(card);
	fprintf(stderr, "npu-smi: type '%s' is not simulated\n", type);
	return 1;
}

static int info(int argc, char **argv)
{
	const char *type = NULL;
	int card = -1;
	int c;
	while ((c = getopt(argc, argv, "lmt:i:c:h")) != -1) {
		switch (c) {
		case 'l':
			return info_list();
		case 'm':
			return info_map();
		case 't':
			type = optarg;
			break;
		case 'i':
			card = atoi(optarg);
			break;
		case 'c':
			break; /* one chip per card */
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	}
	return type ? info_type(type, card) : info_all();
}

int main(int argc, char **argv)
{
	(void)dcmi_init();
	if (argc > 1 && !strcmp(argv[1], "info"))
		return info(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "-v"))
		return puts("npu-smi version: sim-1.0") < 0;
	if (argc > 1 && !strcmp(argv[1], "-h"))
		return usage(stdout);
	return usage(stderr);
}
