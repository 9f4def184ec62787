/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * libelf and libdw, not libdwfl: dwfl maps files (a file that is cut short while we look at it
 * would be a SIGBUS), may go to the network for debug information, and finds compilation units by
 * .debug_aranges, which clang does not write. Files up to READ_MAX_BYTES are read, not mapped; all
 * that is needed is in memory when file_load() returns, and no descriptor stays open.
 */
#include "unwind/symbols/symbolize_file.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/mem.h"

#define READ_MAX_BYTES (256ll << 20)
#define INFLATE_MAX_BYTES (1ull << 30) /* of one compressed section */
#define MAX_UNITS 1000000u
#define BUILD_ID_MAX 64

struct unit {
	uint64_t lo;
	uint64_t hi;
	Dwarf_Off die;
};

/* One ELF file, with its separate debug file where there is one. */
struct symbol_file {
	struct symbol_file *next;
	char *path;
	dev_t dev;
	ino_t ino;
	struct timespec mtime;
	Elf *elf[2]; /* [1]: the separate debug file */
	Dwarf *dwarf;
	uint64_t lo, hi; /* addresses that its segments take */
	struct symbol *sym;
	size_t nsym, cap_sym;
	struct unit *unit;
	size_t nunit, cap_unit;
};

static struct symbol_file *files;

/* --- ELF: symbols --- */

static int sym_order(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return (int)x->rank - (int)y->rank;
}

static void add_symbol(struct symbol_file *f, const GElf_Sym *s, const char *name)
{
	unsigned type = GELF_ST_TYPE(s->st_info), bind = GELF_ST_BIND(s->st_info);

	if (!name || !name[0] || s->st_shndx == SHN_UNDEF || s->st_shndx == SHN_ABS)
		return;
	if (type != STT_FUNC && type != STT_GNU_IFUNC && (type != STT_NOTYPE || name[0] == '$'))
		return;
	f->sym = xgrow(f->sym, &f->cap_sym, f->nsym + 1, sizeof(f->sym[0]));
	uint8_t rank = (type == STT_NOTYPE ? 8 : 0) + (s->st_size ? 0 : 4) +
		       (bind == STB_GLOBAL ? 0
			: bind == STB_WEAK ? 1
					   : 2);
	f->sym[f->nsym++] = (struct symbol){s->st_value, s->st_size, name, rank};
}

static void load_table(struct symbol_file *f, Elf *elf, Elf_Scn *scn, const GElf_Shdr *sh)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	size_t each = gelf_fsize(elf, ELF_T_SYM, 1, EV_CURRENT);

	if (!data || !each)
		return;
	for (size_t i = 1, n = data->d_size / each; i < n && i < (size_t)1 << 30; i++) {
		GElf_Sym s;
		if (gelf_getsym(data, (int)i, &s))
			add_symbol(f, &s, elf_strptr(elf, sh->sh_link, s.st_name));
	}
}

static void load_symbols(struct symbol_file *f, Elf *elf)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr sh;

	while ((scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, &sh) &&
		    (sh.sh_type == SHT_SYMTAB || sh.sh_type == SHT_DYNSYM))
			load_table(f, elf, scn, &sh);
}

/* Sorts, and keeps one symbol per address. */
static void settle_symbols(struct symbol_file *f)
{
	size_t kept = 0;

	if (f->nsym)
		qsort(f->sym, f->nsym, sizeof(f->sym[0]), sym_order);
	for (size_t i = 0; i < f->nsym; i++)
		if (!kept || f->sym[kept - 1].addr != f->sym[i].addr)
			f->sym[kept++] = f->sym[i];
	f->nsym = kept;
}

