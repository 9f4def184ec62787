/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An interpreter that does not export _PyRuntime: linked into a program without its symbols, or
 * with all of them removed. sys.version in its memory shows that it is one. Then, in this order:
 * the symbol table of the file, the section .PyRuntime (from 3.10), and, if the file does not help,
 * what is in memory: the cookie before the layout (from 3.13), or the shape of the list of
 * interpreters.
 *
 *	sign                        needs                       finds
 *	.symtab: _PyRuntime         a file that is not stripped all three symbols
 *	section .PyRuntime          section headers, 3.10 on    the runtime
 *	"xdebugpy"                  nothing, 3.13 on            the runtime
 *	lock, head, main, next id   nothing, to 3.12            the list of interpreters
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unwind/remote/find/elf.h"
#include "unwind/remote/find/find_impl.h"
#include "unwind/remote/find/version.h"

#define COOKIE "xdebugpy"
#define FIRST_WITH_COOKIE 13 /* of 3.x */
#define MAX_INTERPRETER_ID (1u << 20)

/* One search: every guess is checked against live pointers (find_check()), so that a wrong one
 * costs time and nothing else. */
struct search {
	struct finder *f;
	const struct candidate *c;
	int result;
};

static int try_runtime(struct search *s, uint64_t addr)
{
	const struct elf_image *image = &s->c->image;

	if (addr < image->start || addr >= image->end)
		return -ENOEXEC;
	s->f->place.runtime = addr;
	return find_check(s->f, s->c);
}

/* --- in memory --- */

/* Whether the search is over: found, or nothing can be read any more. */
static bool is_final(int r)
{
	return r == 0 || r == -ESRCH || r == -EPERM;
}

/* The cookie stands at the beginning of _PyRuntime, which is aligned. */
static bool scan_cookie(void *arg, uint64_t addr, const char *bytes, size_t n)
{
	struct search *s = arg;

	for (size_t i = 0; i + 8 <= n; i += 8) {
		if (memcmp(bytes + i, COOKIE, 8) != 0)
			continue;
		s->result = try_runtime(s, addr + i);
		if (is_final(s->result))
			return true;
	}
	return false;
}

/* The lock, the first and the main interpreter, and the number of the next one: struct
 * pyinterpreters, which begins with three pointers and a small number in all versions to 3.12. */
static bool may_be_interpreters(const uint64_t word[4])
{
	for (unsigned i = 0; i < 3; i++)
		if (word[i] < 4096 || word[i] % 8 != 0 || word[i] >> 56)
			return false;
	return word[3] >= 1 && word[3] <= MAX_INTERPRETER_ID;
}

static bool scan_interpreters(void *arg, uint64_t addr, const char *bytes, size_t n)
{
	struct search *s = arg;
	struct python_place *p = &s->f->place;
	uint64_t word[4];

	for (size_t i = 0; i + sizeof(word) <= n; i += 8) {
		memcpy(word, bytes + i, sizeof(word));
		if (!may_be_interpreters(word))
			continue;
		p->runtime = addr + i + 8 - p->layout.runtime.interpreters_head;
		s->result = find_check_threads(s->f);
		if (is_final(s->result))
			return true;
	}
	return false;
}

/* --- in the file --- */

struct file_reader {
	struct python_reader reader;
	int fd;
};

/* The same reader interface as for memory, so that elf.c works on both. */
static int file_read(const struct python_reader *r, uint64_t offset, void *out, size_t n)
{
	const struct file_reader *file = (const struct file_reader *)r;
	char *at = out;

	if (offset > INT64_MAX - n)
		return -EFAULT;
	while (n > 0) {
		ssize_t got = pread(file->fd, at, n, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EFAULT;
		at += got;
		offset += (uint64_t)got;
		n -= (size_t)got;
	}
	return 0;
}

/*
 * The file of a mapping: by the mapping itself (also when it is deleted), as the program, or by its
 * name as the process sees it.
 *
 * The inode must be that of the mapping: the file may have been replaced since. By map_files it
 * always is; by name it may not be.
 */
static int open_file(struct finder *f, const struct map_line *m)
{
	int pid = (int)f->remote->pid, fd = -1;
	char path[PATH_MAX + 64];
	struct stat st;

	for (unsigned way = 0; way < 3 && fd < 0; way++) {
		if (way == 0)
			snprintf(path, sizeof(path), "/proc/%d/map_files/%lx-%lx", pid,
				 (unsigned long)m->start, (unsigned long)m->end);
		else if (way == 1)
			snprintf(path, sizeof(path), "/proc/%d/exe", pid);
		else
			snprintf(path, sizeof(path), "/proc/%d/root%.*s", pid, (int)m->path_len,
				 m->path);
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd >= 0 &&
		    (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_ino != m->inode)) {
			close(fd);
			fd = -1;
		}
	}
	return fd;
}

enum { SYMBOL_RUNTIME, SYMBOL_CODE, SYMBOL_EVAL, SYMBOL_END };

static void take_symbols(struct search *s, const struct elf_symbol *symbols)
{
	struct python_place *p = &s->f->place;
	uint64_t bias = s->c->image.bias;

	if (symbols[SYMBOL_CODE].addr)
		p->code_type = bias + symbols[SYMBOL_CODE].addr;
	if (symbols[SYMBOL_EVAL].addr) {
		p->eval_start = bias + symbols[SYMBOL_EVAL].addr;
		p->eval_end = p->eval_start + symbols[SYMBOL_EVAL].bytes;
	}
}

static int find_in_file(struct search *s)
{
	static const char *const names[SYMBOL_END] = {"_PyRuntime", "PyCode_Type",
						      "_PyEval_EvalFrameDefault"};
	struct elf_symbol symbols[SYMBOL_END] = {{0}};
	struct file_reader file = {{file_read}, open_file(s->f, &s->c->map)};
	struct elf_sections sections;
	int r = -ENOEXEC;

	if (file.fd < 0)
		return r;
	if (elf_sections_read(&file.reader, &sections) == 0) {
		elf_sections_symbols(&file.reader, &sections, names, SYMBOL_END, symbols);
		if (symbols[SYMBOL_RUNTIME].addr)
			r = try_runtime(s, s->c->image.bias + symbols[SYMBOL_RUNTIME].addr);
		else if (sections.runtime)
			r = try_runtime(s, s->c->image.bias + sections.runtime);
		if (r == 0)
			take_symbols(s, symbols);
	}
	close(file.fd);
	return r;
}

/* The version first: it decides which signs there can be. */
int find_hidden(struct finder *f, const struct candidate *c)
{
	struct search s = {f, c, -ENOEXEC};
	uint32_t version;
	int r;

	if (!scan_version(&c->image, &version))
		return -ENOEXEC;
	if (VERSION_SERIES(version) < (3 << 8 | PYTHON_OLDEST))
		return find_not_supported(f, version);
	f->version = version;
	r = find_in_file(&s);
	if (r != -ENOEXEC && r != -EPROTO)
		return r;
	if (VERSION_MINOR(version) >= FIRST_WITH_COOKIE)
		return scan_image(&c->image, scan_cookie, &s) ? s.result : find_not_ready(f);
	if (python_layout_table(version, c->image.arch, &f->place.layout) < 0)
		return find_not_supported(f, version);
	return scan_image(&c->image, scan_interpreters, &s) ? s.result : find_not_ready(f);
}
