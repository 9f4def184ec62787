/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities as a workbook, as Monitor.save() of the Python module writes it: all cells are text
 * but the duration. Rows go to temporary files at once, so that memory does not grow with them.
 */
#include <errno.h>
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

	/* as few digits as tell this number from its neighbours; 15 are always enough to be kept */
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
#	define MAX_CELLS 11
#	define MODE 0640

enum cell_of {
	CELL_NAME,
	CELL_START,
	CELL_END,
	CELL_PID,
	CELL_TID,
	CELL_DEVICE,
	CELL_STREAM,
	CELL_CORRELATION,
	CELL_TYPE, /* of a kernel; the group of a communication; the domain of a mark */
	CELL_COUNT,
	CELL_DATA_TYPE,
	CELL_ALGORITHM,
	CELL_SOURCE,
	CELL_COPY,
	CELL_OPERATION,
	CELL_ADDRESS,
	CELL_VALUE,
	CELL_ASYNC,
	CELL_DURATION, /* the last one of every sheet */
};

struct column {
	const char *title;
	enum cell_of cell;
};

#	define TIMES                                                                              \
		{"Start(us)", CELL_START},                                                         \
		{                                                                                  \
			"End(us)", CELL_END                                                        \
		}
#	define PLACE                                                                              \
		{"Device ID", CELL_DEVICE},                                                        \
		{                                                                                  \
			"Stream ID", CELL_STREAM                                                   \
		}
#	define CORRELATION                                                                        \
		{                                                                                  \
			"Correlation ID", CELL_CORRELATION                                         \
		}
#	define DURATION                                                                           \
		{                                                                                  \
			"Duration(us)", CELL_DURATION                                              \
		}

static const struct column api_columns[] = {{"Name", CELL_NAME}, TIMES,	      {"Pid", CELL_PID},
					    {"Tid", CELL_TID},	 CORRELATION, DURATION};
static const struct column kernel_columns[] = {{"Name", CELL_NAME}, TIMES,   PLACE, CORRELATION,
					       {"Type", CELL_TYPE}, DURATION};
static const struct column communication_columns[] = {{"Name", CELL_NAME},
						      TIMES,
						      PLACE,
						      {"Count", CELL_COUNT},
						      {"DataType", CELL_DATA_TYPE},
						      {"CommName", CELL_TYPE},
						      {"AlgType", CELL_ALGORITHM},
						      CORRELATION,
						      DURATION};
static const struct column mark_columns[] = {{"Name", CELL_NAME},
					     {"SourceKind", CELL_SOURCE},
					     {"Domain", CELL_TYPE},
					     {"ID", CELL_CORRELATION},
					     TIMES,
					     {"Pid", CELL_PID},
					     {"Tid", CELL_TID},
					     PLACE,
					     DURATION};
static const struct column hccl_columns[] = {
	{"Name", CELL_NAME},	 TIMES,	  PLACE, {"CommName", CELL_TYPE},
	{"Bytes/s", CELL_COUNT}, DURATION};
static const struct column memory_columns[] = {
	{"Operation", CELL_OPERATION}, TIMES,	    PLACE,   {"Address", CELL_ADDRESS},
	{"Bytes", CELL_COUNT},	       CORRELATION, DURATION};
static const struct column set_columns[] = {
	{"Value", CELL_VALUE}, TIMES,	    PLACE,   {"Bytes", CELL_COUNT},
	{"Async", CELL_ASYNC}, CORRELATION, DURATION};
static const struct column copy_columns[] = {
	{"Copy Kind", CELL_COPY}, TIMES,       PLACE,	{"Bytes", CELL_COUNT},
	{"Async", CELL_ASYNC},	  CORRELATION, DURATION};

struct sheet {
	lxw_worksheet *at; /* NULL: none yet */
	unsigned number;
	lxw_row_t row; /* the next one */
};

struct activity_writer {
	char *path, *temporary;
	lxw_workbook *book; /* NULL: not begun */
	struct sheet sheets[ACTIVITY_KIND_END];
	struct buf text, scratch;
	int failed;
};

static const struct column *columns_of(uint8_t kind)
{
	static const struct column *const known[ACTIVITY_KIND_END] = {
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

	return kind < ACTIVITY_KIND_END ? known[kind] : NULL;
}

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
	return w;
}

static int fail(struct activity_writer *w, int code, const char *words, struct err *err)
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

static int begin(struct activity_writer *w, struct err *err)
{
	lxw_workbook_options o = {.constant_memory = LXW_TRUE};
	struct stat st;

	if (lstat(w->path, &st) == 0 && S_ISLNK(st.st_mode))
		return fail(w, -ELOOP, "it is a symbolic link; give the file itself", err);
	if (lstat(w->path, &st) == 0 && S_ISDIR(st.st_mode))
		return fail(w, -EISDIR, "it is a directory", err);
	w->failed = make_dir(w->path, err);
	if (w->failed < 0)
		return w->failed;
	unlink(w->temporary);
	w->book = workbook_new_opt(w->temporary, &o);
	return w->book ? 0 : fail(w, -ENOMEM, "no memory for it", err);
}

