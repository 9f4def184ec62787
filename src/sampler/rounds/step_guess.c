/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/rounds/step_guess.h"

#include <string.h>
#include <xxhash.h>

#include "sampler/snapshot/call_site.h"

#define FEWEST 5 /* steps of which anything is sure */
#define SPREAD 3 / 2 /* the longest of them is at most so many times the shortest */

enum { NOT_OF_A_FRAMEWORK, OF_A_FRAMEWORK, OPTIMIZER };

/* torch makes a wrapper around step() of every class, also of those that programs write. */
static int kind_of(const struct stack_frame *f)
{
	const char *base = strrchr(f->name, '.');
	bool is_step = !strcmp(base ? base + 1 : f->name, "step");
	bool torch = strstr(f->file, "/torch/"), mindspore = strstr(f->file, "/mindspore/");

	if (strstr(f->file, "/torch/optim/") && !strstr(f->file, "/lr_scheduler.py") &&
	    (is_step || strstr(f->name, "profile_hook_step")))
		return OPTIMIZER;
	if (mindspore && strstr(f->file, "/optim/") && strstr(f->name, "construct"))
		return OPTIMIZER;
	return torch || mindspore ? OF_A_FRAMEWORK : NOT_OF_A_FRAMEWORK;
}

/* The outermost function of an optimizer; n: none. */
static unsigned find_optimizer(struct step_guess *g, const struct stack_frame *frames, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const char *const texts[] = {frames[i].name, frames[i].file};
		uint64_t key = XXH3_64bits(texts, sizeof(texts));
		uint64_t kind = hmap_get(&g->functions, key);

		if (kind == HMAP_NONE) {
			kind = (uint64_t)kind_of(&frames[i]);
			hmap_put(&g->functions, key, kind);
		}
		g->uses_framework |= kind != NOT_OF_A_FRAMEWORK;
		if (kind == OPTIMIZER)
			return i;
	}
	return n;
}

static void note_line(struct step_guess *g, const struct stack_frame *frames, unsigned at)
{
	int site = at ? stack_call_site(frames, at) : -1;

	if (site < 0)
		return;
	if (!g->line.name)
		g->line = frames[site];
	g->several_lines |= g->line.file != frames[site].file || g->line.line != frames[site].line;
}

static void note_least(uint64_t *least, uint64_t value)
{
	if (!*least || value < *least)
		*least = value ? value : 1;
}

static void enter(struct step_guess *g, uint64_t time_ns)
{
	g->inside = true;
	g->cut = g->samples == 0;
	g->began_ns = time_ns;
	if (g->left_ns)
		note_least(&g->shortest_out_ns, g->last_ns - g->left_ns);
}

static void leave(struct step_guess *g, uint64_t time_ns)
{
	g->inside = false;
	if (!g->cut)
		note_least(&g->shortest_in_ns, g->last_ns - g->began_ns);
	if (g->seen) {
		uint64_t took = time_ns - g->left_ns;

		note_least(&g->least_ns, took);
		g->most_ns = took > g->most_ns ? took : g->most_ns;
	} else {
		g->first_left_ns = time_ns;
	}
	g->left_ns = time_ns;
	g->seen++;
}

bool step_guess_add(struct step_guess *g, const struct stack_frame *frames, unsigned n,
		    uint64_t time_ns)
{
	unsigned at = find_optimizer(g, frames, n);
	bool inside = at < n, left = g->inside && !inside;

	if (g->samples && time_ns - g->last_ns > g->longest_gap_ns)
		g->longest_gap_ns = time_ns - g->last_ns;
	if (inside && !g->inside) {
		note_line(g, frames, at);
		enter(g, time_ns);
	} else if (left) {
		leave(g, time_ns);
	}
	g->samples++;
	g->last_ns = time_ns;
	return left;
}

uint64_t step_guess_mean_ns(const struct step_guess *g)
{
	return g->seen > 1 ? (g->left_ns - g->first_left_ns) / (g->seen - 1) : 0;
}

bool step_guess_is_sure(const struct step_guess *g)
{
	return g->seen >= FEWEST && !g->several_lines && g->shortest_in_ns > g->longest_gap_ns &&
	       g->shortest_out_ns > g->longest_gap_ns && g->most_ns <= g->least_ns * SPREAD;
}

void step_guess_release(struct step_guess *g)
{
	hmap_release(&g->functions);
}
