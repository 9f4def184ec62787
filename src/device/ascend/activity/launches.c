/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * --attribute: each call that gives work to a device is told by the thread that makes it, with the
 * number that the records of its work have. The library calls back for these calls alone, where it was
 * preloaded. Nothing is called while nobody wants that.
 */
#include "device/ascend/activity/mspti.h"

#include "guest/collect/collect.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic bool wanted;

static const struct {
	int domain;
	uint32_t call;
} launching[] = {
	{MSPTI_CALLS_RUNTIME, MSPTI_CALL_LAUNCH}, {MSPTI_CALLS_RUNTIME, MSPTI_CALL_AICPU_LAUNCH},
	{MSPTI_CALLS_RUNTIME, MSPTI_CALL_MEMCPY}, {MSPTI_CALLS_RUNTIME, MSPTI_CALL_MEMCPY_ASYNC},
	{MSPTI_CALLS_RUNTIME, MSPTI_CALL_MEMSET},
};

void mspti_launches_want(bool on)
{
	atomic_store(&wanted, on);
}

void mspti_on_call(void *arg, int domain, uint32_t call, const struct mspti_call *data)
{
	int saved = errno;
	struct timespec t;

	(void)arg;
	(void)domain;
	(void)call;
	if (!data || data->site != MSPTI_CALL_BEGINS || !atomic_load(&wanted))
		return;
	clock_gettime(CLOCK_REALTIME, &t);
	uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	collect_work_launch(ns);
	collect_launch(data->correlation, (uint32_t)syscall(SYS_gettid), ns);
	errno = saved;
}

/* False: launches are wanted, and the library does not tell them. */
bool mspti_launches_switch(const struct mspti *fns, void *subscriber, bool on)
{
	bool all = fns->enable_call != NULL;

	on &= atomic_load(&wanted);
	for (size_t i = 0; all && i < sizeof(launching) / sizeof(launching[0]); i++)
		if (fns->enable_call(on, subscriber, launching[i].domain, launching[i].call) !=
			    MSPTI_OK &&
		    on)
			all = false;
	return all || !on;
}
