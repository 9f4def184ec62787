/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/jobs/jobs.h"
#include "daemon/jobs/jobs_impl.h"
#include "wire/rank_env.h"

static struct event_base *base;

static struct jobs *make(unsigned max_per_uid)
{
	base = event_base_new();
	event_base_priority_init(base, DAEMON_PRIORITIES);
	return jobs_new(base, max_per_uid);
}

static void end(struct jobs *j)
{
	jobs_free(j);
	event_base_free(base);
}

/* As root here, so that it may speak for any pid. Not visible: pid 0. */
static struct jobs_sender sender(pid_t pid)
{
	return (struct jobs_sender){.pid = pid, .uid = 0, .endpoint = "abstract"};
}

static struct fabric_request *make_request(int mask, int64_t job_id, const int32_t *pids, int n)
{
	struct fabric_request *r = malloc(sizeof(*r) + (size_t)n * sizeof(*pids));

	*r = (struct fabric_request){.mask = mask, .npids = n, .job_id = job_id};
	memcpy(r->pids, pids, (size_t)n * sizeof(*pids));
	return r;
}

/* A request; gives its answer, good until the next one. */
static const char *ask(struct jobs *j, struct jobs_sender from, int mask, int64_t job_id,
		       const int32_t *pids, int n)
{
	static struct buf out;
	struct fabric_request *r = make_request(mask, job_id, pids, n);

	buf_clear(&out);
	jobs_poll(j, &from, r, (unsigned)n, &out);
	jobs_delivered(j, true);
	free(r);
	return buf_str(&out);
}

static const char *ask1(struct jobs *j, int32_t pid)
{
	return ask(j, sender(0), 3, 0, &pid, 1);
}

static void tell(struct jobs *j, enum fabric_kind kind, int32_t pid, int state, int step, int start,
		 int stop)
{
	struct jobs_sender from = sender(0);
	struct fabric_status s = {state, step, start, stop, pid, 0, 0};

	jobs_status(j, &from, kind, &s);
}

