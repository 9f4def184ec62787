/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The text of --help. */
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text/args.h"
#include "base/text/display_width.h"

#define HELP_COLUMN 30
#define NO_BREAK '\x1f' /* a space that args_wrap() does not break at */

unsigned args_width(int fd)
{
	struct winsize ws;

	if (!isatty(fd) || ioctl(fd, TIOCGWINSZ, &ws) < 0 || ws.ws_col == 0)
		return 80;
	return ws.ws_col < 50 ? 50 : ws.ws_col > 110 ? 110 : ws.ws_col;
}

static unsigned columns_of(const char *text, size_t len)
{
	unsigned columns;

	text_fit_columns(text, len, 0, &columns);
	return columns;
}

static void add_spaces(struct buf *out, unsigned n)
{
	memset(buf_room(out, n), ' ', n);
	out->len += n;
}

void args_wrap(struct buf *out, const char *text, unsigned col, unsigned indent, unsigned width)
{
	bool fresh = true;

	while (*text) {
		size_t len = strcspn(text, " \n");

		if (!fresh && col + 1 + columns_of(text, len) > width) {
			buf_add_char(out, '\n');
			add_spaces(out, indent);
			col = indent;
			fresh = true;
		}
		if (len && !fresh) {
			buf_add_char(out, ' ');
			col++;
		}
		for (size_t i = 0; i < len; i++)
			buf_add_char(out, text[i] == NO_BREAK ? ' ' : text[i]);
		col += columns_of(text, len);
		fresh = fresh && !len;
		text += len;
		if (*text == '\n') {
			buf_add_char(out, '\n');
			if (text[1] && text[1] != '\n')
				add_spaces(out, indent);
			col = indent;
			fresh = true;
		}
		text += *text != '\0';
	}
	buf_add_char(out, '\n');
}

static void help_option(const struct opt *o, unsigned width, struct buf *out)
{
	struct buf text = {0};
	size_t start = out->len;

	add_spaces(out, o->letters[0] ? 2 : 6);
	for (const char *l = o->letters; *l; l++)
		buf_addf(out, "-%c, ", *l);
	buf_addf(out, "--%s", o->name);
	if (o->arg)
		buf_addf(out, " <%s>", o->arg);
	unsigned col = columns_of(out->data + start, out->len - start);
	if (col + 2 > HELP_COLUMN) {
		buf_add_char(out, '\n');
		col = 0;
	}
	add_spaces(out, HELP_COLUMN - col);
	buf_add_str(&text, o->help);
	if (o->default_text)
		buf_addf(&text, " [default:%c%s]", NO_BREAK, o->default_text);
	args_wrap(out, buf_str(&text), HELP_COLUMN, HELP_COLUMN, width);
	buf_release(&text);
}

/* Paragraphs with a left margin; those that start with two spaces are already laid out. */
static void help_text(const char *text, unsigned width, struct buf *out)
{
	while (*text) {
		const char *end = strstr(text, "\n\n");
		size_t len = end ? (size_t)(end - text) : strlen(text);
		char *part = xstrndup(text, len);

		add_spaces(out, 2);
		if (part[0] == ' ')
			buf_addf(out, "%s\n", part + 2);
		else
			args_wrap(out, part, 2, 2, width);
		free(part);
		text += len;
		if (end) {
			buf_add_char(out, '\n');
			text += 2;
		}
	}
}

void args_help(const struct args_spec *spec, unsigned width, struct buf *out)
{
	buf_add_str(out, "Description:\n");
	help_text(spec->description, width, out);
	buf_add_str(out, "\nUsage:\n");
	for (int i = 0; spec->usage[i]; i++)
		buf_addf(out, "  %s %s\n", spec->name, spec->usage[i]);
	args_help_options(spec, width, out);
	args_help_examples(spec, out);
}

void args_help_options(const struct args_spec *spec, unsigned width, struct buf *out)
{
	for (const struct opt *o = spec->options; o && o->name; o++) {
		if (o->hidden)
			continue;
		if (o->group)
			buf_addf(out, "\n%s:\n", o->group);
		help_option(o, width, out);
	}
}

void args_help_examples(const struct args_spec *spec, struct buf *out)
{
	if (!spec->examples)
		return;
	buf_add_str(out, "\nExamples:\n");
	for (const struct args_example *e = spec->examples; e->text; e++)
		buf_addf(out, "%s  # %s\n  %s\n", e == spec->examples ? "" : "\n", e->text,
			 e->command);
}
