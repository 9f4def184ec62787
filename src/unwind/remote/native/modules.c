/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which programs and libraries the process has mapped, and where: /proc/PID/maps, reported to
 * libdwfl. The text is kept and compared: while it is the same, nothing is done. A module that is
 * still there keeps its symbols; libdwfl recognises it by its key (path, device, inode) and range.
 * Read again at most once a second, and at once when a walk meets an address that no module has.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/containers/intern.h"
#include "base/fs.h"
#include "base/mem.h"
#include "unwind/remote/native/native_impl.h"
#include "unwind/symbols/demangle.h"
#include "unwind/symbols/symbol_file.h"

#define MAPS_MAX_BYTES ((size_t)64 << 20)
#define MAPS_AGE_NS 1000000000ull /* a library may be replaced by another at the same address */

/* What may be a module, while the lines are read. */
struct run {
	struct map_line first;
	uint64_t end;
	bool executable;
};

static bool same_file(const struct map_line *a, const struct map_line *b)
{
	return a->inode == b->inode && a->device == b->device && a->path_len == b->path_len &&
	       !memcmp(a->path, b->path, a->path_len);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static struct native_module *find_module(struct native_process *p, const char *key, uint64_t start,
					 uint64_t end)
{
	for (size_t i = 0; i < p->nmodule; i++) {
		struct native_module *m = p->module[i];

		if (m->start == start && m->end == end && !strcmp(m->key, key))
			return m;
	}
	return NULL;
}

/* The name that is shown is the last part of the path, made printable: a process may call its
 * files anything. */
static struct native_module *add_module(struct native_process *p, const struct run *r, char *key)
{
	struct native_module *m = xcalloc(1, sizeof(*m));

	m->process = p;
	m->start = r->first.start;
	m->end = r->end;
	m->map_end = r->first.end;
	m->path = intern(r->first.path, r->first.path_len);
	m->name = symbol_text(base_name(m->path), strlen(base_name(m->path)));
	m->key = key;
	m->device = r->first.device;
	m->inode = r->first.inode;
	m->deleted = r->first.deleted;
	p->module = xgrow(p->module, &p->cap_module, p->nmodule + 1, sizeof(p->module[0]));
	p->module[p->nmodule++] = m;
	return m;
}

/* Data files are no modules: a run needs an executable line. The key is what libdwfl compares
 * between two reports; m is found again by it, with symbols that were read. */
static void report_run(struct native_process *p, const struct run *r)
{
	bool is_file = r->first.inode && r->first.path_len && r->first.path[0] == '/';
	bool is_vdso = r->first.path_len == 6 && !memcmp(r->first.path, "[vdso]", 6);

	if (!r->executable || (!is_file && !is_vdso))
		return;
	char *key =
		xasprintf("%.*s %llx:%llx", (int)r->first.path_len, r->first.path,
			  (unsigned long long)r->first.device, (unsigned long long)r->first.inode);
	struct native_module *m = find_module(p, key, r->first.start, r->end);
	if (m)
		free(key);
	else
		m = add_module(p, r, key);
	m->dwfl = dwfl_report_module(p->dwfl, m->key, m->start, m->end);
	m->kept = m->dwfl;
	void **user;
	if (m->dwfl && dwfl_module_info(m->dwfl, &user, NULL, NULL, NULL, NULL, NULL, NULL))
		*user = m;
}

static void add_stack(struct native_process *p, const struct map_line *l)
{
	p->stack = xgrow(p->stack, &p->cap_stack, p->nstack + 1, sizeof(p->stack[0]));
	p->stack[p->nstack++] = (struct native_stack_map){l->start, l->end};
}

/*
 * The lines of one file that follow each other are one module; anonymous ones may lie between.
 *
 * Binaries are mapped as four or five lines with the same inode, and bss as an anonymous line
 * between. A second mapping of the same file begins at offset 0 again, somewhere else.
 */
static void report_lines(struct native_process *p)
{
	const char *at = p->maps.data, *end = at + p->maps.len;
	struct run r = {0};
	struct map_line l;

	while (maps_next(&at, end, &l)) {
		if (l.readable && l.writable)
			add_stack(p, &l);
		if (!l.path_len)
			continue;
		bool again = l.offset == 0 && l.start != r.end;
		if (!r.first.path || !same_file(&l, &r.first) || again) {
			report_run(p, &r);
			r = (struct run){.first = l};
		}
		r.end = l.end;
		r.executable |= l.executable;
	}
	report_run(p, &r);
}

static void free_module(struct native_module *m)
{
	symbol_file_free(m->symbols);
	free(m->image);
	free(m->key);
	free(m);
}

static int by_address(const void *a, const void *b)
{
	const struct native_module *const *x = a, *const *y = b;

	return (*x)->start < (*y)->start ? -1 : (*x)->start > (*y)->start;
}

/* After libdwfl has dropped its modules: those that were not reported again are gone there. */
static void drop_unmapped(struct native_process *p)
{
	size_t left = 0;

	for (size_t i = 0; i < p->nmodule; i++)
		if (p->module[i]->kept)
			p->module[left++] = p->module[i];
		else
			free_module(p->module[i]);
	p->nmodule = left;
	if (left)
		qsort(p->module, left, sizeof(p->module[0]), by_address);
}

/* Comparing the text is cheaper than parsing it, and it is the same nearly always. */
bool native_modules_refresh(struct native_process *p, bool now)
{
	uint64_t t = clock_mono_ns();
	struct buf text = {0};
	char path[32];

	if (!now && p->maps_ns && t - p->maps_ns < MAPS_AGE_NS)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)p->pid);
	if (fs_read_file(path, MAPS_MAX_BYTES, &text, NULL) < 0 || !text.len) {
		buf_release(&text);
		return false;
	}
	p->maps_ns = t;
	if (text.len == p->maps.len && !memcmp(text.data, p->maps.data, text.len)) {
		buf_release(&text);
		return false;
	}
	buf_release(&p->maps);
	p->maps = text;
	p->nstack = 0;
	for (size_t i = 0; i < p->nmodule; i++)
		p->module[i]->kept = false;
	dwfl_report_begin(p->dwfl);
	report_lines(p);
	dwfl_report_end(p->dwfl, NULL, NULL);
	native_places_forget(p);
	drop_unmapped(p);
	return true;
}

/* In order of address, without overlaps. */
struct native_module *native_module_at(const struct native_process *p, uint64_t addr)
{
	size_t lo = 0, hi = p->nmodule;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->module[mid]->start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && addr < p->module[lo - 1]->end ? p->module[lo - 1] : NULL;
}

/* Stacks are writable mappings like any other; the one that SP lies in is the thread's. */
uint64_t native_stack_end(const struct native_process *p, uint64_t addr)
{
	size_t lo = 0, hi = p->nstack;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->stack[mid].start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && addr < p->stack[lo - 1].end ? p->stack[lo - 1].end : 0;
}

void native_modules_release(struct native_process *p)
{
	for (size_t i = 0; i < p->nmodule; i++)
		free_module(p->module[i]);
	free(p->module);
	free(p->stack);
	buf_release(&p->maps);
}
