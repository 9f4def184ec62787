/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * simtrain: processes, ranks, and what is printed.
 *
 *   process 0 (the parent)   process 1   ...      forked before the device is touched
 *     rank thread per device   rank threads
 *
 * With --ranks, the parent is a launcher instead (ranks.c), and a process has one rank.
 *
 * Only rank 0 prints while it runs. Every rank leaves its hash in memory shared with the parent,
 * which folds them in rank order: the result does not depend on who was first.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "acl/acl.h"
#include "rank.h"
#include "sim/kernel.h"

#define MAX_RANKS 1024

struct meeting;

struct rank_thread {
	const struct train_options *opt;
	int index;
	int local;
	int device;
	struct rank_result *result;
	pthread_t thread;
	struct meeting *meeting;
};

static uint64_t now_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

static void wait_until_ms(uint64_t when)
{
	uint64_t now = now_ms();
	if (now >= when)
		return;
	struct timespec ts = {.tv_sec = (time_t)((when - now) / 1000),
			      .tv_nsec = (long)((when - now) % 1000) * 1000000l};
	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* Where the ranks of a process wait for each other, as the collectives of a real job make them. */
struct meeting {
	pthread_mutex_t lock;
	pthread_cond_t all_here;
	int members;
	int waiting;
	unsigned round;
};

static void begin_if_all(struct meeting *m)
{
	if (m->waiting < m->members)
		return;
	m->waiting = 0;
	m->round++;
	pthread_cond_broadcast(&m->all_here);
}

static void meet(struct meeting *m)
{
	pthread_mutex_lock(&m->lock);
	unsigned round = m->round;
	m->waiting++;
	begin_if_all(m);
	while (round == m->round)
		pthread_cond_wait(&m->all_here, &m->lock);
	pthread_mutex_unlock(&m->lock);
}

/* For good: the others need not wait for this one any more. */
static void leave(struct meeting *m)
{
	pthread_mutex_lock(&m->lock);
	m->members--;
	if (m->members)
		begin_if_all(m);
	pthread_mutex_unlock(&m->lock);
}

static void train(struct rank *r, struct meeting *meeting)
{
	struct loader *loader = r->leader ? loader_new(r->opt, r->device) : NULL;
	for (int step = 1; step <= r->opt->steps || r->opt->forever; step++) {
		uint64_t begin = now_ms();
		meet(meeting);
		r->hash ^= loader_step(loader, step);
		double loss = train_step(r, step);
		if (r->failed) {
			fprintf(stderr,
				"simtrain: rank %d: step %d failed: another rank is gone or too "
				"late\n",
				r->index, step);
			break;
		}
		if (r->index == 0 && !r->opt->quiet) {
			printf("step %d loss %.6f\n", step, loss);
			fflush(stdout);
		}
		if (r->opt->step_ms)
			wait_until_ms(begin + (uint64_t)r->opt->step_ms);
	}
	loader_free(loader);
}

static void *rank_main(void *arg)
{
	struct rank_thread *t = arg;
	struct rank r = {.opt = t->opt,
			 .index = t->index,
			 .device = t->device,
			 .leader = t->local == 0,
			 .random = t->opt->seed * 1000003u + (uint64_t)t->index,
			 .hash = 0xcbf29ce484222325ull};
	t->result->failed = 1;
	if (aclrtSetDevice(r.device) || aclrtCreateStream(&r.stream)) {
		fprintf(stderr, "simtrain: rank %d: no device %d\n", r.index, r.device);
		leave(t->meeting);
		return NULL;
	}
	if (r.index == t->opt->slow_rank)
		sim_stream_slow(r.stream, t->opt->slow_factor);
	if (t->opt->ranks && ranks_connect(&r)) {
		leave(t->meeting);
		return NULL;
	}
	if (memory_open(&r) || train_setup(&r)) {
		fprintf(stderr, "simtrain: rank %d: out of memory while setting up\n", r.index);
		leave(t->meeting);
		return NULL;
	}
	train(&r, t->meeting);
	leave(t->meeting);
	train_finish(&r);
	(void)aclrtSynchronizeStream(r.stream);
	(void)aclrtDestroyStream(r.stream);
	ranks_disconnect(&r);
	memory_close(&r);
	t->result->hash = r.hash;
	t->result->allocations = r.allocations;
	t->result->failed = r.failed;
	return NULL;
}

/* One process's ranks; the first runs in the main thread, as in a job with one device per process.
 */
static int run_process(const struct train_options *o, int proc, struct rank_result *results)
{
	struct rank_thread t[16];
	struct meeting meeting = {.lock = PTHREAD_MUTEX_INITIALIZER,
				  .all_here = PTHREAD_COND_INITIALIZER,
				  .members = o->devices};
	uint32_t devices = 0;
	if (aclInit(NULL) || aclrtGetDeviceCount(&devices) || !devices) {
		fprintf(stderr, "simtrain: no devices\n");
		return 1;
	}
	ops_register(o);
	for (int i = 0; i < o->devices; i++) {
		int index = o->ranks ? o->rank : proc * o->devices + i;
		t[i] = (struct rank_thread){.opt = o,
					    .index = index,
					    .local = i,
					    .meeting = &meeting,
					    .device = index % (int)devices,
					    .result = &results[index]};
		if (i && pthread_create(&t[i].thread, NULL, rank_main, &t[i])) {
			fprintf(stderr, "simtrain: cannot create a thread\n");
			return 1;
		}
	}
	rank_main(&t[0]);
	int failed = t[0].result->failed;
	for (int i = 1; i < o->devices; i++) {
		pthread_join(t[i].thread, NULL);
		failed |= t[i].result->failed;
	}
	(void)aclFinalize();
	return failed;
}

static int wait_children(const pid_t *child, int n)
{
	int failed = 0;
	for (int i = 1; i < n; i++) {
		int status;
		while (waitpid(child[i], &status, 0) < 0 && errno == EINTR)
			;
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			failed = 1;
	}
	return failed;
}

void print_result(const struct train_options *o, const struct rank_result *results)
{
	uint64_t h = 0xcbf29ce484222325ull;
	int ranks = o->ranks ? o->ranks : o->procs * o->devices;
	for (int i = 0; i < ranks; i++) {
		h = (h ^ results[i].hash) * 0x100000001b3ull;
		h = (h ^ results[i].allocations) * 0x100000001b3ull;
	}
	printf("result %016llx\n", (unsigned long long)h);
}

static void print_head(const struct train_options *o)
{
	if (o->quiet)
		return;
	printf("simtrain: %d steps, %d layers, %d process(es) x %d device(s), pool %s, seed %llu\n",
	       o->steps, o->layers, o->ranks ? o->ranks : o->procs, o->devices, o->pool_name,
	       (unsigned long long)o->seed);
	fflush(stdout); /* before the forks: nobody else prints it again */
}

static int run_all(const struct train_options *o, struct rank_result *results)
{
	pid_t child[64] = {0};
	for (int p = 1; p < o->procs; p++) {
		child[p] = fork();
		if (child[p] < 0) {
			fprintf(stderr, "simtrain: fork: %s\n", strerror(errno));
			return 1;
		}
		if (!child[p])
			exit(run_process(o, p, results));
	}
	int failed = run_process(o, 0, results);
	return failed | wait_children(child, o->procs);
}

int main(int argc, char **argv)
{
	struct train_options o;
	int r = options_parse(&o, argc, argv);
	if (r)
		return r < 0 ? 2 : 0;
	if (o.slower_kernel[0] && ops_slow(o.slower_kernel, 1)) {
		fprintf(stderr, "simtrain: --slower: no kernel '%s' computes here, MatMulV2 does\n",
			o.slower_kernel);
		return 2;
	}
	if (o.ranks && o.rank >= 0) {
		struct rank_result *mine = ranks_attach(&o);
		return mine ? run_process(&o, 0, mine) : 2;
	}
	print_head(&o);
	if (o.ranks)
		return ranks_launch(&o, argv);
	struct rank_result *results =
		mmap(NULL, MAX_RANKS * sizeof(*results), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED) {
		fprintf(stderr, "simtrain: no memory: %s\n", strerror(errno));
		return 1;
	}
	if (run_all(&o, results))
		return 1;
	print_result(&o, results);
	return 0;
}
