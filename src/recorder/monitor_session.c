/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/session.h"

#include "base/fs.h"
#include "base/mem.h"
#include "recorder/arena.h"

#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool is_monitor_session(const char *dir)
{
	const char *slash = strrchr(dir, '/');

	return slash && !strncmp(slash + 1, SESSION_MONITOR_PREFIX, strlen(SESSION_MONITOR_PREFIX));
}

/* Only what we know to be ours; anything else stays, and the directory with it. */
void monitor_session_remove(const char *dir)
{
	static const char *const names[] = {SESSION_FILE, SESSION_REPORT, SESSION_CONFIG,
					    SESSION_LOG};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *path = xasprintf("%s/%s", dir, names[i]);
		(void)fs_unlink(path, NULL);
		free(path);
	}
	(void)fs_rmdir(dir, NULL);
	char *copy = xstrdup(dir), *place = dirname(copy), *name = strrchr(place, '/');
	if (name && !strncmp(name + 1, SESSION_MONITOR_PLACE, strlen(SESSION_MONITOR_PLACE)) &&
	    strchr(name, '.'))
		(void)fs_rmdir(place, NULL);
	free(copy);
}

/* One for each ring; stops where fn says no. */
static bool each_ring(const char *dir, bool (*fn)(const char *dir, const char *name))
{
	DIR *d = opendir(dir);
	bool all = d != NULL;

	for (struct dirent *e = d ? readdir(d) : NULL; e && all; e = readdir(d))
		if (arena_is_name(e->d_name))
			all = fn(dir, e->d_name);
	if (d)
		closedir(d);
	return all;
}

static bool ring_remove(const char *dir, const char *name)
{
	(void)arena_remove(dir, name, NULL);
	return true;
}

/* A session that has not begun yet has had no recorder; one that ended has no directory. */
static bool is_abandoned(const char *dir)
{
	struct control_page *page;

	if (session_map(dir, false, &page, NULL) < 0)
		return false;
	bool is = atomic_load(&page->state) == SESSION_LIVE && atomic_load(&page->recorder_pid) &&
		  !session_is_live(dir, page) && each_ring(dir, arena_is_done);
	session_unmap(page);
	return is;
}

void monitor_session_sweep(const char *dir)
{
	char *copy = xstrdup(dir), *place = dirname(copy);
	DIR *d = opendir(place);

	for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
		char *path = xasprintf("%s/%s", place, e->d_name);
		if (is_monitor_session(path) && strcmp(path, dir) != 0 && is_abandoned(path)) {
			each_ring(path, ring_remove);
			monitor_session_remove(path);
		}
		free(path);
	}
	if (d)
		closedir(d);
	free(copy);
}
