/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What CPython says of itself from 3.13 on: _PyRuntime begins with a cookie, its version, whether
 * it is free-threaded, and then a row of 64-bit numbers, offsets and sizes of structures in a fixed
 * order that every minor version changes:
 *
 *	"xdebugpy" | version | free_threaded | size, offset, offset … | size, offset … | …
 *
 * They are another process' bytes: each offset must lie in its structure, at a multiple of what it
 * points at, and no structure may be bigger than one of its kind can be.
 *
 * A row below names, in the order of one version's struct _Py_DebugOffsets, which word each number
 * is. CPython adds numbers in the middle from one minor version to the next, so each version needs
 * a row; what it added is found by comparing Include/internal/pycore_debug_offsets.h of the two.
 * Offsets that it does not say are derived from neighbours that have not moved since 3.7: co_flags
 * lies before co_argcount, tp_basicsize behind tp_name.
 *
 *	bytes -> row -> word[] -> read_*(): checked, by name -> struct python_layout
 */
#include <errno.h>
#include <string.h>

#include "unwind/python/layout.h"

/* Every number that is used in at least one version; the first of each line is the size of the
 * structure that the others lie in. */
enum word {
	/* clang-format off */
	SKIP, /* not used */
	RUNTIME_SIZE, RUNTIME_INTERPRETERS,
	INTERP_SIZE, INTERP_ID, INTERP_NEXT, INTERP_THREADS, INTERP_GC, INTERP_MODULES,
		INTERP_GIL, INTERP_OWN_GIL, INTERP_OWN_GIL_LOCKED, INTERP_OWN_GIL_HOLDER,
		INTERP_CODE_GENERATION,
	TSTATE_SIZE, TSTATE_PREV, TSTATE_NEXT, TSTATE_INTERP, TSTATE_FRAME, TSTATE_BASE_FRAME,
		TSTATE_THREAD_ID, TSTATE_NATIVE_ID, TSTATE_CHUNK, TSTATE_HOLDS_GIL,
	FRAME_SIZE, FRAME_PREVIOUS, FRAME_EXECUTABLE, FRAME_INSTRUCTION, FRAME_LOCALS,
		FRAME_OWNER, FRAME_STACKPOINTER, FRAME_TLBC,
	CODE_SIZE, CODE_FILENAME, CODE_NAME, CODE_QUALNAME, CODE_LINETABLE, CODE_FIRSTLINENO,
		CODE_ARGCOUNT, CODE_NAMES, CODE_KINDS, CODE_INSTRUCTIONS, CODE_TLBC,
	OBJECT_SIZE, OBJECT_TYPE,
	TYPE_SIZE, TYPE_NAME, TYPE_FLAGS, TYPE_BASICSIZE, TYPE_DICTOFFSET,
	HEAP_TYPE_SIZE, HEAP_TYPE_KEYS,
	TUPLE_SIZE, TUPLE_ITEMS, TUPLE_LENGTH,
	LIST_SIZE, LIST_ITEMS,
	DICT_SIZE, DICT_KEYS, DICT_VALUES,
	FLOAT_SIZE, FLOAT_VALUE,
	LONG_SIZE, LONG_TAG, LONG_DIGITS,
	BYTES_SIZE, BYTES_DATA,
	TEXT_SIZE, TEXT_STATE, TEXT_LENGTH, TEXT_ASCII_SIZE, TEXT_COMPACT_SIZE,
	GC_SIZE, GC_COLLECTING,
	WORDS,
	/* clang-format on */
};

/*
 * A row from left to right is the interpreter's structure from its third word on. To add a version:
 * copy the last row, compare the two headers (pycore_debug_offsets.h), insert SKIP or a new word
 * where the new header has a field more, and raise PYTHON_NEWEST. The static asserts below hold the
 * number of rows and the bytes together; tests read what real interpreters say.
 */
static const char cookie[8] = "xdebugpy";
#define HEAD 3 /* words before the row: cookie, version, free_threaded */

