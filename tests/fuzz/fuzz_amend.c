/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * dump_amend() over a file with the input behind a header. The rows stay what they were but for the
 * owner of some; what is no row stays too; and a second time changes nothing.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "memory/dump/amend.h"
#include "memory/dump/cell.h"
#include "memory/input/reader.h"
#include "memory/input/reader_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static char dir[64], path[80];

static void leave(void)
{
	unlink(path);
	rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	snprintf(dir, sizeof(dir), "%s/sonde-fuzz-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	BUG_ON(!mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/dump", dir);
	atexit(leave);
	return 0;
}

static const struct amendment *find(void *arg, uint32_t pid, uint64_t id)
{
	static struct amendment a;

	(void)arg;
	a = (struct amendment){pid, id, id % 4 ? "x,\"y\"" : NULL, id % 3 ? "o,p:q\"" : NULL,
			       id % 5 == 0};
	return id % 2 ? &a : NULL;
}

struct answer {
	size_t rows;
	uint64_t bad_rows;
	uint64_t sum;
	bool torn;
};

static struct answer read_file(void)
{
	struct answer answer = {0};
	struct dump *d;
	struct row row;

	if (dump_open(path, DUMP_SKIP_BAD, &d, NULL) < 0)
		return answer;
	while (dump_next(d, &row, NULL) > 0) {
		answer.rows++;
		answer.sum += row.id + row.time_ns + row.pid + row.tid + row.event * 7u;
		answer.sum += row.name_len + row.py_stack_len * 3 + row.c_stack_len * 5;
		answer.sum += dump_source(d)->line;
	}
	answer.bad_rows = dump_bad_rows(d);
	answer.torn = dump_torn(d);
	dump_close(d);
	return answer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char header[] = CELL_COLUMNS "\n";
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	uint64_t rows = 0;

	BUG_ON(fd < 0);
	BUG_ON(write(fd, header, sizeof(header) - 1) != sizeof(header) - 1);
	BUG_ON(write(fd, data, size) != (ssize_t)size);
	close(fd);
	struct answer before = read_file();
	BUG_ON(dump_amend(path, ROW_SEED, find, NULL, &rows, NULL) < 0);
	struct answer after = read_file();
	BUG_ON(before.rows != after.rows || before.bad_rows != after.bad_rows);
	BUG_ON(before.sum != after.sum || before.torn != after.torn);
	BUG_ON(dump_amend(path, ROW_SEED, find, NULL, &rows, NULL) < 0 || rows);
	return 0;
}
