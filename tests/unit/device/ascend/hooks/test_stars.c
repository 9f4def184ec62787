/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/ascend/hooks/atb_text.h"
#include "device/ascend/hooks/stars.h"

#include <pthread.h>
#include <stdatomic.h>

#include "test.h"

struct seen {
	unsigned n;
	struct stars_event e[8];
};

static void note(void *arg, const struct stars_event *e)
{
	struct seen *s = arg;

	if (s->n < 8)
		s->e[s->n] = *e;
	s->n++;
}

static void put(uint8_t *rec, unsigned func, unsigned sqe_type, uint16_t stream, uint16_t task,
		uint64_t counter)
{
	uint32_t head = func | 5u << 6 | sqe_type << 10 | 0x6bd3u << 16;
	uint32_t ids = stream | (uint32_t)task << 16;

	memcpy(rec, &head, 4);
	memcpy(rec + 4, &ids, 4);
	memcpy(rec + 8, &counter, 8);
}

/* One long record, decoded. */
static struct stars_event one(bool expanded, unsigned sqe_type, uint16_t stream, uint16_t task)
{
	uint8_t rec[64] = {0};
	struct seen s = {0};

	put(rec, 1, sqe_type, stream, task, 0x1122334455667788ull);
	CHECK_INT(stars_each(rec, sizeof(rec), STARS_LONG, expanded, note, &s), 64);
	CHECK_INT(s.n, 1);
	CHECK(s.e[0].counter == 0x1122334455667788ull);
	CHECK(s.e[0].ends);
	return s.e[0];
}

#define CHECK_IDS(event, stream_, task_)                                                           \
	do {                                                                                       \
		struct stars_event e_ = (event);                                                   \
		CHECK_INT(e_.stream, stream_);                                                     \
		CHECK_INT(e_.task, task_);                                                         \
	} while (0)

TEST(stars, plain_ids)
{
	CHECK_IDS(one(false, 0, 7, 9), 7, 9);
	CHECK_IDS(one(false, 3, 0x07ff, 0xffff), 0x7ff, 0xffff);
	/* 0x1000: the stream lends its three upper bits to the task. */
	CHECK_IDS(one(false, 0, 0x1005, 0x0123), 5, 0x0123);
	CHECK_IDS(one(false, 0, 0xb005, 0xf123), 5, 0xb123);
	/* 0x2000: exchanged. */
	CHECK_IDS(one(false, 0, 0x2123, 0x0456), 0x456, 0x0123);
	CHECK_IDS(one(false, 0, 0x2123, 0xf956), 0x156, 0xf123);
}

TEST(stars, expanded_ids)
{
	CHECK_IDS(one(true, 0, 0x1005, 9), 0x1005, 9);
	CHECK_IDS(one(true, 3, 0x8005, 0x9001), 5, 0x9001);
	CHECK_IDS(one(true, 4, 0xffff, 1), 0x7fff, 1);
	CHECK_IDS(one(true, 0, 0x8005, 0x9001), 0x1001, 0x8005);
	CHECK_IDS(one(true, 5, 0x8005, 0x1001), 0x1001, 0x0005);
}

TEST(stars, short_records)
{
	uint8_t rec[3 * 32 + 31] = {0};
	struct seen s = {0};

	put(rec, 0, 0, 41, 0, 100);
	put(rec + 32, 34, 0, 42, 0, 150); /* another kind of record */
	put(rec + 64, 1, 0, 41, 1, 200); /* the task has 32 bits, its low ones count */
	CHECK_INT(stars_each(rec, sizeof(rec), STARS_SHORT, false, note, &s), 96);
	CHECK_INT(s.n, 2);
	CHECK(!s.e[0].ends && s.e[1].ends);
	CHECK_INT(s.e[0].task, 41);
	CHECK_INT(s.e[1].task, 41);
	CHECK_INT(s.e[0].stream, STARS_STREAM_UNKNOWN);
	CHECK_INT(s.e[1].counter, 200);
}

TEST(stars, only_whole_records)
{
	uint8_t rec[128] = {0};
	struct seen s = {0};

	CHECK_INT(stars_each(rec, 0, STARS_LONG, false, note, &s), 0);
	CHECK_INT(stars_each(rec, 63, STARS_LONG, false, note, &s), 0);
	CHECK_INT(s.n, 0);
	CHECK_INT(stars_each(rec, 127, STARS_LONG, false, note, &s), 64);
	CHECK_INT(s.n, 1);
}

