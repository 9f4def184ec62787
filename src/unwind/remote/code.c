/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Reading a code object takes five to ten reads: the object itself, two or three texts, the line
 * table, the instructions. It happens once per function that is ever met. Checking it again takes a
 * share of one read (CODE_WORDS are in the copy of the object, and up to BATCH objects come at
 * once).
 *
 *	round 1   f at A: unknown                    read, remember
 *	round 2   f at A in a call that was kept     not even checked: a running frame keeps its
 *	                                             code object alive
 *	round 3   g at A in a new call               eight words differ: read anew
 *
 * A program that makes code for ever (exec, lambdas in loops) is forgotten all at once at
 * MAX_CODES.
 */
#include "unwind/remote/code.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "unwind/python/line.h"
#include "unwind/python/text.h"

#define MAX_CODES 50000 /* then all are forgotten: programs that make code without end */
#define MAX_TABLE (1u << 20) /* bytes of a line table */
#define MAX_TEXT 2048
#define MAX_TLBC 4096
#define GENERATOR_FLAGS                                                                            \
	(0x20u | 0x80u | 0x200u) /* CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR */

void code_cache_init(struct code_cache *c, struct remote *r, const struct python_place *place)
{
	*c = (struct code_cache){.remote = r, .place = place, .round = 1};
}

static void code_free(struct remote_code *code)
{
	free(code->runs);
	free(code->kinds);
	free(code->tlbc);
	free(code);
}

static void forget_all(struct code_cache *c)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&c->by_addr, &at, &key, &value);)
		code_free((void *)(uintptr_t)value);
	hmap_release(&c->by_addr);
	c->by_addr = (struct hmap){0};
}

void code_cache_release(struct code_cache *c)
{
	forget_all(c);
}

void code_cache_round(struct code_cache *c, bool holds)
{
	if (!holds)
		c->round++;
	if (c->by_addr.count > MAX_CODES)
		forget_all(c);
}

/*
 * The words that no two code objects share, from a copy of the object.
 *
 * The object's own address is not among them: it is the key. From 3.11 on the instructions lie
 * inside the object, and its size stands for them; before, they are an object of their own.
 */
static void words_of(const struct python_layout *l, const uint8_t *bytes, uint64_t *out)
{
	const uint32_t at[CODE_WORDS] = {
		l->object.type, l->code.filename,  l->code.name,       l->code.qualname,
		PYTHON_NONE,	l->code.linetable, l->object.var_size, l->code.instructions,
	};
	unsigned n = l->minor <= 10 ? CODE_WORDS : CODE_WORDS - 1;

	memset(out, 0, CODE_WORDS * sizeof(*out));
	for (unsigned i = 0; i < n; i++)
		if (at[i] != PYTHON_NONE)
			out[i] = python_word(bytes, at[i]);
	if (l->minor <= 10)
		out[6] = 0; /* it has no size of its own */
	int32_t first;
	memcpy(&first, bytes + l->code.firstlineno, sizeof(first));
	out[4] = (uint64_t)first;
}

/* Interned: equal names are equal pointers from here on, whichever object or process they came
 * from. */
static const char *text_at(struct code_cache *c, uint64_t addr, const char *otherwise)
{
	char text[MAX_TEXT];
	ssize_t n = python_text(&c->remote->reader, &c->place->layout, addr, text, sizeof(text));

	return n < 0 ? otherwise : intern(text, (size_t)n);
}

static void add_run(struct remote_code *code, size_t *cap, const struct python_lines_run *run)
{
	int32_t line = run->at.line > 0 ? run->at.line : 0;

	if (code->nruns && code->runs[code->nruns - 1].line == line)
		return;
	code->runs = xgrow(code->runs, cap, code->nruns + 1, sizeof(*code->runs));
	code->runs[code->nruns++] = (struct code_run){run->start, line};
}

/*
 * Decoded once into runs of equal lines, in order of address: a line is then a binary search
 * (code_line()). The table is copied first; what it says about instructions that do not exist is
 * ignored.
 */
static int load_lines(struct code_cache *c, struct remote_code *code, uint64_t table)
{
	const struct python_layout *l = &c->place->layout;
	const struct python_reader *r = &c->remote->reader;
	ssize_t n = python_bytes(r, l, table, NULL, 0);

	if (n < 0 || n > MAX_TABLE)
		return n < 0 ? (int)n : -EPROTO;
	uint8_t *bytes = xmalloc((size_t)n + 1);
	ssize_t got = python_bytes(r, l, table, bytes, (size_t)n);
	if (got == n) {
		struct python_lines_reader lines;
		struct python_lines_run run;
		size_t cap = 0;

		python_lines_begin(&lines, l->lines, bytes, (size_t)n, code->first_line,
				   code->bytes);
		while (python_lines_next(&lines, &run) > 0)
			add_run(code, &cap, &run);
	}
	free(bytes);
	return got == n ? 0 : -EPROTO;
}

