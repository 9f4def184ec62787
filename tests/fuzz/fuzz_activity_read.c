/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Files of activities. What begins like a database is read as one, from a file; everything else as
 * lines of JSON, and once more as a file of them. Every text is touched.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activity/read/read.h"
#include "base/mem.h"
#include "wire/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int touch(void *arg, const struct activity *a)
{
	uint64_t *n = arg;

	BUG_ON(!activity_kind_name(a->kind));
	BUG_ON(strlen(a->name) + strlen(a->detail) + strlen(a->more) > 256u << 20);
	BUG_ON(a->place > ACTIVITY_ON_DEVICE);
	++*n;
	return 0;
}

static const char *in_file(const uint8_t *data, size_t size)
{
	static char path[64];

	if (!path[0])
		snprintf(path, sizeof(path), "/tmp/sonde_fuzz_activity_%ld", (long)getpid());
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	BUG_ON(fd < 0 || write(fd, data, size) != (ssize_t)size);
	close(fd);
	return path;
}

static void read_file(const uint8_t *data, size_t size)
{
	struct activity_about about = {0};
	const char *path = in_file(data, size);
	struct err err = {0};
	uint64_t n = 0;
	int r = activity_read(path, touch, &n, &about, &err);

	BUG_ON(r < 0 && !err.text[0]);
	BUG_ON(n != about.activities);
	activity_about_release(&about);
	unlink(path);
}

static void read_lines(const uint8_t *data, size_t size)
{
	struct activity_about about = {0};
	const char *p = (const char *)data, *end = p + size;
	uint64_t n = 0;

	while (p < end) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));
		size_t len = (size_t)((stop ? stop : end) - p);
		char *copy = xmalloc(len + 1); /* of just that size: reading on is noticed */
		struct activity a;
		struct err err = {0};

		memcpy(copy, p, len);
		int r = activity_read_line(copy, len, &a, &about, &err);
		BUG_ON(r < 0 && !err.text[0]);
		if (r == 1)
			touch(&n, &a);
		free(copy);
		p += len + 1;
	}
	activity_about_release(&about);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char magic[] = "SQLite format 3";

	if (size >= sizeof(magic) && !memcmp(data, magic, sizeof(magic))) {
		read_file(data, size);
		return 0;
	}
	read_lines(data, size);
	read_file(data, size);
	return 0;
}
