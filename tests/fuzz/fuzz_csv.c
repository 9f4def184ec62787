/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The dump reader over CSV bytes, as they lie, in order of time, and by two threads in pieces of
 * any size. Input that does not start like a header gets one, so that the rows are reached. Every
 * text of every row is touched, so that a wild pointer shows.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/dump_bytes.h"
#include "base/mem.h"
#include "memory/dump/cell.h"
#include "memory/input/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct answer {
	size_t rows;
	uint64_t bad_rows;
	uint64_t sum; /* of what is in the rows, whatever their order */
	uint64_t lines; /* their sum, too */
	bool torn;
};

static uint64_t sum_text(const char *s, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum = sum * 31 + (unsigned char)s[i];
	return sum;
}

static uint64_t sum_row(const struct row *row)
{
	uint64_t sum = row->id + row->time_ns + row->pid + row->tid + row->device + row->range;

	sum += sum_text(row->name, row->name ? row->name_len : 0);
	sum += sum_text(row->py_stack, row->py_stack_len);
	sum += sum_text(row->c_stack, row->c_stack_len);
	for (unsigned i = 0; i < row->nattrs; i++) {
		const struct attr *a = &row->attrs[i];

		sum += a->kind == ATTR_TEXT ? sum_text(a->text, a->text_len) : a->number;
	}
	return sum;
}

static struct answer read_all(const void *data, size_t size, unsigned flags)
{
	struct answer answer = {0};
	uint64_t time_ns = 0;
	struct dump *d;
	struct row row;
	struct err err;
	size_t calls = 0;
	int r;

	if (dump_open_bytes(data, size, flags, &d, &err) < 0)
		return answer;
	while ((r = dump_next(d, &row, &err))) {
		BUG_ON(++calls > size); /* every row and every error takes a byte at least */
		if (r < 0)
			continue;
		BUG_ON((flags & DUMP_SORTED) && row.time_ns < time_ns);
		time_ns = row.time_ns;
		answer.rows++;
		answer.sum += sum_row(&row);
		answer.lines += dump_source(d)->line;
	}
	answer.bad_rows = dump_bad_rows(d);
	answer.torn = dump_torn(d);
	dump_close(d);
	return answer;
}

static struct answer read_ahead(const void *data, size_t size, size_t piece)
{
	struct answer answer = {0};
	const struct row *row;
	struct dump *d;
	struct err err;

	if (dump_open_bytes(data, size, DUMP_SKIP_BAD, &d, &err) < 0)
		return answer;
	dump_read_ahead(d, 1, piece);
	for (; dump_take(d, &row, &err) > 0; answer.rows++)
		answer.sum += sum_row(row);
	answer.bad_rows = dump_bad_rows(d);
	answer.torn = dump_torn(d);
	dump_close(d);
	return answer;
}

static void check_same(struct answer a, struct answer b)
{
	BUG_ON(a.rows != b.rows || a.bad_rows != b.bad_rows || a.sum != b.sum || a.torn != b.torn);
	BUG_ON(b.lines && a.lines != b.lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char header[] = CELL_COLUMNS "\n";
	size_t n = sizeof(header) - 1;
	char *text = xmalloc(n + size + 1);

	memcpy(text, header, n);
	if (size)
		memcpy(text + n, data, size);
	read_all(data, size, DUMP_SKIP_BAD);
	struct answer answer = read_all(text, n + size, DUMP_SKIP_BAD);
	check_same(answer, read_all(text, n + size, 0));
	check_same(answer, read_all(text, n + size, DUMP_SKIP_BAD | DUMP_SORTED));
	check_same(answer, read_all(text, n + size, DUMP_SORTED));
	check_same(answer, read_ahead(text, n + size, 1 + size % 97));
	free(text);
	return 0;
}