static int next_sheet(struct activity_writer *w, uint8_t kind, struct err *err)
{
	const struct column *c = columns_of(kind);
	struct sheet *s = &w->sheets[kind];
	char name[32];

	if (s->number++)
		snprintf(name, sizeof(name), "%s (%u)", activity_kind_name(kind), s->number);
	else
		snprintf(name, sizeof(name), "%s", activity_kind_name(kind));
	s->at = workbook_add_worksheet(w->book, name);
	if (!s->at)
		return fail(w, -EIO, "no further sheet can be added", err);
	for (lxw_col_t i = 0;; i++) {
		worksheet_write_string(s->at, 0, i, c[i].title, NULL);
		if (c[i].cell == CELL_DURATION)
			break;
	}
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

static const char *number_text(struct activity_writer *w, uint64_t v)
{
	buf_clear(&w->text);
	buf_add_u64(&w->text, v);
	return buf_str(&w->text);
}

static const char *us_text(struct activity_writer *w, uint64_t ns)
{
	buf_clear(&w->text);
	activity_us_text(ns, buf_room(&w->text, 32));
	return w->text.data;
}

static uint64_t place_number(uint32_t v)
{
	return v == ACTIVITY_NOWHERE ? 0 : v; /* zero where it does not apply */
}

static const char *text_of(struct activity_writer *w, const struct activity *a, enum cell_of cell)
{
	switch (cell) {
	case CELL_NAME:
		return cell_text(w, a->name);
	case CELL_START:
		return us_text(w, a->start_ns);
	case CELL_END:
		return us_text(w, a->end_ns);
	case CELL_PID:
		return number_text(w, a->pid);
	case CELL_TID:
		return number_text(w, a->tid);
	case CELL_DEVICE:
		return number_text(w, place_number(a->device));
	case CELL_STREAM:
		return number_text(w, place_number(a->stream));
	case CELL_CORRELATION:
		return number_text(w, a->correlation);
	case CELL_TYPE:
		return cell_text(w, a->detail);
	case CELL_COUNT:
		return number_text(w, a->amount);
	case CELL_DATA_TYPE:
		return activity_data_type(a->data_type);
	case CELL_ALGORITHM:
		return cell_text(w, a->more);
	case CELL_SOURCE:
		return a->place == ACTIVITY_ON_DEVICE ? "Device" : "Host";
	case CELL_COPY:
		return activity_copy_kind(a->flag);
	case CELL_OPERATION:
		return a->flag ? "release" : "allocate";
	case CELL_ADDRESS:
	case CELL_VALUE:
		return number_text(w, a->number);
	default:
		return a->async ? "True" : "False";
	}
}

static int xlsx_put(struct activity_writer *w, const struct activity *a, struct err *err)
{
	const struct column *c = columns_of(a->kind);
	int r = 0;

	if (!c)
		return -ENOTSUP;
	if (w->failed)
		return w->failed;
	if (!w->book)
		r = begin(w, err);
	struct sheet *s = &w->sheets[a->kind];
	if (r == 0 && (!s->at || s->row == MAX_ROWS))
		r = next_sheet(w, a->kind, err);
	if (r < 0)
		return r;
	lxw_col_t i = 0;
	for (; c[i].cell != CELL_DURATION; i++)
		worksheet_write_string(s->at, s->row, i, text_of(w, a, c[i].cell), NULL);
	worksheet_write_number(s->at, s->row++, i, (double)activity_ns(a) / 1000.0, NULL);
	return 0;
}

static int xlsx_flush(struct activity_writer *w, struct err *err)
{
	(void)w;
	(void)err;
	return 0;
}

static int finish(struct activity_writer *w, struct err *err)
{
	lxw_error e = workbook_close(w->book);

	w->book = NULL;
	if (e != LXW_NO_ERROR)
		return fail(w, -EIO, lxw_strerror(e), err);
	if (chmod(w->temporary, MODE) < 0 || rename(w->temporary, w->path) < 0)
		return fail(w, -errno, strerror(errno), err);
	return 0;
}

static int xlsx_close(struct activity_writer *w, const struct activity_closing *c, struct err *err)
{
	(void)c;
	if (!w)
		return 0;
	int r = w->failed || w->book ? w->failed : begin(w, err);
	if (w->book && r == 0)
		r = finish(w, err);
	else if (w->book)
		workbook_close(w->book);
	if (r < 0)
		unlink(w->temporary);
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

static int xlsx_flush(struct activity_writer *w, struct err *err)
{
	(void)w;
	(void)err;
	return 0;
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
	.flush = xlsx_flush,
	.close = xlsx_close,
	.path = xlsx_path,
};
