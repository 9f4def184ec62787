/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The list of threads: copied with the stacks, kept between two rounds; which thread of the system
 * each one is, and whether it runs or sleeps.
 *
 *	interpreters.head -> interpreter -> next …
 *	                       threads.head -> newest thread state -> next -> … -> main thread
 *
 * The list is not read as a list first: each thread's walk brings its own thread state along, and
 * with it the next pointer. The first thread of an interpreter brings the interpreter's own words
 * (interpreter.h). So a round over n threads costs n system calls, not 2n + 1.
 *
 * A list changes while it is read. Signs: a thread state whose interp is another (-EFAULT: it has
 * ended and its memory is something else), a thread that is met twice in one round (-ELOOP), a head
 * that is not the first interpreter any more. Then the round starts over, LIST_TRIES times.
 *
 * A slot belongs to an address; addresses of thread states are used again. Another thread id at the
 * same address is another thread: it gets a new serial, and nothing of the old one is kept.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "unwind/remote/process_state.h"
#include "wire/proc_stat.h"

static void close_files(struct thread_slot *s)
{
	if (s->stat_fd >= 0)
		close(s->stat_fd);
	if (s->sched_fd >= 0)
		close(s->sched_fd);
	s->stat_fd = s->sched_fd = -1;
}

void thread_slot_free(struct thread_slot *s)
{
	walk_thread_release(&s->walk);
	free(s->out.frames);
	close_files(s);
	free(s);
}

static struct thread_slot *slot_new(struct python_process *p, uint64_t tstate)
{
	struct python_inside *in = p->inside;
	struct thread_slot *s = xcalloc(1, sizeof(*s));

	s->walk.tstate = tstate;
	s->stat_fd = s->sched_fd = -1;
	s->out.tstate = tstate;
	s->out.serial = ++in->serial;
	s->out.name = "";
	hmap_put_ptr(&in->by_tstate, tstate, s);
	return s;
}

/*
 * Another thread has its state where this one had it.
 *
 * What was known about the former thread must not be compared with, or shown for, the new one.
 */
static void slot_renew(struct python_process *p, struct thread_slot *s)
{
	s->out.serial = ++p->inside->serial;
	s->out.name = "";
	s->out.nframes = 0;
	s->out.tid = 0;
	s->out.inner_tid = 0;
	s->out.thread_id = 0;
	s->walk.before.n = 0;
	s->name_due_ns = 0;
	s->name_wait_ns = 0;
	close_files(s);
}

/*
 * Where the GIL begins; 0 if there is none.
 *
 * In all versions the GIL's structure is: interval, last_holder, locked, …, switch_number. Before
 * 3.12 it is part of _PyRuntime and begins one word before last_holder.
 */
static uint64_t gil_words(const struct python_process *p, const struct remote_interp *i)
{
	const struct python_layout *l = &p->place.layout;

	if (l->free_threaded)
		return 0;
	return l->minor <= 11 ? p->place.runtime + l->runtime.gil_last_holder - 8 : i->gil;
}

/* -EFAULT: it is no thread of this interpreter (any more). */
static int slot_capture(struct python_process *p, struct thread_slot *s, struct remote_interp *i,
			const struct remote_span *extra, unsigned nextra)
{
	uint64_t now = clock_mono_ns();

	s->walk.gil = p->inside->o.exact ? gil_words(p, i) : 0;
	int ret = walk_thread(&p->inside->walker, &s->walk, extra, nextra);

	if (ret < 0 && ret != -EAGAIN)
		return ret;
	if (s->walk.interp != i->addr)
		return -EFAULT;
	if (s->out.thread_id && s->out.thread_id != s->walk.thread_id)
		slot_renew(p, s);
	s->out.time_ns = now;
	s->interp = i;
	s->seen = p->inside->round;
	s->fresh = ret == 0;
	s->missed = ret != 0;
	return 0;
}

/* Makes sense of the interpreter's own words, which were just read. */
static void take_interp(struct python_process *p, struct remote_interp *i)
{
	struct python_inside *in = p->inside;

	if (!interp_read(i, &in->runtime, &p->place) &&
	    remote_read(&p->remote, i->gil, i->gil_bytes, sizeof(i->gil_bytes)) < 0)
		i->gil = 0;
	interp_holder(i, &in->runtime, &p->place);
	i->seen = in->round;
}

