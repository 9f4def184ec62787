/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The snapshot for people: the answer, then the groups; or process by process. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sampler/snapshot/snapshot.h"

#define BOLD "\033[1m"
#define PLAIN "\033[0m"
#define WHO_BYTES 400
#define NAMES_MAX 3 /* of threads, in the heading of a group */
#define SITES_MAX 4 /* named in the line */
#define ANSWER_WHO_BYTES 60

static void add_who(const struct snapshot *s, const unsigned *processes, unsigned n,
		    unsigned max_bytes, struct buf *out)
{
	struct process_id *list = xcalloc(n + 1, sizeof(*list));

	for (unsigned i = 0; i < n; i++) {
		const struct snap_process *p = &s->processes[processes[i]];

		list[i] = (struct process_id){p->pid, p->rank};
	}
	words_add_processes(list, n, max_bytes, out);
	free(list);
}

static void add_who_of_threads(const struct snapshot *s, const unsigned *threads, unsigned n,
			       struct buf *out)
{
	unsigned *processes = xcalloc(n + 1, sizeof(*processes));

	for (unsigned i = 0; i < n; i++)
		processes[i] = s->threads[threads[i]].process;
	add_who(s, processes, n, WHO_BYTES, out);
	free(processes);
}

/* --- the answer --- */

static void add_site(const struct snapshot *s, const struct snap_site *site, struct buf *out)
{
	const struct snap_thread *t = &s->threads[site->thread];
	int inner = stack_inner_call(t->frames, t->nframes);

	call_site_add(snapshot_site(t), inner >= 0 ? &t->frames[inner] : NULL, out);
}

/* Who is not where all others are: the sentence a hang is solved with. */
static void add_elsewhere(const struct snapshot *s, const struct snap_site *crowd, struct buf *out)
{
	unsigned *others = xcalloc(s->counted, sizeof(*others)), n = 0;

	for (unsigned i = 1; i < s->nsites; i++)
		for (unsigned k = 0; k < s->sites[i].n; k++)
			others[n++] = s->sites[i].processes[k];
	size_t begin = out->len;
	add_who(s, others, n, ANSWER_WHO_BYTES, out);
	out->data[begin] = (char)(out->data[begin] - 'a' + 'A');
	buf_addf(out, " %s elsewhere: the %u others are at the same call site",
		 n == 1 ? "is" : "are", crowd->n);
	if (crowd->idle == crowd->n)
		buf_add_str(out, ", all asleep");
	buf_add_str(out, ".\n");
	free(others);
}

static void add_sites(const struct snapshot *s, struct buf *out)
{
	unsigned shown = s->nsites <= SITES_MAX + 1 ? s->nsites : SITES_MAX, rest = s->counted;

	for (unsigned i = 0; i < shown; i++) {
		const struct snap_site *p = &s->sites[i];

		buf_addf(out, "%s%u ", i ? ", " : "", p->n);
		add_site(s, p, out);
		if (i || p->n * 2 <= s->counted) {
			buf_add_str(out, " (");
			add_who(s, p->processes, p->n, ANSWER_WHO_BYTES, out);
			buf_add_char(out, ')');
		}
		rest -= p->n;
	}
	if (rest)
		buf_addf(out, ", %u at %u other call sites", rest, s->nsites - shown);
}

static void add_trouble(const struct snapshot *s, struct buf *out)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->nprocesses; i++)
		n += s->processes[i].problem != NULL;
	if (n && s->counted)
		buf_addf(out, "%u %s could not be read; see below.\n", n,
			 n == 1 ? "process" : "processes");
}

static bool is_listed(const struct snap_process *p)
{
	return p->counts && p->first_thread != SNAP_NONE && p->steps >= 0;
}

/* The processes that have ended so many steps; -1: any number. */
static unsigned list_steps(const struct snapshot *s, int64_t steps, unsigned *out)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->nprocesses; i++)
		if (is_listed(&s->processes[i]) && (steps < 0 || s->processes[i].steps == steps))
			out[n++] = i;
	return n;
}

