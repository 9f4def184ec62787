/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Where the time of a step goes: sets of spans against a bitmap, ranks by hand, JSON and back. */
#include "activity/steps/spans.h"
#include "step_ranks.h"

#include <stdbool.h>

/* --- spans, against one byte per moment --- */

#define MOMENTS 240

static uint64_t seed = 88172645463325252ull;

static uint64_t dice(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

static void roll(struct spans *s, bool *map, unsigned n)
{
	memset(map, 0, MOMENTS);
	for (unsigned i = 0; i < n; i++) {
		uint64_t start = dice(MOMENTS), len = dice(MOMENTS / 6), end = start + len;

		if (end > MOMENTS)
			end = MOMENTS;
		spans_add(s, start, end);
		for (uint64_t k = start; k < end; k++)
			map[k] = true;
	}
	spans_tidy(s);
}

static void check_spans(const struct spans *s, const bool *map)
{
	uint64_t length = 0;
	bool got[MOMENTS + 1] = {false};

	for (size_t i = 0; i < s->n; i++) {
		CHECK(s->at[i].start < s->at[i].end);
		CHECK(!i || s->at[i - 1].end < s->at[i].start);
		for (uint64_t k = s->at[i].start; k < s->at[i].end; k++)
			got[k] = true;
	}
	for (unsigned k = 0; k < MOMENTS; k++) {
		CHECK_INT(got[k], map[k]);
		length += map[k];
	}
	CHECK_INT(spans_length(s), length);
}

static void check_within(const struct spans *s, const bool *map)
{
	size_t at = 0;

	for (uint64_t from = 0; from < MOMENTS;) {
		uint64_t to = from + dice(30), want = 0;

		if (to > MOMENTS)
			to = MOMENTS;
		for (uint64_t k = from; k < to; k++)
			want += map[k];
		CHECK_INT(spans_within(s, from, to, &at), want);
		from = to + dice(2);
		if (to == from)
			from += !dice(3); /* also the same moment again */
	}
}

TEST(step_split, spans_are_sets_of_moments)
{
	for (unsigned round = 0; round < 3000; round++) {
		struct spans a = {0}, b = {0}, both = {0}, rest = {0};
		bool in_a[MOMENTS], in_b[MOMENTS], want[MOMENTS];

		roll(&a, in_a, (unsigned)dice(20));
		roll(&b, in_b, (unsigned)dice(20));
		check_spans(&a, in_a);
		check_within(&a, in_a);
		spans_union(&a, &b, &both);
		for (unsigned k = 0; k < MOMENTS; k++)
			want[k] = in_a[k] || in_b[k];
		check_spans(&both, want);
		spans_minus(&a, &b, &rest);
		for (unsigned k = 0; k < MOMENTS; k++)
			want[k] = in_a[k] && !in_b[k];
		check_spans(&rest, want);
		check_within(&rest, want);
		spans_release(&a);
		spans_release(&b);
		spans_release(&both);
		spans_release(&rest);
	}
}

TEST(step_split, spans_at_the_edges_of_time)
{
	struct spans s = {0};
	size_t at = 0;

	spans_add(&s, 5, 5);
	spans_add(&s, 7, 6);
	CHECK_INT(s.n, 0);
	spans_tidy(&s);
	CHECK_INT(spans_length(&s), 0);
	CHECK_INT(spans_within(&s, 0, UINT64_MAX, &at), 0);
	spans_add(&s, UINT64_MAX - 1, UINT64_MAX);
	spans_add(&s, 0, 1);
	spans_tidy(&s);
	CHECK_INT(s.n, 2);
	CHECK_INT(spans_within(&s, 0, UINT64_MAX, &at), 2);
	spans_release(&s);
}

/* --- a rank --- */

/* The parts of every step against a clock that ticks every nanosecond. */
TEST(step_split, parts_against_every_moment)
{
	for (unsigned round = 0; round < 400; round++) {
		struct step_split *s = step_split_new();
		struct split_rank *r = split_rank_new();
		bool busy[3][MOMENTS] = {{false}};
		static const uint8_t kinds[] = {ACTIVITY_KERNEL, ACTIVITY_COMMUNICATION,
						ACTIVITY_MEMCPY};
		uint64_t bounds[6];
		unsigned nbounds = 2 + (unsigned)dice(4);

		for (unsigned i = 0; i < 1 + dice(30); i++) {
			unsigned part = (unsigned)dice(3);
			uint64_t from = dice(MOMENTS), to = from + dice(40);

			to = to > MOMENTS ? MOMENTS : to;
			work(s, kinds[part], "k", from, to);
			for (uint64_t k = from; k < to; k++)
				busy[part][k] = true;
		}
		for (unsigned i = 0; i < nbounds; i++)
			bounds[i] = (i ? bounds[i - 1] : 0) + dice(MOMENTS / nbounds);
		for (unsigned i = 0; i + 1 < nbounds; i++)
			step(s, 10 + i, bounds[i], bounds[i + 1]);
		step_split_finish(s, r);
		CHECK_INT(r->ndevices, 1);
		for (unsigned i = 0; i + 1 < nbounds; i++) {
			uint64_t want[SPLIT_PARTS] = {0}, comm = 0;
			const struct split_times *t = &r->devices[0].steps[i];

			for (uint64_t k = bounds[i]; k < bounds[i + 1]; k++) {
				comm += busy[1][k];
				want[busy[0][k]	  ? SPLIT_COMPUTE
				     : busy[1][k] ? SPLIT_COMM
				     : busy[2][k] ? SPLIT_COPY
						  : SPLIT_IDLE]++;
			}
			for (unsigned p = 0; p < SPLIT_PARTS; p++)
				CHECK_INT(t->part_ns[p], want[p]);
			CHECK_INT(t->comm_ns, comm);
			CHECK_INT(t->step_ns, bounds[i + 1] - bounds[i]);
		}
		split_rank_free(r);
	}
}

TEST(step_split, kernels_by_name)
{
	struct step_split *s = step_split_new();
	struct split_rank *r = split_rank_new();
	static const char slow[] = "slow", fast[] = "fast";

	step(s, 0, 0, 100000);
	for (unsigned i = 0; i < 100; i++)
		work(s, ACTIVITY_KERNEL, fast, i * 100, i * 100 + 1 + i);
	for (unsigned i = 0; i < 3; i++)
		work(s, ACTIVITY_KERNEL, slow, i * 9000, i * 9000 + 3000);
	work(s, ACTIVITY_MEMCPY, "", 40000, 40010);
	step_split_add(s,
		       &(struct activity){.kind = ACTIVITY_KERNEL,
					  .name = "of before",
					  .start_ns = 0,
					  .end_ns = 50000,
					  .device = 3},
		       false);
	step_split_finish(s, r);
	CHECK_INT(r->nkernels, 3);
	CHECK_STR(r->kernels[0].name, "slow");
	CHECK_INT(r->kernels[0].calls, 3);
	CHECK_INT(r->kernels[0].total_ns, 9000);
	CHECK_INT(r->kernels[0].p99_ns, 3000);
	CHECK_STR(r->kernels[1].name, "fast");
	CHECK_INT(r->kernels[1].p99_ns, 99);
	CHECK_INT(r->kernels[1].max_ns, 100);
	CHECK_INT(r->kernels[1].total_ns, 5050);
	CHECK_STR(r->kernels[2].name, "memcpy");
	/* The step is busy with what was launched before it. */
	CHECK_INT(r->devices[0].steps[0].part_ns[SPLIT_COMPUTE], 50000);
	split_rank_free(r);
}

TEST(step_split, collectives_by_their_names)
{
	static const char *const comm[] = {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)",
					   "hcom_allReduce_", "HcclAllGather"};
	struct activity a = {.kind = ACTIVITY_KERNEL, .name = "void gemm<…>(…)"};

	CHECK_INT(split_part_of(&a), SPLIT_COMPUTE);
	for (unsigned i = 0; i < 3; i++) {
		a.name = comm[i];
		CHECK_INT(split_part_of(&a), SPLIT_COMM);
	}
	a.kind = ACTIVITY_RUNTIME_API;
	CHECK_INT(split_part_of(&a), SPLIT_IDLE);
	a.kind = ACTIVITY_MARKER;
	CHECK_INT(split_part_of(&a), SPLIT_IDLE);
}

