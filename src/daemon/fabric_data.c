/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/fabric_data.h"

#include <stdbool.h>

/* Whether the text nests no deeper than it may; of text that is no JSON, it says anything. */
static bool shallow(const char *text, size_t len)
{
	unsigned depth = 0;
	bool in_string = false;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (in_string && c == '\\')
			i++;
		else if (c == '"')
			in_string = !in_string;
		else if (in_string)
			continue;
		else if ((c == '{' || c == '[') && ++depth > FABRIC_DATA_DEPTH)
			return false;
		else if ((c == '}' || c == ']') && depth)
			depth--;
	}
	return true;
}

json_t *fabric_data_parse(const char *text, size_t len)
{
	json_error_t error;

	if (len > FABRIC_DATA_MAX || !shallow(text, len))
		return NULL;
	json_t *record = json_loadb(text, len, 0, &error);
	if (record && !json_is_object(record)) {
		json_decref(record);
		return NULL;
	}
	return record;
}
