/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * From an instruction of a live process to function, library or source, and line; each is asked
 * once (place_at). libdwfl collects the symbols of a module from wherever they are: its own tables,
 * the separate debug file, the compressed table that some distributions add (.gnu_debugdata), the
 * dynamic section of an image without section headers. symbol_file.h puts them in order and reads
 * lines, as for recordings.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "unwind/remote/native/native_impl.h"
#include "unwind/symbols/demangle.h"
#include "unwind/symbols/symbol_file.h"

#define MAX_PLACES 65536
#define MAX_SYMBOLS (1 << 24)
#define LINES_MAX_BYTES (64u << 20) /* of debug information that is read for the sake of a line */
#define DEBUG_FILE_MAX_BYTES (512ll << 20)

/*
 * --- modules, as libdwfl asks for them ---
 *
 * libdwfl asks once per module. What it gets is shared and stays open as long as any process uses
 * it.
 */
static int find_elf(Dwfl_Module *mod, void **user, const char *name, Dwarf_Addr base,
		    char **file_name, Elf **elf)
{
	struct native_module *m = *user;

	(void)mod, (void)name, (void)base, (void)file_name;
	if (m)
		*elf = native_module_open(m->process, m);
	return -1; /* no descriptor: the file is not dwfl's to close */
}

static int find_debuginfo(Dwfl_Module *mod, void **user, const char *name, Dwarf_Addr base,
			  const char *file, const char *link, GElf_Word crc, char **out)
{
	const unsigned char *id;
	GElf_Addr at;
	struct stat st;
	int n = dwfl_module_build_id(mod, &id, &at);

	(void)user, (void)name, (void)base, (void)file, (void)link, (void)crc, (void)out;
	int fd = symbol_debug_open(id, n, DEBUG_FILE_MAX_BYTES, &st);
	if (fd >= 0 && !S_ISREG(st.st_mode)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

const Dwfl_Callbacks native_dwfl_callbacks = {
	.find_elf = find_elf,
	.find_debuginfo = find_debuginfo,
};

/* --- symbols and lines --- */

/* Reading lines must stay cheap: some libraries carry gigabytes of debug information. */
static void index_module(struct native_module *m)
{
	Elf *elf = dwfl_module_getelf(m->dwfl, &m->bias);
	int n = dwfl_module_getsymtab(m->dwfl);
	Dwarf_Addr bias;

	m->symbols = symbol_file_new();
	for (int i = 1; i < n && i < MAX_SYMBOLS; i++) {
		GElf_Sym sym;
		GElf_Addr addr;
		const char *name =
			dwfl_module_getsym_info(m->dwfl, i, &sym, &addr, NULL, NULL, NULL);

		symbol_file_add(m->symbols, &sym, addr - m->bias, name);
	}
	symbol_file_sort(m->symbols);
	if (elf && symbol_elf_has_lines(elf, LINES_MAX_BYTES))
		symbol_file_use_dwarf(m->symbols, dwfl_module_getdwarf(m->dwfl, &bias));
}

static void find_line(const struct native_module *m, uint64_t addr, struct native_place *out)
{
	struct source_line at;
	Dwarf_Die unit;

	if (!symbol_file_unit(m->symbols, addr, &unit))
		return;
	at = symbol_unit_line(&unit, addr);
	if (at.file && at.line > 0) {
		const char *file = symbol_unit_file(&unit, at.file);

		out->file = symbol_text(file, strlen(file));
		out->line = at.line;
	}
}

static struct native_place resolve_address(struct native_process *p, uint64_t addr)
{
	struct native_module *m = native_module_at(p, addr);
	struct native_place out = {.file = intern("", 0), .module = m};
	char text[32];

	if (m && !m->symbols)
		index_module(m);
	const struct symbol *s = m ? symbol_file_find(m->symbols, addr - m->bias) : NULL;
	if (m)
		out.file = m->name;
	if (s) {
		out.name = symbol_name(s->name);
		find_line(m, addr - m->bias, &out);
	} else {
		int n = snprintf(text, sizeof(text), "0x%llx",
				 (unsigned long long)(m ? addr - m->start : addr));
		out.name = intern(text, (size_t)n);
	}
	return out;
}

/* The index into an array that may move: valid until the next call. */
const struct native_place *native_place_of(struct native_process *p, uint64_t addr)
{
	uint64_t at = hmap_get(&p->place_at, addr);

	if (at != HMAP_NONE)
		return &p->place[at];
	if (p->nplace >= MAX_PLACES)
		native_places_forget(p);
	p->place = xgrow(p->place, &p->cap_place, p->nplace + 1, sizeof(p->place[0]));
	p->place[p->nplace] = resolve_address(p, addr);
	hmap_put(&p->place_at, addr, p->nplace);
	return &p->place[p->nplace++];
}

void native_places_forget(struct native_process *p)
{
	hmap_release(&p->place_at);
	p->place_at = (struct hmap){0};
	p->nplace = 0;
}