/* Text of a reply, keys sorted. */
static const char *text(json_t *reply)
{
	static char *last;

	free(last);
	last = json_dumps(reply, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(reply);
	return last;
}

static const char *order(struct jobs *j, const char *request)
{
	json_error_t e;
	json_t *r = json_loads(request, 0, &e);

	CHECK(r);
	const char *got = text(jobs_set_request(j, NULL, r));
	json_decref(r);
	return got;
}

static const char *explain(struct jobs *j, const char *request)
{
	json_t *r = json_loads(request, 0, NULL);
	json_t *reply = jobs_explain(j, NULL, r);
	static char reason[512];

	snprintf(reason, sizeof(reason), "%s", json_string_value(json_object_get(reply, "reason")));
	json_decref(reply);
	json_decref(r);
	return reason;
}

#define NONE                                                                                       \
	"{\"activityProfilersBusy\":0,\"activityProfilersTriggered\":[],\"eventProfilersBusy\":0," \
	"\"eventProfilersTriggered\":[],\"processesMatched\":[]}"

TEST(jobs, hands_a_config_out_once)
{
	struct jobs *j = make(100);

	CHECK_STR(ask1(j, 42), "");
	CHECK_STR(order(j, "{\"config\":\"A=1\\nB=2\",\"pids\":[0]}"),
		  "{\"activityProfilersBusy\":0,\"activityProfilersTriggered\":[42],"
		  "\"eventProfilersBusy\":0,\"eventProfilersTriggered\":[],"
		  "\"processesMatched\":[42]}");
	const char *got = ask1(j, 42);
	static const char want[] = "\n    A=1\nB=2\n    REQUEST_TRACE_ID=";
	CHECK(!strncmp(got, want, strlen(want)));
	got += strlen(want);
	CHECK(strspn(got, "0123456789") == strlen(got) - 1);
	CHECK(got[strlen(got) - 1] == '\n');
	CHECK_STR(ask1(j, 42), "");
	CHECK_INT(jobs_counts(j).delivered, 1);
	end(j);
}

TEST(jobs, a_busy_process_keeps_its_config)
{
	struct jobs *j = make(100);
	int32_t pid = 42;

	ask1(j, 42);
	order(j, "{\"config\":\"A=1\",\"pids\":[]}");
	CHECK_STR(ask(j, sender(0), 1, 0, &pid, 1), "");
	CHECK_STR(ask(j, sender(0), 0, 0, &pid, 1), "");
	CHECK_STR(order(j, "{\"config\":\"A=2\",\"pids\":[]}"),
		  "{\"activityProfilersBusy\":1,\"activityProfilersTriggered\":[],"
		  "\"eventProfilersBusy\":0,\"eventProfilersTriggered\":[],"
		  "\"processesMatched\":[42]}");
	CHECK(strstr(ask1(j, 42), "A=1"));
	end(j);
}

TEST(jobs, what_could_not_be_sent_is_kept)
{
	struct jobs *j = make(100);
	struct jobs_sender from = sender(0);
	struct fabric_request *r = make_request(3, 0, &(int32_t){42}, 1);
	struct buf out = {0};

	ask1(j, 42);
	order(j, "{\"config\":\"A=1\",\"pids\":[]}");
	jobs_poll(j, &from, r, 1, &out);
	CHECK(out.len > 0);
	jobs_delivered(j, false);
	CHECK(strstr(ask1(j, 42), "A=1"));
	buf_release(&out);
	free(r);
	end(j);
}

TEST(jobs, matches_by_job_pid_and_ancestor)
{
	struct jobs *j = make(100);

	ask(j, sender(0), 3, 0, (int32_t[]){30, 20, 10}, 3);
	ask(j, sender(0), 3, 0, (int32_t[]){31, 20, 10}, 3);
	ask(j, sender(0), 3, 0, (int32_t[]){32, 21}, 2);
	ask(j, sender(0), 3, 77, (int32_t[]){33}, 1);
	CHECK(strstr(order(j, "{\"config\":\"A=1\",\"pids\":[31]}"), "\"processesMatched\":[31]"));
	CHECK(strstr(order(j, "{\"config\":\"A=1\",\"pids\":[20]}"),
		     "\"processesMatched\":[30,31]"));
	CHECK(strstr(order(j, "{\"config\":\"A=1\",\"pids\":[0],\"job_id\":77}"),
		     "\"processesMatched\":[33]"));
	CHECK_STR(order(j, "{\"config\":\"A=1\",\"pids\":[33]}"), NONE);
	/* 10,20,30 < 10,20,31 < 21,32 */
	CHECK(strstr(order(j, "{\"config\":\"A=1\",\"pids\":[0]}"),
		     "\"processesMatched\":[30,31,32]"));
	end(j);
}

TEST(jobs, numbers_beyond_32_bits_are_nobody_else_s)
{
	struct jobs *j = make(100);

	ask1(j, 7);
	CHECK_STR(order(j, "{\"config\":\"\",\"pids\":[4294967296]}"), NONE);
	CHECK_STR(order(j, "{\"config\":\"\",\"pids\":[4294967303]}"), NONE);
	CHECK_STR(order(j, "{\"config\":\"\",\"pids\":[],\"job_id\":4294967296}"), NONE);
	CHECK(strstr(order(j, "{\"config\":\"\",\"pids\":[],\"job_id\":1e300}"),
		     "json.exception.out_of_range"));
	CHECK(strstr(order(j, "{\"config\":\"\",\"pids\":[7.0]}"), "Matched\":[7]"));
	end(j);
}

TEST(jobs, a_limit_is_used_up_in_order)
{
	struct jobs *j = make(100);

	for (int32_t pid = 9; pid > 0; pid--)
		ask1(j, pid);
	const char *got = order(j, "{\"config\":\"A=1\",\"pids\":[],\"process_limit\":2}");
	CHECK(strstr(got, "\"activityProfilersTriggered\":[1,2]"));
	CHECK(strstr(got, "\"processesMatched\":[1,2,3,4,5,6,7,8,9]"));
	got = order(j, "{\"config\":\"A=1\",\"pids\":[],\"process_limit\":3}");
	CHECK(strstr(got, "\"activityProfilersBusy\":2,\"activityProfilersTriggered\":[3,4,5]"));
	end(j);
}

TEST(jobs, wrong_types_are_told)
{
	struct jobs *j = make(100);

	CHECK_STR(order(j, "{\"pids\":[0]}"), "{\"status\":\"failed\"}");
	CHECK_STR(order(j, "{\"config\":\"A=1\"}"), "{\"status\":\"failed\"}");
	CHECK_STR(order(j, "{\"config\":\"A=1\",\"pids\":[0],\"job_id\":\"7\"}"),
		  "{\"status\":\"failed with exception = [json.exception.type_error.302] type must "
		  "be "
		  "number, but is string\"}");
	CHECK(strstr(order(j, "{\"config\":1,\"pids\":[0]}"), "must be string, but is number"));
	CHECK(strstr(order(j, "{\"config\":\"\",\"pids\":{}}"), "must be array, but is object"));
	CHECK(strstr(order(j, "{\"config\":\"\",\"pids\":[null]}"), "must be number, but is null"));
	CHECK(strstr(order(j, "{\"config\":\"\",\"pids\":[],\"process_limit\":[]}"),
		     "must be number, but is array"));
	/* floats and booleans are numbers */
	CHECK_STR(order(j, "{\"config\":\"A=1\",\"pids\":[1.5,true],\"job_id\":2.0}"), NONE);
	CHECK_STR(order(j, "{\"config\":\"A=1\",\"pids\":[99999999999],\"process_limit\":-1}"),
		  NONE);
	end(j);
}

/* --- states --- */

#define TRACE FABRIC_TRACE_STATUS
#define MONITOR FABRIC_MONITOR_STATUS

TEST(jobs, status_is_that_of_the_busiest)
{
	struct jobs *j = make(100);

	CHECK_STR(text(jobs_get_status(j, NULL, NULL)),
		  "{\"current_step\":-1,\"npumonitor\":\"Uninitialized\","
		  "\"nputrace\":\"Uninitialized\"}");
	tell(j, TRACE, 1, FABRIC_IDLE, -1, -1, -1);
	tell(j, MONITOR, 1, FABRIC_IDLE, -1, -1, -1);
	CHECK_STR(text(jobs_get_status(j, NULL, NULL)),
		  "{\"current_step\":-1,\"npumonitor\":\"Idle\",\"nputrace\":\"Idle\"}");
	tell(j, TRACE, 1, FABRIC_READY, 1, 5, 10);
	CHECK_STR(text(jobs_get_status(j, NULL, NULL)),
		  "{\"current_step\":1,\"npumonitor\":\"Idle\","
		  "\"nputrace\":\"Ready\",\"start_step\":5,"
		  "\"stop_step\":10}");
	tell(j, TRACE, 2, FABRIC_RUNNING, 6, 5, 10);
	tell(j, TRACE, 3, FABRIC_IDLE, 7, 0, 0);
	CHECK(strstr(text(jobs_get_status(j, NULL, NULL)), "\"current_step\":6"));
	usleep(2000);
	tell(j, TRACE, 4, FABRIC_RUNNING, -1, 5, 10); /* who polls for the job knows no step */
	CHECK(strstr(text(jobs_get_status(j, NULL, NULL)), "\"current_step\":6"));
	tell(j, TRACE, 4, FABRIC_UNINITIALIZED, -1, 5, 10);
	tell(j, TRACE, 2, FABRIC_UNINITIALIZED, 6, 5, 10);
	tell(j, TRACE, 1, 77, 6, 5, 10);
	tell(j, TRACE, 3, FABRIC_UNINITIALIZED, 7, 0, 0);
	CHECK(strstr(text(jobs_get_status(j, NULL, NULL)), "\"nputrace\":\"unknown\""));
	end(j);
}

#define NPU_TRACE "{\"config\":\"ACTIVITIES_LOG_FILE=/t\\nPROFILE_START_STEP=-1\",\"pids\":[0]}"
#define NPU_START                                                                                  \
	"{\"config\":\"NPU_MONITOR_START=true\\nNPU_MONITOR_STOP=false\\nDURATION=%s\","           \
	"\"pids\":[0]}"
#define KINETO "{\"config\":\"ACTIVITIES_LOG_FILE=/t\",\"pids\":[0]}"

static const char *start(struct jobs *j, const char *seconds)
{
	char request[256];

	snprintf(request, sizeof(request), NPU_START, seconds);
	return order(j, request);
}

TEST(jobs, npu_requests_wait_for_each_other)
{
	struct jobs *j = make(100);

	ask1(j, 1);
	CHECK_STR(order(j, NPU_TRACE), "{\"commandStatus\":\"ineffective\"}");
	CHECK_STR(start(j, "0"), "{\"commandStatus\":\"ineffective\"}");
	CHECK(strstr(order(j, KINETO), "\"activityProfilersTriggered\":[1]"));
	CHECK(strstr(ask1(j, 1), "/t"));

	tell(j, MONITOR, 1, FABRIC_IDLE, -1, -1, -1);
	CHECK_STR(start(j, "0"), "{\"commandStatus\":\"unknown\"}");
	CHECK_STR(order(j, NPU_TRACE), "{\"commandStatus\":\"ineffective\"}");
	tell(j, TRACE, 1, FABRIC_IDLE, -1, -1, -1);
	CHECK(strstr(start(j, "0"), "\"commandStatus\":\"effective\""));
	CHECK(strstr(ask1(j, 1), "NPU_MONITOR_START=true"));
	tell(j, MONITOR, 1, FABRIC_RUNNING, -1, -1, -1);
	CHECK_STR(order(j, NPU_TRACE), "{\"commandStatus\":\"ineffective\"}");
	CHECK(strstr(explain(j, NPU_TRACE), "npu-monitor is running"));
	tell(j, MONITOR, 1, FABRIC_IDLE, -1, -1, -1);
	CHECK(strstr(order(j, NPU_TRACE), "\"commandStatus\":\"effective\""));
	tell(j, TRACE, 1, FABRIC_RUNNING, 3, 2, 4);
	CHECK_STR(start(j, "0"), "{\"commandStatus\":\"ineffective\"}");
	CHECK(strstr(explain(j, "{\"config\":\"NPU_MONITOR_START=true\",\"pids\":[]}"),
		     "nputrace is collecting"));
	/* nobody to give it to */
	tell(j, TRACE, 1, FABRIC_IDLE, 3, 2, 4);
	CHECK_STR(order(j, "{\"config\":\"PROFILE_START_STEP=1\",\"pids\":[5]}"),
		  "{\"commandStatus\":\"ineffective\"}");
	end(j);
}

TEST(jobs, a_refusal_says_why_to_who_asks_for_it)
{
	static const char trace[] =
		"{\"config\":\"PROFILE_START_STEP=1\",\"pids\":[],\"with_reason\":true}";
	struct jobs *j = make(100);

	CHECK(strstr(order(j, trace), "{\"commandStatus\":\"ineffective\",\"reason\":\"no "
				      "process has registered with this daemon: "));
	ask1(j, 1);
	tell(j, TRACE, 1, FABRIC_IDLE, -1, -1, -1);
	tell(j, MONITOR, 1, FABRIC_RUNNING, -1, -1, -1);
	CHECK_STR(
		order(j, trace),
		"{\"commandStatus\":\"ineffective\",\"reason\":\"npu-monitor is running, and only "
		"one of the two can: stop it with 'dyno npu-monitor --npu-monitor-stop'\"}");
	CHECK_STR(order(j, NPU_TRACE), "{\"commandStatus\":\"ineffective\"}");
	tell(j, MONITOR, 1, FABRIC_IDLE, -1, -1, -1);
	CHECK(!strstr(order(j, trace), "reason")); /* nobody is refused */
	CHECK(strstr(order(j, trace),
		     "\"reason\":\"no process that matches has fetched the previous"));
	CHECK(strstr(order(j, "{\"config\":\"A=1\",\"pids\":[5],\"with_reason\":true}"),
		     "\"processesMatched\":[],\"reason\":\"no registered process has one of"));
	end(j);
}

TEST(jobs, a_monitor_with_an_end_is_idle_after_it)
{
	struct jobs *j = make(100);

	ask1(j, 1);
	tell(j, TRACE, 1, FABRIC_IDLE, -1, -1, -1);
	tell(j, MONITOR, 1, FABRIC_IDLE, -1, -1, -1);
	CHECK(strstr(start(j, "0.05"), "\"commandStatus\":\"effective\""));
	ask1(j, 1);
	tell(j, MONITOR, 1, FABRIC_RUNNING, -1, -1, -1);
	CHECK(strstr(text(jobs_get_status(j, NULL, NULL)), "\"npumonitor\":\"Running\""));
	usleep(100000);
	CHECK(strstr(text(jobs_get_status(j, NULL, NULL)), "\"npumonitor\":\"Idle\""));
	/* one without an end runs on */
	CHECK(strstr(start(j, "0"), "\"commandStatus\":\"effective\""));
	ask1(j, 1);
	tell(j, MONITOR, 1, FABRIC_RUNNING, -1, -1, -1);
	usleep(100000);
	CHECK(strstr(text(jobs_get_status(j, NULL, NULL)), "\"npumonitor\":\"Running\""));
	end(j);
}

/* --- who --- */

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (!pid) {
		pause();
		_exit(0);
	}
	CHECK(pid > 0);
	return pid;
}

