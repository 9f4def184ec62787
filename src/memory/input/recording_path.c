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
#include "base/text/text.h"
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

/* Of a trace's directory, <host>_<pid>_<time>_sonde: how much of the name is its process; else 0. */
static size_t process_in_name(const char *name)
{
	size_t len = strlen(name), end = strlen(SESSION_TRACE_SUFFIX);

	if (name[0] == '.' || len <= end || strcmp(name + len - end, SESSION_TRACE_SUFFIX))
		return 0;
	for (len -= end; len && name[len - 1] != '_'; len--)
		;
	return len;
}

/* recording_*; what a trace of a running job has left, if its recording is in it. */
static bool is_recording_dir(const char *dir, const char *name)
{
	if (!strncmp(name, PREFIX, strlen(PREFIX)))
		return true;
	if (!process_in_name(name))
		return false;
	char *path = xasprintf("%s/%s", dir, name);
	bool has = has_file(path, SESSION_RECORDING);
	free(path);
	return has;
}

/* The newest recording below a directory. */
struct newest {
	char *path; /* NULL: there is none */
	struct stat st;
	char *trace; /* the name of one of a trace; NULL */
	bool processes; /* there are traces of several */
};

static void look_at(struct newest *n, const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	size_t process = process_in_name(name);
	struct stat st;

	if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
		free(path);
		return;
	}
	if (process && n->trace && strncmp(n->trace, name, process) != 0)
		n->processes = true;
	if (process && !n->trace)
		n->trace = xstrdup(name);
	if (n->path && !is_newer(&st, &n->st)) {
		free(path);
		return;
	}
	free(n->path);
	n->path = path;
	n->st = st;
}

static void find_newest(struct newest *n, const char *dir)
{
	DIR *d = opendir(dir);

	for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
		if (is_recording_dir(dir, e->d_name))
			look_at(n, dir, e->d_name);
	if (d)
		closedir(d);
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
	struct newest n = {0};
	struct stat st;
	int r = 0;

	if (stat(path, &st) < 0)
		return recording_not_found(path, errno, err);
	if (S_ISDIR(st.st_mode) && !has_file(path, SESSION_FILE) &&
	    !has_file(path, SESSION_RECORDING))
		find_newest(&n, path);
	if (n.processes && text_ends_with(n.path, SESSION_TRACE_SUFFIX))
		r = err_set(err, -ENOTUNIQ,
			    "'%s' has traces of several processes: name the directory of one, such "
			    "as %s",
			    path, n.path);
	else
		buf_add_str(out, n.path ? n.path : path);
	free(n.path);
	free(n.trace);
	return r;
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
	bool found = host && *host;
	if (found)
		buf_add_str(out, host);
	recording_reader_free(r);
	json_decref(session);
	return found;
}
