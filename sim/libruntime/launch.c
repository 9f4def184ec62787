/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Every launch function ends in launch(): number the task, tell the profiling library its name and
 * number, queue it. The report comes first, so that a tool has the name before the device can
 * answer.
 */
#include <string.h>
#include <unistd.h>

#include "prof/prof_api.h"
#include "runtime/rt.h"
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
};

static uint32_t thread_id(void)
{
	static __thread uint32_t tid;
	if (!tid)
		tid = (uint32_t)gettid();
	return tid;
}

static void report_task(const struct launch *l, const struct stream *s, uint16_t task)
{
	struct MsprofCompactInfo rec = {.magic = MSPROF_MAGIC,
					.level = MSPROF_LEVEL_RUNTIME,
					.type = MSPROF_TYPE_TASK_TRACK,
					.threadId = thread_id(),
					.dataLen = sizeof(struct MsprofTaskTrack),
					.timeStamp = sim_now_ns()};
	rec.data.task.deviceId = (uint16_t)stream_device(s);
	rec.data.task.streamId = (uint16_t)stream_id(s);
	rec.data.task.taskInfo = task;
	rec.data.task.taskType = l->task_type;
	rec.data.task.nameHash = MsprofGetHashId(l->kernel->name, strlen(l->kernel->name));
	(void)MsprofReportCompactInfo(1, &rec, sizeof(rec));
}

static int launch(const struct launch *l)
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
	int r = stream_submit(s, l->kernel, task, l->args, l->size);
	if (report) {
		struct MsprofApi api = {.magic = MSPROF_MAGIC,
					.level = MSPROF_LEVEL_RUNTIME,
					.type = API_TYPE_LAUNCH,
					.threadId = thread_id(),
					.beginTime = begin,
					.endTime = sim_now_ns()};
		(void)MsprofReportApi(1, &api);
	}
	return r;
}

static int launch_ex(const struct sim_kernel *k, uint64_t type, const struct rtArgsEx *ex,
		     void *stream)
{
	struct launch l = {.kernel = k, .task_type = type, .stream = stream};
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
	struct launch l = {kernel_from_handle(stub), TASK_TYPE_AICORE, args, args_size, stream};
	return launch(&l);
}

int rtKernelLaunchWithHandleV2(void *handle, uint64_t tiling_key, uint32_t blocks, void *args_ex,
			       void *sm_desc, void *stream, const void *config)
{
	(void)tiling_key, (void)blocks, (void)sm_desc, (void)config;
	return launch_ex(kernel_from_handle(handle), TASK_TYPE_AICORE, args_ex, stream);
}

int rtKernelLaunchWithFlagV2(const void *stub, uint32_t blocks, void *args_ex, void *sm_desc,
			     void *stream, uint32_t flags, const void *config)
{
	(void)blocks, (void)sm_desc, (void)flags, (void)config;
	return launch_ex(kernel_from_handle(stub), TASK_TYPE_AICORE, args_ex, stream);
}

int rtAicpuKernelLaunchExWithArgs(uint32_t type, const char *op, uint32_t blocks,
				  const void *args_ex, void **sm_desc, void *stream, uint32_t flags)
{
	(void)type, (void)blocks, (void)sm_desc, (void)flags;
	return launch_ex(kernel_from_name(op), TASK_TYPE_AICPU, args_ex, stream);
}

static int launch_handle(void *function, const struct sim_launch_args *a, void *stream)
{
	struct launch l = {.kernel = kernel_from_handle(function), .stream = stream};
	if (a) {
		l.args = a->data;
		l.size = a->size;
	}
	return launch(&l);
}

int rtLaunchKernelByFuncHandle(void *function, uint32_t blocks, void *args_handle, void *stream)
{
	(void)blocks;
	return launch_handle(function, args_handle, stream);
}

int rtLaunchKernelByFuncHandleV2(void *function, uint32_t blocks, void *args_handle, void *stream,
				 const void *config)
{
	(void)blocks, (void)config;
	return launch_handle(function, args_handle, stream);
}

struct copy_args {
	void *dst;
	const void *src;
	uint64_t n;
	uint32_t kind;
};

static void copy_on_device(const void *args, size_t size)
{
	(void)size;
	const struct copy_args *c = args;
	(void)rtMemcpy(c->dst, c->n, c->src, c->n, c->kind);
}

int rtMemcpyAsync(void *dst, uint64_t dst_max, const void *src, uint64_t n, uint32_t kind,
		  void *stream)
{
	static const struct sim_kernel copy = {"MEMCPY_ASYNC", 20000, copy_on_device};
	if (!dst || !src || n > dst_max || kind > RT_DEVICE_TO_DEVICE)
		return RT_ERROR_PARAM_INVALID;
	struct copy_args a = {dst, src, n, kind};
	struct launch l = {&copy, TASK_TYPE_COPY, &a, sizeof(a), stream};
	return launch(&l);
}
