/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Numbers that come as text from outside. */
#ifndef SONDE_BASE_TEXT_NUMBER_READ_H
#define SONDE_BASE_TEXT_NUMBER_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole text is a decimal number, with a sign or without, that fits: no blanks, nothing behind
 * it. `out` is untouched otherwise. */
bool number_read(const char *text, size_t len, int64_t *out);

#endif
