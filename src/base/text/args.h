/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Command lines from tables. A command describes itself once, in a `struct args_spec`; from it come
 * the parser, --help, `sonde help --json` and the manual page, so that none can drift from another.
 *
 * Accepted forms: --name=value, --name value, --na=value (any unambiguous prefix), -x value,
 * -xvalue, -xy, and -- as the end of options. Words that are not options are collected; with
 * ARGS_STOP_AT_WORD the first of them ends the options, as a launcher needs it.
 *
 * With ARGS_GFLAGS also what programs built on gflags take: underscores for dashes, -name for
 * --name,
 * --noname, --no-name and --name=false for flags, an empty value for a text that has no default,
 * and files of options (OPT_FLAGFILE). Of options that come twice the later one counts.
 *
 * Nothing here prints or exits. Strings in tables and in argv are borrowed.
 */
#ifndef SONDE_BASE_TEXT_ARGS_H
#define SONDE_BASE_TEXT_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/err.h"

struct args;

enum opt_kind {
	OPT_FLAG, /* no value; sets the bool at `offset` */
	OPT_STOP, /* no value; ends parsing and is left in args.stopped: --help, --version */
	OPT_TEXT, /* sets the `const char *` at `offset`; may not be empty */
	OPT_UINT, /* sets the `unsigned` at `offset`; between min and max */
	OPT_SIZE, /* sets the uint64_t at `offset`: bytes, see args_size() */
	OPT_CHOICE, /* sets the `unsigned` or enum at `offset` to the index in choices */
	OPT_CALL, /* calls parse() */
	OPT_SWITCH, /* sets the `unsigned` at `offset`: 0 for false, 1 for true or no value, 2 auto
		     */
	OPT_FLAGFILE, /* reads options from a file, a line each; lines that begin with # are not
			 read */
};

struct opt {
	const char *name; /* without dashes; NULL ends a table */
	char letters[4]; /* one-letter spellings, in the order they are shown */
	enum opt_kind kind;
	const char *arg; /* placeholder of the value; NULL: takes none */
	size_t offset; /* into args.target */
	unsigned min, max;
	const char *const *choices; /* ended by NULL */
	/* Fills err and returns a negative errno when the value is refused. */
	int (*parse)(struct args *a, const struct opt *opt, const char *value, struct err *err);
	const char *const *aliases; /* other spellings, ended by NULL */
	const char *default_text;
	const char *help; /* sentences, first letter upper case */
	const char *group; /* heading of this row and those below; NULL: as above */
	bool hidden;
};

/*
 * Rows of option tables: the name, the placeholder of the value, where the value goes (an offset
 * into args.target), its default and what it is for. Anything else (.group, .letters, .aliases,
 * .min) may follow as designated initialisers.
 */
#define OPTION_FLAG(name_, at_, help_, ...)                                                        \
	{                                                                                          \
		.name = name_, .kind = OPT_FLAG, .offset = at_, .help = help_, ##__VA_ARGS__       \
	}
#define OPTION_TEXT(name_, arg_, at_, default_, help_, ...)                                        \
	{                                                                                          \
		.name = name_, .kind = OPT_TEXT, .arg = arg_, .offset = at_,                       \
		.default_text = default_, .help = help_, ##__VA_ARGS__                             \
	}
#define OPTION_UINT(name_, arg_, at_, min_, max_, default_, help_, ...)                            \
	{                                                                                          \
		.name = name_, .kind = OPT_UINT, .arg = arg_, .offset = at_, .min = min_,          \
		.max = max_, .default_text = default_, .help = help_, ##__VA_ARGS__                \
	}
#define OPTION_CHOICE(name_, arg_, choices_, at_, default_, help_, ...)                            \
	{                                                                                          \
		.name = name_, .kind = OPT_CHOICE, .arg = arg_, .choices = choices_,               \
		.offset = at_, .default_text = default_, .help = help_, ##__VA_ARGS__              \
	}
