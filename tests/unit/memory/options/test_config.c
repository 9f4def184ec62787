/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/options/config.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "memory/options/options.h"
#include "memory/options/values.h"
#include "test.h"
#include "tmpdir.h"
#include "wire/control_page.h"

#define WIDE "\xef\xbc\x8c"

static const char *const usage[] = {"", NULL};
static const struct args_spec spec = {.name = "msmemscope",
				      .usage = usage,
				      .options = mem_option_table,
				      .flags = ARGS_STOP_AT_WORD,
				      .max_words = -1};

static struct mem_options o;
static char notices[2048];
static struct err err;

/* Parses words ended by NULL into `o`, with notices and error in their globals. */
static int parse(const char *const *words)
{
	struct args a = {.target = &o};
	int n = 0;

	while (words[n])
		n++;
	err = (struct err){0};
	CHECK_INT(mem_options_init(&o, &err), 0);
	int r = args_parse(&a, &spec, n, (char **)(uintptr_t)words, &err);
	if (r == 0)
		r = mem_options_finish(&o, &err);
	snprintf(notices, sizeof(notices), "%s", buf_str(&a.notices));
	args_release(&a);
	return r;
}

#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})

#define GOOD(...)                                                                                  \
	do {                                                                                       \
		CHECK_INT(PARSE(__VA_ARGS__), 0);                                                  \
		CHECK_STR(err.text, "");                                                           \
	} while (0)

/* Refused, with the offending text and these words in the message. */
static void bad(const char *option, const char *offending, const char *words)
{
	CHECK(parse((const char *const[]){option, NULL}) < 0);
	if (!strstr(err.text, offending) || !strstr(err.text, words)) {
		fprintf(stderr, "%s: %s\n", option, err.text);
		CHECK(0);
	}
}

TEST(mem_config, defaults)
{
	unsetenv(MEM_COMPAT_ENV);
	CHECK(chdir("/tmp") == 0);
	CHECK_INT(parse((const char *const[]){NULL}), 0);
	const struct mem_config *c = &o.config;
	CHECK(c->effective && c->npu_all && !c->cpu && !c->c_stack && !c->py_stack);
	CHECK_INT(c->npu_slots, UINT32_MAX);
	CHECK_INT(c->nsteps, 0);
	CHECK_INT(c->level, MEM_LEVEL_OP);
	CHECK_INT(c->dump_events, 7);
	CHECK_INT(c->events, 7);
	CHECK_INT(c->analysis, MEM_LEAKS);
	CHECK_INT(c->log_level, LOG_WARN);
	CHECK_INT(c->buffer_mb, 256);
	CHECK_INT(c->wait_ms, 100);
	CHECK_INT(c->compat, ROW_SEED);
	CHECK_STR(c->output_dir, "/tmp/memscopeDumpResults");
	CHECK_INT(mem_config_want(c), WANT_ALLOC | WANT_OP);
}

TEST(mem_config, steps)
{
	GOOD("--steps=1,22" WIDE "333,,4" WIDE "5");
	CHECK_INT(o.config.nsteps, 5);
	CHECK_INT(o.config.steps[1], 22);
	CHECK_INT(o.config.steps[2], 333);
	CHECK_INT(o.config.steps[4], 5);
	GOOD("--steps=1,2,3", "--steps=9");
	CHECK_INT(o.config.nsteps, 1);
	bad("--steps=1,2,3,4,5,6", "more than 5", "one to five");
	bad("--steps=0", "'0'", "invalid steps input");
	bad("--steps=1,01", "'01'", "from 1");
	bad("--steps=x", "'x'", "from 1");
	bad("--steps=", "''", "from 1");
	bad("--steps=-3", "'-3'", "from 1");
	bad("--steps=1 ,2", "'1 '", "from 1");
	bad("--steps=4294967296", "'4294967296'", "from 1");
}

