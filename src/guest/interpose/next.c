/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The function behind one of ours. RTLD_NEXT means "behind who asks", so a library that interposes
 * dlsym() and calls the next one asks for itself, and we would get our own function. Then the C library
 * is asked directly: its dlsym() is looked up in its symbol table.
 *
 * A sanitizer's runtime calls dlsym() before it is ready, and has functions of the C library's names:
 * strcmp(), dl_iterate_phdr(). None of them may be called here, so the loader's own list of objects is
 * read, and texts are compared by hand.
 */
#include "guest/interpose/next.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

struct symbols {
	const ElfW(Sym) * table;
	const char *strings;
	const uint32_t *hash; /* DT_GNU_HASH */
	ElfW(Addr) base;
};

static bool is_equal(const char *a, const char *b)
{
	for (; *a && *a == *b; a++)
		b++;
	return *a == *b;
}

static bool begins_with(const char *text, const char *with)
{
	for (; *with; with++)
		if (*text++ != *with)
			return false;
	return true;
}

static const char *file_name(const char *path)
{
	const char *name = path;

	for (; *path; path++)
		if (*path == '/')
			name = path + 1;
	return name;
}

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
		    is_equal(s->strings + sym->st_name, name))
			return (void *)(s->base + sym->st_value);
		if (h & 1)
			break;
	}
	return NULL;
}

static bool read_symbols(const struct link_map *object, struct symbols *s)
{
	s->base = object->l_addr;
	for (const ElfW(Dyn) *d = object->l_ld; d && d->d_tag != DT_NULL; d++) {
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

/* The objects of the program's start, to which the C library belongs, are never removed. */
struct loader_calls loader_calls_find(void)
{
	struct loader_calls found = {NULL, NULL};

	for (const struct link_map *o = _r_debug.r_map; o; o = o->l_next) {
		const char *name = o->l_name ? file_name(o->l_name) : "";
		struct symbols s = {0};

		if ((!begins_with(name, "libc.so") && !begins_with(name, "libdl.so")) ||
		    !read_symbols(o, &s))
			continue;
		if (!found.dlsym)
			found.dlsym = (dlsym_fn)find_symbol(&s, "dlsym");
		if (!found.dlvsym)
			found.dlvsym = (dlvsym_fn)find_symbol(&s, "dlvsym");
		if (found.dlsym && found.dlvsym)
			break;
	}
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
