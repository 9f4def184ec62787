/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "formats/json_value.h"
#include "report/answers.h"
#include "report/html.h"
#include "report/memory.h"
#include "report/tree.h"

#define MOST_MEMORIES 8u

struct page {
	struct page_options o;
	struct redact *redact;
	struct pack pack;
	struct tree tree;
	json_t *memory, *activities, *profiles;
	struct buf title;
	struct page_written written;
};

struct page *page_new(const struct page_options *o)
{
	struct page *r = xcalloc(1, sizeof(*r));

	r->o = *o;
	if (o->redact)
		r->redact = redact_new(o->keep_own);
	pack_init(&r->pack, r->redact);
	tree_init(&r->tree, &r->pack);
	r->memory = json_array();
	r->activities = json_array();
	r->profiles = json_array();
	return r;
}

void page_free(struct page *r)
{
	if (!r)
		return;
	json_decref(r->memory);
	json_decref(r->activities);
	json_decref(r->profiles);
	tree_release(&r->tree);
	pack_release(&r->pack);
	redact_free(r->redact);
	buf_release(&r->title);
	free(r);
}

static void add_title(struct page *r, const char *path)
{
	const char *end = path + strlen(path), *from;

	while (end > path + 1 && end[-1] == '/')
		end--;
	for (from = end; from > path && from[-1] != '/';)
		from--;
	if (r->title.len)
		buf_add_str(&r->title, ", ");
	buf_add(&r->title, from, (size_t)(end - from));
}

static int add_memory(struct page *r, const char *path, struct err *err)
{
	struct answers a;
	char *prefix = xasprintf("m%u.", r->written.memories);
	int status = answers_read(path, r->o.choice, r->o.wait_s, &a, err);

	if (status == 0 && r->written.memories >= MOST_MEMORIES)
		status = err_set(err, -E2BIG, "more than %u recordings in one report",
				 MOST_MEMORIES);
	if (status == 0) {
		struct memory_input in = {prefix, path};

		answers_learn(&a, r->redact);
		json_t *answers = answers_json(&a, &r->pack);
		json_t *one = memory_json(a.pictures, &r->tree, &in);

		json_object_set_new(one, "answers", answers);
		json_object_set_new(one, "notes", answers_notes(&a, &r->pack));
		json_array_append_new(r->memory, one);
		r->written.rows += a.pictures->base.blocks->rows;
		r->written.memories++;
	}
	answers_release(&a);
	free(prefix);
	return status;
}

int page_add(struct page *r, const char *path, struct err *err)
{
	add_title(r, path);
	return add_memory(r, path, err);
}

/* --- writing --- */

static int write_out(const char *path, struct buf *page, struct err *err)
{
	if (!fs_is_stream(path))
		return fs_write_atomic(path, page, 0640, err);
	int fd = fs_open_output(path, 0, 0, err);
	if (fd < 0)
		return fd;
	int r = fs_write_all(fd, page->data, page->len, FS_HERE, NULL);
	close(fd);
	return r < 0 ? err_sys(err, r, "cannot write '%s'", path) : 0;
}

int page_write(struct page *r, const char *path, struct page_written *out, struct err *err)
{
	struct buf page = {0}, title = {0};

	if (r->o.title)
		buf_add_str(&title, r->o.title);
	else if (r->redact)
		buf_add_str(&title, "A job");
	else
		buf_add(&title, r->title.data, r->title.len);
	json_object_set_new(r->pack.model, "title",
			    text_value(title.data ? title.data : "", title.len));
	json_object_set_new(r->pack.model, "version", json_string(SONDE_VERSION));
	put_bool(r->pack.model, "redacted", r->redact != NULL);
	json_object_set(r->pack.model, "memory", r->memory);
	json_object_set(r->pack.model, "activities", r->activities);
	json_object_set(r->pack.model, "profiles", r->profiles);
	tree_put(&r->tree);
	buf_add_str(&title, " · sonde report");
	int status = html_write(&r->pack, buf_str(&title), &page, err);
	if (status == 0)
		status = write_out(path, &page, err);
	r->written.bytes = page.len;
	*out = r->written;
	buf_release(&page);
	buf_release(&title);
	return status;
}
