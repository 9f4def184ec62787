/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A monitored job that does what jobs do: usage: monitor_life WHAT [ARGUMENT]
 * It says "ready" when it begins, and what it finds wrong; status 0: all was as without a monitor.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mspti_job.h"
#include "sonde/sonde.h"

uint64_t mstxRangeStartA(const char *message, void *stream);
void mstxRangeEnd(uint64_t id);

static void *stream;

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void begin(void)
{
	stream = open_stream(0);
	sonde_step();
	puts("ready");
	fflush(stdout);
}

static void one_step(void)
{
	for (int i = 0; i < 5; i++)
		launch("Add", 20000, stream);
	if (aclrtSynchronizeStream(stream))
		exit(3);
	sonde_step();
}

static int train(double for_s, useconds_t pause_us)
{
	double longest = 0;

	begin();
	for (double end = seconds() + for_s; seconds() < end;) {
		double from = seconds();
		one_step();
		double took = seconds() - from;
		longest = took > longest ? took : longest;
		usleep(pause_us);
	}
	printf("longest %.3f\n", longest);
	return 0;
}

/* --- the last thread of all ends the process --- */

static void *work_a_moment(void *arg)
{
	(void)arg;
	for (int i = 0; i < 50; i++) {
		sonde_step();
		usleep(10000);
	}
	return NULL;
}

static int last_thread(void)
{
	pthread_t t;

	sonde_step();
	puts("ready");
	fflush(stdout);
	if (pthread_create(&t, NULL, work_a_moment, NULL))
		return 3;
	pthread_exit(NULL);
}

/* --- descriptors --- */

#define FILES 1100

/* Every number is the job's own; each file and each socket keeps what was put into it. */
static int check_own(int round)
{
	static int fds[FILES];
	int n = 0, bad = 0;

	for (; n < FILES; n++) {
		int pair[2];
		if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0)
			break;
		fds[n] = pair[0];
		if (send(pair[1], &n, sizeof(n), 0) != (ssize_t)sizeof(n))
			bad++;
		close(pair[1]);
	}
	usleep(1000 * (round % 7));
	for (int i = 0; i < n; i++) {
		int got = -1;
		ssize_t r = recv(fds[i], &got, sizeof(got), MSG_DONTWAIT);
		if (r != (ssize_t)sizeof(got) || got != i) {
			printf("number %d: %zd (%d) bytes, %d instead of %d\n", fds[i], r, errno,
			       got, i);
			bad++;
		}
	}
	return bad;
}

static int close_all(double for_s)
{
	int bad = 0, round = 0;

	begin();
	for (double end = seconds() + for_s; seconds() < end; round++) {
		syscall(SYS_close_range, 3u, ~0u, 0u);
		bad += check_own(round);
		sonde_step();
	}
	syscall(SYS_close_range, 3u, ~0u, 0u);
	printf("%d of %d rounds: %d wrong\n", bad ? 1 : 0, round, bad);
	return bad ? 1 : 0;
}

/* A child that has other files where its parent's socket was, and then takes a device itself. */
static int child_with_files(void)
{
	begin();
	usleep(300000);
	pid_t pid = fork();
	if (pid == 0) {
		int fds[FILES], n = 0, bad = 0;

		syscall(SYS_close_range, 3u, ~0u, 0u);
		while (n < FILES && (fds[n] = open("/dev/null", O_RDONLY)) >= 0)
			n++;
		sonde_step();
		usleep(500000);
		for (int i = 0; i < n; i++)
			bad += fcntl(fds[i], F_GETFD) < 0;
		_exit(bad ? 1 : 0);
	}
	int status;
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

/* What is written to stderr by others does not land in the job's file. */
static int stderr_is_a_file(const char *path)
{
	close(2);
	if (open(path, O_RDWR | O_CREAT | O_TRUNC, 0600) != 2)
		return 3;
	return train(4, 2000);
}

/* It is told to on its standard input. */
static int daemonize(void)
{
	struct pollfd told = {.fd = 0, .events = POLLIN};
	int pipes[2];

	begin();
	while (!poll(&told, 1, 10))
		one_step();
	if (pipe(pipes))
		return 3;
	if (fork())
		_exit(0);
	setsid();
	syscall(SYS_close_range, 3u, ~0u, 0u);
	(void)!chdir("/");
	sleep(3); /* by now whoever worked for the parent has left */
	double from = seconds();
	sonde_step();
	printf("step %.3f\n", seconds() - from);
	return train(60, 2000);
}

/* --- fork --- */

#define BURST 16
#define BURST_PAUSE_US 5000

static void child_works(int i)
{
	alarm(20);
	for (int k = 0; k < 3; k++) {
		mstxRangeEnd(mstxRangeStartA("step start", NULL));
		sonde_step();
	}
	char *p = malloc(1000);
	if (p)
		memset(p, i, 1000);
	free(p);
	if (i % 3 == 0)
		exit(7);
	if (i % 3 == 1)
		execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
	_exit(7);
}

static atomic_bool stop_now;

/* In bursts: a test of some seconds would keep all processors from others. */
static void *keep_busy(void *arg)
{
	(void)arg;
	for (unsigned n = 1; !atomic_load(&stop_now); n++) {
		one_step();
		uint64_t r = mstxRangeStartA("range", NULL);
		mstxRangeEnd(r);
		if (n % BURST == 0)
			usleep(BURST_PAUSE_US);
	}
	return NULL;
}

static int forks(double for_s)
{
	pthread_t t;
	int n = 0, bad = 0;
	double longest = 0;

	begin();
	if (pthread_create(&t, NULL, keep_busy, NULL))
		return 3;
	for (double end = seconds() + for_s; seconds() < end; n++) {
		double from = seconds();
		pid_t pid = fork();
		if (!pid)
			child_works(n);
		double took = seconds() - from;
		longest = took > longest ? took : longest;
		int status = 0;
		if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
		    WEXITSTATUS(status) != 7) {
			printf("child %d: status %#x\n", n, (unsigned)status);
			bad++;
		}
	}
	atomic_store(&stop_now, true);
	pthread_join(t, NULL);
	printf("%d children, %d wrong; fork at most %.3f s\n", n, bad, longest);
	return bad ? 1 : 0;
}

