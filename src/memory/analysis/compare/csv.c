/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The result as memory_compare_<time>.csv: a line ",,,Base,Compare", a header, then a line for
 * every call in the order of its device's sequence, devices by number. Fields are quoted where they
 * need it (RFC 4180), and a name that a spreadsheet would take for a formula gets an apostrophe in
 * front. With call sites there is a line for each, with what its blocks held at most.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/text/csv.h"
#include "base/text/text.h"
#include "memory/analysis/compare/compare_impl.h"

#define FLUSH_AT (256u << 10)
#define MAX_SUFFIX 1000
#define LINE_FIXED (32 + 4 * (PUT_U64_MAX + 2)) /* all of a line but its name */

static const char head[] =
	",,,Base,Compare\n"
	"Event,Name,Device Id,Allocated Memory(byte),Allocated Memory(byte),Diff Memory(byte)\n";

/* Every name as it is written, made once. */
struct cells {
	struct buf text;
	size_t *ends;
};

struct output {
	const struct compare *compare;
	struct cells names;
	struct buf buf;
	int fd;
	char *path;
	struct progress progress;
	uint64_t done, total;
};

static void make_cells(struct cells *cells, const struct names *names)
{
	struct buf scratch = {0};

	cells->ends = xmalloc(names->count * sizeof(*cells->ends));
	for (size_t i = 0; i < names->count; i++) {
		size_t len;
		const char *text = names_get(names, (uint32_t)i, &len);

		text = text_clean(text, &len, &scratch);
		csv_add_harmless_field(&cells->text, text, len);
		cells->ends[i] = cells->text.len;
	}
	buf_release(&scratch);
}

static int flush_lines(struct output *o, struct err *err)
{
	int r = fs_write_all(o->fd, o->buf.data, o->buf.len, FS_HERE, NULL);

	if (r < 0)
		return err_sys(err, r, "cannot write \"%s\"", o->path);
	buf_clear(&o->buf);
	return 0;
}

static char *put_size(char *p, bool there, int64_t size)
{
	if (there && size < 0)
		*p++ = '-';
	p = there ? put_u64(p, compare_signed_distance(size, 0)) : put_bytes(p, "N/A", 3);
	*p++ = ',';
	return p;
}

static void put_line(struct output *o, const struct compare_line *line)
{
	size_t start = line->name ? o->names.ends[line->name - 1] : 0;
	size_t len = o->names.ends[line->name] - start;
	int64_t base = line->size[COMPARE_BASE], compare = line->size[COMPARE_OTHER];
	char *p = buf_room(&o->buf, LINE_FIXED + len);

	p = line->kernel ? put_bytes(p, "KERNEL_LAUNCH,", 14) : put_bytes(p, "OP_LAUNCH,", 10);
	if (len)
		p = put_bytes(p, o->names.text.data + start, len);
	*p++ = ',';
	p = put_u64(p, line->pair->device);
	*p++ = ',';
	p = put_size(p, line->kind != ALIGN_COMPARE, base);
	p = put_size(p, line->kind != ALIGN_BASE, compare);
	if (compare < base)
		*p++ = '-';
	p = put_u64(p, compare_signed_distance(base, compare));
	*p++ = '\n';
	o->buf.len = (size_t)(p - o->buf.data);
}

static void put_sites(struct output *o)
{
	const struct compare_sites *s = o->compare->sites;

	for (size_t i = 0; s && i < s->nsites; i++) {
		const struct site *site = &s->sites[i];
		size_t start = site->name ? o->names.ends[site->name - 1] : 0;
		char device[16];

		buf_addf(&o->buf, "CALL_SITE,%.*s,%s,%llu,%llu,%lld\n",
			 (int)(o->names.ends[site->name] - start), o->names.text.data + start,
			 blocks_device_name(site->device, device),
			 (unsigned long long)site->base.most,
			 (unsigned long long)site->compare.most,
			 (long long)(site->compare.most - site->base.most));
	}
}

static int put_all(struct output *o, struct err *err)
{
	int r = 0;

	buf_add(&o->buf, head, sizeof(head) - 1);
	put_sites(o);
	for (size_t i = 0; i < o->compare->npairs && r == 0; i++) {
		struct compare_walk w = {.compare = o->compare, .pair = &o->compare->pairs[i]};
		struct compare_line line;

		while (r == 0 && compare_next(&w, &line)) {
			put_line(o, &line);
			progress_show(&o->progress, "writing the result", ++o->done, o->total);
			if (o->buf.len >= FLUSH_AT)
				r = flush_lines(o, err);
		}
	}
	progress_done(&o->progress);
	return r < 0 ? r : flush_lines(o, err);
}

/* A file that was not there before. */
static int create_file(struct output *o, const char *dir, struct err *err)
{
	char now[FS_TIMESTAMP_BYTES];
	struct err why = {0};
	int r = fs_mkdirs(dir, err);

	if (r < 0)
		return r;
	fs_timestamp(now);
	for (int i = 1; i <= MAX_SUFFIX; i++) {
		char suffix[16] = "";

		if (i > 1)
			snprintf(suffix, sizeof(suffix), "_%d", i);
		free(o->path);
		o->path = xasprintf("%s/memory_compare_%s%s.csv", dir, now, suffix);
		o->fd = fs_open(o->path, O_WRONLY | O_CREAT | O_EXCL, 0600, &why);
		if (o->fd >= 0)
			return 0;
		if (o->fd != -EEXIST)
			break;
	}
	if (err)
		*err = why;
	return o->fd;
}

int compare_csv(const struct compare *c, const char *dir, struct buf *out_path, struct err *err)
{
	const struct compare_counts *t = &c->counts;
	struct output o = {.compare = c, .fd = -1};
	int r = create_file(&o, dir, err);

	if (r == 0) {
		o.total = t->both + t->only_base + t->only_compare;
		make_cells(&o.names, &c->names);
		r = put_all(&o, err);
		if (close(o.fd) < 0 && r == 0)
			r = err_sys(err, -errno, "cannot write \"%s\"", o.path);
		if (r < 0)
			(void)fs_unlink(o.path, NULL);
		else
			buf_add_str(out_path, o.path);
	}
	buf_release(&o.names.text);
	free(o.names.ends);
	buf_release(&o.buf);
	free(o.path);
	return r;
}
