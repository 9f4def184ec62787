/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Records of sampled stacks and counters. */
#ifndef SONDE_WIRE_RECORD_SAMPLES_H
#define SONDE_WIRE_RECORD_SAMPLES_H

#include "wire/record.h"

/*
 * Python stacks as the recorder samples them from outside, and counters: of no process of the
 * recording (PROC_NONE), since processes that have not joined it are sampled, too. A stack is its
 * innermost call, each of which knows its caller:
 *
 *	REC_FRAME   1: main (t.py), of 0      REC_FRAME   2: train (t.py), of 1
 *	REC_SAMPLE  thread 7 of process 5: 2  ->  main, train
 *
 * A thread's sample counts until its next one; frame 0: it is not sampled any more. One whose stack
 * has not changed comes again after a while, so that what a recorder that was killed has seen is
 * known.
 */
#define PROC_NONE UINT32_MAX

struct rec_frame {
	struct rec head;
	uint32_t id; /* counted from 1, of this recorder */
	uint32_t caller; /* 0: nothing called it */
	int32_t line; /* the first one of the function; 0: not known */
	uint16_t len;
	uint16_t reserved;
	char text[]; /* name \0 file */
};

enum rec_sample_flags {
	SAMPLE_GC = 1 << 0, /* the collector runs, called by the frame */
	SAMPLE_KEPT_SHIFT = 8, /* above: how many calls, the outermost first, go on since the
				* sample before; the others are new, even where they are alike */
};

struct rec_sample {
	struct rec head;
	uint32_t pid, tid; /* as the process knows them, where that is known */
	uint32_t frame;
	uint32_t flags; /* enum rec_sample_flags */
};

/* What a process is among the others of its job, as far as whoever looks at all of them can see. */
enum sampled_role { SAMPLED_UNKNOWN, SAMPLED_RANK, SAMPLED_HELPER, SAMPLED_LAUNCHER };

/* Before its first sample, and again when more is known. */
struct rec_sampled {
	struct rec head;
	uint32_t pid;
	uint32_t tid; /* 0: the process, and the text is its command; else the thread's name */
	int32_t rank; /* of the process, or of the one that it helps; -1: not known */
	uint16_t len;
	uint8_t role; /* enum sampled_role, of a process */
	uint8_t reserved;
	char text[];
};

enum rec_counter_track { COUNTER_OF_NPU, COUNTER_OF_GPU, COUNTER_OF_HOST, COUNTER_OF_PROCESS };

struct rec_counter {
	struct rec head;
	double value;
	uint32_t pid; /* of COUNTER_OF_PROCESS */
	int32_t card; /* -1 */
	uint8_t track; /* enum rec_counter_track */
	uint8_t reserved[5];
	uint16_t len;
	char text[];
};

_Static_assert(sizeof(struct rec_frame) == 32, "rec_frame changed size");
_Static_assert(sizeof(struct rec_sample) == 32, "rec_sample changed size");
_Static_assert(sizeof(struct rec_sampled) == 32, "rec_sampled changed size");
_Static_assert(sizeof(struct rec_counter) == 40, "rec_counter changed size");

#endif
