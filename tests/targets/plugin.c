/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * plugin COUNTER LIBRARY: a program that is not linked with the driver and opens it privately, as
 * Python does; uses it, closes it, opens it again. The recorded events come through the hook that
 * the symbol lookup of the handle cannot see: so what is found by name is asked for globally.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*alloc_fn)(void **, unsigned long long, unsigned long long);
typedef int (*free_fn)(void *);

static uint64_t count;

/* A second library that is linked with the driver, as a framework would be: libascendcl. */
static int round_trip(const char *library)
{
	void *h = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	void *p;

	if (!h) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	alloc_fn alloc = (alloc_fn)dlsym(RTLD_DEFAULT, "halMemAlloc");
	free_fn release = (free_fn)dlsym(RTLD_DEFAULT, "halMemFree");
	if (!alloc || !release) {
		/* An unrecorded run: nobody else has the name. */
		alloc = (alloc_fn)dlsym(h, "halMemAlloc");
		release = (free_fn)dlsym(h, "halMemFree");
	}
	for (int i = 0; i < 100; i++) {
		if (alloc(&p, 4096, 1ull << 10))
			return 2;
		count++;
		if (release(p))
			return 3;
		count++;
	}
	dlclose(h);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 98;
	for (int i = 0; i < 3; i++) {
		int r = round_trip(argv[2]);
		if (r)
			return r;
	}
	int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	if (write(fd, &count, sizeof(count)) != (ssize_t)sizeof(count))
		return 4;
	close(fd);
	puts("plugged");
	return 0;
}
