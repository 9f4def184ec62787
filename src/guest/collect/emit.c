/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The facts that hooks report, as records. The two hot ones (allocation, free) are written by hand;
 * the others go through put.h. Each is: wanted? hold, clock, stack, room, fill, publish, release.
 *
 * The stack is taken between the clock and the reservation: interning it may write records of its
 * own (a module, a call site in Python) into the same ring, and those must come before the record
 * that names them.
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"
#include "guest/runtime/guest.h"
#include "guest/watch/watch.h"

#include <string.h>

static _Atomic uint64_t ranges;
static _Atomic uint64_t steps, recorded_steps, detected_steps;
static _Atomic bool reported; /* the program reports its steps */
static _Atomic(collect_step_fn) on_step;

bool collect_wants(uint32_t want)
{
	return guest_wants(want);
}

bool collect_tracing(void)
{
	return guest_mode() == GUEST_RECORD;
}

/*
 * Blocks of host memory need WANT_HOST besides; one test covers both.
 *
 * What the runtime allocates while we read a watched block is ours, not the job's.
 */
static inline bool wants_block(const struct collect_block *b)
{
	uint32_t want = atomic_load_explicit(&guest.want, memory_order_relaxed);
	uint32_t need = b->pool == POOL_HOST	 ? WANT_ALLOC | WANT_HOST
			: b->pool == POOL_PYTHON ? WANT_ALLOC | WANT_HOST | WANT_OBJECTS
						 : WANT_ALLOC;

	if (unlikely(want & WANT_WATCH) && watch_is_busy())
		return false;
	return (want & need) == need;
}

static inline void put_alloc(const struct collect_block *b, uint8_t flags, uint64_t ns,
			     uint32_t stack)
{
	struct rec_alloc *r = guest_reserve(sizeof(*r));

	if (unlikely(!r))
		return;
	r->head = (struct rec){REC_ALLOC, flags, sizeof(*r), stack, ns};
	put_alloc_body(r, b);
	guest_publish(sizeof(*r));
}

static inline void put_free(const struct collect_block *b, uint8_t flags, uint64_t ns,
			    uint32_t stack)
{
	struct rec_free *r = guest_reserve(sizeof(*r));

	if (unlikely(!r))
		return;
	r->head = (struct rec){REC_FREE, flags, sizeof(*r), stack, ns};
	put_free_body(r, b);
	guest_publish(sizeof(*r));
}

/* The mode decides first: a process that is not recorded leaves after one load. Not tracing, the
 * block is still followed, cheaply: coarse clock, no hold, no stack. */
void collect_alloc(const struct collect_block *b, const void *caller)
{
	uint32_t mode = guest_mode();

	if (mode < GUEST_SHADOW || !wants_block(b))
		return;
	if (watch_is_on())
		watch_alloc(b);
	if (mode == GUEST_SHADOW) {
		put_alloc(b, REC_F_SHADOW, guest_now_coarse(), 0);
		return;
	}
	if (unlikely(atomic_load_explicit(&work_follows_gradients, memory_order_relaxed)))
		work_emit_gradient(b, caller);
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	put_alloc(b, 0, ns, guest_wants_stacks() ? guest_stack((uint64_t)caller) : 0);
	guest_unhold(held);
}

void collect_alloc_old(const struct collect_block *b)
{
	if (guest_mode() < GUEST_SHADOW || !wants_block(b))
		return;
	if (watch_is_on())
		watch_alloc(b);
	put_alloc(b, REC_F_SHADOW, guest_now_coarse(), 0);
}

void collect_free(const struct collect_block *b, const void *caller)
{
	uint32_t mode = guest_mode();

	if (mode < GUEST_SHADOW || !wants_block(b))
		return;
	if (unlikely(atomic_load_explicit(&python_ends, memory_order_relaxed)))
		program_ask_python();
	if (watch_is_on())
		watch_free(b);
	if (mode == GUEST_SHADOW) {
		put_free(b, REC_F_SHADOW, guest_now_coarse(), 0);
		return;
	}
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	put_free(b, 0, ns, guest_wants_stacks() ? guest_stack((uint64_t)caller) : 0);
	guest_unhold(held);
}

