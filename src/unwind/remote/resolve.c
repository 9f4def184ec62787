/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * From raw frames to names and lines. Only what changed since the last round is resolved.
 *
 *	raw stack now      f3 f2 f1 f0        outermost f0
 *	raw stack before   g3    f1 f0        kept = 2: the same address, the same code, and the
 *	                                      caller at the same instruction
 *
 * Kept frames have their names; of the innermost kept one only the line may be another. The code
 * objects of all new frames of all threads are compared with the process' memory in one or two
 * reads (code_cache_check()). From 3.14 on the interpreter counts when code objects are freed:
 * while that number stays, what was checked before still holds.
 *
 * After that the stack is judged once more, with what is known about its code now: a frame copied
 * in the making has an instruction of another function. Then the last stack stays, and the thread
 * counts as missed.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "unwind/remote/objects/objects.h"
#include "unwind/remote/process_state.h"

#define NAME_WAIT_NS 5000000u /* a new thread enters its name a moment after it begins */
#define NAME_WAIT_MAX_NS 10000000000u
#define NAMES_EVERY_NS 50000000u

/*
 * How many of the outermost frames are the same calls as in the round before. One whose caller has
 * moved on is another call, even if it looks the same.
 *
 * Compared from the outermost frame on. a[1] is the caller: frames are innermost first.
 */
static unsigned kept_calls(const struct walk_thread *t)
{
	const struct python_raw_frame *now = t->now.frames, *before = t->before.frames;
	unsigned n = t->now.n, m = t->before.n, kept = 0;

	for (; kept < n && kept < m; kept++) {
		const struct python_raw_frame *a = &now[n - 1 - kept], *b = &before[m - 1 - kept];

		if (a->address != b->address || a->code != b->code)
			break;
		if (kept && a[1].instr != b[1].instr)
			break;
	}
	return kept;
}

static bool same_instruction(const struct walk_thread *t, unsigned from_outside)
{
	return t->now.frames[t->now.n - 1 - from_outside].instr ==
	       t->before.frames[t->before.n - 1 - from_outside].instr;
}

static void want_code(struct python_inside *in, uint64_t addr)
{
	/* The same one again and again: a stack of a recursion. */
	if (in->nto_check && in->to_check[in->nto_check - 1] == addr)
		return;
	in->to_check =
		xgrow(in->to_check, &in->to_check_cap, in->nto_check + 1, sizeof(*in->to_check));
	in->to_check[in->nto_check++] = addr;
}

/*
 * The code of new calls must be compared with what is known about it.
 *
 * Codes of kept calls are not checked again: a code object cannot die while a frame runs it.
 */
static void want_codes(struct python_process *p, struct thread_slot *s, unsigned kept)
{
	const struct walk_stack *now = &s->walk.now;
	struct python_inside *in = p->inside;

	for (unsigned i = 0; i + kept < now->n; i++)
		want_code(in, now->frames[i].code);
	/* That of the innermost old call is known, unless all were forgotten. */
	if (kept && !code_cache_get(&in->codes, now->frames[now->n - kept].code))
		want_code(in, now->frames[now->n - kept].code);
}

/* False only if the code was forgotten meanwhile. */
static bool resolve_frame(struct python_process *p, const struct python_raw_frame *raw,
			  struct stack_frame *out)
{
	struct code_cache *codes = &p->inside->codes;
	const struct remote_code *code = code_cache_get(codes, raw->code);
	int64_t lasti;

	if (!code || !code_lasti(codes, code, raw, &lasti))
		return false;
	*out = (struct stack_frame){
		.name = code->name,
		.file = code->file,
		.line = code_line(code, lasti),
		.kind = FRAME_IS_PYTHON,
		.entry = raw->entry,
		.address = raw->address,
		.code = raw->code,
		.lasti = lasti < 0 ? 0 : (uint32_t)lasti,
		.first_line = code->first_line,
	};
	return true;
}

static void add_frame(struct thread_slot *s, unsigned at, const struct stack_frame *f)
{
	s->out.frames = xgrow(s->out.frames, &s->frames_cap, at + 1, sizeof(*s->out.frames));
	s->out.frames[at] = *f;
}

/* The same call at the same instruction as in the round before. */
static bool is_known(const struct walk_thread *t, unsigned from_outside, unsigned kept)
{
	return from_outside < kept && same_instruction(t, from_outside);
}

/*
 * A frame that is copied while it is made has an instruction of another function. Objects that are
 * no code may be in the middle of a stack; inside of it a function must be.
 */
static bool makes_sense(struct python_process *p, const struct walk_thread *t, unsigned kept)
{
	struct code_cache *codes = &p->inside->codes;
	int64_t lasti;

	for (unsigned i = kept ? kept - 1 : 0; i < t->now.n; i++) {
		const struct python_raw_frame *raw = &t->now.frames[t->now.n - 1 - i];
		const struct remote_code *code = code_cache_get(codes, raw->code);

		if (code ? !code_lasti(codes, code, raw, &lasti) : i + 1 == t->now.n)
			return false;
		/* Who calls is at an instruction that can; see unwind/remote/walk.h. */
		if (code && !t->now.odd && !walk_fits(code, lasti, i + 1 == t->now.n))
			return false;
	}
	return true;
}

/* Frames that are no function of Python (hidden) are left out, in kept calls as the last time.
 * `kept` counts shown frames. */
