/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Where processes find the daemon: opening these places, and noticing when one is lost or comes
 * free. */
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_AREA "fabric"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/fabric/fabric_impl.h"
#include "daemon/fabric/watch.h"
#include "wire/fabric.h"

#define RETAKE_S 5 /* while an endpoint is missing */
#define LOOK_S 60 /* where nobody tells that a file has gone */
#define FREE_LOOKS 3 /* before one that another daemon had is taken: it may just be restarted */

static int open_place(struct fabric_place *e, struct err *err)
{
	struct event_base *base = e->fabric->daemon->base;
	struct fabric_endpoint made;
	char text[112];
	int r = e->is_path ? fabric_endpoint_path(&made, e->where, e->mode, err)
			   : fabric_endpoint_abstract(&made, e->where, err);

	if (r < 0)
		return r;
	e->socket = made;
	e->readable = event_new(base, e->socket.fd, EV_READ | EV_PERSIST, fabric_on_readable, e);
	BUG_ON(!e->readable);
	event_priority_set(e->readable, DAEMON_PRIORITY_FABRIC);
	event_add(e->readable, NULL);
	e->standing_back = e->told_lost = false;
	log_info("listening to processes on '%s'", fabric_endpoint_text(&e->socket, text));
	return 0;
}

/* Its name has become another's, or nobody's, and a new one has it now. */
static void replace_place(struct fabric_place *e)
{
	struct fabric_endpoint old = e->socket;
	struct event *readable = e->readable;
	struct err err;

	if (open_place(e, &err) < 0)
		return;
	fabric_replies_forget(e->fabric->replies, old.fd);
	event_free(readable);
	fabric_endpoint_close(&old);
}

/* A file may have been removed by somebody who tidied up, or by a daemon that takes what it finds.
 */
static void look_for_loss(struct fabric_place *e)
{
	if (!fabric_endpoint_lost(&e->socket))
		return;
	if (!e->told_lost)
		log_warn("'%s' was removed or replaced: processes do not reach it", e->where);
	e->told_lost = true;
	if (fabric_endpoint_free(e->where, e->is_path))
		replace_place(e);
}

/* The daemon that had it may have ended. */
static void look_for_chance(struct fabric_place *e)
{
	struct err err;

	if (!fabric_endpoint_free(e->where, e->is_path))
		e->free_looks = 0;
	else if (++e->free_looks >= FREE_LOOKS)
		(void)open_place(e, &err);
}

/* Nobody looks again while all is well, unless files can go without anybody saying so. */
static void look_again(struct fabric *f)
{
	struct timeval wait = {0};

	for (unsigned i = 0; i < f->nplaces; i++) {
		const struct fabric_place *e = &f->places[i];

		if (!e->readable || e->told_lost)
			wait.tv_sec = RETAKE_S;
		else if (!wait.tv_sec && e->is_path && !fabric_watch_file(f->watch, e->where))
			wait.tv_sec = LOOK_S;
	}
	if (wait.tv_sec)
		event_add(f->retake, &wait);
	else
		event_del(f->retake);
}

static void on_retake(evutil_socket_t fd, short what, void *arg)
{
	struct fabric *f = arg;

	(void)fd;
	(void)what;
	for (unsigned i = 0; i < f->nplaces; i++) {
		if (f->places[i].readable)
			look_for_loss(&f->places[i]);
		else
			look_for_chance(&f->places[i]);
	}
	look_again(f);
}

static void on_files_gone(void *arg)
{
	struct fabric *f = arg;
	bool missing = false;

	for (unsigned i = 0; i < f->nplaces; i++) {
		struct fabric_place *e = &f->places[i];

		if (e->readable)
			look_for_loss(e);
		missing |= e->told_lost;
	}
	if (missing || !event_pending(f->retake, EV_TIMEOUT, NULL))
		look_again(f);
}

static void add_place(struct fabric *f, const struct fabric_place *wanted)
{
	struct fabric_place *e = &f->places[f->nplaces];
	struct err err;

	BUG_ON(f->nplaces == FABRIC_PLACES);
	*e = *wanted;
	e->fabric = f;
	f->nplaces++;
	if (open_place(e, &err) < 0)
		log_warn("no endpoint '%s': %s", e->name, err.text);
}

