/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/series.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define ALL_CARDS (-1) /* the highest value of any */
#define COLUMNS 8 /* values of a point at most */

struct point {
	int64_t ts_us;
	double values[];
};

/* Values of one counter of one card over time. */
struct series {
	enum counter_track track;
	int card;
	const char *name; /* in the object; static */
	unsigned columns;
	const char *keys[COLUMNS];
	char *points; /* struct point, each with `columns` values */
	size_t n, cap;
	unsigned every; /* that is kept: 1, 2, 4 … */
	uint64_t seen;
	int last_card; /* of ALL_CARDS: the highest in this round */
	bool last_kept;
};

struct series_set {
	uint64_t start_ns;
	struct series *list;
	size_t n, cap;
};

/* Which array a counter is. The second: whether there is one for all cards, too. */
static const struct kind {
	const char *counter, *array;
	bool over_cards;
} kinds[] = {
	{"npu_aicore_usage_rate", "aicore_usage_rate", true},
	{"npu_hbm_usage_rate", "hbm_usage_rate", true},
	{"npu_hbm_used_mb", "hbm_used_mb", true},
	{"npu_hbm_total_mb", "hbm_total_mb", false},
	{"gpu_utilization_rate", "utilization_rate", true},
	{"gpu_memory_usage_rate", "memory_usage_rate", true},
	{"gpu_memory_used_mb", "memory_used_mb", true},
	{"gpu_memory_total_mb", "memory_total_mb", false},
	{"cpu_mem", "mem", false},
};

struct series_set *series_new(uint64_t start_ns)
{
	struct series_set *s = xcalloc(1, sizeof(*s));

	s->start_ns = start_ns;
	return s;
}

void series_clear(struct series_set *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->list[i].points);
	s->n = 0;
}

void series_free(struct series_set *s)
{
	if (!s)
		return;
	series_clear(s);
	free(s->list);
	free(s);
}

static size_t point_bytes(const struct series *one)
{
	return sizeof(struct point) + one->columns * sizeof(double);
}

static struct point *point_at(const struct series *one, size_t i)
{
	return (struct point *)(void *)(one->points + i * point_bytes(one));
}

static struct series *find_series(struct series_set *s, const struct counter *c, const char *name,
				  int card)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].track == c->track && s->list[i].card == card &&
		    s->list[i].name == name)
			return &s->list[i];
	s->list = xgrow(s->list, &s->cap, s->n + 1, sizeof(*s->list));
	struct series *one = &s->list[s->n++];
	*one = (struct series){.track = c->track,
			       .card = card,
			       .name = name,
			       .columns = c->n + c->more,
			       .every = 1,
			       .last_card = INT32_MAX};
	for (unsigned i = 0; i < one->columns; i++)
		one->keys[i] = c->values[i].key;
	return one;
}

static void keep_half(struct series *one)
{
	size_t n = 0;

	for (size_t i = 0; i < one->n; i += 2)
		memmove(point_at(one, n++), point_at(one, i), point_bytes(one));
	one->n = n;
	one->every *= 2;
}

static void add_point(struct series *one, int64_t ts_us, const struct counter *c)
{
	one->last_kept = one->seen++ % one->every == 0;
	if (!one->last_kept)
		return;
	if (one->n == SERIES_POINTS) {
		keep_half(one);
		one->last_kept = (one->seen - 1) % one->every == 0;
		if (!one->last_kept)
			return;
	}
	one->points = xgrow(one->points, &one->cap, one->n + 1, point_bytes(one));
	struct point *p = point_at(one, one->n++);
	p->ts_us = ts_us;
	for (unsigned i = 0; i < one->columns; i++)
		p->values[i] = i < c->n + c->more ? c->values[i].value : 0;
}

/* Cards are read in their order: one that does not come behind the last begins a new round. */
static void add_highest(struct series *one, int64_t ts_us, const struct counter *c)
{
	bool same_round = c->card > one->last_card;

	one->last_card = c->card;
	if (!same_round) {
		add_point(one, ts_us, c);
		return;
	}
	struct point *last = one->n ? point_at(one, one->n - 1) : NULL;
	if (last && one->last_kept && c->values[0].value > last->values[0])
		last->values[0] = c->values[0].value;
}

