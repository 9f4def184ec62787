/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Jobs without steps: what grows over time, and what does not. */
#include "leak_rows.h"
#include "memory/analysis/leaks/leaks.h"
#include "memory/analysis/leaks/leaks_impl.h"

#define LEAK STACK_OF("leak_one_buffer")
#define OTHER STACK_OF("make_cache")
#define SECOND 1000000000ull
#define CALLS 600

/* CALLS calls in `seconds`; does(j, i) is one of them. */
static json_t *run(struct analysis *a, uint64_t seconds, void (*does)(struct job *, unsigned))
{
	struct job j = job_of(a);

	for (unsigned i = 0; i < CALLS; i++) {
		give_one(&j, take_one(&j, 4096, STACK_OF("activation")));
		does(&j, i);
		j.time_ns += seconds * SECOND / CALLS;
	}
	return json_answer(a);
}

static void leak_always(struct job *j, unsigned i)
{
	(void)i;
	take_one(j, 1 << 20, LEAK);
}

TEST(growth, of_a_leak)
{
	struct analysis *a = leaks_new(NULL);
	json_t *o = run(a, 60, leak_always);

	CHECK_INT(json_array_size(at(o, "grows_over_time")), 1);
	CHECK_STR(STR(o, "grows_over_time.0.confidence"), "likely");
	CHECK_STR(STR(o, "grows_over_time.0.where"), "leak_one_buffer (train.c:120)");
	CHECK_INT(NUM(o, "grows_over_time.0.windows"), NUM(o, "grows_over_time.0.windows_grown"));
	uint64_t rate = (uint64_t)NUM(o, "grows_over_time.0.bytes_per_minute") >> 20;
	CHECK(rate >= 570 && rate <= 630);
	CHECK(json_is_null(at(o, "steps")));
	/* It is no finding. */
	CHECK_INT(NUM(o, "findings"), 0);
	CHECK(!a->ops->findings(a) && !a->ops->judged(a));
	const char *text = text_answer(a, false);
	CHECK_HAS(text, "No steps are known. Over ");
	CHECK_HAS(text, " from leak_one_buffer (train.c:120) grew in ");
	CHECK_HAS(text, " so far): likely a leak. Mark the steps of the job");
	CHECK_LACKS(text, "in every step");
	/* Who called that line is below, as it is of leaks in steps. */
	CHECK_HAS(text, "Call sites that grow over time\n  Process ");
	const char *below = strstr(text, "Call sites that grow over time");
	CHECK_HAS(below, " a leak\n      leak_one_buffer (train.c:120)\n");
	json_decref(o);
	analysis_free(a);
}

static size_t count_growth(uint64_t seconds, void (*does)(struct job *, unsigned))
{
	struct analysis *a = leaks_new(NULL);
	json_t *o = run(a, seconds, does);
	size_t n = json_array_size(at(o, "grows_over_time"));

	json_decref(o);
	analysis_free(a);
	return n;
}

static void fill_cache(struct job *j, unsigned i)
{
	if (i < CALLS * 2 / 3)
		take_one(j, 1 << 20, OTHER);
}

/* The later, the rarer: what is asked for is in it already. */
static void fill_slowly(struct job *j, unsigned i)
{
	if ((i & (i - 1)) == 0 || (i < 100 && i % 2))
		take_one(j, 1 << 20, OTHER);
}

static void keep_some(struct job *j, unsigned i)
{
	static struct mem ring[50];

	if (i >= 50)
		give_one(j, ring[i % 50]);
	ring[i % 50] = take_one(j, 1 << 20, OTHER);
}

/* Fills, and is emptied. */
static void collect_garbage(struct job *j, unsigned i)
{
	static struct mem list[200];

	list[i % 200] = take_one(j, 1 << 20, OTHER);
	for (unsigned k = 0; i % 200 == 199 && k < 200; k++)
		give_one(j, list[k]);
}

static void grow_once(struct job *j, unsigned i)
{
	if (i == CALLS / 2)
		take_one(j, 1 << 30, OTHER);
}

TEST(growth, healthy_jobs_have_none)
{
	CHECK_INT(count_growth(60, fill_cache), 0);
	CHECK_INT(count_growth(60, fill_slowly), 0);
	CHECK_INT(count_growth(60, keep_some), 0);
	CHECK_INT(count_growth(60, collect_garbage), 0);
	CHECK_INT(count_growth(60, grow_once), 0);
}

TEST(growth, any_length_from_ten_seconds_on)
{
	CHECK_INT(count_growth(5, leak_always), 0); /* may be the start-up */
	for (uint64_t seconds = 12; seconds < 1000000; seconds = seconds * 7 / 3)
		CHECK_INT(count_growth(seconds, leak_always), 1);
}

static void leak_little(struct job *j, unsigned i)
{
	j->type = TYPE_HOST;
	j->device = DEV_HOST;
	if (i % 6 == 0)
		take_one(j, 64, LEAK);
}

static void leak_without_stack(struct job *j, unsigned i)
{
	(void)i;
	take_one(j, 5000, NULL);
}

