/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who asks                 what is opened                       who collects the symbols
 *
 *	symbolize.c         symbol_file_get(path)                load_symbols(): libelf
 *	  (a recording)       the file as it is now, and its
 *	                      separate debug file by build id
 *	remote/native       what the process has mapped, even    libdwfl, which also knows tables
 *	  (a live process)    deleted or in another namespace      without section headers and
 *	                      (remote/native/file.c)               .gnu_debugdata
 *
 * From there on both are the same: one symbol per address in one sorted array, one sorted array of
 * the compilation units' ranges, and the line table of the unit that an address lies in.
 *
 *	sym[]   addr   0x1000        0x1040   0x10c0 …     find: the last one with addr <= x,
 *	        size   0x40          0 (open) 0x20           if x lies inside of it
 *	unit[]  [lo, hi) -> offset of the unit's DIE       several rows per unit, where it has gaps
 *
 * Not by libdwfl: it maps files (a file that is cut short while we look at it would be a SIGBUS),
 * may go to the network for debug information, looks through all symbols for every address, and
 * finds compilation units by .debug_aranges, which clang does not write. Here files are read, never
 * mapped up to READ_MAX_BYTES, debug information comes from the file or the local build-id
 * directory, and of a recording's files no descriptor stays open when file_load() returns.
 */
#include "unwind/symbols/symbol_file.h"

#include <dwarf.h>
#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
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
	struct symbol *sym;
	size_t nsym, cap_sym;
	struct unit *unit;
	size_t nunit, cap_unit;
	Dwarf *dwarf;
	/* Of symbol_file_get() alone: */
	struct symbol_file *next;
	char *path;
	dev_t dev;
	ino_t ino;
	struct timespec mtime;
	Elf *elf[2]; /* [1]: the separate debug file */
	uint64_t lo, hi; /* addresses that its segments take */
};

static struct symbol_file *files;

/* --- ELF: symbols --- */

static int compare_symbols(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return (int)x->rank - (int)y->rank;
}

/*
 * Of several names at one address the one with the lowest rank is shown: functions before labels of
 * assembly, those with a size before those without, global before weak before local. '$' begins
 * the mapping symbols of aarch64.
 */
void symbol_file_add(struct symbol_file *f, const GElf_Sym *s, uint64_t addr, const char *name)
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
	f->sym[f->nsym++] = (struct symbol){addr, s->st_size, name, rank};
}

