/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Two ways to a symbol, neither of which trusts a number:
 *
 *	in memory	ELF header -> program headers -> PT_DYNAMIC -> DT_GNU_HASH or DT_HASH ->
 *			DT_SYMTAB, DT_STRTAB. Always mapped, even of a stripped or deleted file;
 *			exported symbols only. One hash chain is read, not the whole table.
 *	in the file	section headers -> .symtab, .strtab. All symbols, where the file was not
 *			stripped; read block by block.
 *
 * DT_GNU_HASH, all in words of 32 bits but for the filter:
 *
 *	nbuckets | first symbol | filter words | shift | filter (u64) | buckets | chain
 *
 * A name is hashed; two bits of the filter say whether it can be there; its bucket holds the first
 * symbol of a run whose chain words have the same upper 31 bits of the hash; bit 0 ends the run.
 */
#include "unwind/remote/find/elf.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAX_HEADERS 64 /* program headers */
#define MAX_DYNAMIC 256 /* entries of the dynamic section */
#define MAX_CHAIN 4096 /* symbols with the same place in the hash table */
#define MAX_NAME 64

static int read_header(const struct python_reader *r, uint64_t base, Elf64_Ehdr *out)
{
	int code = python_read(r, base, out, sizeof(*out));

	if (code < 0)
		return code;
	if (memcmp(out->e_ident, ELFMAG, SELFMAG) != 0)
		return -ENOEXEC;
	if (out->e_ident[EI_CLASS] != ELFCLASS64 || out->e_ident[EI_DATA] != ELFDATA2LSB)
		return -ENOTSUP;
	if (out->e_machine != EM_X86_64 && out->e_machine != EM_AARCH64)
		return -ENOTSUP;
	if (out->e_phentsize != sizeof(Elf64_Phdr) || out->e_phnum == 0 ||
	    out->e_phnum > MAX_HEADERS)
		return -ENOEXEC;
	return 0;
}

/*
 * Adds a segment to the image; false if its numbers are impossible.
 *
 * More than ELF_PARTS segments are not an error: the rest is not searched.
 */
static bool add_part(struct elf_image *image, const Elf64_Phdr *p)
{
	uint64_t addr = image->bias + p->p_vaddr, end;

	if (__builtin_add_overflow(addr, p->p_memsz, &end))
		return false;
	if (image->nparts == ELF_PARTS || p->p_memsz == 0)
		return true;
	if (image->nparts == 0 || addr < image->start)
		image->start = addr;
	if (end > image->end)
		image->end = end;
	image->parts[image->nparts++] = (struct elf_part){
		.addr = addr, .bytes = p->p_memsz, .writable = (p->p_flags & PF_W) != 0};
	return true;
}

/* The bias is what the loader added: the address of the header less the address that the file
 * gives to its first byte. */
static int read_parts(struct elf_image *image, uint64_t base, const Elf64_Phdr *p, unsigned n)
{
	unsigned first = 0;

	while (first < n && p[first].p_type != PT_LOAD)
		first++;
	if (first == n)
		return -ENOEXEC;
	/* The segment that begins the file holds the header. Wraps for programs that are not
	 * relocated: their bias is 0. */
	image->bias = base - (p[first].p_vaddr - p[first].p_offset);
	for (unsigned i = first; i < n; i++)
		if (p[i].p_type == PT_LOAD && !add_part(image, &p[i]))
			return -ENOEXEC;
	return image->nparts > 0 ? 0 : -ENOEXEC;
}

/* Loaders of some systems write addresses into the dynamic section, others leave what was in the
 * file. */
static uint64_t place_of(const struct elf_image *image, uint64_t value)
{
	if (value >= image->start && value < image->end)
		return value;
	value += image->bias;
	return value >= image->start && value < image->end ? value : 0;
}

