/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Interpreter of the call frame information in .eh_frame, by way of the search table of
 * .eh_frame_hdr.
 *
 *	.eh_frame_hdr	version | encodings | pointer | count | (function, FDE) (function, FDE) …
 *			sorted by function: binary search, find_fde()
 *	FDE		length | distance back to its CIE | first address | bytes | instructions
 *	CIE		length | 0 | version | augmentation | alignments | instructions
 *
 * The instructions are a program for a table with a row per code address and a column per register.
 * Those of the CIE make the first row of every function; those of the FDE go on from there, with
 * `advance_loc` between rows. We run them until the address is behind pc: then the row is the one
 * of pc. From the row comes a rule (pack_rule()).
 *
 *	op	bits 7..6 = 1	advance_loc	the address, by the low six bits
 *		2		offset		register (low six bits) saved at CFA + n
 *		3		restore		register as the CIE had it
 *		0		an opcode of its own, see step(), step_cfa(), step_reg()
 *
 * An example, `push %rbp; mov %rsp,%rbp; … ; pop %rbp; ret`:
 *
 *	CIE	def_cfa rsp + 8; offset ra at CFA - 8
 *	FDE	advance 1	(behind the push)
 *		def_cfa_offset 16; offset rbp at CFA - 16
 *		advance 3	(behind the mov)
 *		def_cfa_register rbp
 *		advance n	(behind the pop)
 *		def_cfa rsp + 8
 *
 *	at the push	CFA = rsp + 8
 *	in between	CFA = rsp + 16, rbp at CFA - 16
 *	in the body	CFA = rbp + 16, rbp at CFA - 16
 *	at the ret	CFA = rsp + 8
 *
 * Everything is read through a cursor that knows its end (cfi_cursor.h); a bad cursor gives
 * RULE_NONE. Loops are bounded by the bytes that are left.
 */
#include "unwind/native/cfi.h"

#include <stdbool.h>
#include <string.h>

#include "unwind/native/arch.h"
#include "unwind/native/cfi_cursor.h"

#define FDE_MAX_BYTES 65536u
#define STATES_MAX 6

/* Where a register of the caller is: still in the register, nowhere, at CFA + off, at fp + off, or
 * somewhere that a rule cannot say. */
enum loc_how { LOC_SAME = 0, LOC_UNDEFINED, LOC_CFA, LOC_FP, LOC_OTHER };

struct loc {
	uint8_t how;
	int32_t off;
};

/* How the row says the CFA: not in a way that is understood, register + offset, *(fp + offset), or
 * the PLT's expression. */
enum cfa_how { CFA_NONE = 0, CFA_REG, CFA_DEREF, CFA_PLT };

struct row {
	uint8_t cfa_how;
	uint8_t cfa_reg;
	uint8_t plt_from; /* CFA_PLT: 8 more from this byte of the stub on */
	int64_t cfa_off;
	struct loc reg[REG_IDX_END];
};

struct cie {
	uint64_t code_align;
	int64_t data_align;
	uint64_t insn, insn_end;
	uint8_t fde_enc;
	bool augmented, signal;
};

/* The machine that runs the instructions: the row so far, the row that `restore` goes back to, and
 * the stack of remember_state (epilogues in the middle of a function). */
struct machine {
	struct cursor c;
	const struct cie *cie;
	struct row row, initial;
	struct row saved[STATES_MAX];
	unsigned nsaved;
	uint64_t loc;
};

/* --- which description covers pc --- */

/*
 * Address of the FDE that the search table gives for pc; 0 if none.
 *
 * The table is 8 bytes a function, sorted: two 32-bit offsets from .eh_frame_hdr. A function ends
 * where its FDE says, not where the next begins: that is checked when the FDE is open. Only the one
 * encoding that linkers write is understood.
 */