TEST(mem_config, device)
{
	GOOD("--device=npu:2,npu:31");
	CHECK(!o.config.npu_all);
	CHECK_INT(o.config.npu_slots, 1u << 2 | 1u << 31);
	GOOD("--device=npu:2" WIDE "npu" WIDE "cpu");
	CHECK(o.config.npu_all && o.config.cpu);
	CHECK_INT(o.config.npu_slots, UINT32_MAX);
	GOOD("--device=cpu");
	CHECK(!o.config.npu_all && !o.config.npu_slots);
	CHECK(mem_config_want(&o.config) & WANT_HOST);
	GOOD("--device=gpu:1,cuda:4");
	CHECK(!o.config.npu_all && !o.config.cpu);
	CHECK_INT(o.config.npu_slots, 1u << 1 | 1u << 4);
	GOOD("--device=cuda,cpu");
	CHECK(o.config.npu_all && o.config.cpu);
	GOOD("--device=gpu");
	CHECK(o.config.npu_all);
	bad("--device=npu:32", "'npu:32'", "npu:0 to npu:31");
	bad("--device=gpu:32", "'gpu:32'", "npu:0 to npu:31");
	bad("--device=gpu:", "'gpu:'", "invalid device");
	bad("--device=cuda:0x1", "'cuda:0x1'", "invalid device");
	bad("--device=npu:", "'npu:'", "invalid device");
	bad("--device=npu:01", "'npu:01'", "invalid device");
	bad("--device=npuu", "did you mean 'npu'?", "cpu");
	bad("--device=", "''", "invalid device");
	bad("--device=,", "''", "invalid device");
}

TEST(mem_config, level)
{
	GOOD("--level=kernel", "--events=launch");
	CHECK_INT(o.config.level, MEM_LEVEL_KERNEL);
	CHECK_STR(notices, "");
	CHECK_INT(mem_config_want(&o.config), WANT_ALLOC | WANT_KERNEL);
	GOOD("--level=0,1");
	CHECK_INT(o.config.level, MEM_LEVEL_ALL);
	CHECK_STR(notices, "");
	bad("--level=2", "'2'", "op, kernel or both");
	bad("--level=", "''", "op, kernel or both");
	bad("--level=ops", "'op'?", "op, kernel or both");
}

TEST(mem_config, events_and_links)
{
	GOOD("--events=alloc", "--analysis=none");
	CHECK_INT(o.config.dump_events, MEM_ALLOC | MEM_FREE);
	CHECK_INT(o.config.events, MEM_ALLOC | MEM_FREE);
	GOOD("--events=free", "--analysis=");
	CHECK_INT(o.config.dump_events, MEM_ALLOC | MEM_FREE);
	CHECK_INT(o.config.analysis, 0);
	GOOD("--events=access", "--analysis=none");
	CHECK_INT(o.config.dump_events, MEM_ALLOC | MEM_FREE | MEM_ACCESS);
	GOOD("--events=launch", "--analysis=none");
	CHECK_INT(o.config.events, MEM_LAUNCH);
	GOOD("--events=launch", "--analysis=decompose");
	CHECK_INT(o.config.dump_events, MEM_LAUNCH);
	CHECK_INT(o.config.events, MEM_EVENTS_ALL);
	GOOD("--events=none", "--analysis=oom");
	CHECK_INT(o.config.dump_events, 0);
	CHECK_INT(o.config.events, MEM_ALLOC | MEM_FREE);
	GOOD("--events=", "--analysis=inefficient");
	CHECK_INT(o.config.dump_events, 0);
	CHECK_INT(o.config.events, MEM_EVENTS_ALL);
	GOOD("--events=alloc,none");
	CHECK_INT(o.config.dump_events, 0);
	CHECK(strstr(notices, "'none' mixed with other event types, all events cleared."));
	GOOD("--events=alloc,traceback");
	CHECK(o.config.traceback);
	bad("--events=aloc", "did you mean 'alloc'?", "launch, access");
	bad("--events=ALLOC", "'ALLOC'", "launch, access");
}

