/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde help: the tables of all commands, as text, as JSON, and (hidden) as manual pages. */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/command.h"

struct help_options {
	bool json;
	const char *man;
};

static json_t *texts_json(const char *const *texts)
{
	json_t *list = json_array();

	for (int i = 0; texts && texts[i]; i++)
		json_array_append_new(list, json_string(texts[i]));
	return list;
}

static json_t *option_json(const struct opt *o, const char *group)
{
	json_t *names = json_array();

	for (const char *l = o->letters; *l; l++)
		json_array_append_new(names, json_sprintf("-%c", *l));
	json_array_append_new(names, json_sprintf("--%s", o->name));
	for (const char *const *al = o->aliases; al && *al; al++)
		json_array_append_new(names, json_sprintf("--%s", *al));
	return json_pack("{s:s, s:o, s:s?, s:s?, s:s, s:s, s:o}", "name", o->name, "names", names,
			 "value", o->arg, "default", o->default_text, "group", group ? group : "",
			 "help", o->help, "choices", texts_json(o->choices));
}

static json_t *command_json(const struct command *cmd)
{
	const struct args_spec *s = &cmd->spec;
	json_t *options = json_array(), *examples = json_array();
	const char *group = NULL;

	for (const struct opt *o = s->options; o && o->name; o++) {
		group = o->group ? o->group : group;
		if (!o->hidden)
			json_array_append_new(options, option_json(o, group));
	}
	for (const struct args_example *e = s->examples; e && e->text; e++)
		json_array_append_new(
			examples, json_pack("{s:s, s:s}", "text", e->text, "command", e->command));
	return json_pack("{s:s, s:s?, s:s, s:s, s:o, s:o, s:o}", "name", cmd->name, "alias",
			 cmd->alias, "summary", s->summary, "description", s->description, "usage",
			 texts_json(s->usage), "options", options, "examples", examples);
}

static json_t *all_json(void)
{
	json_t *list = json_array();

	for (int i = 0; commands[i]; i++)
		if (!commands[i]->hidden)
			json_array_append_new(list, command_json(commands[i]));
	return json_pack("{s:s, s:o}", "version", SONDE_VERSION, "commands", list);
}

/* --- manual pages (man(7) macros) --- */

/* Text with everything escaped that roff would take as a request. */
static void put_text(struct buf *out, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		bool line_start = out->len == 0 || out->data[out->len - 1] == '\n';

		if (c == '\\')
			buf_add_str(out, "\\e");
		else if (c == '-')
			buf_add_str(out, "\\-");
		else if ((c == '.' || c == '\'') && line_start)
			buf_addf(out, "\\&%c", c);
		else
			buf_add_char(out, c);
	}
}

static void put_str(struct buf *out, const char *text)
{
	put_text(out, text, strlen(text));
}

static void put_upper(struct buf *out, const char *text)
{
	for (; *text; text++)
		buf_add_char(out, (char)toupper((unsigned char)*text));
}

/* Paragraphs as in struct args_section. */
static void put_paragraphs(struct buf *out, const char *text)
{
	bool first = true;

	while (*text) {
		const char *end = strstr(text, "\n\n");
		size_t len = end ? (size_t)(end - text) : strlen(text);
		bool verbatim = !strncmp(text, "  ", 2);

		if (!first)
			buf_add_str(out, ".PP\n");
		if (verbatim)
			buf_add_str(out, ".nf\n");
		put_text(out, text, len);
		buf_add_str(out, verbatim ? "\n.fi\n" : "\n");
		first = false;
		text += len + (end ? 2 : 0);
	}
}

static void put_header(struct buf *out, const char *page, const char *summary)
{
	buf_add_str(out, ".\\\" Made by `sonde help --man`; do not edit.\n.TH ");
	put_upper(out, page);
	buf_add_str(out, " 1 \"\" \"sonde\" \"Sonde manual\"\n.SH NAME\n");
	put_str(out, page);
	buf_add_str(out, " \\- ");
	put_str(out, summary);
	buf_add_char(out, '\n');
}

static void put_synopsis(struct buf *out, const struct args_spec *spec)
{
	for (int i = 0; spec->usage[i]; i++) {
		buf_add_str(out, i == 0 ? ".B " : ".br\n.B ");
		put_str(out, spec->name);
		buf_add_char(out, '\n');
		put_str(out, spec->usage[i]);
		buf_add_char(out, '\n');
	}
}

