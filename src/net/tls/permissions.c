/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who may read and write the files of a certificate directory. What is checked is the file that was
 * opened, not its name.
 */
#include <errno.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/broker.h"
#include "net/tls/files.h"

#define FILE_BYTES_MAX (1 << 20)
#define ANY_WRITE (S_IWGRP | S_IWOTH)
#define ANY_ACCESS (S_IRWXG | S_IRWXO)

/* As a word of a shell command. */
static const char *quote_path(const char *path, struct buf *out)
{
	buf_add_char(out, '\'');
	for (; *path; path++) {
		if (*path == '\'')
			buf_add_str(out, "'\\'");
		buf_add_char(out, *path);
	}
	buf_add_char(out, '\'');
	return buf_str(out);
}

static int check_owner(const char *path, const struct stat *st, struct err *err)
{
	struct buf word = {0};

	if (st->st_uid == geteuid() || st->st_uid == 0)
		return 0;
	int r = err_set(err, -EACCES,
			"'%s' belongs to user %u, who could change it; run: chown %u %s", path,
			(unsigned)st->st_uid, (unsigned)geteuid(), quote_path(path, &word));
	buf_release(&word);
	return r;
}

static int check_mode(const char *path, const struct stat *st, mode_t refused, const char *what,
		      struct err *err)
{
	struct buf word = {0};

	if (!(st->st_mode & refused))
		return 0;
	int r = err_set(err, -EACCES, "'%s' can be %s by others (mode %03o); run: chmod %s %s",
			path, what, (unsigned)st->st_mode & 0777,
			S_ISDIR(st->st_mode) ? "700" : "600", quote_path(path, &word));
	buf_release(&word);
	return r;
}

/* The directory may lie in one that is closed to us, and open to our broker. */
static int inspect_dir(const char *dir, struct stat *st, bool *read_only)
{
	struct statvfs fs = {0};

	*read_only = false;
	if (stat(dir, st) == 0) {
		*read_only = statvfs(dir, &fs) == 0 && fs.f_flag & ST_RDONLY;
		return 0;
	}
	int fd = errno == EACCES ? broker_open(dir) : -errno;
	if (fd < 0)
		return fd;
	int r = fstat(fd, st) < 0 ? -errno : 0;
	*read_only = fstatvfs(fd, &fs) == 0 && fs.f_flag & ST_RDONLY;
	close(fd);
	return r;
}

int tls_files_check_dir(const char *dir, struct err *err)
{
	bool read_only;
	struct stat st;
	int r = inspect_dir(dir, &st, &read_only);

	if (r < 0)
		return err_sys(err, r, "cannot use the certificate directory '%s'", dir);
	if (!S_ISDIR(st.st_mode))
		return err_set(err, -ENOTDIR, "the certificate directory '%s' is not a directory",
			       dir);
	r = check_owner(dir, &st, err);
	/* Kubernetes shows secrets in a directory of mode 1777 on a mount that nobody can write. */
	if (r == 0 && !read_only)
		r = check_mode(dir, &st, ANY_WRITE, "written", err);
	return r;
}

static int read_all(int fd, const char *path, size_t size, struct buf *out, struct err *err)
{
	/* All the room at once: growing would leave copies of a key behind. */
	char *at = buf_room(out, size + 1);

	while (size > 0) {
		ssize_t n = read(fd, at, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(err, -errno, "cannot read '%s'", path);
		if (n == 0)
			break;
		at += n;
		out->len += (size_t)n;
		size -= (size_t)n;
	}
	return 0;
}

int tls_files_read(const char *path, bool secret, struct buf *out, struct err *err)
{
	struct stat st;
	int r;

	int fd = broker_open(path);
	if (fd < 0)
		return err_sys(err, fd, "cannot open '%s'", path);
	if (fstat(fd, &st) < 0)
		r = err_sys(err, -errno, "cannot look at '%s'", path);
	else if (!S_ISREG(st.st_mode))
		r = err_set(err, -EINVAL, "'%s' is not a file", path);
	else if (st.st_size > FILE_BYTES_MAX)
		r = err_set(err, -EFBIG, "'%s' is too large for a certificate or key", path);
	else
		r = check_owner(path, &st, err);
	if (r == 0)
		r = secret ? check_mode(path, &st, ANY_ACCESS, "read or written", err)
			   : check_mode(path, &st, ANY_WRITE, "written", err);
	if (r == 0)
		r = read_all(fd, path, (size_t)st.st_size, out, err);
	close(fd);
	return r;
}

void tls_files_forget(struct buf *text)
{
	OPENSSL_cleanse(text->data, text->cap);
	buf_release(text);
}
