/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * When watched blocks are looked at: at the edges of operators, which come as marks of torch's
 * dispatcher, from the hooks of ATB, or as launches of kernels.
 *
 * Each device has a window of its own: operators of one device say nothing about the memory of
 * another, and a thread can only read the memory of its own. Host memory has one, too, and is
 * sampled by every thread.
 *
 *	window of a device
 *	  closed --- operator `start` ends, its outputs are in slots ---> open
 *	  open   --- operator `end` ends ------------------------------> closed
 *
 *	begin of any operator    sample what is watched
 *	output of `start`        a slot is filled; it waits for the end of its operator (`waits`)
 *	end of any operator      `start`: its slots are watched from here on; sample; `end`: close
 *
 * A thread keeps the operators that it is in (frames); one that never ends is pushed out by others.
 * `busy` keeps the runtime's own work for a sample (copies, allocations) from being recorded; the
 * stack pointer beside it shows a sample that was left by longjmp().
 */
#include "guest/watch/watch.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/watch/slots.h"

#define WINDOWS (WATCH_DEVICES + 1) /* the last one: host memory */
#define DEPTH 16u

static struct {
	_Atomic uint32_t epoch; /* of the process that all this belongs to */
	_Atomic uint32_t over; /* the end was reached, and no start can come again */
	_Atomic uint32_t open[WINDOWS];
} state;

/* Operators that this thread is in. */
struct frame {
	uint64_t hash;
	uint32_t call;
	uint16_t outputs; /* seen so far */
	bool is_start, is_end;
};

static __thread struct {
	uint32_t epoch;
	uint16_t depth;
	uint8_t busy;
	uint64_t sp; /* of the hook that is busy */
	uint64_t kernel; /* launched last */
	struct frame frames[DEPTH];
} self __attribute__((tls_model("initial-exec")));

/*
 * Who is not above the frame any more that was at work has jumped out of it.
 *
 * The sample may have been left by longjmp() out of a signal handler: then this call is at least as
 * high on the stack, and the mark is stale.
 */
bool watch_is_busy(void)
{
	if (self.busy && guest_sp() >= self.sp)
		self.busy = 0;
	return self.busy;
}

static uint32_t my_tid(void)
{
	if (guest_self.tid && guest_self.epoch == guest_epoch_now())
		return guest_self.tid;
	return (uint32_t)syscall(SYS_gettid);
}

static uint64_t hash_of(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return h;
}

/* The tables of a forked child are about its parent's memory: the first thread of the child that
 * comes here, by the epoch (guest.h), clears them. */
static void follow_fork(void)
{
	uint32_t now = guest_epoch_now(), was = atomic_load(&state.epoch);

	if (self.epoch != now) {
		self.epoch = now;
		self.depth = self.busy = 0;
		watch_forget_held();
	}
	if (was == now || !atomic_compare_exchange_strong(&state.epoch, &was, now) || !was)
		return;
	watch_slots_clear();
	for (uint32_t i = 0; i < WINDOWS; i++)
		atomic_store(&state.open[i], 0);
	atomic_store(&state.over, 0);
	watch_count_clear();
}

/* True: this thread may go on; watch_leave() follows. */
static bool enter_hook(void)
{
	if (!collect_wants(WANT_WATCH))
		return false;
	follow_fork();
	if (watch_is_busy())
		return false;
	self.sp = guest_sp();
	self.busy = 1;
	return true;
}

static void leave_hook(void)
{
	self.busy = 0;
}

bool watch_is_over(void)
{
	return atomic_load(&state.over);
}

/*
 * --- operators ---
 *
 * Sixteen operators deep; deeper nesting, or ends that never came, push out the outermost.
 */
static struct frame *frame_push(const char *op)
{
	if (self.depth == DEPTH) { /* begun and never ended: the oldest is forgotten */
		memmove(self.frames, self.frames + 1, sizeof(self.frames[0]) * (DEPTH - 1));
		self.depth--;
	}
	struct frame *f = &self.frames[self.depth++];
	*f = (struct frame){.hash = hash_of(op)};
	return f;
}

/* The innermost frame of the operator, NULL if it is not running in this thread. */
static struct frame *frame_find(const char *op)
{
	uint64_t hash = hash_of(op);

	for (uint16_t i = self.depth; i > 0; i--)
		if (self.frames[i - 1].hash == hash)
			return &self.frames[i - 1];
	return NULL;
}

static void frame_name(struct frame *f, const char *op)
{
	struct watch_settings w = watch_settings();

	f->is_start = watch_name_matches(w.start, SESSION_NAME_BYTES, op);
	f->is_end = watch_name_matches(w.end, SESSION_NAME_BYTES, op);
}

