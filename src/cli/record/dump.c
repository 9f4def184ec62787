/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/record/dump.h"

#include <dirent.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "memory/input/recording_path.h"
#include "recorder/session.h"

#define WAIT_MS 30000
#define MAX_ENVIRONMENT (4u << 20)

/* What the environment of a process says; it is of this user, or cannot be read. */
static int find_by_pid(const char *pid, struct buf *out, struct err *err)
{
	static const char name[] = SESSION_ENV "=";
	char *path = xasprintf("/proc/%s/environ", pid);
	struct buf text = {0};
	int r = fs_read_file(path, MAX_ENVIRONMENT, &text, err);
	const char *found = NULL;

	for (const char *p = buf_str(&text); r == 0 && p < text.data + text.len; p += strlen(p) + 1)
		if (!strncmp(p, name, sizeof(name) - 1))
			found = p + sizeof(name) - 1;
	if (r == 0 && !found)
		r = err_set(err, -ENOENT,
			    "process %s is not recorded: start it by `sonde record -- PROGRAM`",
			    pid);
	if (found)
		buf_add_str(out, found);
	buf_release(&text);
	free(path);
	return r;
}

static int find_recording(const char *word, const char *output, struct buf *out, struct err *err)
{
	if (word && *word && strspn(word, "0123456789") == strlen(word))
		return find_by_pid(word, out, err);
	return recording_resolve(word ? word : output, out, err);
}

/* Waits until it is there. */
static int request_copy(const char *dir, struct err *err)
{
	const struct timespec step = {0, 10000000};
	struct control_page *page;
	struct stat st;
	int r = lstat(dir, &st) < 0 ? err_sys(err, -errno, "cannot open '%s'", dir) : 0;

	/* Its page is written to. */
	if (r == 0 && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()))
		r = err_set(err, -EPERM,
			    "'%s' belongs to another user: run this command as that user", dir);
	if (r == 0)
		r = session_map(dir, false, &page, err);
	if (r < 0)
		return r;
	if (!page->record.on || !session_is_live(dir, page)) {
		session_unmap(page);
		return err_set(err, -ENOENT,
			       "'%s' is not being recorded now: --dump needs a running job of "
			       "`sonde record`",
			       dir);
	}
	uint32_t frozen = atomic_load(&page->record.frozen);
	uint32_t asked = atomic_fetch_add(&page->record.freeze_asked, 1) + 1;
	syscall(SYS_futex, &page->exit_asked, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	for (unsigned ms = 0; ms < WAIT_MS; ms += 10) {
		if ((int32_t)(atomic_load(&page->record.freeze_done) - asked) >= 0)
			break;
		nanosleep(&step, NULL);
	}
	if (atomic_load(&page->record.frozen) == frozen)
		r = err_set(err, -EIO,
			    "no copy was made of '%s': its log, " SESSION_LOG ", may say why", dir);
	session_unmap(page);
	return r;
}

static void add_newest(const char *dir, struct buf *out)
{
	DIR *d = opendir(dir);
	unsigned best = 0;

	for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
		size_t n = strlen(SESSION_FROZEN);
		unsigned number = strncmp(e->d_name, SESSION_FROZEN, n)
					  ? 0
					  : (unsigned)strtoul(e->d_name + n, NULL, 10);

		if (number <= best)
			continue;
		best = number;
		buf_clear(out);
		buf_addf(out, "%s/%s", dir, e->d_name);
	}
	if (d)
		closedir(d);
}

int record_dump(const struct command *cmd, struct args *a, const char *output)
{
	struct buf dir = {0}, copy = {0}, text = {0};
	struct err err = {0};
	int status = EXIT_FAILED;

	if (a->nwords > 1) {
		err_set(&err, -EINVAL, "--dump takes one process or one directory");
		return command_fail(cmd, &err, EXIT_USAGE);
	}
	int r = find_recording(a->nwords ? a->words[0] : NULL, output, &dir, &err);
	if (r == 0)
		r = request_copy(buf_str(&dir), &err);
	if (r < 0) {
		status = command_fail(cmd, &err, EXIT_FAILED);
	} else {
		add_newest(buf_str(&dir), &copy);
		buf_addf(&text, "%s\n", buf_str(&copy));
		status = command_print(cmd, &text);
	}
	buf_release(&dir);
	buf_release(&copy);
	buf_release(&text);
	return status;
}
