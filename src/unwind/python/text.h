/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Python's str as UTF-8, and its bytes. Works in both worlds: the caller brings the room. */
#ifndef SONDE_UNWIND_PYTHON_TEXT_H
#define SONDE_UNWIND_PYTHON_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "unwind/python/layout.h"
#include "unwind/python/reader.h"

/*
 * The str at `addr` as UTF-8 with NUL behind it, cut at a character where `cap` ends it. Lone
 * surrogates and NUL become U+FFFD. Returns its bytes, or a negative errno: -EPROTO if there is no
 * str.
 */
ssize_t python_text(const struct python_reader *r, const struct python_layout *l, uint64_t addr,
		    char *out, size_t cap);

/* A number that texts at the same address have in common only if they are the same in all likelihood:
 * of its length and its last characters. 0: there is no str. */
uint64_t python_text_mark(const struct python_reader *r, const struct python_layout *l,
			  uint64_t addr);

/* The bytes object at `addr`: its length, of which at most cap bytes are copied. */
ssize_t python_bytes(const struct python_reader *r, const struct python_layout *l, uint64_t addr,
		     void *out, size_t cap);

#endif
