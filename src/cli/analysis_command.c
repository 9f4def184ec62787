/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/analysis_command.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/recording_path.h"
#include "recorder/input.h"

int analysis_read(const struct command *cmd, const char *path,
		  struct analysis *(*make)(void *options), void *options, struct analysis_run *out)
{
	const struct analysis_options *o = options;
	struct input_analysis what = {make, options};
	struct err err = {0};

	*out = (struct analysis_run){0};
	int r = recording_resolve(path, &out->path, &err);
	if (r == 0) {
		if (recording_wait(buf_str(&out->path), o->wait_s))
			buf_add_str(&out->notes, "The recorder is still writing; this is what "
						 "there is so far.\n");
		r = input_analyse(buf_str(&out->path), &what, &out->analysis, &out->notes, &err);
	}
	return r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : EXIT_DONE;
}

static void add_notes(const struct buf *notes, struct buf *text)
{
	size_t at = 0;

	while (at < notes->len) {
		const char *line = notes->data + at;
		size_t len = strcspn(line, "\n");

		buf_addf(text, "%sNote: %.*s\n", at ? "" : "\n", (int)len, line);
		at += len + 1;
	}
}

static json_t *notes_value(struct buf *notes)
{
	json_t *list = json_array();
	size_t at = 0;

	buf_str(notes);
	while (at < notes->len) {
		const char *line = notes->data + at;
		size_t len = strcspn(line, "\n");

		json_array_append_new(list, json_stringn_nocheck(line, len));
		at += len + 1;
	}
	return list;
}

static int print_json(const struct command *cmd, struct analysis_run *run, unsigned top)
{
	json_t *o = run->analysis->ops->json(run->analysis, top);
	struct buf text = {0};
	struct err err = {0};
	char *made = NULL;

	if (o && json_object_set_new(o, "notes", notes_value(&run->notes)) == 0)
		made = json_dumps(o, JSON_INDENT(2));
	json_decref(o);
	if (!made) {
		err_set(&err, -ENOMEM, "out of memory");
		return command_fail(cmd, &err, EXIT_FAILED);
	}
	buf_addf(&text, "%s\n", made);
	free(made);
	int status = command_print(cmd, &text);
	buf_release(&text);
	return status;
}

int analysis_tell(const struct command *cmd, struct analysis_run *run, const void *options)
{
	const struct analysis_options *o = options;
	struct analysis_style style = {.colour = isatty(STDOUT_FILENO), .top = o->top};
	struct buf text = {0};
	int status;

	if (o->json) {
		status = print_json(cmd, run, o->top);
	} else {
		run->analysis->ops->text(run->analysis, &style, &text);
		buf_str(&run->notes);
		add_notes(&run->notes, &text);
		status = command_print(cmd, &text);
	}
	buf_release(&text);
	if (status == EXIT_DONE && o->fail_on && run->analysis->ops->findings(run->analysis))
		status = EXIT_FINDING;
	return status;
}

void analysis_release(struct analysis_run *run)
{
	analysis_free(run->analysis);
	buf_release(&run->path);
	buf_release(&run->notes);
}

int analysis_command(const struct command *cmd, const char *path,
		     struct analysis *(*make)(void *options), void *options)
{
	struct analysis_run run;
	int status = analysis_read(cmd, path, make, options, &run);

	if (status == EXIT_DONE)
		status = analysis_tell(cmd, &run, options);
	analysis_release(&run);
	return status;
}
