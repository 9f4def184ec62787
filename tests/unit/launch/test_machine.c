/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "launch/recording.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"
#include "tmpdir.h"

static void make_file(const char *dir, const char *name, const char *text, size_t len)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	CHECK(fd >= 0 && write(fd, text, len) == (ssize_t)len);
	close(fd);
}

TEST(machine, counts_devices_and_finds_the_driver)
{
	static const char *const names[] = {
		"nvidia0",  "nvidia1",	       "nvidia17", "nvidiactl", "nvidia-uvm", "nvidia",
		"davinci3", "davinci_manager", "xnvidia0", "nvidia0x",	"0",
	};
	static const char cache[] = "glibc-ld.so.cache1.1\0libcuda.so.12\0libcuda.so.1\0/x";
	const char *dir = tmpdir();
	char paths[1024], file[512];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		make_file(dir, names[i], "", 0);
	snprintf(file, sizeof(file), "%s/cache", dir);
	struct mem_machine m = launch_inspect_machine(dir, NULL, file);
	CHECK(m.gpus == 3 && m.npus == 1);
	if (access("/usr/lib64/libcuda.so.1", F_OK) && access("/usr/lib/libcuda.so.1", F_OK))
		CHECK(m.cuda == MEM_DRIVER_MISSING);
	make_file(dir, "cache", cache, 34); /* another library, and the text is cut */
	CHECK(launch_inspect_machine("/nowhere", "", file).cuda == m.cuda);
	make_file(dir, "cache", cache, sizeof(cache));
	m = launch_inspect_machine("/nowhere", NULL, file);
	CHECK(m.cuda == MEM_DRIVER_FOUND && !m.gpus && !m.npus);
	make_file(dir, "libcuda.so.1", "", 0);
	snprintf(paths, sizeof(paths), "/nowhere::%s", dir);
	CHECK(launch_inspect_machine(dir, paths, "/nowhere").cuda == MEM_DRIVER_FOUND);
}