static uint64_t find_fde(const struct cfi_view *v, uint64_t pc)
{
	struct cursor c;

	if (!cursor_at(&c, v, v->hdr) || take_bytes(&c, 1) != 1)
		return 0;
	uint8_t ptr_enc = (uint8_t)take_bytes(&c, 1), count_enc = (uint8_t)take_bytes(&c, 1);
	uint8_t table_enc = (uint8_t)take_bytes(&c, 1);
	if (table_enc != (ENC_DATAREL | 0x0b) || count_enc == ENC_OMIT)
		return 0;
	if (ptr_enc != ENC_OMIT)
		(void)take_format(&c, ptr_enc);
	uint64_t n = take_format(&c, count_enc), table = c.at;
	if (c.bad || n == 0 || n > (c.end - table) / 8)
		return 0;

	uint64_t lo = 0, hi = n; /* entry lo is the last one not above pc, once lo + 1 == hi */
	while (hi - lo > 1) {
		uint64_t mid = lo + (hi - lo) / 2;
		c.at = table + mid * 8;
		if (v->hdr + (uint64_t)(int32_t)take_bytes(&c, 4) <= pc)
			lo = mid;
		else
			hi = mid;
	}
	c.at = table + lo * 8;
	if (v->hdr + (uint64_t)(int32_t)take_bytes(&c, 4) > pc)
		return 0;
	return v->hdr + (uint64_t)(int32_t)take_bytes(&c, 4);
}

/* Opens the entry at va: the cursor then covers what follows its length. */
static bool open_entry(struct cursor *c, const struct cfi_view *v, uint64_t va)
{
	if (!cursor_at(c, v, va))
		return false;
	uint64_t len = take_bytes(c, 4);
	if (c->bad || len < 4 || len > FDE_MAX_BYTES || len > c->end - c->at)
		return false;
	c->end = c->at + len;
	return true;
}

/* Letters behind the `z`. */
static bool parse_augmentation(struct cursor *c, const char *aug, struct cie *out)
{
	for (; *aug; aug++) {
		uint8_t enc;

		switch (*aug) {
		case 'R':
			out->fde_enc = (uint8_t)take_bytes(c, 1);
			break;
		case 'L':
			skip_bytes(c, 1);
			break;
		case 'P':
			enc = (uint8_t)take_bytes(c, 1);
			if (enc == 0x50) /* DW_EH_PE_aligned */
				return false;
			(void)take_format(c, enc);
			break;
		case 'S':
			out->signal = true;
			break;
		case 'B': /* aarch64: signed with the B key, tagged frames */
		case 'G':
			break;
		default:
			return false;
		}
	}
	return true;
}

/*
 * "z" and its letters: R, how addresses in the FDE are written; L and P, language-specific data and
 * personality, which are skipped; S, a signal trampoline: the frame of the kernel is above it, and
 * the caller's pc is exact, not one behind a call.
 */
static bool parse_cie(const struct cfi_view *v, uint64_t va, struct cie *out)
{
	struct cursor c;
	char aug[8] = "";
	unsigned n = 0;

	if (!open_entry(&c, v, va) || take_bytes(&c, 4) != 0)
		return false;
	uint64_t version = take_bytes(&c, 1);
	if (version != 1 && version != 3)
		return false;
	do {
		if (n == sizeof(aug))
			return false;
		aug[n] = (char)take_bytes(&c, 1);
	} while (aug[n++]);
	*out = (struct cie){.code_align = uleb(&c)};
	out->data_align = sleb(&c);
	uint64_t ra = version == 1 ? take_bytes(&c, 1) : uleb(&c);
	if (ra != ARCH_RA_COLUMN || (aug[0] && aug[0] != 'z'))
		return false;
	if (aug[0]) {
		uint64_t len = uleb(&c), body = c.at;
		out->augmented = true;
		if (len > c.end - c.at || !parse_augmentation(&c, aug + 1, out))
			return false;
		c.at = body + len;
	}
	out->insn = c.at;
	out->insn_end = c.end;
	return !c.bad;
}

/*
 * --- the instructions ---
 *
 * Registers that no rule needs are forgotten at once (arch_reg_index()): most of DWARF's hundred
 * columns.
 */
static void set_loc(struct machine *m, uint64_t dwarf, uint8_t how, int64_t off)
{
	unsigned i = arch_reg_index(dwarf);

	if (i >= REG_IDX_END)
		return;
	if (off != (int32_t)off)
		how = LOC_OTHER;
	m->row.reg[i] = (struct loc){.how = how, .off = (int32_t)off};
}

static void restore_loc(struct machine *m, uint64_t dwarf)
{
	unsigned i = arch_reg_index(dwarf);

	if (i < REG_IDX_END)
		m->row.reg[i] = m->initial.reg[i];
}

