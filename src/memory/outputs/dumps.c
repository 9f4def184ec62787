/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "dump"
#include "memory/outputs/dumps.h"

#include "base/containers/omap.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "formats/sqlite_use.h"
#include "memory/dump/amend.h"
#include "wire/control_page.h"
#include "wire/record.h"

#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define MAX_SUFFIX 1000
#define MAX_HELD 4096 /* rows without a device that wait for one */
#define MAX_DEVICES 256 /* of a process: a file each */
#define CHECK_ROWS 1024 /* between looks at how much room is left */
#define SPARE_BYTES (64ull << 20) /* of a disk, that dumps leave; of a small one … */
#define SPARE_SHARE 4 /* … this part */
#define FLUSH_ROWS 65536 /* of all files together: each has a buffer, and they may be thousands */

struct device_dump {
	uint32_t device;
	struct writer *writer;
	char *path; /* that is written */
	char *old; /* whose place it takes in the end; NULL: it is there */
};

struct proc_dump {
	uint32_t pid;
	uint32_t same; /* processes that had its number in the same second before */
	const struct mem_config *cfg; /* its own, if it has one */
	const struct writer_ops *ops;
	char *dir;
	char time_text[FS_TIMESTAMP_BYTES];
	struct device_dump *devices;
	size_t ndevices, cap_devices;
	struct row *held; /* rows without a device; their texts are copies */
	size_t nheld, cap_held;
	bool has_config;
	bool repeats; /* a block may have two MALLOC rows: `shadow:true` */
};

struct dumps {
	char *output;
	struct dumps_setup setup;
	const struct track *track;
	struct proc_dump **procs;
	size_t nprocs, cap_procs;
	struct omap taken; /* pid and second of a directory → how many had them */
	uint64_t lost;
	uint64_t unflushed; /* rows since all were flushed */
	struct err why;
	char *refused; /* see dumps_refused() */
	uint64_t rows; /* so far */
	bool stopped; /* the rest of the disk is for the recording */
};

struct dumps *dumps_new(const char *output_dir, const struct dumps_setup *setup)
{
	struct dumps *d = xcalloc(1, sizeof(*d));

	d->output = xstrdup(output_dir);
	d->setup = *setup;
	return d;
}

void dumps_set_track(struct dumps *d, const struct track *t)
{
	d->track = t;
}

static struct proc_dump *find_proc(const struct dumps *d, uint32_t proc)
{
	return proc < d->nprocs ? d->procs[proc] : NULL;
}

static void remember_error(struct dumps *d, const struct err *err)
{
	if (!d->why.code) {
		d->why = *err;
		log_err("%s", err->text);
	}
}

static char *copy_text(const char *text, size_t len)
{
	return text ? xstrndup(text, len) : NULL;
}

static struct row copy_row(const struct row *row)
{
	struct row copy = *row;

	copy.name = copy_text(row->name, row->name_len);
	copy.py_stack = copy_text(row->py_stack, row->py_stack_len);
	copy.c_stack = copy_text(row->c_stack, row->c_stack_len);
	for (unsigned i = 0; i < row->nattrs; i++)
		if (row->attrs[i].kind == ATTR_TEXT)
			copy.attrs[i].text = copy_text(row->attrs[i].text, row->attrs[i].text_len);
	return copy;
}

static void release_copy(struct row *copy)
{
	free((char *)copy->name);
	free((char *)copy->py_stack);
	free((char *)copy->c_stack);
	for (unsigned i = 0; i < copy->nattrs; i++)
		if (copy->attrs[i].kind == ATTR_TEXT)
			free((char *)copy->attrs[i].text);
}

static void flush_writer(struct dumps *d, const struct proc_dump *p, struct writer *w, bool old)
{
	struct err err = {0};
	int (*flush)(struct writer *, struct err *) =
		old && p->ops->flush_old ? p->ops->flush_old : p->ops->flush;

	if (w && flush(w, &err) < 0)
		remember_error(d, &err);
}