TEST(jobs, death_is_noticed_at_once)
{
	struct jobs *j = make(100);
	pid_t pid = sleeper();
	struct jobs_sender from = sender(pid);
	struct fabric_status s = {.state = FABRIC_RUNNING, .pid = pid};

	ask(j, from, 3, 0, &(int32_t){pid}, 1);
	jobs_status(j, &from, TRACE, &s);
	order(j, KINETO);
	CHECK_INT(jobs_counts(j).processes, 1);
	kill(pid, SIGKILL);
	event_base_loop(base, EVLOOP_ONCE);
	CHECK_INT(jobs_counts(j).processes, 0);
	CHECK_INT(jobs_counts(j).jobs, 0);
	CHECK_INT(jobs_counts(j).ended, 1);
	CHECK(strstr(text(jobs_get_status(j, NULL, NULL)), "Uninitialized"));
	waitpid(pid, NULL, 0);
	/* what it sent before arrives late */
	ask(j, from, 3, 0, &(int32_t){pid}, 1);
	CHECK_INT(jobs_counts(j).processes, 0);
	end(j);
}

TEST(jobs, the_same_pid_in_two_containers_is_two_processes)
{
	struct jobs *j = make(100);
	pid_t a = sleeper(), b = sleeper();

	ask(j, sender(a), 3, 0, &(int32_t){7}, 1);
	ask(j, sender(b), 3, 0, &(int32_t){7}, 1);
	CHECK(strstr(order(j, KINETO), "\"processesMatched\":[7,7]"));
	CHECK(strstr(ask(j, sender(a), 3, 0, &(int32_t){7}, 1), "/t"));
	CHECK(strstr(ask(j, sender(b), 3, 0, &(int32_t){7}, 1), "/t"));
	kill(a, SIGKILL);
	kill(b, SIGKILL);
	end(j);
}

