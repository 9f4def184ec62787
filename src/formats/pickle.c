/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/pickle.h"

#include "base/text/text.h"

enum opcode {
	OP_PROTO = 0x80,
	OP_PAIR = 0x86,
	OP_TRUE = 0x88,
	OP_FALSE = 0x89,
	OP_LONG1 = 0x8a,
	OP_SHORT_TEXT = 0x8c,
	OP_MARK = '(',
	OP_STOP = '.',
	OP_INT4 = 'J',
	OP_INT1 = 'K',
	OP_INT2 = 'M',
	OP_TEXT = 'X',
	OP_LIST = ']',
	OP_APPEND = 'a',
	OP_GET = 'j',
	OP_PUT = 'r',
	OP_SET_ITEMS = 'u',
	OP_DICT = '}',
};

static void add_op(struct buf *out, enum opcode op)
{
	buf_add_char(out, (char)op);
}

static void add_bytes(struct buf *out, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		buf_add_char(out, (char)(v >> 8 * i));
}

void pickle_begin(struct buf *out)
{
	add_op(out, OP_PROTO);
	buf_add_char(out, 4);
}

void pickle_end(struct buf *out)
{
	add_op(out, OP_STOP);
}

void pickle_list(struct buf *out)
{
	add_op(out, OP_LIST);
}

void pickle_append(struct buf *out)
{
	add_op(out, OP_APPEND);
}

void pickle_dict(struct buf *out)
{
	add_op(out, OP_DICT);
}

void pickle_mark(struct buf *out)
{
	add_op(out, OP_MARK);
}

void pickle_set_items(struct buf *out)
{
	add_op(out, OP_SET_ITEMS);
}

void pickle_bool(struct buf *out, bool v)
{
	add_op(out, v ? OP_TRUE : OP_FALSE);
}

void pickle_number(struct buf *out, uint64_t v)
{
	if (v <= UINT8_MAX) {
		add_op(out, OP_INT1);
		add_bytes(out, v, 1);
	} else if (v <= UINT16_MAX) {
		add_op(out, OP_INT2);
		add_bytes(out, v, 2);
	} else if (v <= INT32_MAX) {
		add_op(out, OP_INT4);
		add_bytes(out, v, 4);
	} else {
		add_op(out, OP_LONG1);
		buf_add_char(out, 8);
		add_bytes(out, v > INT64_MAX ? INT64_MAX : v, 8);
	}
}

void pickle_text(struct buf *out, const char *text, size_t len)
{
	struct buf scratch = {0};
	const char *clean = text_clean(text, &len, &scratch);

	if (len <= UINT8_MAX) {
		add_op(out, OP_SHORT_TEXT);
		add_bytes(out, len, 1);
	} else {
		add_op(out, OP_TEXT);
		add_bytes(out, len, 4);
	}
	buf_add(out, clean, len);
	buf_release(&scratch);
}

void pickle_pair(struct buf *out)
{
	add_op(out, OP_PAIR);
}

void pickle_put(struct buf *out, uint32_t number)
{
	add_op(out, OP_PUT);
	add_bytes(out, number, 4);
}

void pickle_get(struct buf *out, uint32_t number)
{
	add_op(out, OP_GET);
	add_bytes(out, number, 4);
}