/* The window of a device's memory; WINDOWS: there is none. */
static uint32_t window_of(uint16_t device)
{
	return device == DEV_HOST ? WATCH_DEVICES : device < WATCH_DEVICES ? device : WINDOWS;
}

static bool is_open(uint16_t device)
{
	uint32_t window = window_of(device);

	return window < WINDOWS && atomic_load(&state.open[window]);
}

static void op_begin(const char *op)
{
	struct watch_edge e = {.op = watch_name_plain(op), .device = watch_device->current()};

	struct frame *f = frame_push(op);
	frame_name(f, op);
	f->call = e.call = watch_count(e.op, e.device, my_tid());
	if (f->is_start)
		watch_slots_drop_waiting(my_tid());
	watch_sample(&e, true);
}

static bool output_is_wanted(const struct frame *f, uint16_t device, uint32_t index)
{
	uint32_t wanted = watch_settings().output;

	return f->is_start && window_of(device) < WINDOWS && !is_open(device) &&
	       (wanted == UINT32_MAX || wanted == index);
}

static void op_output(const char *op, uint16_t device, uint64_t addr, uint64_t bytes,
		      uint32_t index)
{
	struct frame *f = frame_find(op);

	if (f && index == WATCH_NEXT_OUTPUT)
		index = f->outputs++;
	if (!f || !output_is_wanted(f, device, index) || !addr || !bytes || addr + bytes < addr)
		return;
	struct slot *s = watch_slot_take();
	if (!s) {
		guest_lost(1);
		return;
	}
	struct watched v = {
		.addr = addr,
		.bytes = bytes,
		.output = index,
		.watched_call = f->call,
		.device = device,
	};
	watch_slot_fill(s, &v, watch_name_plain(op), -1);
	atomic_store(&s->waits, my_tid());
}

/*
 * The operator is through: its outputs are watched from here on. Not those whose window another
 * thread has opened meanwhile.
 *
 * Slots that wait for this thread become watched. The first one of a window opens it; one whose
 * window another thread has opened since is dropped.
 */
static bool begin_watch(void)
{
	uint32_t tid = my_tid(), opened = WINDOWS;
	bool any = false;

	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		struct slot *s = &watch_slots[i];
		struct watched v;
		if (atomic_load(&s->waits) != tid)
			continue;
		watch_slot_watch(s);
		if (!watch_slot_copy(s, &v, WATCHED_HEAD))
			continue;
		uint32_t window = window_of(v.device);
		if (window >= WINDOWS || (window != opened && is_open(v.device))) {
			watch_slot_drop(s, v.id);
			continue;
		}
		opened = window;
		atomic_store(&state.open[window], 1);
		any = true;
	}
	return any;
}

static void close_window(uint16_t device)
{
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		struct watched v;
		if (watch_slot_copy(&watch_slots[i], &v, WATCHED_HEAD) && !v.named &&
		    v.device == device)
			watch_slot_drop(&watch_slots[i], v.id);
	}
	if (window_of(device) < WINDOWS)
		atomic_store(&state.open[window_of(device)], 0);
}

/*
 * The end was reached: without a start, that is all there will be.
 *
 * Without a start there is no second window: everything stops, and the edges cost one test again.
 */
static void end_watch(uint16_t device, bool host)
{
	if (!watch_settings().start[0])
		atomic_store(&state.over, 1);
	close_window(device);
	if (host)
		close_window(DEV_HOST);
}

/* An end without a beginning (the thread began to be recorded in between) is still an edge; it
 * has no call number. */
static void op_end(const char *op)
{
	struct frame *f = frame_find(op), lost = {0};
	struct watch_edge e = {
		.op = watch_name_plain(op), .device = watch_device->current(), .after = true};

	if (!f) {
		f = &lost;
		frame_name(f, op);
	} else {
		self.depth = (uint16_t)(f - self.frames);
	}
	e.call = f->call;
	bool open = is_open(e.device) || is_open(DEV_HOST) || !watch_settings().start[0];
	bool began = f->is_start && begin_watch();
	watch_sample(&e, true);
	if (f->is_end && open && !began)
		end_watch(e.device, true);
}

void collect_watch_begin(const char *op)
{
	int saved = errno;

	if (!enter_hook())
		return;
	op_begin(op);
	leave_hook();
	errno = saved;
}