TEST(jobs, nobody_speaks_for_another)
{
	struct jobs *j = make(100);
	pid_t other = sleeper();
	struct jobs_sender from = {.pid = getpid(), .uid = 12345, .endpoint = "dir"};
	struct fabric_status s = {.state = FABRIC_RUNNING, .pid = other};

	jobs_status(j, &from, TRACE, &s);
	CHECK_INT(jobs_counts(j).processes, 0);
	CHECK_INT(jobs_counts(j).refused, 1);
	s.pid = getpid();
	jobs_status(j, &from, TRACE, &s);
	CHECK_INT(jobs_counts(j).processes, 1);
	s.pid = -5;
	jobs_status(j, &from, TRACE, &s);
	CHECK_INT(jobs_counts(j).processes, 1);
	kill(other, SIGKILL);
	end(j);
}

TEST(jobs, a_user_has_a_limit)
{
	struct jobs *j = make(3);
	struct jobs_sender other = {.pid = getpid(), .uid = 12345, .endpoint = "dir"};

	for (int32_t pid = 1; pid < 10; pid++)
		CHECK_STR(ask1(j, pid), "");
	CHECK_INT(jobs_counts(j).processes, 3);
	CHECK_INT(jobs_counts(j).refused, 6);
	ask(j, other, 3, 0, &(int32_t){getpid()}, 1);
	CHECK_INT(jobs_counts(j).processes, 4);
	end(j);
}

TEST(jobs, contexts_are_counted_by_device)
{
	struct jobs *j = make(100);
	struct jobs_sender from = sender(0);

	CHECK_INT(jobs_context(j, &from, &(struct fabric_context){3, 10, 0}), 1);
	CHECK_INT(jobs_context(j, &from, &(struct fabric_context){3, 11, 0}), 2);
	CHECK_INT(jobs_context(j, &from, &(struct fabric_context){3, 11, 0}), 2);
	CHECK_INT(jobs_context(j, &from, &(struct fabric_context){4, 12, 0}), 1);
	CHECK_INT(jobs_context(j, &from, &(struct fabric_context){3, 13, 5}), 1);
	CHECK_INT(jobs_context(j, &from, &(struct fabric_context){4, 11, 0}), 2);
	CHECK_INT(jobs_context(j, &from, &(struct fabric_context){3, 14, 0}), 2);
	end(j);
}

