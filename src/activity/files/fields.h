/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a line of Jsonl says about an activity of each kind: keys in the order of the alphabet, and
 * where their values are. The writer, the reader and the CSV export go by the same rows.
 */
#ifndef SONDE_ACTIVITY_FILES_FIELDS_H
#define SONDE_ACTIVITY_FILES_FIELDS_H

#include <stddef.h>
#include <stdint.h>

enum field_type {
	FIELD_U64,
	FIELD_U32,
	FIELD_TEXT,
	FIELD_KIND, /* as text */
	FIELD_SOURCE, /* "Host", "Device" */
	FIELD_DATA_TYPE, /* as text */
	FIELD_COPY_KIND, /* as text */
	FIELD_OPERATION, /* "allocate", "release" */
	FIELD_BOOL, /* of a byte */
};

struct activity_field {
	const char *key; /* NULL ends a list */
	enum field_type type;
	size_t offset; /* in struct activity */
};

/* The fields of a kind, of a marker on the host or on a device; NULL: there is no such kind. */
const struct activity_field *activity_fields(uint8_t kind, uint8_t place);

#endif
