/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How deep JSON is nested, counted over its bytes before a parser sees them: parsers call
 * themselves for every level.
 */
#ifndef SONDE_BASE_TEXT_JSON_DEPTH_H
#define SONDE_BASE_TEXT_JSON_DEPTH_H

#include <stddef.h>

/* How many objects and arrays are inside each other: 0 for "7". Of text that is no JSON, anything.
 */
unsigned json_depth(const char *text, size_t len);

#endif
