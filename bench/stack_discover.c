/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What it costs to look for processes on a node that has many of them: one search by each rule
 * among 10,000 idle processes that are not meant, with a family of 64 among them. A sampler
 * searches beside its samples, and never for more than a twentieth of a core (targets_search.c):
 * the last column is that share when it looks again every second.
 *
 * Fails if a search by any rule takes more than a second of CPU time.
 * Arguments: processes (default 10000). BENCH_QUICK: a twentieth of them.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sampler/discover/discover.h"

#define FAMILY 64
#define ROUNDS 3
#define SLOWEST_MS 1000.0
#define SHARE 20

static pid_t idle(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

/* One that has children, which end with it. */
static pid_t family(void)
{
	int fds[2];
	char c;

	if (pipe(fds) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		for (unsigned i = 1; i < FAMILY; i++)
			idle();
		if (write(fds[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	if (pid < 0 || read(fds[0], &c, 1) != 1)
		pid = -1;
	close(fds[0]);
	close(fds[1]);
	return pid;
}

static double cpu_ms(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-3;
}

static int measure(const char *what, const struct discover_rules *rules, unsigned processes,
		   double *slowest_ms)
{
	double best_ms = 1e9;
	struct discovery d = {0};
	struct err err = {0};
	unsigned found = 0;

	for (int i = 0; i < ROUNDS; i++) {
		double ms = cpu_ms();

		if (discover(rules, &d, &err) < 0) {
			fprintf(stderr, "stack_discover: %s\n", err.text);
			return -1;
		}
		ms = cpu_ms() - ms;
		best_ms = ms < best_ms ? ms : best_ms;
		found = d.n;
		discovery_release(&d);
	}
	/* Every second, or as much less often as it takes to stay below its share. */
	double pause_ms = best_ms * SHARE > 1000 ? best_ms * SHARE : 1000;
	printf("stack_discover %-20s %6u processes  %3u found  %7.2f ms of CPU  %5.2f us each  "
	       "%5.2f %% of a core\n",
	       what, processes, found, best_ms, best_ms * 1e3 / processes,
	       100 * best_ms / (pause_ms + best_ms));
	*slowest_ms = best_ms > *slowest_ms ? best_ms : *slowest_ms;
	return 0;
}

int main(int argc, char **argv)
{
	unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 10000, made = 0;
	bool quick = getenv("BENCH_QUICK") != NULL;
	const char *name[] = {"no-such-name-anywhere"}, *container[] = {"3f2a9c0d1e55aabb"};
	double slowest_ms = 0;

	if (quick)
		n /= 20;
	pid_t *all = calloc(n, sizeof(*all)), kin = family();
	if (!all || kin < 0)
		return 1;
	while (made < n && (all[made] = idle()) > 0)
		made++;
	if (made < n)
		printf("stack_discover: only %u processes can be had here\n", made);
	int r = measure("by pid", &(struct discover_rules){.pids = &kin, .npids = 1}, made,
			&slowest_ms);
	r |= measure("by parent", &(struct discover_rules){.parents = &kin, .nparents = 1}, made,
		     &slowest_ms);
	r |= measure("by name", &(struct discover_rules){.names = name, .nnames = 1}, made,
		     &slowest_ms);
	r |= measure("by container", &(struct discover_rules){.cgroups = container, .ncgroups = 1},
		     made, &slowest_ms);
	r |= measure("all that run Python", &(struct discover_rules){.all_python = true}, made,
		     &slowest_ms);
	for (unsigned i = 0; i < made; i++)
		kill(all[i], SIGKILL);
	kill(kin, SIGKILL);
	while (wait(NULL) > 0 || errno == EINTR)
		;
	free(all);
	if (!quick && slowest_ms > SLOWEST_MS) {
		printf("stack_discover: FAIL: a search takes %.0f ms of CPU, more than %.0f ms\n",
		       slowest_ms, SLOWEST_MS);
		return 1;
	}
	return r ? 1 : 0;
}
