/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/metrics_reader.h"

#include <errno.h>
#include <time.h>

const struct metrics_source *const metrics_sources[METRICS_SOURCES] = {
	&host_metrics, &perf_metrics, &ascend_metrics, &cuda_metrics};

void metrics_reader_open(struct metrics_reader *r, unsigned wanted)
{
	const struct metrics_options o = {.env_attribution = true};

	*r = (struct metrics_reader){0};
	for (size_t i = 0; i < METRICS_SOURCES; i++) {
		struct metrics_opened *s = &r->sources[i];

		if (wanted && !(wanted & 1u << i))
			continue;
		if (metrics_sources[i]->open(&s->self, &o, &s->err) < 0)
			s->self = NULL;
	}
}

bool metrics_reader_has_any(const struct metrics_reader *r)
{
	for (size_t i = 0; i < METRICS_SOURCES; i++)
		if (r->sources[i].self)
			return true;
	return false;
}

void metrics_reader_close(struct metrics_reader *r)
{
	for (size_t i = 0; i < METRICS_SOURCES; i++)
		if (r->sources[i].self)
			metrics_sources[i]->close(r->sources[i].self);
}

/* Counts samples, and passes them on unless it is the first round. */
struct counting {
	const struct metrics_rounds *rounds;
	bool quiet;
	unsigned n;
};

static void on_sample(void *arg, const struct sample *s)
{
	struct counting *c = arg;

	c->n++;
	if (!c->quiet)
		c->rounds->sample(c->rounds->arg, s);
}

static void read_round(struct metrics_reader *r, struct counting *c)
{
	c->n = 0;
	for (size_t i = 0; i < METRICS_SOURCES; i++) {
		struct metrics_opened *s = &r->sources[i];

		if (!s->self)
			continue;
		s->err.text[0] = '\0';
		metrics_sources[i]->read(s->self, on_sample, c, &s->err);
	}
}

static void sleep_seconds(unsigned seconds)
{
	struct timespec t = {.tv_sec = seconds};

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

void metrics_reader_run(struct metrics_reader *r, const struct metrics_rounds *rounds)
{
	struct counting c = {.rounds = rounds, .quiet = true};

	read_round(r, &c);
	c.quiet = false;
	do {
		sleep_seconds(rounds->interval_s);
		read_round(r, &c);
	} while (rounds->round_done(rounds->arg, c.n) && !rounds->once);
}
