/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/printable.h"
#include "memory/analysis/common/frames.h"
#include "test.h"

static void check_printable(const char *text, size_t len, const char *want)
{
	struct buf out = {0};

	text_add_printable(&out, text, len);
	CHECK_INT(out.len, strlen(want));
	CHECK_STR(buf_str(&out), want);
	buf_release(&out);
}

#define PRINTABLE(text_, want_) check_printable(text_, sizeof(text_) - 1, want_)

TEST(frames, text_of_others_does_not_command_the_terminal)
{
	PRINTABLE("aten.mm", "aten.mm");
	PRINTABLE("\033]0;title\007\033[31m\177\r\n", "?]0;title??[31m???");
	/* U+009B begins a sequence as ESC [ does, in UTF-8 and as a byte of its own */
	PRINTABLE("a\xc2\x9b"
		  "31m",
		  "a?31m");
	PRINTABLE("a\x9b"
		  "31m",
		  "a\xef\xbf\xbd"
		  "31m");
	/* right-to-left override and isolates; a line separator */
	PRINTABLE("a\xe2\x80\xae"
		  "b\xe2\x81\xa6"
		  "c\xe2\x80\xa8",
		  "a?b?c?");
}

TEST(frames, text_of_others_stays_text)
{
	PRINTABLE("", "");
	PRINTABLE("\0", "");
	PRINTABLE("\xe5\xb1\x82/\xc3\xa9\xe2\x80\xa6\xf0\x9f\x98\x80\xc2\xa0",
		  "\xe5\xb1\x82/\xc3\xa9\xe2\x80\xa6\xf0\x9f\x98\x80\xc2\xa0");
	/* cut in the middle of a letter */
	PRINTABLE("\xe5\xb1", "\xef\xbf\xbd\xef\xbf\xbd");
}

/* The chosen frames of a call stack as people see them, one behind the other. */
static void check_choice(const char *py, const char *c, const struct frame_choice *choice,
			 const char *want)
{
	struct frame_list frames = {0};
	struct buf out = {0};

	frames_join(py, c, choice ? choice->which : FRAMES_USEFUL, &frames);
	if (choice)
		frames_shorten(&frames, choice);
	for (size_t i = 0; i < frames.n; i++) {
		buf_add_str(&out, i ? " < " : "");
		if (frames.list[i].cut)
			buf_add_str(&out, "...");
		else
			frame_describe(&frames.list[i].line, frames.list[i].python, &out);
	}
	CHECK_STR(buf_str(&out), want);
	buf_release(&out);
	frame_list_release(&frames);
}

static void check_frames(const char *py, const char *c, bool shortened, const char *want)
{
	check_choice(py, c, shortened ? &(struct frame_choice){0} : NULL, want);
}

TEST(frames, allocators_are_passed_over_and_cpp_is_readable)
{
	check_frames(NULL,
		     "/lib/libstdc++.so.6(_Znwm+0x1c) [0x1]\n"
		     "job(_ZNSt15__new_allocatorIiE8allocateEmPKv [inlined]+0x1) [0x2] a.h:137\n"
		     "job(_ZN3app5CacheIiE3putEii+0x10) [0x3] /src/job.cpp:6\n"
		     "job(main+0x9) [0x4] /src/job.cpp:9\n"
		     "/lib/libc.so.6(__libc_start_main+0x85) [0x5]\n",
		     false, "app::Cache<int>::put (job.cpp:6) < main (job.cpp:9)");
	/* operator()(int) const keeps its name */
	check_frames(NULL, "job(_ZZ4mainENKUliE_clEi [inlined]+0x10) [0x3]\n", false,
		     "main::{lambda(int)#1}::operator() [inlined] (job)");
	check_frames(NULL, "job(_ZN12_GLOBAL__N_14growEv+0x10) [0x3]\n", false,
		     "(anonymous namespace)::grow (job)");
	/* what the C++ library does between two functions of the program, also inlined */
	check_frames(
		NULL,
		"job(kv::Session::Session [inlined]+0x1) [0x2] kv.cpp:22\n"
		"job(void std::_Construct<kv::Session, char>(kv::Session*) [inlined]+0x1) [0x2]\n"
		"job(kv::Session* std::construct_at<kv::Session>() [inlined]+0x1) [0x2] s.h:1\n"
		"job(kv::Registry::open [inlined]+0x1) [0x2] kv.cpp:29\n"
		"job(_ZNSt6thread10_M_releaseEv+0x1) [0x3] thread.h:10\n",
		false,
		"kv::Session::Session [inlined] (kv.cpp:22) < "
		"kv::Registry::open [inlined] (kv.cpp:29)");
	/* nothing else is there */
	check_frames(NULL, "/lib/libstdc++.so.6(_Znwm+0x1c) [0x1]\n", false,
		     "operator new (libstdc++.so.6)");
}

