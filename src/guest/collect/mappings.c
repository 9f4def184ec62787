/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Mappings that the job makes, changes and removes itself: arenas of CPython, shared memory of data
 * loaders, files. What lies where is not remembered here: the recorder puts the ranges together
 * (memory/track/mappings.c).
 *
 * Also while not tracing, with exact times: they are few, and a range that was changed by two
 * threads needs the right order.
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"
#include "guest/runtime/guest.h"

#define PAGE_MASK 4095ull

/* Where this library begins and its code ends. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

static _Atomic bool sees;

void collect_see_mappings(void)
{
	program_await_python_end();
	atomic_store_explicit(&sees, true, memory_order_relaxed);
}

bool collect_sees_mappings(const void *caller)
{
	return unlikely(atomic_load_explicit(&sees, memory_order_relaxed)) &&
	       !((const char *)caller >= __ehdr_start && (const char *)caller < etext);
}

static bool wants_mappings(void)
{
	uint32_t mode = guest_mode(), need = WANT_ALLOC | WANT_HOST;

	return mode >= GUEST_SHADOW &&
	       (atomic_load_explicit(&guest.want, memory_order_relaxed) & need) == need;
}

/*
 * Another malloc than the C library's maps and unmaps inside of realloc(), whose free has the time of
 * its beginning and is written behind this: neither is older than the other.
 */
static uint64_t time_of_event(bool held)
{
	const struct guest_thread *t = &guest_self;
	const struct ring *ring = t->level < GUEST_LEVELS ? t->cur[t->level].ring : NULL;
	uint64_t now = guest_now();
	uint64_t since =
		!held && ring ? atomic_load_explicit(&ring->pending_ns, memory_order_relaxed) : 0;

	return since > RING_PENDING_NOW && since < now ? since : now;
}

static void put_map(uint8_t op, uint64_t addr, uint64_t bytes, uint8_t kind, uint64_t ns,
		    const void *caller)
{
	bool stacks = guest_mode() == GUEST_RECORD && guest_wants_stacks();
	uint32_t stack = stacks ? guest_stack((uint64_t)caller) : 0;
	struct rec_map *r = guest_reserve(sizeof(*r));

	if (!r)
		return;
	*r = (struct rec_map){
		.head = {REC_MAP, 0, sizeof(*r), stack, ns},
		.addr = addr & ~PAGE_MASK,
		.bytes = (bytes + (addr & PAGE_MASK) + PAGE_MASK) & ~PAGE_MASK,
		.op = op,
		.kind = kind,
	};
	guest_publish(sizeof(*r));
}

void collect_map(uint8_t op, uint64_t addr, uint64_t bytes, uint8_t kind, const void *caller)
{
	if (!wants_mappings())
		return;
	bool held = guest_hold(RING_PENDING_NOW);
	put_map(op, addr, bytes, kind, time_of_event(held), caller);
	guest_unhold(held);
}

struct collect_pending collect_unmap_begin(void)
{
	struct collect_pending p = {0, false};

	if (!wants_mappings())
		return p;
	p.held = guest_hold(RING_PENDING_NOW);
	p.time_ns = time_of_event(p.held);
	guest_hold_at(p.held, p.time_ns);
	return p;
}

void collect_unmap_end(struct collect_pending p, uint8_t op, uint64_t addr, uint64_t bytes,
		       bool happened, const void *caller)
{
	if (happened && p.time_ns && wants_mappings())
		put_map(op, addr, bytes, 0, p.time_ns, caller);
	guest_unhold(p.held);
}
