/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One address of a recording to its lines of text:
 *
 *	pc - 1                 inside the call, not behind it
 *	 -> module             the newest that covers it; bias subtracted
 *	 -> function           symbol table
 *	 -> unit, functions    DWARF: the function, and what was inlined into it at this address
 *	 -> one line each      innermost inlined function first; each with the line at which
 *	                       the next one calls it
 *
 * Answers are kept per process, address by address: a stack of a hundred frames shares most of them
 * with the next. A module that is mapped over another makes the answers of its range stale.
 */
#include "unwind/symbols/symbolize.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "unwind/symbols/symbol_file.h"

#define MAX_DIES 4000000u /* looked at for one address: damaged trees can be circular */
#define MAX_INLINE 64

struct module {
	uint64_t start, end, bias;
	char *path;
	struct symbol_file *file;
	bool tried;
};

/* The lines of one address; they lie in symbolizer.text. */
struct answer {
	uint64_t pc; /* 0: free slot */
	size_t off;
	uint32_t len;
	bool stale;
};

/* One per process of a recording: its modules in the order in which they were mapped, and an
 * answer for every address that was ever asked for. */
struct symbolizer {
	struct module *module;
	size_t nmodule, cap_module;
	struct answer *answer; /* open addressing, a power of two */
	size_t nanswer, cap_answer;
	struct buf text;
};

/*
 * --- DWARF: the functions around an address ---
 *
 * The functions around one address: the DIE of the function, then what was inlined there, outermost
 * first. `left` bounds the search in trees that are damaged or circular.
 */
struct chain {
	uint64_t addr;
	unsigned left; /* DIEs that may still be looked at */
	unsigned n;
	Dwarf_Die
		die[MAX_INLINE]; /* the function, then what was inlined at addr, outermost first */
};

static bool is_container(int tag)
{
	return tag == DW_TAG_namespace || tag == DW_TAG_lexical_block || tag == DW_TAG_try_block ||
	       tag == DW_TAG_catch_block || tag == DW_TAG_class_type ||
	       tag == DW_TAG_structure_type || tag == DW_TAG_module;
}

/* Namespaces and types have no addresses of their own. */
static bool has_code(int tag)
{
	return tag != DW_TAG_namespace && tag != DW_TAG_class_type &&
	       tag != DW_TAG_structure_type && tag != DW_TAG_module;
}

/* Goes down the tree of DIEs of a unit to where the address is: namespaces and classes hold
 * functions without having code, blocks have code; the first subprogram that covers it is followed
 * into what was inlined there. True: nothing else in this unit has to be tried. */
static bool find_functions(struct chain *c, Dwarf_Die *parent, unsigned depth)
{
	Dwarf_Die child;

	if (depth > MAX_INLINE || dwarf_child(parent, &child))
		return false;
	do {
		int tag = dwarf_tag(&child);
		bool function = tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;

		if (!c->left || !--c->left)
			return false;
		if (!function && !is_container(tag))
			continue;
		if (has_code(tag) && dwarf_haspc(&child, c->addr) <= 0)
			continue;
		if (function && c->n < MAX_INLINE)
			c->die[c->n++] = child;
		if (find_functions(c, &child, depth + 1) || function || tag == DW_TAG_lexical_block)
			return true;
	} while (!dwarf_siblingof(&child, &child));
	return false;
}

/* The linkage name, as the symbol table has it, before the plain one; from the abstract origin
 * of an inlined function, or from its declaration. */
static const char *die_name(Dwarf_Die *die)
{
	Dwarf_Attribute a;
	const char *name = NULL;

	if (dwarf_attr_integrate(die, DW_AT_linkage_name, &a))
		name = dwarf_formstring(&a);
	if (!name && dwarf_attr_integrate(die, DW_AT_name, &a))
		name = dwarf_formstring(&a);
	return name;
}

/* --- text --- */

