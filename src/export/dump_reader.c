/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "export/dump_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "export/dump_source.h"
#include "wire/record.h"

#define DB_MAGIC "SQLite format 3" /* and its NUL */

struct dump {
	struct dump_source *src;
	unsigned flags;
	uint64_t bad_rows;
	struct buf attr; /* unescaped JSON */
	char *path;
};

static bool is_na(const struct cell *c)
{
	return c->len == 3 && !strncasecmp(c->text, "N/A", 3);
}

/* A word of the vocabulary, known or not; anything else means that the columns slipped. */
static bool is_word(const struct cell *c)
{
	if (!c->len || c->len > 64)
		return false;
	for (size_t i = 0; i < c->len; i++) {
		char low = (char)(c->text[i] | 32);

		if (!(low >= 'a' && low <= 'z') && !(c->text[i] >= '0' && c->text[i] <= '9') &&
		    c->text[i] != '_' && c->text[i] != '/' && c->text[i] != ' ')
			return false;
	}
	return true;
}

static bool read_id(const struct cell *c, uint32_t *out)
{
	uint64_t v;

	*out = UINT32_MAX;
	if (is_na(c) || (c->len == 2 && !memcmp(c->text, "-1", 2)))
		return true;
	if (!cell_read_u64(c->text, c->len, &v) || (v > UINT32_MAX && v != UINT64_MAX))
		return false;
	*out = v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
	return true;
}

static bool read_device(const struct cell *c, uint32_t *out)
{
	uint64_t v;

	*out = DEV_NONE;
	if (is_na(c))
		return true;
	*out = DEV_HOST;
	if (c->len == 3 && !strncasecmp(c->text, "cpu", 3))
		return true;
	if (!cell_read_u64(c->text, c->len, &v) || v > UINT32_MAX)
		return false;
	*out = (uint32_t)v;
	return true;
}

static bool read_ptr(const struct cell *c, struct row *row)
{
	row->has_ptr = c->len && !is_na(c);
	return !row->has_ptr || cell_read_hex(c->text, c->len, &row->ptr) ||
	       cell_read_u64(c->text, c->len, &row->ptr);
}

static struct cell without_quotes(struct cell c)
{
	if (c.len >= 2 && c.text[0] == '"' && c.text[c.len - 1] == '"')
		return (struct cell){c.text + 1, c.len - 2};
	return c;
}

static void read_texts(const struct cell *cells, bool is_db, struct row *row)
{
	struct cell name = cells[COL_NAME], py = cells[COL_PY_STACK], c = cells[COL_C_STACK];

	if (is_db) {
		py = without_quotes(py);
		c = without_quotes(c);
		if (row->event == ROW_MSTX)
			name = without_quotes(name);
	}
	if (!is_na(&name)) {
		row->name = name.len ? name.text : "";
		row->name_len = name.len;
	}
	row->py_stack = py.len ? py.text : NULL;
	row->py_stack_len = py.len;
	row->c_stack = c.len ? c.text : NULL;
	row->c_stack_len = c.len;
}

/* Gives the name of the column that is wrong, NULL when all is well. */
static const char *read_row(struct dump *d, const struct cell *cells, struct row *row)
{
	const struct cell *event = &cells[COL_EVENT], *type = &cells[COL_TYPE];
	const struct cell *attr = &cells[COL_ATTR];
	bool is_db = d->src->ops->is_db;
	int r;

	if (!cell_read_u64(cells[COL_ID].text, cells[COL_ID].len, &row->id))
		return "ID";
	if (!is_word(event))
		return "Event";
	if (!is_word(type))
		return "Event Type";
	row->event = row_event_find(event->text, event->len);
	row->type = row_type_find(type->text, type->len);
	if (!cell_read_u64(cells[COL_TIME].text, cells[COL_TIME].len, &row->time_ns))
		return "Timestamp(ns)";
	if (!read_id(&cells[COL_PID], &row->pid))
		return "Process Id";
	if (!read_id(&cells[COL_TID], &row->tid))
		return "Thread Id";
	if (!read_device(&cells[COL_DEVICE], &row->device))
		return "Device Id";
	if (!read_ptr(&cells[COL_PTR], row))
		return "Ptr";
	r = is_db ? cell_read_json(attr->text, attr->len, &d->attr, row)
		  : cell_read_attrs(attr->text, attr->len, row);
	if (r < 0)
		return "Attr";
	read_texts(cells, is_db, row);
	return NULL;
}

