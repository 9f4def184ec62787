/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What was allocated between two marks of the program and not freed up to a third: for jobs without
 * steps. Of the marks with the wanted text, A is the one with index `start`, from 0, and B and C
 * are the two that follow it on the same device. A block that was allocated between A and B and
 * not freed between A and C is a leak.
 *
 * Each device has its own marks. One without any, as host memory never has, uses those of its
 * process if a single device of the process has marks.
 *
 * Blocks are matched by allocation_id. In dumps without one a free ends every block at its address.
 *
 * The JSON object:
 *
 *	mark, start
 *	marks[]        the `top` most frequent marks of any name: name, count
 *	steps          how many the program marked, by a call or by ranges
 *	findings       leaked blocks
 *	failed         true: some device has too few marks
 *	devices[]      pid, device ("0", "cpu"), marks (how many there are), marks_of_process (true:
 *	               the device has none itself), error (null, or text), blocks, bytes, places[]
 *	               (the `top` largest: pool, blocks, bytes, where, c_stack[], python_stack[]),
 *	               allocations[] (the first 1000: pool, address, bytes, row, time_ns)
 */
#ifndef SONDE_MEMORY_ANALYSIS_LEAKS_MARKS_H
#define SONDE_MEMORY_ANALYSIS_LEAKS_MARKS_H

#include "memory/analysis/common/analysis.h"

/* text is copied; quotes around it do not count. */
struct analysis *leaks_marks_new(const char *text, unsigned start);

/* Could a device not be judged, because it has too few marks? The text says so. */
bool leaks_marks_failed(struct analysis *a);

#endif
