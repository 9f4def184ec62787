/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/memory/answers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json_value.h"
#include "memory/analysis/gaps/gaps.h"
#include "memory/analysis/inefficient/inefficient.h"
#include "memory/analysis/leaks/leaks.h"
#include "memory/analysis/oom/oom.h"
#include "memory/analysis/peak/peak.h"
#include "memory/analysis/processes/dropped.h"
#include "memory/export/block_frames.h"
#include "memory/input/recording_path.h"
#include "report/redact/redact_json.h"

#define MOST_ROWS 20000u /* of a table */
#define TEXT_TOP 10

static struct analysis *make_leaks(void)
{
	static const struct leaks_options defaults = LEAKS_OPTIONS_DEFAULT;

	return leaks_new(&defaults);
}
static struct analysis *make_peak(void)
{
	return peak_new(NULL);
}
static struct analysis *make_inefficient(void)
{
	return inefficient_new(NULL);
}
static struct analysis *make_gaps(void)
{
	return gap_new(NULL);
}
static struct analysis *make_owners(void)
{
	return &pictures_new()->base;
}

/* In the order in which a page has them. */
static const struct {
	const char *id, *command;
	struct analysis *(*make)(void);
} questions[] = {
	{"oom", "sonde mem oom", oom_new},
	{"leaks", "sonde mem leaks", make_leaks},
	{"owners", "sonde mem owners", make_owners},
	{"peak", "sonde mem peak", make_peak},
	{"inefficient", "sonde mem inefficient", make_inefficient},
	{"gaps", "sonde mem gaps", make_gaps},
};
#define QUESTIONS (sizeof(questions) / sizeof(questions[0]))
enum { OWNERS = 2 };
_Static_assert(QUESTIONS <= ANSWERS_MOST, "too many questions");

/* An analysis that feeds all others. */
struct all {
	struct analysis base;
	struct analysis *list[QUESTIONS]; /* NULL: not asked */
	char command[MEM_COMMAND_BYTES]; /* of the job; empty: not known */
};

static void all_row(struct analysis *a, const struct row *row)
{
	struct all *all = (struct all *)a;

	for (size_t i = 0; i < QUESTIONS; i++)
		if (all->list[i])
			all->list[i]->ops->row(all->list[i], row);
}

static void all_process(struct analysis *a, uint32_t pid, const char *command)
{
	struct all *all = (struct all *)a;

	for (size_t i = 0; i < QUESTIONS; i++)
		if (all->list[i] && all->list[i]->ops->process)
			all->list[i]->ops->process(all->list[i], pid, command);
}

static void all_asked(struct analysis *a, const struct mem_asked *asked)
{
	struct all *all = (struct all *)a;

	for (size_t i = 0; i < QUESTIONS; i++)
		if (all->list[i] && all->list[i]->ops->asked)
			all->list[i]->ops->asked(all->list[i], asked);
	snprintf(all->command, sizeof(all->command), "%s", asked->command);
}

const char *answers_command(const struct answers *a)
{
	return ((const struct all *)a->all)->command;
}

static bool all_unordered(const struct analysis *a)
{
	const struct all *all = (const struct all *)a;

	for (size_t i = 0; i < QUESTIONS; i++)
		if (all->list[i] && all->list[i]->ops->unordered &&
		    all->list[i]->ops->unordered(all->list[i]))
			return true;
	return false;
}

static void all_free(struct analysis *a)
{
	struct all *all = (struct all *)a;

	for (size_t i = 0; i < QUESTIONS; i++)
		analysis_free(all->list[i]);
	free(all);
}

static const struct analysis_ops all_ops = {
	.name = "report",
	.row = all_row,
	.process = all_process,
	.asked = all_asked,
	.unordered = all_unordered,
	.free = all_free,
};

static struct analysis *make_all(void *options)
{
	const struct answers_options *o = options;
	struct all *all = xcalloc(1, sizeof(*all));

	for (size_t i = 0; i < QUESTIONS; i++)
		if (i == OWNERS || !o->pictures)
			all->list[i] = questions[i].make();
	all->base = (struct analysis){.ops = &all_ops, .blocks = all->list[OWNERS]->blocks};
	return &all->base;
}

int answers_read(const char *path, const struct answers_options *o, struct answers *out,
		 struct err *err)
{
	struct input_analysis what = {make_all, (void *)(uintptr_t)o, &out->processes, o->choice,
				      &out->loss};

	*out = (struct answers){0};
	int r = recording_resolve(path, &out->path, err);
	if (r == 0) {
		if (recording_wait(buf_str(&out->path), o->wait_s))
			buf_add_str(&out->notes, "The recorder is still writing; this is what "
						 "there is so far.\n");
		if (o->choice)
			r = input_choose(buf_str(&out->path), o->choice, err);
	}
	if (r == 0)
		r = input_analyse(buf_str(&out->path), &what, &out->all, &out->notes, err);
	if (r < 0)
		return r;
	struct all *all = (struct all *)out->all;
	out->pictures = (struct pictures *)all->list[OWNERS];
	for (size_t i = 0; i < QUESTIONS; i++)
		if (all->list[i])
			all->list[i]->processes = &out->processes;
	return 0;
}

