/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a recording that is followed comes to, in words, pictures of characters and JSON. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/display_width.h"
#include "base/text/printable.h"
#include "base/text/sparkline.h"
#include "base/text/table.h"
#include "formats/json_value.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/live/live.h"
#include "wire/record.h"

#define BOLD "\033[1m"
#define PLAIN "\033[0m"
#define NO_STACK "(no call stack)"
#define PROCESS_LINES 6 /* at most, of courses of processes */
#define WORTH_SHOWING 20 /* growth by a part of this */

/* --- which courses a view is about --- */

static uint32_t course_pid(const struct live_course *c)
{
	return c->of->process->pid;
}

static bool is_of_view(const struct live_course *c, const struct live_view *v)
{
	return v->by_pid ? c->of && course_pid(c) == v->pid : !c->of;
}

static uint64_t held_of(const struct live *l, const struct live_course *c)
{
	return c->now + (live_state(l) == LIVE_RUNNING ? 0 : c->left);
}

static int larger_first(const void *pa, const void *pb)
{
	const struct live_course *a = *(const struct live_course *const *)pa;
	const struct live_course *b = *(const struct live_course *const *)pb;

	/* host memory is the last, devices in the order of their numbers; the largest of each first */
	return ORDER(a->device, b->device)
		       ?: ORDER(b->now + b->left, a->now + a->left) ?: ORDER(b->peak, a->peak);
}

/* Sorted; free() it. */
static const struct live_course **sorted_courses(const struct live *l, size_t *out_n)
{
	const struct live_course *const *all;
	const struct live_course **list;

	*out_n = live_courses(l, &all);
	list = xcalloc(*out_n + 1, sizeof(*list));
	for (size_t i = 0; i < *out_n; i++)
		list[i] = all[i];
	SORT(list, *out_n, larger_first);
	return list;
}

/* exec() makes another of the same number: a process counts once. */
static size_t count_processes(const struct live *l, bool ended)
{
	const struct processes *ps = live_processes(l);
	size_t n = 0;

	for (size_t i = 0; i < ps->n; i++)
		n += !ps->list[i].replaced && (ended || ps->list[i].state != PROCESS_GONE);
	return n;
}

/* --- sentences --- */

static void describe_device(const struct live_course *c, struct buf *out)
{
	words_device(out, c->device, false);
}

static void describe_processes(struct live *l, const struct live_view *v, bool ended,
			       struct buf *out)
{
	const struct processes *ps = live_processes(l);
	struct buf who = {0};

	if (v->by_pid) {
		processes_describe(ps, v->pid, &who);
		who.data[0] = 'P';
		add_text(out, "{} {}", TEXT(buf_str(&who)), TEXT(ended ? "held" : "holds"));
	} else {
		size_t n = count_processes(l, ended);
		add_text(out, "{} process{} {}", COUNT(n), TEXT(n == 1 ? "" : "es"),
			 TEXT(ended    ? "held"
			      : n == 1 ? "holds"
				       : "hold"));
	}
	buf_release(&who);
}

static void describe_held(struct live *l, const struct live_view *v, struct buf *out)
{
	bool ended = live_state(l) != LIVE_RUNNING;
	size_t n, shown = 0;
	const struct live_course **list = sorted_courses(l, &n);

	describe_processes(l, v, ended, out);
	for (size_t i = 0; i < n; i++) {
		if (!is_of_view(list[i], v))
			continue;
		add_text(out, "{}{} of ", TEXT(shown++ ? ", " : " "), BYTES(held_of(l, list[i])));
		describe_device(list[i], out);
		add_text(out, " (at most {})", BYTES(list[i]->peak));
	}
	add_text(out, shown ? "" : " nothing that was recorded");
	add_text(out, ended ? " at the end.\n" : " now.\n");
	free(list);
}

