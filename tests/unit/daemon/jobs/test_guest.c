/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/jobs/jobs.h"
#include "daemon/jobs/jobs_impl.h"

#define MONITOR "NPU_MONITOR_START=true\\nNPU_MONITOR_STOP=false\\nDURATION=0"
#define STOP "NPU_MONITOR_START=false\\nNPU_MONITOR_STOP=true"
#define TRACE "PROFILE_START_STEP=3\\nACTIVITIES_ITERATIONS=2\\nPROFILE_L2_CACHE=true"
#define KINETO "ACTIVITIES_LOG_FILE=/t\\nACTIVITIES_DURATION_MSECS=5"

static struct event_base *base;
static unsigned pokes;

static void on_poke(void *arg, uid_t uid, const struct jobs_address *to)
{
	CHECK(arg == &pokes && to->len > 0);
	(void)uid;
	pokes++;
}

static struct jobs *make(void)
{
	base = event_base_new();
	event_base_priority_init(base, DAEMON_PRIORITIES);
	struct jobs *j = jobs_new(base, 100);
	jobs_on_notify(j, on_poke, &pokes);
	pokes = 0;
	return j;
}

static void end(struct jobs *j)
{
	jobs_free(j);
	event_base_free(base);
}

static struct jobs_address address;

/* Whoever cannot be seen from here is believed. */
static struct jobs_sender sender(uid_t uid, bool guest)
{
	address.len = 20;
	return (struct jobs_sender){
		.uid = uid, .endpoint = "dir", .guest = guest ? &address : NULL};
}

static const char *ask(struct jobs *j, bool guest, int mask, int32_t pid)
{
	static struct buf out;
	char room[sizeof(struct fabric_request) + sizeof(pid)];
	struct fabric_request *r = (struct fabric_request *)room;
	struct jobs_sender from = sender(0, guest);

	*r = (struct fabric_request){.mask = mask, .npids = 1};
	r->pids[0] = pid;
	buf_clear(&out);
	jobs_poll(j, &from, r, 1, &out);
	jobs_delivered(j, true);
	return buf_str(&out);
}

static void tell(struct jobs *j, enum fabric_kind kind, int32_t pid, int state)
{
	struct jobs_sender from = sender(0, true);
	struct fabric_status s = {state, -1, -1, -1, pid, 0, 0};

	jobs_status(j, &from, kind, &s);
}

static void guest(struct jobs *j, int32_t pid)
{
	ask(j, true, 3, pid);
	tell(j, FABRIC_TRACE_STATUS, pid, FABRIC_IDLE);
	tell(j, FABRIC_MONITOR_STATUS, pid, FABRIC_IDLE);
}

