/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/input/recording_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "memory/input/input.h"
#include "recorder/recording.h"
#include "recorder/session.h"
#include "wire/control_page.h"

#define PREFIX SESSION_PREFIX
#define POLL_MS 20

static bool has_file(const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	bool found = access(path, F_OK) == 0;

	free(path);
	return found;
}

static bool is_newer(const struct stat *a, const struct stat *b)
{
	if (a->st_mtim.tv_sec != b->st_mtim.tv_sec)
		return a->st_mtim.tv_sec > b->st_mtim.tv_sec;
	return a->st_mtim.tv_nsec > b->st_mtim.tv_nsec;
}

/* recording_*; what a trace of a running job has left, if its recording is in it. */
static bool is_recording_dir(const char *dir, const char *name)
{
	size_t len = strlen(name), end = strlen(SESSION_TRACE_SUFFIX);

	if (!strncmp(name, PREFIX, strlen(PREFIX)))
		return true;
	if (name[0] == '.' || len <= end || strcmp(name + len - end, SESSION_TRACE_SUFFIX))
		return false;
	char *path = xasprintf("%s/%s", dir, name);
	bool has = has_file(path, SESSION_RECORDING);
	free(path);
	return has;
}

/* The newest of them below dir, as a string to free; NULL if there is none. */
static char *newest_in(const char *dir)
{
	struct stat st, best = {0};
	struct dirent *e;
	char *found = NULL;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		if (!is_recording_dir(dir, e->d_name))
			continue;
		char *path = xasprintf("%s/%s", dir, e->d_name);
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
		    (!found || is_newer(&st, &best))) {
			best = st;
			free(found);
			found = path;
		} else {
			free(path);
		}
	}
	if (d)
		closedir(d);
	return found;
}

int recording_not_found(const char *path, int error, struct err *err)
{
	if (error != ENOENT)
		return err_sys(err, -error, "cannot find '%s'", path);
	return err_set(
		err, -ENOENT,
		"cannot find '%s': No such file or directory; to make a recording: sonde record "
		"-- PROGRAM",
		path);
}

int recording_resolve(const char *path, struct buf *out, struct err *err)
{
	char *inner = NULL;
	struct stat st;

	if (stat(path, &st) < 0)
		return recording_not_found(path, errno, err);
	if (S_ISDIR(st.st_mode) && !has_file(path, SESSION_FILE) &&
	    !has_file(path, SESSION_RECORDING))
		inner = newest_in(path);
	buf_add_str(out, inner ? inner : path);
	free(inner);
	return 0;
}

static bool is_alive(uint32_t pid)
{
	return pid && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

static bool is_finishing(const char *path)
{
	struct control_page page;

	return session_read(path, &page, NULL) == 0 && page.state == SESSION_LIVE &&
	       page.root_pid && !is_alive(page.root_pid) && session_is_live(path, &page);
}

int recording_wait(const char *path, unsigned seconds)
{
	const struct timespec nap = {.tv_nsec = POLL_MS * 1000000l};
	unsigned long tries = seconds * 1000ul / POLL_MS;
	bool busy = is_finishing(path);

	for (; busy && tries; tries--) {
		nanosleep(&nap, NULL);
		busy = is_finishing(path);
	}
	return busy;
}

/* It is in the first frame, or in the one behind what was dropped. */
bool input_find_host(const char *path, struct buf *out)
{
	struct recording_reader *r = NULL;
	const char *payload;
	json_t *session = NULL;
	uint32_t type;
	size_t bytes;

	if (recording_open(&r, path, NULL) < 0)
		return false;
	for (unsigned i = 0;
	     i < 4 && !session && recording_next(r, &type, &payload, &bytes, NULL) > 0; i++)
		if (type == FRAME_SESSION)
			session = json_loadb(payload, bytes, 0, NULL);
	const char *host = json_string_value(json_object_get(session, "host"));
	if (host)
		buf_add_str(out, host);
	recording_reader_free(r);
	json_decref(session);
	return host && *host;
}
