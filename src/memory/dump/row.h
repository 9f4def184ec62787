/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A row of a memory dump, as every writer gets it, and the vocabulary of its texts. Events, event
 * types and attribute keys are numbers here; row_*_text() spells them, in the words of the user
 * documents or in those of the 26.0 program (enum row_compat).
 */
#ifndef SONDE_MEMORY_DUMP_ROW_H
#define SONDE_MEMORY_DUMP_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum row_compat { ROW_SEED = 0, ROW_26_0 = 1 };

enum row_event {
	ROW_MALLOC,
	ROW_FREE,
	ROW_ACCESS,
	ROW_OP_LAUNCH,
	ROW_KERNEL_LAUNCH,
	ROW_MSTX,
	ROW_SYSTEM,
	ROW_SNAPSHOT,
	ROW_OOM_DETAIL,
	ROW_EVENT_END,
};

enum row_type {
	TYPE_HAL,
	TYPE_HOST,
	TYPE_PTA,
	TYPE_PTA_WORKSPACE, /* 26.0 writes PTA */
	TYPE_ATB,
	TYPE_MINDSPORE, /* MindSpore; 26.0 writes MINDSPORE */
	TYPE_TORCH, /* torch's caching pool on devices other than NPU */
	TYPE_CUDA, /* what that pool has from the CUDA driver */
	TYPE_PYTHON, /* objects of CPython, cut from HOST mappings */
	TYPE_READ,
	TYPE_WRITE,
	TYPE_UNKNOWN,
	TYPE_ATEN_START,
	TYPE_ATEN_END,
	TYPE_ATB_START,
	TYPE_ATB_END,
	TYPE_KERNEL_LAUNCH,
	TYPE_KERNEL_EXECUTE_START,
	TYPE_KERNEL_EXECUTE_END,
	TYPE_KERNEL_START,
	TYPE_KERNEL_END,
	TYPE_MARK,
	TYPE_RANGE_START,
	TYPE_RANGE_END,
	TYPE_ACL_INIT,
	TYPE_ACL_FINI,
	TYPE_START_TRACE,
	TYPE_STOP_TRACE,
	TYPE_STEP,
	TYPE_EXIT, /* the program has ended, its teardown follows */
	TYPE_SNAPSHOT,
	TYPE_OOM_TRIGGER,
	TYPE_OOM_RECENT_ALLOC,
	TYPE_OOM_TOP_ALLOC,
	TYPE_END,
};

enum attr_key {
	ATTR_ALLOCATION_ID,
	ATTR_ADDR,
	ATTR_SIZE,
	ATTR_USED,
	ATTR_TOTAL,
	ATTR_PROCESS_USED,
	ATTR_DEVICE_USED,
	ATTR_JOB_USED, /* of device_used, by other processes of the job */
	ATTR_PINNED,
	ATTR_SHADOW,
	ATTR_CARRIED, /* allocated before the part of the recording that was kept */
	ATTR_TYPE,
	ATTR_OWNER,
	ATTR_INEFFICIENT, /* inefficient; 26.0: inefficient_type */
	ATTR_PAGE_TYPE,
	ATTR_ALLOC_TYPE,
	ATTR_STREAM_ID, /* streamId */
	ATTR_TASK_ID, /* taskId */
	ATTR_FUNC,
	ATTR_REQ_SIZE,
	ATTR_FLAG,
	ATTR_POOL,
	ATTR_PTR,
	ATTR_TIMESTAMP,
	ATTR_TOTAL_MEM, /* total_mem; 26.0: total */
	ATTR_FREE_MEM, /* free_mem; 26.0: free */
	ATTR_RESERVED,
	ATTR_PEAK_RESERVED, /* peak_reserved; 26.0: max_reserved */
	ATTR_ALLOCATED,
	ATTR_PEAK_ALLOCATED, /* peak_allocated; 26.0: max_allocated */
	ATTR_DEVICE_UTILIZATION, /* device_utilization; 26.0: device_rate */
	ATTR_PT_UTILIZATION, /* pt_utilization; 26.0: reserved_rate */
	ATTR_FREE, /* SYSTEM START_TRACE: free */
	ATTR_RAW, /* the text is already `key:value,…` and is copied as it is */
	ATTR_KEY_END,
};

