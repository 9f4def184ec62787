/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which object owns a code address, and has the recorder heard of it?
 *
 * Finding: glibc 2.35 has _dl_find_object(), which takes no lock. Before, dl_iterate_phdr() takes
 * the loader's lock; it is recursive, so a hook inside dlopen() does not stop itself, and a miss of
 * the rule cache is rare enough. The program headers are read from the mapped file header, after a
 * check that they are the loader's; a file that was patched afterwards goes the long way.
 *
 * Reporting: a table of SLOTS, open addressing by the object's start.
 *
 *	slot	start | end | id	id: hash of name and bias, mixed with the generation;
 *					0: empty
 *
 * A slot is written id = 0, start, end, id (release), and read start, end, id (acquire): who sees
 * the id sees what belongs to it. Threads that race for one slot at worst spoil it, and the object
 * is reported once more, which the recorder takes as the same. An object is entered only after its
 * record is in a ring: other threads' stacks that name it cannot come before.
 *
 * native_objects_forget() starts another generation: a forked child has an arena that knows
 * nothing.
 */
#include "unwind/native/modules.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>

#include "unwind/native/arch.h"
#include "unwind/native/span.h"

#define HEADER_BYTES 4096u /* an ELF header and its program headers lie in the first page */
#define PATH_BYTES 1024u
#define SLOTS 2048u
#define SLOT_TRIES 16u

/* --- what was reported --- */

struct slot {
	_Atomic uint64_t start, end, id;
};

static struct slot slots[SLOTS];
static _Atomic uint64_t generation;

static uint64_t identity(const struct native_object *o)
{
	uint64_t h = 14695981039346656037ull ^ o->bias;

	for (const char *p = o->name ? o->name : ""; *p; p++)
		h = (h ^ (uint8_t)*p) * 1099511628211ull;
	return (h ^ atomic_load_explicit(&generation, memory_order_relaxed)) | 1;
}

static unsigned first_slot(uint64_t start)
{
	return (unsigned)((start >> 12) * 0x9e3779b97f4a7c15ull >> 48) % SLOTS;
}

static bool is_known_start(uint64_t start)
{
	unsigned at = first_slot(start);

	for (unsigned i = 0; i < SLOT_TRIES; i++)
		if (atomic_load_explicit(&slots[(at + i) % SLOTS].start, memory_order_relaxed) ==
		    start)
			return true;
	return false;
}

static bool is_reported(const struct native_object *o, uint64_t id)
{
	for (unsigned i = 0, at = first_slot(o->start); i < SLOT_TRIES; i++) {
		struct slot *s = &slots[(at + i) % SLOTS];
		if (atomic_load_explicit(&s->start, memory_order_relaxed) == o->start &&
		    atomic_load_explicit(&s->end, memory_order_relaxed) == o->end &&
		    atomic_load_explicit(&s->id, memory_order_acquire) == id)
			return true;
	}
	return false;
}

/* --- finding --- */

/* glibc's struct dl_find_object, so that building needs no glibc 2.35. */
struct found {
	unsigned long long flags;
	void *map_start;
	void *map_end;
	struct link_map *map;
	void *eh_frame;
	unsigned long long reserved[7];
};

extern int native_dl_find_object(void *addr, struct found *out) __asm__("_dl_find_object")
	__attribute__((weak));

static bool in_segment(const ElfW(Phdr) * p, uint64_t bias, uint64_t addr)
{
	return p->p_type == PT_LOAD && addr - (bias + p->p_vaddr) < p->p_memsz;
}

/*
 * Moves *hi over the readable segments that follow without a hole.
 *
 * .eh_frame_hdr and .eh_frame lie in one read-only segment, or in two that follow each other. The
 * view goes as far as there is no hole.
 */
static void join_segments(const ElfW(Phdr) * p, unsigned n, uint64_t bias, uint64_t *hi)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t start = bias + p[i].p_vaddr;
		if (p[i].p_type != PT_LOAD || !(p[i].p_flags & PF_R))
			continue;
		if (start >= *hi && (start & ~4095ull) <= ((*hi + 4095) & ~4095ull))
			*hi = start + p[i].p_filesz;
	}
}

/*
 * Fills out from program headers; false if no executable segment holds pc.
 *
 * p_filesz, not p_memsz, ends what is read: what lies behind it in the page was zeroed, and what
 * lies behind the page may not be there.
 */
