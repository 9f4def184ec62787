/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Uses the simulated MSPTI as a tool does. Usage: mspti_calls MODE [ARGUMENT]
 * Every mode prints JSON, a line each: records where there are any, then what it found.
 */
#include <sys/wait.h>
#include <time.h>

#include "acl/acl.h"
#include "mspti_consumer.h"
#include "mspti_job.h"
#include "mstx/ms_tools_ext.h"
#include "runtime/rt.h"
#include "sim/kernel.h"

static int tid(void)
{
	return (int)gettid();
}

/* --- return values --- */

static void no_callback(void *userdata, msptiCallbackDomain domain, uint32_t id,
			const msptiCallbackData *data)
{
	(void)userdata, (void)domain, (void)id, (void)data;
}

/* In the order in which they are written: arguments of one call have none. */
static void print_codes(const char *key, const int *code, int n)
{
	printf("\"%s\":[", key);
	for (int i = 0; i < n; i++)
		printf("%s%d", i ? "," : "", code[i]);
	printf("],");
}

static void kind_codes(void)
{
	int enable[16];
	int enabled[16];
	for (int i = 0; i < 16; i++)
		enable[i] = (int)mspti.msptiActivityEnable((msptiActivityKind)(i - 1));
	for (int i = 0; i < 16; i++)
		enabled[i] = mspti.msptiActivityIsEnabled((msptiActivityKind)(i - 1));
	print_codes("enable", enable, 16);
	print_codes("enabled", enabled, 16);
	enable[0] = (int)mspti.msptiActivityDisable(MSPTI_ACTIVITY_KIND_KERNEL);
	enable[1] = (int)mspti.msptiActivityDisable(MSPTI_ACTIVITY_KIND_INVALID);
	enable[2] = mspti.msptiActivityIsEnabled(MSPTI_ACTIVITY_KIND_KERNEL);
	print_codes("disable", enable, 3);
}

static int codes(const char *unused)
{
	msptiSubscriberHandle h = NULL;
	msptiSubscriberHandle h2 = NULL;
	uint64_t id = 0;
	int r[5];
	(void)unused;
	if (mspti_load())
		return 1;
	putchar('{');
	r[0] = (int)mspti.msptiSubscribe(NULL, NULL, NULL);
	r[1] = (int)mspti.msptiSubscribe(&h, no_callback, NULL);
	r[2] = (int)mspti.msptiSubscribe(&h2, NULL, NULL);
	print_codes("subscribe", r, 3);
	r[0] = (int)mspti.msptiEnableCallback(1, h, MSPTI_CB_DOMAIN_RUNTIME, 1);
	r[1] = (int)mspti.msptiEnableDomain(1, h, MSPTI_CB_DOMAIN_HCCL);
	r[2] = (int)mspti.msptiEnableDomain(1, h, MSPTI_CB_DOMAIN_SIZE);
	r[3] = (int)mspti.msptiEnableCallback(1, h, MSPTI_CB_DOMAIN_RUNTIME, 37);
	print_codes("callbacks", r, 4);
	r[0] = (int)mspti.msptiUnsubscribe(h2);
	r[1] = (int)mspti.msptiUnsubscribe(h);
	r[2] = (int)mspti.msptiUnsubscribe(h);
	r[3] = (int)mspti.msptiSubscribe(&h2, NULL, NULL);
	print_codes("unsubscribe", r, 4);
	r[0] = (int)mspti.msptiActivityRegisterCallbacks(NULL, consumer_complete);
	r[1] = (int)mspti.msptiActivityRegisterCallbacks(consumer_request, consumer_complete);
	print_codes("register", r, 2);
	kind_codes();
	r[0] = (int)mspti.msptiActivityEnableMarkerDomain(NULL);
	r[1] = (int)mspti.msptiActivityDisableMarkerDomain("x");
	print_codes("domain", r, 2);
	r[0] = (int)mspti.msptiActivityPushExternalCorrelationId(0, 1);
	r[1] = (int)mspti.msptiActivityPushExternalCorrelationId(2, 77);
	r[2] = (int)mspti.msptiActivityPopExternalCorrelationId(2, &id);
	r[3] = (int)id;
	r[4] = (int)mspti.msptiActivityPopExternalCorrelationId(2, &id);
	print_codes("external", r, 5);
	printf("\"flush\":%d}\n", (int)mspti.msptiActivityFlushAll(0));
	return 0;
}

/* --- the cursor --- */

static void *other_cursor(void *buffer)
{
	msptiActivity *r = NULL;
	(void)mspti.msptiActivityGetNextRecord(buffer, 112, &r);
	return r;
}

