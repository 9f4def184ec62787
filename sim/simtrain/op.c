/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Operators. Each has a kernel that mixes the first bytes of its inputs into its outputs, so that
 * the job's result depends on every tensor having kept its content, and a launch function, so that
 * between them the operators use every one the runtime has.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "acl/acl.h"
#include "atb/atb.h"
#include "hal/ascend_hal.h"
#include "hccl/hccl.h"
#include "mstx/ms_tools_ext.h"
#include "rank.h"
#include "runtime/rt.h"
#include "sim/kernel.h"

#define MIX_BYTES 64
#define ATEN_PREFIX "torch._ops."

enum launch_path {
	PATH_ACL,
	PATH_ACL_V2,
	PATH_ACL_CONFIG,
	PATH_ACL_HOST_ARGS,
	PATH_RT,
	PATH_RT_HANDLE,
	PATH_RT_FLAG,
	PATH_RT_FUNC,
	PATH_RT_AICPU,
};

struct op_args {
	uint32_t in_count;
	uint32_t out_count;
	void *in[OP_TENSORS];
	void *out[OP_TENSORS];
	uint64_t first_out_bytes;
	uint64_t overrun;
};

static struct op_kind {
	const char *aten;
	const char *kernel;
	uint64_t duration_ns;
	enum launch_path path;
	size_t workspace;
	void *handle;
	char bad_name[64]; /* --bad-names */
} kinds[] = {
	{"aten.embedding.default", "EmbeddingDenseV2", 80000, PATH_ACL, 0, NULL, ""},
	{"aten.mm.default", "MatMulV2", 250000, PATH_ACL, 256 << 10, NULL, ""},
	{"aten.bmm.default", "BatchMatMulV2", 200000, PATH_ACL_V2, 512 << 10, NULL, ""},
	{"npu.npu_fusion_attention.default", "FlashAttentionScore", 400000, PATH_ACL_CONFIG,
	 2 << 20, NULL, ""},
	{"aten.gelu.default", "Gelu", 60000, PATH_ACL_HOST_ARGS, 0, NULL, ""},
	{"aten.add.Tensor", "Add", 40000, PATH_RT, 0, NULL, ""},
	{"aten.native_layer_norm.default", "LayerNormV4", 70000, PATH_RT_HANDLE, 0, NULL, ""},
	{"aten.mm_backward.default", "MatMulV2Grad", 350000, PATH_RT_FLAG, 1 << 20, NULL, ""},
	{"aten._fused_adamw_.default", "ApplyAdamW", 120000, PATH_RT_FUNC, 0, NULL, ""},
	{"c10d.allreduce_.default", "hcom_allReduce_", 300000, PATH_RT_AICPU, 0, NULL, ""},
	{"aten.nll_loss_forward.default", "NLLLoss", 50000, PATH_ACL, 0, NULL, ""},
	{"aten.mul_.Scalar", "Muls", 30000, PATH_RT, 0, NULL, ""},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static uint64_t mix(uint64_t h, uint64_t v)
{
	h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
	return h * 0xff51afd7ed558ccdull;
}

/* Runs on the device's thread. */
static void mix_tensors(const void *args, size_t size)
{
	const struct op_args *a = args;
	if (size < sizeof(*a) || !a->out_count || !sim_hal_backed(a->out[0]))
		return;
	uint64_t h = 0x243f6a8885a308d3ull;
	for (uint32_t i = 0; i < a->in_count; i++) {
		uint64_t words[MIX_BYTES / 8];
		memcpy(words, a->in[i], sizeof(words));
		for (int w = 0; w < MIX_BYTES / 8; w++)
			h = mix(h, words[w]);
	}
	for (uint32_t i = 0; i < a->out_count; i++)
		for (uint64_t w = 0; w < MIX_BYTES / 8; w++) {
			uint64_t v = mix(h, w + i * 8);
			memcpy((char *)a->out[i] + w * 8, &v, 8);
		}
	if (a->overrun)
		memset((char *)a->out[0] + a->first_out_bytes, 0xee, a->overrun);
}

static const char *kernel_name(const struct op_kind *k)
{
	return k->bad_name[0] ? k->bad_name : k->kernel;
}

/* Collectives of a job of ranks are libhccl's. */
void ops_register(const struct train_options *o)
{
	for (size_t i = 0; i < KINDS; i++) {
		struct op_kind *k = &kinds[i];
		if (k->path == PATH_RT_AICPU && o->ranks)
			continue;
		if (o->bad_names && k->path != PATH_RT_AICPU)
			snprintf(k->bad_name, sizeof(k->bad_name), "%s\xff\xc3(\xe2\x82",
				 k->kernel);
		k->handle = sim_kernel_register(kernel_name(k), k->duration_ns, mix_tensors);
	}
}

int ops_slow(const char *kernel, double factor)
{
	for (size_t i = 0; i < KINDS; i++)
		if (!strcmp(kinds[i].kernel, kernel) && kinds[i].path != PATH_RT_AICPU) {
			sim_kernel_slow(kernel_name(&kinds[i]), factor);
			return 0;
		}
	return -1;
}

static const struct op_kind *find_kind(const char *name)
{
	for (size_t i = 0; i < KINDS; i++)
		if (!strcmp(kinds[i].aten, name))
			return &kinds[i];
	return &kinds[KINDS - 1];
}

static int launch_acl(const struct op_kind *k, struct op_args *a, void *stream)
{
	struct sim_launch_args handle = {a, sizeof(*a)};
	switch (k->path) {
	case PATH_ACL_V2:
		return aclrtLaunchKernelV2(k->handle, 8, a, sizeof(*a), NULL, stream);
	case PATH_ACL_CONFIG:
		return aclrtLaunchKernelWithConfig(k->handle, 8, stream, NULL, &handle, NULL);
	case PATH_ACL_HOST_ARGS:
		return aclrtLaunchKernelWithHostArgs(k->handle, 8, stream, NULL, a, sizeof(*a),
						     NULL, 0);
	default:
		return aclrtLaunchKernel(k->handle, 8, a, sizeof(*a), stream);
	}
}

static int launch(const struct op_kind *k, struct op_args *a, void *stream)
{
	struct rtArgsEx ex = {.args = a, .argsSize = sizeof(*a)};
	struct sim_launch_args handle = {a, sizeof(*a)};
	switch (k->path) {
	case PATH_RT:
		return rtKernelLaunch(k->handle, 8, a, sizeof(*a), NULL, stream);
	case PATH_RT_HANDLE:
		return rtKernelLaunchWithHandleV2(k->handle, 0, 8, &ex, NULL, stream, NULL);
	case PATH_RT_FLAG:
		return rtKernelLaunchWithFlagV2(k->handle, 8, &ex, NULL, stream, 0, NULL);
	case PATH_RT_FUNC:
		return rtLaunchKernelByFuncHandle(k->handle, 8, &handle, stream);
	case PATH_RT_AICPU:
		return rtAicpuKernelLaunchExWithArgs(0, k->kernel, 1, &ex, NULL, stream, 0);
	default:
		return launch_acl(k, a, stream);
	}
}

static void mark_access(const struct rank *r, const struct op *op, const struct tensor *t,
			int write, int output)
{
	char text[512];
	snprintf(text, sizeof(text),
		 "memscope-aten-ac:ptr=%" PRIuPTR
		 ";is_write=%s;is_read=%s;is_output=%s;name=" ATEN_PREFIX
		 "%s;shape=torch.Size([%zu, 64]);dtype=torch.float16;tensor_size=%zu;device=npu:%d",
		 (uintptr_t)t->ptr, write ? "True" : "False", write ? "False" : "True",
		 output ? "True" : "False", op->name, t->bytes / 128, t->bytes, r->device);
	mstxMarkA(text, NULL);
}

static void mark_edge(const struct op *op, char edge)
{
	char text[256];
	snprintf(text, sizeof(text), "memscope-aten-%c: name=" ATEN_PREFIX "%s", edge, op->name);
	mstxMarkA(text, NULL);
}

static void mark_tensors(const struct rank *r, const struct op *op, int outputs)
{
	const struct tensor *const *list = outputs ? op->out : op->in;
	for (int i = 0; i < OP_TENSORS && list[i]; i++)
		mark_access(r, op, list[i], outputs, outputs);
}

/* torch_npu keeps one workspace per stream and exchanges it for a larger one when an operator asks.
 */
static void __attribute__((noinline)) ensure_workspace(struct rank *r, size_t bytes)
{
	if (!r->workspace_pool || r->workspace.bytes >= bytes)
		return;
	if (r->workspace.ptr)
		(void)sim_pool_dealloc(r->workspace_pool, r->workspace.ptr);
	r->workspace.ptr = sim_pool_alloc(r->workspace_pool, bytes);
	r->workspace.bytes = r->workspace.ptr ? bytes : 0;
}

static void run_atb(struct rank *r, const struct op *op, const struct op_kind *k, struct op_args *a)
{
	struct atb_tensor t[2][OP_TENSORS];
	size_t n[2] = {a->in_count, a->out_count};
	memset(t, 0, sizeof(t));
	for (int side = 0; side < 2; side++)
		for (size_t i = 0; i < n[side]; i++) {
			const struct tensor *from = side ? op->out[i] : op->in[i];
			t[side][i] = (struct atb_tensor){.dtype = 1,
							 .format = 2,
							 .dims = {(int64_t)from->bytes / 128, 64},
							 .dim_num = 2,
							 .device = from->ptr,
							 .bytes = from->bytes};
		}
	struct sim_atb_call call = {.name = k->kernel,
				    .kernel = k->handle,
				    .kernel_name = k->kernel,
				    .in = t[0],
				    .in_count = n[0],
				    .out = t[1],
				    .out_count = n[1],
				    .args = a,
				    .args_bytes = sizeof(*a),
				    .stream = r->stream};
	(void)sim_atb_execute(&call);
}

void __attribute__((noinline)) op_run(struct rank *r, const struct op *op)
{
	const struct op_kind *k = find_kind(op->name);
	struct op_args a = {0};
	for (; a.in_count < OP_TENSORS && op->in[a.in_count]; a.in_count++)
		a.in[a.in_count] = op->in[a.in_count]->ptr;
	for (; a.out_count < OP_TENSORS && op->out[a.out_count]; a.out_count++)
		a.out[a.out_count] = op->out[a.out_count]->ptr;
	if (a.out_count)
		a.first_out_bytes = op->out[0]->bytes;
	a.overrun = op->overrun;
	ensure_workspace(r, k->workspace);
	if (r->opt->aten) {
		mark_edge(op, 'b');
		mark_tensors(r, op, 0);
	}
	if (r->comm && k->path == PATH_RT_AICPU)
		(void)HcclAllReduce(a.in[0], a.out[0], op->in[0]->bytes / 4, HCCL_DATA_TYPE_FP32,
				    HCCL_REDUCE_SUM, r->comm, r->stream);
	else if (r->opt->pool == TRAIN_ATB)
		run_atb(r, op, k, &a);
	else
		(void)launch(k, &a, r->stream);
	if (r->opt->aten) {
		mark_tensors(r, op, 1);
		mark_edge(op, 'e');
	}
}
