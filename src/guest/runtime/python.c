/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The Python stack of the thread that an event happens in. The interpreter's thread state belongs
 * to this thread and its frames stand still while the hook runs, so that nothing has to be locked;
 * faulthandler of the standard library reads them in the same way.
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
 *
 * What is read may be torn in one case only: greenlets copy stretches of the C stack away, and
 * memory is freed in the middle of a switch (see "what lies on the C stack").
 *
 * The symbols are weak: bound when this library is loaded, if the program is a Python interpreter
 * or is linked with one.
 */
#include "guest/runtime/guest.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unwind/python/frame.h"
#include "unwind/python/line.h"
#include "unwind/python/origin.h"
#include "unwind/python/reader.h"
#include "unwind/python/text.h"

#define MAX_NAME 256
#define MAX_FILE 512
#define MAX_TABLE (1u << 20)
#define MAX_SHIMS 1000
#define KNOWN_CODES 4096 /* remembered; the stack of a deep import has hundreds */
#define PUSHED_CHUNKS 64 /* of some hundred frames each */
#define RECENT_PLACES 1024u
#define WHOLE UINT64_MAX /* of a place: the function, not an instruction of it */
#define HIDDEN_FILES 512 /* some ten times what there are */
#define HIDDEN_PROBES 8
#define KNOWN_FILES 512u
#define FURTHER_FRAMES 256 /* beyond the depth asked for */
#define STACK_BELOW ((uint64_t)4 << 20)
#define STACK_ABOVE ((uint64_t)64 << 20)

extern char _PyRuntime[] __attribute__((weak));
extern char PyCode_Type[] __attribute__((weak));
extern char PyCell_Type[] __attribute__((weak));
extern char _Py_NoneStruct[] __attribute__((weak));
extern const unsigned long Py_Version __attribute__((weak));
extern const char *Py_GetVersion(void) __attribute__((weak));
extern void *PyGILState_GetThisThreadState(void) __attribute__((weak));

#if defined(__aarch64__)
#	define HERE PYTHON_AARCH64
#else
#	define HERE PYTHON_X86_64
#endif

enum python_state { PYTHON_UNKNOWN, PYTHON_BUSY, PYTHON_ABSENT, PYTHON_READY };

static struct {
	_Atomic uint32_t state;
	struct python_layout layout;
} python;

static const struct python_reader reader = PYTHON_LOCAL_READER;

/* "3.10.13 (main, …" */
static uint32_t version_of(const char *text)
{
	uint32_t part[3] = {0};

	for (unsigned i = 0; i < 3; i++) {
		for (; *text >= '0' && *text <= '9'; text++)
			part[i] = part[i] * 10 + (uint32_t)(*text - '0');
		if (*text == '.')
			text++;
	}
	return (part[0] & 255) << 24 | (part[1] & 255) << 16 | (part[2] & 255) << 8 | 0xf0;
}

/* From 3.13 on the interpreter says it itself; before, by its version and our tables. */
static bool find_layout(void)
{
	if (!_PyRuntime || !PyCode_Type || !PyGILState_GetThisThreadState)
		return false;
	if (python_layout_read(_PyRuntime, PYTHON_DEBUG_BYTES, &python.layout) == 0)
		return true;
	uint32_t version = &Py_Version	   ? (uint32_t)Py_Version
			   : Py_GetVersion ? version_of(Py_GetVersion())
					   : 0;
	return python_layout_table(version, HERE, &python.layout) == 0;
}

/* Decided once per process. A thread that comes while another decides goes without Python frames
 * rather than wait. */
static bool is_ready(void)
{
	uint32_t state = atomic_load_explicit(&python.state, memory_order_acquire);

	if (likely(state != PYTHON_UNKNOWN))
		return state == PYTHON_READY;
	if (!atomic_compare_exchange_strong(&python.state, &state, PYTHON_BUSY))
		return false;
	bool found = find_layout();
	atomic_store_explicit(&python.state, found ? PYTHON_READY : PYTHON_ABSENT,
			      memory_order_release);
	return found;
}

/* Where the instructions begin that the frame executes: threads may have copies of their own. */
static uint64_t instructions_of(const struct python_raw_frame *f)
{
	const struct python_layout *l = &python.layout;
	uint64_t copies, n, begin;

	if (!f->tlbc || l->code.tlbc == PYTHON_NONE ||
	    python_read_word(&reader, f->code + l->code.tlbc, &copies) < 0 ||
	    python_read_word(&reader, copies, &n) < 0 || f->tlbc >= n ||
	    python_read_word(&reader, copies + 8 + 8 * (uint64_t)f->tlbc, &begin) < 0)
		return f->code + l->code.instructions;
	return begin;
}

