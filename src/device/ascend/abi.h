/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The entry points of the Ascend driver, runtime, profiling and mstx libraries that are used or
 * interposed here. No vendor header is needed; everything is looked up at run time.
 */
#ifndef SONDE_DEVICE_ASCEND_ABI_H
#define SONDE_DEVICE_ASCEND_ABI_H

#include <stddef.h>
#include <stdint.h>

/* --- driver: libascend_hal.so --- */

#define DRV_OUT_OF_MEMORY 6
#define DRV_NOT_SUPPORTED 0xfffe
#define DRV_RESERVED 0xffff

/* Flag word of halMemAlloc. */
#define HAL_FLAG_DEVICE(f) ((uint16_t)((f)&0x3ff))
#define HAL_FLAG_VIRT(f) ((unsigned)((f) >> 10 & 0xf)) /* enum hal_virt */
#define HAL_FLAG_HUGE(f) ((unsigned)((f) >> 17 & 1))
#define HAL_FLAG_GIANT(f) ((unsigned)((f) >> 31 & 1))
#define HAL_FLAG_MODULE(f) ((uint8_t)((f) >> 56))

enum hal_virt { HAL_VIRT_SVM = 0, HAL_VIRT_DEV = 1, HAL_VIRT_HOST = 2, HAL_VIRT_DVPP = 3 };

struct drv_mem_prop {
	uint32_t side; /* 0 host, 1 device */
	uint32_t devid;
	uint32_t module_id;
	uint32_t pg_type; /* enum rec_page */
	uint32_t mem_type;
	uint64_t reserve;
};
_Static_assert(sizeof(struct drv_mem_prop) == 32, "drv_mem_prop changed size");

struct drv_mem_handle;

int halMemAlloc(void **pp, unsigned long long size, unsigned long long flag);
int halMemFree(void *pp);
int halMemCreate(struct drv_mem_handle **handle, size_t size, const struct drv_mem_prop *prop,
		 uint64_t flag);
int halMemRelease(struct drv_mem_handle *handle);

/* halGetDeviceInfo(device, 0, info, &value) */
#define HAL_INFO_COUNTER 13 /* the device's free-running counter, now */
#define HAL_INFO_FREQUENCY 25 /* of that counter: MHz or kHz, by driver version */

/* The channel on which the device reports when tasks begin and end. */
#define PROF_CHANNEL_STARS 50

struct prof_start_para {
	int32_t channel_type;
	uint32_t period;
	uint32_t real_time;
	void *config;
	uint32_t config_bytes;
};
_Static_assert(offsetof(struct prof_start_para, config) == 16, "prof_start_para changed");
_Static_assert(offsetof(struct prof_start_para, config_bytes) == 24, "prof_start_para changed");

/* Words of the STARS configuration; older chips take only the first nine. */
#define STARS_CONFIG_ACSQ 0
#define STARS_CONFIG_FFTS 6
#define STARS_CONFIG_WORDS 11
#define STARS_CONFIG_WORDS_OLD 9

struct prof_driver {
	int (*start)(unsigned device, unsigned channel, struct prof_start_para *para);
	int (*read)(unsigned device, unsigned channel, char *buf, unsigned size);
	int (*stop)(unsigned device, unsigned channel);
	int (*info)(uint32_t device, int32_t module, int32_t info, int64_t *out); /* or NULL */
};

/* --- ACL: libascendcl.so and its implementation library --- */

#define ACL_ERROR_NOT_FOUND 500000
#define ACL_ERROR_LAUNCH 500003
#define ACL_HOST_REG_PINNED 0x10000000u

int aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag);
int aclrtHostUnregister(void *ptr);
int aclInit(const char *config);
int aclFinalize(void);
int aclrtSetDevice(int32_t device);
int aclrtLaunchKernelImpl(void *fn, uint32_t blocks, const void *args, size_t n, void *stream);
int aclrtLaunchKernelV2Impl(void *fn, uint32_t blocks, const void *args, size_t n, void *cfg,
			    void *stream);
int aclrtLaunchKernelWithConfig(void *fn, uint32_t blocks, void *stream, void *cfg, void *args,
				void *reserve);
int aclrtLaunchKernelWithHostArgs(void *fn, uint32_t blocks, void *stream, void *cfg, void *args,
				  size_t n, void *holders, size_t nholders);

/* --- runtime: libruntime.so --- */

#define RT_ERROR_RESERVED 0x99

int rtKernelLaunch(const void *stub, uint32_t blocks, void *args, uint32_t n, void *desc,
		   void *stream);
int rtKernelLaunchWithHandleV2(void *handle, uint64_t key, uint32_t blocks, void *args, void *desc,
			       void *stream, const void *cfg);
int rtKernelLaunchWithFlagV2(const void *stub, uint32_t blocks, void *args, void *desc,
			     void *stream, uint32_t flags, const void *cfg);
int rtAicpuKernelLaunchExWithArgs(uint32_t type, const char *op, uint32_t blocks, const void *args,
				  void **desc, void *stream, uint32_t flags);
int rtLaunchKernelByFuncHandle(void *fn, uint32_t blocks, void *args, void *stream);
int rtLaunchKernelByFuncHandleV2(void *fn, uint32_t blocks, void *args, void *stream,
				 const void *cfg);

/* --- profiling: libprofapi.so --- */

