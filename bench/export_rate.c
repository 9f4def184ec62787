/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Rows per second of the dump writers on MALLOC rows, against one fprintf and fflush per row.
 * Arguments: rows (default 1000000), directory (default /tmp). BENCH_QUICK: a fifth of the rows.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "memory/dump/writer.h"

#define ROUNDS 5
#define FLUSH_EVERY 4096 /* rows, as a recorder at full load would */

struct result {
	double rows_per_s;
	double bytes_per_row;
};

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void make_row(struct row *r, uint64_t i)
{
	r->id = i;
	r->event = ROW_MALLOC;
	r->type = TYPE_HAL;
	r->name = NULL;
	r->time_ns = 1767225600000000000u + i * 977;
	r->pid = 41234;
	r->tid = 41234 + i % 3;
	r->device = 0;
	r->has_ptr = true;
	r->ptr = 0x7f2a00000000u + i * 512;
	r->nattrs = 0;
	row_attr_number(r, ATTR_ALLOCATION_ID, i / 2 + 1);
	row_attr_number(r, ATTR_ADDR, r->ptr);
	r->attrs[1].kind = ATTR_HEX;
	row_attr_number(r, ATTR_SIZE, 512 + (i % 64) * 512);
	row_attr_number(r, ATTR_USED, 73400320 + i % 4096);
	row_attr_text(r, ATTR_PAGE_TYPE, "normal", 6);
	row_attr_text(r, ATTR_ALLOC_TYPE, "alloc", 5);
}

static void die(const char *what)
{
	fprintf(stderr, "export_rate: %s\n", what);
	exit(1);
}

static double file_size(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : (double)st.st_size;
}

static struct result with_writer(const struct writer_ops *ops, const char *path, uint64_t rows)
{
	static struct row row;
	struct err err = {0};
	struct writer *w;
	double start = now_s();

	unlink(path);
	if (ops->open(path, ROW_SEED, &w, &err) < 0)
		die(err.text);
	for (uint64_t i = 0; i < rows; i++) {
		make_row(&row, i);
		if (ops->add(w, &row, &err) < 0)
			die(err.text);
		if (i % FLUSH_EVERY == FLUSH_EVERY - 1 && ops->flush(w, &err) < 0)
			die(err.text);
	}
	if (ops->close(w, &err) < 0)
		die(err.text);
	double rate = (double)rows / (now_s() - start);
	struct result r = {rate, file_size(path) / (double)rows};
	unlink(path);
	return r;
}

static struct result naive(const char *path, uint64_t rows)
{
	static struct row r;
	double start = now_s();

	unlink(path);
	FILE *f = fopen(path, "w");
	if (!f)
		die("cannot create the file");
	for (uint64_t i = 0; i < rows; i++) {
		make_row(&r, i);
		fprintf(f,
			"%" PRIu64 ",%s,%s,%s,%" PRIu64 ",%u,%u,%u,0x%016" PRIx64
			",\"{allocation_id:%" PRIu64 ",addr:0x%016" PRIx64 ",size:%" PRIu64
			",used:%" PRIu64 ",page_type:%s,alloc_type:%s}\",,\n",
			r.id, "MALLOC", "HAL", "N/A", r.time_ns, r.pid, r.tid, r.device, r.ptr,
			r.attrs[0].number, r.attrs[1].number, r.attrs[2].number, r.attrs[3].number,
			"normal", "alloc");
		fflush(f);
	}
	fclose(f);
	double rate = (double)rows / (now_s() - start);
	struct result result = {rate, file_size(path) / (double)rows};
	unlink(path);
	return result;
}

static int by_rate(const void *a, const void *b)
{
	double x = ((const struct result *)a)->rows_per_s,
	       y = ((const struct result *)b)->rows_per_s;

	return x < y ? -1 : x > y;
}

static struct result median(struct result *r)
{
	qsort(r, ROUNDS, sizeof(*r), by_rate);
	return r[ROUNDS / 2];
}

static void print(const char *what, struct result r, struct result base)
{
	printf("%-8s %10.0f rows/s  %7.1f ns/row  %6.1f bytes/row  %6.2fx\n", what, r.rows_per_s,
	       1e9 / r.rows_per_s, r.bytes_per_row, r.rows_per_s / base.rows_per_s);
}

int main(int argc, char **argv)
{
	uint64_t rows = getenv("BENCH_QUICK") ? 200000 : 1000000;
	const char *dir = argc > 2 ? argv[2] : "/tmp";
	struct result base[ROUNDS], csv[ROUNDS], db[ROUNDS];
	char path[4096];

	if (argc > 1)
		rows = strtoull(argv[1], NULL, 10);
	if (!rows)
		die("rows must be a number above 0");
	for (int i = 0; i < ROUNDS; i++) {
		snprintf(path, sizeof(path), "%s/export_rate_%d", dir, (int)getpid());
		base[i] = naive(path, rows / 10 + 1);
		csv[i] = with_writer(&csv_writer, path, rows);
		db[i] = with_writer(&db_writer, path, rows);
	}
	print("naive", median(base), base[ROUNDS / 2]);
	print("csv", median(csv), base[ROUNDS / 2]);
	print("db", median(db), base[ROUNDS / 2]);
	return 0;
}
