/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Copies of threads, and libdwfl walking them as if they were the threads.
 *
 * libdwfl asks for memory word by word (memory_read()). Inside the copy it gets the copy. The rest
 * of the same stack has moved on by now and is refused. Anything else, such as a register save area
 * that was set up long ago, is read from the process as it is, FAR_READS words per walk.
 *
 * A walk that stops early is tried once more with fresh maps: a library may have been loaded since.
 * Where it still went astray, the last addresses are no code, and are dropped.
 */
#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "unwind/remote/native/native_impl.h"

#define COPY_MAX_BYTES ((size_t)1 << 20)
#define RED_ZONE 128 /* below SP, and yet in use */
#define FAR_READS 4096 /* words outside the copy that one walk may ask for */

/*
 * --- the copy ---
 *
 * A megabyte of room per thread that is copied at the same time; used again once it was unwound.
 */
static struct native_copy *copy_for(struct native_process *p, pid_t tid)
{
	struct native_copy *unused = NULL;

	for (size_t i = 0; i < p->ncopy; i++) {
		if (p->copy[i].tid == tid)
			return &p->copy[i];
		if (p->copy[i].taken)
			unused = &p->copy[i];
	}
	if (!unused) {
		p->copy = xgrow(p->copy, &p->cap_copy, p->ncopy + 1, sizeof(p->copy[0]));
		unused = &p->copy[p->ncopy++];
		*unused = (struct native_copy){0};
	}
	unused->tid = tid;
	return unused;
}

struct capture {
	struct native_process *p;
	struct native_copy *copy;
	void (*stopped)(void *arg);
	void *arg;
};

/*
 * Runs while the thread stands still.
 *
 * Everything that must be of this moment: registers, stack, and what `stopped` copies (Python's
 * frames). The mapping that the stack lies in says where it ends; without it a read that ends early
 * does.
 */
static void copy_thread(void *arg, const struct stopped_regs *regs)
{
	struct capture *c = arg;
	struct native_copy *copy = c->copy;

	copy->regs = *regs;
	copy->addr = regs->sp > RED_ZONE ? (regs->sp - RED_ZONE) & ~7ull : 0;
	copy->map_end = native_stack_end(c->p, regs->sp);
	size_t n = COPY_MAX_BYTES;
	if (copy->map_end && copy->map_end - copy->addr < n)
		n = (size_t)(copy->map_end - copy->addr);
	/* No more than there is: what lies behind the stack's end ends the copy. */
	struct iovec here = {copy->bytes, n}, there = {(void *)(uintptr_t)copy->addr, n};
	ssize_t got = process_vm_readv(c->p->pid, &here, 1, &there, 1, 0);
	copy->len = got > 0 ? (size_t)got : 0;
	copy->taken = false;
	if (c->stopped)
		c->stopped(c->arg);
}

int native_capture_thread(struct native_process *p, pid_t tid, void (*stopped)(void *arg),
			  void *arg, struct err *err)
{
	native_modules_refresh(p, false);
	struct capture c = {p, copy_for(p, tid), stopped, arg};

	if (!c.copy->bytes)
		c.copy->bytes = xmalloc(COPY_MAX_BYTES);
	c.copy->taken = true; /* until there is one */
	uint64_t took_ns;
	int r = thread_stop(p->pid, tid, copy_thread, &c, &took_ns, err);
	if (r == 0) {
		p->counts.captures++;
		p->counts.stopped_ns += took_ns;
	}
	return r;
}

/* --- what libdwfl asks while it walks --- */

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
	struct native_process *p = arg;

	(void)dwfl;
	if (*thread_arg)
		return 0;
	*thread_arg = p;
	return p->unwinding->tid;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread_arg)
{
	struct native_process *p = arg;

	(void)dwfl;
	*thread_arg = p;
	return tid == p->unwinding->tid;
}

/* libdwfl asks for words. The bound on far reads is for damaged chains, which would otherwise
 * send thousands of system calls. */
static bool memory_read(Dwfl *dwfl, Dwarf_Addr addr, Dwarf_Word *out, void *arg)
{
	struct native_process *p = arg;
	const struct native_copy *c = p->unwinding;
	uint64_t word;

	(void)dwfl;
	if (addr >= c->addr && addr - c->addr < c->len &&
	    c->len - (addr - c->addr) >= sizeof(word)) {
		memcpy(&word, c->bytes + (addr - c->addr), sizeof(word));
	} else {
		/* The rest of the stack has moved on by now. */
		if (addr >= c->addr && addr < c->map_end)
			return false;
		if (!p->far_reads || !p->far_reads--)
			return false;
		if (remote_read(&p->remote, addr, &word, sizeof(word)) < 0)
			return false;
	}
	*out = word;
	return true;
}

/* As DWARF numbers them, which is how stop.c has put them. */
static bool set_initial_registers(Dwfl_Thread *thread, void *thread_arg)
{
	const struct native_process *p = thread_arg;
	const struct stopped_regs *r = &p->unwinding->regs;
	Dwarf_Word reg[STOP_REGS];

	for (unsigned i = 0; i < r->nreg; i++)
		reg[i] = r->reg[i];
	dwfl_thread_state_register_pc(thread, r->pc);
	return dwfl_thread_state_registers(thread, 0, r->nreg, reg);
}

static const Dwfl_Thread_Callbacks thread_callbacks = {
	.next_thread = next_thread,
	.get_thread = get_thread,
	.memory_read = memory_read,
	.set_initial_registers = set_initial_registers,
};

int native_dwfl_attach(struct native_process *p, Elf *machine)
{
	return dwfl_attach_state(p->dwfl, machine, p->pid, &thread_callbacks, p) ? 0 : -EIO;
}

