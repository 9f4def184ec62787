/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/host/metrics/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define PIECE 16384
#define MAX_TEXT (4u << 20) /* /proc/stat of a thousand processors has some hundred KiB */

void kernel_file_init(struct kernel_file *f, const char *root, const char *path)
{
	*f = (struct kernel_file){.path = xasprintf("%s%s", root, path), .fd = -1};
}

void kernel_file_release(struct kernel_file *f)
{
	if (f->path && f->fd >= 0)
		close(f->fd);
	free(f->path);
	buf_release(&f->text);
	*f = (struct kernel_file){.fd = -1};
}

static int read_all(struct kernel_file *f)
{
	buf_clear(&f->text);
	while (f->text.len < MAX_TEXT) {
		char *to = buf_room(&f->text, PIECE);
		ssize_t n = pread(f->fd, to, PIECE, (off_t)f->text.len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		f->text.len += (size_t)n;
	}
	return 0;
}

const char *kernel_file_read(struct kernel_file *f)
{
	if (f->fd < 0)
		f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (f->fd < 0)
		return NULL;
	if (read_all(f) < 0) { /* the next read opens it anew */
		close(f->fd);
		f->fd = -1;
		return NULL;
	}
	return buf_str(&f->text);
}

char *kernel_text(const char *root, const char *path)
{
	struct kernel_file f;

	kernel_file_init(&f, root, path);
	const char *text = kernel_file_read(&f);
	char *copy = text ? xstrdup(text) : NULL;
	kernel_file_release(&f);
	return copy;
}

bool kernel_number(const char **at, uint64_t *out)
{
	const char *p = *at + strspn(*at, " \t");
	uint64_t v = 0;

	if (*p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return false;
	*at = p;
	*out = v;
	return true;
}

const char *kernel_line(const char **at, size_t *out_len)
{
	const char *line = *at;

	if (!*line)
		return NULL;
	*out_len = strcspn(line, "\n");
	*at = line + *out_len + (line[*out_len] == '\n');
	return line;
}

void kernel_list_each(const char *list, unsigned max, void (*fn)(void *arg, unsigned n), void *arg)
{
	uint64_t first, last;

	while (kernel_number(&list, &first)) {
		last = first;
		if (*list == '-') {
			list++;
			if (!kernel_number(&list, &last))
				return;
		}
		for (uint64_t i = first; i <= last && i < max; i++)
			fn(arg, (unsigned)i);
		if (*list != ',')
			return;
		list++;
	}
}

void kernel_rounds_begin(struct kernel_rounds *r)
{
	struct kernel_rows old = r->before;

	r->before = r->now;
	r->now = old;
	r->now.n = 0;
}

void kernel_rounds_add(struct kernel_rounds *r, const struct kernel_row *row)
{
	*XPUSH(r->now.list, r->now.n, r->now.cap) = *row;
}

const struct kernel_row *kernel_rounds_before(const struct kernel_rounds *r, const char *name,
					      size_t at)
{
	const struct kernel_rows *in = &r->before;

	if (at < in->n && !strcmp(in->list[at].name, name))
		return &in->list[at];
	for (size_t i = 0; i < in->n; i++)
		if (!strcmp(in->list[i].name, name))
			return &in->list[i];
	return NULL;
}

void kernel_rounds_release(struct kernel_rounds *r)
{
	free(r->before.list);
	free(r->now.list);
}
