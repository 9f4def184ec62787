/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where the time of a job's steps goes, from the splits of its ranks: which of them is slowest, by
 * how much, and in what.
 *
 * Ranks that wait for each other in collectives have steps of the same length. The slow one is then
 * the one that waits least: it has most time outside of communication, and the others wait that
 * long for it.
 *
 * Only what can be compared is: traces that go to the end of their last step, of ranks that have
 * reported work of a device if any has. If traces were ended by request, these too, and of all the
 * whole steps that they have in common. If ranks come more than once, or say that they are of
 * several jobs, each job is judged by itself.
 */
#ifndef SONDE_ACTIVITY_STEPS_JOB_SUMMARY_H
#define SONDE_ACTIVITY_STEPS_JOB_SUMMARY_H

#include "activity/steps/step_split.h"

/* A device of a rank; of a rank without activities of a device: NULL, and all is idle. */
struct split_row {
	const struct split_rank *rank;
	const struct split_device *device;
	struct split_times mean; /* of a whole step; if some are compared, of those */
	uint32_t steps; /* that the mean is of */
	bool judged; /* it is compared with others, and in the mean of all */
};

enum split_verdict {
	SPLIT_NOT_JUDGED, /* fewer than two to compare */
	SPLIT_SEVERAL_JOBS, /* see `jobs` */
	SPLIT_EVEN,
	SPLIT_SLOW_STEPS, /* its steps are longer */
	SPLIT_WAITED_FOR, /* all steps are equally long, but the others wait in them */
};

/* Times of a step; `others` is the median of all other rows. */
struct split_slowest {
	enum split_verdict verdict;
	size_t row;
	uint32_t common; /* whole steps that were compared; 0: all that each has */
	uint64_t ns, others_ns; /* of the step, or of what of it is no communication */
	enum split_part why; /* the part that is longer by the most */
	uint64_t why_ns, why_others_ns;
	const char *kernel; /* of that part, the one that is longer by the most; NULL: none is */
	uint64_t kernel_ns, kernel_others_ns;
};

/* A kernel in all ranks. */
struct split_sum {
	const char *name;
	enum split_part part;
	uint64_t calls, total_ns;
	uint64_t p99_ns; /* the highest of the ranks */
	int32_t p99_rank;
	unsigned ranks; /* that have it */
};

/* Zero-initialise, add, judge, ask, release. */
struct split_job {
	struct split_rank **ranks;
	size_t nranks, cap;
	struct split_row *rows; /* in the order of ranks */
	size_t nrows;
	struct split_times mean; /* of a step, of the rows that are judged; if none is, of all */
	struct split_slowest slowest;
	struct split_sum *sums; /* by total time, the most first */
	size_t nsums;
	uint64_t busy_ns; /* total of all kernels, those without a name here too */
	struct split_job
		*jobs; /* judged apart, of the same ranks; none if they cannot be distinguished */
	size_t njobs;
	bool part; /* of another, whose ranks they are */
	bool gathered; /* all ranks that have left anything are here: who is not, has not */
	char *notes; /* lines about what could not be read; NULL: none */
};

void split_job_add(struct split_job *j, struct split_rank *r); /* takes it */
void split_job_note(struct split_job *j, const char *line);
void split_job_judge(struct split_job *j); /* once, before any answer */
/* Plain words first, then tables; at most `top` lines each. */
void split_job_text(const struct split_job *j, unsigned top, struct buf *out);
json_t *split_job_json(const struct split_job *j); /* new; NULL: out of memory */
void split_job_release(struct split_job *j);

/* "rank 3", "process 4711 (device 1)" */
void split_row_label(const struct split_row *row, struct buf *out);
/* How much of the communication ran behind compute, in percent; negative: there was none. */
double split_overlap(const struct split_times *t);

/* How much of the communication that nothing hides is waiting for the rank that comes last, in the steps
 * that all compared rows have (activity/steps/waiting.c). */
struct split_waiting {
	uint64_t steps; /* 0: nothing can be compared */
	uint64_t comm_ns, waiting_ns; /* of all rows */
	size_t last; /* the row that comes last most often, */
	uint64_t last_steps; /* in so many of the steps */
};
struct split_waiting split_job_waiting(const struct split_job *j);

/*
 * Ranks that should have left a trace and have not: stopped, hung where nobody could end it, or
 * killed with who recorded it. They are known from the numbers of the others and from how many the
 * job has; not if the request was for some of them, or a process does not know which it is.
 */

/* Ranks [from, to) are missing. Begin with zeros; of a job that is judged. */
struct split_gap {
	uint32_t from, to;
	size_t at;
};
bool split_gap_next(const struct split_job *j, struct split_gap *gap);

#endif