enum attr_kind { ATTR_NUMBER, ATTR_HEX, ATTR_TEXT };

struct attr {
	enum attr_key key : 16;
	enum attr_kind kind : 16;
	uint32_t text_len;
	uint64_t number; /* ATTR_NUMBER in decimal; ATTR_HEX as 0x%016x */
	const char *text; /* ATTR_TEXT, borrowed */
};

#define ROW_MAX_ATTRS 16
#define ROW_STEP_NAME 63 /* bytes of a name in a STEP row that is hidden: "3 AdamW" */

/* What a layer has of a block that it shares with others. */
struct row_part {
	const char *layer;
	uint64_t bytes;
};

/* Small, and ordered by size: readers keep thousands of them (memory/input/read_ahead.c). */
struct row {
	uint64_t id;
	uint64_t time_ns; /* since the epoch */
	uint64_t ptr;
	uint64_t range; /* of an MSTX row: id of the range, 0 where it is not known; of a STEP row
			 * that is hidden: enum rec_step_source */
	uint64_t tensor_bytes; /* of a block of a layer: those of its tensors, 0: not known */
	const char *name; /* borrowed; NULL is written as N/A */
	const char *py_stack; /* borrowed text, one frame per line, NULL for none; never quoted */
	const char *c_stack;
	const char
		*layer; /* of recordings alone: whose block it is, see rec_layer; NULL: nobody's */
	const struct row_part *parts; /* borrowed; `layer` is then what is around all of them */
	uint32_t nparts;
	uint32_t name_len;
	uint32_t py_stack_len;
	uint32_t c_stack_len;
	uint32_t pid;
	uint32_t tid;
	uint32_t device; /* a number, or DEV_NONE / DEV_HOST of wire/record.h */
	enum row_event event : 8;
	enum row_type type : 8;
	bool has_ptr;
	bool hidden; /* for the analyses alone: was not asked for in the dump */
	bool temporary; /* of a FREE row: within the forward pass in which it was allocated */
	uint32_t
		step; /* of the start of a range: the number of the step that it is, 0: not known */
	uint32_t nattrs;
	struct attr attrs[ROW_MAX_ATTRS]; /* the last, see row_size() */
};

/* Bytes up to the end of the last attribute that is in use. */
static inline size_t row_size(const struct row *r)
{
	return offsetof(struct row, attrs) + r->nattrs * sizeof(r->attrs[0]);
}

const char *row_event_text(enum row_event event);
const char *row_type_text(enum row_type type, enum row_compat compat);
const char *attr_key_text(enum attr_key key, enum row_compat compat);

/* The reverse, for readers: accept both spellings, any case. TYPE_END / … for unknown text. */
enum row_event row_event_find(const char *text, size_t len);
enum row_type row_type_find(const char *text, size_t len);
enum attr_key attr_key_find(const char *text, size_t len);

/* The attribute of a row, NULL where there is none. */
static inline const struct attr *row_attr(const struct row *r, enum attr_key key)
{
	for (unsigned i = 0; i < r->nattrs; i++)
		if (r->attrs[i].key == key)
			return &r->attrs[i];
	return NULL;
}

/* A HOST row of a file that is mapped: no memory of the job, so it is in no sum of host memory. */
static inline bool row_is_file(const struct row *r)
{
	if (r->type != TYPE_HOST || (r->event != ROW_MALLOC && r->event != ROW_FREE))
		return false;
	const struct attr *a = row_attr(r, ATTR_ALLOC_TYPE);
	return a && a->kind == ATTR_TEXT && a->text_len == 4 && !memcmp(a->text, "file", 4);
}

static inline void row_attr_number(struct row *r, enum attr_key key, uint64_t v)
{
	r->attrs[r->nattrs++] = (struct attr){.key = key, .kind = ATTR_NUMBER, .number = v};
}

static inline void row_attr_text(struct row *r, enum attr_key key, const char *s, size_t n)
{
	r->attrs[r->nattrs++] =
		(struct attr){.key = key, .kind = ATTR_TEXT, .text = s, .text_len = (uint32_t)n};
}

#endif
