/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Where the time of a step goes: sets of spans against a bitmap, ranks and jobs by hand. */
#include "analyze/step_split_files.h"
#include "analyze/step_split_spans.h"
#include "base/fs.h"
#include "test.h"
#include "tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/wait.h>

/* --- spans, against one byte per moment --- */

#define MOMENTS 240

static uint64_t seed = 88172645463325252ull;

static uint64_t dice(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

static void roll(struct spans *s, bool *map, unsigned n)
{
	memset(map, 0, MOMENTS);
	for (unsigned i = 0; i < n; i++) {
		uint64_t start = dice(MOMENTS), len = dice(MOMENTS / 6), end = start + len;

		if (end > MOMENTS)
			end = MOMENTS;
		spans_add(s, start, end);
		for (uint64_t k = start; k < end; k++)
			map[k] = true;
	}
	spans_tidy(s);
}

static void check_spans(const struct spans *s, const bool *map)
{
	uint64_t length = 0;
	bool got[MOMENTS + 1] = {false};

	for (size_t i = 0; i < s->n; i++) {
		CHECK(s->at[i].start < s->at[i].end);
		CHECK(!i || s->at[i - 1].end < s->at[i].start);
		for (uint64_t k = s->at[i].start; k < s->at[i].end; k++)
			got[k] = true;
	}
	for (unsigned k = 0; k < MOMENTS; k++) {
		CHECK_INT(got[k], map[k]);
		length += map[k];
	}
	CHECK_INT(spans_length(s), length);
}

static void check_within(const struct spans *s, const bool *map)
{
	size_t at = 0;

	for (uint64_t from = 0; from < MOMENTS;) {
		uint64_t to = from + dice(30), want = 0;

		if (to > MOMENTS)
			to = MOMENTS;
		for (uint64_t k = from; k < to; k++)
			want += map[k];
		CHECK_INT(spans_within(s, from, to, &at), want);
		from = to + dice(2);
		if (to == from)
			from += !dice(3); /* also the same moment again */
	}
}

TEST(step_split, spans_are_sets_of_moments)
{
	for (unsigned round = 0; round < 3000; round++) {
		struct spans a = {0}, b = {0}, both = {0}, rest = {0};
		bool in_a[MOMENTS], in_b[MOMENTS], want[MOMENTS];

		roll(&a, in_a, (unsigned)dice(20));
		roll(&b, in_b, (unsigned)dice(20));
		check_spans(&a, in_a);
		check_within(&a, in_a);
		spans_union(&a, &b, &both);
		for (unsigned k = 0; k < MOMENTS; k++)
			want[k] = in_a[k] || in_b[k];
		check_spans(&both, want);
		spans_minus(&a, &b, &rest);
		for (unsigned k = 0; k < MOMENTS; k++)
			want[k] = in_a[k] && !in_b[k];
		check_spans(&rest, want);
		check_within(&rest, want);
		spans_release(&a);
		spans_release(&b);
		spans_release(&both);
		spans_release(&rest);
	}
}

TEST(step_split, spans_at_the_edges_of_time)
{
	struct spans s = {0};
	size_t at = 0;

	spans_add(&s, 5, 5);
	spans_add(&s, 7, 6);
	CHECK_INT(s.n, 0);
	spans_tidy(&s);
	CHECK_INT(spans_length(&s), 0);
	CHECK_INT(spans_within(&s, 0, UINT64_MAX, &at), 0);
	spans_add(&s, UINT64_MAX - 1, UINT64_MAX);
	spans_add(&s, 0, 1);
	spans_tidy(&s);
	CHECK_INT(s.n, 2);
	CHECK_INT(spans_within(&s, 0, UINT64_MAX, &at), 2);
	spans_release(&s);
}

/* --- a rank --- */

static void work(struct step_split *s, uint8_t kind, const char *name, uint64_t start, uint64_t end)
{
	struct activity a = {.kind = kind,
			     .place = ACTIVITY_ON_DEVICE,
			     .name = name,
			     .detail = "",
			     .more = "",
			     .start_ns = start,
			     .end_ns = end,
			     .device = 3};

	step_split_add(s, &a, true);
}

static void step(struct step_split *s, uint64_t number, uint64_t start, uint64_t end)
{
	step_split_step(s, &(struct split_step){number, start, end, true});
}

/* The parts of every step against a clock that ticks every nanosecond. */
TEST(step_split, parts_against_every_moment)
{
	for (unsigned round = 0; round < 400; round++) {
		struct step_split *s = step_split_new();
		struct split_rank *r = split_rank_new();
		bool busy[3][MOMENTS] = {{false}};
		static const uint8_t kinds[] = {ACTIVITY_KERNEL, ACTIVITY_COMMUNICATION,
						ACTIVITY_MEMCPY};
		uint64_t bounds[6];
		unsigned nbounds = 2 + (unsigned)dice(4);

		for (unsigned i = 0; i < 1 + dice(30); i++) {
			unsigned part = (unsigned)dice(3);
			uint64_t from = dice(MOMENTS), to = from + dice(40);

			to = to > MOMENTS ? MOMENTS : to;
			work(s, kinds[part], "k", from, to);
			for (uint64_t k = from; k < to; k++)
				busy[part][k] = true;
		}
		for (unsigned i = 0; i < nbounds; i++)
			bounds[i] = (i ? bounds[i - 1] : 0) + dice(MOMENTS / nbounds);
		for (unsigned i = 0; i + 1 < nbounds; i++)
			step(s, 10 + i, bounds[i], bounds[i + 1]);
		step_split_finish(s, r);
		CHECK_INT(r->ndevices, 1);
		for (unsigned i = 0; i + 1 < nbounds; i++) {
			uint64_t want[SPLIT_PARTS] = {0}, comm = 0;
			const struct split_times *t = &r->devices[0].steps[i];

			for (uint64_t k = bounds[i]; k < bounds[i + 1]; k++) {
				comm += busy[1][k];
				want[busy[0][k]	  ? SPLIT_COMPUTE
				     : busy[1][k] ? SPLIT_COMM
				     : busy[2][k] ? SPLIT_COPY
						  : SPLIT_IDLE]++;
			}
			for (unsigned p = 0; p < SPLIT_PARTS; p++)
				CHECK_INT(t->part_ns[p], want[p]);
			CHECK_INT(t->comm_ns, comm);
			CHECK_INT(t->step_ns, bounds[i + 1] - bounds[i]);
		}
		split_rank_free(r);
	}
}

TEST(step_split, kernels_by_name)
{
	struct step_split *s = step_split_new();
	struct split_rank *r = split_rank_new();
	static const char slow[] = "slow", fast[] = "fast";

	step(s, 0, 0, 100000);
	for (unsigned i = 0; i < 100; i++)
		work(s, ACTIVITY_KERNEL, fast, i * 100, i * 100 + 1 + i);
	for (unsigned i = 0; i < 3; i++)
		work(s, ACTIVITY_KERNEL, slow, i * 9000, i * 9000 + 3000);
	work(s, ACTIVITY_MEMCPY, "", 40000, 40010);
	step_split_add(s,
		       &(struct activity){.kind = ACTIVITY_KERNEL,
					  .name = "of before",
					  .start_ns = 0,
					  .end_ns = 50000,
					  .device = 3},
		       false);
	step_split_finish(s, r);
	CHECK_INT(r->nkernels, 3);
	CHECK_STR(r->kernels[0].name, "slow");
	CHECK_INT(r->kernels[0].calls, 3);
	CHECK_INT(r->kernels[0].total_ns, 9000);
	CHECK_INT(r->kernels[0].p99_ns, 3000);
	CHECK_STR(r->kernels[1].name, "fast");
	CHECK_INT(r->kernels[1].p99_ns, 99);
	CHECK_INT(r->kernels[1].max_ns, 100);
	CHECK_INT(r->kernels[1].total_ns, 5050);
	CHECK_STR(r->kernels[2].name, "memcpy");
	/* The step is busy with what was launched before it. */
	CHECK_INT(r->devices[0].steps[0].part_ns[SPLIT_COMPUTE], 50000);
	split_rank_free(r);
}

TEST(step_split, collectives_by_their_names)
{
	static const char *const comm[] = {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)",
					   "hcom_allReduce_", "HcclAllGather"};
	struct activity a = {.kind = ACTIVITY_KERNEL, .name = "void gemm<…>(…)"};

	CHECK_INT(split_part_of(&a), SPLIT_COMPUTE);
	for (unsigned i = 0; i < 3; i++) {
		a.name = comm[i];
		CHECK_INT(split_part_of(&a), SPLIT_COMM);
	}
	a.kind = ACTIVITY_RUNTIME_API;
	CHECK_INT(split_part_of(&a), SPLIT_IDLE);
	a.kind = ACTIVITY_MARKER;
	CHECK_INT(split_part_of(&a), SPLIT_IDLE);
}