/* A file that lacks rows does not replace one that may have them. */
static void replace_old(struct dumps *d, const struct proc_dump *p, const struct device_dump *dd,
			bool whole)
{
	struct err err = {0};

	int r = !whole		       ? -EIO
		: p->ops == &db_writer ? sql_replace(dd->path, dd->old, &err)
				       : fs_rename(dd->path, dd->old, &err);
	if (r < 0)
		(void)fs_unlink(dd->path, NULL);
	if (r < 0 && whole)
		remember_error(d, &err);
}

static void device_close(struct dumps *d, const struct proc_dump *p, struct device_dump *dd)
{
	struct err err = {0};
	struct writer *w = dd->writer;

	if (w) {
		if (p->ops->hold)
			p->ops->hold(w, HOLD_NOTHING);
		flush_writer(d, p, w, false);
		uint64_t lost = p->ops->lost_rows(w);
		int r = p->ops->close(w, &err);

		d->lost += lost;
		if (r < 0)
			remember_error(d, &err);
		if (d->setup.closed)
			d->setup.closed(d->setup.closed_arg, p->pid, dd->path);
		if (dd->old)
			replace_old(d, p, dd, r == 0 && !lost);
	}
	free(dd->path);
	free(dd->old);
}

static void proc_close(struct dumps *d, struct proc_dump *p)
{
	for (size_t i = 0; i < p->ndevices; i++)
		device_close(d, p, &p->devices[i]);
	for (size_t i = 0; i < p->nheld; i++)
		release_copy(&p->held[i]);
	free(p->held);
	free(p->devices);
	free(p->dir);
	free(p);
}

void dumps_free(struct dumps *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->nprocs; i++)
		if (d->procs[i])
			proc_close(d, d->procs[i]);
	free(d->procs);
	omap_release(&d->taken);
	free(d->refused);
	free(d->output);
	free(d);
}

/*
 * How many processes of this recording had the pid in the same second before: one that became
 * another program has its former image's rows in the directory of the plain name.
 */
static uintptr_t times_taken(struct dumps *d, uint32_t pid, time_t seconds)
{
	uint64_t key = (uint64_t)pid << 32 | (uint32_t)seconds;
	uintptr_t n = (uintptr_t)omap_get(&d->taken, key);

	omap_put(&d->taken, key, (void *)(n + 1));
	return n;
}

/* Its directory below `output`, by its number and the time. */
static void name_dir(struct dumps *d, struct proc_dump *p, const char *output)
{
	if (d->setup.below && !fs_is_below(output, d->setup.below)) {
		if (!d->refused)
			d->refused = xstrdup(output);
		output = d->setup.below;
	}
	free(p->dir);
	if (p->same)
		p->dir = xasprintf("%s/msmemscope_%u_%s_%u_ascend", output, p->pid, p->time_text,
				   p->same);
	else
		p->dir = xasprintf("%s/msmemscope_%u_%s_ascend", output, p->pid, p->time_text);
}

void dumps_proc(void *arg, const struct frame_proc *info)
{
	struct dumps *d = arg;
	struct proc_dump *p = xcalloc(1, sizeof(*p));
	int64_t wall = (int64_t)info->time_ns + track_wall_minus_mono(d->track);
	time_t seconds = (time_t)(wall / 1000000000);
	struct tm tm;

	localtime_r(&seconds, &tm);
	strftime(p->time_text, sizeof(p->time_text), "%Y%m%d%H%M%S", &tm);
	p->pid = info->pid;
	p->ops = d->setup.ops;
	p->same = (uint32_t)times_taken(d, info->pid, seconds);
	name_dir(d, p, d->output);
	size_t had = d->cap_procs;
	d->procs = xgrow(d->procs, &d->cap_procs, info->proc + 1, sizeof(*d->procs));
	memset(d->procs + had, 0, (d->cap_procs - had) * sizeof(*d->procs));
	if (info->proc >= d->nprocs)
		d->nprocs = info->proc + 1;
	d->procs[info->proc] = p;
}

