/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The tables of a DB of activities, in the order and with the words that its readers know. */
#ifndef SONDE_ACTIVITY_FILES_DB_TABLES_H
#define SONDE_ACTIVITY_FILES_DB_TABLES_H

enum activity_table {
	TABLE_CANN_API,
	TABLE_COMMUNICATION_OP,
	TABLE_TASK,
	TABLE_COMPUTE_TASK_INFO,
	TABLE_MSTX_EVENTS,
	/* our own: kinds that today's tool has no place for */
	TABLE_HCCL,
	TABLE_MEMORY_OP,
	TABLE_MEMSET,
	TABLE_MEMCPY,
	TABLE_STRING_IDS,
	TABLE_END,
};

struct activity_table_spec {
	const char *name;
	const char *columns; /* of CREATE TABLE */
	int n;
};

extern const struct activity_table_spec activity_tables[TABLE_END];

#define API_TYPE_RUNTIME 5000
#define API_TYPE_NODE 10000
#define API_TYPE_ACL 20000
#define MSTX_TYPE_MARKER 0
#define MSTX_TYPE_RANGE 2
#define ACTIVITY_TASK_MARK "MsTx" /* taskType of marks that a stream has passed */

/* Tables that are there from the beginning, with their constant rows. */
extern const char activity_constant_sql[];
/* HOST_INFO, SESSION_TIME_INFO, NPU_INFO, RANK_DEVICE_MAP, ACTIVITY_LOSS with one row each, to be
 * filled in. */
extern const char activity_state_sql[];

#endif
