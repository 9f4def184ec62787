/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

#define OVERLAYFS 0x794c7630

struct fs_type {
	unsigned long magic;
	const char *name;
	bool local;
};

static const struct fs_type fs_types[] = {
	{0xef53, "ext4", true},	      {0x58465342, "xfs", true},
	{0x01021994, "tmpfs", true},  {OVERLAYFS, "overlayfs", true},
	{0x9123683e, "btrfs", false}, {0x2fc12fc1, "zfs", false},
	{0xf2f52010, "f2fs", false},  {0x858458f6, "ramfs", false},
	{0x6969, "nfs", false},	      {0x517b, "smb", false},
	{0xff534d42, "cifs", false},  {0xfe534d42, "smb2", false},
	{0x65735546, "fuse", false},  {0x0bd00bd0, "lustre", false},
	{0x01021997, "9p", false},    {0x00c36400, "ceph", false},
	{0x47504653, "gpfs", false},  {0x19830326, "beegfs", false},
	{0x73757245, "coda", false},  {0x5346414f, "afs", false},
	{0x01161970, "gfs2", false},  {0x7461636f, "ocfs2", false},
	{0xf15f, "ecryptfs", false},  {0x9fa0, "proc", false},
	{0x62656572, "sysfs", false},
};

static const struct fs_type *find_type(unsigned long magic)
{
	for (size_t i = 0; i < sizeof(fs_types) / sizeof(fs_types[0]); i++)
		if (fs_types[i].magic == (magic & 0xffffffff))
			return &fs_types[i];
	return NULL;
}

const char *fs_type_name(unsigned long f_type)
{
	const struct fs_type *t = find_type(f_type);

	return t ? t->name : NULL;
}

bool fs_type_is_local(unsigned long f_type)
{
	const struct fs_type *t = find_type(f_type);

	return t && t->local;
}

int fs_is_local(const char *path, struct err *err)
{
	struct statfs s;

	if (statfs(path, &s) < 0)
		return err_sys(err, -errno, "cannot ask for the file system of '%s'", path);
	return fs_type_is_local((unsigned long)s.f_type);
}

int fs_read_file(const char *path, size_t cap, struct buf *out, struct err *err)
{
	size_t before = out->len;
	ssize_t n = 1;
	int r = 0;
	int fd = fs_open(path, O_RDONLY, 0, err);

	if (fd < 0)
		return fd;
	while (n != 0) {
		size_t left = cap - (out->len - before);
		size_t chunk = left < 65536 ? left + 1 : 65536;

		n = read(fd, buf_room(out, chunk), chunk);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			r = err_sys(err, -errno, "cannot read '%s'", path);
			break;
		}
		out->len += (size_t)n;
		if (out->len - before > cap) {
			r = err_set(err, -EFBIG, "'%s' is larger than %zu bytes", path, cap);
			break;
		}
	}
	close(fd);
	if (r < 0)
		out->len = before;
	return r;
}

int fs_write_all(int fd, const void *data, size_t n, int64_t offset, size_t *out_done)
{
	size_t done = 0;
	int r = 0;

	while (r == 0 && done < n) {
		const char *from = (const char *)data + done;
		ssize_t w = offset < 0 ? write(fd, from, n - done)
				       : pwrite(fd, from, n - done, offset + (off_t)done);

		if (w > 0)
			done += (size_t)w;
		else if (w == 0 || errno != EINTR)
			r = w < 0 ? -errno : -ENOSPC;
	}
	if (out_done)
		*out_done = done;
	return r;
}

ssize_t fs_read_at(int fd, void *to, size_t n, uint64_t offset)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(offset + done));

		if (got == 0)
			break;
		if (got > 0)
			done += (size_t)got;
		else if (errno != EINTR)
			return -errno;
	}
	return (ssize_t)done;
}

/* Adds "/name" for every name of path, and takes one back for every `..`. */
static void add_components(struct buf *out, size_t root, const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 2 && path[0] == '.' && path[1] == '.') {
			while (out->len > root && out->data[--out->len] != '/')
				;
		} else if (len && !(len == 1 && path[0] == '.')) {
			buf_add_char(out, '/');
			buf_add(out, path, len);
		}
		path += len + (path[len] == '/');
	}
}

int fs_absolute(const char *path, struct buf *out, struct err *err)
{
	size_t root = out->len;
	char cwd[PATH_MAX];

	if (path[0] != '/') {
		if (!getcwd(cwd, sizeof(cwd)))
			return err_sys(err, -errno, "cannot find the current directory");
		add_components(out, root, cwd);
	}
	add_components(out, root, path);
	if (out->len == root)
		buf_add_char(out, '/');
	return 0;
}

/*
 * The kernel grants a write lease only to who is alone with a file. It counts open files, and a
 * mapping keeps its file open: what neither pids nor /proc show across namespaces is known here.
 */
int fs_is_used_elsewhere(int fd)
{
	struct statfs fs;

	signal(SIGIO, SIG_IGN); /* sent when somebody opens the file in this very moment */
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
		return errno == EAGAIN ? 1 : -errno;
	fcntl(fd, F_SETLEASE, F_UNLCK);
	/* overlayfs maps a file below, and closes its own. */
	return fstatfs(fd, &fs) == 0 && fs.f_type != OVERLAYFS ? 0 : -ENOTSUP;
}

void fs_timestamp(char out[FS_TIMESTAMP_BYTES])
{
	time_t now = time(NULL);
	struct tm tm = {0};

	localtime_r(&now, &tm);
	strftime(out, FS_TIMESTAMP_BYTES, "%Y%m%d%H%M%S", &tm);
}
