/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/json_depth.h"

#include <stdbool.h>

unsigned json_depth(const char *text, size_t len)
{
	unsigned depth = 0, deepest = 0;
	bool quoted = false;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '"') {
			quoted = !quoted;
		} else if (quoted) {
			i += c == '\\';
		} else if (c == '{' || c == '[') {
			depth++;
			deepest = depth > deepest ? depth : deepest;
		} else if ((c == '}' || c == ']') && depth) {
			depth--;
		}
	}
	return deepest;
}
