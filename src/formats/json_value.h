/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * JSON of ours, in two ways. Answers are built as values of Jansson: put_*() add members, written
 * the same way everywhere. Files of millions of lines are written as text: json_text_add() and
 * put_json_text() make the strings in them. Either way the result is valid whatever a job called
 * its things: ill-formed bytes become U+FFFD. Numbers stop at the largest that a signed JSON number
 * has; nothing true is larger.
 */
#ifndef SONDE_FORMATS_JSON_VALUE_H
#define SONDE_FORMATS_JSON_VALUE_H

#include "base/containers/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

json_t *text_value(const char *text, size_t len); /* a new value */
json_t *lines_value(const struct buf *text); /* a new list of the lines */

void put_number(json_t *o, const char *key, uint64_t v);
void put_known(json_t *o, const char *key, bool known, uint64_t v); /* null where not known */
void put_bool(json_t *o, const char *key, bool v);
void put_text(json_t *o, const char *key, const char *text); /* NULL: null */
void put_address(json_t *o, const char *key, uint64_t v);

/* --- text by hand --- */

/* Room put_json_text() needs for at most `max` bytes between the quotes. */
#define JSON_TEXT_ROOM(max) ((max) + 16)

/*
 * The text in quotes, escaped, ill-formed bytes as U+FFFD; longer than `max` bytes it is cut and
 * ends with "…". Writes at `p` without a check and returns the end. `scratch` is anybody's.
 */
char *put_json_text(char *p, const char *text, size_t max, struct buf *scratch);

/* The same added to `out`, whole or cut. */
void json_text_add(struct buf *out, const char *text, struct buf *scratch);
void json_text_add_cut(struct buf *out, const char *text, size_t max, struct buf *scratch);

#endif
