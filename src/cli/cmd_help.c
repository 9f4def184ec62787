/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde help: the tables of all commands, as text, as JSON, and (hidden) as manual pages. */
#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/manpage.h"

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
	json_t *names = json_array(), *old = json_array();

	for (const char *l = o->letters; *l; l++)
		json_array_append_new(names, json_sprintf("-%c", *l));
	json_array_append_new(names, json_sprintf("--%s", o->name));
	for (const struct opt_alias *al = o->aliases; al && al->name; al++)
		json_array_append_new(al->deprecated ? old : names, json_sprintf("--%s", al->name));
	return json_pack("{s:s, s:o, s:o, s:s?, s:s?, s:s, s:s, s:o}", "name", o->name, "names",
			 names, "deprecated", old, "value", o->arg, "default", o->default_text,
			 "group", group ? group : "", "help", o->help, "choices",
			 texts_json(o->choices));
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

static void all_json(struct buf *out)
{
	json_t *list = json_array();

	for (int i = 0; commands[i]; i++)
		if (!commands[i]->hidden)
			json_array_append_new(list, command_json(commands[i]));
	json_t *root = json_pack("{s:s, s:o}", "version", SONDE_VERSION, "commands", list);
	char *text = json_dumps(root, JSON_INDENT(2));
	json_decref(root);
	buf_addf(out, "%s\n", text ? text : "");
	free(text);
}

/* `sonde`, `sonde-mem`, or the name of a command with a page of its own. */
static int man(const char *page, struct buf *out, struct err *err)
{
	for (const struct command_group *g = command_groups; g->name; g++)
		if (!strcmp(g->page, page)) {
			manpage_group(g, out);
			return 0;
		}
	for (int i = 0; commands[i]; i++)
		if (!strcmp(commands[i]->page ? commands[i]->page : commands[i]->spec.name, page)) {
			manpage_command(page, &commands[i]->spec, out);
			return 0;
		}
	return err_set(err, -ENOENT, "there is no manual page '%s'", page);
}

static int topic(const struct args *a, struct buf *out)
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
	if (o.man && man(o.man, &text, &err) < 0)
		status = command_fail(cmd, &err, EXIT_USAGE);
	else if (o.json)
		all_json(&text);
	else if (!o.man)
		status = topic(&a, &text);
	if (status == EXIT_DONE)
		status = command_print(cmd, &text);
out:
	buf_release(&text);
	args_release(&a);
	return status;
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	{.name = "json",
	 .kind = OPT_FLAG,
	 .offset = offsetof(struct help_options, json),
	 .help = "Print every command with its options as JSON."},
	{.name = "man",
	 .kind = OPT_TEXT,
	 .arg = "PAGE",
	 .offset = offsetof(struct help_options, man),
	 .hidden = true,
	 .help = "Print the source of a manual page."},
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
