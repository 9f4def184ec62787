/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/files/activity.h"
#include "activity/owners/owners.h"
#include "activity/read/read.h"
#include "base/containers/buf.h"
#include "base/containers/intern.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "wire/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_DEPTH 16
#define LINE_MAX_MEMBERS 32 /* those behind them are passed over */

enum value_type { VALUE_TEXT, VALUE_NUMBER, VALUE_NEGATIVE, VALUE_BOOL, VALUE_OTHER };

struct member {
	const char *key;
	size_t key_len;
	enum value_type type;
	uint64_t number; /* of a negative one its amount; of a bool 0 or 1 */
	const char *text; /* as it stands between the quotes */
	size_t text_len;
	bool escaped;
};

struct line {
	const char *p, *end;
	struct member members[LINE_MAX_MEMBERS];
	unsigned n;
};

static void skip_blanks(struct line *l)
{
	while (l->p < l->end && (*l->p == ' ' || *l->p == '\t' || *l->p == '\r'))
		l->p++;
}

static bool take_char(struct line *l, char c)
{
	skip_blanks(l);
	if (l->p == l->end || *l->p != c)
		return false;
	l->p++;
	return true;
}

static int hex4(const char *p)
{
	int v = 0;

	for (int i = 0; i < 4; i++) {
		int d = p[i] >= '0' && p[i] <= '9'   ? p[i] - '0'
			: p[i] >= 'a' && p[i] <= 'f' ? p[i] - 'a' + 10
			: p[i] >= 'A' && p[i] <= 'F' ? p[i] - 'A' + 10
						     : -1;

		if (d < 0)
			return -1;
		v = v << 4 | d;
	}
	return v;
}

static bool take_text(struct line *l, const char **out, size_t *out_len, bool *out_escaped)
{
	*out_escaped = false;
	if (!take_char(l, '"'))
		return false;
	*out = l->p;
	for (; l->p < l->end && *l->p != '"'; l->p++) {
		if ((unsigned char)*l->p < 0x20)
			return false;
		if (*l->p != '\\')
			continue;
		*out_escaped = true;
		if (++l->p == l->end || !strchr("\"\\/bfnrtu", *l->p) || !*l->p)
			return false;
		if (*l->p == 'u' && (l->end - l->p < 5 || hex4(l->p + 1) < 0))
			return false;
	}
	if (l->p == l->end)
		return false;
	*out_len = (size_t)(l->p - *out);
	l->p++;
	return true;
}

static bool take_digits(struct line *l, uint64_t *out)
{
	const char *start = l->p;
	uint64_t v = 0;

	for (; l->p < l->end && *l->p >= '0' && *l->p <= '9'; l->p++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*l->p - '0'), &v))
			return false;
	*out = v;
	return l->p > start && (*start != '0' || l->p == start + 1);
}

static bool take_word(struct line *l, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(l->end - l->p) < n || memcmp(l->p, word, n))
		return false;
	l->p += n;
	return true;
}

/* Fractions and exponents are nothing that we know; they are passed over. */
static bool take_rest_of_number(struct line *l, struct member *m)
{
	uint64_t unused;

	if (l->p < l->end && *l->p == '.') {
		m->type = VALUE_OTHER;
		l->p++;
		if (l->p == l->end || *l->p < '0' || *l->p > '9')
			return false;
		while (l->p < l->end && *l->p >= '0' && *l->p <= '9')
			l->p++;
	}
	if (l->p < l->end && (*l->p == 'e' || *l->p == 'E')) {
		m->type = VALUE_OTHER;
		l->p++;
		if (l->p < l->end && (*l->p == '+' || *l->p == '-'))
			l->p++;
		while (l->p < l->end && *l->p == '0')
			l->p++;
		if (l->p < l->end && *l->p >= '0' && *l->p <= '9' && !take_digits(l, &unused))
			return false;
	}
	return true;
}

static bool take_value(struct line *l, struct member *m, unsigned depth);

/* An array or an object: nothing in it matters. */
static bool take_nested(struct line *l, unsigned depth)
{
	bool object = *l->p++ == '{';
	char close = object ? '}' : ']';
	struct member unused;

	if (depth == MAX_DEPTH)
		return false;
	if (take_char(l, close))
		return true;
	do {
		if (object && (!take_text(l, &unused.text, &unused.text_len, &unused.escaped) ||
			       !take_char(l, ':')))
			return false;
		if (!take_value(l, &unused, depth + 1))
			return false;
	} while (take_char(l, ','));
	return take_char(l, close);
}

