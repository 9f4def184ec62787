/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The source of activities of Ascend's devices, from the library's buffers to the ring. */
#include "device/ascend/activity/mspti.h"

#include "fake_mspti.h"
#include "jobs.h"

#define ALL UINT32_MAX

static void run(void (*fn)(void))
{
	struct timespec t;

	job_session(0, 256, 0);
	clock_gettime(CLOCK_REALTIME, &t);
	job_page->wall_minus_mono_ns =
		(int64_t)t.tv_sec * 1000000000 + t.tv_nsec - (int64_t)hand_now();
	job_follow(job_start(fn));
	CHECK_INT(job_ends[0].lost_events, 0);
	CHECK_INT(job_ends[0].damaged, 0);
}

static uint64_t difference(void)
{
	return (uint64_t)job_page->wall_minus_mono_ns;
}

/* The n-th activity, from 0. */
static const struct rec_activity *nth(size_t n)
{
	for (size_t i = 0; i < job_nevents; i++)
		if (job_record(i)->type == REC_ACTIVITY && !n--)
			return (const struct rec_activity *)job_record(i);
	CHECK(!"so many activities");
	return NULL;
}

static size_t told(void)
{
	size_t n = 0;

	for (size_t i = 0; i < job_nevents; i++)
		n += job_record(i)->type == REC_ACTIVITY;
	return n;
}

static void check_name(uint64_t hash, const char *text)
{
	size_t len;

	if (!text) {
		CHECK_INT(hash, 0);
		return;
	}
	for (size_t i = 0; i < job_nevents; i++) {
		const struct rec_name *r = (const struct rec_name *)job_record(i);
		if (r->head.type != REC_NAME || r->hash != hash)
			continue;
		const char *got = rec_text(&r->head, &len);
		CHECK(len == strlen(text) && !memcmp(got, text, len));
		return;
	}
	CHECK(!"the name was told");
}

static void put_kernel(uint64_t i)
{
	FAKE_PUT((struct mspti_kernel){ACTIVITY_KERNEL, i, i + 1, 0, 0, i, "AI_CORE", "MatMul", 0});
}

/* --- kinds --- */

static void kinds_job(void)
{
	uint64_t w = difference();

	mspti_use(&fake_fns);
	CHECK_INT(mspti_source.start(ALL), 0);
	CHECK_INT(fake.enabled, mspti_source.kinds);
	CHECK_INT(fake.own_marks, -1);
	FAKE_PUT((struct mspti_marker){ACTIVITY_MARKER,
				       ACTIVITY_MARK_START,
				       MSPTI_HOST,
				       w + 1,
				       11,
				       {12, 13},
				       "step",
				       "domain",
				       0});
	FAKE_PUT((struct mspti_marker){ACTIVITY_MARKER,
				       ACTIVITY_MARK_END_DEVICE,
				       MSPTI_DEVICE,
				       w + 2,
				       21,
				       {22, 23},
				       NULL,
				       NULL,
				       0});
	FAKE_PUT((struct mspti_kernel){ACTIVITY_KERNEL, w + 3, w + 4, 31, 32, 33, "AI_CORE", "Add",
				       0});
	FAKE_PUT((struct mspti_api){ACTIVITY_API, w + 5, w + 6, 41, 42, 43, "aclnnAdd", 0});
	FAKE_PUT(
		(struct mspti_hccl){ACTIVITY_HCCL, w + 7, w + 8, 51, 52, 1.5, "allreduce", "g", 0});
	FAKE_PUT((struct mspti_memory){ACTIVITY_MEMORY, 1, 1, 61, w + 9, w + 10, 62, 63, 64, 65,
				       66});
	FAKE_PUT((struct mspti_transfer){
		ACTIVITY_MEMSET, 71, 72, w + 11, w + 12, 73, 74, 75, 1, {0}});
	FAKE_PUT((struct mspti_transfer){
		ACTIVITY_MEMCPY, 4, 82, w + 13, w + 14, 83, 84, 85, 0, {0}});
	FAKE_PUT((struct mspti_external){ACTIVITY_EXTERNAL, 2, 91, 92});
	FAKE_PUT((struct mspti_communication){ACTIVITY_COMMUNICATION, 11, 101, 102, 103, w + 15,
					      w + 16, "RING", "allgather", "group", 104});
	FAKE_PUT((struct mspti_api){ACTIVITY_RUNTIME_API, w + 17, w + 18, 1, 2, 3, "rtLaunch", 0});
	mspti_source.stop();
	CHECK_INT(fake.enabled, 0);
	CHECK_INT(fake.own_marks, 0);
	CHECK(!fake.subscribed);
	CHECK_INT(mspti_source.lost(), 0);
	CHECK_STR(mspti_problem(), "");
}