static bool from_headers(const ElfW(Phdr) * p, unsigned n, uint64_t pc, struct native_object *out)
{
	const ElfW(Phdr) *text = NULL, *hdr = NULL, *home = NULL;
	uint64_t bias = out->bias, start = ~0ull, end = 0;

	for (unsigned i = 0; i < n; i++) {
		if (p[i].p_type == PT_GNU_EH_FRAME)
			hdr = &p[i];
		if (p[i].p_type != PT_LOAD)
			continue;
		uint64_t a = bias + p[i].p_vaddr, b = a + p[i].p_memsz;
		start = a < start ? a : start;
		end = b > end ? b : end;
		if (in_segment(&p[i], bias, pc) && (p[i].p_flags & PF_X))
			text = &p[i];
	}
	if (!text)
		return false;
	out->start = start & ~4095ull;
	out->end = (end + 4095) & ~4095ull;
	out->code = bias + text->p_vaddr;
	out->code_end = text->p_flags & PF_R ? out->code + text->p_filesz : out->code;
	out->cfi = (struct cfi_view){0};
	for (unsigned i = 0; hdr && i < n; i++)
		if (in_segment(&p[i], bias, bias + hdr->p_vaddr) && (p[i].p_flags & PF_R))
			home = &p[i];
	if (home) {
		uint64_t lo = bias + home->p_vaddr, hi = lo + home->p_filesz;
		join_segments(p, n, bias, &hi);
		out->cfi = (struct cfi_view){(const uint8_t *)(uintptr_t)lo, hi - lo, lo,
					     bias + hdr->p_vaddr};
	}
	return true;
}

struct search {
	uint64_t pc;
	struct native_object *out;
};

static int visit_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;

	(void)size;
	s->out->bias = info->dlpi_addr;
	s->out->name = info->dlpi_name;
	return from_headers(info->dlpi_phdr, info->dlpi_phnum, s->pc, s->out);
}

/*
 * The way for glibc before 2.35 and for odd files: takes the loader's (recursive) lock.
 *
 * The callback runs with the lock held: it only copies numbers.
 */
static bool find_by_list(uint64_t pc, struct native_object *out)
{
	struct search s = {pc, out};

	return dl_iterate_phdr(visit_object, &s) > 0;
}

/* Without the loader's lock, if the header says all. */
static bool find_by_header(const struct found *f, uint64_t pc, struct native_object *out)
{
	const ElfW(Ehdr) *e = f->map_start;

	if (memcmp(e->e_ident, ELFMAG, SELFMAG) || e->e_phentsize != sizeof(ElfW(Phdr)) ||
	    e->e_phoff > HEADER_BYTES || e->e_phoff % 8 ||
	    e->e_phnum > (HEADER_BYTES - e->e_phoff) / sizeof(ElfW(Phdr)))
		return false;
	const ElfW(Phdr) *p = (const void *)((const char *)f->map_start + e->e_phoff);
	out->bias = f->map->l_addr;
	out->name = f->map->l_name;
	return from_headers(p, e->e_phnum, pc, out) && out->start == (uint64_t)(uintptr_t)e &&
	       out->cfi.hdr == (uint64_t)(uintptr_t)f->eh_frame;
}

bool native_object_find(uint64_t pc, struct native_object *out)
{
	struct found f;

	if (!native_dl_find_object)
		return !span_is_sealed() && find_by_list(pc, out);
	if (native_dl_find_object((void *)(uintptr_t)pc, &f) != 0)
		return false;
	if (span_is_sealed()) /* only one that was found before the kernel could not be asked */
		return is_known_start((uint64_t)(uintptr_t)f.map_start) &&
		       find_by_header(&f, pc, out) && is_reported(out, identity(out));
	if (span_readable((uint64_t)(uintptr_t)f.map_start) && find_by_header(&f, pc, out))
		return true;
	return find_by_list(pc,
			    out); /* headers that were moved (patchelf), or are not the loader's */
}

/* --- the path --- */

static long read_link(const char *path, char *out, unsigned size)
{
	long n = arch_syscall4(SYS_readlinkat, AT_FDCWD, (long)path, (long)out, size - 1);

	if (n > 0)
		out[n] = 0;
	return n;
}

/* Streams /proc/self/maps for the line that holds an address and copies its path. */
struct maps_scan {
	uint64_t addr;
	uint64_t from, to;
	unsigned field; /* 0 from, 1 to, 2… the rest; the path starts at the first '/' */
	unsigned len;
	bool in_path, done;
	char *out;
};

/* One character at a time, so that a buffer of half a KiB is enough for lines of any length:
 * this runs on the stack of a hook. */
