/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Amends finished dumps (memory/dump/amend.h) while the recorder goes on. A dump of gigabytes takes
 * seconds, and meanwhile the buffers of processes that live on would run over. So a large one is
 * given to a copy of the recorder, made by fork(): it knows what was found up to that moment, and
 * nobody waits for anybody. The copy ends with the recorder.
 */
#ifndef SONDE_MEMORY_OUTPUTS_AMENDER_H
#define SONDE_MEMORY_OUTPUTS_AMENDER_H

#include "memory/dump/amend.h"

#include <stdbool.h>

struct amender;

/* aside: give large files to copies; false: do everything at once. */
struct amender *amender_new(enum row_compat compat, bool aside);
void amender_free(struct amender *a); /* waits for all; a may be NULL */

void amender_file(struct amender *a, const char *path, amend_lookup find, void *arg);

/* Is a file being amended? Tells what has come of those that are through. */
bool amender_busy(struct amender *a);

/* Bytes of the files that are being written anew, and of what has been written of the new ones. */
void amender_progress(const struct amender *a, uint64_t *out_done, uint64_t *out_all);

/* Files that are as they were before, since amending them failed. */
uint64_t amender_failed(const struct amender *a);

#endif
