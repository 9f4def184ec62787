/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One walk of one thread (walk.h says why it is believed):
 *
 *	copy_until_good()			up to COPIES copies, ATTEMPTS with new plans
 *	  try_walk()
 *	    copy_all()				one process_vm_readv for everything below:
 *
 *	      extra | GIL | areas, chunks (1st) | thread state, cframe | areas, chunks (2nd) | GIL
 *
 *	    follow_frames()			from the innermost frame along `back`, in the copies
 *	    judge_copy()			how many of the innermost moved or make no sense
 *	  nothing moved				done
 *	  something did				once more; at last the moving ones are cut off
 *
 * "What is read twice": chunks and areas, so that a caller can be compared with itself; and the
 * GIL's words, since a thread that did not have the GIL before and after, while it did not change
 * hands, cannot have run Python in between (without_gil()). The thread state is read once, between
 * the two: it names the innermost frame, which is taken from the second copy, being younger.
 *
 * Nothing is allocated per walk: `scratch` is shared, which is why only one walk runs at a time.
 */
#include "unwind/remote/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "unwind/remote/walk_plan.h"

#define ATTEMPTS 16 /* until the plan fits */
#define COPIES 6 /* of a stack that moves */
#define BASES 4 /* that must agree */
#define EMPTY_IS_ODD 2 /* more than an innermost frame alone, see copy_until_good() */
#define CFRAME_BYTES 16

/* Of the GIL: all versions have them in this order. */
struct gil_words {
	uint64_t interval, last_holder, locked, switches;
};

/* One try. */
struct attempt {
	struct walker *w;
	struct walk_thread *t;
	uint8_t tstate[PYTHON_TSTATE_MAX];
	uint8_t cframe[CFRAME_BYTES];
	struct gil_words gil[2]; /* before and after */
	bool incomplete; /* a frame was met that the plan did not know */
	unsigned hint; /* area of the frame before */
	unsigned nfound; /* loose frames met: scratch.found */
	struct python_raw_frame last; /* the outermost, a shim or not */
};

enum seen { SEEN_STILL, SEEN_MOVED };

/* Where the two copies of an area are: chunks first, then the other areas. */
struct copies {
	uint8_t *first, *second;
};

/* Scratch memory, the same for all threads of all processes: only one walk at a time. */
static struct {
	uint8_t *bytes;
	size_t cap;
	struct copies *copies;
	size_t copies_cap;
	struct remote_span *spans;
	size_t spans_cap;
	unsigned nspans;
	uint64_t *found;
	size_t found_cap;
	uint8_t *states; /* enum seen, of each frame of t->now */
	size_t states_cap;
} scratch;

void walk_thread_release(struct walk_thread *t)
{
	free(t->now.frames);
	free(t->before.frames);
	free(t->chunks);
	free(t->areas);
	free(t->loose);
	*t = (struct walk_thread){0};
}

/* --- one copy --- */

static void span_add(uint64_t addr, void *out, size_t n)
{
	scratch.spans = xgrow(scratch.spans, &scratch.spans_cap, scratch.nspans + 1,
			      sizeof(*scratch.spans));
	scratch.spans[scratch.nspans++] = (struct remote_span){addr, out, n};
}

/* Room for both copies of everything that the plan names: the first ones, then the second ones, so
 * that a frame at some offset of the one is at the same offset of the other. */
static void lay_out(const struct walk_thread *t)
{
	unsigned n = t->nchunks + t->nareas;
	size_t need = 0;

	scratch.copies = xgrow(scratch.copies, &scratch.copies_cap, n + 1, sizeof(*scratch.copies));
	for (unsigned i = 0; i < n; i++)
		need += i < t->nchunks ? t->chunks[i].used : t->areas[i - t->nchunks].used;
	if (2 * need > scratch.cap || !scratch.bytes) {
		free(scratch.bytes);
		scratch.cap = 3 * need + 4096;
		scratch.bytes = xmalloc(scratch.cap);
	}
	uint8_t *at = scratch.bytes;
	for (unsigned i = 0; i < n; i++) {
		scratch.copies[i] = (struct copies){at, at + need};
		at += i < t->nchunks ? t->chunks[i].used : t->areas[i - t->nchunks].used;
	}
}

/* From the outside in: the kernel copies in this order, and the innermost frames, which change
 * most, should be copied nearest to the thread state. */
