/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What daemons write, made fit for terminals: columns and escapes. */
#ifndef SONDE_BASE_TEXT_DISPLAY_WIDTH_H
#define SONDE_BASE_TEXT_DISPLAY_WIDTH_H

#include <stddef.h>

#include "base/containers/buf.h"

/* How many bytes of UTF-8 text fit into `width` columns (0: all of them), and how many columns
 * these take: two for a Chinese character, none for an accent by itself. */
size_t text_fit_columns(const char *text, size_t len, unsigned width, unsigned *out_columns);

/* Adds the text in lines of at most `width` columns (0: one line), broken between words where that
 * is possible; lines after the first are indented. `before` and `behind` go around each line and
 * take no columns. */
void text_add_wrapped(struct buf *out, const char *text, size_t len, unsigned width,
		      const char *before, const char *behind);

/* Adds JSON that has been read without an error, as it is but in one line, and with the characters
 * that a terminal would obey (C1, DEL, those that turn the direction) written as \uXXXX. */
void text_add_terminal_json(struct buf *out, const char *json, size_t len);

#endif
