/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the analyses of memory find, as instants where it begins: leaks, inefficient memory, the peak. */
#ifndef SONDE_TIMELINE_MEMORY_FINDINGS_H
#define SONDE_TIMELINE_MEMORY_FINDINGS_H

#include "memory/analysis/common/blocks.h"
#include "timeline/timeline.h"

struct memory_findings;

/* accesses: of memory may have been recorded; without them none is inefficient. */
struct memory_findings *memory_findings_new(bool accesses);
void memory_findings_free(struct memory_findings *f);
uint64_t memory_findings_attrs(void); /* attributes of rows that they need */

void memory_findings_row(struct memory_findings *f, const struct row *row);
void memory_findings_process(struct memory_findings *f, uint32_t pid, const char *command);

/* The process of a pid; NULL: it is not shown. */
typedef struct timeline_process *(*memory_findings_process_fn)(void *arg, uint32_t pid);
/* Puts what was found beside the memory of its process; of the blocks the peaks. */
void memory_findings_put(struct memory_findings *f, const struct blocks *blocks,
			 memory_findings_process_fn process, void *arg);

#endif