/*
 * The first known thread of the interpreter brings the interpreter's own words along.
 *
 * If the interpreter has no known thread, or that thread has ended, its words are read alone.
 */
static int read_interp(struct python_process *p, struct remote_interp *i, bool first)
{
	struct python_inside *in = p->inside;
	struct remote_span spans[INTERP_SPANS];
	unsigned n = runtime_spans(&in->runtime, &p->place, i, first, spans);
	int ret = -EFAULT;

	for (unsigned k = 0; k < in->nslots; k++) {
		if (in->slots[k]->interp != i)
			continue;
		ret = slot_capture(p, in->slots[k], i, spans, n);
		if (ret == -EFAULT)
			in->slots[k]->seen = 0;
		break;
	}
	if (ret == -EFAULT) {
		int got = remote_readv(&p->remote, spans, n);

		/* The GIL's words are the last: it may be gone with a changed address. */
		ret = got < 0 ? got : (unsigned)got + (i->gil != 0) >= n ? 0 : -EFAULT;
	}
	if (ret == 0)
		take_interp(p, i);
	return ret;
}

/*
 * MainThread alone: nothing has to be known about the others. -EFAULT if it is not there.
 *
 * One system call in all: the runtime's words, the interpreter's words and the stack.
 */
static int capture_main(struct python_process *p)
{
	struct python_inside *in = p->inside;
	struct remote_interp *i = in->main->interp;
	struct remote_span spans[INTERP_SPANS];
	unsigned n = runtime_spans(&in->runtime, &p->place, i, true, spans);

	in->round++;
	int ret = slot_capture(p, in->main, i, spans, n);
	if (ret == 0)
		ret = runtime_read(&in->runtime, &p->place);
	if (ret == 0)
		take_interp(p, i);
	return ret;
}

/* The thread state is part of what a walk copies, so `next` is there after the walk of the
 * thread before. */
static int list_threads(struct python_process *p, struct remote_interp *i, unsigned *n)
{
	struct python_inside *in = p->inside;
	unsigned in_list = 0;

	for (uint64_t at = i->threads_head; at; in_list++) {
		struct thread_slot *s = hmap_get_ptr(&in->by_tstate, at);

		if (in_list == PYTHON_MAX_THREADS)
			return -ELOOP;
		if (!s)
			s = slot_new(p, at);
		if (s->seen != in->round) {
			int ret = slot_capture(p, s, i, NULL, 0);

			if (ret < 0)
				return ret;
		}
		/* A list that was read while it changed may lead back into itself. */
		if (s->listed == in->round)
			return -ELOOP;
		s->listed = in->round;
		in->scratch = xgrow(in->scratch, &in->scratch_cap, *n + 1, sizeof(*in->scratch));
		in->scratch[(*n)++] = s;
		at = s->walk.next;
	}
	return 0;
}

/*
 * All interpreters, all threads: into in->scratch.
 *
 * The head of the list of interpreters is known from the last round and read along with the first
 * thread: if it is another one now, the round begins anew.
 */
static int list_all(struct python_process *p, unsigned *n)
{
	struct python_inside *in = p->inside;
	struct remote_runtime *r = &in->runtime;
	uint64_t at = r->head;

	if (!at) {
		struct remote_span span;

		runtime_spans(r, &p->place, NULL, true, &span);
		int ret = remote_readv(&p->remote, &span, 1);
		if (ret != 1)
			return ret < 0 ? ret : -EAGAIN;
		ret = runtime_read(r, &p->place);
		if (ret < 0)
			return ret;
		at = r->head;
	}
	for (unsigned count = 0; at; count++) {
		struct remote_interp *i = runtime_interp(r, at);
		int ret = i && count < MAX_INTERPS ? read_interp(p, i, !count) : -ELOOP;

		if (ret == 0 && !count)
			ret = runtime_read(r, &p->place);
		/* Another interpreter may have come to the front of the list. */
		if (ret == 0 && !count && r->head != at)
			ret = -EFAULT;
		if (ret == 0)
			ret = list_threads(p, i, n);
		if (ret < 0)
			return ret;
		at = i->next;
	}
	return 0;
}

/*
 * Those that are in no list any more have ended.
 *
 * The list that was made becomes the current one, and the other way round: nothing is allocated in
 * a round that finds the same threads.
 */
