/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Longer steps, or what the others wait for: the slowest rank is the one that costs more time. */
#include "activity/steps/job_summary.h"
#include "step_ranks.h"

#define US 1000ull

/* Of each rank: its step, what it computes, what it waits for in communication. */
static enum split_verdict judge(struct split_job *j, const uint64_t (*us)[3], int n)
{
	for (int i = 0; i < n; i++)
		split_job_add(j, rank_of(&(struct plan){i, us[i][0] * US, us[i][1] * US,
							us[i][2] * US, 0, 0}));
	split_job_judge(j);
	return j->slowest.verdict;
}

TEST(step_split_slowest, a_little_longer_steps_do_not_hide_who_is_waited_for)
{
	static const uint64_t us[][3] = {
		{15200, 8900, 5000}, {15600, 8900, 5000}, {15200, 13300, 290}, {15200, 8900, 5010}};
	struct split_job j = {0};
	struct buf out = {0};

	CHECK_INT(judge(&j, us, 4), SPLIT_WAITED_FOR);
	CHECK_INT(j.slowest.row, 2);
	CHECK_INT(j.slowest.why, SPLIT_COMPUTE);
	split_job_text(&j, 10, &out);
	CHECK_HAS(buf_str(&out), "Rank 2 is the slowest: the others wait for it");
	CHECK_HAS(buf_str(&out), "it computes 13.3 ms of a step, the others 8.9");
	buf_release(&out);
	split_job_release(&j);
}

/* Ranks that hardly wait for each other: the host of one launches late. */
TEST(step_split_slowest, a_late_host_is_not_hidden_by_a_little_waiting)
{
	static const uint64_t late[][3] = {
		{15200, 8900, 1500}, {19800, 8900, 1600}, {15200, 9300, 1100}, {15200, 8900, 1500}};
	/* The others wait for it, too. */
	static const uint64_t waited[][3] = {
		{15200, 8900, 5300}, {15700, 8900, 400}, {15200, 8900, 5300}, {15200, 8900, 5300}};
	struct split_job j = {0};

	CHECK_INT(judge(&j, late, 4), SPLIT_SLOW_STEPS);
	CHECK_INT(j.slowest.row, 1);
	CHECK_INT(j.slowest.why, SPLIT_IDLE);
	CHECK_INT(j.slowest.ns - j.slowest.others_ns, 4600 * US);
	split_job_release(&j);
	CHECK_INT(judge(&j, waited, 4), SPLIT_WAITED_FOR);
	CHECK_INT(j.slowest.row, 1);
	CHECK_INT(j.slowest.why, SPLIT_IDLE);
	split_job_release(&j);
}

TEST(step_split_slowest, noise_names_nobody)
{
	/* The longest is not farther from the middle than others are. */
	static const uint64_t jitter[][3] = {{15000, 8900, 5000},
					     {15450, 8900, 5450},
					     {14200, 8900, 4200},
					     {15300, 8900, 5300},
					     {14400, 8900, 4400}};
	static const uint64_t small[][3] = {
		{15200, 8900, 5000}, {15400, 8900, 5200}, {15200, 9150, 4750}, {15200, 8900, 5000}};
	struct split_job j = {0};

	CHECK_INT(judge(&j, jitter, 5), SPLIT_EVEN);
	split_job_release(&j);
	CHECK_INT(judge(&j, small, 4), SPLIT_EVEN);
	split_job_release(&j);
}
