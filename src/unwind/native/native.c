/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The walk. Per frame: hash the code address, take its rule from the cache, add, load two words.
 *
 *	pc ---> cache[hash(pc)] ---- hit --> rule --+
 *	             | miss                         |
 *	             v                              v
 *	        rule_slow(): which object,      step_frame(): CFA = sp or fp + offset
 *	        its .eh_frame, cfi_rule();              pc' = *(CFA - 8), fp' = *(CFA + slot)
 *	        reports a new object                    sp' = CFA
 *
 * The cache of rules
 * ------------------
 * Two-way: entries i and i ^ 1, so that both lie in one cache line. An entry is two words:
 *
 *	tag  = key ^ mix(rule)		key = code address ^ epoch << 48
 *	rule
 *
 * Both are written relaxed, in no particular order, by any thread. A reader that sees words of two
 * different writers finds that the tag does not fit and takes it as a miss: the tag proves that
 * rule and address belong together, and a torn pair fails the proof (with a chance of 2^-64). So
 * there is nothing to lock and nothing to order.
 *
 * A step of the epoch empties the cache in one store: an object was replaced by another at its
 * addresses, or the process forked. Between that and the store a rule may be stale; it is only
 * arithmetic on stack words that are checked anyway, so it cannot do harm beyond one wrong stack.
 *
 * Two walks
 * ---------
 * Nearly all frames need only sp and fp. The fast walk tracks nothing else; when it meets a rule
 * that is based on rbx, r12 … r15 (need_more), everything starts over with all of them tracked.
 *
 * Beyond the depth
 * ----------------
 * Who asks for it gets the frames of the program itself behind those that were asked for, if none of
 * these is of the program: a framework is often deeper than anybody asks for. The same walk goes on.
 *
 * Every load from the stack goes through is_readable(): the page was proved by the kernel once, and
 * addresses only ever go up, so that a damaged chain ends instead of going round.
 */
#include "unwind/native/native.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "unwind/native/arch.h"
#include "unwind/native/cfi.h"
#include "unwind/native/modules.h"
#include "unwind/native/span.h"

#define CACHE_BITS 16
#define HOOK_FRAMES 32u /* `from` is looked for among so many */
#define SWITCH_MAX 8u /* changes of the stack through signal frames */
#define RECHECK_EVERY 64u /* captures between two looks for replaced objects */
#define FURTHER_FRAMES 256u /* beyond the depth, in which the program is looked for */

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

struct entry {
	_Atomic uint64_t tag;
	_Atomic uint64_t rule;
};

static struct entry cache[1u << CACHE_BITS] __attribute__((aligned(64)));
static _Atomic uint64_t epoch; /* in the upper 16 bits of every key; a step empties the cache */

struct walk {
	struct native_regs r;
	struct span span;
	uint64_t *out;
	unsigned n, max;
	uint64_t from;
	native_module_fn fn;
	void *arg;
	unsigned switches;
	bool exact; /* r.pc is the instruction itself, not the one behind a call */
	bool guess; /* r.pc came from a frame pointer without unwind information */
	bool refused; /* it takes a system call to go on, and none may be made */
	bool need_more; /* met a rule that needs the registers that the fast walk does not track */
};

/* --- the cache --- */

static inline uint64_t mix_hash(uint64_t rule)
{
	return rule * 0xd6e8feb86659fd93ull;
}

static inline struct entry *slot_of(uint64_t at)
{
	return &cache[at * 0x9e3779b97f4a7c15ull >> (64 - CACHE_BITS)];
}

static inline bool entry_get(struct entry *e, uint64_t key, uint64_t *out_rule)
{
	uint64_t rule = atomic_load_explicit(&e->rule, memory_order_relaxed);

	*out_rule = rule;
	return atomic_load_explicit(&e->tag, memory_order_relaxed) == (key ^ mix_hash(rule));
}

/* The entry that is there moves to the second way, unless it is of an older epoch. Of two
 * threads that put at once, one entry may be lost or torn: a miss, later. */
static void cache_put(uint64_t at, uint64_t key, uint64_t rule)
{
	struct entry *e = slot_of(at);
	uint64_t old = atomic_load_explicit(&e->rule, memory_order_relaxed);
	uint64_t tag = atomic_load_explicit(&e->tag, memory_order_relaxed);

	/* The first way holds another address of this epoch: that one moves to the second. */
	if (tag && ((tag ^ mix_hash(old)) ^ key) >> 48 == 0) {
		struct entry *second = &cache[(size_t)(e - cache) ^ 1];
		atomic_store_explicit(&second->rule, old, memory_order_relaxed);
		atomic_store_explicit(&second->tag, tag, memory_order_relaxed);
	}
	atomic_store_explicit(&e->rule, rule, memory_order_relaxed);
	atomic_store_explicit(&e->tag, key ^ mix_hash(rule), memory_order_relaxed);
}

