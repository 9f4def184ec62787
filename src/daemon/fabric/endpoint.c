/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "fabric"

#include "daemon/fabric/fabric_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/log.h"
#include "wire/fabric.h"

/*
 * Answers count against the buffer of the socket that sent them until they are read: a few clients
 * that never read would silence the endpoint for everyone with the usual 208 KiB.
 */
#define SEND_BUFFER_BYTES (16 << 20)
#define LOCK_TRIES 15 /* of a millisecond */
#define ASIDE_LETTERS 6u
#define QUEUE_WANTED 512u /* datagrams that may wait */

/*
 * How many datagrams may wait in a socket is what net.unix.max_dgram_qlen says at the moment the
 * socket is made: 10 on many machines. Of 64 ranks that ask at the same moment most would then have
 * to try again, and today's clients do so after 10, 20, 40 ms and more. So the number is raised for
 * the microseconds in which a socket of ours is made, and put back. It is that of the network
 * namespace; the worst that is left behind, by a daemon that is killed just then, is the larger
 * number, and that is what machines with systemd have all the time.
 */
static const char queue_path[] = "/proc/sys/net/unix/max_dgram_qlen";

static unsigned read_queue_length(void)
{
	struct buf text = {0};
	unsigned n = 0;

	if (!fs_read_file(queue_path, 64, &text, NULL))
		n = (unsigned)strtoul(buf_str(&text), NULL, 10);
	buf_release(&text);
	return n;
}

static bool write_queue_length(unsigned n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u\n", n);
	int fd = open(queue_path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	bool good = write(fd, text, (size_t)len) == len;
	close(fd);
	return good;
}

/* What was there, to be put back; 0: nothing was changed. */
static unsigned raise_queue_length(void)
{
	static bool logged;
	unsigned n = read_queue_length();

	if (!n || n >= QUEUE_WANTED)
		return 0;
	if (write_queue_length(QUEUE_WANTED))
		return n;
	if (!logged)
		log_info("net.unix.max_dgram_qlen is %u: processes that ask at the same moment may "
			 "have to try again; %u is better",
			 n, QUEUE_WANTED);
	logged = true;
	return 0;
}

/* Unless somebody has set another number meanwhile. */
static void restore_queue_length(unsigned n)
{
	if (n && read_queue_length() == QUEUE_WANTED && !write_queue_length(n))
		log_warn("cannot set net.unix.max_dgram_qlen back to %u", n);
}

static int make_socket(void)
{
	unsigned before = raise_queue_length();
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r = fd < 0 ? -errno : fd;

	restore_queue_length(before);
	return r;
}

static int open_socket(struct err *err)
{
	const int on = 1, bytes = SEND_BUFFER_BYTES;
	int fd = make_socket();

	if (fd < 0)
		return err_sys(err, fd, "cannot make a datagram socket");
	/* Before bind(), so that no datagram comes without credentials. */
	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0) {
		int r = err_sys(err, -errno, "cannot ask for credentials of senders");

		close(fd);
		return r;
	}
	/* Beyond the system's limit needs privilege; without it the limit will do. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) < 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	return fd;
}

static int send_buffer(int fd)
{
	int bytes = 0;
	socklen_t len = sizeof(bytes);

	return getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len) < 0 ? 0 : bytes;
}

int fabric_endpoint_abstract(struct fabric_endpoint *e, const char *name, struct err *err)
{
	struct fabric_endpoint made = {.fd = -1};
	socklen_t len;
	int r = fabric_abstract_address(name, &made.address, &len);

	if (r < 0)
		return err_sys(err, r, "cannot use the name '%s'", name);
	made.fd = open_socket(err);
	if (made.fd < 0)
		return made.fd;
	if (bind(made.fd, (struct sockaddr *)&made.address, len) < 0) {
		r = errno == EADDRINUSE
			    ? err_set(err, -errno, "another daemon has the name '@%s'", name)
			    : err_sys(err, -errno, "cannot bind '@%s'", name);
		close(made.fd);
		return r;
	}
	made.send_bytes = send_buffer(made.fd);
	*e = made;
	return 0;
}

/* 0: somebody listens there. */
static int probe_address(const struct sockaddr_un *address, socklen_t len)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	int r = connect(fd, (const struct sockaddr *)address, len) < 0 ? -errno : 0;
	close(fd);
	return r;
}

/* Whether nobody listens on the socket file behind this O_PATH descriptor. */
static bool nobody_listens(int file)
{
	struct sockaddr_un address;
	socklen_t len;
	char link[32];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
	fabric_path_address(link, &address, &len);
	return probe_address(&address, len) == -ECONNREFUSED;
}