TEST(step_split, most_kernels_are_kept_by_name)
{
	struct step_split *s = step_split_new();
	struct split_rank *r = split_rank_new();
	static char names[SPLIT_MAX_KERNELS + 5][16];

	step(s, 0, 0, 1000000);
	for (unsigned i = 0; i < SPLIT_MAX_KERNELS + 5; i++) {
		snprintf(names[i], sizeof(names[i]), "k%u", i);
		work(s, ACTIVITY_KERNEL, names[i], 0, 10 + i);
	}
	step_split_finish(s, r);
	CHECK_INT(r->nkernels, SPLIT_MAX_KERNELS);
	CHECK_INT(r->other_names, 5);
	CHECK_INT(r->other_calls, 5);
	CHECK_INT(r->other_ns, 10 + 11 + 12 + 13 + 14);
	split_rank_free(r);
}

/* --- as JSON, and back --- */

TEST(step_split, json_and_back)
{
	struct split_rank *r = rank_of(&(struct plan){2, 100 * MS, 60 * MS, 20 * MS, 5 * MS, MS});
	struct err err = {0};

	r->lost = 3;
	r->left_out = 4;
	struct buf text = text_of(r);
	struct split_rank *back = split_rank_read(text.data, text.len, &err);
	CHECK(back);
	CHECK_INT(back->whole_steps, 3);
	CHECK_INT(back->devices[0].all.step_ns, 300 * MS);
	CHECK_INT(back->devices[0].all.part_ns[SPLIT_COMM], 45 * MS);
	struct buf again = text_of(back);
	CHECK_STR(buf_str(&again), buf_str(&text));
	/* Cut anywhere it is no answer. */
	for (size_t n = 0; n < text.len; n += 7)
		CHECK(!split_rank_read(text.data, n, &err));
	split_rank_free(back);
	split_rank_free(r);
	buf_release(&text);
	buf_release(&again);
}

