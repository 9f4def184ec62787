/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/frames.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/containers/hmap.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "base/text/printable.h"
#include "base/text/text.h"
#include "memory/dump/cell.h"
#include "unwind/python/origin.h"
#include "unwind/symbols/demangle.h"

#define MAX_SHOWN 120 /* bytes of a name */

/* A line taken apart; len 0 for what it does not have. */
struct frame {
	struct frame_line path; /* of the module */
	struct frame_line module; /* without its folder */
	struct frame_line function;
	struct frame_line source; /* file:line, without its folder */
};

/*
 * Modules that are never the user's: ours, the vendors', the frameworks', the C and C++ run time.
 * Frameworks come first: what the user's code called in one of them is worth a word.
 */
static const char *const framework_modules[] = {
	"libtorch", "libc10", "libmindspore", "libatb.", "xla_", "libjax",
};
static const char *const system_modules[] = {
	"libsonde",	  "libsimpool",	  "libleaks_ascend", "libascend_",	"libatb_abi_",
	"libascendcl",	  "libruntime.",  "libacl_rt",	     "libms_tools_ext", "libprofapi",
	"libhccl",	  "libc.so",	  "libc-",	     "libpthread",	"ld-linux",
	"libstdc++",	  "libgcc_s",	  "libm.so",	     "libdl.",		"linux-vdso",
	"libmsmemscope_", "libjemalloc",  "libtcmalloc",     "libmimalloc",	"libgomp",
	"libiomp",	  "libomp.",	  "libmkl",	     "libopenblas",	"libtbb",
	"libcuda.",	  "libcudart",	  "libcublas",	     "libcudnn",	"libnccl",
	"libnvrtc",	  "libnvidia-ml", "libcupti",	     "libcufft",	"libcusolver",
	"libcusparse",	  "_sonde.",	  "_monitor.",
};
static const char *const system_folders[] = {"/site-packages/", "/dist-packages/"};
/* Between the user's line and what it called: they say nothing. */
static const char *const wrappers[] = {
	"_call_impl",
	"_wrapped_call_impl",
	"inner",
	"wrapper",
	"_wrapper",
	"wrapped",
	"decorate_context",
	"_fn",
	"__call__",
	"_call_with_frames_removed",
	"run_node",
	"call_module",
	"__torch_function__",
	"_engine_run_backward",
	"_conv_forward",
	"__torch_dispatch__",
	"<lambda>",
	"use_grad",
	"_use_grad",
	"profile_hook_step",
};
/* Functions that hand memory out for somebody else, whatever module they were compiled into: those
 * of C++ are often part of the program itself. */
