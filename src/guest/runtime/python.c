/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The Python stack of the thread that an event happens in. The interpreter's thread state belongs
 * to this thread and its frames stand still while the hook runs, so that nothing has to be locked
 * (python_frames.c); faulthandler of the standard library reads them in the same way.
 *
 * A place in the code (code object and instruction) is interned like a stack; the first time that
 * one is met its function, file and line go into the ring.
 *
 *	thread state -> innermost frame -> back -> back …       layout per version: unwind/python
 *	                     |
 *	                     v
 *	           struct place {code, lasti, name, file, table, line}  48 bytes
 *	                     |  guest_intern()
 *	                     v
 *	           STACK_PYTHON | id, one word of the stack; REC_PYTHON once per id
 *
 * Why six words: code objects die and their addresses are used again, by other functions. All that
 * tells two functions apart is part of the key, so that a new function at an old address is a new
 * place, without asking the interpreter whether anything was freed.
 */
#include "guest/runtime/guest.h"
#include "guest/runtime/python_frames.h"

#include <string.h>

#include "unwind/python/frame.h"
#include "unwind/python/line.h"
#include "unwind/python/origin.h"
#include "unwind/python/reader.h"
#include "unwind/python/text.h"

#define MAX_NAME 256
#define MAX_FILE 512
#define MAX_TABLE (1u << 20)
#define MAX_SHIMS 1000
#define RECENT_PLACES 1024u
#define WHOLE UINT64_MAX /* of a place: the function, not an instruction of it */
#define HIDDEN_FILES 512 /* some ten times what there are */
#define HIDDEN_PROBES 8
#define KNOWN_FILES 512u
#define FURTHER_FRAMES 256 /* beyond the depth asked for */

extern char PyCell_Type[] __attribute__((weak));

static const struct python_reader reader = PYTHON_LOCAL_READER;

/* --- places --- */

/*
 * What tells a place in the code from all others, also from one in a code object that was at the
 * same address before. All that it refers to may have been elsewhere, too, and have come to the
 * same addresses: a part of the hash of its name, which every name in a code object has, stands
 * above the line.
 */
struct place {
	uint64_t code, lasti, name, file, table, line;
};

static uint64_t hash_of_name(uint64_t name)
{
	uint64_t hash, at = name + guest_frames_layout.object.object_size + 8; /* its length */

	return python_read_word(&reader, at, &hash) < 0 ? 0 : hash;
}

/* The few words that are needed: copying the code object cost as much as all the rest. The line in
 * the key is the function's first one: that of the instruction is computed when the place is new. */
static bool place_of(const struct python_raw_frame *f, struct place *out)
{
	const struct python_layout *l = &guest_frames_layout;
	uint32_t named = l->code.qualname != PYTHON_NONE ? l->code.qualname : l->code.name;
	int32_t first_line;

	if (python_read(&reader, f->code + l->code.firstlineno, &first_line, 4) < 0 ||
	    python_read_word(&reader, f->code + named, &out->name) < 0 ||
	    python_read_word(&reader, f->code + l->code.filename, &out->file) < 0 ||
	    python_read_word(&reader, f->code + l->code.linetable, &out->table) < 0)
		return false;
	out->code = f->code;
	out->lasti = f->instr;
	out->line = (uint32_t)first_line | hash_of_name(out->name) << 32;
	if (l->minor == 10)
		out->lasti = f->instr * 2;
	if (l->minor >= 11)
		out->lasti = f->instr - guest_frames_instructions(f);
	return true;
}

static uint32_t line_of(const struct place *p)
{
	const struct python_layout *l = &guest_frames_layout;
	struct python_position at;

	if (p->lasti == WHOLE)
		return (int32_t)p->line > 0 ? (uint32_t)p->line : 0;
	ssize_t n = python_bytes(&reader, l, p->table, NULL, 0);

	if (n < 0 || n > MAX_TABLE ||
	    python_position(l->lines, (const void *)(uintptr_t)(p->table + l->object.bytes_data),
			    (size_t)n, (int32_t)p->line, (int64_t)p->lasti, &at) < 0)
		return 0;
	return at.line > 0 ? (uint32_t)at.line : 0;
}

/* A place is met for the first time. */
static void emit_place(uint32_t id, void *arg)
{
	const struct place *p = arg;
	char text[MAX_NAME + MAX_FILE];
	ssize_t name = python_text(&reader, &guest_frames_layout, p->name, text, MAX_NAME);

	if (name < 0)
		name = 0;
	text[name] = '\0';
	ssize_t file =
		python_text(&reader, &guest_frames_layout, p->file, text + name + 1, MAX_FILE);
	size_t len = (size_t)name + 1 + (file < 0 ? 0 : (size_t)file);
	uint16_t size = rec_size(sizeof(struct rec_python), len);
	struct rec_python *r = guest_reserve(size);
	if (!r)
		return;
	*r = (struct rec_python){
		.head = {.type = REC_PYTHON, .size = size, .time_ns = guest_now()},
		.id = id,
		.line = line_of(p),
		.len = (uint16_t)len,
	};
	memset((char *)r + size - 8, 0, 8);
	memcpy(r->text, text, len);
	guest_publish(size);
}