TEST(mem_config, call_stack)
{
	GOOD("--call-stack=c:20" WIDE "python:10");
	CHECK(o.config.c_stack && o.config.py_stack);
	CHECK_INT(o.config.c_depth, 20);
	CHECK_INT(o.config.py_depth, 10);
	GOOD("--call-stack", "python");
	CHECK(!o.config.c_stack && o.config.py_stack);
	CHECK_INT(o.config.py_depth, 50);
	GOOD("--call-stack=c:1,c:1000,python:0");
	CHECK_INT(o.config.c_depth, 1000);
	CHECK_INT(o.config.py_depth, 0);
	GOOD("--call-stack=c", "--call-stack=");
	CHECK(!o.config.c_stack);
	bad("--call-stack=c:1001", "'c:1001'", "DEPTH from 0 to 1000");
	bad("--call-stack=c:", "'c:'", "DEPTH from 0 to 1000");
	bad("--call-stack=c:05", "'c:05'", "DEPTH from 0 to 1000");
	bad("--call-stack=cpp", "'cpp'", "DEPTH from 0 to 1000");
	bad("--call-stack=python:-1", "'python:-1'", "DEPTH from 0 to 1000");
}

TEST(mem_config, analysis)
{
	GOOD("--analysis=leaks,oom:25");
	CHECK_INT(o.config.analysis, MEM_LEAKS | MEM_OOM);
	CHECK_INT(o.config.oom_top, 25);
	GOOD("--analysis=oom");
	CHECK_INT(o.config.oom_top, 10);
	GOOD("--analysis=leaks,none");
	CHECK_INT(o.config.analysis, 0);
	CHECK(strstr(notices, "'none' mixed with other analysis types"));
	bad("--analysis=oom:0", "'0'", "valid range is [1, 1000]");
	bad("--analysis=oom:1001", "'1001'", "valid range is [1, 1000]");
	bad("--analysis=oom:", "''", "valid range is [1, 1000]");
	bad("--analysis=oomph", "'oomph'", "inefficient, oom[:K]");
	bad("--analysis=leek", "'leek'", "inefficient, oom[:K]");
}

TEST(mem_config, choices_and_numbers)
{
	GOOD("--format=db", "--collect-mode=deferred", "--buffer-mb=1", "--wait-ms=0");
	CHECK_INT(o.config.format, MEM_DB);
	CHECK_INT(o.config.mode, MEM_DEFERRED);
	CHECK(mem_config_want(&o.config) & WANT_DEFERRED);
	CHECK_INT(o.config.wait_ms, 0);
	GOOD("--data-format=db");
	CHECK_INT(o.config.format, MEM_DB);
	CHECK_STR(notices, "");
	bad("--format=xml", "'xml'", "csv, db or none");
	bad("--format=", "''", "csv, db or none");
	bad("--collect-mode=later", "'later'", "immediate or deferred");
	bad("--buffer-mb=0", "'0'", "from 1 to 65536");
	bad("--wait-ms=1s", "'1s'", "from 0 to 60000");
}

TEST(mem_config, watch)
{
	const struct mem_watch *w = &o.config.watch;

	GOOD("--watch=op0,op1,full-content");
	CHECK(w->on && w->full_content);
	CHECK_STR(w->start, "op0");
	CHECK_STR(w->end, "op1");
	CHECK_INT(w->output_id, MEM_ALL_OUTPUTS);
	GOOD("--watch=op0:out3" WIDE "op1,");
	CHECK_INT(w->output_id, 3);
	CHECK_STR(w->start, "op0");
	CHECK(!w->full_content);
	GOOD("--watch=a:b:0,x");
	CHECK_STR(w->start, "a:b");
	CHECK_INT(w->output_id, 0);
	GOOD("--watch=aten::add,aten::mul");
	CHECK_STR(w->start, "aten::add");
	CHECK_STR(w->end, "aten::mul");
	GOOD("--watch=aten::add:1,x,full-content,");
	CHECK_STR(w->start, "aten::add");
	CHECK_INT(w->output_id, 1);
	GOOD("--watch=,op1");
	CHECK_STR(w->start, "");
	bad("--watch=op1", "'op1'", "the operator at the end is missing");
	bad("--watch=", "''", "the operator at the end is missing");
	bad("--watch=op0,", "'op0,'", "the operator at the end is missing");
	bad("--watch=op0:01,op1", "'op0:01,op1'", "no number");
	bad("--watch=op0:outx,op1", "op0:outx", "no number");
	bad("--watch=:0,op1", "':0,op1'", "needs an operator");
	bad("--watch=a,b,full", "'a,b,full'", "full-content");
	bad("--watch=a,b,full-content,x", "a,b", "too many");
	bad("--watch=a,b,,,", "a,b", "too many");
}

