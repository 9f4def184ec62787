/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An answer for people in the making: paragraphs, headings, tables and call stacks that look the
 * same in every analysis. There are colours only where the style says so.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_REPORT_H
#define SONDE_MEMORY_ANALYSIS_COMMON_REPORT_H

#include "base/containers/buf.h"
#include "base/text/table.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/common/stacks.h"

enum ink {
	INK_PLAIN = 0,
	INK_HEADING = 1,
	INK_DIM = 2,
	INK_BAD = 31,
	INK_GOOD = 32,
	INK_WARNING = 33,
};

struct page {
	const struct analysis_style *style;
	struct buf *out;
	size_t start; /* what was in it before */
};

struct page page_begin(const struct analysis_style *style, struct buf *out);

void page_ink(const struct page *g, enum ink ink);
/* A text in a colour. */
void page_inked(const struct page *g, enum ink ink, const char *text);

/* A line after an empty one; releases the text. */
void page_heading(const struct page *g, struct buf *text);
void page_title(const struct page *g, const char *text); /* the same for fixed words */

/* Adds the text in lines, all of them indented, and releases it. */
void page_paragraph(const struct page *g, unsigned indent, struct buf *text);
/* The same for sentences that each end with a newline, after an empty line; nothing if there are
 * none. */
void page_remarks(const struct page *g, struct buf *text);

/* The frames of a call stack that are worth showing, one in a line: Python's, then those of C. */
/* Equal for call stacks that page_stack() prints the same. */
uint64_t page_stack_hash(struct stack stack);
void page_stack(const struct page *g, unsigned indent, struct stack stack);

/* "and 3 more places", if there are more than were shown. */
void page_more(const struct page *g, unsigned indent, size_t n, const char *noun);

/* Adds the table and releases it. */
void page_table(const struct page *g, struct table *t);

#endif