TEST(jobs, what_a_user_says_holds_up_nobody_else)
{
	struct jobs *j = make(100);
	struct jobs_sender liar = {.uid = 12345, .endpoint = "dir"};
	struct fabric_status s = {.state = FABRIC_RUNNING, .pid = 66};

	ask1(j, 2);
	tell(j, TRACE, 2, FABRIC_IDLE, -1, -1, -1);
	tell(j, MONITOR, 2, FABRIC_IDLE, -1, -1, -1);
	jobs_status(j, &liar, MONITOR, &s);
	jobs_status(j, &liar, TRACE, &s);
	ask(j, liar, 3, 0, &(int32_t){66}, 1);
	/* seen by all, and in the way of the one who says it */
	CHECK(strstr(text(jobs_get_status(j, NULL, NULL)), "\"npumonitor\":\"Running\""));
	CHECK(strstr(explain(j, NPU_TRACE), "next poll"));
	CHECK(strstr(order(j, NPU_TRACE), "\"processesMatched\":[2]"));
	CHECK(strstr(ask1(j, 2), "PROFILE_START_STEP"));
	CHECK_STR(ask(j, liar, 3, 0, &(int32_t){66}, 1), "");
	CHECK(strstr(order(j, "{\"config\":\"NPU_MONITOR_START=true\",\"pids\":[]}"),
		     "\"processesMatched\":[2]"));
	CHECK_STR(order(j, "{\"config\":\"PROFILE_START_STEP=1\",\"pids\":[66]}"),
		  "{\"commandStatus\":\"ineffective\"}");
	CHECK(strstr(explain(j, "{\"config\":\"PROFILE_START_STEP=1\",\"pids\":[66]}"),
		     "npu-monitor is running"));
	end(j);
}

TEST(jobs, ancestors_of_an_ordinary_user_must_be_true)
{
	struct jobs *j = make(100);
	struct jobs_sender from = {.pid = getpid(), .uid = 12345, .endpoint = "dir"};
	int32_t me = getpid(), parent = getppid();
	pid_t other = sleeper();

	ask(j, from, 3, 0, (int32_t[]){me, parent, other, 1}, 4);
	CHECK(strstr(order(j, "{\"config\":\"\",\"pids\":[1000000,0,-1]}"), "Matched\":[]"));
	char request[80];
	snprintf(request, sizeof(request), "{\"config\":\"\",\"pids\":[%d]}", other);
	CHECK_STR(order(j, request), NONE);
	snprintf(request, sizeof(request), "{\"config\":\"\",\"pids\":[%d]}", parent);
	CHECK(!strstr(order(j, request), "Matched\":[]"));
	/* only so often: until it asks again it has none */
	for (int i = 0; i < 200; i++)
		ask(j, from, 3, 0, (int32_t[]){me, parent, i + 1}, 3);
	ask(j, from, 3, 0, (int32_t[]){me, parent, other, 1}, 4);
	CHECK_STR(order(j, request), NONE);
	usleep(1010000);
	ask(j, from, 3, 0, (int32_t[]){me, parent, other, 1}, 4);
	CHECK(!strstr(order(j, request), "Matched\":[]"));
	/* root speaks for others */
	ask(j, sender(me), 3, 5, (int32_t[]){me, other}, 2);
	snprintf(request, sizeof(request), "{\"config\":\"\",\"pids\":[%d],\"job_id\":5}", other);
	CHECK(!strstr(order(j, request), "Matched\":[]"));
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	end(j);
}

TEST(jobs, a_pid_of_this_machine_finds_its_process_first)
{
	struct jobs *j = make(100);
	pid_t inside = sleeper(), other = sleeper();
	char request[100];

	/* in a container; and one that has the same number there */
	ask(j, (struct jobs_sender){.pid = other, .endpoint = "dir"}, 3, 0, (int32_t[]){inside, 1},
	    2);
	ask(j, sender(inside), 3, 0, (int32_t[]){inside, 900}, 2);
	snprintf(request, sizeof(request), "{\"config\":\"\",\"pids\":[%d],\"process_limit\":1}",
		 inside);
	order(j, request);
	CHECK_STR(ask(j, sender(other), 3, 0, (int32_t[]){inside, 1}, 2), "");
	CHECK(strstr(ask(j, sender(inside), 3, 0, (int32_t[]){inside, 900}, 2), "TRACE_ID"));
	kill(inside, SIGKILL);
	kill(other, SIGKILL);
	waitpid(inside, NULL, 0);
	waitpid(other, NULL, 0);
	end(j);
}

TEST(jobs, a_process_is_in_few_jobs)
{
	struct jobs *j = make(1000);
	struct jobs_sender from = {.pid = getpid(), .uid = 12345, .endpoint = "dir"};

	for (int64_t job = 0; job < 100; job++)
		ask(j, from, 3, job * INT64_C(0x100000001), &(int32_t){getpid()}, 1);
	CHECK_INT(jobs_counts(j).processes, 16);
	CHECK_INT(jobs_counts(j).refused, 84);
	for (int64_t job = 0; job < 100; job++)
		ask(j, sender(getpid()), 3, job, &(int32_t){7}, 1);
	CHECK_INT(jobs_counts(j).processes, 116);
	end(j);
}

