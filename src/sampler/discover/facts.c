/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Who a process is: its command line, and its rank in a job by its environment. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/proc.h"
#include "sampler/discover/discover.h"
#include "unwind/remote/find/find.h"
#include "wire/rank_env.h"

#define CMDLINE_BYTES 4096 /* the rest is not read */
#define ENVIRON_BYTES (256u << 10)
#define PROGRAM_READS 3

uint64_t process_start_ticks(pid_t pid)
{
	struct proc_stat s;

	return proc_stat_read(pid, &s) < 0 ? 0 : s.start_ticks;
}

/*
 * Of another user's process the environment is not ours to read: then nothing is known.
 * False when it has none (yet).
 */
static bool read_ranks(pid_t pid, struct process_facts *out)
{
	char *env = xmalloc(ENVIRON_BYTES);
	ssize_t n = proc_read(pid, "environ", env, ENVIRON_BYTES);
	size_t len = n < 0 ? 0 : (size_t)n;

	out->rank = rank_env_find(RANK_ENV_RANK, env, len);
	out->local_rank = rank_env_find(RANK_ENV_LOCAL_RANK, env, len);
	free(env);
	return n != 0;
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
static void read_program(pid_t pid, const char *comm, struct process_facts *out)
{
	out->cmdline = read_cmdline(pid, comm);
	for (int i = 0; i < PROGRAM_READS; i++) {
		bool known = read_ranks(pid, out);
		char *again = read_cmdline(pid, comm);
		bool same = !strcmp(again, out->cmdline);

		free(out->cmdline);
		out->cmdline = again;
		if (same && known)
			break;
	}
}

int process_facts(pid_t pid, struct process_facts *out, struct err *err)
{
	struct proc_stat s;
	int r = proc_stat_read(pid, &s);

	if (r == -ESRCH || (r == 0 && (proc_stat_ended(&s))))
		return remote_explain_esrch(pid, err);
	if (r < 0)
		return err_sys(err, r, "cannot read '/proc/%d/stat'", (int)pid);
	*out = (struct process_facts){
		.start_ticks = s.start_ticks, .parent = (pid_t)s.parent, .state = s.state};
	read_program(pid, s.name, out);
	return 0;
}

void process_facts_release(struct process_facts *f)
{
	free(f->cmdline);
	f->cmdline = NULL;
}
