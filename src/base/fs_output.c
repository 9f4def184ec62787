/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Where output goes that a person has named, and what is said to people where a file is refused. */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs_impl.h"

/* Goes on until one name is left, which is the rest's last. */
static int walk_but_last(struct walk *w, char name[NAME_MAX + 1], struct err *err)
{
	int r = 0, code = 0;

	name[0] = '\0';
	while (r == 0 && walk_next_name(w, name, &code)) {
		if (w->rest[strspn(w->rest, "/")] == '\0')
			break;
		if (strcmp(name, ".") != 0)
			r = walk_enter(w, name, false, err);
	}
	if (r == 0 && code < 0)
		r = err_sys(err, code, "cannot open '%s'", w->path);
	if (r == 0 && (!*name || !strcmp(name, ".") || !strcmp(name, "..")))
		r = err_set(err, -EINVAL, "'%s' does not end in the name of a file", w->path);
	return r;
}

/* 1: the name was a link, which has been put before the rest. */
static int follow_if_link(struct walk *w, const char *name, struct err *err)
{
	struct stat st;
	int fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), r = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "cannot open '%s'", w->path);
	if (fstat(fd, &st) < 0)
		r = err_sys(err, -errno, "cannot stat '%s'", w->path);
	else if (S_ISLNK(st.st_mode))
		r = walk_follow_link(w, fd, &st, err);
	close(fd);
	return r < 0 ? r : S_ISLNK(st.st_mode);
}

static int name_place(const struct walk *w, const char *name, struct buf *out, struct err *err)
{
	char link[64], dir[PATH_MAX];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", w->fd);
	ssize_t n = readlink(link, dir, sizeof(dir));
	if (n < 0 || (size_t)n == sizeof(dir))
		return err_sys(err, n < 0 ? -errno : -ENAMETOOLONG, "cannot resolve '%s'", w->path);
	if (n > 1)
		buf_add(out, dir, (size_t)n);
	buf_addf(out, "/%s", name);
	return 0;
}

int fs_resolve(const char *path, struct buf *out, struct err *err)
{
	struct walk w = {.fd = -1, .path = path};
	size_t len = strlen(path);
	char name[NAME_MAX + 1];

	if (len >= sizeof(w.rest))
		return err_sys(err, -ENAMETOOLONG, "cannot open '%s'", path);
	memcpy(w.rest, path, len + 1);
	int r = walk_begin_at(&w, path[0] == '/' ? "/" : ".");
	if (r < 0)
		err_sys(err, r, "cannot open '%s'", path[0] == '/' ? "/" : ".");
	do {
		r = r < 0 ? r : walk_but_last(&w, name, err);
		r = r < 0 ? r : follow_if_link(&w, name, err);
	} while (r > 0);
	if (r == 0)
		r = name_place(&w, name, out, err);
	walk_end(&w);
	return r;
}

/* Behind the base in a path without dots and double slashes; NULL: it is not below it. */
static const char *behind_base(const char *path, const char *base)
{
	size_t n = strcmp(base, "/") ? strlen(base) : 0;

	return !strncmp(path, base, n) && (path[n] == '/' || !path[n]) ? path + n : NULL;
}

/* Directories as far as there is anything. */
static bool is_plain_way(const char *base, const char *rest)
{
	struct walk w = {.fd = -1, .path = base};
	char name[NAME_MAX + 1];
	int code = 0, r = walk_begin_at(&w, base);

	snprintf(w.rest, sizeof(w.rest), "%s", rest);
	while (r == 0 && walk_next_name(&w, name, &code)) {
		int fd = openat(w.fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		r = fd < 0 ? -errno : 0;
		if (fd >= 0) {
			close(w.fd);
			w.fd = fd;
		}
	}
	walk_end(&w);
	return (r == 0 && code == 0) || r == -ENOENT;
}

bool fs_is_below(const char *path, const char *base)
{
	struct buf spelled = {0}, real = {0};
	const char *rest = NULL;

	if (strlen(path) < PATH_MAX && fs_absolute(path, &spelled, NULL) == 0)
		rest = behind_base(buf_str(&spelled), base);
	/* One of its parents may be a link that leads there. */
	if (!rest && spelled.len && fs_resolve(buf_str(&spelled), &real, NULL) == 0)
		rest = behind_base(buf_str(&real), base);
	bool below = rest && is_plain_way(base, rest);
	buf_release(&spelled);
	buf_release(&real);
	return below;
}

bool fs_is_stream(const char *path)
{
	struct stat st;

	return fs_is_own_descriptor(path) ||
	       (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

static int open_own_descriptor(const char *path, int flags, struct err *err)
{
	int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC | (flags & (O_APPEND | O_TRUNC)));

	return fd < 0 ? err_sys(err, -errno, "cannot open '%s'", path) : fd;
}

/* A FIFO that nobody reads is refused rather than waited for. */
static int open_stream(const char *path, struct err *err)
{
	struct walk w;
	const char *name;
	struct stat st;
	int r = walk_to_parent(&w, path, &name, err), fd = -1;

	if (r == 0) {
		fd = openat(w.fd, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0 && errno == ENXIO)
			r = err_set(err, -ENXIO, "cannot write '%s': nobody reads from it", path);
		else if (fd < 0 || fstat(fd, &st) < 0)
			r = err_sys(err, -errno, "cannot open '%s'", path);
		else if (!(S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode)))
			r = err_set(err, -EINVAL, "'%s' is not a regular file", path);
		else if (w.foreign || !walk_is_trusted(st.st_uid))
			r = err_set(err, -EPERM, "'%s' belongs to another user (uid %u)", path,
				    (unsigned)st.st_uid);
	}
	walk_end(&w);
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		return r;
	}
	(void)fcntl(fd, F_SETFL, 0);
	return fd;
}

int fs_open_output(const char *path, int flags, mode_t mode, struct err *err)
{
	struct buf real = {0};

	if (fs_is_own_descriptor(path))
		return open_own_descriptor(path, flags, err);
	int r = fs_resolve(path, &real, err);
	if (r == 0 && fs_is_stream(buf_str(&real)))
		r = open_stream(buf_str(&real), err);
	else if (r == 0)
		r = fs_open(buf_str(&real), flags | O_WRONLY, mode, err);
	buf_release(&real);
	return r;
}

int fs_leave_note(const char *path, const struct buf *text, mode_t mode, struct err *err)
{
	struct walk w;
	const char *name;
	int r = walk_to_parent(&w, path, &name, err);
	int fd = r < 0 ? r : walk_open(&w, name, O_WRONLY | O_CREAT | O_APPEND, mode, err);

	if (fd >= 0) {
		r = fs_write_all(fd, text->data, text->len, FS_HERE, NULL);
		if (r < 0)
			err_sys(err, r, "cannot write '%s'", path);
		close(fd);
	}
	walk_end(&w);
	return fd < 0 ? fd : r;
}
