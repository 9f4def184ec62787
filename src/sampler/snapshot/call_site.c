/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/snapshot/call_site.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/proc.h"
#include "unwind/python/origin.h"

/* Code that only starts the job's: never what a person looks for. */
static bool is_launcher(const char *file)
{
	return python_origin(file, strlen(file)) == ORIGIN_LAUNCHER;
}

static bool is_string(const struct stack_frame *f)
{
	return !strcmp(f->file, "<string>");
}

/* `python -c` with the code that multiprocessing starts its processes with. */
static bool is_multiprocessing(const struct stack_frame *frames, unsigned n)
{
	return n > 1 && is_string(&frames[0]) && strstr(frames[1].file, "/multiprocessing/");
}

enum code_home frame_home(const struct stack_frame *f)
{
	static const enum code_home homes[] = {
		[ORIGIN_USER] = HOME_JOB,
		[ORIGIN_PACKAGE] = HOME_PACKAGE,
		[ORIGIN_LAUNCHER] = HOME_PACKAGE,
		[ORIGIN_STANDARD] = HOME_STANDARD,
	};

	return f->kind == FRAME_IS_NATIVE ? HOME_STANDARD
					  : homes[python_origin(f->file, strlen(f->file))];
}

int stack_call_site(const struct stack_frame *frames, unsigned n)
{
	int package = -1, string = -1, python = -1;

	for (unsigned i = n; i-- > 0;) {
		enum code_home home = frame_home(&frames[i]);

		if (home == HOME_JOB)
			return (int)i;
		if (home == HOME_PACKAGE && package < 0 && !is_launcher(frames[i].file))
			package = (int)i;
		if (is_string(&frames[i]) && string < 0 && !is_multiprocessing(frames, n))
			string = (int)i;
		if (frames[i].kind == FRAME_IS_PYTHON && python < 0)
			python = (int)i;
	}
	if (package >= 0 || string >= 0)
		return package >= 0 ? package : string;
	return python >= 0 ? python : (int)n - 1;
}

int stack_inner_call(const struct stack_frame *frames, unsigned n)
{
	int site = stack_call_site(frames, n), python = -1;

	for (int i = (int)n - 1; i > site; i--) {
		if (frame_home(&frames[i]) == HOME_PACKAGE)
			return i;
		if (frames[i].kind == FRAME_IS_PYTHON && python < 0)
			python = i;
	}
	return python >= 0 || site == (int)n - 1 ? python : (int)n - 1;
}

unsigned stack_own_part(const struct stack_frame *frames, unsigned n)
{
	unsigned own = n;

	while (own > 0 && frame_home(&frames[own - 1]) == HOME_STANDARD &&
	       (!is_string(&frames[own - 1]) || is_multiprocessing(frames, n)))
		own--;
	return own ? own : n;
}

const char *frame_path(const struct stack_frame *f)
{
	return python_short_path(f->file, strlen(f->file));
}

/* "trainer.py:88", "models/__init__.py:3": enough to recognise it. */
static void add_short_frame(const struct stack_frame *f, struct buf *out)
{
	const char *name = strrchr(f->file, '/');

	name = name ? name + 1 : f->file;
	if (*name == '_' && name >= f->file + 2) { /* __init__.py alone says nothing */
		name--;
		while (name > f->file && name[-1] != '/')
			name--;
	}
	words_add_printable(*name ? name : "?", out);
	if (f->line > 0)
		buf_addf(out, ":%" PRId32, f->line);
}

void call_site_add(const struct stack_frame *site, const struct stack_frame *inner, struct buf *out)
{
	if (!site) {
		buf_add_str(out, "outside Python");
		return;
	}
	buf_add_str(out, "in ");
	words_add_printable(site->name, out);
	buf_add_str(out, " at ");
	add_short_frame(site, out);
	if (inner) {
		buf_add_str(out, " > ");
		words_add_printable(inner->name, out);
		buf_add_str(out, " (");
		add_short_frame(inner, out);
		buf_add_char(out, ')');
	}
}

bool call_site_same(const struct stack_frame *a, const struct stack_frame *b)
{
	if (!a || !b)
		return a == b;
	return a->name == b->name && a->file == b->file && a->line == b->line;
}

static int by_number(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

void words_add_numbers(const char *noun, int64_t *numbers, unsigned n, unsigned max_bytes,
		       struct buf *out)
{
	unsigned distinct = 0;

	qsort(numbers, n, sizeof(*numbers), by_number);
	for (unsigned i = 0; i < n; i++)
		if (!i || numbers[i] != numbers[distinct - 1])
			numbers[distinct++] = numbers[i];
	buf_addf(out, "%s%s ", noun, distinct == 1 ? "" : "s");
	size_t end = out->len + max_bytes;
	for (unsigned i = 0, last; i < distinct; i = last + 1) {
		for (last = i; last + 1 < distinct && numbers[last + 1] == numbers[last] + 1;)
			last++;
		if (last == i + 1)
			last = i; /* two are a list, not a range */
		if (out->len > end) {
			buf_addf(out, ",… (%u)", distinct);
			return;
		}
		buf_addf(out, "%s%" PRId64, i ? "," : "", numbers[i]);
		if (last > i)
			buf_addf(out, "-%" PRId64, numbers[last]);
	}
}

/* Those with a rank, or those without one. */
static void add_some_numbers(const struct process_id *list, unsigned n, bool ranks,
			     unsigned max_bytes, struct buf *out)
{
	int64_t *numbers = xcalloc(n + 1, sizeof(*numbers));
	unsigned count = 0;

	for (unsigned i = 0; i < n; i++)
		if (ranks == (list[i].rank >= 0))
			numbers[count++] = ranks ? list[i].rank : list[i].pid;
	if (count)
		words_add_numbers(ranks ? "rank" : "pid", numbers, count, max_bytes, out);
	free(numbers);
}

void words_add_processes(const struct process_id *list, unsigned n, unsigned max_bytes,
			 struct buf *out)
{
	unsigned ranks = 0;

	for (unsigned i = 0; i < n; i++)
		ranks += list[i].rank >= 0;
	add_some_numbers(list, n, true, max_bytes, out);
	if (ranks && ranks < n)
		buf_add_str(out, " and ");
	add_some_numbers(list, n, false, max_bytes, out);
}

void words_add_printable(const char *text, struct buf *out)
{
	proc_add_printable(out, text, strlen(text));
}
