/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/args.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/fs.h"
#include "base/mem.h"

#define FLAGFILE_DEPTH 8 /* files that name files */
#define FLAGFILE_BYTES (1 << 20)
#define GFLAG_BYTES 64 /* longest name of an option */

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
	for (size_t i = 0; i < a->nlines; i++)
		free(a->lines[i]);
	free(a->lines);
	a->lines = NULL;
	a->nlines = 0;
}

/* The option that a long name means, and under which spelling. */
struct match {
	const struct opt *opt;
	const char *name;
	const char *rival; /* another option with the same prefix */
};

static void match_name(struct match *m, const struct opt *opt, const char *name)
{
	if (!m->opt)
		*m = (struct match){opt, name, NULL};
	else if (m->opt != opt && !m->rival)
		m->rival = name;
}

static struct match find_long(const struct opt *options, const char *word, size_t len)
{
	struct match m = {0};

	for (const struct opt *o = options; o && o->name; o++) {
		if (strlen(o->name) == len && !strncmp(o->name, word, len))
			return (struct match){o, o->name, NULL};
		for (const char *const *al = o->aliases; al && *al; al++)
			if (strlen(*al) == len && !strncmp(*al, word, len))
				return (struct match){o, *al, NULL};
	}
	for (const struct opt *o = options; o && o->name && len; o++) {
		if (o->hidden)
			continue;
		if (!strncmp(o->name, word, len))
			match_name(&m, o, o->name);
		for (const char *const *al = o->aliases; al && *al; al++)
			if (!strncmp(*al, word, len))
				match_name(&m, o, *al);
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
		for (const char *const *al = o->aliases; al && *al && n < 120; al++)
			names[n++] = *al;
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

/* The words that mean yes and no; -EINVAL for any other. */
static int parse_bool(const char *word)
{
	static const char *const yes[] = {"true", "t", "yes", "y", "1"};
	static const char *const no[] = {"false", "f", "no", "n", "0"};

	for (int i = 0; i < 5; i++) {
		if (!strcasecmp(word, yes[i]))
			return 1;
		if (!strcasecmp(word, no[i]))
			return 0;
	}
	return -EINVAL;
}

/* The number that a switch gets: 0 no, 1 yes, 2 auto where there is such a thing. */
static int switch_value(const struct opt *opt, const char *word)
{
	return opt->kind == OPT_SWITCH && !strcasecmp(word, "auto") ? 2 : parse_bool(word);
}

static int set_switch(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	char *at = (char *)a->target + opt->offset;
	int v = value ? switch_value(opt, value) : 1;

	if (v < 0)
		return err_set(err, -EINVAL, "invalid value '%s' for '--%s': expected true%s",
			       value, opt->name,
			       opt->kind == OPT_SWITCH ? ", false or auto" : " or false");
	if (opt->kind == OPT_SWITCH)
		*(unsigned *)at = (unsigned)v;
	else
		*(bool *)at = v == 1;
	return 0;
}

static int set_text(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	const char **at = (const char **)((char *)a->target + opt->offset);

	if (!*value && !(a->spec->flags & ARGS_GFLAGS && !opt->default_text))
		return err_set(err, -EINVAL, "option '--%s' needs a value that is not empty",
			       opt->name);
	*at = *value ? value : NULL;
	return 0;
}

static int read_flagfile(struct args *a, const char *path, struct err *err);

static uint64_t given_bit(const struct args *a, const struct opt *opt)
{
	ptrdiff_t row = opt - a->spec->options;

	return row < 64 ? UINT64_C(1) << row : 0;
}

bool args_given(const struct args *a, const struct opt *opt)
{
	return a->given & given_bit(a, opt);
}

static int apply_value(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	char *at = (char *)a->target + opt->offset;

	a->given |= given_bit(a, opt);
	switch (opt->kind) {
	case OPT_FLAG:
	case OPT_SWITCH:
		return set_switch(a, opt, value, err);
	case OPT_FLAGFILE:
		return read_flagfile(a, value, err);
	case OPT_STOP:
		a->stopped = opt;
		return 0;
	case OPT_TEXT:
		return set_text(a, opt, value, err);
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
	unsigned flags; /* enum args_flags */
	char **argv;
	int argc;
	int at;
};

/* Names may be written with underscores, and with "no" before those that take yes or no. */
static struct match find_gflag(const struct opt *options, const char *word, size_t len,
			       bool *out_no)
{
	char name[GFLAG_BYTES] = "";
	struct match m = {0};

	*out_no = false;
	if (len >= sizeof(name))
		return m;
	for (size_t i = 0; i < len; i++)
		name[i] = word[i] == '_' ? '-' : word[i];
	m = find_long(options, name, len);
	if (m.opt || len < 3 || memcmp(name, "no", 2))
		return m;
	size_t skip = name[2] == '-' ? 3 : 2;
	m = find_long(options, name + skip, len - skip);
	*out_no = m.opt && (m.opt->kind == OPT_FLAG || m.opt->kind == OPT_SWITCH);
	return *out_no && !m.rival ? m : (struct match){0};
}

/* The value that follows as a word of its own. */
static int next_value(struct cursor *c, const struct match *m, const char **out, struct err *err)
{
	const char *next = c->at < c->argc ? c->argv[c->at] : NULL;

	if (m->opt->kind == OPT_FLAG || m->opt->kind == OPT_SWITCH) {
		if (!next || switch_value(m->opt, next) < 0 || !(c->flags & ARGS_GFLAGS))
			return 0;
	} else if (!m->opt->arg) {
		return 0;
	} else if (!next) {
		return err_set(err, -EINVAL, "option '--%s' needs a value: --%s=<%s>", m->name,
			       m->opt->name, m->opt->arg);
	}
	c->at++;
	*out = next;
	return 0;
}

static int parse_long(struct args *a, struct cursor *c, struct err *err)
{
	const char *typed = c->argv[c->at++], *word = typed + 1;
	bool gflags = c->flags & ARGS_GFLAGS, no = false;

	word += *word == '-';
	const char *eq = strchrnul(word, '=');
	size_t len = (size_t)(eq - word);
	struct match m =
		gflags ? find_gflag(c->options, word, len, &no) : find_long(c->options, word, len);
	const char *value = no ? "false" : *eq ? eq + 1 : NULL;

	if (!m.opt && len == 1 && typed[1] != '-')
		return err_set(err, -EINVAL, "unknown option '-%c'", *word);
	if (!m.opt)
		return unknown_option(c->options, word, len, err);
	if (m.rival)
		return err_set(err, -EINVAL, "option '--%.*s' is ambiguous: '--%s' or '--%s'",
			       (int)len, word, m.name, m.rival);
	bool takes = m.opt->arg || (gflags && m.opt->kind == OPT_FLAG);
	if (*eq && (no || !takes))
		return err_set(err, -EINVAL, "option '--%.*s' takes no value, but was given '%s'",
			       no ? (int)len : (int)strlen(m.name), no ? word : m.name, eq + 1);
	int r = value ? 0 : next_value(c, &m, &value, err);
	if (r < 0)
		return r;
	return apply_value(a, m.opt, value, err);
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
		int r = apply_value(a, o, value, err);
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

/* "-x" means a letter if there is such an option, and with gflags otherwise a long name. */
static bool means_letters(const struct cursor *c, const char *word)
{
	if (word[1] == '-')
		return false;
	if (!(c->flags & ARGS_GFLAGS))
		return true;
	for (const struct opt *o = c->options; !word[2] && o && o->name; o++)
		if (strchr(o->letters, word[1]))
			return true;
	return false;
}

static int parse_option(struct args *a, struct cursor *c, struct err *err)
{
	return means_letters(c, c->argv[c->at]) ? parse_letters(a, c, err) : parse_long(a, c, err);
}

/* One line of a file: an option, with its value behind "=" or blanks. Takes the line. */
static int parse_line(struct args *a, char *line, struct err *err)
{
	struct cursor c = {.options = a->spec->options, .flags = a->spec->flags};
	char *words[2] = {line};
	size_t name = strcspn(line, "= \t");

	a->lines = xgrow(a->lines, &a->lines_cap, a->nlines + 1, sizeof(*a->lines));
	a->lines[a->nlines++] = line;
	c.argv = words;
	c.argc = 1;
	if (line[name] && line[name] != '=') {
		words[1] = line + name + strspn(line + name, " \t");
		line[name] = '\0';
		c.argc = 2;
	}
	if (line[0] != '-' || !line[1])
		return err_set(err, -EINVAL, "expected an option such as --port=1778, not '%.100s'",
			       line);
	int r = parse_option(a, &c, err);
	if (r >= 0 && c.at < c.argc)
		return err_set(err, -EINVAL, "unexpected text '%.100s' behind '%.100s'",
			       words[c.at], line);
	return r;
}

static int parse_lines(struct args *a, const char *path, const char *text, struct err *err)
{
	struct err why = {0};
	int r = 0;

	for (unsigned n = 1; *text && r >= 0 && !a->stopped; n++) {
		size_t len = strcspn(text, "\n"), first = strspn(text, " \t\r");
		size_t end = len;

		while (end > first && strchr(" \t\r", text[end - 1]))
			end--;
		if (first < end && text[first] != '#')
			r = parse_line(a, xstrndup(text + first, end - first), &why);
		if (r < 0)
			err_set(err, r, "%s, line %u: %s", path, n, why.text);
		text += len + (text[len] == '\n');
	}
	return r;
}

static int read_flagfile(struct args *a, const char *path, struct err *err)
{
	struct buf text = {0};

	if (a->depth == FLAGFILE_DEPTH)
		return err_set(err, -ELOOP, "'%s' is the file of more than %d that name each other",
			       path, FLAGFILE_DEPTH);
	int r = fs_read_file(path, FLAGFILE_BYTES, &text, err);
	if (r >= 0 && memchr(text.data ? text.data : "", '\0', text.len))
		r = err_set(err, -EINVAL, "'%s' is no text", path);
	if (r >= 0) {
		a->depth++;
		r = parse_lines(a, path, buf_str(&text), err);
		a->depth--;
	}
	buf_release(&text);
	return r;
}

int args_parse(struct args *a, const struct args_spec *spec, int argc, char **argv, struct err *err)
{
	struct cursor c = {
		.options = spec->options, .flags = spec->flags, .argv = argv, .argc = argc};
	bool options = true;
	int r = 0;

	a->spec = spec;
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
		} else {
			r = parse_option(a, &c, err);
		}
	}
	if (r >= 0 && !a->stopped)
		r = check_words(a, spec, err);
	return r;
}