static bool take_value(struct line *l, struct member *m, unsigned depth)
{
	skip_blanks(l);
	if (l->p == l->end)
		return false;
	switch (*l->p) {
	case '"':
		m->type = VALUE_TEXT;
		return take_text(l, &m->text, &m->text_len, &m->escaped);
	case '{':
	case '[':
		m->type = VALUE_OTHER;
		return take_nested(l, depth);
	case 't':
		m->type = VALUE_BOOL;
		m->number = 1;
		return take_word(l, "true");
	case 'f':
		m->type = VALUE_BOOL;
		m->number = 0;
		return take_word(l, "false");
	case 'n':
		m->type = VALUE_OTHER;
		return take_word(l, "null");
	default:
		m->type = *l->p == '-' ? VALUE_NEGATIVE : VALUE_NUMBER;
		l->p += *l->p == '-';
		return take_digits(l, &m->number) && take_rest_of_number(l, m);
	}
}

static bool line_parse(struct line *l, const char *text, size_t len)
{
	struct member unused;
	bool escaped;

	l->p = text;
	l->end = text + len;
	l->n = 0;
	if (!take_char(l, '{'))
		return false;
	if (!take_char(l, '}')) {
		do {
			struct member *m = l->n < LINE_MAX_MEMBERS ? &l->members[l->n++] : &unused;

			if (!take_text(l, &m->key, &m->key_len, &escaped) || !take_char(l, ':') ||
			    !take_value(l, m, 1))
				return false;
		} while (take_char(l, ','));
		if (!take_char(l, '}'))
			return false;
	}
	skip_blanks(l);
	return l->p == l->end;
}

static const struct member *line_find(const struct line *l, const char *key)
{
	size_t n = strlen(key);

	for (unsigned i = 0; i < l->n; i++)
		if (l->members[i].key_len == n && !memcmp(l->members[i].key, key, n))
			return &l->members[i];
	return NULL;
}

static void add_utf8(struct buf *b, uint32_t c)
{
	if (c >= 0xd800 && c < 0xe000)
		c = 0xfffd;
	if (c < 0x80) {
		buf_add_char(b, (char)c);
	} else if (c < 0x800) {
		buf_add_char(b, (char)(0xc0 | c >> 6));
		buf_add_char(b, (char)(0x80 | (c & 0x3f)));
	} else if (c < 0x10000) {
		buf_add_char(b, (char)(0xe0 | c >> 12));
		buf_add_char(b, (char)(0x80 | (c >> 6 & 0x3f)));
		buf_add_char(b, (char)(0x80 | (c & 0x3f)));
	} else {
		buf_add_char(b, (char)(0xf0 | c >> 18));
		buf_add_char(b, (char)(0x80 | (c >> 12 & 0x3f)));
		buf_add_char(b, (char)(0x80 | (c >> 6 & 0x3f)));
		buf_add_char(b, (char)(0x80 | (c & 0x3f)));
	}
}

