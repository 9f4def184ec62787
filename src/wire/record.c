/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "wire/record.h"

/* Fixed part of each type, and where its text length lives (0: the type has no text). */
static const struct {
	uint16_t fixed;
	uint16_t len_at;
} layout[REC_TYPE_END] = {
	[REC_THREAD] = {sizeof(struct rec_thread), 0},
	[REC_ALLOC] = {sizeof(struct rec_alloc), 0},
	[REC_FREE] = {sizeof(struct rec_free), 0},
	[REC_HEAP] = {sizeof(struct rec_heap), 0},
	[REC_ACCESS] = {sizeof(struct rec_access), offsetof(struct rec_access, len)},
	[REC_OP] = {sizeof(struct rec_op), offsetof(struct rec_op, len)},
	[REC_KERNEL] = {sizeof(struct rec_kernel), 0},
	[REC_NAME] = {sizeof(struct rec_name), offsetof(struct rec_name, len)},
	[REC_MARK] = {sizeof(struct rec_mark), offsetof(struct rec_mark, len)},
	[REC_SYSTEM] = {sizeof(struct rec_system), 0},
	[REC_LABEL] = {sizeof(struct rec_label), offsetof(struct rec_label, len)},
	[REC_OOM] = {sizeof(struct rec_oom), 0},
	[REC_MODULE] = {sizeof(struct rec_module), offsetof(struct rec_module, len)},
	[REC_WATCH] = {sizeof(struct rec_watch), offsetof(struct rec_watch, len)},
	[REC_DEVICE] = {sizeof(struct rec_device), 0},
	[REC_PYTHON] = {sizeof(struct rec_python), offsetof(struct rec_python, len)},
	[REC_CONFIG] = {sizeof(struct rec_config), offsetof(struct rec_config, len)},
	[REC_SNAPSHOT] = {sizeof(struct rec_snapshot), offsetof(struct rec_snapshot, len)},
	[REC_CALL] = {sizeof(struct rec_call), 0},
	[REC_ACTIVITY] = {sizeof(struct rec_activity), 0},
	[REC_USAGE] = {sizeof(struct rec_usage), 0},
	[REC_PROCESS] = {sizeof(struct rec_process), 0},
	[REC_MONITOR] = {sizeof(struct rec_monitor), offsetof(struct rec_monitor, len)},
	[REC_MAP] = {sizeof(struct rec_map), 0},
	[REC_BLOCK] = {sizeof(struct rec_block), offsetof(struct rec_block, len)},
	[REC_STATE] = {sizeof(struct rec_state), 0},
	[REC_LAYER] = {sizeof(struct rec_layer), 0},
	[REC_VMM] = {sizeof(struct rec_vmm), 0},
	[REC_CONTEXT] = {sizeof(struct rec_context), 0},
	[REC_GPU] = {sizeof(struct rec_gpu), offsetof(struct rec_gpu, len)},
	[REC_LIBRARY] = {sizeof(struct rec_library), offsetof(struct rec_library, len)},
	[REC_WORK] = {sizeof(struct rec_work), 0},
	[REC_LAUNCH] = {sizeof(struct rec_launch), 0},
	[REC_FRAME] = {sizeof(struct rec_frame), offsetof(struct rec_frame, len)},
	[REC_SAMPLE] = {sizeof(struct rec_sample), 0},
	[REC_SAMPLED] = {sizeof(struct rec_sampled), offsetof(struct rec_sampled, len)},
	[REC_COUNTER] = {sizeof(struct rec_counter), offsetof(struct rec_counter, len)},
};

static size_t text_len(const struct rec *r)
{
	const char *at = (const char *)r + layout[r->type].len_at;

	return *(const uint16_t *)at;
}

/*
 * What makes a record safe to use: it lies within the bytes that are there, its size is a multiple
 * of 8 and right for its type, and its text ends where it ends. Everything else in it is a number
 * that a reader checks where it uses it.
 */
bool rec_check(const struct rec *r, size_t avail)
{
	if (avail < sizeof(*r) || r->size > avail || r->size > REC_MAX_SIZE || r->size % 8)
		return false;
	if (r->type >= REC_TYPE_END || !layout[r->type].fixed || r->size < layout[r->type].fixed)
		return false;
	if (!layout[r->type].len_at)
		return r->size == layout[r->type].fixed;
	/* Not rec_size(): a length near 65535 would wrap around to a small size. */
	return ((layout[r->type].fixed + text_len(r) + 7) & ~(size_t)7) == r->size;
}

const char *rec_text(const struct rec *r, size_t *out_len)
{
	if (!layout[r->type].len_at) {
		*out_len = 0;
		return NULL;
	}
	*out_len = text_len(r);
	return (const char *)r + layout[r->type].fixed;
}
