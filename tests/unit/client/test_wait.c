/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "client/wait.h"

#define S UINT64_C(1000000000)
#define ROW "\"pid\":7,\"clients\":[\"npu\"],\"state\":\"Idle\",\"pending\":false,"

static struct wait_process process;

static void look(enum wait_for what, enum profiler_kind kind, const char *rows, const char *replies,
		 uint64_t now_ns)
{
	struct wait w = {.what = what, .duration_ms = kind == PROFILER_GPUTRACE ? 500 : 0};
	json_t *r = json_loads(rows, 0, NULL), *a = replies ? json_loads(replies, 0, NULL) : NULL;

	CHECK(r && (a || !replies));
	wait_judge(&process, &w, kind, r, a, 3, now_ns);
	json_decref(r);
	json_decref(a);
}

static void begin(void)
{
	free(process.words);
	process = (struct wait_process){.pid = 7};
}

static void check_end(enum wait_state state, const char *words)
{
	CHECK_INT(process.state, state);
	if (words)
		CHECK(process.words && strstr(process.words, words));
	else
		CHECK(!process.words);
	begin();
}

#define EXPECTED "\"expected\":[7],\"waiting\":[]"
static const char idle[] =
	"[{" ROW "\"nputrace\":\"Idle\",\"npumonitor\":\"Idle\",\"traces_ended\":3}]";
static const char tracing[] = "[{" ROW "\"nputrace\":\"Ready\",\"npumonitor\":\"Idle\"}]";
static const char on[] = "[{" ROW "\"nputrace\":\"Idle\",\"npumonitor\":\"Running\"}]";

TEST(wait, who_replies_is_believed)
{
	begin();
	look(WAIT_FILES, PROFILER_NPUTRACE, idle, "{\"expected\":[7],\"waiting\":[7]}", S);
	look(WAIT_FILES, PROFILER_NPUTRACE, tracing, "{" EXPECTED "}", 200 * S);
	CHECK_INT(process.state, WAIT_GOES_ON);
	look(WAIT_FILES, PROFILER_NPUTRACE, "[]",
	     "{\"written\":[{\"pid\":7,\"path\":\"/t\\u001b\"}]}", S);
	check_end(WAIT_DONE, "/t?"); /* whatever has become of the process since */
	look(WAIT_FILES, PROFILER_NPUTRACE, idle,
	     "{" EXPECTED ",\"not_written\":[{\"pid\":7,\"why\":\"no room\"}]}", S);
	check_end(WAIT_FAILED, "no room");
	look(WAIT_FILES, PROFILER_NPUTRACE, idle,
	     "{" EXPECTED ",\"failed\":[{\"pid\":7,\"why\":\"x\"}]}", S);
	check_end(WAIT_FAILED, "x");
	look(WAIT_FILES, PROFILER_NPUTRACE, idle,
	     "{" EXPECTED ",\"told\":[{\"pid\":7,\"what\":\"left out: its rank\"}]}", S);
	check_end(WAIT_LEFT_OUT, "its rank");
	look(WAIT_MONITOR_ON, PROFILER_NPU_MONITOR, on, "{" EXPECTED "}", S);
	check_end(WAIT_DONE, NULL);
	look(WAIT_MONITOR_OFF, PROFILER_NPU_MONITOR, on, "{" EXPECTED "}", S);
	CHECK_INT(process.state, WAIT_GOES_ON);
	look(WAIT_MONITOR_OFF, PROFILER_NPU_MONITOR, idle, "{" EXPECTED "}", S);
	check_end(WAIT_DONE, NULL);
}

TEST(wait, nobody_is_waited_for_in_vain)
{
	begin();
	look(WAIT_FILES, PROFILER_NPUTRACE, tracing, "{" EXPECTED "}", S);
	look(WAIT_FILES, PROFILER_NPUTRACE, tracing, "{\"expected\":[]}", S);
	check_end(WAIT_FAILED, "another request");
	look(WAIT_FILES, PROFILER_NPUTRACE, "[]", "{" EXPECTED "}", S);
	check_end(WAIT_FAILED, "has ended");
	look(WAIT_FILES, PROFILER_NPUTRACE, idle, "{" EXPECTED "}", S);
	look(WAIT_FILES, PROFILER_NPUTRACE, idle, "{" EXPECTED "}", 60 * S);
	CHECK_INT(process.state, WAIT_GOES_ON);
	look(WAIT_FILES, PROFILER_NPUTRACE, tracing, "{" EXPECTED "}", 61 * S);
	look(WAIT_FILES, PROFILER_NPUTRACE, idle, "{" EXPECTED "}", 62 * S);
	look(WAIT_FILES, PROFILER_NPUTRACE, idle, "{" EXPECTED "}", 123 * S);
	check_end(WAIT_FAILED, "has not said");
	/* a framework that has passed the step */
	look(WAIT_FILES, PROFILER_NPUTRACE, idle, NULL, S);
	look(WAIT_FILES, PROFILER_NPUTRACE, idle, NULL, 62 * S);
	check_end(WAIT_FAILED, "no effect");
}

TEST(wait, states_describe_what_a_framework_has_done)
{
	begin();
	look(WAIT_FILES, PROFILER_NPUTRACE, tracing, NULL, S);
	look(WAIT_FILES, PROFILER_NPUTRACE, idle, NULL, S);
	check_end(WAIT_DONE, NULL);
	/* nobody has seen it, but it is counted; a rank for which another process polls */
	look(WAIT_FILES, PROFILER_NPUTRACE,
	     "[{\"pid\":9,\"poller\":7,\"clients\":[\"npu\"],\"nputrace\":\"Idle\",\"traces_"
	     "ended\":4}]",
	     NULL, S);
	check_end(WAIT_DONE, NULL);
	look(WAIT_FILES, PROFILER_NPUTRACE, "[{\"pid\":7,\"pending\":true,\"traces_ended\":4}]",
	     NULL, S);
	CHECK_INT(process.state, WAIT_GOES_ON);
	look(WAIT_MONITOR_OVER, PROFILER_NPU_MONITOR, on, NULL, S);
	CHECK_INT(process.state, WAIT_GOES_ON);
	look(WAIT_MONITOR_OVER, PROFILER_NPU_MONITOR, idle, NULL, S);
	check_end(WAIT_DONE, NULL);
	/* PyTorch's own: busy, and not any more; or for so long not that it must be over */
	look(WAIT_FILES, PROFILER_GPUTRACE, "[{\"pid\":7,\"state\":\"Busy\"}]", NULL, S);
	CHECK_INT(process.state, WAIT_GOES_ON);
	look(WAIT_FILES, PROFILER_GPUTRACE, "[{\"pid\":7,\"state\":\"Idle\"}]", NULL, 2 * S);
	check_end(WAIT_DONE, NULL);
	look(WAIT_FILES, PROFILER_GPUTRACE, "[{\"pid\":7,\"state\":\"Idle\"}]", NULL, S);
	CHECK_INT(process.state, WAIT_GOES_ON);
	look(WAIT_FILES, PROFILER_GPUTRACE, "[{\"pid\":7,\"state\":\"Idle\"}]", NULL, 40 * S);
	check_end(WAIT_DONE, NULL);
	free(process.words);
}
