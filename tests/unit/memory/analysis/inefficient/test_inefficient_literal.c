/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Inefficient memory against a second implementation, which keeps all events of made-up jobs and
 * looks at each rule anew.
 */
#include "inefficient_rows.h"

#define MAX_EVENTS 700
#define MAX_BLOCKS 40
#define IDLE_CALLS 12

enum what { A_MALLOC, A_FREE, A_ACCESS };

struct event {
	enum what what;
	int block, call;
};

struct span {
	int from, to; /* events: the moment after the first, up to the last */
	int calls;
};

struct oracle {
	struct event events[MAX_EVENTS];
	int n;
	int closed[MAX_EVENTS]; /* call: number of events at its end, or -1 */
	bool has_malloc[MAX_EVENTS], has_free[MAX_EVENTS];
	int ncalls;
	uint64_t bytes[MAX_BLOCKS];
	uint64_t blocks[3], cost[3], marked[3];
};

/* The newest call that had ended before event i. */
static int last_with(const struct oracle *o, const bool *has, int i)
{
	int newest = 0;

	for (int c = 1; c <= o->ncalls; c++)
		if (o->closed[c] >= 0 && o->closed[c] <= i && has[c] && c > newest)
			newest = c;
	return newest;
}

static int last_peak(const struct oracle *o)
{
	uint64_t level = 0, best = 0;
	int at = -1;

	for (int i = 0; i < o->n; i++) {
		const struct event *e = &o->events[i];
		if (e->what == A_FREE)
			level -= o->bytes[e->block];
		if (e->what != A_MALLOC)
			continue;
		level += o->bytes[e->block];
		if (level >= best) {
			best = level;
			at = i;
		}
	}
	return at;
}

static void judge(struct oracle *o, int block, int malloc_at, int end_call, int kind, struct span s)
{
	int life = end_call - o->events[malloc_at].call;

	o->marked[kind]++;
	if (2 * s.calls <= life || (kind != 2 && s.calls < 10))
		return;
	o->blocks[kind]++;
	int peak = last_peak(o);
	if (s.from <= peak && peak < s.to)
		o->cost[kind] += o->bytes[block];
}

static void judge_block(struct oracle *o, int block)
{
	int at[MAX_EVENTS], n = 0, first = -1, end_call = o->ncalls;
	bool idle = false;

	for (int i = 0; i < o->n; i++)
		if (o->events[i].block == block)
			at[n++] = i;
	if (!n)
		return;
	if (o->events[at[n - 1]].what == A_FREE)
		end_call = o->events[at[n - 1]].call;
	int m = o->events[at[0]].call;
	for (int k = 1; k < n; k++) {
		const struct event *e = &o->events[at[k]], *prev = &o->events[at[k - 1]];
		struct span s = {at[k - 1], at[k], e->call - prev->call};

		if (e->what == A_ACCESS && prev->what == A_ACCESS && s.calls > IDLE_CALLS &&
		    !idle) {
			idle = true;
			judge(o, block, at[0], end_call, 2, s);
		}
		if (e->what == A_ACCESS && first < 0 && e->call != m) {
			int f = last_with(o, o->has_free, at[k]);
			first = k;
			if (f && m < f && f < e->call)
				judge(o, block, at[0], end_call, 0,
				      (struct span){at[0], at[k], e->call - m});
		}
		if (e->what == A_FREE && prev->what == A_ACCESS) {
			int f = last_with(o, o->has_malloc, at[k]);
			if (f && prev->call < f && f < e->call)
				judge(o, block, at[0], end_call, 1, s);
		}
	}
}

/* One thread and calls outside of operators, or whole operators with events inside. */
static void make_up(struct oracle *o, struct job *j, uint64_t seed)
{
	bool alive[MAX_BLOCKS] = {0};
	int made = 0, depth = 0;
	char name[16];

	for (int i = 0; i < MAX_EVENTS - 1; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		unsigned r = (unsigned)(seed >> 33);
		int block = (int)(r / 64 % MAX_BLOCKS);

		if (r % 8 < 2 && depth < 3) {
			snprintf(name, sizeof(name), "op%d", depth);
			begin(j, name);
			if (!depth++)
				o->closed[++o->ncalls] = -1;
			continue;
		}
		if (r % 8 < 4 && depth) {
			snprintf(name, sizeof(name), "op%d", --depth);
			done(j, name);
			if (!depth)
				o->closed[o->ncalls] = o->n;
			continue;
		}
		if (block >= made && made < MAX_BLOCKS)
			block = made;
		enum what what = block == made ? A_MALLOC : r % 8 == 7 ? A_FREE : A_ACCESS;
		if (block < made && !alive[block])
			continue;
		if (!depth)
			o->closed[++o->ncalls] = o->n;
		o->events[o->n++] = (struct event){what, block, o->ncalls};
		o->has_malloc[o->ncalls] |= what == A_MALLOC;
		o->has_free[o->ncalls] |= what == A_FREE;
		alive[block] = what != A_FREE;
		if (what == A_MALLOC) {
			o->bytes[made] = 1 + r % 100;
			/* A block that is accessed in the call of its MALLOC is not computed. */
			alloc(j, (uint64_t)made++ + 1, o->bytes[block]);
		} else if (what == A_FREE) {
			drop(j, (uint64_t)block + 1);
		} else {
			use_as(j, (uint64_t)block + 1, "aten.empty", "PTA");
		}
	}
	/* An own call of a memory event has ended before the event is judged, but without effect:
	 * what it has in it is never what the rule asks for. */
}

TEST(inefficient, agrees_with_the_rules_taken_literally)
{
	static const char *const names[] = {EARLY, LATE, IDLE};
	uint64_t seen[3] = {0}, costly = 0;

	for (uint64_t seed = 1; seed <= 400; seed++) {
		struct inefficient_options options = {.idle_calls = IDLE_CALLS};
		struct job j = job_with(&options);
		struct oracle *o = calloc(1, sizeof(*o));

		make_up(o, &j, seed * 7919);
		for (int b = 0; b < MAX_BLOCKS; b++)
			judge_block(o, b);
		json_t *v = answer(&j);
		for (int k = 0; k < 3; k++) {
			char path[64];

			snprintf(path, sizeof(path), K "%s.marked_blocks", names[k]);
			CHECK_INT(NUM(v, path), o->marked[k]);
			snprintf(path, sizeof(path), K "%s.blocks", names[k]);
			CHECK_INT(NUM(v, path), o->blocks[k]);
			seen[k] += o->blocks[k];
		}
		/* A time that counts twice costs once, and as early: compare the rest of them. */
		CHECK_INT(NUM(v, K LATE ".at_peak_bytes"), o->cost[1]);
		CHECK_INT(NUM(v, K EARLY ".at_peak_bytes"), o->cost[0]);
		CHECK(NUM(v, K IDLE ".at_peak_bytes") <= (json_int_t)o->cost[2]);
		costly += o->cost[0] + o->cost[1] + o->cost[2];
		free(o);
		analysis_free(j.a);
	}
	for (int k = 0; k < 3; k++)
		CHECK(seen[k] > 50);
	CHECK(costly > 1000);
}
