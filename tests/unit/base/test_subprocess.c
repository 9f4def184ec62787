/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/subprocess.h"

#include <errno.h>

#include "base/clock.h"
#include "test.h"

static int sh(const char *script, unsigned timeout_s, struct buf *out, struct err *err)
{
	const char *argv[] = {"sh", "-c", script, NULL};
	const struct run_options o = {.timeout_ms = timeout_s * 1000, .max_bytes = 2000000};

	return run_program(argv, &o, out, err);
}

TEST(subprocess, takes_what_is_printed)
{
	struct buf out = {0};
	struct err err = {0};

	CHECK_INT(sh("echo a; echo b >&2", 10, &out, &err), 0);
	CHECK_STR(buf_str(&out), "a\n");
	CHECK_INT(sh("head -c 1000000 /dev/zero", 10, &out, &err), 0);
	CHECK_INT(out.len, 1000002);
	buf_release(&out);
}

TEST(subprocess, the_last_line_is_the_complaint)
{
	struct buf out = {0};
	struct err err = {0};

	CHECK_INT(sh("echo E1115 attempt >&2; echo 'no such job' >&2; echo >&2; exit 1", 10, &out,
		     &err),
		  -EIO);
	CHECK_STR(err.text, "'sh' failed: no such job");
	CHECK_INT(sh("exit 3", 10, &out, &err), -EIO);
	CHECK_STR(err.text, "'sh' failed with status 3 and did not say why");
	const char *none[] = {"sonde-no-such-program", NULL};
	CHECK_INT(run_program(none, &(struct run_options){.timeout_ms = 1000}, &out, &err),
		  -ENOENT);
	CHECK_INT(sh("head -c 9000000 /dev/zero", 10, &out, &err), -EFBIG);
	buf_release(&out);
}

TEST(subprocess, a_program_that_hangs)
{
	struct buf out = {0};
	struct err err = {0};
	uint64_t begin = clock_mono_ns();

	CHECK_INT(sh("exec sleep 30", 1, &out, &err), -ETIMEDOUT);
	CHECK_INT(sh("exec >&- 2>&- sleep 30", 1, &out, &err), -ETIMEDOUT);
	CHECK(clock_mono_ns() - begin < 15000000000u);
	buf_release(&out);
}

TEST(subprocess, what_it_leaves_running_is_not_waited_for)
{
	struct buf out = {0};
	struct err err = {0};
	uint64_t begin = clock_mono_ns();

	CHECK_INT(sh("sleep 10 & echo node1", 30, &out, &err), 0);
	CHECK_STR(buf_str(&out), "node1\n");
	CHECK(clock_mono_ns() - begin < 8000000000u);
	buf_release(&out);
}