/* --- the walk --- */

struct walk {
	struct native_process *p;
	uint64_t *pc; /* innermost first, each inside its instruction */
	size_t n, cap;
	bool lost; /* an address that no module has */
};

/*
 * A return address is behind the call: one less is inside of it, and names the right function when
 * the call is its last instruction. The innermost frame, and one that a signal interrupted, is at
 * the instruction itself (activation).
 */
static int on_frame(Dwfl_Frame *frame, void *arg)
{
	struct walk *w = arg;
	Dwarf_Addr pc;
	bool activation;

	if (!dwfl_frame_pc(frame, &pc, &activation) || w->n >= NATIVE_MAX_DEPTH)
		return DWARF_CB_ABORT;
	if (!pc)
		return DWARF_CB_OK;
	w->pc = xgrow(w->pc, &w->cap, w->n + 1, sizeof(w->pc[0]));
	w->pc[w->n] = activation ? pc : pc - 1;
	w->lost |= !native_module_at(w->p, w->pc[w->n]);
	w->n++;
	return DWARF_CB_OK;
}

static bool walk_stack(struct walk *w)
{
	w->n = 0;
	w->lost = false;
	w->p->far_reads = FAR_READS;
	return dwfl_getthread_frames(w->p->dwfl, w->p->unwinding->tid, on_frame, w) == 0;
}

/* Walks again with fresh maps where that may lead further. */
static bool walk_with_fresh_maps(struct walk *w)
{
	bool whole = walk_stack(w);

	if ((w->lost || !whole) && native_modules_refresh(w->p, true))
		whole = walk_stack(w);
	/* Where it went astray, the last addresses are no code. */
	while (!whole && w->n > 1 && !native_module_at(w->p, w->pc[w->n - 1]))
		w->n--;
	return whole;
}

static bool begins_with(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* _PyEval_EvalFrameDefault, its .cold and .constprop parts, and the functions that a build with
 * tail calls is made of. */
static bool is_loop_name(const char *name)
{
	static const char loop[] = "_PyEval_EvalFrameDefault";
	size_t n = sizeof(loop) - 1;

	return (begins_with(name, loop) && (!name[n] || name[n] == '.')) ||
	       begins_with(name, "_TAIL_CALL_");
}

/* By the loop's address, or where _PyRuntime is, or by the path: in this order, since a program
 * may have the loop and the data in different files. */
static struct native_module *interpreter_of(struct native_process *p,
					    const struct python_place *place)
{
	struct native_module *m = NULL;

	if (!place)
		return NULL;
	if (place->eval_start)
		m = native_module_at(p, place->eval_start);
	if (!m)
		m = native_module_at(p, place->runtime);
	for (size_t i = 0; !m && i < p->nmodule; i++)
		if (!strncmp(p->module[i]->path, place->path, sizeof(place->path) - 1))
			m = p->module[i];
	if (m && !m->cold_tried)
		native_find_cold_loop(p, m, place->eval_start, place->eval_end);
	return m;
}

static bool is_within(uint64_t addr, uint64_t start, uint64_t end)
{
	return addr >= start && addr < end;
}

/* Three ways to know the interpreter's loop: by its name, by its address range where the symbol
 * was found, by the cold part where it has no name. */
static void add_frame(struct native_process *p, uint64_t pc, const struct python_place *place,
		      const struct native_module *interpreter, struct native_stack *out)
{
	const struct native_place *at = native_place_of(p, pc);
	bool internal = at->module && at->module == interpreter;
	unsigned i = out->n++;

	out->frames[i] = (struct stack_frame){.name = at->name,
					      .file = at->file,
					      .line = at->line,
					      .kind = FRAME_IS_NATIVE,
					      .address = pc};
	out->is_internal[i] = internal;
	out->is_eval[i] =
		place &&
		(is_loop_name(at->name) || is_within(pc, place->eval_start, place->eval_end) ||
		 (internal && is_within(pc, interpreter->cold_start, interpreter->cold_end)));
}

/* Names are looked up here, not while the thread stands still. */
int native_unwind(struct native_process *p, pid_t tid, const struct python_place *place,
		  struct native_stack *out, struct err *err)
{
	uint64_t start = clock_mono_ns();
	struct native_copy *copy = NULL;

	for (size_t i = 0; i < p->ncopy; i++)
		if (p->copy[i].tid == tid && !p->copy[i].taken)
			copy = &p->copy[i];
	if (!copy)
		return err_set(err, -ENOENT, "there is no copy of thread %d", (int)tid);
	struct walk w = {.p = p};
	p->unwinding = copy;
	*out = (struct native_stack){.whole = walk_with_fresh_maps(&w)};
	p->unwinding = NULL;
	copy->taken = true;
	const struct native_module *interpreter = interpreter_of(p, place);
	out->frames = xcalloc(w.n + 1, sizeof(out->frames[0]));
	out->is_eval = xcalloc(w.n + 1, sizeof(out->is_eval[0]));
	out->is_internal = xcalloc(w.n + 1, sizeof(out->is_internal[0]));
	for (size_t i = w.n; i-- > 0;)
		add_frame(p, w.pc[i], place, interpreter, out);
	free(w.pc);
	p->counts.unwound++;
	p->counts.unwind_ns += clock_mono_ns() - start;
	if (out->n)
		return 0;
	native_stack_release(out);
	return err_set(err, -EPROTO, "cannot unwind thread %d: %s", (int)tid, dwfl_errmsg(-1));
}

void native_stack_release(struct native_stack *s)
{
	free(s->frames);
	free(s->is_eval);
	free(s->is_internal);
	*s = (struct native_stack){0};
}
