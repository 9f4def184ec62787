/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics_store.h"

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

TEST(store, keeps_the_latest_of_each_device)
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

TEST(store, sums_follow_their_instance)
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

TEST(store, activities_are_told_apart_and_bounded)
{
	struct store st = {0};
	char domain[16];

	for (unsigned i = 0; i < STORE_MAX + 10; i++) {
		struct metric m[] = {
			{.name = "kind", .type = METRIC_TEXT, .s = "Marker"},
			{.name = "domain", .type = METRIC_TEXT, .s = domain},
			number("duration", NULL, 7),
		};

		snprintf(domain, sizeof(domain), "%u", i);
		put(&st, "data", 0, m, 3);
		put(&st, "data", 0, m, 3);
	}
	CHECK_INT(st.n, STORE_MAX);
	CHECK_INT(st.refused, 20);
	CHECK_INT(st.items[3]->sums[2], 14);
	CHECK_STR(stored_text(st.items[3], "domain"), "3");
	CHECK(!stored_text(st.items[3], "duration"));
	store_release(&st);
}
