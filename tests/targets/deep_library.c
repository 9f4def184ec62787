/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Leaks in every step what a library allocates for it, a hundred calls deeper: more than is recorded. */
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "../../include/sonde/sonde.h"

#define NESTED 40
#define STEPS 8

static regex_t kept[STEPS][16];

static int __attribute__((noinline)) train_step(regex_t *out)
{
	char text[2 * NESTED + 2];

	memset(text, '(', NESTED);
	text[NESTED] = 'a';
	memset(text + NESTED + 1, ')', NESTED);
	text[2 * NESTED + 1] = 0;
	return regcomp(out, text, REG_EXTENDED); /* here */
}

int main(void)
{
	for (int step = 0; step < STEPS; step++) {
		for (int i = 0; i < 16; i++)
			if (train_step(&kept[step][i]))
				return 1;
		sonde_step();
	}
	puts("done");
	return 0;
}
