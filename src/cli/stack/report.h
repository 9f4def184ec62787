/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a sampling came to, in words and as JSON. */
#ifndef SONDE_CLI_STACK_REPORT_H
#define SONDE_CLI_STACK_REPORT_H

#include <jansson.h>

#include "cli/stack/session.h"

/* For a session that is closed. Lines for stderr. */
void stack_report_say(struct stack_session *s);
json_t *stack_report_json(const struct stack_session *s);

/* Text for --dry-run; job: NULL or the words of the command. */
void stack_report_plan(const struct stack_options *o, char *const *job, struct buf *out);

#endif
