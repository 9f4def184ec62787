/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/show.h"

#include "analyze/summary.h"
#include "recorder/input.h"

static void on_process(void *arg, uint32_t pid, const char *command)
{
	summary_process(arg, pid, command);
}

/* Rows that were not asked for serve analyses; of them only the refusal of memory is news. */
static void on_row(void *arg, const struct row *row)
{
	if (!row->hidden || row->event == ROW_OOM_DETAIL)
		summary_add(arg, row);
}

static void on_lost(void *arg, uint32_t pid, uint64_t events, uint64_t stacks, uint64_t damaged)
{
	summary_lost(arg, pid, events, stacks, damaged);
}

static void on_note(void *arg, const char *text)
{
	summary_note(arg, text);
}

int show_recording(const char *path, bool json, unsigned top, bool colour, struct buf *out,
		   struct err *err)
{
	struct summary *s = summary_new();
	struct input_sink sink = {
		.process = on_process, .row = on_row, .lost = on_lost, .note = on_note, .arg = s};
	int r = input_read(path, &sink, err);

	if (r == 0 && json)
		r = summary_json(s, top, out);
	else if (r == 0)
		summary_text(s, top, colour, out);
	summary_free(s);
	return r;
}
