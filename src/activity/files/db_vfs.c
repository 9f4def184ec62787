/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/files/db_vfs.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "base/containers/buf.h"
#include "base/mem.h"

#define PAGE 4096
#define VERSION_AT 92 /* must be the counter at 24 for the number of pages to be believed */
#define MAX_HEIGHT 20
#define RUN_PAGES 16 /* SQLite takes no more than 131071 bytes at once, and says FULL */
#define LEAF_TABLE 0x0d
#define INTERIOR_TABLE 0x05

/* Who is referred to comes first. A table is known by the columns of its rows. */
enum page_class { CLASS_TEXT, CLASS_INFO, CLASS_OTHER, CLASS_FIRST_PAGE };
#define TEXT_HEADER_MAX 4 /* bytes of a row's header: of two columns */
#define INFO_HEADER_MIN 15 /* COMPUTE_TASK_INFO has fifteen */

struct held_page {
	int64_t at; /* in the file */
	size_t data; /* in the buffer */
	uint8_t class, height;
};

/* The real file lies behind it. */
struct ordered_file {
	sqlite3_file base;
	struct held_page *pages;
	size_t n, cap;
	struct buf data;
};

static sqlite3_vfs *real_vfs;

static struct ordered_file *ordered_of(sqlite3_file *f)
{
	return (struct ordered_file *)(void *)f;
}

