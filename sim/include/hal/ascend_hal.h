/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The part of the driver's interface that memory tools meet: names, flag words and codes as
 * documented. */
#ifndef SONDE_SIM_HAL_H
#define SONDE_SIM_HAL_H

#include <stddef.h>
#include <stdint.h>

enum {
	DRV_ERROR_NONE = 0,
	DRV_ERROR_INVALID_DEVICE = 2,
	DRV_ERROR_INVALID_VALUE = 3,
	DRV_ERROR_INVALID_MALLOC_TYPE = 5,
	DRV_ERROR_OUT_OF_MEMORY = 6,
	DRV_ERROR_PARA_ERROR = 8,
	DRV_ERROR_NOT_SUPPORT = 0xfffe,
	DRV_ERROR_RESERVED = 0xffff,
};

/* The flag word of halMemAlloc. */
#define HAL_FLAG_DEVICE_MASK 0x3ffull
#define HAL_FLAG_VIRT_SHIFT 10
#define HAL_FLAG_VIRT_MASK 0xfull
#define HAL_FLAG_HBM (1ull << 14)
#define HAL_FLAG_PAGE_SHIFT 17
#define HAL_FLAG_PAGE_MASK 0x3ull
#define HAL_FLAG_HUGE (1ull << 17)
#define HAL_FLAG_GIANT (1ull << 31)
#define HAL_FLAG_MODULE_SHIFT 56

enum hal_virt_type {
	HAL_VIRT_SVM = 0,
	HAL_VIRT_DEV = 1,
	HAL_VIRT_HOST = 2,
	HAL_VIRT_DVPP = 3,
	HAL_VIRT_HOST_AGENT = 4,
};

enum hal_module { HAL_MODULE_HCCL = 3, HAL_MODULE_RUNTIME = 7, HAL_MODULE_APP = 33 };

struct drv_mem_handle;

struct drv_mem_prop {
	uint32_t side; /* 0 host, 1 device */
	uint32_t devid;
	uint32_t module_id;
	uint32_t pg_type; /* 0 normal, 1 huge, 2 giant */
	uint32_t mem_type;
	uint64_t reserve;
};

_Static_assert(sizeof(struct drv_mem_prop) == 32, "vendor layout");
_Static_assert(offsetof(struct drv_mem_prop, reserve) == 24, "vendor layout");

int halMemAlloc(void **pp, unsigned long long size, unsigned long long flag);
int halMemFree(void *pp);
int halMemCreate(struct drv_mem_handle **handle, size_t size, const struct drv_mem_prop *prop,
		 uint64_t flag);
int halMemRelease(struct drv_mem_handle *handle);
int halMemAllocInner(void **pp, unsigned long long size, unsigned long long flag);
int halMemFreeInner(void *pp);
int halMemCreateInner(struct drv_mem_handle **handle, size_t size, const struct drv_mem_prop *prop,
		      uint64_t flag);
int halMemReleaseInner(struct drv_mem_handle *handle);

#define HAL_INFO_SYS_COUNT 13 /* the device's free-running counter, now */
#define HAL_INFO_OSC_FREQ 25 /* its frequency in kHz */
int halGetDeviceInfo(uint32_t device, int32_t module, int32_t info, int64_t *out_value);

/* The STARS channel: one record when a task begins on the device and one when it ends. */
#define HAL_CHANNEL_STARS 50
#define HAL_PROF_STOPPED (-4)

struct prof_start_para {
	int32_t channel_type;
	uint32_t sample_period;
	uint32_t real_time;
	void *user_data;
	uint32_t user_data_size;
};

struct stars_config {
	uint32_t acsq_task;
	uint32_t reserved0[5];
	uint32_t ffts_thread_task;
	uint32_t reserved1[4]; /* the last two only on 950/960 chips */
};

/* 64 bytes on A2/A3 chips. */
struct stars_record {
	uint32_t func_type : 6; /* 0 begin, 1 end */
	uint32_t count : 4;
	uint32_t sqe_type : 6;
	uint32_t magic : 16;
	uint16_t stream_id;
	uint16_t task_id;
	uint32_t counter_lo;
	uint32_t counter_hi;
	uint32_t reserved[12];
};

/* 32 bytes on 950/960 chips. */
struct stars_record_short {
	uint32_t head;
	uint32_t task_id;
	uint64_t counter;
	uint32_t reserved[4];
};

_Static_assert(offsetof(struct prof_start_para, user_data) == 16, "vendor layout");
_Static_assert(offsetof(struct prof_start_para, user_data_size) == 24, "vendor layout");
_Static_assert(sizeof(struct stars_config) == 44, "vendor layout");
_Static_assert(sizeof(struct stars_record) == 64, "vendor layout");
_Static_assert(sizeof(struct stars_record_short) == 32, "vendor layout");

int prof_drv_start(unsigned device, unsigned channel, struct prof_start_para *para);
/* Bytes read; 0 when nothing came for 20 ms; HAL_PROF_STOPPED once stopped and drained. */
int prof_channel_read(unsigned device, unsigned channel, char *out_buf, unsigned size);
int prof_stop(unsigned device, unsigned channel);

/* For the other libraries of the simulator, not the vendor's. */
uint64_t sim_hal_counter(uint64_t mono_ns);
/* One task's begin and end; costs one load while the channel is off. */
void sim_stars_task(int device, int stream_id, int task_id, uint64_t begin_ns, uint64_t end_ns);
/* Whether the bytes can be touched (false with SIM_NPU_NOBACK=1 and for foreign addresses). */
int sim_hal_backed(const void *ptr);
/* Nonzero when @ptr lies in the simulated device address space. */
int sim_hal_is_device(const void *ptr);
/* Bytes reserved for the live block that starts at @ptr, 0 when there is none. */
size_t sim_hal_block_bytes(const void *ptr);

#endif
