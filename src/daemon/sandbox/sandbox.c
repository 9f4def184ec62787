/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "sandbox"

#include "daemon/sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/broker.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/sandbox/sandbox_impl.h"

#ifndef CAP_PERFMON
#	define CAP_PERFMON 38
#endif
#define CAPABILITY(name) (1ull << (name))
#define PLACES 5

struct sandbox {
	const struct daemon_config *config;
	struct sandbox_user user;
	char *home; /* of who started it; NULL: none */
	char *log_dir, *metric_dir; /* absolute; NULL: none */
	struct broker_process broker;
	uint64_t capabilities;
	int filter; /* 0, or why system calls are not filtered */
	int landlock; /* its version, or why there is none */
};

static char *absolute_path(const char *path)
{
	struct buf out = {0};

	if (!path || !*path || fs_absolute(path, &out, NULL) < 0)
		return NULL;
	return xstrdup(buf_str(&out));
}

static char *parent_path(const char *path)
{
	char *dir = absolute_path(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (slash)
		slash[slash == dir] = '\0';
	return dir;
}

int sandbox_prepare(const struct daemon_config *c, struct sandbox **out, struct err *err)
{
	struct sandbox_user user;

	*out = NULL;
	if (!c->user || !*c->user)
		return 0;
	int r = rights_find_user(c->user, &user, err);
	if (r < 0)
		return r;
	const struct passwd *starter = getpwuid(getuid());
	struct sandbox *s = xcalloc(1, sizeof(*s));
	*s = (struct sandbox){.config = c, .user = user, .broker.fd = -1};
	s->home = starter ? absolute_path(starter->pw_dir) : NULL;
	s->log_dir = parent_path(c->log_file);
	s->metric_dir = absolute_path(c->metric_log_dir);
	char *certs = strcmp(c->certs_dir, DAEMON_NO_CERTS) ? absolute_path(c->certs_dir) : NULL;
	r = broker_start(&user, certs, &s->broker, err);
	free(certs);
	if (r < 0)
		sandbox_free(s);
	else
		*out = s;
	return r;
}

uid_t sandbox_uid(const struct sandbox *s)
{
	return s ? s->user.uid : geteuid();
}

void sandbox_free(struct sandbox *s)
{
	if (!s)
		return;
	if (s->broker.fd >= 0) {
		close(s->broker.fd); /* which it takes as the end */
		waitpid(s->broker.pid, NULL, 0);
	}
	free(s->home);
	free(s->log_dir);
	free(s->metric_dir);
	free(s);
}

/* --- what belongs to the user --- */

/* Gives what root has made to the user. */
static int give_to_user(const struct sandbox_user *u, int fd, const char *path, struct err *err)
{
	int r = 0;

	if (fd >= 0 && u->uid != 0 && fchown(fd, u->uid, u->gid) < 0)
		r = err_sys(err, -errno, "cannot give '%s' to user %u", path, (unsigned)u->uid);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : r;
}

/* Makes the directories that are missing, for the user. */
static int make_dirs(const struct sandbox_user *u, const char *path, struct err *err)
{
	char *part = xstrdup(path);
	int r = 0;

	for (size_t i = 1; r == 0 && i <= strlen(path); i++) {
		if (path[i] && path[i] != '/')
			continue;
		part[i] = '\0';
		if (access(part, F_OK) < 0) {
			r = fs_mkdir(part, FS_DIR_MODE, err);
			r = r ?: give_to_user(u, fs_open_dir(part, err), part, err);
		}
		part[i] = path[i];
	}
	free(part);
	return r;
}

/* As the user who will open it again after SIGHUP, if that user may; else as root, and the user
 * becomes its owner. */
int sandbox_open_log(const struct daemon_config *c, struct err *err)
{
	struct sandbox_user u;

	if (!c->user || !*c->user || geteuid() != 0)
		return log_open(c->log_file, err);
	int r = rights_find_user(c->user, &u, err);
	if (r < 0)
		return r;
	r = setegid(u.gid) < 0 || seteuid(u.uid) < 0 ? -errno : log_open(c->log_file, NULL);
	if (seteuid(0) < 0 || setegid(getgid()) < 0)
		return err_sys(err, -errno, "cannot be root again");
	if (r == 0)
		return 0;
	r = log_open(c->log_file, err);
	return r ?: give_to_user(&u, fs_open(c->log_file, O_WRONLY, 0, err), c->log_file, err);
}

/* --- the parts --- */

static const char *socket_dir(const struct daemon_config *c)
{
	const char *dir = c->ipc_socket_dir ? c->ipc_socket_dir : getenv("KINETO_IPC_SOCKET_DIR");

	return c->enable_ipc_monitor && dir && *dir ? dir : NULL;
}

/* Where files may be written; those that root alone may write are no use to another user. */
static size_t list_places(const struct sandbox *s, struct landlock_place out[PLACES])
{
	const struct landlock_place all[PLACES] = {
		{s->log_dir, LANDLOCK_LOG},
		{s->metric_dir, LANDLOCK_FILES},
		{socket_dir(s->config), LANDLOCK_SOCKETS},
		{s->config->ipc_dir_only ? NULL : s->home, LANDLOCK_NEW_SOCKETS},
		{"/dev", LANDLOCK_DEVICES},
	};
	size_t n = 0;

	for (size_t i = 0; i < PLACES; i++)
		if (all[i].dir)
			out[n++] = all[i];
	return n;
}

static void add_places(const struct sandbox *s, struct buf *out)
{
	struct landlock_place places[PLACES];
	size_t n = list_places(s, places);

	for (size_t i = 0; i < n; i++)
		buf_addf(out, "%s'%s'", i ? ", " : "", places[i].dir);
}

static void log_broker(const struct sandbox *s)
{
	static const struct {
		unsigned number;
		const char *name, *lost;
	} wanted[] = {
		{CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "ranks of other users' processes are not known"},
		{CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH",
		 "ranks of other users' processes are not known, and certificates must be readable "
		 "for the daemon's user"},
	};

	log_info("process %d opens the environment of processes, and certificates, for the daemon",
		 (int)s->broker.pid);
	for (size_t i = 0; i < 2; i++)
		if (!(s->broker.capabilities & CAPABILITY(wanted[i].number)))
			log_warn("that process has no %s: %s", wanted[i].name, wanted[i].lost);
	if (s->broker.filter < 0)
		log_warn("that process may make every system call: %s",
			 strerror(-s->broker.filter));
}

static void log_parts(const struct sandbox *s)
{
	struct buf places = {0};

	log_info("going on as user %s%s(%u), %s, without new privileges", s->user.name,
		 s->user.name[0] ? " " : "", (unsigned)s->user.uid,
		 s->capabilities ? "with CAP_PERFMON alone" : "without capabilities");
	log_broker(s);
	if (s->filter < 0)
		log_warn("system calls are not restricted, and jobs of other users that run under "
			 "'sonde monitor' ignore requests: no seccomp: %s",
			 strerror(-s->filter));
	else
		log_info("system calls are restricted by seccomp");
	add_places(s, &places);
	if (s->landlock < 0)
		log_warn("the user's rights alone decide which files are written: no Landlock: %s",
			 strerror(-s->landlock));
	else
		log_info("files are written below %s alone, by Landlock %d", buf_str(&places),
			 s->landlock);
	buf_release(&places);
}

/* Whether /proc hides the processes of others (hidepid). */
static bool processes_are_hidden(void)
{
	return access("/proc/1/stat", F_OK) < 0;
}

/*
 * The saved user id stays 0 if root started the daemon: the kernel then lets it sign datagrams as
 * root (fabric/reply.c), without which guests in other users' jobs would not obey it. It is of no
 * other use: every call that could make it the effective one is missing from the filter. Where
 * there is no filter, it goes as well.
 */
int sandbox_enter(struct sandbox *s, struct err *err)
{
	struct landlock_place places[PLACES];

	if (!s)
		return 0;
	bool perf = s->config->enable_perf_monitor;
	bool saved_root = geteuid() == 0 && filter_available();
	int r = s->metric_dir && geteuid() == 0 ? make_dirs(&s->user, s->metric_dir, err) : 0;
	r = r ?: rights_become(&s->user, perf ? CAPABILITY(CAP_PERFMON) : 0, saved_root, err);
	if (r < 0)
		return r;
	s->capabilities = rights_now();
	broker_use(s->broker.fd, processes_are_hidden());
	s->landlock = landlock_enter(places, list_places(s, places));
	s->filter = filter_daemon(perf);
	if (s->filter < 0 && saved_root && s->user.uid != 0 && rights_forget_root() < 0)
		return err_sys(err, -errno, "cannot forget that root started the daemon");
	log_parts(s);
	return 0;
}

/* --- later --- */

static int check_dir(const char *option, const char *now, char *next, struct err *err)
{
	int r = 0;

	if (next && (!now || strcmp(now, next)))
		r = err_set(err, -EACCES,
			    "%s: '%s' is not among the directories that the sandbox of --user may "
			    "write; a restart is needed",
			    option, next);
	free(next);
	return r;
}

int sandbox_check_config(const struct sandbox *s, const struct daemon_config *next, struct err *err)
{
	if (!s || s->landlock < 0)
		return 0;
	int r = check_dir("--log-file", s->log_dir, parent_path(next->log_file), err);
	return r
		       ?: check_dir("--metric-log-dir", s->metric_dir,
				    absolute_path(next->metric_log_dir), err);
}

json_t *sandbox_describe(const struct sandbox *s)
{
	struct landlock_place places[PLACES];
	json_t *writes, *capabilities;

	if (!s)
		return json_null();
	writes = json_array();
	capabilities = json_array();
	size_t n = list_places(s, places);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(writes, json_string(places[i].dir));
	if (s->capabilities & CAPABILITY(CAP_PERFMON))
		json_array_append_new(capabilities, json_string("CAP_PERFMON"));
	return json_pack("{sI ss* so sb sb si so so}", "uid", (json_int_t)s->user.uid, "user",
			 s->user.name[0] ? s->user.name : NULL, "capabilities", capabilities,
			 "no_new_privs", 1, "seccomp", s->filter == 0, "landlock",
			 s->landlock > 0 ? s->landlock : 0, "writes", writes, "broker",
			 broker_lives() ? json_integer(s->broker.pid) : json_null());
}
