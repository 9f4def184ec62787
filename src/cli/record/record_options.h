/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The options of `sonde record`, and what follows from them. */
#ifndef SONDE_CLI_RECORD_RECORD_OPTIONS_H
#define SONDE_CLI_RECORD_RECORD_OPTIONS_H

#include "memory/options/options.h"
#include "wire/control_page.h"

enum record_part {
	PART_MEMORY = 1 << 0,
	PART_KERNELS = 1 << 1,
	PART_STACKS = 1 << 2,
	PART_COUNTERS = 1 << 3,
	PART_ALL = 15,
};

struct record_options {
	struct mem_options mem; /* first: its functions read rows of our table, too */
	unsigned what; /* enum record_part */
	const char *mspti;
	const char *clocks, *certs; /* NULL: see choose_peer() */
	bool api, dump;
	uint32_t first_step, last_step; /* 0: all */
	uint64_t duration_ns, last_ns, interval_ns;
};

extern const struct opt record_option_table[];

int record_options_init(struct record_options *o, struct err *err);
/* After the last option. */
int record_options_finish(struct record_options *o, struct session_record *out, struct err *err);

#endif
