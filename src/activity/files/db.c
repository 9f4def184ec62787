/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities as rows of the tables that readers of msmonitor's DB know, and of some of our own. */
#include "activity/files/activity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activity/files/db_file.h"
#include "base/clock.h"
#include "base/mem.h"

#define GROUP_DIGITS 3

struct group {
	uint64_t count; /* of its operations */
	char digits[GROUP_DIGITS + 1];
};

struct activity_writer {
	struct db_file f;
	struct hmap groups; /* by the pointer of their name */
	uint64_t task, op; /* the next ids */
	struct buf text;
};

/* A column with the value of a field, or of a source of the DB. */
#define F(column, field)                                                                           \
	{                                                                                          \
		.name = #column, .source = FIELD_##field                                           \
	}
#define D(column, from)                                                                            \
	{                                                                                          \
		.name = #column, .source = DB_##from                                               \
	}

/* The columns are those that readers of msmonitor's DB know, in that order. */
const struct db_table activity_tables[TABLE_END] = {
	[TABLE_CANN_API] = {"CANN_API",
			    {F(startNs, START), F(endNs, END), D(type, API_TYPE),
			     D(globalTid, GLOBAL_TID), F(connectionId, CORRELATION),
			     F(name, NAME)}},
	[TABLE_COMMUNICATION_OP] = {"COMMUNICATION_OP",
				    {D(opName, OP_NAME),
				     F(startNs, START),
				     F(endNs, END),
				     F(connectionId, CORRELATION),
				     F(groupName, COMM_NAME),
				     D(opId, OP_ID),
				     D(relay, ZERO),
				     D(retry, ZERO),
				     F(dataType, DATA_TYPE),
				     F(algType, ALG_TYPE),
				     {"count", FIELD_COUNT, "NUMERIC"},
				     F(opType, NAME),
				     F(deviceId, DEVICE)}},
	[TABLE_TASK] = {"TASK",
			{F(startNs, START), F(endNs, END), F(deviceId, DEVICE),
			 F(connectionId, CORRELATION), D(globalTaskId, TASK_ID),
			 D(globalPid, GLOBAL_PID), D(taskType, TASK_TYPE), D(contextId, NOT_KNOWN),
			 F(streamId, STREAM), D(taskId, NOT_KNOWN), D(modelId, NOT_KNOWN)}},
	[TABLE_COMPUTE_TASK_INFO] =
		{"COMPUTE_TASK_INFO",
		 {F(name, NAME), D(globalTaskId, TASK_ID), D(blockNum, NOT_KNOWN),
		  D(mixBlockNum, NOT_KNOWN), F(taskType, TYPE), D(opType, NOT_KNOWN_TEXT),
		  D(inputFormats, NOT_KNOWN_TEXT), D(inputDataTypes, NOT_KNOWN_TEXT),
		  D(inputShapes, NOT_KNOWN_TEXT), D(outputFormats, NOT_KNOWN_TEXT),
		  D(outputDataTypes, NOT_KNOWN_TEXT), D(outputShapes, NOT_KNOWN_TEXT),
		  D(attrInfo, NOT_KNOWN_TEXT), D(opState, NOT_KNOWN_TEXT),
		  D(hf32Eligible, NOT_KNOWN_TEXT)}},
	[TABLE_MSTX_EVENTS] = {"MSTX_EVENTS",
			       {F(startNs, START), F(endNs, END), D(eventType, MARK_TYPE),
				D(rangeId, NOT_KNOWN), D(category, NOT_KNOWN), F(message, NAME),
				D(globalTid, GLOBAL_TID), D(endGlobalTid, END_TID),
				F(domainId, DOMAIN), F(connectionId, CORRELATION)}},
	[TABLE_HCCL] = {"HCCL",
			{F(startNs, START), F(endNs, END), F(deviceId, DEVICE), F(streamId, STREAM),
			 D(globalPid, GLOBAL_PID), F(name, NAME), F(groupName, COMM_NAME),
			 F(bytesPerSecond, BYTES_PER_SECOND)}},
	[TABLE_MEMORY_OP] = {"MEMORY_OP",
			     {F(startNs, START), F(endNs, END), F(deviceId, DEVICE),
			      F(streamId, STREAM), D(globalPid, GLOBAL_PID),
			      F(connectionId, CORRELATION), F(operation, OPERATION),
			      F(address, ADDRESS), F(bytes, BYTES)}},
	[TABLE_MEMSET] = {"MEMSET",
			  {F(startNs, START), F(endNs, END), F(deviceId, DEVICE),
			   F(streamId, STREAM), D(globalPid, GLOBAL_PID),
			   F(connectionId, CORRELATION), F(value, VALUE), F(bytes, BYTES),
			   F(isAsync, ASYNC)}},
	[TABLE_MEMCPY] = {"MEMCPY",
			  {F(startNs, START), F(endNs, END), F(deviceId, DEVICE),
			   F(streamId, STREAM), D(globalPid, GLOBAL_PID),
			   F(connectionId, CORRELATION), F(copyKind, COPY_KIND), F(bytes, BYTES),
			   F(isAsync, ASYNC)}},
	[TABLE_STRING_IDS] = {"STRING_IDS", {D(id, STRING_ID), {"value", DB_STRING_ID, "TEXT"}}},
};

