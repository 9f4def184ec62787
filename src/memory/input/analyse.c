/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Feeds an analysis with the rows of whatever a user has named. */
#include "memory/input/input.h"

#include "memory/analysis/common/blocks.h"
#include "wire/record.h"

struct feeding {
	const struct input_analysis *what;
	struct analysis *analysis;
	struct buf *notes;
	struct mem_asked asked;
	bool rows; /* any */
	bool shown, hidden; /* rows of blocks, that were asked for and that were not */
};

static void feed_row(void *arg, const struct row *row)
{
	struct feeding *f = arg;

	f->rows = true;
	if (row->event == ROW_MALLOC || row->event == ROW_FREE)
		*(row->hidden ? &f->hidden : &f->shown) = true;
	if (row->event == ROW_MALLOC && row->device == DEV_HOST && f->what->processes)
		f->what->processes->host = true;
	f->analysis->ops->row(f->analysis, row);
}

/* Why there may be less than the reader expects. */
static void note_missing(struct feeding *f)
{
	if (f->hidden && !f->shown)
		buf_add_str(f->notes,
			    "Allocations and frees were not asked for (--events), so they are in "
			    "no dump; they were recorded for the analyses alone.\n");
	else if (f->asked.known && !f->hidden && !f->shown && !loss_any(f->what->loss)) {
		f->asked.deferred &= !f->rows;
		mem_asked_why_empty(&f->asked, f->notes);
		buf_add_char(f->notes, '\n');
	}
}

static void feed_process(void *arg, uint32_t pid, const char *command)
{
	struct feeding *f = arg;

	if (f->analysis->ops->process)
		f->analysis->ops->process(f->analysis, pid, command);
}

static void feed_lost(void *arg, uint32_t pid, uint64_t events, uint64_t stacks, uint64_t damaged)
{
	struct feeding *f = arg;

	if (events)
		buf_addf(f->notes, "%llu events of process %u are missing.\n",
			 (unsigned long long)events, pid);
	if (stacks)
		buf_addf(f->notes, "%llu call stacks of process %u are missing.\n",
			 (unsigned long long)stacks, pid);
	if (damaged)
		buf_addf(f->notes, "%llu bytes of process %u are damaged and were passed over.\n",
			 (unsigned long long)damaged, pid);
}

static void feed_lost_more(void *arg)
{
	struct feeding *f = arg;

	buf_add_str(f->notes, "How many more events are missing is unknown.\n");
}

static void feed_note(void *arg, const char *text)
{
	struct feeding *f = arg;

	buf_addf(f->notes, "%s\n", text);
}

static bool feed_unordered(void *arg)
{
	struct feeding *f = arg;

	return f->analysis->ops->unordered && f->analysis->ops->unordered(f->analysis);
}

static void feed_restart(void *arg)
{
	struct feeding *f = arg;

	analysis_free(f->analysis);
	f->analysis = f->what->make(f->what->options);
	f->analysis->processes = f->what->processes;
}

static bool feed_held(void *arg, uint32_t pid, struct process_blocks *out)
{
	struct feeding *f = arg;

	if (!f->analysis->blocks)
		return false;
	out->most_bytes = blocks_most_of_host(f->analysis->blocks, pid);
	return blocks_of_host(f->analysis->blocks, pid, &out->bytes, &out->blocks, &out->steps,
			      &out->torn_down);
}

int input_analyse(const char *path, const struct input_analysis *what, struct analysis **out,
		  struct buf *notes, struct err *err)
{
	struct feeding f = {.what = what, .analysis = what->make(what->options), .notes = notes};
	struct input_sink sink = {
		.choice = what->choice,
		.loss = what->loss,
		.asked = &f.asked,
		.processes = what->processes,
		.held = feed_held,
		.process = feed_process,
		.row = feed_row,
		.lost = feed_lost,
		.lost_more = feed_lost_more,
		.note = feed_note,
		.unordered = feed_unordered,
		.restart = feed_restart,
		.arg = &f,
	};
	f.analysis->processes = what->processes;
	sink.attrs = f.analysis->ops->attrs;
	int r = input_read(path, &sink, err);

	if (r < 0) {
		analysis_free(f.analysis);
		return r;
	}
	note_missing(&f);
	if (f.analysis->ops->asked)
		f.analysis->ops->asked(f.analysis, &f.asked);
	*out = f.analysis;
	return 0;
}