TEST(growth, what_is_small_or_has_no_stack)
{
	CHECK_INT(count_growth(60, leak_little), 0);
	struct analysis *a = leaks_new(NULL);
	json_t *o = run(a, 60, leak_without_stack);
	CHECK_INT(json_array_size(at(o, "grows_over_time")), 1);
	CHECK_STR(STR(o, "grows_over_time.0.confidence"), "possible");
	CHECK_INT(NUM(o, "grows_over_time.0.block_bytes"), 5000);
	CHECK_HAS(text_answer(a, false), "blocks of 4.88 KiB without a call stack grew in ");
	json_decref(o);
	analysis_free(a);
}

static void leak_in_steps(struct job *j, unsigned i)
{
	begin_step(j);
	leak_always(j, i);
	end_step(j);
}

TEST(growth, steps_are_better)
{
	struct analysis *a = leaks_new(NULL);
	json_t *o = run(a, 60, leak_in_steps);

	CHECK_INT(json_array_size(at(o, "grows_over_time")), 0);
	CHECK_INT(NUM(o, "findings"), 1);
	CHECK_STR(STR(o, "steps.source"), "range");
	json_decref(o);
	analysis_free(a);
}

/* A trainer with steps and its loader's worker, which has none. Does the trainer leak, too? */
static json_t *run_with_worker(struct analysis *a, bool trainer_leaks)
{
	struct job j = job_of(a);

	for (unsigned i = 0; i < CALLS; i++) {
		j.pid = 10;
		if (i % 30 == 0)
			begin_step(&j);
		give_one(&j, take_one(&j, 4096, STACK_OF("activation")));
		if (trainer_leaks)
			take_one(&j, 1 << 20, OTHER);
		if (i % 30 == 29)
			end_step(&j);
		j.pid = 20;
		take_one(&j, 1 << 20, LEAK);
		j.time_ns += 60 * SECOND / CALLS;
	}
	return json_answer(a);
}

TEST(growth, of_a_worker_where_others_have_steps)
{
	struct analysis *a = leaks_new(NULL);
	json_t *o = run_with_worker(a, false);
	const char *text = text_answer(a, false);

	CHECK_INT(json_array_size(at(o, "grows_over_time")), 1);
	CHECK_INT(NUM(o, "grows_over_time.0.pid"), 20);
	CHECK_INT(NUM(o, "findings"), 0);
	CHECK_HAS(text, "No leaks in the steps of process 10 (20 steps), but over ");
	CHECK_HAS(
		text,
		" of process 20, which has no steps, from leak_one_buffer (train.c:120) grew in ");
	CHECK_HAS(text, "likely a leak.");
	CHECK_LACKS(text, "No leaks: ");
	CHECK(!a->ops->findings(a) && !a->ops->judged(a));
	json_decref(o);
	analysis_free(a);
}

TEST(growth, of_a_worker_beside_a_leak)
{
	struct analysis *a = leaks_new(NULL);
	json_t *o = run_with_worker(a, true);
	const char *text = text_answer(a, false);

	CHECK_INT(NUM(o, "findings"), 1);
	CHECK_HAS(text, "Process 10 loses ");
	CHECK_HAS(text, " Over ");
	CHECK_HAS(
		text,
		" of process 20, which has no steps, from leak_one_buffer (train.c:120) grew in ");
	json_decref(o);
	analysis_free(a);
}

/* What was detected before training began was none: a leak of then is not one of the steps. */
TEST(growth, steps_that_count_anew)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);
	char name[32];

	for (unsigned kind = STEP_FORWARD; kind >= STEP_OPTIMIZER; kind--) {
		for (unsigned i = 1; i <= 10; i++) {
			take_one(&j, 1 << 20, kind == STEP_FORWARD ? OTHER : LEAK);
			snprintf(name, sizeof(name), "%u %s", i, kind == 2 ? "Net" : "SGD");
			struct row r = {.event = ROW_SYSTEM, .type = TYPE_STEP, .device = DEV_NONE};
			r.hidden = true;
			r.range = kind;
			r.name = name;
			r.name_len = strlen(name);
			feed(&j, &r);
		}
	}
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "findings"), 1);
	CHECK_INT(NUM(o, "leaks.0.first_step"), 2);
	CHECK_INT(NUM(o, "leaks.0.blocks"), 8);
	CHECK_INT(NUM(o, "processes.0.steps_ended"), 10);
	CHECK_STR(STR(o, "steps.source"), "optimizer");
	CHECK_STR(STR(o, "steps.name"), "SGD");
	CHECK_HAS(text_answer(a, false), " Steps were detected from the optimizer (SGD).");
	json_decref(o);
	analysis_free(a);
}

/* A number that has no positive counterpart; sanitizers see what is undefined. */
TEST(growth, most_bytes_that_can_go)
{
	struct growth_windows w = {0};
	struct leak_site s = {0};

	growth_count(&s, &w, 5);
	growth_count(&s, &w, INT64_MIN);
	CHECK_INT(s.growth->bytes, 0);
	growth_count(&s, &w, INT64_MAX);
	growth_count(&s, &w, 6);
	growth_count(&s, &w, INT64_MIN);
	CHECK_INT(s.growth->bytes, 5);
	free(s.growth);
}
