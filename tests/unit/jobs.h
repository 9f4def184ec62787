/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Jobs for tests: a child process with the real producer (src/guest, src/collect) in it, and a
 * recorder's view of what it wrote. The session page is prepared, so that the job starts nobody.
 */
#ifndef SONDE_TESTS_UNIT_JOBS_H
#define SONDE_TESTS_UNIT_JOBS_H

#include "arenas.h"
#include "base/mem.h"
#include "recorder/drain.h"
#include "recorder/session.h"
#include "recorder/stream.h"
#include "test.h"
#include "tmpdir.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#define JOB_MAX_PROCS 16

struct job_event {
	uint32_t proc, tid;
	size_t at; /* of the record in job_raw */
};

static struct control_page *job_page;
static struct drain *job_drain;
static struct buf job_raw;
static struct job_event *job_events;
static size_t job_nevents, job_cap_events;
static struct frame_proc job_procs[JOB_MAX_PROCS];
static struct frame_proc_end job_ends[JOB_MAX_PROCS];
static unsigned job_nprocs, job_nends, job_nstacks;

static inline void job_session(uint32_t want, uint32_t max_segs, uint32_t wait_ms)
{
	CHECK_INT(session_map(tmpdir(), true, &job_page, NULL), 0);
	atomic_store(&job_page->want, want);
	job_page->max_segs = max_segs;
	job_page->wait_ms = wait_ms;
	atomic_store(&job_page->recorder_pid, (uint32_t)getpid());
	atomic_store(&job_page->heartbeat_ns, hand_now());
	atomic_store(&job_page->state, SESSION_LIVE);
	job_drain = drain_new(tmpdir(), 0);
}

static inline pid_t job_start(void (*fn)(void))
{
	fflush(NULL);
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		setenv(SESSION_ENV, tmpdir(), 1);
		fn();
		exit(0); /* not _exit(): a sanitizer has its say here */
	}
	return pid;
}

static inline void job_on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	(void)arg;
	if (r->type == REC_THREAD) /* who it is, and nothing that happened */
		return;
	job_events = xgrow(job_events, &job_cap_events, job_nevents + 1, sizeof(*job_events));
	job_events[job_nevents++] = (struct job_event){proc, tid, job_raw.len};
	buf_add(&job_raw, r, r->size);
}

static inline void job_on_stack(void *arg, uint32_t proc, uint32_t id, const uint64_t *pc,
				uint32_t depth)
{
	(void)arg;
	(void)proc;
	CHECK(id && depth && pc[0]);
	job_nstacks++;
}

static inline void job_on_proc(void *arg, const struct frame_proc *p)
{
	(void)arg;
	CHECK(p->proc < JOB_MAX_PROCS);
	job_procs[p->proc] = *p;
	job_nprocs++;
}

/* One look; true if something was told. */
static inline bool job_look(void)
{
	static const struct stream_ops ops = {.record = job_on_record, .stack = job_on_stack};
	static struct buf batch;
	struct err err = {0};

	atomic_store(&job_page->heartbeat_ns, hand_now());
	CHECK(drain_scan(job_drain, job_on_proc, NULL, NULL) >= 0);
	drain_check_alive(job_drain, false);
	buf_clear(&batch);
	drain_round(job_drain, &batch);
	if (stream_frame(&ops, NULL, FRAME_BATCH, batch.data, batch.len, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		CHECK(0);
	}
	drain_commit(job_drain);
	for (struct drain_proc *p; (p = drain_next_dead(job_drain));) {
		struct frame_proc_end e;
		drain_end_frame(job_drain, p, &e);
		drain_finish(job_drain, p, true);
		job_ends[e.proc] = e;
		job_nends++;
	}
	return batch.len > 0;
}

static inline void job_wait(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
}

/* Reads while the job runs, and to the end behind it. */
static inline void job_follow(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, WNOHANG) == 0)
		if (!job_look())
			usleep(200);
	CHECK_INT(status, 0);
	while (job_look())
		;
}

static inline const struct rec *job_record(size_t i)
{
	CHECK(i < job_nevents);
	return (const struct rec *)(job_raw.data + job_events[i].at);
}

#define JOB_ALLOC(i) ((const struct rec_alloc *)job_record(i))

static inline void job_cleanup(void)
{
	drain_free(job_drain);
	session_unmap(job_page);
	buf_release(&job_raw);
	free(job_events);
}

#endif