TEST(stars, frequency_in_any_unit)
{
	CHECK_INT(stars_khz(50), 50000);
	CHECK_INT(stars_khz(50000), 50000);
	CHECK_INT(stars_khz(50000000), 50000);
	CHECK_INT(stars_khz(1000), 1000000);
	CHECK_INT(stars_khz(0), 50000);
	CHECK_INT(stars_khz(-1), 50000);
	CHECK_INT(stars_khz(INT64_MAX), 50000);
}

TEST(stars, time)
{
	struct stars_clock c = {.counter0 = 1000, .mono0_ns = 5000000, .khz = 50000};

	CHECK_INT(stars_time(&c, 1000), 5000000);
	CHECK_INT(stars_time(&c, 1050), 5001000);
	CHECK_INT(stars_time(&c, 950), 4999000);
	CHECK_INT(stars_time(&c, 0), 4980000);
	/* A year later, in whole ticks still. */
	CHECK_INT(stars_time(&c, 1000 + 50000000ull * 31536000),
		  5000000 + 1000000000ull * 31536000);
	/* Nonsense stays in range. */
	c.counter0 = 1ull << 62;
	CHECK_INT(stars_time(&c, 0), 0);
	c = (struct stars_clock){.counter0 = 0, .mono0_ns = UINT64_MAX - 10, .khz = 0};
	CHECK(stars_time(&c, 1u << 30) == UINT64_MAX);
}

static struct stars_tasks *tasks_new(bool by_task)
{
	struct stars_tasks *t = calloc(1, sizeof(*t));

	CHECK(t);
	t->by_task = by_task;
	return t;
}

static struct stars_launch launch(uint16_t stream, uint16_t task, uint64_t hash, uint64_t ns)
{
	return (struct stars_launch){
		.name_hash = hash, .launch_ns = ns, .device = 1, .stream = stream, .task = task};
}

static bool match(struct stars_tasks *t, uint16_t stream, uint16_t task, bool ends,
		  struct stars_launch *out)
{
	struct stars_event e = {.stream = stream, .task = task, .ends = ends};

	return stars_tasks_match(t, 1, &e, 500, out);
}

TEST(stars, a_launch_is_found_at_begin_and_end)
{
	struct stars_tasks *t = tasks_new(false);
	struct stars_launch a = launch(2, 3, 77, 100), l = {0};

	CHECK(!match(t, 2, 3, false, &l));
	stars_tasks_put(t, &a);
	CHECK(!match(t, 2, 4, false, &l) && !match(t, 3, 3, false, &l));
	CHECK(match(t, 2, 3, false, &l));
	CHECK(l.name_hash == 77 && l.launch_ns == 100 && l.start_ns == 500);
	CHECK(match(t, 2, 3, true, &l));
	CHECK(l.name_hash == 77 && l.start_ns == 500 && l.stream == 2 && l.task == 3);
	CHECK(!match(t, 2, 3, true, &l));
	free(t);
}

TEST(stars, a_start_lies_after_its_launch)
{
	struct stars_tasks *t = tasks_new(false);
	struct stars_launch a = launch(2, 3, 77, 900), l = {0};

	stars_tasks_put(t, &a);
	CHECK(match(t, 2, 3, false, &l));
	CHECK_INT(l.start_ns, 900);
	free(t);
}

TEST(stars, a_task_number_comes_again)
{
	struct stars_tasks *t = tasks_new(false);
	struct stars_launch l = {0};

	for (uint32_t i = 0; i < 3 * 65536; i++) {
		struct stars_launch a = launch(1, (uint16_t)i, i, i + 1);
		stars_tasks_put(t, &a); /* nobody ever reads: the newest stays */
	}
	for (uint32_t i = 0; i < 65536; i += 997) {
		CHECK(match(t, 1, (uint16_t)i, true, &l));
		CHECK_INT(l.name_hash, 2 * 65536 + i);
	}
	free(t);
}

TEST(stars, a_full_set_forgets_the_oldest)
{
	struct stars_tasks *t = tasks_new(true);
	struct stars_launch l = {0};

	for (uint16_t s = 0; s < 12; s++) {
		struct stars_launch a = launch(s, 5, 100 + s, 100 + s);
		stars_tasks_put(t, &a);
	}
	unsigned found = 0;
	for (uint16_t s = 0; s < 12; s++)
		found += match(t, s, 5, false, &l);
	CHECK_INT(found, STARS_WAYS);
	CHECK(match(t, 11, 5, true, &l) && !match(t, 0, 5, true, &l));
	free(t);
}

