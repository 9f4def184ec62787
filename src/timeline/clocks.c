/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "timeline/clocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "timeline/clocks_impl.h"

#define FAR (INT64_C(1) << 61) /* no two clocks are so far apart */

struct timeline_clocks *timeline_clocks_new(void)
{
	struct timeline_clocks *c = xcalloc(1, sizeof(*c));

	c->collectives = collectives_new();
	return c;
}

void timeline_clocks_free(struct timeline_clocks *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->nsources; i++)
		free(c->sources[i].path);
	free(c->sources);
	free(c->hosts);
	free(c->own_names);
	clock_trips_release(&c->trips);
	collectives_free(c->collectives);
	free(c);
}

/* --- hosts --- */

int timeline_clocks_add(struct timeline_clocks *c, const struct timeline_source *s, struct err *err)
{
	struct source_files found = {0};
	int r = source_files_find(&found, s->path, err);

	for (size_t i = 0; i < found.n && r == 0; i++) {
		struct source_file *f = &found.list[i];

		*XPUSH(c->sources, c->nsources, c->cap_sources) =
			(struct clock_source){.path = xstrdup(f->path),
					      .kind = f->kind,
					      .given = s->host,
					      .own = clocks_own_name(f->path, f->kind),
					      .host = HOST_UNKNOWN};
	}
	source_files_release(&found);
	return r;
}

static const char *name_of(const struct clock_source *s)
{
	return s->given ? s->given : s->own;
}

static uint32_t find_host(struct timeline_clocks *c, const struct clock_source *s)
{
	const char *name = name_of(s);

	for (size_t i = 0; i < c->nhosts; i++)
		if (c->hosts[i].host == name)
			return (uint32_t)i;
	c->hosts = xrealloc(c->hosts, (c->nhosts + 1) * sizeof(*c->hosts));
	c->own_names = xrealloc(c->own_names, (c->nhosts + 1) * sizeof(*c->own_names));
	c->hosts[c->nhosts] = (struct timeline_clock){
		.host = name, .first_ns = INT64_MAX, .is_base = !c->nhosts, .known = !c->nhosts};
	c->own_names[c->nhosts] = s->own;
	return (uint32_t)c->nhosts++;
}

static void find_hosts(struct timeline_clocks *c)
{
	const char *first = NULL;

	for (size_t i = 0; i < c->nsources; i++) {
		const char *name = name_of(&c->sources[i]);

		if (!name || c->sources[i].kind == SOURCE_CLOCKS)
			continue;
		c->several |= first && name != first;
		first = first ? first : name;
	}
	for (size_t i = 0; i < c->nsources && c->several; i++)
		if (name_of(&c->sources[i]) && c->sources[i].kind != SOURCE_CLOCKS)
			c->sources[i].host = find_host(c, &c->sources[i]);
}

/* As gputrace writes the name of a host into that of a file: "trace_node1_4711.json". */
static bool is_in_name(const char *path, const char *label)
{
	const char *slash = strrchr(path, '/');
	struct buf part = {0};

	buf_add_char(&part, '_');
	for (; *label; label++)
		if (!strchr("[]", *label))
			buf_add_char(&part, strchr(":%/", *label) ? '-' : *label);
	buf_add_char(&part, '_');
	bool found = strstr(slash ? slash : path, buf_str(&part)) != NULL;
	buf_release(&part);
	return found;
}

/* Traces that do not say of which host they are, but are called after one that was asked for its time. */
static void name_traces(struct timeline_clocks *c)
{
	for (size_t i = 0; i < c->nsources; i++) {
		struct clock_source *s = &c->sources[i];

		for (size_t k = 0; s->kind == SOURCE_CHROME && !name_of(s) && k < c->trips.n; k++)
			if (is_in_name(s->path, c->trips.list[k].label))
				s->own = c->trips.list[k].label;
	}
}

/* "node1" is "node1.cluster", but "node1.a" is not "node1.b". */
static bool is_same_name(const char *a, const char *b)
{
	size_t n = strcspn(a, ".");

	if (!strcmp(a, b))
		return true;
	return n == strcspn(b, ".") && !strncmp(a, b, n) && (!a[n] || !b[n]);
}