TEST(mem_config, watch_cuts_names)
{
	char text[700] = "--watch=";

	/* 253 letters, then a character of three bytes across the limit */
	memset(text + 8, 'a', 253);
	memcpy(text + 8 + 253, "\xe4\xb8\xad,end", 8);
	GOOD(text);
	CHECK_INT(strlen(o.config.watch.start), 253);
	CHECK(strstr(notices, "is cut at 254 bytes"));
}

TEST(mem_config, output)
{
	char path[5000] = "--output-path=";

	CHECK(chdir("/usr/bin") == 0);
	GOOD("-o", "../x//y/");
	CHECK_STR(o.config.output_dir, "/usr/x/y");
	GOOD("--output=/a b/~c_d-e.f");
	CHECK_STR(o.config.output_dir, "/a b/~c_d-e.f");
	CHECK_STR(notices, "");
	GOOD("-o/\xe4\xb8\xad\xe6\x96\x87");
	bad("--output-path=", "''", "empty");
	GOOD("--output-path=/a:b" WIDE "p\xc3\xa4th");
	CHECK_STR(o.config.output_dir, "/a:b" WIDE "p\xc3\xa4th");
	bad("--output-path=/a\nb", "/a", "control characters");
	bad("--output-path=/a\xe4\xb8", "/a", "not UTF-8");
	memset(path + 14, 'a', 256);
	bad(path, "aaa", "longer than 255");
	for (int i = 0; i < 33; i++)
		memcpy(path + 14 + 2 * i, "/a", 2);
	path[14 + 66] = '\0';
	bad(path, "/a/a", "more than 32");
	path[14 + 64] = '\0';
	CHECK_INT(PARSE(path), 0);
	memset(path + 14, 'a', 4097);
	bad(path, "aaa", "longer than 4096");
}

TEST(mem_config, log_level)
{
	GOOD("--verbose", "--quiet");
	CHECK_INT(o.config.log_level, LOG_DEBUG);
	GOOD("--quiet");
	CHECK_INT(o.config.log_level, LOG_ERROR);
	GOOD("--debug");
	CHECK_INT(o.config.log_level, LOG_DEBUG);
	GOOD("--log-level=info", "--verbose");
	CHECK_INT(o.config.log_level, LOG_INFO);
	GOOD("--log-level=warning");
	CHECK_STR(notices, "");
	GOOD("--log-level=warn");
	CHECK_INT(o.config.log_level, LOG_WARN);
	CHECK_STR(notices, "");
	bad("--log-level=loud", "'loud'", "debug, info, warn or error");
}

TEST(mem_config, compat)
{
	GOOD("--compat=26.0");
	CHECK_INT(o.config.compat, ROW_26_0);
	setenv(MEM_COMPAT_ENV, "26.0", 1);
	CHECK_INT(parse((const char *const[]){NULL}), 0);
	CHECK_INT(o.config.compat, ROW_26_0);
	GOOD("--compat=current");
	CHECK_INT(o.config.compat, ROW_SEED);
	setenv(MEM_COMPAT_ENV, "27", 1);
	CHECK(parse((const char *const[]){NULL}) < 0);
	CHECK(strstr(err.text, "'27'") && strstr(err.text, MEM_COMPAT_ENV));
	unsetenv(MEM_COMPAT_ENV);
	bad("--compat=25", "'25'", "26.0 or current");
}

