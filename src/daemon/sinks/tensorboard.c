/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * --metric-log-dir: curves for TensorBoard. Each device has a directory device_N with one event
 * file, tfevents.pb; what happens on no device goes to device_host. A later run leaves the file as
 * it is and makes another one beside it, whose name sorts behind; so does a file that has become
 * large, or that somebody has removed. Files are written by a thread, since the directory may lie
 * on a network; each batch with one write(), so that a daemon that is killed leaves whole records.
 *
 * Tags: the kind of a monitor's record, Marker/DOMAIN for markers, SOURCE/NAME for all else.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/containers/hmap.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "daemon/metrics/metrics.h"
#include "daemon/metrics/names.h"
#include "daemon/sinks/sink.h"
#include "formats/tensorboard.h"

#define LOG_AREA "metrics"
#include "base/log.h"

#define MAX_FILES 256 /* devices */
#define LIKELY 64 /* devices that a node can have: 0 to 63 */
#define FILE_BYTES_MAX (64 << 20) /* about a million points */
#define MAX_TAGS 4096 /* curves whose steps are counted */
#define MAX_QUEUE 8192
#define TAG_BYTES 640 /* of an activity: its kind and domain are shorter */

/* One point on its way to the thread. */
struct point {
	int64_t device;
	int64_t time_ns;
	float value;
	char tag[]; /* ended by a NUL */
};

struct event_file {
	int64_t device;
	int fd;
	struct buf pending;
};

struct tensorboard {
	struct sink sink;
	/* of the thread */
	char *dir;
	struct event_file files[MAX_FILES];
	unsigned n, nlikely;
	struct hmap steps; /* hash of device and tag -> next step */
	bool logged_too_many;
};

/* --- the thread --- */

static void device_directory(const struct tensorboard *f, int64_t device, struct buf *out)
{
	if (device == SAMPLE_NO_DEVICE)
		buf_addf(out, "%s/device_host", f->dir);
	else
		buf_addf(out, "%s/device_%lld", f->dir, (long long)device);
}

/* A file that is not there yet: the name that everybody expects, else a later one. */
static int create_file(const char *dir, struct buf *out_path, struct err *err)
{
	struct err why = {0};
	int fd = -EEXIST;

	for (unsigned long tries = 0; fd == -EEXIST && tries < 1000; tries++) {
		buf_clear(out_path);
		buf_addf(out_path, "%s/tfevents.pb", dir);
		if (tries)
			buf_addf(out_path, ".%010lu", (unsigned long)time(NULL) + tries - 1);
		fd = fs_open(buf_str(out_path), O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0640, &why);
	}
	if (fd < 0 && err)
		*err = why;
	return fd;
}

/* Opens a new file for the device; `why`, if any, is logged with its name. */
static int open_file(const struct tensorboard *f, struct event_file *e, const char *why,
		     struct err *err)
{
	struct buf dir = {0}, path = {0}, version = {0};

	device_directory(f, e->device, &dir);
	int r = fs_mkdirs(buf_str(&dir), err);
	r = r ?: create_file(buf_str(&dir), &path, err);
	if (r >= 0) {
		e->fd = r;
		tensorboard_add_version(&version, (double)time(NULL));
		buf_add(&version, e->pending.data, e->pending.len);
		buf_release(&e->pending);
		e->pending = version;
	}
	if (r >= 0 && why)
		log_info("curves of TensorBoard go on in '%s': %s", buf_str(&path), why);
	buf_release(&dir);
	buf_release(&path);
	return r < 0 ? r : 0;
}

/* Processes may make numbers up: those that a node has always find room. */
static bool is_likely(int64_t device)
{
	return device == SAMPLE_NO_DEVICE || (device >= 0 && device < LIKELY);
}

/* NULL: there are too many devices. */
static struct event_file *find_file(struct tensorboard *f, int64_t device)
{
	for (unsigned i = 0; i < f->n; i++)
		if (f->files[i].device == device)
			return &f->files[i];
	if (f->n == MAX_FILES ||
	    (!is_likely(device) && f->n - f->nlikely >= MAX_FILES - LIKELY - 1))
		return NULL;
	f->nlikely += is_likely(device);
	f->files[f->n] = (struct event_file){.device = device, .fd = -1};
	return &f->files[f->n++];
}

/* A file that can take what is pending. */
static int ready_file(const struct tensorboard *f, struct event_file *e, struct err *err)
{
	const char *why = NULL;
	struct stat st;

	if (e->fd >= 0 && (fstat(e->fd, &st) < 0 || st.st_nlink == 0))
		why = "the file before it was removed";
	else if (e->fd >= 0 && st.st_size >= FILE_BYTES_MAX)
		why = "the file before it has 64 MiB";
	if (e->fd >= 0 && !why)
		return 0;
	if (e->fd >= 0)
		close(e->fd);
	e->fd = -1;
	return open_file(f, e, why, err);
}

/* 0, 1, 2 … for each curve. */
static int64_t next_step(struct tensorboard *f, const struct point *p)
{
	uint64_t key = XXH3_64bits_withSeed(p->tag, strlen(p->tag), (uint64_t)p->device);
	uint64_t step = hmap_get(&f->steps, key);

	if (step == HMAP_NONE) {
		if (f->steps.count >= MAX_TAGS)
			return 0;
		step = 0;
	}
	hmap_put(&f->steps, key, step + 1);
	return (int64_t)step;
}

