/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/rounds/roles.h"
#include "sampler/snapshot/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "sampler/hang/hang.h"
#include "sampler/snapshot/call_site.h"
#include "test.h"

#define SECOND 1000000000ull
#define MAX 16

/* A job made up for the test. */
struct job {
	struct targets targets;
	struct target *list[MAX];
	struct target target[MAX];
	struct python_process process[MAX];
	struct python_thread threads[MAX][4];
	struct stack_frame frames[MAX][4][8];
};

static const char *text(const char *s)
{
	return intern(s, strlen(s));
}

static void job_init(struct job *j)
{
	memset(j, 0, sizeof(*j));
	j->targets.list = j->list;
}

/* A thread with the frames "function@file:line …", outermost first. */
static struct python_thread *add_thread(struct job *j, unsigned process, const char *name,
					const char *frames)
{
	struct python_process *p = &j->process[process];
	unsigned index = p->nthreads++;
	struct python_thread *t = &j->threads[process][index];
	char *copy = xstrdup(frames), *save = NULL;

	*t = (struct python_thread){.name = text(name),
				    .tid = getpid(),
				    .main = index == 0,
				    .state = THREAD_IDLE,
				    .frames = j->frames[process][index]};
	for (char *f = strtok_r(copy, " ", &save); f; f = strtok_r(NULL, " ", &save)) {
		char *file = strchr(f, '@'), *line = strrchr(f, ':');

		*file++ = *line++ = 0;
		t->frames[t->nframes] = (struct stack_frame){
			.name = text(f),
			.file = text(file),
			.line = atoi(line),
			.address = 0x1000 + t->nframes,
			.lasti = (uint32_t)atoi(line),
		};
		t->nframes++;
	}
	free(copy);
	p->threads = j->threads[process];
	return t;
}

static struct target *add_process(struct job *j, int rank, const char *frames)
{
	unsigned i = j->targets.n++;
	struct target *t = &j->target[i];

	j->list[i] = t;
	*t = (struct target){.pid = 1000 + (pid_t)i,
			     .serial = i + 1,
			     .parent = 1,
			     .cmdline = (char *)(uintptr_t) "python train.py",
			     .own = {.rank = rank, .local_rank = -1},
			     .local_rank = -1,
			     .device = -1,
			     .state = TARGET_OPEN,
			     .python = &j->process[i]};
	remote_init(&j->process[i].remote, getpid());
	j->process[i].place.layout.version = 0x030b02f0;
	if (frames)
		add_thread(j, i, "MainThread", frames);
	roles_assign(&j->targets);
	return t;
}

static const char *answer(const struct job *j, bool exact)
{
	static struct buf out;
	struct snapshot_options o = {.exact = exact};
	struct snapshot *s = snapshot_take(&j->targets, &o);

	buf_clear(&out);
	snapshot_answer(s, &out);
	snapshot_free(s);
	return buf_str(&out);
}

#define LIB "/usr/lib/python3.11/"
#define PACKAGES "/usr/lib/python3.11/site-packages/"
#define WAIT " wait@" LIB "threading.py:331"
#define REDUCE "main@/job/train.py:9 all_reduce@/job/trainer.py:88" WAIT

TEST(snapshot, the_call_site_is_the_jobs_own_function)
{
	struct job j;

	job_init(&j);
	add_process(&j, -1, REDUCE);
	const struct python_thread *t = &j.threads[0][0];
	CHECK_INT(stack_call_site(t->frames, t->nframes), 1);
	CHECK_INT(stack_inner_call(t->frames, t->nframes), 2);
	CHECK_INT(stack_own_part(t->frames, t->nframes), 2);
	CHECK_STR(answer(&j, false),
		  "pid 1000 is in all_reduce at trainer.py:88 > wait (threading.py:331)\n");

	job_init(&j);
	add_process(&j, 3,
		    "step@/job/trainer.py:5 wrapper@" PACKAGES
		    "torch/log.py:81 all_reduce@" PACKAGES "torch/c10d.py:2501" WAIT);
	CHECK_STR(answer(&j, false),
		  "rank 3 is in step at trainer.py:5 > all_reduce (c10d.py:2501)\n");

	job_init(&j); /* nothing but libraries */
	add_process(&j, -1, "run@" LIB "runpy.py:1 serve@" PACKAGES "vllm/__init__.py:7" WAIT);
	CHECK_STR(answer(&j, false),
		  "pid 1000 is in serve at vllm/__init__.py:7 > wait (threading.py:331)\n");

	job_init(&j);
	add_process(&j, -1, "");
	CHECK_STR(answer(&j, false), "pid 1000 is outside Python\n");
}

