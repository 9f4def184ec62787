/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Python's pickle, written by hand: instructions for a machine with a stack and a memo of numbered
 * values. Only instructions that the unpickler of PyTorch's memory viewer in the browser knows, too.
 */
#ifndef SONDE_FORMATS_PICKLE_H
#define SONDE_FORMATS_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"

void pickle_begin(struct buf *out); /* protocol 4 */
void pickle_end(struct buf *out);

/* Values. A list: pickle_list(), then each value with pickle_append() behind it. */
void pickle_list(struct buf *out);
void pickle_append(struct buf *out);
/* A dictionary: pickle_dict(), pickle_mark(), keys and values in turn, pickle_set_items(). */
void pickle_dict(struct buf *out);
void pickle_mark(struct buf *out);
void pickle_set_items(struct buf *out);
void pickle_bool(struct buf *out, bool v);
void pickle_number(struct buf *out, uint64_t v); /* up to 2^63 - 1; what is larger becomes that */
void pickle_text(struct buf *out, const char *text,
		 size_t len); /* bytes that are no UTF-8: U+FFFD */
void pickle_pair(struct buf *out); /* of the last two values */

/* Gives the last value a number; puts the value of that number here again. */
void pickle_put(struct buf *out, uint32_t number);
void pickle_get(struct buf *out, uint32_t number);

#endif