/* The rows. Behind their last number there may be more, of which nothing is used. */
static const uint8_t row_3_13[] = {
	/* clang-format off */
	RUNTIME_SIZE, SKIP, RUNTIME_INTERPRETERS,
	INTERP_SIZE, INTERP_ID, INTERP_NEXT, INTERP_THREADS, INTERP_GC, INTERP_MODULES, SKIP, SKIP,
		INTERP_GIL, INTERP_OWN_GIL, SKIP, INTERP_OWN_GIL_LOCKED, INTERP_OWN_GIL_HOLDER,
	TSTATE_SIZE, TSTATE_PREV, TSTATE_NEXT, TSTATE_INTERP, TSTATE_FRAME, TSTATE_THREAD_ID,
		TSTATE_NATIVE_ID, TSTATE_CHUNK, SKIP,
	FRAME_SIZE, FRAME_PREVIOUS, FRAME_EXECUTABLE, FRAME_INSTRUCTION, FRAME_LOCALS, FRAME_OWNER,
	CODE_SIZE, CODE_FILENAME, CODE_NAME, CODE_QUALNAME, CODE_LINETABLE, CODE_FIRSTLINENO,
		CODE_ARGCOUNT, CODE_NAMES, CODE_KINDS, CODE_INSTRUCTIONS,
	OBJECT_SIZE, OBJECT_TYPE,
	TYPE_SIZE, TYPE_NAME, SKIP, TYPE_FLAGS,
	TUPLE_SIZE, TUPLE_ITEMS, TUPLE_LENGTH,
	LIST_SIZE, LIST_ITEMS, SKIP,
	DICT_SIZE, DICT_KEYS, DICT_VALUES,
	FLOAT_SIZE, FLOAT_VALUE,
	LONG_SIZE, LONG_TAG, LONG_DIGITS,
	BYTES_SIZE, SKIP, BYTES_DATA,
	TEXT_SIZE, TEXT_STATE, TEXT_LENGTH, TEXT_ASCII_SIZE,
	GC_SIZE, GC_COLLECTING,
	/* clang-format on */
};

static const uint8_t row_3_14[] = {
	/* clang-format off */
	RUNTIME_SIZE, SKIP, RUNTIME_INTERPRETERS,
	INTERP_SIZE, INTERP_ID, INTERP_NEXT, INTERP_THREADS, SKIP, INTERP_GC, INTERP_MODULES, SKIP,
		SKIP, INTERP_GIL, INTERP_OWN_GIL, SKIP, INTERP_OWN_GIL_LOCKED,
		INTERP_OWN_GIL_HOLDER, INTERP_CODE_GENERATION, SKIP,
	TSTATE_SIZE, TSTATE_PREV, TSTATE_NEXT, TSTATE_INTERP, TSTATE_FRAME, TSTATE_THREAD_ID,
		TSTATE_NATIVE_ID, TSTATE_CHUNK, SKIP,
	FRAME_SIZE, FRAME_PREVIOUS, FRAME_EXECUTABLE, FRAME_INSTRUCTION, FRAME_LOCALS, FRAME_OWNER,
		FRAME_STACKPOINTER, FRAME_TLBC,
	CODE_SIZE, CODE_FILENAME, CODE_NAME, CODE_QUALNAME, CODE_LINETABLE, CODE_FIRSTLINENO,
		CODE_ARGCOUNT, CODE_NAMES, CODE_KINDS, CODE_INSTRUCTIONS, CODE_TLBC,
	OBJECT_SIZE, OBJECT_TYPE,
	TYPE_SIZE, TYPE_NAME, SKIP, TYPE_FLAGS,
	TUPLE_SIZE, TUPLE_ITEMS, TUPLE_LENGTH,
	LIST_SIZE, LIST_ITEMS, SKIP,
	SKIP, SKIP, SKIP, SKIP, /* set */
	DICT_SIZE, DICT_KEYS, DICT_VALUES,
	FLOAT_SIZE, FLOAT_VALUE,
	LONG_SIZE, LONG_TAG, LONG_DIGITS,
	BYTES_SIZE, SKIP, BYTES_DATA,
	TEXT_SIZE, TEXT_STATE, TEXT_LENGTH, TEXT_ASCII_SIZE,
	GC_SIZE, GC_COLLECTING,
	/* clang-format on */
};

