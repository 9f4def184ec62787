/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Owner labels. What a thread allocates between a push and its pop gets the label; other labels are
 * given to a block by an address inside it, often long after its MALLOC row.
 *
 * Labels have levels. Of each system level (0 to 4) the newest label of the thread counts, of the
 * user's the first three in the order of their pushes, which become levels 5 to 7. A label that is
 * given by address replaces the one of its level and leaves the others.
 *
 * A set of labels never changes once it is made and is shared by all blocks that were allocated
 * under it, so an allocation costs no more than a reference.
 *
 * Allocations may come late: a framework's own history of its pool. So the sets that a thread
 * had are kept for a while, and a block gets the one of its time.
 */
#include "base/mem.h"
#include "memory/track/track_impl.h"

#include <stdlib.h>
#include <string.h>

#define NLEVELS BLOCK_LEVELS
#define LABEL_OPS "ops" /* belongs to operators of torch */
#define LEVEL_DETAIL_2 4
#define LEVEL_USER 5
#define MAX_TEXT 128 /* bytes of one label */
#define MAX_LABELS 64 /* of one thread at a time */
#define MAX_THREADS 65536 /* that have pushed labels */
#define MAX_PAST 1024u /* sets that a thread had, and … */
#define MAX_ALL_PAST 262144u /* … all of them together */

struct labels {
	uint32_t refs;
	uint8_t len[NLEVELS];
	char text[]; /* of all levels, one behind the other */
};

struct piece {
	const char *text;
	size_t len;
};

/* --- sets --- */

static struct labels *labels_make(const struct piece pieces[NLEVELS])
{
	size_t total = 0, at = 0;

	for (unsigned i = 0; i < NLEVELS; i++)
		total += pieces[i].len;
	if (!total)
		return NULL;
	struct labels *l = xmalloc(sizeof(*l) + total);
	l->refs = 1;
	for (unsigned i = 0; i < NLEVELS; i++) {
		l->len[i] = (uint8_t)pieces[i].len;
		if (pieces[i].len)
			memcpy(l->text + at, pieces[i].text, pieces[i].len);
		at += pieces[i].len;
	}
	return l;
}

static void labels_pieces(const struct labels *l, struct piece out[NLEVELS])
{
	size_t at = 0;

	for (unsigned i = 0; i < NLEVELS; i++) {
		out[i] = l ? (struct piece){l->text + at, l->len[i]} : (struct piece){"", 0};
		at += out[i].len;
	}
}

struct labels *labels_share(struct labels *l)
{
	if (l)
		l->refs++;
	return l;
}

void labels_put(struct labels *l)
{
	if (l && !--l->refs)
		free(l);
}

void labels_text(const struct labels *l, struct buf *out)
{
	struct piece pieces[NLEVELS], last = {0};

	labels_pieces(l, pieces);
	for (unsigned i = 0; i < NLEVELS; i++) {
		if (!pieces[i].len)
			continue;
		/* A framework and the package may say the same, each at a level of its own. */
		if (i < LEVEL_USER && pieces[i].len == last.len &&
		    !memcmp(pieces[i].text, last.text, last.len))
			continue;
		last = pieces[i];
		if (out->len)
			buf_add_char(out, '@');
		buf_add(out, last.text, last.len);
	}
}

size_t labels_pack(const struct labels *l, char out[LABELS_MAX_BYTES])
{
	size_t total = 0;

	if (!l)
		return 0;
	_Static_assert(sizeof(l->len) == NLEVELS, "a byte for each level");
	memcpy(out, l->len, NLEVELS);
	for (unsigned i = 0; i < NLEVELS; i++)
		total += l->len[i];
	memcpy(out + NLEVELS, l->text, total);
	return NLEVELS + total;
}

struct labels *labels_unpack(const char *text, size_t len)
{
	struct piece pieces[NLEVELS];
	size_t at = NLEVELS;

	if (len < NLEVELS)
		return NULL;
	for (unsigned i = 0; i < NLEVELS; i++) {
		size_t n = (unsigned char)text[i];
		if (n > MAX_TEXT || n > len - at)
			return NULL;
		pieces[i] = (struct piece){text + at, n};
		at += n;
	}
	return labels_make(pieces);
}

