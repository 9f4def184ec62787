/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/rounds/events.h"

#include <jansson.h>

#include "base/containers/intern.h"
#include "base/fs.h"
#include "test.h"
#include "tmpdir.h"

#define TEXT(s) intern(s, strlen(s))
#define MS 1000000u

/* One process of up to four threads, of which a test says what is on their stacks. */
struct world {
	const char *path;
	struct chrome_trace *trace;
	struct events *events;
	struct python_process python;
	struct python_thread threads[4];
	struct stack_frame frames[4][16];
	struct target target;
};

static void world_new(struct world *w, bool all_threads, bool lines)
{
	struct err err;

	memset(w, 0, sizeof(*w));
	w->path = tmpfile_path("trace.json");
	CHECK_INT(
		chrome_trace_new(&(struct chrome_trace_options){.path = w->path}, &w->trace, &err),
		0);
	w->events = events_new(&(struct events_options){.trace = w->trace,
							.start_ns = 1000 * MS,
							.all_threads = all_threads,
							.lines = lines});
	w->target = (struct target){.pid = 41,
				    .serial = 7,
				    .role = ROLE_RANK,
				    .rank = 3,
				    .label = (char *)(uintptr_t) "rank 3: python train.py",
				    .state = TARGET_OPEN,
				    .python = &w->python};
	w->python.threads = w->threads;
	w->python.time_ns = 1000 * MS;
}

static struct python_thread *add_thread(struct world *w, const char *name, pid_t tid)
{
	unsigned i = w->python.nthreads++;
	struct python_thread *th = &w->threads[i];

	*th = (struct python_thread){.serial = 100 + i,
				     .thread_id = 0x7f0000000000 + i,
				     .tid = tid,
				     .name = TEXT(name),
				     .main = i == 0,
				     .frames = w->frames[i]};
	return th;
}

/* "main:10 step:42": function and line, outermost first; the first `kept` are the same calls. */
static void stack(struct python_thread *th, const char *text, unsigned kept)
{
	char copy[256], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", text);
	th->nframes = 0;
	for (char *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save)) {
		char *colon = strchr(s, ':');

		th->frames[th->nframes++] =
			(struct stack_frame){.name = intern(s, (size_t)(colon - s)),
					     .file = TEXT("/x/app/train.py"),
					     .line = atoi(colon + 1),
					     .first_line = 5};
	}
	th->kept = kept;
}

static void next_round(struct world *w)
{
	w->python.time_ns += 10 * MS;
	for (unsigned i = 0; i < w->python.nthreads; i++)
		w->threads[i].time_ns = w->python.time_ns + i;
	events_sample(w->events, &w->target);
}

/* What was written, a line per event: "B 10.000 41/42 name line". */
static struct buf told(const char *path)
{
	json_t *j = json_load_file(path, JSON_REJECT_DUPLICATES, NULL), *e;
	json_t *list = json_is_array(j) ? j : json_object_get(j, "traceEvents");
	struct buf b = {0};
	size_t i;

	CHECK(list);
	json_array_foreach(list, i, e)
	{
		json_t *args = json_object_get(e, "args");
		const char *ph = json_string_value(json_object_get(e, "ph"));

		if (*ph != 'B' && *ph != 'E')
			continue;
		buf_addf(&b, "%s %g %lld %s", ph, json_number_value(json_object_get(e, "ts")) / 1e3,
			 (long long)json_integer_value(json_object_get(e, "tid")),
			 json_string_value(json_object_get(e, "name")));
		if (json_object_get(args, "line"))
			buf_addf(&b, " %lld",
				 (long long)json_integer_value(json_object_get(args, "line")));
		buf_add_char(&b, '\n');
	}
	json_decref(j);
	return b;
}

/* The bars of steps: "10+20 steps 6 to 8", in milliseconds. */
static struct buf bars(const char *path)
{
	json_t *j = json_load_file(path, JSON_REJECT_DUPLICATES, NULL), *e;
	json_t *list = json_is_array(j) ? j : json_object_get(j, "traceEvents");
	struct buf b = {0};
	size_t i;

	CHECK(list);
	json_array_foreach(list, i, e)
	{
		if (*json_string_value(json_object_get(e, "ph")) != 'X')
			continue;
		CHECK_STR(json_string_value(json_object_get(e, "cat")), "step");
		buf_addf(&b, "%g+%g %s\n", json_number_value(json_object_get(e, "ts")) / 1e3,
			 json_number_value(json_object_get(e, "dur")) / 1e3,
			 json_string_value(json_object_get(e, "name")));
	}
	json_decref(j);
	return b;
}