/* By how much it has changed in the newest quarter of the time, or half a minute. */
static void describe_growth(struct live *l, const struct live_view *v, struct buf *out)
{
	uint64_t bins[LIVE_BINS], first_ns, bin_ns = live_bin_ns(l, &first_ns);
	size_t ncourses;
	const struct live_course **list = sorted_courses(l, &ncourses);

	for (size_t i = 0; i < ncourses && live_state(l) == LIVE_RUNNING; i++) {
		size_t n = is_of_view(list[i], v) ? live_course_bins(l, list[i], bins) : 0;
		size_t back = n / 4;

		if (bin_ns && back * bin_ns > 30000000000u)
			back = 30000000000u / bin_ns + 1;
		if (!back || n < 8)
			continue;
		uint64_t before = bins[n - 1 - back], now = bins[n - 1];
		if (now <= before + before / WORTH_SHOWING || now - before < 1u << 16)
			continue;
		struct buf what = {0};
		words_device(&what, list[i]->device, true);
		add_text(out, "{} grew by {} in the last {}.\n", TEXT(buf_str(&what)),
			 BYTES(now - before), DURATION(back * bin_ns));
		buf_release(&what);
	}
	free(list);
}

static bool has_python(struct live *l)
{
	const struct processes *ps = live_processes(l);

	for (size_t i = 0; i < ps->n; i++)
		if (words_is_python(ps->list[i].command))
			return true;
	return false;
}

static void describe_most(struct live *l, const struct live_view *v, struct buf *out)
{
	struct live_view largest = {.by = v->by, .by_pid = v->by_pid, .pid = v->pid};
	struct live_groups g;

	live_groups(l, &largest, &g);
	if (g.n && g.list[0].held) {
		/* A pool's blocks are not freed when the process gives the device back. */
		add_text(out, "{} {}: {} of {}.\n", TEXT(g.list[0].name),
			 TEXT(live_state(l) == LIVE_RUNNING ? "holds the most"
							    : "had the most left"),
			 HELD(g.list[0].held, g.list[0].held_blocks),
			 TEXT(words_pool(g.list[0].pool)));
		if (!strcmp(g.list[0].name, NO_STACK)) {
			words_stacks_hint(out, has_python(l));
			buf_add_char(out, '\n');
		}
	}
	live_groups_release(&g);
}

static void describe_state(struct live *l, struct buf *out)
{
	const struct dropped *d = &live_processes(l)->dropped;
	struct loss loss = live_loss(l);
	uint64_t at, size;

	if (live_state(l) == LIVE_KILLED)
		add_text(out, "Its recorder was killed before the recording was complete: 'sonde "
			      "mem recover' brings back what is left in the buffers.\n");
	loss_describe(&loss, NULL, out);
	if (out->len && out->data[out->len - 1] != '\n')
		buf_add_char(out, '\n');
	if (d->yes)
		add_text(out, "The oldest part was dropped (--max-size): what was allocated there "
			      "and freed since is not counted.\n");
	live_progress(l, &at, &size);
	if (size > at + (1u << 20) && live_state(l) == LIVE_RUNNING)
		add_text(out, "Still reading: {} of {}.\n", BYTES(at), BYTES(size));
}

void live_describe(struct live *l, const struct live_view *v, struct buf *out)
{
	describe_held(l, v, out);
	describe_most(l, v, out);
	describe_growth(l, v, out);
	describe_state(l, out);
}

/* --- courses --- */

static void course_name(const struct live *l, const struct live_course *c, struct buf *out)
{
	char text[16];

	if (c->of) {
		const struct process_facts *p = processes_find(live_processes(l), course_pid(c));

		buf_addf(out, "  %u", course_pid(c));
		if (p && p->rank >= 0)
			buf_addf(out, " rank %d", (int)p->rank);
		if (c->of->process->step)
			buf_addf(out, " step %u", c->of->process->step);
		buf_add_str(out, ": ");
	}
	if (c->device == DEV_HOST)
		buf_add_str(out, "host");
	else
		buf_addf(out, "device %s", blocks_device_name(c->device, text));
}

static void add_course(struct live *l, const struct live_course *c, uint64_t most, unsigned columns,
		       struct table *t)
{
	uint64_t bins[LIVE_BINS];
	struct buf cell = {0};
	size_t n = live_course_bins(l, c, bins);

