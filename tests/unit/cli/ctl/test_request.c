/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/request.h"

#include "test.h"

static struct profiler_outcome outcome(const char *text)
{
	json_t *reply = json_loads(text, 0, NULL);
	struct profiler_outcome o = profiler_outcome_read(reply);

	CHECK(reply != NULL);
	json_decref(reply);
	return o;
}

static const char *why(enum profiler_kind kind, const char *reply, const char *explained,
		       const char *status)
{
	static struct buf text;
	struct profiler_outcome o = outcome(reply);
	json_t *e = explained ? json_loads(explained, 0, NULL) : NULL;
	json_t *s = status ? json_loads(status, 0, NULL) : NULL;

	buf_clear(&text);
	ctl_outcome_why(kind, &o, e, s, "dyno", &text);
	json_decref(e);
	json_decref(s);
	return buf_str(&text);
}

TEST(ctl_outcome, says_what_to_do)
{
	static const char held[] = "{\"commandStatus\":\"ineffective\"}";

	CHECK_STR(why(PROFILER_NPUTRACE, held, "{\"reason\":\"because\"}", NULL), "because");
	CHECK(strstr(why(PROFILER_GPUTRACE, held, NULL, "{\"nputrace\":\"Uninitialized\"}"),
		     "traces no others"));
	CHECK(strstr(why(PROFILER_NPUTRACE, held, NULL, "{\"npumonitor\":\"Running\"}"),
		     "'dyno npu-monitor --npu-monitor-stop'"));
	CHECK(strstr(why(PROFILER_NPU_MONITOR, held, NULL, "{\"nputrace\":\"Running\"}"),
		     "'dyno status' says Idle"));
	CHECK(strstr(why(PROFILER_NPUTRACE, held, NULL, "{\"nputrace\":\"Uninitialized\"}"),
		     "MSMONITOR_USE_DAEMON=1"));
	CHECK(strstr(why(PROFILER_GPUTRACE, "{\"processesMatched\":[]}", NULL, NULL),
		     "KINETO_USE_DAEMON=1"));
}

TEST(ctl_outcome, names_processes_left_out)
{
	struct profiler_outcome o = {.state = PROFILER_TRIGGERED, .matched = 8, .triggered = 3};
	struct buf b = {0};

	ctl_outcome_rest(&o, 3, &b);
	CHECK_STR(buf_str(&b), "5 more matched and were left out: --process-limit is 3, ask for "
			       "all with --process-limit 8");
	buf_clear(&b);
	o.busy = 5;
	ctl_outcome_rest(&o, 8, &b);
	CHECK_STR(buf_str(&b), "5 more matched, but have not fetched an earlier request yet");
	buf_clear(&b);
	o.triggered = 8;
	ctl_outcome_rest(&o, 3, &b);
	CHECK_INT(b.len, 0);
	buf_release(&b);
}