static sqlite3_file *real_of(sqlite3_file *f)
{
	return (sqlite3_file *)(void *)(ordered_of(f) + 1);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

COMPARE_BY(by_offset, struct held_page, at)

static int by_rank(const void *a, const void *b)
{
	const struct held_page *x = a, *y = b;

	if (x->class != y->class)
		return x->class < y->class ? -1 : 1;
	if (x->height != y->height)
		return x->height < y->height ? -1 : 1;
	return by_offset(a, b);
}

/* The page as it is going to be. False: it cannot be read. */
static bool find_page(struct ordered_file *f, int64_t at, uint8_t *scratch, const uint8_t **out)
{
	struct held_page key = {.at = at};
	struct held_page *found = bsearch(&key, f->pages, f->n, sizeof(key), by_offset);
	sqlite3_file *r = real_of(&f->base);

	if (found) {
		*out = (const uint8_t *)f->data.data + found->data;
		return true;
	}
	*out = scratch;
	return r->pMethods->xRead(r, scratch, PAGE, at) == SQLITE_OK;
}

static unsigned skip_varint(const uint8_t *p, unsigned at)
{
	for (unsigned i = 0; i < 8 && at < PAGE && p[at] & 0x80; i++)
		at++;
	return at + 1;
}

/* Which table a leaf is of, by the header of its first row. */
static enum page_class leaf_class(const uint8_t *p)
{
	unsigned cells = (unsigned)p[3] << 8 | p[4];
	unsigned at = (unsigned)p[8] << 8 | p[9];

	if (!cells || at >= PAGE)
		return CLASS_OTHER;
	at = skip_varint(p, at); /* bytes of the row */
	at = skip_varint(p, at); /* its number */
	if (at >= PAGE)
		return CLASS_OTHER;
	return p[at] <= TEXT_HEADER_MAX	  ? CLASS_TEXT
	       : p[at] >= INFO_HEADER_MIN ? CLASS_INFO
					  : CLASS_OTHER;
}

/* Follows the last child of each page down to a leaf. Pages are sorted by offset. */
static void classify_page(struct ordered_file *f, struct held_page *page)
{
	uint8_t scratch[PAGE];
	const uint8_t *p;
	int64_t at = page->at;

	page->class = CLASS_OTHER;
	page->height = 0;
	if (!at) {
		page->class = CLASS_FIRST_PAGE;
		return;
	}
	while (find_page(f, at, scratch, &p) && page->height < MAX_HEIGHT) {
		if (p[0] == LEAF_TABLE)
			page->class = leaf_class(p);
		if (p[0] != INTERIOR_TABLE)
			return;
		uint32_t child = get32(p + 8);
		if (child < 2)
			return;
		at = (int64_t)(child - 1) * PAGE;
		page->height++;
	}
}

static int write_page(struct ordered_file *f, const struct held_page *page)
{
	sqlite3_file *r = real_of(&f->base);
	uint8_t *data = (uint8_t *)f->data.data + page->data;

	if (!page->at)
		memset(data + VERSION_AT, 0, 4);
	return r->pMethods->xWrite(r, data, PAGE, page->at);
}

/* New pages, of which many are neighbours both in the file and in the buffer. */
static int write_new(struct ordered_file *f, size_t from)
{
	sqlite3_file *r = real_of(&f->base);

	for (size_t i = from, j; i < f->n; i = j) {
		const struct held_page *p = f->pages + i;

		for (j = i + 1; j < f->n && f->pages[j].at == p->at + (int64_t)(j - i) * PAGE &&
				f->pages[j].data == p->data + (j - i) * PAGE && j - i < RUN_PAGES;
		     j++)
			;
		int rc = r->pMethods->xWrite(r, f->data.data + p->data, (int)(j - i) * PAGE, p->at);
		if (rc != SQLITE_OK)
			return rc;
	}
	return SQLITE_OK;
}

static int write_held(struct ordered_file *f)
{
	sqlite3_file *r = real_of(&f->base);
	sqlite3_int64 size = 0;
	size_t old = 0;

	if (!f->n)
		return SQLITE_OK;
	int rc = r->pMethods->xFileSize(r, &size);
	if (rc != SQLITE_OK)
		return rc;
	qsort(f->pages, f->n, sizeof(*f->pages), by_offset);
	while (old < f->n && f->pages[old].at < size)
		old++;
	for (size_t i = 0; i < old; i++)
		classify_page(f, &f->pages[i]);
	rc = write_new(f, old);
	qsort(f->pages, old, sizeof(*f->pages), by_rank);
	for (size_t i = 0; rc == SQLITE_OK && i < old; i++)
		rc = write_page(f, &f->pages[i]);
	f->n = 0;
	buf_clear(&f->data);
	return rc;
}

static int file_write(sqlite3_file *file, const void *data, int n, sqlite3_int64 at)
{
	struct ordered_file *f = ordered_of(file);

	if (n != PAGE || at % PAGE) {
		int rc = write_held(f);

		return rc == SQLITE_OK ? real_of(file)->pMethods->xWrite(real_of(file), data, n, at)
				       : rc;
	}
	/* the same page twice before a sync: rare enough for one after the other */
	for (size_t i = f->n; i-- > 0 && f->pages[i].at >= at;) {
		int rc = f->pages[i].at == at ? write_held(f) : SQLITE_OK;

		if (rc != SQLITE_OK)
			return rc;
		if (!f->n)
			break;
	}
	*XPUSH(f->pages, f->n, f->cap) = (struct held_page){.at = at, .data = f->data.len};
	buf_add(&f->data, data, PAGE);
	return SQLITE_OK;
}

static int file_close(sqlite3_file *file)
{
	struct ordered_file *f = ordered_of(file);
	int rc = write_held(f);
	int closed = real_of(file)->pMethods->xClose(real_of(file));

	free(f->pages);
	buf_release(&f->data);
	return rc == SQLITE_OK ? closed : rc;
}

static int file_read(sqlite3_file *file, void *data, int n, sqlite3_int64 at)
{
	int rc = write_held(ordered_of(file));

	return rc == SQLITE_OK ? real_of(file)->pMethods->xRead(real_of(file), data, n, at) : rc;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
	int rc = write_held(ordered_of(file));

	return rc == SQLITE_OK ? real_of(file)->pMethods->xTruncate(real_of(file), size) : rc;
}

static int file_sync(sqlite3_file *file, int flags)
{
	int rc = write_held(ordered_of(file));

	return rc == SQLITE_OK ? real_of(file)->pMethods->xSync(real_of(file), flags) : rc;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *out)
{
	struct ordered_file *f = ordered_of(file);
	int rc = real_of(file)->pMethods->xFileSize(real_of(file), out);

	for (size_t i = 0; rc == SQLITE_OK && i < f->n; i++)
		if (f->pages[i].at + PAGE > *out)
			*out = f->pages[i].at + PAGE;
	return rc;
}

static int file_lock(sqlite3_file *file, int level)
{
	return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int file_unlock(sqlite3_file *file, int level)
{
	int rc = write_held(ordered_of(file));
	int unlocked = real_of(file)->pMethods->xUnlock(real_of(file), level);

	return rc == SQLITE_OK ? unlocked : rc;
}

static int file_reserved(sqlite3_file *file, int *out)
{
	return real_of(file)->pMethods->xCheckReservedLock(real_of(file), out);
}

/* All pages of a commit have been written when this says so, synced or not. */
static int file_control(sqlite3_file *file, int op, void *arg)
{
	if (op == SQLITE_FCNTL_SYNC) {
		int rc = write_held(ordered_of(file));

		if (rc != SQLITE_OK)
			return rc;
	}
	/* Room made in advance would be pages of zeros. */
	if (op == SQLITE_FCNTL_SIZE_HINT || op == SQLITE_FCNTL_CHUNK_SIZE)
		return SQLITE_OK;
	return real_of(file)->pMethods->xFileControl(real_of(file), op, arg);
}

static int file_sector(sqlite3_file *file)
{
	return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int file_characteristics(sqlite3_file *file)
{
	int all = real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));

	return all & ~SQLITE_IOCAP_BATCH_ATOMIC;
}

static const sqlite3_io_methods methods = {
	.iVersion = 1,
	.xClose = file_close,
	.xRead = file_read,
	.xWrite = file_write,
	.xTruncate = file_truncate,
	.xSync = file_sync,
	.xFileSize = file_size,
	.xLock = file_lock,
	.xUnlock = file_unlock,
	.xCheckReservedLock = file_reserved,
	.xFileControl = file_control,
	.xSectorSize = file_sector,
	.xDeviceCharacteristics = file_characteristics,
};

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
	(void)vfs;
	if (!(flags & SQLITE_OPEN_MAIN_DB))
		return real_vfs->xOpen(real_vfs, name, file, flags, out);
	*ordered_of(file) = (struct ordered_file){0};
	int rc = real_vfs->xOpen(real_vfs, name, real_of(file), flags, out);
	if (rc == SQLITE_OK)
		file->pMethods = &methods;
	return rc;
}

const char *activity_db_vfs(void)
{
	static sqlite3_vfs mine;

	if (mine.zName)
		return mine.zName;
	real_vfs = sqlite3_vfs_find("unix");
	if (!real_vfs)
		return NULL;
	mine = *real_vfs;
	mine.pNext = NULL;
	mine.szOsFile = (int)sizeof(struct ordered_file) + real_vfs->szOsFile;
	mine.xOpen = vfs_open;
	mine.zName = "sonde-ordered";
	if (sqlite3_vfs_register(&mine, 0) != SQLITE_OK)
		mine.zName = NULL;
	return mine.zName;
}
