/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "launch/program.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"

/* 0, -ENOENT or -EACCES, as exec would say. */
static int check_program(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return errno == EACCES ? -EACCES : -ENOENT;
	if (!S_ISREG(st.st_mode) || access(path, X_OK) < 0)
		return -EACCES;
	return 0;
}

int launch_find_program(const char *name, struct buf *out, struct err *err)
{
	const char *path = getenv("PATH");
	struct buf full = {0};
	int r = -ENOENT;

	if (strchr(name, '/') || !*name) {
		r = *name ? check_program(name) : -ENOENT;
		buf_add_str(&full, name);
		path = NULL;
	} else if (!path) {
		path = "/bin:/usr/bin";
	}
	while (path && r != 0) {
		size_t len = strcspn(path, ":");

		buf_clear(&full);
		buf_add(&full, path, len);
		buf_addf(&full, "%s%s", len ? "/" : "./", name);
		int got = check_program(buf_str(&full));
		r = got == 0 || r == -ENOENT ? got : r;
		path = path[len] ? path + len + 1 : NULL;
	}
	if (r == 0)
		buf_add(out, full.data, full.len);
	else
		err_sys(err, r, "cannot run '%s'", name);
	buf_release(&full);
	return r;
}

bool launch_has_library(const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	bool found = access(path, R_OK) == 0;

	free(path);
	return found;
}

/* The loader splits LD_PRELOAD at these and knows no way to quote them. */
static int check_lib_dir(const char *dir, struct err *err)
{
	if (!launch_has_library(dir, LAUNCH_KERNEL_HOOK))
		return err_set(err, -ENOENT, "cannot find '%s' in '%s'", LAUNCH_KERNEL_HOOK, dir);
	if (strpbrk(dir, ": \t\n"))
		return err_set(
			err, -EINVAL,
			"cannot preload libraries from '%s': the path has a colon or a space; "
			"install sonde somewhere else",
			dir);
	return 0;
}

int launch_lib_dir(struct buf *out, struct err *err)
{
	static const char *const beside[] = {"/../lib", "/../lib64"};
	const char *set = getenv("LD_PRELOAD_PATH");
	char exe[PATH_MAX];
	struct buf dir = {0};
	int r = -ENOENT;

	if (set && *set) {
		r = fs_absolute(set, &dir, err);
		if (r == 0)
			r = check_lib_dir(buf_str(&dir), err);
		goto out;
	}
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	if (n < 0)
		return err_sys(err, -errno, "cannot find our own program file");
	exe[n] = '\0';
	*strrchr(exe, '/') = '\0';
	for (int i = 0; i < 2 && r == -ENOENT; i++) {
		char *path = xasprintf("%s%s", exe, beside[i]);

		buf_clear(&dir);
		r = fs_absolute(path, &dir, err);
		free(path);
		if (r == 0)
			r = check_lib_dir(buf_str(&dir), err);
	}
	if (r == -ENOENT)
		err_set(err, r,
			"cannot find the libraries to preload: no '%s' in lib or lib64 beside '%s'",
			LAUNCH_KERNEL_HOOK, exe);
out:
	if (r == 0)
		buf_add(out, dir.data, dir.len);
	buf_release(&dir);
	return r;
}

char *launch_asan_options(void)
{
	static const char option[] = "verify_asan_link_order";
	const char *before = getenv(ASAN_ENV);

	if (before && strstr(before, option))
		return NULL;
	return xasprintf("%s%s%s=0", before ? before : "", before && *before ? ":" : "", option);
}