/*
 * Places that were met lately, by code and instruction: the arena, as its page number, and the id
 * there. What is behind the id is compared, so nobody has to clear an entry for what happens to code
 * objects, and threads that write one at the same time cost each other a search.
 */
static _Atomic uint64_t recent[RECENT_PLACES];
/* Of the same places: as above with the id shifted by one, bit 0 says that it is the user's code. */
static _Atomic uint64_t recent_origins[RECENT_PLACES];

static unsigned slot_of(const struct place *p)
{
	return (p->code >> 4 ^ p->lasti >> 1) & (RECENT_PLACES - 1);
}

static uint64_t arena_number(void)
{
	return (uint64_t)(uintptr_t)guest.arena >> 12 << 32;
}

static uint32_t intern_place(struct place *p)
{
	_Atomic uint64_t *slot = &recent[slot_of(p)];
	uint64_t arena = arena_number();
	uint64_t v = atomic_load_explicit(slot, memory_order_acquire);
	const uint32_t words = sizeof(*p) / 8;

	if (v >> 32 == arena >> 32 && guest_is_interned((uint32_t)v, (const uint64_t *)p, words))
		return (uint32_t)v;
	uint32_t id = guest_intern((const uint64_t *)p, words, emit_place, p);
	if (id)
		atomic_store_explicit(slot, arena | id, memory_order_release);
	return id;
}

void guest_python_forget(void)
{
	for (unsigned i = 0; i < RECENT_PLACES; i++) {
		atomic_store_explicit(&recent[i], 0, memory_order_relaxed);
		atomic_store_explicit(&recent_origins[i], 0, memory_order_relaxed);
	}
}

/* --- files that nobody wants to see: their names, as the code objects point to them --- */

static _Atomic uint64_t hidden[HIDDEN_FILES];

/* Frames of the Python package itself are left out by the address of their file name, which
 * every code object of a file shares. Entries are only added: 0 ends a search. */
void guest_hide_file(uint64_t name)
{
	for (unsigned i = 0; i < HIDDEN_PROBES; i++) {
		_Atomic uint64_t *slot = &hidden[((name >> 4) + i) % HIDDEN_FILES];
		uint64_t none = 0;

		if (atomic_compare_exchange_strong(slot, &none, name) || none == name)
			return;
	}
}

static bool is_hidden(uint64_t name)
{
	for (unsigned i = 0; i < HIDDEN_PROBES; i++) {
		uint64_t there = atomic_load_explicit(&hidden[((name >> 4) + i) % HIDDEN_FILES],
						      memory_order_relaxed);
		if (there == name)
			return true;
		if (!there)
			return false;
	}
	return false;
}

/* --- files of the user's own program --- */

/* Whose a file is, from the second time on without reading its name: a mark of the name, the origin in
 * its two lowest bits. Threads that write an entry at the same time cost each other a reading. */
static _Atomic uint64_t origins[KNOWN_FILES];

static bool is_users(uint64_t file)
{
	uint64_t mark = python_text_mark(&reader, &guest_frames_layout, file) & ~(uint64_t)3;
	_Atomic uint64_t *slot = &origins[mark >> 8 & (KNOWN_FILES - 1)];
	uint64_t known = atomic_load_explicit(slot, memory_order_relaxed);
	char text[MAX_FILE];

	if (!mark)
		return false;
	if ((known & ~(uint64_t)3) == mark)
		return (known & 3) == ORIGIN_USER;
	ssize_t n = python_text(&reader, &guest_frames_layout, file, text, sizeof(text));
	if (n < 0)
		return false;
	enum python_origin origin = python_origin(text, (size_t)n);
	atomic_store_explicit(slot, mark | origin, memory_order_relaxed);
	return origin == ORIGIN_USER;
}

/* Is this place in the user's own code? Its code object is in use. */
static bool is_users_place(uint32_t id)
{
	const struct place *p = (const void *)arena_stack(guest.arena, id)->pc;
	_Atomic uint64_t *slot = &recent_origins[slot_of(p)];
	uint64_t v = atomic_load_explicit(slot, memory_order_relaxed);
	uint64_t key = arena_number() | (uint32_t)id << 1;

	if (likely((v & ~(uint64_t)1) == key))
		return v & 1;
	bool users = is_users(p->file);
	atomic_store_explicit(slot, key | users, memory_order_relaxed);
	return users;
}