static uint32_t host_of_trip(const struct timeline_clocks *c, const struct clock_trip *t)
{
	for (size_t i = 0; i < c->nhosts; i++)
		if (!strcmp(c->hosts[i].host, t->label) || !strcmp(c->hosts[i].host, t->host))
			return (uint32_t)i;
	for (size_t i = 0; i < c->nhosts; i++) {
		const char *own = c->own_names[i];

		if (is_same_name(c->hosts[i].host, t->host) ||
		    is_same_name(c->hosts[i].host, t->label) || (own && is_same_name(own, t->host)))
			return (uint32_t)i;
	}
	return HOST_UNKNOWN;
}

/* --- one clock out of limits --- */

/* The clock of u minus that of v, at a time of either. */
struct edge {
	uint32_t u, v;
	int64_t at_u, at_v, low, high;
	bool trip;
};

/* Hosts, and behind them those that have asked hosts for their time. */
struct node {
	bool known;
	struct clock_line line; /* ahead of the base */
	int64_t from_ns, to_ns; /* of interest */
	unsigned trips, collectives;
	const char *asker;
};

struct graph {
	struct node *nodes;
	size_t nnodes;
	struct edge *edges;
	size_t nedges, cap_edges;
};

/* y + low, y - high and so on: false if that is no clock any more. */
static bool add_far(int64_t a, int64_t b, int64_t c, int64_t *out)
{
	__int128 sum = (__int128)a + b + c;

	if (sum > FAR || sum < -FAR)
		return false;
	*out = (int64_t)sum;
	return true;
}

/* What an edge to a known clock says about the one at its other end. */
static bool read_edge(const struct graph *g, const struct edge *e, uint32_t node,
		      struct clock_span *out)
{
	bool is_u = e->u == node;
	const struct node *known = &g->nodes[is_u ? e->v : e->u];
	const int64_t sign = is_u ? 1 : -1, low = is_u ? e->low : e->high,
		      high = is_u ? e->high : e->low;

	if ((e->u != node && e->v != node) || !known->known)
		return false;
	int64_t there = clock_line_at(&known->line, is_u ? e->at_v : e->at_u);
	int64_t bound = known->line.bound_ns;
	*out = (struct clock_span){is_u ? e->at_u : e->at_v, CLOCK_OPEN_LOW, CLOCK_OPEN_HIGH};
	if (low != CLOCK_OPEN_LOW && low != CLOCK_OPEN_HIGH)
		(void)add_far(there, sign * low, -bound, &out->low_ns);
	if (high != CLOCK_OPEN_HIGH && high != CLOCK_OPEN_LOW)
		(void)add_far(there, sign * high, bound, &out->high_ns);
	return out->low_ns != CLOCK_OPEN_LOW || out->high_ns != CLOCK_OPEN_HIGH;
}

static bool fit_node(const struct graph *g, uint32_t node, struct node *out)
{
	struct clock_span *spans = xcalloc(g->nedges + 1, sizeof(*spans));
	size_t n = 0;

	out->trips = out->collectives = 0;
	for (size_t i = 0; i < g->nedges; i++) {
		if (!read_edge(g, &g->edges[i], node, &spans[n]))
			continue;
		n++;
		out->trips += g->edges[i].trip;
		out->collectives += !g->edges[i].trip;
	}
	out->known = clock_fit(spans, n, out->from_ns, out->to_ns, &out->line);
	free(spans);
	return out->known;
}

/* First those who asked, from the base's trips; then hosts from both; then hosts from hosts. */
static void solve_graph(struct graph *g, size_t hosts)
{
	struct node *found = xcalloc(g->nnodes + 1, sizeof(*found));
	bool more = true;

	for (unsigned turn = 0; more || turn < 2; turn++) {
		more = false;
		for (size_t i = 0; i < g->nnodes; i++) {
			found[i] = g->nodes[i];
			if (!g->nodes[i].known && (turn || i >= hosts))
				more |= fit_node(g, (uint32_t)i, &found[i]);
		}
		memcpy(g->nodes, found, g->nnodes * sizeof(*found));
	}
	free(found);
}