/* An escape that take_text() has found well formed; p is behind the backslash. Returns its end. */
static const char *unescape_text(struct buf *b, const char *p, const char *end)
{
	static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";

	if (*p != 'u') {
		buf_add_char(b, means[strchr(names, *p) - names]);
		return p + 1;
	}
	uint32_t c = (uint32_t)hex4(p + 1);
	p += 5;
	if (c >= 0xd800 && c < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
		int low = hex4(p + 2);

		if (low >= 0xdc00 && low < 0xe000) {
			c = 0x10000 + ((c - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
			p += 6;
		}
	}
	add_utf8(b, c);
	return p;
}

static const char *line_text(const struct member *m, struct buf *scratch, size_t *out_len)
{
	*out_len = m->text_len;
	if (!m->escaped)
		return m->text;
	buf_clear(scratch);
	for (const char *p = m->text, *end = p + m->text_len; p < end;) {
		if (*p == '\\')
			p = unescape_text(scratch, p + 1, end);
		else
			buf_add_char(scratch, *p++);
	}
	*out_len = scratch->len;
	return scratch->len ? scratch->data : "";
}

/* Activities out of lines of JSON. */

#define MAX_LINE (64u << 20)
#define MAX_TEXT (1u << 20) /* of a name */
#define PIECE (1u << 20)
#define NO_LINE "its first line is no JSON object with a \"kind\""

static const char *interned_text(const struct member *m)
{
	static struct buf scratch, clean;
	size_t len;
	const char *text = line_text(m, &scratch, &len);

	text = text_clean(text, &len, &clean);
	return intern(len ? text : "", len);
}

static int bad_value(struct err *err, const char *key, const char *what)
{
	return err_set(err, -EBADMSG, "\"%s\" %s", key, what);
}

static bool set_word(const struct member *m, enum activity_field_id id, struct activity *out)
{
	const char *word = interned_text(m);

	switch (id) {
	case FIELD_DATA_TYPE:
		return activity_data_type_find(word, &out->data_type);
	case FIELD_COPY_KIND:
		return activity_copy_kind_find(word, &out->flag);
	case FIELD_OPERATION:
		out->flag = !strcmp(word, "release");
		return out->flag || !strcmp(word, "allocate");
	default: /* kind and source are known by now */
		return true;
	}
}

static int set_field(const struct line *l, enum activity_field_id id, struct activity *out,
		     struct err *err)
{
	const struct activity_field *f = &activity_fields[id];
	const struct member *m = line_find(l, f->key);
	bool is_32 = f->type == FIELD_NUMBER_32;
	void *at = (char *)out + f->offset;

	if (!m)
		return bad_value(err, f->key, "is missing");
	switch (f->type) {
	case FIELD_NUMBER:
	case FIELD_NUMBER_32:
		if (m->type != VALUE_NUMBER || (is_32 && m->number > UINT32_MAX))
			return bad_value(err, f->key, "is no number that fits");
		if (is_32)
			*(uint32_t *)at = (uint32_t)m->number;
		else
			*(uint64_t *)at = m->number;
		return 0;
	case FIELD_BOOL:
		if (m->type != VALUE_BOOL)
			return bad_value(err, f->key, "is neither true nor false");
		*(uint8_t *)at = (uint8_t)m->number;
		return 0;
	default:
		break;
	}
	if (m->type != VALUE_TEXT || m->text_len > MAX_TEXT)
		return bad_value(err, f->key, "is no text that fits");
	if (f->type == FIELD_TEXT)
		*(const char **)at = interned_text(m);
	else if (!set_word(m, id, out))
		return bad_value(err, f->key, "has a value that is not known");
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
		const char *word = m && m->type == VALUE_TEXT ? interned_text(m) : "";

		if (strcmp(word, "Host") && strcmp(word, "Device"))
			return bad_value(err, "sourceKind", "is neither Host nor Device");
		out->place = *word == 'H' ? ACTIVITY_ON_HOST : ACTIVITY_ON_DEVICE;
	}
	return 0;
}

static const char *owner_text(const struct line *l, const char *key)
{
	const struct member *m = line_find(l, key);

	return m && m->type == VALUE_TEXT && m->text_len <= MAX_TEXT ? interned_text(m)
								     : intern("", 0);
}

/* Where somebody has attributed it, there is a "pass". */
static void set_owner(const struct line *l, struct activity *out)
{
	const struct member *m = line_find(l, activity_fields[FIELD_PASS].key);

	if (!m || m->type != VALUE_TEXT)
		return;
	struct activity_owner o = {
		.model = owner_text(l, activity_fields[FIELD_MODEL].key),
		.module = owner_text(l, activity_fields[FIELD_MODULE].key),
		.module_class = owner_text(l, activity_fields[FIELD_MODULE_CLASS].key),
		.line = owner_text(l, activity_fields[FIELD_LINE].key),
		.backward = !strcmp(owner_text(l, activity_fields[FIELD_PASS].key), "backward"),
	};
	out->attributed = true;
	out->owner = owner_find(&o);
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
		return bad_value(err, "kind", "is missing");
	const char *name = interned_text(kind);
	struct request_text word = {name, strlen(name)};
	*out = (struct activity){ACTIVITY_EMPTY, .kind = (uint8_t)activity_kind_find(&word)};
	if (!out->kind)
		return read_other(&l, name, about);
	r = set_place(&l, out, err);
	uint32_t fields = activity_fields_of(out->kind, out->place);
	for (; r == 0 && fields; fields &= fields - 1)
		r = set_field(&l, (enum activity_field_id)__builtin_ctz(fields), out, err);
	if (r == 0 && out->place == ACTIVITY_ON_DEVICE)
		set_owner(&l, out);
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
	/* A session with devices has a line about them at its end, no matter who wrote it. */
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
	int fd = fs_open(path, O_RDONLY, 0, err);
	struct buf b = {0};
	int got = 0;

	if (fd < 0)
		return fd;
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
