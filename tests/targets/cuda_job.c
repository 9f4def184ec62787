/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A CUDA job on the simulated driver that does what the lines of its standard input say, and says
 * "ok …" after each. It also is a profiler like PyTorch's.
 *
 *	init				cuInit(): a tool may come in
 *	kernels NAME COUNT NS		all launched at once, one after the other on the device
 *	copy KIND BYTES | set VALUE BYTES | alloc KIND BYTES | free KIND BYTES
 *	profile on | profile off	off tells: kernels, those without an end, foreign buffers
 *	profile more			on again, with the callbacks that it registered before
 *	totals FILE			of the last profile, as JSON: {name: [count, microseconds]}
 *	mark TEXT | push TEXT | pop	NVTX
 *	start TEXT | end | dpush TEXT | dpop	a range of any thread; one of the domain "trainer"
 *	step				sonde_step()
 *	train COUNT push|step|none	steps with kernels, marks, a copy and a set, told like that;
 *					tells how long one took
 *	order TEXT			for the monitor in this process; ';' stands for a line's end
 *	enabled KIND | disable KIND | sleep MS | fork TEXT | finalize
 */
#include "cupti/cupti.h"
#include "cupti/nvtx.h"
#include "sonde/sonde.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- a profiler: its own buffers, its own clock --- */

#define CLOCK_BEHIND 1000000000000000000ull

static struct {
	unsigned kernels, unfinished, foreign, wrong_clock;
	uint8_t *mine[64];
	unsigned nmine;
	struct {
		const char *name;
		unsigned count;
		uint64_t ns;
	} totals[64];
} profile;

static uint64_t profile_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec - CLOCK_BEHIND;
}

static void on_request(uint8_t **buffer, size_t *size, size_t *max)
{
	*size = 64 << 10;
	*max = 0;
	*buffer = profile.nmine < 64 ? aligned_alloc(8, *size) : NULL;
	if (*buffer)
		profile.mine[profile.nmine++] = *buffer;
}

static int is_mine(const uint8_t *buffer)
{
	for (unsigned i = 0; i < profile.nmine; i++)
		if (profile.mine[i] == buffer)
			return 1;
	return 0;
}

static void add_up(const char *record, uint64_t ns)
{
	const char *name;

	memcpy(&name, record + 104, sizeof(name));
	for (unsigned i = 0; i < 64; i++) {
		if (!profile.totals[i].name)
			profile.totals[i].name = name;
		if (strcmp(profile.totals[i].name, name) != 0)
			continue;
		profile.totals[i].count++;
		profile.totals[i].ns += ns;
		return;
	}
}

static void write_totals(const char *path)
{
	FILE *f = fopen(path, "w");

	for (unsigned i = 0; f && i < 64 && profile.totals[i].name; i++)
		fprintf(f, "%s\"%s\": [%u, %.3f]", i ? ", " : "{", profile.totals[i].name,
			profile.totals[i].count, (double)profile.totals[i].ns / 1000);
	if (f) {
		fputs(profile.totals[0].name ? "}\n" : "{}\n", f);
		fclose(f);
	}
}

static void on_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	void *r = NULL;

	(void)context;
	(void)stream;
	(void)size;
	if (!is_mine(buffer)) {
		profile.foreign++;
		return;
	}
	while (cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS) {
		uint32_t kind;
		uint64_t start, end, now = profile_clock();
		memcpy(&kind, r, 4);
		memcpy(&start, (char *)r + 16, 8);
		memcpy(&end, (char *)r + 24, 8);
		if (kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
			continue;
		profile.kernels++;
		profile.unfinished += !end;
		add_up(r, end ? end - start : 0);
		profile.wrong_clock += end && (end > now || now - end > 60000000000ull);
	}
}

static void profile_on(int more)
{
	memset(&profile, 0, sizeof(profile));
	if (!more) {
		cuptiActivityRegisterTimestampCallback(profile_clock);
		cuptiActivityRegisterCallbacks(on_request, on_complete);
	}
	cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
	cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME);
	cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
}

/* As PyTorch's does: all kinds off, then a forced flush. */
static void profile_off(void)
{
	cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
	cuptiActivityDisable(CUPTI_ACTIVITY_KIND_RUNTIME);
	cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMCPY);
	cuptiActivityFlushAll(1);
	printf("kernels %u unfinished %u foreign %u clock %u ", profile.kernels, profile.unfinished,
	       profile.foreign, profile.wrong_clock);
}

/* --- the job --- */

static void nap(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	nanosleep(&t, NULL);
}

