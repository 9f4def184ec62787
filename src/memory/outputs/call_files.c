/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Rows are collected per thread, as lines of its file, and appended now and then; no file stays
 * open in between, since a job may have more threads than we may have files. For a database the
 * same lines are kept as rows.
 */
#include "memory/outputs/call_files.h"

#include "base/containers/omap.h"
#include "base/fs.h"
#include "base/mem.h"
#include "formats/sqlite_use.h"
#include "wire/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREAD_BYTES (256u << 10) /* lines of a thread that go out together */
#define ALL_BYTES (16u << 20) /* of all threads */
#define DECIDE_BYTES (1u << 20) /* that wait for the first device of their process */

#define NO_PLACE "there is no place for calls of Python functions"

/* A row that waits for the database; its text follows. */
struct held_row {
	uint64_t start_ns, end_ns;
	uint32_t tid;
	uint32_t len;
};

struct thread_file {
	uint32_t tid;
	bool begun; /* the file is there */
	uint64_t rows; /* in the text */
	struct buf text;
};

struct proc_trace {
	uint32_t proc, pid;
	bool decided, is_db;
	uint32_t device;
	char *dir; /* where its files are; NULL: could not be made */
	char time_text[FS_TIMESTAMP_BYTES];
	struct omap threads; /* tid → struct thread_file */
	size_t bytes; /* of text in all threads, and held */
	struct buf held; /* struct held_row with their texts */
	uint64_t nheld;
	struct trace_db *db;
	char *own, *old; /* its own database, made in the place of another */
};

struct trace_files {
	struct dumps *dumps;
	struct proc_trace **procs;
	size_t n, cap;
	size_t bytes; /* that came since everything was written */
	struct buf scratch;
};

struct trace_files *trace_files_new(struct dumps *d)
{
	struct trace_files *f = xcalloc(1, sizeof(*f));

	f->dumps = d;
	return f;
}

/* --- where --- */

static void decide_directory(struct trace_files *f, struct proc_trace *p, bool now)
{
	uint32_t device = dumps_first_device(f->dumps, p->proc);
	struct buf dir = {0};
	struct err err = {0};

	if (p->decided || (device == DEV_NONE && !now && p->bytes < DECIDE_BYTES))
		return;
	p->decided = true;
	p->device = device == DEV_NONE ? DEV_HOST : device;
	if (dumps_make_dir(f->dumps, p->proc, p->device, "dump", &dir, p->time_text, &err) == 0)
		p->dir = xstrdup(buf_str(&dir));
	else
		dumps_lose(f->dumps, 0, &err);
	buf_release(&dir);
}

/* --- CSV --- */

static int append_lines(int fd, const char *text, size_t len, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(err, -errno, "cannot stat a trace file");
	int r = fs_write_all(fd, text, len, FS_HERE, NULL);
	if (r == 0)
		return 0;
	/* Half a line is no line. */
	if (ftruncate(fd, st.st_size) < 0)
		return err_sys(err, -errno, "cannot cut a trace file");
	return err_sys(err, r, "cannot write calls of Python functions");
}

static int append_thread(struct trace_files *f, struct proc_trace *p, struct thread_file *t,
			 struct err *err)
{
	if (!p->dir)
		return err_set(err, -ENOENT, NO_PLACE);
	char *path = xasprintf("%s/python_trace_%u_%s.csv", p->dir, t->tid, p->time_text);
	if (!t->begun && dumps_replaces(f->dumps))
		(void)fs_unlink(path, NULL);
	int fd = fs_open(path, O_WRONLY | O_CREAT | O_APPEND, 0600, err);
	int r = fd < 0 ? fd : 0;
	struct stat st;
	if (r == 0 && !t->begun && fstat(fd, &st) == 0 && st.st_size == 0)
		r = append_lines(fd, TRACE_COLUMNS "\n", sizeof(TRACE_COLUMNS "\n") - 1, err);
	if (r == 0)
		r = append_lines(fd, t->text.data, t->text.len, err);
	t->begun = t->begun || r == 0;
	if (fd >= 0)
		close(fd);
	free(path);
	return r;
}

static void write_thread(struct trace_files *f, struct proc_trace *p, struct thread_file *t)
{
	struct err err = {0};

	if (!t->text.len)
		return;
	if (append_thread(f, p, t, &err) < 0)
		dumps_lose(f->dumps, t->rows, &err);
	p->bytes -= t->text.len;
	t->rows = 0;
	buf_clear(&t->text);
}

/* --- databases --- */

static int open_db(struct trace_files *f, struct proc_trace *p, struct err *err)
{
	const char *dump = dumps_first_device(f->dumps, p->proc) == p->device
				   ? dumps_settle(f->dumps, p->proc)
				   : NULL;
	char *own = dump ? NULL : xasprintf("%s/python_trace_%s.db", p->dir, p->time_text);
	int r;

	if (own && dumps_replaces(f->dumps)) {
		free(p->old);
		free(p->own);
		p->old = own;
		p->own = own = dumps_name_new(p->old);
		(void)fs_unlink(own, NULL);
	}
	r = trace_db_open(own ? own : dump, p->pid, &p->db, err);
	if (own != p->own)
		free(own);
	return r;
}

static void close_db(struct trace_files *f, struct proc_trace *p)
{
	struct err err = {0};

	trace_db_close(p->db);
	if (p->own && p->db && sql_replace(p->own, p->old, &err) < 0)
		dumps_lose(f->dumps, 0, &err);
	free(p->own);
	free(p->old);
}