TEST(step_split, json_that_does_not_add_up)
{
	struct split_rank *r = rank_of(&(struct plan){0, 100 * MS, 60 * MS, 20 * MS, 5 * MS, 0});
	struct err err = {0};
	static const char *const wrong[][2] = {
		{"\"compute_ns\": 60000000", "\"compute_ns\": 60000001"},
		{"\"compute_ns\": 60000000", "\"compute_ns\": -1"},
		{"\"pid\": 100", "\"pid\": 4294967296"},
		{"\"version\": 1", "\"version\": 2"},
		{"\"calls\": 3", "\"calls\": 0"},
		{"\"part\": \"compute\"", "\"part\": \"idle\""},
		{"\"device\": 3", "\"device\": \"3\""},
		{"sonde-steps", "sonde-sleeps"},
	};

	struct buf text = text_of(r);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const char *at = strstr(buf_str(&text), wrong[i][0]);
		struct buf bad = {0};

		CHECK(at);
		buf_add(&bad, text.data, (size_t)(at - text.data));
		buf_add_str(&bad, wrong[i][1]);
		buf_add_str(&bad, at + strlen(wrong[i][0]));
		CHECK(!split_rank_read(bad.data, bad.len, &err));
		CHECK(err.code < 0 && *err.text);
		buf_release(&bad);
	}
	split_rank_free(r);
	buf_release(&text);
}