/* Foreign text: no control characters, so that a line stays a line. */
static void add_clean(struct buf *b, const char *s)
{
	for (; *s; s++)
		buf_add_char(b, (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s);
}

/* ` file:line` */
static void add_source(struct buf *b, Dwarf_Die *unit, const struct source_line *at)
{
	if (!at->file || !at->file[0])
		return;
	buf_add_char(b, ' ');
	add_clean(b, symbol_unit_file(unit, at->file));
	if (at->line > 0)
		buf_addf(b, ":%d", at->line);
}

/* call_file counts in the unit's list of files. */
static struct source_line call_site_of(Dwarf_Die *unit, Dwarf_Die *inlined)
{
	struct source_line p = {NULL, 0};
	Dwarf_Attribute a;
	Dwarf_Word v;
	Dwarf_Files *list;
	size_t n;

	if (dwarf_attr(inlined, DW_AT_call_file, &a) && !dwarf_formudata(&a, &v) &&
	    !dwarf_getsrcfiles(unit, &list, &n) && v < n)
		p.file = dwarf_filesrc(list, v, NULL, NULL);
	if (dwarf_attr(inlined, DW_AT_call_line, &a) && !dwarf_formudata(&a, &v) && v < 1u << 30)
		p.line = (int)v;
	return p;
}

/* `path(name+0xoff) [0xpc]`; name NULL: the offset is from the start of the object. */
static void add_frame(struct buf *b, const char *path, const char *name, uint64_t off, uint64_t pc)
{
	add_clean(b, path);
	buf_add_char(b, '(');
	if (name)
		add_clean(b, name);
	buf_addf(b, "+0x%llx) [0x%llx]", (unsigned long long)off, (unsigned long long)pc);
}

/*
 * The lines of the functions inlined at addr; returns where the outermost call stands.
 *
 * The line table gives the place inside of the innermost one. Where that was inlined, its DIE names
 * the call's file and line, which is the place inside of the next one, and so on outwards.
 */
static struct source_line add_inlined(struct buf *b, const char *path, Dwarf_Die *cu,
				      struct chain *c, uint64_t pc)
{
	struct source_line p = symbol_unit_line(cu, c->addr);

	for (unsigned i = c->n; i-- > 0;) {
		if (dwarf_tag(&c->die[i]) != DW_TAG_inlined_subroutine)
			break;
		const char *name = die_name(&c->die[i]);
		add_clean(b, path);
		buf_add_char(b, '(');
		add_clean(b, name ? name : "?");
		buf_addf(b, " [inlined]) [0x%llx]", (unsigned long long)pc);
		add_source(b, cu, &p);
		buf_add_char(b, '\n');
		p = call_site_of(cu, &c->die[i]);
	}
	return p;
}

/* A return address minus one is inside the call. Where no function is there but one begins at
 * the address itself, nothing called it: the kernel put a signal trampoline's address on the
 * stack. */
static void add_known(struct buf *b, const struct module *m, uint64_t pc)
{
	struct symbol_file *f = m->file;
	uint64_t at = pc - m->bias, addr = at - 1; /* inside the call, not behind it */
	const struct symbol *s = symbol_file_find(f, addr);
	static struct chain c; /* 2 KiB, not re-entered */
	struct source_line p = {NULL, 0};
	Dwarf_Die cu;

	if (!s) {
		s = symbol_file_find(f, at);
		if (s && s->addr == at) /* a signal trampoline: nothing called it */
			addr = at;
		else
			s = NULL;
	}
	bool has_unit = symbol_file_unit(f, addr, &cu);
	c = (struct chain){.addr = addr, .left = MAX_DIES};
	if (has_unit) {
		find_functions(&c, &cu, 0);
		p = add_inlined(b, m->path, &cu, &c, pc);
	}
	if (s)
		add_frame(b, m->path, s->name, at - s->addr, pc);
	else
		add_frame(b, m->path, NULL, at, pc);
	if (has_unit)
		add_source(b, &cu, &p);
	buf_add_char(b, '\n');
}

/* --- one process --- */

struct symbolizer *symbolizer_new(void)
{
	return xcalloc(1, sizeof(struct symbolizer));
}

void symbolizer_free(struct symbolizer *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->nmodule; i++)
		free(s->module[i].path);
	free(s->module);
	free(s->answer);
	buf_release(&s->text);
	free(s);
}

