/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * 1. /proc/PID/maps names the binaries; those that look like Python by their name are tried first,
 *    then the program itself, then all others: a program may embed the interpreter.
 * 2. A binary is read as it lies in the memory of the process (unwind/remote/find/elf.h): nothing
 * depends on files that may be deleted, replaced, or in another mount namespace.
 * 3. What is found must hold together: the interpreter has threads, and they point back to it. The
 *    first binary for which that is so is the one; a second copy of the interpreter that is mapped
 *    but not used has no threads.
 */
#include "unwind/remote/find/find.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unwind/remote/find/find_impl.h"
#include "unwind/remote/find/version.h"

/* In this order. Programs that were started through the dynamic linker are among the others. */
enum rank { RANK_LIBPYTHON, RANK_PROGRAM, RANK_OTHER, RANK_END };

/* Whether the file's name is `word` and a digit, and whatever follows. */
static bool is_named(const struct map_line *m, const char *word)
{
	const char *slash = memrchr(m->path, '/', m->path_len);
	const char *name = slash ? slash + 1 : m->path;
	size_t left = (size_t)(m->path + m->path_len - name), n = strlen(word);

	return left > n && memcmp(name, word, n) == 0 && name[n] >= '0' && name[n] <= '9';
}

static bool is_program(const struct finder *f, const struct map_line *m)
{
	return strlen(f->process.exe) == m->path_len &&
	       memcmp(f->process.exe, m->path, m->path_len) == 0;
}

/* A hint, not a test: a program called python may be something else, and one that embeds the
 * interpreter may be called anything. */
static enum rank rank_of(const struct finder *f, const struct map_line *m)
{
	if (is_named(m, "libpython"))
		return RANK_LIBPYTHON;
	return is_program(f, m) || is_named(m, "python") ? RANK_PROGRAM : RANK_OTHER;
}

/*
 * Whether the file is mapped as code too, here or in one of the lines that follow.
 *
 * Files that are mapped for their data alone (archives, models) are not tried: some are terabytes.
 */
static bool has_code(const struct map_line *m, const char *at, const char *end)
{
	struct map_line next = *m;

	do {
		if (next.inode == m->inode && next.executable)
			return true;
	} while (maps_next(&at, end, &next) && (next.inode == m->inode || next.inode == 0));
	return false;
}

/* The next binary of this rank, in order of addresses. */
static bool next_map(const struct finder *f, enum rank rank, const char **at, struct map_line *m)
{
	const char *end = f->maps.data + f->maps.len;

	while (maps_next(at, end, m))
		if (m->offset == 0 && m->inode != 0 && m->readable && rank_of(f, m) == rank &&
		    has_code(m, *at, end))
			return true;
	return false;
}

/* A program that names the type itself has a copy of it, which the library uses too (a copy
 * relocation). */
static void find_copied_symbols(struct finder *f)
{
	const char *at = f->maps.data;
	struct elf_image image;
	struct elf_symbol s;
	struct map_line m;

	if (next_map(f, RANK_PROGRAM, &at, &m) &&
	    elf_image_open(&f->remote->reader, m.start, &image) == 0 &&
	    elf_symbol_find(&image, "PyCode_Type", &s) == 0)
		f->place.code_type = s.addr;
}

/* Both are optional: without the type of code objects a wild pointer is recognised later,
 * without the loop native frames are recognised by their names. */
static void find_symbols(struct finder *f, const struct elf_image *image)
{
	struct elf_symbol s;

	if (elf_symbol_find(image, "PyCode_Type", &s) == 0)
		f->place.code_type = s.addr;
	if (elf_symbol_find(image, "_PyEval_EvalFrameDefault", &s) == 0) {
		f->place.eval_start = s.addr;
		f->place.eval_end = s.addr + s.bytes;
	}
}

/* A binary that exports Py_GetVersion but not _PyRuntime is Python with hidden symbols; one of
 * the likely names without either is searched, too. */
static int try_image(struct finder *f, const struct candidate *c, enum rank rank)
{
	struct elf_symbol s;
	int r = -ENOEXEC;

	memset(&f->place, 0, sizeof(f->place));
	snprintf(f->place.path, sizeof(f->place.path), "%.*s", (int)c->map.path_len, c->map.path);
	if (elf_symbol_find(&c->image, "_PyRuntime", &s) == 0) {
		f->place.runtime = s.addr;
		r = find_check(f, c);
	} else {
		bool is_python = elf_symbol_find(&c->image, "Py_GetVersion", &s) == 0;

		if (is_python || rank != RANK_OTHER)
			r = find_hidden(f, c);
		if (is_python && r == -ENOEXEC)
			r = find_not_ready(f);
	}
	if (r == 0)
		find_symbols(f, &c->image);
	if (r == 0 && rank != RANK_PROGRAM)
		find_copied_symbols(f);
	return r;
}

