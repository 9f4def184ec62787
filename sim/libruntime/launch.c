/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Every launch function ends in launch(): number the task, tell the profiling library its name and
 * number, queue it. The report comes first, so that a tool has the name before the device can
 * answer.
 */
#include <string.h>

#include "prof/prof_api.h"
#include "runtime/rt.h"
#include "sim/feed.h"
#include "sim/state.h"
#include "stream.h"

#define TASK_TYPE_AICORE 0
#define TASK_TYPE_AICPU 1
#define TASK_TYPE_COPY 5
#define API_TYPE_LAUNCH 1000

struct launch {
	const struct sim_kernel *kernel;
	uint64_t task_type;
	const void *args;
	size_t size;
	void *stream;
	const char *function; /* of the runtime */
	int32_t copy_kind; /* TASK_TYPE_COPY */
	uint64_t copy_bytes;
};

static void report_task(const struct launch *l, const struct stream *s, uint16_t task)
{
	struct MsprofCompactInfo rec = {.magic = MSPROF_MAGIC,
					.level = MSPROF_LEVEL_RUNTIME,
					.type = MSPROF_TYPE_TASK_TRACK,
					.threadId = sim_thread_id(),
					.dataLen = sizeof(struct MsprofTaskTrack),
					.timeStamp = sim_now_ns()};
	rec.data.task.deviceId = (uint16_t)stream_device(s);
	rec.data.task.streamId = (uint16_t)stream_id(s);
	rec.data.task.taskInfo = task;
	rec.data.task.taskType = l->task_type;
	rec.data.task.nameHash = MsprofGetHashId(l->kernel->name, strlen(l->kernel->name));
	(void)MsprofReportCompactInfo(1, &rec, sizeof(rec));
}

static int submit(const struct launch *l, struct stream *s, uint16_t task)
{
	struct work w = {.kind = l->task_type == TASK_TYPE_COPY ? WORK_COPY : WORK_KERNEL,
			 .task = task,
			 .detail = l->copy_kind,
			 .kernel = l->kernel,
			 .type = l->task_type == TASK_TYPE_AICPU ? "KERNEL_AICPU" : "KERNEL_AICORE",
			 .correlation = sim_call_correlation(),
			 .number = l->copy_bytes};
	return stream_submit(s, &w, l->args, l->size);
}

static int launch_task(const struct launch *l)
{
	struct stream *s = stream_resolve(l->stream);
	if (!s)
		return RT_ERROR_STREAM_INVALID;
	uint64_t begin = 0;
	uint16_t task = stream_next_task(s);
	int report = sim_prof_wants_tasks(stream_device(s));
	if (report) {
		begin = sim_now_ns();
		report_task(l, s, task);
	}
	int r = submit(l, s, task);
	if (report) {
		struct MsprofApi api = {.magic = MSPROF_MAGIC,
					.level = MSPROF_LEVEL_RUNTIME,
					.type = API_TYPE_LAUNCH,
					.threadId = sim_thread_id(),
					.beginTime = begin,
					.endTime = sim_now_ns()};
		(void)MsprofReportApi(1, &api);
	}
	return r;
}

/* Above the runtime an operator is launched, which is two more calls to tell: by its own name, and
 * as the framework calls it. */
static int launch(const struct launch *l)
{
	struct sim_call op;
	struct sim_call node;
	struct sim_call runtime;
	int is_kernel = l->task_type != TASK_TYPE_COPY;
	op.start = node.start = 0;
	if (is_kernel) {
		sim_call_open(&op, MSPTI_ACTIVITY_KIND_API, l->kernel->name);
		sim_call_open(&node, MSPTI_ACTIVITY_KIND_NODE_API, "launch");
	}
	sim_call_open(&runtime, MSPTI_ACTIVITY_KIND_RUNTIME_API, l->function);
	int r = sim_call_close(&runtime, launch_task(l));
	r = sim_call_close(&node, r);
	return sim_call_close(&op, r);
}

static int launch_ex(const struct sim_kernel *k, uint64_t type, const struct rtArgsEx *ex,
		     void *stream, const char *function)
{
	struct launch l = {.kernel = k, .task_type = type, .stream = stream, .function = function};
	if (ex) {
		l.args = ex->args;
		l.size = ex->argsSize;
	}
	return launch(&l);
}

int rtKernelLaunch(const void *stub, uint32_t blocks, void *args, uint32_t args_size, void *sm_desc,
		   void *stream)
{
	(void)blocks, (void)sm_desc;
	struct launch l = {.kernel = kernel_from_handle(stub),
			   .args = args,
			   .size = args_size,
			   .stream = stream,
			   .function = __func__};
	return launch(&l);
}

int rtKernelLaunchWithHandleV2(void *handle, uint64_t tiling_key, uint32_t blocks, void *args_ex,
			       void *sm_desc, void *stream, const void *config)
{
	(void)tiling_key, (void)blocks, (void)sm_desc, (void)config;
	return launch_ex(kernel_from_handle(handle), TASK_TYPE_AICORE, args_ex, stream, __func__);
}

int rtKernelLaunchWithFlagV2(const void *stub, uint32_t blocks, void *args_ex, void *sm_desc,
			     void *stream, uint32_t flags, const void *config)
{
	(void)blocks, (void)sm_desc, (void)flags, (void)config;
	return launch_ex(kernel_from_handle(stub), TASK_TYPE_AICORE, args_ex, stream, __func__);
}

int rtAicpuKernelLaunchExWithArgs(uint32_t type, const char *op, uint32_t blocks,
				  const void *args_ex, void **sm_desc, void *stream, uint32_t flags)
{
	(void)type, (void)blocks, (void)sm_desc, (void)flags;
	return launch_ex(kernel_from_name(op), TASK_TYPE_AICPU, args_ex, stream, __func__);
}

static int launch_handle(void *handle, const struct sim_launch_args *a, void *stream,
			 const char *function)
{
	struct launch l = {
		.kernel = kernel_from_handle(handle), .stream = stream, .function = function};
	if (a) {
		l.args = a->data;
		l.size = a->size;
	}
	return launch(&l);
}

int rtLaunchKernelByFuncHandle(void *function, uint32_t blocks, void *args_handle, void *stream)
{
	(void)blocks;
	return launch_handle(function, args_handle, stream, __func__);
}

int rtLaunchKernelByFuncHandleV2(void *function, uint32_t blocks, void *args_handle, void *stream,
				 const void *config)
{
	(void)blocks, (void)config;
	return launch_handle(function, args_handle, stream, __func__);
}

struct copy_args {
	void *dst;
	const void *src;
	uint64_t n;
};

static void copy_on_device(const void *args, size_t size)
{
	(void)size;
	const struct copy_args *c = args;
	memory_copy(c->dst, c->src, c->n);
}

int rtMemcpyAsync(void *dst, uint64_t dst_max, const void *src, uint64_t n, uint32_t kind,
		  void *stream)
{
	static const struct sim_kernel copy = {
		.name = "MEMCPY_ASYNC", .duration_ns = 20000, .fn = copy_on_device};
	if (!dst || !src || n > dst_max || kind > RT_DEVICE_TO_DEVICE)
		return RT_ERROR_PARAM_INVALID;
	struct copy_args a = {dst, src, n};
	struct launch l = {.kernel = &copy,
			   .task_type = TASK_TYPE_COPY,
			   .args = &a,
			   .size = sizeof(a),
			   .stream = stream,
			   .function = __func__,
			   .copy_kind = (int32_t)kind,
			   .copy_bytes = n};
	return launch(&l);
}
