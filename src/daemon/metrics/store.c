/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/metrics_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "daemon/access.h"
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
	buf_add(&key, &s->sample.uid, sizeof(s->sample.uid));
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

static void count_data(struct store *st, const struct stored *s, int by)
{
	st->ndata += (size_t)by;
	source_count(&st->per_uid, s->sample.uid, by);
}

static uint64_t count_of(const struct store *st, uint32_t uid)
{
	uint64_t n = hmap_get(&st->per_uid, uid);

	return n == HMAP_NONE ? 0 : n;
}

/* What has been silent longest, of everybody or of one user; -1: nothing. */
static ssize_t find_oldest(const struct store *st, const uint32_t *uid)
{
	ssize_t oldest = -1;

	for (size_t i = 0; i < st->n; i++)
		if (is_data(st->items[i]) && (!uid || st->items[i]->sample.uid == *uid) &&
		    (oldest < 0 || st->items[i]->heard_ns < st->items[oldest]->heard_ns))
			oldest = (ssize_t)i;
	return oldest;
}

static ssize_t free_place(struct store *st, ssize_t at)
{
	count_data(st, st->items[at], -1);
	hmap_remove(&st->index, key_of(st->items[at]));
	free(st->items[at]);
	st->items[at] = NULL;
	return at;
}

/* A place of the user who has most, if that is more than this one would have; else -1. */
static ssize_t take_from_largest(struct store *st, uint32_t uid)
{
	uint32_t largest = st->ndata ? (uint32_t)source_with_most(&st->per_uid) : uid;

	if (largest == uid || count_of(st, largest) <= count_of(st, uid) + 1)
		return -1;
	return free_place(st, find_oldest(st, &largest));
}

/* Frees the place of what has been silent longest, if that is long enough; else -1. Looks through
 * all only when something can have become old enough: anybody may send as often as they like. */
static ssize_t make_room(struct store *st, uint64_t now_ns)
{
	if (now_ns < st->full_until_ns)
		return -1;
	ssize_t oldest = find_oldest(st, NULL);
	if (oldest < 0)
		return -1;
	uint64_t forget_ns = st->items[oldest]->heard_ns + STORE_FORGET_S * 1000000000ull;
	if (now_ns < forget_ns) {
		st->full_until_ns = forget_ns;
		return -1;
	}
	return free_place(st, oldest);
}

/* Where a new one goes, or -1. */
static ssize_t place_for(struct store *st, const struct stored *s, uint64_t now_ns)
{
	bool data = is_data(s);

	if (st->n == STORE_MAX || (data && st->ndata == STORE_DATA_MAX)) {
		ssize_t place = make_room(st, now_ns);

		return place < 0 && data ? take_from_largest(st, s->sample.uid) : place;
	}
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
		s->interval_ns = now_ns - st->items[at]->heard_ns;
		free(st->items[at]);
		st->items[at] = s;
		return true;
	}
	ssize_t place = place_for(st, s, now_ns);
	if (place < 0) {
		st->refused++;
		free(s);
		return false;
	}
	add_sums(s, NULL);
	if (is_data(s))
		count_data(st, s, 1);
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
	hmap_release(&st->per_uid);
	*st = (struct store){0};
}
