/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities as one table of comma-separated values, RFC 4180, for spreadsheets and pandas. No
 * program of ours reads it, so names are made harmless there. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activity/files/activity.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/csv.h"
#include "base/text/text.h"
#include "wire/request.h"

#define WRITE_AT (256u << 10)

static const char header[] =
	"kind,name,startNs,endNs,durationNs,deviceId,streamId,processId,threadId,correlationId,"
	"type,commName,algType,dataType,domain,amount,number,what,rank\n";

struct activity_writer {
	char *path;
	int fd;
	int failed;
	struct activity_origin who;
	struct buf text, scratch;
};

static struct activity_writer *csv_open(const char *path, const struct activity_origin *who,
					const struct activity_options *options)
{
	struct activity_writer *w = xcalloc(1, sizeof(*w));

	(void)options;
	w->who = *who;
	w->path = xstrdup(path);
	w->fd = -1;
	buf_add_str(&w->text, header);
	return w;
}

static int write_out(struct activity_writer *w, struct err *err)
{
	if (w->failed)
		return w->failed;
	if (w->fd < 0)
		w->fd = fs_open_output(w->path, O_CREAT | O_TRUNC, ACTIVITY_FILE_MODE, err);
	if (w->fd < 0)
		return w->failed = w->fd;
	int r = fs_write_all(w->fd, w->text.data, w->text.len, FS_HERE, NULL);
	if (r < 0)
		return w->failed = err_sys(err, r, "cannot write '%s'", w->path);
	buf_clear(&w->text);
	return 0;
}

static void add_text(struct activity_writer *w, const char *text)
{
	size_t len = strlen(text);
	const char *s = text_clean(text, &len, &w->scratch);

	csv_add_harmless_field(&w->text, s, len);
	buf_add_char(&w->text, ',');
}

static void add_number(struct activity_writer *w, bool there, uint64_t v)
{
	char *p = buf_room(&w->text, PUT_U64_MAX + 1), *end = there ? put_u64(p, v) : p;

	*end++ = ',';
	w->text.len += (size_t)(end - p);
}

/* What was done, where a word says it. */
static const char *operation_of(const struct activity *a)
{
	if (a->kind == ACTIVITY_MARKER)
		return activity_is_instant(a) ? "instant" : "range";
	return a->kind == ACTIVITY_MEMCPY   ? activity_copy_kind(a->flag)
	       : a->kind == ACTIVITY_MEMORY ? activity_word(a, FIELD_OPERATION)
					    : "";
}

static int csv_put(struct activity_writer *w, const struct activity *a, struct err *err)
{
	const uint32_t has = activity_fields_of(a->kind, a->place);
	bool device = a->place == ACTIVITY_ON_DEVICE;

	if (!has)
		return -ENOTSUP;
	add_text(w, activity_kind_name(a->kind));
	add_text(w, a->name);
	add_number(w, true, a->start_ns);
	add_number(w, true, a->end_ns);
	add_number(w, true, activity_ns(a));
	add_number(w, device, a->device);
	add_number(w, device, a->stream);
	add_number(w, !device || w->who.pid, device ? w->who.pid : a->pid);
	add_number(w, !device, a->tid);
	add_number(w, true, a->correlation);
	add_text(w, has & FIELD_BIT(TYPE) ? a->detail : "");
	add_text(w, has & FIELD_BIT(COMM_NAME) ? a->detail : "");
	add_text(w, has & FIELD_BIT(ALG_TYPE) ? a->more : "");
	add_text(w, has & FIELD_BIT(DATA_TYPE) ? activity_data_type(a->data_type) : "");
	add_text(w, has & FIELD_BIT(DOMAIN) ? a->detail : "");
	add_number(w, has & (FIELD_BIT(BYTES) | FIELD_BIT(COUNT) | FIELD_BIT(BYTES_PER_SECOND)),
		   a->amount);
	add_number(w, has & (FIELD_BIT(ADDRESS) | FIELD_BIT(VALUE)), a->number);
	add_text(w, operation_of(a));
	add_number(w, w->who.rank >= 0, (uint64_t)w->who.rank);
	w->text.data[w->text.len - 1] = '\n';
	return w->text.len < WRITE_AT ? w->failed : write_out(w, err);
}

static int csv_close(struct activity_writer *w, const struct activity_closing *c, struct err *err)
{
	(void)c;
	if (!w)
		return 0;
	int r = write_out(w, err);
	if (w->fd >= 0 && close(w->fd) < 0 && errno != EINTR && r == 0)
		r = err_sys(err, -errno, "cannot close '%s'", w->path);
	buf_release(&w->text);
	buf_release(&w->scratch);
	free(w->path);
	free(w);
	return r;
}

static void csv_whose(struct activity_writer *w, const struct activity_origin *who)
{
	w->who = *who;
}

static const char *csv_path(const struct activity_writer *w)
{
	return w->path;
}

const struct activity_writer_ops activity_csv_file = {
	.name = "csv",
	.open = csv_open,
	.put = csv_put,
	.flush = write_out,
	.close = csv_close,
	.path = csv_path,
	.whose = csv_whose,
};
