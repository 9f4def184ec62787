/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/args.h"

#include <errno.h>
#include <unistd.h>

#include "test.h"
#include "tmpdir.h"

struct target {
	bool flag, other;
	const char *text;
	unsigned number;
	unsigned choice;
	unsigned mode;
	char seen[64];
};

static int seen(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct target *t = a->target;

	(void)opt;
	if (!strcmp(value, "bad"))
		return err_set(err, -EINVAL, "'%s' is bad", value);
	snprintf(t->seen + strlen(t->seen), sizeof(t->seen) - strlen(t->seen), "[%s]", value);
	return 0;
}

static const char *const colours[] = {"red", "green", "blue", NULL};
static const char *const text_names[] = {"words", "prose", NULL};

#define AT(member) offsetof(struct target, member)
static const struct opt table[] = {
	{.group = "General", .name = "help", .letters = "h", .kind = OPT_STOP, .help = "Help."},
	{.name = "flag", .letters = "fF", .kind = OPT_FLAG, .offset = AT(flag), .help = "A flag."},
	{.name = "other",
	 .letters = "x",
	 .kind = OPT_FLAG,
	 .offset = AT(other),
	 .help = "Another."},
	{.group = "Values",
	 .name = "text",
	 .letters = "t",
	 .kind = OPT_TEXT,
	 .arg = "TEXT",
	 .offset = AT(text),
	 .aliases = text_names,
	 .default_text = "none at all",
	 .help = "A text that is described at such length that its description has to be wrapped."},
	{.name = "number",
	 .kind = OPT_UINT,
	 .arg = "N",
	 .min = 5,
	 .max = 500,
	 .offset = AT(number),
	 .help = "A number."},
	{.name = "colour",
	 .kind = OPT_CHOICE,
	 .arg = "COLOUR",
	 .choices = colours,
	 .offset = AT(choice),
	 .help = "One of a few."},
	{.name = "seen", .kind = OPT_CALL, .arg = "LIST", .parse = seen, .help = "Called."},
	{.name = "secret",
	 .kind = OPT_FLAG,
	 .offset = AT(other),
	 .hidden = true,
	 .help = "Hidden."},
	OPT_END,
};
static const char *const usage[] = {"[options] [word]", NULL};
static const struct args_example examples[] = {{"try it", "prog -f word"}, {NULL, NULL}};
static const struct args_spec spec = {.name = "prog",
				      .summary = "do things",
				      .description = "One paragraph.\n\nAnother.\n\n  as\n  it is",
				      .usage = usage,
				      .options = table,
				      .examples = examples,
				      .max_words = 2};

struct run {
	struct target t;
	struct args a;
	struct err err;
	int r;
};

/* Parses words ended by NULL. */
static struct run *parse_with(const struct args_spec *s, const char *const *words)
{
	struct run *run = calloc(1, sizeof(*run));
	int n = 0;

	while (words[n])
		n++;
	run->a.target = &run->t;
	run->r = args_parse(&run->a, s, n, (char **)(uintptr_t)words, &run->err);
	return run;
}

#define PARSE(...) parse_with(&spec, (const char *const[]){__VA_ARGS__, NULL})

static void done(struct run *run)
{
	args_release(&run->a);
	free(run);
}

static void refused(struct run *run, const char *text)
{
	CHECK_INT(run->r, -EINVAL);
	CHECK_STR(run->err.text, text);
	done(run);
}

TEST(args, forms)
{
	struct run *r = PARSE("--flag", "one", "--text=a=b", "--number", "7", "-x", "--colour=blue",
			      "--", "--two");

	CHECK_INT(r->r, 0);
	CHECK(r->t.flag && r->t.other);
	CHECK_STR(r->t.text, "a=b");
	CHECK_INT(r->t.number, 7);
	CHECK_INT(r->t.choice, 2);
	CHECK_INT(r->a.nwords, 2);
	CHECK_STR(r->a.words[0], "one");
	CHECK_STR(r->a.words[1], "--two");
	CHECK(!r->a.words[2]);
	CHECK_INT(r->a.notices.len, 0);
	done(r);
}

/* Also by another spelling, and with the value that it has anyway. */
TEST(args, what_was_given)
{
	struct run *r = PARSE("--prose=a", "--col", "red", "-x", "word");
	const char *given[] = {"other", "text", "colour"};

	CHECK_INT(r->r, 0);
	for (const struct opt *o = table; o->name; o++) {
		bool want = false;

		for (unsigned i = 0; i < 3; i++)
			want = want || !strcmp(given[i], o->name);
		CHECK_INT(args_given(&r->a, o), want);
	}
	done(r);
}