static uint32_t find_asker(struct graph *g, size_t hosts, const struct clock_trip *t)
{
	for (size_t i = hosts; i < g->nnodes; i++)
		if (g->nodes[i].asker == t->by)
			return (uint32_t)i;
	g->nodes = xrealloc(g->nodes, (g->nnodes + 1) * sizeof(*g->nodes));
	g->nodes[g->nnodes] =
		(struct node){.asker = t->by, .from_ns = t->asked_ns, .to_ns = t->answered_ns};
	return (uint32_t)g->nnodes++;
}

static void add_trips(struct graph *g, const struct timeline_clocks *c)
{
	for (size_t i = 0; i < c->trips.n; i++) {
		const struct clock_trip *t = &c->trips.list[i];
		uint32_t host = host_of_trip(c, t);

		if (host == HOST_UNKNOWN)
			continue;
		uint32_t asker = find_asker(g, c->nhosts, t);
		struct node *a = &g->nodes[asker];

		a->from_ns = t->asked_ns < a->from_ns ? t->asked_ns : a->from_ns;
		a->to_ns = t->answered_ns > a->to_ns ? t->answered_ns : a->to_ns;
		*XPUSH(g->edges, g->nedges, g->cap_edges) =
			(struct edge){host,
				      asker,
				      t->time_ns,
				      t->asked_ns + (t->answered_ns - t->asked_ns) / 2,
				      t->time_ns - t->answered_ns,
				      t->time_ns - t->asked_ns,
				      true};
	}
}

static void add_pairs(struct graph *g, const struct collective_pairs *p)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct collective_pair *k = &p->list[i];

		*XPUSH(g->edges, g->nedges, g->cap_edges) = (struct edge){
			k->a, k->b, k->at_a_ns, k->at_b_ns, k->low_ns, k->high_ns, false};
	}
}

static void solve_hosts(struct timeline_clocks *c, const struct collective_pairs *pairs)
{
	struct graph g = {.nnodes = c->nhosts};

	g.nodes = xcalloc(c->nhosts, sizeof(*g.nodes));
	for (size_t i = 0; i < c->nhosts; i++) {
		g.nodes[i].known = !i;
		g.nodes[i].from_ns = c->hosts[i].first_ns;
		g.nodes[i].to_ns = c->hosts[i].last_ns;
	}
	add_trips(&g, c);
	add_pairs(&g, pairs);
	solve_graph(&g, c->nhosts);
	for (size_t i = 1; i < c->nhosts; i++) {
		c->hosts[i].known = g.nodes[i].known;
		c->hosts[i].line = g.nodes[i].line;
		c->hosts[i].trips = g.nodes[i].trips;
		c->hosts[i].collectives = g.nodes[i].collectives;
	}
	free(g.nodes);
	free(g.edges);
}

/* For the search: the difference of two clocks as far as round trips tell. */
static bool know_difference(void *arg, unsigned a, unsigned b, int64_t *low_ns, int64_t *high_ns)
{
	const struct timeline_clock *x = &((struct timeline_clocks *)arg)->hosts[a];
	const struct timeline_clock *y = &((struct timeline_clocks *)arg)->hosts[b];

	if (!x->known || !y->known)
		return false;
	int64_t begin = x->line.offset_ns - y->line.offset_ns;
	int64_t end = clock_line_at(&x->line, x->last_ns) - clock_line_at(&y->line, y->last_ns);
	int64_t bound = x->line.bound_ns + y->line.bound_ns;

	*low_ns = (begin < end ? begin : end) - bound;
	*high_ns = (begin < end ? end : begin) + bound;
	return true;
}

/* --- all of it --- */

static int read_trips(struct timeline_clocks *c, struct err *err)
{
	int r = 0;

	for (size_t i = 0; i < c->nsources && r == 0; i++)
		if (c->sources[i].kind == SOURCE_CLOCKS)
			r = clock_file_read(c->sources[i].path, &c->trips, err);
	return r;
}

static int read_sources(struct timeline_clocks *c, const char *beside, struct buf *notes,
			struct err *err)
{
	int r = 0;

	for (size_t i = 0; i < c->nsources && r == 0; i++) {
		const struct clock_source *s = &c->sources[i];

		if (s->kind == SOURCE_CLOCKS)
			continue;
		if (s->host != HOST_UNKNOWN)
			r = clocks_read_source(c, s, beside, err);
		else
			buf_addf(notes,
				 "'%s' does not say of which host it is: its times are taken as "
				 "they are; write HOST=%s.\n",
				 s->path, s->path);
	}
	for (size_t i = 0; i < c->nhosts; i++)
		if (c->hosts[i].first_ns > c->hosts[i].last_ns)
			c->hosts[i].first_ns = c->hosts[i].last_ns = 0;
	return r;
}

