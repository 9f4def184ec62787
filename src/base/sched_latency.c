/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/sched_latency.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TURN_NS 100000 /* the shortest that the kernel grants */
#define RESET_ON_FORK 1

bool sched_latency_save(struct sched_latency *out)
{
	*out = (struct sched_latency){.size = sizeof(*out)};
	return syscall(SYS_sched_getattr, 0, out, sizeof(*out), 0) == 0;
}

void sched_latency_restore(struct sched_latency *s)
{
	syscall(SYS_sched_setattr, 0, s, 0);
}

static bool may_go_first(struct sched_latency *now)
{
	const struct sched_param first = {.sched_priority = 1};

	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) < 0)
		return false;
	sched_latency_restore(now);
	return true;
}

bool sched_latency_lower(void)
{
	struct sched_latency s, granted;

	if (!sched_latency_save(&s))
		return false;
	if (s.policy != SCHED_OTHER)
		return true;
	s.flags |= RESET_ON_FORK;
	s.runtime = TURN_NS;
	sched_latency_restore(&s);
	return (sched_latency_save(&granted) && granted.runtime == TURN_NS) ||
	       may_go_first(&granted);
}