static const char *order(struct jobs *j, const char *config, const char *more)
{
	static char *text;
	char request[1024];

	snprintf(request, sizeof(request), "{\"config\":\"%s\",\"pids\":[0]%s}", config, more);
	json_t *q = json_loads(request, 0, NULL);
	CHECK(q != NULL);
	json_t *r = jobs_set_request(j, NULL, q);
	free(text);
	text = json_dumps(r, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(r);
	json_decref(q);
	return text;
}

static const char *monitor_state(struct jobs *j)
{
	static char state[32];
	json_t *r = jobs_get_status(j, NULL, NULL);

	snprintf(state, sizeof(state), "%s", json_string_value(json_object_get(r, "npumonitor")));
	json_decref(r);
	return state;
}

TEST(jobs_guest, a_guest_and_a_framework_are_two_clients_of_one_process)
{
	struct jobs *j = make();

	CHECK_STR(ask(j, false, 3, 42), "");
	guest(j, 42);
	CHECK_INT(jobs_counts(j).processes, 2);
	CHECK(strstr(order(j, MONITOR, ""), "\"processesMatched\":[42]"));
	CHECK_INT(pokes, 1);
	CHECK(strstr(order(j, KINETO, ""), "\"activityProfilersTriggered\":[42]"));
	CHECK_INT(pokes, 1);
	CHECK(strstr(ask(j, true, 3, 42), "NPU_MONITOR_START"));
	CHECK(strstr(ask(j, false, 3, 42), "ACTIVITIES_LOG_FILE"));
	CHECK_STR(ask(j, true, 3, 42), "");
	json_t *none = json_object(), *list = jobs_list(j, NULL, none);
	CHECK_INT(json_integer_value(json_object_get(list, "total")), 1);
	json_decref(list);
	json_decref(none);
	end(j);
}

TEST(jobs_guest, takes_orders_from_its_first_word_on)
{
	struct jobs *j = make();

	ask(j, true, 3, 42); /* its states follow a moment later */
	CHECK_STR(monitor_state(j), "Idle");
	CHECK(strstr(order(j, MONITOR, ""), "\"activityProfilersTriggered\":[42]"));
	CHECK(strstr(ask(j, true, 3, 42), "NPU_MONITOR_START"));
	end(j);
}

TEST(jobs_guest, a_limit_that_nobody_meant_is_none)
{
	struct jobs *j = make();

	for (int32_t pid = 1; pid <= 8; pid++)
		guest(j, pid);
	CHECK(strstr(order(j, MONITOR, ",\"process_limit\":3"),
		     "\"activityProfilersTriggered\":[1,2,3,4,5,6,7,8]"));
	for (int32_t pid = 1; pid <= 8; pid++)
		ask(j, true, 3, pid);
	CHECK(strstr(order(j, MONITOR, ",\"process_limit\":3,\"process_limit_is_meant\":true"),
		     "\"activityProfilersTriggered\":[1,2,3]"));
	CHECK(strstr(order(j, TRACE, ",\"process_limit\":2"),
		     "\"activityProfilersTriggered\":[4,5]") ||
	      strstr(order(j, TRACE, ",\"process_limit\":2"), "\"activityProfilersBusy\":"));
	end(j);
}

TEST(jobs_guest, what_it_cannot_is_named)
{
	static const char can[] = "PROFILE_START_STEP ACTIVITIES_ITERATIONS";
	struct jobs_sender from = sender(0, true);
	struct jobs *j = make();

	CHECK(!jobs_can(j, &from, can, sizeof(can) - 1)); /* nobody is there yet */
	guest(j, 5);
	CHECK(!strstr(order(j, TRACE, ""), "notHonoured"));
	ask(j, true, 3, 5);
	CHECK(jobs_can(j, &from, can, sizeof(can) - 1));
	CHECK(strstr(order(j, TRACE, ""), "\"notHonoured\":[\"--l2-cache\"]"));
	ask(j, true, 3, 5);
	CHECK(strstr(order(j, "PROFILE_START_STEP=3\\nPROFILE_L2_CACHE=false", ""),
		     "\"activityProfilersTriggered\":[5]"));
	CHECK(!strstr(order(j, "PROFILE_START_STEP=3\\nPROFILE_L2_CACHE=false", ""),
		      "notHonoured"));
	/* words that are none, and far too many of them */
	char many[5000];
	memset(many, 'A', sizeof(many));
	CHECK(!jobs_can(j, &from, many, sizeof(many)));
	CHECK(jobs_can(j, &from, "\0  \xff PROFILE", 13));
	CHECK(jobs_can(j, &from, "", 0));
	from.guest = NULL;
	CHECK(!jobs_can(j, &from, can, sizeof(can) - 1));
	end(j);
}

TEST(jobs_guest, a_recording_is_not_called_a_monitor)
{
	static const char can[] = "SONDE_RECORD PROFILE_START_STEP";
	struct jobs_sender from = sender(0, true);
	struct jobs *j = make();

	guest(j, 5);
	ask(j, true, 3, 5);
	tell(j, FABRIC_MONITOR_STATUS, 5, FABRIC_RUNNING);
	CHECK(strstr(order(j, TRACE, ",\"with_reason\":true"), "npu-monitor is running"));
	CHECK(jobs_can(j, &from, can, sizeof(can) - 1));
	const char *why = order(j, TRACE, ",\"with_reason\":true");
	CHECK(strstr(why, "ineffective") && strstr(why, "'sonde record --dump PID'"));
	CHECK(!strstr(why, "--npu-monitor-stop"));
	CHECK(jobs_can(j, &from, can + 13, sizeof(can) - 14)); /* it has ended */
	CHECK(strstr(order(j, TRACE, ",\"with_reason\":true"), "npu-monitor is running"));
	end(j);
}

TEST(jobs_guest, a_stop_takes_the_place_of_a_start_that_was_not_fetched)
{
	struct jobs *j = make();

	guest(j, 5);
	order(j, MONITOR, "");
	CHECK(strstr(order(j, TRACE, ""), "\"activityProfilersBusy\":1"));
	CHECK(strstr(order(j, STOP, ""), "\"activityProfilersTriggered\":[5]"));
	CHECK_INT(pokes, 2);
	CHECK(strstr(ask(j, true, 3, 5), "NPU_MONITOR_STOP=true"));
	CHECK_STR(ask(j, true, 3, 5), "");
	end(j);
}

static void framework(struct jobs *j, int32_t pid)
{
	struct jobs_sender from = sender(0, false);
	struct fabric_status s = {FABRIC_IDLE, -1, -1, -1, pid, 0, 0};

	ask(j, false, 3, pid);
	jobs_status(j, &from, FABRIC_TRACE_STATUS, &s);
	jobs_status(j, &from, FABRIC_MONITOR_STATUS, &s);
}

/* Of 5, 6 and 7, which are guests, and 9, a framework: how many are told that others are not. */
static unsigned told_of_others(struct jobs *j, const char *more)
{
	unsigned n = 0;

	CHECK(strstr(order(j, TRACE, more), "\"commandStatus\":\"effective\""));
	for (int32_t pid = 5; pid < 8; pid++)
		n += !!strstr(ask(j, true, 3, pid), "\nSONDE_OTHERS_LEFT_OUT=true\n");
	CHECK(!strstr(ask(j, false, 3, 9), "SONDE_"));
	return n;
}

TEST(jobs_guest, a_trace_knows_whether_others_were_left_out)
{
	struct jobs *j = make();

	for (int32_t pid = 5; pid < 8; pid++)
		guest(j, pid);
	framework(j, 9);
	CHECK_INT(told_of_others(j, ""), 0);
	CHECK_INT(told_of_others(j, ",\"pids\":[5,6,7,9]"), 0);
	CHECK_INT(told_of_others(j, ",\"pids\":[5,9]"), 1);
	CHECK_INT(told_of_others(j, ",\"pids\":[5,6,7]"), 3);
	CHECK_INT(told_of_others(j, ",\"process_limit\":2"), 2);
	CHECK_INT(told_of_others(j, ",\"process_limit\":4"), 0);
	/* what the usual dyno sends is not meant for guests */
	CHECK_INT(told_of_others(j, ",\"process_limit\":3"), 0);
	CHECK_INT(told_of_others(j, ",\"process_limit\":3,\"process_limit_is_meant\":true"), 3);
	/* a monitor needs not know */
	order(j, MONITOR, ",\"pids\":[5]");
	CHECK(!strstr(ask(j, true, 3, 5), "SONDE_"));
	end(j);
}

TEST(jobs_guest, the_monitor_steps_aside_and_resumes)
{
	struct jobs *j = make();

	ask(j, false, 3, 42);
	guest(j, 42);
	tell(j, FABRIC_MONITOR_STATUS, 42, FABRIC_RUNNING);
	order(j, KINETO, "");
	CHECK_INT(pokes, 1);
	CHECK_STR(ask(j, false, 3, 42), "");
	CHECK(strstr(ask(j, true, 3, 42), "SONDE_PAUSE=true"));
	CHECK_STR(monitor_state(j), "Running");
	tell(j, FABRIC_MONITOR_STATUS, 42, FABRIC_IDLE);
	CHECK_STR(monitor_state(j), "Ready");
	CHECK(strstr(order(j, TRACE, ""), "\"commandStatus\":\"unknown\""));
	CHECK(strstr(ask(j, false, 3, 42), "ACTIVITIES_LOG_FILE"));
	CHECK_STR(ask(j, false, 3, 42), ""); /* it has not begun yet */
	CHECK_STR(ask(j, true, 3, 42), "");
	ask(j, false, 1, 42);
	order(j, MONITOR, ""); /* waits */
	CHECK_STR(ask(j, true, 3, 42), "");
	ask(j, false, 3, 42);
	CHECK(strstr(ask(j, true, 3, 42), "SONDE_PAUSE=false"));
	CHECK(strstr(ask(j, true, 3, 42), "NPU_MONITOR_START=true"));
	tell(j, FABRIC_MONITOR_STATUS, 42, FABRIC_RUNNING);
	CHECK_STR(monitor_state(j), "Running");
	CHECK_INT(jobs_counts(j).pauses, 1);
	CHECK_INT(jobs_counts(j).unpaused, 0);
	end(j);
}

/* A second trace before the first one is over, and the end in any state, with nothing left over. */
TEST(jobs_guest, traces_one_after_the_other)
{
	for (int until = 0; until < 6; until++) {
		struct jobs *j = make();

		ask(j, false, 3, 42);
		guest(j, 42);
		tell(j, FABRIC_MONITOR_STATUS, 42, FABRIC_RUNNING);
		order(j, KINETO, "");
		if (until > 0)
			ask(j, true, 3, 42);
		if (until > 1)
			tell(j, FABRIC_MONITOR_STATUS, 42, FABRIC_IDLE);
		if (until > 2)
			CHECK(strstr(ask(j, false, 3, 42), "/t"));
		if (until > 3) {
			order(j, KINETO, "");
			ask(j, false, 1, 42);
			CHECK(strstr(ask(j, false, 3, 42), "/t"));
		}
		if (until > 4) {
			ask(j, false, 1, 42);
			ask(j, false, 3, 42);
			CHECK(strstr(ask(j, true, 3, 42), "SONDE_PAUSE=false"));
			/* before it runs again */
			order(j, KINETO, "");
			CHECK_STR(ask(j, false, 3, 42), "");
			CHECK(strstr(ask(j, true, 3, 42), "SONDE_PAUSE=true"));
		}
		end(j);
	}
}

/* --- the end of traces --- */

static const char *stop(struct jobs *j, const char *target)
{
	static char *text;
	json_t *q = json_loads(target, 0, NULL);

	CHECK(q != NULL);
	json_t *r = jobs_stop_trace(j, NULL, q);
	free(text);
	text = json_dumps(r, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(r);
	json_decref(q);
	return text;
}

#define EVERYBODY "{\"pids\":[0]}"

TEST(jobs_guest, a_guest_is_told_to_end_its_trace_whatever_it_does)
{
	struct jobs *j = make();

	guest(j, 5);
	guest(j, 6);
	tell(j, FABRIC_TRACE_STATUS, 5, FABRIC_RUNNING);
	ask(j, true, FABRIC_EVENTS, 5); /* takes no new order */
	CHECK(strstr(stop(j, EVERYBODY), "\"activityProfilersTriggered\":[5,6]"));
	CHECK_INT(pokes, 2);
	const char *text = ask(j, true, FABRIC_EVENTS, 5);
	CHECK(strstr(text, "SONDE_TRACE_STOP=true\nREQUEST_TRACE_ID="));
	CHECK_STR(ask(j, true, FABRIC_EVENTS, 5), "");
	/* one that was not fetched gives way to the next, and comes before a new trace */
	stop(j, EVERYBODY);
	order(j, TRACE, "");
	CHECK(strstr(ask(j, true, 3, 6), "SONDE_TRACE_STOP=true"));
	CHECK(strstr(ask(j, true, 3, 6), "PROFILE_START_STEP=3"));
	CHECK_STR(ask(j, true, 3, 6), "");
	CHECK_STR(stop(j, "{\"pids\":[7]}"), "{\"activityProfilersTriggered\":[],\"notStopped\":[],"
					     "\"processesMatched\":[],\"tracesDropped\":[]}");
	CHECK(strstr(stop(j, "{\"pids\":\"x\"}"), "type must be array"));
	CHECK(strstr(stop(j, "{}"), "failed"));
	end(j);
}

TEST(jobs_guest, a_trace_that_was_not_fetched_is_taken_back)
{
	struct jobs *j = make();

	guest(j, 5);
	order(j, TRACE, "");
	CHECK(strstr(stop(j, EVERYBODY), "\"tracesDropped\":[5]"));
	CHECK(strstr(ask(j, true, 3, 5), "SONDE_TRACE_STOP=true"));
	CHECK_STR(ask(j, true, 3, 5), "");
	/* but nothing else is */
	order(j, MONITOR, "");
	CHECK(strstr(stop(j, EVERYBODY), "\"tracesDropped\":[]"));
	CHECK(strstr(ask(j, true, 3, 5), "SONDE_TRACE_STOP=true"));
	CHECK(strstr(ask(j, true, 3, 5), "NPU_MONITOR_START=true"));
	end(j);
}

TEST(jobs_guest, a_stop_does_not_get_lost_beside_a_pause)
{
	struct jobs *j = make();

	ask(j, false, 3, 42);
	guest(j, 42);
	tell(j, FABRIC_MONITOR_STATUS, 42, FABRIC_RUNNING);
	stop(j, EVERYBODY);
	order(j, KINETO, "");
	pokes = 0;
	CHECK(strstr(ask(j, true, 3, 42), "SONDE_PAUSE=true"));
	CHECK_INT(pokes, 1); /* there is more */
	CHECK(strstr(ask(j, true, 3, 42), "SONDE_TRACE_STOP=true"));
	CHECK_STR(ask(j, true, 3, 42), "");
	end(j);
}

TEST(jobs_guest, frameworks_that_trace_are_named)
{
	struct jobs *j = make();
	struct jobs_sender from = sender(0, false);
	struct fabric_status s = {FABRIC_RUNNING, 3, 4, 6, 8, 0, 0};

	ask(j, false, 3, 7); /* PyTorch's profiler, which does nothing */
	CHECK(strstr(stop(j, EVERYBODY), "\"processesMatched\":[]"));
	order(j, KINETO, "");
	CHECK(strstr(stop(j, EVERYBODY), "\"tracesDropped\":[]")); /* none of nputrace */
	CHECK(strstr(ask(j, false, 3, 7), "ACTIVITIES_LOG_FILE"));
	ask(j, false, FABRIC_EVENTS, 7);
	const char *said = stop(j, EVERYBODY);
	CHECK(strstr(said, "\"pid\":7,\"why\":\"its trace is taken by PyTorch's own"));
	CHECK(!strstr(said, "requestTraceId"));
	/* the rank of an NPU framework does nothing but report, and may be named all the same */
	jobs_status(j, &from, FABRIC_TRACE_STATUS, &s);
	CHECK(strstr(stop(j, "{\"pids\":[8]}"),
		     "\"notStopped\":[{\"pid\":8,\"why\":\"its trace is taken by the framework"));
	s.state = FABRIC_IDLE;
	jobs_status(j, &from, FABRIC_TRACE_STATUS, &s);
	CHECK(strstr(stop(j, "{\"pids\":[8]}"), "\"notStopped\":[]"));
	CHECK(strstr(stop(j, "{\"pids\":[8],\"job_id\":3}"), "\"processesMatched\":[]"));
	end(j);
}

/* --- what guests say --- */

static const char *answers(struct jobs *j, const char *id)
{
	static char *text;
	json_t *q = json_pack("{ss}", "request", id);
	json_t *r = jobs_get_replies(j, NULL, q);

	free(text);
	text = json_dumps(r, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(r);
	json_decref(q);
	return text;
}

static bool describe_to(struct jobs *j, const char *text, size_t len)
{
	struct jobs_sender from = sender(getuid(), true);

	from.pid = getpid();
	return jobs_replied(j, &from, text, len);
}

TEST(jobs_guest, what_became_of_an_order)
{
	struct jobs *j = make();
	struct jobs_sender from = sender(getuid(), true);
	int code;

	from.pid = getpid();
	struct jobs_process *p = jobs_register(j, &from, 0, getpid(), &code);
	CHECK(p && p->guest);
	jobs_expect_reply(p, &(struct jobs_config){.id = 77});
	CHECK(strstr(answers(j, "77"),
		     "\"failed\":[],\"not_written\":[],\"told\":[],\"waiting\":["));
	CHECK(describe_to(j, "77 ", 3));
	CHECK(strstr(answers(j, "77"), "{\"done\":1,\"expected\":["));
	CHECK(strstr(answers(j, "77"), "\"told\":[],\"waiting\":[],\"written\":[]}"));
	CHECK(describe_to(j, "77 +ended in step 4", 19));
	CHECK(strstr(answers(j, "77"), "\"failed\":[],\"not_written\":[],\"told\":[{"));
	CHECK(strstr(answers(j, "77"), "\"what\":\"ended in step 4\""));
	CHECK(describe_to(j, "77 not \xff\n so", 12));
	CHECK(strstr(answers(j, "77"), "{\"done\":0,") &&
	      strstr(answers(j, "77"), "\"failed\":[{"));
	CHECK(strstr(answers(j, "77"), "\"why\":\"not \xef\xbf\xbd? so\""));
	CHECK(describe_to(j, "77 +", 4));
	CHECK(strstr(answers(j, "77"), "\"what\":\"\""));
	CHECK(describe_to(j, "78 of another", 13));
	CHECK(strstr(answers(j, "78"), "{\"done\":0,\"expected\":[],\"failed\":[]"));
	CHECK(!describe_to(j, "77", 2) && !describe_to(j, "", 0));
	/* more than is kept: it ends where a character does */
	char text[600] = "77 +x";
	for (int i = 0; i < 200; i++)
		memcpy(text + 5 + 2 * i, "\xc3\xa9", 2);
	CHECK(describe_to(j, text, 405));
	CHECK(strstr(answers(j, "77"), "\"what\":\"x\xc3\xa9") && !strchr(answers(j, "77"), '?'));
	end(j);
}

static bool write_files(struct jobs *j, uid_t uid, const char *text)
{
	struct jobs_sender from = sender(uid, false);

	return jobs_files(j, &from, text, strlen(text));
}

TEST(jobs_guest, what_became_of_the_files_of_a_trace)
{
	struct jobs *j = make();
	struct jobs_sender from = sender(5, true);
	int code;

	struct jobs_process *p = jobs_register(j, &from, 0, 4242, &code);
	jobs_expect_reply(p, &(struct jobs_config){.id = 77, .is_npu_trace = true});
	CHECK(write_files(j, 5, "4242 78 +/of/another")); /* and nobody asks for it any more */
	CHECK(!write_files(j, 6, "4242 77 +/of/another/user"));
	CHECK(write_files(j, 5, "4243 77 +/of/nobody"));
	CHECK(write_files(j, 5, "4242 77") && write_files(j, 5, "4242"));
	CHECK(write_files(j, 5, "x 4242 77 +/a") && write_files(j, 5, "4242 77+/a"));
	CHECK(strstr(answers(j, "77"), "\"written\":[]") && !p->guest->files);
	CHECK(write_files(j, 5, "4242 77 no room\n"));
	CHECK(strstr(answers(j, "77"), "\"not_written\":[{\"pid\":4242,\"why\":\"no room?\"}]"));
	CHECK(write_files(j, 5, "4242 77 +/t/a b"));
	CHECK(strstr(answers(j, "77"), "\"written\":[{\"path\":\"/t/a b\",\"pid\":4242}]"));
	/* what comes next does not take it away, until it is a trace */
	jobs_expect_reply(p, &(struct jobs_config){.id = 79});
	CHECK(strstr(answers(j, "77"), "\"expected\":[4242]") &&
	      strstr(answers(j, "77"), "/t/a b"));
	jobs_expect_reply(p, &(struct jobs_config){.id = 80, .is_npu_trace = true});
	CHECK(strstr(answers(j, "77"), "\"expected\":[],") && !strstr(answers(j, "77"), "/t/a b"));
	end(j);
}

/* --- reports --- */

static int report(struct jobs *j, struct jobs_sender from, int pid, unsigned rows)
{
	struct buf b = {0};

	buf_addf(&b, "{\"pid\":%d,\"from\":1,\"to\":2,\"rows\":[", pid);
	for (unsigned i = 0; i < rows; i++)
		buf_addf(&b,
			 "%s{\"kind\":\"Kernel\",\"name\":\"%0100u\",\"calls\":9,\"total_ns\":9}",
			 i ? "," : "", i);
	buf_add_str(&b, "]}");
	int r = jobs_top(j, &from, b.data, b.len);
	buf_release(&b);
	return r;
}

TEST(jobs_guest, reports_are_of_processes_of_the_same_user)
{
	struct jobs_sender other = {.uid = 12345, .endpoint = "dir"};
	struct jobs *j = make();

	CHECK_INT(report(j, sender(0, false), 42, 1), -ESRCH);
	guest(j, 42);
	CHECK_INT(report(j, sender(0, false), 42, 1), 0);
	CHECK_INT(report(j, other, 42, 1), -EPERM);
	CHECK_INT(report(j, sender(0, false), 43, 1), -ESRCH);
	CHECK_INT(jobs_counts(j).late_reports, 2);
	CHECK_INT(jobs_top(j, &other, "{", 1), -EINVAL);
	CHECK_INT(jobs_counts(j).reports, 1);
	end(j);
}

TEST(jobs_guest, one_user_does_not_fill_the_memory)
{
	struct jobs *j = make();
	int taken = 0, refused = 0;

	jobs_free(j);
	j = jobs_new(base, 100000);
	for (int32_t pid = 1; pid <= 2000 && refused < 50; pid++) {
		struct jobs_sender from = {.uid = 12345, .endpoint = "dir"};
		struct fabric_context c = {0, pid, 0};

		jobs_context(j, &from, &c);
		int r = report(j, from, pid, 400);
		taken += r == 0;
		refused += r == -EDQUOT;
		CHECK(r == 0 || r == -EDQUOT);
	}
	CHECK(taken > 0 && refused == 50);
	/* another one has room */
	struct jobs_sender from = {.uid = 12346, .endpoint = "dir"};
	struct fabric_context c = {0, 7, 0};
	jobs_context(j, &from, &c);
	CHECK_INT(report(j, from, 7, 400), 0);
	end(j);
}