TEST(jobs, users_that_are_not_visible_are_told_apart)
{
	struct jobs *j = make(100);
	struct jobs_sender a = {.uid = 1001, .endpoint = "dir"}, b = {.uid = 1002};

	ask(j, a, 3, 0, &(int32_t){7}, 1);
	order(j, KINETO);
	CHECK_STR(ask(j, b, 3, 0, &(int32_t){7}, 1), "");
	CHECK_INT(jobs_counts(j).processes, 2);
	CHECK(strstr(ask(j, a, 3, 0, &(int32_t){7}, 1), "/t"));
	end(j);
}

TEST(jobs, a_process_may_become_another_user)
{
	struct jobs *j = make(1);
	struct jobs_sender from = {.pid = getpid(), .uid = 1001, .endpoint = "dir"};

	ask(j, from, 3, 0, &(int32_t){getpid()}, 1);
	order(j, KINETO);
	from.uid = 1002;
	CHECK(strstr(ask(j, from, 3, 0, &(int32_t){getpid()}, 1), "/t"));
	CHECK_INT(jobs_counts(j).processes, 1);
	/* that is whose limit it uses */
	ask(j, from, 3, 1, &(int32_t){getpid()}, 1);
	CHECK_INT(jobs_counts(j).processes, 1);
	from.uid = 1001;
	ask(j, from, 3, 1, &(int32_t){getpid()}, 1);
	CHECK_INT(jobs_counts(j).processes, 2);
	end(j);
}

/* As on an old kernel, or with as many processes as there may be files. */
TEST(jobs, death_is_noticed_without_pidfds)
{
	struct jobs *j = make(1000);
	pid_t pids[200];

	j->max_watched = 0;
	for (int i = 0; i < 200; i++) {
		pids[i] = sleeper();
		ask(j, sender(pids[i]), 3, 0, &(int32_t){pids[i]}, 1);
	}
	/* most of them stay zombies: they are gone all the same */
	for (int i = 0; i < 200; i += 2)
		kill(pids[i], SIGKILL);
	waitpid(pids[0], NULL, 0);
	for (int i = 0; i < 400 && jobs_counts(j).processes > 100; i++)
		event_base_loop(base, EVLOOP_ONCE);
	CHECK_INT(jobs_counts(j).processes, 100);
	CHECK_INT(jobs_counts(j).ended, 100);
	/* when there are files again, they are watched */
	j->max_watched = 50;
	for (int i = 0; i < 8; i++)
		event_base_loop(base, EVLOOP_ONCE);
	CHECK_INT(j->nwatched, 50);
	for (int i = 1; i < 200; i += 2)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < 400 && jobs_counts(j).processes; i++)
		event_base_loop(base, EVLOOP_ONCE);
	CHECK_INT(jobs_counts(j).processes, 0);
	CHECK_INT(j->nwatched, 0);
	/* what a zombie sent comes too late */
	j->max_watched = 0;
	ask(j, sender(pids[3]), 3, 0, &(int32_t){pids[3]}, 1);
	CHECK_INT(jobs_counts(j).processes, 0);
	for (int i = 1; i < 200; i++)
		waitpid(pids[i], NULL, 0);
	end(j);
}

TEST(jobs, a_pid_that_is_used_again_gets_nothing)
{
	struct jobs *j = make(100);
	int32_t me = getpid();

	j->max_watched = 0;
	ask(j, sender(me), 3, 0, &me, 1);
	struct jobs_peer *peer = hmap_get_ptr(&j->peers, (uint64_t)me);
	CHECK(peer && peer->start_ticks);
	order(j, KINETO);
	peer->start_ticks--; /* it was another that registered */
	CHECK_STR(ask(j, sender(me), 3, 0, &me, 1), "");
	CHECK_INT(jobs_counts(j).processes, 1);
	order(j, KINETO);
	CHECK(strstr(ask(j, sender(me), 3, 0, &me, 1), "/t"));
	end(j);
}

/* --- telling --- */

TEST(jobs, a_list_has_pages)
{
	struct jobs *j = make(1000);
	json_t *q = json_object();

	for (int32_t pid = 300; pid > 0; pid--)
		ask1(j, pid);
	json_t *r = jobs_list(j, NULL, q);
	CHECK_INT(json_array_size(json_object_get(r, "processes")), 256);
	CHECK_INT(json_integer_value(json_object_get(r, "total")), 300);
	CHECK_INT(json_integer_value(json_object_get(r, "next")), 256);
	json_decref(r);
	json_object_set_new(q, "offset", json_integer(256));
	r = jobs_list(j, NULL, q);
	json_t *rows = json_object_get(r, "processes");
	CHECK_INT(json_array_size(rows), 44);
	CHECK_INT(json_integer_value(json_object_get(json_array_get(rows, 0), "pid")), 257);
	CHECK(json_is_null(json_object_get(r, "next")));
	json_decref(r);
	json_object_set_new(q, "offset", json_integer(100000));
	json_object_set_new(q, "limit", json_integer(-3));
	r = jobs_list(j, NULL, q);
	CHECK_INT(json_array_size(json_object_get(r, "processes")), 0);
	json_decref(r);
	json_object_set_new(q, "offset", json_string("x"));
	CHECK(strstr(text(jobs_list(j, NULL, q)), "type must be number"));
	json_decref(q);
	end(j);
}

