/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A file of the source tree inside the program: EMBED(page, "src/web/x.html"); makes
 * embedded_page[] and embedded_page_end, with a NUL behind. The object depends on the file: see mk/own.mk.
 */
#ifndef SONDE_BASE_TEXT_EMBED_H
#define SONDE_BASE_TEXT_EMBED_H

#define EMBED(name, file)                                                                          \
	__asm__(".section .rodata\n"                                                               \
		".global embedded_" #name "\n"                                                     \
		".global embedded_" #name "_end\n"                                                 \
		"embedded_" #name ":\n"                                                            \
		".incbin \"" file "\"\n"                                                           \
		"embedded_" #name "_end:\n"                                                        \
		".byte 0\n"                                                                        \
		".previous\n");                                                                    \
	extern const char embedded_##name[], embedded_##name##_end[]

#endif
