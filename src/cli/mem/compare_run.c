/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/mem/compare_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "cli/mem/analysis_command.h"
#include "memory/analysis/compare/compare.h"

/* --- the answer --- */

static int print_json(const struct command *cmd, const struct compare *c,
		      const struct compare_job *job, const char *csv)
{
	json_t *o = compare_json(c, job->top);
	struct buf path = {0};

	text_add_printable(&path, csv, strlen(csv)); /* a path need not be UTF-8 */
	if (o) {
		compare_sources_json(c, o);
		json_object_set_new(o, "csv", json_string(buf_str(&path)));
	}
	buf_release(&path);
	return command_print_json(cmd, o);
}

static int print_text(const struct command *cmd, const struct compare *c,
		      const struct compare_job *job, const char *csv)
{
	struct buf text = {0};

	compare_text(c, job->top, isatty(STDOUT_FILENO), &text);
	buf_add_char(&text, '\n');
	compare_sources_text(c, &text);
	buf_addf(&text, "Every call is in %s\n", csv);
	int status = command_print(cmd, &text);
	buf_release(&text);
	return status;
}

/* The line that scripts look for, then the reason. */
static int fail_comparison(const struct command *cmd, const struct err *err)
{
	if (cmd->tag)
		fprintf(stderr, "[%s] ERROR: Memory comparison failed!\n", cmd->tag);
	return command_fail(cmd, err, EXIT_FAILED);
}

static int read_sides(struct compare *c, struct compare_job *job, struct err *err)
{
	int r = 0;

	for (unsigned i = 0; i < 2 && r == 0; i++) {
		struct compare_input_options options = {job->wait_s, &job->choice[i]};

		r = compare_read(c, i ? COMPARE_OTHER : COMPARE_BASE, job->input[i], &options, err);
	}
	return r < 0 ? r : compare_finish(c, err);
}

/* Every recording has call sites; operators only those whose framework announces them. */
static int read_inputs(struct compare_job *job, struct compare **out, struct err *err)
{
	*out = compare_new(job->level ? job->level : COMPARE_OPERATORS);
	int r = read_sides(*out, job, err);

	if (r != -ENODATA || job->level)
		return r;
	compare_free(*out);
	*out = compare_new(COMPARE_SITES);
	compare_note(*out, "Neither input has operators of a device, so this is by call site.");
	return read_sides(*out, job, err);
}

int compare_run(const struct command *cmd, struct compare_job *job)
{
	struct compare *c = NULL;
	char *dir = xasprintf("%s/compare", job->output_dir);
	struct buf csv = {0};
	struct err err = {0};
	int status;

	int r = read_inputs(job, &c, &err);
	if (r == 0)
		r = compare_csv(c, dir, &csv, &err);
	if (r < 0)
		status = fail_comparison(cmd, &err);
	else if (job->json)
		status = print_json(cmd, c, job, buf_str(&csv));
	else
		status = print_text(cmd, c, job, buf_str(&csv));
	if (status == EXIT_DONE && job->fail_on_difference)
		status = mem_fail_status(cmd, compare_differences(c) != 0, true,
					 compare_is_complete(c));
	for (unsigned i = 0; i < 2; i++)
		input_choice_release(&job->choice[i]);
	buf_release(&csv);
	free(dir);
	compare_free(c);
	return status;
}