/* Found, or nothing of the process can be read: no other binary will do better. */
static bool is_final(int r)
{
	return r != -ENOEXEC && r != -ENOTSUP && r != -EFAULT && r != -EAGAIN && r != -EPROTO;
}

/*
 * -ENOEXEC if none of them is Python; if one is, but cannot be read, that is the answer.
 *
 * Copies of one binary that overlap the last one are skipped: maps has a line for each of its
 * segments.
 */
static int try_rank(struct finder *f, enum rank rank)
{
	const char *at = f->maps.data;
	uint64_t end_of_last = 0;
	int answer = -ENOEXEC;
	struct candidate c;

	while (next_map(f, rank, &at, &c.map)) {
		if (c.map.start < end_of_last)
			continue;

		int r = elf_image_open(&f->remote->reader, c.map.start, &c.image);
		if (r == 0) {
			end_of_last = c.image.end;
			r = try_image(f, &c, rank);
		} else if (r == -ENOTSUP && is_program(f, &c.map)) {
			return err_set(
				&f->err, r,
				"process %d (%s) is not a 64-bit program for x86-64 or aarch64",
				(int)f->remote->pid, f->process.name);
		}
		if (is_final(r))
			return r;
		if (r == -EAGAIN || r == -ENOTSUP || r == -EPROTO)
			answer = r;
	}
	return answer;
}

/* What a libpython answered is kept over what the program answers, unless the program is Python:
 * -ENOEXEC is the weakest answer. */
static int try_all(struct finder *f)
{
	int answer = -ENOEXEC;

	for (enum rank rank = 0; rank < RANK_END; rank++) {
		/* A library that is not in use does not hide the program that is; but what has been
		 * recognised need not be looked for everywhere. */
		if (rank == RANK_OTHER && answer != -ENOEXEC)
			break;

		struct err before = f->err;
		int r = try_rank(f, rank);

		if (is_final(r))
			return r;
		if (answer == -ENOEXEC)
			answer = r;
		else
			f->err = before;
	}
	return answer;
}

static bool is_pypy(const struct finder *f)
{
	const char *at = f->maps.data, *end = at + f->maps.len;
	struct map_line m;

	while (maps_next(&at, end, &m))
		if (is_named(&m, "libpypy") || is_named(&m, "pypy"))
			return true;
	return false;
}

/*
 * Words for what has none yet.
 *
 * Once per process, for people: which of the many reasons it was.
 */
static int explain_failure(struct finder *f, int code, struct err *err)
{
	int pid = (int)f->remote->pid;

	if (code == -EPERM)
		return remote_explain_eperm(f->remote->pid, err);
	if (code == -ESRCH)
		return err_set(err, code, "process %d (%s) has ended", pid, f->process.name);
	if (code == -ENOEXEC && is_pypy(f))
		return err_set(err, -ENOTSUP,
			       "process %d (%s) runs PyPy: only CPython is supported", pid,
			       f->process.name);
	if (code == -ENOEXEC)
		return err_set(err, code, "process %d (%s) is not a Python process", pid,
			       f->process.name);
	if (code != f->err.code)
		return err_sys(err, code, "cannot read the memory of process %d (%s)", pid,
			       f->process.name);
	return err_set(err, code, "%s", f->err.text);
}

int python_find(struct remote *r, struct python_place *out, struct err *err)
{
	struct finder f = {.remote = r};
	int code = remote_process_open(r->pid, &f.process, &f.maps, err);

	if (code == 0) {
		code = try_all(&f);
		if (code == 0)
			*out = f.place;
		else
			code = explain_failure(&f, code, err);
	}
	buf_release(&f.maps);
	return code;
}

#define MAX_INTERPRETERS 1024
#define CHECK_TRIES 3

int find_not_ready(struct finder *f)
{
	return err_set(&f->err, -EAGAIN, "the Python interpreter of process %d (%s) is not ready",
		       (int)f->remote->pid, f->process.name);
}

int find_not_supported(struct finder *f, uint32_t version)
{
	const char *how = VERSION_SERIES(version) < (3 << 8 | PYTHON_OLDEST)   ? "too old"
			  : VERSION_SERIES(version) > (3 << 8 | PYTHON_NEWEST) ? "too new"
									       : "not known";

	return err_set(&f->err, -ENOTSUP,
		       "process %d: python %u.%u is %s: 3.%u to 3.%u are supported",
		       (int)f->remote->pid, VERSION_MAJOR(version), VERSION_MINOR(version), how,
		       PYTHON_OLDEST, PYTHON_NEWEST);
}

