/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the monitor costs a job on the simulated NPU, which has nothing to do but launch: preloaded
 * and not asked for; asked for, with a daemon, and off; on with Kernel and Marker. Against the job
 * without it, in turns in the same run; of each the fastest round counts, since what disturbs only
 * adds. Processor time of the job's own thread; what the monitor's takes beside it is a system call
 * or two every other second while off.
 *
 * Fails if a step costs more than 2 % more while off. While on it is a figure for the simulated
 * library, whose records cost what they cost: see tests/device for a real one. BENCH_QUICK: fewer
 * rounds, and never fails.
 */
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "daemon_child.h"

#define BUDGET 1.02

enum way { PLAIN, NOT_ASKED, OFF, ON, WAYS };
static const char *const names[WAYS] = {"without", "not asked for", "off", "on"};

struct cost {
	double step, range, work;
};

static const char *build;
static struct daemon_child child;
static char go[128];

static void setup(enum way way)
{
	char libs[2 * PATH_MAX];

	snprintf(libs, sizeof(libs), "%s%s%s/sim/libmspti.so", way == PLAIN ? "" : build,
		 way == PLAIN ? "" : "/lib/libsonde_monitor.so:", build);
	setenv("LD_PRELOAD", libs, 1);
	setenv("KINETO_IPC_SOCKET_DIR", child.dir, 1);
	setenv("SONDE_MONITOR_DIR", child.dir, 1);
	if (way >= OFF)
		setenv("MSMONITOR_USE_DAEMON", "1", 1);
	else
		unsetenv("MSMONITOR_USE_DAEMON");
}

static bool call(const char *words, const char *wanted)
{
	char cmd[PATH_MAX + 512], line[4096];
	bool found = false;

	snprintf(cmd, sizeof(cmd), "'%s/bin/dyno' --port %u %s 2>/dev/null", build, child.port,
		 words);
	FILE *f = popen(cmd, "r");
	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, wanted) != NULL;
	if (f)
		pclose(f);
	return found;
}

static void wait_for(const char *words, const char *wanted)
{
	for (int i = 0; i < 500; i++) {
		if (call(words, wanted))
			return;
		bench_sleep_ms(20);
	}
	bench_die(wanted);
}

static void keep_best(struct cost *best, const struct cost *c)
{
	if (!best->work || c->step < best->step)
		best->step = c->step;
	if (!best->work || c->range < best->range)
		best->range = c->range;
	if (!best->work || c->work < best->work)
		best->work = c->work;
}

static void run(enum way way, int rounds, struct cost *best)
{
	char number[16], path[PATH_MAX], line[256];
	int out[2];
	struct cost c;

	snprintf(number, sizeof(number), "%d", rounds);
	snprintf(path, sizeof(path), "%s/bench/job_monitor", build);
	if (pipe(out) < 0)
		bench_die("pipe");
	pid_t pid = fork();
	if (!pid) {
		dup2(out[1], 1);
		close(out[0]);
		setup(way);
		execl(path, "job_monitor", number, go, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	if (way >= OFF)
		wait_for("status", "\"npumonitor\":\"Idle\"");
	if (way == ON) {
		call("npu-monitor --npu-monitor-start --report-interval-s 60 "
		     "--mspti-activity-kind Kernel,Marker",
		     "effective");
		wait_for("status", "\"npumonitor\":\"Running\"");
	}
	close(open(go, O_CREAT | O_WRONLY, 0600));
	FILE *f = fdopen(out[0], "r");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "ns %lf %lf %lf", &c.step, &c.range, &c.work) == 3)
			keep_best(best, &c);
	fclose(f);
	waitpid(pid, NULL, 0);
	unlink(go);
}

int main(void)
{
	bool quick = getenv("BENCH_QUICK") != NULL;
	const char *const more[] = {"--ipc-dir-only", NULL};
	struct cost best[WAYS] = {{0}};
	char real[PATH_MAX];

	build = realpath(getenv("SONDE_BUILD") ? getenv("SONDE_BUILD") : "build", real);
	daemon_child_init(&child);
	daemon_child_start(&child, more);
	snprintf(go, sizeof(go), "%s/go", child.dir);
	for (int i = 0; i < (quick ? 1 : 6); i++)
		for (int way = 0; way < WAYS; way++)
			run((enum way)way, quick ? 5 : 30, &best[way]);
	for (int way = 0; way < WAYS; way++)
		printf("monitor_idle: %-13s sonde_step() %6.1f ns, an mstx range %6.1f ns, a step "
		       "%8.1f us: x %.3f\n",
		       names[way], best[way].step, best[way].range, best[way].work / 1e3,
		       best[way].work / best[PLAIN].work);
	daemon_child_end(&child);
	bool bad = best[OFF].work > best[PLAIN].work * BUDGET ||
		   best[NOT_ASKED].work > best[PLAIN].work * BUDGET;
	return bad && !quick;
}