static int write_config(struct dumps *d, struct proc_dump *p, struct err *err)
{
	char *path = xasprintf("%s/" SESSION_CONFIG, p->dir);
	struct mem_config cfg = *(p->cfg ? p->cfg : track_config(d->track));

	cfg.effective |= p->cfg != NULL;
	int r = mem_config_write(&cfg, path, err);

	free(path);
	p->has_config = true;
	return r;
}

void dumps_config(void *arg, uint32_t proc, const struct mem_config *cfg)
{
	struct dumps *d = arg;
	struct proc_dump *p = find_proc(d, proc);
	struct err err = {0};

	if (!p)
		return;
	p->cfg = cfg;
	/* Once there are files, they stay what and where they are. */
	if (p->has_config && write_config(d, p, &err) < 0)
		log_err("%s", err.text);
	if (!(d->setup.flags & DUMPS_AS_CONFIGURED) || p->has_config)
		return;
	p->ops = writer_find(mem_format_name(cfg->format));
	name_dir(d, p, cfg->output_dir);
}

/*
 * Makes the directory of the process its own. Another recording into the same place may have had a
 * process of the same number in the same second: hosts and containers that share a volume.
 */
static int claim_dir(struct dumps *d, struct proc_dump *p, struct err *err)
{
	static const char tail[] = "_ascend";
	char *wanted = xstrdup(p->dir), *output = xstrdup(p->dir);
	int r = fs_mkdirs(d->setup.flags & DUMPS_REPLACE ? p->dir : dirname(output), err);

	free(output);
	if (r < 0 || (d->setup.flags & DUMPS_REPLACE)) {
		free(wanted);
		return r;
	}
	struct err why = {0};
	for (unsigned n = 2; (r = fs_mkdir(p->dir, FS_DIR_MODE, &why)) < 0; n++) {
		if (r != -EEXIST || n > MAX_SUFFIX) {
			if (err)
				*err = why;
			break;
		}
		free(p->dir);
		p->dir = xasprintf("%.*s-%u%s", (int)(strlen(wanted) - strlen(tail)), wanted, n,
				   tail);
	}
	free(wanted);
	return r;
}

/* device_<N>/<folder> in the directory of the process; a string to free, in any case. */
static int make_device_dir(struct dumps *d, struct proc_dump *p, uint32_t device,
			   const char *folder, char **out_dir, struct err *err)
{
	char name[32] = "cpu";

	if (device != DEV_HOST)
		snprintf(name, sizeof(name), "%u", device);
	*out_dir = xasprintf("%s/device_%s/%s", p->dir, name, folder);
	if (d->setup.below && !fs_is_below(*out_dir, d->setup.below))
		return err_set(err, -ELOOP,
			       "there is a link in '%s' or something else that is no directory: "
			       "nothing is written there",
			       *out_dir);
	int r = p->has_config ? 0 : claim_dir(d, p, err);
	free(*out_dir); /* that of the process may have another name now */
	*out_dir = xasprintf("%s/device_%s/%s", p->dir, name, folder);
	if (r == 0)
		r = fs_mkdirs(*out_dir, err);
	if (r == 0 && !p->has_config)
		r = write_config(d, p, err);
	return r;
}

/* The length is how one that was killed is known. */
char *dumps_name_new(const char *path)
{
	return xasprintf("%s.%06x", path, (unsigned)getpid() & 0xffffffu);
}

/* Beside a dump that is written anew: what is left of a rewriting or an amendment that was killed,
 * with what SQLite made beside it. */
static void remove_leftovers(const char *dir, const char *path)
{
	const char *name = path + strlen(dir) + 1;
	size_t len = strlen(name), at_least = len + strlen(".XXXXXX");
	DIR *d = opendir(dir);

	for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
		if (!strncmp(e->d_name, name, len) && e->d_name[len] == '.' &&
		    strlen(e->d_name) >= at_least &&
		    strspn(e->d_name + len + 1, "0123456789abcdef") == strlen("XXXXXX")) {
			char *old = xasprintf("%s/%s", dir, e->d_name);

			(void)fs_unlink(old, NULL);
			free(old);
		}
	if (d)
		closedir(d);
}