static bool is_same_file(const char *path, const struct stat *file)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == file->st_dev && st.st_ino == file->st_ino;
}

/*
 * Takes the file away from its name, if it still is there: another daemon that starts now may have
 * put its own in the place, which must not be lost. Only moving it says for sure which one it was.
 */
static int remove_file(const char *path, const struct stat *file, struct err *err)
{
	struct buf aside = {0};
	int r = 0;

	buf_addf(&aside, "%s.%d.old", path, (int)getpid());
	if (rename(path, buf_str(&aside)) < 0) {
		if (errno != ENOENT)
			r = err_sys(err, -errno, "cannot remove '%s', left by another daemon",
				    path);
	} else if (is_same_file(buf_str(&aside), file)) {
		unlink(buf_str(&aside));
	} else {
		if (link(buf_str(&aside), path) == 0)
			unlink(buf_str(&aside));
		r = err_set(err, -EADDRINUSE, "another daemon listens on '%s'", path);
	}
	buf_release(&aside);
	return r;
}

/*
 * 1: a dead process of these users has left a socket there, 0: nothing is there. The file is
 * inspected through a descriptor that followed no link, since others may write to the directory:
 * what is asked and what answers is the same file.
 */
static int find_dead(const char *path, uid_t owner, uid_t or_owner, struct stat *out,
		     struct err *err)
{
	int file = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	int r = 1;

	if (file < 0)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "cannot inspect '%s'", path);
	if (fstat(file, out) < 0)
		r = err_sys(err, -errno, "cannot inspect '%s'", path);
	else if (out->st_uid != owner && out->st_uid != or_owner)
		r = err_set(err, -EPERM,
			    "'%s' belongs to another user (uid %u), who can be reached there "
			    "instead of this daemon: if that is no daemon of theirs, remove it",
			    path, (unsigned)out->st_uid);
	else if (!S_ISSOCK(out->st_mode))
		r = err_set(err, -EEXIST, "'%s' is there and is no socket", path);
	else if (!nobody_listens(file))
		r = err_set(err, -EADDRINUSE, "another daemon listens on '%s'", path);
	close(file);
	return r;
}

int fabric_endpoint_remove_dead(const char *path, uid_t owner, struct err *err)
{
	struct stat dead;
	int r = find_dead(path, owner, owner, &dead, err);

	return r > 0 ? remove_file(path, &dead, err) : r;
}

/*
 * Those that replace a file take turns, by a lock on the directory: what one of them has found dead
 * is still there when it is removed. Anybody who may read the directory can hold the lock, so it is
 * not waited for for long. -1: it could not be had.
 */
static int lock_directory(const char *path)
{
	const struct timespec wait = {.tv_nsec = 1000000};
	char dir[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) + 1 : 0;

	if (len >= sizeof(dir))
		return -1;
	memcpy(dir, path, len);
	dir[len] = '\0';
	int fd = open(len ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int tries = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
		if (errno != EWOULDBLOCK || tries == LOCK_TRIES) {
			close(fd);
			return -1;
		}
		nanosleep(&wait, NULL);
	}
	return fd;
}

/*
 * The mode is there from the first moment and by no chmod() of a path, which could be another file
 * by then: the kernel gives the file the mode of the socket, less the umask.
 */
static int bind_with_mode(int fd, const struct sockaddr_un *address, socklen_t len, mode_t mode)
{
	int r = 0;

	if (fchmod(fd, mode) < 0)
		return -errno;
	mode_t mask = umask(0);
	if (bind(fd, (const struct sockaddr *)address, len) < 0)
		r = -errno;
	umask(mask);
	return r;
}

/* Another name in the same directory, no longer than that of the path (addresses are short), which
 * nobody can take before us. */
static int choose_aside(const char *path, struct sockaddr_un *out, socklen_t *out_len)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
	unsigned char raw[ASIDE_LETTERS];
	char aside[sizeof(out->sun_path)];
	const char *slash = strrchr(path, '/');
	size_t at = slash ? (size_t)(slash - path) + 1 : 0;

	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
		return -EIO;
	memcpy(aside, path, at);
	aside[at++] = '.';
	for (size_t i = 0; i < sizeof(raw) && at < sizeof(aside) - 1; i++)
		aside[at++] = letters[raw[i] % 32];
	aside[at] = '\0';
	return fabric_path_address(aside, out, out_len);
}

/*
 * Changes places with the dead one in one step: the name is never free, so that nobody can take it
 * in a directory where everybody may create files. What came out shows whether it still was the
 * dead one, and not that of a daemon that was faster.
 */
