/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * From return addresses to text. One symbolizer per traced process; the ELF files behind them are
 * opened once and shared by all. Every distinct address is resolved once.
 *
 * A line per frame, innermost first, in the shape of glibc's backtrace_symbols():
 *
 *	/opt/job/train(train_step+0x4f) [0x55d0c5abf80] train.c:120
 *	/opt/job/train(scale [inlined]) [0x55d0c5abf80] math.h:12
 *	/opt/job/train(+0x1f80) [0x55d0c5abf80]           no symbol
 *	[0x7f2ac485a050]                                   no object
 *
 * Files are input: they may be gone, replaced, cut short or hostile. Debug information comes from
 * the file itself or from the local build-id directory, never from the network. Nothing is printed.
 * Not thread-safe, symbolizers of different processes included.
 */
#ifndef SONDE_UNWIND_SYMBOLS_SYMBOLIZE_H
#define SONDE_UNWIND_SYMBOLS_SYMBOLIZE_H

#include <stddef.h>
#include <stdint.h>

struct buf;
struct symbolizer;

struct symbolizer *symbolizer_new(void);
void symbolizer_free(struct symbolizer *s);

/*
 * The process mapped an object at [start, end); bias is what was added to its addresses. Where
 * ranges overlap, the newest counts. The path need not be one: "[vdso]", "… (deleted)", "".
 */
void symbolizer_add_module(struct symbolizer *s, uint64_t start, uint64_t end, uint64_t bias,
			   const char *path, size_t path_len);

/* Adds the lines of a stack of return addresses, each ended by LF. */
void symbolizer_stack(struct symbolizer *s, const uint64_t *pc, unsigned depth, struct buf *out);

#endif
