/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The pairs of an Attr cell, as the two formats of dumps write them. */
#ifndef SONDE_MEMORY_DUMP_AMEND_PAIRS_H
#define SONDE_MEMORY_DUMP_AMEND_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/containers/buf.h"

/* A pair of an Attr cell as it stands there. */
struct amend_pair {
	const char *text;
	size_t len;
	const char *key; /* in the text */
	size_t key_len;
};

struct amend_form {
	bool (*next)(const char **at, const char *end, struct amend_pair *out);
	void (*put)(struct buf *out, const char *key, size_t key_len, const char *value);
};

extern const struct amend_form amend_csv, amend_json;

#endif
