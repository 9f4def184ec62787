/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Numbers as small pictures of characters: a line of the course of a number, a bar of a share. Where
 * the locale says that the terminal does not show UTF-8 they are made of ASCII.
 */
#ifndef SONDE_BASE_TEXT_SPARKLINE_H
#define SONDE_BASE_TEXT_SPARKLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"

/* By LC_ALL, LC_CTYPE, LANG; true if none of them is set. */
bool text_is_utf8_locale(void);
/* Adds the text; of characters that are not ASCII a word of ASCII, or '?'. For other locales. */
void text_add_ascii(struct buf *out, const char *text, size_t len);

/*
 * Adds one character for each of `columns` equal parts of the n values, as high as the highest of
 * its part compared with `most` (0: with the highest of all). Fewer values are fewer columns.
 */
void text_add_sparkline(struct buf *out, const uint64_t *values, size_t n, unsigned columns,
			uint64_t most);
/* Adds exactly `columns` columns of which part / whole are filled. */
void text_add_bar(struct buf *out, uint64_t part, uint64_t whole, unsigned columns);

#endif
