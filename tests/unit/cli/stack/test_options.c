/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/stack/options.h"

#include "test.h"

TEST(stack_options, seconds)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good[] = {{"0.1", 100000000},	  {"60", 60000000000},	 {"0", 0},
		    {"1ms", 1000000},	  {"200us", 200000},	 {"1.5s", 1500000000},
		    {"2m", 120000000000}, {"1min", 60000000000}, {"1h", 3600000000000},
		    {"1e-3", 1000000},	  {".5", 500000000},	 {"1d", 86400000000000}};
	static const char *const bad[] = {"",	 "-1", "+1",	" 1",	"0x10", "inf", "nan", "1 s",
					  "1ns", "ms", "1e9s1", "1e30", "1..2", "1,5", "s"};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		uint64_t ns = 7;

		CHECK(stack_seconds(good[i].text, &ns));
		CHECK_INT(ns, good[i].ns);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint64_t ns = 7;

		CHECK(!stack_seconds(bad[i], &ns));
		CHECK_INT(ns, 7);
	}
}

static int parse(struct stack_command_options *o, struct err *err, int argc, char **argv)
{
	static const char *const usage[] = {"", NULL};
	static const struct args_spec spec = {
		.name = "test", .usage = usage, .options = stack_option_rows};
	struct args a = {.target = o};

	stack_command_options_init(o);
	int r = args_parse(&a, &spec, argc, argv, err);
	if (r >= 0)
		r = stack_command_options_complete(o, &a, err);
	args_release(&a);
	return r;
}

#define PARSE(o, err, ...)                                                                         \
	parse(o, err, sizeof((char *[]){__VA_ARGS__}) / sizeof(char *), (char *[]){__VA_ARGS__})

TEST(stack_options, pids)
{
	struct stack_command_options o;
	struct err err = {0};
	char p[] = "-p", list[] = "12, 13,12", more[] = "--pid=14", bad[] = "1,x", none[] = ",";
	char zero[] = "0", big[] = "9999999999";

	CHECK_INT(PARSE(&o, &err, p, list, more), 0);
	CHECK_INT(o.s.pids.n, 3);
	CHECK_INT(o.s.pids.list[0], 12);
	CHECK_INT(o.s.pids.list[1], 13);
	CHECK_INT(o.s.pids.list[2], 14);
	CHECK(stack_options_fixed(&o.s));
	stack_command_options_release(&o);
	CHECK(PARSE(&o, &err, p, bad) < 0);
	CHECK(strstr(err.text, "'x'"));
	stack_command_options_release(&o);
	CHECK(PARSE(&o, &err, p, none) < 0);
	CHECK(strstr(err.text, "empty pid list"));
	stack_command_options_release(&o);
	CHECK(PARSE(&o, &err, p, zero) < 0);
	stack_command_options_release(&o);
	CHECK(PARSE(&o, &err, p, big) < 0);
	stack_command_options_release(&o);
}

TEST(stack_options, defaults)
{
	struct stack_command_options o;
	struct discover_rules rules;
	struct err err = {0};
	char quick[] = "--cpu-mem-timeout=0", gz[] = "--gzip", pprof[] = "--format=pprof";

	CHECK_INT(PARSE(&o, &err, quick), 0);
	CHECK_INT(o.s.interval_ns, 100000000);
	CHECK_INT(o.s.snapshot_ns, 7200000000000);
	CHECK_INT(o.host_timeout_ns, 100000000); /* the least */
	CHECK_INT(o.s.npu_timeout_ns, 2000000000);
	CHECK_STR(o.s.output, "stack_trace.json");
	CHECK_STR(o.s.autosave_output, "stack_trace.json");
	CHECK_STR(o.pid_file, "stack_trace.json.pids");
	CHECK_STR(o.detach_log, "stack_trace.json.wrapper.log");
	stack_options_rules(&o.s, &rules);
	CHECK_INT(rules.devices, DISCOVER_AUTO);
	CHECK_INT(rules.min_npu_mb, 5000);
	CHECK_INT(rules.refresh_ms, 30000);
	CHECK_INT(rules.refresh_empty_ms, 5000);
	CHECK(!stack_options_fixed(&o.s));
	stack_command_options_release(&o);
	CHECK_INT(PARSE(&o, &err, gz), 0);
	CHECK_STR(o.s.output, "stack_trace.json.gz");
	stack_command_options_release(&o);
	CHECK(PARSE(&o, &err, gz, pprof) < 0);
	stack_command_options_release(&o);
	CHECK_INT(PARSE(&o, &err, pprof), 0);
	CHECK_STR(o.s.output, "stack_trace.pb.gz");
	stack_command_options_release(&o);
}

TEST(stack_options, rules)
{
	struct stack_command_options o;
	struct discover_rules rules;
	struct err err = {0};
	char pid[] = "-p12", name[] = "--name=train", debug[] = "--debug-pid-discovery";
	char children[] = "--children";

	CHECK_INT(PARSE(&o, &err, pid, debug), 0);
	stack_options_rules(&o.s, &rules);
	CHECK_INT(rules.devices, DISCOVER_NO_DEVICE);
	CHECK_INT(rules.refresh_ms, 0); /* a list does not grow */
	CHECK_INT(rules.refresh_empty_ms, 0);
	CHECK_INT(rules.min_npu_mb, 0);
	stack_command_options_release(&o);
	CHECK_INT(PARSE(&o, &err, pid, children), 0);
	stack_options_rules(&o.s, &rules);
	CHECK_INT(rules.refresh_ms, 1000);
	CHECK(rules.children);
	stack_command_options_release(&o);
	CHECK_INT(PARSE(&o, &err, name), 0);
	stack_options_rules(&o.s, &rules);
	CHECK_INT(rules.refresh_ms, 1000);
	CHECK_INT(rules.refresh_empty_ms, 1000);
	CHECK(!stack_options_fixed(&o.s));
	stack_command_options_release(&o);
}

TEST(stack_options, options_passed_word_by_word)
{
	struct stack_command_options o;
	struct err err = {0};
	char arg[] = "--sniffer-arg", i[] = "-i", v[] = "0.5", all[] = "--sniffer-arg=--all-thread";
	char bad[] = "--sniffer-arg=--nonsense";

	CHECK_INT(PARSE(&o, &err, arg, i, arg, v, all), 0);
	CHECK_INT(o.s.interval_ns, 500000000);
	CHECK(o.s.all_threads);
	stack_command_options_release(&o);
	CHECK(PARSE(&o, &err, bad) < 0);
	CHECK(strstr(err.text, "--nonsense"));
	stack_command_options_release(&o);
}
