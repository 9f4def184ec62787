/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which process an arena belongs to, and whether it lives.
 *
 * The process may be in pid, time, user and mount namespaces of its own. What it reads about itself
 * there, a start time above all, cannot be compared with what we read here. So the arena says three
 * things, and all of them are checked from this side:
 *
 *	pid, pid_ns	its number, and where that number counts: no two living processes have both
 *	address		where the process has mapped the arena
 *
 * A process of our own namespace is opened by its number. One of a namespace below ours is found
 * in /proc, which has the numbers of a process in all its namespaces. Who is found but does not
 * have the arena mapped got the number later: the owner has ended, or has called exec(). From then
 * on the pidfd says when it ends.
 *
 * What is not found has ended, or is out of sight: in a namespace above ours (the recorder was
 * called by a process in a container), in a /proc that hides it. Then the kernel is asked
 * whether anybody else has the file mapped. On overlayfs it does not know: there the process has
 * ended if a launcher started us, all of whose descendants we see, and else counts as alive until it
 * has written nothing for QUIET_NS.
 */
#include "recorder/arena.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ASK_NS 100000000ull /* between two questions about a process that is out of sight */
#define QUIET_NS 10000000000ull
#define MAKING_S 10 /* no process needs that long to make an arena */

int arena_is_mapped(const struct arena *a)
{
	if (!a->address || !a->proc.shown_pid)
		return -EOPNOTSUPP;
	return proc_has_mapped((pid_t)a->proc.shown_pid, a->address, a->name);
}

int arena_seems_mapped(const struct arena *a)
{
	if (a->address && a->proc.shown_pid &&
	    proc_has_mapping((pid_t)a->proc.shown_pid, a->address, a->address + a->bytes))
		return 1;
	return arena_is_mapped(a);
}

/* Opens the owner. The number is another's by now, or nobody's: dead. */
static void find_owner(struct arena *a)
{
	bool ours = a->pid_ns && a->pid_ns == proc_pid_namespace("self");

	a->pidfd = a->proc.pid ? proc_open_in_namespace(a->pid_ns, a->proc.pid) : -ESRCH;
	a->by_number = ours && a->pidfd < 0 && a->pidfd != -ESRCH;
	if (a->pidfd == -ESRCH && (ours || !a->proc.pid))
		a->proc.dead = true;
	if (a->pidfd < 0)
		return;
	a->proc.shown_pid = (uint32_t)proc_number(a->pidfd);
	if (arena_seems_mapped(a) != 0)
		return;
	close(a->pidfd);
	a->pidfd = -ESRCH;
	a->proc.shown_pid = 0;
	a->proc.dead = a->pid_ns != 0;
}

/* Grows with everything that is published. */
static uint64_t sum_published(struct arena *a)
{
	uint32_t n = arena_nrings(a);
	uint64_t sum = n;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t last = atomic_load(&arena_ring(a->head, i)->last_seg);
		if (last && last <= a->max_segs)
			sum += arena_seq(a, last) * ARENA_SEG_SIZE +
			       atomic_load(&arena_seg(a->head, last - 1)->used);
	}
	return sum;
}

static bool unseen_lives(struct arena *a)
{
	uint64_t now = clock_mono_ns(), sum;

	if (a->asked_ns && now - a->asked_ns < ASK_NS)
		return true;
	a->asked_ns = now;
	int r = fs_is_used_elsewhere(a->fd);
	a->proc.uncertain = r < 0;
	if (r >= 0)
		return r > 0;
	sum = sum_published(a);
	if (sum != a->published)
		a->published_ns = now;
	a->published = sum;
	return now - a->published_ns < QUIET_NS;
}

void arena_set_owner(struct arena *a, int fd)
{
	a->fd = fd;
	find_owner(a);
	if (!a->proc.dead)
		a->proc.dead = !arena_process_lives(a);
	/* The descriptor is needed only where there is no pidfd. */
	if (a->proc.dead || a->pidfd >= 0) {
		close(a->fd);
		a->fd = -1;
	}
}

bool arena_process_lives(struct arena *a)
{
	struct pollfd p = {.fd = a->pidfd, .events = POLLIN};

	/* Out of descriptors or memory, or an old kernel: nobody is dead for that. */
	if (a->by_number)
		find_owner(a);
	if (a->proc.dead)
		return false;
	if (a->pidfd >= 0)
		return poll(&p, 1, 0) <= 0;
	if (a->by_number)
		return kill((pid_t)a->proc.pid, 0) == 0 || errno != ESRCH;
	return unseen_lives(a);
}

bool arena_is_abandoned(const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	int fd = fs_open(path, O_RDWR, 0, NULL);
	/* Who makes it has it open until it is complete: afterwards it is, or will never be. */
	int r = fd < 0 ? fd : fs_is_used_elsewhere(fd);
	struct stat st;

	if (fd >= 0)
		close(fd);
	bool old = lstat(path, &st) == 0 && st.st_mtime + MAKING_S < time(NULL);
	free(path);
	if (r > 0 || !(r == 0 || old || (r == -ENOTSUP && arena_is_unmade(dir, name))))
		return false;
	struct arena *a = arena_open(dir, name);
	arena_close(a);
	return !a;
}
