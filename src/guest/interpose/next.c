/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The function behind one of ours. RTLD_NEXT means "behind who asks", so a library that interposes
 * dlsym() and calls the next one asks for itself, and we would get our own function. Then the C library
 * is asked directly: its dlsym() is looked up in its symbol table.
 */
#include "guest/interpose/next.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

struct symbols {
	const ElfW(Sym) * table;
	const char *strings;
	const uint32_t *hash; /* DT_GNU_HASH */
	ElfW(Addr) base;
};

static uint32_t hash_name(const char *s)
{
	uint32_t h = 5381;

	for (; *s; s++)
		h = h * 33 + (uint8_t)*s;
	return h;
}

/* DT_GNU_HASH: buckets, first symbol, words of the filter, shift; filter, buckets, chains. */
static void *find_symbol(const struct symbols *s, const char *name)
{
	uint32_t nbuckets = s->hash[0], first = s->hash[1], hash = hash_name(name);
	const uint32_t *buckets =
		s->hash + 4 + (size_t)s->hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	const uint32_t *chains = buckets + nbuckets;
	uint32_t i = nbuckets ? buckets[hash % nbuckets] : 0;

	for (; i >= first && i; i++) {
		const ElfW(Sym) *sym = &s->table[i];
		uint32_t h = chains[i - first];

		if ((h | 1) == (hash | 1) && sym->st_shndx != SHN_UNDEF &&
		    ELF64_ST_TYPE(sym->st_info) == STT_FUNC &&
		    !strcmp(s->strings + sym->st_name, name))
			return (void *)(s->base + sym->st_value);
		if (h & 1)
			break;
	}
	return NULL;
}

static bool read_symbols(const struct dl_phdr_info *info, struct symbols *s)
{
	const ElfW(Dyn) *d = NULL;

	for (size_t i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	s->base = info->dlpi_addr;
	for (; d && d->d_tag != DT_NULL; d++) {
		ElfW(Addr) at = d->d_un.d_ptr >= s->base ? d->d_un.d_ptr : s->base + d->d_un.d_ptr;

		if (d->d_tag == DT_SYMTAB)
			s->table = (const void *)at;
		else if (d->d_tag == DT_STRTAB)
			s->strings = (const void *)at;
		else if (d->d_tag == DT_GNU_HASH)
			s->hash = (const void *)at;
	}
	return s->table && s->strings && s->hash;
}

static int search_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct loader_calls *found = arg;
	struct symbols s = {0};
	const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
	const char *name = slash ? slash + 1 : info->dlpi_name;

	(void)size;
	if (!name || (strncmp(name, "libc.so", 7) != 0 && strncmp(name, "libdl.so", 8) != 0) ||
	    !read_symbols(info, &s))
		return 0;
	if (!found->dlsym)
		found->dlsym = (dlsym_fn)find_symbol(&s, "dlsym");
	if (!found->dlvsym)
		found->dlvsym = (dlvsym_fn)find_symbol(&s, "dlvsym");
	return found->dlsym && found->dlvsym;
}

struct loader_calls loader_calls_find(void)
{
	struct loader_calls found = {NULL, NULL};

	dl_iterate_phdr(search_object, &found);
	return found;
}

void *next_function(const char *name)
{
	void *fn = dlsym(RTLD_NEXT, name);

	if (!is_own_code(fn))
		return fn;
	struct loader_calls libc = loader_calls_find();
	return libc.dlsym ? libc.dlsym(RTLD_NEXT, name) : NULL;
}

void *next_function_of(const char *name, const char *version)
{
	void *fn = dlvsym(RTLD_NEXT, name, version);

	if (!is_own_code(fn))
		return fn;
	struct loader_calls libc = loader_calls_find();
	return libc.dlvsym ? libc.dlvsym(RTLD_NEXT, name, version) : NULL;
}
