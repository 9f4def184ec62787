/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "launch/recording.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/proc.h"
#include "launch/program.h"
#include "recorder/session.h"
#include "recorder/start.h"
#include "wire/control_page.h"

#define MAX_OUTPUT 900 /* what the libraries inside the job have room for */
#define MAX_SUFFIX 1000

/* Does the file say who loads it? What is no program of ELF, such as a script, has a loader. */
static bool has_loader(int fd)
{
	Elf64_Ehdr head;
	Elf64_Phdr part;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_phentsize != sizeof(part))
		return true;
	for (unsigned i = 0; i < head.e_phnum; i++) {
		off_t at = (off_t)(head.e_phoff + i * sizeof(part));

		if (pread(fd, &part, sizeof(part), at) != sizeof(part) || part.p_type == PT_INTERP)
			return true;
	}
	return false;
}

enum mem_program launch_program_kind(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return MEM_PROGRAM_ANY;
	bool other_user = st.st_mode & S_ISUID && st.st_uid != getuid();
	bool other_group = st.st_mode & S_ISGID && st.st_mode & S_IXGRP && st.st_gid != getgid();
	if (other_user || other_group || getxattr(path, "security.capability", NULL, 0) > 0)
		return MEM_PROGRAM_PRIVILEGED;
	int fd = fs_open(path, O_RDONLY, 0, NULL);
	if (fd < 0)
		return MEM_PROGRAM_ANY;
	bool loaded = has_loader(fd);
	close(fd);
	return loaded ? MEM_PROGRAM_ANY : MEM_PROGRAM_STATIC;
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
		LAUNCH_KERNEL_HOOK,
		atb_library(a),
		"libsonde_cuda_hook.so",
		host_memory ? "libsonde_host_hook.so" : NULL,
	};
	const char *before = getenv("LD_PRELOAD");
	size_t start = out->len;

	for (size_t i = 0; i < sizeof(libs) / sizeof(libs[0]); i++) {
		if (!libs[i])
			continue;
		if (!launch_has_library(lib_dir, libs[i])) {
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

/* The name of this host as a part of a file name. */
static void add_host(struct buf *path)
{
	char host[65] = "";

	(void)gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	for (char *p = host; *p; p++)
		if (!isalnum((unsigned char)*p))
			*p = '-';
	if (*host)
		buf_addf(path, "_%s", host);
}

/*
 * Makes <output>/recording_<pid>_<time>, with a suffix if that is taken, and adds its path. with_host:
 * the name of the host comes behind that, as hosts may share a directory.
 */
static int make_dir(const char *output, bool with_host, struct buf *out, struct err *err)
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
		if (with_host)
			add_host(&path);
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

/* Of system calls: the job begins with those that we have. */
static uint32_t own_filters(void)
{
	char text[4096];
	ssize_t n = proc_read(getpid(), "status", text, sizeof(text));

	return n > 0 ? proc_status_filters(text, (size_t)n) : 0;
}

static int start_recorder(const char *dir, const struct mem_config *config,
			  const struct session_record *record, struct err *err)
{
	struct control_page *page;

	int r = session_map(dir, true, &page, err);
	if (r < 0)
		return r;
	mem_config_publish(config, page);
	page->filters = own_filters();
	mem_config_choose_report(config, page);
	if (record)
		page->record = *record;
	r = recorder_start(dir, page, err);
	session_unmap(page);
	return r;
}

int launch_recording(const struct mem_config *c, const struct session_record *record,
		     struct buf *out_dir, struct err *err)
{
	int r = make_dir(c->output_dir, record != NULL, out_dir, err);

	if (r < 0)
		return r;
	char *config = xasprintf("%s/%s", buf_str(out_dir), SESSION_CONFIG);
	r = mem_config_write(c, config, err);
	if (r == 0)
		r = start_recorder(buf_str(out_dir), c, record, err);
	if (r < 0) {
		(void)fs_unlink(config, NULL);
		(void)fs_rmdir(buf_str(out_dir), NULL);
	}
	free(config);
	return r;
}

int launch_set_environment(const char *dir, const char *preload, struct err *err)
{
	char *config = xasprintf("%s/%s", dir, SESSION_CONFIG), *asan = launch_asan_options();
	int r = 0;

	if (setenv(SESSION_ENV, dir, 1) < 0 || (*preload && setenv("LD_PRELOAD", preload, 1) < 0) ||
	    setenv(SESSION_CONFIG_ENV, config, 1) < 0 || (asan && setenv(ASAN_ENV, asan, 1) < 0))
		r = err_sys(err, -errno, "cannot set the environment");
	free(config);
	free(asan);
	return r;
}
