/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/clocks.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/containers/intern.h"
#include "base/mem.h"

#define AT_A_TIME 32 /* more, and answers would wait for us to read them */

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

/* The time in an answer; false: it has none that can be one. */
static bool read_time(const struct client_answer *a, int64_t *out_ns)
{
	const json_t *time = json_object_get(a->reply, "time_ns");

	*out_ns = json_integer_value(time);
	return json_is_integer(time) && *out_ns > 0 && *out_ns < CLOCK_FILE_TIME_MAX &&
	       a->asked_ns && a->answered_ns >= a->asked_ns;
}

int clocks_common_start(struct client_group *g, unsigned delay_s, uint64_t *out_ms,
			struct clock_difference **out, size_t *out_n, struct err *err)
{
	size_t hosts = g->hosts->n, n = 0;
	struct client_answer *answers = client_answers_new(g);
	struct clock_span *spans = xcalloc(hosts, sizeof(*spans));
	struct clock_difference *all = xcalloc(hosts, sizeof(*all));
	int64_t ours = clock_real_ns() - (int64_t)clock_mono_ns(), theirs;

	int r = client_ask_all(g, json_pack("{s:s}", "fn", "getTime"), answers, err);
	for (size_t i = 0; i < hosts; i++) {
		const struct client_answer *a = &answers[i];

		if (!read_time(a, &theirs))
			continue;
		all[n].host = i;
		spans[n++] = (struct clock_span){theirs, theirs - ours - (int64_t)a->answered_ns,
						 theirs - ours - (int64_t)a->asked_ns};
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

/* --- round trips --- */

static void add_trips(const struct client_group *g, const struct client_answer *answers,
		      const char *by, struct clock_trips *out)
{
	for (size_t i = 0; i < g->hosts->n; i++) {
		const struct client_answer *a = &answers[i];
		const char *label = g->hosts->v[i].label;
		const char *host = json_string_value(json_object_get(a->reply, "hostname"));
		int64_t theirs;

		if (!read_time(a, &theirs))
			continue;
		/* whatever a daemon answers, what is written can be read again */
		host = host && *host && strlen(host) <= HOST_NAME_MAX ? host : label;
		clock_trips_add(out, &(struct clock_trip){.by = by,
							  .host = intern(host, strlen(host)),
							  .label = intern(label, strlen(label)),
							  .asked_ns = (int64_t)a->asked_ns,
							  .answered_ns = (int64_t)a->answered_ns,
							  .time_ns = theirs});
	}
}

int clocks_ask(struct client_group *g, unsigned rounds, struct clock_trips *out,
	       struct client_answer *last, struct err *err)
{
	const char *by = clock_file_own_name();
	json_t **requests = xcalloc(g->hosts->n, sizeof(*requests));
	json_t *request = json_pack("{s:s}", "fn", "getTime");
	int r = 0;

	g->max_in_flight = AT_A_TIME;
	for (size_t i = 0; i < g->hosts->n; i++)
		requests[i] = request;
	for (unsigned k = 0; k < rounds && r == 0; k++) {
		struct client_answer *answers = client_answers_new(g);

		r = client_ask(g, requests, answers, err);
		add_trips(g, answers, by, out);
		for (size_t i = 0; i < g->hosts->n; i++) {
			struct client_answer before = last[i];

			if (k && !requests[i])
				continue;
			last[i] = answers[i];
			answers[i] = before;
			if (!last[i].reply) /* once is enough to wait for it */
				requests[i] = NULL;
		}
		client_answers_free(g, answers);
	}
	g->max_in_flight = 0;
	json_decref(request);
	free(requests);
	return r;
}