static void open_abstract(struct fabric *f, const char *name, const char *socket_name)
{
	add_place(f, &(struct fabric_place){
			     .name = name, .kind = "abstract", .where = xstrdup(socket_name)});
}

static void open_path(struct fabric *f, const char *name, const char *kind, const char *dir,
		      const char *file, mode_t mode)
{
	add_place(f, &(struct fabric_place){.name = name,
					    .kind = kind,
					    .is_path = true,
					    .where = xasprintf("%s/%s", dir, file),
					    .mode = mode});
}

static const char *socket_dir(const struct daemon_config *config)
{
	const char *dir =
		config->ipc_socket_dir ? config->ipc_socket_dir : getenv("KINETO_IPC_SOCKET_DIR");

	return dir && *dir ? dir : NULL;
}

/* A directory in which every user's processes can put their sockets beside ours. */
static void prepare_dir(const char *dir)
{
	struct stat st;

	if (mkdir(dir, 01777) == 0) {
		(void)chmod(dir, 01777); /* whatever the umask */
		log_info("made '%s' for the sockets of jobs", dir);
	} else if (geteuid() == 0 && stat(dir, &st) == 0 && !(st.st_mode & S_IWOTH)) {
		log_warn("jobs of other users cannot put their sockets into '%s': chmod 1777 %s",
			 dir, dir);
	}
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
	open_path(f, "home", "home", user->pw_dir, FABRIC_HOME_FILE, 0600);
	open_path(f, "home-data", "home", user->pw_dir, FABRIC_HOME_DATA_FILE, 0600);
}

static void open_wanted(struct fabric *f)
{
	const struct daemon_config *c = f->daemon->config;
	const char *dir = socket_dir(c);

	if (!c->ipc_dir_only)
		open_well_known(f);
	if (dir) {
		prepare_dir(dir);
		open_path(f, "dir", "dir", dir, FABRIC_DIR_FILE, 0666);
	}
}

void fabric_places_open(struct fabric *f)
{
	f->retake = evtimer_new(f->daemon->base, on_retake, f);
	BUG_ON(!f->retake);
	event_priority_set(f->retake, DAEMON_PRIORITY_METRICS);
	f->watch = fabric_watch_new(f->daemon->base, on_files_gone, f);
	open_wanted(f);
	look_again(f);
}

/* --- what guests leave --- */

/* The name of a guest's own making: nothing else in the directory is touched. */
static bool is_guest_file(const char *name)
{
	size_t prefix = strlen(FABRIC_GUEST_NAME);

	return !strncmp(name, FABRIC_GUEST_NAME, prefix) && name[prefix] &&
	       !name[prefix + strspn(name + prefix, "0123456789abcdef-")];
}

/* Of the path that the guest told only the last part counts, and only in our own directory. */
void fabric_places_tidy(void *arg, uid_t uid, const struct jobs_address *at)
{
	struct fabric *f = arg;
	char told[sizeof(at->address.sun_path) + 1] = "";
	struct err err = {0};

	memcpy(told, at->address.sun_path, sizeof(at->address.sun_path));
	const char *name = told[0] == '/' ? strrchr(told, '/') + 1 : NULL;
	if (!name || !is_guest_file(name))
		return;
	for (unsigned i = 0; i < f->nplaces; i++) {
		const struct fabric_place *e = &f->places[i];

		if (e != at->place || strcmp(e->kind, "dir"))
			continue;
		int dir = (int)(strrchr(e->where, '/') + 1 - e->where);
		char *path = xasprintf("%.*s%s", dir, e->where, name);
		if (fabric_endpoint_remove_dead(path, uid, &err) < 0)
			log_debug("what a process has left stays: %s", err.text);
		free(path);
	}
}

void fabric_places_close(struct fabric *f)
{
	for (unsigned i = 0; i < f->nplaces; i++) {
		struct fabric_place *e = &f->places[i];

		if (e->readable) {
			event_free(e->readable);
			fabric_endpoint_close(&e->socket);
		}
		free(e->where);
	}
	event_free(f->retake);
	fabric_watch_free(f->watch);
}