/* The watch lets go of the block here, before the memory can be somebody else's. */
struct collect_pending collect_free_begin(const struct collect_block *b)
{
	struct collect_pending p = {0, false};
	uint32_t mode = guest_mode();
	uint32_t want = atomic_load_explicit(&guest.want, memory_order_relaxed);

	if (unlikely(want & WANT_WATCH) && mode >= GUEST_SHADOW)
		watch_free(b);
	if (!(want & WANT_ALLOC))
		return p;
	if (mode == GUEST_SHADOW)
		p.time_ns = guest_now_coarse();
	if (mode != GUEST_RECORD)
		return p;
	p.held = guest_hold(RING_PENDING_NOW);
	p.time_ns = guest_now();
	guest_hold_at(p.held, p.time_ns);
	return p;
}

void collect_free_end(struct collect_pending p, const struct collect_block *b, bool happened,
		      const void *caller)
{
	uint32_t mode = guest_mode();

	if (happened && p.time_ns && mode >= GUEST_SHADOW && wants_block(b)) {
		if (mode == GUEST_SHADOW)
			put_free(b, REC_F_SHADOW, p.time_ns, 0);
		else
			put_free(b, 0, p.time_ns,
				 guest_wants_stacks() ? guest_stack((uint64_t)caller) : 0);
	}
	guest_unhold(p.held);
}

void collect_heap(uint8_t pool, uint16_t device, uint8_t mode, uint64_t addr, int64_t bytes)
{
	if (guest_mode() < GUEST_SHADOW)
		return;
	struct put p = put_begin(REC_HEAP, sizeof(struct rec_heap), NULL);
	struct rec_heap *r = p.rec;
	if (r) {
		r->addr = addr;
		r->bytes = bytes;
		r->device = device;
		r->pool = pool;
		r->mode = mode;
	}
	put_end(&p);
}

void collect_oom(uint16_t device, uint8_t kind, uint64_t size, uint64_t flag, const void *caller)
{
	if (!guest_wants(WANT_ALLOC))
		return;
	struct put p = put_begin_depth(REC_OOM, sizeof(struct rec_oom), caller,
				       oom_depth(guest.c_depth), oom_depth(guest.py_depth));
	struct rec_oom *r = p.rec;
	if (r) {
		r->size_bytes = size;
		r->flag = flag;
		r->device = device;
		r->kind = kind;
	}
	put_end(&p);
}

uint32_t collect_oom_stack(const void *caller)
{
	if (!guest_wants(WANT_ALLOC))
		return 0;
	return guest_stack_depth((uint64_t)caller, oom_depth(guest.c_depth),
				 oom_depth(guest.py_depth));
}

/* With a stack that was taken earlier: the refusal is reported after the framework has tried to
 * help itself. */
void collect_oom_with(uint16_t device, uint8_t kind, uint64_t size, uint64_t flag, uint32_t stack)
{
	if (!guest_wants(WANT_ALLOC))
		return;
	struct put p = put_begin(REC_OOM, sizeof(struct rec_oom), NULL);
	struct rec_oom *r = p.rec;
	if (r) {
		r->head.stack = stack;
		r->size_bytes = size;
		r->flag = flag;
		r->device = device;
		r->kind = kind;
	}
	put_end(&p);
}

/* The watch sees a mark twice: what happens at the beginning of an operator comes before the
 * record of its mark, what happens until its end after it. */
void collect_mark(uint8_t kind, uint64_t range, const char *message, const char *domain)
{
	struct two_texts t = texts(message, domain);

	if (guest_mode() != GUEST_RECORD)
		return;
	bool watches = kind == MARK_INSTANT && watch_is_on();
	if (watches)
		watch_mark(message, false);
	uint16_t device = collect_device();
	struct put p = put_begin(REC_MARK, rec_size(sizeof(struct rec_mark), texts_len(&t)), NULL);
	struct rec_mark *r = p.rec;
	if (r) {
		r->range = range;
		r->device = device;
		r->kind = kind;
		r->len = texts_len(&t);
		texts_put(&r->head, r->text, &t);
	}
	put_end(&p);
	if (watches)
		watch_mark(message, true);
}

