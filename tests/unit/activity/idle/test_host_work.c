/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Why devices idle, against what is planted; each nanosecond once. */
#include "activity/idle/host_work.h"

#include "../../step_ranks.h"
#include "activity/steps/idle_text.h"
#include "test.h"

#define US 1000ull
#define LOADER "torch/utils/data/dataloader.py(628): __next__"
#define TRAIN "/srv/train.py(18): train"
#define MAIN 100

/* What a step of 10 ms does from BEGAN on: the device works in its last 2 ms. */
static struct split_rank *rank_with(struct host_work *h, unsigned steps)
{
	struct step_split *s = step_split_new();
	struct split_rank *r = split_rank_new();

	for (unsigned i = 0; i < steps; i++) {
		uint64_t at = BEGAN + i * 10 * MS;

		step(s, 1 + i, at, at + 10 * MS);
		work(s, ACTIVITY_KERNEL, "matmul", at + 8 * MS, at + 10 * MS);
	}
	step_split_host(s, h);
	step_split_finish(s, r);
	host_work_release(h);
	r->rank = 0;
	return r;
}

static void add(struct host_work *h, uint64_t thread, enum host_kind kind, const char *name,
		uint64_t from_us, uint64_t to_us)
{
	h->main_thread = MAIN;
	host_work_add(h, thread, kind, name, BEGAN + from_us * US, BEGAN + to_us * US);
}

static uint64_t us_of(const struct split_rank *r, enum idle_why why)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < r->idle.nreasons; i++)
		if (r->idle.reasons[i].why == why)
			sum += r->idle.reasons[i].ns;
	CHECK_INT(sum % US, 0);
	return sum / US;
}

static void check_sums(const struct split_rank *r)
{
	uint64_t reasons = 0, shares = 0, idle = 0;

	for (size_t i = 0; i < r->idle.nreasons; i++)
		reasons += r->idle.reasons[i].ns;
	for (size_t i = 0; i < r->idle.nshares; i++)
		shares += r->idle.shares[i].ns;
	for (size_t i = 0; i < r->ndevices; i++)
		idle += r->devices[i].all.part_ns[SPLIT_IDLE];
	CHECK_INT(reasons, idle);
	CHECK_INT(shares, idle);
	CHECK_INT(r->idle.ns, idle);
}

TEST(host_work, one_reason_for_every_moment)
{
	struct host_work h = {0};

	add(&h, MAIN, HOST_PYTHON, TRAIN, 0, 9000);
	add(&h, MAIN, HOST_PYTHON, LOADER, 1000, 4000);
	add(&h, MAIN, HOST_PYTHON, "/srv/data.py(12): __getitem__", 1500, 4000);
	add(&h, MAIN, HOST_PYTHON, "<garbage collection>", 2000, 3000);
	add(&h, MAIN, HOST_CALL, "cudaMalloc", 5000, 6000);
	add(&h, MAIN, HOST_CALL, "cudaLaunchKernel", 7900, 8000);
	struct split_rank *r = rank_with(&h, 2);
	check_sums(r);
	CHECK_INT(us_of(r, IDLE_COLLECTOR), 1000);
	CHECK_INT(us_of(r, IDLE_DATA), 2000);
	CHECK_INT(us_of(r, IDLE_ALLOCATION), 1000);
	CHECK_INT(us_of(r, IDLE_PYTHON), 4000);
	CHECK_INT(us_of(r, IDLE_UNKNOWN), 8000); /* the second step */
	CHECK_INT(r->idle.python_ns, 8000 * US);
	CHECK(r->idle.python && r->idle.calls && r->idle.looked);
	split_rank_free(r);
}

TEST(host_work, names_the_users_line)
{
	struct host_work h = {0};
	struct split_job j = {0};

	add(&h, MAIN, HOST_PYTHON, TRAIN, 0, 10000);
	add(&h, MAIN, HOST_PYTHON, LOADER, 0, 8000);
	add(&h, MAIN, HOST_PYTHON, "/srv/data.py(12): __getitem__", 10, 8000);
	struct split_rank *r = rank_with(&h, 1);
	check_sums(r);
	split_job_add(&j, r);
	const char *text = job_text(&j);
	CHECK_HAS(text, "The devices idle 80.0 % of the time. Meanwhile:\n"
			"79.9 points: rank 0 waits for its data loader: __next__ "
			"(torch/utils/data/dataloader.py:628) > __getitem__ (data.py:12), from "
			"train (train.py:18).\n");
	CHECK_HAS(text, "Python is known for 100.0 % of the idle time; 0.0 % has no explanation.");
	split_job_release(&j);
}

