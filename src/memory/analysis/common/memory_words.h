/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Devices, pools and hints, called the same in every answer about memory. Each adds to out. */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_MEMORY_WORDS_H
#define SONDE_MEMORY_ANALYSIS_COMMON_MEMORY_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "memory/dump/row.h"

void words_held(struct buf *out, uint64_t bytes, uint64_t blocks); /* 1.00 MiB in 1 block */

/* "device 0", "host memory" or "an unknown device"; at the beginning of a sentence "Device 0". */
void words_device(struct buf *out, uint32_t device, bool begins_sentence);

/* "PTA", "HAL", …: as in the dumps. */
static inline const char *words_pool(enum row_type type)
{
	return row_type_text(type, ROW_SEED);
}

/* Does this command line run Python? NULL: not known. */
bool words_is_python(const char *command);
/* What to record so that call stacks are there: "--call-stack=python (call_stack=… )". */
void words_stacks_hint(struct buf *out, bool python);

/* How a job says where its steps are; ends a sentence that begins with "Mark the steps of the job".
 */
#define WORDS_MARK_STEPS                                                                           \
	"msmemscope.step() at the end of each (Python), mstx ranges named \"step start\", or "     \
	"sonde_step()."

#endif