/* --- threads --- */

/* Is this one of the user's, inside another one of the same name? Then that one counts. */
static bool is_open_twice(const struct thread *th, size_t at)
{
	for (size_t i = 0; th->labels[at].level >= LEVEL_USER && i < at; i++)
		if (th->labels[i].level >= LEVEL_USER &&
		    !strcmp(th->labels[i].text, th->labels[at].text))
			return true;
	return false;
}

static struct labels *thread_labels(const struct thread *th)
{
	struct piece pieces[NLEVELS] = {0};
	unsigned user = LEVEL_USER;

	for (size_t i = 0; i < th->nlabels; i++) {
		const struct label *l = &th->labels[i];
		unsigned level = l->level < LEVEL_USER ? l->level : user;
		if (level >= NLEVELS || !*l->text || is_open_twice(th, i))
			continue;
		pieces[level] = (struct piece){l->text, strlen(l->text)};
		user += l->level >= LEVEL_USER;
	}
	return labels_make(pieces);
}

static struct labels *operator_labels(const struct labels *now)
{
	struct piece pieces[NLEVELS];

	labels_pieces(now, pieces);
	if (!pieces[LEVEL_DETAIL_2].len)
		pieces[LEVEL_DETAIL_2] = (struct piece){LABEL_OPS, strlen(LABEL_OPS)};
	return labels_make(pieces);
}

/* What the thread's labels come to. */
static struct labels *labels_now(struct thread *th)
{
	if (th->stale) {
		labels_put(th->now);
		labels_put(th->in_operator);
		th->now = thread_labels(th);
		th->in_operator = NULL;
		th->stale = false;
	}
	return th->now;
}

/* What they came to at that time; NULL also when that is forgotten. */
static struct labels *labels_then(const struct thread *th, uint64_t time_ns)
{
	size_t low = 0, high = th->npast;

	while (low < high) { /* the first that lasted longer */
		size_t mid = (low + high) / 2;
		if (th->past[(th->first_past + mid) % th->npast].until_ns > time_ns)
			high = mid;
		else
			low = mid + 1;
	}
	const struct past_labels *then = &th->past[(th->first_past + low) % th->npast];
	return then->from_ns <= time_ns ? then->labels : NULL;
}

struct labels *labels_of(struct proc *p, uint32_t tid, uint8_t pool, uint64_t time_ns)
{
	struct thread *th = omap_get(&p->threads, tid);

	/* A thread of autograd's that nobody knows yet works for the one that waits for it. */
	if (!th && pool == POOL_TORCH)
		th = omap_get(&p->threads, p->info.pid);
	if (!th)
		return NULL;
	struct labels *l = labels_now(th);
	if (time_ns < th->since_ns) {
		l = th->npast ? labels_then(th, time_ns) : NULL;
	} else if (th->operators && (pool == POOL_PTA || pool == POOL_TORCH)) {
		if (!th->in_operator)
			th->in_operator = operator_labels(th->now);
		l = th->in_operator;
	}
	if (l)
		l->refs++;
	return l;
}

static struct thread *thread_of(struct proc *p, uint32_t tid)
{
	struct thread *th = omap_get(&p->threads, tid);

	if (!th && p->threads.count < MAX_THREADS) {
		th = xcalloc(1, sizeof(*th));
		omap_put(&p->threads, tid, th);
	}
	return th;
}

/* What they allocate is theirs from the beginning; what they use becomes theirs (see below). */
void labels_operator(struct proc *p, uint32_t tid, bool begins)
{
	struct thread *th = p->cfg->analysis & MEM_DECOMPOSE ? thread_of(p, tid) : NULL;

	if (th && begins)
		th->operators++;
	else if (th && th->operators)
		th->operators--;
}

