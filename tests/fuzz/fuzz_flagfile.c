/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A file of options, read into those of the daemon. Every text that was taken is touched. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/daemon/daemon_options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const usage[] = {"", NULL};
static const struct args_spec spec = {
	.name = "daemon", .usage = usage, .options = daemon_option_table, .flags = ARGS_GFLAGS};

static volatile size_t touched;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct daemon_options o;
	struct args a = {.target = &o};
	struct err err = {0};
	char word[64];
	char *argv[] = {word, NULL};
	int fd = memfd_create("flags", MFD_CLOEXEC);

	/* A file that names others would lead out of the input. */
	if (fd < 0 || memmem(data, size, "fl", 2) || write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return 0;
	}
	snprintf(word, sizeof(word), "--flagfile=/proc/self/fd/%d", fd);
	daemon_options_init(&o);
	if (args_parse(&a, &spec, 1, argv, &err) == 0 && daemon_options_check(&o, &err) == 0) {
		size_t sum = strlen(o.config.certs_dir);

		for (int i = 0; o.config.binds[i]; i++)
			sum += strlen(o.config.binds[i]);
		for (int i = 0; i < DAEMON_FOREIGN_OPTIONS; i++)
			sum += o.foreign[i] ? strlen(o.foreign[i]) : 0;
		touched = sum;
	}
	daemon_options_release(&o);
	args_release(&a);
	close(fd);
	return 0;
}