	course_name(l, c, &cell);
	table_cell(t, &cell);
	words_bytes(&cell, held_of(l, c));
	table_cell(t, &cell);
	words_bytes(&cell, c->peak);
	table_cell(t, &cell);
	text_add_sparkline(&cell, bins, n, columns, most);
	table_cell(t, &cell);
	buf_release(&cell);
}

/* The highest of the courses that have the same memory: they have one scale. */
static uint64_t highest(const struct live_course **list, size_t n, const struct live_course *c)
{
	uint64_t most = 0;

	for (size_t i = 0; i < n; i++)
		if (list[i]->device == c->device && !list[i]->of == !c->of && list[i]->peak > most)
			most = list[i]->peak;
	return most;
}

static bool has_something(const struct live_course *c)
{
	return c->peak >= 1u << 20;
}

/* Processes that hold something worth a line. */
static size_t count_busy(const struct live_course **list, size_t n)
{
	size_t busy = 0;
	uint32_t before = 0;

	for (size_t i = 0; i < n; i++)
		if (list[i]->of && has_something(list[i]) && course_pid(list[i]) != before) {
			before = course_pid(list[i]);
			busy++;
		}
	return busy;
}

void live_courses_text(struct live *l, const struct live_view *v,
		       const struct live_display *display, struct buf *out)
{
	static const char *const titles[] = {"MEMORY", ">NOW", ">MOST", "OVER TIME", NULL};
	static const char *const drop[] = {"MOST", NULL};
	struct table t = {.titles = titles, .drop = drop, .least = 8};
	unsigned columns = display->width ? display->width : 80, processes = 0, left_out = 0;
	size_t n;
	const struct live_course **list = sorted_courses(l, &n);
	bool one = count_busy(list, n) < 2;

	t.before_titles = display->colours ? BOLD : NULL;
	t.behind_titles = display->colours ? PLAIN : NULL;
	columns = columns > 96 ? 60 : columns > 60 ? columns - 44 : 14;
	for (size_t i = 0; i < n; i++) {
		if (is_of_view(list[i], v)) {
			add_course(l, list[i], highest(list, n, list[i]), columns, &t);
		} else if (list[i]->of && !v->by_pid && !one && has_something(list[i])) {
			if (display->rows && processes >= PROCESS_LINES)
				left_out++;
			else
				add_course(l, list[i], highest(list, n, list[i]), columns, &t);
			processes++;
		}
	}
	if (t.n)
		table_print(&t, display->width, out);
	if (left_out)
		buf_addf(out, "  and %u more (Tab: one after the other)\n", left_out);
	table_release(&t);
	free(list);
}

/* --- groups --- */

void live_groups_text(const struct live_groups *g, const struct live_view *v,
		      const struct live_display *display, struct buf *out)
{
	static const char *const names[] = {"CALL SITE", "OWNER", "MODULE"};
	const char *titles[] = {">HELD",  "",	  ">BLOCKS",	">ALLOCATED",
				">CALLS", "POOL", names[v->by], NULL};
	static const char *const drop[] = {"CALLS", "POOL", "BLOCKS", "", "ALLOCATED", NULL};
	struct table t = {.titles = titles, .drop = drop, .least = 24};
	struct buf cell = {0};

	t.before_titles = display->colours ? BOLD : NULL;
	t.behind_titles = display->colours ? PLAIN : NULL;
	for (size_t i = display->first; i < g->n && i - display->first < display->top; i++) {
		const struct live_group *one = &g->list[i];

		words_bytes(&cell, one->held);
		table_cell(&t, &cell);
		text_add_bar(&cell, one->held, g->most, 8);
		table_cell(&t, &cell);
		words_count(&cell, one->held_blocks);
		table_cell(&t, &cell);
		words_bytes(&cell, one->n.allocated_bytes);
		table_cell(&t, &cell);
		words_count(&cell, one->n.allocations);
		table_cell(&t, &cell);
		table_text(&t, words_pool(one->pool));
		table_text(&t, one->name);
	}
	table_print(&t, display->width, out);
	if (!g->n)
		buf_addf(out, "%s\n",
			 v->filter && *v->filter ? "No name contains this text."
						 : "Nothing was allocated yet.");
	table_release(&t);
	buf_release(&cell);
}

