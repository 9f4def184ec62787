/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The option table of `msmemscope` and how its values become a struct mem_config. */
#ifndef SONDE_MEMORY_OPTIONS_OPTIONS_H
#define SONDE_MEMORY_OPTIONS_OPTIONS_H

#include "base/text/args.h"
#include "memory/options/config.h"

/* The target of the table: the configuration and what the log options said so far. */
struct mem_options {
	struct mem_config config;
	bool log_level_given;
	bool verbose, quiet;
	bool compat_given;
	unsigned report; /* 0: not given, else one more than enum mem_report */
};

extern const struct opt mem_option_table[];

/* Defaults. */
int mem_options_init(struct mem_options *o, struct err *err);

/* Before the first option, of commands whose recording is asked, not read row by row: it alone is
 * written, with a few frames of Python, so that the first answer names a line. */
void mem_options_for_answers(struct mem_config *c);

/* After the last option: settles what depends on several of them and on the environment. */
int mem_options_finish(struct mem_options *o, struct err *err);

#endif
