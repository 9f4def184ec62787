/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/ascend/hooks/stars.h"

#include <string.h>

#define FUNC_BEGIN 0
#define FUNC_END 1
#define DEFAULT_KHZ 50000u
#define KEY_BUSY 1u

/* --- records --- */

/* Where the runtime packs more task bits than fit, it borrows them from the stream's field. */
static void unpack_plain(struct stars_event *e)
{
	uint16_t stream = e->stream, task = e->task;

	if (stream & 0x1000) {
		e->stream = stream % 2048;
		e->task = (uint16_t)((task & 0x1fff) | (stream & 0xe000));
	} else if (stream & 0x2000) {
		e->stream = task % 2048;
		e->task = (uint16_t)((task & 0xf000) | (stream & 0x0fff));
	}
}

static void unpack_expanded(struct stars_event *e, unsigned sqe_type)
{
	uint16_t stream = e->stream, task = e->task;

	if (sqe_type == 3 || sqe_type == 4) {
		e->stream = stream & 0x7fff;
	} else if (stream & 0x8000) {
		e->stream = task & 0x7fff;
		e->task = (uint16_t)((task & 0x8000) | (stream & 0x7fff));
	}
}

/*
 *	word 0: function:6 count:4 sqe type:6 magic:16
 *	long:  word 1: stream:16 task:16, words 2 and 3: counter
 *	short: word 1: task, then the counter as 64 bits
 */
static bool decode_record(const uint8_t *rec, enum stars_format format, bool expanded,
			  struct stars_event *out)
{
	uint32_t head, ids;

	memcpy(&head, rec, sizeof(head));
	memcpy(&ids, rec + 4, sizeof(ids));
	unsigned func = head & 0x3f, sqe_type = head >> 10 & 0x3f;
	if (func != FUNC_BEGIN && func != FUNC_END)
		return false;
	out->ends = func == FUNC_END;
	memcpy(&out->counter, rec + 8, sizeof(out->counter));
	if (format == STARS_SHORT) {
		out->stream = STARS_STREAM_UNKNOWN;
		out->task = (uint16_t)ids;
		return true;
	}
	out->stream = (uint16_t)ids;
	out->task = (uint16_t)(ids >> 16);
	if (expanded)
		unpack_expanded(out, sqe_type);
	else
		unpack_plain(out);
	return true;
}

size_t stars_each(const void *buf, size_t len, enum stars_format format, bool expanded,
		  void (*fn)(void *arg, const struct stars_event *e), void *arg)
{
	const uint8_t *at = buf;
	struct stars_event e;
	size_t done = 0;

	for (; len - done >= (size_t)format; done += (size_t)format)
		if (decode_record(at + done, format, expanded, &e))
			fn(arg, &e);
	return done;
}

/* --- time --- */

uint32_t stars_khz(int64_t reported)
{
	if (reported <= 0)
		return DEFAULT_KHZ;
	if (reported < 10000) /* MHz: no counter runs at 10 GHz */
		return (uint32_t)reported * 1000;
	if (reported < 10000000) /* kHz */
		return (uint32_t)reported;
	int64_t khz = reported / 1000; /* Hz */
	return khz < 10000000 ? (uint32_t)khz : DEFAULT_KHZ;
}