static void cache_empty(void)
{
	atomic_fetch_add_explicit(&epoch, 1ull << 48, memory_order_relaxed);
}

/*
 * --- one frame ---
 *
 * musl and old C libraries have no unwind information there; the bytes of the system call are the
 * same everywhere.
 */
static bool is_sigreturn(const struct native_object *o, uint64_t pc)
{
	return pc >= o->code && pc < o->code_end && o->code_end - pc >= ARCH_SIGRETURN_LEN &&
	       !memcmp((const void *)(uintptr_t)pc, ARCH_SIGRETURN, ARCH_SIGRETURN_LEN);
}

/* Finds the rule the long way and remembers it. Sets *out_known if an object owns the address. */
static __attribute__((noinline)) uint64_t rule_slow(struct walk *w, uint64_t at, bool *out_known)
{
	struct native_object o;

	*out_known = native_object_find(at, &o);
	if (!*out_known) {
		w->refused |= span_is_sealed();
		return RULE_NONE;
	}
	uint64_t rule = is_sigreturn(&o, w->r.pc) ? RULE_SIGNAL : cfi_rule(&o.cfi, at);
	if (native_object_report(&o, w->fn, w->arg))
		cache_empty();
	if (rule != RULE_NONE)
		cache_put(at, at ^ atomic_load_explicit(&epoch, memory_order_relaxed), rule);
	return rule;
}

static inline uint64_t load_word(uint64_t addr)
{
	return *(const uint64_t *)(uintptr_t)addr;
}

static __attribute__((noinline)) bool grow_span(struct walk *w, uint64_t end)
{
	if (span_grow(&w->span, end))
		return true;
	w->refused |= span_is_sealed();
	return false;
}

/* May the word at addr, at or above the walk's stack pointer, be read? */
static inline bool is_readable(struct walk *w, uint64_t addr)
{
	if (addr < w->r.sp || addr & 7 || addr > ~0ull - 8)
		return false;
	return LIKELY(addr + 8 <= w->span.hi) || grow_span(w, addr + 8);
}

/* The registers as they were when the signal came: they may be on another stack. */
static __attribute__((noinline)) bool step_signal(struct walk *w)
{
	static const uint16_t more[ARCH_NMORE] = ARCH_SIG_MORE;
	uint64_t sp = w->r.sp;

	if (!is_readable(w, sp + ARCH_SIG_END - 8) || !is_readable(w, sp))
		return false;
	w->r.pc = load_word(sp + ARCH_SIG_PC);
	w->r.fp = load_word(sp + ARCH_SIG_FP);
	for (unsigned i = 0; i < ARCH_NMORE; i++)
		w->r.more[i] = load_word(sp + more[i]);
	w->r.sp = load_word(sp + ARCH_SIG_SP);
	w->exact = true;
	if (w->r.sp > sp && w->r.sp < w->span.hi)
		return true;
	w->span = span_enter(w->r.sp);
	w->refused |= span_is_sealed();
	return w->switches++ < SWITCH_MAX && span_readable(w->r.sp & ~7ull);
}

/*
 * Without unwind information: the frame pointer, if it looks like one.
 *
 * Once: two guesses in a row are two chances to believe a number that is none. The address must lie
 * in an object that is mapped, or the walk ends.
 */
static __attribute__((noinline)) bool step_guess(struct walk *w)
{
	uint64_t fp = w->r.fp;

	if (w->guess || !is_readable(w, fp) || !is_readable(w, fp + 8))
		return false;
	w->r.pc = arch_code_pointer(load_word(fp + 8));
	w->r.fp = load_word(fp);
	w->r.sp = fp + 16;
	w->guess = true;
	w->exact = false;
	return true;
}

/* The frame address where it is neither sp nor fp plus an offset. */
static __attribute__((noinline)) bool cfa_odd(struct walk *w, uint64_t rule, bool full,
					      uint64_t *out_cfa)
{
	unsigned how = rule_how(rule);
	uint64_t at = w->r.fp + (uint64_t)rule_offset(rule);

	if (how == RULE_DEREF) {
		if (!is_readable(w, at))
			return false;
		*out_cfa = load_word(at);
		return true;
	}
	if (!ARCH_HAS_MORE || how < RULE_MORE || how >= RULE_HOW_END)
		return false;
	w->need_more = !full;
	unsigned reg = how == RULE_R10_FP ? ARCH_NMORE - 1 : how - RULE_MORE;
	*out_cfa = w->r.more[reg] + (uint64_t)rule_offset(rule);
	return full;
}

