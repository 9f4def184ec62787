/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Values of options that more than one command about stacks takes. */
#ifndef SONDE_SAMPLER_SESSION_VALUES_H
#define SONDE_SAMPLER_SESSION_VALUES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/text/args.h"

/* "0.1", "60", "1e-3", "5ms", "200us", "2m", "1.5h": seconds unless a unit is behind it. */
bool stack_seconds(const char *text, uint64_t *out_ns);

/* opt.parse: sets the uint64_t at opt.offset to nanoseconds. opt.min: least, in microseconds. */
int stack_parse_seconds(struct args *a, const struct opt *opt, const char *value, struct err *err);

/* Milliseconds, rounded up; the most there can be if there are more. */
unsigned stack_ms(uint64_t ns);

/* A list that grows while options are parsed; texts are borrowed. */
struct stack_pids {
	pid_t *list;
	unsigned n;
	size_t cap;
};
struct stack_texts {
	const char **list;
	unsigned n;
	size_t cap;
};

void stack_pids_release(struct stack_pids *p);
void stack_texts_release(struct stack_texts *t);

/* Once, however often it is added. */
void stack_pid_add(struct stack_pids *p, pid_t pid);

/* opt.parse: adds the pids of a comma list to the struct stack_pids at opt.offset, each once. */
int stack_parse_pids(struct args *a, const struct opt *opt, const char *value, struct err *err);
/* opt.parse: adds the text to the struct stack_texts at opt.offset. */
int stack_parse_text(struct args *a, const struct opt *opt, const char *value, struct err *err);

#endif