static void check_device(const struct rec_activity *a, uint32_t device, uint32_t stream)
{
	CHECK_INT(a->place, ACTIVITY_ON_DEVICE);
	CHECK(a->where[0] == device && a->where[1] == stream);
}

static void check_markers_and_kernel(void)
{
	const struct rec_activity *a = nth(0);

	CHECK(a->kind == ACTIVITY_MARKER && a->flag == ACTIVITY_MARK_START);
	CHECK(a->start_ns == 1 && a->end_ns == 1 && a->correlation == 11);
	CHECK(a->place == ACTIVITY_ON_HOST && a->where[0] == 12 && a->where[1] == 13);
	check_name(a->name, "step");
	check_name(a->detail, "domain");
	a = nth(1);
	CHECK(a->flag == ACTIVITY_MARK_END_DEVICE && a->start_ns == 2 && a->correlation == 21);
	check_device(a, 22, 23);
	check_name(a->name, NULL);
	a = nth(2);
	CHECK(a->kind == ACTIVITY_KERNEL && a->start_ns == 3 && a->end_ns == 4);
	CHECK_INT(a->correlation, 33);
	check_device(a, 31, 32);
	check_name(a->name, "Add");
	check_name(a->detail, "AI_CORE");
}

static void check_memory(void)
{
	const struct rec_activity *a = nth(5);

	CHECK(a->kind == ACTIVITY_MEMORY && a->start_ns == 9 && a->end_ns == 10 && a->flag == 1);
	CHECK(a->correlation == 61 && a->more == 62 && a->amount == 63);
	check_device(a, 65, 66);
	a = nth(6);
	CHECK(a->kind == ACTIVITY_MEMSET && a->start_ns == 11 && a->end_ns == 12 && a->async == 1);
	CHECK(a->more == 71 && a->amount == 72 && a->correlation == 75 && a->flag == 0);
	check_device(a, 73, 74);
	a = nth(7);
	CHECK(a->kind == ACTIVITY_MEMCPY && a->flag == 4 && a->amount == 82 && a->async == 0);
	CHECK(a->more == 0 && a->correlation == 85 && a->start_ns == 13 && a->end_ns == 14);
	check_device(a, 83, 84);
}

TEST(mspti, every_kind)
{
	run(kinds_job);
	CHECK_INT(told(), 10);
	check_markers_and_kernel();
	const struct rec_activity *a = nth(3);
	CHECK(a->kind == ACTIVITY_API && a->start_ns == 5 && a->end_ns == 6 &&
	      a->correlation == 43);
	CHECK(a->place == ACTIVITY_ON_HOST && a->where[0] == 41 && a->where[1] == 42);
	check_name(a->name, "aclnnAdd");
	a = nth(4);
	CHECK(a->kind == ACTIVITY_HCCL && a->start_ns == 7 && a->end_ns == 8);
	CHECK_INT(a->amount, 1500000000);
	check_device(a, 51, 52);
	check_name(a->name, "allreduce");
	check_name(a->detail, "g");
	check_memory();
	a = nth(8);
	CHECK(a->kind == ACTIVITY_COMMUNICATION && a->start_ns == 15 && a->end_ns == 16);
	CHECK(a->data_type == 11 && a->amount == 101 && a->correlation == 104);
	check_device(a, 102, 103);
	check_name(a->name, "allgather");
	check_name(a->detail, "group");
	check_name(a->more, "RING");
	a = nth(9);
	CHECK(a->kind == ACTIVITY_RUNTIME_API && a->correlation == 3);
	job_cleanup();
}

/* --- what a buffer may hold --- */

