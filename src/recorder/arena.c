/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/arena.h"

#include "base/fs.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file is checked as fs_open() does: whatever lies there under the name of an arena. *out_fd: the
 * descriptor by which it is mapped. */
static struct arena_head *map_head(const char *path, struct arena *out, struct stat *st,
				   int *out_fd)
{
	int fd = fs_open(path, O_RDWR, 0, NULL);
	struct arena_head h;
	void *p = MAP_FAILED;

	if (fd < 0)
		return NULL;
	if (fstat(fd, st) == 0 && pread(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) &&
	    h.magic == ARENA_MAGIC && h.version == ARENA_VERSION &&
	    h.max_rings == ARENA_MAX_RINGS && h.max_segs && h.max_segs <= ARENA_MAX_SEGS &&
	    (h.stack_bytes == ARENA_SMALL_STACKS || h.stack_bytes == ARENA_LARGE_STACKS) &&
	    (uint64_t)st->st_size >= arena_bytes(h.max_segs, h.stack_bytes)) {
		out->max_segs = h.max_segs;
		out->stack_bytes = h.stack_bytes;
		out->bytes = arena_bytes(h.max_segs, h.stack_bytes);
		p = mmap(NULL, out->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED) {
			madvise(p, out->bytes, MADV_RANDOM); /* most of it is holes */
			/* Who has it mapped is taken for its process (arena_owner.c). */
			madvise(p, out->bytes, MADV_DONTFORK);
		}
	}
	*out_fd = fd;
	if (p != MAP_FAILED)
		return p;
	close(fd);
	return NULL;
}

struct arena *arena_open(const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	struct arena *a = xcalloc(1, sizeof(*a));
	struct stat st;
	int fd;
	struct arena_head *h = map_head(path, a, &st, &fd);

	if (!h) {
		free(path);
		free(a);
		return NULL;
	}
	a->head = h;
	a->dev = st.st_dev;
	a->ino = st.st_ino;
	a->name = xstrdup(name);
	a->path = path;
	a->proc.pid = h->pid;
	a->pid_ns = h->pid_ns;
	a->address = h->address;
	a->image_ns = a->alive_ns = h->image_ns;
	a->recorded = xcalloc(a->stack_bytes / 8 / 8, 1);
	arena_set_owner(a, fd);
	return a;
}

void arena_close(struct arena *a)
{
	if (!a)
		return;
	munmap(a->head, a->bytes);
	if (a->pidfd >= 0)
		close(a->pidfd);
	if (a->fd >= 0)
		close(a->fd);
	free(a->rings);
	free(a->recorded);
	free(a->name);
	free(a->path);
	free(a);
}

int arena_remove(const char *dir, const char *name, struct err *err)
{
	char *path = xasprintf("%s/%s", dir, name);
	int r = fs_unlink(path, err);

	free(path);
	return r == -ENOENT ? 0 : r;
}

bool arena_is_unmade(const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	int fd = fs_open(path, O_RDONLY, 0, NULL);
	uint64_t magic = 0;
	/* The magic is stored last. */
	bool is = fd >= 0 && fs_read_at(fd, &magic, sizeof(magic), 0) >= 0 && !magic;

	if (fd >= 0)
		close(fd);
	free(path);
	return is;
}

bool arena_is_name(const char *name)
{
	size_t len = strlen(name), tail = strlen(SESSION_RING_SUFFIX);

	return len > tail && !strcmp(name + len - tail, SESSION_RING_SUFFIX);
}

bool arena_is_done(const char *dir, const char *name)
{
	struct arena *a = arena_open(dir, name);
	bool done = a ? a->proc.dead || atomic_load(&a->head->left) : arena_is_abandoned(dir, name);

	arena_close(a);
	return done;
}

uint32_t arena_nrings(struct arena *a)
{
	uint32_t n = atomic_load_explicit(&a->head->nrings, memory_order_acquire);

	if (n > ARENA_MAX_RINGS)
		n = ARENA_MAX_RINGS;
	if (n > a->nrings) {
		a->rings = xrealloc(a->rings, n * sizeof(*a->rings));
		memset(a->rings + a->nrings, 0, (n - a->nrings) * sizeof(*a->rings));
		a->nrings = n;
	}
	return n;
}

uint64_t arena_pending(const struct arena *a, uint32_t ring)
{
	return atomic_load_explicit(&arena_ring(a->head, ring)->pending_ns, memory_order_acquire);
}

