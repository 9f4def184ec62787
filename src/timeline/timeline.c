/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "timeline/timeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "base/text/printable.h"
#include "timeline/explain.h"
#include "timeline/timeline_impl.h"

#define COMMAND_SHOWN 60 /* bytes of a command in a name */
#define RANK_COLUMNS 4

int timeline_new(const struct timeline_options *o, struct timeline **out, struct err *err)
{
	struct timeline *t = xcalloc(1, sizeof(*t));
	int r;

	t->o = *o;
	t->counts.first_ns = UINT64_MAX;
	r = output_open(t, err);
	if (r < 0) {
		free(t);
		return r;
	}
	*out = t;
	return 0;
}

static void end_open(struct timeline_track *k, uint64_t time_ns);

int timeline_close(struct timeline *t, struct timeline_counts *out, struct err *err)
{
	int r;

	for (size_t i = 0; i < t->ntracks; i++) {
		struct timeline_track *k = t->tracks[i];

		lanes_finish(k);
		k->not_begun = 0;
		while (k->open)
			end_open(k, k->last_ns);
	}
	for (size_t i = 0; i < t->nprocesses; i++)
		t->counts.processes += t->processes[i]->pid != 0; /* the machine is none */
	r = output_close(t, err);
	if (t->counts.first_ns == UINT64_MAX)
		t->counts.first_ns = 0;
	*out = t->counts;
	for (size_t i = 0; i < t->ntracks; i++) {
		lanes_release(t->tracks[i]);
		free(t->tracks[i]->name);
		free(t->tracks[i]->early);
		free(t->tracks[i]);
	}
	for (size_t i = 0; i < t->nprocesses; i++)
		free(t->processes[i]);
	free(t->tracks);
	free(t->processes);
	hmap_release(&t->by_pid);
	hmap_release(&t->roles);
	hmap_release(&t->by_place);
	hmap_release(&t->groups);
	hmap_release(&t->hosts);
	hmap_release(&t->shown_pids);
	free(t);
	return r;
}

/* --- processes --- */

static bool is_wanted_rank(const struct timeline *t, int32_t rank)
{
	return !t->o.ranks || (rank >= 0 && (size_t)rank < t->o.nranks && t->o.ranks[(size_t)rank]);
}

/* Of paths the last part: names are cut where tracks begin. */
static void add_command(struct buf *out, const char *command)
{
	struct buf all = {0};

	for (const char *word = command; *word;) {
		size_t len = strcspn(word, " ");
		const char *slash =
			word == command || *word == '/' ? memrchr(word, '/', len) : NULL;
		size_t path = slash && slash + 1 < word + len ? (size_t)(slash + 1 - word) : 0;

		buf_add(&all, word + path, len - path);
		word += len;
		for (; *word == ' '; word++)
			buf_add_char(&all, ' ');
	}
	text_add_printable(out, all.data, all.len < COMMAND_SHOWN ? all.len : COMMAND_SHOWN);
	buf_add_str(out, all.len > COMMAND_SHOWN ? "…" : "");
	buf_release(&all);
}

/*
 * "rank 3 · node5 · pid 4711 · train.py". The viewer has tracks below none in the order of their names,
 * and shows several blanks as one: with them rank 3 comes before rank 12.
 */
static void name_process(const struct timeline_process *p, const char *command, struct buf *out)
{
	bool top = !p->t->o.json && !p->host;

	if (p->rank >= 0)
		buf_addf(out, "rank %*d · ", top ? RANK_COLUMNS : 0, p->rank);
	if (p->role == SAMPLED_HELPER)
		buf_add_str(out, "helper · ");
	else if (p->role == SAMPLED_LAUNCHER)
		buf_add_str(out, "launcher · ");
	if (p->host)
		buf_addf(out, "%s · ", p->host);
	if (!p->pid) {
		buf_add_str(out, "the machine"); /* behind all others */
		return;
	}
	buf_addf(out, "pid %u", p->pid);
	if (command && *command) {
		buf_add_str(out, " · ");
		add_command(out, command);
	}
}

/* Pids of two hosts may be the same; numbers beyond those of Linux stand for the second. */
static int64_t choose_shown_pid(struct timeline *t, uint32_t pid)
{
	if (hmap_put(&t->shown_pids, pid, 1) == HMAP_NONE)
		return pid;
	return CHROME_PID_NPU + 1000 + (int64_t)t->nprocesses;
}

static uint64_t hash_process(const char *host, uint32_t pid)
{
	const uint64_t key[2] = {pid, (uintptr_t)host};

	return XXH3_64bits(key, sizeof(key));
}