TEST(step_split, most_kernels_are_kept_by_name)
{
	struct step_split *s = step_split_new();
	struct split_rank *r = split_rank_new();
	static char names[SPLIT_MAX_KERNELS + 5][16];

	step(s, 0, 0, 1000000);
	for (unsigned i = 0; i < SPLIT_MAX_KERNELS + 5; i++) {
		snprintf(names[i], sizeof(names[i]), "k%u", i);
		work(s, ACTIVITY_KERNEL, names[i], 0, 10 + i);
	}
	step_split_finish(s, r);
	CHECK_INT(r->nkernels, SPLIT_MAX_KERNELS);
	CHECK_INT(r->other_names, 5);
	CHECK_INT(r->other_calls, 5);
	CHECK_INT(r->other_ns, 10 + 11 + 12 + 13 + 14);
	split_rank_free(r);
}

/* --- as JSON, and back --- */

#define MS 1000000ull
#define BEGAN 1700000000000000000ull

struct plan {
	int rank;
	uint64_t step, compute, comm, hidden, copy;
};

/* Three steps of a rank as planned: compute, beside the end of which communication runs. */
static struct split_rank *rank_of(const struct plan *p)
{
	struct step_split *s = step_split_new();
	struct split_rank *r = split_rank_new();

	for (unsigned i = 0; i < 3; i++) {
		uint64_t at = BEGAN + i * p->step, done = at + p->compute;

		step(s, 10 + i, at, at + p->step);
		work(s, ACTIVITY_KERNEL, "matmul", at, done);
		work(s, ACTIVITY_COMMUNICATION, "hcom_allReduce_", done - p->hidden,
		     done - p->hidden + p->comm);
		if (p->copy)
			work(s, ACTIVITY_MEMCPY, "", done + p->comm, done + p->comm + p->copy);
	}
	step_split_finish(s, r);
	r->rank = p->rank;
	r->pid = 100 + (uint32_t)p->rank;
	free(r->host);
	r->host = strdup("node0");
	free(r->request);
	r->request = strdup("4711");
	return r;
}