static struct activity_writer *db_open(const char *dir, const struct activity_origin *who,
				       const struct activity_options *options)
{
	struct activity_writer *w = xcalloc(1, sizeof(*w));

	(void)options;
	w->f.dir = xstrdup(dir);
	w->f.path = xstrdup("");
	w->f.who = *who;
	return w;
}

static struct group *find_group(struct activity_writer *w, const char *name)
{
	struct group *g = hmap_get_ptr(&w->groups, (uintptr_t)name);
	char decimal[24];

	if (g)
		return g;
	g = xcalloc(1, sizeof(*g));
	int n = snprintf(decimal, sizeof(decimal), "%llu", (unsigned long long)activity_hash(name));
	const char *last = n > GROUP_DIGITS ? decimal + n - GROUP_DIGITS : decimal;
	memcpy(g->digits, last, strlen(last) + 1);
	hmap_put_ptr(&w->groups, (uintptr_t)name, g);
	return g;
}

/* A text of its own for each operation: its name, its group, and how many of the group were before.
 */
static int64_t op_name(struct activity_writer *w, const struct activity *a)
{
	struct group *g = find_group(w, a->detail);

	buf_clear(&w->text);
	buf_addf(&w->text, "%s_%s_%llu_1", a->name, g->digits, (unsigned long long)g->count++);
	return db_file_new_text(&w->f, buf_str(&w->text));
}

static int64_t value_of(struct activity_writer *w, const struct activity *a, unsigned source)
{
	bool mark = a->kind == ACTIVITY_MARKER;

	switch (source) {
	case FIELD_CORRELATION:
		return (int64_t)(a->correlation + (mark ? ACTIVITY_MARK_OFFSET : 0));
	case FIELD_DATA_TYPE:
		return a->data_type;
	case DB_API_TYPE:
		return a->kind == ACTIVITY_ACL_API	 ? API_TYPE_ACL
		       : a->kind == ACTIVITY_RUNTIME_API ? API_TYPE_RUNTIME
							 : API_TYPE_NODE;
	case DB_GLOBAL_TID:
	case DB_END_TID:
		return (int64_t)((uint64_t)a->pid << 32 | a->tid);
	case DB_MARK_TYPE:
		return activity_is_instant(a) ? MSTX_TYPE_MARKER : MSTX_TYPE_RANGE;
	case DB_TASK_ID:
		return (int64_t)w->task;
	case DB_TASK_TYPE:
		return db_file_text(&w->f, mark ? ACTIVITY_TASK_MARK : a->detail);
	case DB_GLOBAL_PID:
		return w->f.who.pid;
	case DB_OP_NAME:
		return op_name(w, a);
	case DB_OP_ID:
		return (int64_t)w->op++;
	case DB_NOT_KNOWN:
		return ACTIVITY_NO_DATA;
	case DB_NOT_KNOWN_TEXT:
		return db_file_text(&w->f, "N/A");
	case DB_ZERO:
		return 0;
	default:
		if (activity_fields[source].type == FIELD_TEXT)
			return db_file_text(&w->f, activity_text(a, source));
		return (int64_t)activity_number(a, source);
	}
}

