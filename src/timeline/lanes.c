/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Slices of a track in order of their beginning, and nested. Sources report work when it has ended, so
 * what comes waits a little for older slices. One that overlaps another without being inside of it, or
 * that comes too late, goes to the next lane: a track of its own beside the first.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "timeline/timeline_impl.h"

/* Earlier first; of those that begin together the longer one, which is around the others. */
static bool comes_before(const struct pending_key *a, const struct pending_key *b)
{
	if (a->start_ns != b->start_ns)
		return a->start_ns < b->start_ns;
	if (a->end_ns != b->end_ns)
		return a->end_ns > b->end_ns;
	return a->seq < b->seq;
}

static void swap_keys(struct pending_key *a, struct pending_key *b)
{
	struct pending_key x = *a;

	*a = *b;
	*b = x;
}

static void sift_down(struct timeline_track *k)
{
	struct pending_key *h = k->pending->keys;

	for (unsigned i = 0;;) {
		unsigned child = 2 * i + 1;

		if (child >= k->npending)
			return;
		if (child + 1 < k->npending && comes_before(&h[child + 1], &h[child]))
			child++;
		if (!comes_before(&h[child], &h[i]))
			return;
		swap_keys(&h[i], &h[child]);
		i = child;
	}
}

/* Ends what ends until then. */
static void close_slices(struct timeline_track *k, struct lane *l, uint64_t until_ns)
{
	while (l->depth && l->ends[l->depth - 1] <= until_ns)
		output_end(k->t, &l->out, l->ends[--l->depth], true);
}

/* An empty slice inside of nothing, or at the edge of one that ends here, fits everywhere. */
static bool fits_lane(const struct lane *l, const struct pending_key *s)
{
	unsigned depth = l->depth;

	if (s->start_ns < l->last_ns)
		return false;
	while (depth && l->ends[depth - 1] <= s->start_ns)
		depth--;
	return depth < LANE_DEPTH && (!depth || l->ends[depth - 1] >= s->end_ns);
}

static struct lane *find_lane(struct timeline_track *k, const struct pending_key *s)
{
	for (unsigned i = 0; i < k->nlanes; i++)
		if (fits_lane(k->lanes[i], s))
			return k->lanes[i];
	if (k->nlanes == LANES_MAX)
		return NULL;
	struct lane *l = k->lanes[k->nlanes] = xcalloc(1, sizeof(*l));
	if (k->nlanes || !k->has_out)
		l->out = output_track(k->t, k->process, &k->where, k->name, k->nlanes);
	else
		l->out = k->out; /* instants were there before */
	if (!k->nlanes++) {
		k->out = l->out;
		k->has_out = true;
	}
	return l;
}

/* Returns the room that is free now. */
static unsigned write_oldest(struct timeline_track *k)
{
	struct pending_key *s = &k->pending->keys[0];
	struct pending_slice *slice = &k->pending->slices[s->slot];
	struct lane *l = find_lane(k, s);
	unsigned slot = s->slot;

	if (l) {
		close_slices(k, l, s->start_ns);
		slice->event.args = slice->args;
		output_begin(k->t, &l->out, s->start_ns, s->end_ns, &slice->event);
		l->ends[l->depth++] = s->end_ns;
		l->last_ns = s->start_ns;
		k->t->counts.slices++;
		k->t->counts.arrows += slice->event.flow != 0 && slice->event.flow_end;
	} else {
		k->t->counts.left_out++;
	}
	*s = k->pending->keys[--k->npending];
	sift_down(k);
	return slot;
}

void lanes_put(struct timeline_track *k, uint64_t start_ns, uint64_t end_ns,
	       const struct timeline_event *e)
{
	struct pending_slice *s;
	struct pending_key *h;
	unsigned i, slot;

	if (!k->pending)
		k->pending = xcalloc(1, sizeof(*k->pending));
	slot = k->npending == PENDING_MAX ? write_oldest(k) : k->npending;
	s = &k->pending->slices[slot];
	s->event = *e;
	s->event.nargs = e->nargs < TIMELINE_MAX_ARGS ? e->nargs : TIMELINE_MAX_ARGS;
	if (e->nargs)
		memcpy(s->args, e->args, s->event.nargs * sizeof(*e->args));
	h = k->pending->keys;
	i = k->npending++;
	h[i] = (struct pending_key){start_ns, end_ns, k->seq++, slot};
	for (; i && comes_before(&h[i], &h[(i - 1) / 2]); i = (i - 1) / 2)
		swap_keys(&h[i], &h[(i - 1) / 2]);
}

void lanes_finish(struct timeline_track *k)
{
	while (k->npending)
		write_oldest(k);
	for (unsigned i = 0; i < k->nlanes; i++)
		close_slices(k, k->lanes[i], UINT64_MAX);
}

void lanes_release(struct timeline_track *k)
{
	for (unsigned i = 0; i < k->nlanes; i++)
		free(k->lanes[i]);
	free(k->pending);
}
