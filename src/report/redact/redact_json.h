/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Answers as JSON for a page: what pages do not show is dropped, and names are redacted. */
#ifndef SONDE_REPORT_REDACT_REDACT_JSON_H
#define SONDE_REPORT_REDACT_REDACT_JSON_H

#include <jansson.h>

#include "report/redact/redact.h"

/* Changes the value in place; r may be NULL. */
void redact_json(struct redact *r, json_t *value);

#endif
