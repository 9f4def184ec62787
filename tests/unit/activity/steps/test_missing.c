/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Ranks that leave no trace, and those that were ended while they waited for them. */
#include "activity/steps/job_summary.h"
#include "step_ranks.h"

/* Steps 10 and 11 are whole, 12 was not over when the trace was ended. */
static struct split_rank *ended_rank(int rank, uint64_t compute)
{
	struct split_rank *r =
		rank_of(&(struct plan){rank, 100 * MS, compute, 90 * MS - compute, 0, 0});

	r->steps[2].whole = false;
	r->whole_steps = 2;
	r->world = 4;
	r->ended = true;
	r->waiting = 15;
	r->waiting_ns = r->steps[2].start_ns + MS;
	free(r->waiting_for);
	r->waiting_for = strdup("hcom_allReduce_");
	free(r->note);
	r->note = strdup("ended by request in step 12");
	return r;
}

static struct split_rank *read_again(struct split_rank *r)
{
	struct buf text = text_of(r);
	struct err err = {0};
	struct split_rank *again = split_rank_read(text.data, text.len, &err);

	CHECK(again);
	buf_release(&text);
	split_rank_free(r);
	return again;
}

TEST(step_split_missing, ranks_that_wait_for_one_that_left_nothing)
{
	struct split_job j = {.gathered = true};

	for (int i = 0; i < 4; i++)
		if (i != 2)
			split_job_add(&j, read_again(ended_rank(i, (i == 3 ? 80 : 40) * MS)));
	const char *text = job_text(&j);
	CHECK(strstr(text, "Rank 2 of 4 has left no trace here; the others stand in step 12 with "
			   "15 launches that had not run, first hcom_allReduce_.\n"
			   "Rank 0: ended by request in step 12.\n") == text);
	CHECK(!strstr(text, "not compared"));
	CHECK_HAS(text, "\nIn the 2 whole steps that all of them have, rank 3 is the slowest: ");
	CHECK_INT(j.slowest.verdict, SPLIT_WAITED_FOR);
	CHECK_INT(j.mean.step_ns, 100 * MS);
	json_t *o = split_job_json(&j), *missing = json_object_get(o, "missing");
	CHECK_INT(json_array_size(missing), 1);
	CHECK_INT(json_integer_value(json_array_get(missing, 0)), 2);
	json_decref(o);
	split_job_release(&j);
}

/* Its device's library had no time to tell everything. */
static struct split_rank *killed_rank(int rank)
{
	struct split_rank *r = ended_rank(rank, 10 * MS);

	r->ended = false;
	free(r->note);
	r->note = strdup("the process was killed or ended before the last step");
	return r;
}

/* A device that has waited since step 11 tells nothing of what it did from then on. */
TEST(step_split_missing, steps_in_which_a_device_waits_are_not_compared)
{
	struct split_job j = {0};

	for (int i = 0; i < 3; i++) {
		struct split_rank *r = ended_rank(i, 40 * MS);

		if (i == 1)
			r->waiting_ns = r->steps[1].start_ns + MS;
		split_job_add(&j, r);
	}
	const char *text = job_text(&j);
	CHECK_INT(j.slowest.common, 1);
	CHECK_HAS(text, "In the 1 whole step that all of them have, no rank is notably slower");
	CHECK(!strstr(text, "left no trace")); /* nobody knows whether these are all */
	split_job_release(&j);
	/* One that was killed is not among them. */
	split_job_add(&j, ended_rank(0, 40 * MS));
	split_job_add(&j, ended_rank(1, 40 * MS));
	split_job_add(&j, killed_rank(2));
	text = job_text(&j);
	CHECK(!j.rows[2].judged && j.rows[1].judged);
	CHECK_HAS(text, "Rank 2: the process was killed or ended before the last step. It is not "
			"compared with the others.");
	split_job_release(&j);
}

static const char *text_of_ranks(const int *ranks, size_t n, uint32_t world, bool chosen)
{
	static char text[4096];
	struct split_job j = {.gathered = true};

	for (size_t i = 0; i < n; i++) {
		struct split_rank *r =
			rank_of(&(struct plan){ranks[i], 100 * MS, 60 * MS, 20 * MS, 0, 0});

		r->world = world;
		r->chosen = chosen;
		split_job_add(&j, r);
	}
	snprintf(text, sizeof(text), "%s", job_text(&j));
	text[strcspn(text, "\n")] = '\0';
	split_job_release(&j);
	return text;
}

TEST(step_split_missing, ranks_that_are_missing)
{
	static const int some[] = {5, 1, 3, 9}, all[] = {0, 1}, unknown[] = {1, -1};

	CHECK_STR(text_of_ranks(some, 4, 0, false),
		  "Ranks 0, 2, 4 and 6 to 8 have left no trace here.");
	CHECK_STR(text_of_ranks(some, 4, 16, false),
		  "Ranks 0, 2, 4, 6 to 8 and 10 to 15 of 16 have left no trace here.");
	CHECK_STR(text_of_ranks(all, 1, 2, false), "Rank 1 of 2 has left no trace here.");
	CHECK_STR(text_of_ranks(all, 1, INT32_MAX, false),
		  "Ranks 1 to 2147483646 of 2147483647 have left no trace here.");
	/* A size that cannot be is none. */
	CHECK_STR(text_of_ranks(some, 4, 4, false),
		  "Ranks 0, 2, 4 and 6 to 8 have left no trace here.");
	CHECK(!strstr(text_of_ranks(some, 4, 16, true), "left no trace"));
	CHECK(!strstr(text_of_ranks(some, 1, 0, false), "left no trace"));
	CHECK(!strstr(text_of_ranks(all, 2, 2, false), "left no trace"));
	CHECK(!strstr(text_of_ranks(unknown, 2, 4, false), "left no trace"));
}
