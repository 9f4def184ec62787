/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Compilers split the interpreter's loop: what a profile said to be rare lies somewhere else, as a
 * function without a name (_PyEval_EvalFrameDefault.cold, in a stripped program not even that), and
 * may be most of it. But the named part jumps there, and functions do not jump into each other
 * otherwise. Where functions begin is in the table that every program has for its exceptions.
 *
 *	_PyEval_EvalFrameDefault           some other place
 *	+------------------------+         +----------------------+
 *	| …  jne ------------------------> | error handling, rare |  hundreds of jumps
 *	| …  je  ------------------------> | opcodes              |
 *	| …  jmp ----> tail calls          +----------------------+
 *	+------------------------+          [cold_start, cold_end)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "unwind/remote/native/native_impl.h"

#define MAX_TABLE_BYTES (8u << 20)
#define MAX_LOOP_BYTES (1u << 20)
#define LEAST_JUMPS 3

struct functions {
	uint64_t *start; /* in order */
	uint32_t *jumps; /* how many lead there */
	size_t n;
};

/* The table of exceptions as linkers write it: pairs of offsets from its own beginning. */
struct table_header {
	uint8_t version, pointer, count, entry; /* how each is written */
	int32_t frames;
	uint32_t n;
};

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Only the encoding that every linker writes: 32-bit offsets from the table itself, sorted. */
static int take_functions(const struct native_bytes *table, struct functions *out)
{
	struct table_header h;

	if (table->n < sizeof(h))
		return -EPROTO;
	memcpy(&h, table->data, sizeof(h));
	if (h.version != 1 || (h.pointer & 0xb) != 0xb || h.count != 0x03 || h.entry != 0x3b)
		return -ENOTSUP;
	if (!h.n || h.n > (table->n - sizeof(h)) / 8)
		return -EPROTO;
	out->start = xcalloc(h.n, sizeof(out->start[0]));
	out->jumps = xcalloc(h.n, sizeof(out->jumps[0]));
	out->n = h.n;
	for (uint32_t i = 0; i < h.n; i++) {
		int32_t offset;

		memcpy(&offset, table->data + sizeof(h) + (size_t)i * 8, sizeof(offset));
		out->start[i] = table->addr + (uint64_t)(int64_t)offset;
	}
	qsort(out->start, h.n, sizeof(out->start[0]), by_number);
	return 0;
}

/* The function that the target lies in is the last that begins at or below it. */
static void count_jump(struct functions *f, uint64_t to)
{
	size_t lo = 0, hi = f->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (f->start[mid] <= to)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo && lo < f->n) /* of the last one the end is not known */
		f->jumps[lo - 1]++;
}

/* Where the instruction at code[i] may jump to, or 0. Some of what it finds are none: they lead
 * anywhere, and not all to one place. */
#if defined(__x86_64__)
#	define CODE_STEP 1
#	define JUMP_BYTES 6
static uint64_t jump_at(const uint8_t *code, uint64_t addr)
{
	bool always = code[0] == 0xe9, when = code[0] == 0x0f && (code[1] & 0xf0) == 0x80;
	int32_t by;

	if (!always && !when)
		return 0;
	memcpy(&by, code + (always ? 1 : 2), sizeof(by));
	return addr + (always ? 5 : 6) + (uint64_t)(int64_t)by;
}
#else
#	define CODE_STEP 4
#	define JUMP_BYTES 4
static int64_t signed_field(uint32_t insn, unsigned shift, unsigned bits)
{
	return (int64_t)((uint64_t)(insn >> shift) << (64 - bits)) >> (64 - bits);
}

static uint64_t jump_at(const uint8_t *code, uint64_t addr)
{
	uint32_t insn;

	memcpy(&insn, code, sizeof(insn));
	if ((insn & 0xfc000000) == 0x14000000) /* b */
		return addr + (uint64_t)signed_field(insn, 0, 26) * 4;
	if ((insn & 0xff000010) == 0x54000000 ||
	    (insn & 0x7e000000) == 0x34000000) /* b.cond, cbz */
		return addr + (uint64_t)signed_field(insn, 5, 19) * 4;
	if ((insn & 0x7e000000) == 0x36000000) /* tbz */
		return addr + (uint64_t)signed_field(insn, 5, 14) * 4;
	return 0;
}
#endif

/* Every byte may begin an instruction on x86-64; most do not. What is no jump leads anywhere,
 * evenly; the cold part collects hundreds. */
static void count_jumps(const struct native_bytes *code, struct functions *f)
{
	for (size_t i = 0; i + JUMP_BYTES <= code->n; i += CODE_STEP) {
		uint64_t to = jump_at(code->data + i, code->addr + i);

		if (to && to - code->addr >= code->n)
			count_jump(f, to);
	}
}

/* Jumps out of the loop that end inside one other function, LEAST_JUMPS of them or more:
 * compilers do not jump between functions, but for tail calls, which go to many. */
int native_cold_part(const struct native_bytes *table, const struct native_bytes *code,
		     uint64_t *out_start, uint64_t *out_end)
{
	struct functions f = {0};
	size_t best = 0;
	int r = take_functions(table, &f);

	if (r < 0)
		return r;
	count_jumps(code, &f);
	for (size_t i = 1; i < f.n; i++)
		if (f.jumps[i] > f.jumps[best])
			best = i;
	r = -ENOENT;
	if (best + 1 < f.n && f.jumps[best] >= LEAST_JUMPS) {
		*out_start = f.start[best];
		*out_end = f.start[best + 1];
		r = 0;
	}
	free(f.start);
	free(f.jumps);
	return r;
}

/* --- from the process --- */

static int read_bytes(struct native_process *p, uint64_t addr, uint64_t n, uint64_t max,
		      struct native_bytes *out)
{
	if (!n || n > max)
		return -EPROTO;
	uint8_t *data = xmalloc((size_t)n);
	int r = remote_read(&p->remote, addr, data, (size_t)n);
	if (r < 0)
		free(data);
	else
		*out = (struct native_bytes){data, (size_t)n, addr};
	return r;
}

static int read_table(struct native_process *p, const struct native_module *m,
		      struct native_bytes *out)
{
	GElf_Addr bias;
	Elf *elf = dwfl_module_getelf(m->dwfl, &bias);
	GElf_Phdr ph;
	size_t n;

	if (!elf || elf_getphdrnum(elf, &n) < 0)
		return -ENOENT;
	for (size_t i = 0; i < n && i < 128; i++)
		if (gelf_getphdr(elf, (int)i, &ph) && ph.p_type == PT_GNU_EH_FRAME)
			return read_bytes(p, ph.p_vaddr + bias, ph.p_memsz, MAX_TABLE_BYTES, out);
	return -ENOENT;
}

/* Tried once per module. Without a cold part cold_start and cold_end stay 0 and match nothing. */
void native_find_cold_loop(struct native_process *p, struct native_module *m, uint64_t start,
			   uint64_t end)
{
	struct native_bytes table = {0}, code = {0};

	m->cold_tried = true;
	if (start < end && read_table(p, m, &table) == 0 &&
	    read_bytes(p, start, end - start, MAX_LOOP_BYTES, &code) == 0)
		native_cold_part(&table, &code, &m->cold_start, &m->cold_end);
	free((void *)table.data);
	free((void *)code.data);
}
