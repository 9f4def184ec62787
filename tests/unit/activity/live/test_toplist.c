/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/live/toplist.h"

#include "base/containers/buf.h"
#include "test.h"

static unsigned begun, over;
static struct toplist_regression last;

static void count(void *arg, const struct toplist_regression *r, bool is_over)
{
	(void)arg;
	last = *r;
	begun += !is_over;
	over += is_over;
}

static void add_row(struct buf *b, const char *name, unsigned calls, unsigned long long mean)
{
	buf_addf(b,
		 "%s{\"kind\":\"Kernel\",\"device\":0,\"name\":\"%s\",\"calls\":%u,\"total_ns\":%"
		 "llu}",
		 b->data[b->len - 1] == '[' ? "" : ",", name, calls, calls * mean);
}

static struct buf head(unsigned long long to)
{
	struct buf b = {0};

	buf_addf(&b, "{\"pid\":7,\"rank\":1,\"from\":%llu,\"to\":%llu,\"rows\":[", to - 1000000000,
		 to);
	return b;
}

static struct toplist_report *finish(struct buf *b)
{
	buf_add_str(b, "]}");
	struct toplist_report *r = toplist_report_read(b->data, b->len);

	CHECK(r != NULL);
	buf_release(b);
	return r;
}

/* An interval in which one kernel took that long each time. */
static void interval(struct toplist *t, unsigned calls, unsigned long long mean)
{
	static unsigned long long now = 1700000000000000000;
	struct buf b = head(now += 1000000000);

	add_row(&b, "k", calls, mean);
	add_row(&b, "steady", 1000, 1000000);
	toplist_take(t, finish(&b), 20, count, NULL);
}

static void learn(struct toplist *t)
{
	begun = over = 0;
	for (int i = 0; i < 5; i++)
		interval(t, 100, 1000000);
}

TEST(toplist, a_regression_needs_three_intervals_in_a_row)
{
	struct toplist *t = toplist_new();

	learn(t);
	for (int i = 0; i < 10; i++) { /* two of three are slow, for ever */
		interval(t, 100, 1300000);
		interval(t, 100, 1300000);
		interval(t, 100, 1000000);
	}
	CHECK_INT(begun, 0);
	interval(t, 100, 1300000);
	interval(t, 100, 1300000);
	CHECK_INT(begun, 0);
	interval(t, 100, 1300000);
	CHECK_INT(begun, 1);
	CHECK_INT(toplist_regressions(t), 1);
	CHECK_STR(last.name, "k");
	CHECK_INT(last.baseline_ns, 1000000);
	CHECK_INT(last.mean_ns, 1300000);
	for (int i = 0; i < 50; i++) /* it is said once, and never becomes usual */
		interval(t, 100, 1300000);
	CHECK_INT(begun, 1);
	interval(t, 100, 1150000); /* half way back is not back */
	interval(t, 100, 1150000);
	interval(t, 100, 1150000);
	CHECK_INT(over, 0);
	interval(t, 100, 1010000);
	interval(t, 100, 1010000);
	CHECK_INT(over, 0);
	interval(t, 100, 1010000);
	CHECK_INT(over, 1);
	CHECK_INT(toplist_regressions(t), 0);
	toplist_free(t);
}

TEST(toplist, a_little_slower_is_none)
{
	struct toplist *t = toplist_new();

	learn(t);
	for (int i = 0; i < 20; i++)
		interval(t, 100, 1190000);
	CHECK_INT(begun, 0);
	toplist_free(t);
}

/* A drift in small steps ends where a jump does. */
TEST(toplist, what_becomes_slower_bit_by_bit_is_noticed)
{
	struct toplist *t = toplist_new();

	learn(t);
	for (int i = 0; i < 40 && !begun; i++)
		interval(t, 100, 1000000 + (unsigned)i * 10000);
	CHECK_INT(begun, 1);
	CHECK_INT(last.baseline_ns, 1000000);
	toplist_free(t);
}

TEST(toplist, what_becomes_faster_is_usual_from_then_on)
{
	struct toplist *t = toplist_new();

	learn(t);
	interval(t, 100, 400000); /* one lucky interval decides nothing */
	for (int i = 0; i < 6; i++)
		interval(t, 100, 1000000);
	CHECK_INT(begun, 0);
	for (int i = 0; i < 6; i++)
		interval(t, 100, 500000);
	for (int i = 0; i < 3; i++)
		interval(t, 100, 1000000);
	CHECK_INT(begun, 1);
	CHECK_INT(last.baseline_ns, 500000);
	toplist_free(t);
}

