/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/row.h"

#include <string.h>
#include <strings.h>

/* Both spellings of a word; `v26` is NULL where they agree. */
struct word {
	const char *seed;
	const char *v26;
};

#define UNKNOWN_WORD "N/A"

static const struct word events[ROW_EVENT_END] = {
	[ROW_MALLOC] = {"MALLOC", NULL},
	[ROW_FREE] = {"FREE", NULL},
	[ROW_ACCESS] = {"ACCESS", NULL},
	[ROW_OP_LAUNCH] = {"OP_LAUNCH", NULL},
	[ROW_KERNEL_LAUNCH] = {"KERNEL_LAUNCH", NULL},
	[ROW_MSTX] = {"MSTX", NULL},
	[ROW_SYSTEM] = {"SYSTEM", NULL},
	[ROW_SNAPSHOT] = {"SNAPSHOT", NULL},
	[ROW_OOM_DETAIL] = {"OOM_DETAIL", NULL},
};

static const struct word types[TYPE_END] = {
	[TYPE_HAL] = {"HAL", NULL},
	[TYPE_HOST] = {"HOST", NULL},
	[TYPE_PTA] = {"PTA", NULL},
	[TYPE_PTA_WORKSPACE] = {"PTA_WORKSPACE", "PTA"},
	[TYPE_ATB] = {"ATB", NULL},
	[TYPE_MINDSPORE] = {"MindSpore", "MINDSPORE"},
	[TYPE_TORCH] = {"TORCH", NULL},
	[TYPE_CUDA] = {"CUDA", NULL},
	[TYPE_PYTHON] = {"PYTHON", NULL},
	[TYPE_READ] = {"READ", NULL},
	[TYPE_WRITE] = {"WRITE", NULL},
	[TYPE_UNKNOWN] = {"UNKNOWN", NULL},
	[TYPE_ATEN_START] = {"ATEN_START", NULL},
	[TYPE_ATEN_END] = {"ATEN_END", NULL},
	[TYPE_ATB_START] = {"ATB_START", NULL},
	[TYPE_ATB_END] = {"ATB_END", NULL},
	[TYPE_KERNEL_LAUNCH] = {"KERNEL_LAUNCH", NULL},
	[TYPE_KERNEL_EXECUTE_START] = {"KERNEL_EXECUTE_START", NULL},
	[TYPE_KERNEL_EXECUTE_END] = {"KERNEL_EXECUTE_END", NULL},
	[TYPE_KERNEL_START] = {"KERNEL_START", NULL},
	[TYPE_KERNEL_END] = {"KERNEL_END", NULL},
	[TYPE_MARK] = {"Mark", NULL},
	[TYPE_RANGE_START] = {"Range_start", NULL},
	[TYPE_RANGE_END] = {"Range_end", NULL},
	[TYPE_ACL_INIT] = {"ACL_INIT", NULL},
	[TYPE_ACL_FINI] = {"ACL_FINI", NULL},
	[TYPE_START_TRACE] = {"START_TRACE", NULL},
	[TYPE_STOP_TRACE] = {"STOP_TRACE", NULL},
	[TYPE_STEP] = {"STEP", NULL},
	[TYPE_EXIT] = {"EXIT", NULL},
	[TYPE_SNAPSHOT] = {"SNAPSHOT", NULL},
	[TYPE_OOM_TRIGGER] = {"OOM_TRIGGER", NULL},
	[TYPE_OOM_RECENT_ALLOC] = {"OOM_RECENT_ALLOC", NULL},
	[TYPE_OOM_TOP_ALLOC] = {"OOM_TOP_ALLOC", NULL},
};

/*
 * The short 26.0 words of a snapshot, `total` and `free`, also are words of other events: the
 * plain keys are found first, and a reader of a SNAPSHOT row says which it meant.
 */