static void set_cfa(struct machine *m, uint64_t dwarf, int64_t off)
{
	unsigned i = arch_reg_index(dwarf);

	m->row.cfa_how = i == REG_IDX_NONE || i == REG_IDX_RA ? CFA_NONE : CFA_REG;
	m->row.cfa_reg = (uint8_t)i;
	m->row.cfa_off = off;
}

static int64_t factored(const struct machine *m, uint64_t n)
{
	return (int64_t)(n * (uint64_t)m->cie->data_align);
}

enum { OP_DEREF = 0x06, OP_BREG0 = 0x70, OP_BREG31 = 0x8f };

/* A register plus an offset at the start of an expression. */
static bool take_breg(struct cursor *c, unsigned *out_reg, int64_t *out_off)
{
	uint64_t op = take_bytes(c, 1);

	if (op < OP_BREG0 || op > OP_BREG31)
		return false;
	*out_reg = arch_reg_index(op - OP_BREG0);
	*out_off = sleb(c);
	return !c->bad;
}

/*
 * The three expressions that compilers and linkers write for a CFA: reg + n; *(fp + n), a realigned
 * stack; and the PLT's sp + 8 + ((pc & 15) >= k) * 8.
 *
 * The PLT's needs pc: its stub pushes a number half-way, so the CFA depends on how far into the 16
 * bytes of the stub pc is. It is decided when the row is packed.
 */
static void cfa_expression(struct machine *m, struct cursor c)
{
	struct row *r = &m->row;
	unsigned reg;
	int64_t off;

	r->cfa_how = CFA_NONE;
	if (!take_breg(&c, &reg, &off) || reg == REG_IDX_NONE || reg == REG_IDX_RA)
		return;
	r->cfa_reg = (uint8_t)reg;
	r->cfa_off = off;
	uint64_t left = c.end - c.at;
	if (left == 0) {
		r->cfa_how = CFA_REG;
	} else if (left == 1 && reg == REG_IDX_FP && take_bytes(&c, 1) == OP_DEREF) {
		r->cfa_how = CFA_DEREF;
	} else if (left == 9 && reg == REG_IDX_SP) {
		/* breg16 0, lit15, and, lit<k>, ge, lit3, shl, plus */
		const uint8_t *p = c.v->data + c.at;
		static const uint8_t head[4] = {0x80, 0x00, 0x3f, 0x1a};
		static const uint8_t tail[4] = {0x2a, 0x33, 0x24, 0x22};
		if (memcmp(p, head, 4) || memcmp(p + 5, tail, 4) || p[4] < 0x30 || p[4] > 0x3f)
			return;
		r->plt_from = p[4] - 0x30;
		r->cfa_how = CFA_PLT;
	}
}

/*
 * Where a register was saved: only fp + n is understood.
 *
 * In a function that realigned its stack the saved registers are found by rbp, since the CFA itself
 * is behind a pointer.
 */
static void reg_expression(struct machine *m, uint64_t dwarf, struct cursor c)
{
	unsigned reg;
	int64_t off;

	if (take_breg(&c, &reg, &off) && reg == REG_IDX_FP && c.at == c.end)
		set_loc(m, dwarf, LOC_FP, off);
	else
		set_loc(m, dwarf, LOC_OTHER, 0);
}

static struct cursor take_block(struct cursor *c)
{
	uint64_t len = uleb(c);
	struct cursor block = *c;

	skip_bytes(c, len);
	block.end = c->at;
	return block;
}

/* remember_state and restore_state come in pairs around an epilogue in the middle of a function.
 * A depth of STATES_MAX is more than compilers nest; one more is damage. */
static void keep_state(struct machine *m, bool save)
{
	if (m->nsaved == (save ? STATES_MAX : 0))
		m->c.bad = true;
	else if (save)
		m->saved[m->nsaved++] = m->row;
	else
		m->row = m->saved[--m->nsaved];
}

/*
 * The instructions that describe one register.
 *
 * Sizes of operands must be right even for what is not used: a wrong one would derail all that
 * follows.
 */
