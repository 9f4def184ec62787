/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Native frames of a whole process: open and close, and the stacks of its threads made of both.
 *
 *	native_add_copy()	of all processes: stop, copy registers, stack and Python's raw
 *				frames of each wanted thread, go
 *	native_add_merge()	of all processes: resolve, unwind, merge
 *
 * A merged stack is compared with the one of the round before, from the outside in, so that `kept`
 * and `unchanged` mean the same as for Python stacks. A call of C is the same call as long as its
 * name is; once a frame has moved on, what it calls now is another call.
 */
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "unwind/remote/native/native_impl.h"

/* The merged stack of a thread; the next round is compared with it. */
struct merged {
	uint64_t tstate, serial;
	struct stack_frame *frames;
	unsigned n;
	uint32_t unchanged;
	bool seen; /* in this round */
};

/*
 * libdwfl wants an ELF file to know which machine it works for. Ours will do: there is no other.
 *
 * A header alone; no section, no segment.
 */
static Elf *own_machine(void)
{
	static Elf64_Ehdr header;
	static Elf *elf;

	if (!elf) {
		memcpy(header.e_ident, ELFMAG, SELFMAG);
		header.e_ident[EI_CLASS] = ELFCLASS64;
		header.e_ident[EI_DATA] = ELFDATA2LSB;
		header.e_ident[EI_VERSION] = EV_CURRENT;
		header.e_type = ET_DYN;
#if defined(__x86_64__)
		header.e_machine = EM_X86_64;
#else
		header.e_machine = EM_AARCH64;
#endif
		header.e_version = EV_CURRENT;
		header.e_ehsize = sizeof(header);
		elf = elf_memory((char *)&header, sizeof(header));
	}
	return elf;
}

/* Nothing is read yet: modules come with the first thread that is copied. */
int native_process_open(pid_t pid, struct native_process **out, struct err *err)
{
	struct native_process *p;

	if (elf_version(EV_CURRENT) == EV_NONE)
		return err_set(err, -ENOTSUP, "the installed libelf is too old");
	if (kill(pid, 0) < 0 && errno == ESRCH)
		return err_set(err, -ESRCH, "there is no process %d", (int)pid);
	p = xcalloc(1, sizeof(*p));
	p->pid = pid;
	remote_init(&p->remote, pid);
	native_files_use();
	p->dwfl = dwfl_begin(&native_dwfl_callbacks);
	if (!p->dwfl || native_dwfl_attach(p, own_machine()) < 0) {
		native_process_close(p);
		return err_set(err, -ENOTSUP, "libdw cannot unwind here: %s", dwfl_errmsg(-1));
	}
	*out = p;
	return 0;
}

void native_process_close(struct native_process *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->ncopy; i++)
		free(p->copy[i].bytes);
	free(p->copy);
	for (size_t i = 0; i < p->nmerged; i++)
		free(p->merged[i].frames);
	free(p->merged);
	free(p->candidates);
	if (p->dwfl)
		dwfl_end(p->dwfl); /* before the images that its modules are made of */
	native_modules_release(p);
	native_places_forget(p);
	free(p->place);
	native_files_done();
	free(p);
}

const struct native_counts *native_counts(const struct native_process *p)
{
	return &p->counts;
}

/*
 * --- native_add_copy(), native_add_merge() ---
 *
 * A handful of threads per process have native frames; a list is enough.
 */
static struct merged *merged_of(struct native_process *n, const struct python_thread *t)
{
	for (size_t i = 0; i < n->nmerged; i++)
		if (n->merged[i].tstate == t->tstate && n->merged[i].serial == t->serial)
			return &n->merged[i];
	n->merged = xgrow(n->merged, &n->cap_merged, n->nmerged + 1, sizeof(n->merged[0]));
	n->merged[n->nmerged] = (struct merged){.tstate = t->tstate, .serial = t->serial};
	return &n->merged[n->nmerged++];
}

static void forget_unseen(struct native_process *n)
{
	size_t left = 0;

	for (size_t i = 0; i < n->nmerged; i++)
		if (n->merged[i].seen)
			n->merged[left++] = n->merged[i];
		else
			free(n->merged[i].frames);
	n->nmerged = left;
}

/* The same call: a function of C is known by its name alone. */
static bool same_call(const struct stack_frame *a, const struct stack_frame *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == FRAME_IS_NATIVE)
		return a->name == b->name;
	return a->address == b->address && a->code == b->code;
}

static bool same_moment(const struct stack_frame *a, const struct stack_frame *b)
{
	return a->kind == FRAME_IS_NATIVE ? a->address == b->address : a->lasti == b->lasti;
}

/*
 * `frames` become those of the thread and of the record that the next round is compared with.
 *
 * As for Python stacks: from the outside in, as long as the calls are the same; after the first
 * that moved, what it calls is new.
 */