void collect_op(uint8_t kind, const char *name, const char *attrs, const void *caller)
{
	struct two_texts t = texts(name, attrs);

	if (!guest_wants(kind >= OP_KERNEL_START ? WANT_KERNEL : WANT_OP))
		return;
	uint16_t device = collect_device();
	struct put p = put_begin(REC_OP, rec_size(sizeof(struct rec_op), texts_len(&t)), caller);
	struct rec_op *r = p.rec;
	if (r) {
		r->device = device;
		r->kind = kind;
		r->len = texts_len(&t);
		texts_put(&r->head, r->text, &t);
	}
	put_end(&p);
}

void collect_aten(bool begins, uint16_t device, const char *name, const void *caller)
{
	struct two_texts t = texts(name, NULL);

	if (guest_mode() < (begins ? GUEST_RECORD : GUEST_SHADOW))
		return;
	struct put p = put_begin(REC_OP, rec_size(sizeof(struct rec_op), t.na), caller);
	struct rec_op *r = p.rec;
	if (r) {
		r->device = device;
		r->kind = begins ? OP_ATEN_START : OP_ATEN_END;
		r->len = texts_len(&t);
		texts_put(&r->head, r->text, &t);
	}
	put_end(&p);
}

/* The block is named by an address inside of it; which one that is the recorder knows. */
void collect_access(const struct collect_block *b, uint8_t access, const char *op,
		    const char *attrs)
{
	struct two_texts t = texts(op, attrs);

	if (!b->addr || !guest_wants(WANT_ACCESS))
		return;
	struct put p =
		put_begin(REC_ACCESS, rec_size(sizeof(struct rec_access), texts_len(&t)), NULL);
	struct rec_access *r = p.rec;
	if (r) {
		r->addr = b->addr;
		r->size_bytes = b->size_bytes;
		r->device = b->device;
		r->pool = b->pool;
		r->kind = access;
		r->len = texts_len(&t);
		texts_put(&r->head, r->text, &t);
	}
	put_end(&p);
}

static void put_system_of(uint8_t kind, uint64_t value, uint16_t device, uint8_t source)
{
	struct put p = put_begin(REC_SYSTEM, sizeof(struct rec_system), NULL);
	struct rec_system *r = p.rec;

	if (r) {
		r->value = value;
		r->device = device;
		r->kind = kind;
		r->source = source;
	}
	put_end(&p);
}

static void put_system(uint8_t kind, uint64_t value, uint16_t device)
{
	put_system_of(kind, value, device, STEP_REPORTED);
}

void collect_system(uint8_t kind, uint64_t value)
{
	if (guest_mode() == GUEST_RECORD)
		put_system(kind, value, DEV_NONE);
	if (kind == SYSTEM_ACL_INIT)
		guest_bring_package(true);
}

static uint64_t hash_name(const char *text)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
	return h | 1; /* 0 is none */
}

void collect_show_steps(uint64_t ended)
{
	if (guest_mode() == GUEST_RECORD)
		atomic_store_explicit(&guest.arena->steps, ended, memory_order_relaxed);
}

/* Steps are counted in every mode, for the monitor; those of a recording count from its start. */
static void count_step(void)
{
	uint64_t n = atomic_fetch_add(&steps, 1) + 1;
	collect_show_steps(n);
	collect_step_fn fn = atomic_load_explicit(&on_step, memory_order_acquire);

	if (fn)
		fn(n);
}

void collect_step(void)
{
	atomic_store(&reported, true);
	if (guest_mode() == GUEST_RECORD)
		put_system(SYSTEM_STEP, atomic_fetch_add(&recorded_steps, 1) + 1, collect_device());
	count_step();
}

bool collect_detected_step(uint8_t source, const char *name, bool first)
{
	if (atomic_load(&reported))
		return false;
	if (first)
		atomic_store(&detected_steps, 0);
	if (guest_mode() == GUEST_RECORD) {
		uint64_t n = atomic_fetch_add(&detected_steps, 1) + 1;

		if (n == 1) {
			uint64_t hash = hash_name(name);
			collect_name(hash, name, strlen(name));
			put_system_of(SYSTEM_STEP_NAME, hash, DEV_NONE, source);
		}
		put_system_of(SYSTEM_DETECTED_STEP, n, collect_device(), source);
	}
	count_step();
	return true;
}

