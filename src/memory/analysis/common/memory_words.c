/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/memory_words.h"

#include <string.h>

#include "base/text/plain_words.h"
#include "wire/record.h"

void words_held(struct buf *out, uint64_t bytes, uint64_t blocks)
{
	words_bytes(out, bytes);
	buf_add_str(out, " in ");
	words_of(out, blocks, "block");
}

void words_device(struct buf *out, uint32_t device, bool begins_sentence)
{
	if (device == DEV_HOST)
		buf_add_str(out, begins_sentence ? "Host memory" : "host memory");
	else if (device == DEV_NONE)
		buf_add_str(out, begins_sentence ? "An unknown device" : "an unknown device");
	else
		buf_addf(out, "%s %u", begins_sentence ? "Device" : "device", device);
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
