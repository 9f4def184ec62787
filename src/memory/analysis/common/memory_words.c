/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/memory_words.h"

#include <string.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "memory/analysis/common/blocks.h"
#include "wire/record.h"

/* Words that are a number alone. */
static void (*const numbers[WORD_KINDS])(struct buf *out, uint64_t n) = {
	[WORD_NUMBER] = buf_add_u64,
	[WORD_COUNT] = words_count,
	[WORD_BYTES] = words_bytes,
	[WORD_DURATION] = words_time,
};

static void add_word(struct buf *out, const struct word *w)
{
	char device[16];

	if (numbers[w->kind])
		numbers[w->kind](out, w->n);
	else if (w->kind == WORD_COUNT_OF)
		words_of(out, w->n, w->text);
	else if (w->kind == WORD_HELD)
		add_text(out, "{} in {}", BYTES(w->n), COUNT_OF(w->blocks, "block"));
	else if (w->kind == WORD_WHERE)
		stacks_where(w->stacks, (uint32_t)w->n, out);
	else if (w->kind == WORD_PLACE)
		stacks_place(w->stacks, (uint32_t)w->n, out);
	else if (w->kind == WORD_PRINTABLE)
		text_add_printable(out, w->text, strlen(w->text));
	else
		buf_add_str(out, w->kind == WORD_DEVICE ? blocks_device_name((uint32_t)w->n, device)
				 : w->kind == WORD_POOL ? words_pool((enum row_type)w->n)
							: w->text);
}

void words_add(struct buf *out, const char *text, const struct word *words, size_t n)
{
	size_t i = 0;

	for (const char *gap; (gap = strstr(text, "{}")); text = gap + 2) {
		BUG_ON(i == n);
		buf_add(out, text, (size_t)(gap - text));
		add_word(out, &words[i++]);
	}
	BUG_ON(i != n);
	buf_add_str(out, text);
}

void words_device(struct buf *out, uint32_t device, bool begins_sentence)
{
	if (device == DEV_HOST)
		buf_add_str(out, begins_sentence ? "Host memory" : "host memory");
	else if (device == DEV_NONE)
		buf_add_str(out, begins_sentence ? "An unknown device" : "an unknown device");
	else
		add_text(out, "{} {}", TEXT(begins_sentence ? "Device" : "device"), NUMBER(device));
}

bool words_is_python(const char *command)
{
	size_t len = command ? strcspn(command, " ") : 0;
	const char *slash = len ? memrchr(command, '/', len) : NULL;

	return len && !strncmp(slash ? slash + 1 : command, "python", strlen("python"));
}

void words_stacks_hint(struct buf *out, bool python)
{
	buf_addf(out, "No call stacks were recorded; %s shows where blocks come from.",
		 python ? "--call-stack=python (call_stack=\"python\" of msmemscope.config())"
			: "--call-stack=c");
}

/* Is that what two digits behind the point say? */
static bool is_rounded(uint64_t bytes)
{
	uint64_t unit = 1024;

	while (unit < 1ull << 40 && bytes >= unit * 1024)
		unit *= 1024;
	return bytes >= 1024 && bytes % unit * 100 % unit;
}

void words_blocks_of(struct buf *out, bool mappings, uint64_t bytes, uint64_t up_to)
{
	add_text(out, "{} of {}{}", TEXT(mappings ? "mappings" : "blocks"),
		 TEXT(bytes ? "" : "up to "), BYTES(bytes ? bytes : up_to));
	if (is_rounded(bytes))
		add_text(out, " ({})", COUNT_OF(bytes, "byte"));
	add_text(out, " without a call stack");
}
