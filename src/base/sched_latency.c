/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/sched_latency.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TURN_NS 100000 /* the shortest that the kernel grants */
#define RESET_ON_FORK 1

bool hurry_save(struct hurry_state *out)
{
	*out = (struct hurry_state){.size = sizeof(*out)};
	return syscall(SYS_sched_getattr, 0, out, sizeof(*out), 0) == 0;
}

void hurry_restore(struct hurry_state *s)
{
	syscall(SYS_sched_setattr, 0, s, 0);
}

static bool may_go_first(struct hurry_state *now)
{
	const struct sched_param first = {.sched_priority = 1};

	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) < 0)
		return false;
	hurry_restore(now);
	return true;
}

bool hurry(void)
{
	struct hurry_state s, granted;

	if (!hurry_save(&s))
		return false;
	if (s.policy != SCHED_OTHER)
		return true;
	s.flags |= RESET_ON_FORK;
	s.runtime = TURN_NS;
	hurry_restore(&s);
	return (hurry_save(&granted) && granted.runtime == TURN_NS) || may_go_first(&granted);
}
