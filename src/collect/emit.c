/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "collect/collect.h"

#include "guest/guest.h"

#include <string.h>

static _Atomic uint64_t ranges;
static _Atomic uint64_t steps;

bool collect_wants(uint32_t want)
{
	return guest_wants(want);
}

bool collect_tracing(void)
{
	return guest_mode() == GUEST_RECORD;
}

/* Blocks of host memory need WANT_HOST besides; one test covers both. */
static inline bool wants_block(const struct collect_block *b)
{
	uint32_t want = atomic_load_explicit(&guest.want, memory_order_relaxed);
	uint32_t need = b->pool == POOL_HOST ? WANT_ALLOC | WANT_HOST : WANT_ALLOC;

	return (want & need) == need;
}

static inline void put_alloc(const struct collect_block *b, uint8_t flags, uint64_t ns,
			     uint32_t stack)
{
	struct rec_alloc *r = guest_reserve(sizeof(*r));

	if (unlikely(!r))
		return;
	r->head = (struct rec){REC_ALLOC, flags, sizeof(*r), stack, ns};
	r->addr = b->addr;
	r->size_bytes = b->size_bytes;
	r->device = b->device;
	r->pool = b->pool;
	r->kind = b->kind;
	r->page = b->page;
	r->module = b->module;
	r->reserved = 0;
	guest_publish(sizeof(*r));
}

static inline void put_free(const struct collect_block *b, uint8_t flags, uint64_t ns,
			    uint32_t stack)
{
	struct rec_free *r = guest_reserve(sizeof(*r));

	if (unlikely(!r))
		return;
	r->head = (struct rec){REC_FREE, flags, sizeof(*r), stack, ns};
	r->addr = b->addr;
	r->device = b->device;
	r->pool = b->pool;
	r->kind = b->kind;
	r->reserved = 0;
	guest_publish(sizeof(*r));
}

void collect_alloc(const struct collect_block *b, const void *caller)
{
	uint32_t mode = guest_mode();

	if (mode < GUEST_SHADOW || !wants_block(b))
		return;
	if (mode == GUEST_SHADOW) {
		put_alloc(b, REC_F_SHADOW, guest_now_coarse(), 0);
		return;
	}
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	put_alloc(b, 0, ns, guest.c_depth ? guest_stack((uint64_t)caller) : 0);
	guest_unhold(held);
}

void collect_free(const struct collect_block *b, const void *caller)
{
	uint32_t mode = guest_mode();

	if (mode < GUEST_SHADOW || !wants_block(b))
		return;
	if (mode == GUEST_SHADOW) {
		put_free(b, REC_F_SHADOW, guest_now_coarse(), 0);
		return;
	}
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	put_free(b, 0, ns, guest.c_depth ? guest_stack((uint64_t)caller) : 0);
	guest_unhold(held);
}

struct collect_pending collect_free_begin(void)
{
	struct collect_pending p = {0, false};
	uint32_t mode = guest_mode();

	if (!(atomic_load_explicit(&guest.want, memory_order_relaxed) & WANT_ALLOC))
		return p;
	if (mode == GUEST_SHADOW)
		p.time_ns = guest_now_coarse();
	if (mode != GUEST_RECORD)
		return p;
	p.held = guest_hold(RING_PENDING_NOW);
	p.time_ns = guest_now();
	if (p.held)
		atomic_store_explicit(&guest_self.cur[guest_self.level].ring->pending_ns, p.time_ns,
				      memory_order_relaxed);
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
				 guest.c_depth ? guest_stack((uint64_t)caller) : 0);
	}
	guest_unhold(p.held);
}

void collect_heap(uint8_t pool, uint16_t device, uint8_t mode, uint64_t addr, int64_t bytes)
{
	if (guest_mode() < GUEST_SHADOW)
		return;
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_heap *r = guest_reserve(sizeof(*r));
	if (r) {
		*r = (struct rec_heap){
			.head = {.type = REC_HEAP, .size = sizeof(*r), .time_ns = ns},
			.addr = addr,
			.bytes = bytes,
			.device = device,
			.pool = pool,
			.mode = mode,
		};
		guest_publish(sizeof(*r));
	}
	guest_unhold(held);
}

