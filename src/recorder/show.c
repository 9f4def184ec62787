/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/show.h"

#include "analyze/summary.h"
#include "recorder/input.h"

/* `arg` of all of them. */
struct showing {
	struct summary *summary;
	uint64_t calls; /* of functions */
};

static void on_process(void *arg, uint32_t pid, const char *command)
{
	summary_process(((struct showing *)arg)->summary, pid, command);
}

/* Rows that were not asked for serve analyses; of them only the refusal of memory is news. */
static void on_row(void *arg, const struct row *row)
{
	if (!row->hidden || row->event == ROW_OOM_DETAIL)
		summary_add(((struct showing *)arg)->summary, row);
}

static void on_lost(void *arg, uint32_t pid, uint64_t events, uint64_t stacks, uint64_t damaged)
{
	summary_lost(((struct showing *)arg)->summary, pid, events, stacks, damaged);
}

static void on_note(void *arg, const char *text)
{
	summary_note(((struct showing *)arg)->summary, text);
}

static void on_calls(void *arg, uint64_t n)
{
	((struct showing *)arg)->calls = n;
}

static bool is_unordered(void *arg)
{
	return summary_unordered(((struct showing *)arg)->summary);
}

/* All rows come again, sorted. */
static void restart(void *arg)
{
	struct showing *s = arg;

	summary_free(s->summary);
	s->summary = summary_new();
}

int show_recording(const char *path, bool json, unsigned top, bool colour, struct buf *out,
		   struct err *err)
{
	struct showing s = {summary_new(), 0};
	struct input_sink sink = {
		.process = on_process,
		.row = on_row,
		.lost = on_lost,
		.calls = on_calls,
		.note = on_note,
		.unordered = is_unordered,
		.restart = restart,
		.arg = &s,
	};
	int r = input_read(path, &sink, err);

	if (r == 0 && json)
		r = summary_json(s.summary, top, out);
	else if (r == 0)
		summary_text(s.summary, top, colour, out);
	if (r == 0 && s.calls && !json)
		buf_addf(out,
			 "\n%llu calls of functions were traced: see the files python_trace_*.\n",
			 (unsigned long long)s.calls);
	summary_free(s.summary);
	return r;
}