/* --- names --- */

static void learn_stacks(const struct blocks *b, struct redact *r)
{
	struct block_frames frames = {0};

	for (uint32_t i = 1; i < b->stacks.count; i++) {
		const struct stack_frames *s = block_frames_stack(&frames, &b->stacks, i);

		for (unsigned k = 0; k < s->n; k++) {
			const struct profile_frame *f = &s->list[k];
			const char *name = f->name;

			if (f->users)
				redact_learn(r, REDACT_OWN_FUNCTION, name, strlen(name));
			redact_learn(r, f->users ? REDACT_OWN_FILE : REDACT_FILE, f->file,
				     strlen(f->file));
		}
	}
	block_frames_release(&frames);
}

void answers_learn(struct answers *a, struct redact *r)
{
	const struct blocks *b = a->pictures->base.blocks;

	if (!r)
		return;
	redact_learn_surroundings(r);
	learn_stacks(b, r);
	for (size_t i = 1; i < b->owners.count; i++)
		redact_learn(r, REDACT_OWNER, b->owners.list[i].text, b->owners.list[i].len);
	for (size_t i = 1; i < b->layers.count; i++)
		redact_learn(r, REDACT_MODULE, b->layers.list[i].text, b->layers.list[i].len);
	for (size_t i = 0; i < b->nprocesses; i++)
		if (b->processes[i]->command)
			redact_learn(r, REDACT_COMMAND, b->processes[i]->command,
				     strlen(b->processes[i]->command));
	for (size_t i = 0; i < a->processes.n; i++)
		if (a->processes.list[i].command)
			redact_learn(r, REDACT_COMMAND, a->processes.list[i].command,
				     strlen(a->processes.list[i].command));
}

/* --- what is said --- */

/* The first paragraph, its lines joined. */
static void first_paragraph(struct buf *text, struct buf *out)
{
	const char *s = buf_str(text), *end = strstr(s, "\n\n");
	size_t n = end ? (size_t)(end - s) : strlen(s);

	while (n && (*s == '\n' || *s == ' '))
		s++, n--;
	while (n && (s[n - 1] == '\n' || s[n - 1] == ' '))
		n--;
	for (size_t i = 0; i < n; i++)
		buf_add_char(out, s[i] == '\n' ? ' ' : s[i]);
}

static json_t *answer_json(struct answers *a, size_t i, struct pack *pack)
{
	struct analysis *one = ((struct all *)a->all)->list[i];
	struct analysis_style style = {.top = TEXT_TOP};
	struct buf text = {0}, answer = {0};
	bool judged = !one->ops->judged || one->ops->judged(one);
	size_t findings = one->ops->findings ? one->ops->findings(one) : 0;

	one->ops->text(one, &style, &text);
	first_paragraph(&text, &answer);
	json_t *found = one->ops->json(one, MOST_ROWS);
	redact_json(pack->redact, found);
	json_t *o = json_pack(
		"{s:s, s:s, s:b, s:I, s:o, s:o, s:o?}", "id", questions[i].id, "command",
		questions[i].command, "judged", judged, "findings", (json_int_t)findings, "answer",
		pack_long(pack, REDACT_WORDS, &answer), "text",
		pack_long(pack, REDACT_WORDS, pack->redact ? &answer : &text), "json", found);
	buf_release(&text);
	buf_release(&answer);
	return o;
}

json_t *answers_json(struct answers *a, struct pack *pack)
{
	json_t *list = json_array();

	for (size_t i = 0; i < QUESTIONS; i++)
		if (((struct all *)a->all)->list[i])
			json_array_append_new(list, answer_json(a, i, pack));
	return list;
}

static void add_lines(struct buf *text, struct pack *pack, json_t *list)
{
	for (const char *line = buf_str(text); *line;) {
		size_t n = strcspn(line, "\n");
		struct buf one = {0};

		buf_add(&one, line, n);
		if (n)
			json_array_append_new(list, pack_long(pack, REDACT_WORDS, &one));
		buf_release(&one);
		line += n + (line[n] != '\0');
	}
}

json_t *answers_notes(struct answers *a, struct pack *pack)
{
	json_t *list = json_array();
	struct buf text = {0};

	loss_describe(&a->loss, NULL, &text);
	buf_add_char(&text, '\n');
	dropped_text(&a->processes.dropped, &text);
	buf_add_char(&text, '\n');
	processes_ends_text(&a->processes, &text);
	buf_add_char(&text, '\n');
	processes_coverage_text(&a->processes, &text);
	buf_add_char(&text, '\n');
	buf_add(&text, a->notes.data, a->notes.len);
	add_lines(&text, pack, list);
	buf_release(&text);
	return list;
}

void answers_release(struct answers *a)
{
	analysis_free(a->all);
	processes_release(&a->processes);
	buf_release(&a->notes);
	buf_release(&a->path);
}