static int load_size(struct code_cache *c, struct remote_code *code, const uint8_t *bytes)
{
	const struct python_layout *l = &c->place->layout;
	uint64_t n;

	if (l->minor >= 11) {
		n = python_word(bytes, l->object.var_size) * 2;
	} else {
		ssize_t got = python_bytes(&c->remote->reader, l,
					   python_word(bytes, l->code.instructions), NULL, 0);
		if (got < 0)
			return (int)got;
		n = (uint64_t)got;
	}
	if (n > 1u << 28)
		return -EPROTO;
	code->bytes = (uint32_t)n;
	return 0;
}

/*
 * Instructions at which no other function can be running: a caller that is at one of them is not
 * calling. RETURN_VALUE, RETURN_GENERATOR and RETURN_CONST; LOAD_FAST, LOAD_CONST and
 * LOAD_FAST_BORROW. Of 3.7 to 3.10, 3.11 and so on; 0: there is none. From 3.11 on instructions are
 * followed by room for their own use; it is looked at like them, but what is there does not look
 * like one of these.
 */
static const struct {
	uint8_t returns[3], loads[3];
} opcodes[] = {
	{{83, 0, 0}, {124, 100, 0}},  {{83, 75, 0}, {124, 100, 0}}, {{83, 75, 121}, {124, 100, 0}},
	{{36, 35, 103}, {85, 83, 0}}, {{35, 34, 0}, {84, 82, 86}},  {{33, 32, 0}, {83, 81, 85}},
};

static enum code_kind kind_of(unsigned row, uint8_t opcode)
{
	if (!opcode)
		return CODE_ANY;
	if (memchr(opcodes[row].returns, opcode, sizeof(opcodes[row].returns)))
		return CODE_RETURNS;
	return memchr(opcodes[row].loads, opcode, sizeof(opcodes[row].loads)) ? CODE_CALLS_NOTHING
									      : CODE_ANY;
}

/*
 * One byte per instruction, for the walk: what can a frame be doing there? Read once: what the
 * interpreter specialises later is not a call that was none before.
 */
static void load_kinds(struct code_cache *c, struct remote_code *code, const uint8_t *object)
{
	const struct python_layout *l = &c->place->layout;
	unsigned row = l->minor <= 10 ? 0 : l->minor - 10u;
	uint64_t at = l->minor <= 10
			      ? python_word(object, l->code.instructions) + l->object.bytes_data
			      : code->addr + l->code.instructions;

	if (row >= sizeof(opcodes) / sizeof(opcodes[0]) || code->bytes > MAX_TABLE)
		return;
	uint8_t *bytes = xmalloc(code->bytes + 1);
	if (remote_read(c->remote, at, bytes, code->bytes) == 0) {
		code->kinds = xcalloc(1, code->bytes / 2 + 1);
		for (uint32_t i = 0; i + 1 < code->bytes; i += 2)
			code->kinds[i / 2] = (uint8_t)kind_of(row, bytes[i]);
	}
	free(bytes);
}

enum code_kind code_kind_at(const struct remote_code *code, int64_t lasti)
{
	if (!code->kinds || lasti < 0 || lasti >= (int64_t)code->bytes)
		return CODE_ANY;
	return code->kinds[lasti / 2];
}

/* Fills in the rest of a code object from its copy. Whatever cannot be read makes it no code
 * object: a frame with it is left out, and it is tried again in the next round. */
static void load_code(struct code_cache *c, struct remote_code *code, const uint8_t *bytes)
{
	const struct python_layout *l = &c->place->layout;
	uint64_t named = python_word(bytes, l->code.qualname != PYTHON_NONE ? l->code.qualname
									    : l->code.name);

	free(code->runs);
	free(code->kinds);
	free(code->tlbc);
	*code = (struct remote_code){.addr = code->addr, .checked = c->round};
	words_of(l, bytes, code->words);
	if (c->place->code_type && code->words[0] != c->place->code_type)
		return;
	code->first_line = (int32_t)code->words[4];
	if (l->code.flags != PYTHON_NONE && l->code.flags + 4 <= l->code.size) {
		uint32_t flags;

		memcpy(&flags, bytes + l->code.flags, sizeof(flags));
		code->generator = flags & GENERATOR_FLAGS;
	}
	uint64_t file = python_word(bytes, l->code.filename);
	code->trampoline = python_is_trampoline(&c->remote->reader, l, file, named);
	code->file = text_at(c, file, NULL);
	code->name = text_at(c, named, NULL);
	code->is_code = code->file && code->name && load_size(c, code, bytes) == 0 &&
			load_lines(c, code, python_word(bytes, l->code.linetable)) == 0;
	if (code->is_code)
		load_kinds(c, code, bytes);
}

static void note_checked(struct code_cache *c, uint64_t addr, const uint8_t *bytes)
{
	struct remote_code *code = hmap_get_ptr(&c->by_addr, addr);
	uint64_t words[CODE_WORDS];

	words_of(&c->place->layout, bytes, words);
	if (code && code->is_code && !memcmp(words, code->words, sizeof(words))) {
		code->checked = c->round;
		return;
	}
	if (!code) {
		code = xcalloc(1, sizeof(*code));
		code->addr = addr;
		hmap_put_ptr(&c->by_addr, addr, code);
	}
	load_code(c, code, bytes);
}

