/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/processes/processes.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/common/memory_words.h"

#define BLOCK_OVERHEAD 16 /* that malloc adds to a block */

void processes_release(struct processes *ps)
{
	for (size_t i = 0; i < ps->n; i++)
		free(ps->list[i].command);
	free(ps->list);
	hmap_release(&ps->by_pid);
	dropped_release(&ps->dropped);
	*ps = (struct processes){0};
}

struct process_facts *processes_find(const struct processes *ps, uint32_t pid)
{
	uint64_t at = hmap_get(&ps->by_pid, pid);

	return at == HMAP_NONE ? NULL : &ps->list[at];
}

void processes_add(struct processes *ps, const struct frame_proc *p, const char *command)
{
	const struct process_facts *parent = processes_find(ps, p->ppid);

	bool forked = parent && command && !strcmp(parent->command, command);
	struct process_facts *before = processes_find(ps, p->pid);

	if (before && !before->has_status)
		before->replaced = true;
	ps->recording = true;
	hmap_put(&ps->by_pid, p->pid, ps->n);
	LIST_ADD(ps->list, ps->n, ps->cap,
		 (struct process_facts){
			 .pid = p->pid,
			 .ppid = parent ? p->ppid : 0,
			 .command = xstrdup(command ? command : ""),
			 .rank = -1,
			 .forked = forked,
		 });
}

static void note_most(struct process_facts *p, uint64_t peak_rss, const struct process_blocks *b)
{
	if (peak_rss > p->max_rss)
		p->max_rss = peak_rss;
	if (b && b->most_bytes > p->max_blocks)
		p->max_blocks = b->most_bytes;
}

void processes_note(struct processes *ps, uint32_t pid, const struct rec_process *r,
		    const struct process_blocks *b)
{
	struct process_facts *p = processes_find(ps, pid);

	if (!p)
		return;
	if (r->rank >= 0)
		p->rank = r->rank;
	note_most(p, r->peak_rss_bytes, b);
	if (!(r->flags & PROCESS_ENDED))
		return;
	p->has_status = true;
	p->status = r->status;
	p->group_killed = r->flags & PROCESS_GROUP_KILLED;
	p->group_limit = r->group_limit_bytes;
}

void processes_end(struct processes *ps, uint32_t pid, bool ended)
{
	struct process_facts *p = processes_find(ps, pid);

	if (p && ended)
		p->state = PROCESS_GONE;
}

void processes_running(struct processes *ps)
{
	for (size_t i = 0; i < ps->n; i++)
		if (ps->list[i].state == PROCESS_UNKNOWN)
			ps->list[i].state = PROCESS_RUNNING;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t known(uint64_t v)
{
	return v == USAGE_UNKNOWN ? 0 : v;
}

/* Details of mappings are read less often than the rest. */
static void keep_details(struct rec_usage *now, const struct rec_usage *before)
{
	if (now->heap_bytes != USAGE_UNKNOWN)
		return;
	now->heap_bytes = before->heap_bytes;
	now->stack_bytes = before->stack_bytes;
	now->copied_bytes = before->copied_bytes;
	now->sonde_bytes = before->sonde_bytes;
	now->pss_bytes = USAGE_UNKNOWN;
}

/* Memory that only the process itself can have asked for, or the one that it is a fork of. */
static uint64_t asked_for(const struct rec_usage *u)
{
	uint64_t asked = u->anon_bytes == USAGE_UNKNOWN ? u->rss_bytes
							: u->anon_bytes + known(u->shared_bytes);

	return less(asked + u->swap_bytes, known(u->stack_bytes) + known(u->copied_bytes));
}

/* That, less what it was seen asking for. */
static uint64_t uncovered(const struct process_facts *p, const struct process_sample *s,
			  uint64_t blocks)
{
	return less(asked_for(&s->usage), p->inherited + s->blocks_bytes + blocks * BLOCK_OVERHEAD);
}

/* What a fork had of its parent when it was first looked at: what its own blocks do not explain. Blocks
 * that it has not touched yet explain nothing, but what its parent has does. */
static uint64_t find_inherited(const struct processes *ps, const struct process_facts *p,
			       const struct process_sample *s, uint64_t blocks)
{
	const struct process_facts *parent = processes_find(ps, p->ppid);
	uint64_t rest = uncovered(p, s, blocks), asked = asked_for(&s->usage);
	uint64_t parents = parent && parent->samples ? asked_for(&parent->last.usage) : 0;
	uint64_t most = parents < asked ? parents : asked;

	return most > rest ? most : rest;
}

void processes_sample(struct processes *ps, uint32_t pid, uint64_t time_ns,
		      const struct rec_usage *u, const struct process_blocks *b)
{
	struct process_facts *p = processes_find(ps, pid);
	struct process_sample s = {.time_ns = time_ns, .usage = *u, .blocks_bytes = b->bytes};

	if (!p)
		return;
	note_most(p, u->peak_rss_bytes, b);
	/* Pages stay for a while when blocks have gone: nothing is missing from the recording. */
	if (b->torn_down && p->samples)
		return;
	if (!ps->first_ns || time_ns < ps->first_ns)
		ps->first_ns = time_ns;
	p->has_details |= u->heap_bytes != USAGE_UNKNOWN;
	if (p->samples++)
		keep_details(&s.usage, &p->last.usage);
	if (p->samples == 1 && p->forked)
		p->inherited = find_inherited(ps, p, &s, b->blocks);
	s.not_covered = uncovered(p, &s, b->blocks);
	uint64_t others = known(s.usage.file_bytes) + known(s.usage.copied_bytes) +
			  known(s.usage.stack_bytes);
	if (others > p->max_others)
		p->max_others = others;
	if (u->rss_bytes >= p->highest.usage.rss_bytes)
		p->highest = s;
	if (b->steps && !p->has_step) {
		p->first_step = s;
		p->has_step = true;
	}
	p->last = s;
}

/* sigabbrev_np() is younger than the C libraries that we run with. */
const char *process_signal(const struct process_facts *p)
{
	static const char *const names[] = {
		[SIGHUP] = "HUP",   [SIGINT] = "INT",	[SIGQUIT] = "QUIT", [SIGILL] = "ILL",
		[SIGTRAP] = "TRAP", [SIGABRT] = "ABRT", [SIGBUS] = "BUS",   [SIGFPE] = "FPE",
		[SIGKILL] = "KILL", [SIGUSR1] = "USR1", [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",
		[SIGPIPE] = "PIPE", [SIGALRM] = "ALRM", [SIGTERM] = "TERM", [SIGXCPU] = "XCPU",
		[SIGXFSZ] = "XFSZ", [SIGSYS] = "SYS",
	};
	unsigned number = p->has_status && WIFSIGNALED(p->status) ? WTERMSIG(p->status) : 0;

	if (!number)
		return NULL;
	return number < sizeof(names) / sizeof(names[0]) && names[number] ? names[number] : "RT";
}

void processes_describe(const struct processes *ps, uint32_t pid, struct buf *out)
{
	const struct process_facts *p = ps ? processes_find(ps, pid) : NULL;

	add_text(out, "process {}", NUMBER(pid));
	if (!p || (p->rank < 0 && !p->ppid))
		return;
	add_text(out, " (");
	if (p->rank >= 0)
		add_text(out, "rank {}", NUMBER((uint64_t)p->rank));
	if (p->ppid)
		add_text(out, "{}{} {}", TEXT(p->rank >= 0 ? ", " : ""),
			 TEXT(p->forked ? "worker of" : "child of"), NUMBER(p->ppid));
	add_text(out, ")");
}
