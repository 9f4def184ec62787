/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Two views of one stack put together. Both are walked from the innermost frame outwards: that end
 * is the one that is surely there in both, when a walk gave up on its way to the other.
 *
 * The interpreter's loop is one native frame for a run of Python frames: from one that C called
 * (entry) to the last before the next such. So loops and runs are counted off against each other:
 *
 *	native				Python			merged
 *	_start				<module> (entry)	_start
 *	_PyEval_EvalFrameDefault	sort_all		<module>
 *	qsort				compare (entry)		sort_all
 *	_PyEval_EvalFrameDefault				qsort
 *	time_sleep						compare
 *								time_sleep
 */
#include <string.h>

#include "base/mem.h"
#include "unwind/remote/native/native.h"

static unsigned count_loops(const struct native_stack *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++)
		n += s->is_eval[i];
	return n;
}

/* Each loop runs the frames from one that was called from C to the last before the next such. The
 * outermost ones may have none: those were cut off. */
static unsigned count_groups(const struct stack_frame *python, unsigned n)
{
	unsigned groups = n && !python[0].entry;

	for (unsigned i = 0; i < n; i++)
		groups += python[i].entry;
	return groups;
}

/* How the interpreter gets from a call to the function: in every stack, and of interest in none. */
static bool is_call_helper(const char *name)
{
	static const char *const prefixes[] = {
		"_PyObject_Call",     "PyObject_Call",
		"_PyObject_FastCall", "_PyObject_MakeTpCall",
		"_PyCFunction_",      "PyCFunction_Call",
		"_PyMethodDef_",      "_PyMethodDescr_",
		"_PyFunction_",	      "_PyEval_EvalFrame",
		"PyEval_EvalFrame",   "_PyEval_EvalCode",
		"_PyEval_Vector",     "function_code_fastcall",
		"call_function",      "do_call_core",
		"cfunction_call",     "method_call",
		"object_vacall",      "type_call",
		"_Py_RunMain",
	};

	if (strstr(name, "vectorcall") || strstr(name, "Vectorcall") || strstr(name, "VECTORCALL"))
		return true;
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static bool is_nameless(const char *name)
{
	return name[0] == '0' && name[1] == 'x';
}

/* Frames are put down innermost first and turned round at the end. */
struct merging {
	const struct native_stack *native;
	const struct stack_frame *python;
	unsigned left; /* Python frames that are not put down yet */
	struct stack_frame **out;
	size_t *cap;
	unsigned n;
};

static void put_frame(struct merging *m, const struct stack_frame *f)
{
	*m->out = xgrow(*m->out, m->cap, m->n + 1, sizeof(**m->out));
	(*m->out)[m->n++] = *f;
}

static void put_group(struct merging *m)
{
	while (m->left) {
		const struct stack_frame *f = &m->python[--m->left];

		put_frame(m, f);
		if (f->entry)
			return;
	}
}

static void put_rest(struct merging *m)
{
	while (m->left)
		put_frame(m, &m->python[--m->left]);
}

/*
 * What the innermost Python frame called, [from, end): helpers on the way to it are left out.
 *
 * Between the innermost Python function and the C function that it called lie the interpreter's own
 * helpers, the same in every stack. What it called is what people want to see.
 */
static void put_leaf(struct merging *m, unsigned from, unsigned end)
{
	const struct native_stack *s = m->native;

	while (from < end && s->is_internal[from] &&
	       (is_call_helper(s->frames[from].name) || is_nameless(s->frames[from].name)))
		from++;
	for (unsigned i = end; i-- > from;)
		if (!s->is_internal[i] || !is_nameless(s->frames[i].name))
			put_frame(m, &s->frames[i]);
}

/* The two fit, at least from the innermost frame on: loop by loop. */
static void put_loops(struct merging *m, unsigned end)
{
	const struct native_stack *s = m->native;

	for (unsigned i = end; i-- > 0;) {
		if (s->is_eval[i])
			put_group(m);
		else if (!s->is_internal[i])
			put_frame(m, &s->frames[i]);
	}
}

/* No loop was recognised: functions outside the interpreter that lie innermost were called last. */
static unsigned surely_innermost(const struct native_stack *s)
{
	unsigned from = s->n;

	while (from > 0 && !s->is_internal[from - 1])
		from--;
	return from ? from : s->n;
}

static void reverse_frames(struct stack_frame *f, unsigned n)
{
	for (unsigned i = 0; i < n / 2; i++) {
		struct stack_frame t = f[i];

		f[i] = f[n - 1 - i];
		f[n - 1 - i] = t;
	}
}

/*
 * The innermost ends are aligned. A loop that was just entered has no frame yet, and one that was
 * just left none any more: one loop more than runs is right then. Anything else that does not add
 * up, and was not cut off at the outer end, is not merged: then all Python frames are shown, with
 * the native leaf.
 */
void native_merge(const struct native_stack *native, const struct stack_frame *python, unsigned n,
		  struct stack_frame **out, size_t *cap, unsigned *out_n)
{
	struct merging m = {native, python, n, out, cap, 0};
	unsigned loops = count_loops(native), groups = count_groups(python, n);
	unsigned end = native->n;

	/* A loop that just begins or ends has no frame yet, or none any more. */
	if (loops == groups + 1 && native->is_eval[end - 1]) {
		loops--;
		end--;
	}
	unsigned leaf = end; /* the first behind the innermost loop */
	while (leaf > 0 && !native->is_eval[leaf - 1])
		leaf--;
	/* Where one of them was not walked to its end, that end is the outer one. */
	bool fits = loops == groups || (loops < groups && !native->whole) ||
		    (loops > groups && n && !python[0].entry);
	if (fits) {
		put_leaf(&m, leaf, end);
		put_loops(&m, leaf);
	} else {
		put_leaf(&m, loops ? leaf : surely_innermost(native), end);
	}
	put_rest(&m);
	reverse_frames(*out, m.n);
	*out_n = m.n;
}