/*
 * rbx, r12 … r15: only when a frame above needs one of them. A place below the stack pointer was
 * popped already (a signal in an epilogue): the register has its value back.
 */
static inline void restore_more(struct walk *w, uint64_t rule, uint64_t cfa)
{
	for (unsigned i = 0; i < ARCH_NMORE; i++) {
		unsigned slot = i < ARCH_NSAVED ? rule_more_slot(rule, i) : 15;
		uint64_t at = cfa - 8 * slot;
		if (slot == 15)
			w->r.more[i] = 0;
		else if (slot && at >= w->r.sp)
			w->r.more[i] = load_word(at);
	}
}

/* The caller's frame pointer; the place is below the frame address, which was proved readable. */
static inline uint64_t frame_pointer(const struct walk *w, uint64_t rule, uint64_t cfa)
{
	int64_t slot = rule_fp_slot(rule);
	bool by_fp = rule_how(rule) == RULE_DEREF || rule_how(rule) == RULE_R10_FP;
	uint64_t at = (by_fp ? w->r.fp : cfa) + 8 * (uint64_t)slot;

	if (!slot && !by_fp)
		return w->r.fp;
	if (UNLIKELY(slot == RULE_LOST || at >= cfa || at & 7))
		return 0;
	return LIKELY(at >= w->r.sp) ? load_word(at) : w->r.fp;
}

/* On x86-64 it lies right below the CFA, by the ABI. On aarch64 it is in a register at first: in
 * the innermost frame, and in one that a signal interrupted, it may still be there. */
static inline uint64_t return_address(const struct walk *w, uint64_t rule, uint64_t cfa)
{
	if (ARCH_HAS_MORE)
		return load_word(cfa - 8);
	uint64_t at = cfa + 8 * (uint64_t)rule_ra_slot(rule);
	if (at == cfa) /* still in lr: only where the walk began or a signal hit */
		return w->exact ? arch_code_pointer(w->r.more[0]) : 0;
	return at >= w->r.sp && at < cfa ? arch_code_pointer(load_word(at)) : 0;
}

/* From a frame to its caller's. */
static inline __attribute__((always_inline)) bool step_frame(struct walk *w, uint64_t rule,
							     bool full)
{
	unsigned how = rule_how(rule);
	uint64_t cfa = (how == RULE_SP ? w->r.sp : w->r.fp) + (uint64_t)rule_offset(rule);

	if (UNLIKELY(how != RULE_SP && how != RULE_FP) && !cfa_odd(w, rule, full, &cfa))
		return false;
	/* On x86-64 a call always moves; elsewhere the first frame may have none of its own. */
	if (cfa < w->r.sp + (ARCH_HAS_MORE || !w->exact ? 8 : 0) || !is_readable(w, cfa - 8))
		return false;
	uint64_t pc = return_address(w, rule, cfa);
	w->r.fp = frame_pointer(w, rule, cfa);
	if (full)
		restore_more(w, rule, cfa);
	w->r.sp = cfa;
	w->r.pc = pc;
	w->exact = w->guess = false;
	return pc != 0;
}

/* Everything but the two plain rules. */
static __attribute__((noinline)) bool step_odd(struct walk *w, uint64_t rule, bool full)
{
	switch (rule_how(rule)) {
	case RULE_STOP:
		return false;
	case RULE_SIGNAL:
		return step_signal(w);
	case RULE_NONE:
		return step_guess(w);
	default:
		return step_frame(w, rule, full);
	}
}

/* --- the whole stack --- */

static inline __attribute__((always_inline)) void walk_frames(struct walk *w, bool full)
{
	uint64_t now = atomic_load_explicit(&epoch, memory_order_relaxed);

	for (unsigned depth = 0; depth < w->max + HOOK_FRAMES; depth++) {
		uint64_t pc = w->r.pc, at = pc - !w->exact, rule;
		struct entry *e = slot_of(at);
		if (UNLIKELY(!entry_get(e, at ^ now, &rule)) &&
		    !entry_get(&cache[(size_t)(e - cache) ^ 1], at ^ now, &rule)) {
			bool known;
			rule = rule_slow(w, at, &known);
			now = atomic_load_explicit(&epoch, memory_order_relaxed);
			if (!known && w->guess)
				return;
		}
		if (UNLIKELY(pc == w->from && depth < HOOK_FRAMES)) {
			w->n = 0;
			w->from = 0;
		}
		if (depth && w->n < w->max)
			w->out[w->n++] = pc;
		if (w->n == w->max && (!w->from || depth >= HOOK_FRAMES))
			return;
		unsigned how = rule_how(rule);
		if (LIKELY(how == RULE_SP || how == RULE_FP) ? !step_frame(w, rule, full)
							     : !step_odd(w, rule, full))
			return;
	}
}

