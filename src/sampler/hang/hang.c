/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Movement is checked for in three things, the cheap ones first: the frames and the instruction in
 * each of them; then, if these are the same, the words that hold the variables, because a loop that
 * spends nearly all its time in one call is found at the same instruction again and again while it
 * makes good progress. CPU time distinguishes waiting from spinning, but is no movement.
 */
#include "sampler/hang/hang.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "base/proc.h"
#include "sampler/snapshot/call_site.h"
#include "unwind/remote/objects/objects.h"

#define FRAMES_MAX 256 /* innermost ones whose variables are compared */
#define WORDS_MAX 4096
#define CODES_MAX 4096 /* remembered of one process */
#define GAP_NS 1000000000u /* between two rounds: a longer time does not count */
#define OBJECTS_MAX 4 /* frames, from the innermost on, whose objects are read */
#define WHO_BYTES 200
#define ANSWER_WHO_BYTES 60
#define SITES_MAX 4 /* named in the first line */
#define BUSY_PERCENT 50

/* What is remembered of a process between two rounds. */
struct hang_process {
	uint64_t serial; /* of the target */
	pid_t pid;
	int rank;
	bool counts; /* answers are about it */
	uint64_t round; /* the last one in which it was there */
	uint64_t frames, locals; /* stamps */
	bool locals_known;
	uint64_t state; /* state_stamp() */
	bool state_known;
	uint64_t run_ns; /* thread_run_ns() */
	uint64_t main_module; /* 0: not found */
	bool main_searched;
	uint64_t since_ns, since_ticks; /* when it moved last, and its CPU time then */
	uint64_t ticks;
	unsigned rounds, running; /* rounds since it moved, and in how many of them it ran */
	bool has_site, has_inner;
	struct stack_frame site, inner;
	struct hmap words_of; /* code object -> words of its variables */
};

struct hang {
	struct hang_process *list;
	unsigned n;
	size_t cap;
	uint64_t round, round_ns; /* the last one, and when */
};

struct hang *hang_new(void)
{
	return xcalloc(1, sizeof(struct hang));
}

void hang_free(struct hang *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n; i++)
		hmap_release(&s->list[i].words_of);
	free(s->list);
	free(s);
}

static uint64_t mix_hash(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0xff51afd7ed558ccdu;
	return hash ^ hash >> 33;
}

/* The part of the stack that must move; bounded to the innermost frames. */
static const struct stack_frame *own_frames(const struct python_thread *t, unsigned *out_n)
{
	unsigned own = stack_own_part(t->frames, t->nframes);
	unsigned first = own > FRAMES_MAX ? own - FRAMES_MAX : 0;

	*out_n = own - first;
	return t->frames + first;
}

static uint64_t frames_stamp(const struct python_thread *t)
{
	unsigned n;
	const struct stack_frame *f = own_frames(t, &n);
	uint64_t hash = mix_hash(t->serial, stack_own_part(t->frames, t->nframes));

	for (unsigned i = 0; i < n; i++)
		hash = mix_hash(mix_hash(mix_hash(hash, f[i].address), f[i].code), f[i].lasti);
	return hash;
}

static unsigned words_of(struct hang_process *one, struct python_process *p, uint64_t code)
{
	uint64_t known = hmap_get(&one->words_of, code);

	if (known == HMAP_NONE) {
		if (one->words_of.count >= CODES_MAX)
			hmap_release(&one->words_of);
		int n = remote_locals_words(&p->remote, &p->place, code);

		known = n > 0 ? (uint64_t)n : 0;
		hmap_put(&one->words_of, code, known);
	}
	return (unsigned)known;
}

/* All variables of all frames in one system call. */
static uint64_t locals_stamp(struct hang_process *one, struct python_process *p,
			     const struct python_thread *t)
{
	static uint64_t words[WORDS_MAX]; /* one thread uses this module */
	struct remote_span spans[FRAMES_MAX];
	unsigned n, nspans = 0, used = 0;
	const struct stack_frame *f = own_frames(t, &n);
	uint64_t hash = 0;

	for (unsigned i = n; i-- > 0;) {
		unsigned count = f[i].kind == FRAME_IS_PYTHON ? words_of(one, p, f[i].code) : 0;

		if (!count || count > WORDS_MAX - used)
			continue;
		spans[nspans++] = (struct remote_span){
			.addr = f[i].address + p->place.layout.frame.locals,
			.out = words + used,
			.n = count * sizeof(*words),
		};
		used += count;
	}
	int got = nspans ? remote_readv(&p->remote, spans, nspans) : 0;
	for (int i = 0; i < got; i++)
		for (size_t k = 0; k < spans[i].n / sizeof(*words); k++)
			hash = mix_hash(hash, ((const uint64_t *)spans[i].out)[k]);
	return mix_hash(hash, (uint64_t)got);
}

