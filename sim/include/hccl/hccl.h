/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Collectives between the ranks of a simulated job: processes or threads of one machine that made
 * a communicator from the same root info or the same rank table. They really wait for each other.
 */
#ifndef SONDE_SIM_HCCL_H
#define SONDE_SIM_HCCL_H

#include <stdint.h>

typedef enum {
	HCCL_SUCCESS = 0,
	HCCL_E_PARA = 1,
	HCCL_E_PTR = 2,
	HCCL_E_MEMORY = 3,
	HCCL_E_INTERNAL = 4,
	HCCL_E_NOT_SUPPORT = 5,
	HCCL_E_SYSCALL = 8,
	HCCL_E_TIMEOUT = 9,
	HCCL_E_OPEN_FILE_FAILURE = 10,
	HCCL_E_RUNTIME = 15,
	HCCL_E_REMOTE = 21,
} HcclResult;

typedef enum {
	HCCL_DATA_TYPE_INT8 = 0,
	HCCL_DATA_TYPE_INT16 = 1,
	HCCL_DATA_TYPE_INT32 = 2,
	HCCL_DATA_TYPE_FP16 = 3,
	HCCL_DATA_TYPE_FP32 = 4,
	HCCL_DATA_TYPE_INT64 = 5,
	HCCL_DATA_TYPE_UINT64 = 6,
	HCCL_DATA_TYPE_UINT8 = 7,
	HCCL_DATA_TYPE_UINT16 = 8,
	HCCL_DATA_TYPE_UINT32 = 9,
	HCCL_DATA_TYPE_FP64 = 10,
	HCCL_DATA_TYPE_BFP16 = 11,
	HCCL_DATA_TYPE_INT128 = 12,
} HcclDataType;

typedef enum {
	HCCL_REDUCE_SUM = 0,
	HCCL_REDUCE_PROD = 1,
	HCCL_REDUCE_MAX = 2,
	HCCL_REDUCE_MIN = 3,
} HcclReduceOp;

typedef void *HcclComm;

#define HCCL_ROOT_INFO_BYTES 4108
#define HCCL_COMM_NAME_BYTES 128
#define SIM_HCCL_MAX_RANKS 64

typedef struct {
	char internal[HCCL_ROOT_INFO_BYTES];
} HcclRootInfo;

HcclResult HcclGetRootInfo(HcclRootInfo *rootInfo);
/* Both wait until all ranks are there, at most HCCL_CONNECT_TIMEOUT seconds (120). */
HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank,
				HcclComm *comm);
/* @clusterInfo: a rank table in JSON; one "rank_id" per rank. */
HcclResult HcclCommInitClusterInfo(const char *clusterInfo, uint32_t rank, HcclComm *comm);
HcclResult HcclCommDestroy(HcclComm comm);
HcclResult HcclGetRankSize(HcclComm comm, uint32_t *rankSize);
HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank);
HcclResult HcclGetCommName(HcclComm comm, char *commName); /* HCCL_COMM_NAME_BYTES */

/*
 * They queue the operation and return. What was asked for happens to the first 64 bytes (of every
 * rank's part): reductions add them up as 64-bit numbers whatever type and operation are. A rank
 * that is gone, or not there within HCCL_EXEC_TIMEOUT seconds (1836), makes the stream fail for
 * good.
 */
HcclResult HcclAllReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType,
			 HcclReduceOp op, HcclComm comm, void *stream);
HcclResult HcclAllGather(void *sendBuf, void *recvBuf, uint64_t sendCount, HcclDataType dataType,
			 HcclComm comm, void *stream);
HcclResult HcclReduceScatter(void *sendBuf, void *recvBuf, uint64_t recvCount,
			     HcclDataType dataType, HcclReduceOp op, HcclComm comm, void *stream);
HcclResult HcclBroadcast(void *buf, uint64_t count, HcclDataType dataType, uint32_t root,
			 HcclComm comm, void *stream);
HcclResult HcclBarrier(HcclComm comm, void *stream);

#endif
