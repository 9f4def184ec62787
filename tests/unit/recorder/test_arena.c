/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/arena.h"

#include "arenas.h"
#include "test.h"
#include "tmpdir.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NAME "1-2-0.ring"

static struct arena_head *hand; /* the job's side */
static struct arena *seen; /* ours */

/* An arena of this very process, seen from both sides. */
static void both_sides(void)
{
	hand = hand_arena(tmpfile_path(NAME), (uint32_t)getpid());
	seen = arena_open(tmpdir(), NAME);
	CHECK(seen);
}

/* Everything behind *at, in records of 40 bytes; the addresses as text. */
static const char *read_on(uint32_t ring, struct ring_reader *at)
{
	static char out[8192];
	struct arena_piece p;
	size_t n = 0;

	out[0] = '\0';
	for (unsigned pieces = 0; arena_next_piece(seen, ring, at, &p); pieces++) {
		CHECK(pieces < 1000);
		CHECK(p.offset + p.bytes == at->off);
		for (uint32_t off = 0; off < p.bytes && n < sizeof(out) - 32;) {
			const struct rec_alloc *r = (const struct rec_alloc *)(p.data + off);
			CHECK(rec_check(&r->head, p.bytes - off));
			if (r->head.type == REC_ALLOC)
				n += (size_t)snprintf(out + n, sizeof(out) - n, "%llu ",
						      (unsigned long long)r->addr);
			off += r->head.size;
		}
	}
	return out;
}

TEST(arena, opens_only_what_is_one)
{
	struct arena_head *a = hand_arena(tmpfile_path(NAME), 1);

#define REFUSED(member, value)                                                                     \
	do {                                                                                       \
		struct arena_head keep = *a;                                                       \
		a->member = value;                                                                 \
		CHECK(!arena_open(tmpdir(), NAME));                                                \
		*a = keep;                                                                         \
	} while (0)
	REFUSED(magic, 0);
	REFUSED(magic, ARENA_MAGIC ^ 1);
	REFUSED(version, ARENA_VERSION + 1);
	REFUSED(max_rings, ARENA_MAX_RINGS + 1);
	REFUSED(max_rings, 0);
	REFUSED(max_segs, 0);
	REFUSED(max_segs, HAND_SEGS + 1); /* the file is too short for it */
	REFUSED(max_segs, UINT32_MAX);
	REFUSED(stack_bytes, 0);
	REFUSED(stack_bytes, ARENA_SMALL_STACKS + 8);
	REFUSED(stack_bytes, ARENA_LARGE_STACKS); /* the file is too short for it */
	struct arena *ok = arena_open(tmpdir(), NAME);
	CHECK(ok && ok->proc.pid == 1);
	arena_close(ok);
	CHECK(truncate(tmpfile_path(NAME), 4096) == 0);
	CHECK(!arena_open(tmpdir(), NAME));
	CHECK(truncate(tmpfile_path(NAME), 0) == 0);
	CHECK(!arena_open(tmpdir(), NAME));
	CHECK(!arena_open(tmpdir(), "none"));
	CHECK(symlink(tmpfile_path(NAME), tmpfile_path("link")) == 0);
	CHECK(!arena_open(tmpdir(), "link"));
	CHECK(mkfifo(tmpfile_path("fifo"), 0600) == 0);
	CHECK(!arena_open(tmpdir(), "fifo"));
}

TEST(arena, reads_along_the_chain)
{
	struct ring_reader at = {0};

	both_sides();
	CHECK_INT(arena_nrings(seen), 0);
	uint32_t ring = hand_ring(hand, 7);
	CHECK_INT(arena_nrings(seen), 1);
	CHECK_STR(read_on(ring, &at), "");
	hand_alloc(hand, ring, 1, 11);
	hand_alloc(hand, ring, 2, 12);
	CHECK_STR(read_on(ring, &at), "11 12 ");
	CHECK_STR(read_on(ring, &at), "");
	hand_seg(hand, ring);
	CHECK_STR(read_on(ring, &at), "");
	hand_seg(hand, ring);
	hand_alloc(hand, ring, 3, 13);
	CHECK_STR(read_on(ring, &at), "13 ");
	arena_close(seen);
	CHECK_INT(arena_remove(tmpdir(), NAME, NULL), 0);
	CHECK_INT(arena_remove(tmpdir(), NAME, NULL), 0);
	CHECK(access(tmpfile_path(NAME), F_OK) < 0);
}