/* CPU time of a thread; 0 if it is gone. */
static uint64_t thread_ticks(pid_t pid, pid_t tid)
{
	char name[40], text[1024];
	struct proc_stat stat;

	snprintf(name, sizeof(name), "task/%d/stat", tid);
	ssize_t n = proc_read(pid, name, text, sizeof(text));
	if (n < 0 || !proc_stat_parse(text, (size_t)n, &stat))
		return 0;
	return stat.user_ticks + stat.system_ticks;
}

static const struct python_thread *main_thread(const struct python_process *p)
{
	for (unsigned i = 0; i < p->nthreads; i++)
		if (p->threads[i].main)
			return &p->threads[i];
	return p->nthreads ? &p->threads[0] : NULL;
}

static struct hang_process *find_process(struct hang *s, uint64_t serial)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->list[i].serial == serial)
			return &s->list[i];
	s->list = xgrow(s->list, &s->cap, s->n + 1, sizeof(*s->list));
	s->list[s->n] = (struct hang_process){.serial = serial};
	return &s->list[s->n++];
}

static void remember_call_site(struct hang_process *one, const struct python_thread *t)
{
	int site = stack_call_site(t->frames, t->nframes);
	int inner = stack_inner_call(t->frames, t->nframes);

	one->has_site = site >= 0;
	one->has_inner = inner >= 0;
	if (site >= 0)
		one->site = t->frames[site];
	if (inner >= 0)
		one->inner = t->frames[inner];
}

/*
 * --- what a loop may change that keeps nothing in variables ---
 *
 * Attributes of the objects whose methods run (`self.step += 1`), and the variables of the script.
 */

static uint64_t first_local(struct python_process *p, const struct stack_frame *f)
{
	const struct python_layout *l = &p->place.layout;
	uint64_t word = 0;

	if (remote_read(&p->remote, f->address + l->frame.locals, &word, sizeof(word)) < 0)
		return 0;
	return word & ~(uint64_t)l->tagged;
}

/* A number for what the thread may have changed beside its variables. */
static uint64_t state_stamp(struct hang_process *one, struct python_process *p,
			    const struct python_thread *t)
{
	unsigned own = stack_own_part(t->frames, t->nframes), checked = 0;
	uint64_t stamp = 0;

	if (!one->main_module && !one->main_searched)
		remote_main_module(&p->remote, &p->place, t->tstate, &one->main_module);
	one->main_searched = true;
	if (one->main_module)
		stamp = remote_attributes_stamp(&p->remote, &p->place, one->main_module);
	for (unsigned i = own; i-- > 0 && checked < OBJECTS_MAX; checked++) {
		uint64_t object =
			t->frames[i].kind == FRAME_IS_PYTHON ? first_local(p, &t->frames[i]) : 0;

		if (object)
			stamp = stamp * 31 + remote_attributes_stamp(&p->remote, &p->place, object);
	}
	return stamp;
}

/* How long the thread has run: if not at all, another one made the change. UINT64_MAX if that is
 * not known. */
static uint64_t thread_run_ns(pid_t pid, pid_t tid)
{
	char name[40], text[128];

	snprintf(name, sizeof(name), "task/%d/schedstat", tid);
	ssize_t n = proc_read(pid, name, text, sizeof(text) - 1);
	if (n <= 0)
		return UINT64_MAX;
	text[n] = '\0';
	return strtoull(text, NULL, 10);
}

/* With the same frames and variables: whether it has changed anything else. */
static bool has_changed_state(struct hang_process *one, const struct target *target,
			      const struct python_thread *t)
{
	uint64_t run_ns = thread_run_ns(target->pid, t->tid ? t->tid : target->pid);
	uint64_t state = state_stamp(one, target->python, t);
	bool ran = run_ns == UINT64_MAX || run_ns != one->run_ns;
	bool changed = one->state_known && ran && state != one->state;

	one->state = state;
	one->state_known = true;
	one->run_ns = run_ns;
	return changed;
}

static void check_process(struct hang *s, const struct target *target, uint64_t now_ns)
{
	const struct python_thread *t = main_thread(target->python);
	struct hang_process *one = find_process(s, target->serial);

	if (!t)
		return;
	uint64_t frames = frames_stamp(t), locals = 0;
	uint64_t ticks = thread_ticks(target->pid, t->tid ? t->tid : target->pid);
	bool same = one->since_ns && !t->missed && frames == one->frames;
	if (same)
		locals = locals_stamp(one, target->python, t);
	/* The first round that finds the same frames takes the variables down. */
	bool moved = !same || (one->locals_known && locals != one->locals) ||
		     has_changed_state(one, target, t);
	if (moved) {
		one->since_ns = now_ns;
		one->since_ticks = ticks;
		one->rounds = one->running = 0;
		one->state_known = one->state_known && same;
		remember_call_site(one, t);
	}
	one->frames = frames;
	one->locals = locals;
	one->locals_known = same;
	one->ticks = ticks;
	one->rounds++;
	one->running += t->state == THREAD_RUNNING;
	one->pid = target->pid;
	one->rank = target->rank;
	one->counts = target->counts;
	one->round = s->round;
}

