/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Creating, changing and deleting at paths that other users may have prepared: the rules of fs.h.
 */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fs_impl.h"
#include "base/mem.h"

#define MAX_LINKS 40 /* as the kernel */
#define MAX_DEPTH 64 /* of a tree that is removed; each level holds a descriptor */
#define OWNER_ONLY 0700u

/*
 * Root: whom "/" belongs to. In a user namespace that does not map root, its files seem to belong
 * to the overflow user, and the links of the system itself must still work.
 */
bool walk_is_trusted(uid_t owner)
{
	struct stat root;

	return owner == 0 || owner == geteuid() || (stat("/", &root) == 0 && owner == root.st_uid);
}

static void close_keeping_errno(int fd)
{
	int was = errno;

	if (fd >= 0)
		close(fd);
	errno = was;
}

static int step_into(struct walk *w, int fd, const struct stat *st)
{
	close(w->fd);
	w->fd = fd;
	w->foreign = !walk_is_trusted(st->st_uid);
	return 0;
}

int walk_begin_at(struct walk *w, const char *dir)
{
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		int code = -errno;

		close_keeping_errno(fd);
		return code;
	}
	return step_into(w, fd, &st);
}

/* Puts what the link says before the rest. */
int walk_follow_link(struct walk *w, int link_fd, const struct stat *st, struct err *err)
{
	char target[PATH_MAX], joined[PATH_MAX];
	ssize_t n = readlinkat(link_fd, "", target, sizeof(target) - 1);

	if (n < 0)
		return err_sys(err, -errno, "cannot read a link in '%s'", w->path);
	if (!walk_is_trusted(st->st_uid))
		return err_set(err, -ELOOP,
			       "a link in '%s' belongs to another user (uid %u) and is not "
			       "followed: use the path that it points to",
			       w->path, (unsigned)st->st_uid);
	if (++w->links > MAX_LINKS)
		return err_sys(err, -ELOOP, "cannot open '%s'", w->path);
	target[n] = '\0';
	int len = snprintf(joined, sizeof(joined), "%s/%s", target, w->rest);
	if (len < 0 || (size_t)len >= sizeof(joined))
		return err_sys(err, -ENAMETOOLONG, "cannot open '%s'", w->path);
	memcpy(w->rest, joined, (size_t)len + 1);
	if (target[0] != '/')
		return 0;
	int r = walk_begin_at(w, "/");
	return r < 0 ? err_sys(err, r, "cannot open '/'") : 0;
}

/* The next name of the rest, which it loses; false at its end. */
bool walk_next_name(struct walk *w, char name[NAME_MAX + 1], int *code)
{
	size_t skip = strspn(w->rest, "/"), len = strcspn(w->rest + skip, "/");

	*code = len > NAME_MAX ? -ENAMETOOLONG : 0;
	if (!len || *code < 0)
		return false;
	memcpy(name, w->rest + skip, len);
	name[len] = '\0';
	memmove(w->rest, w->rest + skip + len, strlen(w->rest + skip + len) + 1);
	return true;
}

/* What a default ACL of somebody's directory gave to others. */
static void drop_acl(int fd, bool dir)
{
	(void)!fremovexattr(fd, "system.posix_acl_access");
	if (dir)
		(void)!fremovexattr(fd, "system.posix_acl_default");
}

