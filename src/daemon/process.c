/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the process needs before and beside its loop. */
#define LOG_AREA "daemon"

#include "daemon/process.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

/* --- process 1 --- */

/*
 * The daemon itself could not wait for every child that ends: it would take those from the threads
 * that run npu-smi. So there are two processes, and the first has nothing else to do.
 */

/* Waits for everything that has ended; leaves when that is the daemon. */
static void reap_children(pid_t daemon)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == daemon && WIFEXITED(status))
			_exit(WEXITSTATUS(status));
		else if (pid == daemon)
			_exit(128 + WTERMSIG(status));
}

static void __attribute__((noreturn)) serve_as_init(pid_t daemon, const sigset_t *all)
{
	for (;;) {
		int sig = sigwaitinfo(all, NULL);

		if (sig == SIGCHLD)
			reap_children(daemon);
		else if (sig > 0)
			kill(daemon, sig);
	}
}

void process_become_init(void)
{
	static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
	sigset_t all, before;

	if (getpid() != 1)
		return;
	sigemptyset(&all);
	sigaddset(&all, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(*passed_on); i++)
		sigaddset(&all, passed_on[i]);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid_t daemon = fork();
	if (daemon < 0) {
		log_warn("process 1 cannot start another (%s): orphans stay behind as zombies",
			 strerror(errno));
	} else if (daemon > 0) {
		serve_as_init(daemon, &all);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
}

/* --- memory and files --- */

/* Who starts us may have closed them; a socket in the place of stderr would be sent the log. */
static void fill_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

/* A daemon lives for months beside a training job: small and steady counts for more than fast. */
void process_prepare(void)
{
	fill_standard_files();
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_TRIM_THRESHOLD, 64 << 10);
	mallopt(M_TOP_PAD, 16 << 10);
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
}

struct mapping {
	uintptr_t begin, end;
	bool from_file; /* and not writable */
};

/* The line that begins a mapping: "7f00-7f10 r-xp 00000000 fd:00 123  /lib/x.so" */
static bool read_heading(const char *line, struct mapping *out)
{
	unsigned long begin, end, inode;
	char mode[5];

	if (sscanf(line, "%lx-%lx %4s %*x %*x:%*x %lu", &begin, &end, mode, &inode) != 4)
		return false;
	*out = (struct mapping){begin, end, inode && mode[0] == 'r' && mode[1] == '-'};
	return true;
}

/* A page that was changed (relocated) is "anonymous" and exists nowhere else: a mapping that has
 * one is left alone. */
static void drop_clean(FILE *smaps)
{
	struct mapping m = {0};
	char line[512];

	while (fgets(line, sizeof(line), smaps)) {
		unsigned long kb;

		if (read_heading(line, &m) || !m.from_file)
			continue;
		if (sscanf(line, "Anonymous: %lu kB", &kb) == 1 && kb == 0)
			(void)madvise((void *)m.begin, m.end - m.begin, MADV_DONTNEED);
	}
}

void process_release_startup_memory(void)
{
	FILE *smaps = fopen("/proc/self/smaps", "re");

	if (smaps) {
		drop_clean(smaps);
		fclose(smaps);
	}
	malloc_trim(0);
}