TEST(mem_config, compare)
{
	struct buf one = {0};

	CHECK(chdir(tmpdir()) == 0);
	buf_add_str(&one, "x");
	CHECK_INT(fs_write_atomic("a.csv", &one, 0600, NULL), 0);
	CHECK_INT(fs_write_atomic("b.csv", &one, 0600, NULL), 0);
	CHECK(symlink("a.csv", "link") == 0 && mkdir("d", 0700) == 0);
	GOOD("--compare", "--input-path=a.csv" WIDE "b.csv");
	CHECK(o.config.compare && strstr(o.config.inputs[1], "/b.csv"));
	GOOD("--compare", "-i", "d,./d");
	CHECK_INT(PARSE("--compare", "--input=a.csv,b.csv"), 0);
	CHECK_STR(notices, "");
	CHECK(PARSE("--compare") < 0 && strstr(err.text, "--input-path=A,B"));
	bad("--input-path=a.csv,b.csv", "--input-path", "--compare");
	bad("--input-path=a.csv", "'a.csv'", "two dump files");
	bad("--input-path=a.csv,b.csv,a.csv", "more than two", "two dump files");
	bad("--input-path=a.csv,d", "'a.csv,d'", "two dump files");
	bad("--input-path=a.csv,no", "'no'", "No such file");
	bad("--input-path=a.csv,link", "'link'", "neither a regular file");
	bad("--input-path=", "''", "two dump files");
	buf_release(&one);
}

static void write_text(const char *path, const char *text, size_t len)
{
	struct buf b = {0};

	buf_add(&b, text, len);
	CHECK_INT(fs_write_atomic(path, &b, 0600, NULL), 0);
	buf_release(&b);
}

static void enter_tmp(void)
{
	CHECK(chdir(tmpdir()) == 0);
}

TEST(mem_config, json_round_trip)
{
	struct mem_config got;
	struct stat st;

	enter_tmp();
	umask(0);
	GOOD("--steps=3,4", "--device=npu:1,cpu", "--level=op,kernel", "--events=access",
	     "--call-stack=c:7,python:9", "--collect-mode=deferred", "--analysis=oom:3,decompose",
	     "--format=db", "--watch=a\"b:2,c,full-content", "-o", "/x/\xe4\xb8\xad y", "--quiet",
	     "--compat=26.0", "--buffer-mb=9", "--wait-ms=8");
	CHECK_INT(mem_config_write(&o.config, "config.json", &err), 0);
	CHECK(stat("config.json", &st) == 0);
	CHECK_INT(st.st_mode & 0777, 0640);
	memset(&got, 0x55, sizeof(got));
	CHECK_INT(mem_config_read("config.json", &got, &err), 0);
	const struct mem_config *c = &o.config;
	CHECK(got.effective && got.cpu && !got.npu_all && got.c_stack && got.py_stack);
	CHECK_INT(got.nsteps, 2);
	CHECK_INT(got.steps[1], 4);
	CHECK_INT(got.npu_slots, 2);
	CHECK_INT(got.level, 3);
	CHECK_INT(got.dump_events, c->dump_events);
	CHECK_INT(got.events, c->events);
	CHECK_INT(got.c_depth, 7);
	CHECK_INT(got.py_depth, 9);
	CHECK_INT(got.mode, MEM_DEFERRED);
	CHECK_INT(got.analysis, c->analysis);
	CHECK_INT(got.oom_top, 3);
	CHECK_INT(got.format, MEM_DB);
	CHECK(!memcmp(&got.watch.start, c->watch.start, sizeof(got.watch.start)));
	CHECK_STR(got.watch.end, "c");
	CHECK_INT(got.watch.output_id, 2);
	CHECK(got.watch.on && got.watch.full_content);
	CHECK_STR(got.output_dir, c->output_dir);
	CHECK_INT(got.log_level, LOG_ERROR);
	CHECK_INT(got.compat, ROW_26_0);
	CHECK_INT(got.buffer_mb, 9);
	CHECK_INT(got.wait_ms, 8);
	CHECK_INT(mem_config_want(&got), mem_config_want(c));
}

static void bad_json(const char *text, const char *words)
{
	struct mem_config got = {.buffer_mb = 4711};
	struct err e = {0};

	write_text("bad.json", text, strlen(text));
	CHECK_INT(mem_config_read("bad.json", &got, &e), -EINVAL);
	CHECK_INT(got.buffer_mb, 4711);
	CHECK(strstr(e.text, "'bad.json'"));
	if (!strstr(e.text, words)) {
		fprintf(stderr, "%s: %s\n", text, e.text);
		CHECK(0);
	}
}