/* A new directory below this one, which is still ours when it is opened. */
static int make_dir(const struct walk *w, const char *name, mode_t mode)
{
	struct stat st;

	if (mkdirat(w->fd, name, w->foreign ? mode & OWNER_ONLY : mode) < 0)
		return -errno;
	if (!w->foreign)
		return 0;
	int fd = openat(w->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
	if (r == 0 && st.st_uid != geteuid())
		r = -EPERM;
	if (r == 0)
		drop_acl(fd, true);
	close_keeping_errno(fd);
	return r;
}

int walk_enter(struct walk *w, const char *name, bool make, struct err *err)
{
	struct stat st;
	int fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT && make) {
		int r = make_dir(w, name, FS_DIR_MODE);

		if (r < 0 && r != -EEXIST)
			return err_sys(err, r, "cannot make directory '%s'", w->path);
		fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0 || fstat(fd, &st) < 0) {
		int code = -errno;

		close_keeping_errno(fd);
		return err_sys(err, code, make ? "cannot make directory '%s'" : "cannot open '%s'",
			       w->path);
	}
	if (S_ISDIR(st.st_mode))
		return step_into(w, fd, &st);
	int r = S_ISLNK(st.st_mode)
			? walk_follow_link(w, fd, &st, err)
			: err_sys(err, -ENOTDIR,
				  make ? "cannot make directory '%s'" : "cannot open '%s'",
				  w->path);
	close(fd);
	return r;
}

static int walk_all(struct walk *w, bool make, struct err *err)
{
	char name[NAME_MAX + 1];
	int r = 0, code = 0;

	while (r == 0 && walk_next_name(w, name, &code))
		if (strcmp(name, ".") != 0)
			r = walk_enter(w, name, make, err);
	return r == 0 && code < 0 ? err_sys(err, code, "cannot open '%s'", w->path) : r;
}

/* Walks the first len bytes of the path. The caller closes w->fd, also after an error. */
static int walk_to(struct walk *w, const char *path, size_t len, bool make, struct err *err)
{
	*w = (struct walk){.fd = -1, .path = path};
	if (!*path)
		return err_sys(err, -ENOENT, "cannot open ''");
	if (len >= sizeof(w->rest))
		return err_sys(err, -ENAMETOOLONG, "cannot open '%s'", path);
	memcpy(w->rest, path, len);
	w->rest[len] = '\0';
	int r = walk_begin_at(w, path[0] == '/' ? "/" : ".");
	if (r < 0)
		return err_sys(err, r, "cannot open '%s'", path[0] == '/' ? "/" : ".");
	return walk_all(w, make, err);
}

void walk_end(struct walk *w)
{
	close_keeping_errno(w->fd);
}

/* The directory of the last name; *out_name points into path, and trailing slashes are an error. */
int walk_to_parent(struct walk *w, const char *path, const char **out_name, struct err *err)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	*out_name = name;
	*w = (struct walk){.fd = -1, .path = path};
	if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return err_set(err, -EINVAL, "'%s' does not end in the name of a file", path);
	return walk_to(w, path, (size_t)(name - path), false, err);
}

/* The second rule: nobody but root, we, the directory's owner and its group may replace names. */
static int check_writers(const struct walk *w, struct err *err)
{
	struct stat st;

	if (fstat(w->fd, &st) < 0)
		return err_sys(err, -errno, "cannot stat the directory of '%s'", w->path);
	if (!(st.st_mode & S_IWOTH) || ((st.st_mode & S_ISVTX) && walk_is_trusted(st.st_uid)))
		return 0;
	return err_set(err, -EPERM,
		       "every user can replace files in the directory of '%s', so nothing is "
		       "written there: choose another directory, or take that right away "
		       "(chmod o-w)",
		       w->path);
}

static int writable_parent(struct walk *w, const char *path, const char **out_name, struct err *err)
{
	int r = walk_to_parent(w, path, out_name, err);

	return r < 0 ? r : check_writers(w, err);
}

int fs_mkdirs(const char *path, struct err *err)
{
	struct walk w;
	int r = walk_to(&w, path, strlen(path), true, err);

	walk_end(&w);
	return r;
}

int fs_mkdir(const char *path, mode_t mode, struct err *err)
{
	struct walk w;
	const char *name;
	int r = writable_parent(&w, path, &name, err);

	if (r == 0) {
		r = make_dir(&w, name, mode);
		if (r < 0)
			err_sys(err, r, "cannot make directory '%s'", path);
	}
	walk_end(&w);
	return r;
}