static void take_list(struct python_process *p, unsigned n)
{
	struct python_inside *in = p->inside;

	for (unsigned i = 0; i < in->nslots; i++) {
		struct thread_slot *s = in->slots[i];

		if (s->listed == in->round)
			continue;
		if (in->main == s)
			in->main = NULL;
		hmap_remove(&in->by_tstate, s->walk.tstate);
		thread_slot_free(s);
	}
	struct thread_slot **old = in->slots;
	size_t old_cap = in->slots_cap;
	in->slots = in->scratch;
	in->slots_cap = in->scratch_cap;
	in->nslots = n;
	for (unsigned i = 0; i < n; i++)
		in->slots[i]->known = true;
	in->scratch = old;
	in->scratch_cap = old_cap;
	runtime_prune(&in->runtime, in->round);
}

/*
 * New slots that were made in a try that failed are in no list yet.
 *
 * A try that failed half-way has made slots for thread states that it met: they may have been none.
 */
static void drop_unlisted(struct python_process *p)
{
	struct python_inside *in = p->inside;
	uint64_t key, value;
	unsigned n = 0;

	for (size_t at = 0; hmap_next(&in->by_tstate, &at, &key, &value);) {
		struct thread_slot *s = (void *)(uintptr_t)value;

		if (s->known)
			continue;
		in->scratch = xgrow(in->scratch, &in->scratch_cap, n + 1, sizeof(*in->scratch));
		in->scratch[n++] = s;
	}
	for (unsigned i = 0; i < n; i++) {
		hmap_remove(&in->by_tstate, in->scratch[i]->walk.tstate);
		thread_slot_free(in->scratch[i]);
	}
}

#define LIST_TRIES 4

/* With main_only and a main thread that is known, one walk and nothing else. When that fails,
 * the whole list is read anew, and decides again who the main thread is. */
int threads_capture(struct python_process *p)
{
	struct python_inside *in = p->inside;
	int ret = -EAGAIN;

	in->only_main = in->main != NULL;
	if (in->only_main) {
		ret = capture_main(p);
		if (ret != -EFAULT)
			return ret;
		in->only_main = false;
		in->main = NULL;
	}
	for (unsigned i = 0; i < LIST_TRIES; i++) {
		unsigned n = 0;

		in->round++;
		ret = list_all(p, &n);
		if (ret == 0) {
			take_list(p, n);
			return 0;
		}
		drop_unlisted(p);
		in->runtime.head = 0;
		if (ret == -ESRCH || ret == -EPERM)
			return ret;
	}
	return ret == -EFAULT || ret == -ELOOP ? -EAGAIN : ret;
}

/* --- thread ids --- */

/*
 * Which thread of the system is it? From 3.11 on the interpreter knows; before, the C library's own
 * structure at pthread_self() holds the id, at an offset that is found by looking for the process'
 * own id in that of the main thread. Both are ids of the process' pid namespace, which may not be
 * ours.
 */

#define PTHREAD_BYTES 2048
#ifdef __x86_64__
#	define GLIBC_TID 720
#else
#	define GLIBC_TID 208
#endif

static int small_file(const char *path, char *out, size_t cap)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, cap - 1);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

/* The innermost id in the NSpid line of a status file; 0 if there is none. */
static pid_t innermost_id(const char *path, bool *out_several)
{
	char text[4096];
	char *line;

	*out_several = false;
	if (small_file(path, text, sizeof(text)) < 0 || !(line = strstr(text, "\nNSpid:")))
		return 0;
	line += strlen("\nNSpid:");
	line[strcspn(line, "\n")] = '\0';
	pid_t id = 0;
	unsigned n = 0;
	for (char *at = line, *end;; at = end, n++) {
		long v = strtol(at, &end, 10);

		if (end == at)
			break;
		id = (pid_t)v;
	}
	*out_several = n > 1;
	return id;
}

void tids_init(struct python_process *p)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)p->pid);
	p->inside->inner_pid = innermost_id(path, &p->inside->other_namespace);
	if (!p->inside->inner_pid)
		p->inside->inner_pid = p->pid;
	p->inside->tid_offset = PYTHON_NONE;
}

/* Halved until it can be read: the size of struct pthread differs between C libraries. */
static uint32_t read_first(struct python_process *p, uint64_t address, uint8_t *out)
{
	uint32_t n = PTHREAD_BYTES;

	/* The structure lies at the end of a mapping: what follows it may not be there. */
	while (n >= 256 && remote_read(&p->remote, address, out, n) < 0)
		n /= 2;
	return n >= 256 ? n : 0;
}