static void step_reg(struct machine *m, uint8_t op)
{
	struct cursor *c = &m->c;
	uint64_t reg = uleb(c);

	switch (op) {
	case 0x05: /* offset_extended */
		set_loc(m, reg, LOC_CFA, factored(m, uleb(c)));
		break;
	case 0x06: /* restore_extended */
		restore_loc(m, reg);
		break;
	case 0x07: /* undefined */
		set_loc(m, reg, LOC_UNDEFINED, 0);
		break;
	case 0x08: /* same_value */
		set_loc(m, reg, LOC_SAME, 0);
		break;
	case 0x10: /* expression */
		reg_expression(m, reg, take_block(c));
		break;
	case 0x11: /* offset_extended_sf */
		set_loc(m, reg, LOC_CFA, factored(m, (uint64_t)sleb(c)));
		break;
	case 0x16: /* val_expression */
		(void)take_block(c);
		set_loc(m, reg, LOC_OTHER, 0);
		break;
	case 0x2f: /* GNU_negative_offset_extended */
		set_loc(m, reg, LOC_CFA, factored(m, 0 - uleb(c)));
		break;
	default: /* 0x09 register, 0x14 val_offset, 0x15 val_offset_sf */
		(void)uleb(c);
		set_loc(m, reg, LOC_OTHER, 0);
	}
}

/* The instructions that describe the CFA. */
static void step_cfa(struct machine *m, uint8_t op)
{
	struct cursor *c = &m->c;
	uint64_t reg;

	switch (op) {
	case 0x0c: /* def_cfa, def_cfa_sf */
	case 0x12:
		reg = uleb(c);
		set_cfa(m, reg, op == 0x0c ? (int64_t)uleb(c) : factored(m, (uint64_t)sleb(c)));
		break;
	case 0x0d: /* def_cfa_register */
		set_cfa(m, uleb(c), m->row.cfa_off);
		break;
	case 0x0e: /* def_cfa_offset */
		m->row.cfa_off = (int64_t)uleb(c);
		break;
	case 0x13: /* def_cfa_offset_sf */
		m->row.cfa_off = factored(m, (uint64_t)sleb(c));
		break;
	default: /* 0x0f def_cfa_expression */
		cfa_expression(m, take_block(c));
	}
}

static void run_instruction(struct machine *m)
{
	struct cursor *c = &m->c;
	uint8_t op = (uint8_t)take_bytes(c, 1);

	switch (op >> 6) {
	case 1:
		m->loc += (op & 0x3f) * m->cie->code_align;
		return;
	case 2:
		set_loc(m, op & 0x3f, LOC_CFA, factored(m, uleb(c)));
		return;
	case 3:
		restore_loc(m, op & 0x3f);
		return;
	}
	switch (op) {
	case 0x00: /* nop */
	case 0x2d: /* aarch64: the return address is (no longer) signed */
		break;
	case 0x01: /* set_loc */
		m->loc = take_pointer(c, m->cie->fde_enc);
		break;
	case 0x02 ... 0x04: /* advance_loc1, 2, 4 */
		m->loc += take_bytes(c, 1u << (op - 2)) * m->cie->code_align;
		break;
	case 0x0a: /* remember_state, restore_state */
	case 0x0b:
		keep_state(m, op == 0x0a);
		break;
	case 0x2e: /* GNU_args_size */
		(void)uleb(c);
		break;
	case 0x0c ... 0x0f:
	case 0x12 ... 0x13:
		step_cfa(m, op);
		break;
	case 0x05 ... 0x09:
	case 0x10 ... 0x11:
	case 0x14 ... 0x16:
	case 0x2f:
		step_reg(m, op);
		break;
	default:
		c->bad = true;
	}
}

/* --- from a row to a rule --- */

static bool fits_bits(int64_t v, unsigned bits)
{
	int64_t half = (int64_t)1 << (bits - 1);

	return v % 8 == 0 && v / 8 > -half && v / 8 < half;
}

/* A 16-bit slot relative to `base`. Of a CFA slot 0 means "unchanged", since nothing can be saved
 * at CFA + 0, which is the caller's; relative to fp 0 is a place like any other. */
static uint64_t slot16(const struct loc *l, uint8_t base)
{
	int64_t slot = RULE_LOST;

	if (l->how == LOC_SAME && base == LOC_CFA)
		slot = 0;
	else if (l->how == base && fits_bits(l->off, 16) && (l->off || base == LOC_FP))
		slot = l->off / 8;
	return (uint16_t)slot;
}

/* Four bits a register on x86-64: compilers save the callee-saved ones right below the return
 * address, so a slot of 1 to 14 words is enough; 15 says that it is lost. */
