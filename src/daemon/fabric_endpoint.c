/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/fabric_endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/fabric.h"

/*
 * Answers count against the buffer of the socket that sent them until they are read: a few clients
 * that never read would silence the endpoint for everyone with the usual 208 KiB.
 */
#define SEND_BUFFER_BYTES (16 << 20)

static int socket_new(struct err *err)
{
	const int on = 1, bytes = SEND_BUFFER_BYTES;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(err, -errno, "cannot make a datagram socket");
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

int fabric_endpoint_abstract(struct fabric_endpoint *e, const char *name, struct err *err)
{
	struct fabric_endpoint made = {.fd = -1};
	socklen_t len;
	int r = fabric_abstract_address(name, &made.address, &len);

	if (r < 0)
		return err_sys(err, r, "cannot use the name '%s'", name);
	made.fd = socket_new(err);
	if (made.fd < 0)
		return made.fd;
	if (bind(made.fd, (struct sockaddr *)&made.address, len) < 0) {
		r = errno == EADDRINUSE
			    ? err_set(err, -errno, "another daemon has the name '@%s'", name)
			    : err_sys(err, -errno, "cannot bind '@%s'", name);
		close(made.fd);
		return r;
	}
	*e = made;
	return 0;
}

/* Whether nobody listens on the socket file behind this O_PATH descriptor. */
static bool nobody_listens(int file)
{
	struct sockaddr_un address;
	socklen_t len;
	char link[32];
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
	fabric_path_address(link, &address, &len);
	bool dead = connect(fd, (struct sockaddr *)&address, len) < 0 && errno == ECONNREFUSED;
	close(fd);
	return dead;
}

/*
 * Removes what a dead daemon left. The file is looked at through a descriptor that followed no
 * link, since others may write to the directory: what is asked and what answers is the same file.
 */
static int remove_stale(const char *path, struct err *err)
{
	struct stat st;
	int file = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	int r = 0;

	if (file < 0)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "cannot look at '%s'", path);
	if (fstat(file, &st) < 0)
		r = err_sys(err, -errno, "cannot look at '%s'", path);
	else if (!S_ISSOCK(st.st_mode))
		r = err_set(err, -EEXIST, "'%s' is there and is no socket", path);
	else if (st.st_uid != geteuid())
		r = err_set(err, -EPERM, "'%s' belongs to user %u", path, st.st_uid);
	else if (!nobody_listens(file))
		r = err_set(err, -EADDRINUSE, "another daemon listens on '%s'", path);
	else if (unlink(path) < 0 && errno != ENOENT)
		r = err_sys(err, -errno, "cannot remove '%s', left by another daemon", path);
	close(file);
	return r;
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

int fabric_endpoint_path(struct fabric_endpoint *e, const char *path, mode_t mode, struct err *err)
{
	struct fabric_endpoint made = {.fd = -1, .is_path = true};
	socklen_t len;
	int r = fabric_path_address(path, &made.address, &len);

	if (r < 0)
		return err_sys(err, r, "cannot use the path '%s'", path);
	made.fd = socket_new(err);
	if (made.fd < 0)
		return made.fd;
	r = bind_with_mode(made.fd, &made.address, len, mode);
	if (r == -EADDRINUSE) {
		r = remove_stale(path, err);
		if (r < 0)
			goto fail;
		r = bind_with_mode(made.fd, &made.address, len, mode);
	}
	if (r < 0) {
		err_sys(err, r, "cannot bind '%s'", path);
		goto fail;
	}
	*e = made;
	return 0;
fail:
	close(made.fd);
	return r;
}

/* Once closed, its file is like any other that a daemon left: removed if nobody listens. The number
 * of the inode would not tell, it is soon used again. */
void fabric_endpoint_close(struct fabric_endpoint *e)
{
	close(e->fd);
	e->fd = -1;
	if (e->is_path)
		(void)remove_stale(e->address.sun_path, NULL);
}

const char *fabric_endpoint_text(const struct fabric_endpoint *e, char buf[112])
{
	if (e->is_path)
		snprintf(buf, 112, "%.108s", e->address.sun_path);
	else
		snprintf(buf, 112, "@%.107s", e->address.sun_path + 1);
	return buf;
}