static const struct word keys[ATTR_KEY_END] = {
	[ATTR_ALLOCATION_ID] = {"allocation_id", NULL},
	[ATTR_ADDR] = {"addr", NULL},
	[ATTR_SIZE] = {"size", NULL},
	[ATTR_USED] = {"used", NULL},
	[ATTR_TOTAL] = {"total", NULL},
	[ATTR_PROCESS_USED] = {"process_used", NULL},
	[ATTR_DEVICE_USED] = {"device_used", NULL},
	[ATTR_JOB_USED] = {"job_used", NULL},
	[ATTR_PINNED] = {"pinned", NULL},
	[ATTR_SHADOW] = {"shadow", NULL},
	[ATTR_CARRIED] = {"carried", NULL},
	[ATTR_TYPE] = {"type", NULL},
	[ATTR_OWNER] = {"owner", NULL},
	[ATTR_INEFFICIENT] = {"inefficient", "inefficient_type"},
	[ATTR_PAGE_TYPE] = {"page_type", NULL},
	[ATTR_ALLOC_TYPE] = {"alloc_type", NULL},
	[ATTR_STREAM_ID] = {"streamId", NULL},
	[ATTR_TASK_ID] = {"taskId", NULL},
	[ATTR_FUNC] = {"func", NULL},
	[ATTR_REQ_SIZE] = {"req_size", NULL},
	[ATTR_FLAG] = {"flag", NULL},
	[ATTR_POOL] = {"pool", NULL},
	[ATTR_PTR] = {"ptr", NULL},
	[ATTR_TIMESTAMP] = {"timestamp", NULL},
	[ATTR_TOTAL_MEM] = {"total_mem", "total"},
	[ATTR_FREE_MEM] = {"free_mem", "free"},
	[ATTR_RESERVED] = {"reserved", NULL},
	[ATTR_PEAK_RESERVED] = {"peak_reserved", "max_reserved"},
	[ATTR_ALLOCATED] = {"allocated", NULL},
	[ATTR_PEAK_ALLOCATED] = {"peak_allocated", "max_allocated"},
	[ATTR_DEVICE_UTILIZATION] = {"device_utilization", "device_rate"},
	[ATTR_PT_UTILIZATION] = {"pt_utilization", "reserved_rate"},
	[ATTR_FREE] = {"free", NULL},
	[ATTR_RAW] = {"", NULL},
};

static const char *spell_word(const struct word *w, enum row_compat compat)
{
	return compat == ROW_26_0 && w->v26 ? w->v26 : w->seed;
}

const char *row_event_text(enum row_event event)
{
	return (unsigned)event < ROW_EVENT_END ? events[event].seed : UNKNOWN_WORD;
}

const char *row_type_text(enum row_type type, enum row_compat compat)
{
	return (unsigned)type < TYPE_END ? spell_word(&types[type], compat) : UNKNOWN_WORD;
}

const char *attr_key_text(enum attr_key key, enum row_compat compat)
{
	return (unsigned)key < ATTR_KEY_END ? spell_word(&keys[key], compat) : UNKNOWN_WORD;
}

static bool is_word(const char *word, const char *text, size_t len)
{
	return !strncasecmp(word, text, len) && !word[len];
}

/* Index of the word, `n` for none. The documents' spelling wins over the 26.0 one. */
static unsigned find_word(const struct word *words, unsigned n, const char *text, size_t len)
{
	if (!len || memchr(text, '\0', len))
		return n;
	for (unsigned i = 0; i < n; i++)
		if (is_word(words[i].seed, text, len))
			return i;
	for (unsigned i = 0; i < n; i++)
		if (words[i].v26 && is_word(words[i].v26, text, len))
			return i;
	return n;
}

enum row_event row_event_find(const char *text, size_t len)
{
	return (enum row_event)find_word(events, ROW_EVENT_END, text, len);
}

enum row_type row_type_find(const char *text, size_t len)
{
	static const char pinned[] = "HOST_PINNED"; /* dumps of before 26.0 */

	if (len == sizeof(pinned) - 1 && !strncasecmp(pinned, text, len))
		return TYPE_HOST;
	return (enum row_type)find_word(types, TYPE_END, text, len);
}

enum attr_key attr_key_find(const char *text, size_t len)
{
	return (enum attr_key)find_word(keys, ATTR_KEY_END, text, len);
}