/* --- exit --- */

static void *ends_it(void *arg)
{
	usleep(100000);
	exit((int)(intptr_t)arg);
}

static int many_exits(double after_s)
{
	pthread_t t;

	begin();
	for (int i = 0; i < 4; i++)
		if (pthread_create(&t, NULL, keep_busy, NULL))
			return 3;
	usleep((useconds_t)(after_s * 1e6));
	for (int i = 0; i < 4; i++)
		if (pthread_create(&t, NULL, ends_it, (void *)(intptr_t)7))
			return 3;
	for (;;)
		pause();
}

/* --- signals --- */

static atomic_int taken, wrong;

static void handler(int sig)
{
	char name[17] = "";

	(void)sig;
	prctl(PR_GET_NAME, name);
	atomic_fetch_add(&taken, 1);
	if (strncmp(name, "sonde", 5) == 0)
		atomic_fetch_add(&wrong, 1);
}

static int signals(double for_s)
{
	struct sigaction act = {.sa_handler = handler};

	sigaction(SIGALRM, &act, NULL);
	sigaction(SIGUSR1, &act, NULL);
	begin();
	timer_t timer;
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	struct itimerspec every = {{0, 300000}, {0, 300000}};
	if (timer_create(CLOCK_MONOTONIC, &ev, &timer) || timer_settime(timer, 0, &every, NULL))
		return 3;
	for (double end = seconds() + for_s; seconds() < end;) {
		kill(getpid(), SIGUSR1);
		one_step();
	}
	printf("%d signals, %d wrong\n", atomic_load(&taken), atomic_load(&wrong));
	return atomic_load(&wrong) || !atomic_load(&taken);
}

/* --- steps --- */

static void *steps_only(void *arg)
{
	while (!atomic_load(&stop_now)) {
		sonde_step();
		usleep((useconds_t)(intptr_t)arg);
	}
	return NULL;
}

static int many_steppers(double for_s)
{
	pthread_t t[4];

	begin();
	for (int i = 0; i < 4; i++)
		if (pthread_create(&t[i], NULL, steps_only, (void *)(intptr_t)(200 + i)))
			return 3;
	usleep((useconds_t)(for_s * 1e6));
	atomic_store(&stop_now, true);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	return 0;
}

/* The parent steps for some time; then its child goes on by itself, for as long. */
static int child_steps(double for_s)
{
	begin();
	for (double end = seconds() + for_s; seconds() < end; usleep(2000))
		one_step();
	pid_t pid = fork();
	if (!pid) {
		for (double end = seconds() + for_s; seconds() < end;) {
			sonde_step();
			usleep(2000);
		}
		_exit(7);
	}
	printf("child %d\n", (int)pid);
	fflush(stdout);
	int status;
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 1;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *more = argc > 2 ? argv[2] : "3";
	double s = atof(more);

	if (!strcmp(what, "train"))
		return train(s, 2000);
	if (!strcmp(what, "hurry"))
		return train(s, 0);
	if (!strcmp(what, "last-thread"))
		return last_thread();
	if (!strcmp(what, "close-all"))
		return close_all(s);
	if (!strcmp(what, "child-with-files"))
		return child_with_files();
	if (!strcmp(what, "stderr"))
		return stderr_is_a_file(more);
	if (!strcmp(what, "daemonize"))
		return daemonize();
	if (!strcmp(what, "forks"))
		return forks(s);
	if (!strcmp(what, "exits"))
		return many_exits(s);
	if (!strcmp(what, "signals"))
		return signals(s);
	if (!strcmp(what, "steppers"))
		return many_steppers(s);
	if (!strcmp(what, "child-steps"))
		return child_steps(s);
	if (!strcmp(what, "exec")) {
		begin();
		for (double end = seconds() + s; seconds() < end; usleep(2000))
			one_step();
		execl("/bin/sleep", "sleep", "60", (char *)NULL);
	}
	return 2;
}