TEST(arena, gives_segments_back_behind_the_position)
{
	struct ring_reader at = {0};

	both_sides();
	uint32_t ring = hand_ring(hand, 7);
	uint32_t first = atomic_load(&arena_ring(hand, ring)->last_seg);
	uint32_t second = hand_seg(hand, ring), third = hand_seg(hand, ring);
	CHECK_INT(arena_nrings(seen), 1);
	hand_alloc(hand, ring, 1, 1);
	read_on(ring, &at);
	CHECK(atomic_load(arena_seg_state(hand, first - 1)));
	arena_advance(seen, ring, second, sizeof(struct seg));
	CHECK(!atomic_load(arena_seg_state(hand, first - 1)));
	CHECK(atomic_load(arena_seg_state(hand, second - 1)));
	CHECK(!arena_is_empty(seen));
	arena_advance(seen, ring, third, at.off);
	CHECK(!atomic_load(arena_seg_state(hand, second - 1)));
	CHECK(atomic_load(arena_seg_state(hand, third - 1)));
	CHECK(arena_is_empty(seen));
	CHECK_INT(arena_unreachable(seen), 0);
	arena_close(seen);
}

/* A position from a recording: the segment by its number, or the next that is left. */
TEST(arena, seeks)
{
	struct ring_reader *at;

	both_sides();
	uint32_t ring = hand_ring(hand, 7), other = hand_ring(hand, 8);
	uint32_t segs[4] = {atomic_load(&arena_ring(hand, ring)->last_seg)};
	for (int i = 1; i < 4; i++) {
		hand_seg(hand, other);
		segs[i] = hand_seg(hand, ring);
		hand_alloc(hand, ring, 1, 20u + (unsigned)i);
	}
	arena_nrings(seen);
	arena_seek(seen, ring, 2, sizeof(struct seg) + sizeof(struct rec_alloc), 70);
	at = &seen->rings[ring];
	CHECK_INT(at->tid, 70);
	CHECK_INT(at->seg, segs[2]);
	struct ring_reader copy = *at;
	CHECK_STR(read_on(ring, &copy), "23 ");
	atomic_store(arena_seg_state(hand, segs[0] - 1), 0);
	atomic_store(arena_seg_state(hand, segs[1] - 1), 0);
	arena_seek(seen, ring, 1, 1000, 70);
	CHECK_INT(at->seg, segs[2]);
	CHECK_INT(at->off, sizeof(struct seg));
	/* Nonsense moves nothing and touches nothing. */
	arena_seek(seen, 2, 0, 0, 1);
	arena_seek(seen, UINT32_MAX, 0, 0, 1);
	arena_seek(seen, ring, 0, ARENA_SEG_SIZE + 1, 1);
	CHECK_INT(at->tid, 70);
	arena_seek(seen, ring, UINT64_MAX, 64, 71);
	CHECK_INT(at->seg, segs[2]);
	arena_close(seen);
}

static void expect_end(uint32_t ring, const char *want)
{
	struct ring_reader at = {0};

	CHECK_STR(read_on(ring, &at), want);
}

/* Chains that lead nowhere end there, and nobody turns in circles. */
TEST(arena, hostile_chains)
{
	both_sides();
	uint32_t ring = hand_ring(hand, 7), other = hand_ring(hand, 8);
	hand_alloc(hand, ring, 1, 11);
	uint32_t a = atomic_load(&arena_ring(hand, ring)->last_seg);
	uint32_t b = hand_seg(hand, ring);
	arena_nrings(seen);
	struct seg *sa = arena_seg(hand, a - 1), *sb = arena_seg(hand, b - 1);

	atomic_store(&sb->next, a); /* a circle with nothing new in it */
	expect_end(ring, "11 ");
	hand_alloc(hand, ring, 2, 12); /* … and one with data */
	expect_end(ring, "11 12 ");
	atomic_store(&sb->next, b);
	expect_end(ring, "11 12 ");
	atomic_store(&sb->next, HAND_SEGS + 1);
	expect_end(ring, "11 12 ");
	atomic_store(&sb->next, UINT32_MAX);
	expect_end(ring, "11 12 ");
	atomic_store(&sb->next, atomic_load(&arena_ring(hand, other)->first_seg));
	expect_end(ring, "11 12 ");
	atomic_store(&sb->next, 0);
	atomic_store(&sa->next, 0);
	expect_end(ring, "11 ");
	seen->rings[ring].seg = a;
	CHECK_INT(arena_unreachable(seen), sizeof(struct rec_alloc));
	seen->rings[ring].seg = 0;
	arena_advance(seen, ring, b, 64); /* not reachable from a: ends all the same */
	seen->rings[ring].seg = 0;
	atomic_store(&arena_ring(hand, ring)->first_seg, UINT32_MAX);
	expect_end(ring, "");
	atomic_store(&arena_ring(hand, ring)->first_seg,
		     atomic_load(&arena_ring(hand, other)->first_seg));
	expect_end(ring, "");
	arena_close(seen);
}

