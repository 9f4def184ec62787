/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The text of a report in the making: paragraphs, headings, tables and call stacks that look the
 * same in every analysis. There are colours only where the style says so.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_REPORT_H
#define SONDE_MEMORY_ANALYSIS_COMMON_REPORT_H

#include "base/containers/buf.h"
#include "base/text/table.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/common/stacks.h"

enum ink {
	INK_PLAIN = 0,
	INK_HEADING = 1,
	INK_DIM = 2,
	INK_BAD = 31,
	INK_GOOD = 32,
	INK_WARNING = 33,
};

struct report {
	const struct analysis_style *style;
	struct buf *out;
	size_t start; /* what was in it before */
};

struct report report_begin(const struct analysis_style *style, struct buf *out);

/* Adds words as add_text() does; report_inked() in a colour. */
#define report_add(report_, ...) add_text((report_)->out, __VA_ARGS__)
#define report_inked(report_, ink_, ...)                                                           \
	do {                                                                                       \
		report_ink(report_, ink_);                                                         \
		add_text((report_)->out, __VA_ARGS__);                                             \
		report_ink(report_, INK_PLAIN);                                                    \
	} while (0)
/* The same for a struct that has its report as a member. */
#define print(view_, ...) report_add(&(view_)->report, __VA_ARGS__)
void report_ink(const struct report *r, enum ink ink);

/* A line after an empty one; releases the text. */
void report_heading(const struct report *r, struct buf *text);
void report_title(const struct report *r, const char *text); /* the same for fixed words */

/* Adds the text in lines, all of them indented, and releases it. */
void report_paragraph(const struct report *r, unsigned indent, struct buf *text);
/* The same for sentences that each end with a newline, after an empty line; nothing if there are
 * none. */
void report_remarks(const struct report *r, struct buf *text);

/* "and 3 more places", if there are more than were shown. */
void report_more(const struct report *r, unsigned indent, size_t n, const char *noun);

/* --- call stacks --- */

/* The frames of a call stack that are worth showing, one in a line, innermost first. */
void report_stack(const struct report *r, unsigned indent, struct stack stack);
/* Equal for call stacks that report_stack() prints the same. */
uint64_t report_stack_hash(struct stack stack);

/* What the blocks of one call stack hold. */
struct call_site {
	uint32_t stack;
	bool before; /* no call stack, since the blocks were there when recording began */
	uint64_t blocks, bytes;
	uint32_t
		paths; /* call_sites_merge(): how many call stacks that look different it stands for */
	bool mixed; /* … which called different things, so that none is named */
};

/* "1.00 MiB in 1 block" in a colour, and its frames. */
void report_call_site(const struct report *r, unsigned indent, enum ink ink,
		      const struct stacks *stacks, const struct call_site *site);
void call_sites_sort(struct call_site *list, size_t n); /* the largest first */
/* Joins those from the same place (stacks_where()), so that a place has one number in sentences and
 * lists; `stack` is then that of the largest part. Returns how many are left, sorted. */
size_t call_sites_merge(struct call_site *list, size_t n, const struct stacks *stacks);

/* Adds the table and releases it. */
void report_table(const struct report *r, struct table *t);

#endif