TEST(toplist, what_always_varies_is_not_slower)
{
	static const unsigned means[] = {700000, 1300000, 1000000, 1250000, 760000, 1280000};
	struct toplist *t = toplist_new();

	begun = 0;
	for (int i = 0; i < 60; i++)
		interval(t, 100, means[i % 6]);
	CHECK_INT(begun, 0);
	toplist_free(t);
}

TEST(toplist, few_calls_and_little_time_describe_nothing)
{
	struct toplist *t = toplist_new();

	begun = 0;
	for (int i = 0; i < 20; i++)
		interval(t, 4, i < 10 ? 1000000 : 90000000);
	for (int i = 0; i < 20; i++)
		interval(t, 100, i < 10 ? 100 : 900); /* under a percent */
	CHECK_INT(begun, 0);
	toplist_free(t);
}

TEST(toplist, a_kernel_that_is_not_seen_any_more_is_over)
{
	struct toplist *t = toplist_new();

	learn(t);
	for (int i = 0; i < 3; i++)
		interval(t, 100, 2000000);
	CHECK_INT(begun, 1);
	for (int i = 0; i < 30; i++)
		interval(t, 1, 10);
	CHECK_INT(over, 1);
	toplist_free(t);
}

TEST(toplist, memory_is_bounded_whatever_comes)
{
	struct toplist *t = toplist_new();
	size_t most = 0;
	char name[32];

	begun = 0;
	for (unsigned i = 0; i < 400; i++) {
		struct buf b = head(1700000000000000000ull + i * 1000000000ull);

		for (unsigned k = 0; k < 20; k++) { /* never the same name twice */
			snprintf(name, sizeof(name), "kernel_%u_%u", i, k);
			add_row(&b, name, 100, 1000000);
		}
		toplist_take(t, finish(&b), 20, count, NULL);
		if (i == 100)
			most = toplist_bytes(t);
	}
	CHECK(toplist_bytes(t) < 2 * most);
	CHECK(toplist_bytes(t) < 400000);
	CHECK_INT(begun, 0);
	toplist_free(t);
}

TEST(toplist, the_row_before_is_found)
{
	struct toplist *t = toplist_new();

	interval(t, 10, 100);
	CHECK(!toplist_before(t, &toplist_last(t)->rows[0]));
	interval(t, 20, 300);
	const struct toplist_row *row = &toplist_last(t)->rows[0];
	CHECK_STR(row->name, "k");
	CHECK_INT(toplist_before(t, row)->calls, 10);
	CHECK_INT(toplist_usual(t, row), 0);
	toplist_free(t);
}

static struct toplist_report *read_text(const char *text)
{
	return toplist_report_read(text, strlen(text));
}

