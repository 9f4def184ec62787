/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/metrics_impl.h"
#include "daemon/metrics/names.h"

#include "test.h"

static struct metric number(const char *name, const char *instance, uint64_t u)
{
	return (struct metric){.name = name, .instance = instance, .type = METRIC_UINT, .u = u};
}

static void put(struct store *st, const char *source, int64_t device, const struct metric *m,
		size_t n)
{
	struct sample s = {.source = source, .time_ns = 1, .device = device, .metrics = m, .n = n};

	store_put(st, &s, 5);
}

TEST(metrics_store, keeps_the_latest_of_each_device)
{
	struct store st = {0};
	struct metric m = number("uptime", NULL, 1);

	put(&st, "kernel", SAMPLE_NO_DEVICE, &m, 1);
	m.u = 2;
	put(&st, "kernel", SAMPLE_NO_DEVICE, &m, 1);
	put(&st, "npu", 0, &m, 1);
	put(&st, "npu", 1, &m, 1);
	CHECK_INT(st.n, 3);
	CHECK_INT(st.items[0]->sample.metrics[0].u, 2);
	CHECK_INT(st.items[0]->records, 2);
	CHECK_INT(st.items[0]->sums[0], 0); /* a gauge */
	CHECK_INT(st.items[0]->heard_ns, 5);
	store_release(&st);
}

TEST(metrics_store, sums_follow_their_instance)
{
	struct store st = {0};
	struct metric a[] = {number("rx_bytes", "eth0", 10), number("rx_bytes", "lo", 1)};
	struct metric b[] = {number("rx_bytes", "new", 3), number("rx_bytes", "lo", 2),
			     number("rx_bytes", "eth0", 20)};

	put(&st, "kernel", SAMPLE_NO_DEVICE, a, 2);
	put(&st, "kernel", SAMPLE_NO_DEVICE, b, 3);
	CHECK_INT(st.items[0]->sums[0], 3);
	CHECK_INT(st.items[0]->sums[1], 3);
	CHECK_INT(st.items[0]->sums[2], 30);
	store_release(&st);
}

static bool put_activity(struct store *st, unsigned domain, uint64_t now_ns)
{
	char text[16];
	struct metric m[] = {
		{.name = "kind", .type = METRIC_TEXT, .s = "Marker"},
		{.name = "domain", .type = METRIC_TEXT, .s = text},
		number("duration", NULL, 7),
	};
	struct sample s = {.source = "data", .time_ns = 1, .metrics = m, .n = 3};

	snprintf(text, sizeof(text), "%u", domain);
	return store_put(st, &s, now_ns);
}

TEST(metrics_store, activities_are_told_apart_and_bounded)
{
	struct store st = {0};

	for (unsigned i = 0; i < STORE_DATA_MAX + 10; i++) {
		CHECK(put_activity(&st, i, 5) == (i < STORE_DATA_MAX));
		CHECK(put_activity(&st, i, 5) == (i < STORE_DATA_MAX));
	}
	CHECK_INT(st.n, STORE_DATA_MAX);
	CHECK_INT(st.refused, 20);
	CHECK_INT(st.items[3]->sums[2], 14);
	CHECK_STR(metric_text(&st.items[3]->sample, "domain"), "3");
	CHECK(!metric_text(&st.items[3]->sample, "duration"));
	store_release(&st);
}

TEST(metrics_store, devices_find_room_beside_any_number_of_activities)
{
	struct metric m = number("npu_utilization", NULL, 1);
	struct store st = {0};

	for (unsigned i = 0; i < STORE_MAX; i++)
		put_activity(&st, i, 5);
	for (int64_t i = 0; i < STORE_MAX - STORE_DATA_MAX; i++)
		put(&st, "npu", i, &m, 1);
	CHECK_INT(st.n, STORE_MAX);
	CHECK_INT(st.refused, STORE_MAX - STORE_DATA_MAX);
	store_release(&st);
}

TEST(metrics_store, activities_that_have_ended_make_room)
{
	const uint64_t later = 5 + STORE_FORGET_S * 1000000000ull;
	struct store st = {0};

	for (unsigned i = 0; i < STORE_DATA_MAX; i++)
		put_activity(&st, i, 5 + i);
	CHECK(put_activity(&st, 0, 1000)); /* goes on: the second is the oldest now */
	CHECK(!put_activity(&st, 5000, later));
	CHECK(put_activity(&st, 5001, later + 1));
	CHECK(!put_activity(&st, 5002, later + 1));
	CHECK(!put_activity(&st, 1, later + 1)); /* it was forgotten */
	CHECK_INT(st.n, STORE_DATA_MAX);
	CHECK(put_activity(&st, 5002, later + 2));
	CHECK_STR(metric_text(&st.items[1]->sample, "domain"), "5001");
	CHECK(put_activity(&st, 0, later + 2)); /* it was not */
	CHECK_INT(st.items[0]->records, 3);
	CHECK_INT(hmap_check(&st.index), 0);
	store_release(&st);
}

static bool put_of_user(struct store *st, uint32_t uid, unsigned domain, uint64_t now_ns)
{
	char text[16];
	struct metric m[] = {
		{.name = "kind", .type = METRIC_TEXT, .s = text},
		number("duration", NULL, 7),
	};
	struct sample s = {.source = "data", .time_ns = 1, .uid = uid, .metrics = m, .n = 2};

	snprintf(text, sizeof(text), "%u", domain);
	return store_put(st, &s, now_ns);
}

TEST(metrics_store, made_up_kinds_of_one_user_keep_nobody_else_out)
{
	struct store st = {0};

	for (unsigned i = 0; i < STORE_DATA_MAX * 2; i++)
		CHECK(put_of_user(&st, 1001, i, 5 + i) == (i < STORE_DATA_MAX));
	for (uint32_t uid = 1002; uid < 1006; uid++)
		for (unsigned i = 0; i < 20; i++)
			CHECK(put_of_user(&st, uid, i, 2000));
	CHECK_INT(st.n, STORE_DATA_MAX);
	CHECK(!put_of_user(&st, 1001, 5000, 2000)); /* whose places are gone */
	/* two who flood have half each, and the others what they had */
	for (unsigned i = 0; i < STORE_DATA_MAX; i++)
		put_of_user(&st, 1006, i, 2001 + i);
	CHECK_INT(hmap_get(&st.per_uid, 1002), 20);
	CHECK(hmap_get(&st.per_uid, 1006) + 1 >= hmap_get(&st.per_uid, 1001));
	CHECK(put_of_user(&st, 1007, 1, 9000));
	/* the same kind of two users is two series */
	CHECK(put_of_user(&st, 1002, 1, 9000) && put_of_user(&st, 1003, 1, 9000));
	CHECK_INT(hmap_check(&st.index), 0);
	store_release(&st);
}
