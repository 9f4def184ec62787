/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define NAMED_MAX 5 /* hosts whose clock is told one by one */

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

int64_t ctl_clock_middle(const struct ctl_span *spans, size_t n)
{
	int64_t *all = xcalloc(n + 1, sizeof(*all));

	for (size_t i = 0; i < n; i++)
		all[i] = spans[i].low_ns + (spans[i].high_ns - spans[i].low_ns) / 2;
	qsort(all, n, sizeof(*all), by_value);
	int64_t middle = n ? all[n / 2] : 0;
	free(all);
	return middle;
}

int64_t ctl_clock_apart(struct ctl_span s, int64_t middle_ns)
{
	if (s.low_ns > middle_ns)
		return s.low_ns - middle_ns;
	if (s.high_ns < middle_ns)
		return s.high_ns - middle_ns;
	return 0;
}

static void warn(const struct ctl *c, const struct ctl_span *spans, const size_t *host_of, size_t n,
		 int64_t middle)
{
	size_t wrong = 0;

	for (size_t i = 0; i < n; i++) {
		int64_t apart = ctl_clock_apart(spans[i], middle);

		if (llabs(apart) <= CTL_CLOCK_TOLERANCE_NS || ++wrong > NAMED_MAX)
			continue;
		ctl_say(c,
			"the clock of %s is at least %.1f s %s the others: its trace starts that "
			"much %s",
			c->hosts.v[host_of[i]].label, (double)llabs(apart) / 1e9,
			apart > 0 ? "ahead of" : "behind", apart > 0 ? "earlier" : "later");
	}
	if (wrong > NAMED_MAX)
		ctl_say(c, "so are the clocks of %zu more hosts", wrong - NAMED_MAX);
}

int ctl_clock_start(struct ctl *c, unsigned delay_s, uint64_t *out_ms, struct err *err)
{
	struct ctl_answer *answers = ctl_answers_new(c);
	struct ctl_span *spans = xcalloc(c->hosts.n, sizeof(*spans));
	size_t *host_of = xcalloc(c->hosts.n, sizeof(*host_of)), n = 0;

	int r = ctl_ask_all(c, json_pack("{s:s}", "fn", "getTime"), answers, err);
	for (size_t i = 0; i < c->hosts.n; i++) {
		json_t *time = json_object_get(answers[i].reply, "time_ns");
		int64_t theirs = json_integer_value(time);
		int64_t took = (int64_t)(answers[i].seconds * 1e9);

		if (!json_is_integer(time) || theirs < 0 || theirs > INT64_MAX / 2)
			continue;
		host_of[n] = i;
		spans[n++] = (struct ctl_span){theirs - c->asked_ns - took, theirs - c->asked_ns};
	}
	int64_t middle = ctl_clock_middle(spans, n);
	warn(c, spans, host_of, n, middle);
	*out_ms =
		(uint64_t)(clock_real_ns() / 1000000 + middle / 1000000 + (int64_t)delay_s * 1000);
	free(spans);
	free(host_of);
	ctl_answers_free(c, answers);
	return r;
}
