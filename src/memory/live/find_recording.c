/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A process that is recorded has the control page of its recording mapped, wherever that lies: so the
 * list of its mappings says which recording it is, also where the environment does not. Only its owner
 * and root may read that list.
 */
#include "memory/live/find_recording.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/proc.h"
#include "base/text/number_read.h"
#include "memory/input/recording_path.h"
#include "recorder/session.h"
#include "wire/control_page.h"

#define MAX_DEPTH 16 /* of processes below the one that was named */

/* Of a line of /proc/PID/maps: the directory of a session that is mapped; NULL. */
static char *session_of_line(char *line)
{
	static const char name[] = "/" SESSION_FILE "\n";
	char *path = strchr(line, '/');
	size_t len = path ? strlen(path) : 0;
	struct control_page page;

	if (len < sizeof(name) || strcmp(path + len - strlen(name), name) != 0)
		return NULL;
	path[len - strlen(name)] = '\0';
	if (is_monitor_session(path) || session_read(path, &page, NULL) < 0)
		return NULL;
	return xstrdup(path);
}

/* Free it; NULL and errno: 0 if the process has none. */
static char *session_of(pid_t pid)
{
	char name[64], *line = NULL, *found = NULL;
	size_t cap = 0;

	snprintf(name, sizeof(name), "/proc/%d/maps", (int)pid);
	FILE *maps = fopen(name, "re");
	while (maps && !found && getline(&line, &cap, maps) > 0)
		found = session_of_line(line);
	int why = !maps ? errno : ferror(maps) ? EACCES : 0;
	if (maps)
		fclose(maps);
	free(line);
	errno = why;
	return found;
}

/* Launchers and shells are often not recorded, what they start is. */
static char *session_below(pid_t parent, unsigned depth)
{
	DIR *all = depth < MAX_DEPTH ? opendir("/proc") : NULL;
	struct dirent *e;
	char *found = NULL;

	while (all && !found && (e = readdir(all))) {
		struct proc_stat st;
		int64_t pid;

		if (!number_read(e->d_name, strlen(e->d_name), &pid) || pid <= 0 ||
		    pid > INT32_MAX || proc_stat_read((pid_t)pid, &st) < 0 ||
		    (pid_t)st.parent != parent)
			continue;
		found = session_of((pid_t)pid);
		if (!found)
			found = session_below((pid_t)pid, depth + 1);
	}
	if (all)
		closedir(all);
	return found;
}

int live_find(const char *word, struct buf *out_path, struct err *err)
{
	struct proc_stat st;
	int64_t pid;

	if (!number_read(word, strlen(word), &pid) || pid <= 0 || pid > INT32_MAX ||
	    access(word, F_OK) == 0)
		return recording_resolve(word, out_path, err);
	if (proc_stat_read((pid_t)pid, &st) < 0)
		return err_set(err, -ESRCH, "there is no process %lld, and no file of that name",
			       (long long)pid);
	char *found = session_of((pid_t)pid);
	int why = errno;
	if (!found)
		found = session_below((pid_t)pid, 0);
	if (!found && why == EACCES)
		return err_set(err, -EACCES,
			       "process %lld belongs to somebody else: name the directory of its "
			       "recording, or ask as its user or as root",
			       (long long)pid);
	if (!found)
		return err_set(
			err, -ENOENT,
			"process %lld is not being recorded: start it with 'sonde mem record "
			"-- COMMAND' (or msmemscope), or name the directory of a recording",
			(long long)pid);
	buf_add_str(out_path, found);
	free(found);
	return 0;
}
