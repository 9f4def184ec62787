/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "recorder/ends/end_times.h"
#include "test.h"

#define CHILDREN 8

static pid_t make_child(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	CHECK(pid > 0);
	return pid;
}

static void kill_child(pid_t pid)
{
	kill(pid, SIGKILL);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
}

TEST(end_times, each_end_between_those_before_and_after)
{
	pid_t pids[CHILDREN];
	int fds[CHILDREN];
	struct end_times *t = end_times_new();

	CHECK(t);
	for (unsigned i = 0; i < CHILDREN; i++) {
		pids[i] = make_child();
		fds[i] = (int)syscall(SYS_pidfd_open, pids[i], 0);
		if (fds[i] < 0)
			SKIP("this kernel has no pidfd");
		end_times_watch(t, fds[i], i);
	}
	uint64_t before = clock_mono_ns();
	CHECK_INT(end_times_get(t, fds[0], 0), 0); /* it lives */
	for (unsigned i = 0; i < CHILDREN; i++) {
		kill_child(pids[i]);
		uint64_t noted = end_times_get(t, fds[i], i);

		CHECK(noted > before);
		CHECK_INT(end_times_get(t, fds[i], i), noted);
		before = noted;
		end_times_forget(t, i);
		CHECK_INT(end_times_get(t, fds[i], i), 0);
		close(fds[i]);
	}
	end_times_free(t);
}

TEST(end_times, without_a_thread_nothing_is_known)
{
	end_times_watch(NULL, 0, 1);
	CHECK_INT(end_times_get(NULL, 0, 1), 0);
	end_times_forget(NULL, 1);
	end_times_free(NULL);
}
