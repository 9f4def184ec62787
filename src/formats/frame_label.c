/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/frame_label.h"

#include <string.h>

#include "base/text/text.h"

static const char *last_parts(const char *file)
{
	const char *at = file + strlen(file);

	for (unsigned slashes = 0; at > file; at--)
		if (at[-1] == '/' && ++slashes == 2)
			break;
	return at;
}

/* By hand, because most events of a timeline have one. */
void frame_label(char out[FRAME_LABEL_BYTES], const char *name, const char *file, int32_t line)
{
	char *p = put_bytes(out, name, strnlen(name, FRAME_LABEL_BYTES / 2));

	file = last_parts(file);
	if (*file) {
		p = put_bytes(p, " (", 2);
		p = put_bytes(p, file, strnlen(file, FRAME_LABEL_BYTES / 2 - 32));
		if (line > 0) {
			*p++ = ':';
			p = put_u64(p, (uint64_t)line);
		}
		*p++ = ')';
	}
	*p = '\0';
}