static void maps_char(struct maps_scan *s, char ch)
{
	if (ch == '\n') {
		if (s->in_path)
			s->done = true;
		s->from = s->to = 0;
		s->field = s->len = 0;
		s->in_path = false;
	} else if (s->in_path) {
		if (s->len < PATH_BYTES - 1) {
			s->out[s->len++] = ch;
			s->out[s->len] = 0;
		}
	} else if (s->field < 2) {
		unsigned digit = ch >= 'a' ? (unsigned)ch - 'a' + 10 : (unsigned)ch - '0';
		uint64_t *n = s->field ? &s->to : &s->from;
		if (ch == '-' || ch == ' ')
			s->field++;
		else
			*n = *n << 4 | (digit & 15);
	} else if (ch == '/' && s->addr >= s->from && s->addr < s->to) {
		s->in_path = true;
		s->out[0] = '/';
		s->out[s->len = 1] = 0;
	}
}

static bool path_from_maps(uint64_t addr, char *out)
{
	struct maps_scan s = {.addr = addr, .out = out};
	char chunk[512];
	long n, fd = arch_syscall4(SYS_openat, AT_FDCWD, (long)"/proc/self/maps",
				   O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		return false;
	while (!s.done && (n = arch_syscall4(SYS_read, fd, (long)chunk, sizeof(chunk), 0)) > 0)
		for (long i = 0; i < n && !s.done; i++)
			maps_char(&s, chunk[i]);
	arch_syscall4(SYS_close, fd, 0, 0, 0);
	return s.done;
}

/*
 * The loader's name as a path that another process can open.
 *
 * The loader knows the program by an empty name and some libraries by a relative one: the recorder
 * needs a path that it can open.
 */
static const char *path_of(const struct native_object *o, char *room)
{
	const char *name = o->name ? o->name : "";

	if (name[0] == '/')
		return name;
	if (!strncmp(name, "linux-vdso", 10) || !strncmp(name, "linux-gate", 10))
		return "[vdso]";
	if (!name[0] && read_link("/proc/self/exe", room, PATH_BYTES) > 0)
		return room;
	return path_from_maps(o->code, room) ? room : name;
}

/*
 * Drops every slot that this object's range touches; true if one of them was of another object.
 *
 * All slots are looked at: an object that was unloaded is not at the place where the new one hashes
 * to.
 */
static bool evict_overlap(const struct native_object *o)
{
	bool replaced = false;

	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *s = &slots[i];
		uint64_t end = atomic_load_explicit(&s->end, memory_order_relaxed);
		if (!end || end <= o->start ||
		    atomic_load_explicit(&s->start, memory_order_relaxed) >= o->end)
			continue;
		replaced = true;
		atomic_store_explicit(&s->id, 0, memory_order_relaxed);
		atomic_store_explicit(&s->end, 0, memory_order_relaxed);
	}
	return replaced;
}

static void remember_object(const struct native_object *o, uint64_t id)
{
	unsigned at = first_slot(o->start);
	struct slot *s = &slots[at];

	for (unsigned i = 0; i < SLOT_TRIES; i++) {
		struct slot *t = &slots[(at + i) % SLOTS];
		if (!atomic_load_explicit(&t->end, memory_order_relaxed)) {
			s = t;
			break;
		}
	}
	/* Threads that race here at worst spoil the slot, and the object is reported once more. */
	atomic_store_explicit(&s->id, 0, memory_order_relaxed);
	atomic_store_explicit(&s->start, o->start, memory_order_relaxed);
	atomic_store_explicit(&s->end, o->end, memory_order_relaxed);
	atomic_store_explicit(&s->id, id, memory_order_release);
}

__attribute__((noinline)) void native_object_name(const struct native_object *o,
						  native_module_fn fn, void *arg)
{
	char room[PATH_BYTES];
	struct native_module m = {o->start, o->end, o->bias, path_of(o, room)};

	fn(&m, arg);
}

bool native_object_report(const struct native_object *o, native_module_fn fn, void *arg)
{
	uint64_t id = identity(o);

	if (!fn || is_reported(o, id))
		return false;
	/* Only afterwards is it known to others, whose stacks must not come before the report. */
	native_object_name(o, fn, arg);
	bool replaced = evict_overlap(o);
	remember_object(o, id);
	return replaced;
}

void native_objects_forget(void)
{
	atomic_fetch_add_explicit(&generation, 0x9e3779b97f4a7c15ull, memory_order_relaxed);
	for (unsigned i = 0; i < SLOTS; i++)
		atomic_store_explicit(&slots[i].end, 0, memory_order_relaxed);
}