/* Time without rounds (we were stopped, or the machine was) does not count. */
static void skip_gap(struct hang *s, uint64_t now_ns)
{
	uint64_t gap_ns = s->round_ns ? now_ns - s->round_ns : 0;

	for (unsigned i = 0; gap_ns > GAP_NS && i < s->n; i++)
		if (s->list[i].since_ns)
			s->list[i].since_ns += gap_ns;
	s->round_ns = now_ns;
}

void hang_round(struct hang *s, const struct targets *t, uint64_t now_ns)
{
	unsigned kept = 0;

	skip_gap(s, now_ns);
	s->round++;
	for (unsigned i = 0; i < t->n; i++)
		if (t->list[i]->state == TARGET_OPEN && t->list[i]->python)
			check_process(s, t->list[i], now_ns);
	for (unsigned i = 0; i < s->n; i++) {
		if (s->list[i].round == s->round)
			s->list[kept++] = s->list[i];
		else
			hmap_release(&s->list[i].words_of);
	}
	s->n = kept;
}

static bool is_hanging(const struct hang_process *one, uint64_t ns, uint64_t now_ns)
{
	return one->counts && one->since_ns && now_ns - one->since_ns >= ns;
}

unsigned hang_count(const struct hang *s, uint64_t ns, uint64_t now_ns)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++)
		n += is_hanging(&s->list[i], ns, now_ns);
	return n;
}

/* --- the report: those at the same call site together --- */

/* Processor time since it moved last, in percent of one processor. */
static unsigned cpu_percent(const struct hang_process *one, uint64_t now_ns)
{
	double seconds = (double)(now_ns - one->since_ns) / 1e9;
	double ticks = (double)(one->ticks - one->since_ticks);
	double percent = 100 * ticks / ((double)sysconf(_SC_CLK_TCK) * seconds);

	if (one->ticks < one->since_ticks || seconds <= 0)
		return 0;
	return percent > 100 ? 100 : (unsigned)(percent + 0.5);
}

/*
 * Spins, or computes: uses a processor, or would if it had one for itself. On a machine with more
 * work than processors the time alone says little.
 */
static bool is_busy(const struct hang_process *one, uint64_t now_ns)
{
	return cpu_percent(one, now_ns) >= BUSY_PERCENT || one->running * 2 > one->rounds;
}

static const struct stack_frame *site_of(const struct hang_process *one)
{
	return one->has_site ? &one->site : NULL;
}

/* Those at one call site that have not moved. */
struct hang_group {
	const struct hang_process **members;
	unsigned n;
};

struct report {
	uint64_t ns, now_ns;
	struct hang_group *groups; /* few members first: there is the cause */
	unsigned ngroups;
	unsigned hanging, all; /* processes that count */
	bool ranks; /* all that count have one */
};

/* Most ranks are at this call site: more likely that they wait than that they are the cause. */
static bool seems_to_wait(const struct report *r, const struct hang_group *g)
{
	return r->all > 1 && g->n > 1 && g->n * 2 > r->all;
}

static void add_site(const struct hang_process *one, struct buf *out)
{
	call_site_add(site_of(one), one->has_inner ? &one->inner : NULL, out);
}

static void add_who(const struct hang_group *g, unsigned max_bytes, struct buf *out)
{
	struct process_id *list = xcalloc(g->n, sizeof(*list));

	for (unsigned i = 0; i < g->n; i++)
		list[i] = (struct process_id){g->members[i]->pid, g->members[i]->rank};
	words_add_processes(list, g->n, max_bytes, out);
	free(list);
}

/* Who, how long the last of them, where, and whether they spin. */
static void add_group(const struct report *r, const struct hang_group *g, struct buf *out)
{
	uint64_t since_ns = 0;
	unsigned busy = 0, percent = 0;
	size_t begin = out->len;

	for (unsigned i = 0; i < g->n; i++) {
		unsigned cpu = cpu_percent(g->members[i], r->now_ns);

		if (g->members[i]->since_ns > since_ns)
			since_ns = g->members[i]->since_ns;
		busy += is_busy(g->members[i], r->now_ns);
		percent = cpu > percent ? cpu : percent;
	}
	add_who(g, WHO_BYTES, out);
	out->data[begin] = (char)(out->data[begin] - 'a' + 'A');
	buf_addf(out, " %s not moved for %.1f s: ", g->n == 1 ? "has" : "have",
		 (double)(r->now_ns - since_ns) / 1e9);
	add_site(g->members[0], out);
	if (busy == g->n)
		buf_addf(out, "; the same Python line, but busy (CPU %u %%)", percent);
	else if (busy)
		buf_addf(out, "; %u of them busy (CPU up to %u %%)", busy, percent);
	else
		buf_add_str(out, "; asleep");
	if (seems_to_wait(r, g) && g->n < r->all)
		buf_add_str(out, ", like most ranks: probably waiting for another rank");
	buf_add_char(out, '\n');
}