/* Only tables that lie inside of the image count; anything else is taken as missing. */
static int read_dynamic(struct elf_image *image, const Elf64_Phdr *p)
{
	Elf64_Dyn entries[MAX_DYNAMIC];
	uint64_t n = p->p_memsz / sizeof(entries[0]);
	int r;

	if (n > MAX_DYNAMIC)
		n = MAX_DYNAMIC;
	r = python_read(image->reader, image->bias + p->p_vaddr, entries, n * sizeof(entries[0]));
	if (r < 0)
		return r;
	for (uint64_t i = 0; i < n && entries[i].d_tag != DT_NULL; i++) {
		uint64_t place = place_of(image, entries[i].d_un.d_ptr);

		switch (entries[i].d_tag) {
		case DT_SYMTAB:
			image->symbols = place;
			break;
		case DT_STRTAB:
			image->strings = place;
			break;
		case DT_GNU_HASH:
			image->gnu_hash = place;
			break;
		case DT_HASH:
			image->hash = place;
			break;
		default:
			break;
		}
	}
	return 0;
}

/* Everything later is read through `reader`, when it is needed: an image is some hundred bytes
 * of offsets. */
int elf_image_open(const struct python_reader *reader, uint64_t base, struct elf_image *out)
{
	struct elf_image image = {.reader = reader};
	Elf64_Phdr headers[MAX_HEADERS];
	Elf64_Ehdr e;
	int r = read_header(reader, base, &e);

	if (r < 0)
		return r;
	image.arch = e.e_machine == EM_X86_64 ? PYTHON_X86_64 : PYTHON_AARCH64;
	r = python_read(reader, base + e.e_phoff, headers, e.e_phnum * sizeof(headers[0]));
	if (r < 0)
		return r;
	r = read_parts(&image, base, headers, e.e_phnum);
	if (r < 0)
		return r;
	/* Without a dynamic section, or with a wrong one, there are no symbols. */
	for (unsigned i = 0; i < e.e_phnum; i++)
		if (headers[i].p_type == PT_DYNAMIC) {
			(void)read_dynamic(&image, &headers[i]);
			break;
		}
	*out = image;
	return 0;
}

/*
 * Whether the symbol with this index is the one, defined here.
 *
 * Name and section are read for the few symbols of one chain only.
 */
static bool is_symbol(const struct elf_image *image, uint32_t index, const char *name,
		      struct elf_symbol *out)
{
	size_t bytes = strlen(name) + 1;
	char text[MAX_NAME];
	Elf64_Sym s;

	if (bytes > sizeof(text) ||
	    python_read(image->reader, image->symbols + index * sizeof(s), &s, sizeof(s)) < 0 ||
	    s.st_shndx == SHN_UNDEF || s.st_name == 0)
		return false;
	if (python_read(image->reader, image->strings + s.st_name, text, bytes) < 0 ||
	    memcmp(text, name, bytes) != 0)
		return false;
	out->addr = s.st_shndx == SHN_ABS ? s.st_value : image->bias + s.st_value;
	out->bytes = s.st_size;
	return out->addr >= image->start && out->addr < image->end;
}

static uint32_t gnu_hash_of(const char *name)
{
	uint32_t h = 5381;

	for (; *name; name++)
		h = h * 33 + (unsigned char)*name;
	return h;
}

struct gnu_hash_header {
	uint32_t nbuckets, first, bloom_words, bloom_shift;
};

/*
 * Where the chain of a hash begins: its first symbol, or 0.
 *
 * The filter answers "certainly not" for most binaries with one read.
 */
static uint32_t gnu_chain(const struct elf_image *image, const struct gnu_hash_header *h,
			  uint32_t hash)
{
	uint64_t bloom = image->gnu_hash + sizeof(*h), word;
	uint64_t bit = 1ull << (hash % 64) | 1ull << ((hash >> (h->bloom_shift & 31)) % 64);
	uint32_t index;

	if (python_read_word(image->reader, bloom + hash / 64 % h->bloom_words * 8, &word) < 0 ||
	    (word & bit) != bit)
		return 0;
	if (python_read(image->reader,
			bloom + (uint64_t)h->bloom_words * 8 + hash % h->nbuckets * 4ull, &index,
			sizeof(index)) < 0)
		return 0;
	return index >= h->first ? index : 0;
}