/*
 * Other threads have other ids at the same place. The first process of a container is process 1: a
 * number that stands in many places.
 *
 * The offset of the id in struct pthread is the C library's own affair. It is found in the main
 * thread, whose id is the process' id; any other thread must then have another number at the same
 * offset.
 */
static bool others_differ(struct python_process *p, uint32_t at)
{
	const struct python_inside *in = p->inside;
	int32_t id;

	for (unsigned i = 0; i + 1 < in->nslots; i++)
		if (remote_read(&p->remote, in->slots[i]->walk.thread_id + at, &id, sizeof(id)) ==
			    0 &&
		    (id <= 0 || id == in->inner_pid))
			return false;
	return true;
}

static bool is_offset(struct python_process *p, const uint8_t *bytes, uint32_t n, uint32_t at)
{
	int32_t id;

	if (at + sizeof(id) > n)
		return false;
	memcpy(&id, bytes + at, sizeof(id));
	return id == p->inside->inner_pid && others_differ(p, at);
}

/* Looks for the process' id in the structure of its first thread, the last in the list; where glibc
 * has it first. */
static void find_offset(struct python_process *p)
{
	struct python_inside *in = p->inside;
	uint8_t bytes[PTHREAD_BYTES];

	if (!in->nslots || in->tid_offset_tried)
		return;
	in->tid_offset_tried = true;
	uint32_t n = read_first(p, in->slots[in->nslots - 1]->walk.thread_id, bytes);
	uint32_t at = GLIBC_TID;

	if (!is_offset(p, bytes, n, at))
		for (at = 0; at < n && !is_offset(p, bytes, n, at);)
			at += sizeof(int32_t);
	if (at < n)
		in->tid_offset = at;
}

static pid_t inner_tid(struct python_process *p, const struct thread_slot *s)
{
	int32_t id;

	if (p->place.layout.tstate.native_thread_id != PYTHON_NONE)
		return s->walk.native_id <= INT32_MAX ? (pid_t)s->walk.native_id : 0;
	find_offset(p);
	if (p->inside->tid_offset == PYTHON_NONE ||
	    remote_read(&p->remote, s->walk.thread_id + p->inside->tid_offset, &id, sizeof(id)) < 0)
		return 0;
	return id > 0 ? id : 0;
}

/* The thread that calls itself `inner` in its own namespace, as we see it. */
static pid_t outer_tid(struct python_process *p, pid_t inner)
{
	char path[300];
	pid_t found = 0;

	if (inner == p->inside->inner_pid)
		return p->pid;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)p->pid);
	if (!p->inside->other_namespace) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)p->pid, (int)inner);
		return access(path, F_OK) == 0 ? inner : 0;
	}
	DIR *dir = opendir(path);
	for (struct dirent *d; dir && !found && (d = readdir(dir));) {
		bool several;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)p->pid, d->d_name);
		if (d->d_name[0] != '.' && innermost_id(path, &several) == inner)
			found = (pid_t)atoi(d->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* From 3.11 on the interpreter has the number as the process' own namespace counts it; /proc of
 * our namespace maps it to ours. */
void tids_find(struct python_process *p, struct thread_slot *s)
{
	s->out.inner_tid = inner_tid(p, s);
	s->out.tid = s->out.inner_tid ? outer_tid(p, s->out.inner_tid) : 0;
	if (s->out.inner_tid)
		s->out.main = s->out.inner_tid == p->inside->inner_pid;
	else
		s->out.main = s == p->inside->slots[p->inside->nslots - 1];
}

bool tids_stat(struct python_process *p, struct thread_slot *s, char *out, size_t cap)
{
	char path[64];

	if (s->stat_fd < 0) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)p->pid, (int)s->out.tid);
		s->stat_fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	ssize_t n = s->stat_fd < 0 ? -1 : pread(s->stat_fd, out, cap - 1, 0);
	if (n <= 0)
		return false;
	out[n] = '\0';
	return true;
}

void tids_state(struct python_process *p, struct thread_slot *s)
{
	char text[PROC_STAT_BYTES];
	struct proc_stat stat;

	s->out.state = THREAD_UNKNOWN;
	if (s->out.tid && tids_stat(p, s, text, sizeof(text)) &&
	    proc_stat_parse(text, strlen(text), &stat))
		s->out.state = stat.state == 'R' ? THREAD_RUNNING : THREAD_IDLE;
}
