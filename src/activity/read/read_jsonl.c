/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities out of lines of JSON. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activity/files/common.h"
#include "activity/files/fields.h"
#include "activity/files/line.h"
#include "activity/read/read.h"
#include "base/containers/buf.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "wire/request.h"

#define MAX_LINE (64u << 20)
#define MAX_TEXT (1u << 20) /* of a name */
#define PIECE (1u << 20)
#define NO_LINE "its first line is no JSON object with a \"kind\""

static const char *interned(const struct member *m)
{
	static struct buf scratch, clean;
	size_t len;
	const char *text = line_text(m, &scratch, &len);

	text = text_clean(text, &len, &clean);
	return intern(len ? text : "", len);
}

static int bad(struct err *err, const char *key, const char *what)
{
	return err_set(err, -EBADMSG, "\"%s\" %s", key, what);
}

static int set_word(const struct member *m, const struct activity_field *f, struct activity *out,
		    struct err *err)
{
	const char *word = interned(m);
	bool good = true;

	switch (f->type) {
	case FIELD_DATA_TYPE:
		good = activity_data_type_find(word, &out->data_type);
		break;
	case FIELD_COPY_KIND:
		good = activity_copy_kind_find(word, &out->flag);
		break;
	case FIELD_OPERATION:
		out->flag = !strcmp(word, "release");
		good = out->flag || !strcmp(word, "allocate");
		break;
	default: /* kind and source are known by now */
		break;
	}
	return good ? 0 : bad(err, f->key, "has a value that is not known");
}

static int set_field(const struct line *l, const struct activity_field *f, struct activity *out,
		     struct err *err)
{
	const struct member *m = line_find(l, f->key);
	char *at = (char *)out + f->offset;
	const char *text;
	uint32_t u32;

	if (!m)
		return bad(err, f->key, "is missing");
	switch (f->type) {
	case FIELD_U64:
		if (m->type != VALUE_NUMBER)
			return bad(err, f->key, "is no number that fits");
		memcpy(at, &m->number, sizeof(m->number));
		return 0;
	case FIELD_U32:
		if (m->type != VALUE_NUMBER || m->number > UINT32_MAX)
			return bad(err, f->key, "is no number that fits");
		u32 = (uint32_t)m->number;
		memcpy(at, &u32, sizeof(u32));
		return 0;
	case FIELD_BOOL:
		if (m->type != VALUE_BOOL)
			return bad(err, f->key, "is neither true nor false");
		*(uint8_t *)at = (uint8_t)m->number;
		return 0;
	default:
		break;
	}
	if (m->type != VALUE_TEXT || m->text_len > MAX_TEXT)
		return bad(err, f->key, "is no text that fits");
	if (f->type != FIELD_TEXT)
		return set_word(m, f, out, err);
	text = interned(m);
	memcpy(at, &text, sizeof(text));
	return 0;
}

/* Lines that are no activities: all but those of unknown kinds are written at the end. */
static int read_other(const struct line *l, const char *kind, struct activity_about *about)
{
	const struct member *m;
	bool last = true;

	if (!strcmp(kind, "parallel_group_info")) {
		m = line_find(l, "value");
		if (m && m->type == VALUE_TEXT) {
			struct buf scratch = {0};
			size_t len;
			const char *text = line_text(m, &scratch, &len);

			free(about->groups);
			about->groups = xstrndup(text, len);
			buf_release(&scratch);
		}
	} else if (!strcmp(kind, "rank_device_map")) {
		m = line_find(l, "rank");
		if (m && m->type == VALUE_NUMBER && m->number <= INT32_MAX)
			about->rank = (int32_t)m->number;
	} else if (!strcmp(kind, "loss")) {
		m = line_find(l, "lost");
		if (m && m->type == VALUE_NUMBER)
			about->lost += m->number;
		m = line_find(l, "rotatedFiles");
		if (m && m->type == VALUE_NUMBER)
			about->rotated_files += m->number;
	} else {
		about->skipped++;
		last = false;
	}
	if (last)
		about->end = ACTIVITY_END_THERE;
	return 0;
}

/* Where it was; of a mark its line says so. */
static int set_place(const struct line *l, struct activity *out, struct err *err)
{
	out->place = activity_is_api(out->kind) ? ACTIVITY_ON_HOST : ACTIVITY_ON_DEVICE;
	if (out->kind == ACTIVITY_MARKER) {
		const struct member *m = line_find(l, "sourceKind");
		const char *word = m && m->type == VALUE_TEXT ? interned(m) : "";

		if (strcmp(word, "Host") && strcmp(word, "Device"))
			return bad(err, "sourceKind", "is neither Host nor Device");
		out->place = *word == 'H' ? ACTIVITY_ON_HOST : ACTIVITY_ON_DEVICE;
	}
	return 0;
}