static int put_row(struct activity_writer *w, enum activity_table table, const struct activity *a,
		   struct err *err)
{
	const struct db_column *c = activity_tables[table].columns;
	int64_t values[DB_MAX_COLUMNS];

	for (unsigned i = 0; c[i].name; i++) {
		bool same = i && c[i].source == DB_NOT_KNOWN_TEXT && c[i - 1].source == c[i].source;

		values[i] = same ? values[i - 1] : value_of(w, a, c[i].source);
	}
	return db_file_row(&w->f, table, values, err);
}

static int put_rows(struct activity_writer *w, const struct activity *a, struct err *err)
{
	static const uint8_t tables[ACTIVITY_KIND_END] = {
		[ACTIVITY_MARKER] = TABLE_MSTX_EVENTS,
		[ACTIVITY_COMMUNICATION] = TABLE_COMMUNICATION_OP,
		[ACTIVITY_HCCL] = TABLE_HCCL,
		[ACTIVITY_MEMORY] = TABLE_MEMORY_OP,
		[ACTIVITY_MEMSET] = TABLE_MEMSET,
		[ACTIVITY_MEMCPY] = TABLE_MEMCPY,
	}; /* the others are calls: TABLE_CANN_API is 0 */
	bool kernel = a->kind == ACTIVITY_KERNEL;
	int r = 0;

	if (!kernel && (a->kind != ACTIVITY_MARKER || a->place != ACTIVITY_ON_DEVICE))
		return put_row(w, (enum activity_table)tables[a->kind], a, err);
	if (kernel)
		r = put_row(w, TABLE_COMPUTE_TASK_INFO, a, err);
	if (r == 0)
		r = put_row(w, TABLE_TASK, a, err);
	w->task++;
	return r;
}

static int db_put(struct activity_writer *w, const struct activity *a, struct err *err)
{
	int r;

	if (!activity_kind_name(a->kind))
		return -ENOTSUP;
	if (!db_file_begin(&w->f, err, &r))
		return r;
	if (activity_has_device(a))
		db_file_device(&w->f, a->device);
	r = put_rows(w, a, err);
	if (!w->f.in_batch)
		w->f.lost++; /* this one; those before are counted with the transaction */
	return r < 0 ? r : db_file_end(&w->f, err);
}

static int db_flush(struct activity_writer *w, struct err *err)
{
	return db_file_commit(&w->f, (uint64_t)clock_real_ns(), false, err);
}

static int db_close(struct activity_writer *w, const struct activity_closing *c, struct err *err)
{
	uint64_t key, value;

	if (!w)
		return 0;
	int r = db_file_finish(&w->f, c, err);
	int ended = db_file_close(&w->f, r < 0 ? NULL : err);
	for (size_t at = 0; hmap_next(&w->groups, &at, &key, &value);)
		free((void *)(uintptr_t)value);
	hmap_release(&w->groups);
	buf_release(&w->text);
	free(w);
	return r < 0 ? r : ended;
}

static const char *db_path(const struct activity_writer *w)
{
	return w->f.path;
}

const struct activity_writer_ops activity_db = {
	.name = "DB",
	.open = db_open,
	.put = db_put,
	.flush = db_flush,
	.close = db_close,
	.path = db_path,
};