TEST(args, letters)
{
	struct run *r = PARSE("-Fxtabc", "-", "-t", "d");

	CHECK_INT(r->r, 0);
	CHECK(r->t.flag && r->t.other);
	CHECK_STR(r->t.text, "d");
	CHECK_INT(r->a.nwords, 1);
	CHECK_STR(r->a.words[0], "-");
	done(r);
	refused(PARSE("-fz"), "unknown option '-z'");
	refused(PARSE("-t"), "option '-t' needs a value: <TEXT>");
}

TEST(args, prefixes)
{
	struct run *r = PARSE("--fl", "--num=9", "--see", "a", "--seen=b", "--pro=p");

	CHECK_INT(r->r, 0);
	CHECK(r->t.flag);
	CHECK_INT(r->t.number, 9);
	CHECK_STR(r->t.seen, "[a][b]");
	CHECK_STR(r->t.text, "p");
	CHECK_INT(r->a.notices.len, 0);
	done(r);
	refused(PARSE("--"
		      "=x"),
		"unknown option '--'");
	/* A hidden option must be spelt out, and makes no prefix ambiguous. */
	r = PARSE("--secret");
	CHECK(r->r == 0 && r->t.other);
	done(r);
}

TEST(args, ambiguous_prefix)
{
	static const struct opt two[] = {
		{.name = "input-path", .kind = OPT_FLAG, .help = "x"},
		{.name = "inner", .kind = OPT_FLAG, .help = "x"},
		OPT_END,
	};
	struct args_spec s = spec;

	s.options = two;
	refused(parse_with(&s, (const char *const[]){"--in", NULL}),
		"option '--in' is ambiguous: '--input-path' or '--inner'");
}

TEST(args, other_spellings)
{
	struct run *r = PARSE("--words=old", "--prose", "new");

	CHECK_INT(r->r, 0);
	CHECK_STR(r->t.text, "new");
	CHECK_STR(buf_str(&r->a.notices), "");
	done(r);
}

TEST(args, refusals)
{
	refused(PARSE("--flga"), "unknown option '--flga'; did you mean '--flag'?");
	refused(PARSE("--zzzzz"), "unknown option '--zzzzz'");
	refused(PARSE("--flag=1"), "option '--flag' takes no value, but was given '1'");
	refused(PARSE("--number"), "option '--number' needs a value: --number=<N>");
	refused(PARSE("--number=4"),
		"invalid value '4' for '--number': expected a number from 5 to 500");
	refused(PARSE("--number=012"),
		"invalid value '012' for '--number': expected a number from 5 to 500");
	refused(PARSE("--colour=pink"),
		"invalid value 'pink' for '--colour': expected red, green or blue");
	refused(PARSE("--text="), "option '--text' needs a value that is not empty");
	refused(PARSE("--seen=bad"), "'bad' is bad");
	refused(PARSE("a", "b", "c"), "unexpected argument 'c'; usage: prog [options] [word]");
}

TEST(args, stops)
{
	struct run *r = PARSE("--flag", "--help", "--nonsense");

	CHECK_INT(r->r, 0);
	CHECK_STR(r->a.stopped->name, "help");
	CHECK(r->t.flag);
	done(r);

	struct args_spec s = spec;
	s.flags = ARGS_STOP_AT_WORD;
	s.max_words = -1;
	r = parse_with(&s, (const char *const[]){"-f", "bash", "-x", "--text", NULL});
	CHECK_INT(r->r, 0);
	CHECK(r->t.flag && !r->t.other);
	CHECK_INT(r->a.nwords, 3);
	CHECK_STR(r->a.words[1], "-x");
	done(r);
	r = parse_with(&s, (const char *const[]){"--", "-f", "--", "x", NULL});
	CHECK_INT(r->a.nwords, 3);
	CHECK_STR(r->a.words[0], "-f");
	CHECK_STR(r->a.words[1], "--");
	done(r);
}

TEST(args, missing_word)
{
	struct args_spec s = spec;

	s.min_words = 1;
	refused(parse_with(&s, (const char *const[]){NULL}),
		"missing argument; usage: prog [options] [word]");
}

TEST(args, numbers)
{
	unsigned n = 77;

	CHECK(args_number("0", 1, 0, 9, &n) && n == 0);
	CHECK(args_number("4294967295", 10, 0, 4294967295u, &n) && n == 4294967295u);
	CHECK(!args_number("4294967296", 10, 0, 4294967295u, &n));
	CHECK(!args_number("99999999999", 11, 0, 4294967295u, &n));
	CHECK(!args_number("", 0, 0, 9, &n));
	CHECK(!args_number("-1", 2, 0, 9, &n));
	CHECK(!args_number("+1", 2, 0, 9, &n));
	CHECK(!args_number(" 1", 2, 0, 9, &n));
	CHECK(!args_number("1x", 2, 0, 9, &n));
	CHECK(!args_number("00", 2, 0, 9, &n));
}