/* One frame further, the long way: nothing but the stack is changed. */
static bool step_further(struct walk *w, bool full)
{
	uint64_t at = w->r.pc - !w->exact, rule;
	uint64_t key = at ^ atomic_load_explicit(&epoch, memory_order_relaxed);
	struct entry *e = slot_of(at);
	bool known = true;

	if (!entry_get(e, key, &rule) && !entry_get(&cache[(size_t)(e - cache) ^ 1], key, &rule))
		rule = rule_slow(w, at, &known);
	if (!known && w->guess)
		return false;
	unsigned how = rule_how(rule);
	return how == RULE_SP || how == RULE_FP ? step_frame(w, rule, full)
						: step_odd(w, rule, full);
}

static bool is_program(const struct native_program *p, uint64_t pc)
{
	return pc - p->start < p->end - p->start;
}

static bool has_program(const struct native_program *p, const struct walk *w)
{
	for (unsigned i = 0; i < w->n; i++)
		if (is_program(p, w->out[i]))
			return true;
	return false;
}

/* From where the walk stopped. */
static __attribute__((noinline)) void walk_further(struct walk *w, struct native_program *p,
						   bool full)
{
	p->n = p->left_out = 0;
	for (unsigned i = 0; i < FURTHER_FRAMES && step_further(w, full); i++) {
		if (is_program(p, w->r.pc))
			p->pc[p->n++] = w->r.pc;
		else if (p->n)
			return;
		else
			p->left_out++;
		if (p->n == NATIVE_PROGRAM_FRAMES)
			return;
	}
}

/* Once more from the start, with all registers. */
static __attribute__((noinline)) void walk_full(struct walk *w, const struct native_regs *start)
{
	w->r = *start;
	w->span = span_enter(start->sp);
	w->n = w->switches = 0;
	w->exact = true;
	w->guess = false;
	walk_frames(w, true);
}

/* start: where the fast walk began; NULL: all registers are tracked. */
static __attribute__((noinline)) void find_program(struct walk *w, struct native_program *p,
						   const struct native_regs *start, uint64_t from)
{
	walk_further(w, p, !start);
	if (!start || !w->need_more)
		return;
	w->from = from;
	walk_full(w, start);
	walk_further(w, p, true);
}

/*
 * Are the objects still the ones that the cache was filled from? A library that was unloaded and
 * replaced by another at the same addresses is not announced by anybody. A hit in the cache never
 * asks; so every RECHECK_EVERY captures of a thread the objects of its stack are looked up anew.
 */
static __attribute__((noinline)) void recheck_frames(const struct walk *w)
{
	struct native_object o = {0};

	for (unsigned i = 0; i < w->n; i++) {
		uint64_t at = w->out[i] - 1;
		if (at >= o.start && at < o.end)
			continue;
		if (native_object_find(at, &o) && native_object_report(&o, w->fn, w->arg))
			cache_empty();
	}
}

/* Registers are taken here, in the frame that the walk starts from. What was learnt about
 * readable pages is kept if the span grew at its upper end and is of the thread's own stack. */
unsigned native_capture_program(uint64_t *out_pc, unsigned max, struct native_program *program,
				uint64_t from, native_module_fn fn, void *arg)
{
	static __thread unsigned count __attribute__((tls_model("initial-exec")));
	struct walk w = {.out = out_pc, .max = max, .from = from, .fn = fn, .arg = arg};

	if (!max)
		return 0;
	ARCH_SNAPSHOT(&w.r);
	w.exact = true;
	uint64_t sp = w.r.sp;
	struct native_regs start = w.r;
	struct span entered = w.span = span_enter(sp);
	walk_frames(&w, false);
	bool full = w.need_more;
	if (UNLIKELY(full)) {
		w.from = from;
		walk_full(&w, &start);
	}
	/* In a sealed process a step too far would cost the whole stack. */
	if (UNLIKELY(program && w.n == max) && program->end && !span_is_sealed() &&
	    !has_program(program, &w))
		find_program(&w, program, full ? NULL : &start, from);
	if (UNLIKELY(w.span.hi != entered.hi && w.span.lo == entered.lo))
		span_keep(&w.span, sp);
	if (UNLIKELY(w.refused))
		return 0;
	if (UNLIKELY(++count % RECHECK_EVERY == 0) && !span_is_sealed())
		recheck_frames(&w);
	return w.n;
}

uint64_t native_own_stack_end(uint64_t sp)
{
	return span_home_end(sp);
}

void native_seal(bool on)
{
	span_seal(on);
}

void native_forget(void)
{
	native_objects_forget();
	cache_empty();
}
