/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Tables of npu-smi, and programs of that name that misbehave. */
#include "base/clock.h"
#include "device/ascend/metrics/npu_smi.h"
#include "device/metrics.h"
#include "test.h"
#include "tmpdir.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>

static struct ascend_chip chips[NPU_SMI_CHIPS];

static unsigned parse(const char *text)
{
	memset(chips, 0xa5, sizeof(chips));
	return npu_smi_parse(text, strlen(text), chips, NPU_SMI_CHIPS);
}

#define BAR "+======+======+======+\n"
#define HEAD                                                                                       \
	"+------+------+------+\n"                                                                 \
	"| NPU   Name                | Health        | Power(W)    Temp(C)           "             \
	"Hugepages-Usage(page)|\n"                                                                 \
	"| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  "             \
	"HBM-Usage(MB)"                                                                            \
	"        |\n" BAR
#define PROCESSES                                                                                  \
	"| NPU     Chip              | Process id    | Process name             | Process "        \
	"memory(MB)      |\n" BAR

TEST(metrics_npu_smi, one_card)
{
	CHECK_INT(
		parse(HEAD
		      "| 0     910B2               | OK            | 96.4        41                "
		      "0 "
		      "   / 0             |\n"
		      "| 0                         | 0000:C1:00.0  | 63          0    / 0          "
		      "41277/ 65536         |\n" BAR PROCESSES
		      "| 0       0                 | 40121         | helper_proc              | "
		      "702  "
		      "                   |\n"
		      "| 0       0                 | 40388         |                          | "
		      "38211                   |\n" BAR),
		1);
	const struct ascend_chip *c = &chips[0];
	CHECK_STR(c->name, "910B2");
	CHECK_INT(c->device, 0);
	CHECK_INT(c->has, ASCEND_HAS_HEALTH | ASCEND_HAS_POWER | ASCEND_HAS_TEMPERATURE |
				  ASCEND_HAS_AICORE | ASCEND_HAS_MEMORY);
	CHECK_INT(c->health, ASCEND_OK);
	CHECK(fabs(c->power_w - 96.4) < 1e-9);
	CHECK_INT(c->temperature_c, 41);
	CHECK_INT(c->aicore, 63);
	CHECK_INT(c->memory.used_bytes, 41277ll << 20);
	CHECK_INT(c->memory.total_bytes, 65536ll << 20);
	CHECK_INT(c->memory.nprocesses, 2);
	CHECK_INT(c->memory.processes[0].pid, 40121);
	CHECK_INT(c->memory.processes[1].pid, 40388);
	CHECK_INT(c->memory.processes[1].bytes, 38211ll << 20);
}

/* Two chips on a card, physical ids, a fifth column, a card without processes, words for health. */
TEST(metrics_npu_smi, two_chips_on_a_card)
{
	CHECK_INT(parse(HEAD
			"| 2     Ascend910  | Warning | 180.5  60  0 / 0 |\n"
			"| 0     4          | 0000:0A:00.0 | 100  0 / 0  100 / 65536 |\n" BAR
			"| 2     Ascend910  | Alarm | -  61  0 / 0 |\n"
			"| 1     5          | 0000:0B:00.0 | 0  0 / 0  65536/ 65536 |\n" BAR
			"| 3     Ascend910  | Critical | NA  NA  NA / NA |\n"
			"| 0     6          | 0000:0C:00.0 | NA  NA / NA  NA / NA |\n" BAR
			"| NPU  Chip | Process id | Process name | Process memory(MB) | Process id "
			"in container |\n" BAR "| 2  1 | 77 | python | 12 | 5 |\n"
			"| No running processes found in NPU 3 |\n" BAR),
		  3);
	CHECK_INT(chips[0].device, 4);
	CHECK_INT(chips[0].card, 2);
	CHECK_INT(chips[0].health, ASCEND_WARNING);
	CHECK_INT(chips[0].memory.nprocesses, 0);
	CHECK_INT(chips[1].device, 5);
	CHECK_INT(chips[1].index, 1);
	CHECK_INT(chips[1].health, ASCEND_ALARM);
	CHECK(!(chips[1].has & ASCEND_HAS_POWER) && chips[1].has & ASCEND_HAS_TEMPERATURE);
	CHECK_INT(chips[1].memory.nprocesses, 1);
	CHECK_INT(chips[1].memory.processes[0].pid, 77);
	CHECK_INT(chips[1].memory.processes[0].bytes, 12 << 20);
	CHECK_INT(chips[2].health, ASCEND_CRITICAL);
	CHECK_INT(chips[2].has, ASCEND_HAS_HEALTH);
}

