/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sampler/discover/discover_impl.h"

#define MAX_FILES 4096 /* of a process; a device is opened early */

/* The number behind the prefix, -1 if it is another file. */
static int number_of(const char *path, const char *prefix)
{
	size_t n = strlen(prefix);
	char *end;

	if (strncmp(path, prefix, n) != 0 || !isdigit((unsigned char)path[n]))
		return -1;
	long v = strtol(path + n, &end, 10);
	return *end || v > INT16_MAX ? -1 : (int)v;
}

static int open_device(pid_t pid, const char *prefix)
{
	char path[64], link[256];
	int device = -1, left = MAX_FILES;
	struct dirent *e;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *d = opendir(path);
	while (d && device < 0 && left-- && (e = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof(link) - 1);

		if (n <= 0)
			continue;
		link[n] = '\0';
		device = number_of(link, prefix);
	}
	if (d)
		closedir(d);
	return device;
}

void find_by_open_file(struct finder *f, const char *prefix)
{
	const struct pid_list *all = finder_all(f);

	for (size_t i = 0; i < all->n; i++) {
		int device = open_device(all->v[i], prefix);

		if (device >= 0)
			finder_add(f, &(struct discovered){all->v[i], device, UINT64_MAX, false});
	}
}