TEST(stars, without_a_stream_the_oldest_that_waits)
{
	struct stars_tasks *t = tasks_new(true);
	struct stars_launch a = launch(1, 5, 11, 100), b = launch(2, 5, 22, 200), l = {0};

	stars_tasks_put(t, &b);
	stars_tasks_put(t, &a);
	CHECK(match(t, STARS_STREAM_UNKNOWN, 5, false, &l) && l.name_hash == 11 && l.stream == 1);
	CHECK(match(t, STARS_STREAM_UNKNOWN, 5, false, &l) && l.name_hash == 22 && l.stream == 2);
	CHECK(match(t, STARS_STREAM_UNKNOWN, 5, true, &l) && l.name_hash == 11);
	CHECK(match(t, STARS_STREAM_UNKNOWN, 5, true, &l) && l.name_hash == 22);
	CHECK(!match(t, STARS_STREAM_UNKNOWN, 5, true, &l));
	free(t);
}

/* Threads launch, one reader matches: what is found belongs together. */
static struct stars_tasks *shared;
static _Atomic int running;

static void *launcher(void *arg)
{
	uint16_t stream = (uint16_t)(uintptr_t)arg;

	for (uint32_t i = 0; i < 200000; i++) {
		struct stars_launch a = launch(
			stream, (uint16_t)i, (uint64_t)stream << 32 | (uint16_t)i, (uint64_t)i + 1);
		stars_tasks_put(shared, &a);
	}
	atomic_fetch_sub(&running, 1);
	return NULL;
}

TEST(stars, concurrent_launches)
{
	pthread_t th[4];
	struct stars_launch l = {0};
	uint64_t found = 0;

	shared = tasks_new(false);
	atomic_store(&running, 4);
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(!pthread_create(&th[i], NULL, launcher, (void *)(i + 1)));
	/* While they launch, and then once over every stream and task. */
	for (uint32_t i = 0, after = 0; after < 4 * 65536; i++) {
		after += !atomic_load(&running);
		uint16_t stream = (uint16_t)(i % 4 + 1), task = (uint16_t)(i / 4);
		if (!match(shared, stream, task, i & 8, &l))
			continue;
		found++;
		CHECK(l.name_hash == ((uint64_t)stream << 32 | task));
		CHECK((uint16_t)(l.launch_ns - 1) == task);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	CHECK(found > 0);
	free(shared);
}

/* --- what is said about tensors --- */

static const char *tensor(int32_t dtype, int32_t format, bool kernel)
{
	static const int64_t dims[] = {2, 64, -1};
	static char out[ATB_TEXT_TENSOR];
	struct atb_text_tensor t = {dtype, format, dims, 3};

	atb_text_tensor(out, &t, kernel);
	return out;
}

TEST(atb_text, names)
{
	CHECK_STR(tensor(1, 2, false), "dtype:ACL_FLOAT16,format:ACL_FORMAT_ND,shape:[2,64,-1,]");
	CHECK_STR(tensor(33, 33, false),
		  "dtype:ACL_COMPLEX32,format:ACL_FRACTAL_Z_3D,shape:[2,64,-1,]");
	CHECK_STR(tensor(5, 46, false),
		  "dtype:ACL_DT_UNDEFINED,format:ACL_FORMAT_UNDEFINED,shape:[2,64,-1,]");
	CHECK_STR(tensor(27, 33, true),
		  "dtype:TENSOR_DTYPE_BF16,format:TENSOR_FORMAT_FRACTAL_Z_3D,shape:[2,64,-1,]");
	CHECK_STR(tensor(29, 35, true),
		  "dtype:TENSOR_DTYPE_UNDEFINED,format:TENSOR_FORMAT_UNDEFINED,shape:[2,64,-1,]");
	CHECK_STR(tensor(INT32_MIN, INT32_MAX, false),
		  "dtype:ACL_DT_UNDEFINED,format:ACL_FORMAT_UNDEFINED,shape:[2,64,-1,]");
}

TEST(atb_text, fits)
{
	int64_t dims[8];
	char out[ATB_TEXT_TENSOR];
	struct atb_text_tensor t = {17, 12, dims, 8};

	for (int i = 0; i < 8; i++)
		dims[i] = INT64_MIN;
	atb_text_tensor(out, &t, true);
	CHECK_STR(strrchr(out, '-'), "-9223372036854775808,]");

	char small[8];
	struct atb_text cut = {small, sizeof(small), 0};
	atb_text_add(&cut, "path:");
	atb_text_hex(&cut, UINT64_MAX);
	CHECK_STR(small, "path:0x");
	cut = (struct atb_text){out, sizeof(out), 0};
	atb_text_hex(&cut, 0);
	atb_text_add(&cut, " ");
	atb_text_number(&cut, UINT64_MAX);
	CHECK_STR(out, "0x0 18446744073709551615");
}
