/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>

#include "base/mem.h"
#include "base/text/text.h"

#define MOST_TEXT 4096u /* bytes of one; the rest is cut off */
#define GZIP_WINDOW (15 + 16)
#define MOST_EXACT ((1ull << 53) - 1) /* that numbers of JavaScript hold */

void column_add(struct column *c, uint64_t v)
{
	char *p = buf_room(&c->bytes, 10);
	size_t n = 0;

	if (v > MOST_EXACT)
		v = MOST_EXACT;
	for (; v >= 0x80; v >>= 7)
		p[n++] = (char)(v | 0x80);
	p[n++] = (char)v;
	c->bytes.len += n;
	c->n++;
}

void column_add_signed(struct column *c, int64_t v)
{
	const int64_t most = (int64_t)(MOST_EXACT / 2);

	if (v > most || v < -most)
		v = v < 0 ? -most : most;
	column_add(c, v < 0 ? (uint64_t)(-v) * 2 - 1 : (uint64_t)v * 2);
}

void pack_init(struct pack *p, struct redact *redact)
{
	*p = (struct pack){.model = json_object(),
			   .texts = json_array(),
			   .arrays = json_object(),
			   .redact = redact};
	json_array_append_new(p->texts, json_string(""));
}

void pack_release(struct pack *p)
{
	json_decref(p->model);
	json_decref(p->texts);
	json_decref(p->arrays);
	buf_release(&p->bytes);
	hmap_release(&p->text_of);
	*p = (struct pack){0};
}

void pack_put(struct pack *p, const char *prefix, const char *name, struct column *c)
{
	char *full = xasprintf("%s%s", prefix, name);

	json_object_set_new(p->arrays, full,
			    json_pack("[I, I, I]", (json_int_t)c->n, (json_int_t)p->bytes.len,
				      (json_int_t)c->bytes.len));
	buf_add(&p->bytes, c->bytes.data, c->bytes.len);
	buf_release(&c->bytes);
	*c = (struct column){0};
	free(full);
}

/* Valid UTF-8 without NUL, not longer than `most`. */
static void clean_text(struct pack *p, enum redact_kind kind, const char *text, size_t len,
		       size_t most, struct buf *out)
{
	struct buf scratch = {0};
	size_t n = len > most ? most : len;
	const char *s = text_clean(text, &n, &scratch);

	if (p->redact)
		redact_text(p->redact, kind, s, n, out);
	else
		buf_add(out, s, n);
	if (len > most)
		buf_add_str(out, "…");
	buf_release(&scratch);
}

uint32_t pack_text(struct pack *p, enum redact_kind kind, const char *text, size_t len)
{
	uint64_t hash, at;

	if (!len)
		return 0;
	hash = XXH3_64bits_withSeed(text, len, kind);
	at = hmap_get(&p->text_of, hash);
	if (at != HMAP_NONE)
		return (uint32_t)at;
	struct buf clean = {0};
	clean_text(p, kind, text, len, MOST_TEXT, &clean);
	at = json_array_size(p->texts);
	json_t *value = json_stringn(clean.data ? clean.data : "", clean.len);
	json_array_append_new(p->texts, value ? value : json_string("?"));
	hmap_put(&p->text_of, hash, at);
	buf_release(&clean);
	return (uint32_t)at;
}

uint32_t pack_string(struct pack *p, enum redact_kind kind, const char *text)
{
	return text ? pack_text(p, kind, text, strlen(text)) : 0;
}

static json_t *value_of(struct pack *p, enum redact_kind kind, const char *text, size_t len,
			size_t most)
{
	struct buf clean = {0};

	clean_text(p, kind, text, len, most, &clean);
	json_t *value = json_stringn(clean.data ? clean.data : "", clean.len);
	buf_release(&clean);
	return value ? value : json_string("?");
}

json_t *pack_value(struct pack *p, enum redact_kind kind, const char *text)
{
	return text ? value_of(p, kind, text, strlen(text), MOST_TEXT) : json_null();
}

json_t *pack_long(struct pack *p, enum redact_kind kind, struct buf *text)
{
	return value_of(p, kind, text->len ? text->data : "", text->len, SIZE_MAX);
}

/* --- the end --- */

static int compress_parts(const struct buf *in[], size_t n, struct buf *out, struct err *err)
{
	z_stream z = {0};
	int r = Z_OK;

	if (deflateInit2(&z, 6, Z_DEFLATED, GZIP_WINDOW, 9, Z_DEFAULT_STRATEGY) != Z_OK)
		return err_set(err, -ENOMEM, "cannot start to compress");
	for (size_t i = 0; i < n && r == Z_OK; i++) {
		size_t left = in[i]->len;

		z.next_in = (Bytef *)(uintptr_t)in[i]->data;
		do {
			z.avail_in = left > (1u << 30) ? 1u << 30 : (uInt)left;
			left -= z.avail_in;
			do {
				z.next_out = (Bytef *)buf_room(out, 1 << 16);
				z.avail_out = 1 << 16;
				r = deflate(&z, i + 1 == n && !left ? Z_FINISH : Z_NO_FLUSH);
				out->len += (1 << 16) - z.avail_out;
			} while (r == Z_OK && z.avail_out == 0);
		} while (left && r == Z_OK);
		if (r == Z_BUF_ERROR) /* there was nothing to do */
			r = Z_OK;
	}
	deflateEnd(&z);
	return r == Z_STREAM_END ? 0 : err_set(err, -EIO, "cannot compress the report");
}

static void add_base64(const struct buf *in, struct buf *out)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *s = (const unsigned char *)in->data;
	char *p = buf_room(out, (in->len + 2) / 3 * 4);

	for (size_t i = 0; i < in->len; i += 3) {
		size_t n = in->len - i < 3 ? in->len - i : 3;
		uint32_t v = (uint32_t)s[i] << 16 | (n > 1 ? (uint32_t)s[i + 1] << 8 : 0) |
			     (n > 2 ? s[i + 2] : 0);
		*p++ = letters[v >> 18];
		*p++ = letters[v >> 12 & 63];
		*p++ = n > 1 ? letters[v >> 6 & 63] : '=';
		*p++ = n > 2 ? letters[v & 63] : '=';
	}
	out->len += (in->len + 2) / 3 * 4;
}

int pack_finish(struct pack *p, struct buf *out, uint64_t *out_raw, struct err *err)
{
	struct buf head = {0}, packed = {0};

	json_object_set(p->model, "texts", p->texts);
	json_object_set(p->model, "arrays", p->arrays);
	char *model = json_dumps(p->model, JSON_COMPACT);
	if (!model)
		return err_set(err, -ENOMEM, "cannot write the report's model");
	size_t len = strlen(model);
	for (unsigned i = 0; i < 4; i++)
		buf_add_char(&head, (char)(len >> (8 * i)));
	buf_add(&head, model, len);
	free(model);
	const struct buf *parts[] = {&head, &p->bytes};
	int r = compress_parts(parts, 2, &packed, err);
	if (r == 0)
		add_base64(&packed, out);
	*out_raw = head.len + p->bytes.len;
	buf_release(&head);
	buf_release(&packed);
	return r;
}
