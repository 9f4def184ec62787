/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/mem/preload.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "memory/options/config.h"
#include "wire/control_page.h"

#define MAX_OUTPUT 900 /* what the libraries inside the job have room for */
#define MAX_SUFFIX 1000
#define KERNEL_HOOK "libascend_kernel_hook.so"

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

static bool has_library(const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	bool found = access(path, R_OK) == 0;

	free(path);
	return found;
}

/* The loader splits LD_PRELOAD at these and knows no way to quote them. */
static int check_lib_dir(const char *dir, struct err *err)
{
	if (!has_library(dir, KERNEL_HOOK))
		return err_set(err, -ENOENT, "cannot find '%s' in '%s'", KERNEL_HOOK, dir);
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
			KERNEL_HOOK, exe);
out:
	if (r == 0)
		buf_add(out, dir.data, dir.len);
	buf_release(&dir);
	return r;
}

/* The ATB hooks for the C++ string ABI that $ATB_HOME_PATH is built with; NULL for none. */
static const char *atb_library(struct args *a)
{
	const char *home = getenv("ATB_HOME_PATH");

	if (!home || !*home)
		return NULL;
	size_t len = strlen(home);
	while (len > 1 && home[len - 1] == '/')
		len--;
	static const char suffix[] = "atb/cxx_abi_";
	size_t n = sizeof(suffix) - 1;
	if (len > n && !strncmp(home + len - n - 1, suffix, n)) {
		if (home[len - 1] == '0')
			return "libatb_abi_0_hook.so";
		if (home[len - 1] == '1')
			return "libatb_abi_1_hook.so";
	}
	args_notice(a,
		    "Warn: ATB is not recorded: ATB_HOME_PATH '%.200s' does not end in "
		    "atb/cxx_abi_0 or atb/cxx_abi_1.",
		    home);
	return NULL;
}

int launch_preload(const char *lib_dir, bool host_memory, struct args *a, struct buf *out,
		   struct err *err)
{
	const char *libs[] = {
		"libleaks_ascend_hal_hook.so",
		"libascend_mstx_hook.so",
		KERNEL_HOOK,
		atb_library(a),
		host_memory ? "libsonde_host_hook.so" : NULL,
	};
	const char *before = getenv("LD_PRELOAD");
	size_t start = out->len;

	for (size_t i = 0; i < sizeof(libs) / sizeof(libs[0]); i++) {
		if (!libs[i])
			continue;
		if (!has_library(lib_dir, libs[i])) {
			args_notice(a,
				    "Warn: '%s' is missing in '%s'; its events are not recorded.",
				    libs[i], lib_dir);
			continue;
		}
		buf_addf(out, "%s%s/%s", out->len > start ? ":" : "", lib_dir, libs[i]);
	}
	if (out->len == start)
		return err_set(err, -ENOENT, "cannot find the libraries to preload in '%s'",
			       lib_dir);
	if (before && *before)
		buf_addf(out, ":%s", before);
	return 0;
}

int launch_make_dir(const char *output, struct buf *out, struct err *err)
{
	char now[FS_TIMESTAMP_BYTES];
	struct buf path = {0};
	struct err why = {0};
	int r = fs_mkdirs(output, err);

	if (r < 0)
		return r;
	if (strlen(output) > MAX_OUTPUT)
		return err_set(
			err, -ENAMETOOLONG,
			"the output path has %zu characters; recordings need one of at most %d",
			strlen(output), MAX_OUTPUT);
	fs_timestamp(now);
	for (int i = 1; i <= MAX_SUFFIX; i++) {
		buf_clear(&path);
		buf_addf(&path, "%s/recording_%d_%s", strcmp(output, "/") ? output : "",
			 (int)getpid(), now);
		if (i > 1)
			buf_addf(&path, "_%d", i);
		r = fs_mkdir(buf_str(&path), FS_DIR_MODE, &why);
		if (r != -EEXIST)
			break;
	}
	if (r < 0 && err)
		*err = why;
	else if (r == 0)
		buf_add(out, path.data, path.len);
	buf_release(&path);
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

int launch_set_environment(const char *dir, const char *preload, struct err *err)
{
	char *config = xasprintf("%s/%s", dir, SESSION_CONFIG), *asan = launch_asan_options();
	int r = 0;

	if (setenv(SESSION_ENV, dir, 1) < 0 || setenv("LD_PRELOAD", preload, 1) < 0 ||
	    setenv(MEM_CONFIG_ENV, config, 1) < 0 || (asan && setenv(ASAN_ENV, asan, 1) < 0))
		r = err_sys(err, -errno, "cannot set the environment");
	free(config);
	free(asan);
	return r;
}