static int cursor(const char *unused)
{
	_Alignas(8) unsigned char buffer[112] = {0};
	_Alignas(8) unsigned char strange[16] = {0};
	msptiActivityKernel *k = (void *)buffer;
	msptiActivity *r = NULL;
	pthread_t t;
	void *theirs = NULL;
	(void)unused;
	if (mspti_load())
		return 1;
	k[0].kind = k[1].kind = MSPTI_ACTIVITY_KIND_KERNEL;
	strange[0] = 200;
	printf("{\"wrong\":[%d],\"walk\":[", mspti.msptiActivityGetNextRecord(NULL, 10, &r));
	for (int i = 0; i < 4; i++) {
		int e = mspti.msptiActivityGetNextRecord(buffer, sizeof(buffer), &r);
		printf("%s[%d,%d]", i ? "," : "", e, (int)((unsigned char *)r - buffer));
	}
	/* This thread stands at the second record; another begins at the first. */
	pthread_create(&t, NULL, other_cursor, buffer);
	pthread_join(t, &theirs);
	printf("],\"other\":%d", (int)((unsigned char *)theirs - buffer));
	int shorter = (int)mspti.msptiActivityGetNextRecord(buffer, 40, &r);
	int unknown = (int)mspti.msptiActivityGetNextRecord(strange, sizeof(strange), &r);
	int empty = (int)mspti.msptiActivityGetNextRecord(buffer, 0, &r);
	printf(",\"shorter\":%d,\"strange\":%d,\"empty\":%d}\n", shorter, unknown, empty);
	return 0;
}

/* --- everything that a process can do --- */

static void marks(void *stream)
{
	mstxDomainHandle_t on = mstxDomainCreateA("wanted");
	mstxDomainHandle_t off = mstxDomainCreateA("unwanted");
	mstxRangeId range = mstxRangeStartA("a range", NULL);
	mstxRangeId device_range = mstxDomainRangeStartA(on, "a range with stream", stream);
	mstxMarkA("a mark", NULL);
	mstxMarkA("a mark with stream", stream);
	mstxDomainMarkA(off, "never", stream);
	launch("InRange", 100000, stream);
	mstxDomainRangeEnd(on, device_range);
	mstxRangeEnd(range);
	mstxRangeEnd(987654321); /* nobody's */
	mstxDomainDestroy(on);
}

static void transfers(void *stream)
{
	static char host[4096];
	void *device = NULL;
	if (aclrtMalloc(&device, sizeof(host), ACL_MEM_MALLOC_HUGE_FIRST))
		exit(3);
	(void)aclrtMemcpy(device, sizeof(host), host, 1000, ACL_MEMCPY_HOST_TO_DEVICE);
	(void)aclrtMemset(device, sizeof(host), 7, 2000);
	(void)aclrtMemcpyAsync(host, sizeof(host), device, 3000, ACL_MEMCPY_DEVICE_TO_HOST, stream);
	(void)aclrtSynchronizeStream(stream);
	(void)aclrtFree(device);
}

static void launches(void *const stream[2])
{
	void *k = sim_kernel_register("Launched", 50000, NULL);
	char data[300] = {0};
	struct rtArgsEx ex = {.args = data, .argsSize = sizeof(data)};
	struct sim_launch_args handle = {data, sizeof(data)};
	for (int i = 0; i < 20; i++)
		launch(i % 2 ? "Odd" : "Even", 200000, stream[i % 2]);
	(void)aclrtLaunchKernelV2(k, 1, NULL, 0, NULL, stream[0]);
	(void)aclrtLaunchKernelWithConfig(k, 1, stream[0], NULL, &handle, NULL);
	(void)rtKernelLaunch(k, 1, data, sizeof(data), NULL, stream[0]);
	(void)rtKernelLaunchWithHandleV2(k, 0, 1, &ex, NULL, stream[1], NULL);
	(void)rtLaunchKernelByFuncHandle(k, 1, &handle, stream[1]);
	(void)rtAicpuKernelLaunchExWithArgs(0, "OnCpu", 1, &ex, NULL, stream[1], 0);
}

