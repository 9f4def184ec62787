/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/amend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "memory/dump/amend_impl.h"
#include "memory/dump/cell.h"

#define DB_MAGIC "SQLite format 3" /* and its NUL */

/* --- the pairs of both formats --- */

static bool csv_pair(const char **at, const char *end, struct amend_pair *out)
{
	struct pair pair;

	if (!cell_next_pair(at, end, &pair))
		return false;
	*out = (struct amend_pair){pair.key, (size_t)(pair.value + pair.value_len - pair.key),
				   pair.key, pair.key_len};
	return true;
}

/* A comma in the value before something like a key would begin another pair. */
static void csv_put(struct buf *out, const char *key, size_t key_len, const char *value)
{
	const char *end = value + strlen(value);

	buf_add(out, key, key_len);
	buf_add_char(out, ':');
	for (; value < end; value++)
		buf_add_char(out, *value == ',' && cell_is_key(value + 1, end) ? ';' : *value);
}

const struct amend_form amend_csv = {csv_pair, csv_put};

static const char *json_skip_space(const char *p, const char *end)
{
	while (p < end && memchr(" \t\r\n", *p, 4))
		p++;
	return p;
}

/* Behind the string that begins at p. */
static const char *json_skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		p += *p == '\\' && p + 1 < end;
	return p < end ? p + 1 : end;
}

static bool json_pair(const char **at, const char *end, struct amend_pair *out)
{
	const char *p = json_skip_space(*at, end);

	if (p >= end || *p != '"')
		return false;
	const char *key_end = json_skip_string(p, end);
	*out = (struct amend_pair){.text = p, .key = p + 1, .key_len = (size_t)(key_end - p - 2)};
	p = json_skip_space(key_end, end);
	p = json_skip_space(p < end ? p + 1 : end, end);
	if (p < end && *p == '"')
		p = json_skip_string(p, end);
	else
		while (p < end && !memchr(" \t\r\n,", *p, 5))
			p++;
	out->len = (size_t)(p - out->text);
	p = json_skip_space(p, end);
	*at = p < end ? p + 1 : end;
	return true;
}

static void json_put(struct buf *out, const char *key, size_t key_len, const char *value)
{
	buf_add_char(out, '"');
	buf_add(out, key, key_len);
	buf_add_str(out, "\":\"");
	cell_json_text(out, value, strlen(value));
	buf_add_char(out, '"');
}

const struct amend_form amend_json = {json_pair, json_put};

/* --- one cell --- */

/* Owner and inefficient still to be written; NULL when done, or when there is nothing to say. */
struct pending {
	const struct amend_form *form;
	const char *owner;
	const char *inefficient;
	const char *inefficient_key;
	struct buf *out;
};

static void put_pair(struct pending *p, const char *key, size_t key_len, const char **value)
{
	if (!*value)
		return;
	if (p->out->len > 1)
		buf_add_char(p->out, ',');
	p->form->put(p->out, key, key_len, *value);
	*value = NULL;
}

static void put_owner(struct pending *p)
{
	put_pair(p, "owner", strlen("owner"), &p->owner);
}

static void put_inefficient(struct pending *p)
{
	put_pair(p, p->inefficient_key, strlen(p->inefficient_key), &p->inefficient);
}

/* Writes what comes before the pair, and the pair unless a new one is there in its place. */
static void pass_pair(struct pending *p, const struct amendment *finding,
		      const struct amend_pair *pair)
{
	enum attr_key key = attr_key_find(pair->key, pair->key_len);

	if (key == ATTR_OWNER && finding->owner) {
		put_pair(p, pair->key, pair->key_len, &p->owner);
		return;
	}
	if (key == ATTR_INEFFICIENT || key == ATTR_PAGE_TYPE || key == ATTR_ALLOC_TYPE)
		put_owner(p);
	if (key == ATTR_INEFFICIENT && finding->inefficient) {
		put_pair(p, pair->key, pair->key_len, &p->inefficient);
		return;
	}
	if (key == ATTR_PAGE_TYPE || key == ATTR_ALLOC_TYPE)
		put_inefficient(p);
	if (p->out->len > 1)
		buf_add_char(p->out, ',');
	buf_add(p->out, pair->text, pair->len);
}

bool amend_attrs(struct amend *a, const struct amend_form *form, const char *text, size_t len,
		 const struct amendment *finding)
{
	const char *at = text + 1, *end = text + len - 1;
	struct pending p = {form, finding->owner, finding->inefficient, a->inefficient_key,
			    &a->cell};
	struct amend_pair pair;

	buf_clear(&a->cell);
	buf_add_char(&a->cell, '{');
	while (form->next(&at, end, &pair))
		pass_pair(&p, finding, &pair);
	put_owner(&p);
	put_inefficient(&p);
	buf_add_char(&a->cell, '}');
	return a->cell.len != len || memcmp(a->cell.data, text, len) != 0;
}

/* --- rows and files --- */

const struct amendment *amend_find(struct amend *a, const struct row *row)
{
	const struct attr *id = row_attr(row, ATTR_ALLOCATION_ID);
	const struct attr *old = row_attr(row, ATTR_INEFFICIENT);

	/* The key stands before its value. */
	if (old)
		a->inefficient_key = attr_key_text(
			ATTR_INEFFICIENT,
			strncasecmp(old->text - 6, "_type:", 6) ? ROW_SEED : ROW_26_0);
	if (row->event != ROW_MALLOC || !id || id->kind != ATTR_NUMBER)
		return NULL;
	return a->find(a->arg, row->pid, id->number);
}

/* The file behind all links, open for reading; says whether it is a database. */
static int open_file(const char *path, char **out_real, bool *out_db, struct err *err)
{
	char start[sizeof(DB_MAGIC)];
	struct stat st;

	*out_real = realpath(path, NULL);
	int fd = *out_real ? open(*out_real, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	if (fd < 0)
		return err_sys(err, -errno, "cannot open \"%s\"", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return err_set(err, -EINVAL, "\"%s\" is not a regular file", path);
	}
	if (euidaccess(*out_real, W_OK) < 0) {
		int r = err_sys(err, -errno, "cannot write \"%s\"", path);

		close(fd);
		return r;
	}
	*out_db = pread(fd, start, sizeof(start), 0) == sizeof(start) &&
		  !memcmp(start, DB_MAGIC, sizeof(start));
	return fd;
}

int dump_amend(const char *path, enum row_compat compat, amend_lookup find, void *arg,
	       uint64_t *out_rows, struct err *err)
{
	struct amend a = {.find = find, .arg = arg};
	char *real = NULL;
	bool is_db = false;

	a.inefficient_key = attr_key_text(ATTR_INEFFICIENT, compat);
	int r = open_file(path, &real, &is_db, err);
	if (r >= 0) {
		a.path = real;
		r = is_db ? amend_db_file(&a, r, err) : amend_csv_file(&a, r, err);
	}
	if (r == 0)
		*out_rows = a.rows;
	buf_release(&a.cell);
	free(real);
	return r;
}
