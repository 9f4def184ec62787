/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/request.h"

#include "base/text/table.h"
#include "test.h"

static struct ctl_outcome outcome(const char *text)
{
	json_t *reply = json_loads(text, 0, NULL);
	struct ctl_outcome o = ctl_outcome_read(reply);

	CHECK(reply != NULL);
	json_decref(reply);
	return o;
}

TEST(ctl_outcome, reads_every_answer)
{
	CHECK_INT(ctl_outcome_read(NULL).state, CTL_FAILED);
	CHECK_INT(outcome("{\"commandStatus\":\"ineffective\"}").state, CTL_INEFFECTIVE);
	CHECK_INT(outcome("{\"commandStatus\":\"unknown\"}").state, CTL_UNKNOWN);
	CHECK_INT(outcome("{\"status\":\"failed\"}").state, CTL_REFUSED);
	CHECK_INT(outcome("{\"processesMatched\":7}").state, CTL_REFUSED);
	CHECK_INT(outcome("{\"processesMatched\":[]}").state, CTL_NO_MATCH);
	CHECK_INT(outcome("{\"processesMatched\":[1]}").state, CTL_HELD);
	CHECK_INT(outcome("{\"processesMatched\":[1],\"activityProfilersBusy\":1}").state,
		  CTL_BUSY);
	CHECK_INT(outcome("{\"processesMatched\":[],\"notYours\":1}").state, CTL_REFUSED);
	CHECK_INT(outcome("{\"commandStatus\":\"ineffective\",\"notYours\":1}").state,
		  CTL_INEFFECTIVE);
	struct ctl_outcome o = outcome("{\"processesMatched\":[1,2,3],\"commandStatus\":"
				       "\"effective\",\"activityProfilersTriggered\":[1]}");
	CHECK_INT(o.state, CTL_TRIGGERED);
	CHECK_INT(o.matched, 3);
	CHECK_INT(o.triggered, 1);
}

static const char *why(enum ctl_kind kind, const char *reply, const char *explained,
		       const char *status)
{
	static struct buf text;
	struct ctl_outcome o = outcome(reply);
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

	CHECK_STR(why(CTL_NPUTRACE, held, "{\"reason\":\"because\"}", NULL), "because");
	CHECK(strstr(why(CTL_GPUTRACE, held, NULL, "{\"nputrace\":\"Uninitialized\"}"),
		     "traces no others"));
	CHECK(strstr(why(CTL_NPUTRACE, held, NULL, "{\"npumonitor\":\"Running\"}"),
		     "'dyno npu-monitor --npu-monitor-stop'"));
	CHECK(strstr(why(CTL_NPU_MONITOR, held, NULL, "{\"nputrace\":\"Running\"}"),
		     "'dyno status' says Idle"));
	CHECK(strstr(why(CTL_NPUTRACE, held, NULL, "{\"nputrace\":\"Uninitialized\"}"),
		     "MSMONITOR_USE_DAEMON=1"));
	CHECK(strstr(why(CTL_GPUTRACE, "{\"processesMatched\":[]}", NULL, NULL),
		     "KINETO_USE_DAEMON=1"));
}

TEST(ctl_outcome, tells_who_was_left_out)
{
	struct ctl_outcome o = {.state = CTL_TRIGGERED, .matched = 8, .triggered = 3};
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

TEST(table, columns)
{
	static const char *const titles[] = {"A", ">N", "TEXT", NULL};
	struct table t = {.titles = titles};
	struct buf b = {0};

	table_textf(&t, "long name");
	table_textf(&t, "%d", 7);
	table_textf(&t, "x\033[2Jy");
	table_textf(&t, "b");
	table_textf(&t, "100");
	table_textf(&t, "%s", "");
	table_print(&t, 0, &b);
	CHECK(!memchr(b.data, '\033', b.len));
	CHECK_INT(strncmp(buf_str(&b), "A            N  TEXT\nlong name    7  x", 37), 0);
	CHECK(strstr(buf_str(&b), "\nb          100\n"));
	buf_clear(&b);
	table_print(&t, 5, &b);
	CHECK(strstr(buf_str(&b), "\nlong\n"));
	buf_release(&b);
	table_release(&t);
}
