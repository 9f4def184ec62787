/* SPDX-License-Identifier: MulanPSL-2.0 */
/* From the stacks of two looks to calls. */
#include "activity/trace/python.h"
#include "base/containers/intern.h"
#include "test.h"
#include "unwind/remote/python.h"

#include <unistd.h>

#define MS 1000000ull
#define DEEP 8

static struct seen s;
static struct stack_frame frames[DEEP];
static struct python_thread thread;
static struct python_process process;

/* A stack "a:3 b:7": functions and the lines that they are at; `kept` as the reader finds it. */
static void look(uint64_t ms, const char *text, unsigned kept)
{
	unsigned n = 0;

	for (const char *p = text; *p; n++) {
		frames[n] = (struct stack_frame){.name = intern(p, 1),
						 .file = intern("f.py", 4),
						 .first_line = *p,
						 .line = atoi(p + 2)};
		p += strcspn(p, " ");
		p += *p == ' ';
	}
	thread.frames = frames;
	thread.nframes = n;
	thread.kept = kept;
	thread.time_ns = ms * MS;
	thread.serial = 1;
	thread.tid = 70;
	thread.inner_tid = 7;
	thread.name = intern("MainThread", 10);
	process = (struct python_process){.threads = &thread, .nthreads = 1, .time_ns = ms * MS};
	seen_add_sample(&s, &process);
}

static const struct seen_call *call(const char *name, unsigned nth)
{
	for (size_t i = 0; i < s.n; i++)
		if (!strcmp(s.calls[i].name, name) && !nth--)
			return &s.calls[i];
	return NULL;
}

static void begin(void)
{
	s = (struct seen){.from_ns = SEEN_NEVER};
	thread = (struct python_thread){0};
}

static void check(const struct seen_call *c, uint64_t start_ms, uint64_t end_ms, uint32_t depth)
{
	CHECK(c);
	CHECK_INT(c->start.ns, start_ms * MS);
	CHECK_INT(c->end.ns, end_ms * MS);
	CHECK_INT(c->depth, depth);
	CHECK_INT(c->tid, 7);
}

TEST(trace_python_calls, calls_begin_and_end_between_looks)
{
	begin();
	look(10, "m:1 a:1", 0);
	look(11, "m:1 a:2", 2);
	look(12, "m:1 a:2 b:1", 2);
	look(13, "m:2", 1);
	look(14, "m:2 a:1", 1);
	look(16, "m:2 a:1", 2);
	seen_end(&s);
	CHECK_INT(s.n, 4);
	check(call("a", 0), 10, 13, 1);
	check(call("b", 0), 12, 13, 2);
	check(call("a", 1), 14, 16, 1);
	check(call("m", 0), 10, 16, 0);
	CHECK_INT(call("b", 0)->start.after_ns, 11 * MS);
	CHECK_INT(call("b", 0)->end.after_ns, 12 * MS);
	CHECK_INT(call("m", 0)->start.after_ns, 0);
	CHECK_INT(s.first_ns, 10 * MS);
	CHECK_STR(hmap_get_ptr(&s.names, 7), "MainThread");
	seen_release(&s);
}

TEST(trace_python_calls, a_caller_that_moved_calls_again)
{
	begin();
	look(10, "m:1 a:1", 0);
	look(11, "m:2 a:1", 2); /* the same function, from another line */
	look(12, "m:2 a:1", 1); /* the reader knows that it is another call */
	seen_end(&s);
	CHECK_INT(s.n, 4);
	check(call("a", 0), 10, 11, 1);
	check(call("a", 1), 11, 12, 1);
	seen_release(&s);
}

TEST(trace_python_calls, what_was_missed_stays)
{
	begin();
	look(10, "m:1 a:1", 0);
	thread.missed = true;
	look(11, "", 0);
	thread.missed = false;
	look(12, "m:1 a:1", 2);
	look(13, "m:1", 1);
	seen_end(&s);
	check(call("a", 0), 10, 13, 1);
	seen_release(&s);
}

TEST(trace_python_calls, the_collector_is_the_innermost)
{
	begin();
	look(10, "m:1", 0);
	thread.gc = true;
	look(11, "m:1", 1);
	look(12, "m:1", 1);
	thread.gc = false;
	look(13, "m:1", 1);
	seen_end(&s);
	CHECK_INT(s.n, 2);
	check(call("<garbage collection>", 0), 11, 13, 1);
	check(call("m", 0), 10, 13, 0);
	seen_release(&s);
}

TEST(trace_python_calls, threads_that_end)
{
	begin();
	look(10, "m:1 a:1", 0);
	process = (struct python_process){.threads = NULL, .nthreads = 0, .time_ns = 11 * MS};
	seen_add_sample(&s, &process);
	CHECK_INT(s.threads.count, 0);
	CHECK_INT(s.n, 2);
	check(call("a", 0), 10, 11, 1);
	seen_release(&s);
}

/* Looks go on for hours before the first step: memory does not. */
TEST(trace_python_calls, while_no_step_has_begun)
{
	begin();
	for (uint64_t ms = 1; ms <= SEEN_MAX_CALLS + 5000; ms++)
		look(ms, ms % 2 ? "m:1 a:1" : "m:1 b:1", 1);
	CHECK_INT(s.left_out, 0);
	CHECK(s.n <= SEEN_MAX_CALLS && s.n >= 900);
	s.from_ns = (SEEN_MAX_CALLS + 6000) * MS;
	look(SEEN_MAX_CALLS + 5500, "m:1 a:1", 1);
	look(SEEN_MAX_CALLS + 6500, "m:1", 1);
	CHECK(call("a", 0));
	seen_release(&s);
}

TEST(trace_python_calls, no_room_is_counted)
{
	begin();
	s.from_ns = 1;
	for (uint64_t ms = 1; ms <= SEEN_MAX_CALLS + 1000; ms++)
		look(ms, ms % 2 ? "m:1 a:1" : "m:1 b:1", 1);
	CHECK_INT(s.n, SEEN_MAX_CALLS);
	CHECK_INT(s.left_out, 999);
	seen_release(&s);
}

TEST(trace_python_calls, a_process_without_python)
{
	const char *why;
	struct trace_python *p = trace_python_start((uint32_t)getpid(), (uint32_t)getpid());
	const struct seen *seen = trace_python_wait(p, &why);

	CHECK_INT(seen->first_ns, 0);
	CHECK(*why);
	trace_python_free(p);
	p = trace_python_start((1u << 30) + 1, 1); /* no process has such a number */
	trace_python_wait(p, &why);
	CHECK(*why);
	trace_python_free(p);
}
