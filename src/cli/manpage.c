/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/manpage.h"

#include <ctype.h>
#include <stdlib.h>

#include "base/mem.h"

/* Text with everything escaped that roff would take as an order. */
static void put(struct buf *out, const char *text, size_t len)
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
	put(out, text, strlen(text));
}

static void put_upper(struct buf *out, const char *text)
{
	for (; *text; text++)
		buf_add_char(out, (char)toupper((unsigned char)*text));
}

/* Paragraphs as in struct args_section. */
static void paragraphs(struct buf *out, const char *text, bool first)
{
	while (*text) {
		const char *end = strstr(text, "\n\n");
		size_t len = end ? (size_t)(end - text) : strlen(text);
		bool verbatim = !strncmp(text, "  ", 2);

		if (!first)
			buf_add_str(out, ".PP\n");
		if (verbatim)
			buf_add_str(out, ".nf\n");
		put(out, text, len);
		buf_add_str(out, verbatim ? "\n.fi\n" : "\n");
		first = false;
		text += len + (end ? 2 : 0);
	}
}

static void header(struct buf *out, const char *page, const char *summary)
{
	buf_add_str(out, ".\\\" Made by `sonde help --man`; do not edit.\n.TH ");
	put_upper(out, page);
	buf_add_str(out, " 1 \"\" \"sonde\" \"Sonde manual\"\n.SH NAME\n");
	put_str(out, page);
	buf_add_str(out, " \\- ");
	put_str(out, summary);
	buf_add_char(out, '\n');
}

static void synopsis(struct buf *out, const struct args_spec *spec, bool first)
{
	for (int i = 0; spec->usage[i]; i++) {
		buf_add_str(out, first && i == 0 ? ".B " : ".br\n.B ");
		put_str(out, spec->name);
		buf_add_char(out, '\n');
		put_str(out, spec->usage[i]);
		buf_add_char(out, '\n');
	}
}

static void one_option(struct buf *out, const struct opt *o)
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
	for (const struct opt_alias *al = o->aliases; al && al->name; al++) {
		buf_addf(out, "%s spelling: \\fB\\-\\-", al->deprecated ? "Deprecated" : "Other");
		put_str(out, al->name);
		buf_add_str(out, "\\fR.\n");
	}
}

static bool listed(const struct opt *list, const char *name)
{
	for (; list && list->name; list++)
		if (!strcmp(list->name, name))
			return true;
	return false;
}

/* `told`: options that need not be told again, or NULL. */
static void options(struct buf *out, const struct opt *o, const struct opt *told, bool headings)
{
	for (; o && o->name; o++) {
		if (o->hidden || listed(told, o->name))
			continue;
		if (o->group && headings) {
			buf_add_str(out, ".SS \"");
			put_str(out, o->group);
			buf_add_str(out, "\"\n");
		}
		one_option(out, o);
	}
}

static void examples(struct buf *out, const struct args_example *first)
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
static void tail(struct buf *out, const struct args_spec *spec)
{
	const struct args_section *last = NULL;

	for (const struct args_section *s = spec->sections; s && s->title; s++) {
		if (!strcmp(s->title, "SEE ALSO")) {
			last = s;
			continue;
		}
		buf_addf(out, ".SH \"%s\"\n", s->title);
		paragraphs(out, s->text, true);
	}
	if (spec->examples)
		examples(out, spec->examples);
	if (last) {
		buf_add_str(out, ".SH \"SEE ALSO\"\n");
		paragraphs(out, last->text, true);
	}
}

void manpage_command(const char *page, const struct args_spec *spec, struct buf *out)
{
	header(out, page, spec->summary);
	buf_add_str(out, ".SH SYNOPSIS\n");
	synopsis(out, spec, true);
	buf_add_str(out, ".SH DESCRIPTION\n");
	paragraphs(out, spec->description, true);
	buf_add_str(out, ".SH OPTIONS\n");
	options(out, spec->options, NULL, true);
	tail(out, spec);
}

/* By the name it has in the group; the options that all have are told once, above. */
static void one_command(struct buf *out, const struct command *cmd,
			const struct command_group *group)
{
	struct args_spec spec = cmd->spec;
	char *name = xasprintf("%s %s", group->spec.name, command_name_within(cmd, group));

	spec.name = name;
	buf_addf(out, ".SS \"%s\"\n", name);
	synopsis(out, &spec, true);
	buf_add_str(out, ".PP\n");
	paragraphs(out, spec.description, true);
	options(out, spec.options, group->run ? group->spec.options : NULL, false);
	free(name);
}

void manpage_group(const struct command_group *group, struct buf *out)
{
	header(out, group->page, group->spec.summary);
	buf_add_str(out, ".SH SYNOPSIS\n");
	synopsis(out, &group->spec, true);
	buf_add_str(out, ".SH DESCRIPTION\n");
	paragraphs(out, group->spec.description, true);
	if (group->spec.options) {
		buf_add_str(out, ".SH OPTIONS\n");
		options(out, group->spec.options, NULL, false);
	}
	buf_add_str(out, ".SH COMMANDS\n");
	for (const struct command_group *g = command_groups + 1; g->name && !*group->name; g++) {
		buf_addf(out, ".SS \"%s\"\n", g->spec.name);
		put_str(out, g->spec.summary);
		buf_add_str(out, "; see\n.BR ");
		put_str(out, g->page);
		buf_add_str(out, " (1).\n");
	}
	for (int i = 0; commands[i]; i++) {
		const struct command *cmd = commands[i];

		if (!command_in_group(cmd, group))
			continue;
		const char *page = cmd->page ? cmd->page : cmd->spec.name;
		if (!cmd->page && !strncmp(cmd->spec.name, "sonde", 5)) {
			one_command(out, cmd, group);
		} else {
			buf_addf(out, ".SS \"%s\"\n", cmd->spec.name);
			put_str(out, cmd->spec.summary);
			buf_add_str(out, "; see\n.BR ");
			put_str(out, page);
			buf_add_str(out, " (1).\n");
		}
	}
	tail(out, &group->spec);
}