TEST(snapshot, one_rank_is_elsewhere)
{
	struct job j;

	job_init(&j);
	for (int i = 0; i < 8; i++)
		add_process(&j, i,
			    i == 5 ? "main@/job/train.py:9 load_batch@/job/data.py:41" : REDUCE);
	CHECK_STR(answer(&j, false),
		  "8 ranks: 7 in all_reduce at trainer.py:88 > wait (threading.py:331), 1 in "
		  "load_batch at data.py:41 (rank 5)\n"
		  "Rank 5 is elsewhere: the 7 others are at the same call site, all asleep.\n");
	for (int i = 0; i < 8; i++)
		j.threads[i][0].frames[1] = j.threads[0][0].frames[1];
	CHECK_STR(answer(&j, false),
		  "8 ranks: all in all_reduce at trainer.py:88 > wait (threading.py:331)\n");
}

TEST(snapshot, without_ranks_pids_and_with_halves_no_verdict)
{
	struct job j;

	job_init(&j);
	for (int i = 0; i < 4; i++)
		add_process(&j, -1, i < 2 ? "a@/x.py:1" : "b@/y.py:2");
	CHECK_STR(answer(&j, false),
		  "4 processes: 2 in a at x.py:1 (pids 1000,1001), 2 in b at y.py:2 (pids "
		  "1002,1003)\n");
}

TEST(snapshot, many_places_are_summed_up)
{
	struct job j;
	char frames[64];

	job_init(&j);
	for (int i = 0; i < 9; i++) {
		snprintf(frames, sizeof(frames), "f@/x.py:%d", i < 3 ? 1 : i);
		add_process(&j, i, frames);
	}
	CHECK_STR(answer(&j, false),
		  "9 ranks: 3 in f at x.py:1 (ranks 0-2), 1 in f at x.py:3 (rank 3), 1 in f at "
		  "x.py:4 (rank 4), 1 in f at x.py:5 (rank 5), 3 at 3 other call sites\n");
}

/* Launchers and workers of data loaders are not what is asked for. */
TEST(snapshot, helpers_do_not_count)
{
	struct job j;
	struct buf out = {0};
	struct snapshot_options o = {0};

	job_init(&j);
	add_process(&j, -1, "monitor@/usr/bin/torchrun:1"); /* pid 1000 */
	add_process(&j, 0, REDUCE); /* 1001 */
	add_process(&j, 1, REDUCE);
	add_process(&j, 0, "worker_loop@" PACKAGES "torch/data.py:3")->parent = 1001;
	roles_assign(&j.targets);
	CHECK_STR(answer(&j, false),
		  "2 ranks: all in all_reduce at trainer.py:88 > wait (threading.py:331)\n");
	struct snapshot *s = snapshot_take(&j.targets, &o);
	snapshot_text(s, &out);
	CHECK(strstr(buf_str(&out), "\nRanks 0,1 (2 ranks)   asleep\n    wait (threading.py:331)\n"
				    "  > all_reduce (/job/trainer.py:88)\n"
				    "    main (/job/train.py:9)\n"));
	CHECK(strstr(buf_str(&out), "Processes that are not ranks:\n\nPid 1000   asleep\n"));
	CHECK(strstr(buf_str(&out), "\nOf rank 0 (pid 1003)   asleep\n  > worker_loop "
				    "(torch/data.py:3)\n"));
	snapshot_free(s);
	buf_release(&out);
}

static unsigned groups_of(const struct job *j, const struct snapshot_options *o)
{
	struct snapshot *s = snapshot_take(&j->targets, o);
	json_t *json = snapshot_json(s);
	unsigned n = (unsigned)json_array_size(json_object_get(json, "groups"));

	json_decref(json);
	snapshot_free(s);
	return n;
}

