/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/fs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
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
	CHECK_INT(fs_read_file("/dev/zero", 1000, &got, &err), -EFBIG);
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