TEST(host_work, the_line_of_the_call)
{
	struct host_work h = {0};

	add(&h, MAIN, HOST_PYTHON, TRAIN, 0, 10000);
	host_work_add_from(&h, MAIN, LOADER, 31, BEGAN, BEGAN + 4 * MS);
	host_work_add_from(&h, MAIN, "/srv/model.py(7): forward", 32, BEGAN + 4 * MS,
			   BEGAN + 8 * MS);
	add(&h, MAIN, HOST_CALL, "cudaMalloc", 5000, 6000);
	struct split_rank *r = rank_with(&h, 1);
	check_sums(r);
	CHECK_INT(r->idle.nreasons, 3);
	CHECK_STR(r->idle.reasons[0].where, "train (train.py:31)");
	CHECK_STR(r->idle.reasons[1].where, "forward (model.py:7)");
	CHECK_STR(r->idle.reasons[2].where, "forward (model.py:7)");
	split_rank_free(r);
}

TEST(host_work, the_thread_that_launches_counts)
{
	struct host_work h = {0};

	/* the main thread waits for one that serves */
	add(&h, MAIN, HOST_PYTHON, "threading.py(1100): join", 0, 8000);
	add(&h, 7, HOST_PYTHON, "/srv/serve.py(5): serve", 0, 8000);
	for (unsigned i = 0; i < 20; i++)
		add(&h, 7, HOST_CALL, "cudaLaunchKernel", 7000 + i, 7001 + i);
	/* a thread that does something else is nobody's reason */
	add(&h, 8, HOST_PYTHON, "/srv/board.py(5): write_board", 0, 9000);
	struct split_rank *r = rank_with(&h, 1);
	check_sums(r);
	CHECK_INT(us_of(r, IDLE_PYTHON), 8000);
	for (size_t i = 0; i < r->idle.nreasons; i++)
		CHECK_STR(r->idle.reasons[i].where, "serve (serve.py:5)");
	split_rank_free(r);
}

TEST(host_work, autograd_launches_for_the_main_thread)
{
	struct host_work h = {0};

	add(&h, MAIN, HOST_PYTHON, TRAIN, 0, 8000);
	for (unsigned i = 0; i < 20; i++)
		add(&h, MAIN, HOST_CALL, "cudaLaunchKernel", 100 + i, 101 + i);
	add(&h, 9, HOST_PYTHON, "/srv/hooks.py(3): hook", 6000, 6100);
	for (unsigned i = 0; i < 60; i++)
		add(&h, 9, HOST_CALL, "cudaLaunchKernel", 7000 + i, 7001 + i);
	add(&h, 9, HOST_CALL, "cudaMalloc", 7500, 7700);
	struct split_rank *r = rank_with(&h, 1);
	check_sums(r);
	CHECK_INT(us_of(r, IDLE_ALLOCATION), 200);
	CHECK_INT(us_of(r, IDLE_PYTHON), 7800);
	for (size_t i = 0; i < r->idle.nreasons; i++)
		CHECK_STR(r->idle.reasons[i].where, "train (train.py:18)");
	split_rank_free(r);
}

TEST(host_work, without_python_what_is_called)
{
	struct host_work h = {0};
	struct split_job j = {0};

	add(&h, MAIN, HOST_RANGE, "forward", 0, 5000);
	add(&h, MAIN, HOST_CALL, "aclrtSynchronizeStream", 3000, 4000);
	struct split_rank *r = rank_with(&h, 1);
	check_sums(r);
	CHECK_INT(us_of(r, IDLE_CALL), 4000);
	CHECK_INT(us_of(r, IDLE_SYNC), 1000);
	CHECK_INT(us_of(r, IDLE_UNKNOWN), 3000);
	split_job_add(&j, r);
	const char *text = job_text(&j);
	CHECK_HAS(text,
		  "Of the idle time 37.5 % has no explanation.\nNo Python is known of rank 0: ");
	split_job_release(&j);
}

/* Slices that begin and end in calls of their own, and some that never end. */
TEST(host_work, begins_and_ends)
{
	struct host_work h = {.main_thread = MAIN};

	host_work_end(&h, MAIN, BEGAN);
	host_work_begin(&h, MAIN, HOST_PYTHON, TRAIN, BEGAN);
	host_work_begin(&h, MAIN, HOST_PYTHON, LOADER, BEGAN + MS);
	host_work_end(&h, MAIN, BEGAN + 3 * MS);
	struct split_rank *r = rank_with(&h, 1);
	check_sums(r);
	CHECK_INT(us_of(r, IDLE_DATA), 2000);
	CHECK_INT(us_of(r, IDLE_PYTHON), 6000);
	split_rank_free(r);
}