static struct module *module_at(struct symbolizer *s, uint64_t pc)
{
	for (size_t i = s->nmodule; i-- > 0;)
		if (pc - 1 >= s->module[i].start && pc - 1 < s->module[i].end)
			return &s->module[i];
	return NULL;
}

/* The same module again changes nothing. A list, newest last: jobs map some hundred objects, and
 * most stacks stay within a few. */
void symbolizer_add_module(struct symbolizer *s, uint64_t start, uint64_t end, uint64_t bias,
			   const char *path, size_t path_len)
{
	const struct module *old = start < end ? module_at(s, start + 1) : NULL;

	if (start >= end)
		return;
	if (old && old->start == start && old->end == end && old->bias == bias &&
	    strlen(old->path) == path_len && !memcmp(old->path, path, path_len))
		return;
	s->module = xgrow(s->module, &s->cap_module, s->nmodule + 1, sizeof(s->module[0]));
	s->module[s->nmodule++] =
		(struct module){start, end, bias, xstrndup(path, path_len), NULL, false};
	for (size_t i = 0; i < s->cap_answer; i++)
		if (s->answer[i].pc - 1 >= start && s->answer[i].pc - 1 < end)
			s->answer[i].stale = true;
}

/* A file of the right name that does not cover the mapped range was replaced since: names from
 * it would be wrong. */
static void module_open(struct module *m)
{
	m->tried = true;
	struct symbol_file *f = symbol_file_get(m->path);
	if (!f || m->start < m->bias)
		return;
	if (symbol_file_covers(f, m->start - m->bias, m->end - m->bias))
		m->file = f;
}

/* Four kinds of lines, by how much is known: see symbolize.h. */
static void resolve_address(struct symbolizer *s, uint64_t pc, struct buf *out)
{
	struct module *m = module_at(s, pc);

	if (m && !m->tried)
		module_open(m);
	if (!m)
		buf_addf(out, "[0x%llx]\n", (unsigned long long)pc);
	else if (m->file) {
		add_known(out, m, pc);
	} else {
		add_frame(out, m->path, NULL, pc - m->bias, pc);
		buf_add_char(out, '\n');
	}
}

/* Half full at most, so a search is short. */
static struct answer *slot_of(struct answer *table, size_t cap, uint64_t pc)
{
	size_t i = (pc * 0x9e3779b97f4a7c15ull >> 20) & (cap - 1);

	while (table[i].pc && table[i].pc != pc)
		i = (i + 1) & (cap - 1);
	return &table[i];
}

static void grow_answers(struct symbolizer *s)
{
	size_t cap = s->cap_answer ? s->cap_answer * 2 : 1024;
	struct answer *table = xcalloc(cap, sizeof(table[0]));

	for (size_t i = 0; i < s->cap_answer; i++)
		if (s->answer[i].pc)
			*slot_of(table, cap, s->answer[i].pc) = s->answer[i];
	free(s->answer);
	s->answer = table;
	s->cap_answer = cap;
}

/* Texts of all answers lie one behind the other in one buffer, which only grows: an answer is an
 * offset and a length. */
void symbolizer_stack(struct symbolizer *s, const uint64_t *pc, unsigned depth, struct buf *out)
{
	for (unsigned i = 0; i < depth; i++) {
		if (s->nanswer * 2 >= s->cap_answer)
			grow_answers(s);
		if (!pc[i]) {
			buf_add_str(out, "[0x0]\n");
			continue;
		}
		struct answer *a = slot_of(s->answer, s->cap_answer, pc[i]);
		if (!a->pc || a->stale) {
			s->nanswer += !a->pc;
			a->pc = pc[i];
			a->stale = false;
			a->off = s->text.len;
			resolve_address(s, pc[i], &s->text);
			a->len = (uint32_t)(s->text.len - a->off);
		}
		buf_add(out, s->text.data + a->off, a->len);
	}
}
