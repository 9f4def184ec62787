/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/report/open_page.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"

static bool has_desktop(void)
{
	const char *x = getenv("DISPLAY"), *wayland = getenv("WAYLAND_DISPLAY");

	return (x && *x) || (wayland && *wayland);
}

/* No shell: a path may have any signs. The program passes the file on and ends. */
static bool run_opener(const char *path)
{
	char *argv[] = {(char *)"xdg-open", (char *)(uintptr_t)path, NULL};
	posix_spawn_file_actions_t actions;
	int status = -1;
	pid_t pid;

	if (posix_spawn_file_actions_init(&actions) != 0)
		return false;
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	int r = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (r != 0 || waitpid(pid, &status, 0) != pid)
		return false;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void open_page(const char *command, const char *path)
{
	struct buf full = {0};

	/* absolute: no name can look like an option, or like the address of another thing */
	if (fs_absolute(path, &full, NULL) < 0 || !has_desktop() || !run_opener(buf_str(&full)))
		fprintf(stderr, "%s: there is no browser to open it here; the file is %s\n",
			command, full.len ? buf_str(&full) : path);
	buf_release(&full);
}
