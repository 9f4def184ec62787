/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * When watched blocks are looked at: at the edges of operators, which come as marks of torch's
 * dispatcher, from the hooks of ATB, or as launches of kernels.
 *
 * Each device has a window of its own: operators of one device say nothing about the memory of
 * another, and a thread can only read the memory of its own.
 */
#include "collect/watch.h"

#include "collect/watch_slots.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEVICES 64u
#define DEPTH 16u
#define HELD 8u
#define MAX_MARK 8192
#define ATEN "memscope-aten-"

static struct {
	_Atomic uint32_t epoch; /* of the process that all this belongs to */
	_Atomic uint32_t over; /* the end was reached, and no start can come again */
	_Atomic uint32_t open[DEVICES];
} state;

/* Operators that this thread is in. */
struct frame {
	uint64_t hash;
	uint32_t call;
	uint16_t outputs; /* seen so far */
	bool is_start, is_end;
};

/* A look that waits for the name of its kernel. */
struct held {
	uint64_t checksum, content;
	uint32_t id, error;
	uint8_t slot, content_errno;
};

static __thread struct {
	uint32_t epoch;
	uint16_t depth;
	uint8_t busy;
	uint8_t nheld;
	uint64_t sp; /* of the hook that is busy */
	uint64_t kernel; /* launched last */
	struct frame frames[DEPTH];
	struct held held[HELD];
} self __attribute__((tls_model("initial-exec")));

_Static_assert(WATCH_SLOTS <= 256, "held.slot is a byte");

/* Who is not above the frame any more that was at work has jumped out of it. */
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

/* Copies of the table in a forked child tell of its parent's memory. */
static void follow_fork(void)
{
	uint32_t now = guest_epoch_now(), was = atomic_load(&state.epoch);

	if (self.epoch != now) {
		self.epoch = now;
		self.depth = self.nheld = self.busy = 0;
	}
	if (was == now || !atomic_compare_exchange_strong(&state.epoch, &was, now) || !was)
		return;
	watch_slots_clear();
	for (uint32_t i = 0; i < DEVICES; i++)
		atomic_store(&state.open[i], 0);
	atomic_store(&state.over, 0);
	watch_count_clear();
}

/* True: this thread may go on; watch_leave() follows. */
static bool enter(void)
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

static void leave(void)
{
	self.busy = 0;
}

/* --- samples --- */

struct edge {
	const char *op;
	uint32_t call;
	uint16_t device;
	bool after;
};

static void put_sample(struct slot *slot, const struct watched *s, const struct edge *e,
		       const struct watch_look *look)
{
	uint32_t seq = watch_slot_next(slot, s->id);
	size_t nop = strnlen(e->op, SESSION_NAME_BYTES - 1);
	size_t nname = strnlen(s->name, SESSION_NAME_BYTES - 1);
	uint16_t len = (uint16_t)(nop + 1 + nname);
	uint16_t size = rec_size(sizeof(struct rec_watch), len);
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_watch *r = seq ? guest_reserve(size) : NULL;

	if (!r)
		watch_look_drop(look);
	if (r) {
		memset(r, 0, size);
		r->head = (struct rec){REC_WATCH, 0, size, 0, ns};
		r->addr = s->addr;
		r->size_bytes = s->bytes;
		r->checksum = look->checksum;
		r->content = look->content;
		r->watch = s->id;
		r->seq = seq;
		r->call = e->call;
		r->watched_call = s->watched_call;
		r->output = s->output;
		r->error = look->error;
		r->device = s->device;
		r->len = len;
		r->after = e->after;
		r->content_errno = look->content_errno;
		memcpy(r->text, e->op, nop);
		memcpy(r->text + nop + 1, s->name, nname);
		guest_publish(size);
	}
	guest_unhold(held);
}

/* The look at one slot; false: nothing to tell. */
static bool look_at(struct slot *s, uint16_t device, struct watched *out_watched,
		    struct watch_look *out)
{
	struct watched *w = out_watched;

	if (!watch_slot_is_of(s, device) || !watch_slot_copy(s, w, WATCHED_WORDS) ||
	    !watch_slot_use(s) || !watch_slot_enter(s, w->id))
		return false;
	struct watch_block block = {w->addr, w->bytes, &s->id, w->id};
	watch_look(&block, guest.page->watch_content != 0, out);
	watch_slot_leave(s);
	if (atomic_load(&s->id) != w->id) { /* freed meanwhile */
		watch_look_drop(out);
		return false;
	}
	if (w->device == DEV_NONE)
		w->device = device;
	return true;
}

