/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The report of the analyses when a job ends: always into a file beside the recording, and once to
 * where the job's user looks. That is our terminal, or what the job's first process has for stderr,
 * which is told to do it (control_page).
 *
 * Processes may live on after the first one. What is found wrong only then goes into the file, and
 * to a terminal.
 */
#ifndef SONDE_MEMORY_OUTPUTS_REPORT_H
#define SONDE_MEMORY_OUTPUTS_REPORT_H

#include "memory/outputs/diagnose.h"
#include "wire/control_page.h"

struct report {
	const char *dir; /* of the recording */
	struct control_page *page;
	const struct mem_config *cfg;
	bool terminal; /* is our stderr one? */
	bool told; /* what there was to say at the end of the first process */
	bool alarmed; /* and something was wrong */
};

void report_tell(struct report *r, struct diagnose *d);

/* To the terminal, if there is one; not if it takes nothing, as after Ctrl-S. */
void report_say(const struct report *r, const char *text, size_t len);

#endif
