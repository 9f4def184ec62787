/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/outputs/show.h"

#include "memory/analysis/summary/summary.h"
#include "memory/input/input.h"
#include "wire/record.h"

/* `arg` of all of them. */
struct showing {
	struct summary *summary;
	struct mem_asked asked;
	bool hidden; /* allocations that were not asked for */
	struct processes processes;
};

static void on_process(void *arg, uint32_t pid, const char *command)
{
	struct showing *s = arg;

	summary_process(s->summary, pid, command);
}

/* Rows that were not asked for serve analyses; of them the refusal of memory and steps are news. */
static void on_row(void *arg, const struct row *row)
{
	struct showing *s = arg;

	s->processes.host |= row->event == ROW_MALLOC && row->device == DEV_HOST;
	if (!row->hidden || row->event == ROW_OOM_DETAIL)
		summary_add(s->summary, row);
	else if (row->event == ROW_SYSTEM && row->type == TYPE_STEP)
		summary_detected_step(s->summary, row);
	s->hidden |= row->hidden && row->event == ROW_MALLOC;
}

static void on_lost(void *arg, uint32_t pid, uint64_t events, uint64_t stacks, uint64_t damaged)
{
	struct showing *s = arg;

	summary_lost(s->summary, pid, events, stacks, damaged);
}

static void on_note(void *arg, const char *text)
{
	summary_note(((struct showing *)arg)->summary, text);
}

static void on_calls(void *arg, uint64_t calls, uint64_t threads)
{
	struct showing *s = arg;

	summary_calls(s->summary, calls, threads, s->asked.db);
}

static bool is_unordered(void *arg)
{
	return summary_unordered(((struct showing *)arg)->summary);
}

/* All rows come again, sorted. */
static void restart_rows(void *arg)
{
	struct showing *s = arg;

	summary_free(s->summary);
	s->summary = summary_new();
}

static bool on_held(void *arg, uint32_t pid, struct process_blocks *out)
{
	struct showing *s = arg;

	return summary_host(s->summary, pid, out);
}

int show_recording(const char *path, const struct show_style *style, struct buf *out,
		   struct err *err)
{
	struct showing s = {.summary = summary_new()};
	struct loss loss = {0};
	struct input_sink sink = {
		.choice = style->choice,
		.loss = &loss,
		.asked = &s.asked,
		.processes = &s.processes,
		.held = on_held,
		.process = on_process,
		.row = on_row,
		.lost = on_lost,
		.calls = on_calls,
		.note = on_note,
		.unordered = is_unordered,
		.restart = restart_rows,
		.arg = &s,
	};
	int r = input_read(path, &sink, err);

	s.asked.memory &= !s.hidden;
	summary_asked(s.summary, &s.asked);
	summary_processes(s.summary, &s.processes);
	summary_missing(s.summary, &loss);
	if (r == 0 && style->json)
		r = summary_json(s.summary, style->top, out);
	else if (r == 0)
		summary_text(s.summary, style->top, style->colour, out);
	summary_free(s.summary);
	processes_release(&s.processes);
	return r;
}