void timeline_note_role(struct timeline *t, const char *host, uint32_t pid, enum sampled_role role,
			int32_t rank)
{
	if (role != SAMPLED_UNKNOWN)
		hmap_put(&t->roles, hash_process(host, pid),
			 role | (uint64_t)((uint32_t)rank + 1) << 8);
}

struct timeline_process *timeline_process(struct timeline *t, const char *host, uint32_t pid,
					  int32_t rank, const char *command)
{
	uint64_t hash = hash_process(host, pid), at = hmap_get(&t->by_pid, hash);
	uint64_t known = hmap_get(&t->roles, hash);
	enum sampled_role role = known == HMAP_NONE ? SAMPLED_UNKNOWN : known & 0xff;
	struct buf name = {0};
	struct timeline_process *p;

	if (at != HMAP_NONE)
		return t->processes[at];
	if (role == SAMPLED_HELPER || role == SAMPLED_LAUNCHER)
		rank = role == SAMPLED_LAUNCHER ? -1 : (int32_t)((uint32_t)(known >> 8) - 1);
	if (!is_wanted_rank(t, rank))
		return NULL;
	p = xcalloc(1, sizeof(*p));
	*p = (struct timeline_process){.t = t,
				       .index = (uint32_t)t->nprocesses,
				       .pid = pid,
				       .rank = rank,
				       .role = role,
				       .host = host,
				       .clock = timeline_clocks_find(t->o.clocks, host),
				       .shown_pid = choose_shown_pid(t, pid)};
	t->processes =
		xgrow(t->processes, &t->cap_processes, t->nprocesses + 1, sizeof(*t->processes));
	hmap_put(&t->by_pid, hash, t->nprocesses);
	t->processes[t->nprocesses++] = p;
	name_process(p, command, &name);
	p->out = output_process(t, p, buf_str(&name));
	buf_release(&name);
	return p;
}

uint64_t timeline_flow(const struct timeline_process *p, uint64_t correlation)
{
	const uint64_t key[2] = {p->index, correlation};
	uint64_t flow = XXH3_64bits(key, sizeof(key));

	return correlation ? flow | 1 : 0;
}

/* --- steps --- */

/* The time on the one clock of the file. */
static uint64_t common_time(const struct timeline_process *p, uint64_t ns)
{
	const struct timeline_clock *k = p->clock;

	if (!k || !k->known || k->is_base || !ns || ns > INT64_MAX)
		return ns;
	return ns - (uint64_t)clock_line_at(&k->line, (int64_t)ns);
}

void timeline_note_step(struct timeline_process *p, uint64_t number, uint64_t start_ns,
			uint64_t end_ns)
{
	struct timeline *t = p->t;
	struct timeline_counts *c = &t->counts;

	start_ns = common_time(p, start_ns);
	end_ns = common_time(p, end_ns);
	if (t->o.explain)
		explain_step(t->o.explain, p, number, start_ns, end_ns);
	if (!t->o.last_step || number < t->o.first_step || number > t->o.last_step)
		return;
	if (start_ns && (!c->steps_start_ns || start_ns < c->steps_start_ns))
		c->steps_start_ns = start_ns;
	if (end_ns > c->steps_end_ns)
		c->steps_end_ns = end_ns;
}

void timeline_note_allocation(struct timeline_process *p, uint64_t time_ns)
{
	if (p->t->o.explain)
		explain_allocation(p->t->o.explain, p, common_time(p, time_ns));
}

void timeline_note_cut(struct timeline_process *p)
{
	if (p->t->o.explain)
		explain_cut(p->t->o.explain, p);
}

uint64_t timeline_step_number(const char *name)
{
	static const char prefix[] = "ProfilerStep#";
	size_t n = sizeof(prefix) - 1;

	if (strncmp(name, prefix, n) || name[n] < '0' || name[n] > '9')
		return 0;
	return strtoull(name + n, NULL, 10);
}

/* --- tracks --- */

struct timeline_track *timeline_track(struct timeline_process *p,
				      const struct timeline_place *where, const char *name)
{
	struct timeline *t = p->t;
	const uint64_t key[] = {p->index, (uint64_t)where->group << 32 | where->number,
				(uint32_t)where->order, where->id, (uint64_t)where->kind};
	uint64_t hash = XXH3_64bits(key, sizeof(key));
	struct timeline_track *k = hmap_get_ptr(&t->by_place, hash);

	if (k)
		return k;
	k = xcalloc(1, sizeof(*k));
	k->t = t;
	k->process = p;
	k->where = *where;
	k->name = xstrdup(name);
	t->tracks = xgrow(t->tracks, &t->cap_tracks, t->ntracks + 1, sizeof(*t->tracks));
	t->tracks[t->ntracks++] = k;
	hmap_put_ptr(&t->by_place, hash, k);
	return k;
}