static const uint8_t row_3_15[] = {
	/* clang-format off */
	RUNTIME_SIZE, SKIP, RUNTIME_INTERPRETERS,
	INTERP_SIZE, INTERP_ID, INTERP_NEXT, INTERP_THREADS, SKIP, INTERP_GC, INTERP_MODULES, SKIP,
		SKIP, INTERP_GIL, INTERP_OWN_GIL, SKIP, INTERP_OWN_GIL_LOCKED,
		INTERP_OWN_GIL_HOLDER, INTERP_CODE_GENERATION, SKIP,
	TSTATE_SIZE, TSTATE_PREV, TSTATE_NEXT, TSTATE_INTERP, TSTATE_FRAME, TSTATE_BASE_FRAME, SKIP,
		SKIP, TSTATE_THREAD_ID, TSTATE_NATIVE_ID, TSTATE_CHUNK, SKIP, TSTATE_HOLDS_GIL,
		SKIP, SKIP, SKIP,
	SKIP, /* exception */
	FRAME_SIZE, FRAME_PREVIOUS, FRAME_EXECUTABLE, FRAME_INSTRUCTION, FRAME_LOCALS, FRAME_OWNER,
		FRAME_STACKPOINTER, FRAME_TLBC,
	CODE_SIZE, CODE_FILENAME, CODE_NAME, CODE_QUALNAME, CODE_LINETABLE, CODE_FIRSTLINENO,
		CODE_ARGCOUNT, CODE_NAMES, CODE_KINDS, CODE_INSTRUCTIONS, CODE_TLBC,
	OBJECT_SIZE, OBJECT_TYPE,
	TYPE_SIZE, TYPE_NAME, SKIP, TYPE_FLAGS, TYPE_BASICSIZE, TYPE_DICTOFFSET,
	HEAP_TYPE_SIZE, HEAP_TYPE_KEYS,
	TUPLE_SIZE, TUPLE_ITEMS, TUPLE_LENGTH,
	LIST_SIZE, LIST_ITEMS, SKIP,
	SKIP, SKIP, SKIP, SKIP, /* set */
	DICT_SIZE, DICT_KEYS, DICT_VALUES,
	FLOAT_SIZE, FLOAT_VALUE,
	LONG_SIZE, LONG_TAG, LONG_DIGITS,
	BYTES_SIZE, SKIP, BYTES_DATA,
	TEXT_SIZE, TEXT_STATE, TEXT_LENGTH, TEXT_ASCII_SIZE, TEXT_COMPACT_SIZE,
	GC_SIZE, GC_COLLECTING,
	/* clang-format on */
};

static const struct {
	const uint8_t *words;
	size_t n;
} rows[] = {
	{row_3_13, sizeof(row_3_13)},
	{row_3_14, sizeof(row_3_14)},
	{row_3_15, sizeof(row_3_15)},
};
#define FIRST_MINOR 13
_Static_assert(FIRST_MINOR + sizeof(rows) / sizeof(rows[0]) - 1 == PYTHON_NEWEST, "a row each");
_Static_assert((HEAD + sizeof(row_3_15)) * 8 <= PYTHON_DEBUG_BYTES, "fits");

/*
 * Biggest structure of each kind that is believed.
 *
 * A structure that claims to be larger than any of its kind ever was is no structure. Generous:
 * they grow with every version.
 */
static uint64_t most_bytes(enum word size)
{
	switch (size) {
	case RUNTIME_SIZE:
	case INTERP_SIZE:
		return 16 << 20;
	case TSTATE_SIZE:
	case CODE_SIZE:
	case GC_SIZE:
		return 64 << 10;
	default:
		return 4 << 10;
	}
}

struct reading {
	uint64_t word[WORDS];
	unsigned minor;
	bool free_threaded;
	bool bad; /* a number made no sense */
	uint32_t end; /* of the fields seen since the last end_of() */
};

/*
 * An offset in the structure whose size is the word `size`, of a thing of `width` bytes. One number
 * that makes no sense spoils the whole layout (`bad`), and it is not used: half a layout reads
 * plausible garbage. `end` grows along, so that a walk copies no more of a structure than it needs.
 */
static uint32_t checked_offset(struct reading *d, uint64_t offset, enum word size, unsigned width)
{
	uint64_t bytes = d->word[size];

	if (bytes > most_bytes(size) || offset > bytes || width > bytes - offset ||
	    offset % width != 0) {
		d->bad = true;
		return PYTHON_NONE;
	}
	if (d->end < offset + width)
		d->end = (uint32_t)offset + width;
	return (uint32_t)offset;
}

static uint32_t read_field(struct reading *d, enum word w, enum word size, unsigned width)
{
	return checked_offset(d, d->word[w], size, width);
}

/* How many bytes hold all fields seen since the last call. */
static uint32_t end_of(struct reading *d, uint32_t most)
{
	uint32_t end = (d->end + 7) & ~7u;

	d->end = 0;
	if (end > most)
		d->bad = true;
	return end;
}

