/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Arenas made by hand; test_ring.c has those of the real producer. */
#include "recorder/drain.h"

#include "arenas.h"
#include "base/mem.h"
#include "recorder/pack/pack.h"
#include "recorder/recording.h"
#include "recorder/recover.h"
#include "recorder/session.h"
#include "recorder/stream.h"
#include "test.h"
#include "tmpdir.h"

#include <sys/stat.h>

#define MS 1000000ull

struct event {
	uint32_t proc, tid, stack;
	uint64_t time_ns, addr;
};

static struct drain *d;
static struct buf batch;
static struct event *events;
static size_t nevents, cap_events;
static size_t nstacks, ncursors, nprocs;

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	(void)arg;
	if (r->type == REC_THREAD) /* who it is, and nothing that happened */
		return;
	events = xgrow(events, &cap_events, nevents + 1, sizeof(*events));
	events[nevents++] =
		(struct event){proc, tid, r->stack, r->time_ns,
			       r->type == REC_ALLOC ? ((const struct rec_alloc *)r)->addr : 0};
}

static void on_stack(void *arg, uint32_t proc, uint32_t id, const uint64_t *pc, uint32_t depth)
{
	(void)arg;
	(void)proc;
	(void)id;
	CHECK(depth && pc[0]);
	nstacks++;
}

static void on_cursor(void *arg, const struct batch_cursor *c)
{
	(void)arg;
	CHECK(c->offset <= ARENA_SEG_SIZE);
	ncursors++;
}

static const struct stream_ops ops = {.record = on_record, .stack = on_stack, .cursor = on_cursor};

static void on_proc(void *arg, const struct frame_proc *p)
{
	CHECK_INT(p->proc, nprocs);
	nprocs++;
	if (arg)
		CHECK(recording_append(arg, FRAME_PROC, p, sizeof(*p), NULL) == 0);
}

static void begin(void)
{
	d = drain_new(tmpdir(), 0);
}

static int scan(void)
{
	return drain_scan(d, on_proc, NULL, NULL);
}

/* One round, told and committed; how many records. */
static uint32_t step(void)
{
	buf_clear(&batch);
	uint32_t n = drain_round(d, &batch);
	size_t had = nevents;
	CHECK_INT(stream_frame(&ops, NULL, FRAME_BATCH, batch.data, batch.len, NULL), 0);
	CHECK_INT(nevents - had, n);
	drain_commit(d);
	return n;
}

static void all(void)
{
	for (unsigned rounds = 0;; rounds++) {
		CHECK(rounds < 1000);
		buf_clear(&batch);
		drain_round(d, &batch);
		if (!batch.len)
			break;
		CHECK_INT(stream_frame(&ops, NULL, FRAME_BATCH, batch.data, batch.len, NULL), 0);
		drain_commit(d);
	}
}

/* The addresses told since the last call. */
static const char *addrs(void)
{
	static char out[4096];
	static size_t from;
	size_t n = 0;

	out[0] = '\0';
	for (; from < nevents; from++)
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%llu ",
				      (unsigned long long)events[from].addr);
	return out;
}

/* A process that lives (we) and one that is long gone. */
static struct arena_head *living(const char *name)
{
	return hand_arena(tmpfile_path(name), (uint32_t)getpid());
}

static struct arena_head *gone(const char *name)
{
	return hand_arena(tmpfile_path(name), 999999999);
}

static uint32_t random_below(uint32_t n)
{
	static uint64_t s = 42;

	s = s * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(s >> 33) % n;
}

TEST(drain, merges_many_rings_by_time)
{
	struct arena_head *a[3];
	uint64_t base = hand_now() - 800 * MS, n = 0;
	uint64_t last[3][40] = {0};

	for (unsigned p = 0; p < 3; p++) {
		char name[] = "0.ring";
		name[0] += (char)p;
		a[p] = p == 2 ? gone(name) : living(name);
		for (uint32_t i = 0; i < 40; i++)
			hand_ring(a[p], 100 * p + i);
	}
	for (; n < 40000; n++)
		CHECK(hand_alloc(a[random_below(3)], random_below(40), base + n * 10, n + 1));
	begin();
	CHECK_INT(scan(), 3);
	drain_check_alive(d, true);
	all();
	CHECK_INT(nevents, n);
	for (size_t i = 0; i < nevents; i++) {
		CHECK_INT(events[i].addr, i + 1);
		uint64_t *ring = &last[events[i].proc][events[i].tid % 100];
		CHECK(*ring < events[i].addr);
		*ring = events[i].addr;
		CHECK_INT(events[i].tid / 100, events[i].proc);
	}
	drain_free(d);
}

