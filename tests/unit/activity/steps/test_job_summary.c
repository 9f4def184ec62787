/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which rank of a job is slowest, and why; the files that say so. */
#include "activity/steps/files.h"
#include "base/fs.h"
#include "step_ranks.h"
#include "tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>

/* --- jobs --- */

TEST(step_split_job, the_others_wait_for_the_slow_one)
{
	struct split_job j = {0};

	/* All steps take 100 ms; what rank 5 computes longer, the others communicate longer. */
	for (int i = 7; i >= 0; i--) {
		uint64_t compute = i == 5 ? 85 * MS : 60 * MS;
		struct plan p = {i, 100 * MS, compute, 90 * MS - compute, 0, 2 * MS};

		split_job_add(&j, rank_of(&p));
	}
	const char *text = job_text(&j);
	CHECK_INT(j.nrows, 8);
	CHECK_INT(j.rows[5].rank->rank, 5);
	CHECK_INT(j.slowest.verdict, SPLIT_WAITED_FOR);
	CHECK_INT(j.slowest.row, 5);
	CHECK_INT(j.slowest.why, SPLIT_COMPUTE);
	CHECK_INT(j.slowest.ns - j.slowest.others_ns, 25 * MS);
	CHECK_STR(j.slowest.kernel, "matmul");
	CHECK_HAS(text, "Steps 10 to 12 of 8 ranks: a step takes 100.0 ms: 63.1 % compute");
	CHECK_HAS(text, "Rank 5 is the slowest: the others wait for it");
	CHECK_HAS(text, "95.0 ms of a step outside of that, the others 70.0 ms (25.0 ms, 25.0 %");
	CHECK_HAS(text, "The reason: it computes 85.0 ms of a step, the others 60.0 ms; most of "
			"the difference is in matmul (85.0 ms, others 60.0 ms).");
	split_job_release(&j);
}

/* "The next step" is another one for a rank that is behind. */
TEST(step_split_job, ranks_that_traced_other_steps)
{
	struct split_job j = {0};

	for (int i = 0; i < 3; i++) {
		struct split_rank *r = rank_of(&(struct plan){i, 100 * MS, 60 * MS, 20 * MS, 0, 0});

		for (size_t k = 0; i == 0 && k < r->nsteps; k++)
			r->steps[k].number++;
		split_job_add(&j, r);
	}
	const char *text = job_text(&j);
	CHECK_HAS(text,
		  "Steps 10 to 13 of 3 ranks, of which some traced only a part of these steps:");
	CHECK_HAS(text, "Steps (means of the ranks that traced them)");
	CHECK_HAS(text, "\n            10 ");
	CHECK_HAS(text, "\n            13 ");
	split_job_release(&j);
}

TEST(step_split_job, longer_steps)
{
	struct split_job j = {0};

	for (int i = 0; i < 3; i++) {
		struct plan p = {i, (i == 1 ? 130 : 100) * MS, 60 * MS, 20 * MS, 10 * MS, 0};

		split_job_add(&j, rank_of(&p));
	}
	const char *text = job_text(&j);
	CHECK_INT(j.slowest.verdict, SPLIT_SLOW_STEPS);
	CHECK_INT(j.slowest.why, SPLIT_IDLE);
	CHECK_HAS(text, "Rank 1 is the slowest: its steps take 130.0 ms, those of the others "
			"100.0 ms");
	CHECK_HAS(text, "its device has nothing to do for 60.0 ms of a step, the others 30.0 ms: "
			"its host does not launch in time.");
	CHECK_HAS(text, "50.0 % of it overlaps with compute");
	split_job_release(&j);
}

TEST(step_split_job, even_ranks_one_rank_and_none)
{
	struct split_job j = {0};

	CHECK_HAS(job_text(&j), "no trace");
	split_job_release(&j);
	split_job_add(&j, rank_of(&(struct plan){0, 100 * MS, 60 * MS, 20 * MS, 0, 0}));
	CHECK(!strstr(job_text(&j), "slow"));
	CHECK_INT(j.slowest.verdict, SPLIT_NOT_JUDGED);
	split_job_release(&j);
	for (int i = 0; i < 4; i++)
		split_job_add(&j, rank_of(&(struct plan){i, 100 * MS, (60 + (uint64_t)i % 2) * MS,
							 20 * MS, 0, 0}));
	CHECK_HAS(job_text(&j), "No rank is notably slower");
	json_t *o = split_job_json(&j);
	CHECK_STR(json_string_value(json_object_get(json_object_get(o, "slowest"), "verdict")),
		  "even");
	CHECK_INT(json_array_size(json_object_get(o, "ranks")), 4);
	json_decref(o);
	split_job_release(&j);
}

