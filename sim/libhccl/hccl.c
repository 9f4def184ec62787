/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A collective is one task on the stream. It begins when the stream gets there and ends for all
 * ranks at the same moment: when the last has come, plus the time that the bytes take. Who comes
 * early waits, and its record is the longer one.
 */
#include "hccl/hccl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group.h"
#include "hal/ascend_hal.h"
#include "runtime/rt.h"
#include "sim/feed.h"
#include "sim/kernel.h"
#include "sim/state.h"

#define LATENCY_NS 20000u
#define BYTES_PER_NS 100u

enum op_kind { OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_BROADCAST, OP_BARRIER };

static const struct {
	const char *kernel; /* the name of the task and of its Communication record */
	const char *hccl; /* of its Hccl record */
	const char *algorithm;
} kinds[] = {
	[OP_ALL_REDUCE] = {"hcom_allReduce_", "HcclAllReduce", "RING"},
	[OP_ALL_GATHER] = {"hcom_allGather_", "HcclAllGather", "RING"},
	[OP_REDUCE_SCATTER] = {"hcom_reduceScatter_", "HcclReduceScatter", "RING"},
	[OP_BROADCAST] = {"hcom_broadcast_", "HcclBroadcast", "STAR"},
	[OP_BARRIER] = {"hcom_barrier_", "HcclBarrier", "RING"},
};

struct comm {
	struct group *group;
	pthread_mutex_t calls; /* held while a task is queued, which may wait for the stream */
	uint64_t next; /* number of the next collective */
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t turn_changed;
	uint64_t turn; /* of the one that may run: streams may be several */
	char name[HCCL_COMM_NAME_BYTES];
};

struct op {
	enum op_kind kind;
	struct comm *comm;
	uint64_t number;
	char *send;
	char *recv;
	uint64_t count;
	uint64_t bytes; /* that this rank sends, per part where there are parts */
	int32_t type;
	uint32_t root;
};

static uint64_t type_bytes(HcclDataType t)
{
	static const uint8_t bytes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2, 16};
	return (unsigned)t < sizeof(bytes) ? bytes[t] : 0;
}

static size_t part_bytes(const struct op *o)
{
	return o->bytes < PART_BYTES ? o->bytes : PART_BYTES;
}

static void bring(const struct op *o)
{
	struct group *g = o->comm->group;
	uint32_t parts = o->kind == OP_REDUCE_SCATTER ? group_ranks(g) : 1;
	group_parts *mine = group_parts_of(g, o->number, group_rank(g));
	for (uint32_t i = 0; i < parts; i++) {
		memset((*mine)[i], 0, PART_BYTES);
		if (o->send && sim_hal_backed(o->send))
			memcpy((*mine)[i], o->send + i * o->bytes, part_bytes(o));
	}
}

static void add_up(const struct op *o, uint32_t part)
{
	struct group *g = o->comm->group;
	uint64_t sum[PART_BYTES / 8] = {0};
	for (uint32_t i = 0; i < group_ranks(g); i++) {
		uint64_t words[PART_BYTES / 8];
		memcpy(words, (*group_parts_of(g, o->number, i))[part], sizeof(words));
		for (size_t w = 0; w < PART_BYTES / 8; w++)
			sum[w] += words[w];
	}
	memcpy(o->recv, sum, part_bytes(o));
}

static void take_home(const struct op *o)
{
	struct group *g = o->comm->group;
	if (!o->recv || !sim_hal_backed(o->recv))
		return;
	switch (o->kind) {
	case OP_ALL_REDUCE:
		add_up(o, 0);
		break;
	case OP_REDUCE_SCATTER:
		add_up(o, group_rank(g));
		break;
	case OP_ALL_GATHER:
		for (uint32_t i = 0; i < group_ranks(g); i++)
			memcpy(o->recv + i * o->bytes, (*group_parts_of(g, o->number, i))[0],
			       part_bytes(o));
		break;
	case OP_BROADCAST:
		memcpy(o->recv, (*group_parts_of(g, o->number, o->root))[0], part_bytes(o));
		break;
	case OP_BARRIER:
		break;
	}
}