/* The number of symbols is what the section holds, whatever its header says. */
static void load_table(struct symbol_file *f, Elf *elf, Elf_Scn *scn, const GElf_Shdr *sh)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	size_t each = gelf_fsize(elf, ELF_T_SYM, 1, EV_CURRENT);

	if (!data || !each)
		return;
	for (size_t i = 1, n = data->d_size / each; i < n && i < (size_t)1 << 30; i++) {
		GElf_Sym s;
		if (gelf_getsym(data, (int)i, &s))
			symbol_file_add(f, &s, s.st_value, elf_strptr(elf, sh->sh_link, s.st_name));
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

/* After this the array is only read. Ranks decide which name of one address stays. */
void symbol_file_sort(struct symbol_file *f)
{
	size_t kept = 0;

	if (f->nsym)
		qsort(f->sym, f->nsym, sizeof(f->sym[0]), compare_symbols);
	for (size_t i = 0; i < f->nsym; i++)
		if (!kept || f->sym[kept - 1].addr != f->sym[i].addr)
			f->sym[kept++] = f->sym[i];
	f->nsym = kept;
}

/* How many rows of an array in order, each of which begins with its address, begin at or below. */
static size_t count_up_to(const void *rows, size_t n, size_t row_bytes, uint64_t addr)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (*(const uint64_t *)((const char *)rows + mid * row_bytes) <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

const struct symbol *symbol_file_find(const struct symbol_file *f, uint64_t addr)
{
	size_t n = count_up_to(f->sym, f->nsym, sizeof(f->sym[0]), addr);

	if (!n)
		return NULL;
	const struct symbol *s = &f->sym[n - 1];
	return !s->size || addr - s->addr < s->size ? s : NULL;
}

/* --- DWARF: units --- */

static int compare_units(const void *a, const void *b)
{
	const struct unit *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* A unit that was put together from sections has many ranges; each is a row. */
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

/* All units, by their own ranges: the index that compilers may write (.debug_aranges) is missing
 * in what clang makes. */
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
		qsort(f->unit, f->nunit, sizeof(f->unit[0]), compare_units);
}

/* Ranges of units do not overlap in sound files; in others the last that begins below the
 * address counts. */
bool symbol_file_unit(const struct symbol_file *f, uint64_t addr, Dwarf_Die *out)
{
	size_t n = count_up_to(f->unit, f->nunit, sizeof(f->unit[0]), addr);

	return n && addr < f->unit[n - 1].hi && dwarf_offdie(f->dwarf, f->unit[n - 1].die, out);
}

struct source_line symbol_unit_line(Dwarf_Die *unit, uint64_t addr)
{
	Dwarf_Line *line = dwarf_getsrc_die(unit, addr);
	struct source_line at = {NULL, 0};

	if (line) {
		at.file = dwarf_linesrc(line, NULL, NULL);
		dwarf_lineno(line, &at.line);
	}
	return at;
}

const char *symbol_unit_file(Dwarf_Die *unit, const char *file)
{
	Dwarf_Attribute a;
	const char *dir = dwarf_attr(unit, DW_AT_comp_dir, &a) ? dwarf_formstring(&a) : NULL;
	size_t n = dir ? strlen(dir) : 0;

	if (n && !strncmp(file, dir, n) && file[n] == '/')
		file += n + 1;
	return file[0] == '.' && file[1] == '/' ? file + 2 : file;
}

/* --- files --- */

/*
 * Opens a regular ELF executable or library; everything else is NULL.
 *
 * Up to READ_MAX_BYTES sections are read when they are asked for. Above that the file is mapped:
 * reading it would take as much memory as the file is large.
 */
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

/*
 * [lo, hi) of the loadable segments, to tell that a file is not the one that was mapped.
 *
 * Compared with the mapped range, rounded to 64 KiB pages, in symbol_file_covers().
 */
static void measure_segments(struct symbol_file *f, Elf *elf)
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

/*
 * libdw 0.188 takes for granted that a section of strings ends with a NUL, and inflates whatever
 * size a compressed section claims. Checked here first.
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

/* What the section headers say about debug information. */
struct debug_sections {
	bool info, line, sane;
	uint64_t bytes; /* as they lie in the file */
};

/* One pass over the section headers; `check` also looks into the sections, which inflates
 * compressed ones. */
static struct debug_sections find_debug_sections(Elf *elf, bool check)
{
	struct debug_sections found = {.sane = true};
	Elf_Scn *scn = NULL;
	size_t names;
	GElf_Shdr sh;

	if (elf_getshdrstrndx(elf, &names))
		return (struct debug_sections){0};
	while ((scn = elf_nextscn(elf, scn))) {
		if (!gelf_getshdr(scn, &sh) || sh.sh_type == SHT_NOBITS)
			continue;
		const char *name = elf_strptr(elf, names, sh.sh_name);
		if (!name)
			continue;
		found.info |= !strcmp(name, ".debug_info");
		found.line |= !strcmp(name, ".debug_line");
		if (!strncmp(name, ".debug_", 7) || !strncmp(name, ".zdebug_", 8))
			found.bytes += sh.sh_size < UINT64_MAX - found.bytes ? sh.sh_size : 0;
		found.sane = found.sane && (!check || is_sane(scn, &sh, name));
	}
	return found;
}

bool symbol_elf_has_lines(Elf *elf, uint64_t max_bytes)
{
	struct debug_sections d = find_debug_sections(elf, false);

	return d.line && d.bytes <= max_bytes && find_debug_sections(elf, true).sane;
}

void symbol_file_use_dwarf(struct symbol_file *f, Dwarf *dwarf)
{
	f->dwarf = dwarf;
	load_units(f);
}

int symbol_debug_open(const void *id, ssize_t len, off_t max_bytes, struct stat *out_st)
{
	struct buf path = {0};

	if (len < 2 || len > BUILD_ID_MAX)
		return -1;
	buf_add_str(&path, "/usr/lib/debug/.build-id/");
	for (ssize_t i = 0; i < len; i++)
		buf_addf(&path, i == 1 ? "/%02x" : "%02x", ((const uint8_t *)id)[i]);
	buf_add_str(&path, ".debug");
	int fd = fs_open(buf_str(&path), O_RDONLY, 0, NULL);
	buf_release(&path);
	if (fd >= 0 && (fstat(fd, out_st) || out_st->st_size > max_bytes)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/*
 * The C library's own source lines help nobody, and its debug file, where one is installed, takes
 * longer to inflate than most questions take to answer. Its functions have names all the same.
 */
static bool is_c_library(const char *path)
{
	static const char *const names[] = {"libc.so", "libc-2", "ld-linux", "ld-musl",
					    "libpthread"};
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strncmp(base, names[i], strlen(names[i])))
			return true;
	return false;
}

/*
 * Reads all that will be asked for, so that the descriptors can be closed.
 *
 * The two files are read one after the other into the same arrays: a stripped library has its
 * dynamic symbols, its debug file all of them.
 */
static void file_load(struct symbol_file *f, int fd, const struct stat *st)
{
	struct stat dst;
	const void *id;
	int dfd = -1;

	f->elf[0] = open_elf(fd, st);
	if (!f->elf[0])
		return;
	measure_segments(f, f->elf[0]);
	load_symbols(f, f->elf[0]);
	if (!find_debug_sections(f->elf[0], false).info) {
		ssize_t len = dwelf_elf_gnu_build_id(f->elf[0], &id);
		dfd = symbol_debug_open(id, len, INT64_MAX, &dst);
		f->elf[1] = open_elf(dfd, &dst);
		if (f->elf[1])
			load_symbols(f, f->elf[1]);
	}
	symbol_file_sort(f);
	Elf *debug = f->elf[1] ? f->elf[1] : f->elf[0];
	bool wanted = !f->elf[1] || !is_c_library(f->path);
	if (wanted && find_debug_sections(debug, false).info &&
	    find_debug_sections(debug, true).sane)
		symbol_file_use_dwarf(f, dwarf_begin_elf(debug, DWARF_C_READ, NULL));
	for (int i = 0; i < 2; i++)
		if (f->elf[i])
			elf_cntl(f->elf[i], ELF_C_FDDONE);
	if (dfd >= 0)
		close(dfd);
}

struct symbol_file *symbol_file_new(void)
{
	return xcalloc(1, sizeof(struct symbol_file));
}

void symbol_file_free(struct symbol_file *f)
{
	if (!f)
		return;
	if (f->elf[0]) /* of a live process the debug information is libdwfl's */
		dwarf_end(f->dwarf);
	elf_end(f->elf[1]);
	elf_end(f->elf[0]);
	free(f->sym);
	free(f->unit);
	free(f->path);
	free(f);
}

/* A file that cannot be used is remembered, too: it is not opened again for every address. */
struct symbol_file *symbol_file_get(const char *path)
{
	struct stat st;
	struct symbol_file *f;
	int fd = path[0] == '/' ? fs_open(path, O_RDONLY, 0, NULL) : -1;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return NULL;
	}
	for (f = files; f; f = f->next)
		if (f->dev == st.st_dev && f->ino == st.st_ino &&
		    f->mtime.tv_sec == st.st_mtim.tv_sec &&
		    f->mtime.tv_nsec == st.st_mtim.tv_nsec && !strcmp(f->path, path))
			break;
	if (!f) {
		f = symbol_file_new();
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
		symbol_file_free(f);
	}
}