TEST(args, nearest)
{
	static const char *const names[] = {"leaks", "decompose", "inefficient", NULL};

	CHECK_STR(args_nearest("leak", 4, names), "leaks");
	CHECK_STR(args_nearest("ineficient", 10, names), "inefficient");
	CHECK_STR(args_nearest("dec", 3, names), "decompose");
	CHECK_STR(args_nearest("LEAKS", 5, names), "leaks");
	CHECK(!args_nearest("zebra", 5, names));
	CHECK(!args_nearest("", 0, names));
	CHECK(!args_nearest("x", 1, names));
}

TEST(args, nearest_is_a_part_of_the_name)
{
	static const char *const names[] = {"log-file", "mspti-activity-kind", "duration", NULL};

	CHECK_STR(args_nearest("kind", 4, names), "mspti-activity-kind");
	CHECK_STR(args_nearest("activity", 8, names), "mspti-activity-kind");
	CHECK_STR(args_nearest("file", 4, names), "log-file");
	CHECK(!args_nearest("ctivity", 7, names));
}

TEST(args, help)
{
	struct buf out = {0};

	args_help(&spec, 60, &out);
	CHECK_STR(buf_str(&out), "Description:\n  One paragraph.\n\n  Another.\n\n  as\n  it is\n"
				 "\nUsage:\n  prog [options] [word]\n"
				 "\nGeneral:\n"
				 "  -h, --help                  Help.\n"
				 "  -f, -F, --flag              A flag.\n"
				 "  -x, --other                 Another.\n"
				 "\nValues:\n"
				 "  -t, --text <TEXT>           A text that is described at\n"
				 "                              such length that its\n"
				 "                              description has to be wrapped.\n"
				 "                              [default: none at all]\n"
				 "      --number <N>            A number.\n"
				 "      --colour <COLOUR>       One of a few.\n"
				 "      --seen <LIST>           Called.\n"
				 "\nExamples:\n  # try it\n  prog -f word\n");
	buf_release(&out);
}

TEST(args, width_of_a_pipe)
{
	int fd[2];

	CHECK(pipe(fd) == 0);
	CHECK_INT(args_width(fd[1]), 80);
	CHECK_INT(args_width(-1), 80);
}

/* --- as gflags has it --- */

static const struct opt gtable[] = {
	{.name = "help", .letters = "h", .kind = OPT_STOP, .help = "Help."},
	{.name = "use-JSON", .kind = OPT_FLAG, .offset = AT(flag), .help = "A flag."},
	{.name = "node", .kind = OPT_FLAG, .offset = AT(other), .help = "Begins with no."},
	{.name = "log-dir", .kind = OPT_TEXT, .arg = "DIR", .offset = AT(text), .help = "A text."},
	{.name = "must",
	 .kind = OPT_TEXT,
	 .arg = "X",
	 .offset = AT(text),
	 .default_text = "x",
	 .help = "A text with a default."},
	{.name = "port",
	 .kind = OPT_UINT,
	 .arg = "N",
	 .max = 65535,
	 .offset = AT(number),
	 .help = "A number."},
	{.name = "mode",
	 .kind = OPT_SWITCH,
	 .arg = "true|false|auto",
	 .offset = AT(mode),
	 .help = "Yes, no or perhaps."},
	{.name = "flagfile", .kind = OPT_FLAGFILE, .arg = "FILE", .help = "More of these."},
	OPT_END,
};
static const struct args_spec gspec = {.name = "prog",
				       .summary = "do things",
				       .description = "Text.",
				       .usage = usage,
				       .options = gtable,
				       .flags = ARGS_GFLAGS};
#define GPARSE(...) parse_with(&gspec, (const char *const[]){__VA_ARGS__, NULL})

/* A file of options, by its whole text. */
static const char *options_file(const char *name, const char *text)
{
	const char *path = tmpfile_path(name);
	FILE *f = fopen(path, "w");

	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
	return path;
}

TEST(args, gflags_spellings)
{
	struct run *r = GPARSE("-port", "7", "--log_dir=/a b", "--use_JSON", "-mode=auto");

	CHECK_INT(r->r, 0);
	CHECK_INT(r->t.number, 7);
	CHECK_STR(r->t.text, "/a b");
	CHECK_INT(r->t.mode, 2);
	CHECK(r->t.flag);
	done(r);
	r = GPARSE("--log-dir", "x", "-log_dir=", "--use-JSON=false", "--mode");
	CHECK_INT(r->r, 0);
	CHECK(!r->t.text && !r->t.flag);
	CHECK_INT(r->t.mode, 1);
	done(r);
	r = GPARSE("-h", "--nonsense");
	CHECK(r->r == 0 && r->a.stopped);
	done(r);
}