static enum writer_hold what_to_hold(const struct dumps *d, const struct proc_dump *p)
{
	uint32_t analysis = (p->cfg ? p->cfg : track_config(d->track))->analysis;

	return analysis & MEM_INEFFICIENT ? HOLD_FOR_USE
	       : analysis & MEM_DECOMPOSE ? HOLD_FOR_OWNERS
					  : HOLD_NOTHING;
}

static void open_writer(struct dumps *d, struct proc_dump *p, struct device_dump *dd)
{
	struct err err = {0};
	char *dir;

	int r = make_device_dir(d, p, dd->device, "dump", &dir, &err);
	dd->path = xasprintf("%s/memscope_dump_%s.%s", dir, p->time_text, p->ops->suffix);
	if (r == 0 && (d->setup.flags & DUMPS_REPLACE)) {
		remove_leftovers(dir, dd->path);
		dd->old = dd->path;
		dd->path = dumps_name_new(dd->old);
	}
	if (r == 0)
		r = p->ops->open(dd->path, d->setup.compat, &dd->writer, &err);
	if (r < 0)
		remember_error(d, &err);
	else if (p->ops->hold)
		p->ops->hold(dd->writer, what_to_hold(d, p));
	free(dir);
}

static void add_row(struct dumps *d, struct proc_dump *p, struct writer *w, const struct row *row)
{
	struct err err = {0};

	if (!w)
		d->lost++;
	else if (p->ops->add(w, row, &err) < 0)
		remember_error(d, &err);
}

static struct device_dump *device_of(struct dumps *d, struct proc_dump *p, uint32_t device)
{
	for (size_t i = 0; i < p->ndevices; i++)
		if (p->devices[i].device == device)
			return &p->devices[i];
	if (p->ndevices == MAX_DEVICES) {
		struct err err = {0};

		err_set(&err, -E2BIG, "process %u has rows of more than %d devices", p->pid,
			MAX_DEVICES);
		remember_error(d, &err);
		return NULL;
	}
	p->devices = xgrow(p->devices, &p->cap_devices, p->ndevices + 1, sizeof(*p->devices));
	struct device_dump *dd = &p->devices[p->ndevices++];
	*dd = (struct device_dump){.device = device};
	open_writer(d, p, dd);
	for (size_t i = 0; i < p->nheld; i++)
		add_row(d, p, dd->writer, &p->held[i]);
	return dd;
}

/* Into the files of all devices, those that are still to come included. */
static void add_everywhere(struct dumps *d, struct proc_dump *p, const struct row *row)
{
	for (size_t i = 0; i < p->ndevices; i++)
		add_row(d, p, p->devices[i].writer, row);
	if (p->nheld >= MAX_HELD)
		return;
	p->held = xgrow(p->held, &p->cap_held, p->nheld + 1, sizeof(*p->held));
	p->held[p->nheld++] = copy_row(row);
}

/*
 * The dumps can be made again of the recording, which cannot be made again: what is left of a disk
 * that gets full is for that.
 */
static void check_room(struct dumps *d)
{
	struct statvfs fs;
	struct err why = {0};

	if (!(d->setup.flags & DUMPS_SPARE_ROOM) || d->rows++ % CHECK_ROWS || d->stopped ||
	    statvfs(d->output, &fs) < 0)
		return;
	uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
	uint64_t share = (uint64_t)fs.f_blocks * fs.f_frsize / SPARE_SHARE;
	if (left >= (share < SPARE_BYTES ? share : SPARE_BYTES))
		return;
	d->stopped = true;
	err_set(&why, -ENOSPC, "the disk of '%s' is nearly full, and the recording needs the rest",
		d->output);
	remember_error(d, &why);
}