static bool has_users(const uint64_t *words, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (is_users_place((uint32_t)(words[i] & ~STACK_PYTHON)))
			return true;
	return false;
}

static bool is_trampoline(const struct place *p)
{
	return unlikely(p->file == p->name) &&
	       python_is_trampoline(&reader, &guest_frames_layout, p->file, p->name);
}

/* The next frame of interest, and its place. Shims and hidden frames do not count towards what was
 * asked for, but towards a bound of their own, so that a chain without end does end. */
static bool next_place(struct guest_frames *walk, unsigned *left, struct place *out)
{
	struct python_raw_frame f;

	while ((*left)-- > 0 && guest_frames_next(walk, &f))
		if (!f.shim && f.code && place_of(&f, out) && !is_trampoline(out) &&
		    !is_hidden(out->file))
			return true;
	return false;
}

static bool add_place(uint64_t *out, struct place *p)
{
	uint32_t id = intern_place(p);

	*out = STACK_PYTHON | id;
	if (!id)
		guest_lost_stack();
	return id;
}

/*
 * Behind the frames that were asked for, if none of them is of the user's own code: the innermost
 * that is. A framework is often deeper than anybody asks for.
 */
static uint32_t add_users(struct guest_frames *walk, uint64_t *words, uint32_t n, unsigned left)
{
	uint64_t others = 0; /* neighbours are often of one file */
	struct place p;

	for (unsigned further = 0; further < FURTHER_FRAMES && next_place(walk, &left, &p);
	     further++) {
		if (p.file == others || !is_users(p.file)) {
			others = p.file;
			continue;
		}
		words[n] = STACK_CUT;
		return add_place(&words[n + (further > 0)], &p) ? 1 + (further > 0) : 0;
	}
	return 0;
}

uint32_t guest_python(uint64_t *out, uint32_t max)
{
	unsigned left = MAX_SHIMS + max;
	struct guest_frames walk;
	struct place p;
	uint32_t n = 0;

	if (!max || !guest_frames_ready())
		return 0;
	if (guest_is_sealed()) {
		guest_lost_stack();
		return 0;
	}
	if (!guest_frames_begin(&walk))
		return 0;
	for (; n < max && next_place(&walk, &left, &p); n++)
		if (!add_place(&out[n], &p))
			return n;
	return n < max || has_users(out, n) ? n : n + add_users(&walk, out, n, left);
}

uint32_t guest_python_users(void)
{
	unsigned left = FURTHER_FRAMES;
	struct guest_frames walk;
	struct place p;

	if (!guest_frames_ready() || guest_is_sealed() || !guest_frames_begin(&walk))
		return 0;
	while (next_place(&walk, &left, &p)) {
		if (!is_users(p.file))
			continue;
		uint32_t id = intern_place(&p);
		if (!id)
			guest_lost_stack();
		return id;
	}
	return 0;
}

/* --- functions --- */

uint32_t guest_python_code(uint64_t code)
{
	struct python_raw_frame f = {.code = code};
	struct place p;

	if (!guest_frames_ready() || !guest.arena || !place_of(&f, &p))
		return 0;
	p.lasti = WHOLE;
	uint32_t id = intern_place(&p);
	if (!id)
		guest_lost_stack();
	return id;
}

/* What the first local variable refers to, through the cell of one that a nested function uses; 0:
 * nothing. */
static uint64_t first_local(const struct python_raw_frame *f)
{
	const struct python_layout *l = &guest_frames_layout;
	uint64_t object, type;

	if (python_read_word(&reader, f->address + l->frame.locals, &object) < 0)
		return 0;
	object &= ~(uint64_t)7;
	if (!object || python_read_word(&reader, object + l->object.type, &type) < 0)
		return 0;
	if (type == (uint64_t)(uintptr_t)PyCell_Type &&
	    python_read_word(&reader, object + l->object.object_size, &object) < 0)
		return 0;
	return object;
}

const char *guest_python_class(void)
{
	const struct python_layout *l = &guest_frames_layout;
	struct python_raw_frame f;
	struct guest_frames walk;
	uint64_t type, name;

	if (!guest_frames_ready() || !guest_frames_begin(&walk))
		return NULL;
	do {
		if (!guest_frames_next(&walk, &f))
			return NULL;
	} while (f.shim);
	uint64_t object = first_local(&f);
	if (!object || python_read_word(&reader, object + l->object.type, &type) < 0 ||
	    python_read_word(&reader, type + l->object.type_name, &name) < 0)
		return NULL;
	return (const char *)(uintptr_t)name;
}
