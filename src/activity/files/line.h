/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One line of JSON: a flat object. A parser of our own, because there are millions of lines, and
 * numbers of 64 bits must stay what they are. Strict: what is no JSON is refused; values that are
 * arrays or objects are passed over.
 */
#ifndef SONDE_ACTIVITY_FILES_LINE_H
#define SONDE_ACTIVITY_FILES_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"

#define LINE_MAX_MEMBERS 32 /* those behind them are passed over */

enum value_type { VALUE_TEXT, VALUE_NUMBER, VALUE_NEGATIVE, VALUE_BOOL, VALUE_OTHER };

struct member {
	const char *key;
	size_t key_len;
	enum value_type type;
	uint64_t number; /* of a negative one its amount; of a bool 0 or 1 */
	const char *text; /* as it stands between the quotes */
	size_t text_len;
	bool escaped;
};

struct line {
	const char *p, *end;
	struct member members[LINE_MAX_MEMBERS];
	unsigned n;
};

/* False: it is not well formed. Members point into the text. */
bool line_parse(struct line *l, const char *text, size_t len);

/* The first member of this name; NULL. */
const struct member *line_find(const struct line *l, const char *key);

/* The text of a member without escapes, in scratch or where it is; it may hold any bytes. */
const char *line_text(const struct member *m, struct buf *scratch, size_t *out_len);

#endif