TEST(args, gflags_yes_and_no)
{
	struct run *r = GPARSE("--use_JSON=T", "--nouse_JSON", "--node=YES", "--mode=1");

	CHECK_INT(r->r, 0);
	CHECK(!r->t.flag && r->t.other);
	CHECK_INT(r->t.mode, 1);
	done(r);
	r = GPARSE("--node", "--no-node", "--use-JSON", "false", "--use-JSON", "true", "--nomode");
	CHECK_INT(r->r, 0);
	CHECK(r->t.flag && !r->t.other);
	CHECK_INT(r->t.mode, 0);
	done(r);
	refused(GPARSE("--node=perhaps"),
		"invalid value 'perhaps' for '--node': expected true or false");
	refused(GPARSE("--mode=perhaps"),
		"invalid value 'perhaps' for '--mode': expected true, false or auto");
	refused(GPARSE("--nonode=1"), "option '--nonode' takes no value, but was given '1'");
	refused(GPARSE("--noport"), "unknown option '--noport'; did you mean '--port'?");
	refused(GPARSE("--node", "perhaps"),
		"unexpected argument 'perhaps'; usage: prog [options] [word]");
}

TEST(args, gflags_refusals)
{
	refused(GPARSE("-z"), "unknown option '-z'");
	refused(GPARSE("-prot=1"), "unknown option '--prot'; did you mean '--port'?");
	refused(GPARSE("--log_dirr=1"), "unknown option '--log_dirr'; did you mean '--log-dir'?");
	refused(GPARSE("--must="), "option '--must' needs a value that is not empty");
	refused(GPARSE("--port"), "option '--port' needs a value: --port=<N>");
	refused(GPARSE("--a_name_that_is_longer_than_any_name_that_an_option_may_ever_have_here"),
		"unknown option "
		"'--a_name_that_is_longer_than_any_name_that_an_option_may_ever_have_here'");
}

TEST(args, flagfile)
{
	const char *path = options_file("a", "# the port\n\n  --port=1\r\n-log_dir /some where\t\n"
					     "--use_JSON\n--nonode\n--mode auto");
	struct run *r = GPARSE("--node", "--port=2", "--flagfile", path, "--mode=false");

	CHECK_INT(r->r, 0);
	CHECK_INT(r->t.number, 1);
	CHECK_STR(r->t.text, "/some where");
	CHECK(r->t.flag && !r->t.other);
	CHECK_INT(r->t.mode, 0);
	done(r);
	r = GPARSE("--flagfile", options_file("empty", ""));
	CHECK_INT(r->r, 0);
	done(r);
}

TEST(args, flagfiles_that_name_files)
{
	char text[512];

	snprintf(text, sizeof(text), "--port=1\n--flagfile=%s\n--log-dir=outer",
		 options_file("inner", "--port=5\n--log-dir=inner\n"));
	struct run *r = GPARSE("--flagfile", options_file("outer", text));
	CHECK_INT(r->r, 0);
	CHECK_INT(r->t.number, 5);
	CHECK_STR(r->t.text, "outer");
	done(r);

	snprintf(text, sizeof(text), "--flagfile=%s", tmpfile_path("loop"));
	r = GPARSE("--flagfile", options_file("loop", text));
	CHECK_INT(r->r, -ELOOP);
	CHECK(strstr(r->err.text, "loop, line 1: "));
	done(r);
}

TEST(args, flagfile_refusals)
{
	char want[512];

	const char *path = options_file("bad", "--port=1\n\n--prot=2\n");
	snprintf(want, sizeof(want), "%s, line 3: unknown option '--prot'; did you mean '--port'?",
		 path);
	refused(GPARSE("--flagfile", path), want);
	path = options_file("word", "port=1\n");
	snprintf(want, sizeof(want),
		 "%s, line 1: expected an option such as --port=1778, not 'port=1'", path);
	refused(GPARSE("--flagfile", path), want);
	path = options_file("dash", "- port\n");
	snprintf(want, sizeof(want), "%s, line 1: expected an option such as --port=1778, not '-'",
		 path);
	refused(GPARSE("--flagfile", path), want);
	path = options_file("more", "--use_JSON and more\n");
	snprintf(want, sizeof(want), "%s, line 1: unexpected text 'and more' behind '--use_JSON'",
		 path);
	refused(GPARSE("--flagfile", path), want);
	struct run *r = GPARSE("--flagfile=/nowhere/at/all");
	CHECK_INT(r->r, -ENOENT);
	done(r);
	r = GPARSE("--flagfile=/proc/self/mem");
	CHECK(r->r < 0);
	done(r);
}
