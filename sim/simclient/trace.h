/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The steps that a profiler saw, and the Chrome trace that is made of them.
 */
#ifndef SIM_CLIENT_TRACE_H
#define SIM_CLIENT_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_STEPS 4096 /* a trace keeps no more */

struct trace {
	struct {
		int step;
		uint64_t start_ns, end_ns; /* CLOCK_REALTIME */
	} steps[TRACE_STEPS];
	int n;
};

void trace_clear(struct trace *t);
void trace_step(struct trace *t, int step, uint64_t start_ns, uint64_t end_ns);

/* Writes the file in one go: who looks for it sees nothing or the whole. `marks`: with a
 * ProfilerStep event per step, which libkineto leaves out of traces on demand. Negative errno. */
int trace_write(const struct trace *t, const char *path, bool marks, const char *trace_id);

/* Makes a directory and those above it. */
int trace_mkdirs(const char *path);

#endif
