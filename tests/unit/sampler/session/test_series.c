/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/series.h"

#include <jansson.h>

#include "test.h"

static json_t *json_of(const struct series_set *s)
{
	struct buf text = {0};

	buf_add_char(&text, '{');
	series_add_json(s, &text);
	buf_add_char(&text, '}');
	json_t *o = json_loads(buf_str(&text), 0, NULL);
	buf_release(&text);
	return o;
}

static void add_card(struct series_set *s, uint64_t time_ns, int card, double value)
{
	series_add(s, &(struct counter){.time_ns = time_ns,
					.track = COUNTER_NPU,
					.card = card,
					.name = "npu_aicore_usage_rate",
					.n = 1,
					.values = {{"aicore", value}}});
}

TEST(series, nothing_is_empty_lists)
{
	struct series_set *s = series_new(0);
	json_t *o = json_of(s);

	CHECK(o != NULL);
	CHECK_INT(json_object_size(json_object_get(json_object_get(o, "npu"), "cards")), 0);
	CHECK(json_is_array(json_object_get(json_object_get(o, "cpu"), "mem")));
	CHECK(json_is_array(json_object_get(json_object_get(o, "npu"), "hbm_used_mb")));
	CHECK(json_is_array(json_object_get(json_object_get(o, "gpu"), "utilization_rate")));
	CHECK(!json_object_get(json_object_get(o, "gpu"), "hbm_used_mb"));
	json_decref(o);
	series_free(s);
}

TEST(series, cards_and_the_highest_of_them)
{
	struct series_set *s = series_new(1000000);

	for (uint64_t round = 1; round <= 3; round++) {
		add_card(s, 1000000 + round * 1000000, 0, (double)round);
		add_card(s, 1000000 + round * 1000000 + 5000, 1, 50.5);
		add_card(s, 1000000 + round * 1000000 + 9000, 7, 2);
	}
	json_t *o = json_of(s), *npu = json_object_get(o, "npu");
	json_t *all = json_object_get(npu, "aicore_usage_rate");
	CHECK_INT(json_object_size(json_object_get(npu, "cards")), 3);
	CHECK_INT(json_array_size(all), 3);
	json_t *second = json_array_get(all, 1);
	CHECK_INT(json_integer_value(json_object_get(second, "ts_us")), 2000);
	CHECK(json_number_value(json_object_get(second, "value")) == 50.5);
	json_decref(o);
	series_free(s);
}

TEST(series, days_of_them_stay_bounded_and_describe_so)
{
	struct series_set *s = series_new(0);

	for (uint64_t i = 0; i < 3 * SERIES_POINTS; i++) {
		add_card(s, i * 1000, 0, (double)i);
		add_card(s, i * 1000, 1, (double)i + 1);
	}
	json_t *o = json_of(s), *npu = json_object_get(o, "npu");
	json_t *all = json_object_get(npu, "aicore_usage_rate");
	CHECK_INT(json_integer_value(json_object_get(npu, "every")), 4);
	CHECK_INT(json_array_size(all), 3 * SERIES_POINTS / 4);
	for (size_t i = 0; i < json_array_size(all); i++) {
		json_t *p = json_array_get(all, i);

		CHECK_INT(json_integer_value(json_object_get(p, "ts_us")), 4 * (int64_t)i);
		CHECK(json_number_value(json_object_get(p, "value")) == 4 * (double)i + 1);
	}
	json_decref(o);
	series_clear(s);
	series_free(s);
}