TEST(host_work, json_and_back)
{
	static const char *const wrong[][2] = {
		{"\"why\": \"data loader\"", "\"why\": \"weather\""},
		{"\"times\": 1", "\"times\": 0"},
		{"\"reason_index\": 0", "\"reason_index\": 9"},
		{"\"step_index\": 0", "\"step_index\": 1"},
		{"\"python_ns\": 8", "\"python_ns\": 9"},
		{"\"ns\": 2", "\"ns\": 3"},
	};
	struct host_work h = {0};
	struct err err = {0};

	add(&h, MAIN, HOST_PYTHON, TRAIN, 0, 8000);
	add(&h, MAIN, HOST_PYTHON, LOADER, 1000, 3000);
	struct split_rank *r = rank_with(&h, 1);
	struct buf text = text_of(r);
	struct split_rank *back = split_rank_read(text.data, text.len, &err);
	CHECK(back);
	CHECK_INT(back->idle.nreasons, 2);
	CHECK_INT(back->idle.python_ns, 8 * MS);
	struct buf again = text_of(back);
	CHECK_STR(buf_str(&again), buf_str(&text));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const char *at = strstr(buf_str(&text), wrong[i][0]);
		struct buf bad = {0};

		CHECK(at);
		buf_add(&bad, text.data, (size_t)(at - text.data));
		buf_add_str(&bad, wrong[i][1]);
		buf_add_str(&bad, at + strlen(wrong[i][0]));
		CHECK(!split_rank_read(bad.data, bad.len, &err));
		buf_release(&bad);
	}
	split_rank_free(back);
	split_rank_free(r);
	buf_release(&text);
	buf_release(&again);
}

/* Anything at any time: the reasons add up. */
TEST(host_work, all_reasons_add_up)
{
	static const char *const names[] = {
		TRAIN, LOADER, "cudaMalloc", "cudaLaunchKernel", "<garbage collection>", "x"};
	uint64_t seed = 1;

	for (unsigned round = 0; round < 50; round++) {
		struct host_work h = {0};

		for (unsigned i = 0; i < 200; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			unsigned name = (unsigned)(seed >> 60) % 6;
			uint64_t from = seed >> 20 & 0x7fff, len = seed >> 40 & 0xfff;

			add(&h, MAIN + (seed >> 55 & 1),
			    name == 2 || name == 3 ? HOST_CALL : HOST_PYTHON, names[name], from,
			    from + len);
		}
		struct split_rank *r = rank_with(&h, 3);
		check_sums(r);
		split_rank_free(r);
	}
}

TEST(host_work, the_slowest_rank_and_its_reason)
{
	struct split_job j = {0};

	for (int rank = 0; rank < 3; rank++) {
		struct host_work h = {0};
		uint64_t late = rank == 1 ? 40 * MS : 0;
		struct step_split *s = step_split_new();
		struct split_rank *r = split_rank_new();

		for (unsigned i = 0; i < 3; i++) {
			uint64_t at = BEGAN + i * 100 * MS;

			step(s, 1 + i, at, at + 100 * MS);
			work(s, ACTIVITY_KERNEL, "matmul", at + late, at + late + 40 * MS);
			work(s, ACTIVITY_COMMUNICATION, "hcom_allReduce_", at + late + 40 * MS,
			     at + 100 * MS);
			add(&h, MAIN, HOST_PYTHON, TRAIN, i * 100000, i * 100000 + 99000);
			add(&h, MAIN, HOST_PYTHON, LOADER, i * 100000, i * 100000 + late / US);
		}
		step_split_host(s, &h);
		step_split_finish(s, r);
		host_work_release(&h);
		r->rank = rank;
		r->pid = 100 + (uint32_t)rank;
		split_job_add(&j, r);
	}
	const char *text = job_text(&j);
	CHECK_HAS(text, "13.3 points: rank 1 waits for its data loader: ");
	CHECK_HAS(text, "Rank 1 is the slowest: the others wait for it in communication.");
	CHECK_HAS(text,
		  "For 40.0 ms of that (the others 0 s) it waits for its data loader: __next__");
	json_t *o = split_job_json(&j);
	json_t *idle = json_object_get(o, "idle");
	CHECK_STR(json_string_value(json_object_get(json_object_get(idle, "slowest"), "why")),
		  "data loader");
	CHECK_INT(json_array_size(json_object_get(idle, "reasons")), 1);
	json_decref(o);
	split_job_release(&j);
}
