/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/rounds/process_life.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/proc.h"

int life_open(struct life *l, pid_t pid)
{
	char path[64];

	*l = (struct life){.pidfd = (int)syscall(SYS_pidfd_open, pid, 0), .stat = -1};
	if (l->pidfd < 0) {
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		l->stat = open(path, O_RDONLY | O_CLOEXEC);
	}
	int e = errno;
	l->known = l->pidfd >= 0 || l->stat >= 0;
	return l->known ? 0 : e == ENOENT ? -ESRCH : -e;
}

void life_close(struct life *l)
{
	if (l->pidfd >= 0)
		close(l->pidfd);
	if (l->stat >= 0)
		close(l->stat);
	*l = (struct life){.pidfd = -1, .stat = -1};
}

bool life_stat_over(const struct life *l)
{
	struct proc_stat s;
	char text[1024];
	ssize_t n = pread(l->stat, text, sizeof(text), 0);

	return n <= 0 || !proc_stat_parse(text, (size_t)n, &s) || proc_stat_ended(&s);
}

bool life_over(const struct life *l)
{
	struct pollfd p = {.fd = l->pidfd, .events = POLLIN};

	if (!l->known)
		return true;
	if (l->pidfd >= 0)
		return poll(&p, 1, 0) > 0;
	return life_stat_over(l);
}

/* Two programs in one file (a busybox, an updated file under the same name) differ in the inode or
 * the start of their memory; the link cannot be read of everybody's process, its name can. */
uint64_t life_program(pid_t pid)
{
	char path[64];
	struct stat s;
	struct proc_stat p;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	if (stat(path, &s) == 0)
		return (uint64_t)s.st_ino * 0x9e3779b97f4a7c15u ^ (uint64_t)s.st_dev;
	if (proc_stat_read(pid, &p) < 0)
		return 0;
	uint64_t h = 0xcbf29ce484222325u;
	for (const char *c = p.name; *c; c++)
		h = (h ^ (unsigned char)*c) * 0x100000001b3u;
	return h;
}

uint64_t life_age_ns(uint64_t start_ticks)
{
	uint64_t began_ns = start_ticks * (1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK));
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	return now_ns > began_ns ? now_ns - began_ns : 0;
}

bool life_is_in_parent(pid_t pid, pid_t parent)
{
	return parent > 0 && syscall(SYS_kcmp, pid, parent, KCMP_VM, 0, 0) == 0;
}