int activity_read_line(const char *line, size_t len, struct activity *out,
		       struct activity_about *about, struct err *err)
{
	struct line l;
	int r = 0;

	if (!line_parse(&l, line, len))
		return err_set(err, -EBADMSG, "not a JSON object");
	const struct member *kind = line_find(&l, "kind");
	if (!kind || kind->type != VALUE_TEXT || kind->text_len > MAX_TEXT)
		return bad(err, "kind", "is missing");
	const char *name = interned(kind);
	struct request_text word = {name, strlen(name)};
	*out = (struct activity){.name = "",
				 .detail = "",
				 .more = "",
				 .device = ACTIVITY_NOWHERE,
				 .stream = ACTIVITY_NOWHERE,
				 .kind = (uint8_t)activity_kind_find(&word)};
	if (!out->kind)
		return read_other(&l, name, about);
	r = set_place(&l, out, err);
	const struct activity_field *f = activity_fields(out->kind, out->place);
	for (; r == 0 && f->key; f++)
		r = set_field(&l, f, out, err);
	if (r == 0 && out->kind == ACTIVITY_MARKER)
		out->flag =
			out->start_ns == out->end_ns ? ACTIVITY_MARK_INSTANT : ACTIVITY_MARK_START;
	return r < 0 ? r : 1;
}

static ssize_t read_piece(int fd, struct buf *b)
{
	ssize_t n;

	do
		n = read(fd, buf_room(b, PIECE), PIECE);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		b->len += (size_t)n;
	return n < 0 ? -errno : n;
}

struct reading {
	const char *path;
	activity_read_fn fn;
	void *arg;
	struct activity_about *about;
	uint64_t line;
};

static int one_line(struct reading *r, const char *line, size_t len, struct err *err)
{
	struct activity a = {0};
	struct err why = {0};

	r->line++;
	if (!len)
		return 0;
	int got = activity_read_line(line, len, &a, r->about, &why);
	if (got < 0 && r->line == 1 && !a.kind)
		return activity_read_refuse(r->path, NO_LINE, err);
	if (got < 0)
		return err_set(err, got, "'%s', line %llu: %s", r->path,
			       (unsigned long long)r->line, why.text);
	if (!got)
		return 0;
	r->about->activities++;
	/* A session with devices has a line about them at its end, whoever wrote it. */
	if (r->about->end != ACTIVITY_END_THERE && a.place == ACTIVITY_ON_DEVICE)
		r->about->end = ACTIVITY_END_MISSING;
	return r->fn(r->arg, &a);
}

/* Whole lines of the buffer, which keeps the rest. */
static int take_lines(struct reading *r, struct buf *b, struct err *err)
{
	size_t at = 0;
	const char *end;
	int got = 0;

	while (got == 0 && at < b->len && (end = memchr(b->data + at, '\n', b->len - at))) {
		size_t n = (size_t)(end - b->data) - at;

		got = one_line(r, b->data + at, n, err);
		at += n + 1;
	}
	if (at)
		memmove(b->data, b->data + at, b->len - at);
	b->len -= at;
	return got;
}

/* What has no end may still be whole: its writer was killed before it wrote the end. */
static int last_line(struct reading *r, struct buf *b, struct err *err)
{
	struct activity_about unused = {0};
	struct activity a;
	int got = activity_read_line(b->data, b->len, &a, &unused, NULL);

	activity_about_release(&unused);
	if (got >= 0)
		return one_line(r, b->data, b->len, err);
	if (!r->line && b->data[0] != '{')
		return activity_read_refuse(r->path, NO_LINE, err);
	r->about->torn = true;
	return 0;
}

int activity_read_jsonl(const char *path, activity_read_fn fn, void *arg,
			struct activity_about *about, struct err *err)
{
	struct reading r = {.path = path, .fn = fn, .arg = arg, .about = about};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct buf b = {0};
	int got = 0;

	if (fd < 0)
		return err_sys(err, -errno, "cannot open '%s'", path);
	for (;;) {
		ssize_t n = read_piece(fd, &b);

		if (n < 0)
			got = err_sys(err, (int)n, "cannot read '%s'", path);
		if (n <= 0)
			break;
		got = take_lines(&r, &b, err);
		if (got == 0 && b.len > MAX_LINE)
			got = err_set(err, -EBADMSG, "'%s', line %llu: too long", path,
				      (unsigned long long)r.line + 1);
		if (got)
			break;
	}
	if (got == 0 && b.len)
		got = last_line(&r, &b, err);
	else if (got == 0 && !r.line)
		about->end = ACTIVITY_END_MISSING; /* not even the first line found room */
	buf_release(&b);
	close(fd);
	return got;
}