/* Nothing can be read there: it is no code object, until the next round. */
static void note_unreadable(struct code_cache *c, uint64_t addr)
{
	struct remote_code *code = hmap_get_ptr(&c->by_addr, addr);

	if (!code)
		return;
	code->is_code = false;
	code->checked = c->round;
}

#define BATCH 128

/* One read for up to BATCH of them. A read ends at the first that is not there: that one is
 * noted, and the rest is read anew. */
static int check_batch(struct code_cache *c, const uint64_t *addrs, unsigned n)
{
	static uint8_t bytes[BATCH][PYTHON_CODE_MAX];
	struct remote_span spans[BATCH];
	uint32_t size = c->place->layout.code.size;

	for (unsigned i = 0; i < n; i++)
		spans[i] = (struct remote_span){addrs[i], bytes[i], size};
	for (unsigned done = 0; done < n;) {
		int got = remote_readv(c->remote, spans + done, n - done);

		if (got < 0)
			return got;
		for (unsigned i = 0; i < (unsigned)got; i++)
			note_checked(c, addrs[done + i], bytes[done + i]);
		done += (unsigned)got;
		if (done < n)
			note_unreadable(c, addrs[done++]);
	}
	return 0;
}

/* A stack has the same function several times, and threads run the same functions: each is asked
 * for once. */
int code_cache_check(struct code_cache *c, const uint64_t *addrs, unsigned n)
{
	uint64_t batch[BATCH];
	unsigned nbatch = 0;
	int ret = 0;

	for (unsigned i = 0; i < n && ret == 0; i++) {
		const struct remote_code *code = hmap_get_ptr(&c->by_addr, addrs[i]);
		bool there = !addrs[i] || (code && code->checked == c->round);

		for (unsigned j = 0; !there && j < nbatch; j++)
			there = batch[j] == addrs[i];
		if (there)
			continue;
		batch[nbatch++] = addrs[i];
		if (nbatch == BATCH) {
			ret = check_batch(c, batch, nbatch);
			nbatch = 0;
		}
	}
	return ret < 0 || !nbatch ? ret : check_batch(c, batch, nbatch);
}

const struct remote_code *code_cache_get(struct code_cache *c, uint64_t addr)
{
	const struct remote_code *code = hmap_get_ptr(&c->by_addr, addr);

	return code && code->is_code ? code : NULL;
}

/*
 * Free-threaded interpreters give threads copies of the code: where does this one begin?
 *
 * The array of copies belongs to the code object: a size and that many pointers, the first of which
 * is the shared code. It grows while threads are made, so a copy is looked up when a frame names
 * it.
 */
static uint64_t copy_begins(struct code_cache *c, const struct remote_code *shared, uint32_t index)
{
	struct remote_code *code = (struct remote_code *)shared;
	const struct python_layout *l = &c->place->layout;
	uint64_t array, size;

	if (index < code->ntlbc && code->tlbc[index])
		return code->tlbc[index];
	if (index >= MAX_TLBC || l->code.tlbc == PYTHON_NONE ||
	    remote_read(c->remote, code->addr + l->code.tlbc, &array, sizeof(array)) < 0 ||
	    !array || remote_read(c->remote, array, &size, sizeof(size)) < 0 || index >= size)
		return 0;
	if (index >= code->ntlbc) {
		code->tlbc = xrealloc(code->tlbc, (index + 1) * sizeof(*code->tlbc));
		memset(code->tlbc + code->ntlbc, 0,
		       (index + 1 - code->ntlbc) * sizeof(*code->tlbc));
		code->ntlbc = index + 1;
	}
	if (remote_read(c->remote, array + 8 + 8 * (uint64_t)index, &code->tlbc[index], 8) < 0)
		code->tlbc[index] = 0;
	return code->tlbc[index];
}

/* What the version counts in, as bytes of code: f_lasti to 3.9, f_lasti * 2 in 3.10, an address
 * from 3.11 on. -1 or -2 is a frame that has not begun. */
bool code_lasti(struct code_cache *c, const struct remote_code *code,
		const struct python_raw_frame *f, int64_t *out)
{
	const struct python_layout *l = &c->place->layout;

	if (l->minor <= 9) {
		*out = (int64_t)f->instr;
	} else if (l->minor == 10) {
		*out = (int64_t)f->instr < 0 ? -1 : (int64_t)f->instr * 2;
	} else {
		uint64_t base =
			f->tlbc ? copy_begins(c, code, f->tlbc) : code->addr + l->code.instructions;
		*out = (int64_t)(f->instr - base);
	}
	return *out >= -2 && *out < (int64_t)code->bytes;
}

int32_t code_line(const struct remote_code *code, int64_t lasti)
{
	unsigned lo = 0, hi = code->nruns;

	if (lasti < 0)
		return code->first_line;
	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if ((int64_t)code->runs[mid].start <= lasti)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? code->runs[lo - 1].line : code->first_line;
}