/* "120 steps have ended." or "118 to 120 steps have ended: 118 in rank 5." */
static void add_steps(const struct snapshot *s, struct buf *out)
{
	unsigned *list = xcalloc(s->nprocesses + 1, sizeof(*list)), n = list_steps(s, -1, list);
	int64_t least = INT64_MAX, most = -1;

	for (unsigned i = 0; i < n; i++) {
		int64_t steps = s->processes[list[i]].steps;

		least = steps < least ? steps : least;
		most = steps > most ? steps : most;
	}
	if (n && least < most)
		buf_addf(out, "%lld to ", (long long)least);
	if (n)
		buf_addf(out, "%lld step%s ended", (long long)most, most == 1 ? " has" : "s have");
	if (n && least < most) {
		unsigned few = list_steps(s, least, list);

		buf_addf(out, ": %lld in ", (long long)least);
		add_who(s, list, few, ANSWER_WHO_BYTES, out);
	}
	if (n)
		buf_add_str(out, ".\n");
	free(list);
}

void snapshot_answer(const struct snapshot *s, struct buf *out)
{
	const struct snap_site *crowd = snapshot_crowd(s);

	if (!s->counted) {
		buf_add_str(out, "no Python stack could be read\n");
		return;
	}
	if (s->counted == 1) {
		add_who(s, s->sites[0].processes, 1, ANSWER_WHO_BYTES, out);
		buf_add_str(out, " is ");
		add_site(s, &s->sites[0], out);
	} else if (s->nsites == 1) {
		buf_addf(out, "%u %s: all ", s->counted, s->ranks ? "ranks" : "processes");
		add_site(s, &s->sites[0], out);
	} else {
		buf_addf(out, "%u %s: ", s->counted, s->ranks ? "ranks" : "processes");
		add_sites(s, out);
	}
	buf_add_char(out, '\n');
	if (crowd)
		add_elsewhere(s, crowd, out);
	add_steps(s, out);
	add_trouble(s, out);
}

/* --- groups --- */

static const char *state_word(const struct snap_thread *t)
{
	if (t->gc)
		return "collects garbage";
	if (t->has_gil)
		return "has the GIL";
	return t->state == THREAD_IDLE ? "asleep" : t->state == THREAD_RUNNING ? "runs" : "";
}

/* "asleep", or "5 asleep, 2 run, 1 has the GIL" where they differ. */
static void add_states(const struct snapshot *s, const struct snap_group *g, struct buf *out)
{
	static const char *const words[] = {"collects garbage", "has the GIL", "asleep", "runs"};
	bool any = false;

	for (unsigned w = 0; w < 4; w++) {
		unsigned n = 0;

		for (unsigned i = 0; i < g->n; i++)
			n += !strcmp(state_word(&s->threads[g->threads[i]]), words[w]);
		if (!n)
			continue;
		buf_add_str(out, any ? ", " : "   ");
		if (n < g->n)
			buf_addf(out, "%u ", n);
		buf_add_str(out, words[w]);
		any = true;
	}
}

static void add_thread_names(const struct snapshot *s, const struct snap_group *g, struct buf *out)
{
	unsigned shown = 0;
	const char *names[NAMES_MAX];

	for (unsigned i = 0; i < g->n && shown < NAMES_MAX; i++) {
		const char *name = s->threads[g->threads[i]].name;
		bool seen = !*name;

		for (unsigned k = 0; k < shown && !seen; k++)
			seen = names[k] == name;
		if (seen)
			continue;
		names[shown] = name;
		buf_add_str(out, shown++ ? ", " : " ");
		words_add_printable(name, out);
	}
	if (shown == NAMES_MAX && g->n > NAMES_MAX)
		buf_add_str(out, ", …");
}

