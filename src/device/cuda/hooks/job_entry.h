/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Functions of the C library that the job calls here: JOB_ENTRY(name, pick, next) is the function
 * `name`, which asks pick() with the same parameters (three at most), and gives back its result or jumps
 * to what the variable `next` points to, as if the job had called that. Only assembler can do so.
 * `name`_here is the same in this file, whoever stands before us.
 */
#ifndef SONDE_DEVICE_CUDA_HOOKS_JOB_ENTRY_H
#define SONDE_DEVICE_CUDA_HOOKS_JOB_ENTRY_H

#include <stdint.h>

/* What it gets in two registers. */
struct picked {
	void *result;
	uint64_t done; /* 0: jump to the next one */
};

#if defined(__aarch64__)
#	define LIBC_VERSION "GLIBC_2.17"
#	define JOB_ENTRY(name, pick, next)                                                        \
		__asm__(".text\n.globl " name "\n.type " name ",%function\n.p2align 4\n" name      \
			":\n" name                                                                 \
			"_here:\n.cfi_startproc\n hint #34\n stp x29, x30, [sp, #-48]!\n"          \
			".cfi_def_cfa_offset 48\n.cfi_offset 29, -48\n.cfi_offset 30, -40\n"       \
			" mov x29, sp\n stp x0, x1, [sp, #16]\n str x2, [sp, #32]\n"               \
			" bl " pick "\n cbnz x1, 1f\n ldp x0, x1, [sp, #16]\n ldr x2, [sp, #32]\n" \
			" ldp x29, x30, [sp], #48\n.cfi_remember_state\n.cfi_restore 29\n"         \
			".cfi_restore 30\n.cfi_def_cfa_offset 0\n"                                 \
			" adrp x16, " next "\n ldr x16, [x16, #:lo12:" next "]\n br x16\n"         \
			"1:\n.cfi_restore_state\n ldp x29, x30, [sp], #48\n.cfi_restore 29\n"      \
			".cfi_restore 30\n.cfi_def_cfa_offset 0\n ret\n.cfi_endproc\n.size " name  \
			", .-" name "\n")
#else
#	define LIBC_VERSION "GLIBC_2.2.5"
#	define JOB_ENTRY(name, pick, next)                                                        \
		__asm__(".text\n.globl " name "\n.type " name ",@function\n.p2align 4\n" name      \
			":\n" name                                                                 \
			"_here:\n.cfi_startproc\n endbr64\n push %rdi\n.cfi_adjust_cfa_offset 8\n" \
			" push %rsi\n.cfi_adjust_cfa_offset 8\n push %rdx\n"                       \
			".cfi_adjust_cfa_offset 8\n call " pick "\n test %rdx, %rdx\n"             \
			" jne 1f\n pop %rdx\n.cfi_adjust_cfa_offset -8\n pop %rsi\n"               \
			".cfi_adjust_cfa_offset -8\n pop %rdi\n.cfi_adjust_cfa_offset -8\n"        \
			" mov " next "(%rip), %rax\n jmp *%rax\n1:\n.cfi_adjust_cfa_offset 24\n"   \
			" add $24, %rsp\n.cfi_adjust_cfa_offset -24\n "                            \
			"ret\n.cfi_endproc\n.size " name ", .-" name "\n")
#endif
#define LATER_VERSION "GLIBC_2.34"

#endif