static void kernels(const char *name, unsigned n, uint64_t ns)
{
	const char *keep = strdup(name); /* as names in a module live on */

	for (unsigned i = 0; i < n; i++)
		simCudaKernel(keep, 0, 7, ns);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void train_step(const char *how)
{
	nvtxRangePushA(!strcmp(how, "push") ? "step start" : "step");
	simCudaMemcpy(0, 7, 1, 4096, 2000);
	simCudaMemset(0, 7, 0, 64);
	nvtxRangePushA("forward");
	for (int i = 0; i < 4; i++)
		simCudaKernel("gemm", 0, 7, 50000);
	nvtxRangePop();
	simCudaKernel("softmax", 0, 7, 20000);
	nap(250000);
	nvtxRangePop();
	if (!strcmp(how, "step"))
		sonde_step();
}

static void train(unsigned n, const char *how)
{
	uint64_t began = now_ns();

	for (unsigned i = 0; i < n; i++)
		train_step(how);
	printf("%.9f ", n ? (double)(now_ns() - began) / n / 1e9 : 0.0);
}

static void push_in_domain(const char *text)
{
	static void *domain;
	nvtxEventAttributes_t e = {
		.version = 2, .size = sizeof(e), .messageType = 1, .message = text};

	if (!domain)
		domain = nvtxDomainCreateA("trainer");
	printf("%d ", text ? nvtxDomainRangePushEx(domain, &e) : nvtxDomainRangePop(domain));
}

static int range(const char *line)
{
	static uint64_t id;

	if (!strncmp(line, "mark ", 5))
		nvtxMarkA(line + 5);
	else if (!strncmp(line, "push ", 5))
		printf("%d ", nvtxRangePushA(line + 5));
	else if (!strcmp(line, "pop"))
		printf("%d ", nvtxRangePop());
	else if (!strncmp(line, "start ", 6))
		id = nvtxRangeStartA(line + 6);
	else if (!strcmp(line, "end"))
		nvtxRangeEnd(id);
	else if (!strncmp(line, "dpush ", 6))
		push_in_domain(line + 6);
	else if (!strcmp(line, "dpop"))
		push_in_domain(NULL);
	else if (!strcmp(line, "step"))
		sonde_step();
	else
		return 0;
	return 1;
}

static int order(char *text)
{
	const char *lib = getenv("MONITOR_LIB");
	int (*fn)(const char *, size_t, char *, size_t) = NULL;
	char why[256] = "";
	void *h = dlopen(lib ? lib : "libsonde_monitor.so", RTLD_LAZY | RTLD_NOLOAD);

	for (char *p = text; *p; p++)
		if (*p == ';')
			*p = '\n';
	if (h)
		*(void **)&fn = dlsym(h, "sonde_monitor_execute");
	int r = fn ? fn(text, strlen(text), why, sizeof(why)) : -1;
	printf("%d %s ", r, why);
	return r;
}

static void in_child(const char *name)
{
	fflush(stdout);
	pid_t pid = fork();

	if (!pid) {
		nvtxMarkA(name);
		kernels(name, 3, 1000);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void memory(char *line)
{
	static uint64_t address = 0x7f0000000000;
	unsigned a = 0;
	unsigned long long b = 0;

	if (sscanf(line, "copy %u %llu", &a, &b) == 2)
		simCudaMemcpy(0, 7, (uint8_t)a, b, 1000);
	else if (sscanf(line, "set %u %llu", &a, &b) == 2)
		simCudaMemset(0, 7, a, b);
	else if (sscanf(line, "alloc %u %llu", &a, &b) == 2)
		simCudaMemory(0, 0, a, address, b);
	else if (sscanf(line, "free %u %llu", &a, &b) == 2)
		simCudaMemory(0, 1, a, address, b);
}

static void carry_out(char *line)
{
	char name[8192]; /* as long as a line */
	unsigned n;
	unsigned long long ns;

	if (!strcmp(line, "init"))
		cuInit(0);
	else if (sscanf(line, "kernels %8191s %u %llu", name, &n, &ns) == 3)
		kernels(name, n, ns);
	else if (!strcmp(line, "profile on") || !strcmp(line, "profile more"))
		profile_on(line[8] == 'm');
	else if (!strcmp(line, "profile off"))
		profile_off();
	else if (!strcmp(line, "finalize"))
		cuptiFinalize();
	else if (!strncmp(line, "order ", 6))
		order(line + 6);
	else if (sscanf(line, "sleep %llu", &ns) == 1)
		nap(ns * 1000000);
	else if (sscanf(line, "enabled %u", &n) == 1)
		printf("%d ", simCuptiEnabled((int)n));
	else if (sscanf(line, "disable %u", &n) == 1)
		cuptiActivityDisable((int)n);
	else if (sscanf(line, "fork %8191s", name) == 1)
		in_child(name);
	else if (sscanf(line, "train %u %8191s", &n, name) == 2)
		train(n, name);
	else if (sscanf(line, "totals %8191s", name) == 1)
		write_totals(name);
	else if (!range(line))
		memory(line);
}

int main(void)
{
	char line[8192];

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		carry_out(line);
		printf("ok\n");
		fflush(stdout);
	}
	return 0;
}