static int write_pending(struct event_file *e, struct err *err)
{
	size_t done = 0;
	int r = 0;

	while (done < e->pending.len) {
		ssize_t n = write(e->fd, e->pending.data + done, e->pending.len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			r = err_sys(err, -errno, "cannot write an event file");
			/* half a record would make all that follows unreadable */
			off_t end = lseek(e->fd, 0, SEEK_END);
			if (done && end >= (off_t)done && ftruncate(e->fd, end - (off_t)done) < 0)
				r = err_sys(err, -errno, "cannot repair an event file");
			break;
		}
		done += (size_t)n;
	}
	return r;
}

static void log_too_many(struct tensorboard *f)
{
	if (!f->logged_too_many)
		log_warn("more than %d devices: TensorBoard gets no curves of further ones",
			 MAX_FILES);
	f->logged_too_many = true;
}

/* A device whose file cannot be written is no reason to lose the points of others. */
static int deliver_points(void *arg, const struct outbox_item *items, struct err *err)
{
	struct tensorboard *f = arg;
	int r = 0, left_out = 0;

	for (const struct outbox_item *i = items; i; i = i->next) {
		const struct point *p = (const struct point *)i->data;
		struct event_file *e = find_file(f, p->device);

		if (e)
			tensorboard_add_scalar(&e->pending, (double)p->time_ns / 1e9,
					       next_step(f, p), p->tag, p->value);
		else
			left_out++;
	}
	if (left_out)
		log_too_many(f);
	for (unsigned i = 0; i < f->n; i++) {
		struct event_file *e = &f->files[i];

		if (!e->pending.len)
			continue;
		int w = ready_file(f, e, err);
		if (w == 0)
			w = write_pending(e, err);
		buf_clear(&e->pending);
		r = r ?: w;
	}
	return r < 0 ? r : left_out;
}

static void end_tensorboard(void *arg)
{
	struct tensorboard *f = arg;

	for (unsigned i = 0; i < f->n; i++) {
		if (f->files[i].fd >= 0)
			close(f->files[i].fd);
		buf_release(&f->files[i].pending);
	}
	hmap_release(&f->steps);
	free(f->dir);
	free(f);
}

/* --- the loop --- */

static void put_point(struct tensorboard *t, const struct sample *s, const char *tag, double value)
{
	struct buf clean = {0}, item = {0};
	size_t len = strlen(tag);
	const char *text = text_clean(tag, &len, &clean);
	struct point p = {s->device, s->time_ns, (float)value};

	if (isfinite(value)) {
		buf_add(&item, &p, offsetof(struct point, tag));
		buf_add(&item, text, len);
		buf_add_char(&item, '\0');
		outbox_put(t->sink.outbox, item.data, item.len);
	}
	buf_release(&item);
	buf_release(&clean);
}

static void put_activity(struct tensorboard *t, const struct sample *s)
{
	const char *kind = metric_text(s, "kind"), *domain = metric_text(s, "domain");
	char tag[TAG_BYTES];
	double value;

	bool marker = kind && !strcmp(kind, "Marker");
	snprintf(tag, sizeof(tag), "%s%s%s", kind ? kind : "?", marker ? "/" : "",
		 !marker  ? ""
		 : domain ? domain
			  : "default");
	for (size_t i = 0; i < s->n; i++)
		if (!strcmp(s->metrics[i].name, "duration") &&
		    metric_number(&s->metrics[i], &value))
			put_point(t, s, tag, value);
}

static void tensorboard_sample(struct sink *sink, const struct sample *s)
{
	struct tensorboard *t = (struct tensorboard *)sink;
	struct buf tag = {0};
	double value;

	if (!strcmp(s->source, "data")) {
		put_activity(t, s);
		return;
	}
	for (size_t i = 0; i < s->n; i++) {
		const struct metric *m = &s->metrics[i];

		/* a process is no curve: there would be new ones for ever */
		if (!metric_number(m, &value) || !strcmp(metric_instance_label(m->name), "pid"))
			continue;
		buf_clear(&tag);
		buf_addf(&tag, "%s/", s->source);
		metric_add_key(m, &tag);
		put_point(t, s, buf_str(&tag), value);
	}
	buf_release(&tag);
}

static struct sink *tensorboard_open(struct daemon *d, bool *out_wanted, struct err *err)
{
	const char *dir = d->config->metric_log_dir;
	struct buf absolute = {0};

	*out_wanted = dir && *dir;
	if (!*out_wanted || fs_absolute(dir, &absolute, err) < 0)
		return NULL;
	int r = fs_mkdirs(buf_str(&absolute), err);
	if (r == 0 && access(buf_str(&absolute), W_OK) < 0)
		r = err_sys(err, -errno, "cannot write to '%s'", buf_str(&absolute));
	if (r < 0) {
		buf_release(&absolute);
		return NULL;
	}
	struct tensorboard *t = xcalloc(1, sizeof(*t));
	t->dir = absolute.data; /* ended by a NUL */
	t->sink.ops = &sink_tensorboard;
	struct outbox_options o = {.name = "TensorBoard files",
				   .max_items = MAX_QUEUE,
				   .deliver = deliver_points,
				   .end = end_tensorboard};
	return sink_start(&t->sink, o, err);
}

const struct sink_ops sink_tensorboard = {
	.name = "tensorboard",
	.open = tensorboard_open,
	.sample = tensorboard_sample,
};
