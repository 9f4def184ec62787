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

static int put_api(struct activity_writer *w, const struct activity *a, struct err *err)
{
	int64_t type = a->kind == ACTIVITY_ACL_API	 ? API_TYPE_ACL
		       : a->kind == ACTIVITY_RUNTIME_API ? API_TYPE_RUNTIME
							 : API_TYPE_NODE;
	int64_t v[] = {(int64_t)a->start_ns,
		       (int64_t)a->end_ns,
		       type,
		       (int64_t)((uint64_t)a->pid << 32 | a->tid),
		       (int64_t)a->correlation,
		       db_file_text(&w->f, a->name)};

	return db_file_row(&w->f, TABLE_CANN_API, v, err);
}

static int put_task(struct activity_writer *w, const struct activity *a, uint64_t connection,
		    const char *type, struct err *err)
{
	int64_t v[] = {(int64_t)a->start_ns,	  (int64_t)a->end_ns, a->device,
		       (int64_t)connection,	  (int64_t)w->task,   w->f.who.pid,
		       db_file_text(&w->f, type), ACTIVITY_NO_DATA,   a->stream,
		       ACTIVITY_NO_DATA,	  ACTIVITY_NO_DATA};

	return db_file_row(&w->f, TABLE_TASK, v, err);
}

static int put_kernel(struct activity_writer *w, const struct activity *a, struct err *err)
{
	int64_t name = db_file_text(&w->f, a->name);
	int64_t type = db_file_text(&w->f, a->detail);
	int64_t na = db_file_text(&w->f, "N/A");
	int64_t v[] = {name,
		       (int64_t)w->task,
		       ACTIVITY_NO_DATA,
		       ACTIVITY_NO_DATA,
		       type,
		       na,
		       na,
		       na,
		       na,
		       na,
		       na,
		       na,
		       na,
		       na,
		       na};
	int r = db_file_row(&w->f, TABLE_COMPUTE_TASK_INFO, v, err);

	if (r == 0)
		r = put_task(w, a, a->correlation, a->detail, err);
	w->task++;
	return r;
}

static int put_mark(struct activity_writer *w, const struct activity *a, struct err *err)
{
	uint64_t id = a->correlation + ACTIVITY_MARK_OFFSET;

	if (a->place == ACTIVITY_ON_DEVICE) {
		int r = put_task(w, a, id, ACTIVITY_TASK_MARK, err);

		w->task++;
		return r;
	}
	int64_t tid = (int64_t)((uint64_t)a->pid << 32 | a->tid);
	int64_t v[] = {(int64_t)a->start_ns,
		       (int64_t)a->end_ns,
		       activity_is_instant(a) ? MSTX_TYPE_MARKER : MSTX_TYPE_RANGE,
		       ACTIVITY_NO_DATA,
		       ACTIVITY_NO_DATA,
		       db_file_text(&w->f, a->name),
		       tid,
		       tid,
		       db_file_text(&w->f, a->detail),
		       (int64_t)id};
	return db_file_row(&w->f, TABLE_MSTX_EVENTS, v, err);
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

static int put_communication(struct activity_writer *w, const struct activity *a, struct err *err)
{
	struct group *g = find_group(w, a->detail);
	int64_t group = db_file_text(&w->f, a->detail);

	buf_clear(&w->text);
	buf_addf(&w->text, "%s_%s_%llu_1", a->name, g->digits, (unsigned long long)g->count++);
	int64_t name = db_file_new_text(&w->f, buf_str(&w->text));
	int64_t algorithm = db_file_text(&w->f, a->more);
	int64_t v[] = {name,
		       (int64_t)a->start_ns,
		       (int64_t)a->end_ns,
		       (int64_t)a->correlation,
		       group,
		       (int64_t)w->op++,
		       0,
		       0,
		       a->data_type,
		       algorithm,
		       (int64_t)a->amount,
		       db_file_text(&w->f, a->name),
		       a->device};
	return db_file_row(&w->f, TABLE_COMMUNICATION_OP, v, err);
}

static int put_hccl(struct activity_writer *w, const struct activity *a, struct err *err)
{
	int64_t name = db_file_text(&w->f, a->name);
	int64_t v[] = {(int64_t)a->start_ns,
		       (int64_t)a->end_ns,
		       a->device,
		       a->stream,
		       w->f.who.pid,
		       name,
		       db_file_text(&w->f, a->detail),
		       (int64_t)a->amount};

	return db_file_row(&w->f, TABLE_HCCL, v, err);
}

/* Memory, memset and memcpy: what was done, how, and with how many bytes. */
static int put_bytes_row(struct activity_writer *w, const struct activity *a, struct err *err)
{
	static const enum activity_table tables[ACTIVITY_KIND_END] = {
		[ACTIVITY_MEMORY] = TABLE_MEMORY_OP,
		[ACTIVITY_MEMSET] = TABLE_MEMSET,
		[ACTIVITY_MEMCPY] = TABLE_MEMCPY,
	};
	bool memory = a->kind == ACTIVITY_MEMORY;
	int64_t how = a->kind == ACTIVITY_MEMSET ? (int64_t)a->number : a->flag;
	int64_t v[] = {(int64_t)a->start_ns,
		       (int64_t)a->end_ns,
		       a->device,
		       a->stream,
		       w->f.who.pid,
		       (int64_t)a->correlation,
		       how,
		       (int64_t)(memory ? a->number : a->amount),
		       memory ? (int64_t)a->amount : a->async};

	return db_file_row(&w->f, tables[a->kind], v, err);
}

static int put_rows(struct activity_writer *w, const struct activity *a, struct err *err)
{
	switch (a->kind) {
	case ACTIVITY_KERNEL:
		return put_kernel(w, a, err);
	case ACTIVITY_MARKER:
		return put_mark(w, a, err);
	case ACTIVITY_COMMUNICATION:
		return put_communication(w, a, err);
	case ACTIVITY_HCCL:
		return put_hccl(w, a, err);
	case ACTIVITY_MEMORY:
	case ACTIVITY_MEMSET:
	case ACTIVITY_MEMCPY:
		return put_bytes_row(w, a, err);
	default:
		return put_api(w, a, err);
	}
}

static int db_put(struct activity_writer *w, const struct activity *a, struct err *err)
{
	int r;

	if (!activity_kind_name(a->kind))
		return -ENOTSUP;
	if (!db_file_begin(&w->f, err, &r))
		return r;
	if (!activity_is_api(a->kind) &&
	    (a->kind != ACTIVITY_MARKER || a->place == ACTIVITY_ON_DEVICE))
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
