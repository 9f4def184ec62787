/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities as a workbook, as Monitor.save() of the Python module writes it: all cells are text
 * but the duration. Rows go to temporary files at once, so that memory does not grow with them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activity/files/activity.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "wire/request.h"

void activity_us_text(uint64_t ns, char *out)
{
	double us = (double)ns / 1000.0;

	/* as few digits as distinguish this number from its neighbours; 15 are always enough to be
	 * kept */
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(out, 32, "%.*g", digits, us);
		if (strtod(out, NULL) == us)
			break;
	}
	if (us < 1e16 && strchr(out, 'e'))
		snprintf(out, 32, "%.1f", us);
	else if (!strpbrk(out, ".e"))
		memcpy(out + strlen(out), ".0", 3);
}

#if __has_include(<xlsxwriter.h>)
#	include <xlsxwriter.h>

#	define MAX_ROWS 1048576u /* of a sheet, with its header */
#	define MAX_TEXT 32767u /* characters of a cell; so many bytes are never more */

#	define PLACE FIELD_START, FIELD_END, FIELD_DEVICE, FIELD_STREAM
#	define LAST FIELDS /* behind it comes the duration */

static const uint8_t api_columns[] = {FIELD_NAME, FIELD_START,	     FIELD_END, FIELD_PID,
				      FIELD_TID,  FIELD_CORRELATION, LAST};
static const uint8_t kernel_columns[] = {FIELD_NAME, PLACE, FIELD_CORRELATION, FIELD_TYPE, LAST};
static const uint8_t communication_columns[] = {
	FIELD_NAME,	 PLACE,		 FIELD_COUNT,	    FIELD_DATA_TYPE,
	FIELD_COMM_NAME, FIELD_ALG_TYPE, FIELD_CORRELATION, LAST};
static const uint8_t mark_columns[] = {FIELD_NAME,   FIELD_SOURCE, FIELD_DOMAIN, FIELD_ID,
				       FIELD_START,  FIELD_END,	   FIELD_PID,	 FIELD_TID,
				       FIELD_DEVICE, FIELD_STREAM, LAST};
static const uint8_t hccl_columns[] = {FIELD_NAME, PLACE, FIELD_COMM_NAME, FIELD_BYTES_PER_SECOND,
				       LAST};
static const uint8_t memory_columns[] = {FIELD_OPERATION,   PLACE, FIELD_ADDRESS, FIELD_BYTES,
					 FIELD_CORRELATION, LAST};
static const uint8_t set_columns[] = {FIELD_VALUE,	 PLACE, FIELD_BYTES, FIELD_ASYNC,
				      FIELD_CORRELATION, LAST};
static const uint8_t copy_columns[] = {FIELD_COPY_KIND,	  PLACE, FIELD_BYTES, FIELD_ASYNC,
				       FIELD_CORRELATION, LAST};

struct sheet {
	lxw_worksheet *at; /* NULL: none yet */
	unsigned number;
	lxw_row_t row; /* the next one */
};

struct activity_writer {
	char *path, *temporary;
	int fd; /* of the temporary file; -1: none */
	lxw_workbook *book; /* NULL: not begun */
	struct sheet sheets[ACTIVITY_KIND_END];
	struct buf text, scratch;
	int failed;
};

static const uint8_t *const columns_of[ACTIVITY_KIND_END] = {
	[ACTIVITY_MARKER] = mark_columns,
	[ACTIVITY_KERNEL] = kernel_columns,
	[ACTIVITY_API] = api_columns,
	[ACTIVITY_ACL_API] = api_columns,
	[ACTIVITY_NODE_API] = api_columns,
	[ACTIVITY_RUNTIME_API] = api_columns,
	[ACTIVITY_COMMUNICATION] = communication_columns,
	[ACTIVITY_HCCL] = hccl_columns,
	[ACTIVITY_MEMORY] = memory_columns,
	[ACTIVITY_MEMSET] = set_columns,
	[ACTIVITY_MEMCPY] = copy_columns,
};

static struct activity_writer *xlsx_open(const char *path, const struct activity_origin *who,
					 const struct activity_options *options)
{
	struct activity_writer *w = xcalloc(1, sizeof(*w));
	size_t n = strlen(path);
	bool named = n > 5 && !strcmp(path + n - 5, ".xlsx");

	(void)who;
	(void)options;
	w->path = xasprintf("%s%s", path, named ? "" : ".xlsx");
	w->temporary = xasprintf("%s.%ld.tmp", w->path, (long)getpid());
	w->fd = -1;
	return w;
}

static int note_failure(struct activity_writer *w, int code, const char *words, struct err *err)
{
	w->failed = code;
	return err_set(err, code, "cannot write '%s': %s", w->path, words);
}

static int make_dir(const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return 0;
	char *dir = xstrndup(path, (size_t)(slash - path));
	int r = fs_mkdirs(dir, err);
	free(dir);
	return r;
}

static int begin_book(struct activity_writer *w, struct err *err)
{
	lxw_workbook_options o = {.constant_memory = LXW_TRUE};
	char name[32];
	struct stat st;

	if (lstat(w->path, &st) == 0 && S_ISLNK(st.st_mode))
		return note_failure(w, -ELOOP, "it is a symbolic link; give the file itself", err);
	if (lstat(w->path, &st) == 0 && S_ISDIR(st.st_mode))
		return note_failure(w, -EISDIR, "it is a directory", err);
	w->failed = make_dir(w->path, err);
	if (w->failed < 0)
		return w->failed;
	(void)fs_unlink(w->temporary, NULL);
	w->fd = fs_open(w->temporary, O_WRONLY | O_CREAT | O_EXCL, ACTIVITY_FILE_MODE, err);
	if (w->fd < 0)
		return w->failed = w->fd;
	/* The library opens its file by name, at the end: this one nobody can exchange. */
	snprintf(name, sizeof(name), "/proc/self/fd/%d", w->fd);
	w->book = workbook_new_opt(name, &o);
	return w->book ? 0 : note_failure(w, -ENOMEM, "no memory for it", err);
}

