/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The dump reader over CSV bytes. Input that does not start like a header gets one, so that the
 * rows are reached. Every text of every row is touched, so that a wild pointer shows.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "export/cell.h"
#include "export/dump_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;

static void touch(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sink ^= (unsigned char)s[i];
}

static void read_all(const void *data, size_t size, unsigned flags)
{
	struct dump *d;
	struct row row;
	struct err err;
	size_t calls = 0;

	if (dump_open_memory(data, size, flags, &d, &err) < 0)
		return;
	while (dump_next(d, &row, &err)) {
		BUG_ON(++calls > size); /* every row and every error takes a byte at least */
		if (dump_line(d) && flags) {
			touch(row.name, row.name ? row.name_len : 0);
			touch(row.py_stack, row.py_stack_len);
			touch(row.c_stack, row.c_stack_len);
			for (unsigned i = 0; i < row.nattrs; i++)
				touch(row.attrs[i].text, row.attrs[i].text_len);
		}
	}
	dump_close(d);
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
	read_all(text, n + size, DUMP_SKIP_BAD);
	read_all(text, n + size, 0);
	free(text);

	struct buf keep = {0};
	struct row row = {0};
	if (!cell_read_json((const char *)data, size, &keep, &row))
		for (unsigned i = 0; i < row.nattrs; i++)
			touch(row.attrs[i].text, row.attrs[i].text_len);
	buf_release(&keep);
	return 0;
}
