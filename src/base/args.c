/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/args.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"

#define HELP_COLUMN 30
#define NO_BREAK '\x1f' /* a space that args_wrap() does not break at */

void args_notice(struct args *a, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	buf_add_str(&a->notices, line);
	buf_add_char(&a->notices, '\n');
}

void args_release(struct args *a)
{
	buf_release(&a->notices);
	free(a->words);
	a->words = NULL;
	a->nwords = 0;
}

bool args_size(const char *s, uint64_t *out_bytes)
{
	static const char units[] = "kmgt";
	double v = 0, place = 1, factor = 1;
	const char *c = s;

	for (; *c >= '0' && *c <= '9'; c++)
		v = v * 10 + (*c - '0');
	if (c == s)
		return false;
	if (*c == '.')
		for (c++; *c >= '0' && *c <= '9'; c++)
			v += (*c - '0') * (place /= 10);
	const char *unit = *c ? strchr(units, *c | 32) : NULL;
	if (unit) {
		c++;
		for (long i = 0; i <= unit - units; i++)
			factor *= (*c | 32) == 'b' ? 1000 : 1024;
		if ((c[0] | 32) == 'i' && (c[1] | 32) == 'b')
			c++;
	}
	if ((*c | 32) == 'b')
		c++;
	if (*c || v * factor >= 1.8e19)
		return false;
	*out_bytes = (uint64_t)(v * factor);
	return true;
}

bool args_number(const char *s, size_t len, unsigned min, unsigned max, unsigned *out_n)
{
	unsigned long long n = 0;

	if (len == 0 || len > 10 || (len > 1 && s[0] == '0'))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		n = n * 10 + (unsigned long long)(s[i] - '0');
	}
	if (n < min || n > max)
		return false;
	*out_n = (unsigned)n;
	return true;
}

void args_list_choices(const char *const *choices, struct buf *out)
{
	for (int i = 0; choices[i]; i++) {
		if (i)
			buf_add_str(out, choices[i + 1] ? ", " : " or ");
		buf_add_str(out, choices[i]);
	}
}

/* Edit distance with neighbour swaps; both words are short, longer ones are far by definition. */
static unsigned distance(const char *a, size_t la, const char *b, size_t lb)
{
	enum { MAX = 32 };
	unsigned char d[MAX + 1][MAX + 1];

	if (la > MAX || lb > MAX)
		return MAX;
	for (size_t i = 0; i <= la; i++)
		d[i][0] = (unsigned char)i;
	for (size_t j = 0; j <= lb; j++)
		d[0][j] = (unsigned char)j;
	for (size_t i = 1; i <= la; i++) {
		for (size_t j = 1; j <= lb; j++) {
			unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

			if (d[i - 1][j] + 1u < best)
				best = d[i - 1][j] + 1u;
			if (d[i][j - 1] + 1u < best)
				best = d[i][j - 1] + 1u;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    d[i - 2][j - 2] + 1u < best)
				best = d[i - 2][j - 2] + 1u;
			d[i][j] = (unsigned char)best;
		}
	}
	return d[la][lb];
}

const char *args_nearest(const char *word, size_t len, const char *const *names)
{
	const char *found = NULL;
	unsigned least = 1 + (unsigned)len / 3;

	if (len < 2)
		return NULL;
	for (int i = 0; names[i]; i++) {
		unsigned d = distance(word, len, names[i], strlen(names[i]));

		/* A word cut off or written on, such as `leak` for `leaks`. */
		if (d > 1 && !strncmp(word, names[i], len))
			d = 1;
		if (d <= least && (!found || d < least)) {
			least = d;
			found = names[i];
		}
	}
	return found;
}

/* The option that a long name means, and under which spelling. */
struct match {
	const struct opt *opt;
	const char *name;
	bool deprecated;
	const char *rival; /* another option with the same prefix */
};

static void match_name(struct match *m, const struct opt *opt, const char *name, bool deprecated)
{
	if (!m->opt)
		*m = (struct match){opt, name, deprecated, NULL};
	else if (m->opt != opt && !m->rival)
		m->rival = name;
}

static struct match find_long(const struct opt *options, const char *word, size_t len)
{
	struct match m = {0};