static struct buf text_of(const struct split_rank *r)
{
	json_t *o = split_rank_json(r);
	char *text = json_dumps(o, JSON_SORT_KEYS);
	struct buf out = {0};

	buf_add_str(&out, text);
	free(text);
	json_decref(o);
	return out;
}

TEST(step_split, json_and_back)
{
	struct split_rank *r = rank_of(&(struct plan){2, 100 * MS, 60 * MS, 20 * MS, 5 * MS, MS});
	struct err err = {0};

	r->lost = 3;
	r->left_out = 4;
	struct buf text = text_of(r);
	struct split_rank *back = split_rank_read(text.data, text.len, &err);
	CHECK(back);
	CHECK_INT(back->whole_steps, 3);
	CHECK_INT(back->devices[0].all.step_ns, 300 * MS);
	CHECK_INT(back->devices[0].all.part_ns[SPLIT_COMM], 45 * MS);
	struct buf again = text_of(back);
	CHECK_STR(buf_str(&again), buf_str(&text));
	/* Cut anywhere it is no answer. */
	for (size_t n = 0; n < text.len; n += 7)
		CHECK(!split_rank_read(text.data, n, &err));
	split_rank_free(back);
	split_rank_free(r);
	buf_release(&text);
	buf_release(&again);
}

TEST(step_split, json_that_does_not_add_up)
{
	struct split_rank *r = rank_of(&(struct plan){0, 100 * MS, 60 * MS, 20 * MS, 5 * MS, 0});
	struct err err = {0};
	static const char *const wrong[][2] = {
		{"\"compute_ns\": 60000000", "\"compute_ns\": 60000001"},
		{"\"compute_ns\": 60000000", "\"compute_ns\": -1"},
		{"\"pid\": 100", "\"pid\": 4294967296"},
		{"\"version\": 1", "\"version\": 2"},
		{"\"calls\": 3", "\"calls\": 0"},
		{"\"part\": \"compute\"", "\"part\": \"idle\""},
		{"\"device\": 3", "\"device\": \"3\""},
		{"sonde-steps", "sonde-sleeps"},
	};

	struct buf text = text_of(r);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const char *at = strstr(buf_str(&text), wrong[i][0]);
		struct buf bad = {0};

		CHECK(at);
		buf_add(&bad, text.data, (size_t)(at - text.data));
		buf_add_str(&bad, wrong[i][1]);
		buf_add_str(&bad, at + strlen(wrong[i][0]));
		CHECK(!split_rank_read(bad.data, bad.len, &err));
		CHECK(err.code < 0 && *err.text);
		buf_release(&bad);
	}
	split_rank_free(r);
	buf_release(&text);
}

/* --- jobs --- */

static const char *job_text(struct split_job *j)
{
	static struct buf out;

	split_job_judge(j);
	buf_clear(&out);
	split_job_text(j, 10, &out);
	return buf_str(&out);
}

#define CHECK_HAS(text, part)                                                                      \
	do {                                                                                       \
		if (!strstr(text, part)) {                                                         \
			fprintf(stderr, "%s:%d: no '%s' in:\n%s\n", __FILE__, __LINE__, part,      \
				text);                                                             \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

TEST(step_split, the_others_wait_for_the_slow_one)
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

TEST(step_split, longer_steps)
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
	CHECK_HAS(text, "50.0 % of it runs behind compute");
	split_job_release(&j);
}

TEST(step_split, even_ranks_one_rank_and_none)
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

TEST(step_split, names_of_the_job_do_no_harm)
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

TEST(step_split, summary_of_a_request)
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
TEST(step_split, ranks_that_end_together)
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
TEST(step_split, one_rank_at_a_time)
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

TEST(step_split, one_order_on_two_hosts)
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
