/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which processes a question is about. */
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "memory/input/input.h"
#include "recorder/recording.h"
#include "recorder/stream.h"

#define MAX_NAMED 16
#define MAX_PROCESSES (1u << 20)

static bool is_meant(const struct input_choice *c, const struct process_facts *p)
{
	return (!c->pid || p->pid == c->pid) && (!c->by_rank || p->rank == c->rank);
}

/* --- who is in a recording --- */

struct process_search {
	struct processes processes;
	uint32_t *pid; /* of each process number */
	size_t cap;
};

static void on_proc(void *arg, const struct frame_proc *p)
{
	struct process_search *l = arg;

	if (p->proc >= MAX_PROCESSES)
		return;
	l->pid = xgrow(l->pid, &l->cap, p->proc + 1u, sizeof(*l->pid));
	l->pid[p->proc] = p->pid;
	processes_add(&l->processes, p, "");
}

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct process_search *l = arg;

	(void)tid;
	if (r->type == REC_PROCESS && proc < l->cap)
		processes_note(&l->processes, l->pid[proc], (const struct rec_process *)r, NULL);
}

/* Nobody where the path is no recording. */
static void find_processes(const char *path, struct process_search *l)
{
	static const struct stream_ops ops = {.proc = on_proc, .record = on_record};
	struct buf file = {0};

	if (recording_find(path, &file, NULL) == 0)
		(void)stream_file(buf_str(&file), &ops, l, NULL, NULL); /* what can be read */
	buf_release(&file);
}

/* --- who is meant --- */

/* "12 (rank 0), 13 (rank 1)" */
static void list_processes(const struct processes *ps, struct buf *out)
{
	for (size_t i = 0; i < ps->n && i < MAX_NAMED; i++) {
		buf_addf(out, "%s%u", i ? ", " : "", ps->list[i].pid);
		if (ps->list[i].rank >= 0)
			buf_addf(out, " (rank %d)", ps->list[i].rank);
	}
	if (ps->n > MAX_NAMED)
		buf_addf(out, " and %zu more", ps->n - MAX_NAMED);
}

static int fail_nobody(const struct input_choice *c, const struct processes *ps, struct err *err)
{
	struct buf who = {0};

	list_processes(ps, &who);
	if (!ps->recording)
		err_set(err, -ENOENT,
			"a dump does not say which process is which rank: name the recording");
	else if (c->by_rank)
		err_set(err, -ENOENT, "no process of rank %d%s is in the recording: there are %s",
			c->rank, c->pid ? " with that pid" : "", buf_str(&who));
	else
		err_set(err, -ENOENT, "process %u is not in the recording: there are %s", c->pid,
			buf_str(&who));
	buf_release(&who);
	return err ? err->code : -ENOENT;
}

int input_choose(const char *path, struct input_choice *c, struct err *err)
{
	struct process_search l = {0};
	int r = 0;

	if (!c->pid && !c->by_rank)
		return 0;
	find_processes(path, &l);
	for (size_t i = 0; i < l.processes.n; i++)
		if (is_meant(c, &l.processes.list[i]))
			LIST_ADD(c->pids, c->n, c->cap, l.processes.list[i].pid);
	/* The rows of a dump say whose they are. */
	if (!c->n && (l.processes.recording || c->by_rank))
		r = fail_nobody(c, &l.processes, err);
	processes_release(&l.processes);
	free(l.pid);
	return r;
}

bool input_is_chosen(const struct input_choice *c, uint32_t pid)
{
	if (!c || (!c->pid && !c->by_rank))
		return true;
	if (!c->n)
		return pid == c->pid;
	for (size_t i = 0; i < c->n; i++)
		if (c->pids[i] == pid)
			return true;
	return false;
}

void input_choice_reset(struct input_choice *c)
{
	free(c->pids);
	c->pids = NULL;
	c->n = c->cap = 0;
}

void input_choice_release(struct input_choice *c)
{
	free(c->pids);
	*c = (struct input_choice){0};
}
