/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Ranks that compute together.
 *
 *   mspti_collectives KINDS       four threads; the records of those kinds, what each rank has got
 *   mspti_collectives lost [stop] two processes, one of which ends, or stops, after the first
 */
#include <signal.h>
#include <sys/wait.h>

#include "hccl/hccl.h"
#include "mspti_consumer.h"
#include "mspti_job.h"

#define MAX_RANKS 8

struct rank {
	HcclRootInfo *root;
	uint32_t rank;
	uint32_t ranks;
	pthread_t thread;
	uint64_t word[4];
	int error;
};

static uint64_t first_word(const void *device)
{
	uint64_t v = 0;
	(void)aclrtMemcpy(&v, sizeof(v), device, sizeof(v), ACL_MEMCPY_DEVICE_TO_HOST);
	return v;
}

static void fill(void *device, uint64_t from, uint32_t parts, size_t part)
{
	for (uint32_t i = 0; i < parts; i++) {
		uint64_t v = from + i;
		(void)aclrtMemcpy((char *)device + i * part, sizeof(v), &v, sizeof(v),
				  ACL_MEMCPY_HOST_TO_DEVICE);
	}
}

/* Rank 1 comes late to everything. */
static void *rank_main(void *arg)
{
	struct rank *r = arg;
	void *stream = open_stream((int)r->rank);
	HcclComm comm = NULL;
	void *a = NULL;
	void *b = NULL;
	size_t part = 256 * sizeof(float);
	r->error = (int)HcclCommInitRootInfo(r->ranks, r->root, r->rank, &comm);
	if (r->error)
		return NULL;
	(void)aclrtMalloc(&a, part * MAX_RANKS, ACL_MEM_MALLOC_HUGE_FIRST);
	(void)aclrtMalloc(&b, part * MAX_RANKS, ACL_MEM_MALLOC_HUGE_FIRST);
	if (r->rank == 1)
		launch("SlowKernel", 20000000, stream);
	fill(a, 100 * r->rank, r->ranks, part);
	(void)HcclAllReduce(a, b, 256, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream);
	(void)aclrtSynchronizeStream(stream);
	r->word[0] = first_word(b);
	(void)HcclAllGather(a, b, 256, HCCL_DATA_TYPE_FP32, comm, stream);
	(void)aclrtSynchronizeStream(stream);
	r->word[1] = first_word((char *)b + part * (r->ranks - 1));
	(void)HcclReduceScatter(a, b, 256, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream);
	(void)aclrtSynchronizeStream(stream);
	r->word[2] = first_word(b);
	(void)HcclBroadcast(a, 512, HCCL_DATA_TYPE_FP16, r->ranks - 1, comm, stream);
	(void)HcclBarrier(comm, stream);
	r->error = aclrtSynchronizeStream(stream);
	r->word[3] = first_word(a);
	(void)HcclCommDestroy(comm);
	return NULL;
}

static int collectives(const char *kinds)
{
	HcclRootInfo root;
	struct rank rank[4];
	uint32_t ranks = 4;
	if (consumer_start(kinds) || HcclGetRootInfo(&root))
		return 1;
	for (uint32_t i = 0; i < ranks; i++) {
		rank[i] = (struct rank){.root = &root, .rank = i, .ranks = ranks};
		pthread_create(&rank[i].thread, NULL, rank_main, &rank[i]);
	}
	for (uint32_t i = 0; i < ranks; i++)
		pthread_join(rank[i].thread, NULL);
	(void)mspti.msptiActivityFlushAll(1);
	for (uint32_t i = 0; i < ranks; i++)
		printf("{\"rank\":%u,\"error\":%d,\"words\":[%llu,%llu,%llu,%llu]}\n", i,
		       rank[i].error, (unsigned long long)rank[i].word[0],
		       (unsigned long long)rank[i].word[1], (unsigned long long)rank[i].word[2],
		       (unsigned long long)rank[i].word[3]);
	return 0;
}

/* One of two ranks ends, or stops, before the second collective. */
static void lost_rank(const HcclRootInfo *root, uint32_t rank, int stops)
{
	void *stream = open_stream((int)rank);
	HcclComm comm = NULL;
	void *a = NULL;
	if (HcclCommInitRootInfo(2, root, rank, &comm))
		_exit(4);
	(void)aclrtMalloc(&a, 4096, ACL_MEM_MALLOC_HUGE_FIRST);
	(void)HcclAllReduce(a, a, 16, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream);
	int first = aclrtSynchronizeStream(stream);
	if (rank == 1) {
		if (stops)
			raise(SIGSTOP);
		_exit(0);
	}
	(void)HcclAllReduce(a, a, 16, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream);
	int second = aclrtSynchronizeStream(stream);
	(void)HcclAllReduce(a, a, 16, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream);
	printf("{\"first\":%d,\"second\":%d,\"third\":%d}\n", first, second,
	       aclrtSynchronizeStream(stream));
	fflush(stdout);
	_exit(0);
}

static int lost(const char *how)
{
	HcclRootInfo root;
	pid_t child[2];
	if (HcclGetRootInfo(&root))
		return 1;
	for (uint32_t i = 0; i < 2; i++) {
		child[i] = fork();
		if (!child[i])
			lost_rank(&root, i, !strcmp(how, "stop"));
	}
	(void)waitpid(child[0], NULL, 0);
	(void)kill(child[1], SIGKILL);
	(void)waitpid(child[1], NULL, 0);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "lost"))
		return lost(argc > 2 ? argv[2] : "");
	return collectives(argc > 1 ? argv[1] : "9");
}