void collect_watch_output_on(const char *op, uint16_t device, uint64_t addr, uint64_t bytes,
			     uint32_t index)
{
	int saved = errno;

	if (!enter_hook())
		return;
	op_output(op, device, addr, bytes, index);
	leave_hook();
	errno = saved;
}

void collect_watch_output(const char *op, uint64_t addr, uint64_t bytes, uint32_t index)
{
	if (collect_wants(WANT_WATCH))
		collect_watch_output_on(op, watch_device->current(), addr, bytes, index);
}

void collect_watch_end(const char *op)
{
	int saved = errno;

	if (!enter_hook())
		return;
	op_end(op);
	leave_hook();
	errno = saved;
}

/* --- launches of kernels, whose names are known when they are through --- */

void watch_launched(uint64_t name_hash)
{
	self.kernel = name_hash;
}

void collect_watch_launch(void)
{
	int saved = errno;

	if (!enter_hook())
		return;
	self.kernel = 0;
	watch_hold(watch_device->current());
	leave_hook();
	errno = saved;
}

/* The name of a kernel is known when its launch is through: the sample before it was held, and
 * is written now, under that name. */
void collect_watch_launched(void)
{
	int saved = errno;

	if (!enter_hook())
		return;
	const char *name = watch_name_text(self.kernel);
	struct watch_edge e = {.op = name ? name : "kernel", .device = watch_device->current()};
	struct frame f = {0};
	if (e.device < WATCH_DEVICES) {
		frame_name(&f, e.op);
		e.call = watch_count(e.op, e.device, my_tid());
		watch_emit_held(&e);
		e.after = true;
		watch_sample(&e, false);
		if (f.is_end && (is_open(e.device) || !watch_settings().start[0]))
			end_watch(e.device, false);
	}
	leave_hook();
	errno = saved;
}

/* --- blocks of the program's own --- */

/* The recorder passes over what happens on the host, unless it knows that it is needed. */
static void want_host(void)
{
	struct rec_settings s = guest.configured ? guest.settings : guest.page->settings;

	if (s.watch & SETTINGS_WATCH_HOST)
		return;
	s.watch |= SETTINGS_WATCH | SETTINGS_WATCH_HOST;
	guest_configure(&s, atomic_load(&guest.want), NULL);
}

/* Turns the watch on for the whole process: from here on operators are reported, whatever the
 * recording was started with. */
bool collect_watch_named(uint16_t device, uint64_t addr, uint64_t bytes, const char *name,
			 int32_t dumps)
{
	if (!addr || !bytes || addr + bytes < addr || !name || guest_mode() < GUEST_SHADOW)
		return false;
	/* Also without --watch: then the operators must be reported from here on. */
	atomic_fetch_or(&guest.want, WATCH_WANTS);
	follow_fork();
	watch_unnamed(addr);
	struct slot *s = watch_slot_take();
	if (!s)
		return false;
	int saved = errno;
	struct watched v = {
		.addr = addr,
		.bytes = bytes,
		.output = WATCH_NO_OUTPUT,
		.device = device,
		.named = true,
	};
	watch_slot_fill(s, &v, name, dumps);
	watch_slot_watch(s);
	if (device == DEV_HOST)
		want_host();
	errno = saved;
	return true;
}

bool watch_named(uint64_t addr, uint64_t bytes, const char *name, int32_t dumps)
{
	return collect_watch_named(watch_device->current(), addr, bytes, name, dumps);
}

/*
 * What is watched without being named: what the program said itself, or else what the recording was
 * started with. Two places, used in turn: a thread may be reading the one while the other is
 * filled.
 */

static struct own {
	struct watch_settings w;
	char start[SESSION_NAME_BYTES], end[SESSION_NAME_BYTES];
} own[2];
static _Atomic(struct own *) own_now;

static void copy_name(char out[SESSION_NAME_BYTES], const char *name)
{
	size_t n = strnlen(name, SESSION_NAME_BYTES - 1);

	memset(out, 0, SESSION_NAME_BYTES);
	memcpy(out, name, n);
}

void collect_watch_configure(const char *start, uint32_t output, const char *end, bool content)
{
	struct own *o = &own[atomic_load(&own_now) == &own[0]];

	copy_name(o->start, start);
	copy_name(o->end, end);
	o->w = (struct watch_settings){o->start, o->end, output, content};
	atomic_store(&own_now, o);
}

struct watch_settings watch_settings(void)
{
	const struct own *o = atomic_load_explicit(&own_now, memory_order_acquire);
	const struct control_page *p = guest.page;

	if (o)
		return o->w;
	return (struct watch_settings){p->watch_start, p->watch_end, p->watch_output,
				       p->watch_content != 0};
}