static void tell(const struct sim_running *at, const struct op *o, uint64_t end)
{
	uint64_t begin = at->begin_ns;
	if (sim_feed_wants(MSPTI_ACTIVITY_KIND_COMMUNICATION)) {
		msptiActivityCommunication r = {.kind = MSPTI_ACTIVITY_KIND_COMMUNICATION,
						.dataType = o->type,
						.count = o->count,
						.ds = {(uint32_t)at->device, (uint32_t)at->stream},
						.start = sim_wall_ns(begin),
						.end = sim_wall_ns(end),
						.algType = kinds[o->kind].algorithm,
						.name = kinds[o->kind].kernel,
						.commName = o->comm->name,
						.correlationId = at->correlation};
		sim_feed_take(&r, sizeof(r));
	}
	if (sim_feed_wants(MSPTI_ACTIVITY_KIND_HCCL)) {
		msptiActivityHccl r = {
			.kind = MSPTI_ACTIVITY_KIND_HCCL,
			.start = sim_wall_ns(begin),
			.end = sim_wall_ns(end),
			.ds = {(uint32_t)at->device, (uint32_t)at->stream},
			.bandWidth = end > begin ? (double)o->bytes / (double)(end - begin) : 0,
			.name = kinds[o->kind].hccl,
			.commName = o->comm->name};
		sim_feed_take(&r, sizeof(r));
	}
}

/* Collectives of one communicator run in the order of their calls, whatever streams they are on. */
static void begin_turn(struct comm *c, uint64_t number)
{
	pthread_mutex_lock(&c->lock);
	while (c->turn != number)
		pthread_cond_wait(&c->turn_changed, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

static void end_turn(struct comm *c)
{
	pthread_mutex_lock(&c->lock);
	c->turn++;
	pthread_cond_broadcast(&c->turn_changed);
	pthread_mutex_unlock(&c->lock);
}

static uint64_t run_on_device(struct sim_running *at, const void *args, size_t size)
{
	struct op o;
	if (size != sizeof(o))
		return at->begin_ns;
	memcpy(&o, args, sizeof(o));
	uint64_t cost = (uint64_t)((double)(LATENCY_NS + o.bytes / BYTES_PER_NS) * at->scale);
	begin_turn(o.comm, o.number);
	bring(&o);
	uint64_t end = group_meet(o.comm->group, o.number, at->begin_ns, cost);
	if (end) {
		take_home(&o);
		tell(at, &o, end);
	} else {
		at->error = RT_ERROR_AICPU_EXCEPTION;
	}
	end_turn(o.comm);
	return end > at->begin_ns ? end : at->begin_ns;
}

static HcclResult start(const struct op *op, const char *function, void *stream)
{
	struct comm *c = op->comm;
	if (!c)
		return HCCL_E_PTR;
	if (op->kind != OP_BARRIER && (!op->send || !op->recv))
		return HCCL_E_PTR;
	if ((op->kind != OP_BARRIER && !op->bytes) || op->root >= group_ranks(c->group))
		return HCCL_E_PARA;
	struct op o = *op;
	struct rtArgsEx ex = {.args = &o, .argsSize = sizeof(o)};
	struct sim_call call;
	sim_call_open(&call, MSPTI_ACTIVITY_KIND_API, function);
	pthread_mutex_lock(&c->calls);
	o.number = c->next;
	int r = rtAicpuKernelLaunchExWithArgs(0, kinds[o.kind].kernel, 1, &ex, NULL, stream, 0);
	if (!r)
		c->next++;
	pthread_mutex_unlock(&c->calls);
	return sim_call_close(&call, r ? HCCL_E_RUNTIME : HCCL_SUCCESS);
}

HcclResult HcclAllReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType,
			 HcclReduceOp op, HcclComm comm, void *stream)
{
	(void)op;
	struct op o = {.kind = OP_ALL_REDUCE,
		       .comm = comm,
		       .send = sendBuf,
		       .recv = recvBuf,
		       .count = count,
		       .bytes = count * type_bytes(dataType),
		       .type = (int32_t)dataType};
	return start(&o, __func__, stream);
}

HcclResult HcclAllGather(void *sendBuf, void *recvBuf, uint64_t sendCount, HcclDataType dataType,
			 HcclComm comm, void *stream)
{
	struct op o = {.kind = OP_ALL_GATHER,
		       .comm = comm,
		       .send = sendBuf,
		       .recv = recvBuf,
		       .count = sendCount,
		       .bytes = sendCount * type_bytes(dataType),
		       .type = (int32_t)dataType};
	return start(&o, __func__, stream);
}

HcclResult HcclReduceScatter(void *sendBuf, void *recvBuf, uint64_t recvCount,
			     HcclDataType dataType, HcclReduceOp op, HcclComm comm, void *stream)
{
	(void)op;
	struct op o = {.kind = OP_REDUCE_SCATTER,
		       .comm = comm,
		       .send = sendBuf,
		       .recv = recvBuf,
		       .count = recvCount,
		       .bytes = recvCount * type_bytes(dataType),
		       .type = (int32_t)dataType};
	return start(&o, __func__, stream);
}

HcclResult HcclBroadcast(void *buf, uint64_t count, HcclDataType dataType, uint32_t root,
			 HcclComm comm, void *stream)
{
	struct op o = {.kind = OP_BROADCAST,
		       .comm = comm,
		       .send = buf,
		       .recv = buf,
		       .count = count,
		       .bytes = count * type_bytes(dataType),
		       .type = (int32_t)dataType,
		       .root = root};
	return start(&o, __func__, stream);
}

HcclResult HcclBarrier(HcclComm comm, void *stream)
{
	struct op o = {.kind = OP_BARRIER,
		       .comm = comm,
		       .type = MSPTI_ACTIVITY_COMMUNICATION_INVALID_TYPE};
	return start(&o, __func__, stream);
}

/* --- communicators --- */

/* Root info holds two words: where to meet, and the name. */
struct root_info {
	char place[64];
	char name[HCCL_COMM_NAME_BYTES];
};

HcclResult HcclGetRootInfo(HcclRootInfo *rootInfo)
{
	static _Atomic int made;
	if (!rootInfo)
		return HCCL_E_PTR;
	int n = made++;
	struct root_info info = {{0}, {0}};
	snprintf(info.place, sizeof(info.place), "%d-%llx-%d", (int)getpid(),
		 (unsigned long long)sim_now_ns(), n);
	snprintf(info.name, sizeof(info.name), "group_name_%d", n);
	memset(rootInfo, 0, sizeof(*rootInfo));
	memcpy(rootInfo->internal, &info, sizeof(info));
	return HCCL_SUCCESS;
}

static HcclResult make(const struct root_info *info, uint32_t ranks, uint32_t rank, HcclComm *out)
{
	struct comm *c = calloc(1, sizeof(*c));
	if (!c)
		return HCCL_E_MEMORY;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		(void)sim_kernel_register_timed(kinds[i].kernel, run_on_device);
	pthread_mutex_init(&c->calls, NULL);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->turn_changed, NULL);
	memcpy(c->name, info->name, sizeof(c->name) - 1);
	HcclResult r = group_join(info->place, ranks, rank, &c->group);
	if (r)
		free(c);
	else
		*out = c;
	return r;
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank,
				HcclComm *comm)
{
	struct root_info info;
	if (!rootInfo || !comm)
		return HCCL_E_PTR;
	memcpy(&info, rootInfo->internal, sizeof(info));
	if (!memchr(info.place, 0, sizeof(info.place)) || !info.place[0] || strchr(info.place, '/'))
		return HCCL_E_PARA;
	return make(&info, nRanks, rank, comm);
}

