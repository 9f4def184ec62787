/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Processes that come and go, none of which is Python. */
#include "sampler/rounds/targets.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sampler/rounds/process_life.h"
#include "test.h"

static pid_t sleeper(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_life(bool by_stat)
{
	pid_t pid = sleeper();
	struct life l;
	char path[64];

	CHECK_INT(life_open(&l, pid), 0);
	if (by_stat) {
		life_close(&l);
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		l = (struct life){.known = true, .pidfd = -1, .stat = open(path, O_RDONLY)};
		CHECK(l.stat >= 0);
	}
	CHECK(!life_over(&l));
	kill(pid, SIGKILL);
	siginfo_t si;
	CHECK(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT) == 0);
	CHECK(life_over(&l)); /* a zombie */
	waitpid(pid, NULL, 0);
	CHECK(life_over(&l));
	life_close(&l);
	CHECK(life_over(&l));
	CHECK_INT(life_open(&l, pid), -ESRCH);
}

TEST(targets, life)
{
	test_life(false);
	test_life(true);
}

TEST(targets, program)
{
	int fds[2];

	CHECK(pipe(fds) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		char c;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[1]);
		CHECK(read(fds[0], &c, 1) == 1);
		execl("/bin/sleep", "sleep", "30", NULL);
		_exit(1);
	}
	uint64_t before = life_program(pid);
	CHECK(before && before == life_program(pid) && before == life_program(getpid()));
	CHECK(write(fds[1], "x", 1) == 1);
	for (int i = 0; i < 1000 && life_program(pid) == before; i++)
		usleep(5000);
	CHECK(life_program(pid) != before);
	end(pid);
	CHECK_INT(life_program(pid), 0);
}

static int waits(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return 0;
}

TEST(targets, memory_of_the_parent)
{
	static char stack[65536] __attribute__((aligned(16)));

	if (TEST_TSAN)
		SKIP("the thread sanitizer takes every clone() for a fork()");
	pid_t copy = sleeper();
	pid_t same = clone(waits, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);

	CHECK(same > 0);
	CHECK(!life_is_in_parent(copy, getpid()));
	/* where kcmp is forbidden, nothing is in anybody's memory */
	CHECK_INT(life_is_in_parent(same, getpid()), life_is_in_parent(getpid(), getpid()));
	end(copy);
	end(same);
	CHECK(!life_is_in_parent(same, getpid()));
	CHECK(!life_is_in_parent(getpid(), 0));
}

static const struct target *find(const struct targets *s, pid_t pid)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->list[i]->pid == pid)
			return s->list[i];
	return NULL;
}

TEST(targets, order_and_end)
{
	pid_t first = sleeper(), second = sleeper(), dead = sleeper();
	struct err err = {0};

	end(dead);
	pid_t pids[] = {second, dead, first};
	struct discover_rules rules = {.pids = pids, .npids = 3, .refresh_ms = 1};
	struct targets *s = targets_new(&(struct targets_options){.rules = &rules});
	CHECK_INT(targets_refresh(s, true, &err), 0);
	CHECK_INT(s->n, 3);
	CHECK_INT(s->list[0]->pid, second); /* as they were named */
	CHECK_INT(s->list[1]->pid, dead);
	CHECK_INT(s->list[2]->pid, first);
	CHECK_INT(s->list[1]->state, TARGET_REFUSED);
	CHECK_INT(s->list[1]->err.code, -ESRCH);
	CHECK(strstr(s->list[1]->err.text, "no process"));
	CHECK(s->list[0]->start_ticks != 0);
	CHECK_STR(targets_found_by(s), "3 pids");
	/* It has just begun: it may still become Python. */
	for (int i = 0; i < 1000 && targets_waiting(s); i++) {
		usleep(5000);
		CHECK_INT(targets_refresh(s, false, &err), 0);
	}
	CHECK_INT(s->list[0]->state, TARGET_REFUSED);
	CHECK_INT(s->list[0]->err.code, -ENOEXEC);
	CHECK_INT(targets_open(s), 0);
	CHECK_INT(targets_waiting(s), 0);
	uint64_t skew = 1;
	CHECK_INT(targets_round(s, &skew), 0);
	CHECK_INT(skew, 0);
	end(second);
	for (int i = 0; i < 1000 && find(s, second); i++) {
		usleep(5000);
		CHECK_INT(targets_refresh(s, false, &err), 0);
	}
	CHECK(!find(s, second) && find(s, first));
	CHECK_INT(targets_refresh(s, true, &err), 0);
	CHECK(!find(s, second) && find(s, dead));
	targets_free(s);
	end(first);
}

TEST(targets, labels)
{
	pid_t pid = sleeper();
	struct discover_rules rules = {.pids = &pid, .npids = 1};
	struct targets *s = targets_new(&(struct targets_options){.rules = &rules});

	CHECK_INT(targets_refresh(s, true, NULL), 0);
	CHECK_INT(s->n, 1);
	CHECK_INT(s->list[0]->device, -1);
	CHECK(strlen(s->list[0]->label) && !strchr(s->list[0]->label, '/'));
	CHECK_INT(s->list[0]->state, TARGET_WAITING);
	targets_free(s);
	end(pid);
}
