/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * From an instruction to function, library or source, and line; each asked once. libdwfl collects
 * the symbols of a module from wherever they are (its own tables, the separate debug file, the
 * small table that some distributions add), but looks through all of them for every address: we
 * sort them once.
 */
#include <dwarf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "unwind/remote/native/native_impl.h"

#define MAX_PLACES 65536
#define MAX_SYMBOLS (1 << 24)
#define MAX_UNITS 20000
#define LINES_MAX_BYTES (64u << 20) /* of debug information that is read for the sake of a line */
#define DEBUG_FILE_MAX_BYTES (512ll << 20)

/* --- modules, as libdwfl asks for them --- */

static int find_elf(Dwfl_Module *mod, void **user, const char *name, Dwarf_Addr base,
		    char **file_name, Elf **elf)
{
	struct native_module *m = *user;

	(void)mod, (void)name, (void)base, (void)file_name;
	if (m)
		*elf = native_module_open(m->process, m);
	return -1; /* no descriptor: the file is not dwfl's to close */
}

/* Only what lies in our own file system under the build id. Never the network. */
static int find_debuginfo(Dwfl_Module *mod, void **user, const char *name, Dwarf_Addr base,
			  const char *file, const char *link, GElf_Word crc, char **out)
{
	const unsigned char *id;
	char path[256] = "/usr/lib/debug/.build-id/";
	GElf_Addr at;
	struct stat st;
	int n = dwfl_module_build_id(mod, &id, &at);
	size_t len = strlen(path);

	(void)user, (void)name, (void)base, (void)file, (void)link, (void)crc, (void)out;
	if (n < 3 || n > 64)
		return -1;
	for (int i = 0; i < n; i++)
		len += (size_t)snprintf(path + len, sizeof(path) - len, i ? "%02x" : "%02x/",
					id[i]);
	snprintf(path + len, sizeof(path) - len, ".debug");
	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > DEBUG_FILE_MAX_BYTES)
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC);
}

const Dwfl_Callbacks native_dwfl_callbacks = {
	.find_elf = find_elf,
	.find_debuginfo = find_debuginfo,
};

/* --- symbols --- */

static int symbol_order(const void *a, const void *b)
{
	const struct native_symbol *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return (int)x->rank - (int)y->rank;
}

static void add_symbol(struct native_module *m, const GElf_Sym *s, GElf_Addr addr, const char *name)
{
	unsigned type = GELF_ST_TYPE(s->st_info), bind = GELF_ST_BIND(s->st_info);

	if (!name || !name[0] || s->st_shndx == SHN_UNDEF || s->st_shndx == SHN_ABS)
		return;
	if (type != STT_FUNC && type != STT_GNU_IFUNC && (type != STT_NOTYPE || name[0] == '$'))
		return;
	uint8_t rank = (type == STT_NOTYPE ? 8 : 0) + (s->st_size ? 0 : 4) +
		       (bind == STB_GLOBAL ? 0
			: bind == STB_WEAK ? 1
					   : 2);
	m->symbol = xgrow(m->symbol, &m->cap_symbol, m->nsymbol + 1, sizeof(m->symbol[0]));
	m->symbol[m->nsymbol++] = (struct native_symbol){addr, s->st_size, name, rank};
}

static void keep_one_per_address(struct native_module *m)
{
	size_t kept = 0;

	if (m->nsymbol)
		qsort(m->symbol, m->nsymbol, sizeof(m->symbol[0]), symbol_order);
	for (size_t i = 0; i < m->nsymbol; i++)
		if (!kept || m->symbol[kept - 1].addr != m->symbol[i].addr)
			m->symbol[kept++] = m->symbol[i];
	m->nsymbol = kept;
}

/* Reading lines must stay cheap: some libraries carry gigabytes of debug information. */
static bool has_lines(Dwfl_Module *mod)
{
	GElf_Addr bias;
	Elf *elf = dwfl_module_getelf(mod, &bias);
	size_t names, bytes = 0;
	Elf_Scn *scn = NULL;
	bool found = false;
	GElf_Shdr sh;

	if (!elf || elf_getshdrstrndx(elf, &names) < 0)
		return false;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *name =
			gelf_getshdr(scn, &sh) ? elf_strptr(elf, names, sh.sh_name) : NULL;

		if (!name || (strncmp(name, ".debug_", 7) && strncmp(name, ".zdebug_", 8)))
			continue;
		found |= !strcmp(name, ".debug_line");
		if (sh.sh_size > LINES_MAX_BYTES - bytes)
			return false;
		bytes += sh.sh_size;
	}
	return found;
}

