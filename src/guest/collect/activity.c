/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities and what the monitor says about them. Texts become hashes, and each text is reported
 * once per arena: `known_names` holds those, a word per text. The table forgets when it is full (a
 * program may put a number into every mark), and what it has forgotten is reported again.
 *
 * A text is noted there after its record is in the ring, and looked up before the clock is read for
 * the record that uses it: so, by time, it comes first, whichever threads the two are of.
 *
 *	known_names[]	63           16 15 14        0	one word per text; 8 slots (a cache line)
 *			+--------------+--+-----------+	per hash
 *			| hash         |1 | epoch     |
 *			+--------------+--+-----------+
 *
 * The epoch in the word makes a parent's entries worthless in a forked child, and those of an arena
 * that was left. Store with release, load with acquire: who finds a word may use the hash. A full
 * line loses one of its words, any one: the text is written once more.
 *
 * Activities arrive in thousands per buffer, from threads of the vendor's library: the path from
 * collect_activity() to the publication has no system call, no lock, and no shared counter
 * (count_put()).
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"

#include <sys/syscall.h>
#include <unistd.h>

#define KNOWN_SLOTS 16384u
#define KNOWN_PROBES 8u /* one cache line */
#define CHECK_NS 100000000ull
#define CLOCK_SET_NS 1000000
#define TRIES 100
#define TRY_NS 20000000

/* The upper bits of the hash, the lower ones of the epoch: what a forked child finds of its parent
 * is nothing. Never 0. */
static _Atomic uint64_t known_names[KNOWN_SLOTS] __attribute__((aligned(64)));

static inline uint64_t known_word(uint64_t hash, uint32_t epoch)
{
	return (hash & ~0xffffull) | 0x8000u | (epoch & 0x7fff);
}

static inline _Atomic uint64_t *known_slots(uint64_t hash)
{
	return &known_names[hash % KNOWN_SLOTS / KNOWN_PROBES * KNOWN_PROBES];
}

static inline bool is_name_known(uint64_t hash, uint32_t epoch)
{
	_Atomic uint64_t *slots = known_slots(hash);
	uint64_t word = known_word(hash, epoch);

	for (uint32_t i = 0; i < KNOWN_PROBES; i++)
		if (atomic_load_explicit(&slots[i], memory_order_acquire) == word)
			return true;
	return false;
}

/* In place of nothing, or of another process' text, or of any. */
static void note_name(uint64_t hash, uint32_t epoch)
{
	static _Atomic uint32_t victim;
	_Atomic uint64_t *slots = known_slots(hash);
	uint64_t word = known_word(hash, epoch);
	uint32_t at = KNOWN_PROBES;

	for (uint32_t i = 0; i < KNOWN_PROBES && at == KNOWN_PROBES; i++)
		if (((atomic_load_explicit(&slots[i], memory_order_relaxed) ^ word) & 0xffff) != 0)
			at = i;
	if (at == KNOWN_PROBES)
		at = atomic_fetch_add_explicit(&victim, 1, memory_order_relaxed) % KNOWN_PROBES;
	atomic_store_explicit(&slots[at], word, memory_order_release);
}

/* The last n bytes of a text, fewer than eight. Of one that has eight, without a loop over them. */
static inline uint64_t last_bytes(const char *end, size_t n, bool has_eight)
{
	uint64_t word = 0;

	if (!n)
		return 0;
	if (likely(has_eight)) {
		memcpy(&word, end - 8, 8);
		return word >> (64 - 8 * n); /* the first byte is the lowest */
	}
	memcpy(&word, end - n, n);
	return word;
}

/*
 * Eight bytes at a time; never 0, which is no text.
 *
 * 64 bits: two names of one job that collide would be shown as one. Not meant against an adversary,
 * who can call his kernels what he likes anyway.
 */
