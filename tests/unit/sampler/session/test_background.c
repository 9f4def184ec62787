/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/background.h"

#include <errno.h>
#include <unistd.h>

#include "sampler/discover/discover.h"
#include "test.h"

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
