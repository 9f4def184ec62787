/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Steps that nobody counts, as samples show them. */
#include "sampler/rounds/step_guess.h"

#include "base/containers/intern.h"
#include "test.h"

#define LIB "/usr/lib/python3/dist-packages/torch/"
#define MS 1000000ull

static struct step_guess g;
static uint64_t now;

static struct stack_frame frame(const char *name, const char *file, int line)
{
	return (struct stack_frame){.name = intern(name, strlen(name)),
				    .file = intern(file, strlen(file)),
				    .line = line};
}

/* So many samples, 10 ms from each other, in the optimizer called from this line; or elsewhere (0). */
static unsigned sample(unsigned n, int line)
{
	const struct stack_frame frames[] = {
		frame("<module>", "/job/train.py", 40), frame("step", "/job/train.py", line),
		frame("Optimizer.profile_hook_step.<locals>.wrapper", LIB "optim/optimizer.py", 9),
		frame("AdamW.step", LIB "optim/adamw.py", 7)};
	const struct stack_frame others[] = {
		frame("<module>", "/job/train.py", 41),
		frame("Linear.forward", LIB "nn/linear.py", 5),
		frame("LRScheduler.step", LIB "optim/lr_scheduler.py", 5)};
	unsigned ended = 0;

	for (; n; n--, now += 10 * MS)
		ended += line ? step_guess_add(&g, frames, 4, now)
			      : step_guess_add(&g, others, 3, now);
	return ended;
}

static void begin(void)
{
	g = (struct step_guess){0};
	now = 1000 * MS;
}

static void done(void)
{
	step_guess_release(&g);
}

TEST(step_guess, regular_steps_are_sure)
{
	begin();
	for (unsigned i = 0; i < 10; i++) {
		CHECK_INT(sample(8, 0), i > 0);
		CHECK_INT(sample(4, 18), 0);
	}
	CHECK_INT(sample(1, 0), 1);
	CHECK_INT(g.seen, 10);
	CHECK_INT(step_guess_mean_ns(&g), 120 * MS);
	CHECK(step_guess_is_sure(&g));
	CHECK_STR(g.line.file, "/job/train.py");
	CHECK_INT(g.line.line, 18);
	done();
}

TEST(step_guess, what_may_be_missed_makes_it_unsure)
{
	static const struct {
		unsigned in, out, longer;
		int other_line;
	} cases[] = {
		{1, 8, 8, 18}, /* a step() of one sample: the next may be in none */
		{4, 1, 1, 18}, /* no time between two of them */
		{4, 8, 30, 18}, /* one took far longer: there may be two in it */
		{4, 8, 8, 25}, /* two optimizers */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin();
		for (unsigned k = 0; k < 10; k++) {
			sample(k == 5 ? cases[i].longer : cases[i].out, 0);
			sample(cases[i].in, k % 2 ? cases[i].other_line : 18);
		}
		sample(1, 0);
		CHECK_INT(g.seen, 10);
		CHECK(!step_guess_is_sure(&g));
		CHECK_INT(g.several_lines, i == 3);
		done();
	}
}

TEST(step_guess, a_pause_of_the_sampler_makes_it_unsure)
{
	begin();
	for (unsigned k = 0; k < 10; k++) {
		sample(8, 0);
		sample(4, 18);
		now += k == 5 ? 40 * MS : 0;
	}
	sample(1, 0);
	CHECK(!step_guess_is_sure(&g));
	done();
}

TEST(step_guess, other_programs_have_none)
{
	const struct stack_frame own[] = {frame("<module>", "/job/walk.py", 1),
					  frame("step", "/job/optim/walk.py", 2)};

	begin();
	for (unsigned k = 0; k < 20; k++, now += MS)
		CHECK(!step_guess_add(&g, own, 1 + k % 2, now));
	CHECK(!g.seen && !g.uses_framework && !step_guess_is_sure(&g));
	sample(3, 0);
	CHECK(!g.seen && g.uses_framework);
	done();
}