int timeline_clocks_solve(struct timeline_clocks *c, const char *beside, struct buf *notes,
			  struct err *err)
{
	struct collective_pairs pairs = {0};
	int r = read_trips(c, err);

	if (r < 0)
		return r;
	name_traces(c);
	find_hosts(c);
	if (!c->several)
		return 0;
	r = read_sources(c, beside, notes, err);
	if (r < 0)
		return r;
	solve_hosts(c, &pairs);
	collectives_match(c->collectives, know_difference, c, &pairs);
	if (pairs.n)
		solve_hosts(c, &pairs);
	if (pairs.unclear)
		buf_addf(notes,
			 "It is not clear which collectives of %llu rank%s belong to which of "
			 "other hosts: clocks cannot be derived from them.\n",
			 (unsigned long long)pairs.unclear, pairs.unclear == 1 ? "" : "s");
	free(pairs.list);
	return 0;
}

const struct timeline_clock *timeline_clocks_list(const struct timeline_clocks *c, size_t *out_n)
{
	*out_n = c ? c->nhosts : 0;
	return c ? c->hosts : NULL;
}

const struct timeline_clock *timeline_clocks_find(const struct timeline_clocks *c, const char *host)
{
	for (size_t i = 0; c && host && i < c->nhosts; i++)
		if (c->hosts[i].host == host)
			return &c->hosts[i];
	return NULL;
}

int64_t timeline_clocks_bound(const struct timeline_clocks *c)
{
	int64_t first = 0, second = 0;

	for (size_t i = 0; i < c->nhosts; i++) {
		int64_t bound = c->hosts[i].is_base ? 0 : c->hosts[i].line.bound_ns;

		if (!c->hosts[i].known)
			return -1;
		if (bound > first) {
			second = first;
			first = bound;
		} else if (bound > second) {
			second = bound;
		}
	}
	return first + second;
}

void timeline_clock_words(const struct timeline_clock *k, struct buf *out)
{
	double ms = (double)clock_line_at(&k->line, k->last_ns) / 1e6;

	if (!k->known)
		buf_add_str(out, "nothing is known about its clock");
	else
		buf_addf(out, "its clock is %.3f ms ± %.3f ms %s", ms < 0 ? -ms : ms,
			 (double)k->line.bound_ns / 1e6, ms < 0 ? "behind" : "ahead");
}

const char *timeline_clock_from(const struct timeline_clock *k)
{
	if (k->is_base)
		return "base";
	if (!k->known)
		return "nothing";
	return k->trips && k->collectives ? "round trips and collectives"
	       : k->trips		  ? "round trips"
					  : "collectives";
}

json_t *timeline_clocks_json(const struct timeline_clocks *c)
{
	json_t *list;

	if (!c || !c->nhosts)
		return NULL;
	list = json_array();
	for (size_t i = 0; i < c->nhosts; i++) {
		const struct timeline_clock *k = &c->hosts[i];
		json_t *o = json_pack("{s:s, s:s, s:i, s:i}", "host", k->host, "from",
				      timeline_clock_from(k), "round_trips", (int)k->trips,
				      "collectives", (int)k->collectives);

		json_object_set_new(o, "ahead_ns",
				    k->known ? json_integer(k->line.offset_ns) : json_null());
		json_object_set_new(o, "at_ns", json_integer(k->line.from_ns));
		json_object_set_new(o, "drift_ppm",
				    k->known ? json_real(k->line.drift * 1e6) : json_null());
		json_object_set_new(o, "bound_ns",
				    k->known ? json_integer(k->line.bound_ns) : json_null());
		json_object_set_new(o, "uneven_ns", json_integer(k->line.bent_ns));
		json_array_append_new(list, o);
	}
	return list;
}

const char *timeline_clocks_host(const struct timeline_clocks *c, const char *path,
				 const char *given)
{
	for (size_t i = 0; !given && c->several && i < c->nsources; i++)
		if (!strcmp(c->sources[i].path, path))
			return name_of(&c->sources[i]);
	return given;
}