static void add_heading(const struct snapshot *s, const struct snap_group *g, struct buf *out)
{
	const struct snap_process *p = &s->processes[s->threads[g->threads[0]].process];

	if (s->o.color)
		buf_add_str(out, BOLD);
	bool inherited = g->first && !g->counts && p->rank >= 0;
	if (!g->first) {
		if (g->n == 1)
			buf_add_str(out, "Thread");
		else
			buf_addf(out, "%u threads", g->n);
		add_thread_names(s, g, out);
		buf_add_str(out, " of ");
	} else if (inherited) {
		buf_add_str(out, "Of ");
	}
	bool launcher = g->first && g->n == 1 && p->role == ROLE_LAUNCHER;
	size_t begin = out->len;
	if (launcher)
		buf_add_str(out, "launcher, ");
	add_who_of_threads(s, g->threads, g->n, out);
	if (g->first && !inherited)
		out->data[begin] = (char)(out->data[begin] - 'a' + 'A');
	if (g->n == 1 && p->rank >= 0)
		buf_addf(out, " (pid %d)", p->pid);
	if (s->o.color)
		buf_add_str(out, PLAIN);
	if (g->first && g->n > 1)
		buf_addf(out, " (%u %s)", g->n, p->counts && s->ranks ? "ranks" : "processes");
	add_states(s, g, out);
	buf_add_char(out, '\n');
}

/* --- variables --- */

static void add_thread_locals(const struct snap_thread *t, unsigned frame, struct buf *out)
{
	for (unsigned i = 0; i < t->nlocals; i++) {
		const struct snap_local *v = &t->locals[i];

		if (v->frame != frame)
			continue;
		buf_add_str(out, "        ");
		words_add_printable(v->name, out);
		buf_add_str(out, " = ");
		words_add_printable(v->value, out);
		buf_add_char(out, '\n');
	}
}

/* Whether the texts are equal but for addresses, which differ in every process. */
static bool same_values(const char *a, const char *b)
{
	while (*a && *a == *b) {
		bool address = !strncmp(a, " at 0x", 6) && !strncmp(b, " at 0x", 6);

		a += address ? 6 + strspn(a + 6, "0123456789abcdef") : 1;
		b += address ? 6 + strspn(b + 6, "0123456789abcdef") : 1;
	}
	return *a == *b;
}

/* The variables of a frame in each of the threads; those that are equal once. */
static void add_locals(const struct snapshot *s, const struct snap_group *g, unsigned frame,
		       struct buf *out)
{
	struct buf *texts = xcalloc(g->n, sizeof(*texts));
	unsigned *same = xcalloc(g->n, sizeof(*same));

	for (unsigned i = 0; i < g->n; i++)
		add_thread_locals(&s->threads[g->threads[i]], frame, &texts[i]);
	for (unsigned i = 0; i < g->n; i++) {
		unsigned n = 0;

		if (!texts[i].len)
			continue;
		for (unsigned k = i; k < g->n; k++)
			if (texts[k].len && same_values(buf_str(&texts[k]), buf_str(&texts[i]))) {
				same[n++] = g->threads[k];
				if (k > i)
					buf_clear(&texts[k]);
			}
		if (g->n > 1) {
			buf_add_str(out, "      ");
			add_who_of_threads(s, same, n, out);
			buf_add_str(out, ":\n");
		}
		buf_add(out, texts[i].data, texts[i].len);
	}
	for (unsigned i = 0; i < g->n; i++)
		buf_release(&texts[i]);
	free(texts);
	free(same);
}

/* --- stacks --- */

static void add_frame(const struct stack_frame *f, const char *mark, struct buf *out)
{
	buf_addf(out, "  %s ", mark);
	words_add_printable(f->name, out);
	if (*f->file) {
		buf_add_str(out, " (");
		words_add_printable(frame_path(f), out);
		if (f->line > 0)
			buf_addf(out, ":%" PRId32, f->line);
		buf_add_char(out, ')');
	}
	buf_add_char(out, '\n');
}

static unsigned shown_frames(const struct snapshot *s, const struct snap_thread *t)
{
	return s->o.top && s->o.top < t->nframes ? s->o.top : t->nframes;
}

