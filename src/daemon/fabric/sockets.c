/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Where processes find the daemon: opening these endpoints, and noticing when one is lost or
 * becomes free. */
#define LOG_AREA "fabric"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "daemon/fabric/fabric_impl.h"
#include "daemon/loop.h"
#include "daemon/sandbox/sandbox.h"
#include "wire/fabric.h"

#define REOPEN_S 5 /* while an endpoint is missing */
#define POLL_FILES_S 60 /* where the kernel does not report that a file has gone */
#define FREE_POLLS 3 /* before one that another daemon had is taken: it may just be restarted */
#define FILE_CHANGES (IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)

/* --- the directory in which processes of every user put their sockets beside ours --- */

/* A runtime directory that the service manager has just made, for us to open. */
static bool is_runtime_dir(const char *dir)
{
	const char *list = getenv("RUNTIME_DIRECTORY");
	size_t len = strlen(dir);

	while (list && *list) {
		size_t n = strcspn(list, ":");

		if (n == len && !strncmp(list, dir, len))
			return true;
		list += n + (list[n] == ':');
	}
	return false;
}

/* Who can replace files in it could take the place of the daemon. */
static int check_dir(struct fabric_listener *e, int fd, const char *dir, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(err, -errno, "cannot inspect '%s'", dir);
	bool is_own = st.st_uid == geteuid(), is_open = st.st_mode & S_IWOTH;
	if (is_open && !is_own && st.st_uid != 0)
		return err_set(err, -EPERM,
			       "'%s' belongs to another user (uid %u), who could take the place of "
			       "the daemon there: remove it, or use another directory",
			       dir, (unsigned)st.st_uid);
	bool is_sticky = st.st_mode & S_ISVTX;
	if (is_open && !is_sticky && is_own)
		is_sticky = fchmod(fd, (st.st_mode & 07777) | S_ISVTX) == 0;
	if (e->dir_checked)
		return 0;
	e->dir_checked = true;
	if (is_open && !is_sticky)
		log_warn("every user can replace the daemon's socket in '%s': chmod +t %s", dir,
			 dir);
	else if (!is_open && geteuid() == 0)
		log_warn("jobs of other users cannot put their sockets into '%s': chmod 1777 %s",
			 dir, dir);
	return 0;
}

/*
 * A descriptor of the directory, which is made if it is not there: then *out_closed, and nobody
 * else can create files in it until our socket has its name.
 */
static int prepare_dir(struct fabric_listener *e, const char *dir, bool *out_closed,
		       struct err *err)
{
	bool made = mkdir(dir, 0755) == 0;
	const int flags = O_DIRECTORY | O_CLOEXEC | (made ? O_NOFOLLOW : 0);
	int fd = open(dir, O_RDONLY | flags);
	struct stat st;

	if (fd < 0 && errno == EACCES) /* one that may be used, but not listed */
		fd = open(dir, O_PATH | flags);
	if (fd < 0)
		return err_sys(err, -errno, "cannot open '%s'", dir);
	*out_closed = (made || is_runtime_dir(dir)) && fstat(fd, &st) == 0 &&
		      st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH));
	int r = *out_closed ? 0 : check_dir(e, fd, dir, err);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

static int open_at_path(const struct fabric_listener *e, struct fabric_endpoint *out,
			struct err *err)
{
	return fabric_endpoint_path(out, e->where, e->mode, sandbox_uid(e->fabric->daemon->sandbox),
				    err);
}

static int open_in_shared_dir(struct fabric_listener *e, struct fabric_endpoint *out,
			      struct err *err)
{
	char *dir = xstrndup(e->where, (size_t)(strrchr(e->where, '/') - e->where));
	bool closed = false;
	int fd = prepare_dir(e, *dir ? dir : "/", &closed, err);
	int r = fd < 0 ? fd : open_at_path(e, out, err);

	if (r == 0 && closed) {
		if (fchmod(fd, 01777) == 0)
			log_info("made '%s' for the sockets of jobs", dir);
		else
			log_warn("jobs cannot put their sockets into '%s': %s", dir,
				 strerror(errno));
	}
	if (r == 0)
		out->keeps_name = true;
	if (fd >= 0)
		close(fd);
	free(dir);
	return r;
}

