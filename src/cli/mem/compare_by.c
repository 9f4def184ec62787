/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/mem/compare_by.h"

#include <unistd.h>

#include "formats/json_value.h"
#include "memory/analysis/groups/difference.h"
#include "memory/analysis/owners/owners.h"

static const char *const side_names[] = {"base", "compare"};

struct reading {
	struct analysis_options common; /* first */
	struct groups_options groups;
};

struct side {
	struct groups_difference *into;
	enum difference_side side;
};

static struct analysis *make_analysis(void *options)
{
	struct reading *r = options;
	struct analysis *a = owners_new(NULL);

	r->groups.lines = true;
	owners_group(a, &r->groups);
	return a;
}

static void add_device(void *arg, uint32_t device, const struct groups *g)
{
	const struct side *s = arg;

	difference_add(s->into, s->side, device, g);
}

static void describe_losses(const struct analysis_run run[2], struct buf *out)
{
	for (unsigned i = 0; i < 2; i++) {
		if (out->len && loss_any(&run[i].loss))
			buf_add_char(out, ' ');
		loss_describe(&run[i].loss, side_names[i], out);
	}
}

static int print_json(const struct command *cmd, const struct compare_by *job,
		      struct analysis_run run[2], const struct groups_difference *d)
{
	json_t *o = json_object(), *lost = json_object();
	struct buf t = {0};

	describe_losses(run, &t);
	put_text(o, "incomplete", t.len ? buf_str(&t) : NULL);
	for (unsigned i = 0; i < 2; i++)
		json_object_set_new(lost, side_names[i], loss_value(&run[i].loss));
	json_object_set_new(o, "lost", lost);
	difference_put(o, d, job->top);
	buf_clear(&t);
	for (unsigned i = 0; i < 2; i++)
		buf_add_str(&t, buf_str(&run[i].notes));
	json_object_set_new(o, "notes", analysis_notes_value(&t));
	buf_release(&t);
	return command_print_json(cmd, o);
}

static int print_text(const struct command *cmd, const struct compare_by *job,
		      struct analysis_run run[2], const struct groups_difference *d)
{
	struct analysis_style style = {.colour = isatty(STDOUT_FILENO), .top = job->top};
	struct buf text = {0}, t = {0};
	struct report r = report_begin(&style, &text);

	describe_losses(run, &t);
	if (t.len) {
		report_paragraph(&r, 0, &t);
		buf_add_char(&text, '\n');
	}
	difference_text(d, &r);
	for (unsigned i = 0; i < 2; i++)
		analysis_add_notes(&run[i].notes, &text);
	int status = command_print(cmd, &text);
	buf_release(&text);
	return status;
}

int compare_by_run(const struct command *cmd, const struct compare_by *job)
{
	struct groups_difference d = {.by = job->groups.by};
	struct analysis_run run[2] = {0};
	int status = EXIT_DONE;

	for (unsigned i = 0; i < 2 && status == EXIT_DONE; i++) {
		struct reading reading = {
			.common = {.wait_s = job->wait_s, .pid = job->pid[i], .rank = job->rank},
			.groups = job->groups};
		status = analysis_read(cmd, job->input[i], make_analysis, &reading, &run[i]);
		if (status == EXIT_DONE)
			owners_each(run[i].analysis, add_device,
				    &(struct side){&d, (enum difference_side)i});
	}
	difference_finish(&d);
	if (status == EXIT_DONE)
		status = (job->json ? print_json : print_text)(cmd, job, run, &d);
	if (status == EXIT_DONE && job->fail_on_difference)
		status = mem_fail_status(cmd, difference_count(&d) != 0, true,
					 !loss_any(&run[0].loss) && !loss_any(&run[1].loss));
	for (unsigned i = 0; i < 2; i++)
		analysis_release(&run[i]);
	difference_release(&d);
	return status;
}