static uint32_t count_ranks(FILE *f)
{
	static const char key[] = "\"rank_id\"";
	uint32_t n = 0;
	size_t at = 0;
	for (int c = getc(f); c != EOF; c = getc(f)) {
		at = c == key[at] ? at + 1 : c == key[0];
		if (at == sizeof(key) - 1) {
			n++;
			at = 0;
		}
	}
	return n;
}

/* Ranks with the same table meet; the file is the same for all of them. */
HcclResult HcclCommInitClusterInfo(const char *clusterInfo, uint32_t rank, HcclComm *comm)
{
	struct root_info info = {{0}, "hccl_world_group"};
	if (!clusterInfo || !comm)
		return HCCL_E_PTR;
	char *path = realpath(clusterInfo, NULL);
	FILE *f = path ? fopen(path, "re") : NULL;
	uint64_t hash = 0xcbf29ce484222325ull;
	for (const char *at = path; at && *at; at++)
		hash = (hash ^ (unsigned char)*at) * 0x100000001b3ull;
	free(path);
	if (!f)
		return HCCL_E_OPEN_FILE_FAILURE;
	uint32_t ranks = count_ranks(f);
	fclose(f);
	snprintf(info.place, sizeof(info.place), "table-%016llx", (unsigned long long)hash);
	return make(&info, ranks, rank, comm);
}

HcclResult HcclCommDestroy(HcclComm comm)
{
	struct comm *c = comm;
	if (!c)
		return HCCL_E_PTR;
	group_leave(c->group);
	pthread_cond_destroy(&c->turn_changed);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->calls);
	free(c);
	return HCCL_SUCCESS;
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t *rankSize)
{
	if (!comm || !rankSize)
		return HCCL_E_PTR;
	*rankSize = group_ranks(((struct comm *)comm)->group);
	return HCCL_SUCCESS;
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank)
{
	if (!comm || !rank)
		return HCCL_E_PTR;
	*rank = group_rank(((struct comm *)comm)->group);
	return HCCL_SUCCESS;
}

HcclResult HcclGetCommName(HcclComm comm, char *commName)
{
	if (!comm || !commName)
		return HCCL_E_PTR;
	memcpy(commName, ((struct comm *)comm)->name, HCCL_COMM_NAME_BYTES);
	return HCCL_SUCCESS;
}
