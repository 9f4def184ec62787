/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The launcher. A rank is this program once more, so that its environment and its command line can
 * be looked at from outside like those of a real one. When the launcher dies, so do its ranks.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

#define RANK_ENV "SIMCLIENT_RANK"
#define SHARED_BYTES (1 << 20)

static int shared_fd = -1;

int client_shared_fd(void)
{
	return shared_fd;
}

/* The page of this launch: inherited, or made. */
static int open_shared(void)
{
	char text[16];
	const char *inherited = getenv(CLIENT_SHARED_ENV);
	if (inherited) {
		shared_fd = atoi(inherited);
		return 0;
	}
	shared_fd = memfd_create("simclient", 0);
	if (shared_fd < 0 || ftruncate(shared_fd, SHARED_BYTES))
		return -errno;
	snprintf(text, sizeof(text), "%d", shared_fd);
	return setenv(CLIENT_SHARED_ENV, text, 1);
}

static int run_rank(const struct client_options *o)
{
	return o->kind == CLIENT_KINETO ? kineto_run(o) : npu_run(o);
}

static pid_t start_rank(int rank, int ranks, char **argv)
{
	char number[16], world[16];
	pid_t launcher = getpid();
	pid_t pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != launcher)
		_exit(1);
	snprintf(number, sizeof(number), "%d", rank);
	snprintf(world, sizeof(world), "%d", ranks);
	setenv("RANK", number, 1);
	setenv("LOCAL_RANK", number, 1);
	setenv("WORLD_SIZE", world, 1);
	setenv(RANK_ENV, number, 1);
	execv("/proc/self/exe", argv);
	_exit(127);
}

static int launch(const struct client_options *o, char **argv)
{
	pid_t *ranks = calloc((size_t)o->ranks, sizeof(*ranks));
	int status = 0, worst = 0;
	if (!ranks)
		return 1;
	for (int i = 0; i < o->ranks; i++)
		ranks[i] = start_rank(i, o->ranks, argv);
	for (int left = o->ranks; left > 0;) {
		pid_t pid = waitpid(-1, &status, WNOHANG);
		if (pid < 0)
			break;
		if (pid) {
			left--;
			if (status)
				worst = 1;
			continue;
		}
		nap_ms(50);
		for (int i = 0; stop_asked() && i < o->ranks; i++)
			if (ranks[i] > 0)
				kill(ranks[i], SIGTERM);
		if (stop_asked()) {
			while (waitpid(-1, &status, 0) > 0)
				;
			break;
		}
	}
	free(ranks);
	return worst;
}

int main(int argc, char **argv)
{
	struct client_options o;
	int r = options_parse(argc, argv, &o);
	if (r)
		return r - 1;
	stop_init();
	if (open_shared()) {
		fprintf(stderr, "simclient: no shared page: %s\n", strerror(errno));
		return 1;
	}
	const char *rank = getenv(RANK_ENV);
	o.rank = rank ? atoi(rank) : 0;
	say_init(o.rank, o.quiet);
	return o.ranks && !rank ? launch(&o, argv) : run_rank(&o);
}
