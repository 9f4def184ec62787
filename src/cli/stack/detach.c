/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/stack/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sampler/discover/discover.h"
#include "sampler/session/pidfile.h"

#define STOP_TRIES 500 /* of 10 ms: how long a job may take to end before the sampler is ended */

/* What comes over the pipe: the exit status, and words about it. */
struct outcome {
	int status;
	struct stack_pidfile pids;
	struct err err;
};

static bool read_all(int fd, void *out, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t r = read(fd, (char *)out + got, n - got);

		if (r == 0 || (r < 0 && errno != EINTR))
			return false;
		got += r > 0 ? (size_t)r : 0;
	}
	return true;
}

static json_t *one_json(const struct stack_tracked *who, const bool *runs)
{
	if (!who->pid)
		return json_null();
	return json_pack("{s:i, s:b}", "pid", (int)who->pid, "running", runs ? *runs : true);
}

static void add_line(struct buf *out, const char *who, const struct stack_tracked *t,
		     const bool *runs)
{
	const char *state = !runs ? "" : *runs ? " running" : " ended";

	if (t->pid)
		buf_addf(out, "%s_pid=%d%s\n", who, (int)t->pid, state);
}

/* The lines that scripts know, or JSON. Without `job` and `sampler` nothing is said about whether
 * they run: they have just been started. */
static int tell_pids(const struct command *cmd, const struct stack_options *o,
		     const struct stack_pidfile *p, const bool *job, const bool *sampler)
{
	struct buf text = {0};

	if (o->json)
		return command_print_json(cmd,
					  json_pack("{s:o, s:o}", "main", one_json(&p->job, job),
						    "sniffer", one_json(&p->sampler, sampler)));
	add_line(&text, "main", &p->job, job);
	add_line(&text, "sniffer", &p->sampler, sampler);
	int status = command_print(cmd, &text);
	buf_release(&text);
	return status;
}

static int in_front(const struct command *cmd, const struct stack_options *o, int fd)
{
	struct outcome end = {0};

	if (!read_all(fd, &end, sizeof(end))) {
		err_set(&end.err, -EPIPE, "the one in the background failed; see '%s'",
			o->detach_log);
		return command_fail(cmd, &end.err, EXIT_FAILED);
	}
	if (end.status != EXIT_DONE)
		return command_fail(cmd, &end.err, end.status);
	int status = tell_pids(cmd, o, &end.pids, NULL, NULL);
	if (!o->quiet)
		fprintf(stderr,
			"%s: in the background; '--status' and '--stop' with '-o %s' ask "
			"after it and end it\n",
			cmd->spec.name, o->output);
	return status;
}

static int leave_terminal(const char *log, struct err *err)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	int r = 0;

	if (fd < 0)
		r = err_sys(err, -errno, "cannot open '%s'", log);
	else if (null < 0 || dup2(null, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		r = err_sys(err, -errno, "cannot leave the terminal");
	if (null > 2)
		close(null);
	if (fd > 2)
		close(fd);
	return r;
}

int stack_detach(const struct command *cmd, const struct stack_options *o, int *out_ready)
{
	struct stack_pidfile before;
	struct err err = {0};
	int fds[2];

	if (stack_pidfile_read(o->pid_file, &before, NULL) == 0 &&
	    stack_tracked_runs(&before.sampler)) {
		err_set(&err, -EEXIST,
			"process %d samples into '%s' already; end it with --stop, or choose "
			"another --output",
			(int)before.sampler.pid, o->output);
		return command_fail(cmd, &err, EXIT_FAILED);
	}
	pid_t pid = pipe2(fds, O_CLOEXEC) < 0 ? -1 : fork();
	if (pid < 0) {
		err_sys(&err, -errno, "cannot go into the background");
		return command_fail(cmd, &err, EXIT_FAILED);
	}
	if (pid > 0) {
		close(fds[1]);
		return in_front(cmd, o, fds[0]);
	}
	close(fds[0]);
	setsid();
	if (leave_terminal(o->detach_log, &err) < 0) {
		stack_detach_failed(fds[1], EXIT_FAILED, &err);
		_exit(EXIT_FAILED);
	}
	*out_ready = fds[1];
	return -1;
}

static void tell(int ready, const struct outcome *end)
{
	/* less than a page: it comes whole or not at all */
	if (write(ready, end, sizeof(*end)) < 0)
		perror("cannot tell the one in front");
	close(ready);
}

int stack_detach_ready(const struct stack_options *o, int ready, pid_t job, struct err *err)
{
	struct outcome end = {.status = EXIT_DONE};

	end.pids.sampler = (struct stack_tracked){getpid(), process_start_ticks(getpid())};
	if (job)
		end.pids.job = (struct stack_tracked){job, process_start_ticks(job)};
	int r = stack_pidfile_write(o->pid_file, &end.pids, err);
	if (r < 0)
		return r;
	tell(ready, &end);
	return 0;
}

void stack_detach_failed(int ready, int status, const struct err *err)
{
	struct outcome end = {.status = status, .err = *err};

	tell(ready, &end);
}

static int nothing(const struct command *cmd, const struct stack_options *o)
{
	fprintf(stderr, "%s: nothing that '%s' names runs\n", cmd->spec.name, o->pid_file);
	return EXIT_FAILED;
}

int stack_detach_status(const struct command *cmd, const struct stack_options *o)
{
	struct stack_pidfile p = {0};

	stack_pidfile_read(o->pid_file, &p, NULL);
	bool job = stack_tracked_runs(&p.job), sampler = stack_tracked_runs(&p.sampler);
	if (!job && !sampler && !o->json)
		return nothing(cmd, o);
	int status = tell_pids(cmd, o, &p, &job, &sampler);
	return job || sampler ? status : EXIT_FAILED;
}

/* Waits for both; false if one still runs. */
static bool wait_ended(const struct stack_pidfile *p)
{
	for (int i = 0; i < STOP_TRIES; i++) {
		if (!stack_tracked_runs(&p->job) && !stack_tracked_runs(&p->sampler))
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return false;
}

int stack_detach_stop(const struct command *cmd, const struct stack_options *o)
{
	struct stack_pidfile p = {0};

	stack_pidfile_read(o->pid_file, &p, NULL);
	bool job = stack_tracked_runs(&p.job), sampler = stack_tracked_runs(&p.sampler);
	if (!job && !sampler)
		return nothing(cmd, o);
	/* The sampler ends with its job, and has its last moments on file then. */
	if (job)
		kill(p.job.pid, SIGTERM);
	if (sampler && (!job || !wait_ended(&p)) && stack_tracked_runs(&p.sampler))
		kill(p.sampler.pid, SIGINT);
	if (!wait_ended(&p))
		fprintf(stderr, "%s: %s\n", cmd->spec.name,
			stack_tracked_runs(&p.sampler) ? "the sampler has not ended yet"
						       : "the job has not ended yet");
	else if (!o->quiet)
		fprintf(stderr, "%s: ended; the samples are in '%s'\n", cmd->spec.name, o->output);
	return EXIT_DONE;
}
