/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/input/reader.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "memory/dump/scan.h"
#include "memory/input/read_ahead.h"
#include "memory/input/reader_impl.h"
#include "wire/record.h"

#define DB_MAGIC "SQLite format 3" /* and its NUL */
#define RANGE_END_NAME "Range end from id "

/*
 * Where the rows of a dump lie, in order of time. Programs before this one wrote the rows of a
 * block together when it died, so a file has to be read as a whole first. The index takes 32 bytes
 * a row, whatever the row's length.
 */
struct dump_entry {
	uint64_t time_ns;
	uint64_t id;
	struct dump_place place;
};

struct dump_index { /* zero-initialise */
	struct dump_entry *entries;
	size_t count;
	size_t capacity;
	size_t at;
	bool mixed; /* the order of the file is not the order of time */
};

_Static_assert(sizeof(struct dump_entry) == 32, "what the documents promise");

struct dump {
	struct dump_source *src;
	unsigned flags;
	struct dump_ahead *ahead; /* of dump_read_ahead(), or NULL */
	char *path;
	struct row row; /* of dump_take() */
	uint64_t bad_rows;
	char *first_bad;
	struct words events;
	struct words types;
	struct cell_keys keys;
	struct buf attr; /* unescaped JSON */
	struct dump_index index; /* of DUMP_SORTED … */
	bool indexed; /* … which is complete */
};

static inline bool is_na(const struct cell *c)
{
	return c->len == 3 && (c->text[0] | 32) == 'n' && c->text[1] == '/' &&
	       (c->text[2] | 32) == 'a';
}

/* A word of the vocabulary, known or not; anything else means that the columns slipped. */
static bool is_word(const char *text, size_t len)
{
	if (!len || len > 64)
		return false;
	for (size_t i = 0; i < len; i++) {
		char low = (char)(text[i] | 32);

		if (!(low >= 'a' && low <= 'z') && !(text[i] >= '0' && text[i] <= '9') &&
		    text[i] != '_' && text[i] != '/' && text[i] != ' ')
			return false;
	}
	return true;
}

#define NOT_A_WORD UINT32_MAX

static unsigned event_find(const char *text, size_t len)
{
	return is_word(text, len) ? row_event_find(text, len) : NOT_A_WORD;
}

static unsigned type_find(const char *text, size_t len)
{
	return is_word(text, len) ? row_type_find(text, len) : NOT_A_WORD;
}

static inline bool read_id(const struct cell *c, uint32_t *out)
{
	uint64_t v;

	*out = UINT32_MAX;
	if (!scan_u64(c->text, c->len, &v))
		return is_na(c) || (c->len == 2 && !memcmp(c->text, "-1", 2));
	if (v > UINT32_MAX && v != UINT64_MAX)
		return false;
	*out = v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
	return true;
}

static inline bool read_device(const struct cell *c, uint32_t *out)
{
	uint64_t v;

	if (scan_u64(c->text, c->len, &v)) {
		*out = (uint32_t)v;
		return v <= UINT32_MAX;
	}
	*out = is_na(c) ? DEV_NONE : DEV_HOST;
	return is_na(c) || (c->len == 3 && !strncasecmp(c->text, "cpu", 3)) ||
	       (c->len == 4 && !strncasecmp(c->text, "host", 4)); /* in 2025 */
}

static inline bool read_ptr(const struct cell *c, struct row *row)
{
	row->has_ptr = c->len && !is_na(c);
	row->ptr = 0;
	return !row->has_ptr || cell_read_hex(c->text, c->len, &row->ptr) ||
	       scan_u64(c->text, c->len, &row->ptr);
}

static struct cell without_quotes(struct cell c)
{
	if (c.len >= 2 && c.text[0] == '"' && c.text[c.len - 1] == '"')
		return (struct cell){c.text + 1, c.len - 2};
	return c;
}

/* The name of the end of a range says which one it was. */
static uint64_t range_of(const struct row *row)
{
	const size_t n = sizeof(RANGE_END_NAME) - 1;
	uint64_t id = 0;

	if (row->event != ROW_MSTX || row->type != TYPE_RANGE_END || row->name_len <= n ||
	    memcmp(row->name, RANGE_END_NAME, n))
		return 0;
	return cell_read_u64(row->name + n, row->name_len - n, &id) ? id : 0;
}