static json_t *process_json(const struct report *r, const struct hang_group *g,
			    const struct hang_process *one)
{
	json_t *frame = NULL;

	if (one->has_site)
		frame = json_pack("{s:s, s:s, s:i}", "name", one->site.name, "file", one->site.file,
				  "line", (int)one->site.line);
	return json_pack("{s:i, s:o, s:f, s:i, s:b, s:b, s:o}", "pid", one->pid, "rank",
			 one->rank >= 0 ? json_integer(one->rank) : json_null(), "still_s",
			 (double)(r->now_ns - one->since_ns) / 1e9, "cpu_percent",
			 (int)cpu_percent(one, r->now_ns), "busy", is_busy(one, r->now_ns),
			 "with_most", seems_to_wait(r, g), "frame", frame ? frame : json_null());
}

/* "8 of 8 ranks have not moved for 30.0 s: 1 in load_batch at data.py:41 (rank 5), 7 in …" */
static void add_answer(const struct report *r, struct buf *out)
{
	unsigned shown = r->ngroups <= SITES_MAX + 1 ? r->ngroups : SITES_MAX, rest = r->hanging;

	buf_addf(out, "%u of %u %s %s not moved for %.1f s: ", r->hanging, r->all,
		 r->ranks ? "ranks" : "processes", r->hanging == 1 ? "has" : "have",
		 (double)r->ns / 1e9);
	for (unsigned i = 0; i < shown; i++) {
		const struct hang_group *g = &r->groups[i];

		if (r->ngroups == 1)
			buf_add_str(out, r->hanging > 1 ? "all " : "");
		else
			buf_addf(out, "%s%u ", i ? ", " : "", g->n);
		add_site(g->members[0], out);
		if (r->hanging < r->all || g->n * 2 <= r->hanging) {
			buf_add_str(out, " (");
			add_who(g, ANSWER_WHO_BYTES, out);
			buf_add_char(out, ')');
		}
		rest -= g->n;
	}
	if (rest)
		buf_addf(out, ", %u at %u other call sites", rest, r->ngroups - shown);
	buf_add_char(out, '\n');
}

static int by_company(const void *a, const void *b)
{
	const struct hang_group *x = a, *y = b;

	if (x->n != y->n)
		return x->n > y->n ? 1 : -1;
	return x->members[0]->pid < y->members[0]->pid ? -1 : 1;
}

static void make_groups(struct report *r, const struct hang *s)
{
	r->ranks = true;
	r->groups = xcalloc(s->n + 1, sizeof(*r->groups));
	for (unsigned i = 0; i < s->n; i++) {
		const struct hang_process *one = &s->list[i];
		struct hang_group *g = r->groups;

		r->all += one->counts;
		r->ranks = r->ranks && (!one->counts || one->rank >= 0);
		if (!is_hanging(one, r->ns, r->now_ns))
			continue;
		while (g->n && !call_site_same(site_of(g->members[0]), site_of(one)))
			g++;
		if (!g->n) {
			g->members = xcalloc(s->n, sizeof(*g->members));
			r->ngroups++;
		}
		g->members[g->n++] = one;
		r->hanging++;
	}
	qsort(r->groups, r->ngroups, sizeof(*r->groups), by_company);
}

unsigned hang_report(const struct hang *s, uint64_t ns, uint64_t now_ns, struct buf *out,
		     json_t *json)
{
	struct report r = {.ns = ns, .now_ns = now_ns};

	make_groups(&r, s);
	bool many = out && r.hanging && r.all > 1;
	if (many)
		add_answer(&r, out);
	for (unsigned i = 0; i < r.ngroups; i++) {
		const struct hang_group *g = &r.groups[i];

		if (out)
			add_group(&r, g, out);
		for (unsigned k = 0; json && k < g->n; k++)
			json_array_append_new(json, process_json(&r, g, g->members[k]));
		free(g->members);
	}
	if (many && r.ngroups == 1 && r.hanging == r.all)
		buf_add_str(out, "All of them are at the same call site: what they wait for is not "
				 "among the sampled processes.\n");
	free(r.groups);
	return r.hanging;
}
