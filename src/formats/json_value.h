/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Members of JSON answers, written the same way everywhere. Whatever a job called its things, the
 * answer is valid: ill-formed bytes become U+FFFD. Numbers stop at the largest that a signed JSON
 * number has; nothing true is larger.
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

#endif