void dumps_row(void *arg, uint32_t proc, const struct row *row)
{
	struct dumps *d = arg;
	struct proc_dump *p = find_proc(d, proc);

	if (!p || !p->ops || row->hidden)
		return;
	check_room(d);
	if (d->stopped) {
		d->lost++;
		return;
	}
	if (row->device == DEV_NONE) {
		add_everywhere(d, p, row);
	} else {
		const struct device_dump *dd = device_of(d, p, row->device);

		add_row(d, p, dd ? dd->writer : NULL, row);
	}
	p->repeats |= row->event == ROW_MALLOC && row_attr(row, ATTR_SHADOW);
	if (++d->unflushed >= FLUSH_ROWS && d->nprocs > 1)
		dumps_flush_old(d);
}

bool dumps_amend(struct dumps *d, uint32_t proc, struct amendment finding)
{
	const struct proc_dump *p = find_proc(d, proc);
	bool done = false;

	if (!p || !p->ops || !p->ops->amend)
		return false;
	finding.pid = p->pid;
	for (size_t i = 0; i < p->ndevices && !done; i++)
		done = p->devices[i].writer && p->ops->amend(p->devices[i].writer, &finding);
	return done && !p->repeats;
}

void dumps_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct dumps *d = arg;

	if (!find_proc(d, e->proc))
		return;
	proc_close(d, d->procs[e->proc]);
	d->procs[e->proc] = NULL;
}

int dumps_make_dir(struct dumps *d, uint32_t proc, uint32_t device, const char *folder,
		   struct buf *out_dir, char out_time[FS_TIMESTAMP_BYTES], struct err *err)
{
	struct proc_dump *p = find_proc(d, proc);
	char *dir;

	if (!p)
		return err_set(err, -ESRCH, "process number %u is not open", proc);
	int r = make_device_dir(d, p, device, folder, &dir, err);
	buf_add_str(out_dir, dir);
	free(dir);
	memcpy(out_time, p->time_text, FS_TIMESTAMP_BYTES);
	return r;
}

uint32_t dumps_first_device(const struct dumps *d, uint32_t proc)
{
	const struct proc_dump *p = find_proc(d, proc);

	return p && p->ndevices ? p->devices[0].device : DEV_NONE;
}

bool dumps_is_db(const struct dumps *d, uint32_t proc)
{
	const struct proc_dump *p = find_proc(d, proc);

	return p && p->ops == &db_writer;
}

const char *dumps_settle(struct dumps *d, uint32_t proc)
{
	const struct proc_dump *p = find_proc(d, proc);

	if (!p || !p->ndevices || !p->devices[0].writer)
		return NULL;
	flush_writer(d, p, p->devices[0].writer, false);
	return p->devices[0].path;
}

void dumps_lose(struct dumps *d, uint64_t rows, const struct err *why)
{
	d->lost += rows;
	remember_error(d, why);
}

bool dumps_replaces(const struct dumps *d)
{
	return d->setup.flags & DUMPS_REPLACE;
}

const char *dumps_refused(const struct dumps *d)
{
	return d->refused;
}

uint32_t dumps_pid(const struct dumps *d, uint32_t proc)
{
	const struct proc_dump *p = find_proc(d, proc);

	return p ? p->pid : 0;
}

static void flush_all(struct dumps *d, bool old)
{
	d->unflushed = 0;
	for (size_t i = 0; i < d->nprocs; i++) {
		struct proc_dump *p = d->procs[i];
		for (size_t k = 0; p && k < p->ndevices; k++)
			flush_writer(d, p, p->devices[k].writer, old);
	}
}

void dumps_flush(struct dumps *d)
{
	flush_all(d, false);
}

void dumps_flush_old(struct dumps *d)
{
	flush_all(d, true);
}

uint64_t dumps_lost(const struct dumps *d, struct err *out_why)
{
	uint64_t lost = d->lost;

	for (size_t i = 0; i < d->nprocs; i++)
		for (size_t k = 0; d->procs[i] && k < d->procs[i]->ndevices; k++)
			if (d->procs[i]->devices[k].writer)
				lost += d->procs[i]->ops->lost_rows(d->procs[i]->devices[k].writer);
	if (out_why)
		*out_why = d->why;
	return lost;
}