/*
 * Two of them are said in two steps: the collector's flag as an offset of `gc` in the interpreter
 * and one in there; the GIL's words as offsets of the interpreter's own GIL, which is not always
 * the one it uses. Here they become offsets from what is read.
 */
static void read_interpreter(struct reading *d, struct python_layout *l)
{
	uint64_t own_gil = d->word[INTERP_OWN_GIL];

	l->runtime = (struct python_layout_runtime){
		.interpreters_head = read_field(d, RUNTIME_INTERPRETERS, RUNTIME_SIZE, 8),
		.tstate_current = PYTHON_NONE,
		.gil_locked = PYTHON_NONE,
		.gil_last_holder = PYTHON_NONE,
		.gc_collecting = PYTHON_NONE,
	};
	l->interp.next = read_field(d, INTERP_NEXT, INTERP_SIZE, 8);
	l->interp.id = read_field(d, INTERP_ID, INTERP_SIZE, 8);
	l->interp.threads_head = read_field(d, INTERP_THREADS, INTERP_SIZE, 8);
	l->interp.modules = read_field(d, INTERP_MODULES, INTERP_SIZE, 8);
	l->interp.gil = read_field(d, INTERP_GIL, INTERP_SIZE, 8);
	l->interp.code_generation =
		d->minor < 14 ? PYTHON_NONE : read_field(d, INTERP_CODE_GENERATION, INTERP_SIZE, 8);

	/* Reported as one place in the interpreter and another in there. */
	read_field(d, GC_COLLECTING, GC_SIZE, 4);
	read_field(d, INTERP_GC, INTERP_SIZE, 8);
	l->interp.gc_collecting =
		checked_offset(d, d->word[INTERP_GC] + d->word[GC_COLLECTING], INTERP_SIZE, 4);

	/* Reported of the interpreter's own GIL; `interp.gil` may point at another one. */
	read_field(d, INTERP_OWN_GIL, INTERP_SIZE, 8);
	l->gil.locked = read_field(d, INTERP_OWN_GIL_LOCKED, INTERP_SIZE, 4) - (uint32_t)own_gil;
	l->gil.last_holder =
		read_field(d, INTERP_OWN_GIL_HOLDER, INTERP_SIZE, 8) - (uint32_t)own_gil;
	if (l->gil.locked > 4096 || l->gil.last_holder > 4096)
		d->bad = true;
	d->end = 0;
}

static void read_tstate(struct reading *d, struct python_layout *l)
{
	l->tstate.prev = read_field(d, TSTATE_PREV, TSTATE_SIZE, 8);
	l->tstate.next = read_field(d, TSTATE_NEXT, TSTATE_SIZE, 8);
	l->tstate.interp = read_field(d, TSTATE_INTERP, TSTATE_SIZE, 8);
	l->tstate.thread_id = read_field(d, TSTATE_THREAD_ID, TSTATE_SIZE, 8);
	l->tstate.native_thread_id = read_field(d, TSTATE_NATIVE_ID, TSTATE_SIZE, 8);
	l->tstate.frame = read_field(d, TSTATE_FRAME, TSTATE_SIZE, 8);
	l->tstate.cframe = l->cframe_current = PYTHON_NONE;
	l->tstate.datastack_chunk = read_field(d, TSTATE_CHUNK, TSTATE_SIZE, 8);
	l->tstate.base_frame = l->tstate.holds_gil = PYTHON_NONE;
	if (d->minor >= 15) {
		l->tstate.base_frame = read_field(d, TSTATE_BASE_FRAME, TSTATE_SIZE, 8);
		l->tstate.holds_gil = read_field(d, TSTATE_HOLDS_GIL, TSTATE_SIZE, 4);
	}
	l->tstate.size = end_of(d, PYTHON_TSTATE_MAX);
}

/* `size` covers what a walk needs of a frame; the locals follow it in memory and are read by
 * those who show them, so they do not count. */
