/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which devices a job could have used: for the message that nothing was recorded. */
#include "launch/recording.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

#define DRIVER "libcuda.so.1"
#define MAX_CACHE (64u << 20)

/* nvidia0, but not nvidiactl, nvidia-uvm. */
static bool is_device(const char *name, const char *kind)
{
	size_t len = strlen(kind);

	if (strncmp(name, kind, len) != 0)
		return false;
	size_t digits = strspn(name + len, "0123456789");
	return digits && !name[len + digits];
}

static void count_devices(const char *dev, struct mem_machine *m)
{
	DIR *dir = opendir(dev);
	const struct dirent *e;

	while (dir && (e = readdir(dir))) {
		m->gpus += is_device(e->d_name, "nvidia");
		m->npus += is_device(e->d_name, "davinci");
	}
	if (dir)
		closedir(dir);
}

/* The names of libraries are texts with a NUL in it. */
static bool is_in_cache(const char *path)
{
	int fd = fs_open(path, O_RDONLY, 0, NULL);
	struct stat st;
	bool found = false;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
	    st.st_size < (off_t)MAX_CACHE) {
		char *text = malloc((size_t)st.st_size);
		ssize_t n = text ? pread(fd, text, (size_t)st.st_size, 0) : -1;

		found = n > 0 && memmem(text, (size_t)n, DRIVER, sizeof(DRIVER));
		free(text);
	}
	close(fd);
	return found;
}

static bool is_in_folder(const char *folder, size_t len)
{
	char path[4096];

	if (len + sizeof("/" DRIVER) > sizeof(path))
		return false;
	if (!len)
		folder = ".", len = 1;
	memcpy(path, folder, len);
	memcpy(path + len, "/" DRIVER, sizeof("/" DRIVER));
	return access(path, R_OK) == 0;
}

static bool is_in_folders(const char *paths)
{
	while (paths && *paths) {
		size_t len = strcspn(paths, ":;");

		if (is_in_folder(paths, len))
			return true;
		paths += len + (paths[len] != '\0');
	}
	return false;
}

struct mem_machine launch_inspect_machine(const char *dev, const char *paths, const char *cache)
{
	/* where the loader looks without a cache */
	bool found = is_in_folders(paths) || is_in_cache(cache) ||
		     is_in_folders("/lib64:/usr/lib64:/lib:/usr/lib");
	struct mem_machine m = {.cuda = found ? MEM_DRIVER_FOUND : MEM_DRIVER_MISSING};

	count_devices(dev, &m);
	return m;
}
