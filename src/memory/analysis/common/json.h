/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Members of JSON answers that every analysis of memory has. */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_JSON_H
#define SONDE_MEMORY_ANALYSIS_COMMON_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "memory/analysis/common/stacks.h"
#include "memory/dump/row.h"

void put_device(json_t *o, uint32_t device); /* "device": "0", "cpu" or "N/A" */
void put_pool(json_t *o, enum row_type type); /* "pool": "PTA", … */
/* "where": the function that names the place of a call stack, or null. */
void put_where(json_t *o, const struct stacks *s, uint32_t stack);
/* The same, and "c_stack" and "python_stack": lists of lines. */
void put_stack(json_t *o, const struct stacks *s, uint32_t stack);

#endif