static void odd_job(void)
{
	uint64_t overhead[5] = {FAKE_OVERHEAD};
	int32_t unknown[2] = {99, 0};

	mspti_use(&fake_fns);
	CHECK_INT(mspti_source.start(ALL), 0);
	put_kernel(1);
	fake_put(overhead, sizeof(overhead)); /* the library knows how long it is */
	put_kernel(2);
	mspti_source.flush();
	CHECK_INT(mspti_source.lost(), 0);
	put_kernel(3);
	fake_put(unknown, sizeof(unknown)); /* nobody knows what comes behind it */
	put_kernel(4);
	mspti_source.flush();
	CHECK_INT(mspti_source.lost(), 1);
	put_kernel(5); /* from the beginning of its buffer, all the same */
	mspti_source.flush();
	put_kernel(6);
	fake.valid -= 8; /* it ends behind the buffer */
	mspti_source.flush();
	CHECK_INT(mspti_source.lost(), 1);
	put_kernel(7);
	fake.valid = (size_t)1 << 40; /* so large no buffer is */
	mspti_source.flush();
	CHECK_INT(mspti_source.lost(), 2);
	mspti_source.stop();
}

TEST(mspti, odd_buffers)
{
	static const uint64_t want[] = {1, 2, 3, 5, 7};

	run(odd_job);
	CHECK_INT(told(), 5);
	for (size_t i = 0; i < 5; i++)
		CHECK_INT(nth(i)->correlation, want[i]);
	job_cleanup();
}

static int stub_next(uint8_t *buffer, size_t valid, void **record)
{
	(void)buffer;
	(void)valid;
	(void)record;
	return MSPTI_OK;
}

static int endless_next(uint8_t *buffer, size_t valid, void **record)
{
	(void)valid;
	*record = buffer;
	return MSPTI_OK;
}

static int wild_next(uint8_t *buffer, size_t valid, void **record)
{
	static int calls;

	*record = calls++ % 2 ? buffer - 8 : buffer + valid;
	return MSPTI_OK;
}

static void liars_job(void)
{
	struct mspti fns = fake_fns;
	uint64_t n;
	uint8_t *buffer = calloc(1, 64);

	CHECK(buffer != NULL);
	fns.next = stub_next;
	CHECK(!mspti_walk(&fns, buffer, 64, true, &n));
	CHECK_INT(n, 0);
	fns.next = wild_next;
	CHECK(!mspti_walk(&fns, buffer, 64, true, &n));
	CHECK_INT(n, 0);
	buffer[0] = ACTIVITY_KERNEL;
	fns.next = endless_next;
	CHECK(!mspti_walk(&fns, buffer, 64, true, &n));
	CHECK_INT(n, 9);
	free(buffer);
}

TEST(mspti, libraries_that_lie)
{
	run(liars_job);
	CHECK_INT(told(), 9);
	job_cleanup();
}

/* --- kinds that are refused, and changes --- */

#define MEMORY_KINDS (ACTIVITY_BIT(ACTIVITY_MEMORY) | ACTIVITY_BIT(ACTIVITY_HCCL))

static void refused_job(void)
{
	mspti_use(&fake_fns);
	fake.unpreloaded = MEMORY_KINDS;
	fake.unknown = ACTIVITY_BIT(ACTIVITY_NODE_API);
	CHECK_INT(mspti_source.start(ALL), 0);
	CHECK_INT(fake.enabled, mspti_source.kinds & ~(fake.unpreloaded | fake.unknown));
	CHECK_STR(mspti_problem(),
		  "libmspti.so does not report Hccl, Memory here: start the job with "
		  "LD_PRELOAD=libmspti.so; this version of libmspti.so does not report NodeAPI");
	CHECK_INT(mspti_source.change(ACTIVITY_BIT(ACTIVITY_KERNEL) |
				      ACTIVITY_BIT(ACTIVITY_EXTERNAL)),
		  0);
	CHECK_INT(fake.enabled, ACTIVITY_BIT(ACTIVITY_KERNEL));
	CHECK_STR(mspti_problem(), "");
	CHECK_INT(
		mspti_source.change(ACTIVITY_BIT(ACTIVITY_KERNEL) | ACTIVITY_BIT(ACTIVITY_MARKER)),
		0);
	CHECK_INT(fake.enabled, ACTIVITY_BIT(ACTIVITY_KERNEL) | ACTIVITY_BIT(ACTIVITY_MARKER));
	CHECK_INT(mspti_source.start(ALL), -EALREADY);
	mspti_source.stop();
	CHECK_INT(mspti_source.change(ALL), -EINVAL);
	CHECK_INT(mspti_source.start(MEMORY_KINDS), -EOPNOTSUPP);
	CHECK(!fake.subscribed);
	CHECK_STR(mspti_problem(),
		  "libmspti.so does not report Hccl, Memory here: start the job with "
		  "LD_PRELOAD=libmspti.so");
}