void collect_oom(uint16_t device, uint8_t kind, uint64_t size, uint64_t flag, const void *caller)
{
	if (!guest_wants(WANT_ALLOC))
		return;
	uint32_t stack = guest_stack((uint64_t)caller);
	struct rec_oom *r = guest_reserve(sizeof(*r));
	if (!r)
		return;
	*r = (struct rec_oom){
		.head = {.type = REC_OOM,
			 .size = sizeof(*r),
			 .stack = stack,
			 .time_ns = guest_now()},
		.size_bytes = size,
		.flag = flag,
		.device = device,
		.kind = kind,
	};
	guest_publish(sizeof(*r));
}

/* Two texts joined by a NUL, as text bodies hold them; the second may be missing. */
struct two_texts {
	const char *a, *b;
	size_t na, nb;
	bool cut;
};

static struct two_texts texts(const char *a, const char *b)
{
	struct two_texts t = {.a = a ? a : "", .b = b ? b : ""};

	t.na = strnlen(t.a, REC_MAX_TEXT);
	t.cut = t.a[t.na] != '\0';
	size_t room = REC_MAX_TEXT - t.na;
	t.nb = room > 1 ? strnlen(t.b, room - 1) : 0;
	return t;
}

static uint16_t texts_len(const struct two_texts *t)
{
	return (uint16_t)(t->na + (t->nb ? t->nb + 1 : 0));
}

static void texts_put(char *out, const char *end, const struct two_texts *t)
{
	memcpy(out, t->a, t->na);
	out += t->na;
	if (t->nb) {
		*out++ = '\0';
		memcpy(out, t->b, t->nb);
		out += t->nb;
	}
	memset(out, 0, (size_t)(end - out));
}

void collect_mark(uint8_t kind, uint64_t range, const char *message, const char *domain)
{
	struct two_texts t = texts(message, domain);
	uint16_t size = rec_size(sizeof(struct rec_mark), texts_len(&t));

	if (guest_mode() != GUEST_RECORD)
		return;
	uint16_t device = collect_device();
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_mark *r = guest_reserve(size);
	if (r) {
		*r = (struct rec_mark){
			.head = {REC_MARK, t.cut ? REC_F_TEXT_CUT : 0, size, 0, ns},
			.range = range,
			.device = device,
			.kind = kind,
			.len = texts_len(&t),
		};
		texts_put(r->text, (char *)r + size, &t);
		guest_publish(size);
	}
	guest_unhold(held);
}

void collect_op(uint8_t kind, const char *name, const char *attrs, const void *caller)
{
	struct two_texts t = texts(name, attrs);
	uint16_t size = rec_size(sizeof(struct rec_op), texts_len(&t));

	if (!guest_wants(kind >= OP_KERNEL_START ? WANT_KERNEL : WANT_OP))
		return;
	uint16_t device = collect_device();
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	uint32_t stack = guest_stack((uint64_t)caller);
	struct rec_op *r = guest_reserve(size);
	if (r) {
		*r = (struct rec_op){
			.head = {REC_OP, t.cut ? REC_F_TEXT_CUT : 0, size, stack, ns},
			.device = device,
			.kind = kind,
			.len = texts_len(&t),
		};
		texts_put(r->text, (char *)r + size, &t);
		guest_publish(size);
	}
	guest_unhold(held);
}

void collect_access(const struct collect_block *b, uint8_t access, const char *op,
		    const char *attrs)
{
	struct two_texts t = texts(op, attrs);
	uint16_t size = rec_size(sizeof(struct rec_access), texts_len(&t));

	if (!b->addr || !guest_wants(WANT_ACCESS))
		return;
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_access *r = guest_reserve(size);
	if (r) {
		*r = (struct rec_access){
			.head = {REC_ACCESS, t.cut ? REC_F_TEXT_CUT : 0, size, 0, ns},
			.addr = b->addr,
			.size_bytes = b->size_bytes,
			.device = b->device,
			.pool = b->pool,
			.kind = access,
			.len = texts_len(&t),
		};
		texts_put(r->text, (char *)r + size, &t);
		guest_publish(size);
	}
	guest_unhold(held);
}