	for (const struct opt *o = options; o && o->name; o++) {
		if (strlen(o->name) == len && !strncmp(o->name, word, len))
			return (struct match){o, o->name, false, NULL};
		for (const struct opt_alias *al = o->aliases; al && al->name; al++)
			if (strlen(al->name) == len && !strncmp(al->name, word, len))
				return (struct match){o, al->name, al->deprecated, NULL};
	}
	for (const struct opt *o = options; o && o->name && len; o++) {
		if (o->hidden)
			continue;
		if (!strncmp(o->name, word, len))
			match_name(&m, o, o->name, false);
		for (const struct opt_alias *al = o->aliases; al && al->name; al++)
			if (!strncmp(al->name, word, len))
				match_name(&m, o, al->name, al->deprecated);
	}
	return m;
}

static int unknown_option(const struct opt *options, const char *word, size_t len, struct err *err)
{
	const char *names[128];
	int n = 0;

	for (const struct opt *o = options; o && o->name && n < 100; o++) {
		if (o->hidden)
			continue;
		names[n++] = o->name;
		for (const struct opt_alias *al = o->aliases; al && al->name && n < 120; al++)
			names[n++] = al->name;
	}
	names[n] = NULL;
	const char *near = args_nearest(word, len, names);
	if (near)
		return err_set(err, -EINVAL, "unknown option '--%.*s'; did you mean '--%s'?",
			       (int)len, word, near);
	return err_set(err, -EINVAL, "unknown option '--%.*s'", (int)len, word);
}

static int set_choice(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct buf list = {0};
	unsigned i = 0;

	while (opt->choices[i] && strcmp(opt->choices[i], value))
		i++;
	if (opt->choices[i]) {
		memcpy((char *)a->target + opt->offset, &i, sizeof(i));
		return 0;
	}
	args_list_choices(opt->choices, &list);
	int r = err_set(err, -EINVAL, "invalid value '%s' for '--%s': expected %s", value,
			opt->name, buf_str(&list));
	buf_release(&list);
	return r;
}

static int apply(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	char *at = (char *)a->target + opt->offset;

	switch (opt->kind) {
	case OPT_FLAG:
		*(bool *)at = true;
		return 0;
	case OPT_STOP:
		a->stopped = opt;
		return 0;
	case OPT_TEXT:
		if (!*value)
			return err_set(err, -EINVAL,
				       "option '--%s' needs a value that is not empty", opt->name);
		*(const char **)at = value;
		return 0;
	case OPT_UINT:
		if (!args_number(value, strlen(value), opt->min, opt->max, (unsigned *)at))
			return err_set(err, -EINVAL,
				       "invalid value '%s' for '--%s': expected a number from %u "
				       "to %u",
				       value, opt->name, opt->min, opt->max);
		return 0;
	case OPT_SIZE:
		if (!args_size(value, (uint64_t *)at) || *(uint64_t *)at < opt->min)
			return err_set(err, -EINVAL,
				       "invalid value '%.100s' for '--%s': expected a number of "
				       "bytes, with K, M, G, T, KiB, MB or the like behind it",
				       value, opt->name);
		return 0;
	case OPT_CHOICE:
		return set_choice(a, opt, value, err);
	case OPT_CALL:
		return opt->parse(a, opt, value, err);
	}
	return -EINVAL;
}

/* What is left to read. */
struct cursor {
	const struct opt *options;
	char **argv;
	int argc;
	int at;
};

static int parse_long(struct args *a, struct cursor *c, struct err *err)
{
	const char *word = c->argv[c->at++] + 2;
	const char *eq = strchrnul(word, '=');
	size_t len = (size_t)(eq - word);
	struct match m = find_long(c->options, word, len);
	const char *value = *eq ? eq + 1 : NULL;

	if (!m.opt)
		return unknown_option(c->options, word, len, err);
	if (m.rival)
		return err_set(err, -EINVAL, "option '--%.*s' is ambiguous: '--%s' or '--%s'",
			       (int)len, word, m.name, m.rival);
	if (!m.opt->arg && value)
		return err_set(err, -EINVAL, "option '--%s' takes no value, but was given '%s'",
			       m.name, value);
	if (m.opt->arg && !value) {
		if (c->at >= c->argc)
			return err_set(err, -EINVAL, "option '--%s' needs a value: --%s=<%s>",
				       m.name, m.opt->name, m.opt->arg);
		value = c->argv[c->at++];
	}
	if (m.deprecated)
		args_notice(a, "Deprecation: '--%s' is deprecated, use '--%s' instead.", m.name,
			    m.opt->name);
	return apply(a, m.opt, value, err);
}

