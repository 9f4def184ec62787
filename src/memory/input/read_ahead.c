/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/input/read_ahead.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#ifdef __SSE2__
#	include <emmintrin.h>
#endif

#include "base/mem.h"
#include "memory/input/reader.h"
#include "memory/input/reader_impl.h"

#define BATCHES 6 /* that are on their way at a time */
#define PIECE (128u << 10)
#define ROWS_PER_TEXT 8 /* bytes of packed rows for a byte of text: no row takes so many … */
#define ROWS_MORE (512u << 10) /* … and for the end of the last one, in the next piece */
#define MAX_THREADS 3

/* A row and behind its attributes the texts of it and of them. */
struct packed_row {
	size_t bytes; /* of all that, a multiple of 16 */
	struct row row;
};

struct batch {
	struct buf rows; /* packed */
	bool ready; /* under the lock, as long as a worker has it */
	bool good;
	bool last; /* the file ends behind its rows */
	uint64_t begin, end; /* offsets of its first row and of the one behind its last */
	uint64_t lines;
};

/* Each fills batches of its own, so that their memory stays with its processor. */
struct worker {
	struct dump_ahead *ahead;
	struct dump *twin;
	struct buf text;
	struct row row;
	struct buf packed; /* the same */
	struct batch batches[BATCHES];
	pthread_t thread;
} __attribute__((aligned(MEM_APART)));

struct dump_ahead {
	struct dump *dump;
	uint64_t offset; /* of the first piece */
	size_t piece; /* bytes of each */
	struct worker workers[1 + MAX_THREADS]; /* the first is the caller */
	unsigned nthreads;
	/* Under the lock. */
	pthread_mutex_t lock;
	pthread_cond_t ready; /* a batch, for the caller */
	pthread_cond_t empty; /* some batches, for the threads */
	uint64_t begun; /* pieces that somebody has taken */
	uint64_t done; /* pieces that the caller needs no more */
	bool all_begun; /* the end of the file was seen */
	bool stop;
	struct batch *batches[BATCHES]; /* of the pieces that are begun and not done, a ring */
	/* The caller's own. */
	_Alignas(MEM_APART) const struct batch *batch; /* NULL: reads the piece itself, up to … */
	uint64_t piece_end; /* … here */
	const char *at, *end; /* in the rows of the batch */
	struct row row;
};

/* --- a piece becomes a batch --- */

/*
 * Past the caches: another processor reads it next, and would have to fetch it from the cache of
 * this one, which can be far away. In steps of 16 bytes, at places that are multiples of that.
 */
