/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The raw stack of one thread that runs on while it is copied. One system call in the common case:
 * it reads what the last walk needed, in an order that shows whether the stack changed meanwhile:
 *
 *	callers, from the outside in	the thread's state, which names the innermost frame
 *	the innermost frame		the callers once more
 *
 *	time ---->
 *	A: callers, 1st copy      B: thread state, innermost      C: callers, 2nd copy
 *	outermost … innermost        "frame F is innermost"        outermost … innermost
 *	       |_____________________________________________________________|
 *	        a caller that is the same in A and C was the same in B, too
 *
 * A caller that is at the same instruction in both copies stood still in between, and was inside
 * the call in which the innermost frame was seen. Or it went round a loop and is there again: then
 * it is at an instruction that calls nothing, or has been left, or the stack has no end; a copy
 * with such a caller is not believed. If one has moved, the copy is taken again; when that does not
 * help, the stack is cut behind the innermost caller that stood still. What is shown was there.
 *
 * From 3.11 on the frames lie in chunks, which are copied as a whole; only those of generators and
 * the borders to C lie elsewhere. Before, every frame is an object of its own; but those that lie
 * near each other are copied together, which is both faster and more of the same moment.
 *
 *	chunk, newest     +----------+-------+-------+-------+- - - - - -+
 *	(datastack_chunk) | previous | frame | frame | frame |  free     |
 *	                  +----|-----+-------+-------+-------+- - - - - -+
 *	                       v                         ^ innermost: what lies behind it is
 *	                  older chunk                      stale, and need not be copied (used)
 *
 * What can go wrong, and what is done about it:
 *
 *	a frame is left, another is entered	instr or code differs: moved, copy again
 *	 at its place
 *	the same function is called again in	same address, code and instr. But the caller is at
 *	 a loop					an instruction that calls nothing (cannot_be()); or
 *						exact.c proves that it did not run
 *	a frame is being made			an instruction outside its code: torn
 *	the chain is read while it is linked	does not end where it ended before (ends_well()),
 *	 anew					or has no end: torn
 *	a chunk was freed			its memory cannot be read: new plan
 */
#ifndef SONDE_UNWIND_REMOTE_WALK_H
#define SONDE_UNWIND_REMOTE_WALK_H

#include "unwind/python/frame.h"
#include "unwind/remote/code.h"

/* Memory that is copied as a whole: a chunk, or some frames that lie near each other. */
struct walk_area {
	uint64_t addr;
	uint32_t size;
	uint32_t used; /* bytes that are copied */
};

#define WALK_RECENT 16

struct walk_stack {
	struct python_raw_frame *frames; /* innermost first */
	unsigned n;
	size_t cap;
	bool cut; /* there are frames inside of the innermost one, but they were moving */
	bool deep; /* there are more outside */
	bool odd; /* looks impossible, but it is what every copy shows */
};

struct walk_thread {
	uint64_t tstate;
	uint64_t next, interp, thread_id, native_id; /* as last copied */
	struct walk_stack now, before;
	uint64_t gil; /* where the GIL's words are; 0: not to be looked at */
	bool calm; /* it did not have the GIL while it was copied: it cannot have moved */
	uint64_t base, base_code; /* where its stack ended when it was last believed */
	/* What the next walk copies. */
	uint64_t cframe;
	struct walk_area *chunks; /* newest first */
	unsigned nchunks;
	size_t chunks_cap;
	struct walk_area *areas; /* around frames that lie in no chunk, in order of address */
	unsigned nareas;
	size_t areas_cap;
	uint64_t *loose; /* those frames as the last walk met them, innermost first */
	unsigned nloose;
	size_t loose_cap;
	uint64_t recent[WALK_RECENT]; /* some that walks before met: they often come back */
	unsigned nrecent;
};

struct walker {
	struct remote *remote;
	const struct python_layout *layout;
	struct code_cache *codes; /* what is known about callers */
	unsigned max_depth;
	uint64_t retries, cut, torn; /* counted */
};

/*
 * Copies the stack into t->now; the one that was there is t->before. `extra` are spans that are
 * read along (first, once). -EFAULT: there is no thread state (any more); -EAGAIN: nothing of the
 * stack held still; -ESRCH, -EPERM.
 */
int walk_thread(struct walker *w, struct walk_thread *t, const struct remote_span *extra,
		unsigned nextra);
/* Whether a frame can be at this instruction: the innermost one that runs, or one that calls. */
bool walk_fits(const struct remote_code *code, int64_t lasti, bool innermost);
/* The stack that was copied last makes no sense: back to the one before. */
void walk_undo(struct walk_thread *t);
void walk_thread_release(struct walk_thread *t);

#endif
