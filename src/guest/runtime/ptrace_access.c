/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Lets the recorder read this process' memory where the kernel does not: under Yama (ptrace_scope
 * 1) a process is read by its ancestors only, and by whom it names. There is one such name, it
 * cannot be asked for, and others may need theirs (MPI names "anybody"). So the recorder tries
 * first, and says so if it was refused.
 *
 *	recorder: process_vm_readv() -> EPERM; page->access_denied_pid = our pid
 *	we, once a trace with stacks is on: our pid is there -> prctl(PR_SET_PTRACER, recorder);
 *	    access_denied_pid = 0
 *	trace ends: prctl(PR_SET_PTRACER, 0), if this process has named anybody
 */
#include "guest/runtime/guest.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SCOPE_FILE "/proc/sys/kernel/yama/ptrace_scope"

/* Above 1 a name does not help. */
static bool is_restricted(void)
{
	char scope = 0;
	int fd = open(SCOPE_FILE, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (read(fd, &scope, 1) != 1)
		scope = 0;
	close(fd);
	return scope == '1';
}

static uint32_t named_by; /* the process that has named its recorder */

void guest_grant_ptrace_access(void)
{
	uint32_t pid = (uint32_t)getpid(), asked = pid;

	if (!guest.page || atomic_load(&guest.page->access_denied_pid) != pid ||
	    !atomic_compare_exchange_strong(&guest.page->access_denied_pid, &asked, 0))
		return;
	uint32_t recorder = atomic_load(&guest.page->recorder_pid);
	if (recorder && is_restricted() &&
	    prctl(PR_SET_PTRACER, (unsigned long)recorder, 0ul, 0ul, 0ul) == 0)
		named_by = pid;
}

/* `sonde record` samples stacks from the start on, so nobody has to be refused first. Who names
 * somebody else later has its way. */
void guest_let_sampler_in(const struct control_page *page)
{
	uint32_t recorder = atomic_load(&page->recorder_pid);

	if (page->record.on && page->record.stacks_us && recorder && is_restricted())
		prctl(PR_SET_PTRACER, (unsigned long)recorder, 0ul, 0ul, 0ul);
}

void guest_revoke_ptrace_access(void)
{
	if (named_by == (uint32_t)getpid())
		prctl(PR_SET_PTRACER, 0ul, 0ul, 0ul, 0ul);
	named_by = 0;
}