enum prof_callback { PROF_CB_COMPACT = 4, PROF_CB_API = 9, PROF_CB_HASH = 12 };

#define PROF_MAGIC 0x5a5a
#define PROF_LEVEL_RUNTIME 5000
#define PROF_TYPE_TASK_TRACK 802
#define PROF_TYPE_STREAM_EXPAND 804 /* bytes[0]: stream ids are packed the new way */

struct prof_task_track {
	uint16_t device;
	uint16_t stream;
	uint32_t task; /* low 16 bits: task id */
	uint64_t type;
	uint64_t name_hash;
};

struct prof_compact {
	uint16_t magic;
	uint16_t level;
	uint32_t type;
	uint32_t tid;
	uint32_t len;
	uint64_t time;
	union {
		struct prof_task_track task;
		uint8_t bytes[40];
	};
};
_Static_assert(sizeof(struct prof_compact) == 64, "prof_compact changed size");

#define PROF_COMMAND_START 1
#define PROF_SWITCH_TASKS (0x800ull | 0x4000000ull)

struct prof_command {
	uint64_t switches;
	uint64_t switches_high;
	uint32_t ndevices;
	uint32_t devices[64];
	uint32_t model;
	uint32_t type;
	uint32_t cache;
	uint8_t params[5136];
};
_Static_assert(sizeof(struct prof_command) == 5424, "prof_command changed size");
_Static_assert(offsetof(struct prof_command, model) == 276, "prof_command changed");

/* --- ATB: libatb.so, C++ --- */

struct atb_tensor {
	int32_t dtype;
	int32_t format;
	int64_t dims[8];
	uint64_t ndims;
	void *device;
	void *host;
	uint64_t bytes;
};
_Static_assert(sizeof(struct atb_tensor) == 104, "atb_tensor changed size");

/* atb::SVector<Tensor>: the elements are at `heap` if that is set. */
#define ATB_INLINE_TENSORS 65
struct atb_tensors {
	uint64_t capacity;
	uint64_t size;
	struct atb_tensor inline_data[ATB_INLINE_TENSORS];
	struct atb_tensor *heap;
};
_Static_assert(sizeof(struct atb_tensors) == 6784, "atb_tensors changed size");

/* atb::RunnerVariantPack as far as it is the same in all versions. */
struct atb_pack {
	struct atb_tensors in;
	struct atb_tensors out;
	uint8_t between[216];
	void *workspace;
	uint64_t workspace_bytes;
	void *intermediate;
	uint64_t intermediate_bytes;
};
_Static_assert(offsetof(struct atb_pack, workspace) == 13784, "atb_pack changed");
_Static_assert(offsetof(struct atb_pack, intermediate_bytes) == 13808, "atb_pack changed");

#define MKI_DIMS 48
struct mki_tensor {
	int32_t dtype;
	int32_t format;
	int64_t dims[MKI_DIMS];
	uint64_t between;
	uint64_t ndims;
	void *strides[3];
	int64_t offset;
	void *data;
	uint64_t bytes;
	void *host;
};
_Static_assert(sizeof(struct mki_tensor) == 464, "mki_tensor changed size");
_Static_assert(offsetof(struct mki_tensor, ndims) == 400, "mki_tensor changed");
_Static_assert(offsetof(struct mki_tensor, data) == 440, "mki_tensor changed");

#define MKI_TENSORS 49
struct mki_tensors {
	struct mki_tensor data[MKI_TENSORS];
	uint64_t count;
};
_Static_assert(offsetof(struct mki_tensors, count) == 22736, "mki_tensors changed");

/*
 * std::string as libstdc++ lays it out. Old ABI: one pointer to the characters, this in front of
 * them. Both are returned through a hidden pointer, and a C struct of 32 bytes is too on every
 * machine: declared so, one prototype fits both.
 */
struct cxx_string {
	char *data;
	size_t size;
	size_t rest[2];
};
struct cxx_old_head {
	size_t size;
	size_t capacity;
	int32_t references; /* besides this one */
};

/* --- mstx --- */

enum mstx_module { MSTX_CORE = 1, MSTX_DOMAIN = 2, MSTX_MEMORY = 3 };

typedef void (*mstx_slot)(void);
typedef int (*mstx_get_table)(int module, mstx_slot ***out_table, unsigned *out_size);

struct mstx_range_desc {
	uint32_t device;
	const void *ptr;
	int64_t size;
};
struct mstx_heap_desc {
	int32_t usage;
	int32_t type;
	const struct mstx_range_desc *desc;
};
struct mstx_regions {
	void *heap;
	int32_t type;
	size_t count;
	const struct mstx_range_desc *desc;
	void **out_handles;
};
struct mstx_region_ref {
	int32_t type; /* 0 pointer, 1 handle */
	const void *ptr;
};
struct mstx_region_refs {
	size_t count;
	const struct mstx_region_ref *ref;
};
_Static_assert(sizeof(struct mstx_range_desc) == 24, "mstx_range_desc changed size");
_Static_assert(sizeof(struct mstx_heap_desc) == 16, "mstx_heap_desc changed size");
_Static_assert(sizeof(struct mstx_regions) == 40, "mstx_regions changed size");
_Static_assert(sizeof(struct mstx_region_ref) == 16, "mstx_region_ref changed size");
_Static_assert(sizeof(struct mstx_region_refs) == 16, "mstx_region_refs changed size");

int InitInjectionMstx(mstx_get_table get_table);

#endif