/* Is there something to look at, and is all work done that could change it? */
static bool device_is_quiet(uint16_t device)
{
	bool any = false;

	if (!atomic_load(&watch_slots_live) || atomic_load(&state.over))
		return false;
	for (uint32_t i = 0; i < WATCH_SLOTS && !any; i++)
		any = watch_slot_is_of(&watch_slots[i], device);
	return any && watch_device->wait() == 0;
}

static void sample(const struct edge *e)
{
	struct watch_look look;
	struct watched v;

	if (!device_is_quiet(e->device))
		return;
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		if (!look_at(&watch_slots[i], e->device, &v, &look))
			continue;
		put_sample(&watch_slots[i], &v, e, &look);
		if (look.error)
			watch_slot_drop(&watch_slots[i], v.id); /* not again at every edge */
	}
}

/* --- operators --- */

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
	const struct session_page *p = guest.page;

	f->is_start = watch_name_matches(p->watch_start, SESSION_NAME_BYTES, op);
	f->is_end = watch_name_matches(p->watch_end, SESSION_NAME_BYTES, op);
}

static void op_begin(const char *op)
{
	struct edge e = {.op = watch_name_plain(op), .device = watch_device->current()};

	struct frame *f = frame_push(op);
	frame_name(f, op);
	f->call = e.call = watch_count(e.op, e.device, my_tid());
	if (f->is_start)
		watch_slots_drop_waiting(my_tid());
	if (e.device < DEVICES)
		sample(&e);
}

static bool output_is_wanted(const struct frame *f, uint32_t index)
{
	uint32_t wanted = guest.page->watch_output;
	uint16_t device = watch_device->current();

	return f && f->is_start && device < DEVICES && !atomic_load(&state.open[device]) &&
	       (wanted == UINT32_MAX || wanted == index);
}

static void op_output(const char *op, uint64_t addr, uint64_t bytes, uint32_t index)
{
	struct frame *f = frame_find(op);

	if (!output_is_wanted(f, index) || !addr || !bytes || addr + bytes < addr)
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
		.device = watch_device->current(),
	};
	watch_slot_fill(s, &v, watch_name_plain(op), -1);
	atomic_store(&s->waits, my_tid());
}

/* The operator is through: its outputs are watched from here on. */
static bool begin_watch(uint16_t device)
{
	uint32_t tid = my_tid();
	bool any = false;

	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		if (atomic_load(&watch_slots[i].waits) != tid)
			continue;
		watch_slot_watch(&watch_slots[i]);
		any = true;
	}
	if (any)
		atomic_store(&state.open[device], 1);
	return any;
}

/* The end was reached: without a start, that is all there will be. */
static void end_watch(uint16_t device)
{
	if (!guest.page->watch_start[0])
		atomic_store(&state.over, 1);
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		struct watched v;
		if (watch_slot_copy(&watch_slots[i], &v, WATCHED_HEAD) && !v.named &&
		    v.device == device)
			watch_slot_drop(&watch_slots[i], v.id);
	}
	atomic_store(&state.open[device], 0);
}

static void op_end(const char *op)
{
	struct frame *f = frame_find(op), lost = {0};
	struct edge e = {
		.op = watch_name_plain(op), .device = watch_device->current(), .after = true};

	if (!f) {
		f = &lost;
		frame_name(f, op);
	} else {
		self.depth = (uint16_t)(f - self.frames);
	}
	e.call = f->call;
	if (e.device >= DEVICES)
		return;
	bool open = atomic_load(&state.open[e.device]) || !guest.page->watch_start[0];
	bool began = f->is_start && !atomic_load(&state.open[e.device]) && begin_watch(e.device);
	sample(&e);
	if (f->is_end && open && !began)
		end_watch(e.device);
}

void collect_watch_begin(const char *op)
{
	int saved = errno;

	if (!enter())
		return;
	op_begin(op);
	leave();
	errno = saved;
}

void collect_watch_output(const char *op, uint64_t addr, uint64_t bytes, uint32_t index)
{
	int saved = errno;

	if (!enter())
		return;
	op_output(op, addr, bytes, index);
	leave();
	errno = saved;
}

void collect_watch_end(const char *op)
{
	int saved = errno;

	if (!enter())
		return;
	op_end(op);
	leave();
	errno = saved;
}

/* --- launches of kernels, whose names are known when they are through --- */

void watch_launched(uint64_t name_hash)
{
	self.kernel = name_hash;
}

/* Those of a launch that was left in the middle. */
static void drop_held(void)
{
	for (uint8_t i = 0; i < self.nheld; i++) {
		struct watch_look look = {.content = self.held[i].content};

		watch_look_drop(&look);
	}
	self.nheld = 0;
}