static void index_module(struct native_module *m)
{
	int n = dwfl_module_getsymtab(m->dwfl);

	m->indexed = true;
	m->lined = has_lines(m->dwfl);
	for (int i = 1; i < n && i < MAX_SYMBOLS; i++) {
		GElf_Sym sym;
		GElf_Addr addr;
		const char *name =
			dwfl_module_getsym_info(m->dwfl, i, &sym, &addr, NULL, NULL, NULL);

		add_symbol(m, &sym, addr, name);
	}
	keep_one_per_address(m);
}

static const struct native_symbol *find_symbol(const struct native_module *m, uint64_t addr)
{
	size_t lo = 0, hi = m->nsymbol;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (m->symbol[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return NULL;
	const struct native_symbol *s = &m->symbol[lo - 1];
	return !s->bytes || addr - s->addr < s->bytes ? s : NULL;
}

void native_module_forget_symbols(struct native_module *m)
{
	free(m->symbol);
	m->symbol = NULL;
	m->nsymbol = m->cap_symbol = 0;
}

/* --- places --- */

/* Relative to the directory of the compilation, as projects name their files themselves. */
static const char *source_name(Dwarf_Die *unit, const char *file)
{
	Dwarf_Attribute a;
	const char *dir = dwarf_attr(unit, DW_AT_comp_dir, &a) ? dwarf_formstring(&a) : NULL;
	size_t n = dir ? strlen(dir) : 0;

	if (n && !strncmp(file, dir, n) && file[n] == '/')
		file += n + 1;
	if (file[0] == '.' && file[1] == '/')
		file += 2;
	return native_text(file, strlen(file));
}

/* libdw finds the unit of an address by a table that some compilers do not write. */
static Dwarf_Die *find_unit(Dwfl_Module *mod, uint64_t addr, Dwarf_Addr *bias)
{
	Dwarf_Die *unit = dwfl_module_addrdie(mod, addr, bias);

	if (unit)
		return unit;
	for (unsigned i = 0; i < MAX_UNITS; i++) {
		unit = dwfl_module_nextcu(mod, unit, bias);
		if (!unit || dwarf_haspc(unit, addr - *bias) > 0)
			return unit;
	}
	return NULL;
}

static void place_line(const struct native_module *m, uint64_t addr, struct native_place *out)
{
	Dwarf_Addr bias;
	Dwarf_Die *unit = m->lined ? find_unit(m->dwfl, addr, &bias) : NULL;
	Dwarf_Line *line = unit ? dwarf_getsrc_die(unit, addr - bias) : NULL;
	const char *file = line ? dwarf_linesrc(line, NULL, NULL) : NULL;
	int number = 0;

	if (file && dwarf_lineno(line, &number) == 0 && number > 0) {
		out->file = source_name(unit, file);
		out->line = number;
	}
}

static struct native_place resolve(struct native_process *p, uint64_t addr)
{
	struct native_module *m = native_module_at(p, addr);
	struct native_place out = {.file = intern("", 0), .module = m};
	char text[32];

	if (m && !m->indexed)
		index_module(m);
	const struct native_symbol *s = m ? find_symbol(m, addr) : NULL;
	if (m)
		out.file = m->name;
	if (s) {
		out.name = native_demangle(s->name);
		place_line(m, addr, &out);
	} else {
		int n = snprintf(text, sizeof(text), "0x%llx",
				 (unsigned long long)(m ? addr - m->start : addr));
		out.name = intern(text, (size_t)n);
	}
	return out;
}

const struct native_place *native_place_of(struct native_process *p, uint64_t addr)
{
	uint64_t at = hmap_get(&p->place_at, addr);

	if (at != HMAP_NONE)
		return &p->place[at];
	if (p->nplace >= MAX_PLACES)
		native_places_forget(p);
	p->place = xgrow(p->place, &p->cap_place, p->nplace + 1, sizeof(p->place[0]));
	p->place[p->nplace] = resolve(p, addr);
	hmap_put(&p->place_at, addr, p->nplace);
	return &p->place[p->nplace++];
}

void native_places_forget(struct native_process *p)
{
	hmap_release(&p->place_at);
	p->place_at = (struct hmap){0};
	p->nplace = 0;
}