TEST(snapshot, lines_inside_libraries_count_only_with_exact)
{
	struct job j;
	struct snapshot_options loose = {0}, exact = {.exact = true};

	job_init(&j);
	for (int i = 0; i < 3; i++)
		add_process(&j, i, REDUCE);
	CHECK_INT(groups_of(&j, &loose), 1);
	j.threads[1][0].frames[2].line = 335; /* in threading.py */
	CHECK_INT(groups_of(&j, &loose), 1);
	CHECK_INT(groups_of(&j, &exact), 2);
	j.threads[2][0].frames[0].line = 12; /* another call of all_reduce */
	CHECK_INT(groups_of(&j, &loose), 2);
}

TEST(snapshot, other_threads_in_groups_of_their_own)
{
	struct job j;
	struct buf out = {0};
	struct snapshot_options o = {.all_threads = true, .top = 1};

	job_init(&j);
	for (int i = 0; i < 3; i++) {
		add_process(&j, i, REDUCE);
		add_thread(&j, (unsigned)i, "pin\x1b[31m",
			   "loop@/job/pin.py:3 get@" LIB "queue.py:5");
	}
	j.threads[2][1].has_gil = true;
	struct snapshot *s = snapshot_take(&j.targets, &o);
	snapshot_text(s, &out);
	CHECK(strstr(buf_str(&out), "Other threads:\n\n3 threads pin?[31m of ranks 0-2   1 has the "
				    "GIL, 2 asleep\n    get (queue.py:5)\n    … 1 more\n"));
	buf_clear(&out);
	snapshot_dump(s, &out);
	CHECK(strstr(buf_str(&out), "--- Stack dump for PID 1002 ---\n"));
	CHECK(strstr(buf_str(&out), " (active+gil): \"pin?[31m\"\n    get (queue.py:5)\n"));
	snapshot_free(s);
	buf_release(&out);
}

TEST(snapshot, what_cannot_be_read_is_told)
{
	struct job j;
	struct buf out = {0};
	pid_t named = 1002;
	struct snapshot_options o = {.named = &named, .nnamed = 1};

	job_init(&j);
	add_process(&j, 0, REDUCE);
	for (int i = 0; i < 3; i++) {
		struct target *t = add_process(&j, -1, NULL);

		t->state = TARGET_REFUSED;
		t->python = NULL;
		err_set(&t->err, i == 2 ? -EPERM : -ENOEXEC, "reason %d", i);
	}
	struct snapshot *s = snapshot_take(&j.targets, &o);
	snapshot_text(s, &out);
	CHECK(strstr(buf_str(&out), "2 processes could not be read; see below.\n"));
	CHECK(strstr(buf_str(&out), "\nNot read:\n    pid 1002: reason 1\n    pid 1003: reason "
				    "2\n"));
	CHECK_INT(snapshot_processes(s), 1);
	snapshot_free(s);
	buf_release(&out);
}

TEST(snapshot, numbers_are_put_together)
{
	struct buf out = {0};
	int64_t numbers[] = {9, 0, 1, 2, 3, 6, 7, 9, 4};

	words_add_numbers("rank", numbers, 9, 100, &out);
	CHECK_STR(buf_str(&out), "ranks 0-4,6,7,9");
	buf_clear(&out);
	words_add_numbers("rank", numbers, 1, 100, &out);
	CHECK_STR(buf_str(&out), "rank 0");
	buf_clear(&out);
	int64_t far[] = {1, 10, 20, 30, 40};
	words_add_numbers("pid", far, 5, 5, &out);
	CHECK_STR(buf_str(&out), "pids 1,10,20,… (5)");
	buf_release(&out);
}

/* --- who has not moved --- */

static const char *hang_text(const struct hang *s, uint64_t now_ns)
{
	static struct buf out;

	buf_clear(&out);
	hang_report(s, 5 * SECOND, now_ns, &out, NULL);
	return buf_str(&out);
}

