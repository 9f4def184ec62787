/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/clocks.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

int64_t clocks_middle(const struct clock_span *spans, size_t n)
{
	int64_t *all = xcalloc(n + 1, sizeof(*all));

	for (size_t i = 0; i < n; i++)
		all[i] = spans[i].low_ns + (spans[i].high_ns - spans[i].low_ns) / 2;
	qsort(all, n, sizeof(*all), by_value);
	int64_t middle = n ? all[n / 2] : 0;
	free(all);
	return middle;
}

int64_t clocks_apart(struct clock_span s, int64_t middle_ns)
{
	if (s.low_ns > middle_ns)
		return s.low_ns - middle_ns;
	if (s.high_ns < middle_ns)
		return s.high_ns - middle_ns;
	return 0;
}

int clocks_common_start(struct client_group *g, unsigned delay_s, uint64_t *out_ms,
			struct clock_difference **out, size_t *out_n, struct err *err)
{
	size_t hosts = g->hosts->n, n = 0;
	struct client_answer *answers = client_answers_new(g);
	struct clock_span *spans = xcalloc(hosts, sizeof(*spans));
	struct clock_difference *all = xcalloc(hosts, sizeof(*all));

	int r = client_ask_all(g, json_pack("{s:s}", "fn", "getTime"), answers, err);
	for (size_t i = 0; i < hosts; i++) {
		json_t *time = json_object_get(answers[i].reply, "time_ns");
		int64_t theirs = json_integer_value(time);
		int64_t took = (int64_t)(answers[i].seconds * 1e9);

		if (!json_is_integer(time) || theirs < 0 || theirs > INT64_MAX / 2)
			continue;
		all[n].host = i;
		spans[n++] = (struct clock_span){theirs - g->asked_ns - took, theirs - g->asked_ns};
	}
	int64_t middle = clocks_middle(spans, n);
	*out_n = 0;
	for (size_t i = 0; i < n; i++) {
		int64_t apart = clocks_apart(spans[i], middle);

		if (llabs(apart) > CLOCKS_TOLERANCE_NS)
			all[(*out_n)++] = (struct clock_difference){all[i].host, apart};
	}
	*out = all;
	*out_ms =
		(uint64_t)(clock_real_ns() / 1000000 + middle / 1000000 + (int64_t)delay_s * 1000);
	free(spans);
	client_answers_free(g, answers);
	return r;
}