static void put_option(struct buf *out, const struct opt *o)
{
	buf_add_str(out, ".TP\n\\fB");
	for (const char *l = o->letters; *l; l++)
		buf_addf(out, "\\-%c\\fR, \\fB", *l);
	buf_add_str(out, "\\-\\-");
	put_str(out, o->name);
	buf_add_str(out, "\\fR");
	if (o->arg) {
		buf_add_str(out, "=\\fI");
		put_str(out, o->arg);
		buf_add_str(out, "\\fR");
	}
	buf_add_char(out, '\n');
	put_str(out, o->help);
	if (o->default_text) {
		buf_add_str(out, " Default: ");
		put_str(out, o->default_text);
		buf_add_char(out, '.');
	}
	buf_add_char(out, '\n');
	for (const char *const *al = o->aliases; al && *al; al++) {
		buf_add_str(out, "Other spelling: \\fB\\-\\-");
		put_str(out, *al);
		buf_add_str(out, "\\fR.\n");
	}
}

static bool is_listed(const struct opt *list, const char *name)
{
	for (; list && list->name; list++)
		if (!strcmp(list->name, name))
			return true;
	return false;
}

/* `listed`: options of the group, which are described once, above; or NULL. */
static void put_options(struct buf *out, const struct opt *o, const struct opt *listed,
			bool headings)
{
	for (; o && o->name; o++) {
		if (o->hidden || is_listed(listed, o->name))
			continue;
		if (o->group && headings) {
			buf_add_str(out, ".SS \"");
			put_str(out, o->group);
			buf_add_str(out, "\"\n");
		}
		put_option(out, o);
	}
}

static void put_examples(struct buf *out, const struct args_example *first)
{
	buf_add_str(out, ".SH EXAMPLES\n");
	for (const struct args_example *e = first; e->text; e++) {
		if (e != first)
			buf_add_str(out, ".PP\n");
		buf_add_char(out, (char)toupper((unsigned char)e->text[0]));
		put_str(out, e->text + 1);
		buf_add_str(out, ":\n.PP\n.RS 4\n.nf\n");
		put_str(out, e->command);
		buf_add_str(out, "\n.fi\n.RE\n");
	}
}

/* The other sections; by custom SEE ALSO is the last one. */
static void put_sections(struct buf *out, const struct args_spec *spec)
{
	const struct args_section *last = NULL;

	for (const struct args_section *s = spec->sections; s && s->title; s++) {
		if (!strcmp(s->title, "SEE ALSO")) {
			last = s;
			continue;
		}
		buf_addf(out, ".SH \"%s\"\n", s->title);
		put_paragraphs(out, s->text);
	}
	if (spec->examples)
		put_examples(out, spec->examples);
	if (last) {
		buf_add_str(out, ".SH \"SEE ALSO\"\n");
		put_paragraphs(out, last->text);
	}
}

static void put_subcommand(struct buf *out, const struct args_spec *spec, const struct opt *listed)
{
	buf_addf(out, ".SS \"%s\"\n", spec->name);
	put_synopsis(out, spec);
	buf_add_str(out, ".PP\n");
	put_paragraphs(out, spec->description);
	put_options(out, spec->options, listed, false);
}

/* Those that begin with the name of a command, and have options of their own. */
static void put_subcommands(struct buf *out, const struct command *of)
{
	size_t len = strlen(of->name);
	bool any = false;

	for (int i = 0; commands[i]; i++) {
		const struct command *cmd = commands[i];

		if (cmd->hidden || strncmp(cmd->name, of->name, len) != 0 ||
		    cmd->name[len] != ' ' || cmd->spec.options == of->spec.options)
			continue;
		if (!any)
			buf_add_str(out, ".SH COMMANDS\n");
		any = true;
		put_subcommand(out, &cmd->spec, NULL);
	}
}

static void put_command_page(struct buf *out, const char *page, const struct command *cmd)
{
	const struct args_spec *spec = &cmd->spec;

	put_header(out, page, spec->summary);
	buf_add_str(out, ".SH SYNOPSIS\n");
	put_synopsis(out, spec);
	buf_add_str(out, ".SH DESCRIPTION\n");
	put_paragraphs(out, spec->description);
	buf_add_str(out, ".SH OPTIONS\n");
	put_options(out, spec->options, NULL, true);
	put_subcommands(out, cmd);
	put_sections(out, spec);
}

