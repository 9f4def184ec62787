/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Values of the options of `sonde ctl`, for OPT_CALL rows. Each stores at opt->offset. */
#ifndef SONDE_CLI_CTL_VALUES_H
#define SONDE_CLI_CTL_VALUES_H

#include <jansson.h>

#include "base/text/args.h"

#define CTL_VALUE(name)                                                                            \
	int name(struct args *a, const struct opt *opt, const char *value, struct err *err)

CTL_VALUE(ctl_value_u64); /* uint64_t, as large as JSON numbers are: up to 2^63 - 1 */
CTL_VALUE(ctl_value_i64); /* int64_t */
CTL_VALUE(ctl_value_positive); /* int64_t > 0 */
CTL_VALUE(ctl_value_step); /* int64_t >= -1 */
CTL_VALUE(ctl_value_seconds); /* float >= 0 */
CTL_VALUE(ctl_value_text); /* const char *: one that can stand in a config text */
CTL_VALUE(ctl_value_path); /* the same, a path */
CTL_VALUE(ctl_value_pids); /* const char *: a list of numbers, see ctl_pids() */
/* Comma lists, put without blanks into the char[CONFIG_TEXT_MAX + 1]: */
CTL_VALUE(ctl_value_kinds);
CTL_VALUE(ctl_value_host_systems); /* "None" is empty */
CTL_VALUE(ctl_value_ranks);
/* Numbers as text, into the char[16]; empty is as if not given: */
CTL_VALUE(ctl_value_rotate_lines);
CTL_VALUE(ctl_value_rotate_files);

/* A finite decimal number. */
bool ctl_float(const char *text, float *out);

/* Whether it is one of the words, which end with NULL. */
bool ctl_is_one_of(const char *const *choices, const char *word, size_t len);

/* The checked text of --pids as an array. A new reference. */
json_t *ctl_pids(const char *text);

#endif