static uint32_t used_of(const struct arena *a, uint32_t seg)
{
	uint32_t used =
		atomic_load_explicit(&arena_seg(a->head, seg - 1)->used, memory_order_acquire);

	if (used < sizeof(struct seg))
		return sizeof(struct seg);
	return used > ARENA_SEG_SIZE ? ARENA_SEG_SIZE : used & ~7u;
}

/* Segment index + 1 from the arena, or 0 if it is none. */
static uint32_t sane_seg(const struct arena *a, uint32_t seg)
{
	return seg <= a->max_segs ? seg : 0;
}

static uint32_t first_seg(const struct arena *a, uint32_t ring)
{
	struct ring *r = arena_ring(a->head, ring);
	uint32_t seg = sane_seg(a, atomic_load_explicit(&r->first_seg, memory_order_acquire));

	return seg && arena_seg(a->head, seg - 1)->ring == ring ? seg : 0;
}

/* The successor of a segment, 0 for none. Numbers rise along a ring, so no chain is endless. */
static uint32_t next_seg(const struct arena *a, uint32_t ring, uint32_t seg)
{
	struct seg *s = arena_seg(a->head, seg - 1);
	uint32_t next = sane_seg(a, atomic_load_explicit(&s->next, memory_order_acquire));
	const struct seg *n = next ? arena_seg(a->head, next - 1) : NULL;

	return n && n->ring == ring && n->seq > s->seq ? next : 0;
}

bool arena_next_piece(struct arena *a, uint32_t ring, struct ring_reader *at,
		      struct arena_piece *out)
{
	if (!at->seg) {
		at->seg = first_seg(a, ring);
		at->off = sizeof(struct seg);
		if (!at->seg)
			return false;
	}
	for (;;) {
		struct seg *s = arena_seg(a->head, at->seg - 1);
		/* `next` before `used`: a segment with a successor is complete. */
		uint32_t next = next_seg(a, ring, at->seg), used = used_of(a, at->seg);
		if (used > at->off) {
			*out = (struct arena_piece){(char *)s + at->off, used - at->off, at->off};
			at->off = used;
			return true;
		}
		if (!next)
			return false;
		at->seg = next;
		at->off = sizeof(struct seg);
	}
}

void arena_damaged(struct arena *a, uint32_t ring, const struct ring_reader *at, size_t bytes)
{
	a->proc.damaged += bytes;
	arena_advance(a, ring, at->seg, at->off);
}

void arena_advance(struct arena *a, uint32_t ring, uint32_t seg, uint32_t off)
{
	struct ring_reader *rr = &a->rings[ring];
	uint32_t at = rr->seg;

	if (!at)
		at = first_seg(a, ring);
	for (uint32_t hops = 0; at && at != seg && hops <= a->max_segs; hops++) {
		uint32_t next = next_seg(a, ring, at);
		atomic_store_explicit(arena_seg_state(a->head, at - 1), 0, memory_order_release);
		at = next;
	}
	rr->seg = seg;
	rr->off = off;
}

void arena_drop(struct arena *a, uint32_t ring, uint32_t seg, uint32_t off, uint32_t records)
{
	struct ring *r = arena_ring(a->head, ring);

	/* In this order: who is killed between the two has counted too many, never too few. */
	atomic_fetch_add(&r->dropped, records);
	atomic_store(&r->dropped_to, RING_POSITION(arena_seq(a, seg), off));
	arena_advance(a, ring, seg, off);
}

void arena_skip_dropped(struct arena *a)
{
	uint32_t n = arena_nrings(a);

	for (uint32_t i = 0; i < n; i++) {
		const struct ring *r = arena_ring(a->head, i);
		const struct ring_reader *at = &a->rings[i];
		uint64_t to = atomic_load(&r->dropped_to);
		if (to && (!at->seg || RING_POSITION(arena_seq(a, at->seg), at->off) < to))
			arena_seek(a, i, RING_POSITION_SEQ(to), RING_POSITION_OFF(to),
				   at->tid ? at->tid : atomic_load(&r->owner));
	}
}

uint64_t arena_dropped(struct arena *a)
{
	uint64_t sum = 0;
	uint32_t n = arena_nrings(a);

	for (uint32_t i = 0; i < n; i++)
		sum += atomic_load(&arena_ring(a->head, i)->dropped);
	return sum;
}