void series_add(struct series_set *s, const struct counter *c)
{
	int64_t ts_us = (int64_t)(c->time_ns - s->start_ns) / 1000;

	if (c->track > COUNTER_HOST || c->n + c->more == 0 || c->n + c->more > COLUMNS)
		return;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const struct kind *k = &kinds[i];

		if (strcmp(k->counter, c->name) != 0)
			continue;
		add_point(find_series(s, c, k->array, c->card), ts_us, c);
		if (k->over_cards)
			add_highest(find_series(s, c, k->array, ALL_CARDS), ts_us, c);
	}
}

/* --- as text --- */

static void add_number(struct buf *out, const char *key, double value)
{
	buf_addf(out, ",\"%s\":", key);
	if (!isfinite(value))
		buf_add_str(out, "null");
	else if (value == floor(value) && fabs(value) < 1e15)
		buf_addf(out, "%.0f", value);
	else
		buf_addf(out, "%.6g", value);
}

static void add_array(const struct series *one, struct buf *out)
{
	buf_addf(out, "\"%s\":[", one->name);
	for (size_t i = 0; i < one->n; i++) {
		const struct point *p = point_at(one, i);

		buf_addf(out, "%s{\"ts_us\":%" PRId64, i ? "," : "", p->ts_us);
		for (unsigned k = 0; k < one->columns; k++)
			add_number(out, one->track == COUNTER_HOST ? one->keys[k] : "value",
				   p->values[k]);
		buf_add_char(out, '}');
	}
	buf_add_char(out, ']');
}

/* The arrays of one card, each with what separates it from what is before it. */
static void add_arrays(const struct series_set *s, enum counter_track track, int card, bool first,
		       struct buf *out)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->list[i].track != track || s->list[i].card != card)
			continue;
		if (!first)
			buf_add_char(out, ',');
		add_array(&s->list[i], out);
		first = false;
	}
}

/* The next higher number of a card; -1: there is none. */
static int next_card(const struct series_set *s, enum counter_track track, int after)
{
	int next = -1;

	for (size_t i = 0; i < s->n; i++) {
		int card = s->list[i].card;

		if (s->list[i].track == track && card > after && (next < 0 || card < next))
			next = card;
	}
	return next;
}

static unsigned every_of(const struct series_set *s, enum counter_track track)
{
	unsigned every = 1;

	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].track == track && s->list[i].every > every)
			every = s->list[i].every;
	return every;
}

static bool is_there(const struct series_set *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].card == ALL_CARDS && s->list[i].name == name)
			return true;
	return false;
}

/* Who reads the arrays need not ask whether there was such a device. */
static void add_empty(const struct series_set *s, enum counter_track track, struct buf *out)
{
	const char *device = track == COUNTER_NPU ? "npu_" : "gpu_";

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].over_cards && !strncmp(kinds[i].counter, device, strlen(device)) &&
		    !is_there(s, kinds[i].array))
			buf_addf(out, ",\"%s\":[]", kinds[i].array);
}

static void add_cards(const struct series_set *s, enum counter_track track, struct buf *out)
{
	bool first = true;

	buf_addf(out, "{\"every\":%u,\"cards\":{", every_of(s, track));
	for (int card = -1; (card = next_card(s, track, card)) >= 0; first = false) {
		buf_addf(out, "%s\"%d\":{", first ? "" : ",", card);
		add_arrays(s, track, card, true, out);
		buf_add_char(out, '}');
	}
	buf_add_char(out, '}');
	add_arrays(s, track, ALL_CARDS, false, out);
	add_empty(s, track, out);
	buf_add_char(out, '}');
}

void series_add_json(const struct series_set *s, struct buf *out)
{
	buf_add_str(out, "\"npu\":");
	add_cards(s, COUNTER_NPU, out);
	buf_add_str(out, ",\"gpu\":");
	add_cards(s, COUNTER_GPU, out);
	buf_addf(out, ",\"cpu\":{\"every\":%u,", every_of(s, COUNTER_HOST));
	size_t begin = out->len;
	add_arrays(s, COUNTER_HOST, -1, true, out);
	if (out->len == begin)
		buf_add_str(out, "\"mem\":[]");
	buf_add_char(out, '}');
}
