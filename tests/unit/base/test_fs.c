/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/fs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LOG_AREA "test"

#include "base/log.h"
#include "test.h"
#include "tmpdir.h"

/* A new directory, made the current one. */
static void enter_tmp(void)
{
	CHECK(chdir(tmpdir()) == 0);
}

static void check_absolute(const char *path, const char *want)
{
	struct buf b = {0};

	CHECK_INT(fs_absolute(path, &b, NULL), 0);
	CHECK_STR(buf_str(&b), want);
	buf_release(&b);
}

TEST(fs, absolute)
{
	check_absolute("/", "/");
	check_absolute("//a//b/", "/a/b");
	check_absolute("/a/./b/../c", "/a/c");
	check_absolute("/../../x", "/x");
	check_absolute("/a/..", "/");
	check_absolute("/a/...", "/a/...");
	CHECK(chdir("/usr/bin") == 0);
	check_absolute("x", "/usr/bin/x");
	check_absolute("../x", "/usr/x");
	check_absolute("", "/usr/bin");
	check_absolute("../../../..", "/");
}

TEST(fs, mkdirs)
{
	struct err err = {0};
	struct stat st;

	enter_tmp();
	umask(0);
	CHECK_INT(fs_mkdirs("a/b//c/", &err), 0);
	CHECK(stat("a/b/c", &st) == 0 && S_ISDIR(st.st_mode));
	CHECK_INT(st.st_mode & 0777, 0750);
	CHECK_INT(fs_mkdirs("a/b/c", &err), 0);
	CHECK_INT(fs_mkdirs("/", &err), 0);
	CHECK(close(open("file", O_CREAT | O_WRONLY, 0600)) == 0);
	CHECK_INT(fs_mkdirs("file/x", &err), -ENOTDIR);
	CHECK(strstr(err.text, "cannot make directory 'file"));
	CHECK_INT(fs_mkdirs("file", &err), -ENOTDIR);
	CHECK(fs_mkdirs("", &err) < 0);
}

TEST(fs, write_and_read)
{
	struct buf text = {0}, got = {0};
	struct err err = {0};
	struct stat st;

	enter_tmp();
	umask(022);
	buf_add_str(&text, "hello");
	CHECK_INT(fs_write_atomic("f", &text, 0640, &err), 0);
	CHECK(stat("f", &st) == 0);
	CHECK_INT(st.st_mode & 0777, 0640);
	buf_add_str(&text, " again");
	CHECK_INT(fs_write_atomic("f", &text, 0640, &err), 0);
	buf_add_str(&got, ">");
	CHECK_INT(fs_read_file("f", 11, &got, &err), 0);
	CHECK_STR(buf_str(&got), ">hello again");
	CHECK_INT(fs_read_file("f", 10, &got, &err), -EFBIG);
	CHECK_STR(buf_str(&got), ">hello again");
	CHECK_INT(fs_read_file("absent", 10, &got, &err), -ENOENT);
	CHECK_STR(err.text, "cannot open 'absent': No such file or directory");
	CHECK_INT(fs_read_file("/", 10, &got, &err), -EISDIR);
	CHECK_INT(fs_write_atomic("no/f", &text, 0640, &err), -ENOENT);
	CHECK_INT(fs_write_atomic("/proc/self/x", &text, 0640, &err), -ENOENT);
	CHECK_INT(fs_read_file("/dev/zero", 1000, &got, &err), -EINVAL);
	buf_release(&text);
	buf_release(&got);
}

TEST(fs, types)
{
	CHECK_STR(fs_type_name(0xef53), "ext4");
	CHECK(fs_type_is_local(0xef53) && fs_type_is_local(0x58465342));
	CHECK(fs_type_is_local(0x01021994) && fs_type_is_local(0x794c7630));
	CHECK(!fs_type_is_local(0x6969) && !fs_type_is_local(0x9123683e));
	CHECK(!fs_type_is_local(0x65735546) && !fs_type_is_local(0x0bd00bd0));
	CHECK(!fs_type_is_local(0x01021997) && !fs_type_is_local(0x12345));
	/* f_type is signed on some machines */
	CHECK_STR(fs_type_name((unsigned long)(int)0xff534d42), "cifs");
	CHECK(!fs_type_name(0x12345));
	CHECK_INT(fs_is_local("/proc", NULL), 0);
	CHECK_INT(fs_is_local("/no/such/place", NULL), -ENOENT);
}