static int work(const char *kinds)
{
	void *stream[2] = {open_stream(1), NULL};
	mstxDomainHandle_t early = mstxDomainCreateA("early"); /* before anybody wanted it */
	if (aclrtCreateStream(&stream[1]))
		return 3;
	launch("Before", 1000, stream[0]);
	(void)aclrtSynchronizeDevice();
	int r = consumer_start(kinds);
	if (r)
		return r;
	(void)mspti.msptiActivityDisableMarkerDomain("unwanted");
	(void)mspti.msptiActivityPushExternalCorrelationId(3, 4711);
	launches(stream);
	(void)mspti.msptiActivityPopExternalCorrelationId(3, NULL);
	marks(stream[1]);
	mstxDomainMarkA(early, "an early domain", NULL);
	transfers(stream[0]);
	(void)aclrtSynchronizeDevice();
	(void)mspti.msptiActivityFlushAll(1);
	for (int k = 1; k < MSPTI_ACTIVITY_KIND_COUNT; k++)
		(void)mspti.msptiActivityDisable((msptiActivityKind)k);
	launch("After", 1000, stream[0]);
	mstxMarkA("after", stream[0]);
	(void)aclrtSynchronizeDevice();
	(void)mspti.msptiActivityFlushAll(1);
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	printf("{\"pid\":%d,\"tid\":%d,\"now\":%lld}\n", getpid(), tid(),
	       (long long)now.tv_sec * 1000000000ll + now.tv_nsec);
	(void)aclrtDestroyStream(stream[1]);
	(void)aclrtDestroyStream(stream[0]);
	return 0;
}

/* --- buffers --- */

static int requested_by[64];
static _Atomic int requests;

static void noting_request(uint8_t **buffer, size_t *size, size_t *records)
{
	requested_by[atomic_fetch_add(&requests, 1) % 64] = tid();
	consumer_request(buffer, size, records);
}

static void noting_complete(uint8_t *buffer, size_t size, size_t valid)
{
	char name[16] = "";
	pthread_getname_np(pthread_self(), name, sizeof(name));
	pthread_mutex_lock(&print_lock);
	printf("{\"size\":%zu,\"valid\":%zu,\"by\":%d,\"thread\":\"%s\"}\n", size, valid, tid(),
	       name);
	pthread_mutex_unlock(&print_lock);
	consumer_complete(buffer, size, valid);
}

static int buffers(const char *bytes)
{
	void *stream = open_stream(0);
	print_records = 0;
	buffer_bytes = strtoull(bytes, NULL, 10);
	if (mspti_load() || mspti.msptiActivityRegisterCallbacks(noting_request, noting_complete))
		return 1;
	(void)mspti.msptiActivityFlushAll(1); /* nothing yet: nobody is called */
	int before = atomic_load(&requests);
	(void)mspti.msptiActivityEnable(MSPTI_ACTIVITY_KIND_KERNEL);
	for (int i = 0; i < 1000; i++)
		launch("Kernel", 10, stream);
	(void)aclrtSynchronizeStream(stream);
	(void)mspti.msptiActivityFlushAll(1);
	printf("{\"records\":%llu,\"recorded\":%llu,\"dropped\":%llu,\"requests\":[%d,%d],"
	       "\"out\":%d,\"main\":%d,\"asked_by_main\":%d}\n",
	       (unsigned long long)records_seen, (unsigned long long)mspti.sim_mspti_recorded(),
	       (unsigned long long)mspti.sim_mspti_dropped(), before, requests, buffers_out, tid(),
	       requested_by[0] == tid());
	return 0;
}

/* The user runs out of buffers: records are lost and counted, the job goes on. */
static int refused(const char *unused)
{
	void *stream = open_stream(0);
	(void)unused;
	print_records = 0;
	buffers_allowed = 0;
	if (consumer_start("2"))
		return 1;
	for (int i = 0; i < 50; i++)
		launch("Lost", 10, stream);
	(void)aclrtSynchronizeStream(stream);
	(void)mspti.msptiActivityFlushAll(1);
	uint64_t lost = mspti.sim_mspti_dropped();
	buffers_allowed = 1;
	launch("Kept", 10, stream);
	(void)aclrtSynchronizeStream(stream);
	(void)mspti.msptiActivityFlushAll(1);
	printf("{\"lost\":%llu,\"null\":%llu,\"records\":%llu}\n", (unsigned long long)lost,
	       (unsigned long long)buffers_null, (unsigned long long)records_seen);
	return 0;
}

static int period(const char *unused)
{
	void *stream = open_stream(0);
	(void)unused;
	print_records = 0;
	if (consumer_start("2"))
		return 1;
	(void)mspti.msptiActivityFlushPeriod(5);
	launch("Kernel", 10, stream);
	for (int i = 0; i < 10000 && !records_seen; i++)
		usleep(1000);
	(void)mspti.msptiActivityFlushPeriod(0);
	printf("{\"records\":%llu}\n", (unsigned long long)records_seen);
	return 0;
}