static const char *const allocators[] = {
	"malloc",	 "calloc",	   "realloc",	      "reallocarray",	 "memalign",
	"aligned_alloc", "posix_memalign", "valloc",	      "pvalloc",	 "strdup",
	"__strdup",	 "strndup",	   "PyObject_Malloc", "PyObject_Calloc", "PyObject_Realloc",
	"mmap",		 "mmap64",
};
static const char *const allocator_prefixes[] = {
	"_Znw",	  "_Zna",    "_ZNSt",	"_ZNKSt",	"_ZSt",	 "_ZN9__gnu_cxx", "_ZNK9__gnu_cxx",
	"PyMem_", "_PyMem_", "__rust_", "operator new", "std::", "__gnu_cxx::",
};
/* Outermost frames that every thread has. */
static const char *const roots[] = {
	"_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone",
	"clone3", "__clone3",	       "__libc_start_main_impl"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct frame_line frame_trim(const char *text, size_t len)
{
	struct frame_line t = {text, text ? len : 0};

	while (t.len && strchr("\" \n\r", t.text[0])) {
		t.text++;
		t.len--;
	}
	while (t.len && strchr("\" \n\r", t.text[t.len - 1]))
		t.len--;
	if ((t.len == 2 && !memcmp(t.text, "NA", 2)) || (t.len == 3 && !memcmp(t.text, "N/A", 3)))
		t.len = 0;
	return t;
}

bool frame_next(const char **text, struct frame_line *out)
{
	const char *p = *text;

	p += strspn(p, "\r\n");
	if (!*p)
		return false;
	out->text = p;
	out->len = strcspn(p, "\r\n");
	*text = p + out->len;
	return true;
}

static struct frame_line text_between(const char *from, const char *to)
{
	return (struct frame_line){from, to > from ? (size_t)(to - from) : 0};
}

static struct frame_line base_name(struct frame_line path)
{
	const char *slash = path.len ? memrchr(path.text, '/', path.len) : NULL;

	return slash ? text_between(slash + 1, path.text + path.len) : path;
}

/* Of a Python file; __init__.py alone says nothing. */
static struct frame_line short_name(struct frame_line path)
{
	struct frame_line name = base_name(path);
	size_t folders = (size_t)(name.text - path.text);

	if (name.len < 2 || memcmp(name.text, "__", 2) != 0 || folders < 2)
		return name;
	struct frame_line parent = base_name(text_between(path.text, name.text - 1));
	return text_between(parent.text, name.text + name.len);
}

static bool begins_with(struct frame_line t, const char *with)
{
	size_t n = strlen(with);

	return t.len >= n && !memcmp(t.text, with, n);
}

/* What stands behind the address: "file:line", "at file:line" or "(file:line)". */
static struct frame_line source_of(struct frame_line rest)
{
	const char *p = rest.text, *end = rest.text + rest.len;

	while (p < end && (*p == ' ' || *p == '('))
		p++;
	while (end > p && (end[-1] == ' ' || end[-1] == ')'))
		end--;
	struct frame_line t = text_between(p, end);
	if (begins_with(t, "at "))
		t = text_between(p + 3, end);
	return memchr(t.text, ':', t.len) ? base_name(t) : text_between(p, p);
}

/* module(function+offset) [address] source */
static bool take_c(const struct frame_line *line, struct frame *out)
{
	const char *end = line->text + line->len;
	const char *addr = memmem(line->text, line->len, " [0x", 4);
	const char *body_end = addr ? addr : end;
	const char *open = memchr(line->text, '(', (size_t)(body_end - line->text));
	const char *close = open ? memrchr(open, ')', (size_t)(body_end - open)) : NULL;

	if (!close || open == line->text)
		return false;
	out->path = text_between(line->text, open);
	out->module = base_name(out->path);
	const char *plus = memrchr(open, '+', (size_t)(close - open));
	out->function = text_between(open + 1, plus && plus[1] == '0' ? plus : close);
	if (!out->function.len)
		out->function = text_between(line->text, line->text);
	const char *bracket = addr ? memchr(addr, ']', (size_t)(end - addr)) : NULL;
	out->source = bracket ? source_of(text_between(bracket + 1, end)) : text_between(end, end);
	return true;
}

/* file(line): function */
static bool take_python(const struct frame_line *line, struct frame *out)
{
	const char *end = line->text + line->len;
	const char *mid = memmem(line->text, line->len, "): ", 3);
	const char *open = mid ? memrchr(line->text, '(', (size_t)(mid - line->text)) : NULL;

	if (!open || open == line->text || open + 1 == mid)
		return false;
	for (const char *p = open + 1; p < mid; p++)
		if (!isdigit((unsigned char)*p))
			return false;
	out->path = out->module = text_between(line->text, open);
	out->function = text_between(mid + 3, end);
	out->source = text_between(open + 1, mid);
	return true;
}

/* "void std::_Construct<…>(…)" without what it returns: templates are called so. */
static struct frame_line skip_result(struct frame_line function)
{
	size_t n = 0;

	while (n < function.len && !strchr("<( ", function.text[n]))
		n++;
	if (n + 1 >= function.len || function.text[n] != ' ')
		return function;
	struct frame_line rest = {function.text + n + 1, function.len - n - 1};
	return begins_with(rest, "std::") || begins_with(rest, "__gnu_cxx::") ? rest : function;
}

static bool is_allocator(struct frame_line function)
{
	function = skip_result(function);
	for (size_t i = 0; i < COUNT(allocators); i++)
		if (function.len == strlen(allocators[i]) && begins_with(function, allocators[i]))
			return true;
	for (size_t i = 0; i < COUNT(allocator_prefixes); i++)
		if (begins_with(function, allocator_prefixes[i]))
			return true;
	return false;
}

static bool begins_with_one_of(struct frame_line t, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (begins_with(t, list[i]))
			return true;
	return false;
}

static enum frame_origin find_c_origin(const struct frame_line *line)
{
	struct frame f;

	if (!take_c(line, &f)) /* code of no object */
		return begins_with(*line, "[0x") ? FRAME_SYSTEM : FRAME_USER;
	if (is_allocator(f.function))
		return FRAME_SYSTEM;
	if (begins_with_one_of(f.module, framework_modules, COUNT(framework_modules)))
		return FRAME_PACKAGE;
	if (begins_with_one_of(f.module, system_modules, COUNT(system_modules)))
		return FRAME_SYSTEM;
	for (size_t i = 0; i < COUNT(system_folders); i++)
		if (memmem(f.path.text, f.path.len, system_folders[i], strlen(system_folders[i])))
			return FRAME_PACKAGE;
	return FRAME_USER;
}

static bool find_root(const struct frame_line *line)
{
	struct frame f;

	if (!take_c(line, &f))
		return false;
	for (size_t i = 0; i < COUNT(roots); i++)
		if (f.function.len == strlen(roots[i]) && begins_with(f.function, roots[i]))
			return true;
	return false;
}

/* What is asked of every line of every stack is known from the second time on. */
static struct known_line {
	enum frame_origin origin;
	bool is_root;
} know_c(const struct frame_line *line)
{
	static struct hmap known;
	uint64_t key = XXH3_64bits(line->text, line->len), found = hmap_get(&known, key);

	if (found == HMAP_NONE) {
		found = (uint64_t)find_c_origin(line) << 1 | find_root(line);
		hmap_put(&known, key, found);
	}
	return (struct known_line){(enum frame_origin)(found >> 1), found & 1};
}

enum frame_origin frame_origin(const struct frame_line *line, bool python)
{
	static const enum frame_origin of_python[] = {
		[ORIGIN_USER] = FRAME_USER,
		[ORIGIN_PACKAGE] = FRAME_PACKAGE,
		[ORIGIN_LAUNCHER] = FRAME_SYSTEM,
		[ORIGIN_STANDARD] = FRAME_SYSTEM,
	};
	struct frame f;

	if (frame_is_cut(line))
		return FRAME_SYSTEM;
	if (!python)
		return know_c(line).origin;
	return take_python(line, &f) ? of_python[python_origin(f.path.text, f.path.len)]
				     : FRAME_USER;
}

bool frame_is_own(const struct frame_line *line, bool python)
{
	struct frame f;

	return python && take_python(line, &f) && python_is_own(f.path.text, f.path.len);
}

bool frame_is_cut(const struct frame_line *line)
{
	return line->len == 3 && !memcmp(line->text, "...", 3);
}

bool frame_is_root(const struct frame_line *line)
{
	return know_c(line).is_root;
}

bool frame_is_wrapper(const struct frame_line *line, bool python)
{
	struct frame_line function = frame_function(line, python);

	if (!python)
		return is_allocator(function);
	const char *dot = function.len ? memrchr(function.text, '.', function.len) : NULL;
	const char *end = function.text + function.len;
	struct frame_line last = dot ? text_between(dot + 1, end) : function;

	if (frame_origin(line, true) != FRAME_PACKAGE)
		return false;
	for (size_t i = 0; i < COUNT(wrappers); i++)
		if (last.len == strlen(wrappers[i]) && begins_with(last, wrappers[i]))
			return true;
	return false;
}

/* Those of the given origin, or none. */
static size_t pick_of(const char *text, bool python, enum frame_origin origin,
		      struct frame_line *out, size_t max)
{
	struct frame_line line;
	size_t n = 0;

	while (n < max && frame_next(&text, &line)) {
		if (!python && frame_is_root(&line))
			break;
		if (frame_origin(&line, python) == origin && !frame_is_wrapper(&line, python))
			out[n++] = line;
	}
	return n;
}

static bool find_own(const char *text, bool python, struct frame_line *out)
{
	while (frame_next(&text, out))
		if (frame_is_own(out, python))
			return true;
	return false;
}

/* Does Python import something for us? Whose line it came in the way of does not matter. */
static bool find_own_import(const char *text, struct frame_line *out)
{
	bool imports = false;

	while (frame_next(&text, out) && frame_origin(out, true) == FRAME_SYSTEM) {
		if (frame_is_own(out, true))
			return imports;
		imports |= begins_with(*out, "<frozen importlib");
	}
	return false;
}

size_t frames_pick(const char *text, bool python, struct frame_line *out, size_t max)
{
	struct frame_line line;

	if (python && max && find_own_import(text, out))
		return 1;
	size_t n = pick_of(text, python, FRAME_USER, out, max);
	if (!n && python)
		n = pick_of(text, python, FRAME_PACKAGE, out, max);
	if (!n && max && find_own(text, python, out))
		n = 1;
	while (!n && max && frame_next(&text, &line)) {
		out[n++] = line;
		while (n < max && frame_next(&text, &line))
			out[n++] = line;
	}
	return n;
}

bool frames_via(const char *text, const struct frame_line *user, bool python,
		struct frame_line *out)
{
	struct frame_line line;
	bool found = false;

	/* In Python the innermost call says most; in C++ the one that the user's code made. */
	while (frame_next(&text, &line) && line.text != user->text) {
		if ((found && python) || frame_origin(&line, python) != FRAME_PACKAGE ||
		    frame_is_wrapper(&line, python))
			continue;
		found = true;
		*out = line;
	}
	return found && line.text == user->text;
}

static void add_name(struct buf *out, struct frame_line name)
{
	text_add_shortened(out, name.text, name.len, MAX_SHOWN);
}

struct frame_line frame_function(const struct frame_line *line, bool python)
{
	const char *addr = memmem(line->text, line->len, " [0x", 4);
	struct frame f;

	if ((python ? take_python(line, &f) : take_c(line, &f)) && f.function.len)
		return f.function;
	return text_between(line->text, addr ? addr : line->text + line->len);
}

bool frame_is_interpreter(const struct frame_line *line, bool *out_evaluates)
{
	struct frame f;

	*out_evaluates = false;
	if (!take_c(line, &f))
		return false;
	*out_evaluates = begins_with(f.function, "_PyEval_EvalFrameDefault") ||
			 begins_with(f.function, "_TAIL_CALL_");
	return *out_evaluates || begins_with(f.module, "python") ||
	       begins_with(f.module, "libpython");
}

/* The length of a demangled name without the types of its arguments. */
static size_t cut_arguments(const char *name, size_t len)
{
	size_t n = len, depth = 0;

	if (n > 6 && !memcmp(name + n - 6, " const", 6))
		n -= 6;
	if (!n || name[n - 1] != ')')
		return len;
	while (n--) {
		depth += name[n] == ')';
		depth -= name[n] == '(';
		if (!depth)
			break;
	}
	return n && n != SIZE_MAX && name[n - 1] != ' ' && name[n - 1] != ':' ? n : len;
}

/* Of C++ as people write it; known from the second time on, since stacks share most of their
 * functions. */
static const char *plain_name(struct frame_line function)
{
	static struct hmap known;
	uint64_t key = XXH3_64bits(function.text, function.len);
	const char *shown = hmap_get_ptr(&known, key);

	if (shown)
		return shown;
	char *name = xstrndup(function.text, function.len), *plain = demangle(name);
	shown = plain ? intern(plain, cut_arguments(plain, strlen(plain)))
		      : intern(name, strlen(name));
	hmap_put_ptr(&known, key, (void *)(uintptr_t)shown);
	free(name);
	free(plain);
	return shown;
}

static void add_function(struct buf *out, struct frame_line function)
{
	static const char inlined[] = " [inlined]";
	size_t tail = sizeof(inlined) - 1;

	if (!begins_with(function, "_Z")) {
		add_name(out, function);
		return;
	}
	bool is_inlined =
		function.len > tail && !memcmp(function.text + function.len - tail, inlined, tail);
	function.len -= is_inlined ? tail : 0;
	const char *plain = plain_name(function);
	add_name(out, text_between(plain, plain + strlen(plain)));
	buf_add_str(out, is_inlined ? inlined : "");
}

void frame_describe_call(const struct frame_line *line, bool python, struct buf *out)
{
	struct frame_line function = frame_function(line, python);

	if (python && !memchr(function.text, '.', function.len))
		frame_describe(line, true, out); /* "forward" alone says nothing */
	else
		add_function(out, function);
}

void frame_describe(const struct frame_line *line, bool python, struct buf *out)
{
	struct frame f;

	if (python ? !take_python(line, &f) : !take_c(line, &f)) {
		add_name(out, *line);
		return;
	}
	if (python && python_is_own(f.path.text, f.path.len)) {
		buf_add_str(out, "sonde itself");
		return;
	}
	if (!f.function.len) { /* no symbol: module(+offset) [address] */
		const char *addr = memmem(line->text, line->len, " [0x", 4);
		add_name(out, text_between(f.module.text, addr ? addr : line->text + line->len));
		return;
	}
	add_function(out, f.function);
	buf_add_str(out, " (");
	if (python) {
		add_name(out, short_name(f.module));
		buf_add_char(out, ':');
	}
	add_name(out, f.source.len ? f.source : f.module);
	buf_add_char(out, ')');
}

static uint32_t read_line(const char *text, size_t len)
{
	uint64_t n;

	return cell_read_u64(text, len, &n) && n <= INT32_MAX ? (uint32_t)n : 0;
}

void frame_take_apart(const struct frame_line *line, bool python, struct buf *name,
		      struct frame_parts *out)
{
	struct frame f;

	*out = (struct frame_parts){0};
	if (python ? !take_python(line, &f) : !take_c(line, &f)) {
		add_name(name, *line);
		return;
	}
	add_function(name, frame_function(line, python));
	out->file = python ? f.path : f.module;
	if (python) {
		out->line = read_line(f.source.text, f.source.len);
	} else if (f.source.len) {
		const char *colon = memrchr(f.source.text, ':', f.source.len);
		out->file = text_between(f.source.text, colon);
		out->line =
			read_line(colon + 1, f.source.len - (size_t)(colon + 1 - f.source.text));
	}
}