TEST(toplist, only_reports_are_reports)
{
	static const char *const bad[] = {
		"",
		"7",
		"[]",
		"{}",
		"{\"pid\":7}",
		"{\"pid\":0,\"from\":1,\"to\":2}",
		"{\"pid\":7,\"from\":2,\"to\":1}",
		"{\"pid\":7,\"from\":1,\"to\":1}",
		"{\"pid\":7,\"pid\":8,\"from\":1,\"to\":2}",
		"{\"pid\":7,\"from\":1,\"to\":2,\"rows\":{}}",
		"{\"pid\":7,\"from\":1,\"to\":2,\"rows\":[[]]}",
		"{\"pid\":7,\"from\":1,\"to\":2,\"devices\":[1]}",
		"{\"pid\":7,\"from\":1,\"to\":2,\"steps\":[]}",
		"{\"pid\":7,\"from\":1,\"to\":2,\"rank\":-2}",
		"{\"pid\":7,\"from\":1,\"to\":9223372036854775807}",
		"{\"pid\":7,\"from\":1,\"to\":2,\"x\":[[[[[[[]]]]]]]}",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(!read_text(bad[i]));
	struct toplist_report *r = read_text("{\"pid\":7,\"from\":5,\"to\":5,\"interval_s\":2,"
					     "\"rank\":null,\"devices\":[{\"device\":4294967295}],"
					     "\"new\":{\"a\":[1]}}");
	CHECK_INT(r->interval_ns, 2000000000);
	CHECK_INT(r->rank, -1);
	CHECK_INT(r->devices[0].device, -1);
	toplist_report_free(r);
}

/* What a monitor tells at its end is of a moment: it is no interval. */
TEST(toplist, a_report_of_a_moment_only_adds_what_is_missing)
{
	static const char moment[] =
		"{\"pid\":7,\"from\":1700000009000000000,\"to\":1700000009090000000,"
		"\"interval_s\":2,\"lost\":1,\"incomplete\":2,\"crowded\":3,\"unwritten\":4,"
		"\"unsent\":5,\"devices\":[{\"device\":0,\"busy_ns\":1700000000}],\"rows\":[{"
		"\"kind\":\"Kernel\",\"name\":\"k\",\"calls\":90,\"total_ns\":90}]}";
	struct toplist *t = toplist_new();

	learn(t);
	const struct toplist_report *last_one = toplist_last(t);
	struct toplist_report *r = read_text(moment);
	CHECK(r->partial && r->devices[0].busy_ns == r->interval_ns);
	toplist_take(t, r, 20, count, NULL);
	CHECK(toplist_last(t) == last_one && last_one->rows[0].calls == 100);
	CHECK_INT(toplist_before(t, &last_one->rows[0])->calls, 100);
	for (unsigned i = 0; i < TOPLIST_LOSSES; i++)
		CHECK_INT(last_one->losses[i], i + 1);
	toplist_free(t);
	t = toplist_new();
	toplist_take(t, read_text(moment), 20, count, NULL);
	CHECK(!toplist_last(t));
	toplist_free(t);
}

TEST(toplist, no_device_is_busier_than_the_time)
{
	struct toplist_report *r =
		read_text("{\"pid\":7,\"from\":1000,\"to\":2000,\"devices\":[{\"device\":0,"
			  "\"busy_ns\":18880,\"kernel_ns\":1001,\"comm_ns\":1000,"
			  "\"copy_ns\":9223372036854775807,\"late_ns\":5000}]}");
	const struct toplist_device *d = &r->devices[0];

	CHECK(d->busy_ns == 1000 && d->kernel_ns == 1000 && d->comm_ns == 1000);
	CHECK(d->copy_ns == 1000 && d->late_ns == 5000);
	toplist_report_free(r);
}

TEST(toplist, what_is_collected_is_told)
{
	static const char head_of[] = "{\"pid\":7,\"from\":1000,\"to\":2000,\"kinds\":";
	char text[160];

	snprintf(text, sizeof(text), "%s[\"Kernel\",\"Hccl\",\"of tomorrow\"]}", head_of);
	struct toplist_report *r = read_text(text);
	CHECK(toplist_collects(r, TOPLIST_KERNELS) && toplist_collects(r, TOPLIST_COMMUNICATION));
	CHECK(!toplist_collects(r, TOPLIST_COPIES) && toplist_collects(r, TOPLIST_BUSY));
	toplist_report_free(r);
	r = read_text("{\"pid\":7,\"from\":1000,\"to\":2000}"); /* by an older recorder */
	CHECK(toplist_collects(r, TOPLIST_COPIES));
	toplist_report_free(r);
	for (int i = 0; i < 3; i++) {
		static const char *const bad[] = {"{}", "[1]", "\"Kernel\""};

		snprintf(text, sizeof(text), "%s%s}", head_of, bad[i]);
		CHECK(!read_text(text));
	}
}

/* --- what is to blame --- */

static int order_of(struct toplist_regression a, struct toplist_regression b)
{
	CHECK_INT(toplist_by_cause(&b, &a), -toplist_by_cause(&a, &b));
	return toplist_by_cause(&a, &b);
}

TEST(toplist, what_costs_most_is_first)
{
	struct toplist_regression gemm = {"Kernel", "gemm", .mean_ns = 1200, .baseline_ns = 1000};
	struct toplist_regression add = gemm, usual = gemm;

	gemm.calls = usual.calls = 100;
	add.calls = 1000;
	usual.mean_ns = 1000;
	usual.calls = 100000;
	CHECK(order_of(add, gemm) < 0); /* it costs more */
	CHECK(order_of(gemm, usual) < 0); /* as usual again: nothing is wrong with it any more */
	CHECK_INT(order_of(gemm, gemm), 0);
	CHECK(toplist_waits("Hccl", "x") && toplist_waits("Kernel", "hcom_allReduce_"));
	CHECK(!toplist_waits("Kernel", "MatMul"));
}

/* --- the slowest rank --- */

static struct toplist_slowest slowest(const unsigned *step_ms, const unsigned *comm_percent,
				      size_t n)
{
	struct toplist_rank ranks[8] = {{0}};

	for (size_t i = 0; i < n; i++)
		ranks[i] = (struct toplist_rank){.rank = (int32_t)i,
						 .interval_ns = 1000000000,
						 .comm_ns = comm_percent[i] * 10000000ull,
						 .step_mean_ns = step_ms[i] * 1000000ull};
	return toplist_slowest(ranks, n);
}

TEST(toplist, the_slowest_rank_is_the_one_that_others_wait_for)
{
	static const unsigned same[] = {100, 100, 100, 100}, none[4] = {0};

	/* in step: it communicates least */
	struct toplist_slowest s = slowest(same, (unsigned[]){30, 29, 5, 31}, 4);
	CHECK_INT(s.by, TOPLIST_SLOW_WAITING);
	CHECK_INT(s.at, 2);
	CHECK(s.ratio > 0.24 && s.ratio < 0.26);
	CHECK(s.behind_ns > 24000000 && s.behind_ns < 26000000);
	/* each for itself: its steps are longest */
	s = slowest((unsigned[]){100, 100, 130, 101}, none, 4);
	CHECK_INT(s.by, TOPLIST_SLOW_STEPS);
	CHECK_INT(s.at, 2);
	CHECK(s.ratio > 0.29 && s.ratio < 0.31);
	/* steps are not known */
	s = slowest(none, (unsigned[]){30, 5}, 2);
	CHECK_INT(s.by, TOPLIST_SLOW_WAITING);
	CHECK_INT(s.at, 1);
	CHECK_INT(s.behind_ns, 0);
	/* one that communicates more than all others slows nobody down */
	CHECK_INT(slowest(same, (unsigned[]){10, 10, 40, 10}, 4).by, TOPLIST_SLOW_NONE);
	CHECK_INT(slowest(same, (unsigned[]){10, 10, 9, 10}, 4).by, TOPLIST_SLOW_NONE);
	CHECK_INT(slowest(same, none, 4).by, TOPLIST_SLOW_NONE);
	/* some jitter of steps is less than what all wait for another */
	s = slowest((unsigned[]){100, 103, 100, 100}, (unsigned[]){32, 32, 2, 31}, 4);
	CHECK(s.by == TOPLIST_SLOW_WAITING && s.at == 2);
	s = slowest((unsigned[]){100, 140, 100, 100}, (unsigned[]){12, 12, 2, 12}, 4);
	CHECK(s.by == TOPLIST_SLOW_STEPS && s.at == 1);
	CHECK_INT(slowest(same, (unsigned[]){10}, 1).by, TOPLIST_SLOW_NONE);
	CHECK_INT(toplist_slowest(NULL, 0).by, TOPLIST_SLOW_NONE);
}

static void wait_interval(struct toplist *t, unsigned long long mean, const char *kinds)
{
	static unsigned long long now = 1700000000000000000;
	struct buf b = {0};

	now += 1000000000;
	buf_addf(&b, "{\"pid\":7,\"from\":%llu,\"to\":%llu,%s\"rows\":[", now - 1000000000, now,
		 kinds);
	buf_addf(&b,
		 "{\"kind\":\"Communication\",\"device\":0,\"name\":\"hcom_allReduce_\","
		 "\"calls\":100,\"total_ns\":%llu}",
		 100 * mean);
	toplist_take(t, finish(&b), 20, count, NULL);
}

TEST(toplist, who_waits_longer_for_good_is_used_to_it)
{
	struct toplist *t = toplist_new();

	begun = over = 0;
	for (int i = 0; i < 5; i++)
		wait_interval(t, 1000000, "");
	for (int i = 0; i < 10; i++)
		wait_interval(t, 2000000, "");
	CHECK_INT(begun, 1);
	CHECK_INT(over, 0);
	for (int i = 0; i < 100; i++)
		wait_interval(t, 2000000, "");
	CHECK_INT(begun, 1);
	CHECK_INT(over, 1);
	CHECK_INT(toplist_longer_waits(t), 0);
	for (int i = 0; i < 4; i++) /* and longer still is longer again */
		wait_interval(t, 4000000, "");
	CHECK_INT(begun, 2);
	CHECK(last.waits);
	CHECK_INT(toplist_longer_waits(t), 1);
	CHECK_INT(toplist_regressions(t), 0); /* who waits has not become slower */
	toplist_free(t);
}

TEST(toplist, what_is_not_collected_any_more_is_not_slow)
{
	struct toplist *t = toplist_new();

	begun = over = 0;
	for (int i = 0; i < 8; i++)
		wait_interval(t, i < 5 ? 1000000 : 2000000, "\"kinds\":[\"Communication\"],");
	CHECK_INT(toplist_longer_waits(t), 1);
	struct buf b = {0};
	buf_add_str(&b, "{\"pid\":7,\"from\":1800000000000000000,\"to\":1800000001000000000,"
			"\"kinds\":[\"Kernel\"],\"rows\":[");
	toplist_take(t, finish(&b), 20, count, NULL);
	CHECK_INT(toplist_longer_waits(t), 0);
	CHECK_INT(over, 1);
	toplist_free(t);
}
