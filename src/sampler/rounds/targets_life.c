/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sampler/discover/proc.h"
#include "sampler/rounds/targets_impl.h"
#include "unwind/remote/find/find.h"

#define LABEL_BYTES 96 /* of the command line */

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

static bool stat_says_over(int fd)
{
	struct proc_stat s;
	char text[1024];
	ssize_t n = pread(fd, text, sizeof(text), 0);

	return n <= 0 || proc_stat_parse(text, (size_t)n, &s) < 0 || s.state == 'Z' ||
	       s.state == 'X';
}

bool life_over(const struct life *l)
{
	struct pollfd p = {.fd = l->pidfd, .events = POLLIN};

	if (!l->known)
		return true;
	if (l->pidfd >= 0)
		return poll(&p, 1, 0) > 0;
	return stat_says_over(l->stat);
}

void lives_check(struct targets_inside *in, unsigned n)
{
	in->polls = xgrow(in->polls, &in->polls_cap, n + 1, sizeof(*in->polls));
	for (unsigned i = 0; i < n; i++)
		in->polls[i] =
			(struct pollfd){.fd = in->round[i].one->life.pidfd, .events = POLLIN};
	int ended = poll(in->polls, n, 0);
	for (unsigned i = 0; i < n; i++) {
		const struct life *l = &in->round[i].one->life;

		if ((ended > 0 && in->polls[i].revents) ||
		    (l->pidfd < 0 && stat_says_over(l->stat)))
			in->round[i].result = -ESRCH;
	}
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
	for (const char *c = p.comm; *c; c++)
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

/* A path of the program says little: its last part is shown. */
static char *label_of(int rank, const char *cmdline)
{
	size_t word = strcspn(cmdline, " ");
	const char *slash = memrchr(cmdline, '/', word);
	const char *text = slash && cmdline[0] != '[' ? slash + 1 : cmdline;
	size_t len = strlen(text), cut = len > LABEL_BYTES ? LABEL_BYTES : len;

	while (cut < len && cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80)
		cut--; /* not in the middle of a character */
	const char *more = cut < len ? "…" : "";
	if (rank < 0)
		return xasprintf("%.*s%s", (int)cut, text, more);
	return xasprintf("rank %d: %.*s%s", rank, (int)cut, text, more);
}

/* What the process is called; it takes the command line. */
static void take_facts(struct target *t, struct process_facts *f)
{
	free(t->cmdline);
	free(t->label);
	t->rank = f->rank;
	t->local_rank = f->local_rank;
	t->cmdline = f->cmdline ? f->cmdline : xstrdup("");
	t->label = label_of(t->rank, t->cmdline);
}

struct tracked *tracked_new(const struct discovered *d)
{
	struct tracked *one = xcalloc(1, sizeof(*one));
	struct process_facts f = {.rank = -1, .local_rank = -1};
	struct target *t = &one->t;

	one->named = d->named;
	t->pid = d->pid;
	t->device = d->device;
	/* The facts are about the process that `life` is bound to if that has not ended after they
	 * were read. */
	int r = life_open(&one->life, d->pid);
	if (r == 0)
		r = process_facts(d->pid, &f, &t->err);
	if (r == 0 && life_over(&one->life))
		r = -ESRCH;
	if (r == -ESRCH)
		remote_explain_esrch(d->pid, &t->err);
	else if (r < 0)
		err_sys(&t->err, r, "cannot look at process %d", (int)d->pid);
	if (r < 0) {
		life_close(&one->life);
		t->state = TARGET_REFUSED;
	}
	if (life_age_ns(f.start_ticks) < YOUNG_NS)
		one->young_ns = clock_mono_ns() + YOUNG_NS;
	t->start_ticks = f.start_ticks;
	t->parent = f.parent;
	take_facts(t, &f);
	return one;
}

void tracked_describe(struct tracked *one)
{
	struct process_facts f;

	if (process_facts(one->t.pid, &f, NULL) == 0)
		take_facts(&one->t, &f);
}

void tracked_free(struct tracked *one)
{
	if (!one)
		return;
	life_close(&one->life);
	free(one->t.cmdline);
	free(one->t.label);
	free(one);
}
