/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Texts of anybody as JSON strings, without a library: for files of millions of them. */
#ifndef SONDE_FORMATS_JSON_TEXT_H
#define SONDE_FORMATS_JSON_TEXT_H

#include <stddef.h>

#include "base/containers/buf.h"

/* Room put_json_text() needs for at most `max` bytes between the quotes. */
#define JSON_TEXT_ROOM(max) ((max) + 16)

/*
 * The text in quotes, escaped, ill-formed bytes as U+FFFD; longer than `max` bytes it is cut and
 * ends with "…". Writes at `p` without a check and returns the end. `scratch` is anybody's.
 */
char *put_json_text(char *p, const char *text, size_t max, struct buf *scratch);

/* The same, whole, added to `out`. */
void json_text_add(struct buf *out, const char *text, struct buf *scratch);

#endif