static int insert_held(struct proc_trace *p, struct err *err)
{
	int r = trace_db_begin(p->db, err);

	for (size_t at = 0; r == 0 && at < p->held.len;) {
		struct held_row h;
		memcpy(&h, p->held.data + at, sizeof(h));
		struct trace_row row = {
			"",    p->held.data + at + sizeof(h), h.len, h.start_ns, h.end_ns, h.tid,
			p->pid};
		r = trace_db_add(p->db, &row, err);
		at += sizeof(h) + h.len;
	}
	return r == 0 ? trace_db_commit(p->db, err) : r;
}

static void write_held(struct trace_files *f, struct proc_trace *p)
{
	struct err err = {0};
	int r = 0;

	if (!p->held.len)
		return;
	if (!p->dir)
		r = err_set(&err, -ENOENT, NO_PLACE);
	if (r == 0 && !p->db)
		r = open_db(f, p, &err);
	else if (r == 0)
		dumps_settle(f->dumps, p->proc);
	if (r == 0)
		r = insert_held(p, &err);
	if (r < 0)
		dumps_lose(f->dumps, p->nheld, &err);
	p->bytes -= p->held.len;
	p->nheld = 0;
	buf_clear(&p->held);
}

/* How many bytes it takes. */
static size_t hold_row(struct proc_trace *p, const struct trace_row *row)
{
	size_t prefix = strlen(row->prefix);
	struct held_row h = {
		.start_ns = row->start_ns,
		.end_ns = row->end_ns,
		.tid = row->tid,
		.len = (uint32_t)(prefix + row->text_len),
	};

	buf_add(&p->held, &h, sizeof(h));
	buf_add(&p->held, row->prefix, prefix);
	buf_add(&p->held, row->text, row->text_len);
	p->nheld++;
	return sizeof(h) + h.len;
}

/* --- rows --- */

struct writing {
	struct trace_files *files;
	struct proc_trace *proc;
};

static void write_one(uint64_t tid, void *value, void *arg)
{
	const struct writing *w = arg;

	(void)tid;
	write_thread(w->files, w->proc, value);
	buf_release(&((struct thread_file *)value)->text);
}

static void write_proc(struct trace_files *f, struct proc_trace *p, bool now)
{
	struct writing w = {f, p};

	if (!p->bytes)
		return;
	decide_directory(f, p, now);
	if (!p->decided)
		return;
	if (p->is_db)
		write_held(f, p);
	else
		omap_each(&p->threads, write_one, &w);
}

static struct proc_trace *proc_of(struct trace_files *f, uint32_t proc, bool make)
{
	for (size_t i = f->n; i > 0; i--)
		if (f->procs[i - 1]->proc == proc)
			return f->procs[i - 1];
	if (!make)
		return NULL;
	struct proc_trace *p = xcalloc(1, sizeof(*p));
	p->proc = proc;
	p->pid = dumps_pid(f->dumps, proc);
	p->is_db = dumps_is_db(f->dumps, proc);
	f->procs = xgrow(f->procs, &f->cap, f->n + 1, sizeof(*f->procs));
	f->procs[f->n++] = p;
	return p;
}

static struct thread_file *thread_of(struct proc_trace *p, uint32_t tid)
{
	struct thread_file *t = omap_get(&p->threads, tid);

	if (!t) {
		t = xcalloc(1, sizeof(*t));
		t->tid = tid;
		omap_put(&p->threads, tid, t);
	}
	return t;
}

void trace_files_row(struct trace_files *f, uint32_t proc, const struct trace_row *row)
{
	struct proc_trace *p = proc_of(f, proc, row != NULL);

	if (!row) {
		if (p)
			write_proc(f, p, true);
		return;
	}
	size_t more;
	struct thread_file *t = NULL;
	if (p->is_db) {
		more = hold_row(p, row);
	} else {
		t = thread_of(p, row->tid);
		more = t->text.len;
		trace_csv_add(&t->text, row, &f->scratch);
		more = t->text.len - more;
		t->rows++;
	}
	p->bytes += more;
	f->bytes += more;
	if (p->decided && t && t->text.len >= THREAD_BYTES)
		write_thread(f, p, t);
	else if (p->bytes >= DECIDE_BYTES && !(p->decided && t))
		write_proc(f, p, false);
	if (f->bytes >= ALL_BYTES)
		trace_files_flush(f);
}

void trace_files_flush(struct trace_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		write_proc(f, f->procs[i], false);
	f->bytes = 0;
}

static void free_thread(void *value)
{
	struct thread_file *t = value;

	buf_release(&t->text);
	free(t);
}

static void proc_close(struct trace_files *f, struct proc_trace *p)
{
	write_proc(f, p, true);
	close_db(f, p);
	omap_release_values(&p->threads, free_thread);
	buf_release(&p->held);
	free(p->dir);
	free(p);
}

void trace_files_proc_end(struct trace_files *f, uint32_t proc)
{
	for (size_t i = 0; i < f->n; i++) {
		if (f->procs[i]->proc != proc)
			continue;
		proc_close(f, f->procs[i]);
		f->procs[i] = f->procs[--f->n];
		return;
	}
}

void trace_files_free(struct trace_files *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++)
		proc_close(f, f->procs[i]);
	free(f->procs);
	buf_release(&f->scratch);
	free(f);
}
