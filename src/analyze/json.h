/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Members of JSON answers, written the same way by every analysis. Whatever a job called its
 * things, the answer is valid: ill-formed bytes become U+FFFD. Numbers stop at the largest that a
 * signed JSON number has; nothing true is larger.
 */
#ifndef SONDE_ANALYZE_JSON_H
#define SONDE_ANALYZE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analyze/stacks.h"
#include "base/buf.h"
#include "export/row.h"

json_t *text_value(const char *text, size_t len); /* a new value */
json_t *lines_value(const struct buf *text); /* a new list of the lines */

void put_number(json_t *o, const char *key, uint64_t v);
void put_known(json_t *o, const char *key, bool known, uint64_t v); /* null where not known */
void put_bool(json_t *o, const char *key, bool v);
void put_text(json_t *o, const char *key, const char *text); /* NULL: null */
void put_address(json_t *o, const char *key, uint64_t v);

void put_device(json_t *o, uint32_t device); /* "device": "0", "cpu" or "N/A" */
void put_pool(json_t *o, enum row_type type); /* "pool": "PTA", … */
/* "where": the function that names the place of a call stack, or null. */
void put_where(json_t *o, const struct stacks *s, uint32_t stack);
/* The same, and "c_stack" and "python_stack": lists of lines. */
void put_stack(json_t *o, const struct stacks *s, uint32_t stack);

#endif