static uint64_t pack_others(const struct row *r)
{
	uint64_t bits = 0;

	if (!ARCH_HAS_MORE)
		return slot16(&r->reg[REG_IDX_RA], LOC_CFA) << 44;
	for (unsigned i = 0; i < ARCH_NSAVED; i++) {
		const struct loc *l = &r->reg[REG_IDX_MORE + i];
		uint64_t slot = 15;
		if (l->how == LOC_SAME)
			slot = 0;
		else if (l->how == LOC_CFA && l->off % 8 == 0 && l->off < 0 && l->off > -15 * 8)
			slot = (uint64_t)(-l->off / 8);
		bits |= slot << (44 + 4 * i);
	}
	return bits;
}

/*
 * The row as a rule, if it has one of the shapes that compilers and linkers write:
 *
 *	return address undefined		RULE_STOP: _start, the bottom of a thread
 *	CFA = sp + n, fp + n			nearly everything
 *	CFA = *(fp + n)				a function that aligned its stack (AVX spills)
 *	CFA = r10 + n, or rbx …			the same, in its prologue; or alloca
 *	the PLT's expression			sp + 8, or + 16 behind its push
 */
static uint64_t pack_rule(const struct row *r, uint64_t pc)
{
	const struct loc *ra = &r->reg[REG_IDX_RA];
	int64_t off = r->cfa_off;
	uint64_t how;

	if (ra->how == LOC_UNDEFINED)
		return RULE_STOP;
	if (ARCH_HAS_MORE ? ra->how != LOC_CFA || ra->off != -8
			  : ra->how != LOC_CFA && ra->how != LOC_SAME)
		return RULE_NONE;
	if (r->cfa_how == CFA_NONE)
		return RULE_NONE;
	if (r->cfa_how == CFA_DEREF)
		how = RULE_DEREF;
	else if (r->cfa_reg == REG_IDX_SP)
		how = RULE_SP;
	else if (r->cfa_reg == REG_IDX_FP)
		how = RULE_FP;
	else
		how = RULE_MORE + (r->cfa_reg - REG_IDX_MORE);
	if (r->cfa_how == CFA_PLT && (pc & 15) >= r->plt_from)
		off += 8;
	if (!fits_bits(off, 24))
		return RULE_NONE;
	const struct loc *fp_loc = &r->reg[REG_IDX_FP];
	if (how == RULE_R10_FP - 1 && fp_loc->how == LOC_FP)
		how = RULE_R10_FP;
	uint64_t fp = slot16(fp_loc, how == RULE_DEREF || how == RULE_R10_FP ? LOC_FP : LOC_CFA);
	return how | ((uint64_t)(off / 8) & 0xffffff) << 4 | fp << 28 | pack_others(r);
}

/* An instruction that advances changes the address and nothing else. So when the address is
 * behind pc, the row is still the one that was valid at pc. */
static void run_program(struct machine *m, uint64_t at, uint64_t end, uint64_t pc)
{
	m->c.at = at;
	m->c.end = end;
	while (m->c.at < m->c.end && !m->c.bad) {
		run_instruction(
			m); /* an advance changes nothing else, so the row is still the one before */
		if (m->loc > pc)
			return;
	}
}

/* The first run makes the CIE's row, which `restore` goes back to; the second goes on from it
 * with the function's own instructions. */
uint64_t cfi_rule(const struct cfi_view *v, uint64_t pc)
{
	struct cie cie;
	struct cursor c;
	uint64_t fde = find_fde(v, pc);

	if (!fde || !open_entry(&c, v, fde))
		return RULE_NONE;
	uint64_t id_at = c.at, back = take_bytes(&c, 4);
	if (!back || back > id_at || !parse_cie(v, v->va + id_at - back, &cie))
		return RULE_NONE;
	uint64_t begin = take_pointer(&c, cie.fde_enc), range = take_format(&c, cie.fde_enc);
	if (c.bad || pc < begin || pc - begin >= range)
		return RULE_NONE;
	if (cie.augmented)
		skip_bytes(&c, uleb(&c));
	if (c.bad)
		return RULE_NONE;
	if (cie.signal)
		return RULE_SIGNAL;

	struct machine m = {.c = {.v = v}, .cie = &cie, .loc = begin};
	run_program(&m, cie.insn, cie.insn_end, ~0ull);
	m.initial = m.row;
	m.loc = begin;
	run_program(&m, c.at, c.end, pc);
	return m.c.bad ? RULE_NONE : pack_rule(&m.row, pc);
}