static void read_frame(struct reading *d, struct python_layout *l)
{
	bool copies = d->free_threaded && d->minor >= 14; /* of the instructions, one per thread */

	l->frame.back = read_field(d, FRAME_PREVIOUS, FRAME_SIZE, 8);
	l->frame.code = read_field(d, FRAME_EXECUTABLE, FRAME_SIZE, 8);
	l->frame.lasti = read_field(d, FRAME_INSTRUCTION, FRAME_SIZE, 8);
	l->frame.owner = read_field(d, FRAME_OWNER, FRAME_SIZE, 1);
	l->frame.executing = PYTHON_NONE;
	l->frame.is_entry = PYTHON_NONE;
	l->frame.tlbc_index = copies ? read_field(d, FRAME_TLBC, FRAME_SIZE, 4) : PYTHON_NONE;
	l->frame.stackpointer =
		d->minor < 14 ? PYTHON_NONE : read_field(d, FRAME_STACKPOINTER, FRAME_SIZE, 8);
	l->frame.size = end_of(d, PYTHON_FRAME_MAX);
	l->frame.locals = read_field(d, FRAME_LOCALS, FRAME_SIZE, 8);
	end_of(d, PYTHON_FRAME_MAX);
}

static void read_code(struct reading *d, struct python_layout *l)
{
	bool copies = d->free_threaded && d->minor >= 14;
	uint64_t argcount = d->word[CODE_ARGCOUNT];

	l->code.filename = read_field(d, CODE_FILENAME, CODE_SIZE, 8);
	l->code.name = read_field(d, CODE_NAME, CODE_SIZE, 8);
	l->code.qualname = read_field(d, CODE_QUALNAME, CODE_SIZE, 8);
	l->code.linetable = read_field(d, CODE_LINETABLE, CODE_SIZE, 8);
	l->code.firstlineno = read_field(d, CODE_FIRSTLINENO, CODE_SIZE, 4);
	l->code.argcount = read_field(d, CODE_ARGCOUNT, CODE_SIZE, 4);
	/* Not reported: flags, arguments, positional-only ones, keyword-only ones are in a row. */
	l->code.flags = checked_offset(d, argcount - 4, CODE_SIZE, 4);
	l->code.kwonlyargcount = checked_offset(d, argcount + 8, CODE_SIZE, 4);
	l->code.nlocals = l->code.varnames = PYTHON_NONE;
	l->code.localsplusnames = read_field(d, CODE_NAMES, CODE_SIZE, 8);
	l->code.localspluskinds = read_field(d, CODE_KINDS, CODE_SIZE, 8);
	l->code.tlbc = copies ? read_field(d, CODE_TLBC, CODE_SIZE, 8) : PYTHON_NONE;
	l->code.size = end_of(d, PYTHON_CODE_MAX);
	l->code.instructions = read_field(d, CODE_INSTRUCTIONS, CODE_SIZE, 2);
}

/* basicsize and dictoffset of a type, and the cached keys of a heap type, are said from 3.15 on.
 * Before, they lie as far behind tp_name as they did in every version since 3.7. */
static void read_object(struct reading *d, struct python_layout *l)
{
	uint64_t name = d->word[TYPE_NAME];

	l->object.object_size = checked_offset(d, d->word[OBJECT_SIZE] - 8, OBJECT_SIZE, 8) + 8;
	l->object.type = read_field(d, OBJECT_TYPE, OBJECT_SIZE, 8);
	l->object.var_size = read_field(d, TUPLE_LENGTH, TUPLE_SIZE, 8);
	l->object.tuple_items = read_field(d, TUPLE_ITEMS, TUPLE_SIZE, 8);
	l->object.list_items = read_field(d, LIST_ITEMS, LIST_SIZE, 8);
	l->object.float_value = read_field(d, FLOAT_VALUE, FLOAT_SIZE, 8);
	l->object.long_tag = read_field(d, LONG_TAG, LONG_SIZE, 8);
	l->object.long_digits = read_field(d, LONG_DIGITS, LONG_SIZE, 4);
	l->object.bytes_data = read_field(d, BYTES_DATA, BYTES_SIZE, 1);

	/* Reported from 3.15 on; as far behind the name as ever. */
	bool has_offsets = d->minor >= 15;
	l->object.type_name = read_field(d, TYPE_NAME, TYPE_SIZE, 8);
	l->object.type_flags = read_field(d, TYPE_FLAGS, TYPE_SIZE, 8);
	l->object.type_basicsize =
		checked_offset(d, has_offsets ? d->word[TYPE_BASICSIZE] : name + 8, TYPE_SIZE, 8);
	l->object.type_dictoffset = checked_offset(
		d, has_offsets ? d->word[TYPE_DICTOFFSET] : name + 264, TYPE_SIZE, 8);

	l->dict.keys = read_field(d, DICT_KEYS, DICT_SIZE, 8);
	l->dict.values = read_field(d, DICT_VALUES, DICT_SIZE, 8);
	l->dict.used = checked_offset(d, d->word[DICT_KEYS] - 16, DICT_SIZE, 8);
	l->dict.cached_keys = has_offsets ? read_field(d, HEAP_TYPE_KEYS, HEAP_TYPE_SIZE, 8)
					  : (uint32_t)d->word[TYPE_SIZE] + 464;
}