static void add_copies(const struct walk_thread *t, bool second)
{
	for (unsigned i = t->nareas; i-- > 0;) {
		const struct copies *c = &scratch.copies[t->nchunks + i];

		span_add(t->areas[i].addr, second ? c->second : c->first, t->areas[i].used);
	}
	/* The oldest chunk has the outermost frames. */
	for (unsigned i = t->nchunks; i-- > 0;) {
		const struct copies *c = &scratch.copies[i];

		span_add(t->chunks[i].addr, second ? c->second : c->first, t->chunks[i].used);
	}
}

/* All spans, in as many calls as they take: one but for very deep stacks. How many came whole. */
static int read_spans(struct remote *r)
{
	for (unsigned done = 0; done < scratch.nspans;) {
		unsigned left = scratch.nspans - done;
		unsigned n = left < REMOTE_SPANS ? left : REMOTE_SPANS;
		int got = remote_readv(r, scratch.spans + done, n);

		if (got < 0)
			return got;
		done += (unsigned)got;
		if ((unsigned)got < n)
			return (int)done;
	}
	return (int)scratch.nspans;
}

/*
 * All copies of one try. -EAGAIN if something was not there any more: the plan is better now.
 *
 * Which span did not come says what to do: the thread state (must), the thread has ended; a part of
 * the plan, that part is dropped and the next attempt goes without; the GIL, it moved.
 */
static int copy_all(struct attempt *a, const struct remote_span *extra, unsigned nextra)
{
	const struct python_layout *l = a->w->layout;
	struct walk_thread *t = a->t;

	lay_out(t);
	scratch.nspans = 0;
	for (unsigned i = 0; i < nextra; i++)
		span_add(extra[i].addr, extra[i].out, extra[i].n);
	if (t->gil)
		span_add(t->gil, &a->gil[0], sizeof(a->gil[0]));
	add_copies(t, false);
	unsigned must = scratch.nspans;
	span_add(t->tstate, a->tstate, l->tstate.size);
	if (t->cframe)
		span_add(t->cframe, a->cframe, CFRAME_BYTES);
	add_copies(t, true);
	if (t->gil)
		span_add(t->gil, &a->gil[1], sizeof(a->gil[1]));
	int got = read_spans(a->w->remote);
	if (got < 0)
		return got;
	if ((unsigned)got == scratch.nspans)
		return 0;
	if ((unsigned)got < nextra || (unsigned)got == must)
		return -EFAULT;
	if (scratch.spans[got].addr == t->gil)
		t->gil = 0;
	plan_without(t, scratch.spans[got].addr, l->frame.size);
	return -EAGAIN;
}

/* --- reading the copies --- */

struct found_frame {
	struct python_raw_frame f;
	enum seen seen;
};

static bool is_in(const struct walk_area *area, uint64_t at)
{
	return at >= area->addr && at < area->addr + area->size;
}

static const struct walk_area *area_at(const struct walk_thread *t, unsigned i)
{
	return i < t->nchunks ? &t->chunks[i] : &t->areas[i - t->nchunks];
}

/*
 * The number of the area that holds the address, chunks first; false if none does.
 *
 * The area of the frame before is tried first, then the few chunks, then the others by binary
 * search.
 */
