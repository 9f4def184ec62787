/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How long `sonde mem compare` takes, from two CSV files to the written result, and how much
 *memory. A run is made of layers of operators; the other run is the same with rows inserted,
 *deleted and replaced at random.
 *
 *	mix    ATEN_START, MALLOC, ATEN_END, FREE: a quarter of the rows are calls
 *	calls  ATEN_END alone: every row is one
 *
 * Fails above 3 s and 500 MB with 0.1 % of the rows changed, 20 s and 1 GB with 5 %. The last lines
 * keep the number of changes and double the rows.
 * Arguments: rows (default 1000000), directory (default /tmp). BENCH_QUICK: a tenth of the rows.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "memory/dump/writer.h"

#define NAMES 200
#define LAYER 60 /* operators of a layer */
#define LAYERS 32 /* of a step: the first and the last are not like the others */

struct result {
	double seconds;
	double megabytes;
};

struct bench {
	const char *sonde;
	char dir[4000];
	char names[NAMES][64];
};

static uint64_t seed = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 16) % n;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void die(const char *what)
{
	fprintf(stderr, "compare_rate: %s\n", what);
	exit(1);
}

static void make_names(struct bench *b)
{
	static const char *const ops[] = {"add.Tensor",	       "mm.default",
					  "mul.Tensor",	       "view.default",
					  "native_layer_norm", "gelu_backward.default",
					  "transpose.int",     "_softmax.default"};

	for (unsigned i = 0; i < NAMES; i++)
		snprintf(b->names[i], sizeof(b->names[i]), "aten.%s_%u", ops[i % 8], i / 8);
}

/* Which operator comes at place n of a run. */
static uint32_t operator_at(uint64_t n)
{
	uint64_t layer = n / LAYER % LAYERS, place = n % LAYER;

	if (layer == 0 || layer == LAYERS - 1)
		return (uint32_t)(NAMES / 2 + place);
	return (uint32_t)(place * 7 % 90);
}

/* Row n of a run, or any row at all. */
static void make_row(const struct bench *b, struct row *r, uint64_t n, bool calls, bool any)
{
	static const enum row_type types[] = {TYPE_ATEN_START, TYPE_PTA, TYPE_ATEN_END, TYPE_PTA};
	unsigned part = calls ? 2 : (unsigned)(any ? random_below(4) : n % 4);
	uint32_t op = any ? random_below(NAMES) : operator_at(calls ? n : n / 4);

	memset(r, 0, offsetof(struct row, attrs));
	r->type = types[part];
	r->device = 0;
	r->pid = r->tid = 41234;
	if (part % 2 == 0) {
		r->event = ROW_OP_LAUNCH;
		r->name = b->names[op];
		r->name_len = strlen(r->name);
		return;
	}
	r->event = part == 1 ? ROW_MALLOC : ROW_FREE;
	r->has_ptr = true;
	r->ptr = 0x12c000000000u + n % 4096 * 512;
	row_attr_number(r, ATTR_ALLOCATION_ID, n);
	row_attr_number(r, ATTR_ADDR, r->ptr);
	r->attrs[1].kind = ATTR_HEX;
	row_attr_number(r, ATTR_SIZE, 512 * (op + 1));
	row_attr_number(r, ATTR_TOTAL, 1u << 30);
	row_attr_number(r, ATTR_USED, 73400320 + n % 4096);
}

struct file {
	struct writer *writer;
	uint64_t rows;
};

static void add(struct file *f, struct row *r)
{
	struct err err = {0};

	r->id = f->rows++;
	r->time_ns = 1767225600000000000u + r->id * 977;
	if (csv_writer.add(f->writer, r, &err) < 0)
		die(err.text);
}

/* Each row is changed with that probability. */
static void make_file(const struct bench *b, const char *path, uint64_t rows, double changed,
		      bool calls)
{
	static struct row r;
	struct file f = {0};
	struct err err = {0};

	unlink(path);
	if (csv_writer.open(path, ROW_SEED, &f.writer, &err) < 0)
		die(err.text);
	for (uint64_t i = 0; i < rows; i++) {
		unsigned change =
			random_below(1u << 30) < changed * (1u << 30) ? random_below(3) : 3;

		if (change == 0)
			continue;
		if (change != 3) {
			make_row(b, &r, i, calls, true);
			add(&f, &r);
		}
		if (change != 2) {
			make_row(b, &r, i, calls, false);
			add(&f, &r);
		}
	}
	if (csv_writer.close(f.writer, &err) < 0)
		die(err.text);
}

static struct result run(const struct bench *b, const char *base, const char *other)
{
	char out[4096];
	struct rusage usage;
	int status;
	double start = now_s();

	snprintf(out, sizeof(out), "%s/out", b->dir);
	pid_t pid = fork();
	if (pid == 0) {
		if (!freopen("/dev/null", "w", stdout))
			_exit(1);
		execl(b->sonde, b->sonde, "mem", "compare", "-o", out, base, other, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || status)
		die("the command failed");
	return (struct result){now_s() - start, (double)usage.ru_maxrss / 1024};
}

/* Makes both files and compares them. */
static struct result measure(const struct bench *b, uint64_t rows, double changed, bool calls)
{
	char base[4096], other[4096];

	snprintf(base, sizeof(base), "%s/base.csv", b->dir);
	snprintf(other, sizeof(other), "%s/other.csv", b->dir);
	make_file(b, base, rows, 0, calls);
	make_file(b, other, rows, changed, calls);
	struct result r = run(b, base, other);
	printf("%-5s 2 x %8llu rows  %6.3f %% changed  %7.2f s  %6.0f MB\n",
	       calls ? "calls" : "mix", (unsigned long long)rows, changed * 100, r.seconds,
	       r.megabytes);
	fflush(stdout);
	return r;
}

static bool within(struct result r, double seconds, double megabytes)
{
	if (r.seconds <= seconds && r.megabytes <= megabytes)
		return true;
	printf("above the budget of %.0f s and %.0f MB\n", seconds, megabytes);
	return false;
}

static void clean(const struct bench *b)
{
	char command[4096];

	snprintf(command, sizeof(command), "rm -rf '%s'", b->dir);
	if (system(command))
		fprintf(stderr, "compare_rate: cannot remove %s\n", b->dir);
}

int main(int argc, char **argv)
{
	const char *build = getenv("SONDE_BUILD");
	uint64_t rows = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
	static struct bench b;
	char sonde[4096];
	bool good = true;

	if (!rows)
		die("rows must be a number above 0");
	if (argc < 2 && getenv("BENCH_QUICK"))
		rows /= 10;
	snprintf(sonde, sizeof(sonde), "%s/bin/sonde", build ? build : "build");
	b.sonde = sonde;
	snprintf(b.dir, sizeof(b.dir), "%s/compare_rate_XXXXXX", argc > 2 ? argv[2] : "/tmp");
	if (!mkdtemp(b.dir))
		die("cannot make a directory");
	make_names(&b);
	for (int calls = 0; calls < 2; calls++) {
		good &= within(measure(&b, rows, 0.001, calls), 3, 500);
		good &= within(measure(&b, rows, 0.05, calls), 20, 1000);
	}
	double few = 1000.0;
	struct result half = measure(&b, rows / 2, few / (double)(rows / 2), true);
	struct result whole = measure(&b, rows, few / (double)rows, true);
	printf("twice the rows, as many changes: %.2f times as long\n",
	       whole.seconds / half.seconds);
	clean(&b);
	/* A short run on a busy machine says little. */
	return good || getenv("BENCH_QUICK") ? 0 : 1;
}