static void check_told(struct world *w, const char *want)
{
	CHECK_INT(chrome_trace_flush(w->trace, NULL), 0);
	struct buf b = told(w->path);
	CHECK_STR(buf_str(&b), want);
	buf_release(&b);
}

static void world_end(struct world *w)
{
	events_free(w->events);
	CHECK_INT(chrome_trace_close(w->trace, NULL), 0);
}

TEST(events, a_new_line_does_not_split_a_frame)
{
	struct world w;

	world_new(&w, true, false);
	struct python_thread *th = add_thread(&w, "MainThread", 41);
	stack(th, "main:10 step:42", 0);
	next_round(&w);
	stack(th, "main:10 step:43", 2);
	next_round(&w);
	/* the caller is at another line: another call of step, whatever it is */
	stack(th, "main:11 step:42", 1);
	next_round(&w);
	stack(th, "main:11 step:42 load:7", 2);
	next_round(&w);
	/* the same names, and yet another call */
	stack(th, "main:11 step:42 load:7", 1);
	next_round(&w);
	events_close_all(w.events, w.python.time_ns + 5 * MS);
	check_told(&w, "B 10 41 main (app/train.py:5) 10\n"
		       "B 10 41 step (app/train.py:5) 42\n"
		       "E 30 41 step (app/train.py:5) 43\n"
		       "B 30 41 step (app/train.py:5) 42\n"
		       "B 40 41 load (app/train.py:5) 7\n"
		       "E 50 41 load (app/train.py:5) 7\n"
		       "E 50 41 step (app/train.py:5) 42\n"
		       "B 50 41 step (app/train.py:5) 42\n"
		       "B 50 41 load (app/train.py:5) 7\n"
		       "E 55 41 load (app/train.py:5) 7\n"
		       "E 55 41 step (app/train.py:5) 42\n"
		       "E 55 41 main (app/train.py:5) 11\n");
	world_end(&w);
}

static void steps_at(struct world *w, unsigned ms, int64_t ended)
{
	events_steps(w->events, &w->target, ended, (1000ull + ms) * MS);
}

/* Whole steps alone: when the first one began nobody saw, and the last one has not ended. */
TEST(events, steps_are_bars_between_their_ends)
{
	struct world w;

	world_new(&w, true, false);
	stack(add_thread(&w, "MainThread", 41), "main:10", 0);
	steps_at(&w, 5, 4); /* not known yet: of no process */
	next_round(&w);
	steps_at(&w, 10, 4);
	steps_at(&w, 20, 5);
	steps_at(&w, 30, 5);
	steps_at(&w, 40, 6);
	steps_at(&w, 50, 9); /* three between two rounds */
	steps_at(&w, 60, 2); /* counted anew */
	steps_at(&w, 70, 3);
	steps_at(&w, 85, 4);
	steps_at(&w, 90, 4);
	CHECK_INT(chrome_trace_flush(w.trace, NULL), 0);
	struct buf b = bars(w.path);
	CHECK_STR(buf_str(&b), "20+20 step 6\n40+10 steps 7 to 9\n70+15 step 4\n");
	buf_release(&b);
	world_end(&w);
}

TEST(events, lines_split_when_asked_to)
{
	struct world w;

	world_new(&w, true, true);
	struct python_thread *th = add_thread(&w, "MainThread", 41);
	stack(th, "main:10 step:42", 0);
	next_round(&w);
	stack(th, "main:10 step:43", 2);
	next_round(&w);
	check_told(&w, "B 10 41 main (app/train.py:10) 10\n"
		       "B 10 41 step (app/train.py:42) 42\n"
		       "E 20 41 step (app/train.py:42) 42\n"
		       "B 20 41 step (app/train.py:43) 43\n");
	world_end(&w);
}

TEST(events, a_missed_thread_goes_on_and_one_that_is_gone_ends)
{
	struct world w;

	world_new(&w, true, false);
	struct python_thread *th = add_thread(&w, "MainThread", 41);
	struct python_thread *other = add_thread(&w, "worker", 42);
	stack(th, "main:10", 0);
	stack(other, "run:7", 0);
	next_round(&w);
	th->missed = true;
	th->kept = 0;
	w.python.nthreads = 1;
	next_round(&w);
	/* a round that failed: nothing new */
	events_sample(w.events, &w.target);
	th->missed = false;
	th->kept = 1;
	next_round(&w);
	events_gone(w.events, &w.target, w.python.time_ns + MS);
	events_gone(w.events, &w.target, w.python.time_ns + MS);
	check_told(&w, "B 10 41 main (app/train.py:5) 10\n"
		       "B 10 42 run (app/train.py:5) 7\n"
		       "E 20 42 run (app/train.py:5) 7\n"
		       "E 31 41 main (app/train.py:5) 10\n");
	world_end(&w);
}

