/* SPDX-License-Identifier: MulanPSL-2.0 */
/* One subscriber, and the functions of the stack that he wants to be called for. */
#include <pthread.h>
#include <string.h>

#include "library.h"

#define MAX_ID 64

static const struct function {
	const char *name;
	msptiCallbackDomain domain;
	uint32_t id;
} functions[] = {
	{"aclrtSetDevice", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_DEVICE_SET},
	{"rtSetDevice", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_DEVICE_SET},
	{"aclrtResetDevice", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_DEVICE_RESET},
	{"aclrtCreateStream", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_STREAM_CREATED},
	{"rtStreamCreate", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_STREAM_CREATED},
	{"aclrtDestroyStream", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_STREAM_DESTROY},
	{"rtStreamDestroy", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_STREAM_DESTROY},
	{"aclrtSynchronizeStream", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_STREAM_SYNCHRONIZED},
	{"rtStreamSynchronize", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_STREAM_SYNCHRONIZED},
	{"rtKernelLaunch", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_LAUNCH},
	{"rtKernelLaunchWithHandleV2", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_LAUNCH},
	{"rtKernelLaunchWithFlagV2", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_LAUNCH},
	{"rtLaunchKernelByFuncHandle", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_LAUNCH},
	{"rtLaunchKernelByFuncHandleV2", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_LAUNCH},
	{"rtAicpuKernelLaunchExWithArgs", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_AICPU_LAUNCH},
	{"rtMalloc", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_MALLOC},
	{"rtFree", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_FREE},
	{"rtMallocHost", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_MALLOC_HOST},
	{"rtFreeHost", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_FREE_HOST},
	{"rtMemcpy", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_MEMCPY},
	{"rtMemcpyAsync", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_MEMCPY_ASYNC},
	{"rtMemset", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_MEM_SET},
	{"rtMemGetInfo", MSPTI_CB_DOMAIN_RUNTIME, MSPTI_CBID_RUNTIME_MEM_GET_INFO},
	{"HcclAllReduce", MSPTI_CB_DOMAIN_HCCL, MSPTI_CBID_HCCL_ALLREDUCE},
	{"HcclBroadcast", MSPTI_CB_DOMAIN_HCCL, MSPTI_CBID_HCCL_BROADCAST},
	{"HcclAllGather", MSPTI_CB_DOMAIN_HCCL, MSPTI_CBID_HCCL_ALLGATHER},
	{"HcclReduceScatter", MSPTI_CB_DOMAIN_HCCL, MSPTI_CBID_HCCL_REDUCE_SCATTER},
	{"HcclBarrier", MSPTI_CB_DOMAIN_HCCL, MSPTI_CBID_HCCL_BARRIER},
};

static const uint32_t last_id[MSPTI_CB_DOMAIN_SIZE] = {
	[MSPTI_CB_DOMAIN_RUNTIME] = MSPTI_CBID_RUNTIME_SIZE - 1,
	[MSPTI_CB_DOMAIN_HCCL] = MSPTI_CBID_HCCL_SIZE - 1,
};

struct msptiSubscriber_st {
	msptiCallbackFunc fn;
	void *userdata;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct msptiSubscriber_st only;
static int subscribed;
static _Atomic uint64_t enabled[MSPTI_CB_DOMAIN_SIZE]; /* 1 << id */

msptiResult msptiSubscribe(msptiSubscriberHandle *subscriber, msptiCallbackFunc callback,
			   void *userdata)
{
	if (!subscriber)
		return MSPTI_ERROR_INVALID_PARAMETER;
	msptiResult r = MSPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	if (!subscribed) {
		subscribed = 1;
		only = (struct msptiSubscriber_st){callback, userdata};
		*subscriber = &only;
		r = MSPTI_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static void forget_callbacks(void)
{
	library_want(SIM_FEED_CALLBACKS, 0);
	for (int d = 0; d < MSPTI_CB_DOMAIN_SIZE; d++)
		atomic_store(&enabled[d], 0);
}

msptiResult msptiUnsubscribe(msptiSubscriberHandle subscriber)
{
	msptiResult r = MSPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	if (subscribed && subscriber == &only) {
		forget_callbacks();
		subscribed = 0;
		r = MSPTI_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static msptiResult enable(uint32_t on, msptiSubscriberHandle subscriber, msptiCallbackDomain domain,
			  uint64_t ids)
{
	if (!subscribed || subscriber != &only || !only.fn)
		return MSPTI_ERROR_INVALID_PARAMETER;
	if (!library_preloaded())
		return MSPTI_ERROR_WITHOUT_LD_PRELOAD;
	if (on)
		atomic_fetch_or(&enabled[domain], ids);
	else
		atomic_fetch_and(&enabled[domain], ~ids);
	uint64_t any = 0;
	for (int d = 0; d < MSPTI_CB_DOMAIN_SIZE; d++)
		any |= atomic_load(&enabled[d]);
	library_want(SIM_FEED_CALLBACKS, any != 0);
	return MSPTI_SUCCESS;
}

msptiResult msptiEnableCallback(uint32_t on, msptiSubscriberHandle subscriber,
				msptiCallbackDomain domain, uint32_t cbid)
{
	if (domain <= MSPTI_CB_DOMAIN_INVALID || domain >= MSPTI_CB_DOMAIN_SIZE || !cbid ||
	    cbid > last_id[domain])
		return MSPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	msptiResult r = enable(on, subscriber, domain, 1ull << cbid);
	pthread_mutex_unlock(&lock);
	return r;
}

msptiResult msptiEnableDomain(uint32_t on, msptiSubscriberHandle subscriber,
			      msptiCallbackDomain domain)
{
	if (domain <= MSPTI_CB_DOMAIN_INVALID || domain >= MSPTI_CB_DOMAIN_SIZE)
		return MSPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	msptiResult r = enable(on, subscriber, domain, (1ull << (last_id[domain] + 1)) - 2);
	pthread_mutex_unlock(&lock);
	return r;
}

void callback_call(struct sim_call *c, msptiApiCallbackSite site, const int *result)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		const struct function *f = &functions[i];
		if (strcmp(f->name, c->name))
			continue;
		if (!(atomic_load(&enabled[f->domain]) >> f->id & 1))
			return;
		msptiCallbackData data = {.callbackSite = site,
					  .functionName = f->name,
					  .functionReturnValue = result,
					  .symbolName = f->name,
					  .correlationId = c->correlation,
					  .correlationData = &c->user};
		msptiCallbackFunc fn = only.fn;
		if (fn)
			fn(only.userdata, f->domain, f->id, &data);
		return;
	}
}

void callback_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	forget_callbacks();
	subscribed = 0;
}