static int next_row(struct dump *d, struct row *row, struct err *err)
{
	struct cell cells[COL_END] = {0};
	int r = d->src->ops->next(d->src, cells, err);

	if (r <= 0)
		return r;
	memset(row, 0, offsetof(struct row, attrs));
	const char *wrong = read_row(d, cells, row);
	if (wrong && d->src->torn)
		return 0;
	d->src->torn = false; /* only its line end was missing */
	if (!wrong)
		return 1;
	return err_set(err, -EBADMSG, "\"%s\" line %llu: bad %s", d->path,
		       (unsigned long long)d->src->line, wrong);
}

int dump_next(struct dump *d, struct row *out, struct err *err)
{
	struct err local;

	for (;;) {
		int r = next_row(d, out, &local);

		if (r < 0 && r != -EBADMSG)
			return err_set(err, r, "%s", local.text);
		if (r >= 0)
			return r;
		d->bad_rows++;
		if (!(d->flags & DUMP_SKIP_BAD))
			return err_set(err, r, "%s", local.text);
	}
}

uint64_t dump_bad_rows(const struct dump *d)
{
	return d->bad_rows;
}

uint64_t dump_line(const struct dump *d)
{
	return d->src->line;
}

bool dump_torn(const struct dump *d)
{
	return d->src->torn;
}

void dump_close(struct dump *d)
{
	if (!d)
		return;
	if (d->src)
		d->src->ops->free(d->src);
	buf_release(&d->attr);
	free(d->path);
	free(d);
}

int dump_check_columns(const char *path, unsigned have, struct err *err)
{
	const char *name = CELL_COLUMNS;

	for (unsigned i = 0; i < COL_PY_STACK; i++) {
		int n = (int)strcspn(name, ",");

		if (!(have & 1u << i))
			return err_set(err, -EINVAL,
				       "\"%s\" is not a memory dump: no column \"%.*s\"", path, n,
				       name);
		name += n + 1;
	}
	return 0;
}

static int finish_open(struct dump *d, int r, struct dump **out)
{
	if (r < 0)
		dump_close(d);
	else
		*out = d;
	return r;
}

static struct dump *dump_new(const char *path, unsigned flags)
{
	struct dump *d = xcalloc(1, sizeof(*d));

	d->path = xstrdup(path);
	d->flags = flags;
	return d;
}

int dump_open(const char *path, unsigned flags, struct dump **out, struct err *err)
{
	/* O_NONBLOCK: a fifo is refused below instead of waited for. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char start[sizeof(DB_MAGIC)];
	struct stat st;

	if (fd < 0)
		return err_sys(err, -errno, "cannot open \"%s\"", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return err_set(err, -EINVAL, "\"%s\" is not a regular file", path);
	}
	ssize_t n = pread(fd, start, sizeof(start), 0);
	struct dump *d = dump_new(path, flags);
	if (n != sizeof(start) || memcmp(start, DB_MAGIC, sizeof(start)))
		return finish_open(d, dump_csv_open(fd, NULL, 0, d->path, &d->src, err), out);
	close(fd);
	return finish_open(d, dump_db_open(d->path, &d->src, err), out);
}

int dump_open_memory(const void *data, size_t len, unsigned flags, struct dump **out,
		     struct err *err)
{
	struct dump *d = dump_new("(memory)", flags);

	return finish_open(d, dump_csv_open(-1, data, len, d->path, &d->src, err), out);
}