/* Nothing is known of the cards, and not all of the processes: they are there all the same. */
TEST(metrics_npu_smi, processes_alone)
{
	CHECK_INT(parse("| NPU  Chip | PROCESS   ID | Process Name | Process memory(MB) | Process "
			"id in "
			"container |\n" BAR "| 1  0 | 77 | VLLMWorker_TP | 12 | 5 |\n"
			"| 1  0 | 78 |  | NA | |\n"
			"| No running processes found in NPU 2 |\n"
			"| 3  1 | 79 | a b c |\n"),
		  2);
	const struct ascend_memory *m = &chips[0].memory;
	CHECK_INT(chips[0].card, 1);
	CHECK_INT(chips[0].has, 0);
	CHECK_INT(m->nprocesses, 2);
	CHECK_INT(m->processes[0].pid, 77);
	CHECK_INT(m->processes[0].inner_pid, 5);
	CHECK_INT(m->processes[0].bytes, 12 << 20);
	CHECK_INT(m->processes[1].pid, 78);
	CHECK_INT(m->processes[1].inner_pid, 0);
	CHECK(m->processes[1].bytes == ASCEND_NO_BYTES);
	CHECK_INT(chips[1].memory.processes[0].pid, 79);
	CHECK(chips[1].memory.processes[0].bytes == ASCEND_NO_BYTES);
	/* The memory under another heading, and in another place. */
	CHECK_INT(parse("| NPU Chip | HBM-Usage(MB) | pid | Process name |\n| 0 0 | 7 | 6 | x |\n"),
		  1);
	CHECK_INT(m->processes[0].pid, 6);
	CHECK_INT(m->processes[0].bytes, 7 << 20);
}

/* An inference card: its memory is not HBM, and its number is not its place. */
TEST(metrics_npu_smi, memory_of_another_kind)
{
	CHECK_INT(parse(HEAD "| 8     310P3 | OK | NA 55 0 / 0 |\r\n"
			     "| 0     0     | 0000:08:00.0 | 12 1754 / 21527 |\r\n"),
		  1);
	CHECK_INT(chips[0].card, 8);
	CHECK_INT(chips[0].device, 0);
	CHECK_INT(chips[0].memory.used_bytes, 1754ll << 20);
	CHECK_INT(chips[0].memory.total_bytes, 21527ll << 20);
}