TEST(arena, hostile_numbers)
{
	struct arena_piece p;
	static const uint32_t useds[] = {0, 1, 63, 65, ARENA_SEG_SIZE + 8, UINT32_MAX};

	both_sides();
	uint32_t ring = hand_ring(hand, 7);
	struct seg *s = arena_seg(hand, atomic_load(&arena_ring(hand, ring)->last_seg) - 1);
	arena_nrings(seen);
	for (size_t i = 0; i < sizeof(useds) / sizeof(useds[0]); i++) {
		struct ring_reader at = {0};
		atomic_store(&s->used, useds[i]);
		while (arena_next_piece(seen, ring, &at, &p))
			CHECK(p.data >= (char *)seen->head &&
			      p.data + p.bytes <= (char *)seen->head + seen->bytes &&
			      p.bytes % 8 == 0);
	}
	atomic_store(&hand->nrings, UINT32_MAX);
	CHECK_INT(arena_nrings(seen), ARENA_MAX_RINGS);
	CHECK(arena_is_empty(seen) || true);
	atomic_store(&hand->nsegs, UINT32_MAX);
	arena_seek(seen, ARENA_MAX_RINGS - 1, 0, 64, 1);
	/* The head is what it was when it was checked, whatever it says now. */
	hand->max_segs = UINT32_MAX;
	hand->file_bytes = UINT64_MAX;
	hand->magic = 0;
	arena_is_empty(seen);
	arena_close(seen);
}

TEST(arena, stacks)
{
	static const uint64_t pcs[] = {0x10, 0x20, 0x30};
	uint64_t out[ARENA_MAX_DEPTH];

	both_sides();
	uint32_t id = hand_stack(hand, pcs, 3), last = ARENA_SMALL_STACKS / 8 - 1;
	CHECK_INT(arena_read_stack(seen, id, out), 3);
	CHECK_INT(out[2], 0x30);
	CHECK(!arena_stack_is_recorded(seen, id));
	arena_set_stack_recorded(seen, id);
	CHECK(arena_stack_is_recorded(seen, id));
	CHECK(!arena_stack_is_recorded(seen, id + 1));
	CHECK_INT(arena_read_stack(seen, 0, out), 0);
	CHECK_INT(arena_read_stack(seen, last, out), 0);
	CHECK_INT(arena_read_stack(seen, last + 1, out), 0);
	CHECK_INT(arena_read_stack(seen, UINT32_MAX, out), 0);
	CHECK(!arena_stack_is_recorded(seen, UINT32_MAX));
	arena_stack(hand, id)->depth = ARENA_MAX_DEPTH + 1;
	CHECK_INT(arena_read_stack(seen, id, out), 0);
	arena_stack(hand, id)->depth = UINT32_MAX;
	CHECK_INT(arena_read_stack(seen, id, out), 0);
	arena_stack(hand, last - 1)->depth = 1;
	CHECK_INT(arena_read_stack(seen, last - 1, out), 1);
	arena_stack(hand, last - 1)->depth = 2; /* the second address lies behind the stacks */
	CHECK_INT(arena_read_stack(seen, last - 1, out), 0);
	arena_close(seen);
}

/* Parts that go on in each other, innermost first. */
TEST(arena, stacks_in_parts)
{
	uint64_t out[ARENA_MAX_DEPTH], outer[STACK_CHUNK] = {8, 9}, inner[] = {6, 7, 0}, most[999];

	both_sides();
	uint32_t first = hand_stack(hand, outer, 2);
	inner[2] = STACK_REST | first;
	uint32_t id = hand_stack(hand, inner, 3);
	CHECK_INT(arena_read_stack(seen, id, out), 4);
	for (unsigned i = 0; i < 4; i++)
		CHECK_INT(out[i], 6 + i);
	/* One behind the other as deep as stacks may be, and one more. */
	for (unsigned i = 0; i < 999; i++)
		most[i] = i;
	most[998] = STACK_REST | first;
	CHECK_INT(arena_read_stack(seen, hand_stack(hand, most, 999), out), 1000);
	inner[1] = STACK_REST | hand_stack(hand, most, 999);
	CHECK_INT(arena_read_stack(seen, hand_stack(hand, inner, 2), out), 0);
	/* What a damaged or hostile arena may say: itself, a younger one, nothing, none. */
	uint64_t *rest = &arena_stack(hand, id)->pc[2];
	for (uint64_t bad = 0; bad < 4; bad++) {
		*rest = STACK_REST | (uint64_t[]){id, id + 4, 0, UINT32_MAX}[bad];
		CHECK_INT(arena_read_stack(seen, id, out), 0);
	}
	arena_close(seen);
}