static void read_text(struct reading *d, struct python_layout *l)
{
	/* With 3.14 the state of interning became a byte, to be written without the others. */
	unsigned shift = d->free_threaded && d->minor >= 14 ? 8 : 2;
	uint64_t ascii = d->word[TEXT_ASCII_SIZE];

	l->text.length = read_field(d, TEXT_LENGTH, TEXT_SIZE, 8);
	l->text.state = read_field(d, TEXT_STATE, TEXT_SIZE, 4);
	l->text.ascii_data = checked_offset(d, ascii, TEXT_SIZE, 8);
	l->text.compact_data = checked_offset(
		d, d->minor < 15 ? ascii + 16 : d->word[TEXT_COMPACT_SIZE], TEXT_SIZE, 8);
	l->text.data = l->text.compact_data;
	l->text.kind_shift = (uint8_t)shift;
	l->text.compact_bit = (uint8_t)(shift + 3);
	l->text.ascii_bit = (uint8_t)(shift + 4);
}

/* Nothing is written to *out before everything was checked. */
int python_layout_read(const void *bytes, size_t n, struct python_layout *out)
{
	uint64_t head[HEAD];
	struct reading d = {0};

	if (n < sizeof(cookie) || memcmp(bytes, cookie, sizeof(cookie)) != 0)
		return -ENOENT;
	if (n < sizeof(head))
		return -EPROTO;
	memcpy(head, bytes, sizeof(head));
	if (head[1] >> 24 != 3 || head[2] > 1)
		return -EPROTO;
	d.minor = head[1] >> 16 & 0xff;
	d.free_threaded = head[2] == 1;
	if (d.minor > PYTHON_NEWEST)
		return -ENOTSUP;
	if (d.minor < FIRST_MINOR || n < (HEAD + rows[d.minor - FIRST_MINOR].n) * 8)
		return -EPROTO;

	for (size_t i = 0; i < rows[d.minor - FIRST_MINOR].n; i++)
		memcpy(&d.word[rows[d.minor - FIRST_MINOR].words[i]],
		       (const char *)bytes + (HEAD + i) * 8, 8);

	struct python_layout l = {
		.version = (uint32_t)head[1],
		.minor = (uint8_t)d.minor,
		.free_threaded = d.free_threaded,
		.lines = PYTHON_LOCATIONS,
		.tagged = d.minor >= 14 ? 3 : 0,
	};
	read_interpreter(&d, &l);
	read_tstate(&d, &l);
	read_frame(&d, &l);
	read_code(&d, &l);
	read_object(&d, &l);
	read_text(&d, &l);
	if (d.bad)
		return -EPROTO;
	*out = l;
	return 0;
}

/* The tables are those of x86-64. On aarch64 only _PyRuntime differs, where pthread_mutex_t is
 * bigger; those rows are exceptions, as are the first releases of 3.7. */
int python_layout_table(uint32_t version, enum python_arch arch, struct python_layout *out)
{
	unsigned minor = version >> 16 & 0xff;

	if (version >> 24 != 3 || minor < PYTHON_OLDEST || minor >= PYTHON_OLDEST + PYTHON_TABLES)
		return -ENOENT;

	*out = (struct python_layout){
		.version = version,
		.minor = (uint8_t)minor,
		.lines = minor < 10    ? PYTHON_LNOTAB
			 : minor == 10 ? PYTHON_LINETABLE
				       : PYTHON_LOCATIONS,
	};
	/* Little-endian: the first `width` bytes of a number are the number. */
	for (const struct python_layout_field *f = python_layout_fields; f->width; f++)
		memcpy((char *)out + f->at, &f->value[minor - PYTHON_OLDEST], f->width);
	for (const struct python_runtime_exception *e = python_runtime_exceptions; e->minor; e++)
		if (e->minor == minor && e->arch == arch && version < e->before) {
			out->runtime = e->runtime;
			break;
		}
	return 0;
}
