/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "watch"
#include "memory/outputs/watch_files.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text/csv.h"
#include "wire/control_page.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "watch_dump"
#define FLUSH_BYTES (256u << 10)

/* The checksums of one device of one process. */
struct sums {
	uint32_t proc, device;
	char *dir; /* NULL: it could not be made */
	int fd;
	struct buf text; /* not written yet */
};

struct watch_files {
	struct dumps *dumps;
	char *recording;
	struct sums *list;
	size_t n, cap;
	bool complained;
	bool is_checked, is_there; /* SESSION_WATCH_DIR: a directory, and no link to one */
};

struct watch_files *watch_files_new(struct dumps *d, const char *recording_dir)
{
	struct watch_files *f = xcalloc(1, sizeof(*f));

	f->dumps = d;
	f->recording = xstrdup(recording_dir);
	return f;
}

static void log_once(struct watch_files *f, const struct err *err)
{
	if (!f->complained)
		log_err("%s", err->text);
	f->complained = true;
}

/* --- names --- */

/* Control characters would break the file of checksums into other lines. */
static void add_clean(struct buf *out, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_add_char(out, (unsigned char)s[i] < 32 || s[i] == 127 ? '?' : s[i]);
}

void watch_files_name(const struct watch_sample *s, struct buf *out)
{
	if (s->device == DEV_HOST)
		buf_addf(out, "cpu_%u/", s->tid);
	else
		buf_addf(out, "%u_%u/", s->device, s->tid);
	add_clean(out, s->op, s->op_len);
	buf_addf(out, "_%u-", s->call);
	add_clean(out, s->watched, s->watched_len);
	buf_addf(out, "_%u_%s.bin", s->output == WATCH_NO_OUTPUT ? 0 : s->output,
		 s->after ? "after" : "before");
}

/* --- the checksums --- */

static int open_sums(struct watch_files *f, struct sums *s, struct err *err)
{
	struct buf dir = {0};
	char time_text[FS_TIMESTAMP_BYTES];
	int r = dumps_make_dir(f->dumps, s->proc, s->device, FOLDER, &dir, time_text, err);

	if (r == 0) {
		s->dir = xstrdup(buf_str(&dir));
		buf_addf(&dir, "/watch_dump_data_check_sum_%s.csv", time_text);
		if (dumps_replaces(f->dumps))
			(void)fs_unlink(buf_str(&dir), NULL);
		s->fd = fs_open(buf_str(&dir), O_WRONLY | O_CREAT | O_APPEND, 0600, err);
		r = s->fd < 0 ? s->fd : 0;
	}
	struct stat st;
	if (r == 0 && fstat(s->fd, &st) == 0 && st.st_size == 0)
		buf_add_str(&s->text, WATCH_CSV_HEADER "\n");
	buf_release(&dir);
	return r;
}

static struct sums *sums_of(struct watch_files *f, uint32_t proc, uint32_t device)
{
	struct err err = {0};

	for (size_t i = 0; i < f->n; i++)
		if (f->list[i].proc == proc && f->list[i].device == device)
			return &f->list[i];
	f->list = xgrow(f->list, &f->cap, f->n + 1, sizeof(*f->list));
	struct sums *s = &f->list[f->n++];
	*s = (struct sums){.proc = proc, .device = device, .fd = -1};
	if (open_sums(f, s, &err) < 0)
		log_once(f, &err);
	return s;
}

static void write_sums(struct watch_files *f, struct sums *s)
{
	struct err err = {0};
	size_t done = 0;

	int r = s->fd < 0 ? 0 : fs_write_all(s->fd, s->text.data, s->text.len, FS_HERE, &done);
	if (r < 0) {
		err_sys(&err, r, "cannot write checksums of watched memory below '%s'", s->dir);
		log_once(f, &err);
	}
	/* What does not fit stays for the next time, within reason: half a line is no line. */
	memmove(s->text.data, s->text.data + done, s->text.len - done);
	s->text.len -= done;
	if (s->fd < 0 || s->text.len > 16 * FLUSH_BYTES)
		buf_clear(&s->text);
}

static void close_sums(struct watch_files *f, struct sums *s)
{
	if (s->text.len)
		write_sums(f, s);
	if (s->fd >= 0)
		close(s->fd);
	free(s->dir);
	buf_release(&s->text);
}

/* --- the bytes --- */

/* A name that a directory can hold: what is too long loses its middle to a hash. */
static void file_name(struct buf *name)
{
	uint64_t h = 0xcbf29ce484222325ull;
	const size_t tail = 40;

	for (size_t i = 0; i < name->len; i++) {
		h = (h ^ (unsigned char)name->data[i]) * 0x100000001b3ull;
		if (name->data[i] == '/')
			name->data[i] = '.';
	}
	if (name->len <= NAME_MAX)
		return;
	struct buf cut = {0};
	buf_add(&cut, name->data, NAME_MAX - tail - 18);
	buf_addf(&cut, "~%016llx~", (unsigned long long)h);
	buf_add(&cut, name->data + name->len - tail, tail);
	buf_release(name);
	*name = cut;
}

static bool has_content(struct watch_files *f)
{
	struct stat st;

	if (!f->is_checked) {
		char *dir = xasprintf("%s/" SESSION_WATCH_DIR, f->recording);

		f->is_checked = true;
		f->is_there = lstat(dir, &st) == 0 && S_ISDIR(st.st_mode);
		free(dir);
	}
	return f->is_there;
}

static void move_content(struct watch_files *f, const struct sums *s, uint32_t pid,
			 uint64_t content, struct buf *name)
{
	struct err err = {0};

	if (!s->dir || !has_content(f))
		return;
	file_name(name);
	char *from = xasprintf("%s/" SESSION_WATCH_DIR "/%u-%llu", f->recording, pid,
			       (unsigned long long)content);
	char *to = xasprintf("%s/%s", s->dir, buf_str(name));
	/* Not there: it was moved when the recording was made. */
	int r = fs_rename(from, to, &err);
	if (r < 0 && r != -ENOENT)
		log_once(f, &err);
	free(from);
	free(to);
}

/* --- from outside --- */

void watch_files_sample(struct watch_files *f, uint32_t proc, const struct watch_sample *sample)
{
	struct sums *s = sums_of(f, proc, sample->device);
	struct buf name = {0};

	if (sample->error)
		return;
	watch_files_name(sample, &name);
	if (s->fd >= 0) {
		csv_add_field(&s->text, name.data, name.len);
		buf_addf(&s->text, ",%016llx\n", (unsigned long long)sample->checksum);
	}
	if (s->text.len >= FLUSH_BYTES)
		write_sums(f, s);
	if (sample->content)
		move_content(f, s, dumps_pid(f->dumps, proc), sample->content, &name);
	buf_release(&name);
}

void watch_files_proc_end(struct watch_files *f, uint32_t proc)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++) {
		if (f->list[i].proc == proc)
			close_sums(f, &f->list[i]);
		else
			f->list[n++] = f->list[i];
	}
	f->n = n;
}

void watch_files_flush(struct watch_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->list[i].text.len)
			write_sums(f, &f->list[i]);
}

void watch_files_free(struct watch_files *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++)
		close_sums(f, &f->list[i]);
	char *dir = xasprintf("%s/" SESSION_WATCH_DIR, f->recording);
	(void)fs_rmdir(dir, NULL); /* if nothing was left behind */
	free(dir);
	free(f->recording);
	free(f->list);
	free(f);
}