int fs_open_dir(const char *path, struct err *err)
{
	struct walk w;
	int r = walk_to(&w, path, strlen(path), false, err);

	if (r == 0)
		r = check_writers(&w, err);
	if (r == 0) {
		r = openat(w.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (r < 0)
			r = err_sys(err, -errno, "cannot open '%s'", path);
	}
	walk_end(&w);
	return r;
}

/* The third rule. A file that we have just made passes it, too. */
static int check_own(int fd, const char *path, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(err, -errno, "cannot stat '%s'", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "'%s' is not a regular file", path);
	if (st.st_uid != geteuid())
		return err_set(err, -EPERM, "'%s' belongs to another user (uid %u)", path,
			       (unsigned)st.st_uid);
	if (st.st_nlink > 1)
		return err_set(err, -EPERM, "'%s' has another name elsewhere (a hard link)", path);
	return 0;
}

int walk_open(const struct walk *w, const char *name, int flags, mode_t mode, struct err *err)
{
	const int always = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	int fd = openat(w->fd, name, (flags & ~O_TRUNC) | always,
			w->foreign ? mode & OWNER_ONLY : mode);

	if (fd < 0)
		return err_sys(err, -errno,
			       flags & O_CREAT ? "cannot create '%s'" : "cannot open '%s'",
			       w->path);
	int r = check_own(fd, w->path, err);
	if (r == 0 && w->foreign && (flags & O_CREAT))
		drop_acl(fd, false);
	if (r == 0 && (flags & O_TRUNC) && ftruncate(fd, 0) < 0)
		r = err_sys(err, -errno, "cannot empty '%s'", w->path);
	if (r < 0) {
		close(fd);
		return r;
	}
	(void)fcntl(fd, F_SETFL, flags & (O_APPEND | O_DIRECT));
	return fd;
}

/* What the caller holds open already, such as `<(command)` of a shell, is nobody else's. */
bool fs_is_own_descriptor(const char *path)
{
	return !strcmp(path, "/dev/stdin") || !strcmp(path, "/dev/stdout") ||
	       !strcmp(path, "/dev/stderr") || !strncmp(path, "/dev/fd/", strlen("/dev/fd/")) ||
	       !strncmp(path, "/proc/self/fd/", strlen("/proc/self/fd/"));
}

static int open_to_read(const char *path, struct err *err)
{
	bool own = fs_is_own_descriptor(path);
	int fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC | (own ? 0 : O_NONBLOCK));
	struct stat st;

	if (fd < 0)
		return err_sys(err, -errno, "cannot open '%s'", path);
	int r = fstat(fd, &st) < 0 ? err_sys(err, -errno, "cannot stat '%s'", path) : 0;
	if (r == 0 && S_ISDIR(st.st_mode))
		r = err_sys(err, -EISDIR, "cannot read '%s'", path);
	else if (r == 0 && !S_ISREG(st.st_mode) && !own)
		r = err_set(err, -EINVAL, "'%s' is not a regular file", path);
	if (r < 0) {
		close(fd);
		return r;
	}
	if (!own)
		(void)fcntl(fd, F_SETFL, 0);
	return fd;
}

int fs_open(const char *path, int flags, mode_t mode, struct err *err)
{
	struct walk w;
	const char *name;

	if (!(flags & (O_WRONLY | O_RDWR)))
		return open_to_read(path, err);
	int r = writable_parent(&w, path, &name, err);
	if (r == 0)
		r = walk_open(&w, name, flags, mode, err);
	walk_end(&w);
	return r;
}

static int unlink_at(const char *path, int flags, struct err *err)
{
	struct walk w;
	const char *name;
	int r = walk_to_parent(&w, path, &name, err);

	if (r == 0 && unlinkat(w.fd, name, flags) < 0)
		r = err_sys(err, -errno, "cannot remove '%s'", path);
	walk_end(&w);
	return r;
}