TEST(events, main_thread_only_if_there_is_one)
{
	struct world w;

	world_new(&w, false, false);
	stack(add_thread(&w, "", 41), "main:1", 0);
	stack(add_thread(&w, "worker", 42), "run:2", 0);
	next_round(&w);
	w.threads[0].name = TEXT("MainThread");
	w.threads[0].kept = w.threads[1].kept = 1;
	next_round(&w);
	check_told(&w, "B 10 41 main (app/train.py:5) 1\n"
		       "B 10 42 run (app/train.py:5) 2\n"
		       "E 20 42 run (app/train.py:5) 2\n");
	world_end(&w);
}

TEST(events, the_collector_is_a_frame)
{
	struct world w;

	world_new(&w, true, false);
	struct python_thread *th = add_thread(&w, "MainThread", 41);
	stack(th, "main:1", 0);
	th->gc = true;
	next_round(&w);
	th->kept = 1;
	next_round(&w); /* still */
	th->gc = false;
	next_round(&w);
	th->gc = true;
	stack(th, "main:1 f:2", 1);
	next_round(&w);
	stack(th, "main:1", 1);
	next_round(&w);
	check_told(&w, "B 10 41 main (app/train.py:5) 1\n"
		       "B 10 41 <garbage collection> 0\n"
		       "E 30 41 <garbage collection>\n"
		       "B 40 41 f (app/train.py:5) 2\n"
		       "B 40 41 <garbage collection> 0\n"
		       "E 50 41 <garbage collection>\n"
		       "E 50 41 f (app/train.py:5) 2\n"
		       "B 50 41 <garbage collection> 0\n");
	world_end(&w);
}

TEST(events, time_never_goes_back_in_a_thread)
{
	struct world w;

	world_new(&w, true, false);
	struct python_thread *th = add_thread(&w, "MainThread", 41);
	stack(th, "main:1", 0);
	next_round(&w);
	events_close_all(w.events, w.python.time_ns - 5 * MS);
	check_told(&w, "B 10 41 main (app/train.py:5) 1\n"
		       "E 10 41 main (app/train.py:5) 1\n");
	world_end(&w);
}

static json_t *find(json_t *list, const char *name, long long pid, long long tid)
{
	json_t *e;
	size_t i;

	json_array_foreach(list, i, e)
	{
		if (!strcmp(json_string_value(json_object_get(e, "name")), name) &&
		    json_integer_value(json_object_get(e, "pid")) == pid &&
		    json_integer_value(json_object_get(e, "tid")) == tid)
			return json_object_get(e, "args");
	}
	return NULL;
}

static const char *text_of(json_t *args, const char *key)
{
	return json_string_value(json_object_get(args, key));
}

TEST(events, names_and_places_of_processes_and_threads)
{
	struct world w;

	world_new(&w, true, false);
	add_thread(&w, "MainThread", 0)->inner_tid = 9;
	add_thread(&w, "", 0);
	add_thread(&w, "loader", 55);
	next_round(&w);
	w.threads[1].name = TEXT("late");
	next_round(&w);
	CHECK_INT(chrome_trace_flush(w.trace, NULL), 0);
	json_t *j = json_load_file(w.path, 0, NULL);
	json_t *process = find(j, "process_name", 41, 0);
	CHECK_STR(text_of(process, "name"), "rank 3: python train.py (41)");
	CHECK(json_integer_value(json_object_get(process, "start_time_unix_ns")) >
	      1600000000000000000);
	CHECK_INT(json_integer_value(
			  json_object_get(find(j, "process_sort_index", 41, 0), "sort_index")),
		  3);
	CHECK_STR(text_of(find(j, "thread_name", 41, 9), "name"), "MainThread");
	CHECK_STR(text_of(find(j, "thread_name", 41, 55), "name"), "loader");
	/* one without a tid has a number that Linux never gives; its name comes later */
	CHECK_STR(text_of(find(j, "thread_name", 41, (1 << 22) + 2), "name"), "Thread 4194306");
	CHECK_STR(
		text_of(json_object_get(json_array_get(j, json_array_size(j) - 2), "args"), "name"),
		"late");
	json_decref(j);
	world_end(&w);
}

