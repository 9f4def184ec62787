/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Ranks with steps as a test wants them. */
#ifndef SONDE_TESTS_UNIT_STEP_RANKS_H
#define SONDE_TESTS_UNIT_STEP_RANKS_H

#include "activity/steps/job_summary.h"
#include "test.h"

static inline void work(struct step_split *s, uint8_t kind, const char *name, uint64_t start,
			uint64_t end)
{
	struct activity a = {.kind = kind,
			     .place = ACTIVITY_ON_DEVICE,
			     .name = name,
			     .detail = "",
			     .more = "",
			     .start_ns = start,
			     .end_ns = end,
			     .device = 3};

	step_split_add(s, &a, true);
}

static inline void step(struct step_split *s, uint64_t number, uint64_t start, uint64_t end)
{
	step_split_step(s, &(struct split_step){number, start, end, true});
}

#define MS 1000000ull
#define BEGAN 1700000000000000000ull

struct plan {
	int rank;
	uint64_t step, compute, comm, hidden, copy;
};

/* Three steps of a rank as planned: compute, beside the end of which communication runs. */
static inline struct split_rank *rank_of(const struct plan *p)
{
	struct step_split *s = step_split_new();
	struct split_rank *r = split_rank_new();

	for (unsigned i = 0; i < 3; i++) {
		uint64_t at = BEGAN + i * p->step, done = at + p->compute;

		step(s, 10 + i, at, at + p->step);
		work(s, ACTIVITY_KERNEL, "matmul", at, done);
		work(s, ACTIVITY_COMMUNICATION, "hcom_allReduce_", done - p->hidden,
		     done - p->hidden + p->comm);
		if (p->copy)
			work(s, ACTIVITY_MEMCPY, "", done + p->comm, done + p->comm + p->copy);
	}
	step_split_finish(s, r);
	r->rank = p->rank;
	r->pid = 100 + (uint32_t)p->rank;
	free(r->host);
	r->host = strdup("node0");
	free(r->request);
	r->request = strdup("4711");
	return r;
}

/* What is said of a job; until the next one is judged. */
static inline const char *job_text(struct split_job *j)
{
	static struct buf out;

	split_job_judge(j);
	buf_clear(&out);
	split_job_text(j, 10, &out);
	return buf_str(&out);
}

static inline struct buf text_of(const struct split_rank *r)
{
	json_t *o = split_rank_json(r);
	char *text = json_dumps(o, JSON_SORT_KEYS);
	struct buf out = {0};

	buf_add_str(&out, text);
	free(text);
	json_decref(o);
	return out;
}

#define CHECK_HAS(text, part)                                                                      \
	do {                                                                                       \
		if (!strstr(text, part)) {                                                         \
			fprintf(stderr, "%s:%d: no '%s' in:\n%s\n", __FILE__, __LINE__, part,      \
				text);                                                             \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#endif
