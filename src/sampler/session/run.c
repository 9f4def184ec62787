/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/run.h"

#include <errno.h>
#include <unistd.h>

#include "base/fs.h"
#include "sampler/session/background.h"

enum stack_outcome stack_job_outcome(int code)
{
	return code == -ENOENT ? STACK_NOT_FOUND : STACK_NOT_EXECUTABLE;
}

/* It has not begun: the process in front learns it. */
static enum stack_outcome fail_start(struct stack_run *r, enum stack_outcome outcome,
				     const struct err *err)
{
	if (r->ready >= 0)
		stack_background_failed(r->ready, (int)outcome, err);
	r->ready = -1;
	return outcome;
}

static int start_job(struct stack_run *r, struct err *err)
{
	int code = stack_job_start(r->words, &r->job, err);

	if (code < 0)
		return code;
	r->session.job = &r->job;
	stack_pid_add(&r->o->parents, getpid());
	return 0;
}

enum stack_outcome stack_run_sample(struct stack_run *r, struct err *err)
{
	struct stack_session *s = &r->session;
	enum stack_outcome outcome = STACK_DONE;
	struct err end = {0};

	stack_signals_install((r->words ? STACK_SIGNALS_JOB : 0) |
			      (r->detached ? STACK_SIGNALS_DETACHED : 0));
	if (stack_session_open(s, err) < 0)
		return fail_start(r, STACK_FAILED, err);
	r->opened = true;
	if (r->words && start_job(r, err) < 0)
		outcome = fail_start(r, stack_job_outcome(err->code), err);
	else if (r->ready >= 0 &&
		 stack_background_ready(r->pid_file, r->ready, r->job.pid, err) < 0)
		outcome = fail_start(r, STACK_FAILED, err);
	else if (stack_session_run(s, err) < 0)
		outcome = STACK_FAILED;
	if (stack_session_close(s, &end) < 0 && outcome == STACK_DONE) {
		outcome = STACK_FAILED;
		*err = end;
	}
	if (s->job && s->end != STACK_END_SIGNAL)
		stack_job_wait(&r->job);
	return outcome;
}

void stack_run_end(struct stack_run *r)
{
	if (!r->opened)
		return;
	stack_session_close_log(&r->session);
	if (r->detached)
		(void)fs_unlink(r->pid_file, NULL);
}