static int put_in_place(const char *aside, const char *path, const struct stat *dead,
			struct err *err)
{
	if (renameat2(AT_FDCWD, aside, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
		if (is_same_file(aside, dead)) {
			unlink(aside);
			return 0;
		}
		(void)!renameat2(AT_FDCWD, aside, AT_FDCWD, path, RENAME_EXCHANGE);
		unlink(aside);
		return err_set(err, -EADDRINUSE, "another daemon listens on '%s'", path);
	}
	/* a file system that cannot exchange names */
	if ((errno == EINVAL || errno == ENOSYS) && rename(aside, path) == 0)
		return 0;
	int r = err_sys(err, -errno, "cannot replace '%s', left by another daemon", path);
	unlink(aside);
	return r;
}

static int replace_dead(int fd, const char *path, mode_t mode, const struct stat *dead,
			struct err *err)
{
	struct sockaddr_un aside;
	socklen_t len;
	int r = choose_aside(path, &aside, &len);

	if (r == 0)
		r = bind_with_mode(fd, &aside, len, mode);
	if (r < 0)
		return err_sys(err, r, "cannot bind a socket beside '%s'", path);
	return put_in_place(aside.sun_path, path, dead, err);
}

static int take_path(int fd, const struct sockaddr_un *address, socklen_t len, mode_t mode,
		     uid_t user, struct err *err)
{
	const char *path = address->sun_path;
	struct stat dead;
	int r = bind_with_mode(fd, address, len, mode);

	if (r == -EADDRINUSE) {
		int lock = lock_directory(path);

		int found = find_dead(path, geteuid(), user, &dead, err);
		if (found > 0)
			found = replace_dead(fd, path, mode, &dead, err) ?: 1;
		else if (found == 0)
			r = bind_with_mode(fd, address, len, mode);
		if (lock >= 0)
			close(lock);
		if (found != 0)
			return found < 0 ? found : 0;
	}
	return r < 0 ? err_sys(err, r, "cannot bind '%s'", path) : 0;
}

/* Takes the socket over. */
static int bind_path(struct fabric_endpoint *e, int fd, const char *path, mode_t mode, uid_t user,
		     struct err *err)
{
	struct fabric_endpoint made = {.fd = fd, .is_path = true};
	struct stat st;
	socklen_t len;
	int r = fabric_path_address(path, &made.address, &len);

	if (r < 0)
		err_sys(err, r, "cannot use the path '%s'", path);
	else
		r = take_path(made.fd, &made.address, len, mode, user, err);
	if (r == 0 && lstat(path, &st) < 0)
		r = err_sys(err, -errno, "cannot inspect '%s'", path);
	if (r < 0) {
		close(made.fd);
		return r;
	}
	made.device = st.st_dev;
	made.inode = st.st_ino;
	made.send_bytes = send_buffer(made.fd);
	*e = made;
	return 0;
}

int fabric_endpoint_path(struct fabric_endpoint *e, const char *path, mode_t mode, uid_t user,
			 struct err *err)
{
	int fd = open_socket(err);

	return fd < 0 ? fd : bind_path(e, fd, path, mode, user, err);
}

int fabric_endpoint_stream(struct fabric_endpoint *e, const char *path, mode_t mode,
			   struct err *err)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r = fd < 0 ? err_sys(err, -errno, "cannot make a socket")
		       : bind_path(e, fd, path, mode, geteuid(), err);

	if (r == 0 && listen(fd, SOMAXCONN) < 0) {
		r = err_sys(err, -errno, "cannot listen on '%s'", path);
		fabric_endpoint_close(e);
	}
	return r;
}

bool fabric_endpoint_free(const char *name, bool is_path)
{
	struct sockaddr_un address;
	socklen_t len;

	if ((is_path ? fabric_path_address(name, &address, &len)
		     : fabric_abstract_address(name, &address, &len)) < 0)
		return false;
	int r = probe_address(&address, len);
	return r == -ECONNREFUSED || r == -ENOENT;
}

bool fabric_endpoint_lost(const struct fabric_endpoint *e)
{
	struct stat st;

	if (!e->is_path)
		return false;
	if (lstat(e->address.sun_path, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR;
	return st.st_dev != e->device || st.st_ino != e->inode;
}

void fabric_endpoint_close(struct fabric_endpoint *e)
{
	/* As long as it is open nobody takes the file for one that was left behind. */
	if (e->is_path && !e->keeps_name && !fabric_endpoint_lost(e))
		unlink(e->address.sun_path);
	close(e->fd);
	e->fd = -1;
}

const char *fabric_endpoint_text(const struct fabric_endpoint *e, char buf[112])
{
	if (e->is_path)
		snprintf(buf, 112, "%.108s", e->address.sun_path);
	else
		snprintf(buf, 112, "@%.107s", e->address.sun_path + 1);
	return buf;
}
