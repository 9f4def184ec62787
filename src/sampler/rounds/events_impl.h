/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What events.c (which frames ended and began) and sampler/rounds/events_write.c (how that is
 * written) share. */
#ifndef SONDE_SAMPLER_ROUNDS_EVENTS_IMPL_H
#define SONDE_SAMPLER_ROUNDS_EVENTS_IMPL_H

#include "base/containers/hmap.h"
#include "sampler/rounds/events.h"

#define EVENTS_OWN_TIDS (1 << 22) /* Linux gives smaller ones */

/* A frame that has begun and not ended. Texts are interned. */
struct open_frame {
	const char *name, *file;
	int32_t first_line;
	int32_t line; /* the last one seen */
	int32_t label_line; /* in its label; 0: none */
};

struct thread_track {
	int64_t tid; /* in the trace */
	const char *name; /* as told; interned */
	bool main;
	unsigned order; /* in which threads of the process were seen */
	uint64_t round; /* of the process in which it was last there */
	int64_t ts_ns; /* of its last event: time never goes back */
	struct open_frame *frames; /* outermost first; the collector may be the innermost */
	size_t cap;
	unsigned n;
	bool gc;
};

struct process_track {
	uint64_t serial;
	int64_t pid;
	char *label;
	int rank;
	unsigned order;
	uint64_t round;
	uint64_t time_ns; /* of the copy that was told last */
	unsigned next_order;
	struct hmap threads; /* serial to struct thread_track */
};

struct events {
	struct events_options o;
	int64_t start_real_ns;
	unsigned next_order;
	struct hmap processes; /* serial to struct process_track */
	uint64_t *old; /* serials of threads that are to be dropped */
	size_t old_cap;
	bool told_device[COUNTER_PROCESS]; /* npu, gpu, host: have their names */
};

void events_tell_begin(struct chrome_trace *into, int64_t ts_ns, const struct process_track *p,
		       const struct thread_track *th, const struct open_frame *f);
void events_tell_end(struct chrome_trace *into, int64_t ts_ns, const struct process_track *p,
		     const struct thread_track *th, const struct open_frame *f);
/* Names and places of a process and a thread. */
void events_tell_process(const struct events *e, struct chrome_trace *into,
			 const struct process_track *p);
void events_tell_thread(struct chrome_trace *into, const struct process_track *p,
			const struct thread_track *th);

#endif