static void add_rest(const struct snap_thread *t, unsigned shown, struct buf *out)
{
	if (t->missed)
		buf_add_str(out, "    (changed too fast to be read; this is an older stack)\n");
	if (shown < t->nframes)
		buf_addf(out, "    … %u more\n", t->nframes - shown);
	else if (t->cut)
		buf_add_str(out, "    … more than can be shown\n");
	else if (!t->nframes)
		buf_add_str(out, "    no Python function is running\n");
}

static void add_group(const struct snapshot *s, const struct snap_group *g, struct buf *out)
{
	const struct snap_thread *t = &s->threads[g->threads[0]];
	unsigned shown = shown_frames(s, t);

	add_heading(s, g, out);
	for (unsigned i = 0; i < shown; i++) {
		unsigned frame = t->nframes - 1 - i;

		add_frame(&t->frames[frame], (int)frame == t->site ? ">" : " ", out);
		add_locals(s, g, frame, out);
	}
	add_rest(t, shown, out);
}

static void add_troubles(const struct snapshot *s, struct buf *out)
{
	bool any = false;

	for (unsigned i = 0; i < s->nprocesses; i++) {
		const struct snap_process *p = &s->processes[i];

		if (!p->problem)
			continue;
		if (!any)
			buf_add_str(out, "\nNot read:\n");
		any = true;
		buf_addf(out, "    pid %d: %s\n", p->pid, p->problem);
	}
}

static const char *section_of(const struct snapshot *s, const struct snap_group *g)
{
	if (!g->first)
		return "Other threads:";
	if (g->counts)
		return NULL;
	return s->ranks ? "Processes that are not ranks:"
			: "Processes that only start or help others:";
}

void snapshot_text(const struct snapshot *s, struct buf *out)
{
	const char *section = NULL;

	if (s->o.color)
		buf_add_str(out, BOLD);
	snapshot_answer(s, out);
	if (s->o.color)
		buf_add_str(out, PLAIN);
	for (unsigned i = 0; i < s->ngroups; i++) {
		const char *now = section_of(s, &s->groups[i]);

		buf_add_char(out, '\n');
		if (now && now != section)
			buf_addf(out, "%s\n\n", now);
		section = now;
		add_group(s, &s->groups[i], out);
	}
	add_troubles(s, out);
}

/* --- process by process --- */

static const char *dump_state(const struct snap_thread *t)
{
	if (t->has_gil)
		return "active+gil";
	return t->state == THREAD_IDLE ? "idle" : "active";
}

static void dump_thread(const struct snapshot *s, const struct snap_thread *t, struct buf *out)
{
	unsigned shown = shown_frames(s, t);

	if (t->tid)
		buf_addf(out, "Thread %d", t->tid);
	else
		buf_addf(out, "Thread 0x%" PRIX64, t->thread_id);
	buf_addf(out, " (%s)", dump_state(t));
	if (*t->name) {
		buf_add_str(out, ": \"");
		words_add_printable(t->name, out);
		buf_add_char(out, '"');
	}
	buf_add_char(out, '\n');
	for (unsigned i = 0; i < shown; i++) {
		unsigned frame = t->nframes - 1 - i;

		add_frame(&t->frames[frame], " ", out);
		add_thread_locals(t, frame, out);
	}
	add_rest(t, shown, out);
}

void snapshot_dump(const struct snapshot *s, struct buf *out)
{
	for (unsigned i = 0, t = 0; i < s->nprocesses; i++) {
		const struct snap_process *p = &s->processes[i];

		if (p->first_thread == SNAP_NONE && !p->problem)
			continue;
		buf_addf(out, "\n--- Stack dump for PID %d ---\n", p->pid);
		if (p->problem)
			buf_addf(out, "Failed to get stack for PID %d. %s\n", p->pid, p->problem);
		else
			buf_addf(out, "Process %d: %s\nPython v%s\n", p->pid, p->cmdline,
				 p->version);
		for (; t < s->nthreads && s->threads[t].process == i; t++)
			dump_thread(s, &s->threads[t], out);
	}
}