TEST(mspti, refused_kinds)
{
	run(refused_job);
	job_cleanup();
}

/* Calls that launch are asked for while somebody wants to know whose work that is. */
static void attribute_job(void)
{
	uint32_t kernel = ACTIVITY_BIT(ACTIVITY_KERNEL);

	mspti_use(&fake_fns);
	CHECK_INT(mspti_source.start(kernel), 0);
	CHECK_INT(fake.calls, 0);
	mspti_source.attribute(true);
	CHECK_INT(mspti_source.change(kernel), 0);
	CHECK(fake.calls & 1u << MSPTI_CALL_LAUNCH && fake.calls & 1u << MSPTI_CALL_MEMCPY_ASYNC);
	CHECK_STR(mspti_problem(), "");
	mspti_source.attribute(false);
	CHECK_INT(mspti_source.change(kernel), 0);
	CHECK_INT(fake.calls, 0);
	mspti_source.attribute(true);
	CHECK_INT(mspti_source.change(kernel), 0);
	CHECK(fake.calls);
	mspti_source.stop();
	CHECK_INT(fake.calls, 0);
	fake.no_calls = true;
	CHECK_INT(mspti_source.start(kernel), 0); /* kernels are reported all the same */
	CHECK(strstr(mspti_problem(), "nothing is attributed: start the job with LD_PRELOAD"));
	mspti_source.stop();
}

TEST(mspti, whose_work)
{
	run(attribute_job);
	job_cleanup();
}

static void aside_job(void)
{
	mspti_use(&fake_fns);
	fake.other_subscriber = true;
	CHECK_INT(mspti_source.start(ALL), -EBUSY);
	CHECK(mspti_source.is_paused() && strstr(mspti_problem(), "another tool"));
	CHECK_INT(fake.enabled, 0);
	CHECK(!fake.request);
	fake.other_subscriber = false;
	CHECK_INT(mspti_source.start(ALL), 0);
	CHECK(!mspti_source.is_paused() && !mspti_problem()[0]);
	mspti_source.stop();
}

TEST(mspti, another_subscriber)
{
	run(aside_job);
	job_cleanup();
}

TEST(mspti, no_library)
{
	unsetenv("LD_LIBRARY_PATH");
	unsetenv("ASCEND_HOME_PATH");
	CHECK(!mspti_source.is_there());
	CHECK_INT(mspti_source.start(ALL), -ENOENT);
	setenv("LD_LIBRARY_PATH", ":/nowhere:relative", 1);
	setenv("ASCEND_HOME_PATH", "/nowhere", 1);
	CHECK(!mspti_source.is_there());
	CHECK_INT(mspti_source.start(ALL), -ENOENT);
	/* Something of that name, which cannot be loaded; and no runtime that it would be of use
	 * to. */
	char path[256];
	snprintf(path, sizeof(path), "%s/lib64", tmpdir());
	CHECK_INT(mkdir(path, 0700), 0);
	setenv("LD_LIBRARY_PATH", path, 1);
	setenv("ASCEND_HOME_PATH", tmpdir(), 1);
	strcat(path, "/libmspti.so");
	FILE *f = fopen(path, "w");
	CHECK(f && fclose(f) == 0);
	CHECK(!mspti_source.is_there());
	CHECK_INT(mspti_source.start(ALL), -ENOENT);
	mspti_source.flush();
	mspti_source.stop();
	CHECK_INT(mspti_source.lost(), 0);
}
