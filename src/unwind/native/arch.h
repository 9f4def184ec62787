/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What differs between processors: register numbers of DWARF, where a signal left the registers,
 * the raw system call, and how to read our own registers. All else is common.
 *
 * Registers are named by index: FP, RA, then (x86-64) the callee-saved ones that a frame address
 * may be based on, then SP.
 *
 *	index	0	1	2 … 6		7	8
 *	x86-64	rbp	(rip)	rbx r12 … r15	r10	rsp
 *	aarch64	x29	x30			 	sp
 *
 * A signal frame, as the kernel pushes it: on x86-64 the stack pointer in the restorer points at a
 * ucontext, on aarch64 at a siginfo of 128 bytes and then the ucontext. ARCH_SIG_* are offsets from
 * there. ARCH_SIGRETURN are the bytes of the restorer, by which it is recognised where it has no
 * unwind information.
 */
#ifndef SONDE_UNWIND_NATIVE_ARCH_H
#define SONDE_UNWIND_NATIVE_ARCH_H

#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

enum { REG_IDX_FP = 0, REG_IDX_RA = 1, REG_IDX_MORE = 2 };

#if defined(__x86_64__)

enum { REG_IDX_END = 8, REG_IDX_SP = 8, REG_IDX_NONE = 9 };

#	define ARCH_RA_COLUMN 16
#	define ARCH_HAS_MORE 1
#	define ARCH_NMORE 6
#	define ARCH_NSAVED                                                                        \
		5 /* of them survive a call; r10 is only a frame address in prologues              \
		   */

struct native_regs {
	uint64_t pc, sp, fp;
	uint64_t more[ARCH_NMORE]; /* rbx r12 r13 r14 r15 r10 */
};

static inline unsigned arch_reg_index(uint64_t dwarf)
{
	static const uint8_t map[17] = {9, 9, 9, 2, 9, 9, 0, 8, 9, 9, 7, 9, 3, 4, 5, 6, 1};

	return dwarf < sizeof(map) ? map[dwarf] : REG_IDX_NONE;
}

/* Address of `reg` in the frame that the kernel pushed, from the stack pointer in the restorer. */
#	define ARCH_UC(reg) (offsetof(ucontext_t, uc_mcontext.gregs) + (reg)*8)
#	define ARCH_SIG_PC ARCH_UC(REG_RIP)
#	define ARCH_SIG_SP ARCH_UC(REG_RSP)
#	define ARCH_SIG_FP ARCH_UC(REG_RBP)
#	define ARCH_SIG_MORE                                                                      \
		{                                                                                  \
			ARCH_UC(REG_RBX), ARCH_UC(REG_R12), ARCH_UC(REG_R13), ARCH_UC(REG_R14),    \
				ARCH_UC(REG_R15), ARCH_UC(REG_R10)                                 \
		}
#	define ARCH_SIG_END (ARCH_UC(REG_RIP) + 8)
/* mov $15, %rax; syscall */
#	define ARCH_SIGRETURN "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"
#	define ARCH_SIGRETURN_LEN 9

#	define ARCH_SNAPSHOT(r)                                                                   \
		__asm__ volatile("leaq 0f(%%rip), %%rax\n0:\n\t"                                   \
				 "movq %%rax, 0(%0)\n\t"                                           \
				 "movq %%rsp, 8(%0)\n\t"                                           \
				 "movq %%rbp, 16(%0)\n\t"                                          \
				 "movq %%rbx, 24(%0)\n\t"                                          \
				 "movq %%r12, 32(%0)\n\t"                                          \
				 "movq %%r13, 40(%0)\n\t"                                          \
				 "movq %%r14, 48(%0)\n\t"                                          \
				 "movq %%r15, 56(%0)\n\t"                                          \
				 "movq %%r10, 64(%0)\n\t"                                          \
				 :                                                                 \
				 : "r"(r)                                                          \
				 : "rax", "memory")

static inline uint64_t arch_code_pointer(uint64_t pc)
{
	return pc;
}

static inline uint64_t arch_thread_pointer(void)
{
	uint64_t tp;

	__asm__("movq %%fs:0, %0" : "=r"(tp));
	return tp;
}

static inline long arch_syscall4(long nr, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return ret;
}

#elif defined(__aarch64__)

enum { REG_IDX_END = 2, REG_IDX_SP = 8, REG_IDX_NONE = 9 };

#	define ARCH_RA_COLUMN 30
#	define ARCH_HAS_MORE 0
#	define ARCH_NMORE 1
#	define ARCH_NSAVED 0

struct native_regs {
	uint64_t pc, sp, fp;
	uint64_t more[ARCH_NMORE]; /* lr */
};

static inline unsigned arch_reg_index(uint64_t dwarf)
{
	return dwarf == 29   ? REG_IDX_FP
	       : dwarf == 30 ? REG_IDX_RA
	       : dwarf == 31 ? REG_IDX_SP
			     : REG_IDX_NONE;
}

/* The kernel's frame is a siginfo (128 bytes) and then the ucontext. */
#	define ARCH_UC(field) (128 + offsetof(ucontext_t, uc_mcontext.field))
#	define ARCH_SIG_PC ARCH_UC(pc)
#	define ARCH_SIG_SP ARCH_UC(sp)
#	define ARCH_SIG_FP ARCH_UC(regs[29])
#	define ARCH_SIG_MORE                                                                      \
		{                                                                                  \
			ARCH_UC(regs[30])                                                          \
		}
#	define ARCH_SIG_END (ARCH_UC(pc) + 8)
/* mov x8, #139; svc #0 */
#	define ARCH_SIGRETURN "\x68\x11\x80\xd2\x01\x00\x00\xd4"
#	define ARCH_SIGRETURN_LEN 8

#	define ARCH_SNAPSHOT(r)                                                                   \
		__asm__ volatile("adr x9, 0f\n0:\n\t"                                              \
				 "mov x10, sp\n\t"                                                 \
				 "stp x9, x10, [%0]\n\t"                                           \
				 "stp x29, x30, [%0, #16]\n\t"                                     \
				 :                                                                 \
				 : "r"(r)                                                          \
				 : "x9", "x10", "memory")

/* Takes off a pointer authentication code: xpaclri, a no-op where there is none. */
static inline uint64_t arch_code_pointer(uint64_t pc)
{
	register uint64_t x30 __asm__("x30") = pc;

	__asm__("hint #7" : "+r"(x30));
	return x30;
}

static inline uint64_t arch_thread_pointer(void)
{
	uint64_t tp;

	__asm__("mrs %0, tpidr_el0" : "=r"(tp));
	return tp;
}

static inline long arch_syscall4(long nr, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}

#else
#	error "native stacks: x86-64 and aarch64 only"
#endif

#endif