struct arena_losses arena_losses(struct arena *a)
{
	return (struct arena_losses){atomic_load(&a->head->lost_events),
				     atomic_load(&a->head->lost_stacks), a->proc.damaged};
}

uint64_t arena_seq(const struct arena *a, uint32_t seg)
{
	return arena_seg(a->head, seg - 1)->seq;
}

void arena_seek(struct arena *a, uint32_t ring, uint64_t seq, uint32_t off, uint32_t tid)
{
	uint32_t n = atomic_load(&a->head->nsegs), best = 0;

	if (ring >= arena_nrings(a) || off > ARENA_SEG_SIZE)
		return;
	/* The segment that was being read may have been recycled already: then the next one. */
	for (uint32_t i = 0; i < n && i < a->max_segs; i++) {
		struct seg *s = arena_seg(a->head, i);
		if (!atomic_load(arena_seg_state(a->head, i)) || s->ring != ring || s->seq < seq)
			continue;
		if (!best || s->seq < arena_seq(a, best))
			best = i + 1;
	}
	a->rings[ring].tid = tid;
	if (!best)
		return;
	a->rings[ring].seg = best;
	a->rings[ring].off = arena_seq(a, best) == seq ? off : sizeof(struct seg);
}

bool arena_is_empty(struct arena *a)
{
	struct arena_piece piece;
	uint32_t n = arena_nrings(a);

	for (uint32_t i = 0; i < n; i++) {
		struct ring_reader at = a->rings[i];
		if (arena_next_piece(a, i, &at, &piece))
			return false;
	}
	return true;
}

uint64_t arena_unread(struct arena *a)
{
	struct arena_piece piece;
	uint32_t n = arena_nrings(a);
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct ring_reader at = a->rings[i];
		while (arena_next_piece(a, i, &at, &piece))
			bytes += piece.bytes;
	}
	return bytes;
}

uint64_t arena_unreachable(struct arena *a)
{
	uint64_t bytes = 0;
	uint32_t n = arena_nrings(a);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t last = sane_seg(a, atomic_load(&arena_ring(a->head, i)->last_seg));
		uint32_t at = a->rings[i].seg ? a->rings[i].seg : first_seg(a, i);
		if (last && last != at && (!at || arena_seq(a, last) > arena_seq(a, at)))
			bytes += used_of(a, last) - sizeof(struct seg);
	}
	return bytes;
}

bool arena_stack_is_recorded(const struct arena *a, uint32_t id)
{
	return id < a->stack_bytes / 8 && a->recorded[id / 8] >> id % 8 & 1;
}

void arena_set_stack_recorded(struct arena *a, uint32_t id)
{
	a->recorded[id / 8] |= (uint8_t)(1u << id % 8);
}

void arena_forget_stacks(struct arena *a)
{
	memset(a->recorded, 0, a->stack_bytes / 8 / 8);
}

/* Copies the words of an entry; how many, 0 if there is none or no room for them. */
static uint32_t read_entry(const struct arena *a, uint32_t id, uint64_t *out, uint32_t room)
{
	const uint32_t ids = a->stack_bytes / 8;

	if (!id || id >= ids - 1)
		return 0;
	const struct stack_entry *e =
		(const void *)((char *)a->head + arena_off_stacks(a->max_segs) + (uint64_t)id * 8);
	uint32_t n = *(const volatile uint32_t *)&e->depth;
	if (n > room || n > ids - id - 1)
		return 0;
	memcpy(out, e->pc, n * sizeof(out[0]));
	return n;
}

uint32_t arena_read_stack(const struct arena *a, uint32_t id, uint64_t pc[ARENA_MAX_DEPTH])
{
	uint64_t words[ARENA_MAX_DEPTH + 1];
	uint32_t depth = 0;

	for (;;) {
		uint32_t n = read_entry(a, id, words, ARENA_MAX_DEPTH + 1 - depth);
		if (!n)
			return 0;
		bool more = (words[n - 1] & STACK_PYTHON) == STACK_REST;
		n -= more;
		if (depth + n > ARENA_MAX_DEPTH)
			return 0;
		memcpy(pc + depth, words, n * sizeof(pc[0]));
		depth += n;
		if (!more)
			return depth;
		if ((uint32_t)words[n] >= id) /* an outer part is older */
			return 0;
		id = (uint32_t)words[n];
	}
}
