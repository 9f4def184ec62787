/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/counters/counters.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "sampler/counters/host.h"
#include "test.h"
#include "tmpdir.h"

TEST(counters, meminfo)
{
	struct meminfo m;
	static const char usual[] = "MemTotal:       16384 kB\nMemFree:         1000 kB\n"
				    "MemAvailable:    4096 kB\nBuffers: 1 kB\n";
	static const char old[] = "MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 20 kB\n"
				  "SwapCached: 7 kB\nSReclaimable: 2 kB";

	CHECK_INT(meminfo_parse(usual, strlen(usual), &m), 0);
	CHECK_INT(m.total_bytes, 16384 << 10);
	CHECK_INT(m.available_bytes, 4096 << 10);
	CHECK_INT(meminfo_parse(old, strlen(old), &m), 0);
	CHECK_INT(m.available_bytes, 37 << 10);
	CHECK_INT(meminfo_parse("", 0, &m), -EPROTO);
	CHECK_INT(meminfo_parse("MemTotal: x kB\n", 15, &m), -EPROTO);
	CHECK_INT(meminfo_parse("MemTotal: 0 kB\n", 15, &m), -EPROTO);
	CHECK_INT(meminfo_parse("MemTotal: 99999999999999999999 kB\n", 34, &m), -EPROTO);
}

struct seen {
	unsigned host, cpu, rss, gpu, all;
	uint64_t last_ns;
	double value;
};

static void look(void *arg, const struct counter *c)
{
	struct seen *s = arg;

	s->all++;
	CHECK(c->time_ns >= s->last_ns && c->n + c->more >= 1 && c->n + c->more <= 8);
	s->last_ns = c->time_ns;
	if (c->track == COUNTER_HOST) {
		s->host++;
		CHECK_STR(c->name, "cpu_mem");
		CHECK_INT(c->n, 4);
		CHECK(c->values[1].value + c->values[2].value == c->values[0].value);
		CHECK(c->values[3].value >= 0 && c->values[3].value <= 100);
	} else if (!strcmp(c->name, "process_cpu_percent")) {
		s->cpu++;
		s->value = fmax(s->value, c->values[0].value);
		CHECK_INT(c->pid, getpid());
	} else if (!strcmp(c->name, "process_rss_mb")) {
		s->rss++;
		CHECK(c->values[0].value > 0.1 && c->values[0].value < 4096);
	} else if (!strcmp(c->name, "gpu_memory_used_mb")) {
		s->gpu++;
		CHECK_INT(c->card, 5);
		CHECK(c->values[0].value == 4096);
	}
}

static void wait_for_answers(struct counters *c, char *out, size_t cap)
{
	while (!counters_missing(c, out, cap))
		usleep(1000);
}

TEST(counters, host_and_processes)
{
	struct counters_options o = {.host = true, .processes = true, .period_ms = 20};
	struct counters *c = NULL;
	struct seen s = {0};
	char missing[64] = "x";
	struct err err = {0};
	pid_t pids[] = {getpid(), 0x7ffffff0};

	CHECK_INT(counters_start(&o, &c, &err), 0);
	wait_for_answers(c, missing, sizeof(missing));
	CHECK_STR(missing, "");
	counters_processes(c, pids, 2);
	for (uint64_t end = clock_mono_ns() + 20000000000; s.cpu < 5 && clock_mono_ns() < end;) {
		for (volatile unsigned i = 0; i < 1000000; i++)
			;
		CHECK_INT(counters_take(c, look, &s), 0);
	}
	CHECK(s.cpu >= 5 && s.rss >= 5 && s.host >= 5 && s.value > 1);
	counters_stop(c);
}

static void install(const char *name, const char *script)
{
	const char *path = tmpfile_path(name);
	FILE *f = fopen(path, "w");

	CHECK(f && fprintf(f, "#!/bin/sh\n%s\n", script) > 0 && fclose(f) == 0);
	CHECK(chmod(path, 0755) == 0);
	setenv("PATH", tmpdir(), 1);
}

/* By the program where there is no library. */
TEST(counters, gpu_by_program)
{
	struct counters_options o = {.gpu = true, .period_ms = 20, .gpu_timeout_ms = 5000};
	struct counters *c = NULL;
	struct seen s = {0};
	char missing[256] = "";
	struct err err = {0};

	install("nvidia-smi", "echo '5, 37, [N/A], 4096, 8192'");
	unsetenv("SIM_GPU_COUNT");
	CHECK_INT(counters_start(&o, &c, &err), 0);
	wait_for_answers(c, missing, sizeof(missing));
	CHECK_STR(missing, "");
	for (uint64_t end = clock_mono_ns() + 20000000000; s.gpu < 3 && clock_mono_ns() < end;) {
		usleep(5000);
		counters_take(c, look, &s);
	}
	CHECK(s.gpu >= 3 && s.all >= 9);
	counters_stop(c);
}

/* A program that hangs delays neither the start, nor what else is read, nor the end. */
TEST(counters, a_program_that_hangs)
{
	struct counters_options o = {
		.gpu = true, .host = true, .period_ms = 20, .gpu_timeout_ms = 100};
	struct counters *c = NULL;
	struct seen s = {0};
	char missing[256] = "";
	struct err err = {0};
	uint64_t begin = clock_mono_ns();

	install("nvidia-smi", "exec /bin/sleep 60");
	CHECK_INT(counters_start(&o, &c, &err), 0);
	CHECK(!counters_missing(c, missing, sizeof(missing)));
	wait_for_answers(c, missing, sizeof(missing));
	CHECK(strstr(missing, "gpu: ") && strstr(missing, "100 ms"));
	for (uint64_t end = clock_mono_ns() + 20000000000; s.host < 3 && clock_mono_ns() < end;) {
		usleep(5000);
		counters_take(c, look, &s);
	}
	CHECK(s.host >= 3);
	counters_stop(c);
	CHECK(clock_mono_ns() - begin < 30000000000u);
}

TEST(counters, what_nobody_takes_is_counted)
{
	struct counters_options o = {0};
	struct counters *c = NULL;
	struct seen s = {0};
	struct err err = {0};

	CHECK_INT(counters_start(&o, &c, &err), 0);
	for (int i = 0; i < 10000; i++)
		counters_put(c, &(struct counter){.track = COUNTER_NPU, .name = "x", .n = 1});
	uint64_t lost = counters_take(c, look, &s);
	CHECK(lost > 0 && lost + s.all == 10000);
	CHECK_INT(counters_take(c, look, &s), 0);
	counters_stop(c);
}
