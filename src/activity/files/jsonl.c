/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities as lines of JSON, in files of so many lines. Lines are kept until there are enough of
 * them for one write, or until they get old; a write that fails is cut back to whole lines.
 */
#include "activity/files/activity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/number_read.h"
#include "base/text/text.h"
#include "formats/json_value.h"
#include "wire/request.h"

#define LINES_DEFAULT 10000
#define LINES_MIN 100
#define LINES_MAX 500000
#define FILES_MIN 2
#define WRITE_AT (256u << 10)
#define PENDING_MAX (8u << 20) /* kept when they cannot be written */
#define KEEP_MS_DEFAULT 250
#define KEEP_MS_MIN 1000 /* of what the environment says */
#define KEEP_MS_MAX 3600000
#define MAX_DEVICES 4096
#define RETRY_NS 100000000u

struct activity_writer {
	char *dir, *path; /* path: "" before the first file */
	struct activity_origin who;
	uint64_t lines_max;
	int64_t files_max; /* -1: all */
	uint64_t keep_ns;
	int fd; /* -1: none */
	uint64_t size; /* of the file: whole lines */
	uint64_t lines; /* in the file and pending */
	uint64_t last_ms;
	struct buf pending, scratch;
	uint64_t npending; /* lines */
	uint64_t since_ns; /* the oldest of them */
	char **files; /* that may have to go, oldest first */
	size_t nfiles, files_cap;
	uint64_t rotated; /* files that had to go */
	uint32_t *devices; /* ascending */
	size_t ndevices, devices_cap;
	uint64_t lost;
	int failed;
	uint64_t retry_ns; /* not before, after a failure */
};

static int64_t env_number(const char *name, int64_t otherwise)
{
	const char *text = getenv(name);
	int64_t v;

	return text && number_read(text, strlen(text), &v) ? v : otherwise;
}

static void set_limits(struct activity_writer *w, const struct activity_options *o)
{
	int64_t lines = o && o->lines_per_file
				? o->lines_per_file
				: env_number("MSMONITOR_JSONL_ROTATE_LOG_LINES", LINES_DEFAULT);
	int64_t files =
		o && o->files ? o->files : env_number("MSMONITOR_JSONL_ROTATE_LOG_FILES", -1);
	int64_t keep_ms = env_number("MSMONITOR_JSONL_MAX_DUMP_INTERVAL", KEEP_MS_DEFAULT);

	w->lines_max = (uint64_t)(lines < LINES_MIN   ? LINES_MIN
				  : lines > LINES_MAX ? LINES_MAX
						      : lines);
	w->files_max = files >= FILES_MIN ? files : -1;
	if (keep_ms < KEEP_MS_MIN || keep_ms > KEEP_MS_MAX)
		keep_ms = KEEP_MS_DEFAULT;
	w->keep_ns = (uint64_t)keep_ms * 1000000;
}

static struct activity_writer *jsonl_open(const char *dir, const struct activity_origin *who,
					  const struct activity_options *options)
{
	struct activity_writer *w = xcalloc(1, sizeof(*w));

	w->dir = xstrdup(dir);
	w->path = xstrdup("");
	w->who = *who;
	w->fd = -1;
	set_limits(w, options);
	return w;
}

/* --- a line --- */

static void add_u64(struct buf *b, uint64_t v)
{
	char *p = buf_room(b, PUT_U64_MAX);

	b->len += (size_t)(put_u64(p, v) - p);
}

static void add_word(struct buf *b, const char *word)
{
	buf_add_char(b, '"');
	buf_add_str(b, word);
	buf_add_char(b, '"');
}

static void add_value(struct buf *b, const struct activity *a, enum activity_field_id id,
		      struct buf *scratch)
{
	switch (activity_fields[id].type) {
	case FIELD_OWNER:
		json_text_add(b, activity_owner_text(a, id), scratch);
		break;
	case FIELD_TEXT:
		json_text_add(b, activity_text(a, id), scratch);
		break;
	case FIELD_WORD:
		add_word(b, activity_word(a, id));
		break;
	case FIELD_BOOL:
		buf_add_str(b, activity_number(a, id) ? "true" : "false");
		break;
	default:
		add_u64(b, activity_number(a, id));
	}
}

static void add_line(struct activity_writer *w, const struct activity *a, uint32_t fields)
{
	char open = '{';

	fields |= activity_owner_fields(a);
	for (; fields; fields &= fields - 1) {
		enum activity_field_id id = (enum activity_field_id)__builtin_ctz(fields);

		buf_add_char(&w->pending, open);
		add_word(&w->pending, activity_fields[id].key);
		buf_add_char(&w->pending, ':');
		add_value(&w->pending, a, id, &w->scratch);
		open = ',';
	}
	buf_add(&w->pending, "}\n", 2);
}

/* --- files --- */

