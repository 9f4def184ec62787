/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Device management: every simulated card carries one chip, and card n is logical device n. */
#ifndef SONDE_SIM_DCMI_H
#define SONDE_SIM_DCMI_H

#include <stddef.h>
#include <stdint.h>

#define DCMI_OK 0
#define DCMI_ERR_INVALID_PARAMETER (-8001)
#define DCMI_ERR_NOT_REDAY (-8012) /* the vendor's spelling */
#define DCMI_ERR_DEVICE_NOT_EXIST (-8013)
#define DCMI_ERR_NOT_SUPPORT (-8255)

#define DCMI_MAX_CARDS 32
#define DCMI_MAX_PROCS 64

struct dcmi_hbm_info {
	unsigned long long memory_size; /* MB */
	unsigned int freq; /* MHz */
	unsigned long long memory_usage; /* MB */
	int temp;
	unsigned int bandwith_util_rate; /* the vendor's spelling */
};

struct dcmi_proc_mem_info {
	int proc_id;
	unsigned long proc_mem_usage; /* bytes */
};

struct dcmi_chip_info {
	unsigned char chip_type[32]; /* "Ascend" */
	unsigned char chip_name[32]; /* "910B3" */
	unsigned char chip_ver[32];
	unsigned int aicore_cnt;
};

_Static_assert(sizeof(struct dcmi_chip_info) == 100, "vendor layout");
_Static_assert(offsetof(struct dcmi_hbm_info, memory_usage) == 16, "vendor layout");
_Static_assert(offsetof(struct dcmi_hbm_info, temp) == 24, "vendor layout");
_Static_assert(offsetof(struct dcmi_hbm_info, bandwith_util_rate) == 28, "vendor layout");
_Static_assert(offsetof(struct dcmi_proc_mem_info, proc_mem_usage) == 8, "vendor layout");

enum dcmi_utilization {
	DCMI_UTIL_MEMORY = 1,
	DCMI_UTIL_AICORE = 2,
	DCMI_UTIL_AICPU = 3,
	DCMI_UTIL_CTRLCPU = 4,
	DCMI_UTIL_MEM_BANDWIDTH = 5,
	DCMI_UTIL_HBM = 6,
	DCMI_UTIL_DDR = 8,
	DCMI_UTIL_HBM_BANDWIDTH = 10,
	DCMI_UTIL_VECTOR = 12,
	DCMI_UTIL_NPU = 13,
};

/* Everything else answers DCMI_ERR_NOT_REDAY until this was called. */
int dcmi_init(void);
int dcmi_get_card_list(int *out_num, int *out_list, int cap);
int dcmi_get_device_num_in_card(int card, int *out_num);
int dcmi_get_device_logic_id(int *out_logic, int card, int device);
int dcmi_get_device_hbm_info(int card, int device, struct dcmi_hbm_info *out_info);
/* @out_info has room for DCMI_MAX_PROCS. */
int dcmi_get_npu_proc_mem_info(int card, int device, struct dcmi_proc_mem_info *out_info,
			       int *out_num);
int dcmi_get_device_utilization_rate(int card, int device, int type, unsigned int *out_rate);
int dcmi_get_device_chip_info(int card, int device, struct dcmi_chip_info *out_info);
int dcmi_get_device_health(int card, int device, unsigned int *out_health);
int dcmi_get_device_power_info(int card, int device, int *out_tenth_watts);
int dcmi_get_device_temperature(int card, int device, int *out_celsius);

#endif