TEST(events, counters_have_a_track_for_each_card)
{
	struct world w;
	struct counter c = {.time_ns = 1002 * MS,
			    .track = COUNTER_NPU,
			    .name = "npu_aicore_usage_rate",
			    .n = 1,
			    .values = {{.key = "aicore", .value = 37}}};

	world_new(&w, true, false);
	events_counter(w.events, &c);
	c.card = 1;
	events_counter(w.events, &c);
	c = (struct counter){.time_ns = 1003 * MS,
			     .track = COUNTER_PROCESS,
			     .card = -1,
			     .pid = 41,
			     .name = "process_rss",
			     .n = 1,
			     .values = {{.key = "rss_bytes", .value = 5e9}}};
	events_counter(w.events, &c);
	CHECK_INT(chrome_trace_flush(w.trace, NULL), 0);
	struct buf b = {0};
	CHECK_INT(fs_read_file(w.path, 1 << 20, &b, NULL), 0);
	CHECK(strstr(buf_str(&b), "\"args\":{\"name\":\"npu\",\"abs_time\":"));
	CHECK(strstr(b.data, "\"ph\":\"C\",\"ts\":2000.000,\"pid\":1000000000,\"tid\":0,"
			     "\"id\":\"0\",\"args\":{\"aicore\":37}"));
	CHECK(strstr(b.data, "\"id\":\"1\",\"args\":{\"aicore\":37}"));
	CHECK(strstr(b.data, "\"ph\":\"C\",\"ts\":3000.000,\"pid\":41,\"tid\":0,"
			     "\"args\":{\"rss_bytes\":5000000000}"));
	buf_release(&b);
	world_end(&w);
}

/* --- files that are complete by themselves --- */

static void end_open(void *arg, struct chrome_trace *t)
{
	struct world *w = arg;

	events_end_open(w->events, t, w->python.time_ns + MS);
}

static void begin_again(void *arg, struct chrome_trace *t)
{
	struct world *w = arg;

	events_begin_again(w->events, t, w->python.time_ns + MS);
}

/* Every E closes the B that was opened last in its thread, and none is left. */
static void check_balanced(const char *path)
{
	struct buf b = told(path), open[2] = {{0}, {0}};

	for (const char *s = buf_str(&b); *s; s = strchr(s, '\n') + 1) {
		char ph, name[100];
		unsigned tid;

		CHECK_INT(sscanf(s, "%c %*s %u %99s", &ph, &tid, name), 3);
		struct buf *o = &open[tid - 41];
		if (ph == 'B') {
			buf_addf(o, "/%s", name);
			continue;
		}
		const char *last = strrchr(buf_str(o), '/');
		CHECK(last);
		CHECK_STR(last + 1, name);
		o->len = (size_t)(last - o->data);
	}
	CHECK_INT(open[0].len + open[1].len, 0);
	buf_release(&open[0]);
	buf_release(&open[1]);
	buf_release(&b);
}

TEST(events, copies_and_rotated_files_are_balanced)
{
	struct world w;
	struct err err;
	char copy[PATH_MAX], path[PATH_MAX], rotated[PATH_MAX];

	world_new(&w, true, false);
	snprintf(path, sizeof(path), "%s/rotating.json", tmpdir());
	snprintf(rotated, sizeof(rotated), "%s/rotating.1.json", tmpdir());
	snprintf(copy, sizeof(copy), "%s/copy.json", tmpdir());
	CHECK_INT(chrome_trace_close(w.trace, NULL), 0);
	events_free(w.events);
	struct chrome_trace_options o = {.path = path,
					 .rotate_bytes = 3000,
					 .before_rotate = end_open,
					 .on_rotate = begin_again,
					 .arg = &w};
	CHECK_INT(chrome_trace_new(&o, &w.trace, &err), 0);
	w.events = events_new(&(struct events_options){
		.trace = w.trace, .start_ns = 1000 * MS, .all_threads = true});
	struct python_thread *a = add_thread(&w, "MainThread", 41);
	struct python_thread *b = add_thread(&w, "worker", 42);
	for (unsigned i = 0; i < 20; i++) {
		stack(a, i % 2 ? "main:1 step:2 load:3" : "main:1 step:2 train:4", i ? 2 : 0);
		stack(b, "run:1 wait:2", i ? 2 : 0);
		next_round(&w);
		CHECK_INT(chrome_trace_copy(w.trace, copy, end_open, &w, &err), 0);
		CHECK_INT(chrome_trace_copy_wait(w.trace, &err), 0);
		check_balanced(copy);
		CHECK_INT(chrome_trace_flush(w.trace, NULL), 0);
	}
	check_balanced(rotated);
	json_t *j = json_load_file(rotated, 0, NULL);
	CHECK(json_is_object(j));
	json_decref(j);
	j = json_load_file(path, 0, NULL);
	CHECK_STR(text_of(find(j, "thread_name", 41, 42), "name"), "worker");
	CHECK_STR(text_of(find(j, "process_name", 41, 0), "name"), "rank 3: python train.py (41)");
	json_decref(j);
	events_close_all(w.events, w.python.time_ns + MS);
	world_end(&w);
	check_balanced(path);
}