/* The first failure of a row is reported. */
static int note_failure(struct activity_writer *w, int code, struct err *err)
{
	int before = w->failed;

	w->failed = code;
	w->retry_ns = clock_mono_ns() + RETRY_NS;
	if (before)
		return 0;
	return err_sys(err, code, "cannot write '%s', activities are dropped if that lasts",
		       *w->path ? w->path : w->dir);
}

static uint64_t count_lines(const char *data, size_t n)
{
	uint64_t lines = 0;

	for (const char *p; n && (p = memchr(data, '\n', n)); lines++) {
		n -= (size_t)(p + 1 - data);
		data = p + 1;
	}
	return lines;
}

/* Whole lines of the first n bytes are in the file. */
static void drop_written(struct activity_writer *w, size_t n)
{
	const char *last = n ? memrchr(w->pending.data, '\n', n) : NULL;
	size_t whole = last ? (size_t)(last + 1 - w->pending.data) : 0;

	w->npending -= whole == w->pending.len ? w->npending : count_lines(w->pending.data, whole);
	w->size += whole;
	w->pending.len -= whole;
	if (w->pending.len && whole)
		memmove(w->pending.data, w->pending.data + whole, w->pending.len);
}

static int write_pending(struct activity_writer *w, struct err *err)
{
	size_t done = 0;
	int r = 0;

	while (done < w->pending.len) {
		ssize_t n = pwrite(w->fd, w->pending.data + done, w->pending.len - done,
				   (off_t)(w->size + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			r = n < 0 ? -errno : -EIO;
			break;
		}
		done += (size_t)n;
	}
	drop_written(w, done);
	if (r == 0) {
		w->failed = 0;
		return 0;
	}
	(void)!ftruncate(w->fd, (off_t)w->size);
	return note_failure(w, r, err);
}

static void remove_oldest(struct activity_writer *w)
{
	while (w->files_max > 0 && w->nfiles > (size_t)w->files_max) {
		(void)fs_unlink(w->files[0], NULL);
		w->rotated++;
		free(w->files[0]);
		memmove(w->files, w->files + 1, --w->nfiles * sizeof(*w->files));
	}
}

static int next_file(struct activity_writer *w, struct err *err)
{
	struct err words = {0};
	char *path = NULL;
	int fd = activity_file_new(w->dir, &w->who, "jsonl", &w->last_ms, &path, &words);

	if (fd < 0) {
		bool before = w->failed;

		note_failure(w, fd, NULL);
		if (before)
			return 0;
		if (err)
			*err = words;
		return fd;
	}
	if (w->fd >= 0)
		close(w->fd);
	w->fd = fd;
	free(w->path);
	w->path = path;
	w->size = 0;
	w->lines = w->npending;
	if (w->files_max > 0) {
		*XPUSH(w->files, w->nfiles, w->files_cap) = xstrdup(path);
		remove_oldest(w);
	}
	return 0;
}

static bool may_try(const struct activity_writer *w)
{
	return !w->failed || clock_mono_ns() >= w->retry_ns;
}

/* Room for one more line: in the file, which may be the next one, and in memory. */
static bool make_room(struct activity_writer *w, int *out_r, struct err *err)
{
	bool full = w->lines >= w->lines_max;

	if (w->fd >= 0 && full && w->pending.len && may_try(w))
		*out_r = write_pending(w, err);
	if (w->fd < 0 ? may_try(w) : full && !w->pending.len) {
		int r = next_file(w, err);

		*out_r = *out_r < 0 ? *out_r : r;
	}
	if (w->fd >= 0 && w->pending.len < PENDING_MAX)
		return true;
	w->lost++;
	return false;
}

static int end_line(struct activity_writer *w, struct err *err)
{
	uint64_t now = clock_mono_ns();

	if (!w->npending++)
		w->since_ns = now;
	w->lines++;
	if (w->pending.len < WRITE_AT && now - w->since_ns < w->keep_ns)
		return 0;
	return may_try(w) ? write_pending(w, err) : 0;
}

static void note_device(struct activity_writer *w, uint32_t device)
{
	size_t i = w->ndevices;

	if (device == ACTIVITY_NOWHERE)
		return;
	while (i && w->devices[i - 1] >= device)
		if (w->devices[--i] == device)
			return;
	if (w->ndevices == MAX_DEVICES)
		return;
	w->devices = xgrow(w->devices, &w->devices_cap, w->ndevices + 1, sizeof(*w->devices));
	memmove(w->devices + i + 1, w->devices + i, (w->ndevices - i) * sizeof(*w->devices));
	w->devices[i] = device;
	w->ndevices++;
}

static int jsonl_put(struct activity_writer *w, const struct activity *a, struct err *err)
{
	uint32_t fields = activity_fields_of(a->kind, a->place);
	int r = 0;

	if (!fields)
		return -ENOTSUP;
	if (!make_room(w, &r, err))
		return r;
	if (activity_has_device(a))
		note_device(w, a->device);
	add_line(w, a, fields);
	int ended = end_line(w, r < 0 ? NULL : err);
	return r < 0 ? r : ended;
}

static int jsonl_flush(struct activity_writer *w, struct err *err)
{
	return w->fd >= 0 && w->pending.len ? write_pending(w, err) : 0;
}

/* --- what is known at the end --- */

static void put_last(struct activity_writer *w, struct buf *line)
{
	int r = 0;

	if (!make_room(w, &r, NULL))
		return;
	buf_add(&w->pending, line->data, line->len);
	buf_add(&w->pending, "}\n", 2);
	w->npending++;
	w->lines++;
	buf_clear(line);
}

#define LOSS_LINE "{\"kind\":\"loss\",\"lost\":%llu"
#define LOSS_MOST (sizeof(LOSS_LINE) + 24)
#define LAST_BYTES 65536

/* How many lines at the end of the text have to go for so many bytes; *out_start: of the first. */
static uint64_t lines_for(const char *text, size_t len, size_t need, size_t *out_start)
{
	uint64_t lines = 0;
	size_t start = len;

	while (start && len - start < need) {
		const char *end = start > 1 ? memrchr(text, '\n', start - 1) : NULL;

		start = end ? (size_t)(end + 1 - text) : 0;
		lines++;
	}
	*out_start = start;
	return len - start >= need ? lines : 0;
}

/*
 * There is no room for a single byte more: the loss takes the place of the last lines, which count
 * as lost, too. In one write and with blanks, so that there are whole lines at every moment.
 */
static void put_loss_over(struct activity_writer *w, uint64_t lost)
{
	size_t len = w->size < LAST_BYTES ? (size_t)w->size : LAST_BYTES, start;
	char *text = xmalloc(LAST_BYTES + 1), line[LOSS_MOST + 1];
	off_t at = (off_t)(w->size - len);

	if (pread(w->fd, text, len, at) == (ssize_t)len) {
		uint64_t lines = lines_for(text, len, LOSS_MOST, &start);
		int n = snprintf(line, sizeof(line), LOSS_LINE, (unsigned long long)(lost + lines));

		if (lines && (start || !at)) {
			memset(text + start, ' ', len - start);
			memcpy(text + start, line, (size_t)n);
			memcpy(text + len - 2, "}\n", 2);
			(void)!pwrite(w->fd, text + start, len - start, at + (off_t)start);
		}
	}
	free(text);
}

static void drop_pending(struct activity_writer *w)
{
	w->lost += w->npending;
	w->npending = 0;
	buf_clear(&w->pending);
}

static void put_closing(struct activity_writer *w, const struct activity_closing *c)
{
	struct buf line = {0};
	int r = 0;

	if (c->groups) {
		buf_add_str(&line, "{\"kind\":\"parallel_group_info\",\"value\":");
		json_text_add(&line, c->groups, &w->scratch);
		put_last(w, &line);
	}
	if (w->ndevices) {
		for (size_t i = 0; i < w->ndevices; i++)
			buf_addf(&line, "%s%u", i ? "," : "{\"device\":[", w->devices[i]);
		buf_addf(&line, "],\"kind\":\"rank_device_map\",\"rank\":%d", w->who.rank);
		put_last(w, &line);
	}
	/* Something must say that this is the end. */
	if (w->lost + c->lost || w->rotated || (!c->groups && !w->ndevices)) {
		make_room(w, &r, NULL); /* which may cost a file: one more to report */
		buf_addf(&line, LOSS_LINE, (unsigned long long)(w->lost + c->lost));
		if (w->rotated)
			buf_addf(&line, ",\"rotatedFiles\":%llu", (unsigned long long)w->rotated);
		put_last(w, &line);
	}
	buf_release(&line);
}

static int jsonl_close(struct activity_writer *w, const struct activity_closing *c, struct err *err)
{
	int r = 0;

	if (!w)
		return 0;
	/* No file could be made so far: one that states the loss. */
	if (w->fd < 0 && c && w->lost + c->lost)
		r = next_file(w, err);
	if (w->fd >= 0) {
		w->failed = 0;
		r = jsonl_flush(w, err); /* room for what comes */
		bool full = w->pending.len;
		if (full)
			drop_pending(w);
		else if (c)
			put_closing(w, c);
		int last = jsonl_flush(w, r < 0 ? NULL : err);
		r = r < 0 ? r : last;
		if (c && (full || w->pending.len))
			put_loss_over(w, w->lost + c->lost);
		if (close(w->fd) < 0 && errno != EINTR && r == 0)
			r = err_sys(err, -errno, "cannot close '%s'", w->path);
	}
	for (size_t i = 0; i < w->nfiles; i++)
		free(w->files[i]);
	free(w->files);
	free(w->devices);
	free(w->dir);
	free(w->path);
	buf_release(&w->pending);
	buf_release(&w->scratch);
	free(w);
	return r;
}

static const char *jsonl_path(const struct activity_writer *w)
{
	return w->path;
}

const struct activity_writer_ops activity_jsonl = {
	.name = "Jsonl",
	.open = jsonl_open,
	.put = jsonl_put,
	.flush = jsonl_flush,
	.close = jsonl_close,
	.path = jsonl_path,
};