static bool find_area(const struct walk_thread *t, uint64_t at, unsigned hint, unsigned *out)
{
	unsigned lo = 0, hi = t->nareas;

	*out = hint;
	if (hint < t->nchunks + t->nareas && is_in(area_at(t, hint), at))
		return true;
	for (*out = 0; *out < t->nchunks; ++*out)
		if (is_in(&t->chunks[*out], at))
			return true;
	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (t->areas[mid].addr <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	*out = t->nchunks + lo - 1;
	return lo && is_in(&t->areas[lo - 1], at);
}

/* The state came after the first copy: the innermost frame may be younger than that. */
static int read_planned(struct attempt *a, unsigned i, uint64_t at, bool innermost,
			struct found_frame *out)
{
	const struct python_layout *l = a->w->layout;
	struct walk_area *area = (struct walk_area *)area_at(a->t, i);
	uint64_t offset = at - area->addr, end = offset + l->frame.size;
	struct python_raw_frame second;

	if (end > area->used) {
		area->used = area->size;
		return end > area->size ? -EPROTO : -EAGAIN;
	}
	python_frame_decode(l, at, scratch.copies[i].first + offset, &out->f);
	python_frame_decode(l, at, scratch.copies[i].second + offset, &second);
	out->seen = python_frame_same(&out->f, &second) ? SEEN_STILL : SEEN_MOVED;
	if (innermost)
		out->f = second;
	return 0;
}

/* A frame that the plan does not know: it is needed to find those outside of it. */
static int read_unplanned(struct attempt *a, uint64_t at, struct found_frame *out)
{
	const struct python_layout *l = a->w->layout;
	uint8_t bytes[PYTHON_FRAME_MAX];
	int ret = remote_read(a->w->remote, at, bytes, l->frame.size);

	a->incomplete = true;
	out->seen = SEEN_MOVED;
	if (ret == 0)
		python_frame_decode(l, at, bytes, &out->f);
	return ret;
}

/*
 * Is the chain of chunks that was copied still the one of the plan?
 *
 * The chain in the copies must be the chain of the plan, link by link and of the same sizes: chunks
 * are allocated and freed as the stack grows and shrinks.
 */
static bool chunks_fit(const struct attempt *a, uint64_t newest)
{
	const struct walk_thread *t = a->t;

	for (unsigned i = 0; i < t->nchunks; i++) {
		struct chunk_head head;

		if (t->chunks[i].addr != newest)
			return false;
		memcpy(&head, scratch.copies[i].first, sizeof(head));
		if (head.size != t->chunks[i].size)
			return false;
		newest = head.previous;
	}
	return newest == 0;
}

/* In 3.11 and 3.12 the cframe was copied by the address of the last walk. If the thread state
 * names another one by now, this attempt is void and the next has it in its plan. */
static int innermost_frame(struct attempt *a, uint64_t *out)
{
	const struct python_layout *l = a->w->layout;
	struct walk_thread *t = a->t;

	if (l->minor >= 11) {
		uint64_t newest = python_word(a->tstate, l->tstate.datastack_chunk);

		if (!chunks_fit(a, newest)) {
			int ret = plan_chunks(a->w, t, newest);
			return ret == -ESRCH || ret == -EPERM ? ret : -EAGAIN;
		}
	}
	if (l->tstate.cframe == PYTHON_NONE) {
		*out = python_word(a->tstate, l->tstate.frame);
		return 0;
	}
	uint64_t cframe = python_word(a->tstate, l->tstate.cframe);
	if (cframe != t->cframe) {
		t->cframe = cframe;
		if (cframe)
			return -EAGAIN;
	}
	*out = cframe ? python_word(a->cframe, l->cframe_current) : 0;
	return 0;
}

static void found_loose(struct attempt *a, uint64_t at)
{
	scratch.found =
		xgrow(scratch.found, &scratch.found_cap, a->nfound + 1, sizeof(*scratch.found));
	scratch.found[a->nfound++] = at;
}

static void add_frame(struct walk_stack *now, const struct found_frame *found)
{
	now->frames = xgrow(now->frames, &now->cap, now->n + 1, sizeof(*now->frames));
	scratch.states = xgrow(scratch.states, &scratch.states_cap, now->n + 1, 1);
	scratch.states[now->n] = (uint8_t)found->seen;
	now->frames[now->n++] = found->f;
}

/* A border to C: the frame inside of it was called from there. */
static void add_shim(struct walk_stack *now, const struct found_frame *found)
{
	if (!now->n)
		return;
	now->frames[now->n - 1].entry = true;
	if (found->seen == SEEN_MOVED)
		scratch.states[now->n - 1] = SEEN_MOVED;
}

static int read_frame(struct attempt *a, uint64_t at, bool innermost, struct found_frame *out)
{
	unsigned area;

	if (!find_area(a->t, at, a->hint, &area)) {
		found_loose(a, at);
		return read_unplanned(a, at, out);
	}
	if (area >= a->t->nchunks)
		found_loose(a, at);
	a->hint = area;
	return read_planned(a, area, at, innermost, out);
}

/*
 * Follows the copies from the innermost frame outwards into t->now. Only copies: a frame that the
 * plan did not cover is read now, alone, and counts as moved (incomplete); the next attempt has it
 * in its plan. Bounded by max_depth, and by twice that with shims, so that a chain that was read
 * while it changed and leads back into itself ends.
 */
static int follow_frames(struct attempt *a)
{
	struct walk_stack *now = &a->t->now;
	struct found_frame found;
	uint64_t at;
	unsigned seen = 0;
	int ret = innermost_frame(a, &at);

	now->n = 0;
	now->deep = false;
	if (ret < 0)
		return ret;
	plan_used(a->t, at, a->w->layout->frame.size);
	for (; at; at = found.f.back, seen++) {
		if (now->n == a->w->max_depth || seen > 2 * a->w->max_depth) {
			now->deep = true;
			break;
		}
		ret = read_frame(a, at, seen == 0, &found);
		if (ret < 0)
			return ret;
		a->last = found.f;
		if (found.f.shim)
			add_shim(now, &found);
		else
			add_frame(now, &found);
	}
	if (now->n && !at)
		now->frames[now->n - 1].entry = true;
	return 0;
}

/* --- judging them --- */

/* Somebody else had the GIL when it began and when it ended, and it never changed hands. */
static bool without_gil(const struct attempt *a)
{
	const struct gil_words *g = a->gil;
	uint64_t me = a->t->tstate;

	return a->t->gil && g[0].last_holder != me && g[1].last_holder != me &&
	       g[0].switches == g[1].switches;
}

/*
 * A stack ends at the border to the C code that began it, the same one for as long as that runs. A
 * generator that is just about to be entered or left may seem to end it, or stale memory.
 */
static bool ends_well(const struct attempt *a)
{
	const struct walk_stack *now = &a->t->now;

	if (now->deep || !now->n)
		return true;
	if (a->w->layout->minor >= 12 ? !a->last.shim : a->last.dead || a->last.generator)
		return false;
	return a->last.address == a->t->base && a->last.code == a->t->base_code;
}

/*
 * A function that was left stays for a while where it returned, and its caller may be in another
 * call by now. One that really is at its return is there for nanoseconds.
 */
bool walk_fits(const struct remote_code *code, int64_t lasti, bool innermost)
{
	enum code_kind kind = code_kind_at(code, lasti);

	return innermost ? kind != CODE_RETURNS : kind == CODE_ANY;
}

/*
 * It stood still, but does not do what it must be doing there. The outermost sign of a loop that
 * went round between the two copies: the caller is at an instruction at which no call can be in
 * progress, or the frame is a generator's that is not running, or the instruction lies outside of
 * the code that the frame names.
 */
static bool cannot_be(const struct attempt *a, const struct python_raw_frame *f, bool innermost)
{
	const struct remote_code *code = code_cache_get(a->w->codes, f->code);
	int64_t lasti;

	if (f->dead)
		return true;
	if (!code)
		return false;
	/* The frame in which a generator is only made is left at once. */
	if (code->generator && !f->generator && a->w->layout->minor >= 11)
		return true;
	return !code_lasti(a->w->codes, code, f, &lasti) || !walk_fits(code, lasti, innermost);
}

/* How many of the innermost frames make no sense together with those outside of them. */
static unsigned count_senseless(const struct attempt *a)
{
	const struct walk_stack *now = &a->t->now;
	unsigned n = 0;

	for (unsigned i = 0; i < now->n; i++)
		if (cannot_be(a, &now->frames[i], i == 0))
			n = i + 1;
	return n;
}

/*
 * *out_moved: how many of the innermost frames are not proved to be of the same moment, *out_odd:
 * how many look impossible. False if the plan was not good enough to say.
 *
 * Frame 0 is taken from the second copy and needs no proof of its own: it is the innermost at the
 * moment B. Every other frame must have stood still.
 */
static bool judge_copy(struct attempt *a, unsigned *out_moved, unsigned *out_odd)
{
	struct walk_thread *t = a->t;

	plan_loose(t, scratch.found, a->nfound, a->w->layout->frame.size);
	if (a->incomplete)
		return false;
	*out_moved = 0;
	for (unsigned i = 1; i < t->now.n; i++)
		if (scratch.states[i] == SEEN_MOVED)
			*out_moved = i + 1;
	if (!ends_well(a))
		*out_moved = t->now.n;
	/* Nothing at all, where there was a stack before, is hard to believe, too: until it is seen
	 * again and again. */
	*out_odd = t->now.n || !t->before.n ? count_senseless(a) : EMPTY_IS_ODD;
	return true;
}

static int try_walk(struct walker *w, struct walk_thread *t, const struct remote_span *extra,
		    unsigned nextra, unsigned *moved, unsigned *odd, struct python_raw_frame *last)
{
	const struct python_layout *l = w->layout;
	struct attempt a = {.w = w, .t = t};
	int ret = copy_all(&a, extra, nextra);

	if (ret < 0)
		return ret;
	t->next = python_word(a.tstate, l->tstate.next);
	t->interp = python_word(a.tstate, l->tstate.interp);
	t->thread_id = python_word(a.tstate, l->tstate.thread_id);
	t->native_id = l->tstate.native_thread_id == PYTHON_NONE
			       ? 0
			       : python_word(a.tstate, l->tstate.native_thread_id);
	t->calm = without_gil(&a);
	ret = follow_frames(&a);
	if (ret == -EFAULT || ret == -EPROTO)
		return -EAGAIN;
	if (ret < 0)
		return ret;
	*last = a.last;
	return judge_copy(&a, moved, odd) ? 0 : -EAGAIN;
}

/*
 * The innermost frames were moving all the time: what is outside of them was not.
 *
 * What is left are callers that stood still: they are shown without the calls inside of them, and
 * `cut` says so.
 */
static void cut_moving(struct walk_stack *s, unsigned moved)
{
	memmove(s->frames, s->frames + moved, (s->n - moved) * sizeof(*s->frames));
	s->n -= moved;
	s->cut = true;
}

static void swap_stacks(struct walk_thread *t)
{
	struct walk_stack now = t->now;

	t->now = t->before;
	t->before = now;
}

void walk_undo(struct walk_thread *t)
{
	swap_stacks(t);
}

/*
 * Tells two copies of a stack apart.
 *
 * Addresses and instructions: two copies with the same hash show the same calls at the same places.
 */
static uint64_t stack_hash(const struct walk_stack *s)
{
	uint64_t h = s->n;

	for (unsigned i = 0; i < s->n; i++) {
		h = (h ^ s->frames[i].address) * 0xff51afd7ed558ccdull;
		h = (h ^ h >> 32 ^ s->frames[i].instr) * 0xff51afd7ed558ccdull;
	}
	return h;
}

/* Copies that all say the same about something that is hard to believe. */
struct agreement {
	uint64_t what;
	unsigned times;
};

static unsigned count_agreement(struct agreement *a, uint64_t what)
{
	a->times = a->times && a->what == what ? a->times + 1 : 1;
	a->what = what;
	return a->times;
}

/*
 * One copy after the other until one can be shown. What looks impossible and is the same in every
 * copy is not: code that is traced calls from where nothing else does. An end that is not the one
 * of the last time is believed when it was seen some times in a row.
 *
 * `base` is where the stack of this thread ends, its outermost border to C. A stack that ends
 * elsewhere is one that was read while it changed, or one that really begins elsewhere now: BASES
 * copies in a row decide.
 */
static int copy_until_good(struct walker *w, struct walk_thread *t, const struct remote_span *extra,
			   unsigned nextra, unsigned *out_cut)
{
	struct agreement stacks = {0}, bases = {0};
	unsigned copies = 0;
	int ret = -EAGAIN;

	for (unsigned i = 0; i < ATTEMPTS && copies < COPIES; i++) {
		unsigned moved = 0, odd = 0;
		struct python_raw_frame last = {0};

		ret = try_walk(w, t, extra, nextra, &moved, &odd, &last);
		if (ret < 0 && ret != -EAGAIN)
			return ret;
		*out_cut = moved > odd ? moved : odd;
		if (ret < 0)
			continue;
		if (!*out_cut)
			return 0;
		if (count_agreement(&bases, last.address ^ last.code << 16) == BASES) {
			t->base = last.address;
			t->base_code = last.code;
		}
		/* Of the innermost one alone it would prove nothing: it may be half made. */
		if (moved || odd == 1)
			stacks.times = 0;
		else if (count_agreement(&stacks, stack_hash(&t->now)) == COPIES) {
			t->now.odd = true;
			*out_cut = 0;
			return 0;
		}
		w->retries++;
		copies++;
	}
	return ret;
}

/* On failure the stack of the last time stays in t->now, since the two are exchanged back;
 * nothing of a failed copy is compared with later. */
int walk_thread(struct walker *w, struct walk_thread *t, const struct remote_span *extra,
		unsigned nextra)
{
	unsigned cut = 0;

	swap_stacks(t);
	t->now.cut = t->now.odd = false;
	int ret = copy_until_good(w, t, extra, nextra, &cut);
	if (ret == 0 && !cut)
		return 0;
	if (ret == 0 && cut < t->now.n) {
		cut_moving(&t->now, cut);
		w->cut++;
		return 0;
	}
	/* The last whole stack stays what the next walk compares with. */
	swap_stacks(t);
	if (ret == 0 || ret == -EAGAIN) {
		w->torn++;
		ret = -EAGAIN;
	}
	return ret;
}