#define EVAL "/usr/bin/python3.11(_PyEval_EvalFrameDefault+0x8f0) [0x52b9e0]\n"
#define START "/lib/libc.so.6(__libc_start_main+0x85) [0x5]\n"

TEST(frames, python_stands_where_its_interpreter_is)
{
	/* one evaluation for each Python frame: everything has its place */
	check_frames(
		"a.py(1): inner\na.py(2): outer\n",
		"libext.so(make+0x1) [0x1]\n" EVAL "/usr/bin/python3.11(call+0x1) [0x2]\n"
		"libsort.so(sort+0x1) [0x3]\n" EVAL "/usr/bin/python3.11(main+0x1) [0x4]\n" START,
		false, "make (libext.so) < inner (a.py:1) < sort (libsort.so) < outer (a.py:2)");
	/* two Python frames in one: who called sort() is not known */
	check_frames("a.py(1): inner\na.py(2): middle\na.py(3): outer\n",
		     "libext.so(make+0x1) [0x1]\n" EVAL "libsort.so(sort+0x1) [0x3]\n" EVAL
		     "embed(run+0x1) [0x4]\n" START,
		     false,
		     "make (libext.so) < inner (a.py:1) < middle (a.py:2) < outer (a.py:3) < run "
		     "(embed)");
	/* without names */
	check_frames("a.py(1): inner\n",
		     "libext.so(make+0x1) [0x1]\n/usr/bin/python3.11(+0x52) [0x52]\n" START, false,
		     "make (libext.so) < inner (a.py:1)");
	/* cut before it reached the interpreter; hidden in a program */
	check_frames("a.py(1): inner\n", "libext.so(make+0x1) [0x1]\n", false,
		     "make (libext.so) < inner (a.py:1)");
	check_frames("a.py(1): inner\n", "embed(make+0x1) [0x1]\n" START, false,
		     "inner (a.py:1) < make (embed)");
}

TEST(frames, long_stacks_keep_both_ends)
{
	struct buf py = {0};

	for (int i = 1; i <= 6; i++)
		buf_addf(&py, "a.py(%d): f%d\n", i, i);
	check_frames(buf_str(&py), NULL, true,
		     "f1 (a.py:1) < f2 (a.py:2) < f3 (a.py:3) < f4 (a.py:4) < f5 (a.py:5) < f6 "
		     "(a.py:6)");
	buf_add_str(&py, "a.py(7): f7\n");
	check_frames(buf_str(&py), NULL, true,
		     "f1 (a.py:1) < f2 (a.py:2) < f3 (a.py:3) < ... < f6 (a.py:6) < f7 (a.py:7)");
	check_frames(
		buf_str(&py),
		"l(c1+0x1) [0x1]\nl(c2+0x1) [0x1]\nl(c3+0x1) [0x1]\nl(c4+0x1) [0x1]\n" EVAL
		"p(main+0x1) [0x1]\n",
		true,
		"c1 (l) < c2 (l) < c3 (l) < c4 (l) < f1 (a.py:1) < f2 (a.py:2) < f3 (a.py:3) < "
		"... < f6 (a.py:6) < f7 (a.py:7) < main (p)");
	buf_release(&py);
}

#define TORCH "/usr/lib/python3/dist-packages/torch/"

/* "place via call" of a Python stack, or "place". */
static void check_place(const char *text, bool python, const char *want)
{
	struct frame_line place, via;
	struct buf out = {0};

	CHECK_INT(frames_pick(text, python, &place, 1), 1);
	frame_describe(&place, python, &out);
	if (frames_via(text, &place, python, &via)) {
		buf_add_str(&out, " via ");
		frame_describe_call(&via, python, &out);
	}
	CHECK_STR(buf_str(&out), want);
	buf_release(&out);
}