/* --- does it hold together? --- */

/* A wrong guess of _PyRuntime, the table of another version, a copy of the interpreter that is not
 * in use: in all of them the list of interpreters leads nowhere, or to a thread state that does not
 * point back to its interpreter. */

static int check_thread(struct finder *f, uint64_t interp, bool *found)
{
	const struct python_layout *l = &f->place.layout;
	uint64_t thread, back;
	int r = remote_read(f->remote, interp + l->interp.threads_head, &thread, sizeof(thread));

	if (r < 0 || thread == 0)
		return r;
	r = remote_read(f->remote, thread + l->tstate.interp, &back, sizeof(back));
	if (r == 0 && back != interp)
		r = -EFAULT;
	if (r == 0)
		*found = true;
	return r;
}

/* Bounded, and -EFAULT for any pointer that leads nowhere. An interpreter without threads is
 * being made or ended: not ready. */
int find_check_threads(struct finder *f)
{
	const struct python_layout *l = &f->place.layout;
	uint64_t at = f->place.runtime + l->runtime.interpreters_head, interp;
	bool found = false;

	for (unsigned i = 0; i < MAX_INTERPRETERS; i++) {
		int r = remote_read(f->remote, at, &interp, sizeof(interp));

		if (r == 0 && interp == 0)
			break;
		if (r == 0)
			r = check_thread(f, interp, &found);
		if (r < 0)
			return r;
		at = interp + l->interp.next;
	}
	return found ? 0 : -EAGAIN;
}

static int check_place(struct finder *f)
{
	int r = -EFAULT;

	/* A thread may end between two reads. */
	for (unsigned i = 0; i < CHECK_TRIES && r == -EFAULT; i++)
		r = find_check_threads(f);
	if (r == -EAGAIN)
		return find_not_ready(f);
	if (r == -EFAULT)
		return err_set(&f->err, -EPROTO,
			       "process %d: what the interpreter in '%s' (python 3.%u) holds makes "
			       "no sense",
			       (int)f->remote->pid, f->place.path, f->place.layout.minor);
	return r;
}

/* --- which version? --- */

/*
 * 0 if it cannot be said (yet).
 *
 * Py_Version is exported from 3.11 on. sys.version is there once sys is; a version that another
 * binary of this process has shown may serve.
 */
static uint32_t find_version(struct finder *f, const struct candidate *c)
{
	struct elf_symbol s;
	uint32_t version;

	if (elf_symbol_find(&c->image, "Py_Version", &s) == 0 &&
	    remote_read(f->remote, s.addr, &version, sizeof(version)) == 0)
		return version;
	if (scan_version(&c->image, &version))
		return version;
	return f->version;
}

static int find_layout_table(struct finder *f, const struct candidate *c)
{
	uint32_t version = find_version(f, c);

	if (version == 0)
		return find_not_ready(f);
	f->version = version;
	if (python_layout_table(version, c->image.arch, &f->place.layout) < 0)
		return find_not_supported(f, version);
	return 0;
}

/* From 3.13 on the layout lies at the beginning of _PyRuntime, behind a cookie. No cookie: an older
 * version, whose number must be found before its table can be used. */
static int find_layout(struct finder *f, const struct candidate *c)
{
	uint64_t at = f->place.runtime, left = c->image.end - at;
	char bytes[PYTHON_DEBUG_BYTES];
	size_t n = left < sizeof(bytes) ? (size_t)left : sizeof(bytes);
	int r = remote_read(f->remote, at, bytes, n);

	if (r < 0)
		return r == -EFAULT ? -ENOEXEC : r;
	r = python_layout_read(bytes, n, &f->place.layout);
	if (r == -ENOENT)
		return find_layout_table(f, c);
	if (r == -ENOTSUP) {
		uint32_t version = 0;

		if (n >= 12) /* behind the cookie */
			memcpy(&version, bytes + 8, sizeof(version));
		return find_not_supported(f, version);
	}
	if (r < 0)
		return err_set(&f->err, r,
			       "process %d: the layout that '%s' reports makes no sense",
			       (int)f->remote->pid, f->place.path);
	return 0;
}

int find_check(struct finder *f, const struct candidate *c)
{
	int r = find_layout(f, c);

	return r < 0 ? r : check_place(f);
}
