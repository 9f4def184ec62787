/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How the option values of `msmemscope` are read: one function per option, each the parse() of a
 * row of mem_option_table, so with args.target = struct mem_options. A later use of an option
 * replaces an earlier one.
 */
#ifndef SONDE_MEMORY_OPTIONS_VALUES_H
#define SONDE_MEMORY_OPTIONS_VALUES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text/args.h"

int mem_parse_steps(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_max_size(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_device(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_level(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_events(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_call_stack(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_analysis(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_watch(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_output(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_input(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_log_level(struct args *a, const struct opt *opt, const char *value, struct err *err);
int mem_parse_compat(struct args *a, const struct opt *opt, const char *value, struct err *err);

/* The next item of a list and the rest behind it. Items end at `,` or at U+FF0C, which is taken as
 * the character it is. Empty items are skipped. */
struct mem_item {
	const char *text;
	size_t len;
};
bool mem_list_next(const char **pos, struct mem_item *out_item);

#endif