TEST(still, waits_inside_the_library_are_no_movement)
{
	struct job j;
	struct hang *s = hang_new();

	job_init(&j);
	add_process(&j, 0, REDUCE);
	for (uint64_t i = 0; i <= 5; i++) {
		j.threads[0][0].frames[2].lasti = (uint32_t)i; /* in threading.py */
		hang_round(s, &j.targets, (1 + i) * SECOND);
	}
	CHECK_INT(hang_count(s, 5 * SECOND, 6 * SECOND), 1);
	CHECK_INT(hang_count(s, 6 * SECOND, 6 * SECOND), 0);
	CHECK_STR(hang_text(s, 6 * SECOND),
		  "Rank 0 has not moved for 5.0 s: in all_reduce at trainer.py:88 > wait "
		  "(threading.py:331); asleep\n");
	j.threads[0][0].frames[0].lasti = 77; /* the job itself goes on */
	hang_round(s, &j.targets, 7 * SECOND);
	CHECK_INT(hang_count(s, SECOND, 7 * SECOND), 0);
	hang_free(s);
}

TEST(still, time_without_a_look_does_not_count)
{
	struct job j;
	struct hang *s = hang_new();

	job_init(&j);
	add_process(&j, 0, REDUCE);
	hang_round(s, &j.targets, 1 * SECOND);
	hang_round(s, &j.targets, 2 * SECOND);
	hang_round(s, &j.targets, 100 * SECOND);
	CHECK_INT(hang_count(s, 1 * SECOND, 100 * SECOND), 1);
	CHECK_INT(hang_count(s, 2 * SECOND, 100 * SECOND), 0);
	hang_free(s);
}

TEST(still, the_odd_one_comes_first)
{
	struct job j;
	struct hang *s = hang_new();
	json_t *json = json_array();

	job_init(&j);
	for (int i = 0; i < 4; i++)
		add_process(&j, i, i == 2 ? "load_batch@/job/data.py:41" : REDUCE);
	for (uint64_t i = 1; i <= 7; i++)
		hang_round(s, &j.targets, i * SECOND);
	CHECK_STR(
		hang_text(s, 7 * SECOND),
		"4 of 4 ranks have not moved for 5.0 s: 1 in load_batch at data.py:41 (rank 2), "
		"3 in all_reduce at trainer.py:88 > wait (threading.py:331)\n"
		"Rank 2 has not moved for 6.0 s: in load_batch at data.py:41; asleep\n"
		"Ranks 0,1,3 have not moved for 6.0 s: in all_reduce at trainer.py:88 > wait "
		"(threading.py:331); asleep, like most ranks: probably waiting for another rank\n");
	CHECK_INT(hang_report(s, 5 * SECOND, 7 * SECOND, NULL, json), 4);
	CHECK(json_is_false(json_object_get(json_array_get(json, 0), "with_most")));
	CHECK(json_is_true(json_object_get(json_array_get(json, 1), "with_most")));
	json_decref(json);

	j.targets.n = 3; /* one has ended */
	hang_round(s, &j.targets, 8 * SECOND);
	CHECK_INT(hang_count(s, SECOND, 8 * SECOND), 3);
	hang_free(s);
}

TEST(still, all_at_one_place_wait_for_somebody_else)
{
	struct job j;
	struct hang *s = hang_new();

	job_init(&j);
	for (int i = 0; i < 2; i++)
		add_process(&j, i, REDUCE);
	for (uint64_t i = 1; i <= 7; i++)
		hang_round(s, &j.targets, i * SECOND);
	CHECK_STR(
		hang_text(s, 7 * SECOND),
		"2 of 2 ranks have not moved for 5.0 s: all in all_reduce at trainer.py:88 > wait "
		"(threading.py:331)\n"
		"Ranks 0,1 have not moved for 6.0 s: in all_reduce at trainer.py:88 > wait "
		"(threading.py:331); asleep\n"
		"All of them are at the same call site: what they wait for is not among the "
		"sampled "
		"processes.\n");
	hang_free(s);
}

TEST(still, a_stack_that_could_not_be_read_moves)
{
	struct job j;
	struct hang *s = hang_new();

	job_init(&j);
	add_process(&j, 0, REDUCE);
	j.threads[0][0].missed = true;
	for (uint64_t i = 1; i <= 7; i++)
		hang_round(s, &j.targets, i * SECOND);
	CHECK_INT(hang_count(s, 5 * SECOND, 7 * SECOND), 0);
	hang_free(s);
}