static int find_gnu(const struct elf_image *image, const char *name, struct elf_symbol *out)
{
	uint32_t hash = gnu_hash_of(name), word = 0;
	struct gnu_hash_header h;

	if (python_read(image->reader, image->gnu_hash, &h, sizeof(h)) < 0 || h.nbuckets == 0 ||
	    h.bloom_words == 0)
		return -ENOENT;

	uint64_t chains = image->gnu_hash + sizeof(h) + h.bloom_words * 8ull + h.nbuckets * 4ull;
	uint32_t index = gnu_chain(image, &h, hash);

	for (unsigned seen = 0; index != 0 && !(word & 1) && seen < MAX_CHAIN; seen++, index++) {
		uint64_t at = chains + (uint64_t)(index - h.first) * sizeof(word);

		if (python_read(image->reader, at, &word, sizeof(word)) < 0)
			break;
		if ((word | 1) == (hash | 1) && is_symbol(image, index, name, out))
			return 0;
	}
	return -ENOENT;
}

static uint32_t sysv_hash_of(const char *name)
{
	uint32_t h = 0;

	for (; *name; name++) {
		h = (h << 4) + (unsigned char)*name;
		h ^= (h >> 24) & 0xf0;
		h &= 0x0fffffff;
	}
	return h;
}

/* The table of before 2006; some embedded programs are still linked with it alone. */
static int find_sysv(const struct elf_image *image, const char *name, struct elf_symbol *out)
{
	uint32_t head[2], index; /* nbucket, nchain */

	if (python_read(image->reader, image->hash, head, sizeof(head)) < 0 || head[0] == 0)
		return -ENOENT;

	uint64_t buckets = image->hash + sizeof(head), chains = buckets + head[0] * 4ull;
	uint64_t at = buckets + sysv_hash_of(name) % head[0] * 4ull;

	for (unsigned seen = 0; seen < MAX_CHAIN; seen++) {
		if (python_read(image->reader, at, &index, sizeof(index)) < 0 || index == 0 ||
		    index >= head[1])
			break;
		if (is_symbol(image, index, name, out))
			return 0;
		at = chains + index * 4ull;
	}
	return -ENOENT;
}

int elf_symbol_find(const struct elf_image *image, const char *name, struct elf_symbol *out)
{
	struct elf_symbol found;
	int r = -ENOENT;

	if (!image->symbols || !image->strings)
		return r;
	if (image->gnu_hash)
		r = find_gnu(image, name, &found);
	else if (image->hash)
		r = find_sysv(image, name, &found);
	if (r == 0)
		*out = found;
	return r;
}

#define MAX_SECTIONS 4096
#define MAX_NAMES (1u << 20) /* bytes of the sections' names */
#define MAX_STRINGS (256u << 20)
#define MAX_SYMBOLS (8u << 20)
#define BLOCK 1024 /* symbols read at a time */

/*
 * All bytes of a range, NUL-terminated; NULL if they cannot be read. The caller frees.
 *
 * The caller bounds the size; the last byte must be there before memory is taken for all of it.
 */
static char *read_range(const struct python_reader *file, uint64_t offset, uint64_t bytes,
			uint64_t most)
{
	char last;

	/* Sizes come from the file: the last byte must be there before memory is taken for all, and
	 * too little memory is a reason to give up on the file, not to end. */
	if (bytes == 0 || bytes > most || python_read(file, offset + bytes - 1, &last, 1) < 0)
		return NULL;
	char *data = malloc(bytes + 1);
	if (!data)
		return NULL;
	data[bytes] = 0;
	if (python_read(file, offset, data, bytes) < 0) {
		free(data);
		return NULL;
	}
	return data;
}