static int parse_letters(struct args *a, struct cursor *c, struct err *err)
{
	const char *p = c->argv[c->at++] + 1;

	for (; *p && !a->stopped; p++) {
		const struct opt *o = c->options;
		const char *value = NULL;

		while (o && o->name && !strchr(o->letters, *p))
			o++;
		if (!o || !o->name)
			return err_set(err, -EINVAL, "unknown option '-%s'", p);
		if (o->arg && p[1]) {
			value = p + 1;
		} else if (o->arg) {
			if (c->at >= c->argc)
				return err_set(err, -EINVAL, "option '-%c' needs a value: <%s>", *p,
					       o->arg);
			value = c->argv[c->at++];
		}
		int r = apply(a, o, value, err);
		if (r < 0 || value)
			return r;
	}
	return 0;
}

static int check_words(const struct args *a, const struct args_spec *spec, struct err *err)
{
	if (a->nwords < spec->min_words)
		return err_set(err, -EINVAL, "missing argument; usage: %s %s", spec->name,
			       spec->usage[0]);
	if (spec->max_words >= 0 && a->nwords > spec->max_words)
		return err_set(err, -EINVAL, "unexpected argument '%s'; usage: %s %s",
			       a->words[spec->max_words], spec->name, spec->usage[0]);
	return 0;
}

int args_parse(struct args *a, const struct args_spec *spec, int argc, char **argv, struct err *err)
{
	struct cursor c = {.options = spec->options, .argv = argv, .argc = argc};
	bool options = true;
	int r = 0;

	a->words = xcalloc((size_t)argc + 1, sizeof(*a->words));
	while (c.at < argc && r >= 0 && !a->stopped) {
		char *word = argv[c.at];

		if (!options || word[0] != '-' || !word[1]) {
			a->words[a->nwords++] = word;
			c.at++;
			options = options && !(spec->flags & ARGS_STOP_AT_WORD);
		} else if (!strcmp(word, "--")) {
			c.at++;
			options = false;
		} else if (word[1] == '-') {
			r = parse_long(a, &c, err);
		} else {
			r = parse_letters(a, &c, err);
		}
	}
	if (r >= 0 && !a->stopped)
		r = check_words(a, spec, err);
	return r;
}

unsigned args_width(int fd)
{
	struct winsize ws;

	if (!isatty(fd) || ioctl(fd, TIOCGWINSZ, &ws) < 0 || ws.ws_col == 0)
		return 80;
	return ws.ws_col < 50 ? 50 : ws.ws_col > 110 ? 110 : ws.ws_col;
}

static void spaces(struct buf *out, unsigned n)
{
	memset(buf_room(out, n), ' ', n);
	out->len += n;
}

void args_wrap(struct buf *out, const char *text, unsigned col, unsigned indent, unsigned width)
{
	bool fresh = true;

	while (*text) {
		size_t len = strcspn(text, " \n");

		if (!fresh && col + 1 + len > width) {
			buf_add_char(out, '\n');
			spaces(out, indent);
			col = indent;
			fresh = true;
		}
		if (len && !fresh) {
			buf_add_char(out, ' ');
			col++;
		}
		for (size_t i = 0; i < len; i++)
			buf_add_char(out, text[i] == NO_BREAK ? ' ' : text[i]);
		col += (unsigned)len;
		fresh = fresh && !len;
		text += len;
		if (*text == '\n') {
			buf_add_char(out, '\n');
			if (text[1] && text[1] != '\n')
				spaces(out, indent);
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

	spaces(out, o->letters[0] ? 2 : 6);
	for (const char *l = o->letters; *l; l++)
		buf_addf(out, "-%c, ", *l);
	buf_addf(out, "--%s", o->name);
	if (o->arg)
		buf_addf(out, " <%s>", o->arg);
	unsigned col = (unsigned)(out->len - start);
	if (col + 2 > HELP_COLUMN) {
		buf_add_char(out, '\n');
		col = 0;
	}
	spaces(out, HELP_COLUMN - col);
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

		spaces(out, 2);
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
	for (const struct opt *o = spec->options; o && o->name; o++) {
		if (o->hidden)
			continue;
		if (o->group)
			buf_addf(out, "\n%s:\n", o->group);
		help_option(o, width, out);
	}
	if (!spec->examples)
		return;
	buf_add_str(out, "\nExamples:\n");
	for (const struct args_example *e = spec->examples; e->text; e++)
		buf_addf(out, "%s  # %s\n  %s\n", e == spec->examples ? "" : "\n", e->text,
			 e->command);
}