TEST(metrics_npu_smi, nonsense)
{
	static const char *const texts[] = {
		"",
		"|",
		"||",
		"|||",
		"||||\n",
		"no table\n",
		"| 0 X | OK | 1 2 |\n", /* its second line does not come */
		"| 0 | 0000:00:00.0 | 5 |\n", /* nor does its first */
		"| 99999999999999 X | OK | 1 2 |\n| 0 | 0:0:0 | 1 |\n",
		"| NPU Chip | Process id | n | Process memory(MB) |\n| 0 0 | 0 | x | 2 |\n",
		"| NPU Chip | Process id |\n| 0 | 1 |\n| 0 0 | a |\n| 0 0 |\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		CHECK_INT(parse(texts[i]), 0);
	/* Values that cannot be are left out; the chip stays. */
	CHECK_INT(parse("| 0 X | ? | 1.2.3 -5 |\n| 0 | 0:0:0 | 101 9 / 3 / 4294967296 / |\n"), 1);
	CHECK_INT(chips[0].has, ASCEND_HAS_HEALTH);
	CHECK_INT(chips[0].health, ASCEND_UNKNOWN);
}

/* --- the program --- */

static void install(const char *script)
{
	const char *path = tmpfile_path("npu-smi");
	FILE *f = fopen(path, "w");

	CHECK(f && fprintf(f, "#!/bin/sh\n%s\n", script) > 0 && fclose(f) == 0);
	CHECK(chmod(path, 0755) == 0);
	char *with = NULL;
	CHECK(asprintf(&with, "%s:/usr/bin:/bin", tmpdir()) > 0);
	setenv("PATH", with, 1);
	free(with);
}

static int run(const char *script, unsigned timeout_ms, struct err *err)
{
	struct npu_smi s = {0};
	struct buf out = {0};

	install(script);
	int r = npu_smi_run(&s, timeout_ms, &out, err);
	if (r == 0)
		CHECK_STR(buf_str(&out), "hello info\n");
	buf_release(&out);
	CHECK_INT(s.hanging, 0);
	return r;
}

TEST(metrics_npu_smi, runs)
{
	CHECK_INT(run("echo hello $1", 10000, NULL), 0);
}

TEST(metrics_npu_smi, is_not_waited_for)
{
	struct err err = {0};
	uint64_t begin_ns = clock_mono_ns();

	CHECK_INT(run("echo hello info; sleep 60", 200, &err), -ETIMEDOUT);
	CHECK(strstr(err.text, "200 ms"));
	/* It closed its output and lives on. */
	CHECK_INT(run("exec >&- ; sleep 60", 200, &err), -ETIMEDOUT);
	/* What it started keeps the output open. */
	CHECK_INT(run("echo hello info; sleep 5 & exit 0", 20000, &err), 0);
	CHECK(clock_mono_ns() - begin_ns < 30 * 1000000000ull);
}

TEST(metrics_npu_smi, fails)
{
	struct err err = {0};

	CHECK_INT(run("exit 3", 10000, &err), -EIO);
	CHECK(strstr(err.text, "status 3"));
	CHECK_INT(run("kill -9 $$", 10000, &err), -EIO);
	CHECK(strstr(err.text, "status 137"));
	CHECK_INT(run("yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 10000, &err),
		  -EFBIG);
	setenv("PATH", "/nonexistent", 1);
	struct npu_smi s = {0};
	struct buf out = {0};
	CHECK_INT(npu_smi_run(&s, 1000, &out, &err), -ENOENT);
	buf_release(&out);
}

/* Without the library and with the program the source works; without both it says so. */
TEST(ascend_metrics, none)
{
	const struct metrics_options o = {0};
	struct err err = {0};
	void *n = NULL;

	setenv("PATH", "/nonexistent", 1);
	int r = ascend_metrics.open(&n, &o, &err);
	if (r == 0) /* the simulated library is in the path of libraries */
		ascend_metrics.close(n);
	else
		CHECK(r == -ENOENT && strstr(err.text, "libdcmi.so") &&
		      strstr(err.text, "npu-smi"));
}

static unsigned told;

static void count(void *arg, const struct sample *s)
{
	(void)arg;
	CHECK_STR(s->source, "npu");
	CHECK(s->device >= 0);
	told++;
}

TEST(ascend_metrics, by_the_program)
{
	const struct metrics_options o = {.env_attribution = true};
	void *n = NULL;

	install("echo '| 0 910B2 | OK | 96.4 41 0 / 0 |'; "
		"echo '| 0 | 0000:C1:00.0 | 63 0 / 0 41277/ 65536 |'");
	CHECK_INT(ascend_metrics.open(&n, &o, NULL), 0);
	CHECK_INT(ascend_metrics.read(n, count, NULL, NULL), 0);
	CHECK(told >= 1);
	ascend_metrics.close(n);
}