#define OPTION_CALL(name_, arg_, parse_, at_, default_, help_, ...)                                \
	{                                                                                          \
		.name = name_, .kind = OPT_CALL, .arg = arg_, .parse = parse_, .offset = at_,      \
		.default_text = default_, .help = help_, ##__VA_ARGS__                             \
	}

#define OPT_END                                                                                    \
	{                                                                                          \
		.name = NULL                                                                       \
	}

/* A titled part of a manual page. Paragraphs are separated by an empty line; one that starts with
 * two spaces is printed line by line as it is. */
struct args_section {
	const char *title; /* NULL ends a table */
	const char *text;
};

struct args_example {
	const char *text; /* what it is for; NULL ends a table */
	const char *command;
};

enum args_flags {
	ARGS_STOP_AT_WORD = 1 << 0, /* the first word that is not an option ends them */
	ARGS_GFLAGS = 1 << 1, /* the spellings of gflags, too */
};

struct args_spec {
	const char *name; /* as typed: "sonde mem show" */
	const char *summary; /* one line, lower case, no full stop */
	const char *description; /* paragraphs, as in args_section */
	const char *const *usage; /* what follows the name; ended by NULL */
	const struct opt *options; /* NULL: none */
	const struct args_example *examples; /* NULL: none */
	const struct args_section *sections; /* NULL: none; manual page only */
	unsigned flags; /* enum args_flags */
	int min_words, max_words; /* max < 0: any number */
};

/* One parse. Zero-initialise, set target, args_parse(), args_release(). */
struct args {
	void *target;
	struct buf notices; /* lines for the user that are not errors, e.g. "Deprecation: …\n" */
	const struct opt *stopped; /* the OPT_STOP option met, if any */
	char **words; /* the other words, ended by NULL */
	int nwords;
	uint64_t given; /* see args_given() */
	/* the parser's own */
	const struct args_spec *spec;
	char **lines; /* of files: values point into them */
	size_t nlines, lines_cap;
	int depth; /* of files that name files */
};

/*
 * argv holds the arguments only (no command name). On failure err says what was wrong and what is
 * accepted. Options are applied in order; the first bad one or OPT_STOP ends the work.
 */
int args_parse(struct args *a, const struct args_spec *spec, int argc, char **argv,
	       struct err *err);
void args_release(struct args *a);
/* Whether this option was given, even with the value that it has anyway: one of the first 64 rows.
 */
bool args_given(const struct args *a, const struct opt *opt);

/* Adds a line to a->notices; no newline at the end of fmt. */
__attribute__((format(printf, 2, 3))) void args_notice(struct args *a, const char *fmt, ...);

/* A decimal number without sign or leading zeros, min <= n <= max. */
bool args_number(const char *s, size_t len, unsigned min, unsigned max, unsigned *out_n);

/* "1048576", "512K", "1.5GiB", "64GB": K, M, G and T alone are powers of 1024. Any case. */
bool args_size(const char *s, uint64_t *out_bytes);

/* "a, b or c" */
void args_list_choices(const char *const *choices, struct buf *out);

/* The name most like `word`, or NULL if none is near enough to be what was meant. */
const char *args_nearest(const char *word, size_t len, const char *const *names);

/* The text of --help, wrapped at `width` columns. */
void args_help(const struct args_spec *spec, unsigned width, struct buf *out);
/* Parts of it. */
void args_help_options(const struct args_spec *spec, unsigned width, struct buf *out);
void args_help_examples(const struct args_spec *spec, struct buf *out);

/* Columns of the terminal behind fd, within reason; 80 when it is none. */
unsigned args_width(int fd);

/* Adds text from column `col` on, wrapped at `width`, later lines indented by `indent`; ends the
 * line. Newlines in the text are kept. */
void args_wrap(struct buf *out, const char *text, unsigned col, unsigned indent, unsigned width);

#endif
