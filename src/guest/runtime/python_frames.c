/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where the interpreter of this process is, and what of its frames may be believed.
 *
 * What is read may be torn in one case only: greenlets copy stretches of the C stack away, and
 * memory is freed in the middle of a switch (see "what lies on the C stack").
 *
 * The symbols are weak: bound when this library is loaded, if the program is a Python interpreter
 * or is linked with one.
 */
#include "guest/runtime/python_frames.h"

#include "guest/runtime/guest.h"

#include <errno.h>
#include <sys/syscall.h>

#include "unwind/python/reader.h"

#define KNOWN_CODES 4096 /* remembered; the stack of a deep import has hundreds */
#define PUSHED_CHUNKS 64 /* of some hundred frames each */
#define STACK_BELOW ((uint64_t)4 << 20)
#define STACK_ABOVE ((uint64_t)64 << 20)

extern char _PyRuntime[] __attribute__((weak));
extern char PyCode_Type[] __attribute__((weak));
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

static _Atomic uint32_t python_state;
struct python_layout guest_frames_layout;

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
	if (python_layout_read(_PyRuntime, PYTHON_DEBUG_BYTES, &guest_frames_layout) == 0)
		return true;
	uint32_t version = &Py_Version	   ? (uint32_t)Py_Version
			   : Py_GetVersion ? version_of(Py_GetVersion())
					   : 0;
	return python_layout_table(version, HERE, &guest_frames_layout) == 0;
}

bool guest_frames_ready(void)
{
	uint32_t state = atomic_load_explicit(&python_state, memory_order_acquire);

	if (likely(state != PYTHON_UNKNOWN))
		return state == PYTHON_READY;
	if (!atomic_compare_exchange_strong(&python_state, &state, PYTHON_BUSY))
		return false;
	bool found = find_layout();
	atomic_store_explicit(&python_state, found ? PYTHON_READY : PYTHON_ABSENT,
			      memory_order_release);
	return found;
}

uint64_t guest_frames_instructions(const struct python_raw_frame *f)
{
	const struct python_layout *l = &guest_frames_layout;
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
	const struct python_layout *l = &guest_frames_layout;
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
	return f->instr - f->code - guest_frames_layout.code.instructions <= 8 && is_code(f->code);
}

/* From 3.11 on: the frame is at one of the instructions of its code, or right before the first. */
static bool is_in_code(const struct python_raw_frame *f)
{
	uint64_t units;

	return is_code(f->code) &&
	       python_read_word(&reader, f->code + guest_frames_layout.object.var_size, &units) ==
		       0 &&
	       f->instr + 2 - guest_frames_instructions(f) <= 2 * units + 2;
}

/* Also true for what is near: then it costs a little more. */
static bool is_on_stack(uint64_t addr)
{
	uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);

	return addr - (here - STACK_BELOW) < STACK_BELOW + STACK_ABOVE;
}

/* --- the walk --- */

/* Among the frames that the thread has pushed, which is where most are:
 *
 *	thread state -> newest chunk -> previous -> previous …
 *	chunk: | previous | size | top | frame | frame | … |
 *
 * They belong to the thread, and it unlinks one before it frees it. */
static bool is_pushed(uint64_t tstate, uint64_t frame)
{
	uint32_t at = guest_frames_layout.tstate.datastack_chunk;
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

bool guest_frames_begin(struct guest_frames *w)
{
	const struct python_layout *l = &guest_frames_layout;

	w->tstate = (uint64_t)(uintptr_t)PyGILState_GetThisThreadState();
	w->from_stack = l->tstate.cframe != PYTHON_NONE;
	w->on_stack = false;
	return w->tstate && python_walk_begin(&w->w, &reader, l, w->tstate) == 0;
}

/*
 * What comes from the heap or from pushed frames is believed. What comes from the C stack is
 * checked before it is followed: its memory can be read, its code is a code object, and it is at
 * one of its instructions.
 */
bool guest_frames_next(struct guest_frames *w, struct python_raw_frame *f)
{
	const struct python_layout *l = &guest_frames_layout;

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
