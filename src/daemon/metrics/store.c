/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/metrics_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "daemon/metrics/names.h"

static size_t text_bytes(const char *s)
{
	return s ? strlen(s) + 1 : 0;
}

static const char *put_text(char **at, const char *s)
{
	if (!s)
		return NULL;
	size_t n = strlen(s) + 1;
	char *to = memcpy(*at, s, n);
	*at += n;
	return to;
}

struct stored *stored_copy(const struct sample *s)
{
	size_t bytes = sizeof(struct stored) + s->n * (sizeof(struct metric) + sizeof(double)) +
		       text_bytes(s->source);

	for (size_t i = 0; i < s->n; i++) {
		const struct metric *m = &s->metrics[i];

		bytes += text_bytes(m->name) + text_bytes(m->instance) +
			 (m->type == METRIC_TEXT ? text_bytes(m->s) : 0);
	}
	struct stored *c = xcalloc(1, bytes);
	struct metric *metrics = (struct metric *)(c + 1);
	c->sums = (double *)(metrics + s->n);
	char *text = (char *)(c->sums + s->n);
	c->sample = *s;
	c->sample.source = put_text(&text, s->source);
	c->sample.metrics = metrics;
	for (size_t i = 0; i < s->n; i++) {
		metrics[i] = s->metrics[i];
		metrics[i].name = put_text(&text, metrics[i].name);
		metrics[i].instance = put_text(&text, metrics[i].instance);
		if (metrics[i].type == METRIC_TEXT)
			metrics[i].s = put_text(&text, metrics[i].s);
	}
	return c;
}

/* Monitors report many kinds, and markers of many domains, on one device. */
static uint64_t key_of(const struct stored *s)
{
	const char *kind = NULL, *domain = NULL;
	struct buf key = {0};

	if (!strcmp(s->sample.source, "data")) {
		kind = metric_text(&s->sample, "kind");
		domain = metric_text(&s->sample, "domain");
	}
	buf_add(&key, s->sample.source, strlen(s->sample.source) + 1);
	buf_add(&key, &s->sample.device, sizeof(s->sample.device));
	if (kind)
		buf_add(&key, kind, strlen(kind) + 1);
	if (domain)
		buf_add(&key, domain, strlen(domain) + 1);
	uint64_t hash = XXH3_64bits(key.data, key.len);
	buf_release(&key);
	return hash;
}

static bool same_name(const struct metric *a, const struct metric *b)
{
	if (strcmp(a->name, b->name) || !a->instance != !b->instance)
		return false;
	return !a->instance || !strcmp(a->instance, b->instance);
}

/* Most samples of a source have the same metrics in the same order: `at` is tried first. */
static double sum_before(const struct stored *old, const struct metric *m, size_t at)
{
	if (at < old->sample.n && same_name(&old->sample.metrics[at], m))
		return old->sums[at];
	for (size_t i = 0; i < old->sample.n; i++)
		if (same_name(&old->sample.metrics[i], m))
			return old->sums[i];
	return 0;
}

static void add_sums(struct stored *s, const struct stored *old)
{
	s->records = 1 + (old ? old->records : 0);
	for (size_t i = 0; i < s->sample.n; i++) {
		const struct metric *m = &s->sample.metrics[i];
		double v = 0;

		if (metric_name_find(m->name)->kind != METRIC_DELTA || !metric_number(m, &v))
			continue;
		s->sums[i] = v + (old ? sum_before(old, m, i) : 0);
	}
}

static bool is_data(const struct stored *s)
{
	return !strcmp(s->sample.source, "data");
}

/* Frees the place of what has been silent longest, if that is long enough; else -1. Looks through
 * all only when something can have become old enough: anybody may send as often as he likes. */
static ssize_t make_room(struct store *st, uint64_t now_ns)
{
	ssize_t oldest = -1;

	if (now_ns < st->full_until_ns)
		return -1;
	for (size_t i = 0; i < st->n; i++)
		if (is_data(st->items[i]) &&
		    (oldest < 0 || st->items[i]->heard_ns < st->items[oldest]->heard_ns))
			oldest = (ssize_t)i;
	if (oldest < 0)
		return -1;
	uint64_t forget_ns = st->items[oldest]->heard_ns + STORE_FORGET_S * 1000000000ull;
	if (now_ns < forget_ns) {
		st->full_until_ns = forget_ns;
		return -1;
	}
	hmap_remove(&st->index, key_of(st->items[oldest]));
	free(st->items[oldest]);
	st->items[oldest] = NULL;
	st->ndata--;
	return oldest;
}

/* Where a new one goes, or -1. */
static ssize_t place_for(struct store *st, bool data, uint64_t now_ns)
{
	if (st->n == STORE_MAX || (data && st->ndata == STORE_DATA_MAX))
		return make_room(st, now_ns);
	st->items = xgrow(st->items, &st->cap, st->n + 1, sizeof(*st->items));
	return (ssize_t)st->n++;
}

bool store_put(struct store *st, const struct sample *sample, uint64_t now_ns)
{
	struct stored *s = stored_copy(sample);
	uint64_t key = key_of(s), at = hmap_get(&st->index, key);

	s->heard_ns = now_ns;
	if (at != HMAP_NONE) {
		add_sums(s, st->items[at]);
		free(st->items[at]);
		st->items[at] = s;
		return true;
	}
	ssize_t place = place_for(st, is_data(s), now_ns);
	if (place < 0) {
		st->refused++;
		free(s);
		return false;
	}
	add_sums(s, NULL);
	st->ndata += is_data(s);
	hmap_put(&st->index, key, (uint64_t)place);
	st->items[place] = s;
	return true;
}

void store_release(struct store *st)
{
	for (size_t i = 0; i < st->n; i++)
		free(st->items[i]);
	free(st->items);
	hmap_release(&st->index);
	*st = (struct store){0};
}
