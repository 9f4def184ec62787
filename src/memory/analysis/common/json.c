/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/json.h"

#include "base/text/text.h"
#include "formats/json_value.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/frames.h"

void put_device(json_t *o, uint32_t device)
{
	char text[16];

	put_text(o, "device", blocks_device_name(device, text));
}

void put_pool(json_t *o, enum row_type type)
{
	put_text(o, "pool", row_type_text(type, ROW_SEED));
}

void put_where(json_t *o, const struct stacks *s, uint32_t stack)
{
	struct buf where = {0};

	put_text(o, "where", stacks_where(s, stack, &where) ? buf_str(&where) : NULL);
	buf_release(&where);
}

static json_t *frames(const char *text)
{
	json_t *list = json_array();
	struct frame_line line;

	while (text && frame_next(&text, &line))
		json_array_append_new(list, text_value(line.text, line.len));
	return list;
}

void put_stack(json_t *o, const struct stacks *s, uint32_t stack)
{
	struct stack lines = stacks_get(s, stack);

	put_where(o, s, stack);
	json_object_set_new(o, "c_stack", frames(lines.c));
	json_object_set_new(o, "python_stack", frames(lines.py));
}