static void hold_looks(uint16_t device)
{
	struct watch_look look;
	struct watched v;

	drop_held();
	if (device >= DEVICES || !device_is_quiet(device))
		return;
	for (uint32_t i = 0; i < WATCH_SLOTS && self.nheld < HELD; i++) {
		if (!look_at(&watch_slots[i], device, &v, &look))
			continue;
		self.held[self.nheld++] = (struct held){
			.checksum = look.checksum,
			.content = look.content,
			.id = v.id,
			.error = look.error,
			.slot = (uint8_t)i,
			.content_errno = look.content_errno,
		};
	}
}

static void tell_looks(const struct edge *e)
{
	for (uint8_t i = 0; i < self.nheld; i++) {
		const struct held *h = &self.held[i];
		struct slot *s = &watch_slots[h->slot];
		struct watched v;
		struct watch_look look = {h->checksum, h->content, h->error, h->content_errno};
		if (!watch_slot_copy(s, &v, WATCHED_WORDS) || v.id != h->id) {
			watch_look_drop(&look);
			continue;
		}
		if (v.device == DEV_NONE)
			v.device = e->device;
		put_sample(s, &v, e, &look);
		if (h->error)
			watch_slot_drop(s, h->id);
	}
	self.nheld = 0;
}

void collect_watch_launch(void)
{
	int saved = errno;

	if (!enter())
		return;
	self.kernel = 0;
	hold_looks(watch_device->current());
	leave();
	errno = saved;
}

void collect_watch_launched(void)
{
	int saved = errno;

	if (!enter())
		return;
	const char *name = watch_name_text(self.kernel);
	struct edge e = {.op = name ? name : "kernel", .device = watch_device->current()};
	struct frame f = {0};
	if (e.device < DEVICES) {
		frame_name(&f, e.op);
		e.call = watch_count(e.op, e.device, my_tid());
		tell_looks(&e);
		e.after = true;
		sample(&e);
		if (f.is_end && (atomic_load(&state.open[e.device]) || !guest.page->watch_start[0]))
			end_watch(e.device);
	}
	leave();
	errno = saved;
}

/* --- marks of torch's dispatcher --- */

/* The value of `key` up to ';' or '}', as a C string in out; false: not there or too long. */
static bool field(const char *text, const char *key, char *out, size_t room)
{
	const char *at = strstr(text, key);

	if (!at)
		return false;
	at += strlen(key);
	size_t n = strcspn(at, ";}");
	if (!n || n >= room)
		return false;
	memcpy(out, at, n);
	out[n] = '\0';
	return true;
}

static uint64_t number(const char *text, const char *key)
{
	char digits[24];
	uint64_t n = 0;

	if (!field(text, key, digits, sizeof(digits)))
		return 0;
	for (const char *p = digits; *p; p++) {
		if (*p < '0' || *p > '9' || n > UINT64_MAX / 10 - 1)
			return 0;
		n = n * 10 + (uint64_t)(*p - '0');
	}
	return n;
}

static void mark_output(const char *text, const char *op)
{
	char is_output[8];
	struct frame *f = frame_find(op);

	if (!f || !field(text, "is_output=", is_output, sizeof(is_output)) ||
	    strcmp(is_output, "True"))
		return;
	op_output(op, number(text, "ptr="), number(text, "tensor_size="), f->outputs++);
}

void watch_mark(const char *message, bool told)
{
	char op[SESSION_NAME_BYTES];
	size_t n = strlen(ATEN);
	int saved = errno;

	if (!message || strncmp(message, ATEN, n))
		return;
	const char *text = message + n;
	bool begins = !strncmp(text, "b:", 2), ends = !strncmp(text, "e:", 2);
	/* Written before what happens at its beginning, and after what happens until its end. */
	if (begins != told || (!begins && !ends && strncmp(text, "ac:", 3)))
		return;
	if (strnlen(text, MAX_MARK) == MAX_MARK || !field(text, "name=", op, sizeof(op)) ||
	    !enter())
		return;
	if (begins)
		op_begin(op);
	else if (ends)
		op_end(op);
	else
		mark_output(text, op);
	leave();
	errno = saved;
}

/* --- blocks of the program's own --- */

bool watch_named(uint64_t addr, uint64_t bytes, const char *name, int32_t dumps)
{
	if (!addr || !bytes || addr + bytes < addr || !name || guest_mode() < GUEST_SHADOW)
		return false;
	/* Also without --watch: then the operators must be told from here on. */
	atomic_fetch_or(&guest.want, WANT_WATCH | WANT_OP | WANT_ACCESS);
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
		.device = watch_device->current(),
		.named = true,
	};
	watch_slot_fill(s, &v, name, dumps);
	watch_slot_watch(s);
	errno = saved;
	return true;
}