static int open_listener(struct fabric_listener *e, struct err *err)
{
	struct fabric_endpoint made;
	char text[112];
	int r = e->is_shared ? open_in_shared_dir(e, &made, err)
		: e->is_path ? open_at_path(e, &made, err)
			     : fabric_endpoint_abstract(&made, e->where, err);

	if (r < 0)
		return r;
	e->socket = made;
	e->readable = loop_event_new(e->fabric->daemon->base, e->socket.fd, EV_READ | EV_PERSIST,
				     DAEMON_PRIORITY_FABRIC, fabric_on_readable, e);
	event_add(e->readable, NULL);
	e->suspended = e->lost = false;
	log_info("listening to processes on '%s'", fabric_endpoint_text(&e->socket, text));
	return 0;
}

/* Its name has become another's, or nobody's, and a new one has it now. */
static void replace_listener(struct fabric_listener *e)
{
	struct fabric_endpoint old = e->socket;
	struct event *readable = e->readable;
	struct err err;

	if (open_listener(e, &err) < 0)
		return;
	fabric_replies_forget(e->fabric->replies, old.fd);
	event_free(readable);
	fabric_endpoint_close(&old);
}

/* A file may have been removed by somebody who tidied up, or by a daemon that takes what it finds.
 */
static void check_file(struct fabric_listener *e)
{
	struct stat st;

	if (!fabric_endpoint_lost(&e->socket))
		return;
	if (!e->lost && lstat(e->where, &st) == 0 && st.st_uid != geteuid())
		log_warn("'%s' was replaced by user %u: processes reach that user instead of this "
			 "daemon",
			 e->where, (unsigned)st.st_uid);
	else if (!e->lost)
		log_warn("'%s' was removed or replaced: processes do not reach it", e->where);
	e->lost = true;
	if (fabric_endpoint_free(e->where, e->is_path))
		replace_listener(e);
}

/* The daemon that had it may have ended. */
static void try_to_open(struct fabric_listener *e)
{
	struct err err;

	if (!fabric_endpoint_free(e->where, e->is_path))
		e->free_polls = 0;
	else if (++e->free_polls >= FREE_POLLS)
		(void)open_listener(e, &err);
}

/* Has changes of the directory that holds the file reported. False: they cannot be. */
static bool watch_file(const struct fabric *f, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (f->watch_fd < 0 || !slash)
		return false;
	char *dir = xstrndup(path, slash == path ? 1 : (size_t)(slash - path));
	bool good = inotify_add_watch(f->watch_fd, dir, FILE_CHANGES | IN_ONLYDIR) >= 0;
	free(dir);
	return good;
}

/* While all is well there is no timer, unless files can go without the kernel reporting it. */
static void schedule_reopen(struct fabric *f)
{
	unsigned seconds = 0;

	for (unsigned i = 0; i < f->nlisteners; i++) {
		const struct fabric_listener *e = &f->listeners[i];

		if (!e->readable || e->lost)
			seconds = REOPEN_S;
		else if (!seconds && e->is_path && !watch_file(f, e->where))
			seconds = POLL_FILES_S;
	}
	if (seconds)
		event_add(f->reopen, &(struct timeval){.tv_sec = seconds});
	else
		event_del(f->reopen);
}

static void on_reopen(evutil_socket_t fd, short what, void *arg)
{
	struct fabric *f = arg;

	(void)fd, (void)what;
	for (unsigned i = 0; i < f->nlisteners; i++) {
		if (f->listeners[i].readable)
			check_file(&f->listeners[i]);
		else
			try_to_open(&f->listeners[i]);
	}
	schedule_reopen(f);
}

/* Something was removed from, or moved into or out of, a directory with a socket of ours. */
static void on_files_changed(evutil_socket_t fd, short what, void *arg)
{
	struct fabric *f = arg;
	bool missing = false;
	char events[4096];

	(void)what;
	while (read(fd, events, sizeof(events)) > 0)
		continue;
	for (unsigned i = 0; i < f->nlisteners; i++) {
		struct fabric_listener *e = &f->listeners[i];

		if (e->readable)
			check_file(e);
		missing |= e->lost;
	}
	if (missing || !event_pending(f->reopen, EV_TIMEOUT, NULL))
		schedule_reopen(f);
}

static void add_listener(struct fabric *f, const struct fabric_listener *wanted)
{
	struct fabric_listener *e = &f->listeners[f->nlisteners];
	struct err err;

	BUG_ON(f->nlisteners == FABRIC_LISTENERS);
	*e = *wanted;
	e->fabric = f;
	f->nlisteners++;
	if (open_listener(e, &err) < 0)
		log_warn("no endpoint '%s': %s", e->name, err.text);
}