uint64_t stars_time(const struct stars_clock *c, uint64_t counter)
{
	uint32_t khz = c->khz ? c->khz : DEFAULT_KHZ;
	__int128 ns = (__int128)(int64_t)(counter - c->counter0) * 1000000 / khz + c->mono0_ns;

	if (ns < 0)
		return 0;
	return ns > (__int128)UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

/* --- launches --- */

#define RELAXED memory_order_relaxed

static uint64_t key_of(uint16_t device, uint16_t stream, uint16_t task)
{
	return 1ull << 48 | (uint64_t)device << 32 | (uint64_t)stream << 16 | task;
}

static struct stars_slot *set_of(struct stars_tasks *t, uint16_t device, uint16_t stream,
				 uint16_t task)
{
	/* Neighbouring tasks of a stream lie in neighbouring sets, streams far apart. */
	uint32_t far = (uint32_t)device * 0x9e3779b1u + (t->by_task ? 0u : stream * 0x85ebca6bu);

	return t->slot[((far >> 13) + task) % STARS_SETS];
}

/* The same task's old entry, else a free one, else the oldest. */
static struct stars_slot *slot_to_replace(struct stars_slot *set, uint64_t key, uint64_t *out_seen)
{
	struct stars_slot *best = NULL;
	uint64_t best_age = UINT64_MAX;

	for (unsigned i = 0; i < STARS_WAYS; i++) {
		uint64_t k = atomic_load_explicit(&set[i].key, RELAXED);
		uint64_t age = k ? atomic_load_explicit(&set[i].launch_ns, RELAXED) : 0;
		if (k == KEY_BUSY)
			continue;
		if (k == key) {
			*out_seen = k;
			return &set[i];
		}
		if (!best || age < best_age) {
			best = &set[i];
			best_age = age;
			*out_seen = k;
		}
	}
	return best;
}

void stars_tasks_put(struct stars_tasks *t, const struct stars_launch *l)
{
	uint64_t key = key_of(l->device, l->stream, l->task), seen = 0;
	struct stars_slot *set = set_of(t, l->device, l->stream, l->task);

	for (int tries = 0; tries < 4; tries++) {
		struct stars_slot *s = slot_to_replace(set, key, &seen);
		if (!s)
			return;
		if (!atomic_compare_exchange_strong(&s->key, &seen, KEY_BUSY))
			continue;
		atomic_store_explicit(&s->name_hash, l->name_hash, RELAXED);
		atomic_store_explicit(&s->launch_ns, l->launch_ns, RELAXED);
		atomic_store_explicit(&s->start_ns, 0, RELAXED);
		atomic_store_explicit(&s->key, key, memory_order_release);
		return;
	}
}

/* A consistent copy of a slot, if it holds `key` under `mask` for all of the reading. */
static bool slot_read(struct stars_slot *s, uint64_t mask, uint64_t key, struct stars_launch *out)
{
	uint64_t k = atomic_load_explicit(&s->key, memory_order_acquire);

	if (k <= KEY_BUSY || (k & mask) != (key & mask))
		return false;
	*out = (struct stars_launch){
		.name_hash = atomic_load_explicit(&s->name_hash, RELAXED),
		.launch_ns = atomic_load_explicit(&s->launch_ns, RELAXED),
		.start_ns = atomic_load_explicit(&s->start_ns, RELAXED),
		.device = (uint16_t)(k >> 32),
		.stream = (uint16_t)(k >> 16),
		.task = (uint16_t)k,
	};
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&s->key, RELAXED) == k;
}

bool stars_tasks_match(struct stars_tasks *t, uint16_t device, const struct stars_event *e,
		       uint64_t start_ns, struct stars_launch *out_launch)
{
	uint64_t mask = e->stream == STARS_STREAM_UNKNOWN ? ~0xffff0000ull : ~0ull;
	uint64_t key = key_of(device, e->stream, e->task);
	struct stars_slot *set = set_of(t, device, e->stream, e->task), *found = NULL;
	struct stars_launch l, best = {.launch_ns = UINT64_MAX};

	/* Without the stream several may fit: the oldest that waits for this very record. */
	for (unsigned i = 0; i < STARS_WAYS; i++) {
		if (!slot_read(&set[i], mask, key, &l) || l.launch_ns >= best.launch_ns)
			continue;
		if (mask != ~0ull && e->ends != (l.start_ns != 0))
			continue;
		found = &set[i];
		best = l;
	}
	if (!found)
		return false;
	key = key_of(best.device, best.stream, best.task);
	if (e->ends) {
		atomic_compare_exchange_strong(&found->key, &key, 0);
	} else {
		best.start_ns = start_ns > best.launch_ns ? start_ns : best.launch_ns;
		atomic_store_explicit(&found->start_ns, best.start_ns, RELAXED);
	}
	*out_launch = best;
	return true;
}
