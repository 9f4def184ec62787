/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Text from outside, made safe for a terminal: valid UTF-8 without control characters. */
#ifndef SONDE_BASE_TEXT_PRINTABLE_H
#define SONDE_BASE_TEXT_PRINTABLE_H

#include "base/containers/buf.h"

#include <stddef.h>

/* Bytes of the character at the start if it is well-formed and a terminal shows it; else 0. */
size_t text_shown_len(const char *text, size_t len);
/* Adds the text with every control character and every mark that turns its direction as '?'. */
void text_add_printable(struct buf *out, const char *text, size_t len);
/* The same; of more than `max` bytes the first ones, and "...". */
void text_add_shortened(struct buf *out, const char *text, size_t len, size_t max);

#endif