int fs_unlink(const char *path, struct err *err)
{
	return unlink_at(path, 0, err);
}

int fs_rmdir(const char *path, struct err *err)
{
	return unlink_at(path, AT_REMOVEDIR, err);
}

static int rename_or_link(const char *from, const char *to, bool rename, struct err *err)
{
	struct walk old, new = {.fd = -1};
	const char *old_name, *new_name;
	int r = walk_to_parent(&old, from, &old_name, err);

	if (r == 0)
		r = writable_parent(&new, to, &new_name, err);
	if (r == 0 && (rename ? renameat(old.fd, old_name, new.fd, new_name)
			      : linkat(old.fd, old_name, new.fd, new_name, 0)) < 0)
		r = err_sys(err, -errno, "cannot %s '%s' to '%s'", rename ? "rename" : "link", from,
			    to);
	walk_end(&old);
	walk_end(&new);
	return r;
}

int fs_rename(const char *from, const char *to, struct err *err)
{
	return rename_or_link(from, to, true, err);
}

int fs_link(const char *from, const char *to, struct err *err)
{
	return rename_or_link(from, to, false, err);
}

/* Takes fd. Everything below that is not ours stays, and so does what another file system holds. */
static int empty_dir(int fd, dev_t device, unsigned depth)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!d) {
		int code = -errno;

		close(fd);
		return code;
	}
	while ((e = readdir(d))) {
		struct stat st;
		int below;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (unlinkat(fd, e->d_name, 0) == 0)
			continue;
		r = -ENOTEMPTY;
		if (depth == 0)
			continue;
		below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below < 0)
			continue;
		if (fstat(below, &st) < 0 || st.st_dev != device || st.st_uid != geteuid()) {
			close(below);
			continue;
		}
		if (empty_dir(below, device, depth - 1) == 0 &&
		    unlinkat(fd, e->d_name, AT_REMOVEDIR) == 0)
			r = 0;
	}
	closedir(d);
	return r;
}

int fs_remove_tree(const char *path, struct err *err)
{
	struct walk w;
	const char *name;
	struct stat st;
	int r = walk_to_parent(&w, path, &name, err), fd = -1;

	if (r == 0) {
		fd = openat(w.fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0)
			r = err_sys(err, -errno, "cannot open '%s'", path);
		else if (st.st_uid != geteuid())
			r = err_set(err, -EPERM, "'%s' belongs to another user (uid %u)", path,
				    (unsigned)st.st_uid);
	}
	if (r < 0) {
		close_keeping_errno(fd);
	} else {
		r = empty_dir(fd, st.st_dev, MAX_DEPTH);
		if (r == 0 && unlinkat(w.fd, name, AT_REMOVEDIR) < 0)
			r = -errno;
		if (r < 0)
			err_sys(err, r, "cannot remove '%s'", path);
	}
	walk_end(&w);
	return r;
}

int fs_write_atomic(const char *path, struct buf *content, mode_t mode, struct err *err)
{
	struct walk w;
	const char *name;
	int r = writable_parent(&w, path, &name, err), fd = -1;
	char *tmp = xasprintf("%s.%d.tmp", name, (int)getpid());

	if (r == 0) {
		(void)unlinkat(w.fd, tmp, 0); /* of a process that had our number, or planted */
		fd = walk_open(&w, tmp, O_WRONLY | O_CREAT | O_EXCL, mode, err);
		r = fd < 0 ? fd : 0;
	}
	if (fd >= 0) {
		r = fs_write_all(fd, content->data, content->len, FS_HERE, NULL);
		if (close(fd) < 0 && r == 0)
			r = -errno;
		if (r == 0 && renameat(w.fd, tmp, w.fd, name) < 0)
			r = -errno;
		if (r < 0) {
			err_sys(err, r, "cannot write '%s'", path);
			(void)unlinkat(w.fd, tmp, 0);
		}
	}
	free(tmp);
	walk_end(&w);
	return r;
}