static int next_sheet(struct activity_writer *w, uint8_t kind, struct err *err)
{
	const uint8_t *columns = columns_of[kind];
	lxw_col_t i = 0;
	struct sheet *s = &w->sheets[kind];
	char name[32];

	if (s->number++)
		snprintf(name, sizeof(name), "%s (%u)", activity_kind_name(kind), s->number);
	else
		snprintf(name, sizeof(name), "%s", activity_kind_name(kind));
	s->at = workbook_add_worksheet(w->book, name);
	if (!s->at)
		return note_failure(w, -EIO, "no further sheet can be added", err);
	for (; columns[i] != LAST; i++)
		worksheet_write_string(s->at, 0, i, activity_fields[columns[i]].title, NULL);
	worksheet_write_string(s->at, 0, i, "Duration(us)", NULL);
	s->row = 1;
	return 0;
}

/* A text that fits into a cell. */
static const char *cell_text(struct activity_writer *w, const char *text)
{
	size_t len = strnlen(text, MAX_TEXT);

	if (len == MAX_TEXT)
		len -= 3;
	const char *clean = text_clean(text, &len, &w->scratch);
	len = len > MAX_TEXT ? MAX_TEXT - 3 : len;
	while (len && ((unsigned char)clean[len] & 0xc0) == 0x80)
		len--;
	buf_clear(&w->text);
	buf_add(&w->text, clean, len);
	return buf_str(&w->text);
}

static const char *text_of(struct activity_writer *w, const struct activity *a,
			   enum activity_field_id id)
{
	uint64_t v = 0;

	switch (activity_fields[id].type) {
	case FIELD_TEXT:
		return cell_text(w, activity_text(a, id));
	case FIELD_WORD:
		return activity_word(a, id);
	case FIELD_BOOL:
		return activity_number(a, id) ? "True" : "False";
	default:
		v = activity_number(a, id);
	}
	buf_clear(&w->text);
	if (id == FIELD_START || id == FIELD_END) {
		activity_us_text(v, buf_room(&w->text, 32));
		return w->text.data;
	}
	/* zero where a device does not apply */
	bool nowhere = (id == FIELD_DEVICE || id == FIELD_STREAM) && v == ACTIVITY_NOWHERE;
	buf_add_u64(&w->text, nowhere ? 0 : v);
	return buf_str(&w->text);
}

static int xlsx_put(struct activity_writer *w, const struct activity *a, struct err *err)
{
	const uint8_t *columns = a->kind < ACTIVITY_KIND_END ? columns_of[a->kind] : NULL;
	int r = 0;

	if (!columns)
		return -ENOTSUP;
	if (w->failed)
		return w->failed;
	if (!w->book)
		r = begin_book(w, err);
	struct sheet *s = &w->sheets[a->kind];
	if (r == 0 && (!s->at || s->row == MAX_ROWS))
		r = next_sheet(w, a->kind, err);
	if (r < 0)
		return r;
	lxw_col_t i = 0;
	for (; columns[i] != LAST; i++)
		worksheet_write_string(s->at, s->row, i, text_of(w, a, columns[i]), NULL);
	worksheet_write_number(s->at, s->row++, i, (double)activity_ns(a) / 1000.0, NULL);
	return 0;
}

static int finish_book(struct activity_writer *w, struct err *err)
{
	lxw_error e = workbook_close(w->book);

	w->book = NULL;
	if (e != LXW_NO_ERROR)
		return note_failure(w, -EIO, lxw_strerror(e), err);
	return w->failed = fs_rename(w->temporary, w->path, err);
}

static int xlsx_close(struct activity_writer *w, const struct activity_closing *c, struct err *err)
{
	(void)c;
	if (!w)
		return 0;
	int r = w->failed || w->book ? w->failed : begin_book(w, err);
	if (w->book && r == 0)
		r = finish_book(w, err);
	else if (w->book)
		workbook_close(w->book);
	if (w->fd >= 0)
		close(w->fd);
	if (r < 0)
		(void)fs_unlink(w->temporary, NULL);
	buf_release(&w->text);
	buf_release(&w->scratch);
	free(w->path);
	free(w->temporary);
	free(w);
	return r;
}
#else

struct activity_writer {
	char *path;
};

static struct activity_writer *xlsx_open(const char *path, const struct activity_origin *who,
					 const struct activity_options *options)
{
	struct activity_writer *w = xcalloc(1, sizeof(*w));

	(void)who;
	(void)options;
	w->path = xstrdup(path);
	return w;
}

static int xlsx_put(struct activity_writer *w, const struct activity *a, struct err *err)
{
	(void)a;
	return err_set(err, -ENOTSUP,
		       "cannot write '%s': this program was built without libxlsxwriter; install "
		       "its headers and build again, or choose another format",
		       w->path);
}

static int xlsx_close(struct activity_writer *w, const struct activity_closing *c, struct err *err)
{
	(void)c;
	int r = w ? xlsx_put(w, NULL, err) : 0;
	if (w)
		free(w->path);
	free(w);
	return r;
}
#endif

static const char *xlsx_path(const struct activity_writer *w)
{
	return w->path;
}

const struct activity_writer_ops activity_xlsx_file = {
	.name = "xlsx",
	.open = xlsx_open,
	.put = xlsx_put,
	.close = xlsx_close,
	.path = xlsx_path,
};
