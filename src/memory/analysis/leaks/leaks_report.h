/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the parts of the text share. */
#ifndef SONDE_MEMORY_ANALYSIS_LEAKS_LEAKS_REPORT_H
#define SONDE_MEMORY_ANALYSIS_LEAKS_LEAKS_REPORT_H

#include "memory/analysis/common/report.h"
#include "memory/analysis/leaks/leaks_impl.h"

struct leaks_view {
	struct report report;
	const struct leaks *l;
	const struct leak_answer *a;
};
/* "  Process 12, device 0, PTA: " */
void leaks_print_site(const struct leaks_view *g, const struct leak_site *s);
/* The call stack of a site, or the size of its blocks; 0: they differ. */
void leaks_print_frames(const struct leaks_view *g, const struct leak_site *s, unsigned indent,
			uint64_t block_bytes);
/* What processes without steps left at their end, and what was not given back to the driver. */
void leaks_print_left(const struct leaks_view *g, bool any_steps);
void leaks_print_driver_left(const struct leaks_view *g);

#endif