static inline void read_texts(const struct cell *const *columns, bool is_db, struct row *row)
{
	struct cell name = *columns[COL_NAME], py = *columns[COL_PY_STACK],
		    c = *columns[COL_C_STACK];

	if (is_db) {
		py = without_quotes(py);
		c = without_quotes(c);
		if (row->event == ROW_MSTX)
			name = without_quotes(name);
	}
	bool none = is_na(&name);
	row->name = none ? NULL : name.len ? name.text : "";
	row->name_len = none ? 0 : name.len;
	row->py_stack = py.len ? py.text : NULL;
	row->py_stack_len = py.len;
	row->c_stack = c.len ? c.text : NULL;
	row->c_stack_len = c.len;
}

static inline bool read_number(const struct cell *c, uint64_t *out)
{
	return scan_u64(c->text, c->len, out);
}

static inline bool read_words(struct dump *d, const struct cell *event, const struct cell *type,
			      struct row *row, const char **wrong)
{
	unsigned e = words_find(&d->events, event->text, event->len);
	unsigned t = words_find(&d->types, type->text, type->len);

	row->event = (enum row_event)e;
	row->type = (enum row_type)t;
	*wrong = e == NOT_A_WORD ? "Event" : "Event Type";
	return e != NOT_A_WORD && t != NOT_A_WORD;
}

/* As csv files have it, "{addr:0x1,size:2}": some databases of 2025, too. */
static bool is_plain_attr(const struct cell *c)
{
	return c->len > 2 && c->text[0] == '{' && isalpha((unsigned char)c->text[1]);
}

/* Gives the name of the column that is wrong, NULL when all is well. */
static const char *read_row(struct dump *d, struct row *row)
{
	const struct cell *const *columns = d->src->columns;
	const struct cell *attr = columns[COL_ATTR];
	bool is_db = d->src->ops->is_db;
	const char *wrong;
	int r;

	if (!read_number(columns[COL_ID], &row->id))
		return "ID";
	if (!read_words(d, columns[COL_EVENT], columns[COL_TYPE], row, &wrong))
		return wrong;
	if (!read_number(columns[COL_TIME], &row->time_ns) ||
	    (d->src->in_us && __builtin_mul_overflow(row->time_ns, 1000, &row->time_ns)))
		return "Timestamp(ns)";
	if (!read_id(columns[COL_PID], &row->pid))
		return "Process Id";
	if (!read_id(columns[COL_TID], &row->tid))
		return "Thread Id";
	if (!read_device(columns[COL_DEVICE], &row->device))
		return "Device Id";
	if (!read_ptr(columns[COL_PTR], row))
		return "Ptr";
	r = is_db && !(d->src->plain_attrs && is_plain_attr(attr))
		    ? cell_read_json(&d->keys, attr->text, attr->len, &d->attr, row)
		    : cell_read_attrs(&d->keys, attr->text, attr->len, row);
	if (r < 0)
		return "Attr";
	read_texts(columns, is_db, row);
	row->range = range_of(row);
	row->step = 0;
	row->hidden = false;
	row->layer = NULL;
	row->tensor_bytes = 0;
	row->nparts = 0;
	row->temporary = false;
	return NULL;
}

/* The next row of the file; -EBADMSG for a bad one. */
static int file_row(struct dump *d, struct row *row, struct err *err)
{
	int r = d->src->ops->next(d->src, err);

	if (r <= 0)
		return r;
	const char *wrong = read_row(d, row);
	if (wrong && d->src->torn)
		return 0;
	d->src->torn = false; /* only its line end was missing */
	if (!wrong)
		return 1;
	return err_set(err, -EBADMSG, "\"%s\" line %llu: bad %s", d->path,
		       (unsigned long long)d->src->line, wrong);
}

/* The next good row of the file, or the next bad one unless they are passed over. */
static int good_row(struct dump *d, struct row *row, struct err *err)
{
	struct err problem;

	for (;;) {
		int r = file_row(d, row, &problem);

		if (r >= 0)
			return r;
		if (r == -EBADMSG && !d->bad_rows++)
			d->first_bad = xstrdup(problem.text);
		if (r != -EBADMSG || !(d->flags & DUMP_SKIP_BAD))
			return err_set(err, r, "%s", problem.text);
	}
}

static int by_time(const void *left, const void *right)
{
	const struct dump_entry *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	return a->place.offset < b->place.offset ? -1 : a->place.offset > b->place.offset;
}

static void index_add(struct dump_index *index, uint64_t time_ns, uint64_t id,
		      struct dump_place place)
{
	index->entries =
		xgrow(index->entries, &index->capacity, index->count + 1, sizeof(*index->entries));
	struct dump_entry *entry = &index->entries[index->count++];
	*entry = (struct dump_entry){time_ns, id, place};
	if (index->count > 1)
		index->mixed |= by_time(entry - 1, entry) > 0;
}

