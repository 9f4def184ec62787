/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Calls of other objects come to us: the slots through which they call a function of another
 * library (PLT or not) are given our address. Works for objects that were loaded long before us, as
 * a library that the CUDA driver brings has to. What was resolved otherwise (dlsym) stays as it is.
 *
 * The loader has checked these tables before it used them; here they are only read.
 */
#include "guest/interpose/got.h"

#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__aarch64__)
#	define R_SLOT R_AARCH64_JUMP_SLOT
#	define R_DATA R_AARCH64_GLOB_DAT
#	define R_ABS R_AARCH64_ABS64
#else
#	define R_SLOT R_X86_64_JUMP_SLOT
#	define R_DATA R_X86_64_GLOB_DAT
#	define R_ABS R_X86_64_64
#endif

struct object {
	ElfW(Addr) base;
	const ElfW(Sym) * symbols;
	const char *strings;
	size_t string_bytes;
	const ElfW(Rela) * tables[2]; /* of the PLT, and of data behind those that name no symbol */
	size_t counts[2];
	uintptr_t relro, relro_end; /* whole pages; the loader has made them read-only */
	uintptr_t end;
};

struct job {
	const struct got_patch *patches;
	unsigned n;
	const struct got_objects *in;
	uint64_t seen;
	unsigned changed;
};

/* The loader of glibc has put addresses there, others leave the offsets of the file. */
static const void *address_at(const struct object *o, ElfW(Addr) at)
{
	return (const void *)(at >= o->base ? at : o->base + at);
}

static bool read_dynamic(struct object *o, const ElfW(Dyn) * d)
{
	size_t relative = 0;

	for (; d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_SYMTAB:
			o->symbols = address_at(o, d->d_un.d_ptr);
			break;
		case DT_STRTAB:
			o->strings = address_at(o, d->d_un.d_ptr);
			break;
		case DT_STRSZ:
			o->string_bytes = d->d_un.d_val;
			break;
		case DT_JMPREL:
			o->tables[0] = address_at(o, d->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			o->counts[0] = d->d_un.d_val / sizeof(ElfW(Rela));
			break;
		case DT_RELA:
			o->tables[1] = address_at(o, d->d_un.d_ptr);
			break;
		case DT_RELASZ:
			o->counts[1] = d->d_un.d_val / sizeof(ElfW(Rela));
			break;
		case DT_RELACOUNT:
			relative = d->d_un.d_val;
			break;
		case DT_PLTREL:
			if (d->d_un.d_val != DT_RELA)
				return false;
			break;
		}
	}
	if (relative > o->counts[1])
		relative = o->counts[1];
	if (o->tables[1]) {
		o->tables[1] += relative;
		o->counts[1] -= relative;
	}
	return o->symbols && o->strings;
}

static bool read_object(struct object *o, const struct dl_phdr_info *info)
{
	const ElfW(Dyn) *dynamic = NULL;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	o->base = info->dlpi_addr;
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + p->p_vaddr;
		if (p->p_type == PT_DYNAMIC) {
			dynamic = (const ElfW(Dyn) *)at;
		} else if (p->p_type == PT_GNU_RELRO) {
			o->relro = at & ~(page - 1);
			o->relro_end = (at + p->p_memsz) & ~(page - 1);
		} else if (p->p_type == PT_LOAD && at + p->p_memsz > o->end) {
			o->end = at + p->p_memsz;
		}
	}
	return dynamic && read_dynamic(o, dynamic);
}

static const struct got_patch *find_patch(const struct job *j, const struct object *o,
					  const ElfW(Rela) * r)
{
	const ElfW(Sym) *sym = &o->symbols[ELF64_R_SYM(r->r_info)];

	if (sym->st_name >= o->string_bytes)
		return NULL;
	const char *name = o->strings + sym->st_name;
	for (unsigned i = 0; i < j->n; i++) {
		const struct got_patch *p = &j->patches[i];
		/* A function that the object defines itself is of another copy of the library. */
		if (name[0] == p->name[0] && !strcmp(name, p->name))
			return p->variable || sym->st_shndx == SHN_UNDEF ? p : NULL;
	}
	return NULL;
}

/* The loader has put its address into the slot. */
static bool set_variable(void **slot, void *to)
{
	void **at = __atomic_load_n(slot, __ATOMIC_RELAXED), *none = NULL;

	return at && __atomic_compare_exchange_n(at, &none, to, false, __ATOMIC_SEQ_CST,
						 __ATOMIC_SEQ_CST);
}

/* What is not looked up yet leads into the object itself. */
static bool is_meant(const struct object *o, const struct got_patch *p, const void *now)
{
	bool waits = (uintptr_t)now >= o->base && (uintptr_t)now < o->end;

	return now != p->to && (!p->from || now == p->from || waits);
}

static bool set_slot(const struct object *o, void **slot, const struct got_patch *p)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)slot & ~(page - 1);
	bool locked = (uintptr_t)slot >= o->relro && (uintptr_t)slot < o->relro_end;

	if (!is_meant(o, p, __atomic_load_n(slot, __ATOMIC_RELAXED)))
		return false;
	if (locked && mprotect((void *)at, page, PROT_READ | PROT_WRITE) != 0)
		return false;
	__atomic_store_n(slot, p->to, __ATOMIC_RELEASE);
	if (locked)
		(void)mprotect((void *)at, page, PROT_READ);
	return true;
}

static void patch_table(struct job *j, const struct object *o, unsigned t)
{
	for (size_t i = 0; o->tables[t] && i < o->counts[t]; i++) {
		const ElfW(Rela) *r = &o->tables[t][i];
		uint32_t type = ELF64_R_TYPE(r->r_info);
		if (type != R_SLOT && type != R_DATA && !(type == R_ABS && !r->r_addend))
			continue;
		const struct got_patch *p = find_patch(j, o, r);
		void **slot = (void **)(o->base + r->r_offset);
		if (p && p->variable)
			j->changed += set_variable(slot, p->to);
		else if (p)
			j->changed += set_slot(o, slot, p);
	}
}

static int patch_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct job *j = arg;
	struct object o = {0};
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *base = slash ? slash + 1 : info->dlpi_name;

	(void)size;
	if (j->seen++ >= j->in->first && strncmp(base, j->in->except, strlen(j->in->except)) != 0 &&
	    read_object(&o, info)) {
		patch_table(j, &o, 0);
		patch_table(j, &o, 1);
	}
	return 0;
}

unsigned got_redirect(const struct got_patch *patches, unsigned n, const struct got_objects *in)
{
	struct job j = {.patches = patches, .n = n, .in = in};

	dl_iterate_phdr(patch_object, &j);
	return j.changed;
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	*(uint64_t *)arg = info->dlpi_adds;
	return 1;
}

uint64_t got_loads(void)
{
	uint64_t n = 0;

	dl_iterate_phdr(count_loads, &n);
	return n;
}

static int count_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)info;
	(void)size;
	++*(uint64_t *)arg;
	return 0;
}

uint64_t got_count(void)
{
	uint64_t n = 0;

	dl_iterate_phdr(count_object, &n);
	return n;
}