static void resolve_frames(struct python_process *p, struct thread_slot *s, unsigned kept)
{
	struct walk_stack *now = &s->walk.now;
	const struct walk_stack *before = &s->walk.before;
	unsigned n = 0;

	s->out.kept = 0;
	for (unsigned i = 0; i < now->n; i++) {
		struct python_raw_frame *raw = &now->frames[now->n - 1 - i];
		struct stack_frame f;

		const struct remote_code *code = code_cache_get(&p->inside->codes, raw->code);

		if (i < kept)
			raw->hidden = before->frames[before->n - 1 - i].hidden;
		else
			raw->hidden = !code || code->trampoline;
		if (raw->hidden)
			continue;
		if (!is_known(&s->walk, i, kept) && resolve_frame(p, raw, &f))
			add_frame(s, n, &f);
		n++;
		if (i < kept)
			s->out.kept = n;
	}
	s->out.nframes = n;
}

/* `still`: the same calls at the same instructions. Such a stack needs no second judgement; it
 * was judged when it was new. */
static void resolve_slot(struct python_process *p, struct thread_slot *s)
{
	const struct walk_stack *now = &s->walk.now, *before = &s->walk.before;
	unsigned kept = s->out.nframes ? kept_calls(&s->walk) : 0;
	bool still = kept == now->n && kept == before->n &&
		     (!kept || same_instruction(&s->walk, kept - 1));

	s->fresh = false;
	if (!still && !makes_sense(p, &s->walk, kept)) {
		walk_undo(&s->walk);
		s->out.kept = s->out.nframes;
		s->missed = true;
		p->inside->walker.torn++;
		return;
	}
	resolve_frames(p, s, kept);
	s->out.cut = now->deep;
	s->out.partial = now->cut;
	s->out.unchanged = still ? s->out.unchanged + 1 : 0;
	p->counts.samples++;
}

struct naming {
	struct python_process *p;
	struct remote_interp *interp;
};

static void on_name(void *arg, uint64_t thread_id, const char *name)
{
	struct naming *n = arg;

	for (unsigned i = 0; i < n->p->inside->nslots; i++) {
		struct thread_slot *s = n->p->inside->slots[i];

		if (s->interp == n->interp && s->walk.thread_id == thread_id && *name)
			s->out.name = intern(name, strlen(name));
	}
}

/*
 * Names are looked up when a thread is new, and now and then: they can be changed.
 *
 * The names are in a dict of Python objects, dozens of reads away: all of an interpreter's are read
 * at once, for a thread that has none yet, with growing pauses, and every ten seconds for the
 * others.
 */
static void find_names(struct python_process *p)
{
	struct python_inside *in = p->inside;
	uint64_t now = clock_mono_ns();

	for (unsigned i = 0; i < in->nslots; i++) {
		struct thread_slot *s = in->slots[i];
		struct naming n = {p, s->interp};

		/* All names come at once: threads that come and go have them read now and then. */
		if (now < s->name_due_ns || now - s->interp->named_ns < NAMES_EVERY_NS)
			continue;
		s->interp->named_ns = now;
		remote_thread_names(&p->remote, &p->place, s->interp->addr, on_name, &n);
		for (unsigned k = 0; k < in->nslots; k++) {
			struct thread_slot *other = in->slots[k];
			uint64_t wait = other->name_wait_ns * 2;

			if (other->interp != s->interp || now < other->name_due_ns)
				continue;
			if (*other->out.name || wait > NAME_WAIT_MAX_NS)
				wait = NAME_WAIT_MAX_NS;
			other->name_wait_ns = wait ? wait : NAME_WAIT_NS;
			other->name_due_ns = now + other->name_wait_ns;
		}
	}
}

static void describe_thread(struct python_process *p, struct thread_slot *s)
{
	if (s->out.thread_id != s->walk.thread_id) {
		s->out.thread_id = s->walk.thread_id;
		tids_find(p, s);
	}
	s->out.interp = s->interp->id;
	s->out.has_gil = s->interp->gil_holder == s->walk.tstate;
	s->out.gc = s->out.has_gil && s->interp->collecting;
	s->out.missed = s->missed;
	if (p->inside->o.states)
		tids_state(p, s);
	/* What the module threading would call it. */
	if (!*s->out.name && s->out.main && s->out.interp == 0)
		s->out.name = "MainThread";
}

static void find_main(struct python_inside *in)
{
	in->main = NULL;
	for (unsigned i = 0; i < in->nslots; i++)
		if (in->slots[i]->out.main && !strcmp(in->slots[i]->out.name, "MainThread"))
			in->main = in->slots[i];
}

/* First all code objects that any thread needs, in as few reads as possible; then the frames,
 * without reading anything. */
int threads_resolve(struct python_process *p)
{
	struct python_inside *in = p->inside;
	uint64_t generation = 0;

	for (unsigned i = 0; i < in->runtime.n; i++)
		generation += in->runtime.interps[i]->code_generation;
	code_cache_round(&in->codes, p->place.layout.interp.code_generation != PYTHON_NONE &&
					     generation == in->code_generation);
	in->code_generation = generation;
	in->nto_check = 0;
	for (unsigned i = 0; i < in->nslots; i++) {
		struct thread_slot *s = in->slots[i];

		if (s->fresh)
			want_codes(p, s, s->out.nframes ? kept_calls(&s->walk) : 0);
	}
	int ret = code_cache_check(&in->codes, in->to_check, in->nto_check);
	if (ret < 0)
		return ret;
	for (unsigned i = 0; i < in->nslots; i++) {
		struct thread_slot *s = in->slots[i];

		if (s->fresh)
			resolve_slot(p, s);
		else
			s->out.kept = s->out.nframes;
	}
	for (unsigned i = 0; i < in->nslots; i++)
		describe_thread(p, in->slots[i]);
	if (in->o.names)
		find_names(p);
	if (in->o.main_only)
		find_main(in);
	return 0;
}
