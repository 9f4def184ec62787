/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A job of ranks, as torchrun starts one: the launcher touches no device; every rank is a program
 * of its own with RANK in its environment. They share a page with the launcher, which has the root
 * info of their communicator and takes their results.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hccl/hccl.h"
#include "rank.h"
#include "sim/feed.h"

#define PATIENCE_MS 10000 /* for the others, after the first rank has failed */

struct world {
	HcclRootInfo root;
	struct rank_result result[MAX_TRAIN_RANKS];
};

static struct world *world;

static int map_world(int fd)
{
	void *mem = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		return -1;
	world = mem;
	return 0;
}

static void set_number(const char *name, long long value)
{
	char text[32];
	snprintf(text, sizeof(text), "%lld", value);
	(void)setenv(name, text, 1);
}

static void become_rank(const struct train_options *o, int rank, int fd, char **argv, pid_t parent)
{
	char program[PATH_MAX];
	char rank_of[32];
	char *words[64];
	int n = 0;
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
	program[length > 0 ? length : 0] = 0;
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	set_number("RANK", rank);
	set_number("RANK_ID", rank);
	set_number("LOCAL_RANK", rank);
	set_number("WORLD_SIZE", o->ranks);
	set_number("LOCAL_WORLD_SIZE", o->ranks);
	set_number("SIM_WALL_MINUS_MONO", (long long)sim_wall_ns(0));
	for (; argv[n] && n < 60; n++)
		words[n] = argv[n];
	snprintf(rank_of, sizeof(rank_of), "%d:%d", rank, fd);
	words[n++] = (char *)(uintptr_t) "--rank-of";
	words[n++] = rank_of;
	words[n] = NULL;
	execv(program, words);
	fprintf(stderr, "simtrain: rank %d: exec: %s\n", rank, strerror(errno));
	_exit(1);
}

/* Waits for all; after a failure the others have some time to notice, then they are ended. */
static int wait_ranks(const pid_t *child, int n)
{
	int failed = 0;
	int waited_ms = 0;
	for (int left = n; left > 0;) {
		int status;
		pid_t pid = waitpid(-1, &status, failed ? WNOHANG : 0);
		if (pid > 0) {
			left--;
			failed |= !WIFEXITED(status) || WEXITSTATUS(status);
		} else if (pid < 0 && errno != EINTR) {
			return 1;
		} else if (!pid) {
			nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
			waited_ms += 10;
			if (waited_ms == PATIENCE_MS)
				for (int i = 0; i < n; i++)
					(void)kill(child[i], SIGKILL);
		}
	}
	return failed;
}

int ranks_launch(const struct train_options *o, char **argv)
{
	pid_t child[MAX_TRAIN_RANKS];
	pid_t self = getpid();
	int fd = memfd_create("simtrain", 0);
	if (fd < 0 || ftruncate(fd, sizeof(*world)) || map_world(fd) ||
	    HcclGetRootInfo(&world->root)) {
		fprintf(stderr, "simtrain: no memory to share: %s\n", strerror(errno));
		return 1;
	}
	for (int i = 0; i < o->ranks; i++) {
		child[i] = fork();
		if (!child[i])
			become_rank(o, i, fd, argv, self);
		if (child[i] < 0) {
			fprintf(stderr, "simtrain: fork: %s\n", strerror(errno));
			for (int k = 0; k < i; k++)
				(void)kill(child[k], SIGKILL);
			return 1;
		}
	}
	if (wait_ranks(child, o->ranks))
		return 1;
	print_result(o, world->result);
	return 0;
}

struct rank_result *ranks_attach(const struct train_options *o)
{
	if (map_world(o->world_fd)) {
		fprintf(stderr, "simtrain: --rank-of is for the launcher only\n");
		return NULL;
	}
	close(o->world_fd);
	return world->result;
}

int ranks_connect(struct rank *r)
{
	HcclResult e = HcclCommInitRootInfo((uint32_t)r->opt->ranks, &world->root,
					    (uint32_t)r->index, &r->comm);
	if (e)
		fprintf(stderr, "simtrain: rank %d: the ranks did not get together (HCCL %d)\n",
			r->index, (int)e);
	return e ? -1 : 0;
}

void ranks_disconnect(struct rank *r)
{
	if (r->comm)
		(void)HcclCommDestroy(r->comm);
	r->comm = NULL;
}