/* A record that is older than its predecessor in the ring goes with it, never before. */
TEST(drain, late_records_keep_their_place)
{
	uint64_t t = hand_now() - 100 * MS;
	struct arena_head *a = gone("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);

	hand_alloc(a, x, t + 50, 1);
	hand_alloc(a, x, t + 10, 2);
	hand_alloc(a, x, t + 60, 4);
	hand_alloc(a, y, t + 20, 10);
	hand_alloc(a, y, t + 55, 3);
	begin();
	scan();
	all();
	CHECK_STR(addrs(), "10 1 2 3 4 ");
	drain_free(d);
}

/* A place in Python or an object that an event met first stands before it, with a later time. */
TEST(drain, what_an_event_met_first_does_not_delay_it)
{
	uint64_t t = hand_now() - 100 * MS;
	struct arena_head *a = gone("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);
	struct rec_python place = {.head = {REC_PYTHON, 0, sizeof(place), 0, t + 50}, .id = 7};
	struct rec_module object = {.head = {REC_MODULE, 0, sizeof(object), 0, t + 51}};

	hand_alloc(a, x, t + 10, 1);
	CHECK(hand_put(a, x, &place, sizeof(place)));
	CHECK(hand_put(a, x, &object, sizeof(object)));
	hand_alloc(a, x, t + 20, 2);
	hand_alloc(a, y, t + 30, 3);
	begin();
	scan();
	all();
	CHECK_STR(addrs(), "1 0 0 2 3 ");
	drain_free(d);
}

static void put_pool(struct arena_head *a, uint32_t ring, uint64_t ns, uint64_t addr, uint8_t pool)
{
	struct rec_alloc r = {.head = {REC_ALLOC, 0, sizeof(r), 0, ns}, .addr = addr, .pool = pool};

	CHECK(hand_put(a, ring, &r, sizeof(r)));
}

/* Of host memory, after they are in order, and never to before what came before. */
TEST(drain, times_are_rounded)
{
	uint64_t t = (hand_now() - 100 * MS) / PACK_TICK_NS * PACK_TICK_NS;
	const uint64_t want[] = {0, 0, 50, 50, 1, 128, 128, 230, 230};
	struct arena_head *a = gone("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);

	put_pool(a, x, t + 20, 1, POOL_HOST);
	put_pool(a, y, t + 30, 2, POOL_PYTHON);
	put_pool(a, x, t + 50, 3, POOL_HAL); /* stays as it is */
	put_pool(a, y, t + 60, 4, POOL_HOST);
	put_pool(a, y, t + 1, 5, POOL_CUDA); /* comes late */
	put_pool(a, x, t + 200, 6, POOL_HOST);
	put_pool(a, y, t + 201, 7, POOL_HOST);
	put_pool(a, x, t + 230, 8, POOL_TORCH);
	put_pool(a, x, t + 230, 9, POOL_HOST);
	begin();
	scan();
	all();
	CHECK_STR(addrs(), "1 2 3 4 5 6 7 8 9 ");
	for (size_t i = 0; i < 9; i++)
		CHECK_INT(events[i].time_ns, t + want[i]);
	drain_free(d);
}

/* A round that is worth it: enough in all rings, or a good part of what a process may have. */
TEST(drain, much_is_there)
{
	struct arena_head *a = gone("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);
	uint64_t t = hand_now() - 100 * MS;
	size_t budget = (size_t)a->max_segs * ARENA_SEG_SIZE, n = 0;

	begin();
	CHECK(!drain_has_much(d, 1));
	scan();
	hand_alloc(a, x, t, 1);
	hand_alloc(a, y, t, 2);
	CHECK(drain_has_much(d, 2 * sizeof(struct rec_alloc)));
	CHECK(!drain_has_much(d, budget));
	for (; n < budget / 16; n += sizeof(struct rec_alloc))
		hand_alloc(a, y, t, 3);
	CHECK(drain_has_much(d, budget));
	all();
	CHECK(!drain_has_much(d, 1));
	drain_free(d);
}

/* Nothing younger than what a hook still holds in its hands is told. */
TEST(drain, hold)
{
	uint64_t t = hand_now() - 500 * MS;
	struct arena_head *a = living("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);

	begin();
	scan();
	for (unsigned i = 1; i <= 5; i++)
		hand_alloc(a, y, t + i, i);
	atomic_store(&arena_ring(a, x)->pending_ns, t + 3);
	all();
	CHECK_STR(addrs(), "1 2 3 ");
	hand_alloc(a, x, t + 3, 33);
	atomic_store(&arena_ring(a, x)->pending_ns, 0);
	all();
	CHECK_STR(addrs(), "33 4 5 ");
	drain_free(d);
}

TEST(drain, hold_before_the_clock_is_read)
{
	struct arena_head *a = living("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);

	begin();
	scan();
	all(); /* both were seen at rest */
	uint64_t before = hand_now();
	hand_alloc(a, y, before - 50 * MS, 1);
	atomic_store(&arena_ring(a, x)->pending_ns, RING_PENDING_NOW);
	hand_alloc(a, y, before + 1, 2);
	usleep(2000);
	all();
	CHECK_STR(addrs(), "1 ");
	hand_alloc(a, x, before, 3);
	atomic_store(&arena_ring(a, x)->pending_ns, 0);
	all();
	CHECK_STR(addrs(), "3 2 ");
	drain_free(d);
}

/* Who is about to read the clock does so after its own last record: that much may be told. */
TEST(drain, hold_behind_a_record)
{
	struct arena_head *a = living("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);

	begin();
	scan();
	all();
	uint64_t t = hand_now();
	usleep(5000);
	hand_alloc(a, y, t + MS, 1);
	hand_alloc(a, x, t + 2 * MS, 2);
	hand_alloc(a, y, t + 3 * MS, 3);
	atomic_store(&arena_ring(a, x)->pending_ns, RING_PENDING_NOW);
	all();
	CHECK_STR(addrs(), "1 2 ");
	atomic_store(&arena_ring(a, x)->pending_ns, 0);
	all();
	CHECK_STR(addrs(), "3 ");
	drain_free(d);
}

/* The same when the hold is the first thing that is ever seen of the ring. */
TEST(drain, hold_of_a_new_ring)
{
	struct arena_head *a = living("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);
	uint64_t t = hand_now() - 20 * MS;

	atomic_store(&arena_ring(a, x)->pending_ns, RING_PENDING_NOW);
	hand_alloc(a, y, t + 1, 2);
	begin();
	scan();
	all();
	CHECK_STR(addrs(), "");
	hand_alloc(a, x, t, 1);
	atomic_store(&arena_ring(a, x)->pending_ns, 0);
	all();
	CHECK_STR(addrs(), "1 2 ");
	drain_free(d);
}

/* A hook that hangs in the driver does not stop the recording. */
TEST(drain, hold_that_never_ends)
{
	uint64_t now = hand_now();
	struct arena_head *a = living("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2), z = hand_ring(a, 3);

	begin();
	scan();
	atomic_store(&arena_ring(a, x)->pending_ns, now - 1100 * MS);
	atomic_store(&arena_ring(a, z)->pending_ns, RING_PENDING_NOW);
	hand_alloc(a, y, now - 10 * MS, 1);
	all();
	CHECK_STR(addrs(), "");
	usleep(600000);
	all();
	CHECK_STR(addrs(), "1 ");
	hand_alloc(a, x, now - 1100 * MS, 2); /* late, but not lost */
	atomic_store(&arena_ring(a, x)->pending_ns, UINT64_MAX);
	all();
	CHECK_STR(addrs(), "2 ");
	drain_free(d);
}

/* The hold of a thread that died with its process holds nothing. */
TEST(drain, hold_of_the_dead)
{
	struct arena_head *a = gone("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);

	atomic_store(&arena_ring(a, x)->pending_ns, 5);
	hand_alloc(a, y, hand_now(), 1);
	begin();
	scan();
	all();
	CHECK_STR(addrs(), "1 ");
	drain_free(d);
}

/* The youngest wait until others cannot have older ones; a time of no clock of ours does not. */
TEST(drain, times_ahead)
{
	struct arena_head *a = living("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);
	uint64_t now = hand_now();

	begin();
	scan();
	hand_alloc(a, x, now + 300 * MS, 1);
	hand_alloc(a, y, now + 3600000 * MS, 2);
	hand_alloc(a, y, UINT64_MAX, 3);
	usleep(1000);
	all();
	CHECK_STR(addrs(), "2 3 ");
	usleep(320000);
	all();
	CHECK_STR(addrs(), "1 ");
	drain_free(d);
}

/* More in a ring than one round takes: still one order over all. */
TEST(drain, long_rings)
{
	struct arena_head *a = gone("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);
	uint64_t t = hand_now() - 900 * MS, n = 0;

	for (unsigned i = 0; i < 30000; i++, n++)
		CHECK(hand_alloc(a, x, t + n, n + 1));
	for (unsigned i = 0; i < 15000; i++, n++) {
		CHECK(hand_alloc(a, x, t + n, n + 1));
		n++;
		CHECK(hand_alloc(a, y, t + n, n + 1));
	}
	begin();
	scan();
	all();
	CHECK_INT(nevents, n);
	for (size_t i = 0; i < nevents; i++)
		CHECK_INT(events[i].addr, i + 1);
	drain_free(d);
}

static unsigned in_use(struct arena_head *a)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < a->max_segs; i++)
		n += atomic_load(arena_seg_state(a, i)) != 0;
	return n;
}

TEST(drain, space_goes_back_at_commit)
{
	struct arena_head *a = living("1.ring");
	uint32_t x = hand_ring(a, 1);
	uint64_t n = 0, t = hand_now() - 900 * MS;

	begin();
	scan();
	for (unsigned cycle = 0; cycle < 20; cycle++) {
		while (hand_alloc(a, x, t + n, n + 1))
			n++;
		CHECK_INT(in_use(a), HAND_SEGS);
		buf_clear(&batch);
		CHECK(drain_round(d, &batch));
		CHECK_INT(in_use(a), HAND_SEGS);
		CHECK_INT(stream_frame(&ops, NULL, FRAME_BATCH, batch.data, batch.len, NULL), 0);
		drain_commit(d);
		CHECK(in_use(a) <= HAND_SEGS - 3);
	}
	all();
	CHECK_INT(in_use(a), 1);
	CHECK_INT(nevents, n);
	for (size_t i = 0; i < nevents; i++)
		CHECK_INT(events[i].addr, i + 1);
	drain_free(d);
}

/* A round that is not committed is told again, word for word. */
TEST(drain, round_without_commit)
{
	static const uint64_t pcs[] = {1, 2};
	struct arena_head *a = living("1.ring");
	uint32_t x = hand_ring(a, 1);
	struct buf again = {0};
	struct rec_alloc r = {.head = {REC_ALLOC, 0, sizeof(r), hand_stack(a, pcs, 2), 5},
			      .addr = 1,
			      .pool = POOL_HAL};

	hand_put(a, x, &r, sizeof(r));
	begin();
	scan();
	CHECK_INT(drain_round(d, &batch), 1);
	CHECK_INT(drain_round(d, &again), 1);
	drain_commit(d);
	CHECK_INT(drain_round(d, &again), 0);
	buf_release(&again);
	drain_free(d);
}

TEST(drain, ring_changes_hands)
{
	struct arena_head *a = living("1.ring");
	uint32_t x = hand_ring(a, 1);
	uint64_t t = hand_now() - 10 * MS;

	begin();
	scan();
	hand_alloc(a, x, t, 1);
	step();
	hand_alloc(a, x, t + 1, 2);
	hand_thread(a, x, t + 2, 77);
	step(); /* the round may end with the change itself */
	hand_alloc(a, x, t + 3, 3);
	hand_thread(a, x, t + 4, 78);
	hand_alloc(a, x, t + 5, 4);
	step();
	CHECK_STR(addrs(), "1 2 3 4 ");
	CHECK_INT(events[0].tid, 1);
	CHECK_INT(events[1].tid, 1);
	CHECK_INT(events[2].tid, 77);
	CHECK_INT(events[3].tid, 78);
	drain_free(d);
}

TEST(drain, stacks_are_told_once_and_before)
{
	static const uint64_t pcs[] = {1, 2, 3};
	static uint64_t deep[ARENA_MAX_DEPTH] = {9};
	struct arena_head *a = gone("1.ring");
	uint32_t x = hand_ring(a, 1);
	uint32_t ids[] = {hand_stack(a, pcs, 3),
			  hand_stack(a, deep, ARENA_MAX_DEPTH),
			  0,
			  ARENA_SMALL_STACKS / 8 - 1,
			  ARENA_SMALL_STACKS / 8,
			  UINT32_MAX,
			  500000};

	for (unsigned i = 0; i < 3 * 7; i++) {
		struct rec_alloc r = {.head = {REC_ALLOC, 0, sizeof(r), ids[i % 7], i + 1},
				      .addr = i + 1,
				      .pool = POOL_HAL};
		hand_put(a, x, &r, sizeof(r));
	}
	begin();
	scan();
	all();
	CHECK_INT(nevents, 21);
	CHECK_INT(nstacks, 2);
	for (size_t i = 0; i < nevents; i++)
		CHECK_INT(events[i].stack, i % 7 < 2 ? ids[i % 7] : 0);
	drain_free(d);
}

TEST(drain, end_of_a_process)
{
	struct arena_head *a = gone("1.ring");
	struct frame_proc_end e;

	living("2.ring");

	hand_alloc(a, hand_ring(a, 1), 5, 1);
	atomic_store(&a->lost_events, 3);
	atomic_store(&a->lost_stacks, 4);
	begin();
	CHECK_INT(scan(), 2);
	CHECK_INT(scan(), 0);
	CHECK_INT(drain_check_alive(d, false), 1);
	CHECK(!drain_next_dead(d)); /* there is something left to read */
	all();
	struct drain_proc *p = drain_next_dead(d);
	CHECK(p && p->pid == 999999999);
	drain_end_frame(d, p, &e);
	drain_finish(d, p, true);
	CHECK_INT(e.proc, 0);
	CHECK_INT(e.lost_events, 3);
	CHECK_INT(e.lost_stacks, 4);
	CHECK_INT(e.damaged, 0);
	CHECK(access(tmpfile_path("1.ring"), F_OK) < 0);
	CHECK(!drain_next_dead(d));
	CHECK_INT(drain_living_pid(d), getpid());
	CHECK_INT(scan(), 0);
	drain_free(d);
}

TEST(drain, a_process_that_goes_on_elsewhere)
{
	struct arena_head *a = living("1.ring");

	begin();
	hand_alloc(a, hand_ring(a, 1), hand_now() - 10 * MS, 7);
	CHECK_INT(scan(), 1);
	CHECK_INT(drain_check_alive(d, false), 1);
	CHECK(!drain_has_left(d));
	atomic_store(&a->left, 1);
	CHECK_INT(drain_check_alive(d, false), 0);
	CHECK(drain_has_left(d));
	CHECK(!drain_next_dead(d)); /* not before it is read to its end */
	all();
	CHECK_STR(addrs(), "7 ");
	CHECK(drain_next_dead(d));
	drain_free(d);
}

/* exec(): a second arena of the same process; the first one is not mapped any more. */
TEST(drain, exec)
{
	struct arena_head *a = living("5-1-0.ring");

	begin();
	scan();
	CHECK_INT(drain_check_alive(d, false), 1);
	hand_alloc(a, hand_ring(a, 1), 5, 1);
	struct arena_head *b = living("5-1-1.ring");
	munmap(a, a->file_bytes);
	b->image_ns = 1;
	CHECK_INT(scan(), 1);
	CHECK_INT(drain_check_alive(d, false), 1);
	all();
	CHECK_STR(addrs(), "1 ");
	CHECK_INT(drain_next_dead(d)->number, 0);
	drain_free(d);
}

/* A number twice, and times of different clocks: who has its arena mapped goes on. */
TEST(drain, two_processes_of_one_number)
{
	struct arena_head *a = living("5-1-0.ring");

	living("5-1-1.ring")->image_ns = 1;
	begin();
	CHECK_INT(scan(), 2);
	CHECK_INT(drain_check_alive(d, false), 2);
	CHECK(!drain_check_images(d));
	munmap(a, a->file_bytes);
	CHECK(drain_check_images(d));
	CHECK_INT(drain_check_alive(d, false), 1);
	drain_free(d);
}

/* --- counts --- */

static struct stream_losses losses;

static void on_count(void *arg, const struct batch_count *c)
{
	(void)arg;
	stream_losses_count(&losses, c);
}

/* A round whose batch is kept, or not; what the counts of the kept ones say. */
static void round_of(bool kept)
{
	static const struct stream_ops counts = {.count = on_count};

	buf_clear(&batch);
	drain_round(d, &batch);
	if (!kept) {
		drain_drop(d);
		return;
	}
	CHECK_INT(stream_frame(&counts, NULL, FRAME_BATCH, batch.data, batch.len, NULL), 0);
	drain_commit(d);
}

TEST(drain, batches_that_were_not_kept_are_counted)
{
	struct arena_head *a = gone("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2);
	struct frame_proc_end end;

	losses = (struct stream_losses){0};
	begin();
	scan();
	drain_check_alive(d, true);
	for (unsigned i = 1; i <= 12; i++) {
		hand_alloc(a, i % 2 ? x : y, i, i);
		round_of(i % 3 == 0);
		CHECK_INT(losses.records, i / 3 * 3);
		CHECK_INT(losses.missing, i / 3 * 2);
	}
	hand_alloc(a, x, 13, 13);
	round_of(false); /* and no other batch comes: the end says so */
	atomic_store(&a->lost_events, 5);
	drain_end_frame(d, drain_next_dead(d), &end);
	CHECK_INT(end.lost_events, 5 + 9);
	CHECK_INT(end.records, 13);
	end.lost_events = 5; /* as if it did not */
	stream_losses_end(&losses, &end);
	CHECK_INT(end.lost_events, 9);
	drain_free(d);
}

TEST(drain, losses_are_in_batches_as_they_grow)
{
	struct arena_head *a = gone("1.ring");
	struct frame_proc_end none = {0};

	losses = (struct stream_losses){0};
	begin();
	scan();
	drain_check_alive(d, true);
	round_of(true);
	CHECK(!batch.len);
	atomic_store(&a->lost_events, 7);
	atomic_store(&a->lost_stacks, 8);
	round_of(false);
	CHECK(batch.len);
	round_of(true); /* once more, as it was not kept */
	CHECK_INT(losses.events, 7);
	CHECK_INT(losses.stacks, 8);
	round_of(true);
	CHECK(!batch.len);
	stream_losses_end(&losses, &none); /* of a process without an end */
	CHECK_INT(none.lost_events, 7);
	CHECK_INT(none.lost_stacks, 8);
	drain_free(d);
}

/* --- arenas that were read --- */

TEST(drain, never_twice)
{
	char *other = xstrdup(tmpfile_path("2.ring"));
	struct arena_head *a = gone("1.ring");

	hand_alloc(a, hand_ring(a, 1), 1, 1);
	begin();
	CHECK_INT(scan(), 1);
	drain_check_alive(d, true);
	all();
	drain_finish(d, drain_next_dead(d), false);
	CHECK(access(tmpfile_path("1.ring"), F_OK) == 0);
	CHECK_INT(scan(), 0);
	CHECK(rename(tmpfile_path("1.ring"), other) == 0); /* by another name */
	CHECK_INT(scan(), 0);
	CHECK(access(other, F_OK) < 0); /* and now it could be removed */
	a = gone("3.ring"); /* another image, even if its file gets the number of the first */
	a->image_ns = 3;
	CHECK_INT(scan(), 1);
	drain_free(d);
	free(other);
}

TEST(drain, never_again_what_a_recording_has)
{
	struct arena_head *a = gone("1.ring");
	struct frame_proc p = {.proc = 4, .pid = a->pid, .pid_ns = a->pid_ns};

	begin();
	drain_know(d, &p);
	drain_forget(d, 4);
	CHECK_INT(scan(), 0);
	CHECK(access(tmpfile_path("1.ring"), F_OK) < 0);
	drain_free(d);
}

/* --- what a broken or hostile job may leave --- */

/* Reads the arena of a dead process to its end; bytes counted as damaged. */
static uint64_t read_hostile(void)
{
	struct frame_proc_end e = {0};

	begin();
	CHECK_INT(scan(), 1);
	drain_check_alive(d, true);
	all();
	struct drain_proc *p = drain_next_dead(d);
	CHECK(p);
	drain_end_frame(d, p, &e);
	drain_finish(d, p, true);
	drain_free(d);
	return e.damaged;
}

TEST(drain, garbage_in_a_ring)
{
	struct arena_head *a = gone("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2), z = hand_ring(a, 3);
	char junk[104];

	memset(junk, 0xff, sizeof(junk));
	hand_alloc(a, x, 1, 1);
	hand_put(a, x, junk, sizeof(junk));
	hand_seg(a, x); /* what follows in the next segment is good again */
	hand_alloc(a, x, 3, 3);
	hand_put(a, y, junk, sizeof(junk));
	hand_seg(a, y);
	hand_put(a, y, junk, sizeof(junk));
	hand_seg(a, y);
	hand_alloc(a, y, 2, 2);
	atomic_store(&arena_seg(a, atomic_load(&arena_ring(a, z)->last_seg) - 1)->used, 64);
	hand_put(a, z, junk, sizeof(junk)); /* nothing good in it at all */
	CHECK_INT(read_hostile(), 4 * sizeof(junk));
	CHECK_INT(nevents, 3);
	CHECK_STR(addrs(), "1 2 3 ");
}

TEST(drain, hostile_geometry)
{
	struct arena_head *a = gone("1.ring");
	uint32_t x = hand_ring(a, 1), y = hand_ring(a, 2), z = hand_ring(a, 3);

	for (unsigned i = 1; i < 3000; i++)
		hand_alloc(a, x, i, i);
	/* A circle, a segment that claims too much, a ring that begins nowhere. */
	struct seg *first = arena_seg(a, atomic_load(&arena_ring(a, x)->first_seg) - 1);
	struct seg *last = arena_seg(a, atomic_load(&arena_ring(a, x)->last_seg) - 1);
	CHECK(first != last);
	atomic_store(&last->next, atomic_load(&arena_ring(a, x)->first_seg));
	hand_alloc(a, y, 1, 9000);
	atomic_store(&arena_seg(a, atomic_load(&arena_ring(a, y)->last_seg) - 1)->used, UINT32_MAX);
	atomic_store(&arena_ring(a, z)->first_seg, 12345678);
	atomic_store(&a->nrings, UINT32_MAX);
	atomic_store(&a->nsegs, UINT32_MAX);
	uint64_t damaged = read_hostile();
	CHECK_INT(nevents, 3000);
	CHECK(damaged >= ARENA_SEG_SIZE - 200);
}

static void scribble(struct arena_head *a, size_t from, size_t n, unsigned times)
{
	static const uint64_t values[] = {0, 1, 7, 63, 64, 65536, 65537, 0xffff, 0x80000000, ~0ull};

	while (times--) {
		uint64_t v = random_below(2) ? values[random_below(10)] : random_below(UINT32_MAX);
		memcpy((char *)a + from + random_below((uint32_t)n), &v, 1u << random_below(4));
	}
}

/* Anything anywhere: it ends, it does not crash, and what is told is well formed. */
TEST(drain, scribbled_arenas)
{
	for (unsigned i = 0; i < 60; i++) {
		struct arena_head *a = gone("1.ring");
		uint32_t rings[4];
		for (unsigned k = 0; k < 4; k++)
			rings[k] = hand_ring(a, k);
		for (unsigned k = 1; k < 4000; k++)
			hand_alloc(a, rings[k % 4], k, k);
		struct arena_head keep = *a;
		scribble(a, ARENA_OFF_RINGS, 4 * sizeof(struct ring), random_below(6));
		for (unsigned s = 0; s < 6; s++)
			scribble(a, ARENA_OFF_SEGS + s * ARENA_SEG_SIZE, sizeof(struct seg),
				 random_below(3));
		scribble(a, ARENA_OFF_SEGS, 4 * ARENA_SEG_SIZE, random_below(50));
		scribble(a, offsetof(struct arena_head, nrings), 64, random_below(4));
		a->magic = keep.magic;
		read_hostile();
		nprocs = 0;
		munmap(a, arena_bytes(HAND_SEGS, ARENA_SMALL_STACKS));
	}
}

TEST(drain, directory)
{
	struct err err = {0};

	d = drain_new("/nonexistent/sonde", 0);
	CHECK(drain_scan(d, on_proc, NULL, &err) < 0);
	CHECK(strstr(err.text, "/nonexistent/sonde"));
	drain_free(d);
	begin();
	CHECK_INT(scan(), 0);
	int fd = open(tmpfile_path(".ring"), O_WRONLY | O_CREAT, 0600);
	close(fd);
	fd = open(tmpfile_path("short.ring"), O_WRONLY | O_CREAT, 0600);
	CHECK(write(fd, "abc", 3) == 3);
	close(fd);
	CHECK(mkdir(tmpfile_path("dir.ring"), 0700) == 0);
	CHECK_INT(scan(), 0);
	struct arena_head *a = gone("short.ring"); /* complete only now */
	CHECK_INT(scan(), 1);
	hand_unmap(a);
	drain_free(d);
}

/* --- the recorder dies --- */

static void keep_end(void *arg, const struct frame_proc_end *e)
{
	*(struct frame_proc_end *)arg = *e;
}

#define TOTAL 5000u

static struct arena_head *job;

/* A session with a recording that has begun, and a job of two threads. */
static struct recording_writer *session(void)
{
	struct control_page *page;
	struct recording_writer *w;
	char json[4200];

	CHECK_INT(session_map(tmpdir(), true, &page, NULL), 0);
	session_unmap(page);
	CHECK_INT(recording_create(&w, tmpfile_path(SESSION_RECORDING), NULL), 0);
	int n = snprintf(json, sizeof(json), "{\"outputDir\":\"%s/out\"}", tmpdir());
	CHECK_INT(recording_append(w, FRAME_SESSION, json, (size_t)n, NULL), 0);
	job = gone("9-1-0.ring");
	hand_ring(job, 1);
	hand_ring(job, 2);
	return w;
}

static void produce(uint64_t from, uint64_t to)
{
	uint64_t t = hand_now() - 900 * MS;

	for (uint64_t i = from; i < to; i++)
		CHECK(hand_alloc(job, (uint32_t)i % 2, t + i, i + 1));
}

static const struct recover_options believe_nothing;

/* Recovers; then the recording holds every event once, in order, under its thread. */
static void recover_and_check(const char *words)
{
	struct buf report = {0};
	struct err err = {0};
	bool torn;

	if (recover_recording(tmpdir(), &believe_nothing, &report, &err) < 0)
		fprintf(stderr, "%s\n", err.text);
	CHECK(strstr(buf_str(&report), words));
	nevents = 0;
	CHECK_INT(stream_file(tmpfile_path(SESSION_RECORDING), &ops, NULL, &torn, NULL), 0);
	CHECK(!torn);
	CHECK_INT(nevents, TOTAL);
	for (size_t i = 0; i < nevents; i++) {
		CHECK_INT(events[i].addr, i + 1);
		CHECK_INT(events[i].tid, i % 2 + 1);
		CHECK_INT(events[i].proc, 0);
	}
	CHECK(access(tmpfile_path("9-1-0.ring"), F_OK) < 0);
	buf_clear(&report);
	CHECK_INT(recover_recording(tmpdir(), &believe_nothing, &report, NULL), 0);
	CHECK(strstr(buf_str(&report), "nothing to recover"));
	buf_release(&report);
}

enum death { BEFORE_APPEND, IN_APPEND, AFTER_APPEND, AFTER_COMMIT };

/* Some rounds in order, then a death at that point of the last one. */
static void record_and_die(enum death when, uint64_t recorded)
{
	struct recording_writer *w = session();

	produce(0, recorded / 2);
	begin();
	drain_scan(d, on_proc, w, NULL);
	buf_clear(&batch);
	drain_round(d, &batch);
	CHECK_INT(recording_append(w, FRAME_BATCH, batch.data, batch.len, NULL), 0);
	drain_commit(d);
	produce(recorded / 2, recorded);
	buf_clear(&batch);
	if (when != BEFORE_APPEND && drain_round(d, &batch)) {
		uint64_t before = recording_bytes(w);
		CHECK_INT(recording_append(w, FRAME_BATCH, batch.data, batch.len, NULL), 0);
		if (when == IN_APPEND)
			CHECK(truncate(tmpfile_path(SESSION_RECORDING),
				       (off_t)(before + recording_bytes(w)) / 2) == 0);
	}
	if (when == AFTER_COMMIT)
		drain_commit(d);
	recording_close(w);
	drain_free(d);
	produce(recorded, TOTAL); /* the job goes on for a moment, and is killed too */
}

TEST(drain, death_before_append)
{
	record_and_die(BEFORE_APPEND, 3000);
	recover_and_check("Recovered 3500 events of 1 process ");
}

TEST(drain, death_in_append)
{
	record_and_die(IN_APPEND, 3000);
	recover_and_check("unfinished write to the recording was cut off");
}

TEST(drain, death_after_append)
{
	record_and_die(AFTER_APPEND, 3000);
	recover_and_check("Recovered 2000 events of 1 process ");
}

TEST(drain, death_after_commit)
{
	record_and_die(AFTER_COMMIT, 3000);
	recover_and_check("Recovered 2000 events of 1 process ");
}

TEST(drain, death_with_nothing_read)
{
	recording_close(session());
	produce(0, TOTAL);
	recover_and_check("Recovered 5000 events of 1 process ");
}

/* Segments that were given back and used again meanwhile are not read twice. */
TEST(drain, death_after_recycling)
{
	struct recording_writer *w = session();
	uint64_t n = 0;

	begin();
	drain_scan(d, on_proc, w, NULL);
	while (n < TOTAL) {
		uint64_t more = n + 500 < TOTAL ? n + 500 : TOTAL;
		produce(n, more);
		n = more;
		buf_clear(&batch);
		drain_round(d, &batch);
		CHECK_INT(recording_append(w, FRAME_BATCH, batch.data, batch.len, NULL), 0);
		if (n < TOTAL)
			drain_commit(d);
	}
	recording_close(w);
	drain_free(d);
	recover_and_check("Recovered 0 events of 1 process ");
}

/* What the recorder dropped before it died is counted; what came after it comes back. */
TEST(drain, death_after_drops)
{
	struct recording_writer *w = session();
	struct buf report = {0};
	static struct frame_proc_end last;
	bool torn;

	begin();
	drain_scan(d, on_proc, w, NULL);
	for (unsigned i = 0; i < 4; i++) {
		produce(i * 1000, (i + 1) * 1000);
		buf_clear(&batch);
		drain_round(d, &batch);
		if (i == 0) {
			CHECK_INT(recording_append(w, FRAME_BATCH, batch.data, batch.len, NULL), 0);
			drain_commit(d);
		} else if (i < 3) {
			drain_drop(d);
		}
	}
	recording_close(w);
	drain_free(d);
	CHECK_INT(recover_recording(tmpdir(), &believe_nothing, &report, NULL), 0);
	CHECK(strstr(buf_str(&report), "Recovered 1000 events of 1 process "));
	nevents = 0;
	CHECK_INT(stream_file(tmpfile_path(SESSION_RECORDING), &ops, NULL, &torn, NULL), 0);
	CHECK_INT(nevents, 2000);
	static const struct stream_ops ends = {.proc_end = keep_end};
	CHECK_INT(stream_file(tmpfile_path(SESSION_RECORDING), &ends, &last, NULL, NULL), 0);
	CHECK_INT(last.lost_events, 2000);
	buf_release(&report);
}

/* Behind damage there may be more; recovery does not stop there. */
TEST(drain, recovery_behind_damage)
{
	struct buf report = {0};
	char junk[64];

	memset(junk, 0xff, sizeof(junk));
	recording_close(session());
	hand_put(job, 0, junk, sizeof(junk));
	hand_seg(job, 0);
	produce(0, 10);
	CHECK_INT(recover_recording(tmpdir(), &believe_nothing, &report, NULL), 0);
	CHECK(strstr(buf_str(&report), "Recovered 10 events of 1 process "));
	buf_release(&report);
}
