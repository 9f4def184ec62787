/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/leave_job.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void close_others(int keep)
{
	struct rlimit files = {.rlim_cur = 1024};

	if (keep < 3)
		keep = 2;
	else if (keep > 3)
		(void)syscall(SYS_close_range, 3u, (unsigned)keep - 1, 0u);
	if (syscall(SYS_close_range, (unsigned)keep + 1, UINT32_MAX, 0u) == 0)
		return;
	getrlimit(RLIMIT_NOFILE, &files); /* a kernel before 5.9 */
	for (int fd = 3; fd < (int)(files.rlim_cur < 65536 ? files.rlim_cur : 65536); fd++)
		if (fd != keep)
			close(fd);
}

/* The job's limits are not meant for us; what its owner may lift is lifted. */
static void lift_limits(void)
{
	static const int which[] = {RLIMIT_NOFILE, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_AS,
				    RLIMIT_DATA};
	struct rlimit limit;

	for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
		if (getrlimit(which[i], &limit) < 0)
			continue;
		limit.rlim_cur = limit.rlim_max;
		setrlimit(which[i], &limit);
	}
}

void leave_the_job(int keep_fd, bool *out_terminal)
{
	sigset_t none;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	*out_terminal = isatty(STDERR_FILENO);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	if (!*out_terminal)
		dup2(null, STDERR_FILENO);
	close_others(keep_fd);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int sig = 1; sig < 32; sig++)
		signal(sig, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	lift_limits();
	setsid();
	(void)!chdir("/");
}