/* The labels are about to change: what they were is kept for those that come late. */
static void keep_past(struct proc *p, struct thread *th, uint64_t now_ns)
{
	struct past_labels was = {th->since_ns, now_ns, labels_now(th)};

	if (now_ns <= th->since_ns) /* at once: nothing can have been allocated between */
		return;
	if (was.labels)
		was.labels->refs++;
	th->since_ns = now_ns;
	if (th->npast < MAX_PAST && p->npast < MAX_ALL_PAST && !th->first_past) {
		th->past = xgrow(th->past, &th->cap_past, th->npast + 1, sizeof(*th->past));
		th->past[th->npast++] = was;
		p->npast++;
	} else if (th->npast) {
		struct past_labels *oldest = &th->past[th->first_past];
		labels_put(oldest->labels);
		*oldest = was;
		th->first_past = (th->first_past + 1) % th->npast;
	} else {
		labels_put(was.labels);
	}
}

static void label_push(struct proc *p, uint32_t tid, const struct rec_label *r, const char *text)
{
	struct thread *th = r->level < NLEVELS ? thread_of(p, tid) : NULL;

	if (!th || th->nlabels >= MAX_LABELS)
		return;
	keep_past(p, th, r->head.time_ns);
	th->labels = xgrow(th->labels, &th->cap_labels, th->nlabels + 1, sizeof(*th->labels));
	th->labels[th->nlabels++] = (struct label){r->level, xstrdup(text)};
	th->stale = true;
}

/* The innermost of this text at this level (users' are one), else at any; NULL: there is none. */
static struct label *find_pushed(const struct thread *th, uint8_t level, const char *text)
{
	struct label *found = NULL;

	for (size_t i = th->nlabels; i > 0; i--) {
		struct label *l = &th->labels[i - 1];
		if (strcmp(l->text, text) != 0)
			continue;
		if (l->level == level || (l->level >= LEVEL_USER && level >= LEVEL_USER))
			return l;
		found = found ? found : l;
	}
	return found;
}

static void label_pop(struct proc *p, uint32_t tid, const struct rec_label *r, const char *text)
{
	struct thread *th = omap_get(&p->threads, tid);
	struct label *l = th ? find_pushed(th, r->level, text) : NULL;

	if (!l)
		return;
	keep_past(p, th, r->head.time_ns);
	free(l->text);
	memmove(l, l + 1, (size_t)(th->labels + th->nlabels - (l + 1)) * sizeof(*l));
	th->nlabels--;
	th->stale = true;
}

static void free_thread(void *value)
{
	struct thread *th = value;

	for (size_t i = 0; i < th->nlabels; i++)
		free(th->labels[i].text);
	free(th->labels);
	for (size_t i = 0; i < th->npast; i++)
		labels_put(th->past[i].labels);
	free(th->past);
	labels_put(th->now);
	labels_put(th->in_operator);
	free(th);
}

void labels_thread_begins(struct proc *p, uint32_t tid)
{
	struct thread *th = omap_remove(&p->threads, tid);

	if (th) {
		p->npast -= th->npast;
		free_thread(th);
	}
}

void labels_release(struct proc *p)
{
	omap_release_values(&p->threads, free_thread);
}

struct thread_writing {
	struct proc *p;
	struct checkpoint_writing *w;
};

static void write_thread(uint64_t tid, void *value, void *arg)
{
	const struct thread_writing *t = arg;
	const struct thread *th = value;

	for (size_t i = 0; i < th->nlabels; i++) {
		struct rec_label r = {.head = {.type = REC_LABEL, .size = sizeof(r)},
				      .kind = LABEL_PUSH,
				      .level = th->labels[i].level,
				      .len = (uint16_t)strlen(th->labels[i].text)};
		checkpoint_put(t->w, (uint32_t)tid, &r, th->labels[i].text, r.len);
	}
	if (!th->operators)
		return;
	struct rec_state s = {.head = {.type = REC_STATE, .size = sizeof(s)},
			      .kind = STATE_THREAD,
			      .value = {tid, th->operators}};
	checkpoint_put(t->w, (uint32_t)tid, &s, NULL, 0);
}

/* What a thread had pushed before is left out: it is for records that come up to a second late. */
void labels_write(struct proc *p, struct checkpoint_writing *w)
{
	struct thread_writing t = {p, w};

	omap_each(&p->threads, write_thread, &t);
}

