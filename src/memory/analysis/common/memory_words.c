/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/memory_words.h"

#include <string.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "memory/analysis/common/blocks.h"
#include "wire/record.h"

static void add_word(struct buf *out, const struct word *w)
{
	char device[16];

	switch (w->kind) {
	case WORD_NUMBER:
		buf_add_u64(out, w->n);
		break;
	case WORD_COUNT:
		words_count(out, w->n);
		break;
	case WORD_COUNT_OF:
		words_of(out, w->n, w->text);
		break;
	case WORD_BYTES:
		words_bytes(out, w->n);
		break;
	case WORD_HELD:
		words_bytes(out, w->n);
		buf_add_str(out, " in ");
		words_of(out, w->blocks, "block");
		break;
	case WORD_DURATION:
		words_time(out, w->n);
		break;
	case WORD_TEXT:
		buf_add_str(out, w->text);
		break;
	case WORD_PRINTABLE:
		text_add_printable(out, w->text, strlen(w->text));
		break;
	case WORD_DEVICE:
		buf_add_str(out, blocks_device_name((uint32_t)w->n, device));
		break;
	case WORD_POOL:
		buf_add_str(out, words_pool((enum row_type)w->n));
		break;
	}
}

void say_words(struct buf *out, const char *text, const struct word *words, size_t n)
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

bool say_where(struct buf *out, const char *before, const struct stacks *s, uint32_t stack,
	       const char *after)
{
	struct buf where = {0};
	bool known = stacks_where(s, stack, &where);

	if (known)
		buf_addf(out, "%s%s%s", before, buf_str(&where), after);
	buf_release(&where);
	return known;
}

void words_device(struct buf *out, uint32_t device, bool begins_sentence)
{
	if (device == DEV_HOST)
		buf_add_str(out, begins_sentence ? "Host memory" : "host memory");
	else if (device == DEV_NONE)
		buf_add_str(out, begins_sentence ? "An unknown device" : "an unknown device");
	else
		say(out, "{} {}", TEXT(begins_sentence ? "Device" : "device"), NUMBER(device));
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
