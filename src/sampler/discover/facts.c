/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Who a process is: its command line, and its rank in a job. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/proc.h"
#include "sampler/discover/discover.h"
#include "unwind/remote/find/find.h"

#define CMDLINE_BYTES 4096 /* the rest is not read */
#define PROGRAM_READS 3

uint64_t process_start_ticks(pid_t pid)
{
	struct proc_stat s;

	return proc_stat_read(pid, &s) < 0 ? 0 : s.start_ticks;
}

static char *read_cmdline(pid_t pid, const char *comm)
{
	char text[CMDLINE_BYTES];
	struct buf b = {0};
	ssize_t n = proc_read(pid, "cmdline", text, sizeof(text));

	if (n > 0)
		proc_add_printable(&b, text, (size_t)n);
	if (!b.len) {
		buf_add_char(&b, '[');
		proc_add_printable(&b, comm, strlen(comm));
		buf_add_char(&b, ']');
	}
	char *all = xstrdup(buf_str(&b));
	buf_release(&b);
	return all;
}

/*
 * A program that is being replaced (exec) must not lend its environment to the command line of the
 * next one: both are of one program when the command line is the same before and after.
 */
static void read_program(pid_t pid, struct python_process *python, const char *comm,
			 struct process_facts *out)
{
	out->cmdline = read_cmdline(pid, comm);
	for (int i = 0; i < PROGRAM_READS; i++) {
		bool known = process_rank_read(pid, python ? &python->remote : NULL,
					       python ? &python->place : NULL, &out->rank);
		char *again = read_cmdline(pid, comm);
		bool same = !strcmp(again, out->cmdline);

		free(out->cmdline);
		out->cmdline = again;
		if (same && known)
			break;
	}
}

int process_facts(pid_t pid, struct python_process *python, struct process_facts *out,
		  struct err *err)
{
	struct proc_stat s;
	int r = proc_stat_read(pid, &s);

	if (r == -ESRCH || (r == 0 && (proc_stat_ended(&s))))
		return remote_explain_esrch(pid, err);
	if (r < 0)
		return err_sys(err, r, "cannot read '/proc/%d/stat'", (int)pid);
	*out = (struct process_facts){
		.start_ticks = s.start_ticks, .parent = (pid_t)s.parent, .state = s.state};
	read_program(pid, python, s.name, out);
	return 0;
}

void process_facts_release(struct process_facts *f)
{
	free(f->cmdline);
	f->cmdline = NULL;
}