TEST(fs, who_uses_a_file)
{
	int own = open(tmpfile_path("f"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(own >= 0 && ftruncate(own, 4096) == 0);
	void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
	int r = fs_is_used_elsewhere(own);
	int other = open(tmpfile_path("f"), O_RDWR | O_CLOEXEC);

	CHECK(mapped != MAP_FAILED);
	CHECK_INT(fs_is_used_elsewhere(own), r == -EINVAL ? r : 1);
	void *again = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
	close(other);
	CHECK_INT(fs_is_used_elsewhere(own), r < 0 ? r : 1); /* overlayfs cannot tell */
	munmap(again, 4096);
	CHECK_INT(fs_is_used_elsewhere(own), r);
	CHECK(r == 0 || fs_is_local(tmpdir(), NULL) != 1 || r == -ENOTSUP);
	munmap(mapped, 4096);
	close(own);
}

TEST(fs, timestamp)
{
	char t[FS_TIMESTAMP_BYTES];

	fs_timestamp(t);
	CHECK_INT(strlen(t), 14);
	for (int i = 0; i < 14; i++)
		CHECK(isdigit((unsigned char)t[i]));
	CHECK(t[0] == '2');
}

TEST(fs, log_lines)
{
	struct buf got = {0};
	struct err err = {0};

	enter_tmp();
	CHECK_INT(log_open("log", &err), 0);
	log_set_level(LOG_INFO);
	log_debug("not this");
	log_info("a %d", 1);
	errno = EAGAIN;
	log_err("b");
	CHECK_INT(errno, EAGAIN);
	CHECK_INT(log_configure("error,test=debug,,other=error", &err), 0);
	log_debug("c");
	log_write(LOG_WARN, "other", "/x/y.c", 7, "not this");
	log_write(LOG_ERROR, "", "/x/y.c", 7, "%05000d", 1);
	log_err("d\ne\x1b[2J\x7f");
	log_close();
	CHECK_INT(fs_read_file("log", 10000, &got, &err), 0);
	const char *p = buf_str(&got);
	CHECK(strlen(p) > 40 && p[4] == '-' && p[10] == ' ' && p[19] == ' ');
	CHECK(!strncmp(p + 19, " [INFO]  [test_fs.c:", 20));
	CHECK(strstr(p, "] test: a 1\n") && strstr(p, " [ERROR] [test_fs.c:"));
	CHECK(strstr(p, "] test: b\n") && strstr(p, " [DEBUG] ") && strstr(p, "] test: c\n"));
	CHECK(strstr(p, " [ERROR] [y.c:7] 0000"));
	CHECK(!strstr(p, "not this"));
	CHECK(strstr(p, "] test: d?e?[2J?\n"));
	CHECK(got.len > 5000 && got.len < 5600 && p[got.len - 1] == '\n'); /* whole */
	CHECK_INT(log_configure("loud", &err), -EINVAL);
	CHECK_INT(log_configure("test=loud", &err), -EINVAL);
	buf_release(&got);
}

/* --- what other users plant. As root a test makes files of another user; else the rules about
 * other users cannot be broken here, and the tests that need it are skipped. --- */

#define STRANGER 61001

static void give_away(const char *path)
{
	CHECK(lchown(path, STRANGER, STRANGER) == 0);
}

static void make_file(const char *path)
{
	CHECK(close(open(path, O_CREAT | O_EXCL | O_WRONLY, 0600)) == 0);
}

static void check_refused(int got, int want, const struct err *err, const char *words)
{
	CHECK_INT(got, want);
	if (!strstr(err->text, words))
		fprintf(stderr, "said: %s\n", err->text);
	CHECK(strstr(err->text, words));
}

TEST(fs, last_link_is_not_followed)
{
	struct err err = {0};
	struct buf text = {0};
	struct stat st;

	enter_tmp();
	make_file("precious");
	CHECK(symlink("precious", "link") == 0 && symlink("absent", "dangling") == 0);
	CHECK_INT(fs_open("link", O_WRONLY | O_CREAT, 0600, &err), -ELOOP);
	CHECK_INT(fs_open("dangling", O_WRONLY | O_CREAT, 0600, &err), -ELOOP);
	CHECK_INT(fs_open("dangling", O_WRONLY | O_CREAT | O_EXCL, 0600, &err), -EEXIST);
	CHECK_INT(fs_unlink("dangling", &err), 0);
	CHECK(access("absent", F_OK) < 0);
	buf_add_str(&text, "new");
	CHECK_INT(fs_write_atomic("link", &text, 0600, &err), 0); /* the link is replaced */
	CHECK(stat("precious", &st) == 0 && st.st_size == 0);
	CHECK(lstat("link", &st) == 0 && S_ISREG(st.st_mode));
	buf_release(&text);
}

TEST(fs, own_links_on_the_way_are_followed)
{
	struct err err = {0};

	enter_tmp();
	CHECK_INT(fs_mkdirs("real/deep", &err), 0);
	CHECK(symlink("real", "short") == 0 && symlink("../short/deep", "real/round") == 0);
	CHECK(symlink("loop", "loop") == 0);
	int fd = fs_open("short/round/../deep/./f", O_WRONLY | O_CREAT | O_EXCL, 0600, &err);
	CHECK(fd >= 0 && close(fd) == 0);
	CHECK(access("real/deep/f", F_OK) == 0);
	CHECK_INT(fs_mkdirs("short/more/levels", &err), 0);
	CHECK(access("real/more/levels", F_OK) == 0);
	CHECK_INT(fs_mkdirs("loop/x", &err), -ELOOP);
}

TEST(fs, links_of_strangers_are_refused)
{
	struct err err = {0};

	NEEDS(geteuid() == 0, "root", "files of another user");
	enter_tmp();
	CHECK(mkdir("precious", 0700) == 0 && symlink("precious", "link") == 0);
	give_away("link");
	make_file("precious/f");
	check_refused(fs_open("link/new", O_WRONLY | O_CREAT, 0600, &err), -ELOOP, &err, "61001");
	check_refused(fs_mkdirs("link/sub", &err), -ELOOP, &err, "another user");
	CHECK_INT(fs_mkdir("link/sub", 0700, &err), -ELOOP);
	CHECK_INT(fs_unlink("link/f", &err), -ELOOP);
	CHECK_INT(fs_rename("precious/f", "link/g", &err), -ELOOP);
	CHECK_INT(fs_remove_tree("link/sub", &err), -ELOOP);
	CHECK_INT(fs_open_dir("link", &err), -ELOOP);
	CHECK(access("precious/f", F_OK) == 0);
}

TEST(fs, directories_of_everybody_are_refused)
{
	struct err err = {0};
	struct buf text = {0};

	enter_tmp();
	CHECK(mkdir("all", 0700) == 0 && chmod("all", 0777) == 0);
	check_refused(fs_open("all/f", O_WRONLY | O_CREAT, 0600, &err), -EPERM, &err, "chmod o-w");
	CHECK_INT(fs_write_atomic("all/f", &text, 0600, &err), -EPERM);
	CHECK_INT(fs_open_dir("all", &err), -EPERM);
	CHECK_INT(fs_mkdirs("all/own", &err), 0); /* a directory of our own is a way out */
	int fd = fs_open("all/own/f", O_WRONLY | O_CREAT, 0600, &err);
	CHECK(fd >= 0 && close(fd) == 0);
	CHECK(chmod("all", 01777) == 0);
	fd = fs_open("all/f", O_WRONLY | O_CREAT, 0600, &err);
	CHECK(fd >= 0 && close(fd) == 0);
	CHECK(chmod("all", 02775) == 0); /* of a project */
	fd = fs_open("all/g", O_WRONLY | O_CREAT, 0600, &err);
	CHECK(fd >= 0 && close(fd) == 0);
}

TEST(fs, files_of_strangers_are_refused)
{
	struct err err = {0};
	struct stat st;

	NEEDS(geteuid() == 0, "root", "files of another user");
	enter_tmp();
	umask(0);
	CHECK(mkdir("theirs", 0755) == 0);
	give_away("theirs");
	make_file("theirs/f");
	give_away("theirs/f");
	check_refused(fs_open("theirs/f", O_WRONLY | O_CREAT, 0640, &err), -EPERM, &err,
		      "belongs to another user");
	int fd = fs_open("theirs/new", O_WRONLY | O_CREAT, 0640, &err);
	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	CHECK_INT(st.st_mode & 0777, 0600); /* rights for us alone */
	CHECK(close(fd) == 0);
	CHECK_INT(fs_mkdirs("theirs/dir", &err), 0);
	CHECK(stat("theirs/dir", &st) == 0);
	CHECK_INT(st.st_mode & 0777, 0700);
	CHECK(chmod("theirs", 01777) == 0); /* sticky, but its owner may replace everything */
	CHECK_INT(fs_open("theirs/other", O_WRONLY | O_CREAT, 0600, &err), -EPERM);
}

TEST(fs, files_that_are_not_ours_alone)
{
	struct err err = {0};
	struct buf text = {0};

	enter_tmp();
	make_file("precious");
	CHECK(link("precious", "second") == 0 && mkfifo("fifo", 0600) == 0);
	check_refused(fs_open("second", O_WRONLY | O_TRUNC, 0, &err), -EPERM, &err, "hard link");
	CHECK(fs_open("fifo", O_WRONLY | O_CREAT, 0600, &err) < 0); /* and does not wait */
	check_refused(fs_open("fifo", O_RDWR, 0, &err), -EINVAL, &err, "not a regular file");
	check_refused(fs_open("fifo", O_RDONLY, 0, &err), -EINVAL, &err, "not a regular file");
	CHECK_INT(fs_read_file("fifo", 10, &text, &err), -EINVAL);
	CHECK_INT(fs_read_file(".", 10, &text, &err), -EISDIR);
}

TEST(fs, remove_tree)
{
	struct err err = {0};

	enter_tmp();
	CHECK_INT(fs_mkdirs("tree/a/b/c", &err), 0);
	CHECK(mkdir("precious", 0700) == 0);
	make_file("precious/f");
	make_file("tree/a/f");
	CHECK(symlink("../precious", "tree/dir") == 0 && symlink("../precious/f", "tree/f") == 0);
	CHECK_INT(fs_remove_tree("tree", &err), 0);
	CHECK(access("tree", F_OK) < 0 && access("precious/f", F_OK) == 0);
	CHECK(symlink("precious", "tree") == 0);
	CHECK(fs_remove_tree("tree", &err) < 0);
	CHECK(access("precious/f", F_OK) == 0);
	if (geteuid() == 0) {
		give_away("precious");
		check_refused(fs_remove_tree("precious", &err), -EPERM, &err, "another user");
	}
}

/* A default ACL gives another user rights to every new file, whatever the umask. */
TEST(fs, acl_of_a_foreign_directory)
{
	/* version 2; user::rwx, user:61001:rwx, group::---, mask::rwx, other::--- */
	static const unsigned char acl[] = {
		2, 0,	 0,    0,    1,	   0,	 7,    0, 0xff, 0xff, 0xff, 0xff, 2,	0,    7,
		0, 0x49, 0xee, 0,    0,	   4,	 0,    0, 0,	0xff, 0xff, 0xff, 0xff, 0x10, 0,
		7, 0,	 0xff, 0xff, 0xff, 0xff, 0x20, 0, 0,	0,    0xff, 0xff, 0xff, 0xff,
	};
	struct err err = {0};
	struct stat st;

	NEEDS(geteuid() == 0, "root", "files of another user");
	enter_tmp();
	CHECK(mkdir("theirs", 0755) == 0);
	if (setxattr("theirs", "system.posix_acl_default", acl, sizeof(acl), 0) < 0)
		SKIP("this file system has no ACLs");
	give_away("theirs");
	int fd = fs_open("theirs/f", O_WRONLY | O_CREAT, 0640, &err);
	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	CHECK_INT(st.st_mode & 0777, 0600);
	CHECK(fgetxattr(fd, "system.posix_acl_access", NULL, 0) < 0 && errno == ENODATA);
	CHECK(close(fd) == 0);
	CHECK_INT(fs_mkdirs("theirs/d", &err), 0);
	CHECK(getxattr("theirs/d", "system.posix_acl_default", NULL, 0) < 0 && errno == ENODATA);
	CHECK(getxattr("theirs/d", "system.posix_acl_access", NULL, 0) < 0 && errno == ENODATA);
}
