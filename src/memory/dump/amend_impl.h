/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What amending a file and amending one Attr cell share. Nobody else includes this. */
#ifndef SONDE_MEMORY_DUMP_AMEND_IMPL_H
#define SONDE_MEMORY_DUMP_AMEND_IMPL_H

#include "memory/dump/amend.h"

#include <stdbool.h>
#include <stddef.h>

struct amend {
	const char *path; /* no link */
	amend_lookup find;
	void *arg;
	const char *inefficient_key; /* as the file spells it */
	uint64_t rows; /* changed */
	struct buf cell; /* the new Attr */
};

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

/* `{key:value,…}` and `{"key":"value",…}`. */
extern const struct amend_form amend_csv_form, amend_json_form;

/*
 * Makes a->cell out of a well-formed Attr text; false when nothing has changed. The new pairs go
 * where their keys are, or where they belong. Where there was room, the cell is as long as before,
 * if that is possible.
 */
bool amend_attrs(struct amend *a, const struct amend_form *form, const char *text, size_t len,
		 const struct amendment *finding);

#endif