TEST(mem_config, json_is_input)
{
	struct mem_config got;

	enter_tmp();
	bad_json("", "line");
	bad_json("[]", "object");
	bad_json("{\"eventType\": 16}", "'eventType'");
	bad_json("{\"eventType\": -1}", "'eventType'");
	bad_json("{\"eventType\": 1.5}", "'eventType'");
	bad_json("{\"eventType\": \"1\"}", "'eventType'");
	bad_json("{\"npuSlots\": 4294967296}", "'npuSlots'");
	bad_json("{\"isEffective\": 1}", "'isEffective'");
	bad_json("{\"outputDir\": \"relative\"}", "absolute");
	bad_json("{\"outputDir\": 3}", "'outputDir'");
	bad_json("{\"compat\": 2}", "'compat'");
	bad_json("{\"eventType\": 1, \"eventType\": 2}", "duplicate");
	bad_json("{\"SelectedStepList\": {\"stepCount\": 6, \"stepIdList\": [1]}}", "stepCount");
	bad_json("{\"SelectedStepList\": {\"stepCount\": 2, \"stepIdList\": [1]}}", "stepCount");
	bad_json("{\"SelectedStepList\": {\"stepCount\": 1, \"stepIdList\": [0]}}", "no step");
	bad_json("{\"SelectedStepList\": {\"stepCount\": 1, \"stepIdList\": 5}}", "stepCount");
	bad_json("{\"watchConfig\": {\"start\": \"a\\u0000b\"}}", "bad.json");
	CHECK_INT(mem_config_read("absent", &got, NULL), -ENOENT);

	const char *some = "{\"cStackDepth\": 5000, \"new\": [], \"watchConfig\": 3, "
			   "\"SelectedStepList\": null}";
	write_text("some.json", some, strlen(some));
	CHECK_INT(mem_config_read("some.json", &got, NULL), 0);
	CHECK_INT(got.c_depth, 1000);
	CHECK_INT(got.dump_events, 7);
	CHECK(!got.effective);
}

/* Every cut and every changed byte of a good file is read or refused, never worse. */
TEST(mem_config, json_damaged)
{
	struct buf text = {0};
	struct mem_config got;

	enter_tmp();
	GOOD("--watch=a,b", "--steps=1,2");
	CHECK_INT(mem_config_write(&o.config, "c.json", NULL), 0);
	CHECK_INT(fs_read_file("c.json", 100000, &text, NULL), 0);
	for (size_t i = 0; i < text.len; i++) {
		char was = text.data[i];

		if (i % 3 == 0) {
			write_text("cut.json", text.data, i);
			(void)mem_config_read("cut.json", &got, NULL);
		}
		text.data[i] = (char)(i % 2 ? '9' : 0xff);
		write_text("cut.json", text.data, text.len);
		(void)mem_config_read("cut.json", &got, NULL);
		text.data[i] = was;
	}
	buf_release(&text);
}

TEST(mem_config, path_that_is_not_utf8)
{
	enter_tmp();
	CHECK(mkdir("x\xff", 0700) == 0 && chdir("x\xff") == 0);
	CHECK_INT(parse((const char *const[]){NULL}), 0);
	CHECK_INT(mem_config_write(&o.config, "c.json", &err), -EILSEQ);
	CHECK(strstr(err.text, "UTF-8"));
}

TEST(mem_config, list_items)
{
	const char *p = WIDE ",a" WIDE "b,,\xef\xbcz";
	struct mem_item i;

	CHECK(mem_list_next(&p, &i) && i.len == 1 && *i.text == 'a');
	CHECK(mem_list_next(&p, &i) && i.len == 1 && *i.text == 'b');
	/* Bytes of the full-width comma alone are not a comma. */
	CHECK(mem_list_next(&p, &i) && i.len == 3);
	CHECK(!mem_list_next(&p, &i));
}