static void put_system(uint8_t kind, uint64_t value, uint16_t device)
{
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_system *r = guest_reserve(sizeof(*r));

	if (r) {
		*r = (struct rec_system){
			.head = {.type = REC_SYSTEM, .size = sizeof(*r), .time_ns = ns},
			.value = value,
			.device = device,
			.kind = kind,
		};
		guest_publish(sizeof(*r));
	}
	guest_unhold(held);
}

void collect_system(uint8_t kind, uint64_t value)
{
	if (guest_mode() == GUEST_RECORD)
		put_system(kind, value, DEV_NONE);
}

void collect_step(void)
{
	if (guest_mode() == GUEST_RECORD)
		put_system(SYSTEM_STEP, atomic_fetch_add(&steps, 1) + 1, collect_device());
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

void collect_label(uint8_t kind, uint8_t level, uint64_t addr, const char *label)
{
	struct two_texts t = texts(label, NULL);
	uint16_t size = rec_size(sizeof(struct rec_label), t.na);

	if (guest_mode() < GUEST_SHADOW)
		return;
	struct rec_label *r = guest_reserve(size);
	if (!r)
		return;
	*r = (struct rec_label){
		.head = {REC_LABEL, 0, size, 0, guest_now()},
		.addr = addr,
		.kind = kind,
		.level = level,
		.len = (uint16_t)t.na,
		.device = DEV_NONE,
	};
	texts_put(r->text, (char *)r + size, &t);
	guest_publish(size);
}

uint32_t collect_epoch(void)
{
	return guest_epoch_now();
}

bool collect_launch_enter(void)
{
	uint64_t sp = guest_sp();

	if (guest_self.launch_ns && sp < guest_self.launch_sp)
		return false;
	if (!guest_wants(WANT_KERNEL))
		return false;
	guest_self.launch_sp = sp;
	guest_self.launch_ns = guest_now();
	return true;
}

void collect_launch_leave(void)
{
	guest_self.launch_ns = 0;
}

void collect_kernel(uint8_t kind, uint64_t time_ns, uint64_t name_hash, uint16_t device,
		    uint16_t stream, uint16_t task)
{
	if (!guest_wants(WANT_KERNEL))
		return;
	bool held = guest_hold(RING_PENDING_NOW);
	if (!time_ns)
		time_ns = guest_self.launch_ns ? guest_self.launch_ns : guest_now();
	struct rec_kernel *r = guest_reserve(sizeof(*r));
	if (r) {
		*r = (struct rec_kernel){
			.head = {.type = REC_KERNEL, .size = sizeof(*r), .time_ns = time_ns},
			.name_hash = name_hash,
			.device = device,
			.stream = stream,
			.task = task,
			.kind = kind,
		};
		guest_publish(sizeof(*r));
	}
	guest_unhold(held);
}

void collect_name(uint64_t hash, const char *text, size_t len)
{
	if (len > REC_MAX_TEXT)
		len = REC_MAX_TEXT;
	uint16_t size = rec_size(sizeof(struct rec_name), len);
	if (guest_mode() < GUEST_SHADOW)
		return;
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_name *r = guest_reserve(size);
	if (r) {
		*r = (struct rec_name){
			.head = {.type = REC_NAME, .size = size, .time_ns = ns},
			.hash = hash,
			.len = (uint16_t)len,
		};
		memcpy(r->text, text, len);
		memset(r->text + len, 0, size - sizeof(*r) - len);
		guest_publish(size);
	}
	guest_unhold(held);
}

uint64_t collect_range_id(void)
{
	return atomic_fetch_add(&ranges, 1) + 1;
}
