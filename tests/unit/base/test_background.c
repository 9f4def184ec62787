/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/background.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static _Atomic int done;

static void work(void *arg)
{
	sigset_t blocked;

	(void)arg;
	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	usleep(20000);
	done += sigismember(&blocked, SIGTERM);
}

TEST(background, the_end_waits_for_all)
{
	for (int i = 0; i < 5; i++)
		CHECK_INT(background_run("a test", work, NULL), 0);
	CHECK_INT(background_wait(NULL, 10000), 0);
	CHECK_INT(done, 5); /* and none of them takes signals */
	CHECK_INT(background_wait(NULL, 0), 0);
}

/* One that ends its own helpers is none of them. */
static void wait_for_others(void *arg)
{
	*(unsigned *)arg = background_wait("a helper", 10000);
}

TEST(background, who_waits_for_a_name_does_not_wait_for_itself)
{
	unsigned left = 1;

	CHECK_INT(background_run("a helper", work, NULL), 0);
	CHECK_INT(background_run("its user", wait_for_others, &left), 0);
	CHECK_INT(background_wait(NULL, 5000), 0);
	CHECK_INT(left, 0);
}

static void hang(void *arg)
{
	(void)arg;
	for (;;)
		pause();
}

static void hang_too(void)
{
	hang(NULL);
}

/* As with the library of a driver whose destructor waits for what a thread inside it holds. */
TEST(background, what_hangs_does_not_hold_up_the_exit)
{
	int status;

	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		alarm(20);
		atexit(hang_too);
		if (background_run("a driver", hang, NULL) < 0 || background_wait(NULL, 10) != 1)
			_exit(1);
		exit(7);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
