/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory and load are what the jobs left in the shared state; power and temperature follow the
 * load. */
#include "dcmi/dcmi.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "sim/state.h"

static _Atomic int ready;

static int check(int card, int device)
{
	if (!atomic_load(&ready))
		return DCMI_ERR_NOT_REDAY;
	if (card < 0 || card >= sim_device_count() || device != 0)
		return DCMI_ERR_DEVICE_NOT_EXIST;
	return DCMI_OK;
}

int dcmi_init(void)
{
	(void)sim_state_get();
	atomic_store(&ready, 1);
	return DCMI_OK;
}

int dcmi_get_card_list(int *out_num, int *out_list, int cap)
{
	if (!atomic_load(&ready))
		return DCMI_ERR_NOT_REDAY;
	if (!out_num || !out_list || cap <= 0)
		return DCMI_ERR_INVALID_PARAMETER;
	int n = sim_device_count();
	if (n > cap)
		n = cap;
	for (int i = 0; i < n; i++)
		out_list[i] = i;
	*out_num = n;
	return DCMI_OK;
}

int dcmi_get_device_num_in_card(int card, int *out_num)
{
	int r = check(card, 0);
	if (r)
		return r;
	*out_num = 1;
	return DCMI_OK;
}

int dcmi_get_device_logic_id(int *out_logic, int card, int device)
{
	int r = check(card, device);
	if (r)
		return r;
	*out_logic = card;
	return DCMI_OK;
}

static int load_of(int card)
{
	return (int)sim_state_util(card);
}

int dcmi_get_device_hbm_info(int card, int device, struct dcmi_hbm_info *out_info)
{
	int r = check(card, device);
	if (r)
		return r;
	*out_info = (struct dcmi_hbm_info){.memory_size = sim_hbm_bytes() >> 20,
					   .freq = 1600,
					   .memory_usage = sim_state_used(card) >> 20,
					   .temp = 38 + load_of(card) / 5,
					   .bandwith_util_rate = (unsigned)load_of(card) / 2};
	return DCMI_OK;
}

int dcmi_get_npu_proc_mem_info(int card, int device, struct dcmi_proc_mem_info *out_info,
			       int *out_num)
{
	int r = check(card, device);
	if (r)
		return r;
	struct sim_proc_usage rows[DCMI_MAX_PROCS];
	int n = sim_state_procs(card, rows, DCMI_MAX_PROCS);
	for (int i = 0; i < n; i++) {
		out_info[i].proc_id = rows[i].pid;
		out_info[i].proc_mem_usage = rows[i].bytes;
	}
	*out_num = n;
	return DCMI_OK;
}

int dcmi_get_device_utilization_rate(int card, int device, int type, unsigned int *out_rate)
{
	int r = check(card, device);
	if (r)
		return r;
	switch (type) {
	case DCMI_UTIL_MEMORY:
	case DCMI_UTIL_HBM:
		*out_rate = (unsigned)(sim_state_used(card) * 100 / sim_hbm_bytes());
		return DCMI_OK;
	case DCMI_UTIL_AICORE:
	case DCMI_UTIL_VECTOR:
	case DCMI_UTIL_NPU:
		*out_rate = (unsigned)load_of(card);
		return DCMI_OK;
	case DCMI_UTIL_MEM_BANDWIDTH:
	case DCMI_UTIL_HBM_BANDWIDTH:
		*out_rate = (unsigned)load_of(card) / 2;
		return DCMI_OK;
	case DCMI_UTIL_AICPU:
	case DCMI_UTIL_CTRLCPU:
		*out_rate = 0;
		return DCMI_OK;
	default: /* DDR: these chips have none */
		return DCMI_ERR_NOT_SUPPORT;
	}
}

int dcmi_get_device_chip_info(int card, int device, struct dcmi_chip_info *out_info)
{
	const char *soc = sim_soc_name();
	int r = check(card, device);
	if (r)
		return r;
	*out_info =
		(struct dcmi_chip_info){.chip_type = "Ascend", .chip_ver = "V1", .aicore_cnt = 20};
	snprintf((char *)out_info->chip_name, sizeof(out_info->chip_name), "%s",
		 strncmp(soc, "Ascend", 6) ? soc : soc + 6);
	return DCMI_OK;
}

int dcmi_get_device_health(int card, int device, unsigned int *out_health)
{
	int r = check(card, device);
	if (!r)
		*out_health = 0;
	return r;
}

int dcmi_get_device_power_info(int card, int device, int *out_tenth_watts)
{
	int r = check(card, device);
	if (!r)
		*out_tenth_watts = 920 + 25 * load_of(card) + card;
	return r;
}

int dcmi_get_device_temperature(int card, int device, int *out_celsius)
{
	int r = check(card, device);
	if (!r)
		*out_celsius = 36 + load_of(card) / 4;
	return r;
}