static int build_index(struct dump *d, struct row *row, struct err *err)
{
	int r;

	while ((r = good_row(d, row, err)) > 0)
		index_add(&d->index, row->time_ns, row->id, d->src->place);
	if (r == 0 && d->index.mixed)
		qsort(d->index.entries, d->index.count, sizeof(*d->index.entries), by_time);
	d->indexed = r == 0;
	return r;
}

static int sorted_row(struct dump *d, struct row *row, struct err *err)
{
	int r = d->indexed ? 0 : build_index(d, row, err);

	if (r < 0)
		return r;
	if (d->index.at == d->index.count)
		return 0;
	r = d->src->ops->again(d->src, d->index.entries[d->index.at++].place, err);
	if (r < 0)
		return r;
	if (!read_row(d, row))
		return 1;
	return err_set(err, -EIO, "\"%s\" has changed while it was read", d->path);
}

int dump_next(struct dump *d, struct row *out, struct err *err)
{
	if ((d->flags & DUMP_SORTED) && d->src->ops->again)
		return sorted_row(d, out, err);
	return good_row(d, out, err);
}

int dump_take(struct dump *d, const struct row **out, struct err *err)
{
	if (d->ahead)
		return dump_ahead_next(d->ahead, out, err);
	*out = &d->row;
	return dump_next(d, &d->row, err);
}

void dump_want(struct dump *d, uint64_t attrs)
{
	d->keys.wanted = attrs;
}

void dump_read_ahead(struct dump *d, unsigned threads, size_t piece)
{
	BUG_ON(!(d->flags & DUMP_SKIP_BAD));
	if (!d->src->ops->is_db && !(d->flags & DUMP_SORTED) && !d->ahead)
		d->ahead = dump_ahead_new(d, threads, piece);
}

uint64_t dump_bad_rows(const struct dump *d)
{
	return d->bad_rows;
}

const char *dump_first_bad(const struct dump *d)
{
	return d->first_bad;
}

struct dump_source *dump_source(const struct dump *d)
{
	return d->src;
}

bool dump_torn(const struct dump *d)
{
	return d->src->torn;
}

void dump_close(struct dump *d)
{
	if (!d)
		return;
	dump_ahead_free(d->ahead);
	if (d->src)
		d->src->ops->free(d->src);
	free(d->index.entries);
	buf_release(&d->attr);
	free(d->first_bad);
	free(d->path);
	free(d);
}

bool dump_time_is_us(const char *name, size_t len)
{
	return len == strlen(DUMP_TIME_IN_US) && !strncasecmp(name, DUMP_TIME_IN_US, len);
}

int dump_check_columns(struct dump_source *src, struct err *err)
{
	static const struct cell empty;
	const char *name = CELL_COLUMNS;

	for (unsigned i = 0; i < COL_END; i++) {
		int n = (int)strcspn(name, ",");

		if (!src->columns[i] && i < COL_PY_STACK)
			return err_set(err, -EINVAL,
				       "\"%s\" is not a memory dump: no column \"%.*s\"", src->path,
				       n, name);
		if (!src->columns[i])
			src->columns[i] = &empty;
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
	struct dump *d = xcalloc_apart(sizeof(*d));

	d->path = xstrdup(path);
	d->flags = flags;
	d->events.find = event_find;
	d->types.find = type_find;
	cell_keys_init(&d->keys);
	return d;
}

struct dump *dump_twin(const struct dump *d)
{
	struct dump *twin = dump_new(d->path, 0);

	twin->src = dump_csv_twin(d->src);
	twin->keys.wanted = d->keys.wanted;
	return twin;
}

int dump_open(const char *path, unsigned flags, struct dump **out, struct err *err)
{
	int fd = fs_open(path, O_RDONLY, 0, err);
	char start[sizeof(DB_MAGIC)];
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return err_set(err, -EINVAL, "\"%s\" is not a regular file", path);
	}
	if (!st.st_size) {
		close(fd);
		return err_set(err, -EINVAL, "\"%s\" is empty: nothing was written to it so far",
			       path);
	}
	ssize_t n = pread(fd, start, sizeof(start), 0);
	if (n != sizeof(start) || memcmp(start, DB_MAGIC, sizeof(start)))
		return dump_open_csv(fd, path, flags, out, err);
	close(fd);
	struct dump *d = dump_new(path, flags);
	return finish_open(d, dump_db_open(d->path, flags & DUMP_SORTED, &d->src, err), out);
}

int dump_open_csv(int fd, const char *path, unsigned flags, struct dump **out, struct err *err)
{
	struct dump *d = dump_new(path, flags);

	return finish_open(d, dump_csv_open(fd, d->path, &d->src, err), out);
}