TEST(arena, who_lives)
{
	both_sides();
	CHECK(!seen->proc.dead && arena_process_lives(seen));
	arena_close(seen);
	hand->address += 4096; /* our number, but another process */
	seen = arena_open(tmpdir(), NAME);
	CHECK(seen->proc.dead);
	arena_close(seen);
	hand->address = 0; /* nobody can tell */
	seen = arena_open(tmpdir(), NAME);
	CHECK(!seen->proc.dead && seen->pidfd >= 0);
	arena_close(seen);
	hand->pid = 0;
	seen = arena_open(tmpdir(), NAME);
	CHECK(seen->proc.dead);
	arena_close(seen);
}

TEST(arena, sees_a_death)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	hand = hand_arena(tmpfile_path(NAME), (uint32_t)pid);
	seen = arena_open(tmpdir(), NAME);
	CHECK(!seen->proc.dead && arena_process_lives(seen));
	kill(pid, SIGKILL);
	for (int i = 0; i < 1000 && arena_process_lives(seen); i++)
		usleep(1000);
	CHECK(!arena_process_lives(seen)); /* though nobody has waited for it yet */
	struct arena *late = arena_open(tmpdir(), NAME);
	CHECK(late->proc.dead);
	arena_close(late);
	arena_close(seen);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

#define OTHER_NS 1 /* no namespace has this inode: its processes are out of sight */

/* Whether it lives is then known by the file: somebody has it mapped, or nobody has. */
TEST(arena, a_process_out_of_sight)
{
	both_sides();
	hand->pid_ns = OTHER_NS;
	arena_close(seen);
	seen = arena_open(tmpdir(), NAME);
	CHECK(!seen->proc.dead && seen->pidfd < 0 && !seen->proc.shown_pid);
	CHECK(arena_process_lives(seen));
	if (seen->proc.uncertain)
		SKIP("the file system does not say who uses a file");
	munmap(hand, hand->file_bytes);
	seen->asked_ns = 0;
	CHECK(!arena_process_lives(seen));
	arena_close(seen);
	seen = arena_open(tmpdir(), NAME);
	CHECK(seen->proc.dead);
	arena_close(seen);
}

TEST(arena, only_what_nobody_makes_is_abandoned)
{
	int fd = open(tmpfile_path(NAME), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(!arena_is_abandoned(tmpdir(), NAME));
	close(fd);
	CHECK(arena_is_abandoned(tmpdir(), NAME));
	hand_arena(tmpfile_path(NAME), 999999999);
	CHECK(!arena_is_abandoned(tmpdir(), NAME)); /* it is complete: there are events in it */
	CHECK(arena_is_done(tmpdir(), NAME));
	CHECK(!arena_is_abandoned(tmpdir(), "no-such.ring"));
}

static int gate[2];

static void *linger(void *arg)
{
	char c;

	_exit(read(gate[0], &c, 1) != 1);
	return arg;
}

/* A job may leave main() by pthread_exit(): a zombie in /proc, and very much alive. */
TEST(arena, first_thread_gone)
{
	CHECK(pipe(gate) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t t;
		pthread_create(&t, NULL, linger, NULL);
		pthread_exit(NULL);
	}
	char path[64], text[1024] = "", state = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (int i = 0; i < 1000 && state != 'Z'; i++) {
		usleep(1000);
		FILE *f = fopen(path, "re");
		CHECK(f && fgets(text, sizeof(text), f));
		fclose(f);
		state = strrchr(text, ')')[2];
	}
	CHECK_INT(state, 'Z');
	hand = hand_arena(tmpfile_path(NAME), (uint32_t)pid);
	hand->address = (uint64_t)(uintptr_t)hand; /* which such a process does not show */
	seen = arena_open(tmpdir(), NAME);
	bool has_pidfd = seen->pidfd >= 0, dead = seen->proc.dead,
	     lives = arena_process_lives(seen);
	CHECK(write(gate[1], "x", 1) == 1);
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(!has_pidfd || (!dead && lives));
	CHECK(!arena_process_lives(seen));
	arena_close(seen);
}
