/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * ATB seen from C: the layouts that tools read and the mangled names that they replace.
 *
 * The library is C++; here its functions are C functions that carry the mangled names. Strings that
 * C++ returns by value become the structs below, which have libstdc++'s layout (new ABI on every
 * machine; the old one only on x86-64, where the hidden result pointer can be written as a first
 * parameter).
 */
#ifndef SONDE_SIM_ATB_H
#define SONDE_SIM_ATB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct atb_tensor {
	int32_t dtype;
	int32_t format;
	int64_t dims[8];
	uint64_t dim_num;
	void *device;
	void *host;
	uint64_t bytes;
};

/* atb::SVector<Tensor>: data is heap when that is not NULL. */
struct atb_tensors {
	uint64_t capacity;
	uint64_t size;
	struct atb_tensor inline_data[65];
	struct atb_tensor *heap;
};

struct atb_bools {
	uint64_t capacity;
	uint64_t size;
	bool inline_data[65];
	bool *heap;
};

struct atb_variant_pack {
	struct atb_tensors in;
	struct atb_tensors out;
	struct atb_bools in_flags;
	struct atb_bools out_flags;
	uint8_t tiling[24];
	void *workspace;
	uint64_t workspace_bytes;
	void *intermediate;
	uint64_t intermediate_bytes;
	void *context; /* newer versions: args_device, then args_host, then the context */
	void *newer_args_host;
	void *newer_context;
};

struct mki_tensor {
	int32_t dtype;
	int32_t format;
	int64_t dims[48];
	uint64_t dims_pad;
	uint64_t dim_count;
	void *strides[3]; /* std::vector */
	int64_t offset;
	void *data;
	size_t bytes;
	void *host;
};

struct mki_tensors {
	struct mki_tensor data[49];
	size_t count;
};

struct cxx11_string {
	char *data;
	size_t size;
	size_t capacity;
	size_t unused;
};

_Static_assert(sizeof(struct atb_tensor) == 104, "vendor layout");
_Static_assert(offsetof(struct atb_tensor, device) == 80, "vendor layout");
_Static_assert(sizeof(struct atb_tensors) == 6784, "vendor layout");
_Static_assert(sizeof(struct atb_bools) == 96, "vendor layout");
_Static_assert(offsetof(struct atb_variant_pack, workspace) == 13784, "vendor layout");
_Static_assert(offsetof(struct atb_variant_pack, context) == 13816, "vendor layout");
_Static_assert(offsetof(struct atb_variant_pack, newer_context) == 13832, "vendor layout");
_Static_assert(sizeof(struct mki_tensor) == 464, "vendor layout");
_Static_assert(offsetof(struct mki_tensor, dim_count) == 400, "vendor layout");
_Static_assert(offsetof(struct mki_tensor, data) == 440, "vendor layout");
_Static_assert(offsetof(struct mki_tensors, count) == 22736, "vendor layout");

struct atb_runner; /* opaque to tools */
struct mki_launch_param;

int32_t _ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE(struct atb_runner *self,
							struct atb_variant_pack *pack);
bool _ZNK3atb6Runner12IsSaveTensorEv(const struct atb_runner *self);
void *_ZNK3atb6Runner16GetExecuteStreamEPNS_7ContextE(const struct atb_runner *self, void *context);
struct cxx11_string _ZNK3atb6Runner16GetOperationNameB5cxx11Ev(const struct atb_runner *self);
struct cxx11_string _ZNK3atb6Runner16GetSaveTensorDirB5cxx11Ev(const struct atb_runner *self);
struct mki_tensors *_ZN3Mki11LaunchParam12GetInTensorsEv(struct mki_launch_param *self);
struct mki_tensors *_ZN3Mki11LaunchParam13GetOutTensorsEv(struct mki_launch_param *self);
#ifdef __x86_64__
void *_ZNK3atb6Runner16GetOperationNameEv(void **out, const struct atb_runner *self);
void *_ZNK3atb6Runner16GetSaveTensorDirEv(void **out, const struct atb_runner *self);
#endif

/* Strings come as references: a pointer to a std::string of the ABI in the name. */
void _ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKSs(
	void *stream, const struct mki_launch_param *param, const void *dir);
void _ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(
	void *stream, const struct mki_launch_param *param, const void *dir);
bool _ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKSs(const void *ids, const void *name);
bool _ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(
	const void *ids, const void *name);
bool _ZN3atb5Probe17IsSaveTensorAfterEv(void);
bool _ZN3atb5Probe18IsSaveTensorBeforeEv(void);
bool _ZN3atb5Probe21IsExecuteCountInRangeEm(uint64_t count);
bool _ZN3atb5Probe16IsSaveTensorDescEv(void);

/* Not the vendor's: runs one operator of one kernel through Runner::Execute. */
struct sim_atb_call {
	const char *name;
	void *kernel; /* from sim_kernel_register() */
	const char *kernel_name;
	const struct atb_tensor *in;
	size_t in_count;
	const struct atb_tensor *out;
	size_t out_count;
	void *workspace;
	uint64_t workspace_bytes;
	const void *args;
	size_t args_bytes;
	void *stream;
};
/* 0 or ATB's error; tensors beyond 48 are ignored. */
int sim_atb_execute(const struct sim_atb_call *call);

#endif
