/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a session keeps and says about each process that it samples, and one round over all. */
#ifndef SONDE_CLI_STACK_FOLLOW_H
#define SONDE_CLI_STACK_FOLLOW_H

#include "cli/stack/session.h"

/* targets_options.on_new and on_gone; arg is the session. */
void stack_follow_new(void *arg, struct target *t);
void stack_follow_gone(void *arg, struct target *t);

/* Why processes that were named, or are forbidden, cannot be read: once each. */
void stack_follow_complain(struct stack_session *s);

/* Samples all that are open. */
void stack_follow_round(struct stack_session *s);

#endif
