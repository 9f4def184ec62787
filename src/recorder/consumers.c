/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/consumers.h"

static const struct consumer_ops *const table[CONSUMERS_COUNT] = {
	&memory_consumer, &activity_consumer, &flight_consumer, &clocks_consumer, &sampler_consumer,
};

int consumers_open(struct consumers *c, const struct recorder_session *s, struct err *err)
{
	int r = 0;

	while (c->n < CONSUMERS_COUNT) {
		struct consumer *next = &c->list[c->n];
		next->ops = table[c->n];
		r = next->ops->open(s, next, err);
		if (r < 0)
			break;
		if (!next->stream)
			next->stream = next->ops->stream;
		c->n++;
	}
	return r;
}

void consumers_close(struct consumers *c)
{
	while (c->n) {
		struct consumer *last = &c->list[--c->n];
		last->ops->close(last->state);
	}
}

void consumers_dispatch(struct consumers *c, enum frame_type type, const void *payload,
			size_t bytes)
{
	for (struct consumer *one = c->list; one < c->list + c->n; one++)
		stream_frame(one->stream, one->listener, type, payload, bytes, NULL);
}

int consumers_rewrite(const char *recording, const struct buf *session, const char *below,
		      struct buf *report, struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < CONSUMERS_COUNT; i++)
		if (table[i]->rewrite)
			r = table[i]->rewrite(recording, session, below, report, err);
	return r;
}
