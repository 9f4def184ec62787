/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Whether stacks of running threads are true: tests/targets/python/torn.py changes its stacks as
 * fast as it can and says which of its lines call which function. A stack in which a line is
 * followed by a function that is not called there never existed. Every Python of this machine,
 * sampled nearly without a pause, first fast, then exactly (python_options.exact); fails if a
 * single exact one is false.
 */
#include <inttypes.h>

#include "base/containers/intern.h"
#include "unwind/remote/python.h"

#include "stack_child.h"

#define MAX_RULES 128

struct edge {
	const char *caller, *called;
	int32_t line;
};

struct never {
	const char *below, *above;
};

struct rules {
	struct edge edges[MAX_RULES];
	struct never nevers[MAX_RULES];
	unsigned nedges, nnevers;
};

struct tally {
	uint64_t stacks, frames, distinct, unknown, impossible, shown;
};

static const char *word(const char *text)
{
	return intern(text, strlen(text));
}

/* What the program says before it begins. */
static void read_rules(struct stack_child *c, struct rules *r)
{
	char line[256], a[64], b[64];
	int number;

	memset(r, 0, sizeof(*r));
	while (stack_child_line(c, line, sizeof(line)) && strncmp(line, "ready", 5) != 0) {
		if (sscanf(line, "edge %63s %d %63s", a, &number, b) == 3 && r->nedges < MAX_RULES)
			r->edges[r->nedges++] = (struct edge){word(a), word(b), number};
		else if (sscanf(line, "never %63s %63s", a, b) == 2 && r->nnevers < MAX_RULES)
			r->nevers[r->nnevers++] = (struct never){word(a), word(b)};
	}
	if (!r->nedges || !r->nnevers)
		stack_die("the program does not say what it calls");
}

static bool of_script(const struct stack_frame *f)
{
	size_t n = strlen(f->file);

	return n >= 7 && strcmp(f->file + n - 7, "torn.py") == 0;
}

static bool is_bootstrap(const char *name)
{
	return strcmp(name, "_bootstrap") == 0 || strcmp(name, "Thread._bootstrap") == 0;
}

static bool may_call(const struct rules *r, const struct stack_frame *f, const char *called)
{
	for (unsigned i = 0; i < r->nedges; i++) {
		const struct edge *e = &r->edges[i];
		if (e->caller == f->name && e->line == f->line && e->called == called)
			return true;
	}
	return false;
}

static bool has(const struct python_thread *t, unsigned from, const char *name)
{
	for (unsigned i = from; i < t->nframes; i++)
		if (t->frames[i].name == name)
			return true;
	return false;
}

/* Of threads that run functions of the script all the time, the main one and its helpers aside. */
static bool possible(const struct rules *r, const struct python_thread *t)
{
	bool inside = false;

	for (unsigned i = 0; i < t->nframes; i++) {
		const struct stack_frame *f = &t->frames[i];

		if (!of_script(f)) {
			/* threading's own frames are below, nothing else is ever called */
			if (inside)
				return false;
			continue;
		}
		if (inside && !may_call(r, f - 1, f->name))
			return false;
		inside = true;
	}
	for (unsigned i = 0; i < r->nnevers; i++)
		for (unsigned j = 0; j < t->nframes; j++)
			if (t->frames[j].name == r->nevers[i].below &&
			    has(t, j + 1, r->nevers[i].above))
				return false;
	/* All of them begin there; one that has just begun is not further yet. */
	return t->nframes && is_bootstrap(t->frames[0].name) && (inside || t->nframes < 4);
}

static void show(const struct python_thread *t)
{
	printf("stack_truth: never existed:");
	for (unsigned i = 0; i < t->nframes; i++)
		printf(" %s:%" PRId32, t->frames[i].name, t->frames[i].line);
	printf(" (thread \"%s\")\n", t->name);
}

static void judge(const struct rules *r, const struct python_process *p, struct tally *n)
{
	for (unsigned i = 0; i < p->nthreads; i++) {
		const struct python_thread *t = &p->threads[i];

		if (t->main || t->missed)
			continue;
		n->stacks++;
		n->frames += t->nframes;
		if (t->kept < t->nframes)
			n->distinct++;
		for (unsigned j = 0; j < t->nframes; j++)
			n->unknown += !t->frames[j].name[0];
		if (possible(r, t))
			continue;
		n->impossible++;
		if (n->shown++ < 3)
			show(t);
	}
}

static uint64_t measure(const struct stack_python *python, bool exact, double seconds)
{
	const char *words[] = {NULL};
	struct python_options o = {.names = true, .exact = exact};
	struct stack_child child;
	struct python_process *p;
	struct tally n = {0};
	static struct rules rules;
	struct err err = {0};

	stack_child_start(&child, python, "torn.py", words);
	read_rules(&child, &rules);
	if (python_process_open(child.pid, &o, &p, &err) < 0) {
		fprintf(stderr, "stack_truth: %s: %s\n", python->path, err.text);
		exit(1);
	}
	double end = stack_now_s() + seconds;
	while (stack_now_s() < end) {
		if (python_capture(p, &err) < 0)
			stack_die(err.text);
		python_prove(p);
		if (python_resolve(p, &err) < 0)
			stack_die(err.text);
		judge(&rules, p, &n);
		stack_sleep_s(20e-6); /* where processors are few, it must get on in between */
	}
	printf("stack_truth: 3.%d.%d %s: %" PRIu64 " stacks of running threads, %" PRIu64
	       " new, depth %.1f: %" PRIu64 " impossible, %" PRIu64 " frames without a name; "
	       "%" PRIu64 " copied again, %" PRIu64 " missed, %" PRIu64 " unproved\n",
	       python->minor, python->micro, exact ? "exact" : "fast", n.stacks, n.distinct,
	       n.stacks ? (double)n.frames / (double)n.stacks : 0, n.impossible, n.unknown,
	       p->counts.retries, p->counts.torn, p->counts.unproved);
	fflush(stdout);
	python_process_close(p);
	stack_child_end(&child);
	return n.impossible + n.unknown + !n.distinct;
}

int main(void)
{
	struct stack_python pythons[STACK_PYTHONS];
	unsigned n = stack_pythons(pythons);
	uint64_t bad = 0, fast = 0;

	for (unsigned i = 0; i < n; i++) {
		fast += measure(&pythons[i], false, stack_quick() ? 0.2 : 3);
		bad += measure(&pythons[i], true, stack_quick() ? 0.4 : 5);
	}
	printf("stack_truth: %" PRIu64 " false stacks without proof; with it %" PRIu64
	       " (must be 0)\n",
	       fast, bad);
	return bad != 0 && !stack_quick();
}
