/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What one warm capture of 20 frames costs, against glibc's backtrace() in the same run; and one of 10
 * frames that looks for the program in all others, against one of all of them. */
#include <execinfo.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "unwind/native/native.h"

#define DEPTH 20
#define ALL 64
#define ROUNDS 5

enum way { OURS, THEIRS, WHOLE, BEYOND };

static uint64_t out[ALL];
static volatile unsigned sink;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void on_module(const struct native_module *m, void *arg)
{
	(void)m;
	(void)arg;
}

/* A program that is nowhere in the stack is looked for in all of it. */
static unsigned capture(enum way way)
{
	struct native_program nowhere = {.start = 16, .end = 32};

	switch (way) {
	case OURS:
		return native_capture(out, DEPTH, 0, on_module, NULL);
	case THEIRS:
		return (unsigned)backtrace((void **)out, DEPTH);
	case WHOLE:
		return native_capture(out, ALL, 0, on_module, NULL);
	default:
		return native_capture_program(out, DEPTH / 2, &nowhere, 0, on_module, NULL) +
		       nowhere.left_out;
	}
}

static double cost(enum way way, unsigned calls)
{
	uint64_t start = now_ns();

	for (unsigned i = 0; i < calls; i++)
		sink += capture(way);
	return (double)(now_ns() - start) / calls;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(enum way way, unsigned calls)
{
	double t[ROUNDS];

	cost(way, calls / 10);
	for (unsigned i = 0; i < ROUNDS; i++)
		t[i] = cost(way, calls);
	qsort(t, ROUNDS, sizeof(t[0]), by_value);
	return t[ROUNDS / 2];
}

static void measure(void)
{
	unsigned n = native_capture(out, DEPTH, 0, on_module, NULL);
	double ours = median(OURS, 200000), theirs = median(THEIRS, 5000);
	double whole = median(WHOLE, 200000), beyond = median(BEYOND, 200000);

	printf("depth %u  native_capture %.0f ns  backtrace %.0f ns  ratio %.1f\n", n, ours, theirs,
	       theirs / ours);
	printf("depth %u  all of them %.0f ns  %u and a look at the others %.0f ns  ratio %.2f\n",
	       capture(WHOLE), whole, DEPTH / 2, beyond, beyond / whole);
}

/* Twenty-four functions of three shapes, so that addresses and rules differ as in a real program.
 */
typedef void (*level)(unsigned);
static level levels[];

#define PLAIN(n)                                                                                   \
	static __attribute__((noinline)) void plain##n(unsigned d)                                 \
	{                                                                                          \
		levels[d + 1](d + 1);                                                              \
		sink += n;                                                                         \
	}
#define PADDED(n)                                                                                  \
	static __attribute__((noinline)) void padded##n(unsigned d)                                \
	{                                                                                          \
		volatile char pad[64 + 16 * n];                                                    \
		pad[d] = n;                                                                        \
		levels[d + 1](d + 1);                                                              \
		sink += (unsigned char)pad[d];                                                     \
	}
#define DYNAMIC(n)                                                                                 \
	static __attribute__((noinline)) void dynamic##n(unsigned d)                               \
	{                                                                                          \
		volatile char *pad = __builtin_alloca(d * 8 + n);                                  \
		pad[0] = n;                                                                        \
		levels[d + 1](d + 1);                                                              \
		sink += (unsigned char)pad[0];                                                     \
	}
#define SHAPES(n) PLAIN(n) PADDED(n) DYNAMIC(n)
/* clang-format off */
SHAPES(1) SHAPES(2) SHAPES(3) SHAPES(4) SHAPES(5) SHAPES(6) SHAPES(7) SHAPES(8)
	/* clang-format on */

	static void bottom(unsigned d)
{
	(void)d;
	measure();
}

#define NAMES(n) plain##n, padded##n, dynamic##n
static level levels[] = {NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5),
			 NAMES(6), NAMES(7), NAMES(8), bottom};

int main(void)
{
	levels[0](0);
	return 0;
}
