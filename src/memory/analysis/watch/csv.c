/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The file of checksums by itself: a name and a checksum per line, in the order of the looks.
 *
 *	0_4711/aten.add.Tensor_2-aten.mm.default_0_before.bin,b86883e6fa710a9f
 *	<device>_<thread>/<operator>_<call>-<watched>_<output>_<edge>.bin
 */
#include "memory/analysis/watch/watch_impl.h"

#include "base/mem.h"
#include "memory/dump/cell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BLOCKS 65536u

/* A name taken apart; pieces point into it. */
struct parts {
	const char *op, *watched;
	size_t op_len, watched_len;
	uint32_t call, output, tid, device;
	bool after;
};

static bool ends_with(const char *s, size_t *n, const char *tail)
{
	size_t k = strlen(tail);

	if (*n < k || memcmp(s + *n - k, tail, k) != 0)
		return false;
	*n -= k;
	return true;
}

static bool read_u32(const char *s, size_t n, uint32_t *out)
{
	uint64_t v;

	if (!n || !cell_read_u64(s, n, &v) || v > UINT32_MAX)
		return false;
	*out = (uint32_t)v;
	return true;
}

/* The number behind the last '_', which is cut off. */
static bool take_number(const char *s, size_t *n, uint32_t *out)
{
	size_t at = *n;

	while (at && s[at - 1] >= '0' && s[at - 1] <= '9')
		at--;
	if (!at || s[at - 1] != '_' || !read_u32(s + at, *n - at, out))
		return false;
	*n = at - 1;
	return true;
}

static bool read_device(const char *s, size_t n, uint32_t *out)
{
	if (n == 3 && !memcmp(s, "cpu", 3)) {
		*out = DEV_HOST;
		return true;
	}
	return read_u32(s, n, out);
}

/* "<device>_<thread>/", if it is there. */
static size_t take_device_and_thread(const char *s, size_t n, struct parts *p)
{
	const char *slash = memchr(s, '/', n);
	size_t k = slash ? (size_t)(slash - s) : 0;

	if (!slash || !take_number(s, &k, &p->tid) || !read_device(s, k, &p->device)) {
		p->tid = p->device = 0;
		return 0;
	}
	return (size_t)(slash - s) + 1;
}

static bool take_apart(const char *s, size_t n, struct parts *p)
{
	if (!ends_with(s, &n, ".bin"))
		return false;
	p->after = ends_with(s, &n, "_after");
	if (!p->after && !ends_with(s, &n, "_before"))
		return false;
	if (!take_number(s, &n, &p->output))
		return false;
	size_t skip = take_device_and_thread(s, n, p);
	s += skip;
	n -= skip;
	/* The first "_<number>-" stands between the two names. */
	for (size_t i = 1; i + 1 < n; i++) {
		size_t k = i;
		if (s[i] != '-' || !take_number(s, &k, &p->call) || !k)
			continue;
		p->op = s;
		p->op_len = k;
		p->watched = s + i + 1;
		p->watched_len = n - i - 1;
		return true;
	}
	return false;
}

static bool read_checksum(const char *s, size_t n, uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++) {
		int digit = s[i] >= '0' && s[i] <= '9'	 ? s[i] - '0'
			    : s[i] >= 'a' && s[i] <= 'f' ? s[i] - 'a' + 10
							 : -1;
		if (digit < 0)
			return false;
		v = v << 4 | (uint64_t)digit;
	}
	*out = v;
	return n == 16;
}

struct reader {
	struct watch *w;
	struct watch_block **blocks;
	size_t n, cap;
};

static struct watch_block *block_of(struct reader *r, const struct parts *p)
{
	struct watch_block *fresh = watch_block_new(p->watched, p->watched_len);