static int read_file_header(const struct python_reader *file, Elf64_Ehdr *out)
{
	int r = python_read(file, 0, out, sizeof(*out));

	if (r < 0)
		return r;
	if (memcmp(out->e_ident, ELFMAG, SELFMAG) != 0 || out->e_ident[EI_CLASS] != ELFCLASS64 ||
	    out->e_ident[EI_DATA] != ELFDATA2LSB || out->e_shentsize != sizeof(Elf64_Shdr) ||
	    out->e_shnum == 0 || out->e_shnum > MAX_SECTIONS || out->e_shstrndx >= out->e_shnum)
		return -ENOEXEC;
	return 0;
}

static void take_symbols(const Elf64_Shdr *all, unsigned n, const Elf64_Shdr *table,
			 struct elf_sections *out)
{
	if (table->sh_link >= n || table->sh_entsize != sizeof(Elf64_Sym))
		return;
	out->symbols = (struct elf_range){table->sh_offset, table->sh_size};
	out->strings =
		(struct elf_range){all[table->sh_link].sh_offset, all[table->sh_link].sh_size};
}

/* From the file, so it may be any file by now: what comes out is a guess that is checked against
 * memory. */
int elf_sections_read(const struct python_reader *file, struct elf_sections *out)
{
	struct elf_sections found = {0};
	Elf64_Shdr *all = NULL;
	char *names = NULL;
	Elf64_Ehdr e;
	int r = read_file_header(file, &e);

	if (r < 0)
		return r;
	r = -ENOEXEC;
	all = (Elf64_Shdr *)read_range(file, e.e_shoff, e.e_shnum * sizeof(*all),
				       MAX_SECTIONS * sizeof(*all));
	if (!all)
		goto out;
	const Elf64_Shdr *strings = &all[e.e_shstrndx];
	names = read_range(file, strings->sh_offset, strings->sh_size, MAX_NAMES);
	if (!names)
		goto out;
	for (unsigned i = 1; i < e.e_shnum; i++) {
		if (all[i].sh_type == SHT_SYMTAB)
			take_symbols(all, e.e_shnum, &all[i], &found);
		else if (all[i].sh_name < strings->sh_size &&
			 strcmp(names + all[i].sh_name, ".PyRuntime") == 0)
			found.runtime = all[i].sh_addr;
	}
	*out = found;
	r = 0;
out:
	free(names);
	free(all);
	return r;
}

struct wanted {
	const char *const *names;
	unsigned n;
	struct elf_symbol *out;
	const char *strings;
	uint64_t strings_bytes;
};

static void match_symbol(const struct wanted *w, const Elf64_Sym *s)
{
	if (s->st_shndx == SHN_UNDEF || s->st_name == 0 || s->st_name >= w->strings_bytes)
		return;
	for (unsigned i = 0; i < w->n; i++)
		if (strcmp(w->strings + s->st_name, w->names[i]) == 0)
			w->out[i] = (struct elf_symbol){s->st_value, s->st_size};
}

/* In blocks of 1024: a symbol table may have millions, and only three are wanted. */
void elf_sections_symbols(const struct python_reader *file, const struct elf_sections *s,
			  const char *const *names, unsigned n, struct elf_symbol *out)
{
	uint64_t left = s->symbols.bytes / sizeof(Elf64_Sym), at = s->symbols.offset;
	char *strings = read_range(file, s->strings.offset, s->strings.bytes, MAX_STRINGS);
	struct wanted w = {names, n, out, strings, s->strings.bytes};
	Elf64_Sym *block = xmalloc(BLOCK * sizeof(*block));

	if (left > MAX_SYMBOLS)
		left = MAX_SYMBOLS;
	while (strings && left > 0) {
		size_t count = left < BLOCK ? (size_t)left : BLOCK;

		if (python_read(file, at, block, count * sizeof(*block)) < 0)
			break;
		for (size_t i = 0; i < count; i++)
			match_symbol(&w, &block[i]);
		left -= count;
		at += count * sizeof(*block);
	}
	free(block);
	free(strings);
}
