/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What recording the modules of models costs, and following them for --attribute: a call of a module, beside the same with two hooks of
 * the program's that do nothing, which torch itself takes for letting anybody see it; and a step of
 * training of a tiny transformer, which is little else than calls. For every PyTorch here (tests/e2e/torches.py).
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "torch_child.h"

#define BUDGET_US 3.0 /* of a call, on top of the hooks that do nothing */

enum way { PLAIN, HOOKED, RECORDED, ATTRIBUTED, NWAYS };
static const char *const ways[NWAYS] = {"plain", "hooked", "recorded", "attributed"};

static struct scratch scratch;

static bool run(const char *python, double call_us[NWAYS], double step_ms[NWAYS])
{
	char line[256], name[16];
	double us, ms;
	int n = 0;

	FILE *f = torch_program(&scratch, python, "module_cost.py", getenv("BENCH_QUICK") ? 2 : 15);
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "module %15s %lf %lf", name, &us, &ms) != 3)
			continue;
		for (int i = 0; i < NWAYS; i++)
			if (!strcmp(name, ways[i])) {
				call_us[i] = us;
				step_ms[i] = ms;
				n++;
			}
	}
	return pclose(f) == 0 && n == NWAYS;
}

/* 0: within the budget, 1: above, or it could not be measured. */
static int measure(const char *label, const char *python)
{
	double us[NWAYS], ms[NWAYS];
	bool quick = getenv("BENCH_QUICK");

	if (!run(python, us, ms)) {
		printf("module_cost: %s: could not be measured\n", label);
		return 1;
	}
	double more = us[RECORDED] - us[HOOKED];
	bool over = !quick && more > BUDGET_US;
	printf("module_cost: %s: a call of a module %.2f us, with empty hooks %.2f us, recorded "
	       "%.2f us: %.2f us more than empty hooks%s\n",
	       label, us[PLAIN], us[HOOKED], us[RECORDED], more, over ? ", OVER" : "");
	printf("module_cost: %s: a step %.2f ms, with empty hooks %.2f ms, recorded %.2f ms (x "
	       "%.2f)\n",
	       label, ms[PLAIN], ms[HOOKED], ms[RECORDED], ms[RECORDED] / ms[PLAIN]);
	double attributed = us[ATTRIBUTED] - us[HOOKED];
	over |= !quick && attributed > BUDGET_US;
	printf("module_cost: %s: with --attribute a call %.2f us, %.2f us more than empty hooks; a "
	       "step %.2f ms (x %.2f)\n",
	       label, us[ATTRIBUTED], attributed, ms[ATTRIBUTED], ms[ATTRIBUTED] / ms[PLAIN]);
	return over;
}

int main(void)
{
	return torch_each("module_cost", &scratch, measure);
}