/* --- what lies on the C stack --- */

/*
 * Greenlets take turns on one C stack: stretches of it are copied away and back. Until a switch is
 * complete, and memory is freed in it, what the interpreter keeps on the C stack is another
 * greenlet's or no such thing at all: in 3.11 and 3.12 the address of the innermost frame, from
 * 3.12 on the borders to C code. What was read there is followed only if it makes sense.
 */

/* The kernel reads the eight bytes before it sees that there is nothing to do with them. */
static bool is_readable_word(uint64_t addr)
{
	return guest_syscall(SYS_rt_sigprocmask, -1, addr, NULL, 8) < 0 && errno == EINVAL;
}

/* Less than a page of them. */
static bool is_readable(uint64_t addr, uint32_t bytes)
{
	uint64_t last = addr + bytes - 8;

	return !(addr & 7) && is_readable_word(addr) &&
	       (addr >> 12 == last >> 12 || is_readable_word(last));
}

/* The kernel is asked once for each: where a code object was there is hardly ever no memory. */
static bool is_code(uint64_t addr)
{
	static _Atomic uint64_t known[KNOWN_CODES];
	_Atomic uint64_t *slot = &known[addr >> 5 & (KNOWN_CODES - 1)];
	const struct python_layout *l = &python.layout;
	uint64_t type;

	if (atomic_load_explicit(slot, memory_order_relaxed) != addr &&
	    !is_readable(addr, l->code.size))
		return false;
	if (python_read_word(&reader, addr + l->object.type, &type) < 0 ||
	    type != (uint64_t)(uintptr_t)PyCode_Type)
		return false;
	atomic_store_explicit(slot, addr, memory_order_relaxed);
	return true;
}

/* Whether a frame without a Python function is one: its code is None or, in 3.12, a few
 * instructions. */
static bool is_border(const struct python_raw_frame *f)
{
	if (f->code == (uint64_t)(uintptr_t)_Py_NoneStruct)
		return true;
	return f->instr - f->code - python.layout.code.instructions <= 8 && is_code(f->code);
}

/* From 3.11 on: the frame is at one of the instructions of its code, or right before the first. */
static bool is_in_code(const struct python_raw_frame *f)
{
	uint64_t units;

	return is_code(f->code) &&
	       python_read_word(&reader, f->code + python.layout.object.var_size, &units) == 0 &&
	       f->instr + 2 - instructions_of(f) <= 2 * units + 2;
}

/* Also true for what is near: then it costs a little more. */
static bool is_on_stack(uint64_t addr)
{
	uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);

	return addr - (here - STACK_BELOW) < STACK_BELOW + STACK_ABOVE;
}

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
	uint64_t hash; /* behind its length */

	return python_read_word(&reader, name + python.layout.object.object_size + 8, &hash) < 0
		       ? 0
		       : hash;
}

/* The few words that are needed: copying the code object cost as much as all the rest. The line in
 * the key is the function's first one: that of the instruction is computed when the place is new. */
static bool place_of(const struct python_raw_frame *f, struct place *out)
{
	const struct python_layout *l = &python.layout;
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
		out->lasti = f->instr - instructions_of(f);
	return true;
}

