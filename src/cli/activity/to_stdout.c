/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/activity/to_stdout.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define PIECE 65536

static int write_all(const char *data, size_t n, struct err *err)
{
	while (n) {
		ssize_t done = write(STDOUT_FILENO, data, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return err_sys(err, -errno, "cannot write to the standard output");
		data += done;
		n -= (size_t)done;
	}
	return 0;
}

static int print_file(const char *path, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), r = 0;
	char piece[PIECE];
	ssize_t n = 0;

	if (fd < 0)
		return err_sys(err, -errno, "cannot read '%s'", path);
	while (r == 0 && (n = read(fd, piece, sizeof(piece))) > 0)
		r = write_all(piece, (size_t)n, err);
	if (r == 0 && n < 0)
		r = err_sys(err, -errno, "cannot read '%s'", path);
	close(fd);
	return r;
}

static int is_plain(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

/* Prints all files if `print`, and removes them in any case. */
static int print_dir(const char *dir, bool print, struct err *err)
{
	struct dirent **found = NULL;
	int n = scandir(dir, &found, is_plain, alphasort), r = 0;

	for (int i = 0; i < n; i++) {
		char *path = xasprintf("%s/%s", dir, found[i]->d_name);

		if (print && r == 0)
			r = print_file(path, err);
		unlink(path);
		free(path);
		free(found[i]);
	}
	free(found);
	rmdir(dir);
	return r;
}

int activity_stdout(stdout_make_fn make, void *arg, struct err *err)
{
	const char *tmp = getenv("TMPDIR");
	char *dir = xasprintf("%s/sonde-export-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	struct stat st;

	if (!mkdtemp(dir)) {
		int code = err_sys(err, -errno,
				   "cannot make a directory for what is to be printed in '%s'",
				   tmp && *tmp ? tmp : "/tmp");
		free(dir);
		return code;
	}
	char *path = xasprintf("%s/out", dir);
	int r = make(arg, path, err);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		int printed = print_dir(path, r == 0, r == 0 ? err : NULL);

		r = r < 0 ? r : printed;
	}
	int printed = print_dir(dir, r == 0, r == 0 ? err : NULL);
	free(path);
	free(dir);
	return r < 0 ? r : printed;
}
