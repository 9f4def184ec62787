/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/containers/buf.h"
#include "test.h"
#include "unwind/remote/native/native.h"

#define MOST 32

/*
 * Made-up stacks, outermost first. Native: `E` is the interpreter's loop, `-name` a function of the
 * interpreter, anything else one outside. Python: `name*` was called from C.
 */
struct made {
	struct stack_frame frames[MOST];
	bool is_eval[MOST], is_internal[MOST];
	char text[MOST][40];
	unsigned n;
};

static void take_words(const char *words, struct made *out)
{
	size_t n;

	for (out->n = 0; *words; words += n + (words[n] == ' ')) {
		n = strcspn(words, " ");
		CHECK(out->n < MOST && n < sizeof(out->text[0]));
		memcpy(out->text[out->n], words, n);
		out->text[out->n++][n] = 0;
	}
}

static struct native_stack native(const char *words, bool whole, struct made *m)
{
	*m = (struct made){0};
	take_words(words, m);
	for (unsigned i = 0; i < m->n; i++) {
		m->is_eval[i] = !strcmp(m->text[i], "E");
		m->is_internal[i] = m->is_eval[i] || m->text[i][0] == '-';
		m->frames[i] = (struct stack_frame){.name = m->text[i] + (m->text[i][0] == '-'),
						    .kind = FRAME_IS_NATIVE};
	}
	return (struct native_stack){m->frames, m->is_eval, m->is_internal, m->n, whole};
}

static void python(const char *words, struct made *m)
{
	*m = (struct made){0};
	take_words(words, m);
	for (unsigned i = 0; i < m->n; i++) {
		size_t n = strlen(m->text[i]);
		bool entry = m->text[i][n - 1] == '*';

		m->text[i][n - entry] = 0;
		m->frames[i] = (struct stack_frame){.name = m->text[i], .entry = entry};
	}
}

static const char *merge(const char *native_words, bool whole, const char *python_words)
{
	static struct made a, b;
	static struct buf text;
	struct native_stack s = native(native_words, whole, &a);
	struct stack_frame *out = NULL;
	size_t cap = 0;
	unsigned n = 77;

	python(python_words, &b);
	native_merge(&s, b.frames, b.n, &out, &cap, &n);
	buf_clear(&text);
	for (unsigned i = 0; i < n; i++)
		buf_addf(&text, "%s%s%s", i ? " " : "", out[i].kind == FRAME_IS_NATIVE ? "~" : "",
			 out[i].name);
	free(out);
	return buf_str(&text);
}

TEST(remote_native_merge, puts_python_in_the_place_of_the_loop)
{
	CHECK_STR(merge("_start -Py_RunMain E -time_sleep nanosleep", true, "module* f g"),
		  "~_start module f g ~time_sleep ~nanosleep");
	CHECK_STR(merge("_start E", true, "module*"), "~_start module");
}

TEST(remote_native_merge, one_loop_per_function_before_3_11)
{
	CHECK_STR(merge("_start E -call_function E -call_function E -time_sleep", true,
			"module* f* g*"),
		  "~_start module f g ~time_sleep");
	CHECK_STR(merge("_start E E E", true, "module* f* g*"), "~_start module f g");
}

TEST(remote_native_merge, calls_from_c_lie_between)
{
	CHECK_STR(merge("_start E -vectorcall ffi_call qsort closure -PyObject_Call E sleep", true,
			"module* sort_all compare* key"),
		  "~_start module sort_all ~ffi_call ~qsort ~closure compare key ~sleep");
}

TEST(remote_native_merge, leaves_out_how_the_interpreter_calls)
{
	CHECK_STR(merge("E -PyObject_Vectorcall -cfunction_vectorcall_O -0x1234 -time_sleep wait",
			true, "f*"),
		  "f ~time_sleep ~wait");
	/* Behind the first meaningful one they are what it does. */
	CHECK_STR(merge("E -list_sort -PyObject_Vectorcall -0x99 -long_richcompare", true, "f*"),
		  "f ~list_sort ~PyObject_Vectorcall ~long_richcompare");
	CHECK_STR(merge("E -0x1234 0x5678", true, "f*"), "f ~0x5678");
}

TEST(remote_native_merge, a_loop_that_begins_or_ends_has_no_frame)
{
	CHECK_STR(merge("_start E -_PyFunction_Vectorcall E", true, "module*"), "~_start module");
	CHECK_STR(merge("_start E", true, ""), "~_start");
}

TEST(remote_native_merge, a_native_walk_that_gave_up)
{
	CHECK_STR(merge("qsort E sleep", false, "module* f g* h"), "module f ~qsort g h ~sleep");
	CHECK_STR(merge("sleep", false, "module* f"), "module f ~sleep");
	CHECK_STR(merge("", false, "module* f"), "module f");
}

TEST(remote_native_merge, a_python_stack_that_is_cut)
{
	CHECK_STR(merge("_start E E E qsort E sleep", true, "f g*"), "~_start f ~qsort g ~sleep");
}

TEST(remote_native_merge, never_loses_a_python_frame)
{
	/* Too few loops, too many, none at all. */
	CHECK_STR(merge("_start qsort E sleep", true, "module* f* g*"), "module f g ~sleep");
	CHECK_STR(merge("_start E x E y E sleep", true, "module*"), "module ~sleep");
	CHECK_STR(merge("_start -unknown sleep", true, "module* f*"), "module f ~sleep");
	CHECK_STR(merge("_start something sleep", true, "module* f*"), "module f");
	CHECK_STR(merge("_start E x E -vectorcall", true, ""), "");
}

TEST(remote_native_merge, without_python_frames)
{
	CHECK_STR(merge("_start -main -Py_FinalizeEx wait", true, ""),
		  "~_start ~main ~Py_FinalizeEx ~wait");
	CHECK_STR(merge("", false, ""), "");
}
