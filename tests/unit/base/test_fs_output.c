/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "test.h"
#include "tmpdir.h"

#define STRANGER 61001

static void enter_tmp(void)
{
	CHECK_INT(chdir(tmpdir()), 0);
}

static void put(int fd, const char *text)
{
	CHECK(fd >= 0);
	CHECK_INT(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void check_text(const char *path, const char *want)
{
	struct buf got = {0};

	CHECK_INT(fs_read_file(path, 100, &got, NULL), 0);
	CHECK_STR(buf_str(&got), want);
	buf_release(&got);
}

TEST(fs_output, links_of_ones_own_stay)
{
	struct err err = {0};
	struct stat st;

	enter_tmp();
	CHECK(mkdir("dir", 0700) == 0 && symlink("dir/real", "link") == 0 &&
	      symlink("link", "again") == 0);
	put(fs_open_output("again", O_CREAT | O_TRUNC, 0640, &err), "first text");
	put(fs_open_output("again", O_CREAT | O_TRUNC, 0640, &err), "new");
	put(fs_open_output("dir/real", O_CREAT | O_APPEND, 0640, &err), "+");
	check_text("dir/real", "new+");
	CHECK(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
	CHECK(symlink("loop", "loop") == 0);
	CHECK_INT(fs_open_output("loop", O_CREAT, 0640, &err), -ELOOP);
	CHECK_INT(fs_open_output("dir", O_CREAT, 0640, &err), -EISDIR);
	CHECK_INT(fs_open_output("dir/..", O_CREAT, 0640, &err), -EINVAL);
	CHECK_INT(fs_open_output("", O_CREAT, 0640, &err), -EINVAL);
	CHECK_INT(fs_open_output("none/f", O_CREAT, 0640, &err), -ENOENT);
}

TEST(fs_output, what_is_no_file_is_written_as_it_is)
{
	struct err err = {0};
	char byte;
	int ends[2], reader;

	enter_tmp();
	CHECK(fs_is_stream("/dev/null") && fs_is_stream("/dev/stdout") && !fs_is_stream("."));
	CHECK(symlink("/dev/null", "link") == 0);
	put(fs_open_output("link", O_CREAT | O_TRUNC, 0640, &err), "x");
	CHECK_INT(pipe(ends), 0);
	char *name = xasprintf("/dev/fd/%d", ends[1]);
	put(fs_open_output(name, O_CREAT | O_TRUNC, 0640, &err), "y");
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'y');
	free(name);
	CHECK(mkfifo("fifo", 0600) == 0);
	CHECK_INT(fs_open_output("fifo", O_CREAT, 0640, &err), -ENXIO);
	CHECK(strstr(err.text, "nobody reads"));
	reader = open("fifo", O_RDONLY | O_NONBLOCK);
	put(fs_open_output("fifo", O_CREAT, 0640, &err), "z");
	CHECK(read(reader, &byte, 1) == 1 && byte == 'z');
	close(reader);
}

TEST(fs_output, paths_without_links)
{
	struct buf dir = {0}, got = {0}, want = {0};
	struct err err = {0};

	enter_tmp();
	CHECK_INT(fs_resolve("f", &dir, &err), 0);
	dir.len -= 2; /* "/f" */
	CHECK(mkdir("a", 0700) == 0 && symlink("a", "b") == 0 && symlink("b/../a/none", "c") == 0);
	CHECK_INT(fs_resolve("./b//./c", &got, &err), 0);
	buf_addf(&want, "%s/a/c", buf_str(&dir));
	CHECK_STR(buf_str(&got), buf_str(&want));
	buf_clear(&got);
	buf_clear(&want);
	CHECK_INT(fs_resolve("c", &got, &err), 0);
	buf_addf(&want, "%s/a/none", buf_str(&dir));
	CHECK_STR(buf_str(&got), buf_str(&want));
	buf_clear(&got);
	CHECK_INT(fs_resolve("/etc", &got, &err), 0);
	CHECK_STR(buf_str(&got), "/etc");
	CHECK_INT(fs_resolve("none/f", &got, &err), -ENOENT);
	buf_release(&got);
	buf_release(&want);
	buf_release(&dir);
}

TEST(fs_output, what_lies_below)
{
	static const struct {
		const char *path;
		bool below;
	} paths[] = {
		{"a", true},	     {"a/in", true},	{"a/none/at/all", true},
		{"a/../a/in", true}, {"way/in", true},	{"a//./in/", true},
		{".", false},	     {"a/../b", false}, {"a/..", false},
		{"ab", false},	     {"a/out", false},	{"a/out/x", false},
		{"a/file/x", false}, {"b", false},	{"none/x", false},
		{"/", false},
	};
	struct buf base = {0};
	struct err err = {0};

	enter_tmp();
	CHECK(mkdir("a", 0700) == 0 && mkdir("a/in", 0700) == 0 && mkdir("b", 0700) == 0 &&
	      mkdir("ab", 0700) == 0 && symlink("a", "way") == 0 && symlink("../b", "a/out") == 0);
	close(open("a/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	CHECK_INT(fs_resolve("a", &base, &err), 0);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		CHECK_INT(fs_is_below(paths[i].path, buf_str(&base)), paths[i].below);
	CHECK(fs_is_below("/etc", "/") && !fs_is_below("/etc", "/et"));
	buf_release(&base);
}

TEST(fs_output, strangers_are_refused)
{
	struct buf got = {0}, words = {0};
	struct err err = {0};

	NEEDS(geteuid() == 0, "root", "files of another user");
	enter_tmp();
	CHECK(mkdir("mine", 0700) == 0 && symlink("mine/f", "link") == 0 &&
	      mkdir("theirs", 0755) == 0 && mkfifo("fifo", 0666) == 0);
	CHECK(lchown("link", STRANGER, STRANGER) == 0 && chown("fifo", STRANGER, STRANGER) == 0);
	CHECK(chown("theirs", STRANGER, STRANGER) == 0 && mkfifo("theirs/own", 0600) == 0);
	CHECK_INT(fs_open_output("link", O_CREAT, 0640, &err), -ELOOP);
	CHECK_INT(fs_resolve("link", &got, &err), -ELOOP);
	CHECK(access("mine/f", F_OK) < 0);
	int one = open("fifo", O_RDONLY | O_NONBLOCK),
	    two = open("theirs/own", O_RDONLY | O_NONBLOCK);
	CHECK_INT(fs_open_output("fifo", O_CREAT, 0640, &err), -EPERM);
	CHECK_INT(fs_open_output("theirs/own", O_CREAT, 0640, &err), -EPERM);
	close(one);
	close(two);
	/* words may lie where files may not, but not through a link */
	CHECK(mkdir("all", 0777) == 0 && chmod("all", 0777) == 0 &&
	      symlink("../mine/f", "all/l") == 0);
	buf_add_str(&words, "why not\n");
	CHECK_INT(fs_open("all/f", O_WRONLY | O_CREAT, 0640, &err), -EPERM);
	CHECK_INT(fs_leave_note("all/f", &words, 0640, &err), 0);
	CHECK_INT(fs_leave_note("all/f", &words, 0640, &err), 0);
	check_text("all/f", "why not\nwhy not\n");
	CHECK_INT(fs_leave_note("all/l", &words, 0640, &err), -ELOOP);
	CHECK(access("mine/f", F_OK) < 0);
	buf_release(&words);
}

TEST(fs_output, second_names)
{
	struct err err = {0};
	struct stat st;

	enter_tmp();
	put(fs_open("f", O_WRONLY | O_CREAT, 0600, &err), "x");
	CHECK_INT(fs_link("f", "g", &err), 0);
	CHECK(stat("g", &st) == 0 && st.st_nlink == 2);
	CHECK_INT(fs_link("f", "g", &err), -EEXIST);
	CHECK_INT(fs_open("f", O_WRONLY, 0, &err), -EPERM); /* who knows where the other is */
}
