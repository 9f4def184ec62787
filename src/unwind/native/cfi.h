/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * From .eh_frame to a rule: how to find the caller's frame from one code address, in 64 bits.
 *
 *	bit 0      4              28            44               64
 *	+----------+--------------+-------------+----------------+
 *	| how      | cfa offset/8 | fp slot     | other slots    |
 *	+----------+--------------+-------------+----------------+
 *
 * how        enum rule_how: what the frame address (CFA) is computed from
 * fp slot    the caller's frame pointer is at CFA + 8 * slot; 0: unchanged; RULE_LOST: gone
 * others     x86-64: five slots of 4 bits (rbx r12 … r15), at CFA - 8 * slot; 0 unchanged, 15 gone
 *            aarch64: 16 bits, the return address is at CFA + 8 * slot; 0: still in lr
 *
 * x86-64 keeps the return address at CFA - 8, always.
 *
 * The CFA (canonical frame address) is the stack pointer as it was before the call: constant for
 * the whole life of a frame, and what every saved register is found by.
 *
 *	      higher addresses
 *	CFA ->	+------------------+
 *		| return address   |  CFA - 8
 *		| saved rbp        |  CFA - 16     rule: fp slot = -2
 *		| saved rbx …      |  CFA - 8 * n  rule: other slots
 *		| locals           |
 *	sp ->	+------------------+               rule: RULE_SP, offset = CFA - sp
 *
 * A rule holds for one instruction: prologues and epilogues change it instruction by instruction.
 * 64 bits are enough for what compilers write; what does not fit (an expression, a register saved
 * in another) is RULE_NONE or a lost register, and the walk goes on by the frame pointer or ends.
 *
 * Pure arithmetic over a range of bytes: nothing outside the view is touched, whatever it holds.
 */
#ifndef SONDE_UNWIND_NATIVE_CFI_H
#define SONDE_UNWIND_NATIVE_CFI_H

#include <stdint.h>

enum rule_how {
	RULE_NONE = 0, /* no usable unwind information */
	RULE_STOP = 1, /* outermost frame */
	RULE_SIGNAL = 2, /* signal trampoline: registers are in the kernel's frame */
	RULE_SP = 3, /* CFA = sp + offset */
	RULE_FP = 4, /* CFA = fp + offset */
	RULE_DEREF = 5, /* CFA = *(fp + offset), fp slot relative to fp: realigned stacks */
	RULE_MORE = 6, /* CFA = rbx (then r12 … r15, r10) + offset */
	RULE_R10_FP = 12, /* CFA = r10 + offset, fp slot relative to fp: about to realign */
	RULE_HOW_END = 13,
};

#define RULE_LOST (-32768)

/* `size` readable bytes at `data` that the process sees at address `va`. */
struct cfi_view {
	const uint8_t *data;
	uint64_t size;
	uint64_t va;
	uint64_t hdr; /* address of .eh_frame_hdr */
};

/* The rule for the instruction at `pc`; RULE_NONE (0) if the view does not say. */
uint64_t cfi_rule(const struct cfi_view *v, uint64_t pc);

static inline unsigned rule_how(uint64_t rule)
{
	return rule & 15;
}

static inline int64_t rule_offset(uint64_t rule)
{
	return ((int64_t)(rule << 36) >> 40) * 8;
}

static inline int64_t rule_fp_slot(uint64_t rule)
{
	return (int64_t)(rule << 20) >> 48;
}

static inline int64_t rule_ra_slot(uint64_t rule)
{
	return (int64_t)(rule << 4) >> 48;
}

static inline unsigned rule_more_slot(uint64_t rule, unsigned i)
{
	return (rule >> (44 + 4 * i)) & 15;
}

#endif