	for (size_t i = 0; i < r->n; i++)
		if (r->blocks[i]->target.output == p->output &&
		    r->blocks[i]->target.device == p->device &&
		    !strcmp(r->blocks[i]->target.name, fresh->target.name)) {
			watch_block_free(fresh);
			return r->blocks[i];
		}
	if (r->n >= MAX_BLOCKS) {
		watch_block_free(fresh);
		return NULL;
	}
	fresh->target.output = p->output;
	fresh->target.device = p->device;
	LIST_ADD(r->blocks, r->n, r->cap, fresh);
	r->w->blocks++;
	return fresh;
}

/* The end of the watched operator itself, without its beginning: a new watch begins. */
static bool begins_anew(const struct watch_block *b, const struct watch_edge *to)
{
	return to->after && !strcmp(to->op, b->target.name) &&
	       (b->last.after || b->last.call != to->call || b->last.tid != to->tid ||
		strcmp(b->last.op, to->op) != 0);
}

static bool on_line(struct reader *r, const char *name, size_t n, const char *sum, size_t nsum)
{
	struct parts p = {0};
	struct watch_edge to = {0};
	uint64_t checksum;

	if (!take_apart(name, n, &p) || !read_checksum(sum, nsum, &checksum))
		return false;
	struct watch_block *b = block_of(r, &p);
	if (!b)
		return false;
	watch_edge_set(&to, p.op, p.op_len, p.call, p.tid, p.after);
	r->w->samples++;
	if (b->last.op && begins_anew(b, &to))
		r->w->blocks++;
	else if (b->last.op && b->checksum != checksum) {
		struct watch_finding *change = watch_change(r->w, b, &to);
		if (change) {
			change->verdict = WATCH_UNJUDGED;
			change->after = checksum;
		}
	}
	free(b->last.op);
	b->last = to;
	b->checksum = checksum;
	return true;
}

static bool is_header(const char *text, size_t len)
{
	size_t n = strlen(WATCH_CSV_HEADER);

	return len >= n && !memcmp(text, WATCH_CSV_HEADER, n) &&
	       (len == n || text[n] == '\n' || text[n] == '\r');
}

/* Takes the quotes of a cell away, in place: two inside are one. */
static size_t unquote_cell(char *s, size_t n)
{
	size_t to = 0;

	if (n < 2 || s[0] != '"' || s[n - 1] != '"')
		return n;
	for (size_t i = 1; i < n - 1; i++) {
		if (s[i] == '"' && i + 1 < n - 1 && s[i + 1] == '"')
			i++;
		s[to++] = s[i];
	}
	return to;
}

/* Names may hold commas, checksums do not. */
static void on_record(struct reader *r, char *text, size_t len, uint64_t line)
{
	const char *comma = memrchr(text, ',', len);
	size_t n = comma ? (size_t)(comma - text) : 0;
	bool good = comma && on_line(r, text, unquote_cell(text, n), comma + 1, len - n - 1);

	if (!good && !r->w->bad_lines++)
		r->w->first_bad_line = line;
}

int watch_read_csv(struct analysis *a, const char *text, size_t len, struct err *err)
{
	struct reader r = {.w = (struct watch *)a};
	char *copy;

	if (!is_header(text, len))
		return err_set(err, -EINVAL, "line 1 is not '%s'", WATCH_CSV_HEADER);
	r.w->from_csv = true;
	copy = xmalloc(len + 1);
	memcpy(copy, text, len);
	uint64_t line = 1;
	for (size_t at = 0; at < len;) {
		const char *end = memchr(copy + at, '\n', len - at);
		size_t n = end ? (size_t)(end - copy) - at : len - at;
		size_t next = at + n + (end ? 1 : 0);
		if (n && copy[at + n - 1] == '\r')
			n--;
		if (line > 1 && n)
			on_record(&r, copy + at, n, line);
		line++;
		at = next;
	}
	free(copy);
	for (size_t i = 0; i < r.n; i++)
		watch_block_free(r.blocks[i]);
	free(r.blocks);
	return 0;
}