/* --- nothing on --- */

static int off(const char *unused)
{
	void *stream[2] = {open_stream(0), NULL};
	(void)unused;
	if (aclrtCreateStream(&stream[1]) || mspti_load() ||
	    mspti.msptiActivityRegisterCallbacks(noting_request, noting_complete))
		return 1;
	launches(stream);
	marks(stream[0]);
	transfers(stream[0]);
	(void)aclrtSynchronizeDevice();
	(void)mspti.msptiActivityFlushAll(1);
	printf("{\"recorded\":%llu,\"requests\":%d}\n",
	       (unsigned long long)mspti.sim_mspti_recorded(), requests);
	return 0;
}

static int flood(const char *kinds)
{
	struct timespec a;
	struct timespec b;
	const char *want = getenv("SIM_MSPTI_FLOOD");
	uint64_t n = want ? strtoull(want, NULL, 10) : 0;
	print_records = 0;
	buffers_allowed = 8;
	clock_gettime(CLOCK_MONOTONIC, &a);
	if (consumer_start(kinds))
		return 1;
	for (int i = 0; i < 60000 && mspti.sim_mspti_recorded() < n; i++)
		usleep(1000);
	(void)mspti.msptiActivityFlushAll(1);
	clock_gettime(CLOCK_MONOTONIC, &b);
	double s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	printf("{\"records\":%llu,\"bytes\":%llu,\"dropped\":%llu,\"per_second\":%.0f}\n",
	       (unsigned long long)records_seen, (unsigned long long)bytes_seen,
	       (unsigned long long)mspti.sim_mspti_dropped(), (double)records_seen / s);
	return 0;
}

/* --- callbacks --- */

static void print_callback(void *userdata, msptiCallbackDomain domain, uint32_t id,
			   const msptiCallbackData *data)
{
	if (data->callbackSite == MSPTI_API_ENTER)
		*data->correlationData = 42;
	printf("{\"domain\":%d,\"id\":%u,\"site\":%d,\"name\":\"%s\",\"correlation\":%llu,\"word\":"
	       "%llu,"
	       "\"user\":%d}\n",
	       domain, id, data->callbackSite, data->functionName,
	       (unsigned long long)data->correlationId, (unsigned long long)*data->correlationData,
	       *(int *)userdata);
}

static int callbacks(const char *unused)
{
	static int user = 5;
	msptiSubscriberHandle h;
	void *stream = open_stream(0);
	(void)unused;
	if (mspti_load() || mspti.msptiSubscribe(&h, print_callback, &user))
		return 1;
	int r = (int)mspti.msptiEnableCallback(1, h, MSPTI_CB_DOMAIN_RUNTIME,
					       MSPTI_CBID_RUNTIME_LAUNCH);
	launch("Called", 10, stream);
	(void)aclrtSynchronizeStream(stream); /* not asked for */
	(void)mspti.msptiEnableDomain(0, h, MSPTI_CB_DOMAIN_RUNTIME);
	launch("Quiet", 10, stream);
	(void)mspti.msptiUnsubscribe(h);
	printf("{\"enable\":%d}\n", r);
	return 0;
}

/* A child has nothing on, and may start for itself. */
static int forked(const char *unused)
{
	void *stream = open_stream(0);
	(void)unused;
	if (consumer_start("2"))
		return 1;
	launch("Parent", 10, stream);
	(void)aclrtSynchronizeStream(stream);
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		void *mine = open_stream(0);
		printf("{\"on\":%d}\n", mspti.msptiActivityIsEnabled(MSPTI_ACTIVITY_KIND_KERNEL));
		if (consumer_start("2"))
			_exit(1);
		launch("Child", 10, mine);
		(void)aclrtSynchronizeStream(mine);
		(void)mspti.msptiActivityFlushAll(1);
		fflush(stdout);
		_exit(0);
	}
	int status = 1;
	(void)waitpid(child, &status, 0);
	(void)mspti.msptiActivityFlushAll(1);
	return status;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(const char *argument);
	} modes[] = {
		{"codes", codes},	  {"cursor", cursor}, {"work", work}, {"buffers", buffers},
		{"refused", refused},	  {"period", period}, {"off", off},   {"flood", flood},
		{"callbacks", callbacks}, {"forked", forked},
	};
	for (size_t i = 0; argc > 1 && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(modes[i].name, argv[1]))
			return modes[i].run(argc > 2 ? argv[2] : "");
	fprintf(stderr, "usage: mspti_calls MODE [ARGUMENT]\n");
	return 2;
}
