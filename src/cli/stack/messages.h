/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Messages of the sampler: on stderr unless --quiet, and in the log of the output in any case. */
#ifndef SONDE_CLI_STACK_MESSAGES_H
#define SONDE_CLI_STACK_MESSAGES_H

#include "cli/stack/session.h"

/* Starts "<output>.log". No log if the output is no ordinary file, or there is no place for it. */
void stack_say_open(const struct stack_session *s);
void stack_say_close(void);

__attribute__((format(printf, 2, 3))) void stack_say(struct stack_session *s, const char *fmt, ...);
/* Also with --quiet. */
__attribute__((format(printf, 2, 3))) void stack_warn(struct stack_session *s, const char *fmt,
						      ...);
/* On stderr only with --verbose. */
__attribute__((format(printf, 2, 3))) void stack_detail(struct stack_session *s, const char *fmt,
							...);

/* One line on a terminal that overwrites itself, a few times per second at most. */
void stack_say_line(struct stack_session *s, uint64_t now_ns);

#endif