#ifdef __SSE2__
static void hand_over(char *to, const char *from, size_t n)
{
	for (size_t i = 0; i < n; i += 16)
		_mm_stream_si128((__m128i *)(void *)(to + i),
				 _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

static void handed_over(void)
{
	_mm_sfence();
}
#else
static void hand_over(char *to, const char *from, size_t n)
{
	memcpy(to, from, n);
}

static void handed_over(void)
{
}
#endif

/* A row with its texts, as it is made up here and as it will lie there. */
struct packing {
	char *here, *there;
	size_t len;
};

/* Copies whole steps of 16 bytes: there is CELL_SLACK on both sides. */
static inline const char *pack_text(struct packing *p, const char *text, size_t len)
{
	const char *packed = p->there + p->len;

	if (!text)
		return NULL;
	for (size_t i = 0; i < len; i += 16)
		memcpy(p->here + p->len + i, text + i, 16);
	p->len += len;
	return packed;
}

static void pack_row(struct packing *p, const struct row *row)
{
	struct packed_row *packed = (struct packed_row *)(void *)p->here;
	struct row *to = &packed->row;

	memcpy(to, row, row_size(row));
	p->len = offsetof(struct packed_row, row) + row_size(row);
	to->name = pack_text(p, row->name, row->name_len);
	to->py_stack = pack_text(p, row->py_stack, row->py_stack_len);
	to->c_stack = pack_text(p, row->c_stack, row->c_stack_len);
	for (unsigned i = 0; i < row->nattrs; i++) {
		const struct attr *attr = &row->attrs[i];
		bool is_text = attr->kind == ATTR_TEXT;

		to->attrs[i].text = is_text ? pack_text(p, attr->text, attr->text_len) : NULL;
		to->attrs[i].text_len = is_text ? attr->text_len : 0;
	}
	p->len = (p->len + 15) & ~(size_t)15;
	packed->bytes = p->len;
}

static size_t packed_most(const struct row *row)
{
	size_t n = sizeof(struct packed_row) + CELL_SLACK + row->name_len + row->py_stack_len +
		   row->c_stack_len;

	for (unsigned i = 0; i < row->nattrs; i++)
		n += row->attrs[i].text_len;
	return n;
}

/* False: there is no room for it. */
static bool add_row(struct worker *w, struct buf *rows)
{
	size_t most = packed_most(&w->row);

	if (most > rows->cap - rows->len)
		return false;
	buf_clear(&w->packed);
	struct packing p = {buf_room(&w->packed, most), rows->data + rows->len, 0};
	pack_row(&p, &w->row);
	hand_over(p.there, p.here, p.len);
	rows->len += p.len;
	return true;
}

/* The rows that begin before `end`. */
static void read_rows(struct worker *w, struct batch *b, uint64_t end)
{
	const struct dump_source *src = dump_source(w->twin);
	struct buf rows = b->rows; /* what lies beside b->rows is not disturbed for every row */
	int r = 1;

	b->begin = src->next.offset;
	while (src->next.offset < end && (r = dump_next(w->twin, &w->row, NULL)) > 0)
		if (!add_row(w, &rows))
			return;
	handed_over();
	b->rows = rows;
	b->end = src->next.offset;
	b->lines = src->next.line;
	b->last = r == 0;
	b->good = r >= 0 && !dump_torn(w->twin);
}

/* True: the file ends there. */
static bool read_piece(struct worker *w, struct batch *b, uint64_t piece)
{
	struct dump_source *src = dump_source(w->twin);
	uint64_t offset = w->ahead->offset + piece * w->ahead->piece;
	size_t n = w->ahead->piece;

	buf_clear(&b->rows);
	buf_room(&b->rows, ROWS_PER_TEXT * n + ROWS_MORE);
	b->good = b->last = false;
	/* with the byte before it: a row may begin where the piece does */
	if (dump_csv_begin(src, &w->text, n + 1, offset - 1, NULL) < 0)
		return true;
	if (dump_csv_guess(src))
		read_rows(w, b, offset + n);
	return w->text.len < n + 1;
}

/* Under the lock, which is given away meanwhile. */
static void take_piece(struct worker *w)
{
	struct dump_ahead *a = w->ahead;
	uint64_t piece = a->begun++;
	struct batch *b = &w->batches[piece % BATCHES];

	b->ready = false;
	a->batches[piece % BATCHES] = b;
	pthread_mutex_unlock(&a->lock);
	bool ends = read_piece(w, b, piece);
	pthread_mutex_lock(&a->lock);
	b->ready = true;
	a->all_begun |= ends;
	if (piece == a->done)
		pthread_cond_signal(&a->ready);
}

static bool can_take(const struct dump_ahead *a)
{
	return !a->all_begun && a->begun < a->done + BATCHES;
}

static void *run_worker(void *arg)
{
	struct worker *w = arg;
	struct dump_ahead *a = w->ahead;

	pthread_mutex_lock(&a->lock);
	while (!a->stop) {
		if (can_take(a))
			take_piece(w);
		else
			pthread_cond_wait(&a->empty, &a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

/* --- the caller --- */

/* Waits for the batch of the piece at hand. NULL: nobody has begun it. */
static const struct batch *wait_for_batch(struct dump_ahead *a)
{
	struct batch *const *place = &a->batches[a->done % BATCHES], *b;

	pthread_mutex_lock(&a->lock);
	while (a->done == a->begun || !(*place)->ready) {
		if (can_take(a))
			take_piece(&a->workers[0]);
		else if (a->done < a->begun)
			pthread_cond_wait(&a->ready, &a->lock);
		else
			break;
	}
	b = a->done < a->begun ? *place : NULL;
	pthread_mutex_unlock(&a->lock);
	return b;
}

static void next_piece(struct dump_ahead *a)
{
	struct dump_source *src = dump_source(a->dump);

	a->piece_end = a->offset + (a->done + 1) * a->piece;
	a->batch = wait_for_batch(a);
	if (a->batch && (!a->batch->good || a->batch->begin != src->next.offset))
		a->batch = NULL;
	a->at = a->batch ? a->batch->rows.data : NULL;
	a->end = a->batch ? a->at + a->batch->rows.len : NULL;
}

static void piece_done(struct dump_ahead *a)
{
	if (a->batch)
		dump_csv_skip(dump_source(a->dump), a->batch->end, a->batch->lines);
	pthread_mutex_lock(&a->lock);
	a->done++;
	if (a->begun - a->done <= BATCHES / 2)
		pthread_cond_broadcast(&a->empty);
	pthread_mutex_unlock(&a->lock);
}

int dump_ahead_next(struct dump_ahead *a, const struct row **out, struct err *err)
{
	struct dump_source *src = dump_source(a->dump);

	for (;;) {
		const struct batch *b = a->batch;

		if (a->at < a->end) {
			const struct packed_row *p = (const struct packed_row *)(const void *)a->at;

			a->at += p->bytes;
			*out = &p->row;
			return 1;
		}
		if (b && b->last)
			return 0;
		if (!b && src->next.offset < a->piece_end) {
			*out = &a->row;
			return dump_next(a->dump, &a->row, err);
		}
		if (a->piece_end)
			piece_done(a);
		next_piece(a);
	}
}

/* --- beginning and end --- */

static void start_threads(struct dump_ahead *a, unsigned threads)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the caller's affair */
	while (a->nthreads < threads && a->nthreads < MAX_THREADS) {
		struct worker *w = &a->workers[1 + a->nthreads];

		w->twin = dump_twin(a->dump);
		if (pthread_create(&w->thread, NULL, run_worker, w))
			break;
		a->nthreads++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

struct dump_ahead *dump_ahead_new(struct dump *d, unsigned threads, size_t piece)
{
	struct dump_ahead *a = xcalloc_apart(sizeof(*a));

	a->dump = d;
	a->offset = dump_source(d)->next.offset;
	a->piece = piece ? piece : PIECE;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->ready, NULL);
	pthread_cond_init(&a->empty, NULL);
	for (unsigned i = 0; i <= MAX_THREADS; i++)
		a->workers[i].ahead = a;
	a->workers[0].twin = dump_twin(d);
	start_threads(a, threads);
	if (a->nthreads)
		return a;
	dump_ahead_free(a);
	return NULL;
}

static void release_worker(struct worker *w)
{
	dump_close(w->twin);
	buf_release(&w->text);
	buf_release(&w->packed);
	for (unsigned i = 0; i < BATCHES; i++)
		buf_release(&w->batches[i].rows);
}

void dump_ahead_free(struct dump_ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_broadcast(&a->empty);
	pthread_mutex_unlock(&a->lock);
	for (unsigned i = 1; i <= a->nthreads; i++)
		pthread_join(a->workers[i].thread, NULL);
	for (unsigned i = 0; i <= MAX_THREADS; i++)
		release_worker(&a->workers[i]);
	pthread_cond_destroy(&a->ready);
	pthread_cond_destroy(&a->empty);
	pthread_mutex_destroy(&a->lock);
	free(a);
}