void labels_set_operators(struct proc *p, uint32_t tid, unsigned n)
{
	struct thread *th = thread_of(p, tid);

	if (th)
		th->operators = n;
}

/* --- blocks --- */

static void label_block(struct proc *p, struct block *b, unsigned level, const char *text)
{
	struct piece pieces[NLEVELS];
	size_t len = strlen(text);

	labels_pieces(b->labels, pieces);
	if (pieces[level].len == len && !memcmp(pieces[level].text, text, len))
		return;
	pieces[level] = (struct piece){text, len};
	struct labels *made = labels_make(pieces);
	labels_put(b->labels);
	b->labels = made;
	if (b->written) {
		b->labelled_late = true;
		rows_relabelled(p, b);
	}
}

/* The block that a pool cut out comes before the block around it that the pool cuts from. */
struct block *labels_block_at(struct proc *p, uint64_t addr)
{
	static const uint8_t maps[] = {POOL_PTA,   POOL_PTA_WORKSPACE, POOL_MINDSPORE, POOL_ATB,
				       POOL_TORCH, POOL_PYTHON,	       POOL_HOST,      MAP_PINNED,
				       POOL_HAL,   POOL_CUDA,	       MAP_MAPPINGS};
	struct block *b = NULL;

	_Static_assert(sizeof(maps) == NMAPS - 2, "each pool once, but for handles");
	for (size_t i = 0; !b && i < sizeof(maps); i++)
		b = block_around(p, maps[i], addr);
	return b;
}

static void label_address(struct proc *p, uint64_t addr, uint8_t level, const char *text)
{
	struct block *b = level < NLEVELS ? labels_block_at(p, addr) : NULL;

	if (b)
		label_block(p, b, level, text);
}

void labels_accessed(struct proc *p, struct block *b)
{
	bool tensors = b->pool == POOL_PTA || b->pool == POOL_TORCH || b->pool == POOL_HOST;

	if (p->cfg->analysis & MEM_DECOMPOSE && tensors &&
	    (!b->labels || !b->labels->len[LEVEL_DETAIL_2]))
		label_block(p, b, LEVEL_DETAIL_2, LABEL_OPS);
}

/* --- records --- */

/* One character as an attribute can hold it: a comma would begin the next one. */
static size_t escape_char(unsigned char c, char out[4])
{
	static const char hex[] = "0123456789abcdef";
	static const char names[] = "abtnvfr"; /* from 7 on */

	out[0] = '\\';
	if (c >= 7 && c <= 13) {
		out[1] = names[c - 7];
		return 2;
	}
	if (c < ' ' || c == 127) {
		out[1] = 'x';
		out[2] = hex[c >> 4];
		out[3] = hex[c & 15];
		return 4;
	}
	out[0] = c == ',' ? ';' : (char)c;
	return 1;
}

/* A label that is too long is cut, but not inside a character. */
static void label_text(const char *raw, size_t len, char out[MAX_TEXT + 1])
{
	size_t n = 0, whole = 0;

	for (size_t i = 0; i < len; i++) {
		char c[4];
		size_t k = escape_char((unsigned char)raw[i], c);
		if (((unsigned char)raw[i] & 0xc0) != 0x80)
			whole = n;
		if (n + k > MAX_TEXT) {
			n = whole;
			break;
		}
		memcpy(out + n, c, k);
		n += k;
	}
	out[n] = '\0';
}

void labels_record(struct proc *p, uint32_t tid, const struct rec_label *r)
{
	char text[MAX_TEXT + 1];
	size_t len;
	const char *raw = rec_text(&r->head, &len);

	label_text(raw, len, text);
	if (r->kind != LABEL_ADDR && r->addr) /* for another thread */
		tid = (uint32_t)r->addr;
	if (r->kind == LABEL_PUSH)
		label_push(p, tid, r, text);
	else if (r->kind == LABEL_POP)
		label_pop(p, tid, r, text);
	else if (r->kind == LABEL_ADDR)
		label_address(p, r->addr, r->level, text);
}