static inline uint64_t hash_text(const char *text, size_t len)
{
	uint64_t h = 0x9ae16a3b2f90404full ^ len * 0x9e3779b97f4a7c15ull, word;
	bool has_eight = len >= 8;

	for (; len >= 8; text += 8, len -= 8) {
		memcpy(&word, text, 8);
		h = (h ^ word) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	word = last_bytes(text + len, len, has_eight);
	h = (h ^ word) * 0xc4ceb9fe1a85ec53ull;
	h = (h ^ h >> 29) * 0xff51afd7ed558ccdull;
	h ^= h >> 32;
	return h ? h : 1;
}

static bool emit_name(uint64_t hash, const char *text, size_t len)
{
	struct put p = put_begin(REC_NAME, rec_size(sizeof(struct rec_name), len), NULL);
	struct rec_name *r = p.rec;
	uint32_t epoch = guest_self.epoch; /* of the arena that has it: the process may move on */

	if (r) {
		r->hash = hash;
		r->len = (uint16_t)len;
		memcpy(r->text, text, len);
		if (len == REC_MAX_NAME)
			r->head.flags |= text[len] ? REC_F_TEXT_CUT : 0;
	}
	put_end(&p);
	if (r)
		note_name(hash, epoch);
	return r;
}

/*
 * False: there was no room for the text, and that has been counted.
 *
 * The record of the text may be of another ring than the one that uses it, and may have no room:
 * then the activity is dropped as well, since nobody could say what it was.
 */
static inline bool name_of(const char *text, uint32_t epoch, uint64_t *out_hash)
{
	*out_hash = 0;
	if (!text || !*text)
		return true;
	size_t len = strnlen(text, REC_MAX_NAME);
	*out_hash = hash_text(text, len);
	return likely(is_name_known(*out_hash, epoch)) || emit_name(*out_hash, text, len);
}

/* --- time --- */

/*
 * The recording has one difference between the clocks, and every file adds it: taken off here, the
 * vendor's own numbers come out there. Unless somebody has set the clock since: then what is true
 * now is taken off, so that activities stay where other events are.
 */
static _Atomic int64_t set_to; /* the difference after the clock was set; 0: it was not */

/* Wall clock between two readings of the other clock, three times; the narrowest pair is the least
 * disturbed. */
static int64_t difference_now(void)
{
	int64_t best = 0;
	uint64_t narrowest = UINT64_MAX;

	for (int i = 0; i < 3; i++) {
		struct timespec t;
		uint64_t before = guest_now();
		clock_gettime(CLOCK_REALTIME, &t);
		uint64_t width = guest_now() - before;
		if (width >= narrowest)
			continue;
		narrowest = width;
		best = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - (int64_t)(before + width / 2);
	}
	return best;
}

static void check_clock(int64_t stored)
{
	int64_t now = difference_now(), off = now - stored;

	atomic_store_explicit(&set_to, off > CLOCK_SET_NS || off < -CLOCK_SET_NS ? now : 0,
			      memory_order_relaxed);
}

static inline int64_t wall_minus_mono(uint64_t now_ns)
{
	static _Atomic uint64_t checked_ns;
	uint64_t checked = atomic_load_explicit(&checked_ns, memory_order_relaxed);
	int64_t stored = guest.page->wall_minus_mono_ns;

	if (unlikely(now_ns - checked > CHECK_NS) &&
	    atomic_compare_exchange_strong(&checked_ns, &checked, now_ns))
		check_clock(stored);
	int64_t set = atomic_load_explicit(&set_to, memory_order_relaxed);
	return unlikely(set != 0) ? set : stored;
}

/* Before the machine was started: a time that the vendor has not filled in. */
static inline uint64_t mono_of(uint64_t wall_ns, int64_t difference)
{
	uint64_t ns = wall_ns - (uint64_t)difference;

	return likely((int64_t)ns >= 0) ? ns : 0;
}

/* --- */

static inline void fill_activity(struct rec_activity *r, const struct collect_activity *a,
				 uint64_t now_ns)
{
	int64_t difference = wall_minus_mono(now_ns);

	r->head = (struct rec){REC_ACTIVITY, 0, sizeof(*r), 0, now_ns};
	r->start_ns = mono_of(a->start_ns, difference);
	r->end_ns = mono_of(a->end_ns, difference);
	r->correlation = a->correlation;
	r->amount = a->amount;
	r->where[0] = a->where[0];
	r->where[1] = a->where[1];
	r->kind = a->kind;
	r->flag = a->flag;
	r->place = a->place;
	r->async = a->async;
	r->data_type = a->data_type;
	r->reserved = 0;
}

_Static_assert(sizeof(struct rec_activity) <= GUEST_ROOM, "a hold makes sure of too little room");

static _Atomic(collect_activity_fn) on_activity;

void collect_on_activity(collect_activity_fn fn)
{
	atomic_store_explicit(&on_activity, fn, memory_order_release);
}

/*
 * In the ring that takes it, whose line is this thread's anyway: a count for all would be one that
 * all threads fight for. Before the publication: a signal handler has another ring until then. One
 * that has forked has left none to its child.
 */
static inline void count_put(void)
{
	uint32_t level = guest_self.level;
	struct ring *r = likely(level) ? guest_self.cur[level - 1].ring : NULL;

	if (unlikely(!r))
		return;
	uint64_t before = atomic_load_explicit(&r->activities, memory_order_relaxed);
	atomic_store_explicit(&r->activities, before + 1, memory_order_relaxed);
}

/* What all rings of that arena have taken less what the recorder says it has brought to its
 * files. Both only grow, and the recorder is gone: the difference is what is lost. */
uint64_t activities_unwritten(const struct control_page *page, struct arena_head *arena)
{
	uint64_t written = atomic_load(&page->activities_written), put = 0;
	uint32_t n = atomic_load(&arena->nrings);

	for (uint32_t i = 0; i < n && i < arena->max_rings; i++)
		put += atomic_load(&arena_ring(arena, i)->activities);
	return (put > written ? put - written : 0) + atomic_load(&arena->lost_events);
}

/* False: the process has moved, and its names are in the arena that was left. */
static inline __attribute__((always_inline)) bool put_activity(const struct collect_activity *a)
{
	uint64_t name, detail, more;
	uint32_t epoch = guest_self.epoch;

	/* Without its names nobody can use it: it is the one that is lost. */
	if (!name_of(a->name, epoch, &name) || !name_of(a->detail, epoch, &detail) ||
	    !name_of(a->more_text, epoch, &more))
		return true;
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t now_ns = guest_now();
	struct rec_activity *r = guest_reserve(sizeof(*r));
	bool moved = unlikely(r && guest_self.epoch != epoch);
	if (moved) {
		guest_publish(0); /* not used */
	} else if (likely(r != NULL)) {
		fill_activity(r, a, now_ns);
		r->name = name;
		r->detail = detail;
		r->more = a->more_text ? more : a->more;
		count_put();
		guest_publish(sizeof(*r));
	}
	guest_unhold(held);
	return !moved;
}

static __attribute__((noinline)) void put_again(const struct collect_activity *a)
{
	if (!put_activity(a))
		guest_lost(1);
}

void collect_activity(const struct collect_activity *a)
{
	collect_activity_fn fn = atomic_load_explicit(&on_activity, memory_order_acquire);

	if (guest_mode() < GUEST_SHADOW)
		return;
	if (unlikely(fn != NULL))
		fn(a);
	if (unlikely(!put_activity(a)))
		put_again(a);
}

static bool put_monitor(const struct rec_monitor *m, const char *text, size_t len)
{
	struct put p = put_begin(REC_MONITOR, rec_size(sizeof(struct rec_monitor), len), NULL);
	struct rec_monitor *r = p.rec;

	if (r) {
		r->window = m->window;
		r->value = m->value;
		r->rank = m->rank;
		r->kind = m->kind;
		r->len = (uint16_t)len;
		if (len)
			memcpy(r->text, text, len);
	}
	put_end(&p);
	return r;
}

/*
 * A window without its beginning or end is worth a wait. Steps are reported by the job's threads,
 * which do not wait.
 */
static void emit_monitor(const struct rec_monitor *m, const char *text, size_t len)
{
	int tries = m->kind == MONITOR_STEP ? 1 : TRIES;

	while (!put_monitor(m, text, len) && --tries > 0 && guest_mode() >= GUEST_SHADOW) {
		guest_lost(UINT64_MAX); /* takes it back: it is not lost yet */
		guest_sleep(TRY_NS);
	}
}

static uint8_t piece_kind(uint8_t kind)
{
	return kind == MONITOR_START || kind == MONITOR_CHANGE ? MONITOR_REQUEST : kind;
}

void collect_monitor(uint8_t kind, uint64_t window, uint64_t value, int32_t rank, const char *text,
		     size_t len)
{
	struct rec_monitor m = {.window = window, .value = value, .rank = rank, .kind = kind};

	if (guest_mode() < GUEST_SHADOW)
		return;
	if (len > REC_MAX_TEXT) {
		m.kind = kind == MONITOR_STOP ? MONITOR_GROUPS : piece_kind(kind);
		for (size_t n; len; text += n, len -= n) {
			n = len < REC_MAX_TEXT ? len : REC_MAX_TEXT;
			emit_monitor(&m, text, n);
		}
		if (m.kind == kind)
			return; /* pieces are all that there is */
		m.kind = kind;
	}
	emit_monitor(&m, text, len);
	if (kind == MONITOR_START)
		guest_wake_recorder(); /* it sleeps long where nothing happens */
}