TEST(jobs, a_process_is_described)
{
	struct jobs *j = make(100);
	int32_t me = getpid();
	json_t *q = json_pack("{s:i}", "pid", me);

	setenv("RANK", "3", 1); /* too late for /proc: what it was started with counts */
	ask(j, sender(me), 3, 5, &me, 1);
	json_t *r = jobs_get_process(j, NULL, q);
	/* a thread reads the command, and a busy machine may let it wait */
	for (int tries = 0; !json_is_string(json_object_get(r, "command")) && tries < 500;
	     tries++) {
		usleep(10000);
		json_decref(r);
		r = jobs_get_process(j, NULL, q);
	}
	CHECK_INT(json_integer_value(json_object_get(r, "job_id")), 5);
	CHECK_STR(json_string_value(json_object_get(r, "state")), "Idle");
	CHECK(strstr(json_string_value(json_object_get(r, "command")),
		     program_invocation_short_name));
	CHECK_STR(json_string_value(json_object_get(r, "user")), "root");
	json_decref(r);
	json_object_set_new(q, "pid", json_integer(1));
	CHECK(strstr(text(jobs_get_process(j, NULL, q)), "failed: no process 1"));
	json_object_set_new(q, "pid", json_integer(me + (INT64_C(1) << 32)));
	CHECK(strstr(text(jobs_get_process(j, NULL, q)), "failed: no process"));
	json_decref(q);
	end(j);
}

TEST(jobs, what_proc_knows_comes_from_a_thread)
{
	struct jobs_proc *p = jobs_proc_new();
	unsigned seen = 0;

	jobs_proc_wait(p); /* for nothing */
	jobs_proc_ask(p, getpid(), 0, 5);
	jobs_proc_ask(p, -1, 0, 6); /* there is none */
	for (int tries = 0; seen != 3 && tries < 500; tries++) {
		struct jobs_facts *f;
		uint64_t id;
		pid_t pid;

		jobs_proc_wait(p);
		while ((f = jobs_proc_take(p, &pid, &id))) {
			seen |= id == 5 ? 1 : 2;
			CHECK_INT(pid, id == 5 ? getpid() : -1);
			CHECK(id == 5 ? strstr(f->command, program_invocation_short_name) != NULL
				      : !f->command_len);
			CHECK(id == 5 || f->rank == RANK_ENV_UNKNOWN);
			free(f);
		}
		if (seen != 3)
			usleep(10000);
	}
	CHECK_INT(seen, 3);
	/* nobody waits for what was asked last */
	for (int i = 0; i < 100; i++)
		jobs_proc_ask(p, getpid(), 0, 7);
	jobs_proc_free(p);
}

TEST(jobs, a_rank_and_its_poller_are_one_row)
{
	struct jobs *j = make(100);
	struct jobs_sender from = sender(0);
	json_t *q = json_object();

	jobs_context(j, &from, &(struct fabric_context){3, 101, 0});
	ask(j, from, 3, 0, (int32_t[]){101, 100, 50}, 3);
	tell(j, TRACE, 100, FABRIC_RUNNING, 7, 5, 9);
	ask(j, from, 3, 0, (int32_t[]){200, 50}, 2);
	json_t *r = jobs_list(j, NULL, q);
	json_t *row = json_array_get(json_object_get(r, "processes"), 0);
	CHECK_INT(json_integer_value(json_object_get(r, "total")), 2);
	CHECK_INT(json_integer_value(json_object_get(row, "pid")), 100);
	CHECK_INT(json_integer_value(json_object_get(row, "poller")), 101);
	CHECK_INT(json_integer_value(json_object_get(row, "device")), 3);
	CHECK_INT(json_integer_value(json_object_get(row, "current_step")), 7);
	CHECK_STR(json_string_value(json_object_get(row, "state")), "Running");
	json_decref(r);
	json_object_set_new(q, "pid", json_integer(100));
	r = jobs_get_process(j, NULL, q);
	CHECK_INT(json_integer_value(json_object_get(r, "device")), 3);
	json_decref(r);
	json_decref(q);
	end(j);
}

TEST(jobs, each_kind_of_order_reaches_its_kind_of_client)
{
	struct jobs *j = make(100);
	struct jobs_sender from = sender(0);

	ask1(j, 1); /* libkineto */
	ask1(j, 2); /* an NPU framework */
	tell(j, TRACE, 2, FABRIC_IDLE, -1, -1, -1);
	tell(j, MONITOR, 2, FABRIC_IDLE, -1, -1, -1);
	CHECK(strstr(order(j, KINETO), "\"processesMatched\":[1]"));
	CHECK(strstr(order(j, NPU_TRACE), "\"processesMatched\":[2]"));
	/* an old one of either kind, which only registers */
	ask1(j, 3);
	jobs_context(j, &from, &(struct fabric_context){0, 3, 0});
	CHECK(strstr(order(j, KINETO), "\"processesMatched\":[1,3]"));
	CHECK(strstr(order(j, NPU_TRACE), "\"processesMatched\":[2,3]"));
	end(j);
}

TEST(jobs, a_rank_that_was_there_before_the_daemon_takes_orders)
{
	struct jobs *j = make(100);
	struct jobs_sender from = sender(0);

	/* The poller registered with a daemon that has ended; the monitor told that one its state.
	 */
	ask(j, from, 3, 0, (int32_t[]){101, 100}, 2);
	tell(j, TRACE, 100, FABRIC_IDLE, 7, -1, -1);
	CHECK_STR(order(j, KINETO), NONE);
	CHECK(strstr(start(j, "0"), "\"commandStatus\":\"effective\""));
	CHECK(strstr(ask(j, from, 3, 0, (int32_t[]){101, 100}, 2), "NPU_MONITOR_START"));
	CHECK(strstr(order(j, NPU_TRACE), "\"processesMatched\":[101]"));
	/* once it has told, the monitor counts */
	tell(j, MONITOR, 100, FABRIC_UNINITIALIZED, -1, -1, -1);
	CHECK_STR(start(j, "0"), "{\"commandStatus\":\"ineffective\"}");
	end(j);
}