const struct symbol *symbol_file_find(const struct symbol_file *f, uint64_t addr)
{
	size_t lo = 0, hi = f->nsym;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (f->sym[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return NULL;
	const struct symbol *s = &f->sym[lo - 1];
	return !s->size || addr - s->addr < s->size ? s : NULL;
}

/* --- DWARF: units --- */

static int unit_order(const void *a, const void *b)
{
	const struct unit *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void add_unit(struct symbol_file *f, Dwarf_Off off)
{
	Dwarf_Addr base, lo, hi;
	Dwarf_Die die;
	ptrdiff_t at = 0;

	if (!dwarf_offdie(f->dwarf, off, &die))
		return;
	for (unsigned i = 0; i < MAX_UNITS; i++) {
		at = dwarf_ranges(&die, at, &base, &lo, &hi);
		if (at <= 0)
			break;
		if (lo >= hi)
			continue;
		f->unit = xgrow(f->unit, &f->cap_unit, f->nunit + 1, sizeof(f->unit[0]));
		f->unit[f->nunit++] = (struct unit){lo, hi, off};
	}
}

static void load_units(struct symbol_file *f)
{
	Dwarf_Off off = 0, next;
	size_t header;

	for (unsigned i = 0; f->dwarf && i < MAX_UNITS; i++, off = next) {
		if (dwarf_nextcu(f->dwarf, off, &next, &header, NULL, NULL, NULL) || next <= off)
			break;
		add_unit(f, off + header);
	}
	if (f->nunit)
		qsort(f->unit, f->nunit, sizeof(f->unit[0]), unit_order);
}

bool symbol_file_unit(const struct symbol_file *f, uint64_t addr, Dwarf_Die *out)
{
	size_t lo = 0, hi = f->nunit;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (f->unit[mid].lo <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && addr < f->unit[lo - 1].hi && dwarf_offdie(f->dwarf, f->unit[lo - 1].die, out);
}

/* --- files --- */

/* Opens a regular ELF executable or library; everything else is NULL. Closes fd. */
static Elf *open_elf(int fd, const struct stat *st)
{
	GElf_Ehdr eh;
	Elf *elf = NULL;

	if (fd < 0)
		return NULL;
	if (S_ISREG(st->st_mode) && elf_version(EV_CURRENT) != EV_NONE)
		elf = elf_begin(fd, st->st_size > READ_MAX_BYTES ? ELF_C_READ_MMAP : ELF_C_READ,
				NULL);
	if (elf && elf_kind(elf) == ELF_K_ELF && gelf_getehdr(elf, &eh) &&
	    (eh.e_type == ET_EXEC || eh.e_type == ET_DYN))
		return elf;
	elf_end(elf);
	return NULL;
}

/* [lo, hi) of the loadable segments, to tell that a file is not the one that was mapped. */
static void measure(struct symbol_file *f, Elf *elf)
{
	size_t n = 0;

	f->lo = ~0ull;
	if (elf_getphdrnum(elf, &n))
		return;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr p;
		if (!gelf_getphdr(elf, (int)i, &p) || p.p_type != PT_LOAD)
			continue;
		f->lo = p.p_vaddr < f->lo ? p.p_vaddr : f->lo;
		f->hi = p.p_vaddr + p.p_memsz > f->hi ? p.p_vaddr + p.p_memsz : f->hi;
	}
}

/* Calls fn for every section with contents until it says false. */
static bool each_section(Elf *elf, bool (*fn)(Elf_Scn *scn, const GElf_Shdr *sh, const char *name))
{
	Elf_Scn *scn = NULL;
	size_t names;
	GElf_Shdr sh;

	if (elf_getshdrstrndx(elf, &names))
		return false;
	while ((scn = elf_nextscn(elf, scn))) {
		if (!gelf_getshdr(scn, &sh) || sh.sh_type == SHT_NOBITS)
			continue;
		const char *name = elf_strptr(elf, names, sh.sh_name);
		if (name && !fn(scn, &sh, name))
			return false;
	}
	return true;
}

static bool is_not_debug_info(Elf_Scn *scn, const GElf_Shdr *sh, const char *name)
{
	(void)scn;
	(void)sh;
	return strcmp(name, ".debug_info") != 0;
}

static bool has_debug_info(Elf *elf)
{
	return !each_section(elf, is_not_debug_info);
}

/*
 * libdw 0.188 takes for granted that a section of strings ends with a NUL, and inflates whatever
 * size a compressed section claims. Looked at here first.
 */
static bool is_sane(Elf_Scn *scn, const GElf_Shdr *sh, const char *name)
{
	GElf_Chdr ch;

	if (strncmp(name, ".debug_", 7))
		return strncmp(name, ".zdebug_", 8) != 0;
	if (sh->sh_flags & SHF_COMPRESSED)
		if (!gelf_getchdr(scn, &ch) || ch.ch_size > INFLATE_MAX_BYTES ||
		    elf_compress(scn, 0, 0) < 0)
			return false;
	if (strcmp(name, ".debug_str") && strcmp(name, ".debug_line_str"))
		return true;
	Elf_Data *d = elf_rawdata(scn, NULL);
	return d && (!d->d_size || (d->d_buf && !((const char *)d->d_buf)[d->d_size - 1]));
}

/* The separate debug file of the distribution, found by build-id. */
static int open_debug_file(Elf *elf, struct stat *out_st)
{
	const void *id;
	ssize_t len = dwelf_elf_gnu_build_id(elf, &id);
	struct buf path = {0};

	if (len < 2 || len > BUILD_ID_MAX)
		return -1;
	buf_add_str(&path, "/usr/lib/debug/.build-id/");
	for (ssize_t i = 0; i < len; i++)
		buf_addf(&path, i == 1 ? "/%02x" : "%02x", ((const uint8_t *)id)[i]);
	buf_add_str(&path, ".debug");
	int fd = open(buf_str(&path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	buf_release(&path);
	if (fd >= 0 && fstat(fd, out_st)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Reads all that will be asked for, so that fd and dfd can be closed. */
static void file_load(struct symbol_file *f, int fd, const struct stat *st)
{
	struct stat dst;
	int dfd = -1;

	f->elf[0] = open_elf(fd, st);
	if (!f->elf[0])
		return;
	measure(f, f->elf[0]);
	load_symbols(f, f->elf[0]);
	if (!has_debug_info(f->elf[0])) {
		dfd = open_debug_file(f->elf[0], &dst);
		f->elf[1] = open_elf(dfd, &dst);
		if (f->elf[1])
			load_symbols(f, f->elf[1]);
	}
	settle_symbols(f);
	Elf *debug = f->elf[1] ? f->elf[1] : f->elf[0];
	if (has_debug_info(debug) && each_section(debug, is_sane))
		f->dwarf = dwarf_begin_elf(debug, DWARF_C_READ, NULL);
	load_units(f);
	for (int i = 0; i < 2; i++)
		if (f->elf[i])
			elf_cntl(f->elf[i], ELF_C_FDDONE);
	if (dfd >= 0)
		close(dfd);
}

static void file_free(struct symbol_file *f)
{
	dwarf_end(f->dwarf);
	elf_end(f->elf[1]);
	elf_end(f->elf[0]);
	free(f->sym);
	free(f->unit);
	free(f->path);
	free(f);
}

struct symbol_file *symbol_file_get(const char *path)
{
	struct stat st;
	struct symbol_file *f;
	int fd = path[0] == '/' ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st)) {
		close(fd);
		return NULL;
	}
	for (f = files; f; f = f->next)
		if (f->dev == st.st_dev && f->ino == st.st_ino &&
		    f->mtime.tv_sec == st.st_mtim.tv_sec &&
		    f->mtime.tv_nsec == st.st_mtim.tv_nsec && !strcmp(f->path, path))
			break;
	if (!f) {
		f = xcalloc(1, sizeof(*f));
		f->path = xstrdup(path);
		f->dev = st.st_dev;
		f->ino = st.st_ino;
		f->mtime = st.st_mtim;
		file_load(f, fd, &st);
		f->next = files;
		files = f;
	}
	close(fd);
	return f->elf[0] ? f : NULL;
}

bool symbol_file_covers(const struct symbol_file *f, uint64_t lo, uint64_t hi)
{
	/* To the largest page size, with which the loader may have rounded. */
	return lo >= (f->lo & ~0xffffull) && hi <= ((f->hi + 0xffff) & ~0xffffull);
}

void symbol_files_drop(void)
{
	while (files) {
		struct symbol_file *f = files;
		files = f->next;
		file_free(f);
	}
}
