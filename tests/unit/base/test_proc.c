/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/proc.h"

#include "test.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *printable(const char *text, size_t len)
{
	static struct buf b;

	buf_clear(&b);
	proc_add_printable(&b, text, len);
	return buf_str(&b);
}

TEST(proc, printable)
{
	CHECK_STR(printable("python\0train.py\0--x\0", 20), "python train.py --x");
	CHECK_STR(printable("a\nb\x1b[31m\x7f", 9), "a?b?[31m?");
	CHECK_STR(printable("h\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80", 12),
		  "h\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80");
	/* cut, overlong, surrogates, too high, C1 */
	CHECK_STR(printable("\xc3", 1), "?");
	CHECK_STR(printable("\xc0\xaf", 2), "??");
	CHECK_STR(printable("\xed\xa0\x80", 3), "???");
	CHECK_STR(printable("\xf5\x80\x80\x80", 4), "????");
	CHECK_STR(printable("\xc2\x9b", 2), "??");
	CHECK_STR(printable("\0\0\0", 3), "");
}

TEST(proc, a_process_by_its_namespace)
{
	uint64_t own = proc_pid_namespace("self");
	int fd = proc_open_in_namespace(own, (uint32_t)getpid());

	CHECK(own && proc_is_ours());
	CHECK(fd >= 0);
	CHECK_INT(proc_number(fd), getpid());
	close(fd);
	CHECK_INT(proc_open_in_namespace(own, 999999999), -ESRCH);
	CHECK_INT(proc_open_in_namespace(1, (uint32_t)getpid()), -ESRCH); /* there is no such one */
	CHECK_INT(proc_number(-1), 0);
	CHECK_INT(proc_number(STDIN_FILENO), 0); /* not a pidfd */
}

TEST(proc, the_number_of_one_that_ended)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	int fd = proc_open_in_namespace(0, (uint32_t)pid);
	CHECK(fd >= 0 && waitpid(pid, NULL, 0) == pid);
	CHECK_INT(proc_number(fd), 0);
	close(fd);
}

TEST(proc, mappings)
{
	FILE *f = tmpfile();
	CHECK(f && ftruncate(fileno(f), 8192) == 0);
	char *p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fileno(f), 0);
	uint64_t at = (uint64_t)(uintptr_t)p;

	CHECK(p != MAP_FAILED);
	CHECK(proc_has_mapping(getpid(), at, at + 8192));
	CHECK(!proc_has_mapping(getpid(), at, at + 4096));
	CHECK_INT(proc_has_mapped(getpid(), at, ""), 1); /* whatever its name */
	CHECK_INT(proc_has_mapped(getpid(), at, "other"), 0);
	CHECK_INT(proc_has_mapped(getpid(), at + 4096, ""), 0);
	CHECK(mprotect(p + 4096, 4096, PROT_NONE) == 0); /* two mappings by now */
	CHECK_INT(proc_has_mapped(getpid(), at, ""), 1);
	CHECK(proc_has_mapped(999999999, at, "") < 0);
	munmap(p, 8192);
	CHECK_INT(proc_has_mapped(getpid(), at, ""), 0);
	fclose(f);
}