TEST(frames, a_place_is_a_line_of_the_users_code_and_what_it_called)
{
	static const char deep[] = TORCH "nn/modules/linear.py(114): Linear.forward\n" TORCH
					 "nn/modules/module.py(1194): Module._call_impl\n"
					 "...\n"
					 "/srv/job/train.py(18): train_step\n"
					 "/srv/job/train.py(40): main\n";

	check_place(deep, true, "train_step (train.py:18) via Linear.forward");
	/* names of functions before 3.11 say too little */
	check_place(TORCH "nn/modules/linear.py(114): forward\n"
			  "train.py(18): train_step\n",
		    true, "train_step (train.py:18) via forward (linear.py:114)");
	check_place(TORCH "__init__.py(9): load\n<string>(1): <module>\n", true,
		    "load (torch/__init__.py:9)");
	check_place("__main__.py(9): run\n", true, "run (__main__.py:9)");
	/* nothing but wrappers in between, or the user's own */
	check_place(TORCH "nn/modules/module.py(1194): _call_impl\ntrain.py(18): step\n", true,
		    "step (train.py:18)");
	check_place("layers.py(3): Own.forward\n" TORCH "nn/modules/module.py(9): _call_impl\n"
		    "train.py(18): step\n",
		    true, "Own.forward (layers.py:3)");
	/* no code of the user's: the package's, not the standard library's, not a wrapper */
	check_place("/usr/lib/python3.11/queue.py(1): put\n" TORCH
		    "nn/modules/module.py(9): Module._call_impl\n" TORCH "utils/x.py(2): load\n",
		    true, "load (x.py:2)");
	/* C++: what the program called in the framework */
	check_place("/opt/torch/lib/libc10.so(_ZN3c105allocEv+0x1) [0x1]\n"
		    "/opt/torch/lib/libtorch_cpu.so(_ZN2at5emptyEv+0x1) [0x1]\n"
		    "/srv/job/serve(_Z4loadv+0x1) [0x1] serve.cpp:7\n"
		    "/srv/job/serve(main+0x1) [0x1] serve.cpp:9\n",
		    false, "load (serve.cpp:7) via at::empty");
	check_place("/venv/lib/python3.11/site-packages/cupy/core.so(alloc+0x1) [0x1]\n"
		    "./serve(main+0x1) [0x1] serve.c:9\n",
		    false, "main (serve.c:9) via alloc");
}

#define OWN "/usr/local/lib/python/msmemscope/"

TEST(frames, our_own_files_are_no_place)
{
	static const char own[] =
		"<frozen importlib._bootstrap>(690): _load_unlocked\n" OWN
		"_collectors.py(77): load.<locals>.load_one\n" OWN "_control.py(116): start\n";
	static const char called[] = OWN "_notes.py(5): <module>\n" TORCH "x.py(2): load\n"
					 "train.py(18): step\n";

	static const char brought[] =
		"<frozen importlib._bootstrap>(690): _load_unlocked\n"
		"<sonde>(33): bring\n<sonde>(86): <module>\ntrain.py(0): <module>\n";

	check_place(own, true, "sonde itself");
	check_place(brought, true, "sonde itself");
	check_place(called, true, "step (train.py:18) via load (x.py:2)");
	check_frames(own, NULL, true, "sonde itself");
	check_frames("<string>(1): a\n" OWN "_notes.py(5): b\n" TORCH "x.py(2): load\n", NULL, true,
		     "a (<string>:1) < load (x.py:2)");
}

TEST(frames, people_choose_what_they_see)
{
	static const char py[] = TORCH "a.py(1): A.forward\nme.py(2): f\n" TORCH "b.py(3): call\n"
				       "me.py(4): main\n";

	check_choice(py, NULL, &(struct frame_choice){.which = FRAMES_ALL},
		     "A.forward (a.py:1) < f (me.py:2) < call (b.py:3) < main (me.py:4)");
	check_choice(py, NULL, &(struct frame_choice){.which = FRAMES_USER},
		     "f (me.py:2) < main (me.py:4)");
	check_choice(py, NULL, &(struct frame_choice){0},
		     "f (me.py:2) < call (b.py:3) < main (me.py:4)");
	check_choice(py, NULL, &(struct frame_choice){.which = FRAMES_ALL, .most = 2},
		     "A.forward (a.py:1) < ... < main (me.py:4)");
	/* nothing of the user's */
	check_choice(TORCH "a.py(1): x\n", NULL, &(struct frame_choice){.which = FRAMES_USER},
		     "x (a.py:1)");
	/* what only calls modules is left out where there is anything else */
	check_choice("me.py(2): f\n" TORCH "m.py(5): Module._call_impl\n" TORCH "b.py(3): call\n",
		     NULL, &(struct frame_choice){0}, "f (me.py:2) < call (b.py:3)");
	/* what was not recorded is no frame */
	check_choice(TORCH "a.py(1): x\n...\nme.py(4): main\n", NULL,
		     &(struct frame_choice){.which = FRAMES_ALL},
		     "x (a.py:1) < ... < main (me.py:4)");
}
