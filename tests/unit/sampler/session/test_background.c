/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/background.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sampler/discover/discover.h"
#include "test.h"
#include "tmpdir.h"

static int parse(const char *text, struct stack_pidfile *out)
{
	return stack_pidfile_parse(text, strlen(text), out);
}

TEST(stack_pidfile, lines)
{
	struct stack_pidfile p = {0};

	CHECK_INT(parse("main_pid=12\nsniffer_pid=13\n", &p), 0);
	CHECK_INT(p.job.pid, 12);
	CHECK_INT(p.sampler.pid, 13);
	CHECK_INT(p.sampler.start_ticks, 0);
	CHECK_INT(parse("other=1\r\nsniffer_pid=14\r\nsniffer_start=99", &p), 0);
	CHECK_INT(p.job.pid, 0);
	CHECK_INT(p.sampler.pid, 14);
	CHECK_INT(p.sampler.start_ticks, 99);
}

TEST(stack_pidfile, nonsense)
{
	struct stack_pidfile p = {.job = {.pid = 7}};

	CHECK_INT(parse("", &p), -EPROTO);
	CHECK_INT(parse("main_pid=-1\nsniffer_pid=99999999999\n", &p), -EPROTO);
	CHECK_INT(parse("main_pid\nmain_pid=\n=3\nmain_pid=3x\n", &p), -EPROTO);
	CHECK_INT(p.job.pid, 7);
}

TEST(stack_pidfile, a_pid_alone_is_nobody)
{
	struct stack_pidfile p = {.sampler = {.pid = getpid(), .start_ticks = 1}};

	CHECK(!stack_tracked_runs(&p.sampler));
	CHECK(!stack_tracked_runs(&p.job));
	p.sampler.start_ticks = 0;
	CHECK(!stack_tracked_runs(&p.sampler));
	p.sampler.start_ticks = process_start_ticks(getpid());
	CHECK(stack_tracked_runs(&p.sampler));
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	CHECK_INT(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* This process is of our program, the one that started it need not be. */
TEST(stack_pidfile, only_ones_own_is_believed)
{
	char text[128], path[] = "t.pids";
	struct stack_pidfile p = {0};
	struct err err = {0};

	CHECK_INT(chdir(tmpdir()), 0);
	snprintf(text, sizeof(text), "sniffer_pid=%d\nsniffer_start=%llu\n", (int)getpid(),
		 (unsigned long long)process_start_ticks(getpid()));
	write_file(path, text);
	CHECK_INT(stack_pidfile_read(path, &p, &err), 0);
	CHECK_INT(stack_pidfile_trust(path, &p, &err), 0);
	CHECK_INT(chmod(path, 0666), 0);
	CHECK_INT(stack_pidfile_read(path, &p, &err), 0);
	CHECK_INT(stack_pidfile_trust(path, &p, &err), -EPERM);
	CHECK(strstr(err.text, "other users can write"));
	snprintf(text, sizeof(text), "sniffer_pid=1\nsniffer_start=%llu\n",
		 (unsigned long long)process_start_ticks(1));
	CHECK_INT(chmod(path, 0644), 0);
	write_file(path, text);
	CHECK_INT(stack_pidfile_read(path, &p, &err), 0);
	CHECK_INT(stack_pidfile_trust(path, &p, &err), -EPERM);
	CHECK(strstr(err.text, "no sampler of yours"));
	NEEDS(geteuid() == 0, "root", "files of another user");
	CHECK_INT(chown(path, 61001, 61001), 0);
	CHECK_INT(stack_pidfile_read(path, &p, &err), 0);
	CHECK_INT(stack_pidfile_trust(path, &p, &err), -EPERM);
	CHECK(strstr(err.text, "belongs to another user"));
	CHECK_INT(unlink(path), 0);
	CHECK_INT(mkfifo(path, 0644), 0);
	CHECK_INT(stack_pidfile_read(path, &p, &err), -EINVAL);
}