TEST(jobs, says_why_nothing_matched)
{
	struct jobs *j = make(100);

	CHECK(strstr(explain(j, KINETO), "no process has registered"));
	ask(j, sender(0), 3, 77, (int32_t[]){33}, 1);
	CHECK(strstr(explain(j, KINETO), "none with this job id"));
	CHECK(strstr(explain(j, "{\"config\":\"\",\"pids\":[1],\"job_id\":77}"), "these pids"));
	CHECK(strstr(explain(j, "{\"config\":\"\",\"pids\":[],\"job_id\":77}"),
		     "next poll of each"));
	order(j, "{\"config\":\"\",\"pids\":[],\"job_id\":77}");
	CHECK(strstr(explain(j, "{\"config\":\"\",\"pids\":[],\"job_id\":77}"),
		     "previous request"));
	CHECK(strstr(explain(j, NPU_TRACE), "none with this job id"));
	CHECK(strstr(explain(j, "{\"config\":\"PROFILE_START_STEP=1\",\"pids\":[],\"job_id\":77}"),
		     "use 'dyno gputrace'"));
	tell(j, TRACE, 5, FABRIC_IDLE, -1, -1, -1); /* a rank whose poller did not stay */
	CHECK(strstr(explain(j, NPU_TRACE), "started before this daemon"));
	end(j);
}

/* --- texts --- */

TEST(config_text, knows_what_it_is_for)
{
	size_t len;

	CHECK_INT(config_kind("NPU_MONITOR_START=true"), CONFIG_NPU_MONITOR);
	CHECK_INT(config_kind("A=1\nNPU_MONITOR_START=true"), CONFIG_KINETO);
	CHECK_INT(config_kind("A=1\n \t PROFILE_START_STEP = 3\n"), CONFIG_NPU_TRACE);
	CHECK_INT(config_kind("PROFILE_START_STEPS=3\nX"), CONFIG_KINETO);
	CHECK_INT(config_kind(""), CONFIG_KINETO);
	const char *v = config_value("=x\nB =  y z \n", "B", &len);
	CHECK(v && len == 3 && !strncmp(v, "y z", 3));
	CHECK(!config_value("B\nC=", "B", &len));
	CHECK(config_value("B\nC=", "C", &len) && len == 0);
}

TEST(config_text, knows_when_a_monitor_ends)
{
	CHECK_INT(config_monitor_ms("NPU_MONITOR_START=True\nDURATION=1.5"), 1500);
	CHECK_INT(config_monitor_ms("NPU_MONITOR_START=true\nDURATION=0"), 0);
	CHECK_INT(config_monitor_ms("NPU_MONITOR_START=false\nDURATION=5"), 0);
	CHECK_INT(config_monitor_ms("NPU_MONITOR_START=true\nNPU_MONITOR_STOP=true\nDURATION=5"),
		  0);
	CHECK_INT(config_monitor_ms("NPU_MONITOR_START=true\nDURATION=inf"), 0);
	CHECK_INT(config_monitor_ms("NPU_MONITOR_START=true\nDURATION=nan"), 0);
	CHECK_INT(config_monitor_ms("NPU_MONITOR_START=true\nDURATION=-3"), 0);
}

TEST(jobs, a_request_is_for_the_user_whose_process_it_was)
{
	const struct access_grant alice = {.right = ACCESS_OWN, .uid = 1001};
	json_t *request = json_pack("{s:s,s:[i]}", "config", "x", "pids", 0);
	struct jobs *j = make(10);
	struct jobs_sender from = {.pid = getpid(), .uid = 1001, .endpoint = "dir"};
	int32_t pid = getpid();

	CHECK_STR(ask(j, from, 3, 0, &pid, 1), "");
	json_t *reply = jobs_set_request(j, &alice, request);
	CHECK_INT(json_array_size(json_object_get(reply, "activityProfilersTriggered")), 1);
	json_decref(reply);
	from.uid = 1002; /* by setuid() */
	CHECK_STR(ask(j, from, 3, 0, &pid, 1), "");
	json_decref(request);
	end(j);
}

/* --- shares of users --- */

TEST(jobs, users_take_turns_where_something_is_limited)
{
	struct jobs_process p[7];
	struct jobs_process *all[7];
	static const uint32_t uids[] = {1, 1, 1, 1, 2, 3, 3};
	static const int order[] = {0, 4, 5, 1, 6, 2, 3};

	for (int i = 0; i < 7; i++) {
		p[i] = (struct jobs_process){.uid = uids[i]};
		all[i] = &p[i];
	}
	jobs_take_turns(all, 7);
	for (int i = 0; i < 7; i++)
		CHECK(all[i] == &p[order[i]]);
	for (int i = 0; i < 4; i++)
		all[i] = &p[3 - i];
	jobs_take_turns(all, 4); /* of one user: as it was */
	for (int i = 0; i < 4; i++)
		CHECK(all[i] == &p[3 - i]);
	jobs_take_turns(all, 0);
}