/* --- JSON --- */

static json_t *course_json(struct live *l, const struct live_course *c)
{
	json_t *o = json_object(), *list = json_array();
	uint64_t bins[LIVE_BINS];
	size_t n = live_course_bins(l, c, bins);
	char text[16];

	put_text(o, "device", blocks_device_name(c->device, text));
	put_known(o, "pid", c->of, c->of ? course_pid(c) : 0);
	put_number(o, "bytes", held_of(l, c));
	put_number(o, "peak_bytes", c->peak);
	put_number(o, "peak_ns", c->peak_ns);
	if (c->of) {
		put_number(o, "driver_bytes", c->of->driver_bytes);
		put_number(o, "pool_bytes", c->of->pool_bytes);
	}
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer((json_int_t)bins[i]));
	json_object_set_new(o, "over_time", list);
	return o;
}

static json_t *process_json(const struct live *l, const struct process_facts *p)
{
	static const char *const states[] = {"unknown", "running", "ended"};
	const struct blocks *b = live_blocks(l);
	json_t *o = json_object();
	uint32_t step = 0;

	for (size_t i = 0; i < b->nprocesses; i++)
		if (b->processes[i]->pid == p->pid)
			step = b->processes[i]->step;
	put_number(o, "pid", p->pid);
	put_known(o, "rank", p->rank >= 0, (uint64_t)p->rank);
	put_text(o, "command", p->command);
	put_text(o, "state",
		 states[p->state == PROCESS_UNKNOWN && live_state(l) == LIVE_RUNNING
				? PROCESS_RUNNING
				: p->state]);
	put_known(o, "step", step, step);
	put_known(o, "rss_bytes", p->samples, p->last.usage.rss_bytes);
	return o;
}

static json_t *group_json(const struct live_group *g)
{
	json_t *o = json_object();

	put_text(o, "name", g->name);
	put_text(o, "pool", words_pool(g->pool));
	put_number(o, "bytes", g->held);
	put_number(o, "blocks", g->held_blocks);
	put_number(o, "allocated_bytes", g->n.allocated_bytes);
	put_number(o, "allocations", g->n.allocations);
	return o;
}

json_t *live_json(struct live *l, const struct live_view *v, unsigned top)
{
	static const char *const states[] = {"running", "ended", "killed"};
	const struct processes *ps = live_processes(l);
	json_t *o = json_object(), *courses = json_array(), *list = json_array(),
	       *processes = json_array();
	uint64_t first_ns, bin_ns = live_bin_ns(l, &first_ns);
	struct loss loss = live_loss(l);
	struct live_groups g;
	struct buf words = {0};
	size_t n;

	const struct live_course **sorted = sorted_courses(l, &n);
	live_describe(l, v, &words);
	json_object_set_new(o, "answer", lines_value(&words));
	put_text(o, "recording", live_path(l));
	put_text(o, "state", states[live_state(l)]);
	put_number(o, "newest_ns", live_newest_ns(l));
	put_number(o, "first_ns", first_ns);
	put_number(o, "bin_ns", bin_ns);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(courses, course_json(l, sorted[i]));
	json_object_set_new(o, "memory", courses);
	for (size_t i = 0; i < ps->n; i++)
		json_array_append_new(processes, process_json(l, &ps->list[i]));
	json_object_set_new(o, "processes", processes);
	live_groups(l, v, &g);
	put_text(o, "by", live_by_names[v->by]);
	put_number(o, "groups_total", g.n);
	for (size_t i = 0; i < g.n && i < top; i++)
		json_array_append_new(list, group_json(&g.list[i]));
	json_object_set_new(o, "groups", list);
	loss_json(&loss, o);
	live_groups_release(&g);
	buf_release(&words);
	free(sorted);
	return o;
}