static uint32_t line_of(const struct place *p)
{
	const struct python_layout *l = &python.layout;
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
	ssize_t name = python_text(&reader, &python.layout, p->name, text, MAX_NAME);

	if (name < 0)
		name = 0;
	text[name] = '\0';
	ssize_t file = python_text(&reader, &python.layout, p->file, text + name + 1, MAX_FILE);
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

/* --- the walk --- */

struct walk {
	struct python_walk w;
	uint64_t tstate;
	bool from_stack; /* the address of what is next was read from the C stack */
	bool on_stack; /* or what is next may lie there itself */
};

/* Among the frames that the thread has pushed, which is where most are:
 *
 *	thread state -> newest chunk -> previous -> previous …
 *	chunk: | previous | size | top | frame | frame | … |
 *
 * They belong to the thread, and it unlinks one before it frees it. */
static bool is_pushed(uint64_t tstate, uint64_t frame)
{
	uint32_t at = python.layout.tstate.datastack_chunk;
	uint64_t chunk, top, size; /* the first one's end stands in the thread state */

	if (at == PYTHON_NONE || python_read_word(&reader, tstate + at, &chunk) < 0 ||
	    python_read_word(&reader, tstate + at + 8, &top) < 0)
		return false;
	for (unsigned i = 0; i < PUSHED_CHUNKS; i++) {
		if (frame > chunk && frame < top)
			return true;
		if (python_read_word(&reader, chunk, &chunk) < 0 || !chunk ||
		    python_read_word(&reader, chunk + 8, &size) < 0)
			return false;
		top = chunk + size;
	}
	return false;
}

/* The frames of this thread; false if there are none. */
static bool walk_begin(struct walk *w)
{
	const struct python_layout *l = &python.layout;

	w->tstate = (uint64_t)(uintptr_t)PyGILState_GetThisThreadState();
	w->from_stack = l->tstate.cframe != PYTHON_NONE;
	w->on_stack = false;
	return w->tstate && python_walk_begin(&w->w, &reader, l, w->tstate) == 0;
}

/*
 * False at the end, or at something that is no frame.
 *
 * What comes from the heap or from pushed frames is believed. What comes from the C stack is
 * checked before it is followed: its memory can be read, its code is a code object, and it is at
 * one of its instructions.
 */
static bool walk_next(struct walk *w, struct python_raw_frame *f)
{
	const struct python_layout *l = &python.layout;

	if (w->from_stack && w->w.at && !is_pushed(w->tstate, w->w.at) &&
	    !is_readable(w->w.at, l->frame.size))
		return false;
	if (python_walk_next(&w->w, f) <= 0)
		return false;
	if (f->shim ? !is_border(f) : (w->from_stack || w->on_stack) && !is_in_code(f))
		return false;
	w->from_stack = f->shim;
	w->on_stack = l->minor >= 12 && is_on_stack(f->back);
	return true;
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
	uint64_t mark = python_text_mark(&reader, &python.layout, file) & ~(uint64_t)3;
	_Atomic uint64_t *slot = &origins[mark >> 8 & (KNOWN_FILES - 1)];
	uint64_t known = atomic_load_explicit(slot, memory_order_relaxed);
	char text[MAX_FILE];

	if (!mark)
		return false;
	if ((known & ~(uint64_t)3) == mark)
		return (known & 3) == ORIGIN_USER;
	ssize_t n = python_text(&reader, &python.layout, file, text, sizeof(text));
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
	       python_is_trampoline(&reader, &python.layout, p->file, p->name);
}

/* The next frame of interest, and its place. Shims and hidden frames do not count towards what was
 * asked for, but towards a bound of their own, so that a chain without end does end. */
static bool next_place(struct walk *walk, unsigned *left, struct place *out)
{
	struct python_raw_frame f;

	while ((*left)-- > 0 && walk_next(walk, &f))
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
static uint32_t add_users(struct walk *walk, uint64_t *words, uint32_t n, unsigned left)
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
	struct walk walk;
	struct place p;
	uint32_t n = 0;

	if (!max || !is_ready())
		return 0;
	if (guest_is_sealed()) {
		guest_lost_stack();
		return 0;
	}
	if (!walk_begin(&walk))
		return 0;
	for (; n < max && next_place(&walk, &left, &p); n++)
		if (!add_place(&out[n], &p))
			return n;
	return n < max || has_users(out, n) ? n : n + add_users(&walk, out, n, left);
}

uint32_t guest_python_users(void)
{
	unsigned left = FURTHER_FRAMES;
	struct walk walk;
	struct place p;

	if (!is_ready() || guest_is_sealed() || !walk_begin(&walk))
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

	if (!is_ready() || !guest.arena || !place_of(&f, &p))
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
	const struct python_layout *l = &python.layout;
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
	const struct python_layout *l = &python.layout;
	struct python_raw_frame f;
	struct walk walk;
	uint64_t type, name;

	if (!is_ready() || !walk_begin(&walk))
		return NULL;
	do {
		if (!walk_next(&walk, &f))
			return NULL;
	} while (f.shim);
	uint64_t object = first_local(&f);
	if (!object || python_read_word(&reader, object + l->object.type, &type) < 0 ||
	    python_read_word(&reader, type + l->object.type_name, &name) < 0)
		return NULL;
	return (const char *)(uintptr_t)name;
}