TEST(step_split_job, names_of_the_job_do_no_harm)
{
	struct split_job j = {0};
	struct split_rank *r = rank_of(&(struct plan){0, 100 * MS, 60 * MS, 20 * MS, 0, 0});

	free(r->kernels[0].name);
	r->kernels[0].name = strdup("\033[2J evil\nname");
	split_job_add(&j, r);
	const char *text = job_text(&j);
	CHECK(strstr(text, "evil") && !strchr(text, '\033') && !strstr(text, "evil\n"));
	split_job_release(&j);
}

/* --- what cannot be compared --- */

/* Killed in its third step, before the device's library had told much of what it did. */
static struct split_rank *killed_rank(int rank, bool tells)
{
	struct step_split *s = step_split_new();
	struct split_rank *r = split_rank_new();

	for (unsigned i = 0; i < 3; i++) {
		uint64_t at = BEGAN + i * 100 * MS;

		step_split_step(s, &(struct split_step){10 + i, at, at + 100 * MS, i < 2});
		if (tells && !i)
			work(s, ACTIVITY_KERNEL, "matmul", at, at + 60 * MS);
	}
	step_split_finish(s, r);
	r->rank = rank;
	r->pid = 100 + (uint32_t)rank;
	free(r->note);
	r->note = strdup("the process was killed or ended before the last step");
	return r;
}

TEST(step_split_job, a_killed_rank_is_not_blamed)
{
	for (unsigned tells = 0; tells < 2; tells++) {
		struct split_job j = {0};

		for (int i = 0; i < 3; i++)
			split_job_add(&j, i == 1 ? killed_rank(i, tells)
						 : rank_of(&(struct plan){i, 100 * MS, 60 * MS,
									  20 * MS, 0, 0}));
		const char *text = job_text(&j);
		CHECK_INT(j.slowest.verdict, SPLIT_EVEN);
		CHECK_INT(j.mean.part_ns[SPLIT_IDLE], 20 * MS);
		CHECK(!strstr(text, "slowest") && !strstr(text, "host does not launch"));
		CHECK(strstr(text, "Rank 1: the process was killed or ended before the last step. "
				   "It is not compared with the others.\nSteps 10") == text);
		json_t *o = split_job_json(&j),
		       *row = json_array_get(json_object_get(o, "rows"), 1);
		CHECK(json_is_false(json_object_get(row, "judged")));
		json_decref(o);
		split_job_release(&j);
	}
}

TEST(step_split_job, all_were_killed)
{
	struct split_job j = {0};

	for (int i = 0; i < 20; i++)
		split_job_add(&j, killed_rank(i, i != 4));
	const char *text = job_text(&j);
	CHECK_INT(j.slowest.verdict, SPLIT_NOT_JUDGED);
	CHECK_INT(j.mean.step_ns, 100 * MS);
	CHECK_HAS(text, "12 more: 20 of 20 are not complete");
	CHECK(!strstr(text, "slowest"));
	split_job_release(&j);
}

TEST(step_split_job, without_work_of_a_device)
{
	struct split_job j = {0};

	for (int i = 0; i < 3; i++) {
		struct split_rank *r = rank_of(
			&(struct plan){i, (i == 1 ? 130 : 100) * MS, 60 * MS, 20 * MS, 0, 0});

		if (i == 1) {
			free(r->devices[0].steps);
			r->ndevices = 0;
		}
		split_job_add(&j, r);
	}
	const char *text = job_text(&j);
	CHECK_INT(j.slowest.verdict, SPLIT_EVEN);
	CHECK_HAS(text,
		  "1 rank reported no work of a device, and cannot be compared with the others");
	split_job_release(&j);
}

/* --- several jobs --- */

static struct split_rank *rank_of_job(int rank, uint32_t pid, uint64_t compute, const char *job,
				      const char *parent)
{
	struct split_rank *r =
		rank_of(&(struct plan){rank, 100 * MS, compute, 90 * MS - compute, 0, 0});

	r->pid = pid;
	free(r->job);
	free(r->parent);
	r->job = strdup(job);
	r->parent = strdup(parent);
	return r;
}