/* By the name it has in the group; the options that all have are described once, above. */
static void put_command(struct buf *out, const struct command *cmd,
			const struct command_group *group)
{
	struct args_spec spec = cmd->spec;
	char *name = xasprintf("%s %s", group->spec.name, command_name_within(cmd, group));

	spec.name = name;
	put_subcommand(out, &spec, group->run ? group->spec.options : NULL);
	free(name);
}

static void put_reference(struct buf *out, const char *name, const char *summary, const char *page)
{
	buf_addf(out, ".SS \"%s\"\n", name);
	put_str(out, summary);
	buf_add_str(out, "; see\n.BR ");
	put_str(out, page);
	buf_add_str(out, " (1).\n");
}

static void put_group_page(struct buf *out, const struct command_group *group)
{
	put_header(out, group->page, group->spec.summary);
	buf_add_str(out, ".SH SYNOPSIS\n");
	put_synopsis(out, &group->spec);
	buf_add_str(out, ".SH DESCRIPTION\n");
	put_paragraphs(out, group->spec.description);
	if (group->spec.options) {
		buf_add_str(out, ".SH OPTIONS\n");
		put_options(out, group->spec.options, NULL, false);
	}
	buf_add_str(out, ".SH COMMANDS\n");
	for (const struct command_group *g = command_groups + 1; g->name && !*group->name; g++)
		put_reference(out, g->spec.name, g->spec.summary, g->page);
	for (int i = 0; commands[i]; i++) {
		const struct command *cmd = commands[i];

		if (!command_in_group(cmd, group))
			continue;
		if (!cmd->page && !strncmp(cmd->spec.name, "sonde", 5))
			put_command(out, cmd, group);
		else
			put_reference(out, cmd->spec.name, cmd->spec.summary,
				      cmd->page ? cmd->page : cmd->spec.name);
	}
	put_sections(out, &group->spec);
}

/* `sonde`, `sonde-mem`, or the name of a command with a page of its own. */
static int add_page(const char *page, struct buf *out, struct err *err)
{
	for (const struct command_group *g = command_groups; g->name; g++)
		if (!strcmp(g->page, page)) {
			put_group_page(out, g);
			return 0;
		}
	for (int i = 0; commands[i]; i++)
		if (!strcmp(commands[i]->page ? commands[i]->page : commands[i]->spec.name, page)) {
			put_command_page(out, page, commands[i]);
			return 0;
		}
	return err_set(err, -ENOENT, "there is no manual page '%s'", page);
}

static int add_topic(const struct args *a, struct buf *out)
{
	unsigned width = args_width(STDOUT_FILENO);
	const struct command_group *group = command_group_find(a->nwords ? a->words[0] : "");
	int words = 0;

	const struct command *cmd = command_find(a->nwords, a->words, &words);
	if (group && a->nwords < 2) {
		command_group_help(group, width, out);
	} else if (group && group->run) {
		char word[] = "help", *ask[] = {word, a->words[1]};

		return group->run(group, 2, ask);
	} else if (cmd && words == a->nwords) {
		command_help(cmd, width, out);
	} else {
		return command_unknown(group ? group : command_group_find(""),
				       a->words[group || cmd ? a->nwords - 1 : 0]);
	}
	return EXIT_DONE;
}

static int help_run(const struct command *cmd, int argc, char **argv)
{
	struct help_options o = {0};
	struct args a = {.target = &o};
	struct buf text = {0};
	struct err err = {0};

	int status = command_parse(cmd, &a, argc, argv);
	if (status >= 0)
		goto out;
	status = EXIT_DONE;
	if (o.man && add_page(o.man, &text, &err) < 0)
		status = command_fail(cmd, &err, EXIT_USAGE);
	else if (!o.man && !o.json)
		status = add_topic(&a, &text);
	if (status == EXIT_DONE)
		status = o.json && !o.man ? command_print_json(cmd, all_json())
					  : command_print(cmd, &text);
out:
	buf_release(&text);
	args_release(&a);
	return status;
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_FLAG("json", offsetof(struct help_options, json),
		    "Print every command with its options as JSON."),
	OPTION_TEXT("man", "PAGE", offsetof(struct help_options, man), NULL,
		    "Print the source of a manual page.", .hidden = true),
	OPT_END,
};

static const char *const usage[] = {"[command]", "--json", NULL};

const struct command cmd_help = {
	.name = "help",
	.spec = {.name = "sonde help",
		 .summary = "explain a command",
		 .description = "Explains a command, or lists them all.",
		 .usage = usage,
		 .options = options,
		 .max_words = 2},
	.run = help_run,
};
