/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/read/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activity/files/activity.h"
#include "activity/read/recording.h"
#include "base/fs.h"

#define HEAD_BYTES 256

static const char magic[] = "SQLite format 3"; /* with its NUL */

void activity_about_release(struct activity_about *a)
{
	free(a->groups);
	free(a->host);
	*a = (struct activity_about){.rank = -1};
}

bool activity_read_is_name(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && (!strcmp(dot, ".db") || !strcmp(dot, ".jsonl"));
}

/* msmonitor_<pid>_<time>_<rank>.… says who it was. */
static void read_name(const char *path, struct activity_about *about)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	unsigned pid;
	int rank, n = 0;

	if (sscanf(name, ACTIVITY_FILE_PREFIX "%9u_%*17[0-9]_%9d.%n", &pid, &rank, &n) == 2 && n) {
		about->pid = pid;
		about->rank = rank >= 0 ? rank : -1;
	}
}

/* What the other commands write for people to view. */
static bool is_timeline(const char *head)
{
	return strstr(head, "\"traceEvents\"") || (head[0] == '[' && strstr(head, "\"ph\""));
}

int activity_read_refuse(const char *path, const char *why, struct err *err)
{
	return err_set(err, -EINVAL,
		       "'%s' is neither a DB nor Jsonl of activities: %s; npu-monitor and nputrace "
		       "write such files, *.db and *.jsonl, with --log-file",
		       path, why);
}

/* A file that its writer has made and was killed before the first line is Jsonl, too. */
static bool is_jsonl(const char *path, const char *head, size_t n)
{
	size_t blank = strspn(head, " \t\r\n"), len = strlen(path);

	if (!n)
		return len > 6 && !strcmp(path + len - 6, ".jsonl");
	return blank == n || head[blank] == '{';
}

int activity_read(const char *path, activity_read_fn fn, void *arg, struct activity_about *about,
		  struct err *err)
{
	if (activity_recording_is_path(path))
		return activity_read_process(path, fn, arg, about, err);
	int fd = fs_open(path, O_RDONLY, 0, err);
	char head[HEAD_BYTES + 1] = "";
	struct stat st;

	if (fd < 0)
		return fd;
	bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
	ssize_t n = is_file ? pread(fd, head, HEAD_BYTES, 0) : 0;
	close(fd);
	if (!is_file)
		return err_set(err, -EINVAL, "'%s' is not a file of activities", path);
	if (n < 0)
		return err_sys(err, -EIO, "cannot read '%s'", path);
	if (is_timeline(head))
		return err_set(err, -EINVAL,
			       "'%s' is a timeline, for chrome://tracing and ui.perfetto.dev: give "
			       "the directory it is in, or the .db or .jsonl file of activities",
			       path);
	about->rank = -1;
	read_name(path, about);
	bool db = n >= (ssize_t)sizeof(magic) && !memcmp(head, magic, sizeof(magic));
	if (!db && !is_jsonl(path, head, (size_t)n))
		return activity_read_refuse(
			path, n ? "it begins like neither of them" : "it is empty", err);
	about->format = db ? "DB" : "Jsonl";
	return db ? activity_read_db(path, fn, arg, about, err)
		  : activity_read_jsonl(path, fn, arg, about, err);
}