static void open_abstract(struct fabric *f, const char *name, const char *socket_name)
{
	add_listener(f, &(struct fabric_listener){
				.name = name, .kind = "abstract", .where = xstrdup(socket_name)});
}

static void open_home(struct fabric *f, const char *name, const char *home, const char *file)
{
	add_listener(f, &(struct fabric_listener){.name = name,
						  .kind = "home",
						  .is_path = true,
						  .where = xasprintf("%s/%s", home, file),
						  .mode = 0600});
}

static void open_dir(struct fabric *f, const char *dir)
{
	add_listener(f, &(struct fabric_listener){.name = "dir",
						  .kind = "dir",
						  .is_path = true,
						  .is_shared = true,
						  .where = xasprintf("%s/%s", dir, FABRIC_DIR_FILE),
						  .mode = 0666});
}

static const char *socket_dir(const struct daemon_config *config)
{
	const char *dir =
		config->ipc_socket_dir ? config->ipc_socket_dir : getenv("KINETO_IPC_SOCKET_DIR");

	return dir && *dir ? dir : NULL;
}

static void open_well_known(struct fabric *f)
{
	const struct passwd *user = getpwuid(getuid());

	open_abstract(f, "abstract", FABRIC_ABSTRACT_NAME);
	open_abstract(f, "abstract-data", FABRIC_ABSTRACT_DATA_NAME);
	if (!user || !user->pw_dir || !*user->pw_dir) {
		log_warn("no endpoint 'home': user %u has no home directory", (unsigned)getuid());
		return;
	}
	open_home(f, "home", user->pw_dir, FABRIC_HOME_FILE);
	open_home(f, "home-data", user->pw_dir, FABRIC_HOME_DATA_FILE);
}

static void open_wanted(struct fabric *f)
{
	const struct daemon_config *c = f->daemon->config;
	const char *dir = socket_dir(c);

	if (!c->ipc_dir_only)
		open_well_known(f);
	if (dir)
		open_dir(f, dir);
}

bool fabric_sockets_open(struct fabric *f)
{
	struct event_base *base = f->daemon->base;
	bool any = false;

	f->reopen = loop_event_new(base, -1, 0, DAEMON_PRIORITY_METRICS, on_reopen, f);
	f->watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (f->watch_fd >= 0) {
		f->watch = loop_event_new(base, f->watch_fd, EV_READ | EV_PERSIST,
					  DAEMON_PRIORITY_METRICS, on_files_changed, f);
		event_add(f->watch, NULL);
	}
	open_wanted(f);
	schedule_reopen(f);
	for (unsigned i = 0; i < f->nlisteners; i++)
		any |= f->listeners[i].readable != NULL;
	return any;
}

/* --- what guests leave --- */

/* The name of a guest's own making: nothing else in the directory is touched. */
static bool is_guest_file(const char *name)
{
	size_t prefix = strlen(FABRIC_GUEST_NAME);

	return !strncmp(name, FABRIC_GUEST_NAME, prefix) && name[prefix] &&
	       !name[prefix + strspn(name + prefix, "0123456789abcdef-")];
}

/* Of the path that the guest sent only the last part counts, and only in our own directory. */
void fabric_sockets_tidy(void *arg, uid_t uid, const struct jobs_address *at)
{
	struct fabric *f = arg;
	char sent[sizeof(at->address.sun_path) + 1] = "";
	struct err err = {0};

	memcpy(sent, at->address.sun_path, sizeof(at->address.sun_path));
	const char *name = sent[0] == '/' ? strrchr(sent, '/') + 1 : NULL;
	if (!name || !is_guest_file(name))
		return;
	for (unsigned i = 0; i < f->nlisteners; i++) {
		const struct fabric_listener *e = &f->listeners[i];

		if (e != at->listener || strcmp(e->kind, "dir"))
			continue;
		int dir = (int)(strrchr(e->where, '/') + 1 - e->where);
		char *path = xasprintf("%.*s%s", dir, e->where, name);
		if (fabric_endpoint_remove_dead(path, uid, &err) < 0)
			log_debug("the socket file of an ended process stays: %s", err.text);
		free(path);
	}
}

void fabric_sockets_close(struct fabric *f)
{
	for (unsigned i = 0; i < f->nlisteners; i++) {
		struct fabric_listener *e = &f->listeners[i];

		if (e->readable) {
			event_free(e->readable);
			fabric_endpoint_close(&e->socket);
		}
		free(e->where);
	}
	event_free(f->reopen);
	loop_event_free(f->watch);
	if (f->watch_fd >= 0)
		close(f->watch_fd);
}
