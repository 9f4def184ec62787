/* SPDX-License-Identifier: MulanPSL-2.0 */
/* When the next round is due: at once, when it is worth it, or when somebody wakes us. */
#include "recorder/run/recorder_impl.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define IDLE_MAX_NS (50 * MS)
#define MONITOR_IDLE_MAX_NS (250 * MS) /* its guest wakes us when something is to be written */
#define PACE_NS (4 * MS) /* between looks whether there is as much as this: */
#define PACE_BYTES (512u << 10) /* a larger batch takes less space, and less of our time */
#define PACE_LOOKS 8
#define URGENT_IDLE_MAX_NS (5 * MS)

bool recorder_root_is_gone(struct recorder *rec)
{
	struct pollfd p = {.fd = rec->root_fd, .events = POLLIN};

	if (rec->root_gone || !rec->page->root_pid)
		return true;
	if (rec->root_fd >= 0)
		rec->root_gone = poll(&p, 1, 0) > 0;
	else
		rec->root_gone = kill((pid_t)rec->page->root_pid, 0) < 0 && errno == ESRCH;
	return rec->root_gone;
}

/* Sleeps until the next round; the end of the launched process wakes us at once. */
void recorder_wait_idle(struct recorder *rec, uint32_t asked)
{
	uint64_t max_ns = rec->monitor ? MONITOR_IDLE_MAX_NS : IDLE_MAX_NS;

	if (consumers_any(&rec->consumers, is_urgent))
		max_ns = URGENT_IDLE_MAX_NS;
	if (rec->idle_ns > max_ns)
		rec->idle_ns = max_ns;
	struct timespec t = {0, (long)rec->idle_ns};
	long r = syscall(SYS_futex, &rec->page->exit_asked, FUTEX_WAIT, asked, &t, NULL, 0);
	/* What we were woken for may be too young to be read right now. */
	rec->idle_ns = r == 0 ? IDLE_MIN_NS : rec->idle_ns * 2;
}

/* Waits until the next round is worth it, somebody asks for it, the launched process has ended, or
 * for a while. */
void recorder_pace_rounds(struct recorder *rec, uint32_t asked)
{
	struct timespec t = {0, PACE_NS};
	bool gone = recorder_root_is_gone(rec);

	if (rec->round_bytes >= PACE_BYTES || rec->monitor)
		return;
	for (unsigned i = 0; i < PACE_LOOKS; i++) {
		long r = syscall(SYS_futex, &rec->page->exit_asked, FUTEX_WAIT, asked, &t, NULL, 0);
		if (r == 0 || errno == EAGAIN || consumers_any(&rec->consumers, is_urgent) ||
		    atomic_load(&rec->page->flush_asked) != atomic_load(&rec->page->flush_done) ||
		    recorder_root_is_gone(rec) != gone || drain_has_much(rec->drain, PACE_BYTES))
			return;
	}
}
