/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The Attr cell in both its forms. The quick reader of `{key:value,…}` must find the pairs that the
 * plain one finds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/dump/cell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct cell_keys keys;
static volatile unsigned char sink;

static void touch(const struct row *row)
{
	BUG_ON(row->nattrs > ROW_MAX_ATTRS);
	for (unsigned i = 0; i < row->nattrs; i++)
		for (size_t k = 0; k < row->attrs[i].text_len; k++)
			sink ^= (unsigned char)row->attrs[i].text[k];
}

/* Every pair is an attribute, or part of a raw one, in the same order. */
static void check_pairs(const struct row *row, const char *text, size_t size)
{
	const char *at = text + 1, *end = text + size - 1;
	unsigned i = 0;
	struct pair pair;

	while (cell_next_pair(&at, end, &pair)) {
		const char *pair_end = pair.value + pair.value_len;

		BUG_ON(i == row->nattrs);
		const struct attr *a = &row->attrs[i];
		if (a->key == ATTR_RAW) {
			BUG_ON(pair.key < a->text || pair_end > a->text + a->text_len);
			i += pair_end == a->text + a->text_len;
			continue;
		}
		BUG_ON(a->key != attr_key_find(pair.key, pair.key_len));
		BUG_ON(a->text != pair.value || a->text_len != pair.value_len);
		i++;
	}
	BUG_ON(i != row->nattrs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = xmalloc(size + 2 + CELL_SLACK);
	struct row row = {.event = ROW_MALLOC};
	struct buf keep = {0};

	if (!keys.words.find)
		cell_keys_init(&keys);
	memset(text, ':', size + 2 + CELL_SLACK);
	text[0] = '{';
	if (size)
		memcpy(text + 1, data, size);
	text[size + 1] = '}';
	BUG_ON(cell_read_attrs(&keys, text, size + 2, &row) < 0);
	touch(&row);
	check_pairs(&row, text, size + 2);
	if (cell_read_attrs(&keys, text + 1, size, &row) == 0)
		touch(&row);
	if (cell_read_json(&keys, (const char *)data, size, &keep, &row) == 0)
		touch(&row);
	if (cell_read_json(&keys, text, size + 2, &keep, &row) == 0)
		touch(&row);
	buf_release(&keep);
	free(text);
	return 0;
}