TEST(step_split_job, two_jobs_by_their_parents)
{
	struct split_job j = {0};

	/* In the first job rank 1 is late, the second is even. */
	split_job_add(&j, rank_of_job(0, 500, 40 * MS, "", "node0:9"));
	split_job_add(&j, rank_of_job(1, 501, 80 * MS, "", "node0:9"));
	split_job_add(&j, rank_of_job(0, 600, 20 * MS, "", "node0:7"));
	split_job_add(&j, rank_of_job(1, 601, 20 * MS, "", "node0:7"));
	const char *text = job_text(&j);
	CHECK_INT(j.slowest.verdict, SPLIT_SEVERAL_JOBS);
	CHECK_INT(j.njobs, 2);
	CHECK(strstr(text, "These are 2 jobs in one trace.") == text);
	CHECK_HAS(text, "Job 1 of 2 (started by node0:9)\nSteps 10 to 12 of 2 ranks");
	CHECK_HAS(text, "Rank 1 is the slowest");
	CHECK_HAS(strstr(text, "Job 2 of 2"), "No rank is notably slower");
	CHECK_INT(j.jobs[0].slowest.verdict, SPLIT_WAITED_FOR);
	CHECK_INT(j.jobs[1].slowest.verdict, SPLIT_EVEN);
	json_t *o = split_job_json(&j), *jobs = json_object_get(o, "jobs");
	CHECK_INT(json_array_size(jobs), 2);
	CHECK_STR(json_string_value(json_object_get(json_object_get(o, "slowest"), "verdict")),
		  "several jobs");
	CHECK_INT(json_array_size(json_object_get(json_array_get(jobs, 1), "rows")), 2);
	json_decref(o);
	split_job_release(&j);
}

TEST(step_split_job, two_jobs_that_describe_so)
{
	struct split_job j = {0};

	/* On two hosts each, so that their parents say nothing; no rank comes twice. */
	split_job_add(&j, rank_of_job(0, 500, 40 * MS, "a:1", "node0:9"));
	split_job_add(&j, rank_of_job(1, 501, 40 * MS, "a:1", "node1:9"));
	split_job_add(&j, rank_of_job(2, 600, 20 * MS, "b:1", "node0:7"));
	split_job_add(&j, rank_of_job(3, 601, 20 * MS, "b:1", "node1:7"));
	job_text(&j);
	CHECK_INT(j.njobs, 2);
	CHECK_INT(j.jobs[0].nranks, 2);
	CHECK_STR(j.jobs[1].ranks[0]->job, "b:1");
	split_job_release(&j);
	/* Two that had the same environment. */
	for (int i = 0; i < 4; i++)
		split_job_add(&j, rank_of_job(i / 2, 500 + (uint32_t)i, 40 * MS, "a:1",
					      i % 2 ? "node0:9" : "node0:7"));
	job_text(&j);
	CHECK_INT(j.njobs, 2);
	split_job_release(&j);
}

TEST(step_split_job, jobs_that_cannot_be_told_apart)
{
	struct split_job j = {0};
	static const char *const parents[] = {"", "n:1", "n:2", "n:3", "n:4"};

	for (unsigned own = 0; own < 2; own++) {
		for (int i = 0; i < 4; i++)
			split_job_add(&j,
				      rank_of_job(i / 2, 500 + (uint32_t)i, (i == 1 ? 80 : 40) * MS,
						  "", parents[own ? i + 1 : 0]));
		const char *text = job_text(&j);
		CHECK_INT(j.njobs, 0);
		CHECK(strstr(text, "Ranks come more than once: these are several jobs") == text);
		CHECK(!strstr(text, "slowest"));
		split_job_release(&j);
	}
	/* Jobs of one rank each. */
	for (int i = 0; i < 2; i++)
		split_job_add(&j, rank_of_job(0, 500 + (uint32_t)i, 40 * MS, "", parents[i + 1]));
	CHECK_HAS(job_text(&j), "Job 2 of 2 (started by n:2)");
	split_job_release(&j);
}

TEST(step_split_job, one_job_on_two_hosts_is_one)
{
	struct split_job j = {0};

	for (int i = 0; i < 4; i++)
		split_job_add(&j, rank_of_job(i, 500 + (uint32_t)i, 40 * MS, "",
					      i < 2 ? "n0:1" : "n1:1"));
	job_text(&j);
	CHECK_INT(j.slowest.verdict, SPLIT_EVEN);
	split_job_release(&j);
}

/* --- files --- */

static void put_rank(const char *dir, struct split_rank *r)
{
	char name[512], path[1024];
	struct err err = {0};
	struct buf text = text_of(r);

	snprintf(name, sizeof(name), "%s/%s_%u_20260101000000000_sonde", dir, r->host, r->pid);
	snprintf(path, sizeof(path), "%s/summary.json", name);
	CHECK_INT(fs_mkdirs(name, &err), 0);
	CHECK_INT(fs_write_atomic(path, &text, 0640, &err), 0);
	buf_release(&text);
	split_rank_free(r);
}

