/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/mem/analysis_command.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/text/number_read.h"
#include "base/text/printable.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/groups/groups.h"
#include "memory/input/input.h"
#include "memory/input/recording_path.h"
#include "memory/options/config.h"
#include "wire/rank_env.h"

static int read_frames(const char *text, struct frame_choice *out, struct err *err)
{
	int64_t n;

	*out = (struct frame_choice){0};
	if (!text)
		return 0;
	if (!strcmp(text, "all") || !strcmp(text, "user"))
		out->which = *text == 'a' ? FRAMES_ALL : FRAMES_USER;
	else if (number_read(text, strlen(text), &n) && n > 0 && n <= UINT16_MAX)
		out->most = (unsigned)n;
	else
		return err_set(err, -EINVAL,
			       "--frames: '%s' is neither 'all' nor 'user' nor a number of frames",
			       text);
	return 0;
}

int analysis_read(const struct command *cmd, const char *path,
		  struct analysis *(*make)(void *options), void *options, struct analysis_run *out)
{
	const struct analysis_options *o = options;
	struct input_analysis what = {make, options, &out->processes, &out->choice, &out->loss};
	struct err err = {0};

	*out = (struct analysis_run){0};
	if (mem_choice_option(o->pid, o->rank, &out->choice, &err) < 0 ||
	    read_frames(o->frames, &out->frames, &err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	int r = recording_resolve(path, &out->path, &err);
	out->resolved = r == 0 && strcmp(path, buf_str(&out->path)) != 0;
	if (r == 0) {
		if (recording_wait(buf_str(&out->path), o->wait_s))
			buf_add_str(&out->notes, "The recorder is still writing; this is what "
						 "there is so far.\n");
		r = input_choose(buf_str(&out->path), &out->choice, &err);
	}
	if (r == 0)
		r = input_analyse(buf_str(&out->path), &what, &out->analysis, &out->notes, &err);
	return r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : EXIT_DONE;
}

/* Takes the next line off notes, printable; false at the end. */
static bool next_note(struct buf *notes, size_t *at, struct buf *out)
{
	const char *line = buf_str(notes) + *at;
	size_t len = strcspn(line, "\n");

	buf_clear(out);
	text_add_printable(out, line, len);
	*at += len + 1;
	return *at <= notes->len;
}

void analysis_add_notes(struct buf *notes, struct buf *text)
{
	struct buf note = {0};

	for (size_t at = 0; next_note(notes, &at, &note);)
		buf_addf(text, "%sNote: %s\n", at == note.len + 1 ? "\n" : "", buf_str(&note));
	buf_release(&note);
}

json_t *analysis_notes_value(struct buf *notes)
{
	json_t *list = json_array();
	struct buf note = {0};

	for (size_t at = 0; next_note(notes, &at, &note);)
		json_array_append_new(list, json_string(buf_str(&note)));
	buf_release(&note);
	return list;
}

static json_t *input_value(struct analysis_run *run)
{
	json_t *path = json_string(buf_str(&run->path));

	return path ? path : json_null(); /* any bytes make a path, but not JSON */
}

static json_t *answer_value(struct analysis_run *run, unsigned top)
{
	json_t *answer = json_object(), *found = run->analysis->ops->json(run->analysis, top);

	loss_json(&run->loss, answer); /* first: it is about all of the rest */
	if (!found || json_object_update(answer, found) < 0) {
		json_decref(answer);
		answer = NULL;
	} else {
		json_object_set_new(answer, "notes", analysis_notes_value(&run->notes));
		json_object_set_new(answer, "input", input_value(run));
		processes_json(&run->processes, answer);
	}
	json_decref(found);
	return answer;
}

/* Not by way of a second file: it may be a pipe, or have no name. */
static int write_answer(const struct command *cmd, struct analysis_run *run, const char *path)
{
	json_t *answer = answer_value(run, UINT_MAX);
	struct err err = {0};
	int fd = fs_open_output(path, O_CREAT | O_TRUNC, 0666, &err);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (f) {
		bool bad =
			!answer || json_dumpf(answer, f, JSON_INDENT(2)) < 0 || fputc('\n', f) < 0;
		if (fclose(f) != 0 || bad)
			err_sys(&err, -errno, "cannot write '%s'", path);
	}
	json_decref(answer);
	return err.code ? command_fail(cmd, &err, EXIT_FAILED) : EXIT_DONE;
}

int mem_fail_status(const struct command *cmd, bool found, bool judged, bool complete)
{
	struct err err = {0};

	if (found)
		return EXIT_FINDING;
	if (judged && complete)
		return EXIT_DONE;
	err_set(&err, -ENODATA,
		complete ? "--fail-on: insufficient data in the input"
			 : "--fail-on: nothing was found, but the input is incomplete");
	return command_fail(cmd, &err, EXIT_FAILED);
}

static int exit_status(const struct command *cmd, struct analysis_run *run)
{
	struct analysis *a = run->analysis;

	return mem_fail_status(cmd, a->ops->findings(a) != 0, !a->ops->judged || a->ops->judged(a),
			       !loss_any(&run->loss));
}

/* Before the answer, which is from what is left. */
static void print_loss(const struct loss *loss, const struct analysis_style *style, struct buf *out)
{
	struct report report = report_begin(style, out);
	struct buf sentence = {0};

	loss_describe(loss, NULL, &sentence);
	if (sentence.len) {
		report_paragraph(&report, 0, &sentence);
		buf_add_char(out, '\n');
	}
}

int analysis_print(const struct command *cmd, struct analysis_run *run, const void *options)
{
	const struct analysis_options *o = options;
	struct analysis_style style = {.colour = isatty(STDOUT_FILENO),
				       .top = o->top,
				       .literal = o->literal,
				       .frames = run->frames};
	struct buf text = {0}, facts = {0};
	int status;

	if (o->json) {
		status = command_print_json(cmd, answer_value(run, o->top));
	} else {
		print_loss(&run->loss, &style, &text);
		size_t before = text.len;
		dropped_text(&run->processes.dropped, &text);
		if (text.len > before)
			buf_add_char(&text, '\n');
		run->analysis->ops->text(run->analysis, &style, &text);
		processes_ends_text(&run->processes, &facts);
		processes_coverage_text(&run->processes, &facts);
		analysis_add_notes(&facts, &text);
		analysis_add_notes(&run->notes, &text);
		if (run->resolved)
			buf_addf(&text, "\nRead from %s\n", buf_str(&run->path));
		status = command_print(cmd, &text);
	}
	buf_release(&text);
	buf_release(&facts);
	if (status == EXIT_DONE && o->json_file)
		status = write_answer(cmd, run, o->json_file);
	return status == EXIT_DONE && o->fail_on ? exit_status(cmd, run) : status;
}

void analysis_release(struct analysis_run *run)
{
	analysis_free(run->analysis);
	processes_release(&run->processes);
	input_choice_release(&run->choice);
	buf_release(&run->path);
	buf_release(&run->notes);
}

int analysis_command(const struct command *cmd, const char *path,
		     struct analysis *(*make)(void *options), void *options)
{
	struct analysis_run run;
	int status = analysis_read(cmd, path, make, options, &run);

	if (status == EXIT_DONE)
		status = analysis_print(cmd, &run, options);
	analysis_release(&run);
	return status;
}

const char *const analysis_usage[] = {"[options] <recording or dump>", NULL};

int analysis_main(const struct command *cmd, int argc, char **argv,
		  int (*run)(const struct command *cmd, const char *path, void *options),
		  void *options)
{
	struct args a = {.target = options};
	int status = command_parse(cmd, &a, argc, argv);

	if (status < 0)
		status = run(cmd, a.words[0], options);
	args_release(&a);
	return status;
}

int mem_groups_option(const struct groups_options *o, struct err *err)
{
	if (!o->depth || o->by == GROUPS_BY_MODULE)
		return 0;
	return err_set(err, -EINVAL, "--depth is about the paths of modules: add --by=module");
}

int mem_choice_option(unsigned pid, const char *rank, struct input_choice *out, struct err *err)
{
	*out = (struct input_choice){.pid = pid, .by_rank = rank != NULL};
	if (rank)
		out->rank = rank_env_number(rank, strlen(rank));
	if (rank && out->rank == RANK_ENV_UNKNOWN)
		return err_set(err, -EINVAL, "invalid rank '%.100s': expected a number from 0 on",
			       rank);
	return 0;
}

int mem_compat_option(const char *text, struct err *err)
{
	const char *env = getenv(MEM_COMPAT_ENV);
	const char *value = text ? text : env && *env ? env : "current";
	int compat = mem_compat_find(value);

	if (compat < 0)
		return err_set(err, -EINVAL, "invalid compat '%.100s': expected 26.0 or current",
			       value);
	return compat;
}