static void need_out(struct timeline_track *k)
{
	if (k->has_out)
		return;
	k->out = output_track(k->t, k->process, &k->where, k->name, 0);
	k->has_out = true;
}

/* --- events --- */

/* Is it in the time that was asked for? */
static bool is_inside(struct timeline *t, uint64_t start_ns, uint64_t end_ns)
{
	if (end_ns < t->o.from_ns || (t->o.to_ns && start_ns > t->o.to_ns)) {
		t->counts.outside++;
		return false;
	}
	if (start_ns < t->counts.first_ns)
		t->counts.first_ns = start_ns;
	if (end_ns > t->counts.last_ns)
		t->counts.last_ns = end_ns;
	return true;
}

void timeline_slice(struct timeline_track *k, uint64_t start_ns, uint64_t end_ns,
		    const struct timeline_event *e)
{
	start_ns = common_time(k->process, start_ns);
	end_ns = common_time(k->process, end_ns);
	if (end_ns < start_ns)
		end_ns = start_ns;
	if (!is_inside(k->t, start_ns, end_ns))
		return;
	if (k->t->o.explain)
		explain_slice(k->t->o.explain, k, start_ns, end_ns, e);
	lanes_put(k, start_ns, end_ns, e);
}

void timeline_instant(struct timeline_track *k, uint64_t time_ns, const struct timeline_event *e)
{
	time_ns = common_time(k->process, time_ns);
	if (!is_inside(k->t, time_ns, time_ns))
		return;
	need_out(k);
	output_instant(k->t, &k->out, time_ns, e);
	k->t->counts.instants++;
}

void timeline_counter(struct timeline_track *k, uint64_t time_ns, double value)
{
	time_ns = common_time(k->process, time_ns);
	if (!is_inside(k->t, time_ns, time_ns))
		return;
	need_out(k);
	output_counter(k->t, k, time_ns, value);
	k->t->counts.counters++;
}

/* What began before the time that was asked for, and still runs then, begins with it. */
static void write_early(struct timeline_track *k)
{
	struct timeline *t = k->t;

	for (unsigned i = 0; i < k->nearly; i++) {
		struct timeline_event e = {.name = k->early[i]};

		need_out(k);
		output_begin(t, &k->out, t->o.from_ns, UINT64_MAX, &e);
		k->open++;
		k->last_ns = t->o.from_ns;
		t->counts.slices++;
		(void)is_inside(t, t->o.from_ns, t->o.from_ns);
	}
	k->nearly = 0;
}

void timeline_begin(struct timeline_track *k, uint64_t time_ns, const struct timeline_event *e)
{
	struct timeline *t = k->t;

	time_ns = common_time(k->process, time_ns);
	if (t->o.explain)
		explain_begin(t->o.explain, k, time_ns, e);
	if (time_ns < t->o.from_ns && k->nearly < LANE_DEPTH) {
		if (!k->early)
			k->early = xcalloc(LANE_DEPTH, sizeof(*k->early));
		k->early[k->nearly++] = e->name;
		return;
	}
	if (!is_inside(t, time_ns, time_ns)) {
		k->not_begun++;
		return;
	}
	write_early(k);
	need_out(k);
	output_begin(t, &k->out, time_ns, UINT64_MAX, e);
	k->open++;
	k->last_ns = time_ns;
	t->counts.slices++;
}

static void end_open(struct timeline_track *k, uint64_t time_ns)
{
	struct timeline *t = k->t;

	if (t->o.explain)
		explain_end(t->o.explain, k, time_ns);
	if (k->not_begun) {
		k->not_begun--;
		return;
	}
	if (time_ns < t->o.from_ns) {
		k->nearly -= k->nearly != 0;
		t->counts.outside++;
		return;
	}
	write_early(k);
	if (!k->open)
		return;
	if (t->o.to_ns && time_ns > t->o.to_ns)
		time_ns = t->o.to_ns;
	if (time_ns < k->last_ns)
		time_ns = k->last_ns;
	(void)is_inside(t, time_ns, time_ns);
	output_end(t, &k->out, time_ns, false);
	k->last_ns = time_ns;
	k->open--;
}

void timeline_end(struct timeline_track *k, uint64_t time_ns)
{
	end_open(k, common_time(k->process, time_ns));
}