bool collect_steps_reported(void)
{
	return atomic_load(&reported);
}

uint64_t collect_steps(void)
{
	return atomic_load(&steps);
}

void collect_on_step(collect_step_fn fn)
{
	atomic_store_explicit(&on_step, fn, memory_order_release);
}

void collect_set_tracing(bool on)
{
	uint32_t mode = guest_mode();

	if (mode < GUEST_SHADOW || on == (mode == GUEST_RECORD))
		return;
	/* The switch lies between the last event of one mode and the first of the other. */
	if (on)
		put_system(SYSTEM_START_TRACE, 0, DEV_NONE);
	guest_set_tracing(on);
	if (!on)
		put_system(SYSTEM_STOP_TRACE, 0, DEV_NONE);
}

/* Also while not tracing: a label that was set before the start counts for what is allocated
 * after it. */
void collect_label(uint8_t kind, uint8_t level, uint64_t addr, const char *label)
{
	struct two_texts t = texts(label, NULL);

	if (guest_mode() < GUEST_SHADOW)
		return;
	struct put p = put_begin(REC_LABEL, rec_size(sizeof(struct rec_label), t.na), NULL);
	struct rec_label *r = p.rec;
	if (r) {
		r->addr = addr;
		r->kind = kind;
		r->level = level;
		r->len = (uint16_t)t.na;
		r->device = DEV_NONE;
		texts_put(&r->head, r->text, &t);
	}
	put_end(&p);
}

/* As labels are, and in the same modes. */
uint32_t collect_epoch(void)
{
	return guest_epoch_now();
}

/*
 * A launch goes through two or three hooks: acl calls rt, and a framework may call either. The
 * outermost is the launch; inner ones see launch_ns set. A hook that was left by longjmp() leaves
 * it set, too: then the next one has a stack pointer that is not below that hook's, and takes over.
 */
bool collect_launch_enter(void)
{
	uint64_t sp = guest_sp();

	if (guest_self.launch_ns && sp < guest_self.launch_sp)
		return false;
	if (!guest_wants(WANT_KERNEL) || (watch_is_on() && watch_is_busy()))
		return false;
	guest_self.launch_sp = sp;
	guest_self.launch_ns = guest_now();
	return true;
}

void collect_launch_leave(void)
{
	guest_self.launch_ns = 0;
}

/* A device's own time is that of the execution and may lie before the launch's record; without
 * one, the time of the launch in progress. */
void collect_kernel(uint8_t kind, uint64_t time_ns, uint64_t name_hash, uint16_t device,
		    uint16_t stream, uint16_t task)
{
	if (!guest_wants(WANT_KERNEL))
		return;
	if (watch_is_on()) {
		if (watch_is_busy())
			return;
		if (kind == KERNEL_LAUNCH)
			watch_launched(name_hash);
	}
	struct put p = put_begin(REC_KERNEL, sizeof(struct rec_kernel), NULL);
	struct rec_kernel *r = p.rec;
	if (r) {
		/* The device's own time, or that of the launch in progress, or now. */
		if (time_ns || guest_self.launch_ns)
			r->head.time_ns = time_ns ? time_ns : guest_self.launch_ns;
		r->name_hash = name_hash;
		r->device = device;
		r->stream = stream;
		r->task = task;
		r->kind = kind;
	}
	put_end(&p);
}

/* Announced by every thread that meets it first, so it may come several times. */
void collect_name(uint64_t hash, const char *text, size_t len)
{
	if (len > REC_MAX_TEXT)
		len = REC_MAX_TEXT;
	if (guest_mode() < GUEST_SHADOW)
		return;
	if (watch_is_on())
		watch_name(hash, text, len);
	struct put p = put_begin(REC_NAME, rec_size(sizeof(struct rec_name), len), NULL);
	struct rec_name *r = p.rec;
	if (r) {
		r->hash = hash;
		r->len = (uint16_t)len;
		memcpy(r->text, text, len);
	}
	put_end(&p);
}

uint64_t collect_range_id(void)
{
	return atomic_fetch_add(&ranges, 1) + 1;
}