TEST(step_split_job, summary_of_a_request)
{
	const char *dir = tmpdir();
	struct err err = {0};
	struct split_job j = {0};
	struct buf text = {0};

	CHECK_INT(split_job_read(&j, dir, NULL, &err), -ENOENT);
	CHECK_HAS(err.text, "--log-file");
	for (int i = 0; i < 3; i++) {
		put_rank(dir, rank_of(&(struct plan){i, 100 * MS, 60 * MS, 20 * MS, 0, 0}));
		CHECK_INT(split_files_write(dir, "4711", &err), 0);
	}
	CHECK_INT(fs_read_file(tmpfile_path("summary_4711.txt"), 1 << 20, &text, &err), 0);
	CHECK_HAS(buf_str(&text), "of 3 ranks");
	CHECK(access(tmpfile_path("summary_4711.json"), R_OK) == 0);
	CHECK(access(tmpfile_path(".summary_4711.lock"), F_OK) < 0);
	/* Of another request, earlier: not in it; damaged: said. */
	struct split_rank *other = rank_of(&(struct plan){9, 50 * MS, 20 * MS, 20 * MS, 0, 0});
	free(other->request);
	other->request = strdup("12");
	put_rank(dir, other);
	CHECK_INT(fs_mkdirs(tmpfile_path("x_1_2_sonde"), &err), 0);
	CHECK_INT(split_job_read(&j, dir, "4711", &err), 0);
	CHECK_INT(j.nranks, 3);
	CHECK(j.notes && strstr(j.notes, "x_1_2_sonde"));
	split_job_release(&j);
	/* One directory alone. */
	CHECK_INT(split_job_read(&j, tmpfile_path("node0_101_20260101000000000_sonde"), NULL, &err),
		  0);
	CHECK_INT(j.nranks, 1);
	split_job_release(&j);
	buf_release(&text);
}

/* Ranks end at the same time, each in a process of its own: the last one sees all. */
TEST(step_split_job, ranks_that_end_together)
{
	const char *dir = tmpdir();
	struct err err = {0};
	struct buf text = {0};
	pid_t pids[8];

	for (int i = 0; i < 8; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (pids[i])
			continue;
		put_rank(dir, rank_of(&(struct plan){i, 100 * MS, 60 * MS, 20 * MS, 0, 0}));
		_exit(split_files_write(dir, "4711", &err) < 0);
	}
	for (int i = 0; i < 8; i++) {
		int status;

		CHECK(waitpid(pids[i], &status, 0) == pids[i]);
		CHECK_INT(status, 0);
	}
	CHECK_INT(fs_read_file(tmpfile_path("summary_4711.txt"), 1 << 20, &text, &err), 0);
	CHECK_HAS(buf_str(&text), "of 8 ranks");
	CHECK(access(tmpfile_path(".summary_4711.lock"), F_OK) < 0);
	buf_release(&text);
}

/* Who finds another at it waits, and reads only then. */
TEST(step_split_job, one_rank_at_a_time)
{
	const char *dir = tmpdir();
	struct err err = {0};
	struct buf text = {0};
	int status;

	put_rank(dir, rank_of(&(struct plan){0, 100 * MS, 60 * MS, 20 * MS, 0, 0}));
	int lock = open(tmpfile_path(".summary_4711.lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	CHECK(lock >= 0 && flock(lock, LOCK_EX) == 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		_exit(close(lock) || split_files_write(dir, "4711", &err) < 0);
	usleep(150000);
	put_rank(dir, rank_of(&(struct plan){1, 100 * MS, 60 * MS, 20 * MS, 0, 0}));
	CHECK(unlink(tmpfile_path(".summary_4711.lock")) == 0 && flock(lock, LOCK_UN) == 0);
	close(lock);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK_INT(fs_read_file(tmpfile_path("summary_4711.txt"), 1 << 20, &text, &err), 0);
	CHECK_HAS(buf_str(&text), "of 2 ranks");
	buf_release(&text);
}

TEST(step_split_job, one_order_on_two_hosts)
{
	const char *dir = tmpdir();
	struct err err = {0};
	struct split_job j = {0};

	for (int i = 0; i < 4; i++) {
		struct split_rank *r = rank_of(&(struct plan){i, 100 * MS, 60 * MS, 20 * MS, 0, 0});

		if (i >= 2) {
			free(r->host);
			r->host = strdup("node1");
			free(r->request);
			r->request = strdup("9");
		}
		put_rank(dir, r);
	}
	CHECK_INT(split_job_read(&j, dir, NULL, &err), 0);
	CHECK_INT(j.nranks, 4);
	split_job_release(&j);
	CHECK_INT(split_job_read(&j, dir, "9", &err), 0);
	CHECK_INT(j.nranks, 2);
	split_job_release(&j);
}