static void adopt_frames(struct merged *m, struct python_thread *t, struct stack_frame *frames,
			 unsigned n)
{
	unsigned kept = 0;
	bool still = true; /* so far: what a call that moved on calls now is another call */

	while (kept < n && kept < m->n && still && same_call(&frames[kept], &m->frames[kept])) {
		still = same_moment(&frames[kept], &m->frames[kept]);
		kept++;
	}
	still &= kept == n && n == m->n;
	m->unchanged = still ? m->unchanged + 1 : 0;
	m->seen = true;
	free(m->frames);
	m->frames = frames;
	m->n = n;
	t->frames = frames;
	t->nframes = n;
	t->kept = kept;
	t->unchanged = m->unchanged;
}

static void adopt_merged(struct native_process *n, struct python_thread *t,
			 const struct native_stack *native)
{
	struct stack_frame *frames = NULL;
	size_t cap = 0;
	unsigned count = 0;

	native_merge(native, t->frames, t->nframes, &frames, &cap, &count);
	adopt_frames(merged_of(n, t), t, frames, count);
}

/* A thread that had native frames before and has none now: its Python frames, compared with those
 * that were shown last. */
static void adopt_python(struct native_process *n, struct python_thread *t)
{
	struct stack_frame *frames = xcalloc(t->nframes + 1, sizeof(frames[0]));

	if (t->nframes)
		memcpy(frames, t->frames, t->nframes * sizeof(frames[0]));
	adopt_frames(merged_of(n, t), t, frames, t->nframes);
}

struct stopping {
	struct python_process *p;
	pid_t tid;
	int result;
	struct err err;
};

static void copy_python(void *arg)
{
	struct stopping *s = arg;

	s->result = python_capture_thread(s->p, s->tid, &s->err);
}

static int capture_both(struct native_process *n, struct python_process *p, pid_t tid,
			struct err *err)
{
	struct stopping s = {.p = p, .tid = tid};
	int r;

	if (tid <= 0)
		return err_set(err, -ESRCH, "the system's number of the thread is not known");
	r = native_capture_thread(n, tid, copy_python, &s, err);
	if (r == 0 && s.result < 0)
		r = err_set(err, s.result, "%s", s.err.text);
	return r;
}

/* The first failure is reported, the others are counted. */
static void count_failure(unsigned *failed, const struct err *e, struct err *first)
{
	if (!(*failed)++ && first)
		*first = *e;
}

/* Two interpreters may take turns in one thread: only one of them has frames that are native too,
 * and it is listed first. */
static bool is_copied(const struct native_process *n, pid_t tid)
{
	for (size_t i = 0; i < n->ncandidates; i++)
		if (n->candidates[i].tid == tid && n->candidates[i].copied)
			return true;
	return false;
}

/* A thread may be listed by two interpreters that run in it in turn; it is stopped once. */
unsigned native_add_copy(struct native_process *n, struct python_process *p,
			 bool (*wanted)(void *arg, const struct python_thread *t), void *arg,
			 struct err *first)
{
	unsigned failed = 0;

	n->ncandidates = 0;
	for (unsigned i = 0; i < p->nthreads; i++) {
		const struct python_thread *t = &p->threads[i];
		struct native_candidate c = {t->tid, t->tstate, false};
		struct err e = {0};

		if (wanted && !wanted(arg, t))
			continue;
		if (!is_copied(n, t->tid)) {
			c.copied = capture_both(n, p, t->tid, &e) == 0;
			if (!c.copied)
				count_failure(&failed, &e, first);
		}
		n->candidates = xgrow(n->candidates, &n->cap_candidates, n->ncandidates + 1,
				      sizeof(n->candidates[0]));
		n->candidates[n->ncandidates++] = c;
	}
	return failed;
}

static const struct native_candidate *candidate_of(const struct native_process *n, uint64_t tstate)
{
	for (size_t i = 0; i < n->ncandidates; i++)
		if (n->candidates[i].tstate == tstate)
			return &n->candidates[i];
	return NULL;
}

/*
 * False if it was copied and nothing came of it.
 *
 * A thread that was wanted and could not be copied keeps its Python stack, but goes through the
 * same comparison, so that `kept` stays right when native frames come back.
 */
static bool merge_thread(struct native_process *n, const struct python_place *place,
			 struct python_thread *t, struct err *err)
{
	const struct native_candidate *c = candidate_of(n, t->tstate);
	struct native_stack native;

	if (!c)
		return true;
	if (!c->copied) {
		adopt_python(n, t);
		return true;
	}
	if (native_unwind(n, c->tid, place, &native, err) < 0) {
		adopt_python(n, t);
		return false;
	}
	adopt_merged(n, t, &native);
	native_stack_release(&native);
	return true;
}

unsigned native_add_merge(struct native_process *n, struct python_process *p, struct err *first)
{
	unsigned failed = 0;
	struct err e = {0};

	if (n->ncandidates && python_resolve(p, &e) < 0) {
		count_failure(&failed, &e, first);
		return failed;
	}
	for (size_t i = 0; i < n->nmerged; i++)
		n->merged[i].seen = false;
	for (unsigned i = 0; i < p->nthreads; i++)
		if (!merge_thread(n, &p->place, &p->threads[i], &e))
			count_failure(&failed, &e, first);
	forget_unseen(n);
	n->ncandidates = 0;
	return failed;
}
